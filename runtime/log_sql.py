"""What stands in a database that keeps a log, and the statements that append to it and read it.

One row for each record, its `line` ending in its seal, as in a file. All writers of a database share one chain: each
append holds the row of `capfold_log_head` until its transaction ends, seals after the seal that stands there, and
leaves its own last one. So a row that was changed, moved, added or removed is found, the last rows included. Knows
no driver, no thread and no event loop.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from ..capabilities.frozen import canonical
from .audit import AuditRecord
from .errors import LogError
from .log import Log, of_run
from .seals import Sealer, next_seal, parse_line, split_line
from .stores import StoreError

if TYPE_CHECKING:
    from .store_sql import Cursor

VERSION: Final = 1  # of the tables below; what a line looks like says its record
TABLE: Final = "capfold_log_head"  # whose being there says that all are
SQLITE_EXISTS: Final = f"SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{TABLE}'"  # noqa: S608  # as above
# `integer`: the type of 64 bits, which is INTEGER in SQLite, where no other type makes a key that is the row's own.
TABLES: Final = (
    # `root` only finds rows: what stands before the first "/" of the run's id. It must be short, as all keys.
    (
        "CREATE TABLE IF NOT EXISTS capfold_log "
        "(place {integer} NOT NULL PRIMARY KEY, root TEXT NOT NULL, line TEXT NOT NULL)"
    ),
    "CREATE INDEX IF NOT EXISTS capfold_log_root ON capfold_log (root, place)",
    (
        f"CREATE TABLE IF NOT EXISTS {TABLE} "
        "(version INTEGER NOT NULL, records {integer} NOT NULL, seal TEXT NOT NULL)"
    ),
)
_FIRST: Final = (
    f"INSERT INTO {TABLE} (version, records, seal) "  # noqa: S608  # the name is the one above
    f"SELECT CAST(? AS INTEGER), 0, '' WHERE NOT EXISTS (SELECT 1 FROM {TABLE})"
)
_TURN: Final = f"UPDATE {TABLE} SET records = records"  # noqa: S608  # as above; other writers wait here
_HEAD: Final = f"SELECT version, records, seal FROM {TABLE}"  # noqa: S608  # as above
_SET_HEAD: Final = f"UPDATE {TABLE} SET records = ?, seal = ?"  # noqa: S608  # as above
_APPEND: Final = "INSERT INTO capfold_log (place, root, line) VALUES (?, ?, ?)"
_LAST: Final = "SELECT place, root, line FROM capfold_log ORDER BY place DESC LIMIT 2"
_ALL: Final = "SELECT place, root, line FROM capfold_log ORDER BY place"
_ONE: Final = "SELECT place, root, line FROM capfold_log WHERE root = ? ORDER BY place"
_ROOT: Final = 200  # characters


@frozen
class End:
    """Where a log in a database ends: how many records it has, and the seal of the last one, "" for none."""

    records: int
    seal: str


# --- tables


def has_tables(cursor: "Cursor", exists: str) -> bool:
    """Tell whether the tables are there; `exists`: a statement that returns a row if `TABLE` is.

    Raises StoreError when they are of another version.
    """
    cursor.execute(exists)
    if not cursor.fetchall():
        return False
    _head(cursor)
    return True


def make_tables(cursor: "Cursor", integer: str) -> None:
    """Make the tables that are missing; the caller sees to it that nobody else does so meanwhile."""
    for statement in TABLES:
        cursor.execute(statement.format(integer=integer))
    cursor.execute(_FIRST, (VERSION,))


def _head(cursor: "Cursor") -> End:
    cursor.execute(_HEAD)
    found = list(cursor.fetchall())
    match found:
        case [(int(version), int(records), str(seal))] if version == VERSION and records >= 0:
            return End(records, seal)
        case [(int(version), _, _)] if version > VERSION:
            raise StoreError(
                f"the log in the database has version {version}, of a newer capfold; this one reads {VERSION}"
            )
    raise StoreError(
        f"the table {TABLE} holds {found!r:.200} in place of one row: version {VERSION}, records, seal"
    )


# --- writing


def append(cursor: "Cursor", records: Sequence[AuditRecord], key: bytes | None, known: End | None) -> End:
    """Seal records and write them at the end, in a transaction that the caller began; return the new end.

    `known`: where this writer left the log; only where others wrote since is its last line looked at. Raises
    LogError where that is no line of this chain, or sealed with another key: lines written after it would hide that.
    """
    cursor.execute(_TURN)
    end = _head(cursor)
    if end != known:
        _check_end(cursor, end, key)
    sealer = Sealer(end.seal, key)
    rows = [(place, _root(one.run), sealer.line(one)) for place, one in enumerate(records, end.records)]
    cursor.executemany(_APPEND, rows)
    after = End(end.records + len(rows), sealer.seal)
    cursor.execute(_SET_HEAD, (after.records, after.seal))
    return after


def _check_end(cursor: "Cursor", end: End, key: bytes | None) -> None:
    cursor.execute(_LAST)
    rows = cursor.fetchall()
    whole = [row[0] for row in rows] == list(range(end.records))[-1:-3:-1]
    text, seal = split_line(_bytes(rows[0][2])) if rows else ("", "")
    before = split_line(_bytes(rows[1][2]))[1] if len(rows) > 1 else ""
    if whole and seal == end.seal and (not rows or seal == next_seal(before, text, key)):
        return
    problem = "it was changed, or sealed with another key" if whole else "rows were removed or added"
    raise LogError(f"the log cannot be continued after its last row: {problem}", max(end.records - 1, 0))


# --- reading


def read(cursor: "Cursor", run: str | None) -> tuple[Log, LogError | None]:
    """Read the log, or of one run and the runs below it, up to the first row that is not as it was written.

    To be called in a transaction that sees the database as it was at one moment. Return what was read, and
    what is wrong after it. The records of one run are without seals: those chain the records of all runs.
    """
    end = _head(cursor)
    if run is None:
        cursor.execute(_ALL)
    else:
        cursor.execute(_ONE, (_root(run),))
    records: list[AuditRecord] = []
    problem = None
    try:
        for number, row in enumerate(cursor.fetchall()):
            records.append(_record(row, number, whole=run is None))
        if run is None:
            _check_head(records, end)
    except LogError as error:
        problem = error
    return Log.from_records(records if run is None else of_run(records, run)), problem


def _record(row: tuple[Any, ...], number: int, *, whole: bool) -> AuditRecord:  # Any: as `Cursor.fetchall`
    place, root, line = row
    if type(place) is not int or (whole and place != number):
        raise LogError(f"rows are missing or were added: place {place!r:.80} stands here", number)
    record = parse_line(_bytes(line), number)
    if root != _root(record.run):
        raise LogError(f"its row is filed under {root!r:.80}, and not under its run", number)
    return record


def _check_head(records: Sequence[AuditRecord], end: End) -> None:
    found = End(len(records), records[-1].seal if records else "")
    if found.records < end.records:
        raise LogError(
            f"it is missing: {end.records} records were written, and the last rows were removed", len(records)
        )
    if found != end:
        raise LogError(
            f"the log ends here, and {TABLE} says that it ends after {end.records} records in the seal "
            f"{end.seal!r:.80}: one of them was changed",
            max(len(records) - 1, 0),
        )


def _root(run: str) -> str:
    return canonical(run.partition("/")[0][:_ROOT])  # ASCII, whatever the id: NUL is nothing to a database


def _bytes(value: object) -> bytes:
    """Return a line as bytes; what is no text is no line either."""
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else b""
