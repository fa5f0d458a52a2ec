"""The tables that durable runs keep beside those of DBOS, in the same database: SQLite or PostgreSQL.

Leases of worker processes, attempts that were begun, long texts, what runs wait for, decisions and stops. Every
operation is one transaction, may be repeated, and is: a database that is away is waited for. Knows nothing of runs.
"""

import functools
import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import anyio.to_thread
import sqlalchemy as sql
from anyio.lowlevel import RunVar
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

_TABLES = (
    (
        "CREATE TABLE IF NOT EXISTS capfold_leases "
        "(executor TEXT PRIMARY KEY, app TEXT NOT NULL, until DOUBLE PRECISION NOT NULL)"
    ),
    "CREATE TABLE IF NOT EXISTS capfold_begun (run TEXT, step TEXT, nonce TEXT, PRIMARY KEY (run, step, nonce))",
    "CREATE TABLE IF NOT EXISTS capfold_texts (name TEXT PRIMARY KEY, body TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS capfold_waits (run TEXT PRIMARY KEY, topic TEXT NOT NULL, asked TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS capfold_decisions (run TEXT, topic TEXT, body TEXT NOT NULL, PRIMARY KEY (run, topic))",
    "CREATE TABLE IF NOT EXISTS capfold_stops (run TEXT PRIMARY KEY, body TEXT NOT NULL)",
)
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)
_LASTING = frozenset(
    {"SQLITE_ERROR", "SQLITE_READONLY"}
)  # of a file that was never opened, or nobody may write to
_THREADS = 16
_LIMITER: RunVar[anyio.CapacityLimiter] = RunVar("capfold-tables")
P = ParamSpec("P")
T = TypeVar("T")
Row = Any  # of a result: its columns are what the statement asks for


def is_sqlite(url: str) -> bool:
    """Tell whether a URL is that of a SQLite file."""
    return url.startswith("sqlite")


def parsed(url: str) -> URL:
    """Return the URL of a database that can hold durable runs. Raises ValueError for any other."""
    try:
        made = make_url(url)
    except ArgumentError as error:
        raise ValueError(f"a URL is sqlite:///FILE or postgresql://..., not {url!r:.80}") from error
    if made.get_backend_name() == "postgresql":
        return made.set(drivername="postgresql+psycopg")
    if made.get_backend_name() != "sqlite":
        raise ValueError(
            "durable runs are kept in SQLite or PostgreSQL: sqlite:///runs.sqlite or postgresql://...; "
            f"not in {shown_url(url):.80}"
        )
    if not made.database or made.database == ":memory:":
        raise ValueError("durable runs need a file: sqlite:///runs.sqlite")
    return made


def shown_url(url: str) -> str:
    """Return a URL as others may read it, without its password."""
    return make_url(url).render_as_string(hide_password=True)


def file_of(url: str) -> Path | None:
    """Return the file of a SQLite database, None for a server's."""
    made = parsed(url)
    return Path(made.database) if is_sqlite(url) and made.database else None


async def in_thread(function: Callable[P, T], *args: P.args, **keywords: P.kwargs) -> T:
    """Call a function in a worker thread; not in asyncio's own, which DBOS takes for itself and shuts down."""
    # A thread of its own limiter: tools in threads must not keep a run from being recorded.
    return await anyio.to_thread.run_sync(functools.partial(function, *args, **keywords), limiter=_limiter())


def _limiter() -> anyio.CapacityLimiter:
    try:
        return _LIMITER.get()
    except LookupError:
        made = anyio.CapacityLimiter(_THREADS)
        _LIMITER.set(made)
        return made


class Tables:
    """The tables of one database. Safe in any thread; `patience`: seconds that a database may be away."""

    def __init__(self, url: str, patience: float = 600.0) -> None:
        """Connect when first used. Raises ValueError for a URL of another database."""
        made = parsed(url)
        self._lite = made.get_backend_name() == "sqlite"
        self._path = Path(made.database) if self._lite and made.database else None
        options: dict[str, Any] = {"connect_args": {"timeout": 60}} if self._lite else {"pool_pre_ping": True}
        self._engine = sql.create_engine(made, **options)
        self._patience = patience
        self._now = (
            "CAST(:clock AS DOUBLE PRECISION)" if self._lite else "EXTRACT(EPOCH FROM clock_timestamp())"
        )

    def make(self) -> None:
        """Make the tables that are not there; a SQLite file is set to write ahead, at a sixth of the cost of a step.

        Raises ConnectionError for a file that can hold no database.
        """
        for tries_left in (2, 1, 0):
            try:
                self._make()
                return
            except (OSError, DBAPIError) as error:
                if not tries_left:  # two processes may make them at once, and one of them is told so
                    if self._path is None:
                        raise
                    cause = error.orig if isinstance(error, DBAPIError) else error
                    raise ConnectionError(f"{self._path} cannot hold durable runs: {cause}") from error
                time.sleep(0.1)

    def _make(self) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
        with self._engine.begin() as connection:
            for table in _TABLES:
                connection.exec_driver_sql(table)

    def has_runs(self) -> bool:
        """Tell whether runs were ever kept here; nothing is made where they were not."""
        if self._path is not None and not self._path.exists():
            return False
        return sql.inspect(self._engine).has_table("workflow_status", schema=None if self._lite else "dbos")

    def close(self) -> None:
        """Release all connections."""
        self._engine.dispose()

    def _do(self, *statements: tuple[str, Mapping[str, object]]) -> list[Row]:
        """Execute statements in one transaction; return the rows of the last one, or how many it changed."""
        end = time.monotonic() + self._patience
        tries = 0
        while True:
            try:
                with self._engine.begin() as connection:
                    *first, last = statements
                    for statement in first:
                        self._execute(connection, *statement)
                    done = self._execute(connection, *last)
                    return list(done) if done.returns_rows else [done.rowcount]
            except (OperationalError, DBAPIError) as error:
                away = isinstance(error, OperationalError) or error.connection_invalidated
                away = away and getattr(error.orig, "sqlite_errorname", "") not in _LASTING
                if not away or time.monotonic() > end:
                    raise
            time.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
            tries += 1

    def _execute(
        self, connection: sql.Connection, statement: str, values: Mapping[str, object]
    ) -> "sql.CursorResult[Any]":  # Any: of any columns
        text = statement.replace("{now}", self._now)
        clock = {"clock": time.time()} if self._lite and text != statement else {}
        return connection.execute(sql.text(text), {**values, **clock})

    # --- leases

    def renew(self, executor: str, app: str, seconds: float) -> None:
        """Hold, or hold again, the lease of a process for so many seconds from now."""
        self._do(
            (
                (
                    "INSERT INTO capfold_leases (executor, app, until) VALUES (:executor, :app, {now} + :seconds) "
                    "ON CONFLICT (executor) DO UPDATE SET until = {now} + :seconds"
                ),
                {"executor": executor, "app": app, "seconds": seconds},
            )
        )

    def expired(self, app: str) -> list[tuple[str, float]]:
        """Return the processes of an application whose leases have run out, each with when."""
        rows = self._do(
            ("SELECT executor, until FROM capfold_leases WHERE app = :app AND until < {now}", {"app": app})
        )
        return [(row[0], row[1]) for row in rows]

    def take_over(self, executor: str, until: float, seconds: float) -> bool:
        """Take the lease of a process that ran out at `until`, for so many seconds; one of those who try gets it."""
        (count,) = self._do(
            (
                "UPDATE capfold_leases SET until = {now} + :seconds WHERE executor = :executor AND until = :until",
                {"executor": executor, "until": until, "seconds": seconds},
            )
        )
        return bool(count)

    def release(self, executor: str) -> None:
        """Give up the lease of a process."""
        self._do(("DELETE FROM capfold_leases WHERE executor = :executor", {"executor": executor}))

    # --- attempts and texts

    def begin(self, run: str, step: str, nonce: str) -> int:
        """Keep that an attempt of a step begins, by a nonce of its own; return its number, from 1."""
        values = {"run": run, "step": step, "nonce": nonce}
        rows = self._do(
            (
                "INSERT INTO capfold_begun (run, step, nonce) VALUES (:run, :step, :nonce) ON CONFLICT DO NOTHING",
                values,
            ),
            ("SELECT count(*) FROM capfold_begun WHERE run = :run AND step = :step", values),
        )
        return int(rows[0][0])

    def keep(self, body: str) -> str:
        """Keep a text; return its name, which is the same for the same text."""
        name = hashlib.sha256(body.encode()).hexdigest()
        self._do(
            (
                "INSERT INTO capfold_texts (name, body) VALUES (:name, :body) ON CONFLICT DO NOTHING",
                {"name": name, "body": body},
            )
        )
        return name

    def kept(self, name: str) -> str:
        """Return a text. Raises LookupError for a name that is not known."""
        rows = self._do(("SELECT body FROM capfold_texts WHERE name = :name", {"name": name}))
        if not rows:
            raise LookupError(f"no text {name!r} is kept in this database")
        return str(rows[0][0])

    # --- waits, decisions, stops

    def wait(self, run: str, topic: str, asked: str) -> None:
        """Show what a run waits for."""
        self._do(
            (
                (
                    "INSERT INTO capfold_waits (run, topic, asked) VALUES (:run, :topic, :asked) "
                    "ON CONFLICT (run) DO UPDATE SET topic = :topic, asked = :asked"
                ),
                {"run": run, "topic": topic, "asked": asked},
            )
        )

    def waited(self, run: str, topic: str) -> None:
        """Take note that a run waits no more for a topic."""
        self._do(
            ("DELETE FROM capfold_waits WHERE run = :run AND topic = :topic", {"run": run, "topic": topic})
        )

    def waits_no_more(self, run: str) -> None:
        """Take note that a run waits for nothing."""
        self._do(("DELETE FROM capfold_waits WHERE run = :run", {"run": run}))

    def waits(self, tree: str | None = None) -> dict[str, tuple[str, str]]:
        """Return what runs wait for, all or a run and those below it: topic and JSON by run."""
        where, values = "", {}
        if tree is not None:
            where = " WHERE run = :tree OR substr(run, 1, :size) = :below"
            values = {"tree": tree, "below": f"{tree}/", "size": len(tree) + 1}
        rows = self._do((f"SELECT run, topic, asked FROM capfold_waits{where}", values))  # noqa: S608  # a text of ours
        return {row[0]: (row[1], row[2]) for row in rows}

    def decide(self, run: str, topic: str, body: str) -> str:
        """Keep the message that decides a topic, unless there is one; return the one that stands."""
        values = {"run": run, "topic": topic, "body": body}
        rows = self._do(
            (
                "INSERT INTO capfold_decisions (run, topic, body) VALUES (:run, :topic, :body) ON CONFLICT DO NOTHING",
                values,
            ),
            ("SELECT body FROM capfold_decisions WHERE run = :run AND topic = :topic", values),
        )
        return str(rows[0][0])

    def stop(self, run: str, body: str) -> None:
        """Keep the wish that a run ends, unless there is one."""
        self._do(
            (
                "INSERT INTO capfold_stops (run, body) VALUES (:run, :body) ON CONFLICT DO NOTHING",
                {"run": run, "body": body},
            )
        )

    def stops(self) -> dict[str, str]:
        """Return the wishes that runs end, by run."""
        return {row[0]: row[1] for row in self._do(("SELECT run, body FROM capfold_stops", {}))}

    def stopped(self, run: str) -> None:
        """Take note that a run has ended, and nobody needs to stop it any more."""
        self._do(("DELETE FROM capfold_stops WHERE run = :run", {"run": run}))
