"""What is to be done to its end, though the run is cancelled meanwhile: for as long as is granted, and no longer."""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

GRACE: Final = 2.0  # seconds


async def to_its_end(work: Callable[[], Awaitable[None]], grace: float = GRACE) -> bool:
    """Await `work`; when the caller is cancelled meanwhile, `grace` seconds more. Tell whether it came to its end.

    It runs in a task of its own: a task that asyncio itself cancels has no shield. What it raises comes out as it is.
    """
    shield = anyio.CancelScope(shield=True)
    raised: list[BaseException] = []
    done = False

    async def act() -> None:
        nonlocal done
        with shield:
            try:
                await work()
                done = True
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001  # raised below, outside the group, which would wrap it
                raised.append(error)
        group.cancel_scope.cancel()

    async def watch() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            shield.deadline = min(shield.deadline, anyio.current_time() + grace)

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        group.start_soon(act)
    if raised:
        raise raised[0]
    return done
