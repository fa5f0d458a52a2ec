"""Stores: what keeps the messages of conversations and the snapshots of suspended runs from run to run.

The protocol, its errors, and the checks that every store makes of what it is given. Knows no database, and
nothing of what a snapshot says.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Final, Protocol, Self

from ..capabilities.messages import Message, as_messages
from .errors import by_parts

# A key of an index in PostgreSQL is at most 2704 bytes long; as many characters always fit.
MAX_NAME: Final = 512


class StoreError(ValueError):
    """A store that cannot read or write, or that holds what cannot be read.

    `conversation` and `position` (of the message, from 0) say where, as far as one is to blame. What an
    operation that raised this should have written was not acknowledged: load again before writing it again.
    """

    def __init__(self, message: str, conversation: str | None = None, position: int | None = None) -> None:
        """Raise for a place in the store."""
        place = "" if conversation is None else f"conversation {conversation!r}: "
        super().__init__(f"{place}{message}")
        self.conversation = conversation
        self.position = position


class StoreConflict(ValueError):
    """Somebody else wrote to the conversation meanwhile; nothing was written.

    `expected` and `found`: how many messages the writer saw, and how many there are.
    """

    __reduce__ = by_parts

    def __init__(self, expected: int, found: int, conversation: str = "") -> None:
        """Raise for an append to a conversation."""
        which = f"conversation {conversation!r}" if conversation else "the conversation"
        super().__init__(
            f"{which} has {found} messages, and the writer saw {expected}: "
            "load it again, and append to what it is now"
        )
        self.expected = expected
        self.found = found
        self.conversation = conversation


class SnapshotClaimed(ValueError):
    """The snapshot of this run was claimed before: a suspended run is resumed once."""

    __reduce__ = by_parts

    def __init__(self, run_id: str) -> None:
        """Raise for a run."""
        super().__init__(f"the snapshot of run {run_id!r} was claimed already: it resumes the run once")
        self.run_id = run_id


class MessageStore(Protocol):
    """Where conversations and suspended runs are kept. Every operation happens whole, or not at all.

    A cancelled operation may have happened; the store is usable after it. Any number of tasks and event
    loops may use one store at once, and stores of several processes one database. All names are non-empty
    text of at most 512 characters. A database that cannot be read or written is a StoreError.
    """

    async def load(self, conversation: str) -> tuple[Message, ...]:
        """Return the messages of a conversation, oldest first; none of an unknown one.

        Raises StoreError naming conversation and position of a message that was damaged.
        """

    async def append(self, conversation: str, messages: Sequence[Message], expected: int) -> None:
        """Add messages to the end; `expected`: how many messages the writer saw there.

        When this returns, they are kept. Raises StoreConflict, and writes nothing, when there are more or
        fewer; CodecError for a message that cannot be written.
        """

    async def hold(self, run_id: str, snapshot: str) -> None:
        """Keep the snapshot of a run that was suspended, in place of one that was claimed.

        The text that waits already may be held again. Raises ValueError for a text that is no snapshot,
        SnapshotClaimed for the very one that was claimed, StoreError where another one waits; that one stays.
        """

    async def held(self, run_id: str) -> str:
        """Return the snapshot that waits, and leave it there.

        Raises LookupError for an unknown run, SnapshotClaimed when it was claimed.
        """

    async def claim(self, run_id: str, snapshot: str | None = None) -> str:
        """Take the snapshot that waits: of any number of claimants, one gets it.

        `snapshot`: claim only this one, as `held` returned it. Raises LookupError for an unknown run,
        SnapshotClaimed for a snapshot that somebody took before.
        """

    async def pending(self) -> tuple[str, ...]:
        """Return the ids of the runs whose snapshots wait, sorted."""

    async def close(self) -> None:
        """Wait for what is under way, and release connections; the next operation opens new ones."""

    async def __aenter__(self) -> Self:
        """Return the store; it is closed at the end."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Close the store."""


# --- what every store checks


def check_name(value: object, what: str) -> str:
    """Return the name of a conversation or run. Raises TypeError or ValueError for what no store could keep."""
    if type(value) is not str:
        raise TypeError(f"{what} must be a string, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{what} must not be empty")
    if len(value) > MAX_NAME:
        raise ValueError(f"{what} has {len(value)} characters; at most {MAX_NAME} can be kept")
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(
            f"{what} holds NUL or half of a surrogate pair, which no database keeps: {value!r:.80}"
        )
    return value


def check_append(messages: object, expected: object) -> tuple[Message, ...]:
    """Return the messages of an append. Raises TypeError or ValueError for what is none, or no count."""
    if type(expected) is not int:
        raise TypeError(
            f"expected must be the number of messages that were seen, not {type(expected).__name__}"
        )
    if expected < 0:
        raise ValueError(f"expected must be at least 0, not {expected}")
    return as_messages(messages)  # type: ignore[arg-type]  # it says what else was given


def check_snapshot(run_id: str, text: object) -> str:
    """Return the text of a snapshot. Raises TypeError or ValueError for any other text; it is read when resumed."""
    # Nobody who only keeps messages pays for loading the codec here; `late_codec` says how much that is.
    from .codec import open_envelope  # noqa: PLC0415  # see above
    from .errors import CodecError  # noqa: PLC0415  # beside its only user
    from .snapshot import KIND  # noqa: PLC0415  # a snapshot knows the machine, which may know a store

    if type(text) is not str:
        raise TypeError(
            f"the snapshot of run {run_id!r} must be the text of result.snapshot(), not {type(text).__name__}"
        )
    try:
        open_envelope(text, KIND, object)
    except CodecError as error:
        raise ValueError(
            f"the snapshot of run {run_id!r} is not what result.snapshot() returns: {error}"
        ) from error
    return text


def other_waits(run_id: str) -> StoreError:
    """Return the error for a snapshot of a run id under which another one waits."""
    return StoreError(
        f"another snapshot of run {run_id!r} waits in this store, and nothing was written: "
        "resume or claim that one first, or give the new run another run_id"
    )


def unknown_run(run_id: str) -> LookupError:
    """Return the error for a run that was never held."""
    return LookupError(f"run {run_id!r} is not in this store: no snapshot of it was ever held here")
