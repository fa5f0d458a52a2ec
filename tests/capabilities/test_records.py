"""Fast copies of records equal slow ones."""

import pytest
from attrs import evolve, fields, frozen
from hypothesis import given, settings

from capfold.capabilities.call_state import CallState
from capfold.capabilities.messages import UserMessage
from capfold.capabilities.records import replace, replace_plainly
from capfold.capabilities.state import RunState
from tests.strategies import call_states, run_states


@settings(max_examples=8)
@given(run_states(), run_states())
def test_replace_equals_its_plain_twin_on_every_field_of_a_run_state(a: RunState, b: RunState) -> None:
    """Each field alone, and all together, is copied like attrs does it; the original is untouched."""
    before = evolve(a)
    values = {field.name: getattr(b, field.name) for field in fields(RunState)}
    for name, value in values.items():
        assert replace_plainly(a, **{name: value}) == replace(a, **{name: value})
    assert b == replace(a, **values)
    assert before == a


@settings(max_examples=8)
@given(call_states(), call_states())
def test_replace_equals_its_plain_twin_on_every_field_of_a_call_state(a: CallState, b: CallState) -> None:
    """The same for a tool call."""
    values = {field.name: getattr(b, field.name) for field in fields(CallState)}
    for name, value in values.items():
        assert replace_plainly(a, **{name: value}) == replace(a, **{name: value})
    assert b == replace(a, **values)


def test_an_unknown_field_is_refused() -> None:
    """A misspelt name never vanishes, on either way of copying."""
    for record in (RunState(), UserMessage("a")):
        with pytest.raises(TypeError, match="mesages"):
            replace(record, mesages=())


def test_a_cached_hash_is_not_carried_along() -> None:
    """A record that remembers its hash gets a new one when a field changes."""
    first = UserMessage("a")
    assert hash(first) == hash(UserMessage("a"))
    assert hash(replace(first, content="b")) == hash(UserMessage("b"))


def test_subclasses_keep_their_type() -> None:
    """The copy is of the record's own class, fields that the class adds included."""

    @frozen
    class Point:
        x: int
        y: int = 0

    @frozen
    class Named(Point):
        name: str = ""

    assert Named(1, 3, "p") == replace(Named(1, 2, "p"), y=3)
