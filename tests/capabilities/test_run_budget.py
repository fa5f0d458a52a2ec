"""RunBudget: where it stops a run, on records; whole runs are in tests/runtime/test_budgets.py."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import RunBudget, RunState, Usage, fold

COUNTS = st.integers(0, 6)
BOUNDS = st.none() | COUNTS


def said(budget: RunBudget, **numbers: object) -> str | None:
    """Return what the budget stops a run with that is so far, None where it does not."""
    state = RunState(**numbers)  # type: ignore[arg-type]  # the runtime's numbers, by name
    stopped = fold([budget], "before_model_request", state).stopped
    return None if stopped is None else stopped.message


def tokens(read: int | None, written: int | None) -> Usage:
    """Return what responses used."""
    return Usage(input_tokens=read, output_tokens=written)


@given(
    st.tuples(BOUNDS, BOUNDS, BOUNDS).filter(any),
    st.integers(1, 6),
    COUNTS,
    st.tuples(st.none() | COUNTS, st.none() | COUNTS),
)
def test_it_stops_exactly_where_nothing_is_left(
    bounds: tuple[int | None, int | None, int | None],
    step: int,
    sent: int,
    used: tuple[int | None, int | None],
) -> None:
    """A run may take so many steps, requests and tokens, and the next request is not sent; None bounds nothing."""
    steps, requests, total = bounds
    read, written = used
    budget = RunBudget(max_steps=steps, max_requests=requests, max_tokens=total)
    over = (
        (steps is not None and step > steps)
        or (requests is not None and sent >= requests)
        or (total is not None and (read is None or written is None or read + written >= total))
    )
    stops = said(budget, run_step=step, requests=sent, usage=tokens(read, written)) is not None
    assert over == stops


def test_nothing_may_be_allowed() -> None:
    """With 0 no request is sent at all."""
    nothing = (RunBudget(max_steps=0), RunBudget(max_requests=0), RunBudget(max_tokens=0))
    assert all(said(budget, run_step=1) for budget in nothing)


def test_what_is_said() -> None:
    """The message tells what was used up, and of how many; other braces are text."""
    usage = tokens(900, 150)
    assert "The budget of this run is used up: 3 of 3 steps." == said(RunBudget(max_steps=3), run_step=4)
    assert "{0} 2 of 2 requests" == said(RunBudget(max_requests=2, message="{0} {used}"), requests=2)
    assert "1050 of 1000 tokens" == said(RunBudget(max_tokens=1000, message="{used}"), usage=usage)


@pytest.mark.parametrize("usage", [tokens(None, 1), tokens(1, None), tokens(None, None)])
def test_unknown_tokens_are_not_zero(usage: Usage) -> None:
    """What a provider did not report may be anything, so nothing is sent after it; without such a bound it may."""
    unknown = "The budget of this run is used up: an unknown number of 1000000 tokens."
    assert unknown == said(RunBudget(max_tokens=1_000_000), usage=usage)
    assert said(RunBudget(max_steps=9), usage=usage, run_step=1) is None


def test_a_run_within_its_budget_is_left_alone() -> None:
    """The identical record comes back."""
    state = RunState(run_step=1)
    assert (
        fold([RunBudget(max_steps=1, max_requests=1, max_tokens=1)], "before_model_request", state) is state
    )


WRONG: list[tuple[type[Exception], str, Callable[[], object]]] = [
    (ValueError, "bounds nothing", RunBudget),
    (ValueError, "the least is 0", lambda: RunBudget(max_steps=-1)),
    (ValueError, "the least is 0", lambda: RunBudget(max_tokens=-1)),
    (TypeError, "integer or None", lambda: RunBudget(max_requests=True)),
    (TypeError, "integer or None", lambda: RunBudget(max_tokens=1.5)),  # type: ignore[arg-type]  # the value under test
    (TypeError, "message", lambda: RunBudget(max_steps=1, message=None)),  # type: ignore[arg-type]  # as above
]


@pytest.mark.parametrize(("error", "match", "make"), WRONG)
def test_wrong_parameters(error: type[Exception], match: str, make: Callable[[], object]) -> None:
    """A bad value is refused at construction, with the nearest legal one."""
    with pytest.raises(error, match=match):
        make()
