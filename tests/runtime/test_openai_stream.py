"""OpenAIModel.stream against servers that others wrote, and a socket of our own for what neither does."""

import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from llmock.pytest_plugin import LLMock
from llmock.scenarios import Reply

from capfold.capabilities.messages import AssistantMessage, ImagePart, ToolCall, ToolMessage, UserMessage
from capfold.capabilities.tools import Tool
from capfold.runtime.events import Delta
from capfold.runtime.models import (
    ModelError,
    ModelPart,
    ModelProfile,
    ModelRequest,
    StreamingModel,
    forbid_model_requests,
)
from capfold.runtime.openai_model import OpenAIModel
from tests.runtime.meters import CountingMeter, NoneLeft
from tests.servers import Aimock

WEATHER = Tool("weather", "Look out.", {"type": "object", "properties": {"city": {"type": "string"}}})
ASK = ModelRequest(messages=(UserMessage("weather?"),), tools=(WEATHER,), step=3)
PARALLEL = [
    {"id": "a", "name": "weather", "arguments": '{"city": "Köln"}'},
    {"id": "b", "name": "weather", "arguments": '{"city":"Rom"}'},
]
LONG = "one two three four five six seven eight nine ten"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach loopback servers directly, whatever proxy the environment names."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


async def streamed(
    model: StreamingModel, got: list[ModelPart] | None = None, request: ModelRequest = ASK
) -> list[ModelPart]:
    """Return all parts of a response, which is charged once; `got` has them even when it fails."""
    meter, parts = CountingMeter(), [] if got is None else got
    try:
        async with model.stream(request, meter) as stream:
            async for part in stream:
                parts.append(part)
    finally:
        assert meter.charged == 1
    return parts


def message_of(parts: Sequence[ModelPart]) -> AssistantMessage:
    """Return the message, which must be the last part and the text of all the others."""
    *deltas, message = parts
    assert isinstance(message, AssistantMessage)
    assert all(type(delta) is Delta and delta.text and delta.step == ASK.step for delta in deltas)
    assert message.text == text_of(deltas)
    return message


def text_of(parts: Sequence[ModelPart]) -> str:
    """Return the text of the deltas."""
    return "".join(part.text for part in parts if isinstance(part, Delta))


async def failure(model: StreamingModel) -> tuple[ModelError, str]:
    """Return the error of a stream that must fail, and what it told before."""
    parts: list[ModelPart] = []
    with pytest.raises(ModelError) as caught:
        await streamed(model, parts)
    assert not any(isinstance(part, AssistantMessage) for part in parts)
    return caught.value, text_of(parts)


# --- as in one piece


@pytest.mark.parametrize(
    "answer",
    [
        {"content": LONG, "usage": {"prompt_tokens": 7, "completion_tokens": 5}},
        {"content": "looking", "toolCalls": PARALLEL, "reasoning": "two cities"},
        {"toolCalls": PARALLEL},
        {"content": "half", "finishReason": "length"},
        {"content": "half", "finishReason": "content_filter"},
    ],
    ids=["text", "calls and reasoning", "calls", "length", "filter"],
)
async def test_the_message_of_a_stream_is_that_of_a_request(
    aimock: Aimock, answer: dict[str, object]
) -> None:
    """The same answer, whole and in pieces, is the same message; the deltas are its text."""
    aimock.always(**answer)
    model = OpenAIModel("gpt-test")
    whole = await model.request(ASK, CountingMeter())
    message = message_of(await streamed(model))
    assert whole.tool_calls == message.tool_calls
    assert (whole.content, whole.finish_reason, whole.provider_items, whole.model) == (
        message.content,
        message.finish_reason,
        message.provider_items,
        message.model,
    )
    if "usage" in answer:
        assert whole.usage == message.usage
    plain, sent = aimock.requests()
    assert {**plain, "stream": True, "stream_options": {"include_usage": True}} == sent


async def test_text_comes_in_pieces(llmock: LLMock) -> None:
    """Each chunk is told when it comes, and the usage is read from the chunk after the last."""
    llmock.reply(LONG, times=None)
    parts = await streamed(OpenAIModel("gpt-test"))
    assert len(LONG.split()) + 1 == len(parts)
    message = message_of(parts)
    assert message.usage is not None
    assert message.usage.output_tokens
    assert await OpenAIModel("gpt-test").request(ASK, CountingMeter()) == message


async def test_calls_come_in_pieces(llmock: LLMock) -> None:
    """Arguments that are cut in fragments on the wire are whole in the message; they are not told as text."""
    llmock.call_tool("weather", {"city": "Köln am Rhein, not the one in Berlin"})
    (message,) = await streamed(OpenAIModel("gpt-test"))
    assert isinstance(message, AssistantMessage)
    (call,) = message.tool_calls
    assert {"city": "Köln am Rhein, not the one in Berlin"} == json.loads(call.arguments)
    assert "tool_calls" == message.finish_reason


# --- faults in the middle


async def test_a_stream_without_an_end(llmock: LLMock) -> None:
    """A stream that ends cleanly but without a finish reason is a lost connection: half a text is no answer."""
    llmock.reply(LONG).truncate(after_chunks=4)
    error, told = await failure(OpenAIModel("gpt-test"))
    assert ("connection", True, "one two three ") == (error.kind, error.retryable, error.partial)
    assert error.partial == told
    assert "finish reason" in error.message


async def test_a_lost_connection(llmock: LLMock) -> None:
    """It tells the text so far."""
    llmock.reply(LONG).disconnect(after_chunks=4)
    error, told = await failure(OpenAIModel("gpt-test"))
    assert ("connection", True, "one two three ") == (error.kind, error.retryable, error.partial)
    assert error.partial == told


async def test_a_garbled_chunk(llmock: LLMock) -> None:
    """A chunk that is no JSON is an invalid response, worth another try, with the text so far."""
    llmock.reply(LONG).corrupt(after_chunks=4)
    error, told = await failure(OpenAIModel("gpt-test"))
    assert ("invalid_response", True, "one two three ") == (error.kind, error.retryable, error.partial)
    assert error.partial == told


async def test_a_stall(llmock: LLMock) -> None:
    """A server that says nothing more is a timeout."""
    llmock.reply(LONG).stall(after_chunks=4, seconds=0.8)
    error, told = await failure(OpenAIModel("gpt-test", timeout=0.3))
    assert ("timeout", True, "one two three ") == (error.kind, error.retryable, error.partial)
    assert error.partial == told


async def test_the_timeout_is_for_the_whole_stream(llmock: LLMock) -> None:
    """Many short waits add up, though none of them is too long."""
    llmock.reply(LONG * 9).pace(60)
    error, told = await failure(OpenAIModel("gpt-test", timeout=0.4))
    assert ("timeout", True) == (error.kind, error.retryable)
    assert error.partial == told


async def test_a_slow_reader_has_time(llmock: LLMock) -> None:
    """The time between two pieces that the consumer takes is not the server's."""
    llmock.reply(LONG)
    parts: list[ModelPart] = []
    async with OpenAIModel("gpt-test", timeout=0.4).stream(ASK, CountingMeter()) as stream:
        async for part in stream:
            await anyio.sleep(0.06)
            parts.append(part)
    assert LONG == message_of(parts).text


async def test_a_failure_before_the_stream(llmock: LLMock) -> None:
    """A status is told as for a request in one piece; nothing was said."""
    llmock.rate_limit(times=1, retry_after=0.25)
    error, told = await failure(OpenAIModel("gpt-test"))
    assert ("rate_limit", True, 429, 0.25) == (error.kind, error.retryable, error.status, error.retry_after)
    assert ("", "") == (error.partial, told)


async def test_a_server_that_does_not_begin(llmock: LLMock) -> None:
    """The wait for the first byte is bounded likewise."""
    llmock.delay(0.6)
    error, _ = await failure(OpenAIModel("gpt-test", timeout=0.2))
    assert ("timeout", True, "") == (error.kind, error.retryable, error.partial)
    assert len(llmock.requests) == 1  # asking waits until the server has done with it


async def test_nothing_is_sent_uncharged(aimock: Aimock) -> None:
    """When the meter refuses, nothing leaves; when nothing can leave, nothing is charged."""
    aimock.always(content="never seen")
    model = OpenAIModel("gpt-test")
    with pytest.raises(NoneLeft):
        async with model.stream(ASK, CountingMeter(allowed=0)):
            pass
    meter = CountingMeter()
    seen = AssistantMessage(tool_calls=(ToolCall("a", "weather"),))
    picture = ToolMessage("a", "weather", (ImagePart(url="ftp://x/y.png", media_type="image/png"),))
    plain = OpenAIModel("m", profile=ModelProfile(images=False))
    with pytest.raises(ModelError, match="image") as caught:
        async with plain.stream(ModelRequest(messages=(*ASK.messages, seen, picture)), meter):
            pass
    assert ("bad_request", False) == (caught.value.kind, caught.value.retryable)
    with forbid_model_requests(), pytest.raises(RuntimeError, match="gpt-test"):
        async with model.stream(ASK, meter):
            pass
    assert meter.charged == 0
    assert aimock.requests() == []


# --- a socket of our own

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


def event(value: object) -> bytes:
    """Return one event as it is sent."""
    return b"data: " + (value.encode() if isinstance(value, str) else json.dumps(value).encode()) + b"\n\n"


def words(text: str, finish: str | None = None) -> bytes:
    """Return the event of a chunk."""
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})


@asynccontextmanager
async def serving(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[[SocketStream], Awaitable[None]]
) -> AsyncIterator[OpenAIModel]:
    """Serve on a loopback socket and give a model that asks there."""
    monkeypatch.setenv("OPENAI_API_KEY", "key")

    async def guarded(stream: SocketStream) -> None:
        async with stream:
            request = b""
            while not request.endswith(b"}"):  # of the body; what is left unread resets the connection
                request += await stream.receive()
            await serve(stream)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610  # no database is near
        tasks.start_soon(listener.serve, guarded)
        yield OpenAIModel("m", base_url=f"http://127.0.0.1:{port}/v1", timeout=5.0)
        tasks.cancel_scope.cancel()


def saying(*pieces: bytes) -> Callable[[SocketStream], Awaitable[None]]:
    """Return a server that sends these bytes and then closes."""

    async def serve(stream: SocketStream) -> None:
        await stream.send(_HEAD + b"".join(pieces))

    return serve


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        ({"message": "no luck", "type": "server_error"}, "server", True),
        ({"message": "no luck", "code": "rate_limit_exceeded"}, "rate_limit", True),
        ({"message": "no luck", "code": 429}, "rate_limit", True),
        ({"message": "no luck", "code": "502"}, "server", True),
        ({"message": "no luck", "code": "context_length_exceeded"}, "bad_request", False),
        ({"message": "no luck", "type": "who knows"}, "server", True),
    ],
)
async def test_an_error_object_in_the_stream(
    monkeypatch: pytest.MonkeyPatch,
    error: dict[str, object],
    kind: str,
    retryable: bool,  # noqa: FBT001  # a case of the table
) -> None:
    """What it says is the error's kind; the text so far is told."""
    async with serving(monkeypatch, saying(words("half"), event({"error": error}))) as model:
        failed, told = await failure(model)
    assert (kind, retryable, "half", "half") == (failed.kind, failed.retryable, failed.partial, told)
    assert "no luck" in failed.message


@pytest.mark.parametrize(
    "pieces",
    [
        (words("so", "stop"),),
        (words("so"), words("", "stop"), event("[DONE]")),
        (b": a comment\r\n\r\n", words("so", "stop"), event("[DONE]"), words("never read")),
        (b"data: {}\n\n", words("so", "stop").replace(b"\n", b"\r\n")),
    ],
)
async def test_ends_of_a_stream(monkeypatch: pytest.MonkeyPatch, pieces: tuple[bytes, ...]) -> None:
    """The finish reason makes an answer whole, with the closing mark or without it."""
    async with serving(monkeypatch, saying(*pieces)) as model:
        assert "so" == message_of(await streamed(model)).text


@pytest.mark.parametrize(
    "garbage",
    [
        b"data: {\n\n",
        b"data: \xff\n\n",
        b'data: {"choices": 3}\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
        event({"choices": [{"index": 0, "delta": {"content": "x"}}, {"index": 1, "delta": {}}]}),
    ],
    ids=["cut", "no text", "no chunk", "deep", "two choices"],
)
async def test_what_is_no_stream(monkeypatch: pytest.MonkeyPatch, garbage: bytes) -> None:
    """It is an invalid response, worth another try, with the text so far."""
    async with serving(monkeypatch, saying(words("half"), garbage, words("", "stop"))) as model:
        failed, told = await failure(model)
    assert ("invalid_response", True, "half", "half") == (
        failed.kind,
        failed.retryable,
        failed.partial,
        told,
    )


async def test_a_server_that_does_not_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer in one piece where a stream was asked for is no stream, and the error asks whether it is one."""
    async with serving(monkeypatch, saying(b'{"choices": []}')) as model:
        failed, _ = await failure(model)
    assert "does it stream" in failed.message


async def test_who_leaves_early_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server sees the connection close while the model is still open, and nothing of it is left over."""
    gone = anyio.Event()

    async def endless(stream: SocketStream) -> None:
        await stream.send(_HEAD)
        try:
            while True:
                await stream.send(words("x"))
                await anyio.sleep(0.01)
        except (anyio.BrokenResourceError, anyio.EndOfStream):
            gone.set()

    async with serving(monkeypatch, endless) as model:
        async with model.stream(ASK, CountingMeter()) as stream:
            async for part in stream:
                assert isinstance(part, Delta)
                break
        with anyio.fail_after(5):
            await gone.wait()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


@pytest.mark.parametrize("read", [0, 1])
async def test_a_cancelled_consumer_closes_the_connection(monkeypatch: pytest.MonkeyPatch, read: int) -> None:
    """Cancelled while it waits for a piece, before or after the first one: the server sees it too."""
    gone = anyio.Event()
    scope = anyio.CancelScope()
    heard = anyio.Event()
    if not read:
        heard.set()

    async def silent(stream: SocketStream) -> None:
        await stream.send(_HEAD + words("x") * read)
        await heard.wait()
        scope.cancel()
        try:
            while True:
                await stream.receive()
        except (anyio.BrokenResourceError, anyio.EndOfStream):
            gone.set()

    async with serving(monkeypatch, silent) as model:
        with scope:
            async with model.stream(ASK, CountingMeter()) as stream:
                async for part in stream:
                    assert isinstance(part, Delta)
                    heard.set()
        assert scope.cancelled_caught
        with anyio.fail_after(5):
            await gone.wait()


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_connection_that_breaks_when_it_is_no_longer_needed(
    monkeypatch: pytest.MonkeyPatch,
    leaves: bool,  # noqa: FBT001  # a value under test
) -> None:
    """What happens to the connection is no failure once the consumer has left, or the closing mark has come."""
    pieces = words("x", "stop"), event("[DONE]")
    gone = anyio.Event()

    async def reset(stream: SocketStream) -> None:
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        await stream.send(_HEAD.replace(b"\r\n\r\n", b"\r\ntransfer-encoding: chunked\r\n\r\n") + chunks)
        await asked.wait()
        linger = struct.pack("ii", 1, 0)  # to close with a reset
        raw = stream.extra(SocketAttribute.raw_socket)  # noqa: S610  # no database is near
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        await stream.aclose()
        gone.set()

    asked = anyio.Event()
    async with serving(monkeypatch, reset) as model, model.stream(ASK, CountingMeter()) as stream:
        assert Delta("x", ASK.step) == await anext(stream)
        asked.set()
        await gone.wait()
        if not leaves:
            (message,) = [part async for part in stream]
            assert isinstance(message, AssistantMessage)


async def test_a_consumer_that_fails_keeps_its_error(llmock: LLMock) -> None:
    """What the consumer raises comes out as it is."""
    llmock.add(Reply(text=LONG))

    async def consume() -> None:
        async with OpenAIModel("gpt-test").stream(ASK, CountingMeter()) as stream:
            async for _ in stream:
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await consume()
    assert len(llmock.requests) == 1
