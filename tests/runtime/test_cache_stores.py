"""Stores for caches: what is kept, for how long, by how many at once; in memory and in a file."""

import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.runtime import CacheStore, MemoryCacheStore, SQLiteCacheStore, SQLiteStore
from capfold.runtime.stores import StoreError

Make = Callable[[Callable[[], float]], CacheStore]


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Return what makes a store of each kind with a clock; those of one test share a file."""
    if request.param == "memory":
        return lambda clock: MemoryCacheStore(clock=clock)
    return lambda clock: SQLiteCacheStore(tmp_path / "cache.db", clock=clock)


async def closed(store: CacheStore) -> None:
    """Close a store that has something to close."""
    if isinstance(store, SQLiteCacheStore):
        await store.close()


async def test_what_was_set_is_there_until_its_time(make: Make) -> None:
    """Nothing, then the text, replaced by a later one; gone when its seconds are over, and for good without any."""
    now = [1000.0]
    store = make(lambda: now[0])
    assert await store.get("a") is None
    await store.set("a", "first", 10)
    await store.set("b", "kept \u20ac", None)
    now[0] = 1009.9
    assert "first" == await store.get("a")
    await store.set("a", "second", 10)
    now[0] = 1019.8
    assert "second" == await store.get("a")
    now[0] = 1019.9
    assert await store.get("a") is None
    now[0] = 1e9
    assert "kept \u20ac" == await store.get("b")
    await store.set("b", "short", 1)
    now[0] += 1
    assert await store.get("b") is None
    await closed(store)


async def test_what_cannot_be_kept_is_refused(make: Make) -> None:
    """Keys and values are texts, seconds a positive number: each error says so, and nothing was kept."""
    store = make(lambda: 0.0)
    for key in ("", None, 5):
        with pytest.raises(TypeError, match="a key of a cache"):
            await store.get(key)  # type: ignore[arg-type]  # the values under test
        with pytest.raises(TypeError, match="a key of a cache"):
            await store.set(key, "x", None)  # type: ignore[arg-type]  # as above
    with pytest.raises(TypeError, match="keeps text, not bytes"):
        await store.set("a", b"x", None)  # type: ignore[arg-type]  # as above
    for ttl in (0, -1.5, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="positive number"):
            await store.set("a", "x", ttl)
    with pytest.raises(TypeError, match="number of seconds"):
        await store.set("a", "x", True)
    assert await store.get("a") is None
    await closed(store)


async def test_many_tasks_at_once(make: Make) -> None:
    """Fifty tasks that write and read their own keys, and one that all write: each reads what somebody wrote."""
    store = make(lambda: 0.0)

    async def one(i: int) -> None:
        await store.set(f"k{i % 10}", f"v{i % 10}", None)
        await store.set("shared", f"v{i}", 60)
        assert f"v{i % 10}" == await store.get(f"k{i % 10}")
        assert str(await store.get("shared")).startswith("v")

    async with anyio.create_task_group() as group:
        for i in range(50):
            group.start_soon(one, i)
    await closed(store)


def test_several_event_loops_at_once(make: Make) -> None:
    """Threads with event loops of their own may share one object."""
    store, wrong = make(lambda: 0.0), []

    async def work(name: str) -> None:
        for i in range(10):
            await store.set(f"{name}{i}", name, None)
            if name != await store.get(f"{name}{i}"):
                wrong.append((name, i))

    threads = [
        Thread(target=lambda name=name, backend=backend: anyio.run(work, name, backend=backend))
        for name, backend in (("a", "asyncio"), ("b", "trio"), ("c", "asyncio"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == wrong
    anyio.run(closed, store)


# --- in memory


keys = st.sampled_from("abcde")


@given(st.integers(1, 4), st.lists(st.tuples(st.sampled_from(["get", "set"]), keys), max_size=20))
def test_the_one_not_used_for_longest_goes(most: int, steps: list[tuple[str, str]]) -> None:
    """At most so many are kept, and they are those that were read or written last."""

    async def walk() -> None:
        store, model = MemoryCacheStore(most), dict[str, str]()
        for i, (what, key) in enumerate(steps):
            if what == "set":
                await store.set(key, str(i))
                model.pop(key, None)
                model[key] = str(i)
                while len(model) > most:
                    del model[next(iter(model))]
            else:
                assert model.get(key) == await store.get(key)
                if key in model:
                    model[key] = model.pop(key)

    anyio.run(walk)


async def test_two_in_memory_share_nothing() -> None:
    """Equal by their configuration, they are described and loaded like it; what they keep is each one's own."""
    first, second = MemoryCacheStore(2), MemoryCacheStore(2)
    await first.set("a", "x")
    assert await second.get("a") is None
    assert (first, hash(first)) == (second, hash(second))
    assert MemoryCacheStore(3) != first


def test_wrong_sizes_clocks_and_paths() -> None:
    """Each is refused when the store is made."""
    for size in (0, -1):
        with pytest.raises(ValueError, match="the least is 1"):
            MemoryCacheStore(size)
    for wrong in (True, 1.5, "10"):
        with pytest.raises(TypeError, match="must be an integer"):
            MemoryCacheStore(wrong)  # type: ignore[arg-type]  # the values under test
    with pytest.raises(TypeError, match=r"MemoryCacheStore\.clock"):
        MemoryCacheStore(clock=5)  # type: ignore[arg-type]  # as above
    with pytest.raises(TypeError, match=r"SQLiteCacheStore\.clock"):
        SQLiteCacheStore("a.db", clock="now")  # type: ignore[arg-type]  # as above
    for path in (":memory:", "", "a\0b"):
        with pytest.raises(ValueError, match="SQLiteCacheStore"):
            SQLiteCacheStore(path)
    for nothing in (None, b"a.db", 5):
        with pytest.raises(TypeError, match="SQLiteCacheStore takes"):
            SQLiteCacheStore(nothing)


# --- in a file


async def test_a_file_outlives_its_store(tmp_path: Path) -> None:
    """Another object with the same path reads what was kept; the file is its owner's only."""
    path = tmp_path / "cache.db"
    async with SQLiteCacheStore(path) as store:
        await store.set("a", "x")
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    async with SQLiteCacheStore(path) as store:
        assert "x" == await store.get("a")


async def test_another_process_reads_and_writes(tmp_path: Path) -> None:
    """Two processes share one file."""
    path = tmp_path / "cache.db"
    program = (
        "import anyio, sys\n"
        "from capfold.runtime import SQLiteCacheStore\n"
        "async def main():\n"
        "    async with SQLiteCacheStore(sys.argv[1]) as store:\n"
        "        await store.set('there', await store.get('here') + '!', None)\n"
        "anyio.run(main)\n"
    )
    async with SQLiteCacheStore(path) as store:
        await store.set("here", "x")
        command = [sys.executable, "-c", program, str(path)]
        await anyio.to_thread.run_sync(lambda: subprocess.run(command, check=True))  # our own text
        assert "x!" == await store.get("there")


async def test_what_is_out_of_date_is_deleted(tmp_path: Path) -> None:
    """A file does not grow for ever: a write takes away what nobody would be told."""
    now = [0.0]
    async with SQLiteCacheStore(tmp_path / "cache.db", clock=lambda: now[0]) as store:
        for i in range(20):
            await store.set(f"k{i}", "x", 1)
        now[0] = 1.0
        await store.set("last", "x", 1)
    with sqlite3.connect(tmp_path / "cache.db") as connection:
        assert [("last",)] == connection.execute("SELECT key FROM capfold_cache").fetchall()
    connection.close()


async def test_a_file_may_hold_conversations_too(tmp_path: Path) -> None:
    """The tables of a SQLiteStore stand beside those of the cache, whichever came first."""
    path = tmp_path / "both.db"
    async with SQLiteCacheStore(path) as cache, SQLiteStore(path) as store:
        await cache.set("a", "x")
        assert () == await store.pending()
        assert "x" == await cache.get("a")


async def test_a_file_that_is_none_is_said_to_be(tmp_path: Path) -> None:
    """No database, a folder, and a folder that is missing: a StoreError that says which."""
    (tmp_path / "text").write_text("not a database, but long enough to be one" * 50, encoding="utf-8")
    wrong = {
        tmp_path / "text": "no SQLite database",
        tmp_path: "is a folder",
        tmp_path / "a" / "b": "does not exist",
    }
    for path, said in wrong.items():
        store = SQLiteCacheStore(path)
        with pytest.raises(StoreError, match=said):
            await store.get("a")
        with pytest.raises(StoreError, match=said):
            await store.set("a", "x")
        await store.close()


async def test_a_damaged_value_is_text_still(tmp_path: Path) -> None:
    """Bytes that are no text any more come back as some text, which its reader finds to be damaged."""
    path = tmp_path / "cache.db"
    async with SQLiteCacheStore(path) as store:
        await store.set("a", "x")
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE capfold_cache SET value = CAST(x'ff41' AS TEXT)")
        connection.close()
        assert "\ufffdA" == await store.get("a")


async def test_cancelled_halfway_it_goes_on(tmp_path: Path) -> None:
    """A task that is cancelled while it writes leaves a store that works."""
    async with SQLiteCacheStore(tmp_path / "cache.db") as store:
        with anyio.move_on_after(0):
            await store.set("a", "x" * 100_000)
        await store.set("b", "y")
        assert "y" == await store.get("b")
        assert await store.get("a") in {None, "x" * 100_000}
