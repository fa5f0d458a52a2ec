"""Databases that several processes share, and processes that die: what was acknowledged is there, and whole."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from capfold.capabilities.messages import UserMessage
from tests.runtime.store_places import Place, new_database, postgres_server, snapshot
from tests.runtime.store_process import go, let_go, start

__all__ = ["new_database", "postgres_server"]


@pytest.fixture
def place(new_database: Callable[[], Place]) -> Place:
    """Return a database for this test alone."""
    return new_database()


def contents(place: Place, conversation: str) -> list[object]:
    """Return what the messages of a conversation say."""

    async def load() -> list[object]:
        async with place.open() as store:
            return [message.content for message in await store.load(conversation)]

    return anyio.run(load)


def test_two_processes_race(place: Place) -> None:
    """Two processes write to each place at once: one wins it, and the other is told what it saw and what there is."""
    runners = [start("race", place.location, name, "40") for name in ("one", "two")]
    told = go(*runners)
    found = contents(place, "race")
    assert 40 == len(found)
    won = sorted(
        (said[1], f"{name} {said[1]}")
        for name, lines in zip(("one", "two"), told, strict=True)
        for said in lines  # each is ["won", place] or ["lost", place, expected, found]
        if isinstance(said, list) and said[0] == "won"
    )
    assert [(place, found[place]) for place in range(40)] == won
    lost = [said for lines in told for said in lines if isinstance(said, list) and said[0] == "lost"]
    assert all(seen == place and place < there <= 40 for _, place, seen, there in lost)


def test_two_processes_claim(place: Place) -> None:
    """Two processes claim one run at once: one gets it."""

    async def hold() -> None:
        async with place.open() as store:
            await store.hold("run", snapshot("one"))

    anyio.run(hold)
    told = go(*(start("claim", place.location, "run") for _ in range(2)))
    assert ["claimed", "refused"] == sorted(str(line) for lines in told for line in lines)


def test_two_processes_hold(place: Place) -> None:
    """Two processes hold other snapshots of one run id at once: one waits, and the other process is told."""
    texts = [snapshot("one"), snapshot("two")]
    told = go(*(start("hold", place.location, "run", text) for text in texts))
    assert [["held"], ["refused"]] == sorted(told)

    async def claim() -> str:
        async with place.open() as store:
            return await store.claim("run")

    assert texts[told.index(["held"])] == anyio.run(claim)


def test_four_processes_make_one_database(place: Place) -> None:
    """Processes that are started at once on a place where nothing is yet all find the tables."""
    told = go(*(start("race", place.location, str(n), "1") for n in range(4)))
    assert 1 == sum(said[0] == "won" for lines in told for said in lines if isinstance(said, list))


@pytest.mark.parametrize("acknowledged", [1, 7, 30])
def test_a_process_is_killed(place: Place, acknowledged: int) -> None:
    """Killed at any moment of a loop of appends: all that was acknowledged is there, and nothing by halves."""
    process = start("pairs", place.location)
    assert process.stdout is not None
    let_go(process)
    for _ in range(acknowledged):
        process.stdout.readline()
    time.sleep(
        0.001 * (acknowledged % 4)
    )  # not after the acknowledgement only, but anywhere in the next append
    process.kill()
    rest, _ = process.communicate()
    counted = max([2 * acknowledged, *(json.loads(line) for line in rest.splitlines() if line)])
    found = contents(place, "pairs")
    assert [str(n) for n in range(len(found))] == found
    assert len(found) in (counted, counted + 2)

    async def go_on() -> None:
        async with place.open() as store:
            await store.append("pairs", [UserMessage("on")], len(found))

    anyio.run(go_on)
    assert [*found, "on"] == contents(place, "pairs")


def test_a_process_is_forked_off(place: Place) -> None:
    """A store that was open when its process was forked works in both: each has connections of its own."""
    assert [[[0, ["before", "child", "parent"]]]] == go(start("fork", place.location))


def test_a_full_disk(tmp_path: Path) -> None:
    """Where the system refuses to write, the append is refused, all earlier ones are there, and later ones work."""
    path = tmp_path / "full.db"
    refused, again, while_full, at_last = go(start("fill", str(path), str(path)))[0]
    for told in (refused, again):
        assert isinstance(told, list)
        assert "refused" == told[0]
        assert "conversation 'kept'" in told[1]
        assert str(path) in told[1]
        assert "the disk is full" in told[1] or "could not read or write" in told[1]
    assert ["while full", ["before"]] == while_full
    assert ["at last", ["before", "after"]] == at_last
