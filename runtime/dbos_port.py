"""Durable agents on DBOS: the runs of an agent, recorded step by step in SQLite or PostgreSQL.

A run outlives its process: another one with the same agent on the same database goes on with it.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Self, Unpack, cast

from attrs import evolve

try:
    from dbos import PortableWorkflowError
    from dbos import error as dbos_error
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "durable runs on DBOS need the extra `dbos`: pip install 'capfold[dbos]'", name=error.name
    ) from error
from typing_extensions import TypeVar

from ..capabilities.messages import Content
from .agent import Agent
from .dbos_engine import EVENTS
from .dbos_home import Home
from .dbos_runs import DurableRuns
from .dbos_tables import in_thread
from .durable_agent import OnEngine, check_agent
from .durable_engine import Policy, policy_of
from .durable_journal import put_aside
from .durable_order import DurableOptions, write_order
from .durable_run import Carried, Worker, carry, outcome_of
from .event_codec import dumps
from .journal_engine import JournalEngine, Records
from .outbox import Shown, event_of
from .port import on_asyncio
from .result import RunResult

Out = TypeVar("Out", default=str)
DEFAULT_URL = "sqlite:///capfold-runs.sqlite"


class DurableAgent(OnEngine[Out]):
    """An agent whose runs are recorded in a database, and go on in any process that has this agent.

    `url`: `sqlite:///FILE`, which needs nothing else, or `postgresql://...`. `on_interrupted`: what becomes of a tool
    call that was begun by a process that was lost, where the tool is not declared idempotent or read-only: "unknown"
    leaves it alone, "ask" waits for a person, "retry" runs it again; or a function of the tool that says which.
    `version`: runs go on in processes of the same version only. `lease`: seconds after which a silent process counts as
    lost. Opened when first used, closed by `async with` or `close`. On asyncio only.
    """

    runs: DurableRuns

    def __init__(
        self,
        agent: Agent[Out],
        url: str = DEFAULT_URL,
        *,
        on_interrupted: Policy = "unknown",
        version: str = "1",
        lease: float = 15.0,
    ) -> None:
        """Take an agent. Raises TypeError or ValueError for what could not work."""
        check_agent(agent, lease, "DurableAgent")
        if type(version) is not str or not version:
            raise TypeError(f"version is a non-empty string, not {version!r:.40}")
        self._agent = agent
        self.runs = DurableRuns(url, agent=agent.name)
        self._worker = Worker(agent, policy_of(on_interrupted))
        self._url = url
        self._version = version
        self._lease = float(lease)
        self._home: Home | None = None
        self._opening: asyncio.Lock | None = None

    @property
    def url(self) -> str:
        """The database."""
        return self._url

    @property
    def executor(self) -> str | None:
        """The id of this process among those that carry runs on, new each time it is opened; None while closed."""
        return None if self._home is None else self._home.executor

    def replace(self, agent: Agent[Out]) -> None:
        """Carry runs on with another agent from now on, as one with new settings; those under way keep theirs.

        Raises ValueError for one of another name, whose runs these are not.
        """
        if agent.name != self._agent.name:
            raise ValueError(f"the runs are of agent {self._agent.name!r}, not {agent.name!r}")
        self._agent = agent
        self._worker = evolve(self._worker, agent=agent)
        if self._home is not None:
            self._home.worker = self._worker

    async def open(self) -> Self:
        """Begin to carry runs on in this process: those that it starts, and those of processes that are lost.

        Raises RuntimeError on another event loop than asyncio's, and where the process has another DurableAgent.
        """
        if not on_asyncio():
            raise RuntimeError("DurableAgent runs on asyncio; on trio, use Agent itself")
        self._opening = self._opening or asyncio.Lock()
        async with self._opening:
            if self._home is None or self._home.closed:
                home = Home(self._url, self._worker, version=self._version, lease=self._lease)
                await home.open()
                self._home = home
        return self

    async def close(self, patience: float = 0.0) -> int:
        """Begin no step any more, and leave the runs under way to other processes, or to the next one.

        Steps under way have `patience` seconds to end; one that has not is interrupted, and begun again elsewhere or
        treated as `on_interrupted` says. Returns how many runs were left.
        """
        home, self._home = self._home, None
        left = 0 if home is None else await home.close(patience)
        await self.runs.close()
        return left

    async def start(self, prompt: Content | None, **options: Unpack[DurableOptions]) -> str:
        """Start a run and return its id: `run_id`, or one that is made. A run of that id is started once.

        Raises TypeError or ValueError for what it cannot be started with.
        """
        home = await self._opened()
        port = self.agent.given.port
        order = dumps(write_order(self._worker.agent, prompt, options, port.now()))
        run_id = options.get("run_id") or port.new_id()
        text = await put_aside(_Aside(home), order)
        await home.begin(run_id, text)
        return run_id

    async def result(self, run_id: str) -> RunResult[Out]:
        """Wait for the end of a run, in whichever process it comes, and return the result.

        Raises RunError when it failed, LookupError for an id that is not known, RuntimeError for a run that is broken.
        """
        home = await self._opened()
        await self.runs.show(run_id)
        try:
            await home.text_of(run_id)
        except (PortableWorkflowError, dbos_error.DBOSException) as error:
            raise RuntimeError(f"run {run_id!r} is broken: {error}") from error
        carried = home.ended.get(run_id) or await self._read(run_id)
        return cast("RunResult[Out]", outcome_of(carried))

    async def _read(self, run_id: str) -> Carried:
        """Return what a run came to, from its records; nothing is performed."""
        client = await self.runs.client()
        (found,) = await client.list_workflows_async(workflow_ids=[run_id])
        assert found.input is not None, "a run that ended has its order"
        reader = _Reader(run_id, self.runs)
        for step in await client.list_workflow_steps_async(run_id):
            if step["function_name"] == "DBOS.recv":
                reader.messages.append(cast(str, step["output"]))
            elif isinstance(step["output"], str):
                reader.records.steps.setdefault(run_id, {})[step["function_name"]] = step["output"]
        return await carry(reader, self._worker, cast(str, found.input["args"][0]))

    async def stop(self, run_id: str, message: str) -> None:
        """End a run as a result, status "stopped", wherever it is; `result` waits for that."""
        await self._opened()
        await self.runs.stop(run_id, message)

    async def fork(self, run_id: str, step: int) -> str:
        """Start a run that shares what this one did before a step, and does the rest anew; return its id."""
        await self._opened()
        return await self.runs.fork(run_id, step)

    async def events(self, run_id: str) -> AsyncIterator[Shown]:
        """Give the events of a run that was started with `live=True`, from its beginning, until it ends.

        `Settled` is final. Events of a step may come again, where a process was lost in it. Raises
        LookupError for an id that is not known.
        """
        await self._opened()
        await self.runs.show(run_id)
        client = await self.runs.client()
        async for batch in client.read_stream_async(run_id, EVENTS, polling_interval_sec=0.02):
            for event in json.loads(cast(str, batch)):
                yield event_of(event)

    async def _opened(self) -> Home:
        if self._home is None or self._home.closed:
            await self.open()
        assert self._home is not None
        return self._home


class _Aside(JournalEngine):
    """Keeps long texts in the database, for an order that has no workflow yet."""

    def __init__(self, home: Home) -> None:
        super().__init__("", Records(), live=False)
        self._home = home

    async def keep(self, text: str) -> str:
        return await in_thread(self._home.tables.keep, text)


class _Reader(JournalEngine):
    """Reads the records of a run. `messages`: those that it waited for, in order."""

    def __init__(self, run_id: str, runs: DurableRuns) -> None:
        super().__init__(run_id, Records(), live=False)
        self.messages: list[str] = []
        self._runs = runs

    async def wait(self, topic: str, asked: str) -> str:
        return self.messages.pop(0)

    async def kept(self, name: str) -> str:
        return await in_thread(self._runs.tables.kept, name)
