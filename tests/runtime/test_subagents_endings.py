"""However a run ends while another runs below it, wherever that one is: both are closed, nothing lives on."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest

from capfold.capabilities import (
    CallNext,
    CallState,
    Capability,
    Json,
    Outside,
    RequireApproval,
    RunState,
    Tool,
    call,
    tool,
)
from capfold.runtime import Agent, LimitError, Limits, LocalPort, Log, RunResult
from capfold.runtime.decisions import ApprovalRequest, Decision
from tests.corruption.log_fold import folded
from tests.corruption.scenes import MemorySink
from tests.runtime.desk import check_closed, partial, results
from tests.runtime.family import ask, by_run, check_tree, made

Block = Callable[[], Awaitable[object]]


@tool
async def quick(n: int) -> str:
    """Do something else meanwhile."""
    return f"did {n}"


def gathers(point: str, block: Block) -> Capability:
    """Return a capability that waits in a gatherer."""

    class Waits(Capability):
        async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
            if point == "gather":
                await block()
            return None

        async def gather_after_tool_execute(self, call: CallState, outside: Outside) -> Json:
            if point == "after":
                await block()
            return None

        async def wrap_run(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
            if point == "wrap_run":
                await block()
            done = await call_next(state)
            if point == "leaving":
                await block()
            return done

        async def wrap_tool_execute(
            self, call_next: CallNext[CallState, CallState], call: CallState
        ) -> CallState:
            done = await call_next(call)
            if point == "wrap_tool":
                await block()
            return done

    return Waits()


def child_at(stage: str, block: Block) -> Agent[Any]:
    """Return an agent that comes to one stage and stays there."""

    async def wait(request: Any) -> None:
        if stage == f"request {request.step}":
            await block()

    async def approver(requests: Sequence[ApprovalRequest]) -> list[Decision]:
        await block()
        return []

    @tool
    async def work(n: int) -> str:
        """Work."""
        if stage == "tool":
            await block()
        return f"did {n}"

    @tool
    def thread(n: int) -> str:
        """Work in a thread."""
        return f"did {n}"

    calls = [call("work", {"n": 1}, id="w"), call("thread", {"n": 1}, id="t")]
    gate = [RequireApproval({"work"})] if stage == "approval" else []
    return made(
        "child",
        calls,
        "found",
        wait=wait,
        tools=[work, thread],
        capabilities=[gathers(stage, block), *gate],
        approver=approver if gate else None,
    )


STAGES = (
    "wrap_run",
    "gather",
    "request 1",
    "approval",
    "tool",
    "wrap_tool",
    "after",
    "request 2",
    "leaving",
)


class Scene:
    """A parent, its child at a stage, and what the sink has."""

    def __init__(self, stage: str, levels: int = 1, *, timeout: float | None = None, **options: Any) -> None:
        """Build it; `here` is set once the child is at its stage."""
        self.here = anyio.Event()
        self.sink = MemorySink()
        agent = child_at(stage, self.block)
        for level in range(1, levels):
            agent = made(f"level{level}", ask(agent.name), "passed on", tools=[agent.as_tool("Ask.")])
        made_of = agent.as_tool("Ask.")
        below = Tool(made_of.name, "Ask.", made_of.parameters, made_of.function, timeout=timeout)
        self.name = agent.name
        self.levels = levels
        self.parent = made(
            "parent",
            [ask(agent.name), call("quick", {"n": 1}, id="q")],
            "done",
            tools=[below, quick],
            sinks=[self.sink],
            port=LocalPort(new_id=lambda: "run"),
            **options,
        )

    async def block(self) -> None:
        """Stay."""
        self.here.set()
        await anyio.sleep(30)

    def check(self, status: str, outcome: str) -> None:
        """Assert that the tree is closed: parent `status`, its call `outcome`, each run below cancelled."""
        log = Log.from_records(self.sink.records)
        check_tree(log)
        runs = by_run(log)
        ends = {run: records[-1].facts["status"] for run, records in runs.items()}
        below = ["run" + "/c" * n for n in range(1, self.levels + 1)]
        assert {"run": status, **dict.fromkeys(below, "cancelled")} == ends
        for records in runs.values():
            folded(records)  # finds an outcome for every call, or fails
            started = [one.call for one in records if one.kind == "tool_started"]
            settled = [one.call for one in records if one.kind == "tool_settled"]
            assert sorted(map(str, started)) == sorted(map(str, settled))
        outcomes: Any = {one.call: one.facts["outcome"] for one in runs["run"] if one.kind == "tool_settled"}
        assert {"c": outcome, "q": "succeeded"} == {name: one["status"] for name, one in outcomes.items()}


def tasks() -> set[Any]:
    """Return the tasks that there are."""
    return {task.id for task in anyio.get_running_tasks()}


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("stage", STAGES)
async def test_cancelled(stage: str, levels: int) -> None:
    """Cancellation stays cancellation, after both histories are closed and written down."""
    before = tasks()
    scene = Scene(stage, levels)
    async with anyio.create_task_group() as group:
        group.start_soon(scene.parent.run, "go")
        await scene.here.wait()
        await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    scene.check("cancelled", "unknown")
    assert before == tasks()


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("stage", STAGES)
async def test_stopped_from_outside(stage: str, levels: int) -> None:
    """A stop is a result of the parent; what runs below is cut off."""
    before = tasks()
    scene = Scene(stage, levels)
    async with scene.parent.start("go") as handle:
        await scene.here.wait()
        await anyio.sleep(0.01)
        await handle.stop("enough", grace=0.5)
        result = await handle.result()
    assert ("stopped", "enough") == (result.status, result.output)
    check_closed(result.messages)
    assert [(scene.name, "unknown"), ("quick", "succeeded")] == results(result.messages)
    scene.check("stopped", "unknown")
    assert before == tasks()


@pytest.mark.parametrize("stage", STAGES)
async def test_the_parents_deadline(stage: str) -> None:
    """The parent fails by its deadline; its batch settles with its after hooks."""
    before = tasks()
    scene = Scene(stage, limits=Limits(deadline=0.2))
    with pytest.raises(LimitError) as caught:
        await scene.parent.run("go")
    assert [("child", "unknown"), ("quick", "succeeded")] == results(partial(caught.value).messages)
    scene.check("failed", "unknown")
    assert before == tasks()


@pytest.mark.parametrize("stage", STAGES)
async def test_a_timeout_of_the_tool(stage: str) -> None:
    """The child is cut off, and the parent goes on."""
    before = tasks()
    scene = Scene(stage, timeout=0.1)
    result = await scene.parent.run("go")
    assert [("child", "unknown"), ("quick", "succeeded")] == results(result.messages)
    scene.check("completed", "unknown")
    assert before == tasks()


async def test_a_tool_below_that_ignores_a_stop_is_left_behind() -> None:
    """As one of the stopped run itself: its outcome is unknown, and the stop does not wait for it."""
    over, done = anyio.Event(), anyio.Event()
    here = anyio.Event()

    @tool
    async def stubborn(n: int) -> str:
        """Work."""
        here.set()
        with anyio.CancelScope(shield=True):
            await over.wait()
        done.set()
        return "late"

    child = made("child", call("stubborn", {"n": 1}, id="s"), "found", tools=[stubborn])
    sink = MemorySink()
    parent = made("parent", ask(), "done", tools=[child.as_tool("Ask.")], sinks=[sink])
    with anyio.fail_after(10):
        async with parent.start("go") as handle:
            await here.wait()
            await handle.stop("enough", grace=0.05)
            result: RunResult[Any] = await handle.result()
        assert not done.is_set()
        over.set()
        await done.wait()
    assert "stopped" == result.status
    log = Log.from_records(sink.records)
    check_tree(log)
    statuses = {(one.run, one.call): one.facts["outcome"] for one in log if one.kind == "tool_settled"}
    outcome: Any = statuses["run/c", "s"]
    assert "unknown" == outcome["status"]
    assert {"cancelled", "stopped"} == {records[-1].facts["status"] for records in by_run(log).values()}
