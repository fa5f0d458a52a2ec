"""The models for tests: what each reply becomes, who gets it, and what is charged."""

from collections.abc import Callable

import pytest
from anyio import create_task_group

from capfold.capabilities.messages import (
    AssistantMessage,
    SystemMessage,
    TextPart,
    ToolCall,
    Usage,
    UserMessage,
    call,
)
from capfold.runtime.models import ModelError, ModelRequest, as_model, forbid_model_requests
from capfold.runtime.replies import Chunks, Reply
from capfold.runtime.scripted_model import EchoModel, FunctionModel, ScriptedModel
from tests.runtime.meters import CountingMeter, NoneLeft

ASK = ModelRequest(messages=(UserMessage("hello"),))
FREE = Usage(input_tokens=0, output_tokens=0)
SAID = AssistantMessage("given", model="other", usage=None)


async def later(request: ModelRequest) -> Reply:
    """Reply only when awaited, and with another function."""
    return lambda again: f"{len(again.messages)} messages"


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("hi", AssistantMessage("hi", usage=FREE, model="m")),
        (
            ToolCall("", "f"),
            AssistantMessage(
                tool_calls=(ToolCall("", "f"),), finish_reason="tool_calls", usage=FREE, model="m"
            ),
        ),
        (
            [call("f", {"x": 1}), call("g", id="b")],
            AssistantMessage(
                tool_calls=(ToolCall("", "f", '{"x": 1}'), ToolCall("b", "g")),
                finish_reason="tool_calls",
                usage=FREE,
                model="m",
            ),
        ),
        (SAID, SAID),
        (Chunks("a", "b"), AssistantMessage("ab", usage=FREE, model="m")),
        (Chunks(), AssistantMessage("", usage=FREE, model="m")),
        (lambda request: request.messages[-1].content, AssistantMessage("hello", usage=FREE, model="m")),
        (later, AssistantMessage("1 messages", usage=FREE, model="m")),
    ],
)
async def test_what_a_reply_becomes(reply: Reply, expected: AssistantMessage) -> None:
    """Each kind of reply becomes one response, charged once; an empty id stays empty."""
    model, meter = ScriptedModel([reply], name="m"), CountingMeter()
    assert expected == await model.request(ASK, meter)
    assert meter.charged == 1
    assert model.requests == (ASK,)
    model.assert_complete()


async def test_an_exception_is_raised_as_it_is() -> None:
    """A reply that is an exception is raised, the very object, and charged."""
    error, meter = ConnectionError("gone"), CountingMeter()
    with pytest.raises(ConnectionError) as caught:
        await ScriptedModel([error]).request(ASK, meter)
    assert caught.value is error
    assert meter.charged == 1


async def test_broken_chunks_tell_what_came_before() -> None:
    """A ModelError that breaks a text off says what came before; another error is raised as it is."""
    broken = ModelError("rate_limit", "slow", retryable=True, status=429, retry_after=2.0)
    model = ScriptedModel([Chunks("a", "b", error=broken), Chunks("a", error=OSError("gone"))])
    with pytest.raises(ModelError, match="slow") as caught:
        await model.request(ASK, CountingMeter())
    error = caught.value
    assert ("rate_limit", True, 429, 2.0, "ab") == (
        error.kind,
        error.retryable,
        error.status,
        error.retry_after,
        error.partial,
    )
    with pytest.raises(OSError, match="gone"):
        await model.request(ASK, CountingMeter())


async def test_a_used_up_script_says_so() -> None:
    """A request beyond the script is ModelError "script", not retryable, and is noted."""
    model = ScriptedModel(["only"])
    await model.request(ASK, CountingMeter())
    with pytest.raises(ModelError, match="used up: it has 1 replies, this is request 2") as caught:
        await model.request(ASK, CountingMeter())
    assert ("script", False) == (caught.value.kind, caught.value.retryable)
    assert len(model.requests) == 2


async def test_an_uncharged_request_takes_no_reply() -> None:
    """When the meter has none left, the request does not reach the model, and the reply stays."""
    model = ScriptedModel(["only"])
    with pytest.raises(NoneLeft):
        await model.request(ASK, CountingMeter(allowed=0))
    assert model.requests == ()
    with pytest.raises(AssertionError, match="1 of 1 replies are left; the next is 'only'"):
        model.assert_complete()


async def test_runs_share_the_script() -> None:
    """Concurrent requests take each reply once, in order of arrival."""
    model = ScriptedModel([str(i) for i in range(20)])
    got: list[tuple[int, str]] = []

    async def ask(i: int) -> None:
        response = await model.request(ModelRequest(messages=(UserMessage(str(i)),)), CountingMeter())
        got.append((i, response.text))

    async with create_task_group() as tasks:
        for i in range(20):
            tasks.start_soon(ask, i)
    assert sorted(str(i) for i in range(20)) == sorted(text for _, text in got)
    order = [message.content for request in model.requests for message in request.messages]
    arrived = sorted(got, key=lambda pair: order.index(str(pair[0])))
    assert [str(i) for i in range(20)] == [text for _, text in arrived]
    model.assert_complete()


@pytest.mark.parametrize(
    "bad", [None, 1, [], ["text"], [ToolCall("", "f"), "x"], {"a": 1}, ValueError, b"bytes"]
)
def test_a_bad_reply_fails_at_construction(bad: object) -> None:
    """What is no reply is a TypeError that names its place, before any run."""
    with pytest.raises(TypeError, match=r"replies\[1\]"):
        ScriptedModel(["fine", bad])  # type: ignore[list-item]  # wrong on purpose


def test_one_text_is_no_script() -> None:
    """A bare string would be read as its letters."""
    with pytest.raises(TypeError, match=r"as in ScriptedModel\(\['hello'\]\)"):
        ScriptedModel("hello")


async def test_a_function_that_returns_no_reply_is_a_script_error() -> None:
    """What a function returned is checked too, and blamed on the script."""
    model = ScriptedModel([lambda request: 1])  # type: ignore[list-item,return-value]  # wrong on purpose
    with pytest.raises(ModelError, match="a reply must be") as caught:
        await model.request(ASK, CountingMeter())
    assert caught.value.kind == "script"


def sync_answer(request: ModelRequest) -> Reply:
    """Answer at once."""
    return call("f")


async def async_answer(request: ModelRequest) -> Reply:
    """Answer when awaited."""
    return call("f")


@pytest.mark.parametrize("function", [sync_answer, async_answer])
async def test_function_models(function: Callable[[ModelRequest], Reply]) -> None:
    """A function, sync or async, answers each request, charged once each."""
    model, meter = FunctionModel(function), CountingMeter()
    for _ in range(2):
        response = await model.request(ASK, meter)
        assert (ToolCall("", "f"),) == response.tool_calls
        assert ("tool_calls", FREE, "function") == (response.finish_reason, response.usage, response.model)
    assert meter.charged == 2


def test_function_model_takes_a_function() -> None:
    """Anything else is a TypeError when the model is made."""
    with pytest.raises(TypeError, match="takes a function"):
        FunctionModel("text")  # type: ignore[arg-type]  # wrong on purpose


async def test_echo() -> None:
    """The model "test" is the echo: the text of the last user message; "" without one."""
    model, meter = as_model("test"), CountingMeter()
    assert isinstance(model, EchoModel)
    parts = UserMessage((TextPart("a"), TextPart("b")))
    asked = ModelRequest(messages=(UserMessage("first"), parts, SystemMessage("system")))
    assert "ab" == (await model.request(asked, meter)).text
    assert not (await model.request(ModelRequest(messages=()), meter)).text
    assert meter.charged == 2


async def test_they_do_not_leave_the_process() -> None:
    """forbid_model_requests() lets models for tests work."""
    with forbid_model_requests():
        response = await ScriptedModel(["fine"]).request(ASK, CountingMeter())
    assert response.text == "fine"
