"""What stands in a database and should not: it is found, named, and nothing else is lost by it."""

# ruff: noqa: S608, ASYNC240 - statements are written by the tests themselves, which wait for nothing else

import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from capfold.capabilities.messages import UserMessage
from capfold.runtime.sqlite_store import SQLiteStore
from capfold.runtime.stores import StoreError
from tests.runtime.store_places import Place, new_database, postgres_server, snapshot

__all__ = ["new_database", "postgres_server"]

TEXT = '{"at":null,"content":"an edited text","type":"UserMessage"}'


@pytest.fixture
async def place(new_database: Callable[[], Place]) -> Place:
    """Return a database with two conversations of three messages, and a run that waits."""
    place = new_database()
    async with place.open() as store:
        for name in ("a", "b"):
            await store.append(name, [UserMessage(f"{name} {i}") for i in range(3)], 0)
        await store.hold("run", snapshot("one"))
    return place


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (f"SET message = '{TEXT}'", "changed after it was written"),
        ("SET message = '{\"at\":'", "changed after it was written"),
        ("SET message = ''", "changed after it was written"),
        ("SET digest = ''", "changed after it was written"),
        ("SET codec = 2", "changed after it was written"),
        ("SET place = 7", "is missing"),
    ],
)
async def test_an_edited_row(place: Place, statement: str, said: str) -> None:
    """A row that was changed by hand is named by conversation and position; other conversations can be read."""
    place.sql(f"UPDATE capfold_messages {statement} WHERE conversation = 'a' AND place = 1")
    async with place.open() as store:
        with pytest.raises(StoreError, match=f"conversation 'a': message 1 .*{said}") as caught:
            await store.load("a")
        assert ("a", 1) == (caught.value.conversation, caught.value.position)
        assert 3 == len(await store.load("b"))
        await store.append("b", [UserMessage("b 3")], 3)


async def test_rows_that_changed_places(place: Place) -> None:
    """Two whole messages in each other's place are found: a row belongs where it was written."""
    for was, becomes in ((0, 9), (1, 0), (9, 1)):
        place.sql(f"UPDATE capfold_messages SET place = {becomes} WHERE conversation = 'a' AND place = {was}")
    async with place.open() as store:
        with pytest.raises(StoreError, match="message 0 is damaged") as caught:
            await store.load("a")
        assert 0 == caught.value.position


async def test_a_missing_row(place: Place) -> None:
    """A message that is gone from the middle is named; the conversation does not pass for a shorter one."""
    place.sql("DELETE FROM capfold_messages WHERE conversation = 'a' AND place = 0")
    async with place.open() as store:
        with pytest.raises(StoreError, match="message 0 is missing, though there are later ones"):
            await store.load("a")


async def test_a_message_of_a_newer_version(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that a newer capfold wrote is refused with both versions; it is not damaged."""
    monkeypatch.setattr("capfold.runtime.store_sql.SCHEMA_VERSION", 2)
    async with place.open() as store:
        await store.append("a", [UserMessage("from the future")], 3)
    monkeypatch.undo()
    async with place.open() as store:
        with pytest.raises(
            StoreError, match="message 3 was written in version 2; this capfold reads version 1"
        ):
            await store.load("a")


async def test_a_damaged_snapshot(place: Place) -> None:
    """A snapshot that was changed is neither shown nor claimed; it still waits."""
    place.sql(f"UPDATE capfold_snapshots SET snapshot = '{snapshot('two')}'")
    async with place.open() as store:
        for ask in (store.held, store.claim):
            with pytest.raises(StoreError, match="snapshot of run 'run' is damaged"):
                await ask("run")
        assert ("run",) == await store.pending()
        await store.hold("run", snapshot("three"))
        assert snapshot("three") == await store.claim("run")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "UPDATE capfold_schema SET version = 2",
            "schema version 2, of a newer capfold; this one reads version 1",
        ),
        ("UPDATE capfold_schema SET version = 0", r"capfold_schema holds \[0\] in place of one version"),
        ("DELETE FROM capfold_schema", r"capfold_schema holds \[\] in place of one version"),
    ],
)
async def test_another_schema(place: Place, statement: str, said: str) -> None:
    """A database of a newer version, or of none, is refused by each operation, and left as it is."""
    place.sql(statement)
    before = place.sql("SELECT * FROM capfold_messages ORDER BY conversation, place")
    async with place.open() as store:
        with pytest.raises(StoreError, match=said):
            await store.load("a")
        with pytest.raises(StoreError, match=said):
            await store.append("a", [UserMessage("x")], 3)
        with pytest.raises(StoreError, match=said):
            await store.claim("run")
    assert before == place.sql("SELECT * FROM capfold_messages ORDER BY conversation, place")


async def test_tables_beside_others(place: Place) -> None:
    """A database may hold tables of other programs."""
    place.sql("CREATE TABLE theirs (x INTEGER)")
    async with place.open() as store:
        assert 3 == len(await store.load("a"))
    assert [] == place.sql("SELECT * FROM theirs")


# --- a file


def flip(path: Path, text: bytes) -> None:
    """Flip a bit in each byte of a text, wherever it stands in a file."""
    data = path.read_bytes()
    assert text in data
    path.write_bytes(data.replace(text, bytes(byte ^ 0x80 for byte in text)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a SQLite file with the conversations `first` and `other`, of long messages."""
    path = tmp_path / "store.db"

    async def fill() -> None:
        async with SQLiteStore(path) as store:
            for name in ("first", "other"):
                for i in range(40):
                    await store.append(name, [UserMessage(f"<{name} {i}>" + "." * 3000)], i)

    anyio.run(fill)
    return path


async def test_flipped_bytes_in_a_message(path: Path) -> None:
    """Bytes that are no text any more are found in the message that they belong to."""
    flip(path, b"<first 17>")
    async with SQLiteStore(path) as store:
        with pytest.raises(StoreError, match="conversation 'first': message 17 is damaged") as caught:
            await store.load("first")
        assert ("first", 17) == (caught.value.conversation, caught.value.position)
        assert 40 == len(await store.load("other"))


async def test_a_flipped_page(path: Path) -> None:
    """A page that SQLite cannot read is a StoreError that names the conversation; others can be read."""
    file = sqlite3.connect(path)
    size = file.execute("PRAGMA page_size").fetchone()[0]
    file.close()
    data = bytearray(path.read_bytes())
    page = data.index(b"<first 17>") // size * size
    data[page : page + 8] = b"\xff" * 8
    path.write_bytes(data)
    async with SQLiteStore(path) as store:
        with pytest.raises(StoreError, match=r"conversation 'first': the database .* damaged") as caught:
            await store.load("first")
        assert "first" == caught.value.conversation
        assert 40 == len(await store.load("other"))


@pytest.mark.parametrize("data", [b"no database, but a text\n" * 99, b"SQLite format 3\0" + b"\xff" * 4000])
async def test_a_file_that_is_no_database(tmp_path: Path, data: bytes) -> None:
    """A file of something else is refused, and left as it is."""
    path = tmp_path / "store.db"
    path.write_bytes(data)
    async with SQLiteStore(path) as store:
        with pytest.raises(StoreError, match=r"store.db': the file is"):
            await store.append("a", [UserMessage("x")], 0)
    assert data == path.read_bytes()


async def test_a_place_that_is_none(tmp_path: Path) -> None:
    """A folder that is missing, a folder in place of a file: named before anything is made."""
    with pytest.raises(StoreError, match=r"the folder .*missing' does not exist"):
        await SQLiteStore(tmp_path / "missing" / "store.db").load("a")
    with pytest.raises(StoreError, match="is a folder"):
        await SQLiteStore(tmp_path).load("a")
    assert [] == list(tmp_path.iterdir())


async def test_a_new_file_is_its_owners(path: Path) -> None:
    """Conversations are readable by their owner only, in the log that is written ahead too."""
    async with SQLiteStore(path) as store:
        await store.append("first", [UserMessage("x")], 40)
        for made in path.parent.iterdir():
            assert 0o600 == stat.S_IMODE(made.stat().st_mode)


async def test_a_busy_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that keeps the file locked for too long is said to; readers do not wait, and later appends work."""
    monkeypatch.setattr("capfold.runtime.sqlite_store.BUSY_SECONDS", 0.05)
    file = sqlite3.connect(path, isolation_level=None)
    file.execute("BEGIN IMMEDIATE")
    async with SQLiteStore(path) as store:
        with pytest.raises(StoreError, match="another process kept it locked"):
            await store.append("first", [UserMessage("x")], 40)
        assert 40 == len(await store.load("first"))
        file.execute("ROLLBACK")
        file.close()
        await store.append("first", [UserMessage("x")], 40)


async def test_an_append_that_waits_is_cancelled(path: Path) -> None:
    """Cancelled while it waits for another writer, an append ends whole, and the store goes on."""
    file = sqlite3.connect(path, isolation_level=None)
    async with SQLiteStore(path) as store:
        await store.load("first")
        file.execute("BEGIN IMMEDIATE")
        async with anyio.create_task_group() as group:
            group.start_soon(store.append, "new", [UserMessage("1"), UserMessage("2")], 0)
            await anyio.sleep(0.05)
            group.cancel_scope.cancel()
            file.execute("ROLLBACK")
        file.close()
        found = len(await store.load("new"))
        assert found in (0, 2)
        await store.append("new", [UserMessage("3")], found)
