"""Work that goes on though its caller is cancelled: to its end, or as long as is granted."""

import asyncio

import anyio
import anyio.lowlevel
import pytest

from capfold.runtime.at_last import to_its_end


async def test_undisturbed() -> None:
    """It is awaited, in the caller's time."""
    done: list[int] = []

    async def work() -> None:
        await anyio.lowlevel.checkpoint()
        done.append(1)

    assert await to_its_end(work)
    assert [1] == done


async def test_a_cancelled_caller_waits_for_its_end() -> None:
    """The work ends first, then the cancellation goes on."""
    begun, go_on, done = anyio.Event(), anyio.Event(), anyio.Event()

    async def work() -> None:
        begun.set()
        await go_on.wait()
        done.set()

    async with anyio.create_task_group() as group:
        group.start_soon(to_its_end, work)
        await begun.wait()
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.wait_all_tasks_blocked()
            assert not done.is_set()
            go_on.set()
            await done.wait()


async def test_no_longer_than_is_granted() -> None:
    """Work that does not end is cancelled, and said not to have come to its end."""
    begun = anyio.Event()
    told: list[object] = []

    async def work() -> None:
        begun.set()
        await anyio.sleep_forever()

    async def call() -> None:
        try:
            told.append(await to_its_end(work, grace=0.01))
        except anyio.get_cancelled_exc_class():
            told.append("cancelled")
            raise

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await begun.wait()
        group.cancel_scope.cancel()
    assert told in ([False], ["cancelled"])


async def test_a_caller_that_is_cancelled_already() -> None:
    """What must be done at last is done even then."""
    done: list[int] = []

    async def work() -> None:
        await anyio.sleep(0.01)
        done.append(1)

    with anyio.CancelScope() as scope:
        scope.cancel()
        await to_its_end(work)
    assert [1] == done


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3), KeyboardInterrupt()])
async def test_what_it_raises_comes_out_as_it_is(error: BaseException) -> None:
    """Not in a group, whatever it is."""

    async def work() -> None:
        await anyio.lowlevel.checkpoint()
        raise error

    with pytest.raises(type(error)) as caught:
        await to_its_end(work)
    assert error is caught.value


def test_a_task_that_asyncio_cancels() -> None:
    """Its own cancellation, of a timeout say, knows no shield: the work is in another task."""
    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0.05)
        done.append("work")

    async def main() -> None:
        task = asyncio.create_task(to_its_end(work))
        await asyncio.sleep(0.01)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            done.append("cancelled")

    asyncio.run(main())
    assert ["work", "cancelled"] == done
