"""Timeouts on asyncio by one shared timer per event loop, instead of one for each leaf.

A leaf that ends in time costs two dictionary writes, about a sixth of a timer of its own and a thirtieth of
`anyio.fail_after`. The timer is set for the earliest deadline there was; when it fires it cancels what is
late and is set again. The plain twin, `anyio.fail_after`, is what the port uses on trio; tests compare the two.
Cancellations are counted as in `asyncio.timeout` (3.11): one from elsewhere stays one.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from .port import Late

T = TypeVar("T")
# A step that swallowed its cancellation, or cleans up for long, is cancelled again after so many seconds.
AGAIN = 1.0


class Alarm:
    """The deadlines of one event loop, in its own clock's seconds."""

    def __init__(self) -> None:
        """Serve the running loop; start without a timer."""
        self.loop = asyncio.get_running_loop()
        self._waiting: dict[object, tuple[float, asyncio.Task[object]]] = {}
        self._late: dict[object, int] = {}  # leaf -> how often it was cancelled
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf  # when the timer fires

    async def bounded(self, step: Callable[[], Awaitable[T]], timeout: float) -> T:  # noqa: ASYNC109  # it is one
        """Perform a step for at most `timeout` seconds. Raises `Late`."""
        task = asyncio.current_task(self.loop)
        assert task is not None, "a leaf runs in a task"
        asked = task.cancelling()
        leaf = object()
        deadline = self.loop.time() + timeout
        self._waiting[leaf] = (deadline, task)
        if deadline < self._due:
            self._set(deadline)
        try:
            return await step()
        except asyncio.CancelledError as error:
            if leaf in self._late and self._uncancel(leaf, task) <= asked:
                raise Late(f"no result within {timeout} seconds") from error
            raise
        finally:
            del self._waiting[leaf]
            if leaf in self._late:  # the step swallowed the cancellation: it is not to be counted any longer
                self._uncancel(leaf, task)

    def _uncancel(self, leaf: object, task: "asyncio.Task[object]") -> int:
        """Take the cancellations of a leaf back; return how many the task is left with."""
        for _ in range(self._late.pop(leaf)):
            task.uncancel()
        return task.cancelling()

    def _set(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(deadline, self._ring)
        self._due = deadline

    def _ring(self) -> None:
        """Cancel what is late, and wait for the next deadline."""
        self._timer, self._due = None, math.inf
        now = self.loop.time()
        for leaf, (deadline, task) in list(self._waiting.items()):
            if deadline <= now:
                self._waiting[leaf] = (now + AGAIN, task)
                self._late[leaf] = self._late.get(leaf, 0) + 1
                task.cancel()
        if self._waiting:
            self._set(min(deadline for deadline, _ in self._waiting.values()))
