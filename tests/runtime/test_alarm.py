"""One timer for all leaves of a loop does what anyio's scopes do."""

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from capfold.runtime.alarm import Alarm

Bounded = Callable[[Callable[[], Awaitable[object]], float], Awaitable[object]]


async def plainly(step: Callable[[], Awaitable[object]], timeout: float) -> object:  # noqa: ASYNC109  # the twin
    """The plain twin."""
    with anyio.fail_after(timeout):
        return await step()


@pytest.fixture
def anyio_backend() -> str:
    """Only asyncio has the alarm."""
    return "asyncio"


@pytest.fixture(params=["alarm", "plain"])
async def bounded(request: pytest.FixtureRequest) -> Bounded:
    """The alarm and its twin."""
    return Alarm().bounded if request.param == "alarm" else plainly


async def test_ends_in_time(bounded: Bounded) -> None:
    """What ends in time returns, at once or later, and its own errors pass."""

    async def quick() -> int:
        return 1

    async def soon() -> int:
        await anyio.lowlevel.checkpoint()
        return 2

    async def broken() -> None:
        raise ValueError("mine")

    assert [1, 2] == [await bounded(quick, 60.0), await bounded(soon, 60.0)]
    with pytest.raises(ValueError, match="mine"):
        await bounded(broken, 60.0)


async def test_late(bounded: Bounded) -> None:
    """What is late is cancelled and a TimeoutError; what ran beside it with more time goes on."""
    ended: list[str] = []

    async def slow() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("slow")

    async def late() -> None:
        with pytest.raises(TimeoutError):
            await bounded(slow, 0.01)

    async def patient() -> None:
        async def wait() -> None:
            await anyio.sleep(0.05)

        await bounded(wait, 60.0)
        ended.append("patient")

    async with anyio.create_task_group() as group:
        group.start_soon(patient)
        group.start_soon(late)
        group.start_soon(late)
    assert ["slow", "slow", "patient"] == ended


async def test_shorter_after_longer(bounded: Bounded) -> None:
    """A deadline before the one that the timer was set for is kept too, and an inner one does not end the outer."""

    async def inner() -> str:
        with pytest.raises(TimeoutError):
            await bounded(anyio.sleep_forever, 0.01)
        return "outer went on"

    assert "outer went on" == await bounded(inner, 60.0)


async def test_a_swallowed_cancellation_comes_again(bounded: Bounded) -> None:
    """A step that swallows its cancellation and goes on waiting is cancelled again, and is late."""
    swallowed: list[int] = []

    async def stubborn() -> None:
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            swallowed.append(1)
        await anyio.sleep_forever()

    with pytest.raises(TimeoutError):
        await bounded(stubborn, 0.01)
    task = asyncio.current_task()
    assert [1] == swallowed
    assert task is not None
    assert 0 == task.cancelling()


async def test_cancellation_from_elsewhere_stays_one(bounded: Bounded) -> None:
    """A task that is cancelled from outside is cancelled, not timed out; so is one in an anyio scope."""
    task = asyncio.ensure_future(bounded(anyio.sleep_forever, 60.0))
    await anyio.lowlevel.checkpoint()
    await anyio.lowlevel.checkpoint()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with anyio.move_on_after(0.01) as scope:
        await bounded(anyio.sleep_forever, 60.0)
    assert scope.cancelled_caught
