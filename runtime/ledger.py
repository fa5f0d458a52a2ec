"""The ledger: what a run has used of its limits, and what is left. Pure arithmetic; one account per limit.

The numbers are the run state's RUNTIME fields, which no hook can change, so they are the account.
"""

from collections.abc import Callable, Mapping, Sequence

from ..capabilities.state import RunState
from .below import Allowance, Spent
from .errors import LimitExceeded, Reason, UsageUnknown
from .limits import Limits


def before_step(
    run: RunState, limits: Limits, spent_limits: tuple[str, ...], started: float, now: float
) -> Reason | None:
    """Say which limit forbids another step, or None; `spent_limits` names those on tokens and cost that are set."""
    if run.run_step >= run.max_steps:
        return exceeded("max_steps", run.run_step, run.max_steps, run.run_step)
    if limits.deadline is not None and now - started >= limits.deadline:
        return exceeded("deadline", round(now - started, 3), limits.deadline, run.run_step)
    if limits.requests is not None and run.requests >= limits.requests:
        return exceeded("requests", run.requests, limits.requests, run.run_step)
    return before_request(run, limits, spent_limits) if spent_limits else None


def before_request(run: RunState, limits: Limits, spent_limits: tuple[str, ...]) -> Reason | None:
    """Say which limit on tokens or cost forbids another request, or None; what is unknown is never counted as 0."""
    for name in spent_limits:
        allowed = getattr(limits, name)
        used = _USED[name](run)
        if used is None:
            what = "cost" if name == "cost" else "usage"
            return UsageUnknown(
                message=f"{name} is limited to {allowed}, and the {what} of a response is not known",
                limit=name,
                step=run.run_step,
            )
        if used >= allowed:
            return exceeded(name, used, allowed, run.run_step)
    return None


_USED: Mapping[str, Callable[[RunState], float | None]] = {
    "input_tokens": lambda run: run.usage.input_tokens,
    "output_tokens": lambda run: run.usage.output_tokens,
    "total_tokens": lambda run: run.usage.total,
    "cost": lambda run: run.cost,
}


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


def allowances(
    run: RunState, limits: Limits, below: Sequence[bool], tool_calls: Sequence[int | None]
) -> tuple[Allowance | None, ...]:
    """Return what each call of a sub-agent may use of the run's limits; None for the other calls.

    Each limit is split among the sub-agents of the batch as `shares` does it, whatever they will use; so who gets
    the last unit does not depend on who comes first. `tool_calls`: the shares of those, split already.
    """
    spent = Spent.by(run)

    def split(name: str) -> tuple[int | None, ...]:
        allowed, used = getattr(limits, name), spent.of(name)
        # What is unknown is not counted as 0: nothing is left then.
        left = None if allowed is None else 0 if used is None else max(0, allowed - int(used))
        return shares(left, below)

    names = ("requests", "input_tokens", "output_tokens", "total_tokens")
    requests, tokens_in, tokens_out, tokens = (split(name) for name in names)
    cost: float | None = None
    if limits.cost is not None:
        cost = 0.0 if run.cost is None else max(0.0, limits.cost - run.cost) / sum(below)
    return tuple(
        Allowance(requests[i], tool_calls[i], tokens_in[i], tokens_out[i], tokens[i], cost) if one else None
        for i, one in enumerate(below)
    )


def exceeded(limit: str, used: float, allowed: float, step: int, share: float | None = None) -> LimitExceeded:
    """Return the reason of a reached limit."""
    message = f"limit {limit} reached: {used} of {allowed}" + ("" if share is None else f", share {share}")
    return LimitExceeded(message=message, limit=limit, used=used, allowed=allowed, share=share, step=step)
