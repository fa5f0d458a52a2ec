"""Durable agents on Temporal: the runs of an agent, recorded step by step by a Temporal server.

A run is a workflow, each of its steps an activity, each run below it a child workflow. Where steps run, and why:

* The machine and the capabilities stand in the memory of a worker, in its own event loop, never in a workflow. So
  wrappers may open connections there, nothing has to be safe for a sandbox, and a slow reducer stops no workflow task.
  The workflow holds keys only; it is deterministic whatever users write.
* A step is an ordinary activity that any worker can perform: it stands before that step by reading the history and
  replaying the machine. That is paid for where a run changes its worker. The one that has it in memory is asked first,
  on a task queue of its own; when it does not take the step within a lease, any other does.
* Steps are no local activities: those are recorded when their workflow task ends, so that a worker that is lost takes
  several finished steps with it, and nobody knows how often they were begun. And no closures pinned to one worker: its
  loss would be that of the step.
* What is given up for that: one round trip to the server a step, of some ten milliseconds, and some six events of
  history, of which a run may have 51,200.

The workflow counts how often a step was begun, from timeouts that are in its history; Temporal retries nothing itself.
"""

import asyncio
from typing import Self, Unpack, cast

try:
    from temporalio.client import Client
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "durable runs on Temporal need the extra `temporal`: pip install 'capfold[temporal]'", name=error.name
    ) from error
from typing_extensions import TypeVar

from ..capabilities.messages import Content
from ..capabilities.outside_stores import BlobStore
from .agent import Agent
from .durable_agent import OnEngine, check_agent
from .durable_engine import Policy, policy_of
from .durable_journal import put_aside
from .durable_order import DurableOptions, write_order
from .durable_run import Worker, carry, outcome_of
from .event_codec import dumps
from .port import on_asyncio
from .result import RunResult
from .temporal_engine import short
from .temporal_home import Home
from .temporal_records import Start
from .temporal_runs import Reader, TemporalRuns

Out = TypeVar("Out", default=str)
DEFAULT_SERVER = "localhost:7233"


class TemporalAgent(OnEngine[Out]):
    """An agent whose runs are recorded by a Temporal server, and go on in any process that has this agent.

    `server`: its address, or a client of it, whose codec is kept. `task_queue`: by default `capfold-` and the agent's
    name. `on_interrupted`: what becomes of a tool call that was begun by a process that was lost, where the tool is not
    declared idempotent or read-only: "unknown" leaves it alone, "ask" waits for a person, "retry" runs it again; or a
    function of the tool that says which. `lease`: seconds after which a silent process counts as lost. `attempts`: how
    often a step is tried before its run breaks. `aside`: where texts over a million characters are kept, which all
    processes share. `works`: False for a process that starts, decides and reads runs, and carries none on.

    Opened when first used, closed by `async with` or `close`. On asyncio only.
    """

    runs: TemporalRuns

    def __init__(
        self,
        agent: Agent[Out],
        server: str | Client = DEFAULT_SERVER,
        *,
        namespace: str = "default",
        task_queue: str | None = None,
        on_interrupted: Policy = "unknown",
        lease: float = 15.0,
        attempts: int = 10,
        aside: BlobStore | None = None,
        works: bool = True,
    ) -> None:
        """Take an agent. Raises TypeError or ValueError for what could not work."""
        check_agent(agent, lease, "TemporalAgent")
        _check(server, attempts)
        self._agent = agent
        self.runs = TemporalRuns(
            server, task_queue or f"capfold-{agent.name}", namespace=namespace, aside=aside
        )
        self._worker = Worker(cast("Agent[object]", agent), policy_of(on_interrupted))
        self._lease = float(lease)
        self._attempts = attempts
        self._aside = aside
        self._works = works
        self._home: Home | None = None
        self._opening: asyncio.Lock | None = None

    async def open(self) -> Self:
        """Begin to carry runs on in this process, unless it is one that does not.

        Raises RuntimeError on another event loop than asyncio's, and where there is no server.
        """
        if not on_asyncio():
            raise RuntimeError("TemporalAgent runs on asyncio; on trio, use Agent itself")
        self._opening = self._opening or asyncio.Lock()
        async with self._opening:
            client = await self.runs.client()
            if self._home is None and self._works:
                home = Home(client, self._worker, self.runs.task_queue, lease=self._lease, aside=self._aside)
                await home.open()
                self._home = home
        return self

    async def close(self, patience: float = 0.0) -> None:
        """Wait up to `patience` seconds for steps under way, and leave their runs to other processes."""
        home, self._home = self._home, None
        if home is not None:
            await home.close(patience)

    async def start(self, prompt: Content | None, **options: Unpack[DurableOptions]) -> str:
        """Start a run and return its id: `run_id`, or one that is made. A run of that id is started once.

        Raises TypeError or ValueError for what it cannot be started with: `live` too, since Temporal shows no events.
        """
        if options.get("live"):
            raise ValueError("live is not for runs on Temporal, which shows no events; runs on DBOS have it")
        await self.open()
        port = self.agent.given.port
        order = dumps(write_order(self._worker.agent, prompt, options, port.now()))
        run_id = options.get("run_id") or port.new_id()
        reader = Reader("", None, self._aside)
        text = await short(reader, await put_aside(reader, order))
        await self.runs.begin(run_id, Start(text, self._lease, self._attempts))
        return run_id

    async def result(self, run_id: str) -> RunResult[Out]:
        """Wait for the end of a run, in whichever process it comes, and return the result.

        Raises RunError when it failed, LookupError for an id that is not known, and `temporalio.client`'s
        WorkflowFailureError for a run that is broken.
        """
        await self.open()
        client = await self.runs.client()
        await self.runs.recorded(run_id)
        end = client.get_workflow_handle(run_id).result()
        await (end if self._home is None else self._home.beside(end))
        found = await self.runs.recorded(run_id)
        reader = Reader(run_id, found, self._aside)
        await reader.open()
        return cast("RunResult[Out]", outcome_of(await carry(reader, self._worker, found.start.order)))

    async def stop(self, run_id: str, message: str) -> None:
        """End a run as a result, status "stopped", wherever it is; `result` waits for that."""
        await self.open()
        await self.runs.stop(run_id, message, now=self.agent.given.port.now())

    async def fork(self, run_id: str, step: int) -> str:
        """Start a run that shares what this one did before a step, and does the rest anew; return its id."""
        await self.open()
        new_id = self.agent.given.port.new_id()
        await self.runs.fork(run_id, step, new_id)
        return new_id


def _check(server: object, attempts: object) -> None:
    """Raise TypeError or ValueError for arguments that could not work."""
    if not isinstance(server, str | Client) or not server:
        raise TypeError(f"server is an address, as {DEFAULT_SERVER!r}, or a client, not {server!r:.80}")
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise ValueError(f"attempts is a number of at least 1, not {attempts!r:.40}")
