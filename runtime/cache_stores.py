"""Ready-made stores for caches: in memory, and in a SQLite file that processes share.

What they keep may be lost at any time: a cache that forgets is asked again. So a file is not waited for at each
write, and what is out of date is not told. Both are configuration: a capability that holds one is described whole.
Knows nothing of what is cached.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from attrs import Attribute, Factory, field, frozen

from ..capabilities.outside_stores import CacheStore as CacheStore  # noqa: PLC0414  # a public name of this package
from ..capabilities.shapes import at_least
from .sqlite_store import explained, file_path, open_file, tolerate_damage, transaction, write_ahead
from .store_threads import Connections

if TYPE_CHECKING:
    import sqlite3

    from .store_sql import Cursor

T = TypeVar("T")
Clock = Callable[[], float]
_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS capfold_cache "
    "(key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL, expires REAL) WITHOUT ROWID"
)
_EXPIRES: Final = (
    "CREATE INDEX IF NOT EXISTS capfold_cache_expires ON capfold_cache (expires) WHERE expires IS NOT NULL"
)
_GET: Final = "SELECT value FROM capfold_cache WHERE key = ? AND (expires IS NULL OR expires > ?)"
_SET: Final = "INSERT OR REPLACE INTO capfold_cache (key, value, expires) VALUES (?, ?, ?)"
_DROP: Final = "DELETE FROM capfold_cache WHERE expires <= ?"


def _check_key(key: object) -> None:
    if type(key) is not str or not key:
        raise TypeError(f"a key of a cache is a string that is not empty, not {key!r:.80}")


def _check_entry(key: object, value: object, ttl: object) -> None:
    _check_key(key)
    if type(value) is not str:
        raise TypeError(f"a cache keeps text, not {type(value).__name__}")
    if ttl is None:
        return
    if isinstance(ttl, bool) or not isinstance(ttl, int | float):
        raise TypeError(f"ttl must be a number of seconds or None, not {ttl!r:.80}")
    if not 0 < ttl < math.inf:
        raise ValueError(f"ttl must be a positive number of seconds or None, not {ttl!r}")


def _clock(instance: object, attribute: "Attribute[Clock | None]", value: object) -> None:
    if value is not None and not callable(value):
        name = type(instance).__name__
        raise TypeError(f"{name}.clock must be a function that returns seconds, or None, not {value!r:.80}")


@frozen
class MemoryCacheStore:
    """A cache in memory, of at most `max_entries` texts: then the one that was not used for longest goes.

    `clock`: seconds since any beginning; None = `time.time`. Any number of tasks, event loops and threads may use
    one. Equal configurations compare equal; what it keeps is each object's own.
    Raises ValueError or TypeError for what cannot work.
    """

    max_entries: int = field(default=1024, validator=at_least(1))
    clock: Clock | None = field(default=None, kw_only=True, validator=_clock)
    _lock: Lock = field(init=False, eq=False, repr=False, factory=Lock)
    _kept: "OrderedDict[str, tuple[str, float | None]]" = field(
        init=False, eq=False, repr=False, factory=OrderedDict
    )

    async def get(self, key: str) -> str | None:
        """Return the text under a key; None where there is none, or none any more. Raises TypeError."""
        _check_key(key)
        now = (self.clock or time.time)()
        with self._lock:
            value, expires = self._kept.get(key, (None, None))
            if expires is not None and expires <= now:
                del self._kept[key]
                return None
            if value is not None:
                self._kept.move_to_end(key)
        return value

    async def set(self, key: str, value: str, ttl: float | None = None) -> None:
        """Keep a text for `ttl` seconds, None = for good. Raises TypeError, ValueError."""
        _check_entry(key, value, ttl)
        now = (self.clock or time.time)()
        with self._lock:
            self._kept[key] = (value, None if ttl is None else now + ttl)
            self._kept.move_to_end(key)
            while len(self._kept) > self.max_entries:
                self._kept.popitem(last=False)


def _path(value: object) -> str:
    return file_path(value, "SQLiteCacheStore", "MemoryCacheStore() is the one in memory")


@frozen
class SQLiteCacheStore:
    """A cache in a SQLite file, which the first operation makes, for its owner only; its folder must exist.

    Any number of tasks, event loops and processes of one machine may use the file; it may hold other tables, as
    those of a SQLiteStore. What is out of date is deleted as others are written. `clock`: seconds since the epoch,
    the same for all who share the file; None = `time.time`.

    Operations raise StoreError for a file that is locked for 30 seconds, full, damaged or no database. Raises
    TypeError or ValueError for what is no path.
    """

    path: str = field(converter=_path)
    clock: Clock | None = field(default=None, kw_only=True, validator=_clock)
    _connections: "Connections[sqlite3.Connection]" = field(
        init=False,
        eq=False,
        repr=False,
        # The file stays the same one when the process changes its working directory.
        default=Factory(lambda self: _connections(str(Path(self.path).absolute())), takes_self=True),
    )

    async def get(self, key: str) -> str | None:
        """Return the text under a key; None where there is none, or none any more. Raises TypeError, StoreError."""
        _check_key(key)
        now = (self.clock or time.time)()
        return await self._run(lambda connection: _get(connection.cursor(), key, now))

    async def set(self, key: str, value: str, ttl: float | None = None) -> None:
        """Keep a text for `ttl` seconds, None = for good. Raises TypeError, ValueError, StoreError."""
        _check_entry(key, value, ttl)
        now = (self.clock or time.time)()
        await self._run(
            lambda connection: transaction(connection, lambda cursor: _set(cursor, key, value, ttl, now))
        )

    async def close(self) -> None:
        """Wait for what is under way, and close the file; the next operation opens it again."""
        await self._connections.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.close()

    async def _run(self, work: "Callable[[sqlite3.Connection], T]") -> T:
        return await self._connections.run(
            lambda connection: explained(self.path, None, lambda: work(connection))
        )


def _get(cursor: "Cursor", key: str, now: float) -> str | None:
    cursor.execute(_GET, (key, now))
    found = cursor.fetchall()
    return str(found[0][0]) if found else None


def _set(cursor: "Cursor", key: str, value: str, ttl: float | None, now: float) -> None:
    cursor.execute(_DROP, (now,))
    cursor.execute(_SET, (key, value, None if ttl is None else now + ttl))


def _connections(path: str) -> "Connections[sqlite3.Connection]":
    return Connections(partial(_open, path), size=1, harmless=())


def _open(path: str) -> "sqlite3.Connection":
    return open_file(path, _set_up)


def _set_up(connection: "sqlite3.Connection", path: str) -> None:
    tolerate_damage(connection)
    cursor = connection.cursor()
    write_ahead(cursor, path)
    cursor.execute("PRAGMA synchronous=NORMAL")  # a power cut may take the last entries, and damages nothing
    cursor.execute(_TABLE)
    cursor.execute(_EXPIRES)
