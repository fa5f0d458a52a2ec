"""The models for tests, in pieces: the same answers as in one piece, and what a broken stream says."""

from collections.abc import AsyncIterator, Callable, Sequence

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities.messages import AssistantMessage, TextPart, ToolCall, UserMessage, call
from capfold.runtime.events import Delta
from capfold.runtime.models import (
    Meter,
    Model,
    ModelError,
    ModelPart,
    ModelProfile,
    ModelRequest,
    StreamingModel,
    as_model,
)
from capfold.runtime.replies import Chunks, Reply
from capfold.runtime.scripted_model import EchoModel, FunctionModel, ScriptedModel
from capfold.runtime.streaming import stream_of
from tests.runtime.meters import CountingMeter, NoneLeft

ASK = ModelRequest(messages=(UserMessage("hello"),), step=2)
GIVEN = AssistantMessage(
    (TextPart("a"), TextPart("b")), tool_calls=(call("f", id="x"),), finish_reason="length"
)
Pieces = Sequence[str | AssistantMessage]


async def streamed(model: Model, got: list[ModelPart] | None = None) -> list[ModelPart]:
    """Return all parts of a response, which is charged once; `got` has them even when it fails."""
    meter, parts = CountingMeter(), [] if got is None else got
    async with stream_of(model, ASK, meter) as stream:
        assert meter.charged == 1
        async for part in stream:
            parts.append(part)
    assert meter.charged == 1
    return parts


def texts(parts: Sequence[ModelPart]) -> list[str]:
    """Return the texts of the deltas, which know their step and are not empty."""
    deltas = [part for part in parts if isinstance(part, Delta)]
    assert all(delta.text and delta.step == ASK.step for delta in deltas)
    return [delta.text for delta in deltas]


async def as_text(request: ModelRequest) -> Reply:
    """Reply when awaited."""
    return "from a function"


@pytest.mark.parametrize(
    "reply",
    [
        "hi",
        "",
        "a text that is longer than a few pieces",
        call("f"),
        [call("f"), call("g")],
        GIVEN,
        Chunks("a", "", "b"),
        Chunks(),
        as_text,
        lambda request: Chunks("x", "y"),
    ],
)
async def test_the_same_message_in_pieces(reply: Reply) -> None:
    """A reply is the same message in one piece and in several, and the deltas make up its text."""
    whole = await ScriptedModel([reply]).request(ASK, CountingMeter())
    *deltas, message = await streamed(ScriptedModel([reply]))
    assert whole == message
    assert whole.text == "".join(texts(deltas))
    *deltas, message = await streamed(FunctionModel(lambda request: reply, name="scripted"))
    assert whole == message
    assert whole.text == "".join(texts(deltas))


@given(st.text())
def test_any_text_in_a_few_pieces(text: str) -> None:
    """A text comes in at most four deltas."""

    async def check() -> None:
        *deltas, message = await streamed(ScriptedModel([text]))
        assert isinstance(message, AssistantMessage)
        assert text == message.text == "".join(texts(deltas))
        assert len(deltas) <= 4

    anyio.run(check)


async def test_chunks_come_as_they_are_written() -> None:
    """Each text of Chunks is a delta, but for empty ones."""
    assert ["a", "bc"] == texts(await streamed(ScriptedModel([Chunks("a", "", "bc")])))


async def test_broken_chunks() -> None:
    """What came before the error is told, and the error is that of a request; then the stream is over."""
    error = ModelError("rate_limit", "slow", retryable=True, status=429, retry_after=2.0)
    broken = Chunks("a", "b", error=error)
    with pytest.raises(ModelError) as whole:
        await ScriptedModel([broken]).request(ASK, CountingMeter())
    parts: list[ModelPart] = []
    with pytest.raises(ModelError) as caught:
        await streamed(ScriptedModel([broken]), parts)
    assert ["a", "b"] == texts(parts)
    assert vars(whole.value) == vars(caught.value)
    assert "ab" == caught.value.partial
    with pytest.raises(OSError, match="gone"):
        await streamed(ScriptedModel([Chunks("a", error=OSError("gone"))]))


async def test_an_exception_is_raised_when_the_stream_is_opened() -> None:
    """A reply that is an exception is raised as it is, before any piece; so is the end of the script."""
    error = ConnectionError("gone")
    model = ScriptedModel([error])
    with pytest.raises(ConnectionError) as caught:
        async with model.stream(ASK, CountingMeter()):
            pytest.fail("it was opened")
    assert caught.value is error
    with pytest.raises(ModelError, match="used up"):
        async with model.stream(ASK, CountingMeter()):
            pytest.fail("it was opened")
    assert (ASK, ASK) == model.requests


async def test_a_stream_takes_the_next_reply() -> None:
    """Streams and requests share the script, and one that was not charged takes nothing."""
    model = ScriptedModel(["one", "two", "three"])
    assert "one" == (await model.request(ASK, CountingMeter())).text
    assert "two" == "".join(texts(await streamed(model)))
    with pytest.raises(NoneLeft):
        async with model.stream(ASK, CountingMeter(allowed=0)):
            pytest.fail("it was opened")
    async with model.stream(ASK, CountingMeter()):
        pass  # left at once: the reply is used
    model.assert_complete()


async def test_echo_in_pieces() -> None:
    """The model "test" streams too."""
    model = as_model("test")
    assert isinstance(model, EchoModel)
    *deltas, message = await streamed(model)
    assert message == await model.request(ASK, CountingMeter())
    assert "hello" == "".join(texts(deltas))


def test_they_are_streaming_models() -> None:
    """Whoever asks by the protocol finds that they stream."""
    assert all(isinstance(model, StreamingModel) for model in (ScriptedModel([]), EchoModel()))


# --- a function that yields


def yielding(*pieces: object, error: Exception | None = None) -> Callable[[ModelRequest], AsyncIterator[str]]:
    """Return a function that yields these, and then raises."""

    async def stream(request: ModelRequest) -> AsyncIterator[str]:
        for piece in pieces:
            yield piece  # type: ignore[misc]  # wrong on purpose in some tests
        if error is not None:
            raise error

    return stream


def model_of(stream: Callable[[ModelRequest], AsyncIterator[str]]) -> FunctionModel:
    """Return a model that answers "whole" in one piece."""
    return FunctionModel(lambda request: "whole", stream=stream)


SAID = AssistantMessage("ab", tool_calls=(ToolCall("x", "f"),), model="other")


@pytest.mark.parametrize(
    ("pieces", "told", "message"),
    [
        (("a", "", "b"), ["a", "b"], None),
        ((), [], None),
        (("a", "b", SAID), ["a", "b"], SAID),
        (("a", SAID), ["a", "b"], SAID),
        ((SAID,), ["ab"], SAID),
    ],
)
async def test_a_function_that_yields(
    pieces: Pieces, told: list[str], message: AssistantMessage | None
) -> None:
    """Texts alone make a message; one that is yielded is the response, and what it says beyond them is told."""
    model = model_of(yielding(*pieces))
    *deltas, last = await streamed(model)
    assert told == texts(deltas)
    if message is None:
        message = await FunctionModel(lambda request: "".join(told)).request(ASK, CountingMeter())
    assert message == last
    assert "whole" == (await model.request(ASK, CountingMeter())).text


@pytest.mark.parametrize(
    ("pieces", "why"),
    [
        (("a", 3), "not 3"),
        (("a", SAID, "b"), "comes last"),
        (("x", SAID), "must begin with"),
    ],
)
async def test_a_function_that_yields_what_is_none(pieces: tuple[object, ...], why: str) -> None:
    """It is a mistake in the script, and told as one."""
    with pytest.raises(ModelError, match=why) as caught:
        await streamed(model_of(yielding(*pieces)))
    assert ("script", False) == (caught.value.kind, caught.value.retryable)


async def test_a_function_that_breaks_off() -> None:
    """A ModelError gets the text so far; another error stays what it is."""
    with pytest.raises(ModelError, match="slow") as caught:
        await streamed(model_of(yielding("a", "b", error=ModelError("server", "slow", retryable=True))))
    assert "ab" == caught.value.partial
    with pytest.raises(OSError, match="gone"):
        await streamed(model_of(yielding("a", error=OSError("gone"))))


async def test_a_generator_that_is_left_early_is_closed() -> None:
    """What it holds is released when the stream is left, before anything else happens."""
    happened: list[str] = []

    async def stream(request: ModelRequest) -> AsyncIterator[str]:
        try:
            while True:
                yield "x"
        finally:
            happened.append("closed")

    async with model_of(stream).stream(ASK, CountingMeter()) as parts:
        async for _ in parts:
            break
    assert ["closed"] == happened


async def test_what_is_no_generator_function() -> None:
    """What cannot be called fails when the model is made, what gives no pieces when it is asked."""
    with pytest.raises(TypeError, match="async generator function"):
        FunctionModel(lambda request: "", stream="text")  # type: ignore[arg-type]  # wrong on purpose
    model = FunctionModel(lambda request: "", stream=lambda request: "text")  # type: ignore[arg-type,return-value]  # likewise
    with pytest.raises(ModelError, match="async generator function"):
        await streamed(model)


# --- a model that cannot stream


class Plain:
    """A model with nothing but a request."""

    name = "plain"
    profile = ModelProfile()

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        """Answer at once."""
        meter.charge()
        return GIVEN


async def test_a_model_that_cannot_stream() -> None:
    """Its text comes in one delta, once the answer is there."""
    assert [Delta("ab", 2), GIVEN] == await streamed(Plain())
