"""StoreAttachments: the history refers to files, requests show them, and what cannot be kept is an error."""

import base64
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities import (
    AudioPart,
    BlobStore,
    CacheTool,
    CallState,
    Capability,
    Content,
    FilePart,
    ImagePart,
    Json,
    Message,
    Outcome,
    RequireApproval,
    RunState,
    StoreAttachments,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
    call,
    fold,
    tool,
)
from capfold.capabilities.attached_files import media, reference_in
from capfold.capabilities.frozen import FrozenDict
from capfold.runtime import (
    Agent,
    Answer,
    Approve,
    Delta,
    FolderBlobStore,
    HookError,
    Limits,
    MemoryBlobStore,
    MemoryStore,
    ModelProfile,
    Price,
    RunResult,
    ScriptedModel,
    dump_capabilities,
    load_capabilities,
    replay,
)
from capfold.runtime.laws import check_capability
from tests.runtime.desk import partial

FEW = settings(max_examples=25, deadline=None, database=None, derandomize=True)


def image(data: bytes = b"GIF89a", media_type: str = "image/gif") -> ImagePart:
    """Return an image of these bytes."""
    return ImagePart(data=data, media_type=media_type)


def by_url(url: str) -> ImagePart:
    """Return an image by URL."""
    return ImagePart(url=url, media_type="image/png")


def data_url(data: bytes) -> str:
    """Return bytes as a URL that holds them."""
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


class Counting:
    """A store that counts, and that forgets what it is told to."""

    def __init__(self, prefix: str = "") -> None:
        """Keep nothing yet; references begin with `prefix`."""
        self.prefix = prefix
        self.kept: dict[str, bytes] = {}
        self.puts: list[str] = []
        self.gets: list[str] = []

    async def put(self, name: str, data: bytes, media_type: str) -> str:
        """Keep bytes under their name."""
        self.puts.append(name)
        ref = f"{self.prefix}{name}"
        self.kept[ref] = data
        return ref

    async def get(self, ref: str) -> bytes:
        """Return them."""
        self.gets.append(ref)
        return self.kept[ref]


def desk(
    results: Sequence[Content | ImagePart], *capabilities: Capability, **options: object
) -> tuple[Agent[str], ScriptedModel]:
    """Return an agent whose tool returns these contents, each asked for in a step of its own; and its model."""
    model = ScriptedModel([*(call("camera", id=f"c{i}") for i in range(len(results))), "done"])
    left = list(results)
    camera = tool(lambda: left.pop(0), name="camera", description="Look.")
    made = Agent("desk", model, tools=[camera], capabilities=capabilities, **options)  # type: ignore[arg-type]  # keywords of Agent
    return made, model


def parts(messages: Sequence[Message]) -> list[object]:
    """Return the parts of all contents that are no plain text."""
    contents = [one.content for one in messages if not isinstance(one, SystemMessage)]
    return [part for content in contents if isinstance(content, tuple) for part in content]


def bytes_in(messages: Sequence[Message]) -> list[bytes]:
    """Return all bytes that messages hold."""
    return [part.data for part in parts(messages) if not isinstance(part, TextPart) and part.data is not None]  # type: ignore[attr-defined]  # a medium has data


def lines(messages: Sequence[Message]) -> list[str]:
    """Return the texts among the parts."""
    return [part.text for part in parts(messages) if isinstance(part, TextPart)]


# --- references in the history, bytes in the request


async def test_a_tool_result() -> None:
    """The history has a reference, of the same kind and type; the next request has the bytes."""
    store = MemoryBlobStore()
    large = b"x" * 1_000_000
    made, model = desk([(TextPart("here"), image(large))], StoreAttachments(store))
    result = await made.run("Look.")
    text, reference = parts(result.messages)
    assert TextPart("here") == text
    assert isinstance(reference, ImagePart)
    assert ("image/gif", store.refs()) == (reference.media_type, (reference_in(reference),))
    assert [] == bytes_in(result.messages)
    assert [large] == bytes_in(model.requests[1].messages)


async def test_the_input() -> None:
    """Likewise the files of the prompt, from the first request on, in every form that holds bytes."""
    store = MemoryBlobStore()
    sound = AudioPart(data=b"RIFF", media_type="audio/wav")
    made, model = desk(["none"], StoreAttachments(store))
    result = await made.run((TextPart("What is this?"), image(), sound, by_url(data_url(b"PNG"))))
    assert [] == bytes_in(result.messages)
    assert 3 == len(store.refs())
    for request in model.requests:
        assert [b"GIF89a", b"RIFF", b"PNG"] == bytes_in(request.messages)
    assert "What is this?" == lines(result.messages)[0]


async def test_neither_stores_nor_later_runs_hold_bytes() -> None:
    """A conversation is stored with references, and the next run shows the files again."""
    blobs, store = MemoryBlobStore(), MemoryStore()
    made, _ = desk([image(b"one")], StoreAttachments(blobs), store=store)
    await made.run((image(b"zero"),), conversation="ada")
    assert [] == bytes_in(await store.load("ada"))
    again, model = desk([], StoreAttachments(blobs), store=store)
    await again.run("And now?", conversation="ada")
    assert [b"zero", b"one"] == bytes_in(model.requests[0].messages)


async def test_the_log_has_nothing_of_what_was_shown() -> None:
    """Bytes of the input are in its first records and in no others: who showed them says its model's name only."""
    made, _ = desk(["none", "none"], StoreAttachments(MemoryBlobStore()))
    result = await made.run((image(b"\x89secret"),))
    encoded = base64.b64encode(b"\x89secret").decode()
    assert encoded not in "".join(
        f"{record.to_dict()}" for record in result.log[1:] if record.hook != "before_run"
    )
    assert result.state.model is not None
    assert "scripted" == result.state.model.name


async def test_one_file_twice_is_kept_once() -> None:
    """In one message it is put once; in another result it has the same name, so the store holds one."""
    store = Counting()
    made, model = desk([(image(), image()), image()], StoreAttachments(store))
    result = await made.run((image(), by_url(data_url(b"GIF89a")), image()))
    assert 1 == len(store.kept)
    assert 1 == len(set(store.puts))
    assert 3 == len(store.puts)  # the input, and two results
    assert [b"GIF89a"] * 6 == bytes_in(model.requests[-1].messages)
    assert [] == bytes_in(result.messages)


async def test_a_second_pass_changes_nothing() -> None:
    """References are left alone, by the hooks themselves and by a second one in the list."""
    store = Counting()
    one = StoreAttachments(store)
    made, model = desk([image()], one, evolve(one, key="again"))
    result = await made.run((image(),))
    changed = {(record.hook, record.actor) for record in result.log if record.kind == "transition"}
    assert {"before_run", "after_tool_execute"} == {
        hook for hook, key in changed if key == "StoreAttachments"
    } - {"wrap_model_request"}
    assert {"wrap_model_request"} == {hook for hook, key in changed if key == "again"}
    assert 1 == len(store.kept)
    assert [b"GIF89a"] * 2 == bytes_in(model.requests[-1].messages)
    state = RunState(messages=result.messages)
    assert fold([one], "before_run", state) is state
    (message,) = (message for message in result.messages if isinstance(message, ToolMessage))
    done = CallState(outcome=Outcome("succeeded", message.content))
    assert fold([one], "after_tool_execute", done) is done


async def test_the_answer_of_a_person_is_kept_too() -> None:
    """A result that never came out of a body has its files kept like any other."""
    store = MemoryBlobStore()

    class Asks(Capability):
        def admit_tool_execute(self, call: CallState) -> CallState:
            return call.require_approval("A picture, please.")

    made, model = desk(["never"], StoreAttachments(store), Asks(), approver=lambda _: [Answer((image(),))])
    result = await made.run("Look.")
    assert [] == bytes_in(result.messages)
    assert [b"GIF89a"] == bytes_in(model.requests[1].messages)


async def test_a_suspended_run() -> None:
    """Its snapshot holds no bytes, and when it is resumed, the files are shown again."""
    made, model = desk([image(b"out")], StoreAttachments(MemoryBlobStore()), RequireApproval({"camera"}))
    suspended = await made.run((image(b"a secret picture"),))
    text = suspended.snapshot()
    assert base64.b64encode(b"a secret picture").decode() not in text
    result = await made.resume(text, {suspended.pending[0].digest: Approve()})
    assert [] == bytes_in(result.messages)
    assert [b"a secret picture", b"out"] == bytes_in(model.requests[1].messages)


async def test_a_stream() -> None:
    """A model that streams still does, and is shown the files."""
    made, model = desk([image()], StoreAttachments(MemoryBlobStore()))
    async with made.stream("Look.") as events:
        seen = [event async for event in events]
    assert "done" == "".join(event.text for event in seen if isinstance(event, Delta))
    assert [b"GIF89a"] == bytes_in(model.requests[1].messages)


async def test_usage_and_cost_are_the_models_own() -> None:
    """Requests are booked by the name and the price of the model inside, and limits hold."""
    price = Price(input=1.0, output=1.0)
    model = ScriptedModel(["done"], name="priced", profile=ModelProfile(price=price, images=True))
    made = Agent(
        "desk", model, capabilities=[StoreAttachments(MemoryBlobStore())], limits=Limits(cost=1.0, requests=1)
    )
    result = await made.run((image(),))
    assert ({"priced"}, 1) == (set(result.state.usage_by_model), result.requests)


async def test_it_is_replayed_without_a_store() -> None:
    """The references are facts: the log folds again to the same state, and nothing is put or got."""
    store = Counting()
    made, _ = desk([image()], StoreAttachments(store))
    result = await made.run((image(b"in"),))
    before = (list(store.puts), list(store.gets))
    replayed = replay(result.log, made)
    assert result.messages == replayed.state.messages
    assert before == (store.puts, store.gets)


# --- the cap


async def shown(
    contents: Sequence[Content | ImagePart], **options: int
) -> tuple[list[bytes], list[str], RunResult[str]]:
    """Return the bytes and the lines of the last request."""
    made, model = desk(contents, StoreAttachments(MemoryBlobStore(), **options))  # type: ignore[arg-type]  # its numbers
    result = await made.run("Look.")
    last = model.requests[-1].messages
    return bytes_in(last), lines(last), result


async def test_the_newest_files_are_shown_up_to_the_cap() -> None:
    """From the newest one on, until one does not fit: that and all before it are lines of text, and it is on record."""
    contents = [image(b"a" * 10), image(b"b" * 50), image(b"c" * 40), image(b"d" * 60)]
    found, said, result = await shown(contents, max_inline_bytes=100)
    assert [b"c" * 40, b"d" * 60] == found
    assert ["[ImagePart, image/gif: not shown, no room is left in the request]"] * 2 == said
    assert 2 == sum("no room is left" in note for note in result.state.notes)
    assert [] == bytes_in(result.messages)


async def test_a_file_that_is_shown_twice_counts_twice() -> None:
    """What is sent is what counts: both places or neither."""
    assert ([b"a" * 50] * 2, []) == (await shown([image(b"a" * 50)] * 2, max_inline_bytes=100))[:2]
    found, said, _ = await shown([image(b"a" * 50)] * 2, max_inline_bytes=99)
    assert ([], 2) == (found, len(said))


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=6), st.integers(1, 100))
def test_never_more_than_the_cap(files: list[bytes], most: int) -> None:
    """However many files there are, a request has at most the cap, each whole, the newest always if it fits."""
    found, said, _ = anyio.run(lambda: shown([image(data) for data in files], max_inline_bytes=most))
    assert sum(map(len, found)) <= most
    assert len(files) == len(found) + len(said)
    assert set(found) <= set(files)
    if files and files.count(files[-1]) * len(files[-1]) <= most:
        assert found[-1] == files[-1]


async def test_a_file_that_is_gone() -> None:
    """The model reads that the store has it no longer, the run goes on, and a note says which."""
    store = Counting()

    class Loses(Capability):
        def after_model_request(self, state: RunState) -> RunState:
            store.kept.clear()
            return state

    made, model = desk(["none"], StoreAttachments(store), Loses())
    result = await made.run((image(),))
    assert ["[ImagePart, image/gif: not shown, the store has it no longer]"] == lines(
        model.requests[1].messages
    )
    assert 1 == sum("no longer" in note for note in result.state.notes)


async def test_references_that_are_urls() -> None:
    """A store that gives URLs has them shown as they are, or the bytes behind them where that is asked for."""
    for inline in (False, True):
        store = Counting("https://files.example.org/")
        made, model = desk([image()], StoreAttachments(store, inline=inline))
        result = await made.run("Look.")
        (part,) = parts(model.requests[1].messages)
        assert isinstance(part, ImagePart)
        assert [] == bytes_in(result.messages)
        if inline:
            assert b"GIF89a" == part.data
        else:
            assert next(iter(store.kept)) == part.url
            assert [] == store.gets


# --- what cannot be kept


BAD = {
    "bad base64": (by_url("data:image/png;base64,*"), "no valid base64"),
    "URL": (by_url("https://example.org/a.png"), "it is a URL"),
    "local path": (by_url("/etc/passwd"), "local file"),
    "file URL": (by_url("file:///etc/passwd"), "local file"),
    "too large": (image(b"x" * 101), "it has 101 bytes; at most 100 are kept"),
}


@pytest.mark.parametrize("case", BAD)
async def test_bad_input_ends_the_run_before_it_begins(case: str) -> None:
    """No request is sent, nothing is kept, good files beside it neither, and the error says which one and why."""
    part, why = BAD[case]
    store = Counting()
    made, model = desk([], StoreAttachments(store, max_file_bytes=100))
    with pytest.raises(HookError, match="file 2 of the input") as caught:
        await made.run((image(), part))
    assert why in caught.value.reason.message
    assert ([], ()) == (store.puts, model.requests)


@pytest.mark.parametrize("case", BAD)
async def test_a_bad_result_is_told_to_the_model(case: str) -> None:
    """The model reads why in its place, the run goes on, and nothing of it is kept."""
    part, why = BAD[case]
    store = Counting()
    made, _ = desk([(part, image())], StoreAttachments(store, max_file_bytes=100))
    result = await made.run("Look.")
    (line,) = lines(result.messages)
    assert why in line
    assert ([b"GIF89a"], []) == (list(store.kept.values()), bytes_in(result.messages))


async def test_exactly_the_limit_is_kept() -> None:
    """A file of just so many bytes is one that may be kept."""
    store = Counting()
    made, _ = desk([image(b"x" * 100)], StoreAttachments(store, max_file_bytes=100))
    await made.run("Look.")
    assert [b"x" * 100] == list(store.kept.values())


class Broken(Counting):
    """A store that keeps nothing, or gives what is no reference."""

    def __init__(self, ref: object = None) -> None:
        """Give this, or fail."""
        super().__init__()
        self.ref = ref

    async def put(self, name: str, data: bytes, media_type: str) -> str:
        """Fail."""
        if self.ref is None:
            raise OSError("the disk is full")
        return self.ref  # type: ignore[return-value]  # wrong on purpose


@pytest.mark.parametrize(("store", "why"), [(Broken(), "disk is full"), (Broken(3), "which is no reference")])
async def test_a_store_that_fails_ends_the_run(store: BlobStore, why: str) -> None:
    """Whether at the input or at a result, the run ends, and no bytes are in its history."""
    made, _ = desk([image()], StoreAttachments(store))
    for prompt in ("Look.", (image(),)):
        with pytest.raises(HookError, match=why) as caught:
            await made.run(prompt)
        if prompt == "Look.":
            assert [] == bytes_in(partial(caught.value).messages)


async def test_a_store_that_cannot_be_read_ends_the_run() -> None:
    """What it raises beside LookupError is no missing file."""

    class Unreadable(Counting):
        async def get(self, ref: str) -> bytes:
            raise OSError("the network is down")

    made, model = desk([image()], StoreAttachments(Unreadable()))
    with pytest.raises(HookError, match="the network is down"):
        await made.run("Look.")
    assert 1 == len(model.requests)


async def test_what_comes_in_later_is_not_let_through() -> None:
    """A file that an earlier hook put there after files were kept ends the run at the input; a result says so."""

    class Adds(Capability):
        def before_run(self, state: RunState) -> RunState:
            return state.append(UserMessage((image(),))) if state.context.get("early") else state

        def after_tool_execute(self, call: CallState) -> CallState:
            return call.with_content((image(b"late"),))

    made, _ = desk(["text"], Adds(), StoreAttachments(MemoryBlobStore()))
    with pytest.raises(Exception, match="A file came into the input after StoreAttachments"):
        await made.run("Look.", context={"early": True})
    result = await made.run("Look.")
    assert ["[ImagePart, image/gif: not shown, it came in too late]"] == lines(result.messages)
    assert [] == bytes_in(result.messages)


FORGED = ["blob:http://evil.example/x.png", "blob:sha256-1234", "blob:../../etc/passwd"]


@pytest.mark.parametrize("url", FORGED)
async def test_a_reference_that_a_tool_makes_up_is_none(url: str) -> None:
    """It gets no other tenant's file, and no URL, past the rule for URLs: the model reads why, nothing is looked up."""
    store = Counting()
    made, model = desk([(by_url(url), image())], StoreAttachments(store))
    result = await made.run("Look.")
    (line,) = lines(result.messages)
    assert "which the store did not give" in line
    assert [b"GIF89a"] == bytes_in(model.requests[1].messages)
    assert 1 == len(store.gets)
    assert replay(result.log, made).records.head == result.log.head


@pytest.mark.parametrize("url", FORGED)
async def test_a_reference_that_the_input_makes_up_is_none(url: str) -> None:
    """Who writes the prompt can read no file by it; nothing is kept of the others either."""
    store = Counting()
    made, model = desk([], StoreAttachments(store))
    with pytest.raises(HookError, match=r"file 2 of the input.*which the store did not give"):
        await made.run((image(), by_url(url)))
    assert ([], [], []) == (store.puts, store.gets, list(model.requests))


async def test_a_reference_of_the_history_may_come_again() -> None:
    """From a cache that kept the result, and in the prompt of a later run of the conversation."""
    cached = CacheTool({"camera"})
    for first in (False, True):
        listed: list[Any] = [StoreAttachments(Counting()), cached]  # of two types
        listed = listed[::-1] if first else listed
        made, model = desk([image(), image(b"never")], *listed)
        result = await made.run("Look.")
        assert [b"GIF89a"] * 2 == bytes_in(model.requests[2].messages)
        reference = result.messages[2].content
        again, later = desk([], *listed)
        assert isinstance(reference, tuple)
        await again.run(reference, messages=result.messages)
        assert [b"GIF89a"] * 3 == bytes_in(later.requests[0].messages)


@pytest.mark.parametrize("got", [None, "text", bytearray(b"x")])
async def test_what_is_no_bytes_ends_the_run(got: object) -> None:
    """A store that lies is named, with what it returned."""

    class Lies(Counting):
        async def get(self, ref: str) -> bytes:
            return got  # type: ignore[return-value]  # wrong on purpose

    made, _ = desk([image()], StoreAttachments(Lies()))
    with pytest.raises(HookError, match=r"Lies\.get returned .* a blob is bytes"):
        await made.run("Look.")


# --- as reducers


contents = st.lists(
    st.one_of(
        st.builds(TextPart, st.text(max_size=5)),
        st.builds(image, st.binary(max_size=5)),
        st.builds(by_url, st.sampled_from(["blob:x", "https://example.org", "/etc/passwd", "data:,x"])),
        st.builds(FilePart, data=st.binary(max_size=3), media_type=st.just("a/b")),
    ),
    max_size=4,
).map(tuple)


@given(contents, st.one_of(st.none(), st.just("text"), st.just(FrozenDict({"x": 1}))))
def test_whatever_the_fact_no_bytes_get_through(content: Content, fact: Json) -> None:
    """Without references for them, or with a fact that is none, a result has no bytes and no other URL afterwards."""
    capability = StoreAttachments(MemoryBlobStore())
    done = CallState(outcome=Outcome("succeeded", content), facts=FrozenDict({capability.key: fact}))
    after = fold([capability], "after_tool_execute", done)
    assert after.outcome is not None
    assert all(reference_in(part) is not None for part in media(after.outcome.content))
    assert fold([capability], "after_tool_execute", after) is after


def test_laws() -> None:
    """It keeps every law."""
    check_capability(StoreAttachments(MemoryBlobStore()), settings=FEW)


def test_it_is_described_whole() -> None:
    """Dumped and loaded, it is equal."""
    for store in (MemoryBlobStore(), FolderBlobStore("files")):
        made = StoreAttachments(store, max_file_bytes=5, max_inline_bytes=7, inline=True)
        assert made.describe().complete
        assert (made,) == load_capabilities(dump_capabilities([made]), allowed=[type(store)])


@pytest.mark.parametrize(
    ("make", "error", "why"),
    [
        (
            lambda: StoreAttachments("here"),  # type: ignore[arg-type]  # wrong on purpose
            TypeError,
            "such as FolderBlobStore",
        ),
        (
            lambda: StoreAttachments(MemoryBlobStore),  # type: ignore[arg-type]  # likewise
            TypeError,
            "such as FolderBlobStore",
        ),
        (lambda: StoreAttachments(MemoryBlobStore(), max_file_bytes=0), ValueError, "the least is 1"),
        (
            lambda: StoreAttachments(MemoryBlobStore(), max_inline_bytes=1.5),  # type: ignore[arg-type]  # likewise
            TypeError,
            "a number of bytes",
        ),
        (
            lambda: StoreAttachments(MemoryBlobStore(), inline=1),  # type: ignore[arg-type]  # likewise
            TypeError,
            "must be a bool",
        ),
    ],
)
def test_what_cannot_work(make: Callable[[], object], error: type[Exception], why: str) -> None:
    """Bad values are refused when it is made, with what would do."""
    with pytest.raises(error, match=why):
        make()
