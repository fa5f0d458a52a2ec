"""Where the stores of the tests keep what they keep: in memory, in a file, in a server. Nothing here asserts."""

import itertools
import sqlite3
from collections.abc import Callable

import pytest
from attrs import frozen

from capfold.runtime.codec import envelope
from capfold.runtime.memory_store import MemoryStore
from capfold.runtime.postgres_store import PostgresStore
from capfold.runtime.snapshot import KIND
from capfold.runtime.sqlite_store import SQLiteStore
from capfold.runtime.stores import MessageStore
from tests.postgres import PostgresServer, postgres_server

__all__ = ["Place", "new_database", "new_place", "postgres_server", "snapshot"]


@frozen
class Place:
    """A place for a store. `location`: a path or URL, None in memory; `memory`: the store that is the place."""

    location: str = ""
    memory: MemoryStore | None = None

    def open(self) -> MessageStore:
        """Return a store of this place: another object each time, where it is a database."""
        if self.memory is not None:
            return self.memory
        return PostgresStore(self.location) if self.is_server else SQLiteStore(self.location)

    @property
    def is_server(self) -> bool:
        """Whether it is a database in PostgreSQL."""
        return self.location.startswith("postgresql:")

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        """Do by hand, past all stores, what nobody should; return rows, where there are some."""
        if self.is_server:
            import psycopg  # noqa: PLC0415  # where it is missing, other tests still run

            with psycopg.connect(self.location, autocommit=True) as server:
                cursor = server.execute(statement.encode())
                return list(cursor.fetchall()) if cursor.description else []
        file = sqlite3.connect(self.location, isolation_level=None)
        try:
            return file.execute(statement).fetchall()
        finally:
            file.close()


_NUMBERS = itertools.count()


def _maker(kind: str, request: pytest.FixtureRequest) -> Callable[[], Place]:
    if kind == "memory":
        return lambda: Place(memory=MemoryStore())
    if kind == "sqlite":
        folder = request.getfixturevalue("tmp_path_factory").mktemp("stores")
        return lambda: Place(str(folder / f"{next(_NUMBERS)}.db"))
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return lambda: Place(server.new_url())


@pytest.fixture(scope="session", params=["memory", "sqlite", "postgres"])
def new_place(request: pytest.FixtureRequest) -> Callable[[], Place]:
    """Return what makes a new, empty place, of each kind."""
    return _maker(request.param, request)


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def new_database(request: pytest.FixtureRequest) -> Callable[[], Place]:
    """Return what makes a new, empty place, of each kind that several processes can share."""
    return _maker(request.param, request)


def snapshot(text: str) -> str:
    """Return a document that looks like the snapshot of a suspended run."""
    return envelope(KIND, {"said": text})
