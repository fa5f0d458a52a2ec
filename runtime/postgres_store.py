"""The store in PostgreSQL: for several machines. The driver blocks, so it is used in threads, on asyncio and trio.

A connection that the server ended is replaced. Knows no statement.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from attrs import Factory, field, frozen

from ..capabilities.secret import Secret
from .postgres_session import (
    Concealed,
    Questioned,
    connect,
    done,
    exists,
    make_once,
    session_url,
    transaction,
)
from .sql_store import SqlStore
from .store_threads import Connections
from .stores import SnapshotClaimed, StoreConflict

if TYPE_CHECKING:
    import psycopg

    from .store_sql import Cursor

T = TypeVar("T")
CONNECTIONS: Final = 4  # of one store, at most; operations beyond wait


def _url(value: object) -> str | Secret | Concealed:
    return session_url(value, "PostgresStore")


@frozen
class PostgresStore(SqlStore):
    """Conversations and suspended runs in a PostgreSQL database, whose tables the first operation makes.

    `url`: a connection URL (or `key=value` string), or a `Secret` that holds one, read whenever a connection
    is opened. One that holds a password is neither shown nor described; a `Secret`, or a password in
    `PGPASSWORD` or `~/.pgpass`, leaves the description complete.
    Raises ImportError without the extra `postgres`, TypeError or ValueError for what is no URL.
    """

    url: str | Secret | Concealed = field(converter=_url)
    _connections: "Connections[psycopg.Connection]" = field(
        init=False,
        eq=False,
        repr=False,
        default=Factory(
            lambda self: Connections(
                partial(_open, self.url),
                size=CONNECTIONS,
                harmless=(StoreConflict, SnapshotClaimed, LookupError),
            ),
            takes_self=True,
        ),
    )

    async def close(self) -> None:
        """Wait for what is under way, and close the connections; the next operation opens new ones."""
        await self._connections.close()

    async def _read(self, work: "Callable[[Cursor], T]", conversation: str | None = None) -> T:
        return await self._connections.run(
            lambda connection: done(connection, conversation, lambda: work(Questioned(connection.cursor())))
        )

    async def _write(self, work: "Callable[[Cursor], T]", conversation: str | None = None) -> T:
        return await self._connections.run(lambda connection: transaction(connection, work, conversation))


def _open(url: str | Secret | Concealed) -> "psycopg.Connection":
    from .store_sql import has_tables, make_tables  # noqa: PLC0415  # `SqlStore` says why

    connection = connect(url, "PostgresStore")
    try:
        # Looked at first: who may only read and write rows need not be allowed to make tables.
        found = done(
            connection, None, lambda: has_tables(Questioned(connection.cursor()), exists("capfold_schema"))
        )
        if not found:
            make_once(connection, make_tables)
    except BaseException:
        connection.close()
        raise
    return connection
