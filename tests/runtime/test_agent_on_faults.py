"""Whole runs of an agent against servers that fail: what the run's error says, and that nobody tried in secret."""

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from llmock.pytest_plugin import LLMock
from llmock.scenarios import Reply, ToolCall
from openai import AsyncOpenAI

from capfold.capabilities import AssistantMessage
from capfold.runtime import (
    IncompleteResponse,
    InvalidResponse,
    LimitError,
    LimitExceeded,
    Limits,
    ModelFailed,
    ModelRunError,
    OpenAIModel,
    RunResult,
)
from tests.runtime.desk import check_closed, partial, results
from tests.runtime.server_runs import agent, asks, check_types, judged, play, says
from tests.servers import Aimock, wire_problem


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach loopback servers directly, whatever proxy the environment names."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


async def failure(requests: int, **options: Any) -> tuple[ModelFailed, RunResult[object]]:  # Any: of Agent
    """Return the reason of a run that the model must fail, and what it came to after so many requests."""
    with pytest.raises(ModelRunError) as caught:
        await agent(**options).run("go")
    reason = caught.value.reason
    assert isinstance(reason, ModelFailed)
    result = partial(caught.value)
    assert requests == result.requests
    return reason, result


def check_llmock(llmock: LLMock, requests: int) -> None:
    """Fail unless llmock got balanced, well-typed requests, as many as the ledger says, none a hidden retry."""
    assert requests == len(llmock.requests)
    for record in llmock.requests:
        assert wire_problem(record.body["messages"]) is None
        check_types(record.body)
        assert record.sdk_retry_count in (0, None)


# --- how a response ended


@pytest.mark.parametrize(
    ("reason", "text"), [("length", "token limit"), ("content_filter", "filter"), ("odd", "without")]
)
@pytest.mark.parametrize("with_calls", [False, True], ids=["text", "calls"])
async def test_a_response_that_was_cut_off(
    aimock: Aimock,
    reason: str,
    text: str,
    with_calls: bool,  # noqa: FBT001  # a value under test
) -> None:
    """A cut or filtered response fails the run, none of its calls runs, and its history can be continued."""
    cut = {"finishReason": reason}
    play(aimock, asks(("a", "pay", {"amount": 3}), **cut) if with_calls else says("half", **cut), says("ok"))
    with pytest.raises(ModelRunError, match=text) as caught:
        await agent().run("go")
    assert isinstance(caught.value.reason, IncompleteResponse)
    assert (reason if reason != "odd" else "incomplete") == caught.value.reason.finish_reason
    came_to = partial(caught.value)
    assert ([("pay", "not_executed")] if with_calls else []) == results(came_to.messages)
    again = await agent().run("again", messages=came_to.messages)
    assert "ok" == again.output
    judged(aimock, came_to.requests + again.requests)


async def test_calls_with_one_id(aimock: Aimock) -> None:
    """Two calls of one id cannot be told apart: the run fails, neither runs, and the request is accounted for."""
    usage = {"prompt_tokens": 10, "completion_tokens": 3}
    play(aimock, asks(("a", "pay", {"amount": 3}), ("a", "pay", {"amount": 4}), usage=usage))
    with pytest.raises(ModelRunError, match="two calls") as caught:
        await agent().run("go")
    assert isinstance(caught.value.reason, InvalidResponse)
    came_to = partial(caught.value)
    assert (0, 13) == (came_to.tool_calls, came_to.usage.total)
    judged(aimock, came_to.requests)


def answering(*messages: dict[str, object]) -> tuple[OpenAIModel, list[httpx2.Request]]:
    """Return a model whose responses are these messages, as no server at hand can give them, and its requests."""
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        choice = {"index": 0, "finish_reason": "stop", "message": messages[len(seen) - 1]}
        return httpx2.Response(200, json={"object": "chat.completion", "model": "m", "choices": [choice]})

    transport = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    return OpenAIModel("m", client=AsyncOpenAI(api_key="k", http_client=transport)), seen


async def test_a_refusal() -> None:
    """What the model refuses is the output of a text run, told by its finish reason, and goes back as refusal."""
    model, seen = answering(
        {"role": "assistant", "content": None, "refusal": "I will not."},
        {"role": "assistant", "content": "ok"},
    )
    first = await agent(model=model).run("go")
    assert ("completed", "I will not.") == (first.status, first.output)
    said = first.messages[-1]
    assert isinstance(said, AssistantMessage)
    assert "refusal" == said.finish_reason
    second = await agent(model=model).run("please", messages=first.messages)
    assert "ok" == second.output
    assert model.client is not None
    await model.client.close()
    body = httpx2.Response(200, content=seen[1].content).json()
    check_types(body)
    assert {"role": "assistant", "content": None, "refusal": "I will not."} == body["messages"][1]


# --- how a request failed


async def test_a_rate_limit(aimock: Aimock) -> None:
    """A 429 in the second step: retryable, with its status; what was done before it stands in the partial."""
    play(
        aimock,
        asks(("a", "pay", {"amount": 3})),
        {"error": {"message": "slow down", "type": "rate_limit"}, "status": 429, "retryAfter": 7},
        says("ok"),
    )
    reason, came_to = await failure(2)
    assert ("rate_limit", True, 429) == (reason.kind, reason.retryable, reason.status)
    assert "slow down" in reason.message
    assert [("pay", "succeeded")] == results(came_to.messages)
    again = await agent().run("go on", messages=came_to.messages)
    assert "ok" == again.output
    judged(aimock, came_to.requests + again.requests)


async def test_the_wait_that_a_rate_limit_asks_for(llmock: LLMock) -> None:
    """The cause of the run's error tells the seconds of Retry-After, fractions and all; nobody tried again."""
    llmock.rate_limit(times=1, retry_after=0.25)
    with pytest.raises(ModelRunError) as caught:
        await agent().run("go")
    assert 0.25 == getattr(caught.value.__cause__, "retry_after", None)
    assert isinstance(caught.value.reason, ModelFailed)
    assert ("rate_limit", True, 429) == (
        caught.value.reason.kind,
        caught.value.reason.retryable,
        caught.value.reason.status,
    )
    check_llmock(llmock, partial(caught.value).requests)


async def test_a_bad_request(llmock: LLMock) -> None:
    """A 400 is not retryable, and the server finds no fault with the client."""
    llmock.context_overflow()
    reason, came_to = await failure(1)
    assert ("bad_request", False, 400) == (reason.kind, reason.retryable, reason.status)
    check_llmock(llmock, came_to.requests)
    llmock.assert_resilient()


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("malformedRate", "invalid_response"),
        ("disconnectRate", "connection"),
        ("dropRate", "server"),
        ("rateLimitRate", "rate_limit"),
    ],
)
async def test_faults(aimock: Aimock, fault: str, kind: str) -> None:
    """A broken body, a lost connection and the like fail the run once, and are worth another try."""
    aimock.always(content="never seen")
    aimock.faults(**{fault: 1.0})
    reason, came_to = await failure(1)
    assert (kind, True) == (reason.kind, reason.retryable)
    judged(aimock, came_to.requests)


@pytest.mark.parametrize("limited", [True, False], ids=["of the run", "of the model"])
async def test_a_stall(llmock: LLMock, limited: bool) -> None:  # noqa: FBT001  # a value under test
    """A server that does not answer in time is a timeout, by the run's limit or by the model's own."""
    llmock.delay(0.8)
    options: dict[str, object] = (
        {"limits": Limits(request_timeout=0.2)}
        if limited
        else {"model": OpenAIModel("gpt-test", timeout=0.2)}
    )
    reason, came_to = await failure(1, **options)
    assert ("timeout", True, None) == (reason.kind, reason.retryable, reason.status)
    check_llmock(llmock, came_to.requests)


@pytest.mark.parametrize(
    "break_it",
    [lambda server: server.fail(500), lambda server: server.fail(429), lambda server: server.outage()],
    ids=["500", "429", "outage"],
)
async def test_no_request_is_sent_in_secret(llmock: LLMock, break_it: Callable[[LLMock], object]) -> None:
    """A client of the user's that would try five times more sends what the ledger counts, not one more."""
    break_it(llmock)
    client = AsyncOpenAI(max_retries=5)
    _, came_to = await failure(1, model=OpenAIModel("gpt-test", client=client))
    await client.close()
    check_llmock(llmock, came_to.requests)
    llmock.assert_resilient()


async def test_the_request_limit_is_what_the_server_sees(llmock: LLMock) -> None:
    """With two requests allowed, the third is not sent."""
    llmock.add(Reply(tool_calls=(ToolCall("weather", {"city": "Rom"}),), times=None))
    with pytest.raises(LimitError) as caught:
        await agent(limits=Limits(requests=2)).run("go")
    assert isinstance(caught.value.reason, LimitExceeded)
    assert ("requests", 2) == (caught.value.reason.limit, caught.value.reason.allowed)
    check_llmock(llmock, 2)


async def test_a_well_behaved_model_of_its_own(llmock: LLMock) -> None:
    """The server without a script calls the tool that fits, with arguments by its schema, and then answers."""
    result = await agent().run("what is the weather of the city?")
    assert "completed" == result.status
    assert [("weather", "succeeded")] == results(result.messages)
    check_closed(result.messages)
    check_llmock(llmock, result.requests)


@pytest.mark.parametrize("kind", ["malformed_arguments", "unknown_tool"])
async def test_a_broken_call(llmock: LLMock, kind: str) -> None:
    """Cut arguments, sent back as they came, or an unknown name: one result that says so, and the run goes on."""
    llmock.call_tool("weather", {"city": "Rom"}).break_tool_call(kind)
    llmock.call_tool("weather", {"city": "Rom"}).reply("rain")
    result = await agent().run("weather?")
    assert "rain" == result.output
    assert ["validation_error", "succeeded"] == [status for _, status in results(result.messages)]
    check_llmock(llmock, result.requests)
    second = llmock.requests[1].body["messages"]
    called = second[1]["tool_calls"][0]["function"]
    if kind == "unknown_tool":
        assert called["name"] not in ("weather", "pay")
        assert "weather" in second[2]["content"]
    else:
        with pytest.raises(json.JSONDecodeError):
            json.loads(called["arguments"])
        assert "not valid" in second[2]["content"]
