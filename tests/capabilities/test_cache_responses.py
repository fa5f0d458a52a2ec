"""CacheResponses: a reply is kept and given again; what it costs, what it holds, and what is never kept."""

import contextlib
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import field, frozen

from capfold.capabilities import (
    AssistantMessage,
    CacheResponses,
    CacheStore,
    CallNext,
    Capability,
    RunState,
    ToolMessage,
    Usage,
    call,
    tool,
)
from capfold.capabilities.reply_text import to_text
from capfold.runtime import (
    Agent,
    Delta,
    Ended,
    HookError,
    Limits,
    MemoryCacheStore,
    ModelError,
    RunError,
    ScriptedModel,
    Settled,
    SQLiteCacheStore,
    replay,
)
from tests.capabilities.shaping_kit import check_laws, desk, reloaded


@frozen(eq=False)
class Kept:
    """A store that can be looked into."""

    texts: dict[str, str] = field(factory=dict)
    ttls: list[float | None] = field(factory=list)

    async def get(self, key: str) -> str | None:
        """Look up."""
        return self.texts.get(key)

    async def set(self, key: str, value: str, ttl: float | None) -> None:
        """Keep."""
        self.texts[key] = value
        self.ttls.append(ttl)


@tool
def look(n: int) -> str:
    """Look something up."""
    return f"saw {n}"


USED = Usage(input_tokens=5, output_tokens=2, cached_tokens=0, reasoning_tokens=0)


async def test_a_hit_costs_nothing_and_says_that_it_is_one() -> None:
    """The model was asked once; the second run's reply is equal, marked, and free."""
    model = ScriptedModel(["first"], usage=USED)
    made = Agent("desk", model, capabilities=[CacheResponses(Kept())])
    first, second = await made.run("go"), await made.run("go")
    assert ("first", "first", 1) == (first.output, second.output, len(model.requests))
    assert (1, 0, 7, 0) == (first.requests, second.requests, first.usage.total, second.usage.total)
    said, again = first.messages[-1], second.messages[-1]
    assert isinstance(said, AssistantMessage)
    assert isinstance(again, AssistantMessage)
    assert ({}, {"cached": True}) == (said.metadata, again.metadata)
    assert (said.content, said.model) == (again.content, again.model)


async def test_calls_of_a_hit_get_ids_of_their_own_and_run() -> None:
    """A whole run of three requests is given again: its tools run, its ids are made anew, nothing is sent."""
    twice = [call("look", {"n": 2}, id="c8"), call("look", {"n": 3}, id="c9")]
    replies = [call("look", {"n": 1}, id="c7"), twice, "ok"]
    store = Kept()
    made, model = desk(replies, CacheResponses(store), tools=[look])
    first, second = await made.run("go"), await made.run("go", limits=Limits(requests=1))
    assert (3, 0, 3) == (first.requests, second.requests, len(model.requests))
    results = [[m.content for m in run.messages if isinstance(m, ToolMessage)] for run in (first, second)]
    assert [["saw 1", "saw 2", "saw 3"]] * 2 == results
    ids = {c.id for m in second.messages if isinstance(m, AssistantMessage) for c in m.tool_calls}
    assert (3, set()) == (len(ids), ids & {"c7", "c8", "c9"})
    origins = {c.origin for m in second.messages if isinstance(m, AssistantMessage) for c in m.tool_calls}
    assert {"CacheResponses"} == origins
    # A third run hits what the second one would have asked, though its ids were others.
    assert 0 == (await made.run("go")).requests
    assert 3 == len(store.texts)


async def test_runs_share_no_object() -> None:
    """What is kept is text: two hits are two messages, and a run that goes on from one leaves the other as it is."""
    made, _ = desk(["first", "second"], CacheResponses(Kept()))
    one, two, three = [await made.run("go") for _ in range(3)]
    assert two.messages[-1] == three.messages[-1]
    assert two.messages[-1] is not three.messages[-1]
    longer = await made.run("and?", messages=two.messages)
    assert (2, 4) == (len(three.messages), len(longer.messages))
    assert ("first", "second") == (one.output, longer.output)


async def test_a_stream_shows_a_hit_as_one_delta() -> None:
    """The text of a reply that nobody streamed comes whole, before it is settled; the run's end is the same."""
    made, _ = desk(["a longer answer in pieces"], CacheResponses(Kept()))
    plain = await made.run("go")
    async with made.stream("go") as events:
        seen = [event async for event in events]
    assert [plain.output] == [event.text for event in seen if isinstance(event, Delta)]
    assert 1 == sum(isinstance(event, Settled) for event in seen)
    ended = seen[-1]
    assert isinstance(ended, Ended)
    assert ended.result is not None
    assert (plain.output, 0) == (ended.result.output, ended.result.requests)


async def test_what_was_streamed_is_kept() -> None:
    """A run that is streamed fills the cache for one that is not."""
    made, model = desk(["in pieces, at first"], CacheResponses(Kept()))
    async with made.stream("go") as events:
        assert 1 < sum([isinstance(event, Delta) async for event in events])
    assert ("in pieces, at first", 1) == ((await made.run("go")).output, len(model.requests))


@pytest.mark.parametrize(
    "reply",
    [
        AssistantMessage("cut o", finish_reason="length"),
        AssistantMessage("I cannot", finish_reason="refusal"),
        AssistantMessage("", finish_reason="content_filter"),
        AssistantMessage("half", finish_reason="incomplete"),
        ModelError("server", "down", retryable=True),
        ModelError("connection", "broke off", retryable=True, partial="half an ans"),
    ],
)
async def test_what_is_no_whole_reply_is_not_kept(reply: Any) -> None:  # Any: a reply of the script
    """An error, and a reply that was cut off, filtered, refused or incomplete: the next run asks again."""
    store = Kept()
    made, model = desk([reply, "whole"], CacheResponses(store))
    with contextlib.suppress(RunError):
        await made.run("go")
    assert {} == store.texts
    assert ("whole", 2) == ((await made.run("go")).output, len(model.requests))


async def test_nothing_said_is_not_kept() -> None:
    """A reply without text and calls is nothing to give again."""
    store = Kept()
    made, _ = desk([AssistantMessage("")], CacheResponses(store))
    await made.run("go")
    assert {} == store.texts


@frozen
class Stopper(Capability):
    """Stops the run around the request; the response is there all the same."""

    async def wrap_model_request(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        return (await call_next(state)).stop("enough")


async def test_a_reply_over_which_the_run_was_stopped_is_not_kept() -> None:
    """What an inner wrapper judged to be the end is not given to the next run as an answer."""
    store = Kept()
    made, _ = desk(["said"], CacheResponses(store), Stopper())
    assert "stopped" == (await made.run("go")).status
    assert {} == store.texts


async def test_tools_settings_and_tenants_are_part_of_the_request() -> None:
    """The same words under other tools, settings or another tenant are another request."""
    store = Kept()
    cache = CacheResponses(store, vary=["tenant"])
    model = ScriptedModel(["a", "b", "c", "d"])
    plain, tooled = (
        Agent("desk", model, capabilities=[cache]),
        Agent("desk", model, capabilities=[cache], tools=[look]),
    )
    outputs = [
        (await plain.run("go", context={"tenant": "x"})).output,
        (await tooled.run("go", context={"tenant": "x"})).output,
        (await plain.run("go", context={"tenant": "x"}, settings={"temperature": 0})).output,
        (await plain.run("go", context={"tenant": "y"})).output,
        (await plain.run("go", context={"tenant": "x"})).output,
    ]
    assert ["a", "b", "c", "d", "a"] == outputs


async def test_a_context_without_the_tenant_ends_the_run() -> None:
    """Nobody is told what was kept for somebody else because a key was forgotten."""
    made, model = desk(["never"], CacheResponses(Kept(), vary=["tenant"]))
    with pytest.raises(HookError, match=r"CacheResponses.*no 'tenant'"):
        await made.run("go", context={"team": "x"})
    assert () == model.requests


@pytest.mark.parametrize("damage", ["", "{}", "not JSON", "edited"])
async def test_a_damaged_text_is_asked_again_and_replaced(damage: str) -> None:
    """What cannot be read counts as nothing kept: a note says why, and the new reply takes its place."""
    store = Kept()
    made, model = desk(["first", "second"], CacheResponses(store))
    await made.run("go")
    ((key, text),) = store.texts.items()
    store.texts[key] = text.replace("first", "fourth") if damage == "edited" else damage
    again = await made.run("go")
    assert ("second", 2) == (again.output, len(model.requests))
    assert 1 == sum(f"what is kept under {key[:12]} is no use" in note for note in again.state.notes)
    assert ("second", 0) == ((third := await made.run("go")).output, third.requests)


async def test_another_requests_text_is_not_told() -> None:
    """A store that mixes its entries up cannot make one user read another's reply."""
    store = Kept()
    made, _ = desk(["for go", "for come"], CacheResponses(store))
    await made.run("go")
    (key,) = store.texts
    store.texts[key] = to_text(AssistantMessage("for somebody else"), "another key")
    result = await made.run("go")
    assert "for come" == result.output
    assert "another request" in result.state.notes[0]


@frozen(eq=False)
class Broken:
    """A store that fails to read, or to write."""

    reads: bool = False

    async def get(self, key: str) -> str | None:
        """Fail, or find nothing."""
        if not self.reads:
            raise OSError("the cache is down")
        return None

    async def set(self, key: str, value: str, ttl: float | None) -> None:
        """Fail."""
        raise OSError("the cache is full")


@pytest.mark.parametrize("reads", [False, True])
async def test_a_store_that_fails_ends_the_run_by_name(*, reads: bool) -> None:
    """It is no silent loss: the error names the capability and what the store said."""
    made, model = desk(["said"], CacheResponses(Broken(reads)))
    with pytest.raises(HookError, match=r"CacheResponses.*the cache is"):
        await made.run("go")
    assert int(reads) == len(model.requests)


async def test_the_time_to_live_reaches_the_store() -> None:
    """Seconds are counted by the store: after them, the model is asked again."""
    now = [100.0]
    made, model = desk(["old", "new"], CacheResponses(MemoryCacheStore(clock=lambda: now[0]), ttl=60))
    await made.run("go")
    now[0] = 159.0
    assert "old" == (await made.run("go")).output
    now[0] = 160.0
    assert ("new", 2) == ((await made.run("go")).output, len(model.requests))
    store = Kept()
    for ttl in (None, 1.5):
        await desk(["x"], CacheResponses(store, ttl=ttl))[0].run(str(ttl))
    assert [None, 1.5] == store.ttls


async def test_many_at_once() -> None:
    """Twenty runs over one store, of four prompts: every one gets the reply to its own prompt."""
    store = MemoryCacheStore()
    model = ScriptedModel([lambda request: f"about {request.messages[0].content}"] * 20)
    made = Agent("desk", model, capabilities=[CacheResponses(store)])
    told: dict[int, object] = {}

    async def one(i: int) -> None:
        told[i] = (await made.run(f"{i % 4}")).output

    async with anyio.create_task_group() as group:
        for i in range(20):
            group.start_soon(one, i)
    assert {i: f"about {i % 4}" for i in range(20)} == told
    sent = len(model.requests)
    assert {f"about {i}" for i in range(4)} == {(await made.run(f"{i}")).output for i in range(4)}
    assert sent == len(model.requests)


async def test_two_agents_of_two_processes_share_a_file(tmp_path: Path) -> None:
    """A cache in a file serves an agent that was built elsewhere, alike but for its objects."""
    outputs = []
    for replies in (["first"], []):
        async with SQLiteCacheStore(tmp_path / "cache.db") as store:
            made, _ = desk(list(replies), CacheResponses(store))
            outputs.append((await made.run("go")).output)
    assert ["first", "first"] == outputs


async def test_values_of_a_type_and_replays() -> None:
    """A structured answer is given again as a value; a run of hits is replayed from its log without the store."""
    store = Kept()
    made, model = desk(['{"value": 5}', "5"], CacheResponses(store), output_type=int)
    first = await made.run("two and three")
    sent = len(model.requests)
    again = await made.run("two and three")
    assert (5, 5, 0, sent) == (first.output, again.output, again.requests, len(model.requests))
    store.texts.clear()
    assert again.log.head == replay(again.log, made).records.head
    assert sent == len(model.requests)


async def test_one_cache_behind_another() -> None:
    """A near one and a far one: what the far one has is kept in the near one too, as if it had been said."""
    near, far = Kept(), Kept()
    await desk(["said"], CacheResponses(far))[0].run("go")
    made, model = desk([], CacheResponses(near, key="near"), CacheResponses(far, key="far"))
    assert ("said", ()) == ((await made.run("go")).output, model.requests)
    assert near.texts == far.texts


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"store": {}}, TypeError, "needs async get"),
        ({"store": MemoryCacheStore}, TypeError, "needs async get"),
        ({"store": None}, TypeError, "MemoryCacheStore"),
        ({"ttl": 0}, ValueError, "positive number"),
        ({"ttl": float("inf")}, ValueError, "positive number"),
        ({"ttl": True}, TypeError, "number of seconds"),
        ({"vary": "tenant"}, TypeError, "takes keys"),
        ({"vary": ["tenant", 5]}, TypeError, "must hold keys"),
        ({"vary": [""]}, TypeError, "must hold keys"),
    ],
)
def test_wrong_parameters(
    arguments: dict[str, Any], error: type[Exception], said: str
) -> None:  # Any: under test
    """Each says what would be right."""
    with pytest.raises(error, match=said):
        CacheResponses(**{"store": MemoryCacheStore(), **arguments})


def test_laws_and_round_trip() -> None:
    """It keeps the laws; with a ready-made store its description is whole, with one of somebody's own it is not."""
    stores: list[CacheStore] = [MemoryCacheStore(max_entries=5), SQLiteCacheStore("a.db")]
    for store in stores:
        cache = CacheResponses(store, ttl=60, vary=["user", "tenant", "user"])
        check_laws(cache)
        assert cache == reloaded(cache, MemoryCacheStore, SQLiteCacheStore)
        assert ("tenant", "user") == cache.vary
    assert not CacheResponses(Kept()).describe().complete
