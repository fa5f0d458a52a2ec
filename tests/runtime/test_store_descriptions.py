"""Stores in a capability's configuration: described whole, without secrets, and built again from a text."""

from pathlib import Path

import pytest
from attrs import frozen

from capfold.capabilities.capability import Capability
from capfold.capabilities.secret import Secret
from capfold.runtime.dump import dump_capabilities, load_capabilities
from capfold.runtime.memory_store import MemoryStore
from capfold.runtime.postgres_store import PostgresStore
from capfold.runtime.sqlite_store import SQLiteStore

ALLOWED = (MemoryStore, SQLiteStore, PostgresStore)


@frozen
class Remember(Capability):
    """A capability that holds a store."""

    store: MemoryStore | SQLiteStore | PostgresStore


@pytest.mark.parametrize(
    "store",
    [
        SQLiteStore("conversations.db"),
        SQLiteStore(Path("a") / "b.db"),
        PostgresStore(Secret.env("STORE_URL")),
        PostgresStore("postgresql://somebody@host/name"),
    ],
)
def test_a_store_is_described_and_built_again(store: SQLiteStore | PostgresStore) -> None:
    """A capability with a store has a complete description, from which an equal one is built."""
    capability = Remember(store)
    assert capability.describe().complete
    (loaded,) = load_capabilities(dump_capabilities([capability]), allowed=[Remember, *ALLOWED])
    assert capability == loaded
    assert hash(capability) == hash(loaded)


def test_a_store_in_memory_is_described() -> None:
    """A store in memory is described whole; what is built from it is a new one, and empty."""
    capability = Remember(MemoryStore())
    assert capability.describe().complete
    (loaded,) = load_capabilities(dump_capabilities([capability]), allowed=[Remember, *ALLOWED])
    assert capability.describe() == loaded.describe()
    assert capability != loaded


@pytest.mark.parametrize("secret", ["postgresql://somebody:hunter2@host/name", "host=x sslpassword=hunter2"])
def test_a_password_is_not_described(secret: str) -> None:
    """A URL with a password makes the description incomplete, and the dump an error; it is in neither."""
    capability = Remember(PostgresStore(secret))
    described = capability.describe()
    assert not described.complete
    assert "hunter2" not in repr((capability, described, described.to_json()))
    with pytest.raises(ValueError, match=r"Remember\.store") as caught:
        dump_capabilities([capability])
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "error", "said"),
    [
        (":memory:", ValueError, r"MemoryStore\(\) is the store in memory"),
        ("", ValueError, "the path of a file"),
        ("a\0b", ValueError, "the path of a file"),
        (None, TypeError, "the path of a file, not None"),
        (b"a.db", TypeError, "the path of a file"),
    ],
)
def test_no_path(path: str, error: type[Exception], said: str) -> None:
    """What is no path of a file is refused when the store is built, with what would be one."""
    with pytest.raises(error, match=said):
        SQLiteStore(path)


async def test_a_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is of the folder in which the store was built, though the process moves on."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    async with SQLiteStore("store.db") as store:
        monkeypatch.chdir(tmp_path / "elsewhere")
        await store.pending()
        assert (tmp_path / "store.db").is_file()
    assert "SQLiteStore(path='store.db')" == repr(store)
