"""Event loops in which no time is lost: whoever sleeps wakes at once, in the order of time, and the clock shows it.

No threads: while one works, a loop that has nothing else to do would take its waiting for sleep.
"""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias, TypeVar

import anyio

T = TypeVar("T")
LoopName: TypeAlias = Literal["asyncio", "trio"]


# A loop that has turned so often without a pause spins, as anyio's does while a cancelled task takes its time: from
# then on each turn takes a moment, in seconds, lest time should stand still for good.
_TURNS = 500
_MOMENT = 0.001


class _Leaping(selectors.SelectSelector):
    """Waits for nothing: the time that it would have waited is added to `leapt`, in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.leapt = 0.0
        self.turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; with nothing, let the time pass."""
        ready = super().select(0)
        self.turns += 1
        if timeout is not None and timeout > 0 and not ready:
            self.leapt += timeout
            self.turns = 0
        elif self.turns > _TURNS:
            self.leapt += _MOMENT
        return ready


class LeapingLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, with a clock that begins at 0 and leaps."""

    def __init__(self) -> None:
        """Start at 0."""
        self._leaping = _Leaping()
        super().__init__(self._leaping)

    def time(self) -> float:
        """Return the seconds that were slept."""
        return self._leaping.leapt


def run_leaping(work: Callable[[], Awaitable[T]], loop: LoopName) -> T:
    """Run async work on a fresh loop of the kind; return what it returns. Raises ModuleNotFoundError without trio."""
    if loop == "asyncio":
        return anyio.run(work, backend_options={"loop_factory": LeapingLoop})
    from trio.testing import MockClock  # noqa: PLC0415  # trio is for who has it

    return anyio.run(work, backend="trio", backend_options={"clock": MockClock(autojump_threshold=0)})
