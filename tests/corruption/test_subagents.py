"""C11, C21, C65, C75: nothing gets around a run's limits, gates, permissions and approvals by way of an agent below."""

import itertools
from typing import Any

import anyio
import pytest

from capfold.capabilities import (
    CallNext,
    CallState,
    Capability,
    RequireApproval,
    RunState,
    ToolCall,
    Toolkit,
    group,
    inherited,
)
from capfold.runtime import (
    Approve,
    LimitError,
    LimitExceeded,
    Limits,
    Permissions,
    RunResult,
)
from tests.corruption.builders import partial_of
from tests.corruption.scenes import Works, check_closed, contents, statuses
from tests.runtime.family import above, ask, by_run, check_tree, looks, made

BOTH = [ask("child", "a"), ask("child", "b")]


def working(works: Works, times: int = 1, **options: Any) -> Any:
    """Return an agent that works so many times."""
    calls = [ToolCall(f"w{n}", "work", f'{{"n": {n}}}') for n in range(times)]
    return made("child", *calls, "found", tools=[works.tool()], **options)


# --- C11: the budget of the parent


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("name", ["requests", "tool_calls", "total_tokens", "cost"])
async def test_c11_a_sub_agent_spends_the_parents_budget(name: str, levels: int) -> None:
    """At every depth: the parent ends by its limit, and what was used in all is not over it."""
    allowed: Any = {"requests": 7, "tool_calls": 6, "total_tokens": 7 * 640, "cost": 7.0}[name]
    agent = working(Works(), 20)
    for level in range(1, levels):
        agent = above(agent, name=f"level{level}")
    with pytest.raises(LimitError) as caught:
        await above(agent, limits=Limits(**{name: allowed})).run("go")
    reason, result = caught.value.reason, partial_of(caught.value)
    assert isinstance(reason, LimitExceeded)
    assert (name, allowed, allowed) == (reason.limit, reason.used, reason.allowed)
    used = {"total_tokens": result.usage.total}.get(name, getattr(result, name, None))
    assert allowed == used
    check_closed(result.messages)
    check_tree(result.log)


async def test_c11_two_at_once_and_one_unit_left() -> None:
    """Exactly one request, by the same one every time, whoever is slow; the same digests."""
    delays = itertools.cycle([0, 0.002, 0.001, 0, 0.001])  # five and two: each round meets others

    async def wait(request: Any) -> None:
        await anyio.sleep(next(delays))

    ends: set[tuple[Any, ...]] = set()
    for _ in range(10):
        agent = above(made("child", "found", wait=wait), BOTH, "done", limits=Limits(requests=2))
        with pytest.raises(LimitError) as caught:
            await agent.run("go")
        result = partial_of(caught.value)
        asked = [record.run for record in result.log if record.kind == "model_responded"]
        ends.add((*asked, result.requests, *statuses(result.messages).items(), result.log.head))
    ((*said, _),) = ends
    assert ["run", "run/a", 2, ("a", "succeeded"), ("b", "failed")] == said


async def test_c11_a_limit_of_the_sub_agent_bounds_itself_alone() -> None:
    """It is the outcome of its call, on record."""
    result = await above(working(Works(), 9, limits=Limits(requests=3)), limits=Limits(requests=9)).run("go")
    assert {"c": "failed"} == statuses(result.messages)
    assert 5 == result.requests


# --- C21: the gate of a toolkit


async def test_c21_a_toolkit_gate_covers_sub_agent_tools() -> None:
    """Nested or not: the agent is not run that the gate refuses."""
    works = Works()

    class Gate(Capability):
        def admit_tool_execute(self, call: CallState) -> CallState:
            return call.refuse("closed")

    inner = Toolkit("inner", [working(works).as_tool("Ask.")])
    kit = Toolkit("outer", [inner, made("other", "found").as_tool("Ask.")], capabilities=[Gate()])
    calls = [ask("child", "a"), ask("other", "b")]
    result = await made("parent", calls, "done", tools=[kit]).run("go")
    assert {"a": "denied", "b": "denied"} == statuses(result.messages)
    assert ([], ["run"]) == (works.began, list(by_run(result.log)))


# --- C65: permissions


@pytest.mark.parametrize("levels", [1, 2, 3])
async def test_c65_what_is_denied_to_the_parent_is_denied_in_the_child(levels: int) -> None:
    """At every depth, whatever the runs between allow."""
    works = Works()
    allows = Permissions((("*", "allow"),))
    agent = working(works, permissions=allows)
    for level in range(1, levels):
        agent = above(agent, name=f"level{level}", permissions=allows)
    result = await above(agent, permissions=Permissions((("work", "deny"),))).run("go")
    (refused,) = [record for record in result.log if record.kind == "call_refused"]
    assert ("denied", []) == (refused.facts["status"], works.began)
    check_tree(result.log)


async def test_c65_what_must_be_asked_in_the_parent_is_asked_in_the_child() -> None:
    """Nobody there: the whole tree waits."""
    works = Works()
    result = await above(working(works), permissions=Permissions((("work", "ask"),))).run("go")
    assert ("suspended", ["run/c"], []) == (
        result.status,
        [one.run_id for one in result.pending],
        works.began,
    )
    check_tree(result.log, ends=("run_suspended",))


async def test_c65_limits_are_inherited_too() -> None:
    """A child that allows itself more does not get it."""
    works = Works()
    with pytest.raises(LimitError):
        await above(working(works, 9, limits=Limits(tool_calls=99)), limits=Limits(tool_calls=3)).run("go")
    assert [0, 1] == works.began


# --- C75: inherited capabilities


class Redact(Capability):
    """Masks what comes back from tools."""

    def after_tool_execute(self, call: CallState) -> CallState:
        assert call.outcome is not None
        return call.with_content(str(call.outcome.content).replace("did", "***"))


class Loud(Capability):
    """The child's own, which says it again."""

    def after_tool_execute(self, call: CallState) -> CallState:
        assert call.outcome is not None
        return call.with_content(f"{call.outcome.content}, I did it")


@pytest.mark.parametrize("grouped", [False, True])
async def test_c75_an_inherited_approval_and_redactor_cover_the_childs_calls(grouped: bool) -> None:  # noqa: FBT001  # a value under test
    """The child's call waits for a person; the child's model reads nothing that was not masked last."""
    works, seen = Works(), list[RunState]()
    lent = [RequireApproval({"work"}), Redact()]
    capabilities = [inherited(group(*lent))] if grouped else [inherited(one) for one in lent]
    child = working(works, capabilities=[Loud(), looks(seen)])
    agent = above(child, capabilities=capabilities)
    result = await agent.run("go")
    assert ("suspended", ["work"], []) == (result.status, [one.tool for one in result.pending], works.began)
    done = await agent.resume(result, {one.digest: Approve() for one in result.pending})
    assert ("completed", [0]) == (done.status, works.began)
    assert {"w0": "*** 0, I *** it"} == contents(seen[-1].messages)


async def test_c75_a_wrapper_that_is_inherited_is_the_outermost() -> None:
    """The child's own cannot answer before it is asked."""
    works = Works()

    class Refuses(Capability):
        async def wrap_tool_execute(
            self, call_next: CallNext[CallState, CallState], call: CallState
        ) -> CallState:
            return await call_next(call) if call.name == "child" else call.refuse("no")

    class Answers(Capability):
        async def wrap_tool_execute(
            self, call_next: CallNext[CallState, CallState], call: CallState
        ) -> CallState:
            return call.answer("forged")

    agent = above(working(works, capabilities=[Answers()]), capabilities=[inherited(Refuses())])
    result: RunResult[Any] = await agent.run("go")
    (settled,) = [one for one in result.log if one.run == "run/c" and one.kind == "tool_settled"]
    outcome: Any = settled.facts["outcome"]
    assert ("denied", "Refuses", []) == (outcome["status"], settled.actor, works.began)


def test_c75_one_that_cannot_stand_there_fails_before_any_run() -> None:
    """Another capability of its key in the child's list does not take its place."""
    other = RequireApproval({"work"}, prompt="Really?")
    with pytest.raises(ValueError, match="cannot run below this one"):
        above(working(Works(), capabilities=[other]), capabilities=[inherited(RequireApproval({"work"}))])
