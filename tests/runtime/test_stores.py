"""What every store does, in memory, in SQLite and in PostgreSQL: keep all of it, in order, once, or say no."""

import asyncio
import itertools
from collections.abc import Callable, Sequence

import anyio
import anyio.lowlevel
import pytest
from anyio import CancelScope, to_thread
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities.frozen import freeze_mapping
from capfold.capabilities.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from capfold.runtime.codec import to_text
from capfold.runtime.stores import MessageStore, SnapshotClaimed, StoreConflict, StoreError
from tests.runtime.store_places import Place, new_place, postgres_server, snapshot
from tests.strategies import messages

__all__ = ["new_place", "postgres_server"]

STORY: tuple[Message, ...] = (
    SystemMessage("Be brief.", at=1.5),
    UserMessage((TextPart("Look:"), ImagePart(data=b"\x00\xff", media_type="image/png"))),
    AssistantMessage(
        "Paying.",
        tool_calls=(ToolCall("call-1", "pay", '{"amount": 3}', metadata=freeze_mapping({"a": [1]}, "it")),),
        finish_reason="tool_calls",
        usage=Usage(input_tokens=3),
        model="gpt",
        provider_items=({"type": "reasoning", "encrypted": "x"},),
        metadata={"nested": {"deep": [None, 1.5, True]}},
    ),
    ToolMessage("call-1", "pay", (FilePart(url="file:///r.pdf", media_type="application/pdf"),), at=2.0),
    AssistantMessage(""),
)


@pytest.fixture
def place(new_place: Callable[[], Place]) -> Place:
    """Return a place for this test alone."""
    return new_place()


def same(expected: Sequence[Message], found: Sequence[Message]) -> None:
    """Fail unless messages are equal in all fields, those too that do not take part in comparisons."""
    assert [to_text(message) for message in expected] == [to_text(message) for message in found]
    assert [type(message) for message in expected] == [type(message) for message in found]


def words(*texts: str) -> list[UserMessage]:
    """Return user messages."""
    return [UserMessage(text) for text in texts]


# --- messages


async def test_a_conversation_is_kept(place: Place) -> None:
    """Messages come back equal, from the store and from another one of the same place; others are not there."""
    async with place.open() as store:
        await store.append("a", STORY[:2], 0)
        await store.append("a", STORY[2:], 2)
        await store.append("b", STORY[:1], 0)
        same(STORY, await store.load("a"))
        assert () == await store.load("c")
    async with place.open() as store:
        same(STORY, await store.load("a"))
        same(STORY[:1], await store.load("b"))


_CONVERSATIONS = (f"conversation-{n}" for n in itertools.count())


@settings(max_examples=30)
@given(written=st.lists(messages(), max_size=5), cut=st.integers(0, 5))
def test_any_messages_are_kept(new_place: Callable[[], Place], written: list[Message], cut: int) -> None:
    """Messages of all kinds and contents come back in order, however they were divided."""
    conversation = next(_CONVERSATIONS)

    async def keep() -> tuple[Message, ...]:
        async with new_place().open() as store:
            await store.append(conversation, written[:cut], 0)
            await store.append(conversation, written[cut:], len(written[:cut]))
            return await store.load(conversation)

    same(written, anyio.run(keep))


@pytest.mark.parametrize(
    "text",
    ["\0", "a\0b", "\ud800", "\udfff\ud800", "😀 ß \u202e", "'; DROP TABLE x; --", "?%s%%", '"\\', "\r\n"],
)
async def test_any_text_is_kept(place: Place, text: str) -> None:
    """NUL, half surrogate pairs and what databases give a meaning to are text like any other."""
    async with place.open() as store:
        await store.append("a", [UserMessage(text), ToolMessage("1", text, text)], 0)
        same([UserMessage(text), ToolMessage("1", text, text)], await store.load("a"))


@pytest.mark.parametrize("name", ["😀" * 512, "a'b\"c?%s", " ", "ä", "a\u0308", "A", "a"])
async def test_any_name_is_a_name_of_its_own(place: Place, name: str) -> None:
    """Names are compared letter by letter: no case, accent or white space is the same as another."""
    others = ["ä", "a\u0308", "A", "a", " ", "  "]
    async with place.open() as store:
        await store.append(name, words(name), 0)
        await store.hold(name, snapshot(name))
        for other in others:
            assert (words(name) if other == name else []) == list(await store.load(other))
        assert (name,) == await store.pending()


@pytest.mark.parametrize(
    ("name", "error"),
    [("", ValueError), ("x" * 513, ValueError), ("a\0", ValueError), ("\ud800", ValueError), (3, TypeError)],
)
async def test_no_name(place: Place, name: str, error: type[Exception]) -> None:
    """What is no name, or one that not every database keeps, is refused by all, for conversations and runs."""
    async with place.open() as store:
        with pytest.raises(error, match="conversation"):
            await store.load(name)
        with pytest.raises(error, match="conversation"):
            await store.append(name, (), 0)
        for run in (store.held, store.claim):
            with pytest.raises(error, match="run_id"):
                await run(name)
        with pytest.raises(error, match="run_id"):
            await store.hold(name, snapshot("x"))


@pytest.mark.parametrize(
    ("added", "expected", "error", "said"),
    [
        (["text"], 0, TypeError, r"messages\[0\] must be a message record, not str"),
        ("text", 0, TypeError, "sequence of messages, not str"),
        (UserMessage("x"), 0, TypeError, "sequence of messages, not UserMessage"),
        ([UserMessage("x")], True, TypeError, "number of messages that were seen, not bool"),
        ([UserMessage("x")], "0", TypeError, "not str"),
        ([UserMessage("x")], -1, ValueError, "at least 0, not -1"),
    ],
)
async def test_no_messages(
    place: Place, added: list[Message], expected: int, error: type[Exception], said: str
) -> None:
    """What is no message, or no count, is refused before anything is written."""
    async with place.open() as store:
        with pytest.raises(error, match=said):
            await store.append("a", added, expected)
        assert () == await store.load("a")


@pytest.mark.parametrize("expected", [0, 1, 3, 100])
@pytest.mark.parametrize("added", [[], ["x"], ["x", "y", "z"]])
async def test_a_conflict_writes_nothing(place: Place, expected: int, added: list[str]) -> None:
    """A writer who saw fewer or more messages than there are is told both numbers; even one who adds nothing."""
    async with place.open() as store:
        await store.append("a", words("1", "2"), 0)
        with pytest.raises(
            StoreConflict, match=f"'a' has 2 messages, and the writer saw {expected}"
        ) as caught:
            await store.append("a", words(*added), expected)
        assert (expected, 2) == (caught.value.expected, caught.value.found)
        assert words("1", "2") == list(await store.load("a"))
        await store.append("a", [], 2)
        await store.append("a", words("3"), 2)
        assert words("1", "2", "3") == list(await store.load("a"))


async def test_of_many_writers_one_is_first(place: Place) -> None:
    """Tasks that append at once, through two stores: for each place one wins, and all the others are told."""
    stores = (place.open(), place.open())
    told: list[tuple[int, int]] = []

    async def write(store: MessageStore, name: str) -> None:
        expected = 0
        while True:
            try:
                await store.append("a", words(f"{name} 1", f"{name} 2"), expected)
                return
            except StoreConflict as error:
                told.append((error.expected, error.found))
                expected = error.found

    async with stores[0], stores[1], anyio.create_task_group() as group:
        for n in range(12):
            group.start_soon(write, stores[n % 2], f"writer {n}")
    async with place.open() as store:
        found = [str(message.content) for message in await store.load("a")]
    assert 24 == len(found)
    assert sorted(f"writer {n} {i}" for n in range(12) for i in (1, 2)) == sorted(found)
    assert all(found[i].rpartition(" ")[0] == found[i + 1].rpartition(" ")[0] for i in range(0, 24, 2))
    assert all(expected < seen and seen % 2 == 0 for expected, seen in told)


async def test_a_store_serves_several_event_loops(place: Place) -> None:
    """One object, used by event loops in four threads at once, keeps what each of them appends."""
    store = place.open()

    async def write(name: str) -> None:
        for i in range(5):
            await store.append(name, words(f"{i}"), i)

    async with store, anyio.create_task_group() as group:
        for n in range(4):
            group.start_soon(to_thread.run_sync, anyio.run, write, f"loop {n}")
    async with store:
        for n in range(4):
            assert words("0", "1", "2", "3", "4") == list(await store.load(f"loop {n}"))


async def test_a_cancelled_append_happened_or_not(place: Place) -> None:
    """Cancelled before it began nothing is written; at any other moment all of it or nothing; then all goes on."""
    async with place.open() as store:
        await store.append("a", words("first"), 0)
        with CancelScope() as scope:
            scope.cancel()
            await store.append("b", words("never"), 0)
        for n in range(20):
            async with anyio.create_task_group() as group:
                group.start_soon(store.append, f"c{n}", words("1", "2"), 0)
                for _ in range(n % 5):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
            assert len(await store.load(f"c{n}")) in (0, 2)
        await store.append("a", words("second"), 1)
        assert words("first", "second") == list(await store.load("a"))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_of_asyncio_is_cancelled(place: Place) -> None:
    """A task that asyncio cancels does not wait for its append, which ends by itself, whole; then all goes on."""
    async with place.open() as store:
        for n in range(20):
            task = asyncio.ensure_future(store.append("a" * (n + 1), words("1", "2"), 0))
            for _ in range(n % 5):
                await anyio.lowlevel.checkpoint()
            task.cancel()
            await asyncio.wait([task])
            found = len(await store.load("a" * (n + 1)))
            assert found in (0, 2)
            await store.append("b", words(f"{n}"), n)
        await store.close()
        assert 20 == len(await store.load("b"))


async def test_a_closed_store_opens_again(place: Place) -> None:
    """Closing twice, or in a scope that was cancelled, is no matter; the next operation opens anew."""
    store = place.open()
    await store.close()
    async with store as entered:
        assert entered is store
        await store.append("a", words("1"), 0)
    with CancelScope() as scope:
        scope.cancel()
        await store.close()
    await store.close()
    assert words("1") == list(await store.load("a"))
    await store.close()


# --- suspended runs


async def test_a_snapshot_is_claimed_once(place: Place) -> None:
    """A snapshot waits, can be looked at, and is taken once; then the run is neither held nor waiting."""
    async with place.open() as store:
        await store.hold("run-2", snapshot("two"))
        await store.hold("run-1", snapshot("one"))
        assert ("run-1", "run-2") == await store.pending()
        assert snapshot("one") == await store.held("run-1")
    async with place.open() as store:
        assert snapshot("one") == await store.claim("run-1")
        for again in (store.claim, store.held):
            with pytest.raises(SnapshotClaimed, match="'run-1' was claimed already") as caught:
                await again("run-1")
            assert "run-1" == caught.value.run_id
        assert ("run-2",) == await store.pending()


async def test_a_run_that_was_suspended_again(place: Place) -> None:
    """A run that was resumed and suspended again is held again, and claimed once more."""
    async with place.open() as store:
        for said in ("first", "second", "third"):
            await store.hold("run", snapshot(said))
            assert ("run",) == await store.pending()
            assert snapshot(said) == await store.claim("run")
        assert () == await store.pending()


async def test_what_waits_is_not_replaced(place: Place) -> None:
    """Another snapshot is refused until the first is claimed, and changes nothing; the same one again is no matter."""
    async with place.open() as store:
        await store.hold("run", snapshot("first"))
        await store.hold("other", snapshot("second"))
        for _ in range(2):
            with pytest.raises(
                StoreError, match=r"'run' waits .*: resume or claim that one first, .* another run_id"
            ):
                await store.hold("run", snapshot("second"))
            await store.hold("run", snapshot("first"))
            assert snapshot("first") == await store.held("run")
        assert ("other", "run") == await store.pending()
        assert snapshot("first") == await store.claim("run")
        await store.hold("run", snapshot("second"))
        assert snapshot("second") == await store.claim("run")


async def test_a_claimed_snapshot_is_not_held_again(place: Place) -> None:
    """Whoever holds a snapshot a second time, after it was claimed, would let one decision resume a run twice."""
    async with place.open() as store:
        await store.hold("run", snapshot("one"))
        await store.claim("run")
        with pytest.raises(SnapshotClaimed):
            await store.hold("run", snapshot("one"))
        assert () == await store.pending()


async def test_a_claim_of_a_certain_snapshot(place: Place) -> None:
    """A claim of the snapshot that was seen does not take the next one, which waits for other decisions."""
    async with place.open() as store:
        await store.hold("run", snapshot("new"))
        with pytest.raises(SnapshotClaimed):
            await store.claim("run", snapshot("old"))
        assert ("run",) == await store.pending()
        assert snapshot("new") == await store.claim("run", snapshot("new"))


async def test_an_unknown_run(place: Place) -> None:
    """A run that was never held is a LookupError that names it; a conversation of that name is no run."""
    async with place.open() as store:
        await store.append("run", words("x"), 0)
        for ask in (store.claim, store.held):
            with pytest.raises(LookupError, match="run 'run' is not in this store"):
                await ask("run")
        assert () == await store.pending()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", ValueError),
        ("{}", ValueError),
        ("not JSON", ValueError),
        (snapshot("x")[:-1], ValueError),
        (snapshot("x").replace("suspended run", "capabilities"), ValueError),
        (snapshot("x").replace('"capfold":1', '"capfold":2'), ValueError),
        (None, TypeError),
        (b"{}", TypeError),
    ],
)
async def test_no_snapshot(place: Place, text: str, error: type[Exception]) -> None:
    """What no run could be resumed from is refused when it is held, and leaves the one that waits alone."""
    async with place.open() as store:
        await store.hold("run", snapshot("one"))
        with pytest.raises(error, match="the snapshot of run 'run'"):
            await store.hold("run", text)
        assert snapshot("one") == await store.claim("run")


async def test_of_many_claimants_one_gets_it(place: Place) -> None:
    """Eight tasks, through two stores, claim one run at once: one gets it, seven are told."""
    stores = (place.open(), place.open())
    got: list[str] = []
    refused: list[SnapshotClaimed] = []

    async def claim(store: MessageStore) -> None:
        try:
            got.append(await store.claim("run"))
        except SnapshotClaimed as error:
            refused.append(error)

    async with stores[0], stores[1]:
        await stores[0].hold("run", snapshot("one"))
        async with anyio.create_task_group() as group:
            for n in range(8):
                group.start_soon(claim, stores[n % 2])
    assert ([snapshot("one")], 7) == (got, len(refused))


async def test_of_many_holders_one_is_held(place: Place) -> None:
    """Eight tasks, through two stores, hold as many snapshots of one run id at once: one waits, seven are told."""
    stores = (place.open(), place.open())
    kept: list[str] = []
    refused: list[StoreError] = []

    async def hold(store: MessageStore, text: str) -> None:
        try:
            await store.hold("run", text)
        except StoreError as error:
            refused.append(error)
        else:
            kept.append(text)

    async with stores[0], stores[1]:
        async with anyio.create_task_group() as group:
            for n in range(8):
                group.start_soon(hold, stores[n % 2], snapshot(f"{n}"))
        assert (1, 7) == (len(kept), len(refused))
        assert kept == [await stores[1].claim("run")]
