"""Limits: the bounds of a run. Plain data; the ledger holds a run to them.

A limit raises; a budget, which a capability keeps, stops or refuses.
"""

from typing import Any

from attrs import field, frozen


def _whole(
    instance: object, attribute: object, value: Any
) -> None:  # Any: of the field's type, which differs
    if value is not None and (type(value) is not int or value < 0):
        name = getattr(attribute, "name", "limit")
        raise ValueError(f"Limits.{name} must be None or an integer of at least 0, not {value!r}")


def _seconds(
    instance: object, attribute: object, value: Any
) -> None:  # Any: of the field's type, which differs
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        name = getattr(attribute, "name", "limit")
        raise ValueError(f"Limits.{name} must be None or a positive number of seconds, not {value!r}")


def _always(
    instance: object, attribute: object, value: Any
) -> None:  # Any: of the field's type, which differs
    if value is None:
        name = getattr(attribute, "name", "limit")
        raise ValueError(f"Limits.{name} is always bounded: give an integer of at least 1, not None")
    _at_least_one(instance, attribute, value)


def _at_least_one(
    instance: object, attribute: object, value: Any
) -> None:  # Any: of the field's type, which differs
    if value is not None and (type(value) is not int or value < 1):
        name = getattr(attribute, "name", "limit")
        raise ValueError(f"Limits.{name} must be None or an integer of at least 1, not {value!r}")


# The limits on tokens, by name.
TOKEN_LIMITS = ("input_tokens", "output_tokens", "total_tokens")


@frozen(kw_only=True)
class Limits:
    """The bounds of a run. None = no bound. Times in seconds, `max_result_bytes` of a result as sent."""

    max_steps: int = field(default=50, validator=_always)
    requests: int | None = field(default=None, validator=_whole)
    tool_calls: int | None = field(default=None, validator=_whole)
    input_tokens: int | None = field(default=None, validator=_whole)
    output_tokens: int | None = field(default=None, validator=_whole)
    total_tokens: int | None = field(default=None, validator=_whole)
    deadline: float | None = field(default=None, validator=_seconds)
    request_timeout: float | None = field(default=None, validator=_seconds)
    tool_timeout: float | None = field(default=60.0, validator=_seconds)
    max_parallel_tools: int | None = field(default=None, validator=_at_least_one)
    max_result_bytes: int = field(default=8_388_608, validator=_always)
