"""Reading the log of a database: opened for that alone, and seen as it was at one moment.

What is wrong with a record is returned, as for a file of lines; a database that cannot be reached is a StoreError.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from ..capabilities.secret import Secret
from .errors import LogError
from .log import Log
from .log_sql import SQLITE_EXISTS, TABLE, has_tables, read
from .postgres_session import Questioned, connect, done, exists, session_url
from .sqlite_store import BUSY_SECONDS, tolerate_damage
from .stores import StoreError

if TYPE_CHECKING:
    from .store_sql import Cursor


def scan_file(path: Path, run: str | None) -> tuple[Log, LogError | None]:
    """Read the log of a `SQLiteLog`, which may be written to meanwhile. A damaged file is a LogError."""
    import sqlite3  # noqa: PLC0415  # 5 ms, for those who have such a log

    def scan(connection: sqlite3.Connection) -> tuple[Log, LogError | None]:
        tolerate_damage(connection)
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        return _scan(cursor, SQLITE_EXISTS, run)

    address = f"{path.absolute().as_uri()}?mode=ro"
    try:
        connection = sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    except sqlite3.Error as error:
        return Log(), LogError(f"the database cannot be opened: {error}")
    try:
        return scan(connection)
    except (sqlite3.Error, OverflowError) as error:
        return Log(), LogError(f"the database cannot be read, it may be damaged: {error}")
    finally:
        connection.close()


def scan_server(url: str | Secret, run: str | None) -> tuple[Log, LogError | None]:
    """Read the log of a `PostgresLog`, which may be written to meanwhile.

    Raises ImportError without the extra `postgres`, ValueError for what is no URL, StoreError for the server.
    """
    connection = connect(session_url(url, "log"), "log")
    try:
        cursor = Questioned(connection.cursor())

        def scan() -> tuple[Log, LogError | None]:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return _scan(cursor, exists(TABLE), run)

        return done(connection, None, scan)
    finally:
        connection.close()


def _scan(cursor: "Cursor", exists: str, run: str | None) -> tuple[Log, LogError | None]:
    try:
        if has_tables(cursor, exists):
            return read(cursor, run)
    except StoreError as error:  # the table's one row is of another version, or was changed
        return Log(), LogError(str(error))
    return Log(), LogError(f"it is a database without a log: it has no table {TABLE}")
