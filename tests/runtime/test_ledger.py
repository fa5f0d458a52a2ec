"""The ledger's arithmetic: gates, what is left, and shares that do not depend on timing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import CallState, RunState, ToolFailed, ToolHook, Usage, call
from capfold.capabilities.outside import CallNext
from capfold.runtime import LimitError, LimitExceeded, Limits, UsageUnknown
from capfold.runtime.ledger import before_batch, before_step, exceeded, left, shares
from capfold.runtime.limits import SPENT_LIMITS
from capfold.runtime.scripted_model import Reply
from tests.runtime.desk import make, partial, results, slow


def limit_of(reason: object) -> str | None:
    """Return which limit a reason names."""
    assert reason is None or isinstance(reason, LimitExceeded | UsageUnknown)
    return reason.limit if reason is not None else None


@pytest.mark.parametrize(
    ("run", "limits", "now", "expected"),
    [
        (RunState(), Limits(), 0.0, None),
        (RunState(run_step=5, max_steps=5), Limits(), 0.0, "max_steps"),
        (RunState(run_step=4, max_steps=5), Limits(), 0.0, None),
        (RunState(), Limits(deadline=10.0), 9.9, None),
        (RunState(), Limits(deadline=10.0), 10.0, "deadline"),
        (RunState(requests=3), Limits(requests=3), 0.0, "requests"),
        (RunState(requests=2), Limits(requests=3), 0.0, None),
        (RunState(usage=Usage(input_tokens=5, output_tokens=5)), Limits(input_tokens=5), 0.0, "input_tokens"),
        (RunState(usage=Usage(input_tokens=5, output_tokens=5)), Limits(output_tokens=6), 0.0, None),
        (
            RunState(usage=Usage(input_tokens=5, output_tokens=5)),
            Limits(total_tokens=10),
            0.0,
            "total_tokens",
        ),
        (RunState(usage=Usage()), Limits(total_tokens=10), 0.0, "total_tokens"),
        (RunState(usage=Usage()), Limits(), 0.0, None),
    ],
)
def test_gate(run: RunState, limits: Limits, now: float, expected: str | None) -> None:
    """A step begins only below each limit; unknown usage under a token limit is an error of its own."""
    spent = tuple(name for name in SPENT_LIMITS if getattr(limits, name) is not None)
    reason = before_step(run, limits, spent, 0.0, now)
    assert expected == limit_of(reason)
    if run.usage.total is None and expected is not None:
        assert isinstance(reason, UsageUnknown)


def test_left() -> None:
    """None is no bound; what is overdrawn is 0."""
    assert (None, 2, 0, 0) == (left(None, 9), left(5, 3), left(5, 5), left(5, 7))


def test_batch_must_fit_as_a_whole() -> None:
    """A batch up to the limit fits, one more does not; without a limit all do."""
    run = RunState(tool_calls=3)
    assert before_batch(run, Limits(tool_calls=5), 2) is None
    assert "tool_calls" == limit_of(before_batch(run, Limits(tool_calls=5), 3))
    assert before_batch(run, Limits(), 999) is None


@given(st.none() | st.integers(0, 30), st.lists(st.booleans(), max_size=7).map(tuple))
def test_shares_are_fair_and_complete(remaining: int | None, takers: tuple[bool, ...]) -> None:
    """All of what is left is given out, to takers only, differing by at most one, more to the first."""
    split = shares(remaining, takers)
    assert len(takers) == len(split)
    if remaining is None:
        assert {None} >= set(split)
        return
    given_out = [share for share in split if share is not None]
    assert len(given_out) == len(split)
    assert all(share == 0 for share, taker in zip(given_out, takers, strict=True) if not taker)
    taken = [share for share, taker in zip(given_out, takers, strict=True) if taker]
    assert sum(taken) == (remaining if taken else 0)
    assert taken == sorted(taken, reverse=True)
    assert not taken or taken[0] - taken[-1] <= 1


def test_exceeded_says_all_three_numbers() -> None:
    """Limit, used and share stand in the message."""
    reason = exceeded("tool_calls", 4, 5, 2, share=1)
    assert "limit tool_calls reached: 4 of 5, share 1" == reason.message
    assert ("tool_calls", 4, 5, 1, 2) == (
        reason.limit,
        reason.used,
        reason.allowed,
        reason.share,
        reason.step,
    )


async def retries(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
    """Run a body up to three times while it fails."""
    done = await call_next(call)
    for _ in range(2):
        if done.outcome is None or done.outcome.status != "failed":
            break
        done = await call_next(call)
    return done


def failing(n: int) -> str:
    """Fail."""
    raise ToolFailed("no")


async def test_body_runs_beyond_the_first_are_charged() -> None:
    """Two retries of one call make three body runs, charged where they happen."""
    agent = make([call("t", {"n": 1}), "done"], tools=[slow("t", failing)], capabilities=[ToolHook(retries)])
    result = await agent.run("go")
    assert (3, [("t", "failed")]) == (result.tool_calls, results(result.messages))


@pytest.mark.parametrize("parallel", [1, None])
async def test_spent_share_ends_the_run(parallel: int | None) -> None:
    """Of 3 left, the first of two calls may take 2 and the second 1: its second retry ends the run."""
    agent = make(
        [[call("t", {"n": 1}, id="a"), call("t", {"n": 2}, id="b")], "done"],
        tools=[slow("t", failing)],
        capabilities=[ToolHook(retries)],
        limits=Limits(tool_calls=5, max_parallel_tools=parallel),
    )
    with pytest.raises(LimitError) as caught:
        await agent.run("go")
    reason = caught.value.reason
    assert isinstance(reason, LimitExceeded)
    assert ("tool_calls", 1, "b") == (reason.limit, reason.share, reason.call)
    result = partial(caught.value)
    assert 5 == result.tool_calls
    assert [("t", "failed"), ("t", "failed")] == results(result.messages)


async def test_unused_share_returns() -> None:
    """What one batch did not take is there for the next."""
    tools = [slow("t", failing, max_retries=9), *make().tools]
    script: list[Reply] = [[call("look", {"n": 1}), call("look", {"n": 2})], call("t", {"n": 1}), "done"]
    agent = make(script, tools=tools, capabilities=[ToolHook(retries)], limits=Limits(tool_calls=5))
    assert 5 == (await agent.run("go")).tool_calls


@pytest.mark.parametrize(
    "bad",
    [
        {"max_steps": 0}, {"max_steps": None}, {"max_steps": True}, {"max_result_bytes": None},
        {"requests": -1}, {"requests": 1.5},
        {"deadline": 0}, {"deadline": float("nan")}, {"tool_timeout": -1.0}, {"tool_timeout": "1"},
        {"max_parallel_tools": 0}, {"max_result_bytes": 0},
    ],
)  # fmt: skip
def test_bad_limits(bad: dict[str, object]) -> None:
    """A limit that could not hold is refused where it is written, by its name."""
    (name,) = bad
    with pytest.raises(ValueError, match=name):
        Limits(**bad)  # type: ignore[arg-type]  # that is the point
