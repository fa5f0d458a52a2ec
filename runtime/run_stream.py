"""The way of events from a run to its consumer. Knows neither what they mean nor how a run goes on."""

from collections import deque
from typing import Generic, TypeVar

import anyio

from .events import Delta, RunEvent

Out = TypeVar("Out")


class RunStream(Generic[Out]):
    """The events of one run, each given once, as an async iterator whose last one is `Ended`.

    `paced`: the run waits, before it goes on, until its consumer has taken all events but deltas; so nothing runs
    ahead of what the consumer has seen, and a slow one does not use up the timeout of a model request.
    """

    def __init__(self, *, paced: bool) -> None:
        """Start empty."""
        self._events: deque[RunEvent[Out]] = deque()
        self._awaited = 0  # events but deltas that are not taken yet
        self._paced = paced
        self._over = False
        self._news = anyio.Event()
        self._taken = anyio.Event()

    def put(self, event: RunEvent[Out]) -> None:
        """Add an event."""
        self._events.append(event)
        self._awaited += type(event) is not Delta
        self._news.set()

    def end(self) -> None:
        """Let the iteration end once all events are taken."""
        self._over = True
        self._news.set()

    async def caught_up(self) -> None:
        """Wait, where the run is paced, until the consumer has taken all there is to take."""
        while self._paced and self._awaited:
            await self._taken.wait()

    def release(self) -> None:
        """Let the run go on at its own pace: its consumer has left."""
        self._paced = False
        self._taken.set()

    def __aiter__(self) -> "RunStream[Out]":
        """Return itself: a second iteration goes on where the first one was left."""
        return self

    async def __anext__(self) -> RunEvent[Out]:
        """Wait for the next event."""
        while not self._events:
            if self._over:
                raise StopAsyncIteration
            if self._news.is_set():  # else others wait for it too
                self._news = anyio.Event()
            await self._news.wait()
        event = self._events.popleft()
        self._awaited -= type(event) is not Delta
        if not self._awaited:
            self._taken.set()
            self._taken = anyio.Event()  # several calls of a batch may wait on one
        return event
