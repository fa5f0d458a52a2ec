"""check_capabilities: what a list does to itself is reported, what a capability promised is raised. And law_tests."""

from typing import ClassVar

import pytest
from attrs import evolve, frozen
from hypothesis import settings

from capfold.capabilities import (
    CallState,
    Capability,
    RefuseTools,
    RequireApproval,
    RunState,
    SelectTools,
    ToolBudget,
    TrimMessages,
    UserMessage,
    hook,
)
from capfold.capabilities.capability import AnyCapability, Declaration
from capfold.runtime.laws import FINDINGS, LAWS, Finding, LawViolation, check_capabilities, law_tests

FEW = settings(max_examples=40, database=None, deadline=None, derandomize=True)


@hook.before_model_request
def brief(state: RunState) -> RunState:
    """Ask for a short answer."""
    return state.add_instructions("Be brief.")


@hook.before_model_request
def polite(state: RunState) -> RunState:
    """Ask for a friendly one."""
    return state.add_instructions("Be polite.")


@frozen
class LastTools(Capability):
    """Offers the last tools of those that are left, and says that its place does not matter."""

    declares: ClassVar[frozenset[Declaration]] = frozenset({"order_insensitive"})
    n: int = 1

    def before_model_request(self, state: RunState) -> RunState:
        return state.select_tools({one.name for one in state.tools[-self.n :]})


@hook.before_model_request
def first_message_only(state: RunState) -> RunState:
    """Show the first message, where nothing was hidden: fine alone, after trimming nothing is left to show."""
    shown = [message for message in state.view if isinstance(message, UserMessage)]
    return state if state.request_messages is None else state.project(shown[1:])


def kinds(findings: tuple[Finding, ...]) -> set[tuple[str, tuple[str, ...]]]:
    """Return what was found of whom."""
    return {(one.kind, one.keys) for one in findings}


def test_an_order_that_matters_is_reported() -> None:
    """With the field, and both results; it is no failure."""
    report = check_capabilities([brief, polite], settings=FEW)
    (found,) = report.findings
    assert ("order", (brief.key, polite.key), "before_model_request") == (found.kind, found.keys, found.hook)
    assert ("instructions", "Be brief.\n\nBe polite.", "Be polite.\n\nBe brief.") == (
        found.field,
        found.first,
        found.second,
    )
    assert "other way: 'Be polite." in str(report)
    assert "40 runs, 1 finding\n" in str(report)


def test_selectors_that_leave_nothing_are_reported() -> None:
    """Each leaves a tool, both together none."""
    caps: list[AnyCapability] = [SelectTools({"pay"}), SelectTools({"search"}, key="Second")]
    report = check_capabilities(caps, settings=FEW)
    assert {("nothing_left", ("SelectTools", "Second"))} == kinds(report.findings)
    assert isinstance(report.findings[0].record, RunState)


def test_a_stop_over_a_refused_call_is_reported() -> None:
    """A budget that stops the run over a call that another one refuses anyway."""
    caps: list[AnyCapability] = [RefuseTools({"pay"}), ToolBudget(0, tools={"pay"})]
    report = check_capabilities(caps, settings=FEW)
    assert {("overruled", ("RefuseTools", "ToolBudget"))} == kinds(report.findings)
    assert isinstance(report.findings[0].record, CallState)


def test_a_list_that_ends_the_run_is_reported() -> None:
    """Neither breaks a law alone; together they leave a view that cannot be sent."""
    report = check_capabilities([TrimMessages(1), first_message_only], laws=["total"], settings=FEW)
    found = [one for one in report.findings if one.kind == "ends_run"]
    assert ["before_model_request"] == [one.hook for one in found]
    assert "InvalidView" in found[0].what


def test_capabilities_that_leave_each_other_alone() -> None:
    """Nothing to report."""
    caps: list[AnyCapability] = [SelectTools({"pay", "search"}), RequireApproval({"pay"}), ToolBudget(5)]
    report = check_capabilities(caps, settings=FEW)
    assert ((), ("SelectTools", "RequireApproval", "ToolBudget")) == (report.findings, report.keys)


def test_an_order_that_both_promised_not_to_matter_is_raised() -> None:
    """The law that it breaks is theirs; the line of code checks the list again."""
    caps: list[AnyCapability] = [LastTools(n=1), LastTools(n=2, key="Second")]
    assert check_capabilities(caps, laws=["silent"], settings=FEW).findings == ()
    caps = [SelectTools({"pay"}), LastTools()]
    with pytest.raises(LawViolation, match="depends on whether it comes before or after LastTools") as caught:
        check_capabilities(caps, laws=["silent"], settings=FEW)
    assert ("order", "SelectTools") == (caught.value.law, caught.value.key)
    with pytest.raises(LawViolation):
        exec(caught.value.code, {"caps": caps})  # noqa: S102  # the line that the report shows


def test_a_broken_law_of_one_is_raised() -> None:
    """Before the list is looked at."""

    @hook.after_model_request
    def copies(state: RunState) -> RunState:
        return evolve(state)

    with pytest.raises(LawViolation, match="returned an equal copy"):
        check_capabilities([brief, copies], settings=FEW)


def test_a_list_that_no_agent_takes_is_refused() -> None:
    """As the agent refuses it."""
    with pytest.raises(ValueError, match="'ToolBudget' is listed twice in the agent's list"):
        check_capabilities([ToolBudget(1), ToolBudget(1)])
    with pytest.raises(TypeError, match="check_capabilities must be a list of capabilities"):
        check_capabilities(ToolBudget(1))  # type: ignore[arg-type]  # the mistake


def test_every_kind_has_a_sentence() -> None:
    """What a report may say is listed."""
    assert {"order", "nothing_left", "overruled", "ends_run"} == set(FINDINGS)


# --- tests of a suite

test_the_budget = law_tests(ToolBudget(1), settings=settings(FEW, max_examples=5))
of_one_law = law_tests(brief, laws=["pure", "idempotent"], settings=FEW)


def test_law_tests_has_one_case_per_law() -> None:
    """All laws, or those that are named, by name."""
    assert list(LAWS) == cases(test_the_budget)
    assert ["pure", "idempotent"] == cases(of_one_law)
    of_one_law("pure")
    with pytest.raises(ValueError, match="'purity' is no law"):
        law_tests(brief, laws=["purity"])


def test_law_tests_fail_with_the_violation() -> None:
    """The case of the law that is broken, and no other."""

    @hook.after_tool_execute
    def copies(call: CallState) -> CallState:
        return evolve(call)

    failing = law_tests(copies, settings=FEW)
    failing("total")
    with pytest.raises(LawViolation, match="returned an equal copy"):
        failing("silent")


def cases(test: object) -> list[str]:
    """Return the parameters of a parametrized test."""
    (mark,) = vars(test)["pytestmark"]
    return list(mark.args[1])
