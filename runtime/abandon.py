"""A tool's body that can be left behind: it runs in a task that no group waits for.

Only for runs that a caller can stop. Structured concurrency waits for every task, also for one that ignores its
cancellation; a stop must not. Knows nothing of outcomes or how a run goes on.
"""

import contextvars
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import anyio
from anyio import get_cancelled_exc_class

from .control import Patience
from .port import on_asyncio

if TYPE_CHECKING:
    import asyncio

Body: TypeAlias = Callable[[], Awaitable[object]]
# An event loop keeps no reference to its tasks, and a task that was left behind has nobody else.
_RUNNING: "set[asyncio.Task[None]]" = set()


class Abandoned(Exception):
    """A body had not ended when its grace was over; it lives on, and nobody hears of it any more."""


class Leavable:
    """A body that is waited for no longer than `patience` says once it is cancelled; to be called once.

    `known`: when a stop has cut it short, what it came to all the same; called, it returns or raises that, or
    raises `Abandoned`. None when it ended by its cancellation. `in_thread`: no cancellation reaches the body.
    """

    def __init__(self, body: Body, patience: Patience, *, in_thread: bool) -> None:
        """Take a body that has not begun."""
        self.known: Callable[[], object] | None = None
        self._body = body
        self._patience = patience
        self._in_thread = in_thread

    async def __call__(self) -> object:
        """Run it to its end. Raises what it raises; where a stop has cut it short, that cancellation."""
        task = Detached(self._body)
        try:
            await task.ended.wait()
        except get_cancelled_exc_class():
            await self._end(task)
            if self._patience.grace is not None:
                self.known = self._what_is_known_of(task)
                raise  # also where it ended in time: on asyncio nobody would cancel what follows again
            if task.scope.cancelled_caught:
                raise
        return task.result()

    async def _end(self, task: "Detached") -> None:
        if self._patience.grace is None or not self._in_thread:
            task.scope.cancel()
        with self._patience.waiting():
            await task.ended.wait()
        task.scope.cancel()

    def _what_is_known_of(self, task: "Detached") -> Callable[[], object] | None:
        if not task.ended.is_set():
            return self._abandoned
        return None if task.scope.cancelled_caught else task.result

    def _abandoned(self) -> object:
        raise Abandoned(
            f"It had not ended {self._patience.grace:g} seconds after the run was stopped; it is not known whether "
            "it took effect."
        )


class Detached:
    """A body in a task of the event loop's own, outside of any group; cancelled by its scope, which shields hold."""

    def __init__(self, body: Body) -> None:
        """Start it at once, with the context variables of who starts it."""
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self._body = body
        self._value: object = None
        self._error: BaseException | None = None
        if on_asyncio():
            import asyncio  # noqa: PLC0415  # its loop runs, so it is there

            task = asyncio.get_running_loop().create_task(self._main())
            _RUNNING.add(task)
            task.add_done_callback(_RUNNING.discard)
        else:
            from trio.lowlevel import spawn_system_task  # noqa: PLC0415  # likewise

            spawn_system_task(self._main, context=contextvars.copy_context())

    async def _main(self) -> None:
        try:
            with self.scope:
                self._value = await self._body()
        except get_cancelled_exc_class() as error:
            self._error = error  # of something that it waited for, or the loop itself ends
            raise
        except BaseException as error:  # noqa: BLE001  # `result` raises it, where somebody waits for it
            self._error = error
        finally:
            self.ended.set()

    def result(self) -> object:
        """Return what the body returned, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return self._value
