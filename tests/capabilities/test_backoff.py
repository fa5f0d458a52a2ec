"""Backoff: a pure function of the attempt, a random number, and what the other side asks for."""

import math
from collections.abc import Callable

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import capfold.runtime
from capfold.capabilities import Backoff

seconds = st.floats(0, 1e9)
backoffs = st.builds(
    Backoff, initial=seconds, factor=st.floats(1, 1e9), maximum=seconds, jitter=st.booleans()
)
chance = st.floats(0, 1, exclude_max=True)


@given(backoffs, st.integers(1, 10_000), chance)
def test_every_delay_is_within_its_bounds(backoff: Backoff, attempt: int, random: float) -> None:
    """A delay is finite, at most the maximum, and chance takes no more than half of it, whatever the attempt."""
    whole = evolve(backoff, jitter=False).delay(attempt, random)
    delay = backoff.delay(attempt, random)
    assert math.isfinite(delay)
    assert 0 <= whole / 2 <= delay <= whole <= backoff.maximum


@given(backoffs, st.integers(1, 50), chance)
def test_delays_do_not_shrink(backoff: Backoff, attempt: int, random: float) -> None:
    """A later attempt waits at least as long, with the same chance."""
    assert backoff.delay(attempt, random) <= backoff.delay(attempt + 1, random)


@given(backoffs, st.integers(1, 50), chance, seconds)
def test_what_is_asked_for_is_waited_for(backoff: Backoff, attempt: int, random: float, asked: float) -> None:
    """A Retry-After is used as it is, up to the maximum: neither chance nor the attempt changes it."""
    assert min(asked, backoff.maximum) == backoff.delay(attempt, random, retry_after=asked)


def test_the_numbers() -> None:
    """By hand: 0.5, 1, 2 up to 30, and half of it at worst."""
    plain = Backoff(jitter=False)
    assert [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] == [plain.delay(n, 0.9) for n in range(1, 9)]
    assert 0.75 == Backoff(initial=1.0).delay(1, 0.5)
    assert 0.0 == Backoff(initial=0.0, factor=1e9).delay(10_000, 0.0)


def test_both_packages_name_it() -> None:
    """A model's Retry and a tool's wait by the same class."""
    assert Backoff is capfold.runtime.Backoff
    assert hash(Backoff()) == hash(Backoff(initial=0.5))


@pytest.mark.parametrize(
    ("make", "error", "why"),
    [
        (lambda: Backoff(initial=-1), ValueError, "Backoff.initial must be at least 0"),
        (lambda: Backoff(factor=0.5), ValueError, "Backoff.factor must be at least 1"),
        (lambda: Backoff(initial=10**400), ValueError, "Backoff.initial must be at least 0, and finite"),
        (lambda: Backoff(maximum=float("inf")), ValueError, "Backoff.maximum must be at least 0, and finite"),
        (
            lambda: Backoff(maximum="1"),  # type: ignore[arg-type]  # wrong on purpose
            TypeError,
            "Backoff.maximum must be a number",
        ),
        (lambda: Backoff(factor=True), TypeError, "Backoff.factor must be a number"),
        (
            lambda: Backoff(jitter=0.5),  # type: ignore[arg-type]  # likewise
            TypeError,
            "Backoff.jitter must be a bool",
        ),
        (lambda: Backoff().delay(0, 0.5), ValueError, "from 1, not 0"),
    ],
)
def test_what_cannot_be_waited(make: Callable[[], object], error: type[Exception], why: str) -> None:
    """What cannot work is refused, with what would do."""
    with pytest.raises(error, match=why):
        make()
