"""Sinks in databases: a row for each record, sealed in one chain that all writers of the database share.

Each write is one transaction in a worker thread, and acknowledged when it is on the disk. Knows no statement.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic

from ..capabilities.secret import Secret
from .audit import AuditRecord
from .errors import LogError
from .log_sql import SQLITE_EXISTS, TABLE, End, append, has_tables, make_tables
from .postgres_session import (
    Concealed,
    Questioned,
    connect,
    done,
    exists,
    make_once,
    session_url,
)
from .postgres_session import transaction as server_transaction
from .sink_lines import Redact, SinkLines, check_flag
from .sqlite_store import explained, file_path, open_file, tolerate_damage, transaction, write_ahead
from .store_threads import C, Connections

if TYPE_CHECKING:
    import sqlite3

    import psycopg

    from .store_sql import Cursor


class _SqlLog(Generic[C]):
    """What the two sinks share: records in, one transaction each time. One connection: appends wait for each other."""

    def __init__(
        self,
        connect: Callable[[], C],
        transaction: "Callable[[C, Callable[[Cursor], End]], End]",
        lines: SinkLines,
        *,
        best_effort: bool,
    ) -> None:
        self.best_effort = check_flag("best_effort", best_effort)
        self._lines = lines
        self._transaction = transaction
        self._end: End | None = None
        # After a LogError nothing was written, and the connection is as good as before.
        self._connections = Connections[C](connect, size=1, harmless=(LogError,))

    async def write(self, records: Sequence[AuditRecord]) -> None:
        """Append the records, all or none.

        Raises StoreError when the database cannot be opened or written, LogError when what stands in it does
        not end as it was left, or is sealed with another key.
        """
        kept = [self._lines.kept(record) for record in records]

        def work(cursor: "Cursor") -> "End":
            return append(cursor, kept, self._lines.key, self._end)

        self._end = await self._connections.run(lambda connection: self._transaction(connection, work))

    async def close(self) -> None:
        """Wait for what is under way, and close the connection; the next write opens a new one."""
        await self._connections.close()


class SQLiteLog(_SqlLog["sqlite3.Connection"]):
    """A SQLite file with one sealed row for each record, made by the first write for its owner only.

    Its folder must exist, on a local disk. Runs, threads and processes may write to it at once: all share one
    chain, and wait for each other, for 30 seconds at most. It may be the file of a `SQLiteStore`. Each write is on
    the disk before it returns. `read_log(path)` reads it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        key: bytes | Secret | None = None,
        content: bool = True,
        redact: Redact | None = None,
        best_effort: bool = False,
    ) -> None:
        """Take the file's path. `key`, `content`, `redact` and `best_effort`: as those of `JsonLines`.

        Raises TypeError or ValueError for what is no path, LookupError when `key` is a Secret that is not set.
        """
        self.path = file_path(path, "SQLiteLog", "each run has its log in memory anyway, as result.log")
        # The file stays the same one when the process changes its working directory.
        super().__init__(
            partial(open_file, str(Path(self.path).absolute()), _set_up),
            lambda connection, work: explained(self.path, None, lambda: transaction(connection, work)),
            SinkLines.made(key=key, content=content, redact=redact),
            best_effort=best_effort,
        )

    def __repr__(self) -> str:
        """The path; never the key."""
        return f"SQLiteLog({self.path!r})"


class PostgresLog(_SqlLog["psycopg.Connection"]):
    """A PostgreSQL database with one sealed row for each record, whose tables the first write makes.

    Runs, threads and machines may write to it at once: all share one chain, and wait for each other, for
    30 seconds at most. It may be the database of a `PostgresStore`. Each write was kept by the server before it
    returns. `read_log(url)` reads it.
    """

    def __init__(
        self,
        url: str | Secret,
        *,
        key: bytes | Secret | None = None,
        content: bool = True,
        redact: Redact | None = None,
        best_effort: bool = False,
    ) -> None:
        """Take a URL, as that of `PostgresStore`, or a `Secret` that holds one; the others are those of `JsonLines`.

        Raises ImportError without the extra `postgres`, TypeError or ValueError for what is no URL, LookupError
        when `key` is a Secret that is not set.
        """
        self.url = session_url(url, "PostgresLog")
        super().__init__(
            partial(_open, self.url),
            lambda connection, work: server_transaction(connection, work, None),
            SinkLines.made(key=key, content=content, redact=redact),
            best_effort=best_effort,
        )

    def __repr__(self) -> str:
        """The URL, unless it holds a password; never the key."""
        return f"PostgresLog({self.url!r})"


def _set_up(connection: "sqlite3.Connection", path: str) -> None:
    tolerate_damage(connection)
    cursor = connection.cursor()
    found = has_tables(cursor, SQLITE_EXISTS)  # first: in the file of a newer version nothing is changed
    write_ahead(cursor, path)
    cursor.execute("PRAGMA synchronous=FULL")
    if not found:
        transaction(connection, partial(make_tables, integer="INTEGER"))


def _open(url: str | Secret | Concealed) -> "psycopg.Connection":
    connection = connect(url, "PostgresLog")
    try:
        # Looked at first: who may only write rows need not be allowed to make tables.
        if not done(connection, None, lambda: has_tables(Questioned(connection.cursor()), exists(TABLE))):
            make_once(connection, partial(make_tables, integer="BIGINT"))
    except BaseException:
        connection.close()
        raise
    return connection
