"""The check of one hook call: what changed, what is legal, what is put back, what ends the run."""

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities import AssistantMessage, CallState, RunState, UserMessage, call
from capfold.capabilities.owners import RULES, Owner
from capfold.capabilities.records import replace
from capfold.capabilities.state import Stop
from capfold.runtime.entries import Added, FromTo, Items, Projected
from capfold.runtime.guards import Edge
from capfold.runtime.transitions import (
    CALL_OWNERS,
    DIFFS,
    RUN_OWNERS,
    check,
    generate_diff,
    legal_text,
    plain_diff,
    stamp,
)
from tests.strategies import call_states, run_states

PLAIN = {RunState: plain_diff, CallState: plain_diff}


def edge(hook: str, key: str = "Mine") -> Edge:
    """Return an edge of a hook."""
    return Edge(key, 0, hook)


def mixed(one: RunState, other: RunState, names: list[str]) -> RunState:
    """Return `one` with some fields of another."""
    return replace(one, **{name: getattr(other, name) for name in names})


@given(run_states(), run_states(), st.lists(st.sampled_from(sorted(RUN_OWNERS)), unique=True))
@settings(max_examples=25)
def test_generated_diff_equals_plain_diff_on_runs(one: RunState, other: RunState, names: list[str]) -> None:
    """The unrolled comparison and the loop name the same fields, in the same order."""
    after = mixed(one, other, names)
    assert plain_diff(one, after) == generate_diff(RunState)(one, after)
    assert [] == DIFFS[RunState](one, one)


@given(call_states(), call_states(), st.lists(st.sampled_from(sorted(CALL_OWNERS)), unique=True))
@settings(max_examples=15)
def test_generated_diff_equals_plain_diff_on_calls(
    one: CallState, other: CallState, names: list[str]
) -> None:
    """Likewise for calls."""
    after = replace(one, **{name: getattr(other, name) for name in names})
    assert plain_diff(one, after) == DIFFS[CallState](one, after)


@given(
    run_states(),
    run_states(),
    st.lists(st.sampled_from(sorted(RUN_OWNERS)), unique=True, max_size=4),
    st.sampled_from(("before_run", "before_model_request", "after_model_request", "after_run", "wrap_run")),
)
@settings(max_examples=40)
def test_generated_check_equals_its_plain_twin(
    one: RunState, other: RunState, names: list[str], hook: str
) -> None:
    """Whatever a hook writes, both checks judge it alike, and the record is as the owners promise."""
    after = mixed(one, other, names)
    record, made = check(one, after, edge(hook))
    plain_record, plain_made = check(one, after, edge(hook), PLAIN)
    assert plain_record == record
    assert (plain_made is None) == (made is None)
    if made is None or plain_made is None:
        assert record is one
        return
    assert (plain_made.kind, set(plain_made.changes)) == (made.kind, set(made.changes))
    assert set(plain_made.restored) == set(made.restored)
    assert set(plain_made.rejected) == set(made.rejected)
    if made.rejected:
        assert record is one
    for name, owner in RUN_OWNERS.items():
        if owner is Owner.RUNTIME:  # no hook anywhere writes these
            assert getattr(one, name) is getattr(record, name) or name not in made.changes
            assert getattr(one, name) == getattr(record, name)


def test_untouched_record_is_one_identity() -> None:
    """The same object comes back, and nothing is on record."""
    state = RunState()
    assert (state, None) == check(state, state, edge("before_run"))


def test_equal_copy_did_not_change() -> None:
    """A copy that is equal in type and value counts as untouched: the record before goes on."""
    state = RunState(context={"a": [1]}, slots={"Other": 1})
    copy = evolve(state, context={"a": [1]}, slots={"Other": 1})
    assert copy is not state
    record, transition = check(state, copy, edge("before_model_request"))
    assert record is state
    assert transition is None


@pytest.mark.parametrize("other", [True, 1.0])
def test_change_is_type_strict(other: object) -> None:
    """1, True and 1.0 are three values: writing one over the other is a change, here one that is put back."""
    state = RunState(requests=1)
    record, transition = check(state, replace(state, requests=other), edge("before_run"))
    assert transition is not None
    assert "restored" == transition.kind
    assert type(record.requests) is int


@pytest.mark.parametrize("name", [name for name, owner in RUN_OWNERS.items() if owner is Owner.RUNTIME])
def test_every_runtime_field_is_restored(name: str) -> None:
    """A forged counter is put back, with what was tried and what was kept on record."""
    state = RunState()
    record, transition = check(state, replace(state, **{name: "forged"}), edge("before_model_request"))
    assert record is state
    assert transition is not None
    assert "restored" == transition.kind
    assert {name: ("forged", getattr(state, name))} == dict(transition.restored)


@pytest.mark.parametrize("name", [name for name, owner in RUN_OWNERS.items() if owner is Owner.SEALED])
def test_every_sealed_field_is_rejected(name: str) -> None:
    """A write of a sealed field is rejected: the record before stands; what was tried is on record."""
    state = RunState()
    record, transition = check(state, replace(state, **{name: "other"}), edge("before_run"))
    assert record is state
    assert transition is not None
    assert "rejected" == transition.kind
    assert "other" == transition.rejected[name][0]
    assert "no hook writes it" in transition.rejected[name][1]


@pytest.mark.parametrize(
    "name",
    [name for name, owner in CALL_OWNERS.items() if owner is Owner.SEALED and name != "run"],
)
@pytest.mark.parametrize("hook", ["before_tool_execute", "admit_tool_execute", "after_tool_execute"])
def test_every_sealed_field_of_a_call_is_rejected(name: str, hook: str) -> None:
    """The same holds for a call, at each of its hooks."""
    record = CallState()
    after, transition = check(record, replace(record, **{name: "other"}), edge(hook))
    assert after is record
    assert transition is not None
    assert {name} == set(transition.rejected)


def test_run_of_a_call_obeys_its_own_owners() -> None:
    """A tool hook writes slot and latch in `call.run`; a counter there is restored, history rejected."""
    record = CallState()
    run = replace(record.run, slots=record.run.slots.assoc("Mine", 1), requests=7)
    after, transition = check(record, replace(record, run=run.note("n")), edge("admit_tool_execute"))
    assert transition is not None
    assert {"run.slots", "run.notes"} == set(transition.changes)
    assert {"run.requests"} == set(transition.restored)
    assert (0, ("n",), 1) == (after.run.requests, after.run.notes, after.run.slots["Mine"])
    bad = replace(record, run=record.run.append(UserMessage("x")))
    _, rejected = check(record, bad, edge("admit_tool_execute"))
    assert rejected is not None
    assert {"run.messages"} == set(rejected.rejected)


def test_run_of_a_call_must_be_a_run_state() -> None:
    """Something else in the place of the run is rejected, not followed."""
    record = CallState()
    after, transition = check(record, replace(record, run=None), edge("after_tool_execute"))
    assert after is record
    assert transition is not None
    assert {"run"} == set(transition.rejected)


def test_gravest_kind_wins_and_nothing_else_takes_effect() -> None:
    """A legal write beside an illegal one does not slip through; all three are on record."""
    state = RunState()
    tried = replace(state, requests=9, run_id="x").note("n")
    record, transition = check(state, tried, edge("before_run"))
    assert record is state
    assert transition is not None
    assert "rejected" == transition.kind
    found = (set(transition.changes), set(transition.restored), set(transition.rejected))
    assert ({"notes"}, {"requests"}, {"run_id"}) == found


def test_legal_write_beside_a_restored_one_takes_effect() -> None:
    """Only the counter is put back; the note stays."""
    state = RunState()
    record, transition = check(state, replace(state, requests=9).note("n"), edge("before_run"))
    assert transition is not None
    assert "restored" == transition.kind
    assert (0, ("n",)) == (record.requests, record.notes)


def test_change_forms_follow_the_change() -> None:
    """Appended messages are written as what was added, mappings by key, a projection with its history."""
    state = RunState(messages=(UserMessage("a"),), slots={"Mine": 1}, settings={"a": 1, "b": 2})
    message = UserMessage("b")
    after = replace(state.append(message).project((message,)), slots=state.slots.assoc("Mine", 2))
    after = evolve(after, settings={"b": 3, "c": 4}, instructions="i")
    _, transition = check(state, after, edge("before_model_request"))
    assert transition is not None
    changes = transition.changes
    assert isinstance(changes["messages"], Added)
    assert (message,) == changes["messages"].items
    assert isinstance(changes["slots"], Items)
    assert {"Mine": 2} == dict(changes["slots"].set)
    assert isinstance(changes["settings"], Items)
    assert ({"b": 3, "c": 4}, ("a",)) == (dict(changes["settings"].set), changes["settings"].removed)
    assert isinstance(changes["instructions"], FromTo)


def test_projection_is_recorded_with_what_it_projects() -> None:
    """The change of a projection holds the history, by which its messages are named in the log."""
    state = RunState(messages=(UserMessage("a"), AssistantMessage("b"), UserMessage("c")))
    _, transition = check(state, state.project(state.messages[2:]), edge("before_model_request"))
    assert transition is not None
    change = transition.changes["request_messages"]
    assert isinstance(change, Projected)
    assert change.history is state.messages


def test_stamp_says_who_latched() -> None:
    """Who stopped or failed is written by the runtime, whatever the hook pretended."""
    before = RunState()
    forged = replace(before, stopped=Stop("m", "Somebody", "else", "c9"))
    stamped = stamp(forged, before, "Mine", "before_run", None)
    assert Stop("m", "Mine", "before_run", None) == stamped.stopped
    assert stamp(stamped, stamped, "Other", "after_run", None) is stamped
    failed = stamp(before.fail("r"), before, "Mine", "admit_tool_execute", "c1").failed
    assert failed is not None
    assert ("r", "Mine", "admit_tool_execute", "c1") == (
        failed.reason,
        failed.key,
        failed.hook,
        failed.call_id,
    )


@pytest.mark.parametrize("owner", list(Owner))
def test_legal_text_names_what_is_legal(owner: Owner) -> None:
    """Each owner's text names its hooks or says that there are none."""
    text = legal_text("field", owner)
    hooks = [hook for hook in RULES[owner].allowed if hook != "*"]
    if owner is Owner.PRIVATE:
        assert "own slot" in text
    elif hooks:
        assert all(hook in text for hook in hooks)
    else:
        assert "no hook writes it" in text


def test_selection_elsewhere_says_where_to_select() -> None:
    """Tools written outside before_model_request are rejected, and the message names that hook."""
    state = RunState()
    _, transition = check(state, replace(state, instructions="x"), edge("after_model_request"))
    assert transition is not None
    assert "before_model_request" in transition.rejected["instructions"][1]


def test_calls_of_equal_arguments_did_not_change() -> None:
    """A hook that writes the arguments it got leaves the record as it was."""
    record = CallState(asked=call("pay", {"n": 1}, id="c"), arguments={"n": 1})
    assert (record, None) == check(record, evolve(record, arguments={"n": 1}), edge("before_tool_execute"))
