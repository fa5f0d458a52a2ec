"""What the caller of a running run may ask of it from outside: to stop. The driver looks here between effects.

Local to one run in one process; nothing of it is ever in a record.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import anyio

from ..capabilities.run_parts import Stop


class Patience:
    """How long tools that were told to end are waited for. One serves a run and all runs below it.

    `grace`: seconds after a stop; None as long as nobody asked for one: then they are waited for until they end.
    """

    def __init__(self) -> None:
        """Start without an end."""
        self.grace: float | None = None
        self._waiting: set[anyio.CancelScope] = set()

    def end_within(self, grace: float) -> None:
        """Let all waits end after so many seconds, those that have begun and those to come."""
        self.grace = grace
        for scope in self._waiting:
            scope.deadline = anyio.current_time() + grace

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Enclose a wait that no cancellation ends, but the end of the grace."""
        with anyio.CancelScope(shield=True) as scope:
            if self.grace is not None:
                scope.deadline = anyio.current_time() + self.grace
            self._waiting.add(scope)
            try:
                yield
            finally:
                self._waiting.discard(scope)


class Cancels(Protocol):
    """What can be cancelled, as a scope of anyio."""

    def cancel(self) -> None:
        """Cancel it."""


class Control:
    """A stop that may come. `due` from the moment it is asked for until the machine is told, once.

    `scope`: of the effect under way, None between effects.
    """

    def __init__(self) -> None:
        """Start without a wish."""
        self.scope: Cancels | None = None
        self.due = False
        self.patience = Patience()
        self._stop: Stop | None = None

    def ask(self, message: str, grace: float) -> None:
        """Ask for a stop, unless one was asked for before; the effect under way is cut short."""
        if self._stop is not None:
            return
        self._stop = Stop(message, key="caller", hook="stop")
        self.due = True
        self.patience.end_within(grace)
        if self.scope is not None:
            self.scope.cancel()

    def take(self) -> Stop:
        """Return the stop to tell the machine; from then on effects run undisturbed."""
        assert self._stop is not None, "taken before it was asked for"
        self.due = False
        return self._stop
