"""The verdict join: nothing that was decided about a call is ever taken back."""

import math

import pytest
from attrs import evolve
from hypothesis import given

from capfold.capabilities.verdict import UNDECIDED, Answered, Ask, Refusal, Verdict
from tests.strategies import verdicts


@given(verdicts())
def test_join_is_idempotent(verdict: Verdict) -> None:
    """A verdict joined with itself, or with nothing, is itself."""
    assert verdict == verdict.join(verdict)
    assert verdict == verdict.join(UNDECIDED)
    assert verdict.join(UNDECIDED).includes(verdict)


@given(verdicts(), verdicts(), verdicts())
def test_join_is_associative(a: Verdict, b: Verdict, c: Verdict) -> None:
    """How hooks are grouped does not change the verdict."""
    assert a.join(b.join(c)) == a.join(b).join(c)


@given(verdicts(), verdicts())
def test_join_only_adds(a: Verdict, b: Verdict) -> None:
    """What stood before stands after, and each question of both is asked."""
    joined = a.join(b)
    assert joined.includes(a)
    assert set(joined.approval) == {*a.approval, *b.approval}
    assert (joined.refused is None) == (a.refused is None and b.refused is None)
    assert (joined.answer is None) == (a.answer is None and b.answer is None)


@given(verdicts(), verdicts())
def test_includes_tells_whether_something_was_taken_back(a: Verdict, b: Verdict) -> None:
    """Dropping or changing any part is seen."""
    joined = a.join(b)
    if joined.refused is not None:
        assert not evolve(joined, refused=None).includes(joined)
        assert not evolve(joined, refused=Refusal(joined.refused.reason + "!")).includes(joined)
    if joined.approval:
        assert not evolve(joined, approval=joined.approval[1:]).includes(joined)
    if joined.answer is not None:
        assert not evolve(joined, answer=None).includes(joined)


def test_includes_is_strict_about_types() -> None:
    """A timeout of 1 that becomes 1.0 is a change."""
    whole = Verdict(approval=(Ask("?", timeout=1),))
    assert not Verdict(approval=(Ask("?", timeout=1.0),)).includes(whole)


def test_the_first_refusal_and_answer_stand() -> None:
    """A later one never replaces an earlier one."""
    first = Verdict(Refusal("no"), (), Answered("a"))
    joined = first.join(Verdict(Refusal("never"), (Ask("?"),), Answered("b")))
    assert Verdict(Refusal("no"), (Ask("?"),), Answered("a")) == joined


@pytest.mark.parametrize("timeout", [0, -1, math.inf, math.nan, 10**400])
def test_a_timeout_is_a_positive_number(timeout: float) -> None:
    """Zero, negative, infinite and NaN seconds are refused."""
    with pytest.raises(ValueError, match="timeout"):
        Ask("?", timeout=timeout)


def test_shapes_are_checked() -> None:
    """Wrong types are refused when a question or refusal is made."""
    with pytest.raises(TypeError, match="timeout"):
        Ask("?", timeout=True)
    with pytest.raises(ValueError, match="always"):
        Ask("?", always="forever")  # type: ignore[arg-type]  # the value under test
    with pytest.raises(TypeError, match="reason"):
        Refusal(None)  # type: ignore[arg-type]  # the value under test
