"""The port: the leaf effects of a run, and nothing of its rules. The local one is anyio, on asyncio and trio.

A durable engine is another port: it performs the same leaves, one recorded step each.
"""

import inspect
import random as random_module
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import anyio

from ..capabilities.messages import AssistantMessage
from .decisions import ApprovalRequest, Approver, Decision
from .models import Meter, Model, ModelError, ModelRequest

T = TypeVar("T")
Step: TypeAlias = Callable[
    [], Coroutine[Any, Any, None]
]  # Any: what it yields to its loop is the loop's affair


class Port(Protocol):
    """What a run needs from where it runs."""

    def now(self) -> float:
        """Return UTC seconds."""

    def new_id(self) -> str:
        """Return an id for a run that nobody else has."""

    def random(self) -> float:
        """Return a number in [0, 1)."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    async def request(
        self, model: Model, request: ModelRequest, meter: Meter, timeout: float | None
    ) -> AssistantMessage:
        """Send one model request, for at most `timeout` seconds. Raises ModelError."""

    async def bounded(self, step: Callable[[], Awaitable[T]], timeout: float | None) -> T:
        """Perform one leaf for at most `timeout` seconds. Raises TimeoutError."""

    async def together(self, steps: Sequence[Step], limit: int | None) -> None:
        """Perform steps at once, at most `limit` of them at a time; they raise nothing but cancellation."""

    async def ask(
        self, approver: Approver, requests: tuple[ApprovalRequest, ...], timeout: float | None
    ) -> Sequence[Decision]:
        """Ask the approver, for at most `timeout` seconds. Raises TimeoutError, and what the approver raises."""


def _uuid() -> str:
    import uuid

    return uuid.uuid4().hex


class LocalPort:
    """The port of this process. `clock` gives UTC seconds, `new_id` run ids, `random` numbers in [0, 1)."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = _uuid,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        """Take other sources of time, ids and randomness, for tests."""
        self.now = clock
        self.new_id = new_id
        self.random = random

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop."""
        await anyio.sleep(seconds)

    async def request(
        self, model: Model, request: ModelRequest, meter: Meter, timeout: float | None
    ) -> AssistantMessage:
        """Send one model request; a timeout is a retryable ModelError."""
        if timeout is None:
            return await model.request(request, meter)
        try:
            with anyio.fail_after(timeout):
                return await model.request(request, meter)
        except TimeoutError as error:
            raise ModelError("timeout", f"no response within {timeout} seconds", retryable=True) from error

    async def bounded(self, step: Callable[[], Awaitable[T]], timeout: float | None) -> T:
        """Perform one leaf under its timeout."""
        if timeout is None:
            return await step()
        if _on_asyncio():
            return await _bounded_on_asyncio(step, timeout)
        with anyio.fail_after(timeout):
            return await step()

    async def together(self, steps: Sequence[Step], limit: int | None) -> None:
        """Perform steps at once; on asyncio in its own task group, 2 us a step instead of anyio's 11."""
        if limit is not None and limit < len(steps):
            await self._some(steps, limit)
        elif _on_asyncio():
            import asyncio

            async with asyncio.TaskGroup() as tasks:
                for step in steps:
                    tasks.create_task(step())
        else:
            async with anyio.create_task_group() as group:
                for step in steps:
                    group.start_soon(step)

    async def _some(self, steps: Sequence[Step], limit: int) -> None:
        waiting = iter(steps)

        async def work() -> None:
            for step in waiting:
                await step()

        async with anyio.create_task_group() as group:
            for _ in range(limit):
                group.start_soon(work)

    async def ask(
        self, approver: Approver, requests: tuple[ApprovalRequest, ...], timeout: float | None
    ) -> Sequence[Decision]:
        """Ask a sync approver in a worker thread, an async one on the loop."""

        async def asked() -> Sequence[Decision]:
            if not inspect.iscoroutinefunction(approver):
                # In a list: trio takes no coroutine from a thread, and a plain callable may return one.
                (answer,) = await anyio.to_thread.run_sync(
                    lambda: [approver(requests)], abandon_on_cancel=True
                )
            else:
                answer = approver(requests)
            return await answer if inspect.isawaitable(answer) else answer

        return await self.bounded(asked, timeout)


async def _bounded_on_asyncio(step: Callable[[], Awaitable[T]], timeout: float) -> T:
    """Do what `anyio.fail_after` does, by one timer: 1 us for a body that is done at once, anyio's scope 12.

    The same count of cancellations as in `asyncio.timeout` (3.11): a cancellation from elsewhere stays one.
    """
    import asyncio

    task = asyncio.current_task()
    assert task is not None, "a port runs in a task"
    expired: list[bool] = []
    asked = task.cancelling()

    def expire() -> None:
        expired.append(True)
        task.cancel()

    timer = asyncio.get_running_loop().call_later(timeout, expire)
    try:
        return await step()
    except asyncio.CancelledError as error:
        if expired and task.uncancel() <= asked:
            raise TimeoutError(f"no result within {timeout} seconds") from error
        raise
    finally:
        timer.cancel()


def is_stray(error: BaseException) -> bool:
    """Tell whether a cancellation is that of something a leaf waited for, while nobody cancels the leaf itself."""
    if not _on_asyncio():
        return False
    import asyncio

    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is not None and not task.cancelling()


def _on_asyncio() -> bool:
    asyncio = sys.modules.get("asyncio")  # where nobody has imported it, no loop of its can run
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
