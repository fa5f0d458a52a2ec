"""The same scripts through chat completions and responses: equal records, and each wire as its API wants it.

Not compared are `provider_items` and metadata of a reasoning model, which go back to the API that they came from,
and what the servers tell of one API only: aimock gives no reason for an incomplete response and calls a filtered
one failed, llmock counts cached tokens.
"""

import base64
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
import pytest
from attrs import evolve, field, frozen
from llmock.pytest_plugin import LLMock
from llmock.scenarios import Reply, ToolCall
from openai import AsyncOpenAI

from capfold.capabilities import ImagePart, RequireApproval, TextPart, ToolFailed, tool
from capfold.capabilities.frozen import EMPTY
from capfold.capabilities.messages import AssistantMessage, AudioPart, Message, ToolMessage, UserMessage
from capfold.runtime import Agent, Approve, ModelProfile, OpenAIModel, RunError, RunResult
from capfold.runtime.errors import IncompleteResponse
from capfold.runtime.events import Delta
from capfold.runtime.models import ModelError, ModelRequest
from tests.runtime.meters import CountingMeter
from tests.runtime.openai_histories import check_types as check_item_types
from tests.runtime.openai_histories import item_problem
from tests.runtime.server_runs import asks, check_types, pay, play, says, weather
from tests.servers import Aimock, Body, wire_problem

APIS = ("chat", "responses")
USAGE = {"prompt_tokens": 10, "completion_tokens": 3}
PIXEL = b"\x89PNG"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach loopback servers directly, whatever proxy the environment names."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


@frozen
class Wire:
    """A client that keeps the bodies which it sends, as they left."""

    client: AsyncOpenAI
    bodies: list[Body] = field(factory=list)

    def judged(self) -> list[Body]:
        """Return the bodies: each balanced and of the declared types."""
        for body in self.bodies:
            if "input" in body:
                check_item_types(body)
                assert item_problem(body["input"]) is None
            else:
                check_types(body)
                assert wire_problem(body["messages"]) is None
        return self.bodies


def wire_of(handler: Any = None) -> Wire:  # a handler of MockTransport
    """Return a wire to the server that the environment names, or to a handler."""
    bodies: list[Body] = []

    async def keep(request: httpx2.Request) -> None:
        bodies.append(json.loads(request.content))

    transport = None if handler is None else httpx2.MockTransport(handler)
    client = httpx2.AsyncClient(event_hooks={"request": [keep]}, transport=transport)
    return Wire(AsyncOpenAI(http_client=client), bodies)


@pytest.fixture
async def wires(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """Give a maker of wires, which are closed with the test."""
    monkeypatch.setenv("OPENAI_API_KEY", "no key is needed")
    made: list[Wire] = []

    def make(handler: Any = None) -> Wire:  # as above
        made.append(wire_of(handler))
        return made[-1]

    yield make
    for wire in made:
        await wire.client.close()


def bare(message: Message) -> Message:
    """Return a message without what belongs to one API."""
    if not isinstance(message, AssistantMessage):
        return message
    calls = tuple(evolve(call, metadata=EMPTY) for call in message.tool_calls)
    return evolve(message, provider_items=(), metadata=EMPTY, tool_calls=calls)


def check_equal(chat: RunResult[Any], responses: RunResult[Any]) -> None:  # Any: of every output type
    """Fail unless two runs are equal in all that one API does not have for itself."""
    assert (chat.status, chat.output, chat.usage) == (responses.status, responses.output, responses.usage)
    assert (chat.requests, chat.tool_calls, chat.steps) == (
        responses.requests,
        responses.tool_calls,
        responses.steps,
    )
    assert list(map(bare, chat.messages)) == list(map(bare, responses.messages))
    assert [(r.kind, r.actor, r.hook, r.call) for r in chat.log] == [
        (r.kind, r.actor, r.hook, r.call) for r in responses.log
    ]


@frozen
class Forecast:
    """A structured output."""

    city: str
    degrees: list[int]


@tool
def lookup(key: str) -> str:
    """Look a key up."""
    raise ToolFailed(f"no shelf {key}")


@tool(read_only=True)
def photo(city: str) -> tuple[TextPart, ImagePart]:
    """Take a photo of a city."""
    return TextPart(f"{city}:"), ImagePart(data=PIXEL, media_type="image/png")


GOOD, BAD = '{"city": "Rom", "degrees": [1]}', '{"city": "Rom", "degrees": ["1"]}'
SCRIPTS: dict[str, tuple[list[Body], dict[str, Any]]] = {  # answers, and options of the agent
    "text": ([says("hello", usage=USAGE)], {}),
    "instructions": ([says("hello", usage=USAGE)], {"instructions": "Be brief."}),
    "parallel calls, several turns": (
        [
            asks(("a", "weather", {"city": "Köln"}), ("b", "weather", {"city": "Rom"}), usage=USAGE),
            asks(("c", "pay", {"amount": 3}), content="Paying.", usage=USAGE),
            says("all done", usage=USAGE),
        ],
        {},
    ),
    "equal ids": (
        [
            asks(("x", "weather", {"city": "A"}), usage=USAGE),
            asks(("x", "weather", {"city": "B"}), usage=USAGE),
            says("done", usage=USAGE),
        ],
        {},
    ),
    "wrong arguments": ([asks(("a", "pay", {"amount": "3"}), usage=USAGE), says("sorry", usage=USAGE)], {}),
    "unknown tool": ([asks(("a", "fly", {}), usage=USAGE), says("sorry", usage=USAGE)], {}),
    "a tool that fails": (
        [asks(("a", "lookup", {"key": "x"}), usage=USAGE), says("no", usage=USAGE)],
        {"tools": [lookup]},
    ),
    "a picture in a result": (
        [
            asks(("a", "photo", {"city": "Rom"}), ("b", "weather", {"city": "Rom"}), usage=USAGE),
            says("nice", usage=USAGE),
        ],
        {"tools": [photo, weather]},
    ),
    "json schema": ([says(BAD, usage=USAGE), says(GOOD, usage=USAGE)], {"output_type": Forecast}),
    "boxed": ([says('{"value": 3}', usage=USAGE)], {"output_type": int}),
    "output tool": (
        [
            asks(("a", "weather", {"city": "Rom"}), ("o", "final_output", GOOD), usage=USAGE),
            asks(("o1", "final_output", BAD), usage=USAGE),
            asks(("o2", "final_output", GOOD), usage=USAGE),
        ],
        {"output_type": Forecast, "profile": ModelProfile(tools=True)},
    ),
}


def agent(
    api: str, wire: Wire, profile: ModelProfile | None = None, **options: Any
) -> Agent[Any]:  # Any: of Agent
    """Return an agent on one of the APIs."""
    model = OpenAIModel("gpt-test", client=wire.client, api=api)
    if profile is not None:
        model = evolve(model, profile=profile)
    return Agent("desk", model, **{"tools": [weather, pay], **options})


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
async def test_equal_records(aimock: Aimock, wires: Any, script: tuple[list[Body], dict[str, Any]]) -> None:
    """States, messages and every record are equal to the digest; both wires are balanced and of their types."""
    answers, options = script
    results: dict[str, RunResult[Any]] = {}  # Any: of every output type
    for api in APIS:
        aimock.reset()
        play(aimock, *answers)
        wire = wires()
        results[api] = await agent(api, wire, **options).run("go", run_id="r")
        assert len(answers) == len(wire.judged())
    chat, responses = results.values()
    assert "completed" == chat.status
    check_equal(chat, responses)
    assert chat.messages == responses.messages
    assert chat.log.head == responses.log.head


async def test_equal_records_of_a_reasoning_model(aimock: Aimock, wires: Any) -> None:
    """What it reasoned goes back to each API in its own form; all else is equal."""
    answers = [
        asks(("a", "weather", {"city": "Rom"}), content="Hm.", reasoning="two words", usage=USAGE),
        says("done", reasoning="more", usage=USAGE),
    ]
    results, sent = {}, {}
    for api in APIS:
        aimock.reset()
        play(aimock, *answers)
        wire = wires()
        model = OpenAIModel("o3", client=wire.client, api=api)
        results[api] = await Agent("desk", model, tools=[weather]).run("go", run_id="r")
        sent[api] = wire.judged()[-1]
    check_equal(results["chat"], results["responses"])
    assert "two words" == sent["chat"]["messages"][1]["reasoning_content"]
    reasoning, text, call, result = sent["responses"]["input"][1:]
    assert ["reasoning", "message", "function_call", "function_call_output"] == [
        item["type"] for item in (reasoning, text, call, result)
    ]
    assert reasoning["encrypted_content"]
    assert all(item["id"] for item in (reasoning, text, call))


async def test_a_history_goes_on_at_the_other_api(aimock: Aimock, wires: Any) -> None:
    """What one API said is a history for the other, reasoning left behind."""
    answers = [
        asks(("a", "weather", {"city": "Rom"}), content="Hm.", reasoning="why", usage=USAGE),
        says("rain", reasoning="so", usage=USAGE),
    ]
    for first, second in (APIS, APIS[::-1]):
        aimock.reset()
        play(aimock, *answers, says("three", usage=USAGE))
        wire = wires()
        models = {api: OpenAIModel("o3", client=wire.client, api=api) for api in APIS}
        begun = await Agent("desk", models[first], tools=[weather]).run("go")
        went_on = await Agent("desk", models[second], tools=[weather]).run("and?", messages=begun.messages)
        assert "three" == went_on.output
        last = wire.judged()[-1]
        assert "why" not in json.dumps(last)
        assert "rain in Rom" in json.dumps(last)


async def test_a_suspended_run(aimock: Aimock, wires: Any) -> None:
    """A snapshot of a run on the responses API is resumed there."""
    play(aimock, asks(("a", "pay", {"amount": 3})), says("so be it"))
    wire = wires()
    careful = agent("responses", wire, capabilities=[RequireApproval({"pay"})])
    suspended = await careful.run("go")
    (request,) = suspended.pending
    result = await careful.resume(suspended.snapshot(), {request.digest: Approve()})
    assert ("completed", "so be it") == (result.status, result.output)
    assert "paid 3" == wire.judged()[-1]["input"][-1]["output"]


async def test_a_picture_in_a_result(aimock: Aimock, wires: Any) -> None:
    """On chat it follows the results in a user message; the responses API takes it in the result."""
    url = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
    for api in APIS:
        aimock.reset()
        play(aimock, *SCRIPTS["a picture in a result"][0])
        wire = wires()
        result = await agent(api, wire, tools=[photo, weather]).run("go")
        assert isinstance(result.messages[2], ToolMessage)
        assert ImagePart(data=PIXEL, media_type="image/png") == result.messages[2].content[1]
        last = wire.judged()[-1]
        if api == "chat":
            assert ["tool", "tool", "user"] == [m["role"] for m in last["messages"][-3:]]
            assert {"type": "image_url", "image_url": {"url": url}} == last["messages"][-1]["content"][1]
        else:
            assert {"type": "input_image", "detail": "auto", "image_url": url} == last["input"][-2]["output"][
                1
            ]


@pytest.mark.parametrize("api", APIS)
async def test_what_cannot_be_sent_is_not_charged(aimock: Aimock, wires: Any, api: str) -> None:
    """A part that the API cannot carry ends the run before the request, with its place and a remedy."""
    aimock.always(content="never seen")
    wire = wires()
    sound = AudioPart(url="https://x/y.wav", media_type="audio/wav")
    with pytest.raises(RunError, match=r"messages\[0\]\.content\[1\]: .* sound") as caught:
        await agent(api, wire).run((TextPart("hear"), sound))
    assert caught.value.partial is not None
    assert ([], 0) == (wire.bodies, caught.value.partial.requests)


# --- what aimock does not have


async def each(
    wires: Any, request: ModelRequest, **bodies: Mapping[str, object]
) -> tuple[AssistantMessage, AssistantMessage]:
    """Return the messages of both APIs, given the body that each answers with."""
    found = []
    for api in APIS:
        wire = wires(lambda _, api=api: httpx2.Response(200, json=bodies[api]))
        found.append(await OpenAIModel("m", client=wire.client, api=api).request(request, CountingMeter()))
    return found[0], found[1]


def chat_body(finish_reason: str, **message: object) -> Body:
    """Return a chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish_reason}
    usage = {
        "prompt_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens": 7,
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    return {"model": "m-1", "choices": [choice], "usage": usage}


def responses_body(*content: Body, reason: str | None = None, **fields: object) -> Body:
    """Return a response with one message, cut off for a reason."""
    item = {
        "type": "message",
        "id": "m",
        "status": "completed",
        "role": "assistant",
        "content": list(content),
    }
    usage = {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 1},
    }
    status = "completed" if reason is None else "incomplete"
    details = None if reason is None else {"reason": reason}
    output = [item] if content else []
    return {
        "model": "m-1",
        "output": output,
        "usage": usage,
        "status": status,
        "incomplete_details": details,
        **fields,
    }


TEXT: Body = {"type": "output_text", "text": "half", "annotations": []}
NO: Body = {"type": "refusal", "refusal": "I will not"}


@pytest.mark.parametrize(
    ("chat", "responses"),
    [
        (chat_body("length", content="half"), responses_body(TEXT, reason="max_output_tokens")),
        (chat_body("content_filter", content="half"), responses_body(TEXT, reason="content_filter")),
        (chat_body("stop", content=None, refusal="I will not"), responses_body(NO)),
        (chat_body("stop", content="half", refusal="I will not"), responses_body(TEXT, NO)),
        (chat_body("stop", content=""), responses_body()),
        (
            chat_body(
                "tool_calls",
                content=None,
                tool_calls=[{"id": "a", "type": "custom", "custom": {"name": "sql", "input": "select"}}],
            ),
            responses_body(
                output=[
                    {
                        "type": "custom_tool_call",
                        "id": "ctc",
                        "call_id": "a",
                        "name": "sql",
                        "input": "select",
                        "status": "completed",
                    }
                ]
            ),
        ),
    ],
    ids=["length", "content filter", "refusal", "refusal beside text", "nothing", "custom call"],
)
async def test_equal_messages(wires: Any, chat: Body, responses: Body) -> None:
    """Refusals, ends and usage are the same record from both APIs."""
    ask = ModelRequest(messages=(UserMessage("go"),))
    one, other = await each(wires, ask, chat=chat, responses=responses)
    assert bare(one) == bare(other)


@pytest.mark.parametrize("api", APIS)
async def test_a_run_that_is_cut_off(llmock: LLMock, api: str) -> None:
    """A response that ran into the length limit fails the run alike."""
    llmock.add(Reply(text="half an ans", finish_reason="length"))
    with pytest.raises(RunError, match="cut off at the token limit") as caught:
        await Agent("desk", OpenAIModel("gpt-test", api=api)).run("go")
    assert isinstance(caught.value.reason, IncompleteResponse)


# --- the responses API in pieces


LONG = "one two three four five six seven eight nine ten"
ASK = ModelRequest(messages=(UserMessage("weather?"),), tools=(weather,), step=3)


async def streamed(model: OpenAIModel, pieces: list[str] | None = None) -> tuple[str, AssistantMessage]:
    """Return the text that was told, and the message; `pieces` has the text even when it fails."""
    meter, told = CountingMeter(), [] if pieces is None else pieces
    async with model.stream(ASK, meter) as parts:
        async for part in parts:
            if isinstance(part, AssistantMessage):
                assert 1 == meter.charged
                return "".join(told), part
            assert isinstance(part, Delta)
            assert ASK.step == part.step
            told.append(part.text)
    raise AssertionError("there was no message")


@pytest.mark.parametrize(
    "answer",
    [
        says(LONG, usage=USAGE),
        says("looking", reasoning="two cities", usage=USAGE),
        asks(("a", "weather", '{"city": "Köln"}'), ("b", "weather", {"city": "Rom"}), usage=USAGE),
        asks(("a", "weather", {"city": "Rom"}), content="looking", usage=USAGE),
        says("half", finishReason="length"),
    ],
    ids=["text", "reasoning", "calls", "text and calls", "cut"],
)
async def test_a_stream_is_the_message_of_a_request(aimock: Aimock, wires: Any, answer: Body) -> None:
    """The same answer, whole and in pieces, is the same message; the deltas are its text."""
    aimock.always(**answer)
    wire = wires()
    model = OpenAIModel("gpt-test", client=wire.client, api="responses")
    whole = await model.request(ASK, CountingMeter())
    told, message = await streamed(model)
    assert whole.text == told
    assert bare(whole) == bare(message)
    assert list(map(set, whole.provider_items)) == list(map(set, message.provider_items))  # type: ignore[arg-type]  # JSON objects
    plain, sent = wire.judged()
    assert {**plain, "stream": True} == sent


@pytest.mark.parametrize("tools", [(), (ToolCall("weather", {"city": "Köln am Rhein, not in Berlin"}),)])
async def test_a_stream_of_the_other_server(llmock: LLMock, tools: tuple[ToolCall, ...]) -> None:
    """The pieces are told as they come, and usage with its details is read from the end."""
    llmock.add(Reply(text=LONG, tool_calls=tools, times=None))
    model = OpenAIModel("gpt-test", api="responses")
    whole = await model.request(ASK, CountingMeter())
    told, message = await streamed(model)
    assert LONG == told == message.text
    assert (whole.finish_reason, whole.usage, whole.model) == (
        message.finish_reason,
        message.usage,
        message.model,
    )
    assert [(c.name, c.arguments) for c in whole.tool_calls] == [
        (c.name, c.arguments) for c in message.tool_calls
    ]


@pytest.mark.parametrize("fault", ["truncate", "disconnect", "corrupt", "stall"])
async def test_faults_in_the_middle(llmock: LLMock, fault: str) -> None:
    """Each is an error that may be tried again, with the text so far: half a text is no answer."""
    llmock.reply(LONG)
    {
        "truncate": lambda: llmock.truncate(after_chunks=7),
        "disconnect": lambda: llmock.disconnect(after_chunks=7),
        "corrupt": lambda: llmock.corrupt(after_chunks=7),
        "stall": lambda: llmock.stall(after_chunks=7, seconds=0.8),
    }[fault]()
    told: list[str] = []
    with pytest.raises(ModelError) as caught:
        await streamed(OpenAIModel("gpt-test", api="responses", timeout=0.4), told)
    kinds = {"corrupt": "invalid_response", "stall": "timeout"}
    assert (kinds.get(fault, "connection"), True) == (caught.value.kind, caught.value.retryable)
    assert "one two three " == "".join(told) == caught.value.partial


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "bad_request"), (401, "auth"), (429, "rate_limit"), (500, "server")],
)
async def test_error_statuses(aimock: Aimock, wires: Any, status: int, kind: str) -> None:
    """They mean the same on both APIs, and are charged and sent once."""
    for api in APIS:
        aimock.reset()
        aimock.always(error={"message": "no luck", "type": "test"}, status=status, retryAfter=3)
        wire, meter = wires(), CountingMeter()
        with pytest.raises(ModelError, match="no luck") as caught:
            await OpenAIModel("gpt-test", client=wire.client, api=api).request(ASK, meter)
        assert (kind, status, 1, 1) == (
            caught.value.kind,
            caught.value.status,
            meter.charged,
            len(wire.bodies),
        )
