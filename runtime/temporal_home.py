"""A process that carries runs on with Temporal: its workers, and the activity that performs their steps.

A run is taken over by reading its history, so any worker can perform any step. A worker that has a run in memory is
asked first, on a task queue of its own; when it does not answer for as long as a lease, the others are.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any, TypeVar

from attrs import define
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker as TemporalWorker

from ..capabilities.outside_stores import BlobStore
from .durable_run import Carried, Worker
from .errors import message_of
from .event_codec import dumps
from .temporal_engine import LOOK_AHEAD, MAX_TEXT, NeverAsked, TemporalEngine
from .temporal_history import read_history
from .temporal_house import AWAY, TemporalHouse
from .temporal_journal import FOREVER, RunWorkflow
from .temporal_memory import Held, Memory
from .temporal_records import BROKEN, LEFT, STEP, UNBEGUN, Done, Todo

T = TypeVar("T")
STICKY = timedelta(seconds=2)  # a worker that is lost keeps its runs from others for that long


@define(eq=False)
class Doing:
    """An activity under way. `begun`: whether a step of it is performed; `wish`: that its run ends, once known."""

    place: tuple[str, str]
    todo: Todo
    wish: str | None
    engine: TemporalEngine | None = None
    begun: bool = False

    def heed(self, wish: str | None) -> None:
        """Let the run end as somebody wishes, now or as soon as it is in memory."""
        self.wish = wish
        if self.engine is not None and wish is not None:
            self.engine.heed(wish)


class Home:
    """This process, as one that carries runs of one agent on. `aside`: where long texts are kept."""

    def __init__(
        self, client: Client, worker: Worker, queue: str, *, lease: float, aside: BlobStore | None
    ) -> None:
        """Take a server and an agent."""
        self.name = f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
        self._client = client
        self._queue = f"{queue}:{self.name}"
        self._beat = min(1.0, lease / 4)
        self._memory = Memory(client, worker, TemporalHouse(client, worker.agent.given.port, aside))
        beat = timedelta(seconds=self._beat)
        # `max_concurrent_activities`: a step that waits for a run below holds its place for as long as that takes.
        common: dict[str, Any] = {  # Any: arguments by name
            "activities": [self.step],
            "identity": self.name,
            "max_concurrent_activities": 1000,
            "max_heartbeat_throttle_interval": beat,
            "default_heartbeat_throttle_interval": beat,
            "graceful_shutdown_timeout": FOREVER,  # how long is for `close` to say
        }
        self._workers = (
            TemporalWorker(
                client,
                task_queue=queue,
                workflows=[RunWorkflow],
                sticky_queue_schedule_to_start_timeout=STICKY,
                **common,
            ),
            TemporalWorker(
                client,
                task_queue=self._queue,
                **common,
            ),
        )
        self._running: list[asyncio.Task[None]] = []
        self._leaving = False
        self._over = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        """Begin to take steps."""
        for worker in self._workers:
            self._running.append(asyncio.ensure_future(worker.run()))
        await asyncio.sleep(0)

    async def beside(self, work: Awaitable[T]) -> T:
        """Await something as long as this process takes steps. Raises what keeps it from that."""
        awaited = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait({awaited, *self._running}, return_when=asyncio.FIRST_COMPLETED)
            for task in self._running:
                if task in done and awaited not in done:
                    task.result()
            return await awaited
        finally:
            awaited.cancel()

    async def close(self, patience: float) -> None:
        """Take no more steps; those under way have so many seconds, and then go on in other processes.

        Raises what broke it.
        """
        self._leaving = True
        alive = [worker for task, worker in zip(self._running, self._workers, strict=True) if not task.done()]
        ends = [asyncio.ensure_future(worker.shutdown()) for worker in alive]
        if ends:
            await asyncio.wait(ends, timeout=patience)
        self._over.set_result(None)
        await asyncio.gather(*ends)
        await asyncio.gather(*self._running)
        self._running.clear()
        await self._memory.close()

    # --- the one activity there is

    @activity.defn(name=STEP)
    async def step(self, todo: Todo) -> Done:
        """Do one thing with a run. Raises ApplicationError, by whose type the workflow knows what to make of it."""
        info = activity.info()
        doing = Doing((str(info.workflow_id), str(info.workflow_run_id)), todo, todo.wish)
        work = asyncio.ensure_future(self._done(doing))
        try:
            return await self._watched(work, doing)
        except asyncio.CancelledError:
            raise _failure(f"worker {self.name} left", LEFT, begun=doing.begun) from None
        except NeverAsked as error:
            raise _failure(str(error), BROKEN) from error
        except _Broken as error:
            raise _failure(_said(error.cause), BROKEN) from error.cause
        except Exception as error:  # the server is away, or what keeps long texts
            raise _failure(_said(error), LEFT if doing.begun else UNBEGUN, begun=doing.begun) from error
        finally:
            if not work.done():
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    async def _watched(self, work: "asyncio.Task[Done]", doing: Doing) -> Done:
        """Wait for something, with signs of life; a cancellation that is a wish of the run's caller is told to it."""
        wished = False
        while True:
            try:
                await asyncio.wait(
                    {work, self._over}, timeout=self._beat, return_when=asyncio.FIRST_COMPLETED
                )
                if work.done():
                    return work.result()
                if self._over.done():
                    raise asyncio.CancelledError
                activity.heartbeat(doing.todo.key)
            except asyncio.CancelledError:
                why = activity.cancellation_details()
                if self._over.done() or wished or why is None or not why.cancel_requested:
                    raise
                wished = True
                task = asyncio.current_task()
                assert task is not None, "an activity is a task"
                task.uncancel()
                doing.heed((await read_history(self._client, *doing.place)).wish)

    async def _done(self, doing: Doing) -> Done:
        held = await self._memory.take(doing.place, doing.todo)
        doing.engine = held.engine
        try:
            return await self._used(doing, held)
        except BaseException:  # what it performed is never recorded, so nobody may go on from there
            self._memory.retire(doing.place, held)
            raise
        finally:
            held.users -= 1
            self._memory.drop()

    async def _used(self, doing: Doing, held: Held) -> Done:
        engine, todo = held.engine, doing.todo
        doing.heed(doing.wish)
        if todo.message is not None:
            engine.send(*todo.message)
        if not todo.key:
            await engine.stands()
            return await self._told(doing, engine, None)
        doing.begun = True
        try:
            text = await _raising(engine.perform(todo.key, todo.attempt))
        except NeverAsked:
            doing.begun = False
            if not await self._memory.refresh(doing.place, held):
                raise
            doing.begun = True
            text = await _raising(engine.perform(todo.key, todo.attempt))
        try:  # also where something else under way was what the run waits for
            await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(engine.stands())), LOOK_AHEAD)
        except TimeoutError:
            return Done(self._here, text)
        return await self._told(doing, engine, text)

    async def _told(self, doing: Doing, engine: TemporalEngine, text: str | None) -> Done:
        """Return what came of a step, and what is next."""
        if not engine.is_over:
            done = Done(self._here, text, engine.next(), engine.waiting)
        else:
            carried, end = await _raising(_ended(engine))
            done = Done(self._here, text, end=end, status=carried.result.status)
            self._memory.forget(doing.place)
        said = [one for one in (text, done.end, *(done.wait or ())) if one is not None]
        fits = 2 * sum(map(len, said)) <= MAX_TEXT or sum([len(dumps(one)) for one in said]) <= MAX_TEXT
        return done if text is None or fits else Done(self._here, text)  # the rest is asked for

    @property
    def _here(self) -> str:
        """The task queue of this process, as long as it takes steps."""
        return "" if self._leaving else self._queue


class _Broken(Exception):
    """A run cannot be carried on at all."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _failure(message: str, kind: str, *, begun: bool = False) -> ApplicationError:
    return ApplicationError(message, begun, type=kind, non_retryable=True)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {message_of(error)}"


async def _raising(work: Awaitable[T]) -> T:
    """Await what a run does itself; what it raises is its own fault, and no reason to try it elsewhere."""
    try:
        return await work
    except (NeverAsked, *AWAY):
        raise
    except Exception as error:  # whatever it is, the workflow is told
        raise _Broken(error) from error


async def _ended(engine: TemporalEngine) -> tuple[Carried, str]:
    found = await engine.ended()
    assert found is not None, "it is over"
    return found
