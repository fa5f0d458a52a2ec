"""Limits: the bounds of a run. Plain data; the ledger holds a run to them.

A limit raises; a budget, which a capability keeps, stops or refuses.
"""

from collections.abc import Callable
from typing import Any

from attrs import Attribute, field, frozen

from ..capabilities.frozen import is_finite


def _at_least(least: int) -> "Callable[[object, Attribute[int | None], int | None], None]":
    def validate(instance: object, attribute: "Attribute[int | None]", value: int | None) -> None:
        if value is not None and (type(value) is not int or value < least):
            raise ValueError(
                f"Limits.{attribute.name} must be None or an integer of at least {least}, not {value!r}"
            )

    return validate


def _always(instance: object, attribute: "Attribute[int]", value: int) -> None:
    if type(value) is not int or value < 1:
        raise ValueError(
            f"Limits.{attribute.name} is always bounded: give an integer of at least 1, not {value!r}"
        )


def _seconds(instance: object, attribute: "Attribute[Any]", value: object) -> None:  # Any: unset or not
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, int | float) or value <= 0 or not is_finite(value)
    ):
        raise ValueError(
            f"Limits.{attribute.name} must be None or a positive number of seconds, not {value!r}"
        )


def _dollars(instance: object, attribute: "Attribute[Any]", value: object) -> None:  # Any: as above
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or not is_finite(value)
    ):
        raise ValueError(
            f"Limits.{attribute.name} must be None or a number of US dollars, at least 0, not {value!r}"
        )


# The limits on tokens, by name.
TOKEN_LIMITS = ("input_tokens", "output_tokens", "total_tokens")
# Those on what responses used, which needs to be known before another request.
SPENT_LIMITS = (*TOKEN_LIMITS, "cost")
# Those that decide what may follow what; the others bound an effect, and what came of it is a fact.
RULES = ("max_steps", "requests", "tool_calls", *SPENT_LIMITS, "deadline")


@frozen(kw_only=True)
class Limits:
    """The bounds of a run. None = no bound.

    Limits raise, budgets stop: what is here ends a run by a LimitError and is never exceeded; the capabilities
    `RunBudget` and `ToolBudget` end it as a result, with a message.
    Times in seconds, `cost` in US dollars, `max_result_bytes` of a result as sent.
    """

    max_steps: int = field(default=50, validator=_always)
    requests: int | None = field(default=None, validator=_at_least(0))
    tool_calls: int | None = field(default=None, validator=_at_least(0))
    input_tokens: int | None = field(default=None, validator=_at_least(0))
    output_tokens: int | None = field(default=None, validator=_at_least(0))
    total_tokens: int | None = field(default=None, validator=_at_least(0))
    cost: float | None = field(default=None, validator=_dollars)
    deadline: float | None = field(default=None, validator=_seconds)
    request_timeout: float | None = field(default=None, validator=_seconds)
    tool_timeout: float | None = field(default=60.0, validator=_seconds)
    max_parallel_tools: int | None = field(default=None, validator=_at_least(1))
    max_result_bytes: int = field(default=8_388_608, validator=_always)
