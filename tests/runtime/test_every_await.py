"""Cancellation, a stop, a deadline and a crash at each place where a run waits: nothing is lost or left behind.

The run has three calls, one of a sub-agent, and waits in models, tools, hooks, approver, sink, store and consumer.
"""

import functools
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest
from attrs import field, frozen

from capfold.capabilities import (
    AssistantMessage,
    CallNext,
    CallState,
    Capability,
    Json,
    Message,
    Outside,
    RequireApproval,
    RunState,
    call,
)
from capfold.capabilities.views import balance_problem
from capfold.runtime import (
    Agent,
    Approve,
    AuditRecord,
    Delta,
    Limits,
    LocalPort,
    Log,
    MemoryStore,
    ModelProfile,
    ModelRequest,
    RunError,
    RunResult,
    verify,
)
from capfold.runtime.events import Ended, RunEvent
from capfold.runtime.run_stream import RunStream
from tests.runtime.desk import check_closed, slow

NOBODY: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint


class Points:
    """The places where a run waits, in the order in which it comes there; at one of them something happens."""

    def __init__(self, target: int = -1, act: Callable[[], Awaitable[None]] = NOBODY) -> None:
        """Do `act` at the place with number `target`, from 0."""
        self.names: list[str] = []
        self.target = target
        self.act = act

    def __hash__(self) -> int:
        """By identity, so that a capability may hold it."""
        return id(self)

    async def at(self, name: str) -> None:
        """Wait here."""
        self.names.append(name)
        if len(self.names) - 1 == self.target:
            await self.act()
        else:
            await anyio.lowlevel.checkpoint()


@frozen
class Watches(Capability):
    """Waits in every hook that may wait."""

    points: Points

    async def gather_before_run(self, state: RunState, outside: Outside) -> Json:
        await self.points.at("gather_before_run")
        return None

    async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
        await self.points.at("gather_before_model_request")
        return None

    async def gather_after_model_request(self, state: RunState, outside: Outside) -> Json:
        await self.points.at("gather_after_model_request")
        return None

    async def gather_admit_tool_execute(self, call: CallState, outside: Outside) -> Json:
        await self.points.at("gather_admit_tool_execute")
        return None

    async def gather_after_tool_execute(self, call: CallState, outside: Outside) -> Json:
        await self.points.at("gather_after_tool_execute")
        return None

    async def gather_after_run(self, state: RunState, outside: Outside) -> Json:
        await self.points.at("gather_after_run")
        return None

    async def wrap_run(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        await self.points.at("wrap_run in")
        after = await call_next(state)
        await self.points.at("wrap_run out")
        return after

    async def wrap_model_request(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        await self.points.at("wrap_model_request in")
        after = await call_next(state)
        await self.points.at("wrap_model_request out")
        return after

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        await self.points.at("wrap_tool_execute in")
        done = await call_next(call)
        await self.points.at("wrap_tool_execute out")
        return done

    async def wrap_load_messages(
        self, call_next: CallNext[RunState, Sequence[Message]], state: RunState
    ) -> Sequence[Message]:
        await self.points.at("wrap_load_messages")
        return await call_next(state)


class Model:
    """A model that says the same in each run, and waits before, between and after its pieces."""

    name = "waits"
    profile = ModelProfile()

    def __init__(self, points: Points, calls: Sequence[Any], text: str) -> None:
        self.points = points
        self.calls = calls
        self.text = text

    async def request(self, request: ModelRequest, meter: Any) -> AssistantMessage:
        """Answer in one piece."""
        await self.points.at("request")
        meter.charge()
        return self._message(request)

    def stream(self, request: ModelRequest, meter: Any) -> "Connection":
        """Open a connection."""
        meter.charge()
        message = self._message(request)
        return Connection(self.points, [*map(Delta, message.text), message])

    def _message(self, request: ModelRequest) -> AssistantMessage:
        if request.step == 1:
            return AssistantMessage(tool_calls=tuple(self.calls), finish_reason="tool_calls")
        return AssistantMessage(self.text)


class Connection:
    """A stream that must be closed whatever happens."""

    open = 0

    def __init__(self, points: Points, parts: list[Any]) -> None:
        self.points = points
        self.parts = parts

    async def __aenter__(self) -> AsyncIterator[Any]:
        await self.points.at("connect")
        type(self).open += 1
        return self._parts()

    async def __aexit__(self, *what: object) -> None:
        type(self).open -= 1

    async def _parts(self) -> AsyncIterator[Any]:
        for part in self.parts:
            await self.points.at("part")
            yield part


class Sink:
    """A sink that waits at each write, and keeps what it got."""

    best_effort = False

    def __init__(self, points: Points) -> None:
        self.points = points
        self.records: list[AuditRecord] = []

    async def write(self, records: Sequence[AuditRecord]) -> None:
        """Keep them, then wait."""
        self.records.extend(records)
        await self.points.at("sink")

    async def close(self) -> None:
        """Do nothing."""


@frozen(eq=False)
class Store(MemoryStore):
    """A store that waits before and after each operation."""

    points: Points = field(factory=Points)

    async def load(self, conversation: str) -> tuple[Message, ...]:
        await self.points.at("load")
        return await super().load(conversation)

    async def append(self, conversation: str, messages: Sequence[Message], expected: int) -> None:
        await self.points.at("append")
        await super().append(conversation, messages, expected)
        await self.points.at("appended")


class Scene:
    """A run of three calls, one of them of a sub-agent, whose every wait is one of `points`."""

    def __init__(self, points: Points, limits: Limits, *, stored: bool) -> None:
        self.points = points
        self.sink = Sink(points)
        self.store = Store(points=points)
        self.bodies = Counter[str]()
        self.result: RunResult[Any] | None = None
        self.earlier: list[AuditRecord] = []  # of a run that was suspended and resumed
        child = Agent(
            "helper",
            Model(points, [call("look", {"n": 3})], "ok"),
            tools=[slow("look", self.look)],
            capabilities=[Watches(points)],
            port=LocalPort(random=lambda: 0.5),
        )
        calls = [call("look", {"n": 1}), call("write", {"n": 2}), call("helper", {"task": "help"})]
        self.agent = Agent(
            "desk",
            Model(points, calls, "done"),
            tools=[slow("look", self.look), slow("write", self.write), child.as_tool("Help.")],
            capabilities=[Watches(points), RequireApproval(["write"])],
            approver=self.approve,
            sinks=[self.sink],
            store=self.store if stored else None,
            limits=limits,
            port=LocalPort(new_id=lambda: "run", random=lambda: 0.5),
        )
        self.options: dict[str, Any] = {"conversation": "talk"} if stored else {}

    async def look(self, n: int) -> str:
        """Wait in the middle of a body."""
        self.bodies["begun"] += 1
        try:
            await self.points.at("body")
            return f"found {n}"
        finally:
            self.bodies["ended"] += 1

    def write(self, n: int) -> str:
        """Work in a thread."""
        self.bodies["begun"] += 1
        self.bodies["ended"] += 1
        return f"wrote {n}"

    async def approve(self, requests: Sequence[Any]) -> list[Any]:
        """Wait, then approve."""
        await self.points.at("approver")
        return [Approve() for _ in requests]

    def log(self) -> Log:
        """Return what is on record: of a run that left no result, what its sink got."""
        records = self.sink.records if self.result is None else [*self.earlier, *self.result.log]
        return Log.from_records(records)

    def take(self, event: RunEvent[Any]) -> None:
        """Keep what the run came to."""
        if isinstance(event, Ended):
            self.result = event.result if event.error is None else event.error.partial

    async def resume(self, suspended: RunResult[Any]) -> None:
        """Let a run go on whose approver crashed."""
        self.earlier = list(suspended.log)
        decisions = {request.digest: Approve() for request in suspended.pending}
        self.result = await self.agent.resume(suspended, decisions)

    async def check(self) -> None:
        """Assert that the run is closed, its log whole, its conversation readable, and no body under way."""
        log = self.log()
        assert verify(log).complete
        unwritten = {record.run for record in log if record.kind == "run_ended" and is_sink_failure(record)}
        ends = Counter(
            record.run
            for record in log
            if record.kind == "run_ended" and (is_sink_failure(record) or record.run not in unwritten)
        )
        assert dict.fromkeys((record.run for record in log), 1) == ends
        outcomes = Counter(
            (record.run, record.call) for record in log if record.kind in {"tool_settled", "call_refused"}
        )
        known = {
            (record.run, record.call)
            for record in log
            if record.call is not None and record.kind not in {"transition", "gathered"}
        }
        assert dict.fromkeys(known, 1) == outcomes
        if self.result is not None:
            check_closed(self.result.messages)
        kept = await super(Store, self.store).load("talk")
        assert balance_problem(kept) is None
        assert self.bodies["begun"] == self.bodies["ended"]
        assert 0 == Connection.open


def is_sink_failure(record: AuditRecord) -> bool:
    """Tell whether a run's end says that it could not be written down; an end before it is no end then."""
    return "SinkFailed" in str(record.facts.get("reason"))


# --- what happens, and how the run is driven


class Crash(Exception):
    """What a leaf raises."""


async def crash() -> None:
    """Raise what nobody expects."""
    raise Crash("at this point")


async def dawdle() -> None:
    """Take longer than the deadline."""
    await anyio.sleep(DEADLINE * 2)


DEADLINE = 0.01
PATIENCE = 0.005  # how long a point that nothing cuts short waits for what it asked for


async def by_run(scene: Scene, kind: str) -> None:
    """Await it."""
    scene.result = await scene.agent.run("go", **scene.options)


async def by_stream(scene: Scene, kind: str) -> None:
    """Read its events, and wait at each."""
    streams: list[RunStream[str]] = []
    try:
        async with scene.agent.stream("go", **scene.options) as stream:
            streams.append(stream)
            async for event in stream:
                scene.take(event)
                await scene.points.at(type(event).__name__)
    finally:
        for stream in streams:  # what a consumer has not read that left
            async for event in stream:
                scene.take(event)


async def by_start(scene: Scene, kind: str) -> None:
    """Await the result of its handle, by which it is stopped or cancelled."""
    async with scene.agent.start("go", **scene.options) as handle, anyio.create_task_group() as group:

        async def end() -> None:
            if kind == "stop":
                group.start_soon(functools.partial(handle.stop, "enough", grace=1.0))
            else:
                handle.cancel()
            await anyio.sleep(PATIENCE)

        if kind in {"stop", "cancel"}:
            scene.points.act = end
        try:
            scene.result = await handle.result()
        except RunError as error:
            scene.result = error.partial


WAYS: dict[str, Callable[[Scene, str], Awaitable[None]]] = {
    "run": by_run,
    "stream": by_stream,
    "start": by_start,
}
# How it is driven, what happens, and whether its conversation is stored.
CASES = [
    ("run", "cancel", True),
    ("run", "cancel", False),
    ("run", "deadline", True),
    ("run", "crash", True),
    ("stream", "cancel", True),
    ("stream", "deadline", False),
    ("stream", "crash", True),
    ("start", "cancel", True),
    ("start", "stop", True),
    ("start", "stop", False),
    ("start", "deadline", True),
    ("start", "crash", False),
]


async def play(way: str, kind: str, target: int, *, stored: bool) -> list[str]:
    """Drive a scene in which something happens at a place; check what is left; return its places."""
    limits = Limits(deadline=DEADLINE) if kind == "deadline" else Limits()
    points = Points(target, {"crash": crash, "deadline": dawdle}.get(kind, NOBODY))
    scene = Scene(points, limits, stored=stored)
    before = living()
    try:
        with anyio.CancelScope() as scope, anyio.fail_after(20):
            if kind == "cancel" and way != "start":

                async def cancel() -> None:
                    scope.cancel()
                    await anyio.sleep(PATIENCE)

                points.act = cancel
            await WAYS[way](scene, kind)
    except RunError as error:
        scene.result = error.partial
    except Crash:
        assert way == "stream", "of its consumer alone it comes out as it is"
    where = f"{way}, {kind} at {target}: {points.names[target] if target < len(points.names) else 'nowhere'}"
    if scene.result is not None and scene.result.status == "suspended":
        assert points.names[target] == "approver"
        await scene.resume(scene.result)
    try:
        assert before == living()
        await scene.check()
    except AssertionError as problem:
        raise AssertionError(where) from problem
    return points.names


def living() -> int:
    """Count the tasks of the running loop."""
    try:
        import trio  # noqa: PLC0415  # for tests on it

        return trio.lowlevel.current_statistics().tasks_living
    except RuntimeError:
        import asyncio  # noqa: PLC0415  # for tests on it

        return len(asyncio.all_tasks())


@pytest.mark.parametrize(("way", "kind", "stored"), CASES)
def test_nothing_is_lost_at_any_await(way: str, kind: str, anyio_backend: str, *, stored: bool) -> None:
    """One outcome per call of parent and child, one end per run, no task or thread, and a readable store."""

    async def all_of_them() -> int:
        names = await play(way, "nothing", -1, stored=stored)
        for target in range(len(names)):
            await play(way, kind, target, stored=stored)
        return len(names)

    threads = threading.active_count()
    assert anyio.run(all_of_them, backend=anyio_backend) > 50
    assert threading.active_count() <= threads + LONG_LIVED
    scene = Scene(Points(), Limits(), stored=stored)
    assert "done" == scene.agent.run_sync("again", **scene.options).output


# trio keeps idle worker threads for later calls, and pytest's plugin one for its loop; who left one behind at each
# await point would leave fifty.
LONG_LIVED = 10


async def test_the_places_are_of_every_kind() -> None:
    """The scene waits wherever a run may: so many kinds of places, in parent and child."""
    names = await play("stream", "nothing", -1, stored=True)
    kinds = {
        "approver",
        "sink",
        "load",
        "append",
        "body",
        "part",
        "connect",
        "Ended",
        "Delta",
        "wrap_run out",
    }
    assert set() == kinds - set(names)
    assert 2 == names.count("gather_after_run")
    assert "request" in names  # of the child, which nobody streams
