"""OpenAIModel against servers that others wrote: what it sends, what a failure becomes, what is charged."""

import gc
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from email.utils import formatdate

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream
from llmock.pytest_plugin import LLMock
from llmock.scenarios import Reply as Scripted
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from capfold.capabilities.frozen import freeze_mapping
from capfold.capabilities.messages import (
    AssistantMessage,
    AudioPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from capfold.capabilities.tools import Tool
from capfold.runtime.models import ModelError, ModelRequest, as_model, forbid_model_requests
from capfold.runtime.openai_failures import retry_after
from capfold.runtime.openai_model import OpenAIModel
from tests.runtime.meters import CountingMeter, NoneLeft
from tests.servers import Aimock, Body, wire_problem

WEATHER = Tool("weather", "Look out.", {"type": "object", "properties": {"city": {"type": "string"}}})
ASK = ModelRequest(messages=(UserMessage("weather?"),), tools=(WEATHER,))
PARALLEL = [
    {"id": "a", "name": "weather", "arguments": '{"city": "Köln"}'},
    {"id": "b", "name": "weather", "arguments": '{"city":"Rom"}'},
]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach loopback servers directly, whatever proxy the environment names."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


async def failure(model: OpenAIModel, request: ModelRequest = ASK) -> ModelError:
    """Return the error of a request that must fail after it was charged exactly once."""
    meter = CountingMeter()
    with pytest.raises(ModelError) as caught:
        await model.request(request, meter)
    assert meter.charged == 1
    return caught.value


# --- against aimock


async def test_parallel_calls_and_their_results(aimock: Aimock) -> None:
    """Two calls of one response keep ids, order and text; their results go back balanced."""
    aimock.script(
        {"match": {"hasToolResult": True}, "response": {"content": "rain and sun"}},
        {
            "match": {"userMessage": "weather"},
            "response": {
                "content": "looking",
                "reasoning": "two cities",
                "toolCalls": PARALLEL,
                "usage": {"prompt_tokens": 7, "completion_tokens": 5},
            },
        },
    )
    model, meter = (
        OpenAIModel("gpt-test", settings=freeze_mapping({"temperature": 0}, "settings")),
        CountingMeter(),
    )
    first = await model.request(ASK, meter)
    calls = (ToolCall("a", "weather", '{"city": "Köln"}'), ToolCall("b", "weather", '{"city":"Rom"}'))
    assert calls == first.tool_calls
    assert ("looking", "tool_calls", "gpt-test") == (first.content, first.finish_reason, first.model)
    assert Usage(input_tokens=7, output_tokens=5) == first.usage

    results = (ToolMessage("a", "weather", "rain"), ToolMessage("b", "weather", "sun"))
    second = await model.request(
        ModelRequest(messages=(*ASK.messages, first, *results), tools=(WEATHER,)), meter
    )
    assert ("rain and sun", "stop", 2) == (second.content, second.finish_reason, meter.charged)

    sent, again = aimock.assert_balanced()
    assert ("gpt-test", 0) == (sent["model"], sent["temperature"])
    assert again["messages"][1]["reasoning_content"] == "two cities"
    for request in (sent, again):
        TypeAdapter(list[ChatCompletionMessageParam]).validate_python(request["messages"])


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
async def test_finish_reasons(aimock: Aimock, reason: str) -> None:
    """The server's finish reason is the message's."""
    aimock.always(content="so", finishReason=reason)
    response = await OpenAIModel("gpt-test").request(ASK, CountingMeter())
    assert response.finish_reason == reason


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "bad_request", False),
        (401, "auth", False),
        (403, "auth", False),
        (404, "bad_request", False),
        (408, "timeout", True),
        (409, "server", True),
        (413, "bad_request", False),
        (422, "bad_request", False),
        (429, "rate_limit", True),
        (500, "server", True),
        (503, "server", True),
        (529, "server", True),
    ],
)
async def test_error_statuses(aimock: Aimock, status: int, kind: str, retryable: bool) -> None:  # noqa: FBT001  # a case of the table
    """Each status has one meaning, is told to the caller, and is never tried again by the client itself."""
    aimock.always(error={"message": "no luck", "type": "test"}, status=status, retryAfter=3)
    client = AsyncOpenAI(max_retries=5)
    error = await failure(OpenAIModel("gpt-test", client=client))
    await client.close()
    assert (kind, retryable, status) == (error.kind, error.retryable, error.status)
    assert error.retry_after == (3.0 if status == 429 else None)
    assert "no luck" in error.message
    assert len(aimock.requests()) == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("rateLimitRate", "rate_limit"),
        ("malformedRate", "invalid_response"),
        ("disconnectRate", "connection"),
        ("dropRate", "server"),
    ],
)
async def test_faults(aimock: Aimock, fault: str, kind: str) -> None:
    """A garbled body, a lost connection and the like are worth another try, which is left to the caller."""
    aimock.always(content="never seen")
    aimock.faults(**{fault: 1.0})
    error = await failure(OpenAIModel("gpt-test"))
    assert (kind, True) == (error.kind, error.retryable)
    assert len(aimock.requests()) == 1


async def test_nothing_is_sent_uncharged(aimock: Aimock) -> None:
    """When the meter refuses, nothing leaves; when nothing can leave, nothing is charged."""
    aimock.always(content="never seen")
    model = OpenAIModel("gpt-test")
    with pytest.raises(NoneLeft):
        await model.request(ASK, CountingMeter(allowed=0))

    meter = CountingMeter()
    song = ToolMessage("a", "weather", (AudioPart(url="https://x", media_type="audio/wav"),))
    asked = AssistantMessage(tool_calls=(ToolCall("a", "weather"),))
    with pytest.raises(ModelError, match=r"messages\[2\]\.content\[0\]: .* as data, not by URL") as caught:
        await model.request(ModelRequest(messages=(*ASK.messages, asked, song)), meter)
    assert ("bad_request", False) == (caught.value.kind, caught.value.retryable)

    with forbid_model_requests(), pytest.raises(RuntimeError, match="gpt-test"):
        await model.request(ASK, meter)
    assert meter.charged == 0
    assert aimock.requests() == []


def test_one_model_serves_many_event_loops(aimock: Aimock, anyio_backend: str) -> None:
    """A model that outlives its event loop works in the next one, and leaves no connection open behind."""
    aimock.always(content="hi")
    model = OpenAIModel("gpt-test")

    async def twice() -> list[str]:
        return [(await model.request(ASK, CountingMeter())).text for _ in range(2)]

    for _ in range(2):
        assert anyio.run(twice, backend=anyio_backend) == ["hi", "hi"]
        gc.collect()  # an open connection would warn, and a warning fails the test


# --- against llmock


async def test_retry_after_of_a_rate_limit(llmock: LLMock) -> None:
    """A fraction of a second is told as it is; the second request, the caller's, succeeds."""
    llmock.rate_limit(times=1, retry_after=0.25)
    model = OpenAIModel("gpt-test")
    error = await failure(model)
    assert ("rate_limit", True, 429, 0.25) == (error.kind, error.retryable, error.status, error.retry_after)
    await anyio.sleep(error.retry_after or 0)
    assert (await model.request(ASK, CountingMeter())).model == "gpt-test"
    assert len(llmock.requests) == 2
    llmock.assert_resilient()


async def test_a_context_overflow_is_not_retryable(llmock: LLMock) -> None:
    """A 400 is not to be tried again, and nobody did."""
    llmock.context_overflow()
    error = await failure(OpenAIModel("gpt-test"))
    assert ("bad_request", False, 400, None) == (error.kind, error.retryable, error.status, error.retry_after)
    llmock.assert_resilient()


async def test_cut_arguments_come_through(llmock: LLMock) -> None:
    """Arguments that are no JSON are no error of the adapter: they are kept, for the run to judge."""
    llmock.call_tool("weather", {"city": "Rome"}).break_tool_call("malformed_arguments")
    response = await OpenAIModel("gpt-test").request(ASK, CountingMeter())
    (call,) = response.tool_calls
    assert call.name == "weather"
    assert call.arguments
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        json.loads(call.arguments)


async def test_a_truncated_answer(llmock: LLMock) -> None:
    """A response that ran into the length limit says so."""
    llmock.add(Scripted(text="half an ans", finish_reason="length"))
    response = await OpenAIModel("gpt-test").request(ASK, CountingMeter())
    assert ("half an ans", "length") == (response.content, response.finish_reason)


async def test_a_stalled_server(llmock: LLMock) -> None:
    """A server that does not answer in time is a timeout, worth another try."""
    llmock.delay(0.6)
    error = await failure(OpenAIModel("gpt-test", timeout=0.2))
    assert ("timeout", True) == (error.kind, error.retryable)
    assert len(llmock.requests) == 1  # asking waits until the server has done with it


async def test_cancellation_passes_through(llmock: LLMock) -> None:
    """A cancelled request is cancelled: it is no ModelError, and nothing is returned."""
    llmock.delay(0.6)
    meter = CountingMeter()
    with anyio.move_on_after(0.2) as scope:
        await OpenAIModel("gpt-test").request(ASK, meter)
    assert scope.cancelled_caught
    assert meter.charged == 1
    assert len(llmock.requests) == 1


# --- against a socket of our own: what neither server does


async def trickle(stream: SocketStream) -> None:
    """Send the head of a response, and then a byte of its body now and then, for ever."""
    async with stream:
        await stream.receive()
        await stream.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n"
        )
        while True:
            await stream.send(b" ")
            await anyio.sleep(0.02)


async def break_off(stream: SocketStream) -> None:
    """Promise more of a body than is sent."""
    async with stream:
        await stream.receive()
        await stream.send(
            b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n{"cho'
        )


@pytest.mark.parametrize(("serve", "kind"), [(trickle, "timeout"), (break_off, "connection")])
async def test_a_body_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[[SocketStream], Awaitable[None]], kind: str
) -> None:
    """The timeout bounds a whole request, trickling or not; a body that is cut off is a lost connection."""
    monkeypatch.setenv("OPENAI_API_KEY", "key")

    async def guarded(stream: SocketStream) -> None:
        try:
            await serve(stream)
        except (anyio.BrokenResourceError, anyio.EndOfStream):
            return  # the client has gone, as it should

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610  # no database is near
        tasks.start_soon(listener.serve, guarded)
        error = await failure(OpenAIModel("m", base_url=f"http://127.0.0.1:{port}/v1", timeout=0.3))
        tasks.cancel_scope.cancel()
    assert (kind, True) == (error.kind, error.retryable)


async def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection at all is a connection error."""
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    error = await failure(OpenAIModel("m", base_url="http://127.0.0.1:9/v1"))
    assert ("connection", True) == (error.kind, error.retryable)


# --- construction


def test_a_missing_key_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key no model of OpenAI can be made, in either way; another server may need none."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ValueError, match="OPENAI_API_KEY"):
        OpenAIModel("gpt-test")
    with pytest.raises(ValueError, match="OPENAI_API_KEY"):
        as_model("openai:gpt-test")
    assert OpenAIModel("local", base_url="http://127.0.0.1:1/v1").name == "local"


async def test_a_key_that_went_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is gone at the first request is an "auth" error, and nothing is charged."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    model, meter = OpenAIModel("gpt-test"), CountingMeter()
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ModelError, match="OPENAI_API_KEY") as caught:
        await model.request(ASK, meter)
    assert ("auth", False, 0) == (caught.value.kind, caught.value.retryable, meter.charged)


async def test_a_server_without_keys(aimock: Aimock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compatible server is asked without any key in the environment."""
    monkeypatch.delenv("OPENAI_API_KEY")
    aimock.always(content="hi")
    assert (await OpenAIModel("local").request(ASK, CountingMeter())).text == "hi"


@pytest.mark.parametrize(
    ("keywords", "why"),
    [
        ({"api": "assistants"}, "api must be 'chat' or 'responses', not 'assistants'"),
        ({"api": "responses", "settings": {"max_tokens": 3}}, "max_tokens; write max_output_tokens"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": "1"}, "timeout"),
        ({"base_url": "localhost:1"}, "base_url"),
        ({"settings": {"messages": []}}, "messages"),
        ({"name": ""}, "name"),
    ],
)
def test_bad_construction(monkeypatch: pytest.MonkeyPatch, keywords: dict[str, object], why: str) -> None:
    """What cannot work is a ValueError when the model is made."""
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    with pytest.raises(ValueError, match=why):
        OpenAIModel(**{"name": "m", **keywords})  # type: ignore[arg-type]  # wrong on purpose


async def test_a_given_client() -> None:
    """It is used as it is, its headers and base URL too, but for its retries; it is never closed here."""
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(500, json={"error": {"message": "down"}})

    transport = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    client = AsyncOpenAI(
        api_key="mine",
        base_url="http://there/v9",
        default_headers={"x-team": "1"},
        max_retries=3,
        http_client=transport,
    )
    with pytest.raises(ValueError, match="client's own"):
        OpenAIModel("m", client=client, base_url="http://here")
    error = await failure(OpenAIModel("m", client=client))
    assert ("server", 500) == (error.kind, error.status)
    (request,) = seen
    assert str(request.url) == "http://there/v9/chat/completions"
    assert ("1", "Bearer mine") == (request.headers["x-team"], request.headers["authorization"])
    assert request.headers["content-type"] == "application/json"
    assert (client.max_retries, transport.is_closed) == (3, False)
    await client.close()


def test_a_sync_client_is_refused() -> None:
    """OpenAI instead of AsyncOpenAI is a TypeError when the model is made."""
    with OpenAI(api_key="k") as client, pytest.raises(TypeError, match=r"openai.AsyncOpenAI, not OpenAI"):
        OpenAIModel("m", client=client)  # type: ignore[arg-type]  # wrong on purpose


def test_the_key_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's repr has no secret in it."""
    monkeypatch.setenv("OPENAI_API_KEY", "very-secret")
    shown = repr(OpenAIModel("m")) + repr(OpenAIModel("m", client=AsyncOpenAI()))
    assert "very-secret" not in shown


def test_openai_is_imported_with_the_first_client() -> None:
    """Making a model does not import openai, which costs 400 ms."""
    code = (
        "import sys; from capfold.runtime.openai_model import OpenAIModel; OpenAIModel('m'); "
        "print('openai' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OPENAI_API_KEY": "key"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"


# --- small parts


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-1"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": formatdate(1030, usegmt=True)}, 30.0),
        ({"retry-after": formatdate(900, usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Mon, 99 Jan 2024 00:00:00 GMT"}, None),
    ],
)
def test_retry_after(headers: dict[str, str], expected: float | None) -> None:
    """Seconds, milliseconds or a date: the wait in seconds; what is none of them is no wait."""
    assert expected == retry_after(headers, 1000.0)


def test_the_judge_of_the_wire() -> None:
    """The tests' own balance check accepts what is right and names each wrong."""
    asks: Body = {"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]}
    a, b = ({"role": "tool", "tool_call_id": call_id} for call_id in "ab")
    user = {"role": "user"}
    assert wire_problem([user, asks, b, a, user]) is None
    wrongs: list[list[Body]] = [
        [user, asks, a],
        [user, asks, a, user, b],
        [user, asks, a, a, b],
        [user, a],
        [user, asks, a, b, b],
        [{"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "a"}]}, a, a],
        [{"role": "model"}],
    ]
    for wrong in wrongs:
        assert wire_problem(wrong) is not None
