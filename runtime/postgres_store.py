"""The store in PostgreSQL: for several machines. The driver blocks, so it is used in threads, on asyncio and trio.

A connection that the server ended is replaced. Knows no statement but those of the session itself.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from attrs import Factory, field, frozen

from ..capabilities.secret import Secret
from .sql_store import SqlStore
from .store_threads import Connections, Lost
from .stores import SnapshotClaimed, StoreConflict, StoreError

if TYPE_CHECKING:
    import psycopg

    from .store_sql import Cursor

T = TypeVar("T")
CONNECTIONS: Final = 4  # of one store, at most; operations beyond wait
_EXISTS: Final = (
    "SELECT 1 FROM pg_catalog.pg_class "
    "WHERE relname = 'capfold_schema' AND relkind = 'r' AND pg_catalog.pg_table_is_visible(oid)"
)
# Whoever makes the tables first; the number only has to be the same everywhere.
_LOCK: Final = "SELECT pg_advisory_xact_lock(7164779270416)"
# One round trip. A process that froze in the middle holds its rows for a minute, and others wait half of one.
# A server that acknowledges before it wrote (`off`) is told not to; stricter settings stay.
_BEGIN: Final = (
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; "
    "SET LOCAL lock_timeout = '30s'; SET LOCAL idle_in_transaction_session_timeout = '60s'; "
    "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
)
# Where the URL says nothing else: a host that vanished is noticed within about half a minute.
_DEFAULTS: Final = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "application_name": "capfold",
}


class Concealed:
    """A connection string with a password in it: shown nowhere, and so not described either."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the connection string."""
        return self._text

    def __repr__(self) -> str:
        return "<a URL with a password>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Concealed) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def _url(value: object) -> str | Secret | Concealed:
    _given("")  # where psycopg is missing, that is said now
    if isinstance(value, Secret):
        return value
    if type(value) is not str or not value:
        kind = "an empty string" if value == "" else type(value).__name__
        raise TypeError(
            f"PostgresStore takes a URL such as 'postgresql://user@host/name', or a Secret with one, not {kind}"
        )
    return Concealed(value) if any(_given(value).values()) else value


def _given(url: str) -> dict[str, bool]:
    """Return the options of a connection string, and which of them are secret. Raises ValueError, never showing it."""
    try:
        import psycopg  # noqa: PLC0415  # 250 ms, and an extra
    except ImportError as error:
        raise ImportError(
            "PostgresStore needs psycopg and its client library: pip install 'capfold[postgres]'"
        ) from error
    try:
        options = psycopg.pq.Conninfo.parse(url.encode())
    except (psycopg.Error, UnicodeEncodeError):
        options = None
    if options is None:  # outside of the handler: the driver's error shows the whole text
        raise ValueError(
            "the URL of a PostgresStore cannot be read: 'postgresql://user@host:5432/name' would be one, "
            "with %-escapes for special characters"
        )
    return {option.keyword.decode(): option.dispchar == b"*" for option in options if option.val is not None}


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
            lambda connection: _done(connection, conversation, lambda: work(_Questioned(connection.cursor())))
        )

    async def _write(self, work: "Callable[[Cursor], T]", conversation: str | None = None) -> T:
        return await self._connections.run(lambda connection: _transaction(connection, work, conversation))


class _Questioned:
    """A cursor whose parameters stand as `?`."""

    def __init__(
        self, cursor: "psycopg.Cursor[tuple[Any, ...]]"
    ) -> None:  # Any: as the driver types its rows
        self._cursor = cursor

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> None:
        self._cursor.execute(_percent(sql), parameters or None)

    def executemany(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        self._cursor.executemany(_percent(sql), rows)

    def fetchall(self) -> Sequence[tuple[Any, ...]]:  # Any: as above
        return self._cursor.fetchall()


def _percent(sql: str) -> bytes:
    return sql.replace("?", "%s").encode()


def _done(connection: "psycopg.Connection", conversation: str | None, work: Callable[[], T]) -> T:
    """Return what `work` returns. Raises Lost when the server ended the connection, StoreError for other errors."""
    import psycopg  # noqa: PLC0415  # as above

    try:
        return work()
    except psycopg.Error as error:
        # 57P: the server shuts down, or crashed.
        if connection.closed or (error.sqlstate or "").startswith("57P"):
            raise Lost(_said(error), conversation) from error
        raise StoreError(_said(error), conversation) from error


def _transaction(
    connection: "psycopg.Connection", work: "Callable[[Cursor], T]", conversation: str | None
) -> T:
    """Return what `work` returns, once the server has kept it."""
    import psycopg  # noqa: PLC0415  # as above

    cursor = _Questioned(connection.cursor())

    def whole() -> T:
        cursor.execute(_BEGIN)
        try:
            return work(cursor)
        except psycopg.Error:
            raise  # the connection is closed, and the transaction with it
        except Exception:
            cursor.execute("ROLLBACK")
            raise

    result = _done(connection, conversation, whole)
    try:
        cursor.execute("COMMIT")
    except psycopg.Error as error:
        raise StoreError(
            f"whether the write was kept is not known, load again to see: {_said(error)}", conversation
        ) from error
    return result


def _said(error: "psycopg.Error") -> str:
    return f"PostgreSQL: {' '.join(str(error).split()) or type(error).__name__}"


# --- opening


def _open(url: str | Secret | Concealed) -> "psycopg.Connection":
    import psycopg  # noqa: PLC0415  # as above

    text = url if isinstance(url, str) else url.reveal()
    given = _given(text)
    defaults = {key: value for key, value in _DEFAULTS.items() if key not in given}
    try:
        whole = psycopg.conninfo.make_conninfo(text, **defaults, client_encoding="utf8")
        # Prepared statements would outlive a session that a pooler hands on.
        connection = psycopg.connect(whole, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise StoreError(_said(error)) from error
    try:
        _set_up(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(connection: "psycopg.Connection") -> None:
    from .store_sql import has_tables, make_tables  # noqa: PLC0415  # `SqlStore` says why

    # Looked at first: who may only read and write rows need not be allowed to make tables.
    if _done(connection, None, lambda: has_tables(_Questioned(connection.cursor()), _EXISTS)):
        return

    def make(cursor: "Cursor") -> None:
        cursor.execute(_LOCK)
        make_tables(cursor)

    _transaction(connection, make, None)
