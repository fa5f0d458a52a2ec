"""Backoff: how long to wait before the next attempt at something that failed. A pure function of numbers.

Knows nothing of models, tools, clocks or who waits; chance comes in as a number.
"""

from collections.abc import Callable

from attrs import Attribute, field, frozen

from .frozen import is_finite
from .shapes import of_type


def _number(least: float) -> "Callable[[object, Attribute[float], float], None]":
    def validate(instance: object, attribute: "Attribute[float]", value: float) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"Backoff.{attribute.name} must be a number, not {value!r:.80}")
        if not (is_finite(value) and value >= least):
            raise ValueError(
                f"Backoff.{attribute.name} must be at least {least:g}, and finite, not {value!r}"
            )

    return validate


@frozen(kw_only=True)
class Backoff:
    """How long to wait before the next attempt, in seconds.

    `initial` after the first failure, `factor` times as long after each further one, never more than `maximum`.
    With `jitter`, chance takes up to half of it away, so that those who failed together do not come back
    together. Who is asked to wait by the other side (a provider's Retry-After) waits that long, neither more nor
    less, but never more than `maximum` either.

    Raises TypeError for what is no number, ValueError for a negative wait or a factor below 1.

    >>> wait = Backoff(initial=1.0, factor=3.0, maximum=20.0)
    >>> [wait.delay(attempt, 0.0) for attempt in (1, 2, 3, 4)]
    [1.0, 3.0, 9.0, 20.0]
    >>> wait.delay(1, 0.5), wait.delay(1, 0.5, retry_after=7.0), wait.delay(1, 0.5, retry_after=70.0)
    (0.75, 7.0, 20.0)
    """

    initial: float = field(default=0.5, validator=_number(0.0))
    factor: float = field(default=2.0, validator=_number(1.0))
    maximum: float = field(default=30.0, validator=_number(0.0))
    jitter: bool = field(default=True, validator=of_type(bool))

    def delay(self, attempt: int, random: float, *, retry_after: float | None = None) -> float:
        """Return the seconds to wait after the `attempt`th attempt, from 1, has failed.

        `random`: a number in [0, 1), as `call_next.random()` gives it. `retry_after`: seconds that the other side
        asks for, None where it asks for nothing. Raises ValueError for an attempt before the first.
        """
        if attempt < 1:
            raise ValueError(f"delay counts attempts from 1, not {attempt}")
        if retry_after is not None:
            return min(max(0.0, retry_after), self.maximum)
        try:
            grown = min(self.initial * self.factor ** (attempt - 1), self.maximum)
        except OverflowError:  # far beyond any maximum, unless there is nothing to multiply
            grown = self.maximum if self.initial else 0.0
        return grown * (1 - random / 2) if self.jitter else grown
