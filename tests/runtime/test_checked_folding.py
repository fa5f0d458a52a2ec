"""checked_fold: a list's reducers over one record with the runtime's rules, outside any run."""

from typing import ClassVar

import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities import (
    CallState,
    Capability,
    Outcome,
    RefuseTools,
    RequireApproval,
    RunState,
    SelectTools,
    ToolBudget,
    UserMessage,
    call,
    fold,
    for_tools,
    hook,
    nested,
    when,
)
from capfold.capabilities.capability import AnyCapability, Declaration
from capfold.capabilities.records import replace
from capfold.capabilities.verdict import Problem
from capfold.runtime import HookError, HookFailed, IllegalTransition, InvalidReturn, Restored, checked_fold
from tests.runtime.desk import look, pay

RUN = RunState(inventory=(look, pay), tools=(look, pay), messages=(UserMessage("go"),))
CALL = CallState(run=RUN, asked=call("pay", {"amount": 1}, id="c"), tool=pay, arguments={"amount": 1})


def test_equals_fold_where_all_is_legal() -> None:
    """The record is the plain fold's; each transition names who changed what."""
    capabilities: list[AnyCapability] = [
        SelectTools({"pay"}), SelectTools({"look", "pay"}, key="again"),
        hook.before_model_request(lambda state: state.add_instructions("x")),
    ]  # fmt: skip
    record, transitions = checked_fold(capabilities, "before_model_request", RUN)
    assert fold(capabilities, "before_model_request", RUN) == record
    assert ["SelectTools"] == [made.key for made in transitions[:1]]
    assert [0, 2] == [made.index for made in transitions]
    assert [{"tools"}, {"instructions"}] == [set(made.changes) for made in transitions]


def test_latches_and_verdicts_are_stamped() -> None:
    """Who stopped, refused and asked stands in the record, as in a run."""
    record, _ = checked_fold([RefuseTools({"pay"}), RequireApproval()], "admit_tool_execute", CALL)
    assert record.verdict.refused is not None
    assert ("RefuseTools", "RequireApproval") == (record.verdict.refused.by, record.verdict.approval[0].by)
    stopped, _ = checked_fold([ToolBudget(0)], "admit_tool_execute", CALL)
    assert stopped.run.stopped is not None
    assert ("ToolBudget", "c") == (stopped.run.stopped.key, stopped.run.stopped.call_id)


def test_restore_and_strict() -> None:
    """A forged counter is put back and on record; in strict mode it is an error."""
    forges = hook.before_run(lambda state: replace(state, requests=9))
    record, (transition,) = checked_fold([forges], "before_run", RUN)
    assert record is RUN
    assert "restored" == transition.kind
    with pytest.raises(HookError) as caught:
        checked_fold([forges], "before_run", RUN, strict=True)
    assert isinstance(caught.value.reason, Restored)


def test_first_rejection_raises() -> None:
    """By key, hook and field; what came before is not returned."""
    spoils = hook.before_run(lambda state: replace(state, run_id="x"))
    with pytest.raises(HookError) as caught:
        checked_fold([SelectTools({"pay"}), spoils], "before_run", RUN)
    reason = caught.value.reason
    assert isinstance(reason, IllegalTransition)
    assert ("run_id", 1, "before_run") == (reason.field, reason.index, reason.hook)


def test_hooks_that_break() -> None:
    """Raising and returning something else are the errors of a run."""

    def explode(state: RunState) -> RunState:
        raise KeyError("x")

    with pytest.raises(HookError) as caught:
        checked_fold([hook.before_run(explode)], "before_run", RUN)
    assert isinstance(caught.value.reason, HookFailed)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(HookError) as caught:
        checked_fold([hook.before_run(lambda state: None)], "before_run", RUN)  # type: ignore[arg-type,return-value]  # wrong on purpose
    assert isinstance(caught.value.reason, InvalidReturn)


@pytest.mark.parametrize("name", ["wrap_run", "gather_before_run", "before_model", ""])
def test_only_reducers_fold(name: str) -> None:
    """Anything else is a ValueError that lists the reducers."""
    with pytest.raises(ValueError, match="before_model_request"):
        checked_fold([], name, RUN)


def test_record_must_fit_the_hook() -> None:
    """A call is no run."""
    with pytest.raises(TypeError, match="RunState"):
        checked_fold([], "before_run", CALL)
    with pytest.raises(TypeError, match="CallState"):
        checked_fold([], "after_tool_execute", RUN)


@frozen
class Marks(Capability):
    """Notes its key after a tool."""

    def after_tool_execute(self, call: CallState) -> CallState:
        return call.note(self.key)


def test_combinators_are_expanded() -> None:
    """Nested reverses after hooks, when is asked once, for_tools looks at the call's tool."""
    done = replace(CALL, outcome=Outcome("succeeded", "x", attempts=1))
    capabilities = [
        nested(Marks(key="a"), Marks(key="b")),
        when(lambda run: False, Marks(key="never")),
        for_tools({"look"}, Marks(key="look")),
        for_tools({"pay"}, Marks(key="pay")),
    ]
    record, transitions = checked_fold(capabilities, "after_tool_execute", done)
    assert ("b", "a", "pay") == record.notes
    assert ["b", "a", "pay"] == [made.key for made in transitions]


@frozen
class Mends(Capability):
    """Mends what is sent as text."""

    declares: ClassVar[frozenset[Declaration]] = frozenset({"repairs"})

    def before_tool_execute(self, call: CallState) -> CallState:
        return call.with_arguments({"amount": 7})


def test_repairs_fold_over_a_call_with_problems() -> None:
    """As in a run: with problems the repairs are called, without them the others."""
    doubles = hook.before_tool_execute(lambda call: call.with_arguments({"amount": 2}))
    broken = replace(CALL, problems=(Problem("$.amount", "wrong"),))
    record, transitions = checked_fold([doubles, Mends()], "before_tool_execute", broken)
    assert ({"amount": 7}, ["Mends"]) == (record.arguments, [made.key for made in transitions])
    record, transitions = checked_fold([doubles, Mends()], "before_tool_execute", CALL)
    assert ({"amount": 2}, 1) == (record.arguments, len(transitions))


@given(st.lists(st.sampled_from(("look", "pay", "both")), max_size=5), st.integers(0, 3))
@settings(max_examples=30)
def test_purity(names: list[str], notes: int) -> None:
    """The same list and record twice give the same, and the record that went in is untouched."""
    capabilities: list[AnyCapability] = [
        SelectTools({"look", "pay"} if name == "both" else {name}, key=f"s{i}")
        for i, name in enumerate(names)
    ]
    given_record = replace(RUN, notes=("n",) * notes)
    one, seen_one = checked_fold(capabilities, "before_model_request", given_record)
    other, seen_other = checked_fold(capabilities, "before_model_request", given_record)
    assert one == other
    assert [made.key for made in seen_one] == [made.key for made in seen_other]
    assert ("n",) * notes == given_record.notes
    assert {tool.name for tool in one.tools} == {"look", "pay"}.intersection(
        *({"look", "pay"} if name == "both" else {name} for name in names)
    )
