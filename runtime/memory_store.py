"""The store in memory: for tests, and for conversations that end with the process. Knows no database."""

from collections.abc import Sequence
from threading import Lock
from types import TracebackType
from typing import Self

from attrs import field, frozen

from ..capabilities.messages import Message
from .stores import (
    SnapshotClaimed,
    StoreConflict,
    check_append,
    check_name,
    check_snapshot,
    other_waits,
    unknown_run,
)


@frozen
class _Held:
    """The snapshot of a run, and whether it was claimed."""

    snapshot: str
    claimed: bool = False


@frozen(eq=False)
class MemoryStore:
    """Conversations and suspended runs in memory; another object is another store.

    Any number of tasks, event loops and threads may use one. Closing it is no matter: it keeps what it has.
    """

    _lock: Lock = field(init=False, repr=False, factory=Lock)
    _conversations: dict[str, tuple[Message, ...]] = field(init=False, repr=False, factory=dict)
    _runs: dict[str, _Held] = field(init=False, repr=False, factory=dict)

    async def load(self, conversation: str) -> tuple[Message, ...]:
        """Return the messages of a conversation, none of an unknown one."""
        return self._conversations.get(check_name(conversation, "conversation"), ())

    async def append(self, conversation: str, messages: Sequence[Message], expected: int) -> None:
        """Add messages to the end. Raises StoreConflict when there are more or fewer than `expected`."""
        check_name(conversation, "conversation")
        added = check_append(messages, expected)
        with self._lock:
            kept = self._conversations.get(conversation, ())
            if len(kept) != expected:
                raise StoreConflict(expected, len(kept), conversation)
            if added:
                self._conversations[conversation] = (*kept, *added)

    async def hold(self, run_id: str, snapshot: str) -> None:
        """Keep the snapshot of a suspended run. Raises SnapshotClaimed, StoreError where another one waits."""
        check_snapshot(check_name(run_id, "run_id"), snapshot)
        with self._lock:
            found = self._runs.get(run_id)
            if found is not None and found.claimed == (found.snapshot == snapshot):
                raise SnapshotClaimed(run_id) if found.claimed else other_waits(run_id)
            self._runs[run_id] = _Held(snapshot)

    async def held(self, run_id: str) -> str:
        """Return the snapshot that waits. Raises LookupError, SnapshotClaimed."""
        return self._waiting(check_name(run_id, "run_id"))

    async def claim(self, run_id: str, snapshot: str | None = None) -> str:
        """Take the snapshot that waits, once. Raises LookupError, SnapshotClaimed."""
        check_name(run_id, "run_id")
        with self._lock:
            found = self._waiting(run_id)
            if snapshot is not None and snapshot != found:
                raise SnapshotClaimed(run_id)
            self._runs[run_id] = _Held(found, claimed=True)
        return found

    async def pending(self) -> tuple[str, ...]:
        """Return the ids of the runs whose snapshots wait, sorted."""
        with self._lock:
            return tuple(sorted(run_id for run_id, held in self._runs.items() if not held.claimed))

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.close()

    def _waiting(self, run_id: str) -> str:
        held = self._runs.get(run_id)
        if held is None:
            raise unknown_run(run_id)
        if held.claimed:
            raise SnapshotClaimed(run_id)
        return held.snapshot
