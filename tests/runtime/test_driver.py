"""The driver: a run is closed on every exit, and nothing is left behind."""

import gc
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from attrs import frozen

from capfold.capabilities import (
    CallNext,
    CallState,
    Capability,
    Json,
    Outside,
    RequireApproval,
    RunState,
    ToolHook,
    call,
    hook,
)
from capfold.runtime import (
    Agent,
    Approve,
    FunctionModel,
    HookError,
    LimitError,
    LimitExceeded,
    Limits,
    RunError,
    SinkFailed,
    StorageError,
)
from capfold.runtime.audit import AuditRecord
from capfold.runtime.memory_store import MemoryStore
from capfold.runtime.stores import StoreError
from tests.runtime.desk import Observer, Trace, check_closed, contents, kinds, make, partial, results, slow


class Memory:
    """A sink that keeps records, and fails at the nth write if told so."""

    def __init__(self, *, fail_at: int | None = None, best_effort: bool = False) -> None:
        """Count writes from 1."""
        self.records: list[AuditRecord] = []
        self.best_effort = best_effort
        self.writes = 0
        self.fail_at = fail_at

    async def write(self, records: Sequence[AuditRecord]) -> None:
        """Keep them."""
        self.writes += 1
        if self.writes == self.fail_at:
            raise OSError("disk full")
        self.records.extend(records)

    async def close(self) -> None:
        """Do nothing."""


@frozen
class Hangs(Capability):
    """Says that it was reached at one point of a run, and never comes back from there."""

    where: str
    reached: anyio.Event

    async def _at(self, where: str) -> None:
        if where == self.where:
            self.reached.set()
            await anyio.sleep_forever()

    async def gather_before_run(self, state: RunState, outside: Outside) -> Json:
        await self._at("gather_before_run")
        return None

    async def gather_after_model_request(self, state: RunState, outside: Outside) -> Json:
        await self._at("gather_after_model_request")
        return None

    async def gather_admit_tool_execute(self, call: CallState, outside: Outside) -> Json:
        await self._at("gather_admit_tool_execute")
        return None

    async def gather_after_tool_execute(self, call: CallState, outside: Outside) -> Json:
        await self._at("gather_after_tool_execute")
        return None

    async def gather_after_run(self, state: RunState, outside: Outside) -> Json:
        await self._at("gather_after_run")
        return None

    async def wrap_model_request(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        await self._at("wrap_model_request")
        return await call_next(state)

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        await self._at("wrap_in")
        done = await call_next(call)
        await self._at("wrap_out")
        return done

    async def wrap_run(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        await self._at("run_in")
        after = await call_next(state)
        await self._at("run_out")
        return after


PLACES = {
    "run_in": [],
    "gather_before_run": [],
    "wrap_model_request": [],
    "model": [],
    "gather_after_model_request": ["not_executed"] * 2,
    "gather_admit_tool_execute": ["not_executed"] * 2,
    "approver": ["not_executed"] * 2,
    "wrap_in": ["not_executed"] * 2,
    "tool": ["unknown", "unknown"],
    "wrap_out": ["succeeded", "succeeded"],
    "gather_after_tool_execute": ["succeeded", "succeeded"],
    "gather_after_run": ["succeeded", "succeeded"],
    "run_out": ["succeeded", "succeeded"],
}


def hanging(
    where: str, reached: anyio.Event, sink: Memory, **options: Any
) -> Agent[str]:  # Any: options of Agent
    """Return an agent whose run hangs at a place."""

    async def model(request: Any) -> Any:  # Any: a request, and any reply
        if where == "model":
            reached.set()
            await anyio.sleep_forever()
        return [call("t", {"n": i}) for i in range(2)] if request.step == 1 else "done"

    async def tool(n: int) -> str:
        if where == "tool":
            reached.set()
            await anyio.sleep_forever()
        return "ok"

    async def approver(requests: Any) -> list[object]:  # Any: of any kind
        if where == "approver":
            reached.set()
            await anyio.sleep_forever()
        from capfold.runtime import Approve  # noqa: PLC0415  # used here alone

        return [Approve() for _ in requests]

    return make(
        model=FunctionModel(model),
        tools=[slow("t", tool)],
        capabilities=[Hangs(where, reached), RequireApproval()],
        approver=approver,
        sinks=[sink],
        **options,
    )


@pytest.mark.parametrize("where", PLACES)
async def test_cancellation_closes_the_run(where: str) -> None:
    """Wherever it strikes: it stays a cancellation, and the log ends with each call's outcome on record."""
    reached, sink = anyio.Event(), Memory()
    agent = hanging(where, reached, sink)
    ended: list[str] = []

    async def run() -> None:
        try:
            await agent.run("go")
        except BaseException as error:
            ended.append(type(error).__name__)
            raise

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        with anyio.fail_after(5):
            await reached.wait()
        group.cancel_scope.cancel()
    assert ended in (["CancelledError"], ["Cancelled"])
    last = sink.records[-1]
    assert ("run_ended", "cancelled") == (last.kind, last.facts["status"])
    settled = [record.facts["outcome"]["status"] for record in sink.records if record.kind == "tool_settled"]  # type: ignore[index,call-overload]  # the facts of this kind are a mapping
    started = [record for record in sink.records if record.kind == "tool_started"]
    if where in {"tool", "wrap_out"} or "after_tool" in where:
        assert PLACES[where] == settled
    assert len(settled) <= len(started) or not started
    assert list(range(len(sink.records))) == [record.seq for record in sink.records]


@pytest.mark.parametrize("where", PLACES)
async def test_deadline_cuts_it_short(where: str) -> None:
    """The deadline strikes inside any effect: LimitExceeded, each call with one outcome, history closed."""
    if where in {"run_in", "run_out"}:
        pytest.skip("what wrap_run does outside the steps is not under the deadline of the steps")
    sink = Memory()
    from capfold.runtime import LocalPort  # noqa: PLC0415  # a port whose time goes on

    agent = hanging(
        where, anyio.Event(), sink, limits=Limits(deadline=0.05, tool_timeout=5.0), port=LocalPort()
    )
    with pytest.raises(LimitError) as caught, anyio.fail_after(5):
        await agent.run("go")
    reason = caught.value.reason
    assert isinstance(reason, LimitExceeded)
    assert "deadline" == reason.limit
    found = partial(caught.value)
    assert PLACES[where] == [status for _, status in results(found.messages)]


async def test_batch_settles_when_the_deadline_strikes() -> None:
    """What was done by then is seen by its after hooks, and stands in the history with its content."""
    trace = Trace()

    async def hang(n: int) -> str:
        await anyio.sleep_forever()
        return "never"

    from capfold.runtime import LocalPort  # noqa: PLC0415  # a port whose time goes on

    agent = make(
        [[call("look", {"n": 1}), call("hang", {"n": 2})]],
        tools=[slow("hang", hang), *make().tools],
        capabilities=[Observer(trace)],
        limits=Limits(deadline=0.05),
        port=LocalPort(),
    )
    with pytest.raises(LimitError, match="deadline") as caught:
        await agent.run("go")
    assert ["look:succeeded", "hang:unknown"] == trace.lines
    assert "found 1" == contents(partial(caught.value).messages)[0]


async def test_stray_cancellation_is_the_hook_s_failure(anyio_backend: str) -> None:
    """A gatherer or wrapper that awaits something somebody else cancelled has failed, by name: no fact is lost."""
    if anyio_backend == "trio":
        pytest.skip("trio has no task whose cancellation could reach another one")
    import asyncio  # noqa: PLC0415  # of this backend only

    async def stray() -> None:
        task = asyncio.ensure_future(asyncio.sleep(10))
        task.cancel()
        await task

    @frozen
    class Gathers(Capability):
        async def gather_before_run(self, state: RunState, outside: Outside) -> Json:
            await stray()
            return True

    async def tool(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        await stray()
        return await call_next(call)

    async def model(call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        await stray()
        return await call_next(state)

    batch = [call("look", {"n": i}) for i in range(2)]
    for capabilities in (
        [Gathers(key="a"), Gathers(key="b")],
        [ToolHook(tool)],
        [hook.wrap_model_request(model)],
        [hook.wrap_run(model)],
    ):
        with pytest.raises(HookError, match="was cancelled") as caught:
            await make([batch, "done"], capabilities=capabilities).run("go")
        partial(caught.value)


@pytest.mark.parametrize("where", ["approver", "sink", "load", "append", "hold", "held", "claim"])
async def test_stray_cancellation_is_a_failure_of_what_was_asked(anyio_backend: str, where: str) -> None:
    """So it is for an approver, a sink and a store: nobody cancelled the run, and it is not ended as if."""
    if anyio_backend == "trio":
        pytest.skip("trio has no task whose cancellation could reach another one")
    import asyncio  # noqa: PLC0415  # of this backend only

    async def stray(*given: object) -> Any:  # Any: of whatever it stands for
        task = asyncio.ensure_future(asyncio.sleep(10))
        task.cancel()
        await task

    class Sink:
        best_effort = False
        write = close = staticmethod(stray)

    store = (
        MemoryStore() if where in {"approver", "sink"} else type("Strays", (MemoryStore,), {where: stray})()
    )
    agent = make(
        [call("pay", {"amount": 1}), "done"],
        capabilities=[RequireApproval({"pay"})],
        store=store,
        approver=stray if where == "approver" else None,
        sinks=[Sink()] if where == "sink" else (),
    )

    async def both() -> str:
        result = await agent.run("go", conversation="c", run_id="r")
        approval = {request.digest: Approve() for request in result.pending}
        return (await agent.resume("r", approval)).status

    if where == "approver":
        assert "completed" == await both()
        return
    with pytest.raises((StorageError, StoreError), match="was cancelled"):
        await both()


async def test_no_task_is_left_behind() -> None:
    """After a cancelled and a timed-out run no coroutine is left un-awaited, no task running."""
    finished = Trace()

    async def tool(n: int) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            finished.add(f"left {n}")
        return "never"

    agent = make(
        [[call("t", {"n": 1}), call("t", {"n": 2})], "done"],
        tools=[slow("t", tool)],
        capabilities=[ToolHook(_through)],
        limits=Limits(tool_timeout=5),
    )
    with anyio.move_on_after(0.05):
        await agent.run("go")
    assert ["left 1", "left 2"] == sorted(finished.lines)
    agent = make([call("t", {"n": 3}), "done"], tools=[slow("t", tool, timeout=0.01)])
    await agent.run("go")
    assert "left 3" in finished.lines
    gc.collect()


async def _through(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
    return await call_next(call)


async def test_run_wrapper_may_clean_up_when_cancelled() -> None:
    """Cancellation passes through wrap_run as one, so that it can release what it holds."""
    trace = Trace()

    async def holds(call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        try:
            return await call_next(state)
        finally:
            trace.add("released")

    async def hang(request: object) -> str:
        await anyio.sleep_forever()
        return "x"

    with anyio.move_on_after(0.02):
        await make(model=FunctionModel(hang), capabilities=[hook.wrap_run(holds)]).run("go")
    assert ["released"] == trace.lines


# --- sinks


async def test_everything_is_written_before_the_run_returns() -> None:
    """The sink has what the log has, in order, also of a failed and of a suspended run."""
    sink = Memory()
    result = await make([call("look", {"n": 1}), "done"], sinks=[sink]).run("go")
    assert list(result.log) == sink.records
    sink = Memory()
    waiting = await make([call("pay", {"amount": 1})], sinks=[sink], capabilities=[RequireApproval()]).run(
        "go"
    )
    assert list(waiting.log) == sink.records
    assert "run_suspended" == sink.records[-1].kind
    sink = Memory()
    with pytest.raises(RunError) as caught:
        await make([], sinks=[sink]).run("go")
    assert list(partial(caught.value).log) == sink.records


async def test_records_are_out_before_the_effect() -> None:
    """When a tool runs, its start is written already."""
    sink = Memory()
    seen: list[str] = []

    async def tool(n: int) -> str:
        seen.extend(record.kind for record in sink.records)
        return "ok"

    await make([call("t", {"n": 1}), "done"], tools=[slow("t", tool)], sinks=[sink]).run("go")
    assert "tool_started" == seen[-1]


@pytest.mark.parametrize("wrapped", ["bare", "in a wrapper"])
async def test_failing_sink_ends_the_run(wrapped: str) -> None:
    """Whichever write fails, the run ends as StorageError, closed; the other sink has everything."""
    capabilities: list[Capability] = [Observer()]
    if wrapped != "bare":
        capabilities.append(hook.wrap_run(lambda call_next, state: call_next(state)))

    def agent(*sinks: Memory) -> Agent[str]:
        return make([call("look", {"n": 1}), "done"], sinks=sinks, capabilities=capabilities)

    fine = Memory()
    await agent(fine).run("go")
    assert fine.writes > 3
    for at in range(1, fine.writes + 1):
        good = Memory()
        with pytest.raises(StorageError, match="disk full") as caught:
            await agent(Memory(fail_at=at), good).run("go")
        assert isinstance(caught.value.reason, SinkFailed)
        assert isinstance(caught.value.__cause__, OSError)
        assert list(partial(caught.value).log) == good.records
        last = good.records[-1]
        assert ("run_ended", "failed") == (last.kind, last.facts["status"])


async def test_best_effort_sink_may_fail() -> None:
    """It is dropped, on record, and the run goes on."""
    bad, good = Memory(fail_at=2, best_effort=True), Memory()
    result = await make([call("look", {"n": 1}), "done"], sinks=[bad, good]).run("go")
    assert "completed" == result.status
    (note,) = [record for record in good.records if record.kind == "note"]
    assert "disk full" in str(note.facts["sink_failed"])
    assert 2 == bad.writes


async def test_failing_sink_of_a_suspended_run() -> None:
    """What could not be written is not waited for: the run fails, its calls not executed."""
    agent = make([call("pay", {"amount": 1})], sinks=[Memory(fail_at=3)], capabilities=[RequireApproval()])
    with pytest.raises(StorageError) as caught:
        await agent.run("go")
    assert [("pay", "not_executed")] == results(partial(caught.value).messages)


async def test_runs_of_one_agent_side_by_side() -> None:
    """An agent is data: many runs at once do not mix."""

    async def model(request: Any) -> Any:  # Any: a request, and any reply
        await anyio.sleep(0.001)
        said = request.messages[0].content
        return call("look", {"n": int(said)}) if request.step == 1 else f"{request.messages[-1].content}"

    agent = make(model=FunctionModel(model), capabilities=[Observer()])
    outputs: dict[int, object] = {}

    async def run(n: int) -> None:
        result = await agent.run(str(n), run_id=f"r{n}")
        check_closed(result.messages)
        outputs[n] = result.output

    async with anyio.create_task_group() as group:
        for n in range(5):
            group.start_soon(run, n)
    assert {n: f"found {n}" for n in range(5)} == outputs


async def test_equal_runs_have_equal_digests() -> None:
    """Time, run id and random numbers are not in the chain."""
    from capfold.runtime import LocalPort  # noqa: PLC0415  # real time, real ids

    heads = set()
    for _ in range(2):
        result = await make(
            [call("look", {"n": 1}), "done"], capabilities=[Observer()], port=LocalPort()
        ).run("go")
        heads.add(result.log.head)
        assert "run_ended" == kinds(result)[-1]
    assert 1 == len(heads)
