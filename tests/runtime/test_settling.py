"""Executing and settling: order, parallel equals sequential, after hooks, retries, one outcome per call."""

from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities import (
    CallState,
    Capability,
    FromDeps,
    ModelRetry,
    RunState,
    Tool,
    ToolFailed,
    ToolHook,
    call,
    hook,
    tool,
)
from capfold.capabilities.outside import CallNext
from capfold.runtime import BlockedError, HookError, Limits, RunResult, ToolError, ToolRetriesExhausted
from tests.runtime.desk import Observer, Trace, check_closed, contents, kinds, make, partial, results, slow

MASKED = "[withheld: the run failed before this could be checked]"


@tool(read_only=True)
def breaks(n: int) -> str:
    """Fail."""
    raise ValueError(f"no {n}")


@tool
def fails(n: int) -> str:
    """Fail in a known way."""
    raise ToolFailed(f"cannot {n}")


async def test_after_hooks_wait_for_the_whole_batch() -> None:
    """No after hook runs before every outcome is confirmed; then they run in call order."""
    trace = Trace()

    async def first(n: int) -> str:
        await anyio.sleep(0.01)
        trace.add("ran slow")
        return "a"

    async def second(n: int) -> str:
        trace.add("ran fast")
        return "b"

    agent = make(
        [[call("slow", {"n": 1}), call("fast", {"n": 1})], "done"],
        tools=[slow("slow", first), slow("fast", second)],
        capabilities=[Observer(trace)],
    )
    result = await agent.run("go")
    assert ["ran fast", "ran slow", "slow:succeeded", "fast:succeeded"] == trace.lines
    assert ["a", "b"] == contents(result.messages)
    order = [kind for kind in kinds(result) if kind.startswith("tool_")]
    assert ["tool_started", "tool_started", "tool_settled", "tool_settled"] == order


async def test_max_parallel_and_sequential() -> None:
    """No more than the limit run at once; a sequential tool runs alone, in its place."""
    running, most = 0, 0

    async def work(n: int) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.001)
        running -= 1
        return f"{n}"

    calls = [call("work", {"n": i}) for i in range(5)]
    for options, expected in (
        ({"limits": Limits(max_parallel_tools=2)}, 2), ({}, 5),
        ({"tools": [slow("work", work, sequential=True)]}, 1),
    ):  # fmt: skip
        most = 0
        given: dict[str, Any] = {"tools": [slow("work", work)], **options}
        result = await make([calls, "done"], **given).run("go")
        assert expected == most
        assert ["0", "1", "2", "3", "4"] == contents(result.messages)


def _scheduled(name: str, naps: list[int], fate: str, sequential: bool) -> Tool:  # noqa: FBT001  # drawn
    async def run(n: int) -> str:
        for _ in range(naps[n % len(naps)]):
            await anyio.lowlevel.checkpoint()
        if fate == "retry":
            raise ModelRetry("again")
        if fate == "raise":
            raise KeyError(name)
        return f"{name}{n}"

    return slow(name, run, sequential=sequential, max_retries=9)


@frozen
class Counts(Capability[int]):
    """Counts outcomes in its slot, and notes them: what it does depends on what came before."""

    def after_tool_execute(self, call: CallState) -> CallState:
        assert call.outcome is not None
        n = call.slot(self) + 1
        return call.put(self, n).with_content(f"{n}: {call.outcome.content}")

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        done = await call_next(call)
        if done.outcome is not None and done.outcome.status == "failed":
            done = await call_next(call)
        return done.note("late") if call.index % 2 else replace_note(done)


def replace_note(done: CallState) -> CallState:
    """Write a latch of the run, from inside a wrapper that runs beside others."""
    from capfold.capabilities.records import replace  # noqa: PLC0415  # used here alone

    return replace(done, run=done.run.note(f"run note of {done.id}"))


Plan = list[list[tuple[str, int]]]


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), min_size=1, max_size=4),
        min_size=1,
        max_size=3,
    ),
    st.lists(st.integers(0, 5), min_size=1, max_size=4),
    st.sampled_from(("fine", "retry", "raise")),
    st.sampled_from("abc"),
)
@settings(max_examples=15)
def test_parallel_equals_sequential(plan: Plan, naps: list[int], fate: str, lonely: str) -> None:
    """Whatever the schedule, the limit and the event loop: equal states, equal messages, equal digests."""

    def run(backend: str, limit: int | None, *, sequential: frozenset[str]) -> RunResult[str]:
        tools = [
            _scheduled(name, naps, fate if name == "b" else "fine", name in sequential) for name in "abc"
        ]
        script = [[call(name, {"n": n}) for name, n in batch] for batch in plan]
        agent = make(
            [*script, "done"], tools=tools, capabilities=[Counts()], limits=Limits(max_parallel_tools=limit)
        )
        return anyio.run(agent.run, "go", backend=backend)

    for alone in (frozenset[str](), frozenset({lonely})):
        made = [
            run(backend, limit, sequential=alone) for backend in ("asyncio", "trio") for limit in (None, 1, 2)
        ]
        assert 1 == len({result.log.head for result in made})
        assert 1 == len({result.messages for result in made})
        assert 1 == len({(result.state.notes, result.state.slots, result.tool_calls) for result in made})
        check_closed(made[0].messages)


@pytest.mark.parametrize(
    ("kind", "status", "effect"),
    [
        ("raise", "unknown", "maybe"),
        ("read_only", "failed", "maybe"),
        ("known", "failed", "no"),
        ("retry", "failed", "maybe"),
    ],
)
async def test_failures_become_outcomes(kind: str, status: str, effect: str) -> None:
    """A tool that raises does not end the run; whether its effect happened is said honestly."""
    effects: list[str] = []

    def run(n: int) -> str:
        raise {"known": ToolFailed("no"), "retry": ModelRetry("other n")}.get(
            kind, ValueError("broken\nsecond line")
        )

    @hook.after_tool_execute
    def watch(call: CallState) -> CallState:
        assert call.outcome is not None
        effects.append(call.outcome.effect)
        return call

    agent = make(
        [call("t", {"n": 1}), "done"],
        tools=[slow("t", run, read_only=kind == "read_only" or None)],
        capabilities=[watch],
    )
    result = await agent.run("go")
    assert [("t", status)] == results(result.messages)
    assert [effect] == effects
    assert "second line" not in str(contents(result.messages))


async def test_retries_are_counted_per_tool_and_step() -> None:
    """A step in which all calls of a tool failed counts one; a success resets; there is a maximum."""

    def flaky(n: int) -> str:
        if n < 0:
            raise ToolFailed("negative")
        return "ok"

    bad, good = call("flaky", {"n": -1}), call("flaky", {"n": 1})
    agent = make([[bad, bad], [bad, good], bad, bad, "done"], tools=[slow("flaky", flaky, max_retries=2)])
    result = await agent.run("go")
    assert {"flaky": 2} == result.state.tool_retries
    agent = make([bad, bad, bad, "done"], tools=[slow("flaky", flaky, max_retries=2)])
    with pytest.raises(ToolError) as caught:
        await agent.run("go")
    reason = caught.value.reason
    assert isinstance(reason, ToolRetriesExhausted)
    assert ("flaky", 3) == (reason.tool, reason.step)
    assert 3 == len(results(partial(caught.value).messages))
    none = make([bad, "done"], tools=[slow("flaky", flaky, max_retries=0)])
    with pytest.raises(ToolError):
        await none.run("go")


async def test_hooks_see_the_retry_count() -> None:
    """`call.retry` is the number of failed steps in a row so far."""
    seen: list[tuple[int, int]] = []

    @hook.admit_tool_execute
    def watch(call: CallState) -> CallState:
        seen.append((call.retry, call.max_retries))
        return call

    await make(
        [call("fails", {"n": 1}), call("fails", {"n": 1}), "done"], tools=[fails], capabilities=[watch]
    ).run("go")
    assert [(0, 3), (1, 3)] == seen


async def test_after_hook_that_raises_keeps_the_effect_on_record() -> None:
    """The run ends; what ran keeps its status; content that was not checked is withheld."""

    @hook.after_tool_execute
    def explodes(call: CallState) -> CallState:
        if call.index == 1:
            raise RuntimeError("cannot check")
        return call

    agent = make([[call("look", {"n": i}) for i in range(3)]], capabilities=[explodes])
    with pytest.raises(HookError) as caught:
        await agent.run("go")
    messages = partial(caught.value).messages
    assert ["succeeded"] * 3 == [status for _, status in results(messages)]
    assert ["found 0", MASKED, MASKED] == contents(messages)
    assert 3 == kinds(partial(caught.value)).count("tool_settled")


async def test_fail_in_an_after_hook_withholds_that_content() -> None:
    """What the hook failed on is not in the history; the log keeps it."""
    agent = make(
        [call("look", {"n": 7})], capabilities=[hook.after_tool_execute(lambda call: call.fail("no"))]
    )
    with pytest.raises(BlockedError) as caught:
        await agent.run("go")
    result = partial(caught.value)
    assert [MASKED] == contents(result.messages)
    assert "found 7" in str([record.facts for record in result.log])


async def test_stop_in_an_after_hook() -> None:
    """The whole batch settles, then the run ends stopped; the model is not asked again."""
    trace = Trace()
    stops = hook.after_tool_execute(lambda call: call.stop("enough") if call.index == 0 else call)
    agent = make([[call("look", {"n": i}) for i in range(2)]], capabilities=[stops, Observer(trace)])
    result = await agent.run("go")
    assert ["look:succeeded"] * 2 == trace.lines
    assert ("stopped", "enough", 1) == (result.status, result.output, result.requests)


async def test_after_hook_sees_the_results_before_its_own() -> None:
    """In the record of a call the history holds the results of the calls before it."""
    counts: list[int] = []

    @hook.after_tool_execute
    def watch(call: CallState) -> CallState:
        counts.append(len(call.run.messages))
        return call

    await make([[call("look", {"n": i}) for i in range(3)], "done"], capabilities=[watch]).run("go")
    assert [2, 3, 4] == counts


async def test_wrapper_that_broke_lets_the_batch_settle() -> None:
    """A wrapper that raised ends the run once the batch settled; the first failure is the reason."""
    trace = Trace()

    async def raises(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        done = await call_next(call)
        if call.index == 0:
            raise OSError("wrapper broke")
        return done

    @hook.after_tool_execute
    def also(call: CallState) -> CallState:
        trace.add(f"{call.index}")
        if call.index == 1:
            raise RuntimeError("later")
        return call

    for capabilities in ([ToolHook(raises), Observer(trace)], [ToolHook(raises), also]):
        trace.lines.clear()
        agent = make([[call("look", {"n": i}) for i in range(2)]], capabilities=capabilities)
        with pytest.raises(HookError, match="wrapper broke") as caught:
            await agent.run("go")
        assert ["succeeded"] * 2 == [status for _, status in results(partial(caught.value).messages)]
        assert 2 == len(trace.lines)


async def test_latches_of_wrappers_merge_in_call_order() -> None:
    """Two wrappers that stop at once: the first call's stop is the run's, whichever came first in time."""

    async def stops(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        done = await call_next(call)
        return done.stop(f"stop {call.index}")

    async def nap(n: int) -> str:
        await anyio.sleep(0.01 if n == 0 else 0)
        return "x"

    agent = make(
        [[call("nap", {"n": i}) for i in range(2)]], tools=[slow("nap", nap)], capabilities=[ToolHook(stops)]
    )
    result = await agent.run("go")
    assert "stop 0" == result.output
    assert ("stop: stop 1",) == result.state.notes


async def test_timeout_is_unknown() -> None:
    """A body that does not return in time is unknown: its effect may have happened; others keep theirs."""

    async def hangs(n: int) -> str:
        await anyio.sleep_forever()
        return "never"

    agent = make(
        [[call("hangs", {"n": 1}), call("look", {"n": 2})], "done"],
        tools=[slow("hangs", hangs, timeout=0.02), *make().tools],
    )
    result = await agent.run("go")
    assert [("hangs", "unknown"), ("look", "succeeded")] == results(result.messages)
    assert "within 0.02 seconds" in str(contents(result.messages)[0])


async def test_deps_reach_the_tool_by_reference() -> None:
    """The very object, and never a copy."""
    box: list[int] = []

    @tool
    def keep(n: int, box: Annotated[object, FromDeps("box")]) -> str:
        """Keep n."""
        assert isinstance(box, list)
        box.append(n)
        return "kept"

    await make([call("keep", {"n": 4}), "done"], tools=[keep]).run("go", deps={"box": box})
    assert [4] == box


async def test_run_counts_every_call() -> None:
    """Refused, invalid and unknown calls are charged like those that ran."""
    refuses = hook.admit_tool_execute(lambda call: call.refuse("no") if call.index == 1 else call)
    batch = [call("look", {"n": 1}), call("look", {"n": 2}), call("look", {"m": 1}), call("nothing")]
    result = await make([batch, "done"], capabilities=[refuses]).run("go")
    assert 4 == result.tool_calls
    assert ["succeeded", "denied", "validation_error", "validation_error"] == [
        s for _, s in results(result.messages)
    ]


async def test_memory_of_a_batch_is_given_back() -> None:
    """Between steps the state holds no batch."""
    sizes: list[int] = []

    @hook.before_model_request
    def watch(state: RunState) -> RunState:
        sizes.append(len(state.messages))
        return state

    await make([[call("look", {"n": i}) for i in range(3)], "done"], capabilities=[watch]).run("go")
    assert [1, 5] == sizes
