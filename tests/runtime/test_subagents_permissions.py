"""Permissions, approvers and inherited capabilities of a caller hold below it, around the child's own."""

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve, field, frozen

from capfold.capabilities import (
    CallNext,
    CallState,
    Capability,
    RequireApproval,
    RunState,
    SelectTools,
    call,
    for_tools,
    group,
    inherited,
    nested,
    tool,
    when,
)
from capfold.capabilities.capability import AnyCapability
from capfold.runtime import ApprovalRequest, Approve, Deny, HookError, Permissions
from capfold.runtime.decisions import Decision
from tests.runtime.desk import Trace, contents
from tests.runtime.family import above, ask, by_run, check_tree, looks, made

RAN: list[str] = []


@tool
def drop(table: str) -> str:
    """Drop a table."""
    RAN.append(table)
    return f"dropped {table}"


DROP = call("drop", {"table": "t"}, id="d")


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


def dropping(**options: Any) -> Any:
    """Return an agent that drops a table."""
    return made("child", DROP, "found", tools=[drop], **options)


def outcomes(log: Any, run: str) -> list[tuple[str, Any]]:
    """Return kind and facts of what became of the calls of a run."""
    kinds = {"call_refused", "tool_settled"}
    return [(one.kind, one.facts) for one in log if one.run == run and one.kind in kinds]


# --- permissions


@pytest.mark.parametrize("levels", [1, 2, 3])
async def test_what_is_denied_above_is_denied_below(levels: int) -> None:
    """At every depth; the child's own permissions allow it."""
    agent = dropping(permissions=Permissions((("drop", "allow"),)))
    for level in range(1, levels):
        agent = above(agent, name=f"level{level}")
    result = await above(agent, permissions=Permissions((("drop", "deny"),))).run("go")
    run = "/".join(["run", *["c"] * levels])
    ((kind, facts),) = outcomes(result.log, run)
    assert ("call_refused", "denied", []) == (kind, facts["status"], RAN)
    check_tree(result.log)


async def test_what_the_child_denies_is_denied_whatever_is_allowed_above() -> None:
    """Both are asked; one that denies is enough."""
    child = dropping(permissions=Permissions(default="deny"))
    await above(child, permissions=Permissions((("*", "allow"),))).run("go")
    assert [] == RAN


YES = Approve()


class Person:
    """An approver that remembers."""

    def __init__(self, decision: Decision = YES) -> None:
        """Decide so, always."""
        self.decision = decision
        self.asked: list[ApprovalRequest] = []

    def __call__(self, requests: tuple[ApprovalRequest, ...]) -> list[Decision]:
        """Answer."""
        self.asked += requests
        return [self.decision for _ in requests]


async def test_ask_above_asks_below() -> None:
    """Each run that asks is shown: by default the caller's approver answers, of the child's run."""
    person = Person(Deny("no"))
    child = dropping(permissions=Permissions((("drop", "ask"),)))
    await above(child, permissions=Permissions((("drop", "ask"),)), approver=person).run("go")
    (request,) = person.asked
    assert ("run/c", "child", "drop", 2) == (
        request.run_id,
        request.agent,
        request.tool,
        len(request.prompts),
    )
    assert [] == RAN


async def test_the_childs_own_approver_comes_first() -> None:
    """An agent that has somebody to ask asks them."""
    above_person, own = Person(), Person()
    child = dropping(approver=own, capabilities=[RequireApproval()])
    await above(child, approver=above_person).run("go")
    assert ([], ["drop"], ["t"]) == (above_person.asked, [one.tool for one in own.asked], RAN)


# --- inherited


@frozen
class Spy(Capability):
    """Says when it is called, and on which tool; masks results."""

    trace: Trace = field(factory=Trace)
    name: str = "spy"

    def before_model_request(self, state: RunState) -> RunState:
        self.trace.add(f"{self.name} {state.agent}")
        return state

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        self.trace.add(f"{self.name} in {call.name}")
        done = await call_next(call)
        self.trace.add(f"{self.name} out {call.name}")
        return done

    def after_tool_execute(self, call: CallState) -> CallState:
        assert call.outcome is not None
        self.trace.add(f"{self.name} after {call.name}")
        return call.with_content(f"{call.outcome.content}|{self.name}")


async def test_an_inherited_approval_and_a_redactor_cover_the_childs_own_calls() -> None:
    """Outermost: entered before the child's own, left after; the last word on what comes back."""
    trace = Trace()
    outer, own = Spy(trace, "outer", key="outer"), Spy(trace, "own", key="own")
    person = Person()
    lent = inherited(RequireApproval({"drop"}), outer)
    seen: list[RunState] = []
    child = dropping(capabilities=[own, looks(seen)])
    result = await above(child, capabilities=[lent], approver=person).run("go")
    assert [("drop", "run/c")] == [(one.tool, one.run_id) for one in person.asked]
    assert [
        "outer child",
        "own child",
        "outer in drop",
        "own in drop",
        "own out drop",
        "outer out drop",
        "own after drop",
        "outer after drop",
    ] == trace.lines[2:10]
    assert ["dropped t|own|outer"] == contents(seen[-1].messages)
    assert ["t"] == RAN
    check_tree(result.log)


@pytest.mark.parametrize("levels", [1, 2])
async def test_it_goes_down_all_levels(levels: int) -> None:
    """What a child inherits its own children get too."""
    agent = dropping()
    for level in range(1, levels):
        agent = above(agent, name=f"level{level}")
    person = Person(Deny("no"))
    await above(agent, capabilities=[inherited(RequireApproval({"drop"}))], approver=person).run("go")
    assert (["drop"], []) == ([one.tool for one in person.asked], RAN)


WRAPPED: dict[str, Callable[[AnyCapability], AnyCapability]] = {
    "group outside": lambda one: group(inherited(one), Spy(key="other")),
    "group inside": lambda one: inherited(group(one, Spy(key="other"))),
    "nested outside": lambda one: nested(inherited(one), Spy(key="other")),
    "nested inside": lambda one: inherited(nested(one, Spy(key="other"))),
    "when outside": lambda one: when(lambda run: run.agent == "child", inherited(one)),
    "when inside": lambda one: inherited(when(lambda run: run.agent == "child", one)),
    "for_tools outside": lambda one: for_tools({"drop"}, inherited(one)),
    "for_tools inside": lambda one: inherited(for_tools({"drop"}, one)),
    "twice": lambda one: inherited(inherited(one)),
}


@pytest.mark.parametrize("form", list(WRAPPED))
async def test_combinators_around_and_inside_it_hold_below(form: str) -> None:
    """A condition, a set of tools, an order: as in the caller's own list."""
    person = Person(Deny("no"))
    lent = WRAPPED[form](RequireApproval(lambda tool: tool.name == "drop"))
    await above(dropping(), capabilities=[lent], approver=person).run("go")
    assert (["drop"], []) == ([one.tool for one in person.asked], RAN)


async def test_a_condition_that_does_not_hold_below() -> None:
    """It is asked on the child's state, at each point."""
    lent = inherited(when(lambda run: run.agent == "parent", RequireApproval({"drop"})))
    await above(dropping(), capabilities=[lent]).run("go")
    assert ["t"] == RAN


async def test_what_is_not_inherited_stays_above() -> None:
    """A capability of the parent alone does not see the child's calls."""
    trace = Trace()
    await above(dropping(), capabilities=[Spy(trace)]).run("go")
    assert ["spy parent", "spy in child", "spy out child", "spy after child", "spy parent"] == trace.lines


def test_a_clash_of_keys_fails_when_the_parent_is_built() -> None:
    """It could not stand in the child's list; the error says which agent, which key."""
    child = dropping(capabilities=[Spy(name="own")])
    with pytest.raises(ValueError, match=r"agent 'child' cannot run below this one: .*'Spy'"):
        above(child, capabilities=[inherited(Spy(name="lent"))])


@pytest.mark.parametrize("form", ["plain", "grouped", "inherited"])
async def test_the_same_one_in_both_lists_is_called_once(form: str) -> None:
    """Wherever the child has it; at the outermost place, the caller's."""
    trace = Trace()
    spy = Spy(trace)
    own = {"plain": spy, "grouped": group(spy, Spy(name="x", key="x")), "inherited": inherited(spy)}[form]
    await above(dropping(capabilities=[own]), capabilities=[inherited(spy)]).run("go")
    assert (2, 1) == (trace.lines.count("spy child"), trace.lines.count("spy in drop"))


async def test_the_same_one_on_a_tool_of_the_child_asks_once() -> None:
    """The list of the caller is the outermost scope of all."""
    person = Person()
    gate = RequireApproval({"drop"})
    child = made("child", DROP, "found", tools=[drop.with_capabilities(gate)])
    await above(child, capabilities=[inherited(gate)], approver=person).run("go")
    assert [1] == [len(one.prompts) for one in person.asked]


async def test_a_condition_above_does_not_take_the_childs_own_away() -> None:
    """Where the caller's place does not hold, the child's own does: its gate is not weaker below than alone."""
    person = Person(Deny("no"))
    gate = RequireApproval({"drop"})
    lent = inherited(when(lambda run: run.agent == "parent", gate))
    await above(dropping(capabilities=[gate]), capabilities=[lent], approver=person).run("go")
    assert (["drop"], []) == ([one.tool for one in person.asked], RAN)


async def test_it_may_name_tools_that_only_one_of_them_has() -> None:
    """Those of the parent, and those of any agent below it; but no tool that nobody has."""
    low = made("low", DROP, "found", tools=[drop])
    middle = above(low, ask("low"), "passed on", name="middle")
    person = Person(Deny("no"))
    lent = inherited(RequireApproval({"drop", "middle"}))
    result = await above(middle, capabilities=[lent], approver=person).run("go")
    assert ["middle"] == [one.tool for one in person.asked]
    assert ["run"] == list(by_run(result.log))
    with pytest.raises(ValueError, match="'dorp', which does not exist"):
        above(middle, capabilities=[inherited(RequireApproval({"dorp"}))])
    with pytest.raises(ValueError, match="'drop', which does not exist"):
        above(middle, capabilities=[RequireApproval({"drop"})])
    above(middle, capabilities=[group(inherited(RequireApproval({"drop"})), Spy())])


async def test_a_selection_that_is_inherited_narrows_below() -> None:
    """Model hooks are inherited as well: the child's model is not offered what the caller hides."""
    lent = inherited(SelectTools(lambda tool: tool.name != "drop"))
    result = await above(dropping(), capabilities=[lent]).run("go")
    ((kind, facts),) = outcomes(result.log, "run/c")
    assert ("call_refused", "validation_error", []) == (kind, facts["status"], RAN)


class Forges(Capability):
    """Writes what belongs to the runtime."""

    def before_model_request(self, state: RunState) -> RunState:
        return evolve(state, requests=0, run_step=9)


async def test_strict_holds_below() -> None:
    """In a strict caller a restore in the child is an error of the child, as it is one above."""
    child = dropping(capabilities=[Forges()])
    loose = await above(child).run("go")
    assert ["t"] == RAN
    assert loose.status == "completed"
    strict = await above(child, strict=True).run("go")
    ((_, facts),) = outcomes(strict.log, "run")
    assert facts["outcome"]["status"] == "failed"
    assert HookError.__name__ in facts["outcome"]["content"]
    assert ["t"] == RAN


async def test_audit_all_holds_below() -> None:
    """A caller that wants every hook call on record gets those of its agents too."""
    child = dropping(capabilities=[Spy()])
    for audit, expected in (("changes", 0), ("all", 2)):
        result = await above(child, audit=audit).run("go")
        calls = [one for one in result.log if one.run == "run/c" and one.hook == "before_model_request"]
        assert expected == len(calls)


async def test_a_bundle_that_is_inherited_brings_its_tools_once() -> None:
    """Tools and instructions; a child that lists it itself has them once."""

    @frozen
    class Bundle(Capability):
        def provide_tools(self) -> Any:
            return [drop]

        def provide_instructions(self) -> str:
            return "Never drop."

    for own in ([], [Bundle()]):
        child = made("child", DROP, "found", capabilities=own)
        parent = above(child, capabilities=[inherited(Bundle())])
        result = await parent.run("go")
        (started,) = [one for one in result.log if one.run == "run/c" and one.kind == "run_started"]
        assert "Never drop." == started.facts["instructions"]
        tools: Any = started.facts["tools"]
        assert {"drop"} == set(tools)
