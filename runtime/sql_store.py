"""What the stores in databases share: the operations, each one transaction in a worker thread. Knows no driver."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from attrs import frozen

from ..capabilities.messages import Message
from .stores import check_append, check_name, check_snapshot

if TYPE_CHECKING:
    from .store_sql import Cursor

T = TypeVar("T")


@frozen
class SqlStore(ABC):
    """A store in a database. `MessageStore` says what its operations do and raise.

    The statements are imported by the first operation: with the codec they cost 40 ms.
    """

    @abstractmethod
    async def _read(self, work: "Callable[[Cursor], T]", conversation: str | None = None) -> T:
        """Return what `work` reads. Raises StoreError naming the conversation when the database fails."""

    @abstractmethod
    async def _write(self, work: "Callable[[Cursor], T]", conversation: str | None = None) -> T:
        """Return what `work` returns when all it wrote was kept; nothing is when it raises."""

    @abstractmethod
    async def close(self) -> None:
        """Wait for what is under way, and release connections; the next operation opens new ones."""

    async def load(self, conversation: str) -> tuple[Message, ...]:
        """Return the messages of a conversation, none of an unknown one. Raises StoreError."""
        from .store_sql import load  # noqa: PLC0415  # the class says why

        check_name(conversation, "conversation")
        return await self._read(lambda cursor: load(cursor, conversation), conversation)

    async def append(self, conversation: str, messages: Sequence[Message], expected: int) -> None:
        """Add messages to the end. Raises StoreConflict when there are not `expected`, CodecError, StoreError."""
        from .store_sql import append, rows_of  # noqa: PLC0415  # the class says why

        check_name(conversation, "conversation")
        rows = rows_of(conversation, check_append(messages, expected), expected)
        await self._write(lambda cursor: append(cursor, conversation, rows, expected), conversation)

    async def hold(self, run_id: str, snapshot: str) -> None:
        """Keep the snapshot of a suspended run. Raises ValueError, SnapshotClaimed, StoreError."""
        from .store_sql import hold  # noqa: PLC0415  # the class says why

        check_snapshot(check_name(run_id, "run_id"), snapshot)
        await self._write(lambda cursor: hold(cursor, run_id, snapshot))

    async def held(self, run_id: str) -> str:
        """Return the snapshot that waits. Raises LookupError, SnapshotClaimed, StoreError."""
        from .store_sql import held  # noqa: PLC0415  # the class says why

        check_name(run_id, "run_id")
        return await self._read(lambda cursor: held(cursor, run_id))

    async def claim(self, run_id: str, snapshot: str | None = None) -> str:
        """Take the snapshot that waits, once. Raises LookupError, SnapshotClaimed, StoreError."""
        from .store_sql import claim  # noqa: PLC0415  # the class says why

        check_name(run_id, "run_id")
        return await self._write(lambda cursor: claim(cursor, run_id, snapshot))

    async def pending(self) -> tuple[str, ...]:
        """Return the ids of the runs whose snapshots wait, sorted. Raises StoreError."""
        from .store_sql import pending  # noqa: PLC0415  # the class says why

        return await self._read(pending)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.close()
