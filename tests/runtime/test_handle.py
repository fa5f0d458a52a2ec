"""A started run: stopped at any point from outside, cancelled, awaited; tools that do not listen are left behind."""

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.to_thread
import pytest
from attrs import evolve, frozen

from capfold.capabilities import (
    CallNext,
    CallState,
    Capability,
    Json,
    Outside,
    RequireApproval,
    RunState,
    ToolHook,
    UserMessage,
    call,
)
from capfold.runtime import (
    Agent,
    Approve,
    Chunks,
    FunctionModel,
    HookError,
    Limits,
    LocalPort,
    ModelRunError,
    RunError,
    RunResult,
    verify,
)
from capfold.runtime.events import CallSettled, CallStarted, Delta, Ended, Settled
from capfold.runtime.handle import RunHandle
from tests.runtime.desk import Ends, Observer, Trace, check_closed, kinds, make, port, results, seen, slow
from tests.runtime.test_stream import check_story, end_of


@frozen
class Hangs(Capability):
    """Says that it was reached at one point of a run, and does not come back from there before it is let go."""

    where: str
    reached: anyio.Event
    go: anyio.Event

    async def at(self, where: str) -> None:
        """Wait, where it is told to."""
        if where == self.where:
            self.reached.set()
            await self.go.wait()

    async def gather_before_run(self, state: RunState, outside: Outside) -> Json:
        await self.at("gather_before_run")
        return None

    async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
        await self.at("gather_before_model_request")
        return None

    async def gather_after_model_request(self, state: RunState, outside: Outside) -> Json:
        await self.at("gather_after_model_request")
        return None

    async def gather_admit_tool_execute(self, call: CallState, outside: Outside) -> Json:
        await self.at("gather_admit_tool_execute")
        return None

    async def gather_after_tool_execute(self, call: CallState, outside: Outside) -> Json:
        await self.at("gather_after_tool_execute")
        return None

    async def gather_after_run(self, state: RunState, outside: Outside) -> Json:
        await self.at("gather_after_run")
        return None

    async def wrap_model_request(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        await self.at("wrap_model_request")
        return await call_next(state)

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        await self.at("wrap_in")
        done = await call_next(call)
        await self.at("wrap_out")
        return done

    async def wrap_run(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        await self.at("run_in")
        after = await call_next(state)
        await self.at("run_out")
        return after


# Place -> what became of the two calls, and whether their after hooks and those of the run were called.
PLACES: dict[str, tuple[list[str], bool, bool]] = {
    "gather_before_run": ([], False, True),
    "gather_before_model_request": ([], False, True),
    "wrap_model_request": ([], False, True),
    "model": ([], False, True),
    "gather_after_model_request": (["not_executed"] * 2, False, True),
    "gather_admit_tool_execute": (["not_executed"] * 2, True, True),
    "approver": (["not_executed"] * 2, True, True),
    "wrap_in": (["not_executed"] * 2, True, True),
    "tool": (["unknown", "unknown"], True, True),
    "wrap_out": (["succeeded", "succeeded"], True, True),
    "gather_after_tool_execute": (["succeeded", "succeeded"], False, True),
    "gather_after_run": (["succeeded", "succeeded"], True, False),
}


class Scene:
    """An agent whose run hangs at a place, and what its hooks saw."""

    def __init__(self, where: str) -> None:
        self.reached, self.go = anyio.Event(), anyio.Event()
        self.trace = Trace()
        hangs = Hangs(where, self.reached, self.go)

        async def model(request: Any) -> Any:
            if request.step == 1:
                await hangs.at("model")
                return [call("t", {"n": i}) for i in range(2)]
            return "done"

        async def work(n: int) -> str:
            await hangs.at("tool")
            return "ok"

        async def approver(requests: Sequence[Any]) -> list[Any]:
            await hangs.at("approver")
            return [Approve() for _ in requests]

        self.agent = make(
            model=FunctionModel(model),
            tools=[slow("t", work)],
            capabilities=[hangs, RequireApproval(), Observer(self.trace), Ends(self.trace)],
            approver=approver,
        )

    @asynccontextmanager
    async def started(self) -> AsyncIterator[RunHandle[str]]:
        """Start the run and wait until it hangs; it must be over soon once the block is left."""
        with anyio.fail_after(10):
            async with self.agent.start("go") as handle:
                await self.reached.wait()
                yield handle


@pytest.mark.parametrize("where", PLACES)
async def test_stop_ends_the_run_at_any_effect(where: str) -> None:
    """A result, status "stopped", with the message as its output; each call has one outcome; hooks see the end."""
    scene = Scene(where)
    async with scene.started() as handle:
        await handle.stop("enough", grace=0.1)
        assert handle.ended
        result = await handle.result()
        events = [event async for event in handle.events]
    statuses, after_calls, after_run = PLACES[where]
    assert ("stopped", "enough") == (result.status, result.output)
    assert result.stop is not None
    assert ("enough", "caller", "stop") == (result.stop.message, result.stop.key, result.stop.hook)
    assert statuses == [status for _, status in results(result.messages)]
    check_closed(result.messages)
    assert [f"t:{status}" for status in statuses] * after_calls == scene.trace.lines[: 2 * after_calls]
    assert after_run == ("after_run:enough" in scene.trace.lines)
    notes = [record for record in result.log if record.kind == "note" and record.actor == "caller"]
    assert ["enough"] == [note.facts["stop"] for note in notes]
    assert "run_ended" == kinds(result)[-1]
    assert result is end_of(events)
    check_story(events)


async def test_wrap_run_is_waited_for_on_its_way_in() -> None:
    """A stop cuts no wrap_run short, which must see the run through; the run stops once it is inside."""
    scene = Scene("run_in")
    async with scene.started() as handle, anyio.create_task_group() as group:
        group.start_soon(handle.stop, "enough")
        await anyio.sleep(0.01)
        assert not handle.ended
        scene.go.set()
        result = await handle.result()
    assert ("stopped", 0) == (result.status, result.requests)
    assert ["after_run:enough"] == scene.trace.lines


async def test_a_stop_that_comes_too_late_changes_nothing() -> None:
    """On the way out of wrap_run the run is over: what it came to stands."""
    scene = Scene("run_out")
    async with scene.started() as handle, anyio.create_task_group() as group:
        group.start_soon(handle.stop, "enough")
        await anyio.sleep(0.01)
        assert not handle.ended
        scene.go.set()
        result = await handle.result()
    assert ("completed", "done", None) == (result.status, result.output, result.stop)


async def test_stop_before_the_first_effect() -> None:
    """Nothing is requested."""
    agent = make(["never"])
    async with agent.start("go") as handle:
        await handle.stop("at once")
        result = await handle.result()
    assert ("stopped", "at once", 0) == (result.status, result.output, result.requests)
    assert ["go"] == [message.content for message in result.messages]


async def test_stop_twice_and_after_the_end() -> None:
    """The first counts; whoever stops later waits for the end, and changes nothing."""
    scene = Scene("model")
    async with scene.started() as handle:
        async with anyio.create_task_group() as group:
            group.start_soon(handle.stop, "first")
            await anyio.lowlevel.checkpoint()  # trio begins tasks in any order
            group.start_soon(handle.stop, "second")
        await handle.stop("third")
        result = await handle.result()
        assert result is await handle.result()
    await handle.stop("fourth")
    notes = [record for record in result.log if record.actor == "caller"]
    assert ("first", 1) == (result.output, len(notes))


async def test_stop_between_effects() -> None:
    """While a sink writes there is nothing to cut short: the next effect is not begun."""
    writing, go = anyio.Event(), anyio.Event()

    class Slow:
        best_effort = False

        async def write(self, records: Sequence[Any]) -> None:
            if any(record.kind == "tool_started" for record in records):
                writing.set()
                await go.wait()

        async def close(self) -> None:
            """Do nothing."""

    agent = make([[call("look", {"n": 1})], "never"], sinks=[Slow()])
    async with agent.start("go") as handle, anyio.create_task_group() as group:
        await writing.wait()
        group.start_soon(handle.stop, "enough")
        await anyio.sleep(0.01)
        go.set()
        result = await handle.result()
    assert ("stopped", [("look", "not_executed")]) == (result.status, results(result.messages))
    verify(result.log)


@pytest.mark.parametrize("sequential", [True, False])
async def test_finished_calls_keep_their_results(*, sequential: bool) -> None:
    """Of three calls one has ended, one is under way, and the last has not begun where they go one by one."""
    reached = anyio.Event()

    async def work(n: int) -> str:
        if n:
            reached.set()
            await anyio.sleep_forever()
        return "did it"

    calls = [call("work", {"n": n}) for n in range(3)]
    trace = Trace()
    agent = make(
        [calls, "never"],
        tools=[slow("work", work, sequential=sequential)],
        capabilities=[Observer(trace)],
    )
    async with agent.start("go") as handle:
        await reached.wait()
        await handle.stop("enough")
        result = await handle.result()
    last = "not_executed" if sequential else "unknown"
    assert [("work", "succeeded"), ("work", "unknown"), ("work", last)] == results(result.messages)
    assert ["work:succeeded", "work:unknown", f"work:{last}"] == trace.lines


# --- tools that do not listen


class Stubborn:
    """A tool that goes on when it is cancelled, until it is let go."""

    def __init__(self) -> None:
        self.begun, self.go, self.done = anyio.Event(), anyio.Event(), anyio.Event()

    async def work(self) -> str:
        """Ignore being cancelled."""
        self.begun.set()
        with anyio.CancelScope(shield=True):
            await self.go.wait()
        self.done.set()
        return "did it"


@pytest.fixture
async def stubborn(anyio_backend: str) -> AsyncIterator[Stubborn]:
    """Give a tool that does not listen, and let what was left of it end."""
    tool = Stubborn()
    yield tool
    tool.go.set()
    if tool.begun.is_set():
        with anyio.fail_after(5):
            await tool.done.wait()


@pytest.mark.parametrize("grace", [0, 0.02])
@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_tool_that_ignores_its_stop_is_left_behind(
    stubborn: Stubborn, grace: float, others: int, *, wrapped: bool
) -> None:
    """After the grace: its outcome is unknown and on record, the run is over, and the tool lives on."""
    again: list[str] = []

    async def twice(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        done = await call_next(call)
        again.append("went on")
        return await call_next(done)

    async def quick() -> str:
        return "done at once"

    calls = [call("work"), *[call("quick")] * others]
    trace = Trace()
    agent = make(
        [calls, "never"],
        tools=[slow("work", stubborn.work, capabilities=[ToolHook(twice)] * wrapped), slow("quick", quick)],
        capabilities=[Observer(trace)],
    )
    with anyio.fail_after(10):
        async with agent.start("go") as handle:
            await stubborn.begun.wait()
            await handle.stop("enough", grace=grace)
            assert not stubborn.done.is_set()
            result = await handle.result()
    assert "stopped" == result.status
    assert [("work", "unknown"), *[("quick", "succeeded")] * others] == results(result.messages)
    settled = next(record for record in result.log if record.kind == "tool_settled")
    outcome: Any = settled.facts["outcome"]
    assert f"not ended {grace:g} seconds after" in outcome["content"]
    assert ["work:unknown", *["quick:succeeded"] * others] == trace.lines
    assert [] == again


async def test_a_tool_that_ends_in_time_keeps_its_outcome() -> None:
    """It took the grace to finish what it was at."""

    async def work(n: int) -> str:
        begun.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            if n == 2:
                raise ValueError("could not finish") from None
        return "finished"

    begun = anyio.Event()
    calls = [call("work", {"n": n}) for n in (1, 2)]
    agent = make([calls, "never"], tools=[slow("work", work)])
    async with agent.start("go") as handle:
        await begun.wait()
        await handle.stop("enough", grace=5)
        result = await handle.result()
    assert [("work", "succeeded"), ("work", "unknown")] == results(result.messages)
    assert ["finished", "ValueError: could not finish"] == [m.content for m in result.messages[-2:]]


@pytest.mark.parametrize("in_time", [True, False])
async def test_a_tool_in_a_thread_gets_the_grace(*, in_time: bool) -> None:
    """A thread cannot be cancelled: it is waited for, then left; what it returns in time counts."""
    begun, go, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        go.wait(10)
        done.set()
        return "did it"

    agent = make([call("work"), "never"], tools=[slow("work", work)])
    with anyio.fail_after(10):
        async with agent.start("go") as handle, anyio.create_task_group() as group:
            await anyio.to_thread.run_sync(begun.wait)
            group.start_soon(handle.stop, "enough", 5.0 if in_time else 0.02)
            if in_time:
                await anyio.sleep(0.01)
                go.set()
            result = await handle.result()
    go.set()
    await anyio.to_thread.run_sync(done.wait)
    assert [("work", "succeeded" if in_time else "unknown")] == results(result.messages)


async def test_a_stubborn_tool_of_a_sub_agent_is_left_behind_too(stubborn: Stubborn) -> None:
    """The grace is that of the whole tree; child and parent are closed, each call with one outcome."""
    child = make(model=FunctionModel(lambda request: call("work")), tools=[slow("work", stubborn.work)])
    parent = Agent(
        "parent",
        make([[call("desk", {"task": "x"}), call("desk", {"task": "y"})]]).setup.model,
        tools=[child.as_tool("Work.")],
        port=port(),
    )
    with anyio.fail_after(10):
        async with parent.start("go") as handle:
            await stubborn.begun.wait()
            await handle.stop("enough", grace=0.02)
            result = await handle.result()
    assert "stopped" == result.status
    assert {"unknown"} == {status for _, status in results(result.messages)}
    ended = [(record.run, record.facts["status"]) for record in result.log if record.kind == "run_ended"]
    assert [("run/call_1_0", "cancelled"), ("run/call_1_1", "cancelled"), ("run", "stopped")] == sorted(
        ended, key=lambda end: (-len(end[0]), end[0])
    )
    assert verify(result.log).complete


async def test_a_stop_reaches_a_tool_that_ignores_its_timeout(stubborn: Stubborn) -> None:
    """It was told to end by its timeout and waited for; the stop's grace ends that wait."""
    agent = make([call("work"), "never"], tools=[slow("work", stubborn.work, timeout=0.01)], port=LocalPort())
    with anyio.fail_after(10):
        async with agent.start("go") as handle:
            await stubborn.begun.wait()
            await anyio.sleep(0.05)
            assert not handle.ended
            await handle.stop("enough", grace=0.02)
            result = await handle.result()
    assert ("stopped", [("work", "unknown")]) == (result.status, results(result.messages))


@pytest.mark.parametrize("sync", [True, False])
async def test_timeouts_of_tools_are_those_of_run(*, sync: bool) -> None:
    """A started run does not wait for more than `run` does."""
    go = threading.Event()

    def thread() -> str:
        go.wait(10)
        return "late"

    async def task() -> str:
        await anyio.sleep_forever()
        return "never"

    agent = make([call("work"), "done"], tools=[slow("work", thread if sync else task, timeout=0.01)])
    with anyio.fail_after(5):
        async with agent.start("go") as handle:
            result = await handle.result()
    go.set()
    assert ("done", [("work", "unknown")]) == (result.output, results(result.messages))


VARIABLE: ContextVar[str] = ContextVar("VARIABLE", default="unset")


async def test_tools_of_a_started_run_see_what_its_caller_set() -> None:
    """Context variables, as in `run`; on both loops."""

    async def work() -> str:
        return VARIABLE.get()

    VARIABLE.set("by the caller")
    async with make([call("work"), "done"], tools=[slow("work", work)]).start("go") as handle:
        result = await handle.result()
    assert "by the caller" == result.messages[2].content


async def test_something_that_a_tool_waits_for_is_cancelled() -> None:
    """That is an outcome of the tool, not success and no cancellation of the run."""

    async def work() -> str:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anyio.sleep_forever()
        import asyncio  # noqa: PLC0415  # of one loop only
        import sys  # noqa: PLC0415  # likewise

        if "trio" in sys.modules and _on_trio():
            raise ValueError("as good as cancelled")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
        return "never"

    async with make([call("work"), "done"], tools=[slow("work", work)]).start("go") as handle:
        result = await handle.result()
    assert ("completed", [("work", "unknown")]) == (result.status, results(result.messages))


def _on_trio() -> bool:
    import trio  # noqa: PLC0415  # for tests on it

    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True


# --- what a stop meets


async def test_a_wrapper_that_broke_ends_a_stopped_run_as_a_failure() -> None:
    """Failed is graver than stopped: what broke in the batch that was cut short is not lost."""
    reached, broke = anyio.Event(), anyio.Event()

    async def breaks(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        await call_next(call)
        broke.set()
        raise ZeroDivisionError("broke")

    async def quick() -> str:
        return "done at once"

    async def hang() -> str:
        reached.set()
        await anyio.sleep_forever()
        return "never"

    calls = [call("quick"), call("hang")]
    tools = [slow("quick", quick, capabilities=[ToolHook(breaks)]), slow("hang", hang)]
    agent = make([calls], tools=tools)
    async with agent.start("go") as handle:
        await reached.wait()
        await broke.wait()
        await handle.stop("enough")
        with pytest.raises(HookError, match="ZeroDivisionError") as caught:
            await handle.result()
    assert caught.value.partial is not None
    assert [("quick", "succeeded"), ("hang", "unknown")] == results(caught.value.partial.messages)


async def test_a_stop_over_a_hooks_stop_is_a_note() -> None:
    """The first stop stands; the second is on record."""

    @frozen
    class Stops(Capability):
        def after_model_request(self, state: RunState) -> RunState:
            return state.stop("mine")

        async def gather_after_run(self, state: RunState, outside: Outside) -> Json:
            reached.set()
            await anyio.sleep_forever()
            return None

        def after_run(self, state: RunState) -> RunState:
            return state

    reached = anyio.Event()
    async with make(["never"], capabilities=[Stops()]).start("go") as handle:
        await reached.wait()
        await handle.stop("yours")
        result = await handle.result()
    assert ("stopped", "mine", ("stop: yours",)) == (result.status, result.output, result.state.notes)


async def test_a_stop_of_a_run_with_an_output_type() -> None:
    """There is no output, and nobody is asked for one."""

    @frozen
    class Waits(Capability):
        async def wrap_model_request(
            self, call_next: CallNext[RunState, RunState], state: RunState
        ) -> RunState:
            await anyio.sleep_forever()
            return state

    async with make(["5"], capabilities=[Waits()], output_type=int).start("go") as handle:
        await handle.stop("enough")
        result = await handle.result()
    assert "stopped" == result.status
    assert result.state.output is None


async def test_a_tool_may_stop_its_own_run() -> None:
    """Its wait for the end is cut short like any other tool's."""
    handles: list[RunHandle[str]] = []

    async def work() -> str:
        await handles[0].stop("by the tool", grace=1)
        return "never"

    with anyio.fail_after(5):
        async with make([call("work")], tools=[slow("work", work)]).start("go") as handle:
            handles.append(handle)
            result = await handle.result()
    assert ("stopped", [("work", "unknown")]) == (result.status, results(result.messages))


@pytest.mark.parametrize(
    ("message", "grace", "error", "words"),
    [
        (None, 1, TypeError, "message"),
        (b"x", 1, TypeError, "message"),
        ("", 1, ValueError, "empty"),
        ("x", "1", TypeError, "grace"),
        ("x", None, TypeError, "grace"),
        ("x", True, TypeError, "grace"),
        ("x", -1, ValueError, "at least 0"),
        ("x", float("inf"), ValueError, "at least 0"),
        ("x", float("nan"), ValueError, "at least 0"),
    ],
)
async def test_bad_arguments_stop_nothing(
    message: Any, grace: Any, error: type[Exception], words: str
) -> None:
    """They are refused with what would be right, also of a run that has ended."""
    async with make().start("go") as handle:
        with pytest.raises(error, match=words):
            await handle.stop(message, grace)
        result = await handle.result()
        with pytest.raises(error, match=words):
            await handle.stop(message, grace)
    assert "completed" == result.status


# --- cancel, result, events


async def test_cancel_closes_the_history() -> None:
    """The result says so; cancelling again, or after the end, changes nothing."""
    scene = Scene("tool")
    async with scene.started() as handle:
        handle.cancel()
        handle.cancel()
        result = await handle.result()
        assert handle.ended
    handle.cancel()
    assert ("cancelled", [("t", "unknown")] * 2) == (result.status, results(result.messages))
    check_story([event async for event in handle.events])
    assert [] == scene.trace.lines


async def test_cancel_before_the_first_effect() -> None:
    """It is a result too."""
    async with make([call("look", {"n": 1})]).start("go") as handle:
        handle.cancel()
        result = await handle.result()
    check_closed(result.messages)
    assert "cancelled" == result.status


async def test_cancel_during_a_stop(stubborn: Stubborn) -> None:
    """The grace of the stop holds: whoever comes second does not make it longer."""
    with anyio.fail_after(10):
        async with make([call("work")], tools=[slow("work", stubborn.work)]).start("go") as handle:
            await stubborn.begun.wait()
            async with anyio.create_task_group() as group:
                group.start_soon(handle.stop, "enough", 0.05)
                await anyio.lowlevel.checkpoint()
                handle.cancel()
            result = await handle.result()
    assert [("work", "unknown")] == results(result.messages)


async def test_stop_after_cancel_gives_a_stubborn_tool_its_grace(stubborn: Stubborn) -> None:
    """A cancelled run waits for its tools; a stop ends that wait."""
    with anyio.fail_after(10):
        async with make([call("work")], tools=[slow("work", stubborn.work)]).start("go") as handle:
            await stubborn.begun.wait()
            handle.cancel()
            await anyio.sleep(0.01)
            assert not handle.ended
            await handle.stop("enough", grace=0.01)
            result = await handle.result()
    assert [("work", "unknown")] == results(result.messages)


async def test_result_from_several_tasks() -> None:
    """All get the same one; a wait that is cancelled is nobody else's business."""
    scene = Scene("model")
    got: list[RunResult[str]] = []
    async with scene.started() as handle:

        async def wait() -> None:
            got.append(await handle.result())

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(wait)
            with anyio.move_on_after(0.01) as scope:
                await handle.result()
            assert scope.cancelled_caught
            scene.go.set()
        assert [await handle.result()] * 3 == got
    assert "completed" == got[0].status


async def test_leaving_the_block_cancels_the_run() -> None:
    """Whoever leaves early has a closed run behind, and can ask what it came to."""
    scene = Scene("tool")
    async with scene.started() as handle:
        assert "running" in repr(handle)
    assert "ended" in repr(handle)
    result = await handle.result()
    assert "cancelled" == result.status
    check_closed(result.messages)


async def test_an_exception_of_the_block_comes_out_as_it_is() -> None:
    """Not in a group; the run is over by then."""
    scene = Scene("tool")
    handles: list[RunHandle[str]] = []

    async def use() -> None:
        async with scene.started() as handle:
            handles.append(handle)
            raise ZeroDivisionError("of the block")

    with pytest.raises(ZeroDivisionError, match="of the block"):
        await use()
    assert "cancelled" == (await handles[0].result()).status


async def test_a_cancelled_block_leaves_a_result() -> None:
    """From outside: whoever has the handle still learns what the run came to."""
    scene = Scene("tool")
    handles: list[RunHandle[str]] = []
    with anyio.CancelScope() as scope:
        async with scene.started() as handle:
            handles.append(handle)
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert "cancelled" == (await handles[0].result()).status
    assert isinstance([event async for event in handles[0].events][-1], Ended)


EVENTS = [Settled, CallStarted, CallSettled, Settled, Delta, Delta, Settled, Ended]


def short() -> Agent[str]:
    """Return an agent with a run of all kinds of events."""
    return make([call("look", {"n": 1}), Chunks("a", "b")])


async def test_events_are_read_later_or_never() -> None:
    """The run does not wait for them; they are there when somebody asks, after the block too."""
    async with short().start("go") as handle:
        result = await handle.result()
    events = [event async for event in handle.events]
    assert EVENTS == [type(event) for event in events]
    assert result is check_story(events)
    async with short().start("go") as handle:
        assert result.log.head == (await handle.result()).log.head


async def test_events_are_read_while_it_runs() -> None:
    """As they come, in a task of their own, beside whoever waits for the result."""
    got: list[Any] = []
    async with short().start("go") as handle, anyio.create_task_group() as group:

        async def read() -> None:
            got.extend([event async for event in handle.events])

        group.start_soon(read)
        result = await handle.result()
    assert EVENTS == [type(event) for event in got]
    assert result is got[-1].result


async def test_a_run_that_fails() -> None:
    """`result` raises its error, each time the same; events tell it; leaving the block raises nothing."""
    async with make([]).start("go") as handle:
        with pytest.raises(ModelRunError) as caught:
            await handle.result()
        await handle.stop("too late")
    with pytest.raises(RunError) as again:
        await handle.result()
    (end,) = [event async for event in handle.events]
    assert isinstance(end, Ended)
    assert caught.value is again.value is end.error
    async with make([]).start("go"):
        await anyio.sleep(0.01)


async def test_a_suspended_run_is_a_result() -> None:
    """It ends beside its caller as it would in `run`, and is resumed likewise."""
    agent = make([call("pay", {"amount": 1}), "done"], capabilities=[RequireApproval()])
    async with agent.start("go") as handle:
        result = await handle.result()
    assert "suspended" == result.status
    resumed = await agent.resume(result, {result.pending[0].digest: Approve()})
    assert "done" == resumed.output


async def test_a_bad_start_is_raised_on_entering() -> None:
    """As from `run`."""
    with pytest.raises(ValueError, match="cannot be sent"):
        async with make().start(None):
            pytest.fail("entered")


@pytest.mark.parametrize("exit_", [SystemExit, KeyboardInterrupt])
def test_an_exit_of_a_tool_ends_the_block(exit_: type[BaseException], anyio_backend: str) -> None:
    """Wherever the block is: it does not wait for what will never come."""

    async def leave() -> str:
        raise exit_("out")

    async def use() -> None:
        async with make([call("leave")], tools=[slow("leave", leave)]).start("go"):
            await anyio.sleep_forever()

    with pytest.raises(exit_, match="out"):
        anyio.run(use, backend=anyio_backend)


async def test_a_started_run_is_the_run() -> None:
    """Same script, same state and digests; a deadline and a store of what ran beside it change nothing."""
    history = [UserMessage("before")]
    limits = Limits(deadline=60.0)
    made: Callable[[], Agent[str]] = lambda: make([call("look", {"n": 1}), "done"], limits=limits)  # noqa: E731  # twice
    async with made().start("go", messages=history) as handle:
        started = await handle.result()
    ran = await made().run("go", messages=history)
    assert ran.log.head == started.log.head
    assert evolve(ran.state, model=None) == evolve(started.state, model=None)
    assert seen(ran, "tool_settled") == seen(started, "tool_settled")
