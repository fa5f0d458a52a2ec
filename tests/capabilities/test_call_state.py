"""CallState: its verbs and what it tells."""

from collections.abc import Callable

import pytest
from attrs import evolve, frozen
from hypothesis import given, settings

from capfold.capabilities.call_state import CallState
from capfold.capabilities.capability import Capability
from capfold.capabilities.messages import ToolCall
from capfold.capabilities.state import Stop
from capfold.capabilities.tools import Tool
from capfold.capabilities.verdict import Answered, Ask, Outcome, Problem, Refusal, Verdict
from tests.strategies import call_states

TOOL = Tool("pay", "", {"type": "object"})
CALL = CallState(asked=ToolCall("1", "pay", '{"amount": 10}'), tool=TOOL, arguments={"amount": 10})
DONE = evolve(CALL, outcome=Outcome("succeeded", "paid", attempts=1, metadata={"m": 1}))


@frozen
class Count(Capability[int]):
    """A capability that counts."""


SILENT: dict[str, Callable[[CallState], CallState]] = {
    "with_arguments": lambda call: call.with_arguments(dict(call.arguments)),
    "inject": lambda call: call.inject(),
    "inject again": lambda call: call.inject(**call.injected),
    "put": lambda call: call.put(Count(), call.slot(Count())),
}


@settings(max_examples=15)
@given(call_states())
def test_a_verb_that_changes_nothing_returns_the_identical_call(call: CallState) -> None:
    """Unchanged means identical."""
    call = call.put(Count(), 1)
    for verb in SILENT.values():
        assert verb(call) is call
    if call.outcome is not None:
        assert call.with_content(call.outcome.content, metadata=call.outcome.metadata) is call


def test_asking_twice_the_same_is_silent() -> None:
    """An equal question of the same hook adds nothing."""
    asked = CALL.require_approval("?")
    assert asked.require_approval("?") is asked
    assert len(asked.require_approval("??").verdict.approval) == 2


def test_verdicts_add_up_and_seconds_are_noted() -> None:
    """The first refusal and answer stand, later ones are on record; approvals are all kept."""
    call = (
        CALL.refuse("a").refuse("b").answer("c").answer("d").require_approval("?", timeout=5, always="tool")
    )
    expected = Verdict(Refusal("a"), (Ask("?", timeout=5, always="tool"),), Answered("c"))
    assert expected == call.verdict
    assert call.notes == ("refuse: b", "answer: d")


def test_will_run() -> None:
    """A call runs unless it is refused, answered, invalid or settled; an open question counts as a yes."""
    assert CALL.will_run
    assert CALL.require_approval("?").will_run
    assert not CALL.refuse("no").will_run
    assert not CALL.answer("x").will_run
    assert not evolve(CALL, problems=(Problem("$", "bad"),)).will_run
    assert not DONE.will_run


def test_ran() -> None:
    """A call ran when its body was started, however it ended."""
    assert not CALL.ran
    assert DONE.ran
    assert evolve(CALL, outcome=Outcome("unknown", attempts=1)).ran
    assert not evolve(CALL, outcome=Outcome("denied")).ran


@settings(max_examples=15)
@given(call_states())
def test_digest_is_of_tool_arguments_and_injected(a: CallState) -> None:
    """The digest follows exactly what runs: not the run, the verdict or the id."""
    assert a.digest == CallState(tool=a.tool, arguments=a.arguments, injected=a.injected).digest
    assert a.digest != a.with_arguments({**a.arguments, "another": 1}).digest
    assert a.digest != a.inject(another=1).digest
    assert a.digest != evolve(a, tool=evolve(a.tool, description=a.tool.description + "!")).digest


def test_what_was_asked_is_told() -> None:
    """Id and name are the model's; arguments are the effective ones and cannot be edited in place."""
    changed = CALL.with_arguments({"amount": 1000})
    assert ("1", "pay") == (changed.id, changed.name)
    assert changed.asked.arguments == '{"amount": 10}'
    assert changed.arguments == {"amount": 1000}
    with pytest.raises(TypeError, match="frozen"):
        changed.arguments["amount"] = 1


def test_with_content_changes_content_and_merges_metadata() -> None:
    """Status and attempts stay; before there is an outcome it is an error that says where it belongs."""
    made = DONE.with_content("other", metadata={"n": 2})
    expected = Outcome("succeeded", "other", attempts=1, metadata={"m": 1, "n": 2})
    assert expected == made.outcome
    with pytest.raises(ValueError, match="after_tool_execute"):
        CALL.with_content("x")


def test_run_verbs_reach_the_run() -> None:
    """Stop, fail and put write the run of the call; note writes the call."""
    call = CALL.stop("enough").fail("bad").put(Count(), 4).note("seen")
    assert Stop("enough") == call.run.stopped
    assert call.run.failed is not None
    assert call.run.slot(Count()) == 4
    assert call.notes == ("seen",)
    assert call.run.notes == ()


def test_repr_is_bounded() -> None:
    """The repr names the call and its state, not its contents."""
    call = CALL.with_arguments({"text": "x" * 100_000})
    assert repr(call) == "<CallState pay 1 index=0 open>"
    assert repr(DONE) == "<CallState pay 1 index=0 succeeded>"


WRONG: dict[str, Callable[[], object]] = {
    "with_arguments": lambda: CALL.with_arguments([1]),  # type: ignore[arg-type]  # the value under test
    "refuse": lambda: CALL.refuse(None),  # type: ignore[arg-type]  # as above
    "second refuse": lambda: CALL.refuse("a").refuse(5),  # type: ignore[arg-type]  # as above
    "answer": lambda: CALL.answer({"a": 1}),  # type: ignore[arg-type]  # as above
    "second answer": lambda: CALL.answer("a").answer(5),  # type: ignore[arg-type]  # as above
    "require_approval": lambda: CALL.require_approval(None),  # type: ignore[arg-type]  # as above
    "note": lambda: CALL.note(5),  # type: ignore[arg-type]  # as above
    "verdict": lambda: evolve(CALL, verdict=None),  # type: ignore[arg-type]  # as above
    "outcome": lambda: evolve(CALL, outcome="ok"),  # type: ignore[arg-type]  # as above
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_shapes_are_refused_where_they_are_written(case: str) -> None:
    """A value of another type is a TypeError in the hook that writes it."""
    with pytest.raises(TypeError):
        WRONG[case]()
