"""SQLiteCounter: units that the runs of many processes share, in one file. Knows no other table than its own."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from attrs import Factory, field, frozen

from .counter import check_reservation
from .sqlite_store import explained, file_path, open_file, write_ahead
from .store_threads import Connections

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")
_TABLE: Final = "CREATE TABLE IF NOT EXISTS capfold_counter (name TEXT PRIMARY KEY, used INTEGER NOT NULL)"
# One statement is one transaction: whether there is room is asked and answered under the same lock.
_RESERVE: Final = (
    "INSERT INTO capfold_counter (name, used) VALUES (?, ?) "
    "ON CONFLICT (name) DO UPDATE SET used = used + excluded.used WHERE used + excluded.used <= ?"
)
_MOST: Final = 2**63 - 1  # the largest integer of SQLite
_USED: Final = "SELECT used FROM capfold_counter WHERE name = ?"


def _path(value: object) -> str:
    return file_path(value, "SQLiteCounter", "Counter() is the counter in memory")


@frozen
class SQLiteCounter:
    """Counts in a SQLite file, for all processes of one machine; the first operation makes it, for its owner only.

    Its folder must exist. A reservation is on the disk before it is told. The file may be that of a
    `SQLiteStore`, and hold tables of other programs. Raises TypeError or ValueError for what is no path,
    StoreError for a file that cannot be read or written.
    """

    path: str = field(converter=_path)
    _connections: "Connections[sqlite3.Connection]" = field(
        init=False,
        eq=False,
        repr=False,
        # The file stays the same one when the process changes its working directory.
        default=Factory(lambda self: _connections(str(Path(self.path).absolute())), takes_self=True),
    )

    async def reserve(self, name: str, n: int, limit: int) -> bool:
        """Take `n` units of a name, all or none, unless that makes more than `limit`; return whether they were taken.

        A reservation that was cancelled may have been made. Raises TypeError or ValueError for a name, a number or
        a limit that is none, StoreError for the file.
        """
        check_reservation(name, n, limit)
        most = min(limit, _MOST)
        if n > most:  # the statement looks at a row that is there; one that is not has 0
            return False

        def work(connection: "sqlite3.Connection") -> bool:
            with closing(connection.execute(_RESERVE, (name, n, most))) as cursor:
                return cursor.rowcount == 1

        return await self._done(work)

    async def used(self, name: str) -> int:
        """Return how many units of a name are taken. Raises StoreError for the file."""

        def work(connection: "sqlite3.Connection") -> int:
            with closing(connection.execute(_USED, (name,))) as cursor:
                row = cursor.fetchone()
            return 0 if row is None else int(row[0])

        return await self._done(work)

    async def close(self) -> None:
        """Wait for what is under way, and close the file; the next operation opens it again."""
        await self._connections.close()

    async def _done(self, work: "Callable[[sqlite3.Connection], T]") -> T:
        return await self._connections.run(
            lambda connection: explained(self.path, None, lambda: work(connection))
        )


def _connections(path: str) -> "Connections[sqlite3.Connection]":
    return Connections(partial(_open, path), size=1, harmless=())


def _open(path: str) -> "sqlite3.Connection":
    return open_file(path, _set_up)


def _set_up(connection: "sqlite3.Connection", path: str) -> None:
    cursor = connection.cursor()
    write_ahead(cursor, path)
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute(_TABLE)
