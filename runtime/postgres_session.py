"""A session with PostgreSQL: its URL, its connection, its transactions, and what its errors mean.

Knows no table of anybody.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..capabilities.secret import Secret
from .store_threads import Lost
from .stores import StoreError

if TYPE_CHECKING:
    import psycopg

    from .store_sql import Cursor

T = TypeVar("T")
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


def session_url(value: object, owner: str) -> str | Secret | Concealed:
    """Return a URL, one with a password concealed. `owner`: the class that takes it.

    Raises ImportError without the extra `postgres`, TypeError or ValueError for what is no URL.
    """
    _given("", owner)  # where psycopg is missing, that is said now
    if isinstance(value, Secret):
        return value
    if type(value) is not str or not value:
        kind = "an empty string" if value == "" else type(value).__name__
        raise TypeError(
            f"{owner} takes a URL such as 'postgresql://user@host/name', or a Secret with one, not {kind}"
        )
    return Concealed(value) if any(_given(value, owner).values()) else value


def _given(url: str, owner: str) -> dict[str, bool]:
    """Return the options of a connection string, and which of them are secret. Raises ValueError, never showing it."""
    try:
        import psycopg  # noqa: PLC0415  # 250 ms, and an extra
    except ImportError as error:
        raise ImportError(
            f"{owner} needs psycopg and its client library: pip install 'capfold[postgres]'"
        ) from error
    try:
        options = psycopg.pq.Conninfo.parse(url.encode())
    except (psycopg.Error, UnicodeEncodeError):
        options = None
    if options is None:  # outside of the handler: the driver's error shows the whole text
        raise ValueError(
            f"the URL of a {owner} cannot be read: 'postgresql://user@host:5432/name' would be one, "
            "with %-escapes for special characters"
        )
    return {option.keyword.decode(): option.dispchar == b"*" for option in options if option.val is not None}


class Questioned:
    """A cursor whose parameters stand as `?`."""

    def __init__(
        self, cursor: "psycopg.Cursor[tuple[Any, ...]]"
    ) -> None:  # Any: as the driver types its rows
        self._cursor = cursor

    @property
    def rowcount(self) -> int:
        """How many rows the last statement wrote."""
        return self._cursor.rowcount

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> None:
        """Execute a statement."""
        self._cursor.execute(_percent(sql), parameters or None)

    def executemany(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Execute a statement for each row."""
        self._cursor.executemany(_percent(sql), rows)

    def fetchall(self) -> Sequence[tuple[Any, ...]]:  # Any: as above
        """Return the rows of the last statement, which selected some."""
        return self._cursor.fetchall()


def _percent(sql: str) -> bytes:
    return sql.replace("?", "%s").encode()


def done(connection: "psycopg.Connection", conversation: str | None, work: Callable[[], T]) -> T:
    """Return what `work` returns. Raises Lost when the server ended the connection, StoreError for other errors."""
    import psycopg  # noqa: PLC0415  # as above

    try:
        return work()
    except psycopg.Error as error:
        # 57P: the server shuts down, or crashed.
        if connection.closed or (error.sqlstate or "").startswith("57P"):
            raise Lost(_said(error), conversation) from error
        raise StoreError(_said(error), conversation) from error


def transaction(
    connection: "psycopg.Connection", work: "Callable[[Cursor], T]", conversation: str | None
) -> T:
    """Return what `work` returns, once the server has kept it."""
    import psycopg  # noqa: PLC0415  # as above

    cursor = Questioned(connection.cursor())

    def whole() -> T:
        cursor.execute(_BEGIN)
        try:
            return work(cursor)
        except psycopg.Error:
            raise  # the connection is closed, and the transaction with it
        except Exception:
            cursor.execute("ROLLBACK")
            raise

    result = done(connection, conversation, whole)
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


def connect(url: str | Secret | Concealed, owner: str) -> "psycopg.Connection":
    """Return an open connection. Raises StoreError where there is none, LookupError for a Secret that is not set."""
    import psycopg  # noqa: PLC0415  # as above

    text = url if isinstance(url, str) else url.reveal()
    given = _given(text, owner)
    defaults = {key: value for key, value in _DEFAULTS.items() if key not in given}
    try:
        whole = psycopg.conninfo.make_conninfo(text, **defaults, client_encoding="utf8")
        # Prepared statements would outlive a session that a pooler hands on.
        return psycopg.connect(whole, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise StoreError(_said(error)) from error


def exists(table: str) -> str:
    """Return a statement that finds a row if a table is in a searched schema; its name is one of capfold's own."""
    return (
        f"SELECT 1 FROM pg_catalog.pg_class WHERE relname = '{table}' AND relkind = 'r' "  # noqa: S608  # see above
        "AND pg_catalog.pg_table_is_visible(oid)"
    )


def make_once(connection: "psycopg.Connection", make: "Callable[[Cursor], None]") -> None:
    """Call `make` in a transaction that no other process makes tables beside. Raises StoreError."""

    def alone(cursor: "Cursor") -> None:
        cursor.execute(_LOCK)
        make(cursor)

    transaction(connection, alone, None)
