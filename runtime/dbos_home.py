"""A process that carries durable runs on with DBOS: its launch, its lease, and what it does for processes that died.

DBOS leaves the runs of a lost process to somebody who knows that it is lost. Here each process holds a lease in the
database; one whose lease has run out is taken over by exactly one other, which lets its runs go on wherever there is
room. A process that was only frozen finds that its records are refused, and holds a new lease.
"""

import asyncio
import contextvars
import hashlib
import logging
import os
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

from dbos import DBOS, DBOSClient, DBOSConfig, DBOSPortableJSONSerializer, SetWorkflowID, WorkflowHandleAsync

from ..capabilities.frozen import FrozenDict, FrozenList
from ..capabilities.run_parts import Stop
from .dbos_engine import DbosEngine
from .dbos_tables import Tables, in_thread, is_sqlite, shown_url
from .durable_journal import put_aside
from .durable_run import GRACE, Carried, Worker, carry, stop_message, told
from .event_codec import dumps, loads
from .event_parts import JsonObject, get

T = TypeVar("T")
WORKFLOW = "capfold_run"
POLL = 0.1  # seconds: how often SQLite is asked for messages, once for each run that waits
TICK = 0.2  # seconds between two looks for stops
AGAIN = 0.5  # seconds between two cancellations of a run that is left
KEPT = 100  # results of runs that ended in this process
_LOG = logging.getLogger("capfold")


def app_name(agent: str) -> str:
    """Return the name of the application that an agent's runs belong to, as DBOS takes it: no two agents share one."""
    plain = re.sub("[^a-z0-9-]+", "-", agent.lower())[:200]
    if plain != agent:  # two names may look the same then
        plain = f"{plain}-{hashlib.sha256(agent.encode()).hexdigest()[:12]}"
    return f"capfold-{plain}"


def client_of(url: str, agent: str | None) -> DBOSClient:
    """Return what reaches a database from outside of runs; `agent`: whose runs it may start."""
    return DBOSClient(
        system_database_url=url,
        serializer=DBOSPortableJSONSerializer(),
        application_name=None if agent is None else app_name(agent),
    )


class Home:
    """This process, as one that carries runs of one agent on. One at a time in a process, as DBOS has it."""

    current: "Home | None" = None

    def __init__(self, url: str, worker: Worker, *, version: str, lease: float) -> None:
        """Take a database and an agent; `lease`: seconds after which a silent process counts as lost."""
        self.tables = Tables(url)
        self.executor = f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
        self.ended: dict[str, Carried] = {}
        self.url = url
        self.worker = worker
        self._version = version
        self._lease = lease
        self._app = app_name(worker.agent.name)
        self._engines: dict[str, DbosEngine] = {}
        self._tasks: dict[str, asyncio.Task[object]] = {}
        self._texts: dict[str, asyncio.Future[str]] = {}
        self._sending: set[asyncio.Future[None]] = set()  # a loop keeps no reference to its tasks
        self._at_work = 0  # steps under way that are not on record
        self._leaving = False
        self.closed = False
        self._guard: asyncio.Task[None] | None = None
        self._over = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: DBOSClient | None = None
        self._keeper: threading.Thread | None = None

    async def open(self) -> None:
        """Launch, in the running event loop. Raises RuntimeError where another agent's is launched already."""
        if Home.current is not None:
            other = Home.current
            raise RuntimeError(
                f"this process carries on runs of {other.worker.agent.name!r} in {shown_url(other.url)}; "
                "close that DurableAgent first, or use another process: DBOS is launched once in a process"
            )
        Home.current = self
        try:
            self._loop = asyncio.get_running_loop()
            await in_thread(self.tables.make)
            await in_thread(self.tables.renew, self.executor, self._app, self._lease)
            config: DBOSConfig = {
                "name": self._app,
                "system_database_url": self.url,
                "executor_id": self.executor,
                # DBOS has one application for each version in a database; agents of other names shall have theirs.
                "application_version": f"{self._app}:{self._version}",
                "serializer": DBOSPortableJSONSerializer(),
                "log_level": "ERROR",
            }
            if is_sqlite(self.url):
                config["notification_listener_polling_interval_sec"] = POLL
            DBOS(config=config)
            _register()
            DBOS.launch()
            self._client = await in_thread(client_of, self.url, self.worker.agent.name)
        except BaseException:
            Home.current = None
            DBOS.destroy()
            raise
        self._keeper = threading.Thread(target=self._keep, name="capfold-lease", daemon=True)
        self._keeper.start()
        self._guard = self._loop.create_task(self._until_the_loop_ends())

    async def _until_the_loop_ends(self) -> None:
        """Close what nobody closed when the event loop ends, which cancels its tasks; else DBOS keeps the process."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            if not self._leaving:
                await self.close()

    async def close(self, patience: float = 0.0) -> int:
        """Begin no step any more, wait for those under way for so many seconds, and leave the runs to other processes.

        Returns how many were left.
        """
        if self.closed:
            return 0
        self._leaving = True
        end = asyncio.get_running_loop().time() + patience
        while self._at_work and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110  # until a time, too
            await asyncio.sleep(0.02)
        self._over.set()
        if self._keeper is not None:
            await in_thread(self._keeper.join, 10.0)
        await self._cancel()
        # Before the runs are let go: else a queue of this process might take one of them again.
        await in_thread(DBOS.destroy)
        # DBOS had made its own threads those of the loop, and has shut them down.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
        await self._cancel()
        left = await in_thread(self._leave)
        await in_thread(self.tables.close)
        Home.current = None
        self.closed = True
        if self._guard is not None:
            self._guard.cancel()
        return left

    async def _cancel(self) -> None:
        """End what runs here; nothing is recorded of it from now on."""
        tasks = {task for task in self._tasks.values() if not task.done()}
        while tasks:  # again and again: a tool may swallow a cancellation, and its run goes on after that
            for task in tasks:
                task.cancel()
            _, tasks = await asyncio.wait(tasks, timeout=AGAIN)

    def _leave(self) -> int:
        assert self._client is not None, "it was opened"
        left = self._let_go(self.executor)
        self.tables.release(self.executor)
        self._client.destroy()
        return left

    # --- steps

    async def enter(self) -> None:
        """Take note that a step begins; once this process leaves, none does: it waits to be cancelled."""
        if self._leaving:
            await asyncio.get_running_loop().create_future()
        self._at_work += 1

    def leave(self) -> None:
        """Take note that a step is on record, or waits for a run below."""
        self._at_work -= 1

    def enter_again(self) -> None:
        """Take note that a step has what it waited for."""
        self._at_work += 1

    # --- runs

    async def carry(self, run_id: str, order: str, *, below: bool) -> str:
        """Carry a run on, inside its workflow; return what it came to."""
        engine = self._engines[run_id] = DbosEngine(run_id, self)
        task = self._tasks[run_id] = cast("asyncio.Task[object]", asyncio.current_task())
        try:
            wish = (await in_thread(self.tables.stops)).get(run_id)
            if wish is not None:  # from before this process had the run: nothing more is begun
                self._heed(run_id, wish)
            carried = await carry(engine, self.worker, order)
            text = told(carried)
            if not below:
                self._keep_result(run_id, carried)
                text = FrozenDict({**text, "records": FrozenList()})
            made = await put_aside(engine, dumps(text))
        except Exception:  # it is broken, and waits for nothing; not so when the worker ends
            await in_thread(self.tables.waits_no_more, run_id)
            raise
        finally:
            if self._engines.get(run_id) is engine:
                del self._engines[run_id]
            if self._tasks.get(run_id) is task:
                del self._tasks[run_id]
        await in_thread(self.tables.stopped, run_id)
        future = self._texts.pop(run_id, None)
        if future is not None and not future.done():
            future.set_result(made)
        return made

    def _keep_result(self, run_id: str, carried: Carried) -> None:
        self.ended[run_id] = carried
        while len(self.ended) > KEPT:
            del self.ended[next(iter(self.ended))]

    async def begin(self, run_id: str, order: str, *, below: bool = False) -> None:
        """Start a run in this process; one that is there already is left as it is."""

        async def begun() -> None:
            with SetWorkflowID(run_id):
                await DBOS.start_workflow_async(_registered(), order, below)

        await outside(begun)

    async def run_below(self, run_id: str, order: str) -> str:
        """Start a run below, or find it; return what it came to, wherever it ends."""
        loop = asyncio.get_running_loop()
        here = self._texts.setdefault(run_id, loop.create_future())
        await self.begin(run_id, order, below=True)
        there = asyncio.ensure_future(outside(lambda: self.text_of(run_id)))
        try:
            done, _ = await asyncio.wait({here, there}, return_when=asyncio.FIRST_COMPLETED)
            return (here if here in done else there).result()
        finally:
            there.cancel()

    async def text_of(self, run_id: str) -> str:
        """Wait for the end of a run in any process; return what it came to. Raises what the engine failed by."""
        handle: WorkflowHandleAsync[str] = await DBOS.retrieve_workflow_async(run_id)
        text: str = await handle.get_result(polling_interval_sec=0.1)
        return text

    async def end_below(self, run_id: str) -> None:
        """Ask a run below to end, here or in any other process."""
        wish = wish_text(None)
        await in_thread(self.tables.stop, run_id, wish)
        self._heed(run_id, wish)

    async def send(self, run_id: str, topic: str, message: str) -> None:
        """Send a message to a run; a second one of a topic is dropped."""
        assert self._client is not None, "it was opened"
        await self._client.send_async(run_id, message, topic, idempotency_key=f"{run_id} {topic}")

    # --- the keeper, in a thread of its own: a busy event loop is no lost process

    def _keep(self) -> None:
        beat = self._lease / 3
        waited = 0.0
        while not self._over.wait(TICK):
            waited += TICK
            try:
                if self._engines:
                    for run_id, wish in self.tables.stops().items():
                        if run_id in self._engines and self._loop is not None:
                            self._loop.call_soon_threadsafe(self._heed, run_id, wish)
                if waited >= beat:
                    waited = 0.0
                    self.tables.renew(self.executor, self._app, self._lease)
                    self._reap()
            except Exception as error:  # noqa: BLE001  # the database is away; the next beat tries again
                _LOG.warning("the lease of %s: %s: %s", self.executor, type(error).__name__, error)

    def _reap(self) -> None:
        """Let the runs of lost processes go on."""
        for executor, until in self.tables.expired(self._app):
            if executor != self.executor and self.tables.take_over(executor, until, self._lease):
                _LOG.warning("process %s is lost: its runs go on elsewhere", executor)
                self._let_go(executor)
                self.tables.release(executor)

    def _let_go(self, executor: str) -> int:
        """Let the runs that a process had go on wherever there is room; return how many."""
        assert self._client is not None, "it was opened"
        left = self._client.list_workflows(
            status="PENDING", executor_id=executor, name=WORKFLOW, load_input=False, load_output=False
        )
        if left:
            self._client.resume_workflows([one.workflow_id for one in left])
        return len(left)

    def _heed(self, run_id: str, wish: str) -> None:
        """Let a run of this process end as somebody wishes."""
        engine = self._engines.get(run_id)
        if engine is None:
            return
        stop = stop_in(loads(wish))
        if engine.topic is not None:
            sending = asyncio.ensure_future(self.send(run_id, engine.topic, stop_message(stop, self._now())))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        elif stop is None:
            engine.control.cancel()
        else:
            engine.control.ask(stop.message, GRACE)

    def _now(self) -> float:
        return self.worker.agent.given.port.now()


def wish_text(stop: Stop | None) -> str:
    """Return the wish that a run ends, by a stop or as a cancelled one."""
    return stop_message(stop, 0.0)


def stop_in(wish: JsonObject) -> Stop | None:
    """Return the stop of a wish, None for one that a run is cancelled."""
    return None if wish["stop"] is None else get(wish["stop"], Stop)


async def outside(work: Callable[[], Awaitable[T]]) -> T:
    """Await something as if no step and no workflow were under way: DBOS has them in context variables."""

    async def worked() -> T:
        return await work()

    task = asyncio.get_running_loop().create_task(worked(), context=contextvars.Context())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        raise


async def _carry(order: str, below: bool) -> str:  # noqa: FBT001  # the arguments of a workflow are recorded by place
    home = Home.current
    assert home is not None, "workflows run in a process that was opened"
    return await home.carry(cast(str, DBOS.workflow_id), order, below=below)


_WORKFLOWS: list[Callable[[str, bool], Coroutine[Any, Any, str]]] = []


def _register() -> None:
    """Tell DBOS of the one workflow there is, once in a process."""
    if not _WORKFLOWS:
        _WORKFLOWS.append(DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)(_carry))


def _registered() -> Callable[[str, bool], Coroutine[Any, Any, str]]:
    return _WORKFLOWS[0]
