"""What if, why and cases of runs of sub-agents: each is judged in its place, by a list for its own agent."""

from typing import Any

import anyio
import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities import (
    CallState,
    Capability,
    RefuseTools,
    RequireApproval,
    RunState,
    ToolBudget,
    ToolFailed,
    call,
    inherited,
    tool,
)
from capfold.capabilities.capability import AnyCapability
from capfold.runtime import Agent, Approve, Deny, Limits, Log, Permissions
from capfold.runtime.errors import ReplayError
from capfold.runtime.log_what_if import what_if
from capfold.runtime.log_why import why
from capfold.runtime.pytest_case import case_of, read_case
from capfold.runtime.what_if_tree import list_of, place_of
from tests.runtime.family import above, ask, made
from tests.runtime.test_replay import PARENT_HOOKS, tree
from tests.runtime.test_same_everywhere import SCRIPTS, Script, Twice, decide, end_by, scripts


@tool(read_only=True)
async def look(n: int) -> str:
    """Look n up; threes are not there."""
    if n == 3:
        raise ToolFailed("no threes")
    return f"saw {n}"


ASKS = RequireApproval({"look"})


def approver(requests: Any) -> Any:
    """Deny nines."""
    return [Approve() if one.arguments["n"] < 9 else Deny() for one in requests]


def family(*capabilities: AnyCapability, lends: tuple[AnyCapability, ...] = (), **options: Any) -> Agent[Any]:
    """Return an agent that asks another one, which looks twice; `lends`: what that one inherits."""
    script: list[Any] = [call("look", {"n": 1}, id="l1"), call("look", {"n": 9}, id="l9"), "found"]
    child = made("child", *script, tools=[look], capabilities=capabilities, approver=approver)
    return above(child, ask(), "done", capabilities=[ToolBudget(9), *map(inherited, lends)], **options)


async def log_of(agent: Agent[Any]) -> Log:
    """Return the log of a run, whatever its end."""
    result, _ = await end_by(agent.run("go"))
    return result.log


@pytest.mark.parametrize("alone", [False, True])
async def test_a_run_below_is_judged_by_its_own_list(*, alone: bool) -> None:
    """Named by its id: its control is the list of its own agent, though the agent given is of the run at the top."""
    parent = family(ASKS)
    log = await log_of(parent)
    agent = None if alone else parent
    same = what_if(log, [ASKS], agent=agent, run="run/c")
    assert same.empty, str(same)
    found = what_if(log, [], agent=agent, run="run/c")
    assert ["l9"] == [one.call for one in found.allowed]
    assert alone or (found.control is not None and found.control.empty)
    strict = what_if(log, [RefuseTools({"look"})], agent=agent, run="run/c")
    assert ["l1"] == [one.call for one in strict.refused]
    assert ("run/c", 3) == (strict.run, strict.steps)
    assert [r.digest for r in same.records] == [r.digest for r in log if r.run == "run/c"]


async def test_what_was_not_judged_is_said() -> None:
    """Of the run above, the runs below it are facts: its report names them."""
    low = made("low", call("look", {"n": 1}), "seen", tools=[look])
    parent = above(
        above(low, ask("low", "g"), "passed on", name="middle"),
        [ask("middle", "a"), ask("middle", "b")],
        "done",
    )
    log = await log_of(parent)
    found = what_if(log, [], agent=parent)
    assert {"run/a", "run/a/g", "run/b", "run/b/g"} == set(found.not_judged)
    assert "not judged, but taken as they were: the runs below it, run/a" in str(found)
    assert ("run/a/g",) == what_if(log, [], agent=parent, run="run/a").not_judged
    assert () == what_if(log, [], agent=parent, run="run/a/g").not_judged
    assert "not judged" not in str(what_if(log, [], run="run/b/g"))
    assert ["call_1_0"] == [one.call for one in what_if(log, [RefuseTools({"look"})], run="run/b/g").refused]


async def test_what_a_run_inherits_stays() -> None:
    """What the run above lends judges it whatever its own list; of that, the log has the names."""
    parent = family(lends=(ASKS,))
    log = await log_of(parent)
    found = what_if(log, [ToolBudget(5)], agent=parent, run="run/c")
    assert found.empty
    with pytest.raises(ReplayError, match=r"some of the run above it, RequireApproval, .* give agent="):
        what_if(log, [], run="run/c")


@pytest.mark.parametrize("alone", [False, True])
async def test_permissions_above_stay(*, alone: bool) -> None:
    """What the run above may not do, the one below may not: no list changes that."""
    parent = family(permissions=Permissions((("look", "deny"),)))
    log = await log_of(parent)
    found = what_if(log, [ToolBudget(5)], agent=None if alone else parent, run="run/c")
    assert found.empty, str(found)


@pytest.mark.parametrize("alone", [False, True])
async def test_an_attempt_of_its_own(*, alone: bool) -> None:
    """An agent that is asked again runs again, under an id of its own."""

    @frozen
    class Fails(Capability):
        def after_run(self, state: RunState) -> RunState:
            return state.fail("no")

    child = made("child", call("look", {"n": 1}, id="l"), "found", tools=[look], capabilities=[Fails()])
    looks_only = child.as_tool("Ask.")
    parent = made(
        "parent", ask(), "done", tools=[looks_only], capabilities=[_Again()], limits=Limits(tool_calls=9)
    )
    log = await log_of(parent)
    assert {"run", "run/c", "run/c#2"} == {record.run for record in log}
    for run in ("run/c", "run/c#2"):
        found = what_if(log, [], agent=None if alone else parent, run=run)
        assert ("failed", "completed") == found.status


@frozen
class _Again(Capability):
    """Runs every call twice."""

    async def wrap_tool_execute(self, call_next: Any, call: CallState) -> CallState:
        await call_next(call)
        return await call_next(call)  # type: ignore[no-any-return]  # as call_next is Any


async def test_what_cannot_be_named() -> None:
    """A run that is not there, another's log, an agent that has no such tool, and a log without the run above."""
    parent = family(ASKS)
    log = await log_of(parent)
    with pytest.raises(ReplayError, match=r"no run 'x': give run=, one of 'run', 'run/c'"):
        what_if(log, [], run="x")
    with pytest.raises(ReplayError, match="above all, was of agent 'parent'; this is 'child'"):
        what_if(log, [], agent=made("child", "x"), run="run/c")
    with pytest.raises(ReplayError, match="'parent' has no agent as the tool 'child', which ran 'run/c'"):
        what_if(log, [], agent=made("parent", "x"), run="run/c")
    below = Log.from_records(record for record in log if record.run == "run/c")
    with pytest.raises(ReplayError, match="does not hold run 'run', which called 'run/c'"):
        what_if(below, [], run="run/c")


async def test_why_in_a_run_below() -> None:
    """The list is that of its own agent."""
    parent = family(ToolBudget(9), ASKS)
    log = await log_of(parent)
    place = place_of(log, "run/c")
    found = why(log, "l9", list_of(place, parent), agent=parent, run="run/c")
    assert ("RequireApproval",) == found.keys
    assert ("RequireApproval",) == why(log, "l9", [ToolBudget(9), ASKS], run="run/c").keys


@given(scripts(), st.lists(st.sampled_from(PARENT_HOOKS), max_size=2, unique=True), st.booleans())
@settings(max_examples=SCRIPTS // 3)
def test_any_run_of_a_tree(script: Script, hooks: list[AnyCapability], asks: bool) -> None:  # noqa: FBT001  # drawn
    """By its own list each comes to what it came to, also one that waited, was ended while it did, or came again."""

    async def run() -> None:
        agent = tree(script, tuple(hooks), asks=asks)
        result, _ = await end_by(agent.run("go"))
        records = list(result.log)
        while result.status == "suspended":
            check_all(Log.from_records(records), agent)
            decisions = {request.digest: decide(request) for request in result.pending}
            result, _ = await end_by(agent.resume(result, decisions))
            records.extend(result.log)
        check_all(Log.from_records(records), agent)

    anyio.run(run)


def check_all(log: Log, agent: Agent[Any]) -> None:
    """Each run of a log is empty under the list of its own agent."""
    for run in dict.fromkeys(record.run for record in log):
        found = what_if(log, list_of(place_of(log, run), agent), agent=agent, run=run)
        assert found.empty, str(found)


# --- cases


@frozen
class Breaks(Capability):
    """Fails a run that has seen a failure."""

    def after_tool_execute(self, call: CallState) -> CallState:
        failed = call.outcome is not None and call.outcome.status == "failed"
        return call.fail("seen enough") if failed else call


@pytest.mark.parametrize("denied", [False, True])
async def test_a_case_of_a_run_below(*, denied: bool) -> None:
    """It fails again by itself, under the permissions of the run above, with the fewest exchanges."""
    script: list[Any] = [call("look", {"n": n}, id=f"l{n}") for n in (1, 2, 3)]
    child = made("child", *script, "found", tools=[look], capabilities=[Breaks(), Twice()], output_retries=0)
    rules = (("look", "deny"),) if denied else ()
    parent = above(child, ask(), "done", permissions=Permissions(rules))
    log = await log_of(parent)
    with pytest.raises(ReplayError, match="did not fail"):
        case_of(log)
    if denied:
        with pytest.raises(ReplayError, match="run 'run/c' did not fail"):
            case_of(log, "run/c")
        return
    case = case_of(log, "run/c")
    assert ("Blocked", "Breaks") == case.way[:2]
    small = read_case((await anyio.to_thread.run_sync(lambda: case.shrunk([Breaks()]))).to_text())
    assert (2, case.above) == (len(small.exchanges), small.above)
    assert await anyio.to_thread.run_sync(lambda: small.fails([Breaks()]))
