"""Why: the smallest set of capabilities that decided a call."""

from typing import Any

import pytest
from attrs import frozen

from capfold.capabilities import (
    CallState,
    Capability,
    RefuseTools,
    RequireApproval,
    ToolBudget,
    TrimMessages,
    call,
    tool,
)
from capfold.runtime import Agent, Approve, Log, ScriptedModel
from capfold.runtime.errors import ReplayError
from capfold.runtime.log_why import why


@tool
async def pay(n: int) -> str:
    """Pay n."""
    return f"paid {n}"


@frozen
class Doubles(Capability):
    """Doubles what is paid."""

    def before_tool_execute(self, call: CallState) -> CallState:
        return call.with_arguments({"n": 2 * int(str(call.arguments["n"]))})


@frozen
class RefusesMuch(Capability):
    """Refuses large sums."""

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.refuse("Too much.") if int(str(call.arguments["n"])) > 5 else call


QUIET = (TrimMessages(20), ToolBudget(9))


async def log_of(*capabilities: Capability[Any], approver: Any = None) -> Log:
    """Return the log of a run with one call."""
    agent = Agent(
        "desk",
        ScriptedModel([call("pay", {"n": 3}, id="p"), "done"]),
        tools=[pay],
        capabilities=capabilities,
        approver=approver,
    )
    return (await agent.run("go")).log


async def told(*capabilities: Capability[Any], approver: Any = None) -> tuple[str, tuple[str, ...]]:
    """Return what became of the call, and who decided it."""
    found = why(await log_of(*capabilities, approver=approver), "p", capabilities)
    assert found.smallest
    return found.fate, found.keys


async def test_who_refused_it() -> None:
    """One of several; and two together, of which neither alone would have."""
    refuses = RefuseTools({"pay"})
    assert ("denied", ("RefuseTools",)) == await told(*QUIET, refuses)
    assert ("denied", ("Doubles", "RefusesMuch")) == await told(QUIET[0], Doubles(), QUIET[1], RefusesMuch())


async def test_who_asked_and_who_changed_it() -> None:
    """Whoever made a person decide, and whoever made its arguments what they are."""
    asks = RequireApproval({"pay"})
    fate = "after a person was asked, allowed"
    assert (fate, ("RequireApproval",)) == await told(*QUIET, asks, approver=lambda requests: [Approve()])
    assert ("after a person was asked, waits for a decision", ("RequireApproval",)) == await told(
        asks, *QUIET
    )
    assert ("allowed", ("Doubles",)) == await told(*QUIET, Doubles())


async def test_nobody_decided_it() -> None:
    """It ran as it was asked for: the set is empty, and the sentence says so."""
    found = why(await log_of(*QUIET), "p", QUIET)
    assert () == found.keys
    assert "p: allowed. No capability decided that: it comes to the same without any." == str(found)


async def test_a_long_list() -> None:
    """Too long for all its sets: then none of those named can be left out, which is said."""
    many = [ToolBudget(9, key=f"b{i}") for i in range(20)]
    members: list[Capability[Any]] = [*many[:10], Doubles(), *many[10:], RefusesMuch()]
    found = why(await log_of(*members), "p", members)
    assert ("Doubles", "RefusesMuch") == found.keys
    assert found.smallest == (str(found).count("the smallest set") == 1)


async def test_what_cannot_be_told() -> None:
    """A call that is not there, and a list that is not the run's."""
    log = await log_of(RefuseTools({"pay"}))
    with pytest.raises(ReplayError, match=r"no call 'q' was judged in run .*; there are: p"):
        why(log, "q", [])
    with pytest.raises(ReplayError, match="is it the list of the run"):
        why(log, "p", [])
