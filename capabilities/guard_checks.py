"""What a guard asks and what it makes of the answer, at each point of a run. Knows no hooks.

A finding is {"reason": None or a text}, or {"broken": what went wrong with the check}; anything else is as good as
the latter, so that a check nobody called blocks too.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from .call_state import CallState
from .frozen import FrozenDict, Json
from .messages import content_text
from .state import RunState

# Of any value, since a check may be written for one type: text, arguments, or the agent's output type.
Check: TypeAlias = Callable[..., str | None] | Callable[..., Awaitable[str | None]]

PASSED: FrozenDict[Json] = FrozenDict({"reason": None})
_LONGEST = 200
# Statuses of a call whose content came from a tool, or from whoever answered in its place.
_TOLD = frozenset({"succeeded", "answered", "failed", "unknown"})


def ask(check: Check, value: object) -> FrozenDict[Json]:
    """Call a plain check and return its finding; never raises."""
    try:
        return _finding(check, check(value))
    except Exception as error:  # noqa: BLE001  # of the user's check: it blocks, and the reason names it
        return _raised(check, error)


async def ask_and_wait(check: Check, value: object) -> FrozenDict[Json]:
    """Call an async check and return its finding; raises nothing but cancellation."""
    try:
        answer = check(value)
        return _finding(check, await answer if isinstance(answer, Awaitable) else answer)
    except Exception as error:  # noqa: BLE001  # of the user's check: it blocks, and the reason names it
        return _raised(check, error)


def _finding(check: Check, answer: object) -> FrozenDict[Json]:
    if answer is None or (type(answer) is str and answer):
        return FrozenDict({"reason": answer})
    if inspect.iscoroutine(answer):
        answer.close()
        return _broken(f"{_name(check)} returned a coroutine: write it as an async function")
    return _broken(f"{_name(check)} must return None or a reason, not {answer!r:.80}")


def _raised(check: Check, error: Exception) -> FrozenDict[Json]:
    first = next(iter(str(error).splitlines()), "")[:_LONGEST]
    return _broken(f"{_name(check)} raised {type(error).__name__}{first and f': {first}'}")


def _broken(what: str) -> FrozenDict[Json]:
    return FrozenDict({"broken": what})


def _name(check: Check) -> str:
    return f"the check {getattr(check, '__qualname__', type(check).__qualname__)}"


def reason_of(finding: Json) -> str | None:
    """Return why a value does not pass, None where it does or where there is no valid finding."""
    reason = finding.get("reason") if isinstance(finding, FrozenDict) else None
    return reason if isinstance(reason, str) else None


def broken_by(finding: Json) -> str | None:
    """Return what went wrong, None for a valid finding."""
    if isinstance(finding, FrozenDict):
        if finding.keys() == {"reason"} and isinstance(finding["reason"], str | None):
            return None
        if isinstance(finding.get("broken"), str):
            return str(finding["broken"])
    return f"no finding of a check: {finding!r:.80}"


# What a check is given at each point; None where there is nothing to check.


def own_input(state: RunState) -> str | None:
    """Return the text of the run's own input."""
    own = state.messages[state.history_start :]
    return "\n".join(content_text(message.content) for message in own) if own else None


def response_text(state: RunState) -> str | None:
    """Return the text of a final response: one without calls."""
    response = state.response
    return None if response is None or response.tool_calls else response.text


def told(call: CallState) -> str | None:
    """Return the text that came of a call; None where neither a tool nor anybody in its place told it."""
    outcome = call.outcome
    return None if outcome is None or outcome.status not in _TOLD else content_text(outcome.content)
