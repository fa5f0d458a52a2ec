"""The port: the leaf effects of a run, and nothing of its rules. The local one is anyio, on asyncio and trio.

A durable engine is another port: it performs the same leaves, one recorded step each.
"""

import inspect
import os
import random as random_module
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from threading import local
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import anyio

from ..capabilities.injected import ToolContext
from ..capabilities.messages import AssistantMessage
from ..capabilities.tools import Tool
from .decisions import ApprovalRequest, Approver, Decision
from .events import Delta
from .models import Meter, Model, ModelError, ModelRequest, StreamingModel

if TYPE_CHECKING:
    from .alarm import Alarm

T = TypeVar("T")
# Any: what it yields to its loop is the loop's affair
Step: TypeAlias = Callable[[], Coroutine[Any, Any, object]]


class Late(TimeoutError):
    """A leaf took longer than it may; told from a TimeoutError that the leaf itself raised."""


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

    def request(
        self, model: Model, request: ModelRequest, meter: Meter, timeout: float | None
    ) -> Awaitable[AssistantMessage]:
        """Send one model request, for at most `timeout` seconds. Raises ModelError."""

    async def stream(
        self,
        model: StreamingModel,
        request: ModelRequest,
        meter: Meter,
        timeout: float | None,
        publish: Callable[[str], None],
    ) -> AssistantMessage:
        """Send one model request and publish each piece of text as it comes. Raises ModelError."""

    def bounded(self, step: Callable[[], Awaitable[T]], timeout: float | None) -> Awaitable[T]:
        """Perform one leaf for at most `timeout` seconds. Raises `Late`."""

    async def together(self, steps: Sequence[Step], limit: int | None) -> None:
        """Perform steps at once, at most `limit` of them at a time; they raise nothing but cancellation."""

    async def ask(
        self, approver: Approver, requests: tuple[ApprovalRequest, ...], timeout: float | None
    ) -> Sequence[Decision]:
        """Ask the approver, for at most `timeout` seconds. Raises `Late`, and what the approver raises."""


@runtime_checkable
class RunsTools(Protocol):
    """What a port has in addition that runs tools elsewhere: those that have no function in this process."""

    async def run_tool(self, tool: Tool, arguments: dict[str, object], context: ToolContext) -> object:
        """Run the body of a tool with arguments that were validated, and return what a tool may return.

        It is bounded, and its exceptions are the outcome of the call, as those of a function.
        """


def _random_id() -> str:
    return os.urandom(16).hex()  # a tenth of what a uuid4 costs, and six bits more of chance


class LocalPort:
    """The port of this process. `clock` gives UTC seconds, `new_id` run ids, `random` numbers in [0, 1)."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = _random_id,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        """Take other sources of time, ids and randomness, for tests."""
        self.now = clock
        self.new_id = new_id
        self.random = random
        # One alarm per thread, which runs one loop at a time: agents are shared by threads with loops of their own.
        self._alarms = local()

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop."""
        await anyio.sleep(seconds)

    # Plain functions that hand on what there is to await: a coroutine of their own would be paid at each leaf.

    def request(
        self, model: Model, request: ModelRequest, meter: Meter, timeout: float | None
    ) -> Awaitable[AssistantMessage]:
        """Send one model request; a timeout is a retryable ModelError."""
        if timeout is None:
            return model.request(request, meter)
        return _request_within(model, request, meter, timeout)

    async def stream(
        self,
        model: StreamingModel,
        request: ModelRequest,
        meter: Meter,
        timeout: float | None,
        publish: Callable[[str], None],
    ) -> AssistantMessage:
        """Send one model request and publish its text as it comes; a timeout is a retryable ModelError."""
        said: list[str] = []
        with anyio.move_on_after(timeout) as scope:
            return await _streamed(model, request, meter, said, publish)
        assert scope.cancelled_caught
        late = f"no complete response within {timeout} seconds"
        raise ModelError("timeout", late, retryable=True, partial="".join(said))

    def bounded(self, step: Callable[[], Awaitable[T]], timeout: float | None) -> Awaitable[T]:
        """Perform one leaf under its timeout."""
        if timeout is None:
            return step()
        loop = _asyncio_loop()
        if loop is None:
            return _bounded(step, timeout)
        alarm: Alarm | None = getattr(self._alarms, "alarm", None)
        if alarm is None or alarm.loop is not loop:
            alarm = self._alarms.alarm = _new_alarm()
        return alarm.bounded(step, timeout)

    async def together(self, steps: Sequence[Step], limit: int | None) -> None:
        """Perform steps at once; on asyncio in its own task group, at a fifth of the cost of anyio's."""
        if limit is not None and limit < len(steps):
            await self._some(steps, limit)
        elif on_asyncio():
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

        try:
            return await self.bounded(asked, timeout)
        except anyio.get_cancelled_exc_class() as error:
            if not is_stray(error):
                raise
            raise strayed(error) from error


async def _streamed(
    model: StreamingModel,
    request: ModelRequest,
    meter: Meter,
    said: list[str],
    publish: Callable[[str], None],
) -> AssistantMessage:
    response: AssistantMessage | None = None
    async with model.stream(request, meter) as parts:
        async for part in parts:
            if response is not None:
                problem = f"its stream goes on after its response, with {type(part).__name__}"
                raise ModelError("invalid_response", problem, retryable=False, partial="".join(said))
            if isinstance(part, Delta):
                said.append(part.text)
                publish(part.text)
            else:
                response = part  # what is no message is refused by who asked for it
    if response is None:
        problem = "its stream ended without a response"
        raise ModelError("invalid_response", problem, retryable=False, partial="".join(said))
    return response


async def _request_within(
    model: Model, request: ModelRequest, meter: Meter, timeout: float
) -> AssistantMessage:
    try:
        with anyio.fail_after(timeout):
            return await model.request(request, meter)
    except TimeoutError as error:
        raise ModelError("timeout", f"no response within {timeout} seconds", retryable=True) from error


async def _bounded(step: Callable[[], Awaitable[T]], timeout: float) -> T:
    with anyio.move_on_after(timeout) as scope:
        return await step()
    assert scope.cancelled_caught
    raise Late(f"no result within {timeout} seconds")


def is_stray(error: BaseException) -> bool:
    """Tell whether a cancellation is that of something a leaf waited for, while nobody cancels the leaf itself."""
    if not on_asyncio():
        return False
    import asyncio

    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is not None and not task.cancelling()


def strayed(error: BaseException) -> RuntimeError:
    """Return what a stray cancellation means for who waited; `is_stray` tells that it is one."""
    told = RuntimeError("something it waited for was cancelled")
    told.__cause__ = error
    return told


def _asyncio_loop() -> object | None:
    asyncio = sys.modules.get("asyncio")  # where nobody has imported it, no loop of its can run
    if asyncio is None:
        return None
    try:
        return asyncio.get_running_loop()  # type: ignore[no-any-return]  # of a module found by name
    except RuntimeError:
        return None


def on_asyncio() -> bool:
    """Tell whether the running event loop is one of asyncio's."""
    return _asyncio_loop() is not None


def _new_alarm() -> "Alarm":
    from .alarm import Alarm  # it imports asyncio, which trio users need not pay for

    return Alarm()
