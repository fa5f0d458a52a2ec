"""Limits over a tree of runs: the caller's end the caller, the child's own are its outcome, shares are fixed."""

import itertools
from typing import Any

import anyio
import pytest

from capfold.capabilities import CallNext, CallState, Capability, ToolCall, Usage, tool
from capfold.runtime import (
    LimitError,
    LimitExceeded,
    Limits,
    LocalPort,
    ModelProfile,
    RunResult,
    UsageUnknown,
)
from tests.runtime.desk import contents, partial, results
from tests.runtime.family import above, ask, by_run, by_step, check_tree, made


@tool
def look(n: int = 0) -> str:
    """Look."""
    return f"saw {n}"


def looking(times: int, name: str = "child", **options: Any) -> Any:
    """Return an agent that looks so many times, one call a step, then answers."""
    calls = [ToolCall(f"l{n}", "look") for n in range(times)]
    return made(name, *calls, "found", tools=[look], **options)


async def reached(agent: Any, **options: Any) -> tuple[LimitExceeded, RunResult[object]]:
    """Run to the limit that ends the run."""
    with pytest.raises(LimitError) as caught:
        await agent.run("go", **options)
    result = partial(caught.value)
    check_tree(result.log)
    assert isinstance(caught.value.reason, LimitExceeded)
    return caught.value.reason, result


# Limit of the parent -> (what is allowed, used where it ends, share): the child would look nine times.
ENDS: dict[str, tuple[Any, Any, Any]] = {
    "requests": (4, 4, 3),
    "tool_calls": (4, 4, 3),
    "input_tokens": (2000, 2400, 1400),
    "output_tokens": (150, 160, 110),
    "total_tokens": (2500, 2560, 1860),
    "cost": (3.5, 4.0, 2.5),
}


@pytest.mark.parametrize("name", list(ENDS))
async def test_a_limit_of_the_parent_ends_the_parent(name: str) -> None:
    """By name, with what was used in all, what was allowed and the share; the call is on record as failed."""
    allowed, used, share = ENDS[name]
    reason, result = await reached(above(looking(9), limits=Limits(**{name: allowed})))
    assert (name, used, allowed, share) == (reason.limit, reason.used, reason.allowed, reason.share)
    assert [("child", "failed")] == results(result.messages)
    assert (used, 1) == (_used(result, name), result.steps)


def _used(result: Any, name: str) -> Any:
    if name == "total_tokens":
        return result.usage.total
    return getattr(result.usage if name.endswith("_tokens") else result, name)


@pytest.mark.parametrize("name", list(ENDS))
async def test_a_limit_of_the_child_is_its_outcome(name: str) -> None:
    """Whether the agent has it or the tool: the parent goes on, and may use what it likes."""
    allowed, _, _ = ENDS[name]
    own = Limits(**{name: allowed})
    for child in (looking(9, limits=own).as_tool("Ask."), looking(9).as_tool("Ask.", limits=own)):
        result = await made("parent", ask(), "done", tools=[child], limits=Limits(**{name: 10**6})).run("go")
        assert ("completed", [("child", "failed")]) == (result.status, results(result.messages))
        assert f"LimitError: limit {name} reached" in str(contents(result.messages))


async def test_limits_of_the_tool_stand_for_the_agents_own() -> None:
    """`as_tool(limits=...)` may be wider than what the agent has for its own runs."""
    child = looking(3, limits=Limits(requests=1)).as_tool("Ask.", limits=Limits(requests=9))
    result = await made("parent", ask(), "done", tools=[child]).run("go")
    assert ["found"] == contents(result.messages)


async def test_steps_are_the_childs_own() -> None:
    """Those of the parent bound its own steps, not the child's."""
    result = await above(looking(5), limits=Limits(max_steps=2)).run("go")
    assert (["found"], 2, 8) == (contents(result.messages), result.steps, result.requests)


async def test_what_a_child_may_use_is_enough_to_the_last_unit() -> None:
    """A child that needs exactly its share completes; the parent has none left for its answer."""
    reason, result = await reached(above(looking(1), limits=Limits(requests=3)))
    assert (None, 3, 3) == (reason.share, reason.used, reason.allowed)
    assert ["found"] == contents(result.messages)


async def test_unused_shares_return() -> None:
    """Two children of one batch get half of what is left each; what they leave serves the next."""
    child = looking(1)
    both = [ask("child", "a"), ask("child", "b")]
    result = await above(child, both, ask("child", "c"), "done", limits=Limits(requests=9)).run("go")
    assert (9, ["found"] * 3) == (result.requests, contents(result.messages))


async def test_usage_that_is_not_known_ends_the_parent_that_limits_it() -> None:
    """It is not counted as nothing, below neither."""
    unknown = Usage(input_tokens=None, output_tokens=None, cached_tokens=None, reasoning_tokens=None)
    child = made("child", model=by_step(ToolCall("l", "look"), "found", usage=unknown), tools=[look])
    with pytest.raises(LimitError) as caught:
        await above(child, limits=Limits(total_tokens=10_000)).run("go")
    assert isinstance(caught.value.reason, UsageUnknown)
    assert "its sub-agent could not keep to it" in caught.value.reason.message


async def test_unknown_usage_of_the_caller_leaves_nothing_to_its_child() -> None:
    """The batch of a response that does not report its usage may cost nothing: it is not known what is left."""
    unknown = Usage(input_tokens=None, output_tokens=None, cached_tokens=None, reasoning_tokens=None)
    model = by_step(ask(), "done", usage=unknown)
    with pytest.raises(LimitError) as caught:
        await above(made("child", "found"), model=model, limits=Limits(total_tokens=10_000)).run("go")
    assert isinstance(caught.value.reason, UsageUnknown)
    assert 1 == partial(caught.value).requests


async def test_a_model_without_a_price_under_a_limit_on_cost() -> None:
    """An error before its first request, though it is the parent's limit."""
    child = made("child", model=by_step("found", name="unpriced", profile=ModelProfile()))
    with pytest.raises(LimitError) as caught:
        await above(child, limits=Limits(cost=100.0)).run("go")
    assert isinstance(caught.value.reason, UsageUnknown)
    assert 1 == partial(caught.value).requests


@pytest.mark.parametrize("name", ["requests", "tool_calls", "total_tokens", "cost"])
async def test_over_three_levels_the_top_ends(name: str) -> None:
    """The limit is the top's: so it is the top that ends by it, not the run between."""
    allowed: Any = {"requests": 5, "tool_calls": 4, "total_tokens": 3000, "cost": 4.5}[name]
    middle = above(looking(9, "low"), ask("low", "g"), "passed on", name="middle")
    reason, result = await reached(above(middle, limits=Limits(**{name: allowed})))
    assert (name, allowed) == (reason.limit, reason.allowed)
    ends = {run: records[-1].facts["status"] for run, records in by_run(result.log).items()}
    assert {"run": "failed", "run/c": "failed", "run/c/g": "failed"} == ends


async def test_over_three_levels_the_middle_ends() -> None:
    """A limit of the run between is the outcome of the top's call, not of its own."""
    low = looking(9, "low")
    middle = above(low, ask("low", "g"), "passed on", name="middle", limits=Limits(requests=3))
    result = await above(middle, limits=Limits(requests=50)).run("go")
    assert [("middle", "failed")] == results(result.messages)
    assert "limit requests reached: 3 of 3, share 2" in str(contents(result.messages))
    assert 5 == result.requests


@pytest.mark.parametrize("name", ["requests", "tool_calls"])
async def test_one_unit_left_for_two_has_one_winner(name: str) -> None:
    """Whoever is slow: the first in call order gets the unit, and the run ends the same, to the digest."""
    heads: set[str] = set()
    delays = itertools.cycle([0, 0.002, 0.001, 0, 0.001])  # five and two: each run of the loop meets others

    async def wait(request: Any) -> None:
        await anyio.sleep(next(delays))

    for _ in range(12):
        child = looking(int(name == "tool_calls"), wait=wait)
        calls = [ask("child", "a"), ask("child", "b")]
        left, used, asked = {"requests": (2, 1, (1, 0)), "tool_calls": (3, 2, (2, 1))}[name]
        reason, result = await reached(above(child, calls, "done", limits=Limits(**{name: left})))
        assert (name, used, left, 0) == (reason.limit, reason.used, reason.allowed, reason.share)
        runs = by_run(result.log)
        responses = {run: [one.kind for one in runs[run]].count("model_responded") for run in runs}
        assert {"run": 1, "run/a": asked[0], "run/b": asked[1]} == responses
        heads.add(result.log.head)
    assert 1 == len(heads)


async def again(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
    """Run the body twice."""
    await call_next(call)
    return await call_next(call)


@pytest.mark.parametrize(("allowed", "ran"), [(2, 2), (3, 3), (4, None)])
async def test_running_a_child_again_is_charged_with_its_calls(allowed: int, ran: int | None) -> None:
    """One share for both: the asking, a call of the first run, the second run, a call of that are four."""
    child = looking(1).as_tool("Ask.").with_capabilities(again)
    parent = made("parent", ask(), "done", tools=[child], limits=Limits(tool_calls=allowed))
    if ran is None:
        result = await parent.run("go")
        assert (4, ["found"]) == (result.tool_calls, contents(result.messages))
        return
    reason, failed = await reached(parent)
    assert (ran, allowed, allowed - 1) == (reason.used, reason.allowed, reason.share)
    assert allowed == failed.tool_calls


async def test_a_spent_share_comes_through_wrappers_as_a_limit() -> None:
    """As at any other limit: a wrapper that would try again cannot, nor does what it answers change the end."""
    caught: list[str] = []

    async def stubborn(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        try:
            return await call_next(call)
        except LimitError as error:
            caught.append(str(error.reason))
            return call.answer("never mind")

    child = looking(9).as_tool("Ask.").with_capabilities(stubborn)
    reason, result = await reached(made("parent", ask(), "done", tools=[child], limits=Limits(requests=3)))
    assert ("requests", 1) == (reason.limit, len(caught))
    assert 3 == result.requests


# --- time


async def test_the_deadline_of_the_parent_ends_both() -> None:
    """The child is cut off and closed, the parent fails by its deadline."""

    async def wait(request: Any) -> None:
        await anyio.sleep(30)

    parent = above(made("child", "late", wait=wait), limits=Limits(deadline=0.2), port=LocalPort())
    reason, result = await reached(parent)
    assert "deadline" == reason.limit
    ends = [records[-1].facts["status"] for records in by_run(result.log).values()]
    assert (["failed", "cancelled"], [("child", "unknown")]) == (ends, results(result.messages))


async def test_the_deadline_of_the_child_is_its_outcome() -> None:
    """The parent goes on."""

    async def wait(request: Any) -> None:
        await anyio.sleep(30)

    child = made("child", "late", wait=wait, limits=Limits(deadline=0.2))
    result = await above(child, port=LocalPort()).run("go")
    assert ("completed", [("child", "failed")]) == (result.status, results(result.messages))
    assert "limit deadline reached" in str(contents(result.messages))
    check_tree(result.log)


async def test_the_general_timeout_of_tools_is_not_for_agents() -> None:
    """A child has its own limits and its caller's deadline; `tool_timeout` is for the bodies of functions."""

    async def wait(request: Any) -> None:
        await anyio.sleep(0.1)

    result = await above(made("child", "found", wait=wait), limits=Limits(tool_timeout=0.01)).run("go")
    assert ["found"] == contents(result.messages)


class Twice(Capability):
    """Asks a sub-agent twice at once, and takes what came first."""

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        """Ask."""
        came: list[CallState] = []

        async def one() -> None:
            came.append(await call_next(call))

        async with anyio.create_task_group() as group:
            group.start_soon(one)
            group.start_soon(one)
        return came[0]


async def test_a_sub_agent_that_is_asked_twice_at_once() -> None:
    """One attempt waits for the other: all that both use is booked, and the second has what the first left."""

    async def wait(request: object) -> None:
        await anyio.sleep(0.01)

    twice = above(made("child", "found", wait=wait), capabilities=[Twice()])
    result = await twice.run("go")
    check_tree(result.log)
    assert ("completed", 4, 4 * 640, 4.0, 2) == (
        result.status,
        result.requests,
        result.usage.total,
        result.cost,
        result.tool_calls,
    )
    asked = [record for record in result.log if record.kind == "model_requested"]
    assert ["run", "run/c", "run/c#2", "run"] == [record.run for record in asked]

    reason, spent = await reached(twice, limits=Limits(requests=2))
    assert ("requests", 2, 2) == (reason.limit, reason.allowed, spent.requests)
