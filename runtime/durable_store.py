"""The store of a run that may have saved before its worker was lost: what it finds saved is not saved again.

Knows nothing of runs or engines.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from ..capabilities.messages import Message
from .stores import MessageStore, StoreConflict


class KeptOnce:
    """A store for one save that was begun before, and of which nobody recorded what came of it."""

    def __init__(self, store: MessageStore) -> None:
        """Stand before a store."""
        self._store = store

    async def load(self, conversation: str) -> tuple[Message, ...]:
        """Return the messages of a conversation."""
        return await self._store.load(conversation)

    async def append(self, conversation: str, messages: Sequence[Message], expected: int) -> None:
        """Add messages to the end, unless exactly these were added there. Raises as the store does."""
        try:
            await self._store.append(conversation, messages, expected)
        except StoreConflict:
            there = (await self._store.load(conversation))[expected : expected + len(messages)]
            if there != tuple(messages):
                raise

    async def hold(self, run_id: str, snapshot: str) -> None:
        """Keep a snapshot."""
        await self._store.hold(run_id, snapshot)

    async def held(self, run_id: str) -> str:
        """Return the snapshot that waits."""
        return await self._store.held(run_id)

    async def claim(self, run_id: str, snapshot: str | None = None) -> str:
        """Take the snapshot that waits."""
        return await self._store.claim(run_id, snapshot)

    async def pending(self) -> tuple[str, ...]:
        """Return the ids of the runs that wait."""
        return await self._store.pending()

    async def close(self) -> None:
        """Leave the store open: it is another's."""

    async def __aenter__(self) -> Self:
        """Stand before it."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave it open."""
