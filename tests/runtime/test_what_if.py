"""What if: the facts of a run under another list. The same list changes nothing; another one what it would have."""

from typing import Any

import anyio
import pytest
from attrs import frozen
from hypothesis import given, settings

from capfold.capabilities import (
    Capability,
    Outside,
    RefuseTools,
    RequireApproval,
    RunState,
    SelectTools,
    ToolBudget,
    TrimMessages,
    call,
    group,
    tool,
)
from capfold.runtime import Agent, Approve, Deny, Limits, Log, Permissions, ScriptedModel
from capfold.runtime.errors import ReplayError
from capfold.runtime.log_what_if import WhatIf, what_if
from tests.runtime.family import above, ask, made
from tests.runtime.test_same_everywhere import SCRIPTS, Script, end_by, scripts

SHOULD_NOT_RUN = "a tool was called"


@tool(read_only=True)
async def look(n: int) -> str:
    """Look n up."""
    return f"saw {n}"


@tool
async def pay(n: int) -> str:
    """Pay n."""
    return f"paid {n}"


def decide(requests: Any) -> Any:
    """Deny nines."""
    return [Approve() if request.arguments["n"] < 9 else Deny() for request in requests]


def desk(*capabilities: Any, **options: Any) -> Agent[Any]:
    """Return an agent of three steps; a person may be asked in the first two."""
    script: list[Any] = [
        [call("pay", {"n": 1}, id="p1"), call("look", {"n": 2}, id="l")],
        call("pay", {"n": 9}, id="p9"),
        "done",
    ]
    options.setdefault("approver", decide)
    return Agent("desk", ScriptedModel(script), tools=[look, pay], capabilities=capabilities, **options)


ASKS = RequireApproval({"pay"})


async def judged(*capabilities: Any, alone: bool) -> WhatIf:
    """Return what another list makes of a run in which a person approved p1 and denied p9."""
    agent = desk(ASKS)
    log = (await agent.run("go")).log
    found = what_if(log, capabilities, agent=None if alone else agent)
    assert (found.control is None) == alone
    assert found.control is None or found.control.empty
    return found


def names(calls: Any) -> list[str]:
    """Return the ids of calls."""
    return [one.call for one in calls]


@given(scripts())
@settings(max_examples=SCRIPTS // 2)
def test_the_same_list_changes_nothing(script: Script) -> None:
    """Any run, under its own list: no call is judged otherwise, all of it decided on facts, by the same records."""

    async def run() -> Log:
        result, _ = await end_by(script.agent(asks=True).run("go", messages=script.history))
        return result.log

    log = anyio.run(run)
    agent = script.agent(asks=False)
    found = what_if(log, agent.capabilities, agent=agent)
    assert found.control is not None
    for lane in (found, found.control):
        assert lane.empty, str(lane)
        assert log.head == lane.records.head
    assert what_if(log, agent.capabilities).empty


@pytest.mark.parametrize("alone", [False, True])
async def test_a_list_without_its_gate_newly_allows(*, alone: bool) -> None:
    """What a person had denied would have run; after that, its outcome is not on record."""
    found = await judged(alone=alone)
    assert (["p9"], [], []) == (names(found.allowed), names(found.refused), names(found.asked))
    assert (2, 3, 2) == (found.covered, found.steps, found.conditional_after)
    assert "p9 did not run, so that its outcome is not on record" == found.why
    assert "  newly allowed: pay p9 in step 2: refused -> allowed\n" in f"{found}\n"


@pytest.mark.parametrize("alone", [False, True])
async def test_a_stricter_list_newly_refuses(*, alone: bool) -> None:
    """What ran would have been refused; the next request would have been another one."""
    found = await judged(RefuseTools({"pay"}), alone=alone)
    assert ([], ["p1"], []) == (names(found.allowed), names(found.refused), names(found.asked))
    assert (1, "the request would have been another one") == (found.conditional_after, found.why)


@pytest.mark.parametrize("alone", [False, True])
async def test_a_list_that_asks_more_newly_asks(*, alone: bool) -> None:
    """Nobody knows what a person would have said: that call is conditional, and all that follows."""
    found = await judged(RequireApproval({"pay", "look"}), alone=alone)
    assert ([], [], ["l"]) == (names(found.allowed), names(found.refused), names(found.asked))
    assert [True] == [one.conditional for one in found.asked]
    assert 1 == found.conditional_after


async def test_a_selection_makes_it_conditional_from_the_start() -> None:
    """The first request would not have shown the tool; how the run would have ended is said."""
    found = await judged(SelectTools({"look"}), alone=True)
    assert 0 == found.conditional_after
    assert ["p1"] == names(found.refused)
    assert ("completed", "failed") == found.status
    assert "the run would have ended as failed, not completed" in str(found)


async def test_a_stop_is_a_call_that_would_not_have_run() -> None:
    """A budget that stops the run leaves the rest of the batch out."""
    found = await judged(ASKS, ToolBudget(1), alone=True)
    assert ["l"] == names(found.refused)
    assert ("completed", "stopped") == found.status


async def test_bundles_and_messages_are_part_of_a_request() -> None:
    """A window that hides something changes a request; one that hides nothing does not."""
    assert (await judged(ASKS, TrimMessages(20), alone=True)).empty
    found = await judged(ASKS, TrimMessages(1), alone=True)
    assert "the request would have been another one" == found.why


async def test_facts_that_were_not_gathered() -> None:
    """A gatherer of the other list brings nothing: from then on it is conditional."""

    @frozen
    class Looks(Capability):
        async def gather_before_model_request(self, state: RunState, outside: Outside) -> Any:
            raise AssertionError(SHOULD_NOT_RUN)

        def before_model_request(self, state: RunState) -> RunState:
            return state.note(f"{state.fact(self)}")

    found = await judged(ASKS, Looks(), alone=True)
    assert 0 == found.conditional_after
    assert found.why is not None
    assert "what Looks.gather_before_model_request would have brought is not on record" == found.why.replace(
        "test_facts_that_were_not_gathered.<locals>.", ""
    )


async def test_a_suspended_run() -> None:
    """Still waits under its own list, and goes on as far as the facts reach under another."""
    agent = desk(ASKS, approver=None)
    log = (await agent.run("go")).log
    assert what_if(log, [ASKS], agent=agent).empty
    found = what_if(log, [])
    assert ["p1", "l"] == names(found.allowed)
    assert ("suspended", None) == found.status


async def test_permissions_and_limits_are_those_of_the_run() -> None:
    """They are no part of the list: what they denied stays denied."""
    agent = desk(permissions=Permissions((("pay", "deny"),)), limits=Limits(tool_calls=9))
    log = (await agent.run("go")).log
    for found in (what_if(log, [ToolBudget(9)]), what_if(log, [ToolBudget(9)], agent=agent)):
        assert ([], []) == (names(found.allowed), names(found.refused))


async def test_runs_below_are_facts() -> None:
    """What a sub-agent came to is taken from the record of its call."""
    child = made("child", "found")
    parent = above(child, ask(), "done", capabilities=[ToolBudget(5)])
    log = (await parent.run("go")).log
    assert what_if(log, [ToolBudget(5)], agent=parent).empty
    assert what_if(log, [ToolBudget(5)]).empty
    assert ["c"] == names(what_if(log, [RefuseTools({"child"})]).refused)


async def test_tools_with_capabilities_need_the_agent() -> None:
    """The log has the names of what stands at a tool, and not enough to judge by."""
    guarded = pay.with_capabilities(ASKS)
    agent = Agent("desk", ScriptedModel([call("pay", {"n": 1}), "done"]), tools=[guarded], approver=decide)
    log = (await agent.run("go")).log
    with pytest.raises(ReplayError, match=r"capabilities of their own, RequireApproval.*give agent="):
        what_if(log, [])
    assert what_if(log, [], agent=agent).empty


async def test_groups_are_lists_too() -> None:
    """A group in the log's list and in the other one: the keys inside it count."""
    agent = desk(group(ASKS, ToolBudget(9)))
    log = (await agent.run("go")).log
    assert what_if(log, [group(ASKS, ToolBudget(9))]).empty


async def test_what_cannot_be_asked() -> None:
    """A log that was cut off, something that is no log, and what no agent would take."""
    log = (await desk(ASKS).run("go")).log
    with pytest.raises(ReplayError, match="ends before run"):
        what_if(Log.from_records(log[:5]), [])
    with pytest.raises(TypeError, match="takes a Log"):
        what_if(log[:], [])  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ValueError, match="RequireApproval"):
        what_if(log, [ASKS, ASKS])
