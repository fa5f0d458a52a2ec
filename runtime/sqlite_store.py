"""The store in a SQLite file: the embedded default, for one machine, any number of its processes.

What is acknowledged is on the disk: the log is written ahead (WAL) and synchronised at each commit (FULL, which
only takes one fsync in WAL mode; NORMAL would lose the last appends when the power fails). Knows no statement
but those of the file itself.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

from attrs import Factory, field, frozen

from .sql_store import SqlStore
from .store_threads import Connections
from .stores import SnapshotClaimed, StoreConflict, StoreError

if TYPE_CHECKING:
    import sqlite3

    from .store_sql import Cursor

T = TypeVar("T")
BUSY_SECONDS: Final = 30.0  # how long one process waits for another one that writes
_EXISTS: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'capfold_schema'"
_MEANINGS: Final = {
    "SQLITE_FULL": "the disk is full",
    "SQLITE_IOERR": "the file system could not read or write",
    "SQLITE_BUSY": f"another process kept it locked for {BUSY_SECONDS:.0f} seconds",
    "SQLITE_CORRUPT": "the file is damaged",
    "SQLITE_NOTADB": "the file is no SQLite database, or damaged",
    "SQLITE_READONLY": "it may only be read",
    "SQLITE_CANTOPEN": "it cannot be opened",
}
# A file is made by opening it once, and closing a file ends the locks that this process has on it.
_MAKING: Final = Lock()


def file_path(value: object, owner: str, instead: str) -> str:
    """Return the path of a file that `owner` keeps. `instead`: what is in memory. Raises TypeError or ValueError."""
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{owner} takes the path of a file, not {value!r:.80}")
    path = os.fspath(value)
    if not isinstance(path, str):
        raise TypeError(f"{owner} takes a path that is text, not {path!r:.80}")
    if path == ":memory:":
        raise ValueError(f"{owner} keeps a file, not ':memory:': {instead}")
    if not path or "\0" in path:
        raise ValueError(f"{owner} takes the path of a file, not {path!r:.80}")
    return path


def _path(value: object) -> str:
    return file_path(value, "SQLiteStore", "MemoryStore() is the store in memory")


@frozen
class SQLiteStore(SqlStore):
    """Conversations and suspended runs in a SQLite file, which the first operation makes, for its owner only.

    Its folder must exist. One connection, used by one operation at a time; the file may be used by other
    stores and processes at once, and hold tables of other programs. It must be on a local disk.
    Raises TypeError or ValueError for what is no path.
    """

    path: str = field(converter=_path)
    _connections: "Connections[sqlite3.Connection]" = field(
        init=False,
        eq=False,
        repr=False,
        # The file stays the same one when the process changes its working directory.
        default=Factory(lambda self: _connections(str(Path(self.path).absolute())), takes_self=True),
    )

    async def close(self) -> None:
        """Wait for what is under way, and close the file; the next operation opens it again."""
        await self._connections.close()

    async def _read(self, work: "Callable[[Cursor], T]", conversation: str | None = None) -> T:
        return await self._connections.run(
            lambda connection: explained(self.path, conversation, lambda: work(connection.cursor()))
        )

    async def _write(self, work: "Callable[[Cursor], T]", conversation: str | None = None) -> T:
        return await self._connections.run(
            lambda connection: explained(self.path, conversation, lambda: transaction(connection, work))
        )


def _connections(path: str) -> "Connections[sqlite3.Connection]":
    return Connections(partial(_open, path), size=1, harmless=(StoreConflict, SnapshotClaimed, LookupError))


def explained(path: str, conversation: str | None, work: Callable[[], T]) -> T:
    """Return what `work` returns. Raises StoreError that says what SQLite's error means."""
    import sqlite3  # noqa: PLC0415  # 5 ms, for those who have such a store

    try:
        return work()
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        meaning = next((said for code, said in _MEANINGS.items() if name.startswith(code)), "it failed")
        raise StoreError(f"the database {path!r}: {meaning} ({error})", conversation) from error


def transaction(connection: "sqlite3.Connection", work: "Callable[[Cursor], T]") -> T:
    """Return what `work` returns once it is on the disk; the lock is taken at once, so nothing fails for it later."""
    cursor = connection.cursor()
    cursor.execute("BEGIN IMMEDIATE")
    try:
        result = work(cursor)
    except BaseException:
        if connection.in_transaction:  # SQLite ends it by itself for some errors
            cursor.execute("ROLLBACK")
        raise
    cursor.execute("COMMIT")
    return result


# --- opening


def _open(path: str) -> "sqlite3.Connection":
    return open_file(path, _set_up)


def open_file(path: str, set_up: "Callable[[sqlite3.Connection, str], None]") -> "sqlite3.Connection":
    """Return a connection to a file, which is made where it is missing, and set up. Raises StoreError."""
    import sqlite3  # noqa: PLC0415  # as above

    make_file(Path(path))

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            set_up(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection

    return explained(path, None, connect)


def make_file(path: Path) -> None:
    """Make the file, readable by its owner only, unless it is there. Raises StoreError where that cannot be."""
    if not path.parent.is_dir():
        raise StoreError(
            f"the database {str(path)!r} cannot be made: the folder {str(path.parent)!r} does not exist"
        )
    if path.is_dir():
        raise StoreError(f"the database {str(path)!r} is a folder: the path of a file is needed")
    with _MAKING:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return
        except OSError as error:
            raise StoreError(f"the database {str(path)!r} cannot be made: {error.strerror}") from error


def _set_up(connection: "sqlite3.Connection", path: str) -> None:
    from .store_sql import has_tables, make_tables  # noqa: PLC0415  # `SqlStore` says why

    tolerate_damage(connection)
    cursor = connection.cursor()
    found = has_tables(cursor, _EXISTS)  # looked at first: in the file of a newer version nothing is changed
    write_ahead(cursor, path)
    cursor.execute("PRAGMA synchronous=FULL")

    if not found:
        transaction(connection, make_tables)


def tolerate_damage(connection: "sqlite3.Connection") -> None:
    """Have text read with a mark where its bytes are none: a digest or seal finds the row; no query fails."""
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")


def write_ahead(cursor: "sqlite3.Cursor", path: str) -> None:
    """Have the file written ahead. Raises StoreError where it cannot be."""
    import sqlite3  # noqa: PLC0415  # as above

    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError as error:
            # Here, unlike elsewhere, SQLite does not wait for others who open the same file.
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    ((mode,),) = cursor.fetchall()
    if mode != "wal":
        raise StoreError(
            f"the database {path!r} cannot write ahead (its journal is {mode!r}): use a local disk"
        )
