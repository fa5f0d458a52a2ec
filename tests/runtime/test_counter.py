"""Counters: a unit is taken once, whoever asks, from tasks, threads, loops and processes at once."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.runtime import Counter, SQLiteCounter, SQLiteStore, StoreError


def in_memory(folder: Path) -> Counter:
    """Return the counter in memory."""
    return Counter()


def in_file(folder: Path) -> SQLiteCounter:
    """Return the counter in a file."""
    return SQLiteCounter(folder / "counts.db")


KINDS = pytest.mark.parametrize("make", [in_memory, in_file])
Make = Callable[[Path], Counter | SQLiteCounter]


async def used(counter: Counter | SQLiteCounter, name: str) -> int:
    """Return what is taken of a name."""
    return counter.used(name) if isinstance(counter, Counter) else await counter.used(name)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.integers(0, 8)), max_size=12))
def test_all_or_none(asked: list[tuple[str, int, int]]) -> None:
    """Each name counts for itself; a reservation is granted where it fits its limit, and else changes nothing."""
    counter, expected = Counter(), {"a": 0, "b": 0}

    async def ask() -> None:
        for name, n, limit in asked:
            fits = expected[name] + n <= limit
            assert fits == await counter.reserve(name, n, limit)
            expected[name] += n if fits else 0

    anyio.run(ask)
    assert expected == {name: counter.used(name) for name in expected}


@KINDS
async def test_the_same_in_memory_and_in_a_file(make: Make, tmp_path: Path) -> None:
    """Names are apart, what does not fit is not taken, limits may be as large as one likes."""
    counter = make(tmp_path)
    asked = [("a", 2, 3), ("a", 2, 3), ("a", 1, 3), ("b", 4, 3), ("b", 3, 10**30), ("b", 10**20, 10**19)]
    granted = [await counter.reserve(name, n, limit) for name, n, limit in asked]
    assert [True, False, True, False, True, False] == granted
    assert (3, 3, 0) == (await used(counter, "a"), await used(counter, "b"), await used(counter, "c"))
    if isinstance(counter, SQLiteCounter):
        await counter.close()


@KINDS
async def test_tasks_side_by_side(make: Make, tmp_path: Path) -> None:
    """Of thirty that ask at once, exactly as many as there are units get one."""
    counter, granted = make(tmp_path), list[bool]()

    async def ask() -> None:
        granted.append(await counter.reserve("web", 1, 7))

    async with anyio.create_task_group() as tasks:
        for _ in range(30):
            tasks.start_soon(ask)
    assert (7, 7) == (sum(granted), await used(counter, "web"))
    if isinstance(counter, SQLiteCounter):
        await counter.close()


@KINDS
def test_threads_with_loops_of_their_own(make: Make, tmp_path: Path) -> None:
    """Event loops of both kinds in threads share one counter, and never take more than there is."""
    counter, start, granted = make(tmp_path), Barrier(6), list[bool]()

    async def ask() -> None:
        for _ in range(10):
            granted.append(await counter.reserve("web", 2, 45))

    def work(backend: str) -> None:
        start.wait()
        anyio.run(ask, backend=backend)

    threads = [Thread(target=work, args=(backend,)) for backend in ("asyncio", "trio") * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (60, 22) == (len(granted), sum(granted))
    if isinstance(counter, SQLiteCounter):
        anyio.run(counter.close)


PROCESS = """
import sys, anyio
from capfold.runtime import SQLiteCounter

async def main():
    counter = SQLiteCounter(sys.argv[1])
    print(sum([await counter.reserve("web", 1, 25) for _ in range(15)]))
    await counter.close()

anyio.run(main)
"""


async def test_processes_share_a_file(tmp_path: Path) -> None:
    """Three processes that ask for 45 units of 25, in the file of a store, get 25; it is still so afterwards."""
    path = tmp_path / "shared.db"
    store = SQLiteStore(path)
    assert () == await store.load("talk")
    running = [
        subprocess.Popen([sys.executable, "-c", PROCESS, path], stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220  # three at once; our own code
        for _ in range(3)
    ]
    told = [int(process.communicate()[0]) for process in running]
    counter = SQLiteCounter(path)
    assert (25, 25) == (sum(told), await counter.used("web"))
    assert await counter.reserve("web", 1, 25) is False
    await counter.close()
    await store.close()


async def test_a_file_for_its_owner_only(tmp_path: Path) -> None:
    """Nobody else reads it, and a counter that was closed opens again."""
    counter = SQLiteCounter(tmp_path / "counts.db")
    assert await counter.reserve("web", 1, 1)
    await counter.close()
    assert 0o600 == (tmp_path / "counts.db").stat().st_mode & 0o777
    assert 1 == await counter.used("web")
    await counter.close()


async def test_a_file_that_cannot_be(tmp_path: Path) -> None:
    """A missing folder, a folder and another file are told by name; nothing is granted."""
    (tmp_path / "text").write_text("this is no database, and long enough to be looked at by SQLite " * 20)
    for place, match in (("no/x.db", "does not exist"), ("", "folder"), ("text", "no SQLite database")):
        counter = SQLiteCounter(tmp_path / place)
        with pytest.raises(StoreError, match=match):
            await counter.reserve("web", 1, 1)
        await counter.close()


@KINDS
@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (TypeError, ("", 1, 1)),
        (TypeError, (None, 1, 1)),
        (ValueError, ("\ud800", 1, 1)),
        (TypeError, ("web", True, 1)),
        (TypeError, ("web", 1, 1.5)),
        (ValueError, ("web", 0, 1)),
        (ValueError, ("web", -1, 1)),
        (ValueError, ("web", 1, -1)),
    ],
)
async def test_what_cannot_be_reserved(
    make: Make, error: type[Exception], arguments: tuple[str, int, int], tmp_path: Path
) -> None:
    """A wrong name, number or limit is an error, never a grant; nothing is given back by a number below 0."""
    with pytest.raises(error):
        await make(tmp_path).reserve(*arguments)


@pytest.mark.parametrize(
    ("error", "path", "match"),
    [
        (TypeError, 1, "path"),
        (TypeError, b"x", "path"),
        (ValueError, ":memory:", "Counter()"),
        (ValueError, "", "path"),
    ],
)
def test_what_is_no_path(error: type[Exception], path: object, match: str) -> None:
    """What cannot be a file is refused at once."""
    with pytest.raises(error, match=match):
        SQLiteCounter(path)


def test_a_counter_in_a_file_is_its_path(tmp_path: Path) -> None:
    """Two of one path are equal; two in memory are two."""
    assert SQLiteCounter(tmp_path / "a") == SQLiteCounter(tmp_path / "a")
    assert Counter() != Counter()
