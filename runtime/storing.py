"""What a store keeps of a suspended run, and what a store that failed means for a run."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from anyio import get_cancelled_exc_class
from anyio.lowlevel import checkpoint
from attrs import frozen

from .at_last import to_its_end
from .errors import StoreFailed, message_of, run_error
from .port import is_stray, strayed
from .result import RunResult
from .stores import MessageStore, StoreConflict, StoreError

T = TypeVar("T")


def store_failed(what: str, error: BaseException, conversation: str | None = None) -> StoreFailed:
    """Return the reason of a run that its store failed; whatever a store raises counts as that."""
    expected, found = (error.expected, error.found) if isinstance(error, StoreConflict) else (None, None)
    name = "" if isinstance(error, StoreConflict) else f"{type(error).__name__}: "
    return StoreFailed(
        message=f"{what}: {name}{message_of(error)}",
        conversation=conversation,
        expected=expected,
        found=found,
    )


async def hold(store: MessageStore, result: RunResult[object]) -> None:
    """Keep a suspended run in the store, so that it can be resumed by its id.

    Raises StorageError when that fails; the suspended run is its `partial`, and can be resumed all the same.
    """
    run_id = result.state.run_id
    failed: list[Exception] = []

    async def keep() -> None:
        try:
            await store.hold(run_id, result.snapshot())
        except get_cancelled_exc_class() as error:
            if not is_stray(error):
                raise
            failed.append(strayed(error))
        except Exception as error:  # noqa: BLE001  # a store may be the user's; the caller is told what it raised
            failed.append(error)

    if not await to_its_end(keep):
        failed.append(TimeoutError("it did not end in time when the run was cancelled"))
    if failed:
        what = f"the suspended run {run_id!r} could not be held"
        raise run_error(store_failed(what, failed[0]), result, failed[0])


async def answer_of(operation: Awaitable[T]) -> T:
    """Return what an operation of a store returns. Raises StoreError for one that nobody cancelled and that was."""
    try:
        return await operation
    except get_cancelled_exc_class() as error:
        if not is_stray(error):
            raise
        raise StoreError(str(strayed(error))) from error


@frozen
class Claim:
    """The snapshot of a run that is about to go on, in its store."""

    store: MessageStore
    run_id: str
    text: str

    async def taken(self, close: Callable[[], Awaitable[None]]) -> None:
        """Claim it. Raises what the store does: SnapshotClaimed, StoreError.

        Cancelled meanwhile, it waits a little for the store: a run that was claimed goes on nowhere else, so it is
        ended by `close`, as one that is cancelled later.
        """
        claimed = False

        async def claim() -> None:
            nonlocal claimed
            await answer_of(self.store.claim(self.run_id, self.text))
            claimed = True

        try:
            await to_its_end(claim)
            await checkpoint()  # a cancellation that came meanwhile counts here, before anything runs
        except BaseException:
            if claimed:
                await close()
            raise
