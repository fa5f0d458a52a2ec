"""LimitToolOutput: what is too large is shown in small, saved first where there is a store, and never let through."""

import json
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from capfold.capabilities import (
    Backoff,
    BlobStore,
    CallState,
    Capability,
    Content,
    ImagePart,
    LimitToolOutput,
    Outcome,
    RetryTool,
    TextPart,
    ToolFailed,
    ToolMessage,
    call,
    fold,
    tool,
)
from capfold.capabilities.limit_tool_output import ROOM, cut, sent_size
from capfold.runtime import (
    Agent,
    FolderBlobStore,
    HookError,
    HookFailed,
    MemoryBlobStore,
    RunResult,
    ScriptedModel,
    dump_capabilities,
    load_capabilities,
)
from capfold.runtime.laws import check_capability
from tests.runtime.desk import partial

FEW = settings(max_examples=25, deadline=None, database=None, derandomize=True)
SMALL = LimitToolOutput(ROOM + 20, preview_bytes=20)
LARGE = "x" * 5_000
# Any text that a str can hold, half surrogate pairs too.
texts = st.text(st.characters(), max_size=50)


def after(capability: LimitToolOutput, content: Content) -> CallState:
    """Return a call whose outcome went through the after hook."""
    return fold([capability], "after_tool_execute", settled(content))


def settled(content: Content) -> CallState:
    """Return a call with its outcome."""
    return CallState(outcome=Outcome("succeeded", content))


def shown(content: Content) -> dict[str, object]:
    """Return what the model is shown."""
    assert isinstance(content, str)
    read = json.loads(content)
    assert isinstance(read, dict)
    return read


def desk(content: Content, *capabilities: Capability) -> Agent[str]:
    """Return an agent whose tool returns a content, which is asked for once."""
    dump = tool(lambda: content, name="dump", description="Dump.")
    return Agent(
        "desk", ScriptedModel([call("dump", id="c1"), "done"]), tools=[dump], capabilities=capabilities
    )


def result_of(result: RunResult[str] | RunResult[object]) -> Content:
    """Return the content of the only result."""
    (message,) = (one for one in result.messages if isinstance(one, ToolMessage))
    return message.content


# --- the measure


@pytest.mark.parametrize(
    ("character", "size"),
    [
        ("a", 1),
        ('"', 2),
        ("\\", 2),
        ("\n", 2),
        ("\0", 6),
        ("é", 2),
        ("漢", 3),
        ("😀", 4),
        ("\ud800", 6),
        ("\x7f", 1),
    ],
)
def test_exactly_at_the_limit(character: str, size: int) -> None:
    """A text of just so many bytes as they are sent stays the identical object; one character more does not."""
    assert size == sent_size(character)
    most = 1_200 // 12 * 12
    capability = LimitToolOutput(most, preview_bytes=100)
    call = settled(character * (most // size))
    assert fold([capability], "after_tool_execute", call) is call
    assert shown(after(capability, character * (most // size) + "a").outcome.content)["truncated"]  # type: ignore[union-attr]  # there is one


@given(texts, st.integers(0, 200))
@example("é" * 3, 3)
@example("\ud800x", 5)
def test_the_cut(text: str, size: int) -> None:
    """A preview is a beginning of whole characters, fits, and could not be longer."""
    made = cut(text, size)

    def sent(part: str) -> int:
        return sent_size(json.dumps(part, ensure_ascii=False)[1:-1])

    assert text.startswith(made)
    assert sent(made) <= size
    assert made == text or sent(text[: len(made) + 1]) > size


@given(texts, st.integers(1, 40), st.integers(0, 60))
def test_any_text(text: str, times: int, preview: int) -> None:
    """What is shown is never larger than the limit, says the size, and is not shown in small again."""
    capability = LimitToolOutput(ROOM + preview, preview_bytes=preview)
    whole = text * times
    done = after(capability, whole)
    assert done.outcome is not None
    content = done.outcome.content
    assert isinstance(content, str)
    assert sent_size(content) <= capability.max_bytes
    assert fold([capability], "after_tool_execute", done) is done
    if sent_size(whole) <= capability.max_bytes:
        assert content is whole
    else:
        read = shown(content)
        assert len(whole.encode("utf-8", "surrogatepass")) == read["bytes"]
        assert whole.startswith(str(read["preview"]))
        assert (None, "not saved") == (read["ref"], read["note"])


def test_parts() -> None:
    """The text of all parts is measured together and shown once; what is no text stays, whatever its size."""
    image = ImagePart(data=b"x" * 10_000, media_type="image/png")
    small = (TextPart("a"), image)
    call = settled(small)
    assert fold([SMALL], "after_tool_execute", call) is call
    done = after(SMALL, (image, TextPart("x" * 600), image, TextPart("y" * 600)))
    assert done.outcome is not None
    assert isinstance(done.outcome.content, tuple)
    first, text, last = done.outcome.content
    assert first is image
    assert last is image
    assert isinstance(text, TextPart)
    assert (1_200, "x" * 20) == (shown(text.text)["bytes"], shown(text.text)["preview"])


# --- in a run


async def test_without_a_store() -> None:
    """The model reads the beginning, the size, and that it was not saved; the status stays."""
    result = await desk(LARGE, SMALL).run("go")
    expected = {"truncated": True, "bytes": 5_000, "preview": "x" * 20, "ref": None, "note": "not saved"}
    assert expected == shown(result_of(result))
    assert ["succeeded"] == [one.status for one in result.messages if isinstance(one, ToolMessage)]


async def test_with_a_store() -> None:
    """The whole text is behind the reference, which the model reads in place of the note."""
    store = MemoryBlobStore()
    result = await desk(LARGE, LimitToolOutput(ROOM, preview_bytes=0, store=store)).run("go")
    read = shown(result_of(result))
    assert {"truncated": True, "bytes": 5_000, "preview": "", "ref": store.refs()[0]} == read
    assert LARGE.encode() == await store.get(str(read["ref"]))


async def test_what_is_small_is_not_saved() -> None:
    """The store is not asked for what fits."""
    store = MemoryBlobStore()
    result = await desk("small", LimitToolOutput(store=store)).run("go")
    assert ("small", ()) == (result_of(result), store.refs())


async def test_the_same_call_has_the_same_name() -> None:
    """A call that is run again and returns the same is saved under one name."""
    names: list[str] = []

    class Noting:
        async def put(self, name: str, data: bytes, media_type: str) -> str:
            names.append(name)
            return name

        async def get(self, ref: str) -> bytes:
            raise LookupError(ref)

    ran: list[int] = []

    @tool(read_only=True)
    def dump() -> str:
        """Dump."""
        ran.append(1)
        if len(ran) < 3:
            raise ToolFailed(LARGE)
        return LARGE

    model = ScriptedModel([call("dump", id="c1"), "done"])
    retry = RetryTool(backoff=Backoff(initial=0.0))
    inside = LimitToolOutput(ROOM, preview_bytes=0, store=Noting())
    await Agent("desk", model, tools=[dump], capabilities=[retry, inside]).run("go")
    assert 3 == len(names)
    assert 1 == len(set(names))
    assert names[0].startswith("c1-")


class Failing:
    """A store that cannot keep anything."""

    async def put(self, name: str, data: bytes, media_type: str) -> str:
        """Fail."""
        raise OSError("the disk is full")

    async def get(self, ref: str) -> bytes:
        """Fail."""
        raise LookupError(ref)


class Wordy(Failing):
    """A store whose references are as large as what they stand for."""

    async def put(self, name: str, data: bytes, media_type: str) -> str:
        """Return the text."""
        return data.decode()


@pytest.mark.parametrize(("store", "why"), [(Failing(), "the disk is full"), (Wordy(), "at most 640 bytes")])
async def test_a_store_that_fails_ends_the_run(store: BlobStore, why: str) -> None:
    """Fail closed: the run ends by the capability's error, and the text is nowhere in its history."""
    with pytest.raises(HookError) as caught:
        await desk(LARGE, LimitToolOutput(ROOM, preview_bytes=0, store=store)).run("go")
    reason = caught.value.reason
    assert isinstance(reason, HookFailed)
    assert ("LimitToolOutput", "wrap_tool_execute") == (reason.key, reason.hook)
    assert why in reason.message
    result = partial(caught.value)
    assert "xxx" not in str(result_of(result))
    assert ["succeeded"] == [one.status for one in result.messages if isinstance(one, ToolMessage)]


async def test_what_others_give_is_bounded_too() -> None:
    """An answer never reaches the wrapper, and a later hook may make a small text large: neither gets through."""

    class Answers(Capability):
        def admit_tool_execute(self, call: CallState) -> CallState:
            return call.answer(LARGE)

    class Grows(Capability):
        def after_tool_execute(self, call: CallState) -> CallState:
            return call.with_content(LARGE)

    store = MemoryBlobStore()
    limit = LimitToolOutput(ROOM, preview_bytes=0, store=store)
    for other in (Answers(), Grows()):
        result = await desk("small", other, limit).run("go")
        assert ("not saved", 5_000) == (shown(result_of(result))["note"], shown(result_of(result))["bytes"])
    assert () == store.refs()


# --- configuration


def test_laws() -> None:
    """It keeps every law, and is idempotent as it declares."""
    check_capability(SMALL, settings=FEW)
    check_capability(LimitToolOutput(store=MemoryBlobStore()), settings=FEW)


def test_it_is_described_whole() -> None:
    """Dumped and loaded, it is equal, with a ready-made store too; somebody's own has no description."""
    allowed = [MemoryBlobStore, FolderBlobStore]
    for store in (None, MemoryBlobStore(), FolderBlobStore("blobs")):
        made = LimitToolOutput(9_000, 100, store=store)
        assert made.describe().complete
        assert (made,) == load_capabilities(dump_capabilities([made]), allowed=allowed)
    assert not LimitToolOutput(store=Failing()).describe().complete


@pytest.mark.parametrize(
    ("make", "error", "why"),
    [
        (lambda: LimitToolOutput(2_000), ValueError, "with preview_bytes=2048 the least is 3072"),
        (lambda: LimitToolOutput(-1), ValueError, "the least is 0"),
        (lambda: LimitToolOutput(True), TypeError, "a number of bytes"),
        (lambda: LimitToolOutput(preview_bytes=-1), ValueError, "the least is 0"),
        (
            lambda: LimitToolOutput(store="here"),  # type: ignore[arg-type]  # wrong on purpose
            TypeError,
            "such as FolderBlobStore",
        ),
        (
            lambda: LimitToolOutput(store=MemoryBlobStore),  # type: ignore[arg-type]  # likewise
            TypeError,
            "such as FolderBlobStore",
        ),
    ],
)
def test_what_cannot_work(make: Callable[[], object], error: type[Exception], why: str) -> None:
    """Bad values are refused when it is made, with what would do."""
    with pytest.raises(error, match=why):
        make()


async def test_without_a_store_no_call_is_wrapped() -> None:
    """The wrapper is for saving: without a store there is none around a call, and with one there is."""

    @tool
    def work() -> str:
        """Do a piece of work."""
        return LARGE

    def wraps(capability: LimitToolOutput) -> bool:
        return Agent("a", ScriptedModel([]), tools=[work], capabilities=[capability]).setup.plan.wraps

    assert not wraps(SMALL)
    assert wraps(LimitToolOutput(ROOM + 20, preview_bytes=20, store=MemoryBlobStore()))
    result = await Agent("a", ScriptedModel([call("work"), "ok"]), tools=[work], capabilities=[SMALL]).run(
        "x"
    )
    assert "not saved" in str(result.messages[2].content)
