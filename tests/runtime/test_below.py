"""The arithmetic of runs below a run: shares of limits, what was used, what is left, what narrows what."""

from typing import Any

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import RunState, Usage
from capfold.capabilities.frozen import FrozenDict
from capfold.runtime import Limits, ledger
from capfold.runtime.below import NOTHING, Allowance, Below, Held, Spent
from capfold.runtime.subagents import bound

LIMITS = ("requests", "tool_calls", "input_tokens", "output_tokens", "total_tokens", "cost")
COUNTED = LIMITS[:-1]
counts = st.integers(0, 50)
maybe = st.none() | counts
dollars = st.none() | st.integers(0, 50).map(float)
usages = st.builds(
    Usage, input_tokens=maybe, output_tokens=maybe, cached_tokens=maybe, reasoning_tokens=maybe
)
models = st.dictionaries(st.sampled_from("abc"), usages).map(FrozenDict)
spents = st.builds(Spent, counts, counts, usages, models, dollars)
allowances = st.builds(Allowance, maybe, maybe, maybe, maybe, maybe, dollars)
limits = st.builds(
    Limits,
    requests=maybe,
    tool_calls=maybe,
    input_tokens=maybe,
    output_tokens=maybe,
    total_tokens=maybe,
    cost=dollars,
)


def run_of(spent: Spent) -> RunState:
    """Return a run that used so much."""
    return evolve(
        RunState(),
        requests=spent.requests,
        tool_calls=spent.tool_calls,
        usage=spent.usage,
        usage_by_model=spent.usage_by_model,
        cost=spent.cost,
    )


@given(spents, spents, spents)
def test_sums_do_not_depend_on_who_comes_first(a: Spent, b: Spent, c: Spent) -> None:
    """A commutative monoid; dollars are whole ones here, as floats round."""
    assert a.plus(b).plus(c) == a.plus(b.plus(c))
    assert a.plus(b) == b.plus(a)
    assert a == a.plus(NOTHING)


@given(spents, spents, st.sampled_from(LIMITS))
def test_unknown_stays_unknown(a: Spent, b: Spent, name: str) -> None:
    """A sum with an unknown part is unknown, never less than its parts."""
    parts = (a.of(name), b.of(name))
    total = a.plus(b).of(name)
    assert (None if None in parts else sum(one for one in parts if one is not None)) == total


@given(spents)
def test_a_run_says_what_it_used(spent: Spent) -> None:
    """Under the names that limits have."""
    run = run_of(spent)
    assert spent == Spent.by(run)
    assert (run.requests, run.usage.total, run.cost) == tuple(
        spent.of(name) for name in ("requests", "total_tokens", "cost")
    )


@given(spents, limits, st.lists(st.booleans(), min_size=1, max_size=6).filter(any))
def test_shares_add_up_to_what_is_left(spent: Spent, given: Limits, below: list[bool]) -> None:
    """No bound gives none; else all of it, the first gets what cannot be split; what is unknown leaves nothing."""
    run = run_of(spent)
    left = ledger.left(given.tool_calls, run.tool_calls)
    found = ledger.allowances(run, given, below, ledger.shares(left, below))
    assert below == [one is not None for one in found]
    shares = [one for one in found if one is not None]
    for name in LIMITS:
        got = [getattr(share, name) for share in shares]
        allowed, used = getattr(given, name), spent.of(name)
        if allowed is None:
            assert {None} == set(got)
            continue
        rest = 0 if used is None else max(0, allowed - used)
        assert abs(sum(got) - rest) < 1e-9
        if name in COUNTED:
            assert sorted(got, reverse=True) == got
            assert max(got) - min(got) <= 1


@given(allowances, spents, spents, counts)
def test_what_is_left_of_an_allowance(allowance: Allowance, earlier: Spent, now: Spent, extra: int) -> None:
    """Attempts and body runs are counted in all, whether they are read while they go on or have ended."""
    below = Below(allowance, None)
    below.begin("run/c", lambda: earlier)
    below.begin("run/c#2", lambda: now)
    spent = earlier.plus(now)
    assert spent == below.spent
    left = below.left(extra)
    for name in LIMITS:
        allowed, used = getattr(allowance, name), spent.of(name)
        more = extra if name == "tool_calls" else 0
        expected = None if allowed is None else 0 if used is None else max(0, allowed - used - more)
        assert expected == getattr(left, name)
    assert ("run/c", "run/c#2") == below.runs


@given(allowances, spents, spents, counts, counts)
def test_what_waited_goes_on_where_it_was(
    allowance: Allowance, earlier: Spent, now: Spent, extra: int, more: int
) -> None:
    """Held and taken up again: the run that waits counts once, by its own account."""
    state: Any = object()
    below = Below(allowance, None)
    below.begin("run/c", lambda: earlier)
    below.begin("run/c#2", lambda: now)
    assert below.held(extra) is None
    below.waiting = state
    held = below.held(extra)
    assert Held(state, allowance, earlier, extra, ("run/c", "run/c#2")) == held
    resumed = Below(allowance, held)
    assert earlier == resumed.spent
    resumed.begin("run/c#2", lambda: now.plus(now))
    assert (earlier.plus(now).plus(now), held.runs) == (resumed.spent, resumed.runs)
    resumed.waiting = state
    again = resumed.held(more)
    assert again is not None
    assert (earlier, extra + more) == (again.earlier, again.extra)
    resumed.end(now)
    assert (earlier.plus(now), None) == (resumed.spent, resumed.held(0))


@given(limits, allowances)
def test_limits_are_nowhere_wider_than_an_allowance(own: Limits, allowance: Allowance) -> None:
    """And nowhere wider than they were; named are those that the allowance narrowed."""
    narrow, names = bound(own, allowance)
    for name in LIMITS:
        mine, most, found = getattr(own, name), getattr(allowance, name), getattr(narrow, name)
        both = [one for one in (mine, most) if one is not None]
        assert min(both, default=None) == found
        assert (name in names) is (most is not None and (mine is None or most < mine))
    assert own.max_steps == narrow.max_steps
