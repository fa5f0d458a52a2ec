"""The ledger: what a run has used of its limits, and what is left. Pure arithmetic; one account per limit.

The numbers are the run state's RUNTIME fields, which no hook can change, so they are the account.
"""

from collections.abc import Sequence

from ..capabilities.state import RunState
from .errors import LimitExceeded, Reason, UsageUnknown
from .limits import Limits


def before_step(
    run: RunState, limits: Limits, token_limits: tuple[str, ...], started: float, now: float
) -> Reason | None:
    """Say which limit forbids another step, or None; `token_limits` names those on tokens that are set."""
    if run.run_step >= run.max_steps:
        return exceeded("max_steps", run.run_step, run.max_steps, run.run_step)
    if limits.deadline is not None and now - started >= limits.deadline:
        return exceeded("deadline", round(now - started, 3), limits.deadline, run.run_step)
    if limits.requests is not None and run.requests >= limits.requests:
        return exceeded("requests", run.requests, limits.requests, run.run_step)
    for name in token_limits:
        allowed = getattr(limits, name)
        used = run.usage.total if name == "total_tokens" else getattr(run.usage, name)
        if used is None:
            return UsageUnknown(
                message=f"{name} is limited to {allowed}, and the model did not report its usage", limit=name
            )
        if used >= allowed:
            return exceeded(name, used, allowed, run.run_step)
    return None


def left(allowed: int | None, used: int) -> int | None:
    """Return what is left of an account; None = no bound."""
    return None if allowed is None else max(0, allowed - used)


def before_batch(run: RunState, limits: Limits, calls: int) -> Reason | None:
    """Say whether a batch of calls is over the limit as a whole, or None."""
    if limits.tool_calls is not None and run.tool_calls + calls > limits.tool_calls:
        return exceeded("tool_calls", run.tool_calls + calls, limits.tool_calls, run.run_step)
    return None


def shares(remaining: int | None, takers: Sequence[bool]) -> tuple[int | None, ...]:
    """Split what is left among the calls that may run their body again: left // n each, the rest one by one.

    A call that takes none gets 0. So who gets the last unit is decided before anything runs.
    """
    if remaining is None:
        return (None,) * len(takers)
    n = sum(takers)
    if n == 0:
        return (0,) * len(takers)
    each, rest = divmod(remaining, n)
    split: list[int | None] = []
    for taker in takers:
        split.append((each + (1 if rest > 0 else 0)) if taker else 0)
        rest -= taker
    return tuple(split)


def exceeded(limit: str, used: float, allowed: float, step: int, share: int | None = None) -> LimitExceeded:
    """Return the reason of a reached limit."""
    message = f"limit {limit} reached: {used} of {allowed}" + ("" if share is None else f", share {share}")
    return LimitExceeded(message=message, limit=limit, used=used, allowed=allowed, share=share, step=step)
