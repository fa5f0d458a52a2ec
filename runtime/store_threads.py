"""Connections that block, used from event loops: each operation runs in a worker thread, on its own connection.

Works on asyncio and trio, for several event loops at once, and in a process that was forked off. An operation
that began is never abandoned halfway: cancelling its task waits for it, or, where asyncio does not wait, it
ends by itself. Knows no database.
"""

import os
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from threading import BoundedSemaphore, Lock
from typing import Final, Generic, Protocol, TypeVar

from anyio import CancelScope, CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from .stores import StoreError


class Closable(Protocol):
    """A connection, as far as it is known here."""

    def close(self) -> None:
        """End it; what was not committed is gone."""


C = TypeVar("C", bound=Closable)
T = TypeVar("T")


class Lost(StoreError):
    """The connection was dead before anything can have been kept: the operation may be done again."""


class _Here(Generic[C]):
    """The connections of one process."""

    def __init__(self, size: int) -> None:
        self.pid = os.getpid()
        self.size = size
        self.turns = BoundedSemaphore(size)
        self.closing = Lock()
        self.idle: list[C] = []

    def take(self) -> C | None:
        """Return an idle connection, None where there is none; other threads take some too."""
        try:
            return self.idle.pop()
        except IndexError:
            return None

    def end(self) -> None:
        """Close what is idle, unless it is another process's."""
        while self.pid == os.getpid() and (connection := self.take()) is not None:
            connection.close()


# What a parent process had open: closed or collected here, its connections would end over there.
_LEFT_ALONE: Final[list[object]] = []


class Connections(Generic[C]):
    """At most `size` connections, opened when they are needed; `open` is called in the worker thread.

    `harmless`: exceptions after which the connection is as good as before. After any other it is closed.
    """

    def __init__(self, open: Callable[[], C], *, size: int, harmless: tuple[type[Exception], ...]) -> None:
        """Open nothing yet."""
        self._open = open
        self._size = size
        self._harmless = harmless
        self._limiter = RunVar[CapacityLimiter]("capfold store")
        self._here = self._new()

    async def run(self, work: Callable[[C], T]) -> T:
        """Return what `work` returns, called in a worker thread with a connection of its own for the time.

        When an idle connection turns out to be `Lost`, `work` is called once more, with a new one.
        """
        limiter = self._limiter.get(None)
        if limiter is None:
            limiter = CapacityLimiter(self._size)
            self._limiter.set(limiter)
        return await to_thread.run_sync(self._work, work, limiter=limiter)

    async def close(self) -> None:
        """Wait for the operations under way, and close all connections; cancelled or not."""
        with CancelScope(shield=True):
            await to_thread.run_sync(self._close, limiter=CapacityLimiter(1))

    def _work(self, work: Callable[[C], T]) -> T:
        here = self._mine()
        with here.turns:
            idle = here.take()
            if idle is not None:
                try:
                    return self._used(here, idle, work)
                except Lost:
                    here.end()  # whatever ended this one, ended the others
            return self._used(here, self._open(), work)

    def _used(self, here: _Here[C], connection: C, work: Callable[[C], T]) -> T:
        try:
            result = work(connection)
        except self._harmless:
            here.idle.append(connection)
            raise
        except BaseException:
            connection.close()
            raise
        here.idle.append(connection)
        return result

    def _close(self) -> None:
        here = self._mine()
        with ExitStack() as taken:
            taken.enter_context(here.closing)  # two that close must not wait for each other's turns
            for _ in range(here.size):
                taken.enter_context(here.turns)
            here.end()

    def _mine(self) -> _Here[C]:
        """Return the connections of this process, which may have been forked off since."""
        if self._here.pid != os.getpid():
            _LEFT_ALONE.append(self._here)
            self._here = self._new()
        return self._here

    def _new(self) -> _Here[C]:
        here = _Here[C](self._size)
        weakref.finalize(self, here.end)  # a store that nobody closes gives its connections back with itself
        return here
