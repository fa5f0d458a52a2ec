"""Outcomes: what is known of a call's effect, and how its content changes."""

import pytest
from hypothesis import given

from capfold.capabilities.frozen import FrozenDict, Json
from capfold.capabilities.messages import STATUSES
from capfold.capabilities.verdict import Effect, Failure, Outcome
from tests.strategies import json_objects, outcomes

KNOWN = Failure("ToolFailed", "no funds")
DERIVED = Failure("NoFunds", "no funds", ("ToolFailed", "Exception"))
OTHER = Failure("ValueError", "broken")


@pytest.mark.parametrize(
    ("expected", "outcome"),
    [
        ("yes", Outcome("succeeded", attempts=1)),
        ("no", Outcome("denied")),
        ("no", Outcome("answered")),
        ("no", Outcome("not_executed")),
        ("no", Outcome("validation_error")),
        ("no", Outcome("failed", error=KNOWN, attempts=1)),
        ("no", Outcome("failed", error=DERIVED, attempts=1)),
        ("maybe", Outcome("failed", error=OTHER, attempts=1)),
        ("maybe", Outcome("failed", error=KNOWN, attempts=2)),
        ("maybe", Outcome("unknown", error=OTHER, attempts=1)),
        ("maybe", Outcome("answered", attempts=1)),
    ],
)
def test_effect(expected: Effect, outcome: Outcome) -> None:
    """Only what is proven is claimed: "no" without an attempt or after one that is known to have failed."""
    assert expected == outcome.effect


@given(outcomes())
def test_nothing_that_started_is_proven_harmless_but_a_known_failure(outcome: Outcome) -> None:
    """An outcome with attempts is "no" for a single known failure only."""
    if outcome.effect == "no" and outcome.attempts:
        assert (outcome.status, outcome.attempts) == ("failed", 1)
    assert outcome.effect in {"yes", "no", "maybe"}


@given(outcomes(), json_objects())
def test_with_content_keeps_the_facts(outcome: Outcome, metadata: FrozenDict[Json]) -> None:
    """Other content and merged metadata; status, error, attempts and author stay."""
    made = outcome.with_content("new", metadata)
    assert made.content == "new"
    assert {**outcome.metadata, **metadata} == made.metadata
    facts = (outcome.status, outcome.error, outcome.attempts, outcome.by)
    assert facts == (made.status, made.error, made.attempts, made.by)


def test_shapes_are_checked() -> None:
    """An unknown status, negative attempts and a content that is none are refused."""
    with pytest.raises(ValueError, match=STATUSES[0]):
        Outcome("ok")  # type: ignore[arg-type]  # the value under test
    with pytest.raises(ValueError, match="attempts"):
        Outcome("failed", attempts=-1)
    with pytest.raises(TypeError, match="content"):
        Outcome("succeeded", 5)
