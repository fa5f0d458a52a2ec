"""What stands in a database that keeps conversations, and the statements that read and write it.

One row for each message, its key the place in the conversation: an append costs its own messages, and the key
itself keeps two writers apart. A digest in each row finds what was damaged or edited. Each function is one
operation within a transaction that the caller began and ends. Knows no driver, no thread and no event loop.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from ..capabilities.frozen import digest
from ..capabilities.messages import Message
from .codec import SCHEMA_VERSION, from_text, to_text
from .errors import CodecError
from .stores import SnapshotClaimed, StoreConflict, StoreError, other_waits, unknown_run

# Of the tables below. What a message looks like has a version of its own, in each row: old rows stay as they are.
VERSION: Final = 1
_MESSAGES: Final = (
    "CREATE TABLE IF NOT EXISTS capfold_messages (conversation TEXT NOT NULL, place INTEGER NOT NULL, "
    "codec INTEGER NOT NULL, digest TEXT NOT NULL, message TEXT NOT NULL, PRIMARY KEY (conversation, place))"
)
_SNAPSHOTS: Final = (
    "CREATE TABLE IF NOT EXISTS capfold_snapshots (run_id TEXT NOT NULL PRIMARY KEY, "
    "claimed INTEGER NOT NULL, digest TEXT NOT NULL, snapshot TEXT NOT NULL)"
)
TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS capfold_schema (version INTEGER NOT NULL)",
    _MESSAGES,
    _SNAPSHOTS,
)
_VERSION: Final = (
    "INSERT INTO capfold_schema (version) "
    "SELECT CAST(? AS INTEGER) WHERE NOT EXISTS (SELECT 1 FROM capfold_schema)"
)
_COUNT: Final = "SELECT COALESCE(MAX(place) + 1, 0) FROM capfold_messages WHERE conversation = ?"
_LOAD: Final = (
    "SELECT place, codec, digest, message FROM capfold_messages WHERE conversation = ? ORDER BY place"
)
_APPEND: Final = (
    "INSERT INTO capfold_messages (conversation, place, codec, digest, message) VALUES (?, ?, ?, ?, ?)"
)
# Waits for a writer who took the place and has not committed, and writes nothing when that one does.
_APPEND_FIRST: Final = f"{_APPEND} ON CONFLICT (conversation, place) DO NOTHING"
_HOLD: Final = (
    "INSERT INTO capfold_snapshots (run_id, claimed, digest, snapshot) VALUES (?, 0, ?, ?) "
    "ON CONFLICT (run_id) DO UPDATE SET claimed = 0, digest = excluded.digest, snapshot = excluded.snapshot "
    # A second attempt to hold what was held, and claimed, must not let it be claimed again; and what waits
    # is not lost to another run of the same id. The row is locked even where it stays as it is.
    "WHERE (capfold_snapshots.claimed = 0) = (capfold_snapshots.snapshot = excluded.snapshot)"
)
_REPLACE: Final = "UPDATE capfold_snapshots SET digest = ?, snapshot = ? WHERE run_id = ?"
_HELD: Final = "SELECT claimed, digest, snapshot FROM capfold_snapshots WHERE run_id = ?"
_CLAIM: Final = "UPDATE capfold_snapshots SET claimed = 1 WHERE run_id = ? AND claimed = 0"
_PENDING: Final = "SELECT run_id FROM capfold_snapshots WHERE claimed = 0"

# conversation, position, codec's version, digest, message
Row = tuple[str, int, int, str, str]


class Cursor(Protocol):
    """What is needed of a driver; parameters stand as `?`."""

    @property
    def rowcount(self) -> int:
        """How many rows the last statement wrote."""

    def execute(self, sql: str, parameters: tuple[object, ...] = (), /) -> object:
        """Execute a statement."""

    def executemany(self, sql: str, rows: Iterable[tuple[object, ...]], /) -> object:
        """Execute a statement for each row."""

    def fetchall(self) -> Sequence[tuple[Any, ...]]:  # Any: a damaged database may hold anything
        """Return the rows of the last statement, which selected some."""


# --- tables


def has_tables(cursor: Cursor, exists: str) -> bool:
    """Tell whether the tables are there; `exists`: a statement that returns a row if `capfold_schema` is.

    Raises StoreError when they are of another version.
    """
    cursor.execute(exists)
    if not cursor.fetchall():
        return False
    cursor.execute("SELECT version FROM capfold_schema")
    found = [row[0] for row in cursor.fetchall()]
    if found == [VERSION]:
        return True
    if len(found) == 1 and type(found[0]) is int and found[0] > VERSION:
        raise StoreError(
            f"the database has schema version {found[0]}, of a newer capfold; this one reads version {VERSION}"
        )
    raise StoreError(
        f"the table capfold_schema holds {found!r:.80} in place of one version, such as {VERSION}"
    )


def make_tables(cursor: Cursor) -> None:
    """Make the tables that are missing; the caller sees to it that nobody else does so meanwhile."""
    for statement in TABLES:
        cursor.execute(statement)
    cursor.execute(_VERSION, (VERSION,))


# --- messages


def rows_of(conversation: str, messages: Sequence[Message], first: int) -> list[Row]:
    """Return the rows of messages, the first at position `first`. Raises CodecError."""
    rows: list[Row] = []
    for position, message in enumerate(messages, first):
        text = to_text(message, type=Message)
        seal = digest([conversation, position, SCHEMA_VERSION, text])
        rows.append((conversation, position, SCHEMA_VERSION, seal, text))
    return rows


def append(cursor: Cursor, conversation: str, rows: Sequence[Row], expected: int) -> None:
    """Write rows, whose first position is `expected`. Raises StoreConflict; the caller then rolls back."""
    found = _count(cursor, conversation)
    if found == expected and rows:
        # Whoever else is writing began at the same place: that first row decides which of the two may.
        cursor.execute(_APPEND_FIRST, rows[0])
        if cursor.rowcount == 1:
            if len(rows) > 1:
                cursor.executemany(_APPEND, rows[1:])
            return
        found = _count(cursor, conversation)
    if found != expected or rows:
        raise StoreConflict(expected, found, conversation)


def _count(cursor: Cursor, conversation: str) -> int:
    cursor.execute(_COUNT, (conversation,))
    ((found,),) = cursor.fetchall()
    return int(found)


def load(cursor: Cursor, conversation: str) -> tuple[Message, ...]:
    """Return the messages of a conversation. Raises StoreError for a row that is missing, damaged or unknown."""
    cursor.execute(_LOAD, (conversation,))
    return tuple(_message(conversation, i, row) for i, row in enumerate(cursor.fetchall()))


def _message(conversation: str, i: int, row: tuple[Any, ...]) -> Message:  # Any: as `fetchall`
    position, version, seal, text = row
    if position != i:
        raise StoreError(f"message {i} is missing, though there are later ones", conversation, i)
    if type(version) is not int or type(text) is not str:
        raise StoreError(f"message {i} is damaged: it is no text with a version", conversation, i)
    if seal != digest([conversation, i, version, text]):
        raise StoreError(
            f"message {i} is damaged: it was changed after it was written: {text!r:.80}", conversation, i
        )
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"message {i} was written in version {version}; this capfold reads version {SCHEMA_VERSION}",
            conversation,
            i,
        )
    try:
        return from_text(text, Message)  # type: ignore[return-value]  # a union, which has no type[...]
    except CodecError as error:
        raise StoreError(f"message {i} cannot be read: {error}", conversation, i) from error


# --- snapshots


def hold(cursor: Cursor, run_id: str, snapshot: str) -> None:
    """Keep a snapshot in place of one that was claimed, or is damaged: nobody could claim that one.

    Raises SnapshotClaimed for the one that was claimed, StoreError where another one waits; the caller rolls back.
    """
    seal = digest([run_id, snapshot])
    cursor.execute(_HOLD, (run_id, seal, snapshot))
    if cursor.rowcount == 1:
        return
    cursor.execute(_HELD, (run_id,))
    ((taken, found, text),) = cursor.fetchall()
    if taken:
        raise SnapshotClaimed(run_id)
    if _is_whole(run_id, found, text):
        raise other_waits(run_id)
    cursor.execute(_REPLACE, (seal, snapshot, run_id))


def _is_whole(run_id: str, seal: object, text: object) -> bool:
    return type(text) is str and seal == digest([run_id, text])


def held(cursor: Cursor, run_id: str, *, claimed: bool = False) -> str:
    """Return the snapshot of a run; `claimed`: as it is right after this claim.

    Raises LookupError for an unknown run, SnapshotClaimed, StoreError for a damaged one.
    """
    cursor.execute(_HELD, (run_id,))
    for taken, seal, text in cursor.fetchall():
        if taken and not claimed:
            raise SnapshotClaimed(run_id)
        if not _is_whole(run_id, seal, text):
            raise StoreError(
                f"the snapshot of run {run_id!r} is damaged: it was changed after it was written"
            )
        return str(text)
    raise unknown_run(run_id)


def claim(cursor: Cursor, run_id: str, snapshot: str | None) -> str:
    """Take the snapshot of a run, if it is this one. Raises as `held`; the caller then rolls back."""
    cursor.execute(_CLAIM, (run_id,))
    # Where no row was changed, `held` says why. The row of a claim is locked until the transaction ends.
    found = held(cursor, run_id, claimed=cursor.rowcount == 1)
    if snapshot is not None and snapshot != found:
        raise SnapshotClaimed(run_id)
    return found


def pending(cursor: Cursor) -> tuple[str, ...]:
    """Return the ids of the runs whose snapshots wait, sorted."""
    cursor.execute(_PENDING)
    return tuple(sorted(str(run_id) for (run_id,) in cursor.fetchall()))
