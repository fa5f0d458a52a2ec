"""The chat completions wire, without a server: bodies of requests, responses, and whole histories."""

import base64
import gc
import json
from typing import Any

import pytest
from attrs import evolve
from hypothesis import example, given
from hypothesis import strategies as st

from capfold.capabilities.frozen import FrozenDict, Json, freeze_mapping
from capfold.capabilities.messages import (
    AssistantMessage,
    AudioPart,
    FilePart,
    FinishReason,
    ImagePart,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from capfold.capabilities.state import OutputSpec
from capfold.capabilities.tools import Tool
from capfold.runtime.models import ModelError, ModelProfile, ModelRequest
from capfold.runtime.openai_messages import messages_from_openai, messages_to_openai
from capfold.runtime.openai_output import OUTPUT_TOOL
from capfold.runtime.openai_parts import Unsendable
from capfold.runtime.openai_response import decode_response
from capfold.runtime.openai_wire import Encoded, encode_message, encode_request
from tests.runtime.openai_histories import sendable_histories
from tests.runtime.server_runs import check_types
from tests.servers import wire_problem

ALL = ModelProfile(json_schema=True, images=True, audio=True, files=True)
PLAIN = ModelProfile()
WEATHER = Tool("weather", "Look out.", {"type": "object", "properties": {"city": {"type": "string"}}})
PAYMENT: FrozenDict[Json] = freeze_mapping(
    {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}, "schema"
)


def encode(request: ModelRequest, profile: ModelProfile = ALL, **settings: object) -> Encoded:
    """Encode a request for a model named m."""
    return encode_request(request, "m", profile, settings)


# A JSON body, of which each test looks at one place.
def body(request: ModelRequest, profile: ModelProfile = ALL, **settings: object) -> Any:
    """Return the body of a request as a server reads it."""
    return json.loads(encode(request, profile, **settings).body)


def asking(*messages: Message, **fields: Any) -> ModelRequest:  # fields of ModelRequest
    """Make a request; without messages, a short one."""
    return ModelRequest(messages=messages or (UserMessage("hi"),), **fields)


def reply(message: object, finish_reason: object = "stop", **fields: object) -> bytes:
    """Return the body of a response with one choice."""
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return json.dumps({"model": "m-1", "choices": [choice], **fields}).encode()


def wire_call(name: str, arguments: object = "{}", **fields: object) -> dict[str, object]:
    """Return a tool call as the wire has it."""
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}, **fields}


# --- requests


def test_a_whole_request() -> None:
    """Instructions lead as a system message, tools are functions, settings fields; None unsets one."""
    history = (
        SystemMessage("be brief"),
        UserMessage("weather in Köln?"),
        AssistantMessage("let me see", tool_calls=(ToolCall("c1", "weather", '{"city": "Köln"}'),)),
        ToolMessage("c1", "weather", "rain"),
    )
    request = ModelRequest(
        messages=history,
        tools=(WEATHER,),
        instructions="You are kind.",
        settings=freeze_mapping({"temperature": 0, "seed": None}, "settings"),
    )
    assert {
        "model": "m",
        "temperature": 0,
        "top_p": 0.5,
        "messages": [
            {"role": "system", "content": "You are kind."},
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "weather in Köln?"},
            {
                "role": "assistant",
                "content": "let me see",
                "tool_calls": [wire_call("weather", '{"city": "Köln"}')],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "weather",
                    "description": "Look out.",
                    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
                },
            }
        ],
    } == body(request, temperature=1, top_p=0.5, seed=7)


@pytest.mark.parametrize(
    ("part", "expected", "need"),
    [
        (TextPart("a"), {"type": "text", "text": "a"}, None),
        (
            ImagePart(url="https://x/y.png", media_type="image/png"),
            {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
            "images",
        ),
        (
            ImagePart(data=b"\x00\x01", media_type="image/png"),
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAE="}},
            "images",
        ),
        (
            AudioPart(data=b"\x00\x01", media_type="audio/mpeg"),
            {"type": "input_audio", "input_audio": {"data": "AAE=", "format": "mp3"}},
            "audio",
        ),
        (
            FilePart(data=b"\x00\x01", media_type="application/pdf"),
            {
                "type": "file",
                "file": {"filename": "file.pdf", "file_data": "data:application/pdf;base64,AAE="},
            },
            "files",
        ),
    ],
)
def test_parts_of_a_user_message(part: Part, expected: object, need: str | None) -> None:
    """Each part has its form on the wire, and a model whose profile lacks it is never asked."""
    request = asking(UserMessage((part,)))
    assert [{"role": "user", "content": [expected]}] == body(request)["messages"]
    if need is not None:
        with pytest.raises(Unsendable, match=f"m takes no {need}"):
            encode(request, PLAIN)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (
            ToolMessage("c", "look", (AudioPart(url="https://x", media_type="audio/mpeg"),)),
            r"content\[0\]: .* sound as data, not by URL: give AudioPart\(data=",
        ),
        (
            UserMessage((TextPart("x"), FilePart(url="https://x", media_type="a/b"))),
            r"content\[1\]: .* file as data, not by URL: give FilePart\(data=",
        ),
        (
            AssistantMessage((ImagePart(data=b"x", media_type="image/png"),)),
            "assistant message, not ImagePart",
        ),
        (UserMessage((AudioPart(url="https://x", media_type="audio/mpeg"),)), "sound as data"),
        (UserMessage((AudioPart(data=b"x", media_type="audio/flac"),)), "not 'audio/flac'"),
        (UserMessage((FilePart(url="https://x", media_type="text/csv"),)), "file as data"),
        (AssistantMessage(tool_calls=(ToolCall("c", "f", kind="hosted"),)), "not 'hosted'"),
        (AssistantMessage(provider_items=({"field": "content", "value": "forged"},)), "overwrite content"),
    ],
)
def test_what_the_wire_cannot_carry(message: Message, why: str) -> None:
    """It is an error that says so, each time and in both forms of use; nothing is left out in silence."""
    for _ in range(2):
        with pytest.raises(Unsendable, match=rf"messages\[1\]\..*{why}"):
            encode(asking(UserMessage("hi"), message))
    with pytest.raises(ValueError, match=rf"messages\[0\]\..*{why}"):
        messages_to_openai([message])


def test_what_is_no_text_in_a_result() -> None:
    """It follows all results of the batch in a user message each; the history stays balanced."""
    picture = ImagePart(data=b"\x00\x01", media_type="image/png")
    sound = AudioPart(data=b"\x00\x01", media_type="audio/wav")
    history = (
        UserMessage("go"),
        AssistantMessage(tool_calls=tuple(ToolCall(i, f"f_{i}") for i in "abc")),
        ToolMessage("a", "f_a", (TextPart("see"), picture)),
        ToolMessage("b", "f_b", "plain"),
        ToolMessage("c", "f_c", (sound,)),
        UserMessage("next"),
    )
    sent = body(asking(*history))["messages"]
    assert ["user", "assistant", "tool", "tool", "tool", "user", "user", "user"] == [m["role"] for m in sent]
    assert [
        {"type": "text", "text": "see"},
        {"type": "text", "text": "(image/png, in the user message after the results)"},
    ] == sent[2]["content"]
    assert [
        {"type": "text", "text": "These belong to the result of f_a (call a):"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAE="}},
    ] == sent[5]["content"]
    assert "These belong to the result of f_c (call c):" == sent[6]["content"][0]["text"]
    assert "next" == sent[7]["content"]
    assert sent == messages_to_openai(history)
    assert sent[:7] == body(asking(*history[:-1]))["messages"]
    with pytest.raises(Unsendable, match=r"messages\[2\]\.content\[1\]: m takes no images: send text"):
        encode(asking(*history), PLAIN)


@given(sendable_histories(audio=True))
def test_any_history_has_the_declared_types(history: tuple[Message, ...]) -> None:
    """What the API can carry goes out balanced, and as the openai package declares it."""
    sent = body(asking(UserMessage("go"), *history))
    check_types(sent)
    assert wire_problem(sent["messages"]) is None
    assert sent["messages"] == messages_to_openai((UserMessage("go"), *history))


@pytest.mark.parametrize("name", ["model", "messages", "tools", "stream", "n"])
def test_reserved_settings(name: str) -> None:
    """A setting cannot overwrite what the adapter writes."""
    with pytest.raises(Unsendable, match=name):
        encode(asking(settings=freeze_mapping({name: 1}, "settings")))


def test_settings_of_tools_need_tools() -> None:
    """Without tools the API refuses them: they are left out, and stay where there are tools."""
    assert "tool_choice" not in body(asking(), tool_choice="auto")
    assert body(asking(tools=(WEATHER,)), tool_choice="auto")["tool_choice"] == "auto"


def test_a_model_without_tools() -> None:
    """Tools that are selected for a model that takes none are an error."""
    with pytest.raises(Unsendable, match="m takes no tools"):
        encode(asking(tools=(WEATHER,)), ModelProfile(tools=False))


def test_a_message_is_encoded_once() -> None:
    """The same object gives the same bytes object, an equal one its own; it is forgotten with the message."""
    message = UserMessage("only here " * 3)
    first = encode_message(message).data
    assert encode_message(message).data is first
    assert encode_message(evolve(message)).data is not first
    kept = len(encode_message)
    del message
    gc.collect()
    assert len(encode_message) < kept


def test_a_lone_surrogate_can_be_sent() -> None:
    """A model can say one, and it must go back: it is escaped, since UTF-8 has no form for it."""
    assert body(asking(UserMessage("\ud800")))["messages"][0]["content"] == "\ud800"


# --- structured output


def test_output_by_response_format() -> None:
    """A model with JSON Schema output gets the schema, under a name that the API takes."""
    request = asking(output_spec=OutputSpec("Payment[int]", PAYMENT))
    encoded = encode(request)
    expected = {"type": "json_schema", "json_schema": {"name": "Payment_int_", "schema": PAYMENT}}
    assert expected == json.loads(encoded.body)["response_format"]
    assert decode_response(reply({"content": '{"sum": 1}'}), encoded.output).content == '{"sum": 1}'
    with pytest.raises(Unsendable, match="response_format"):
        encode(request, response_format={"type": "json_object"})


def test_output_by_tool() -> None:
    """A model without it gets an output tool, and must call one; its call comes back as text."""
    encoded = encode(asking(tools=(WEATHER,), output_spec=OutputSpec("Payment", PAYMENT)), PLAIN)
    sent = json.loads(encoded.body)
    assert ["weather", OUTPUT_TOOL] == [tool["function"]["name"] for tool in sent["tools"]]
    assert sent["tools"][1]["function"]["parameters"] == PAYMENT
    assert sent["tool_choice"] == "required"
    answered = decode_response(
        reply({"content": None, "tool_calls": [wire_call(OUTPUT_TOOL, '{"sum": 1')]}, "tool_calls"),
        encoded.output,
    )
    assert ('{"sum": 1', (), "stop") == (answered.content, answered.tool_calls, answered.finish_reason)
    cut = decode_response(reply({"tool_calls": [wire_call(OUTPUT_TOOL, '{"su')]}, "length"), encoded.output)
    assert ('{"su', "length") == (cut.content, cut.finish_reason)


def test_an_output_beside_calls_comes_too_early() -> None:
    """The calls stay, since they were asked for; the output is left out, and the metadata say so."""
    encoded = encode(asking(tools=(WEATHER,), output_spec=OutputSpec("Payment", PAYMENT)), PLAIN)
    calls = [wire_call(OUTPUT_TOOL, '{"sum": 1}'), wire_call("weather", id="c2")]
    answered = decode_response(reply({"tool_calls": calls}, "tool_calls"), encoded.output)
    assert (ToolCall("c2", "weather"),) == answered.tool_calls
    assert ("tool_calls", "") == (answered.finish_reason, answered.content)
    assert answered.metadata == {"early_output": '{"sum": 1}'}


def test_the_output_tool_is_nobody_elses() -> None:
    """A selected tool of its name is an error before the request, and so is a model that can do neither."""
    mine = Tool(OUTPUT_TOOL, "", {"type": "object"})
    spec = OutputSpec("Payment", PAYMENT)
    with pytest.raises(Unsendable, match=OUTPUT_TOOL):
        encode(asking(tools=(mine,), output_spec=spec), PLAIN)
    assert encode(asking(tools=(mine,), output_spec=spec)).output is not None  # no output tool, no clash
    with pytest.raises(Unsendable, match="neither"):
        encode(asking(output_spec=spec), ModelProfile(tools=False))


@pytest.mark.parametrize("profile", [PLAIN, ALL])
def test_an_output_that_is_no_object(profile: ModelProfile) -> None:
    """Both forms want an object: any other schema stands in one, and its value is taken out again."""
    schema = freeze_mapping(
        {"type": "array", "items": {"$ref": "#/$defs/N"}, "$defs": {"N": {"type": "integer"}}}, "s"
    )
    encoded = encode(asking(output_spec=OutputSpec("list", schema)), profile)
    assert encoded.output is not None
    assert {
        "type": "object",
        "properties": {"value": {"type": "array", "items": {"$ref": "#/$defs/N"}}},
        "required": ["value"],
        "additionalProperties": False,
        "$defs": {"N": {"type": "integer"}},
    } == encoded.output.schema
    for text, expected in [('{"value": [1]}', "[1]"), ('{"value": [', '{"value": ['), ("[1]", "[1]")]:
        by_tool = {"tool_calls": [wire_call(OUTPUT_TOOL, text)]}
        said = by_tool if encoded.output.as_tool else {"content": text}
        assert decode_response(reply(said), encoded.output).content == expected


def test_a_named_schema_is_put_in_its_place() -> None:
    """A root that only refers to a definition becomes that definition: the API wants to see the object."""
    schema = freeze_mapping({"$ref": "#/$defs/P", "$defs": {"P": PAYMENT}}, "schema")
    encoded = encode(asking(output_spec=OutputSpec("P", schema)))
    assert encoded.output is not None
    assert not encoded.output.boxed
    assert {**PAYMENT, "$defs": {"P": PAYMENT}} == encoded.output.schema


# --- responses


@pytest.mark.parametrize(
    ("said", "message", "expected"),
    [
        ("stop", {"content": "hi"}, "stop"),
        ("stop", {"tool_calls": [wire_call("f")]}, "tool_calls"),
        ("tool_calls", {"tool_calls": [wire_call("f")]}, "tool_calls"),
        ("tool_calls", {"content": "hi"}, "incomplete"),
        ("length", {"tool_calls": [wire_call("f", '{"a')]}, "length"),
        ("content_filter", {"content": ""}, "content_filter"),
        ("stop", {"content": None, "refusal": "I will not"}, "refusal"),
        ("stop", {"content": [{"type": "refusal", "refusal": "I will not"}]}, "refusal"),
        (None, {"content": "half"}, "incomplete"),
        ("novel", {"content": "half"}, "incomplete"),
        (3, {"content": "half"}, "incomplete"),
    ],
)
def test_finish_reasons(said: object, message: object, expected: str) -> None:
    """Each finish reason has one meaning; what is not said, or not known, is incomplete."""
    assert decode_response(reply(message, said)).finish_reason == expected


def test_an_unknown_finish_reason_is_kept() -> None:
    """What the provider said, though unknown, stands in the metadata."""
    assert decode_response(reply({"content": "half"}, "novel")).metadata == {"finish_reason": "novel"}


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ({}, Usage()),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 1},
            },
            Usage(input_tokens=5, output_tokens=3, cached_tokens=2, reasoning_tokens=1),
        ),
        ({"prompt_tokens": -1, "completion_tokens": True, "prompt_tokens_details": None}, Usage()),
        ({"prompt_tokens": 1.5, "completion_tokens": "3"}, Usage()),
    ],
)
def test_usage(usage: object, expected: Usage | None) -> None:
    """Counts are taken over; what is not said, or no count, is unknown."""
    assert expected == decode_response(reply({"content": "hi"}, usage=usage)).usage


@pytest.mark.parametrize("text", ["", '{"city": ', "not json", '{"a": 1, "a": 2}', '{ "b" : 1.0 }'])
def test_arguments_are_kept_as_text(text: str) -> None:
    """Cut, doubled or oddly spaced: the text is what the model sent, to the letter."""
    (call,) = decode_response(reply({"tool_calls": [wire_call("f", text)]}, "tool_calls")).tool_calls
    assert call.arguments == text


def test_calls_of_loose_servers() -> None:
    """Absent arguments are none, an object is its text, a missing id is empty, `index` goes."""
    calls = [
        {"function": {"name": "f"}, "index": 0},
        {"id": None, "type": "function", "function": {"name": "g", "arguments": {"x": 1}}},
    ]
    response = decode_response(reply({"tool_calls": calls}, "tool_calls"))
    assert (ToolCall("", "f", "{}"), ToolCall("", "g", '{"x": 1}')) == response.tool_calls


def test_what_a_provider_needs_back() -> None:
    """Unknown fields of the message and its calls go back to the provider as they came."""
    message = {
        "role": "assistant",
        "content": "hm",
        "reasoning_content": "first...",
        "reasoning_details": [{"type": "encrypted", "data": "x=", "index": 0}],
        "function_call": None,
        "audio": None,
        "annotations": [{"type": "url_citation"}],
        "tool_calls": [wire_call("f", extra_content={"google": {"thought_signature": "sig"}})],
    }
    response = decode_response(reply(message, "tool_calls"))
    (back,) = messages_to_openai([evolve(response, at=3.0)])
    given_back = {k: v for k, v in message.items() if k not in ("function_call", "audio", "annotations")}
    assert given_back == back
    assert response.metadata == {"annotations": [{"type": "url_citation"}]}


def test_items_of_another_api_stay_behind() -> None:
    """Items that this adapter did not make are not for this API."""
    message = AssistantMessage("hi", provider_items=({"type": "reasoning", "id": "rs_1"},))
    assert [{"role": "assistant", "content": "hi"}] == messages_to_openai([message])


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"<html>",
        b"\xff\xfe",
        b"[1]",
        b"null",
        b'{"choices": NaN}',
        b'{"choices": null}',
        b'{"choices": []}',
        b'{"choices": [1]}',
        b'{"choices": [{}]}',
        b'{"error": {"message": "overloaded"}}',
        b"[" * 100_000,
        b"1" * 10_000,
        reply({"content": 1}),
        reply({"content": [{"type": "novel"}]}),
        reply({"content": [{"type": "image_url", "image_url": {"url": "https://x"}}]}),
        reply({"content": "x", "refusal": 1}),
        reply({"content": "x", "extra": "1"}).replace(b'"1"', b"1e999"),
        reply({"tool_calls": {"a": 1}}),
        reply({"tool_calls": [{}]}),
        reply({"tool_calls": [wire_call("f", 1)]}),
        reply({"tool_calls": [wire_call("f", type="novel")]}),
        reply({"tool_calls": [wire_call("f", id=1)]}),
    ],
)
def test_broken_responses(broken: bytes) -> None:
    """A body that is no chat completion is ModelError "invalid_response", worth another try."""
    with pytest.raises(ModelError) as caught:
        decode_response(broken)
    assert ("invalid_response", True) == (caught.value.kind, caught.value.retryable)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def loosely(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:  # JSON of any shape
    """Make objects whose fields are mostly right, sometimes anything, sometimes missing."""
    mostly = {name: st.one_of(value, value, value, anything) for name, value in fields.items()}
    objects = st.one_of(*[st.fixed_dictionaries({}, optional=mostly)] * 4, anything)

    @st.composite
    def loose(draw: st.DrawFn) -> Any:  # JSON of any shape
        return draw(objects)

    return loose()  # nested as they are, the strategies themselves have a repr of 72 kB


wire_calls = loosely(
    id=st.text(max_size=3),
    type=st.sampled_from(["function", "custom"]),
    function=loosely(name=st.sampled_from(["f", OUTPUT_TOOL]), arguments=st.text(max_size=5)),
    custom=loosely(name=st.just("f"), input=st.text(max_size=5)),
    extra=anything,
)
wire_parts = loosely(
    type=st.sampled_from(["text", "image_url", "file", "input_audio", "refusal"]),
    text=st.text(max_size=3),
    refusal=st.text(max_size=3),
    image_url=loosely(url=st.sampled_from(["https://x", "data:image/png;base64,AA=="])),
)
wire_messages = loosely(
    role=st.just("assistant"),
    content=st.none() | st.text(max_size=5) | st.lists(wire_parts, max_size=2),
    refusal=st.none() | st.text(max_size=3),
    tool_calls=st.lists(wire_calls, max_size=3),
    reasoning=anything,
    annotations=anything,
)
wire_responses = loosely(
    choices=st.lists(
        loosely(message=wire_messages, finish_reason=st.sampled_from(["stop", "tool_calls", "length"])),
        max_size=2,
    ),
    usage=loosely(prompt_tokens=st.integers(), prompt_tokens_details=anything),
    model=st.text(max_size=3),
    error=st.none(),
)
FORMS = [
    None,
    encode(asking(output_spec=OutputSpec("P", PAYMENT)), PLAIN).output,
    encode(asking(output_spec=OutputSpec("int", freeze_mapping({"type": "integer"}, "s"))), PLAIN).output,
]


@given(
    wire_responses.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20),
    st.sampled_from(FORMS),
)
@example(json.dumps({"choices": [{"message": {"\ud800": 1}}]}).encode(), None)
def test_any_body_is_a_message_or_a_model_error(content: bytes, form: Any) -> None:  # OutputForm | None
    """No body whatever gives another exception, and a message that it gives can be sent again."""
    try:
        response = decode_response(content, form)
    except ModelError as error:
        kind = error.kind
    else:
        kind = "invalid_response"
        assert isinstance(response, AssistantMessage)
        assert len(body(asking(UserMessage("hi"), response))["messages"]) == 2
    assert kind == "invalid_response"


# --- histories


def blobs(kind: Any, *media_types: str) -> st.SearchStrategy[Any]:  # a part class, and parts of it
    """Make parts that hold data."""
    return st.builds(kind, data=st.binary(max_size=4), media_type=st.sampled_from(media_types))


texts = st.builds(TextPart, st.text(max_size=4))
user_parts = st.one_of(
    texts,
    st.just(ImagePart(url="https://x/y.png", media_type="image/*")),
    blobs(ImagePart, "image/png", "image/webp"),
    blobs(AudioPart, "audio/wav", "audio/mpeg"),
    blobs(FilePart, "application/pdf", "text/plain"),
)
text_contents = st.text(max_size=5) | st.lists(texts, min_size=1, max_size=2).map(tuple)


@st.composite
def portable_histories(draw: st.DrawFn) -> tuple[Message, ...]:
    """Make balanced histories of what the wire has a field for."""
    found: list[Message] = []
    for i in range(draw(st.integers(0, 4))):
        found.append(
            draw(st.builds(SystemMessage, st.text(max_size=4)) | st.builds(UserMessage, text_contents))
        )
        found.append(
            UserMessage(draw(st.text(max_size=5) | st.lists(user_parts, min_size=1, max_size=3).map(tuple)))
        )
        calls = tuple(
            ToolCall(
                f"c{i}_{j}",
                draw(st.sampled_from(["f", "g"])),
                draw(st.text(max_size=5)),
                kind=draw(st.sampled_from(["function", "custom"])),
                metadata={"openai": {"extra": 1}} if draw(st.booleans()) else {},
            )
            for j in range(draw(st.integers(0, 2)))
        )
        items = (
            ({"field": "reasoning_content", "value": draw(st.text(max_size=3))},)
            if draw(st.booleans())
            else ()
        )
        finish: FinishReason = "refusal" if draw(st.booleans()) else "tool_calls" if calls else "stop"
        # A refusal without words leaves no trace on the wire.
        content = draw(text_contents if finish != "refusal" else st.text(min_size=1, max_size=5))
        found.append(AssistantMessage(content, tool_calls=calls, finish_reason=finish, provider_items=items))
        found += [ToolMessage(call.id, call.name, draw(text_contents)) for call in calls]
    return tuple(found)


@given(portable_histories())
def test_histories_make_the_round_trip(history: tuple[Message, ...]) -> None:
    """What the wire has a field for comes back equal, and the JSON of it is what a request holds."""
    wire = messages_to_openai(history)
    assert history == messages_from_openai(wire)
    assert wire == body(asking(*history))["messages"] if history else wire == []


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([{"role": "function", "content": ""}], r"messages\[0\]\.role"),
        ([{"content": "hi"}], r"messages\[0\]\.role"),
        (["hi"], r"messages\[0\]: this must be a JSON object"),
        ([{"role": "user", "content": 1}], r"messages\[0\]\.content"),
        ([{"role": "user", "content": "hi", "name": "Ann"}], "no place for the field 'name'"),
        ([{"role": "user", "content": [{"type": "video"}]}], r"content\[0\]"),
        ([{"role": "user", "content": [{"type": "text", "text": None}]}], r"content\[0\]\.text"),
        (
            [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "x", "detail": "low"}}],
                }
            ],
            "no place for the field 'detail'",
        ),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:a/b;base64,?"}}]}],
            "not base64",
        ),
        ([{"role": "user", "content": [{"type": "file", "file": {"file_id": "f-1"}}]}], "file_data"),
        (
            [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"format": "x"}}]}],
            "wav or mp3",
        ),
        (
            [{"role": "system", "content": [{"type": "image_url", "image_url": {"url": "https://x"}}]}],
            "a system message holds text only",
        ),
        ([{"role": "tool", "tool_call_id": "c9", "content": ""}], "no message before it holds a call 'c9'"),
        ([{"role": "tool", "content": ""}], "tool_call_id"),
        ([{"role": "assistant", "tool_calls": [{"id": "c"}]}], r"tool_calls\[0\]\.function"),
    ],
)
def test_histories_that_cannot_be_read(messages: list[Any], why: str) -> None:
    """Each is a ValueError that says where and why: nothing is dropped in silence."""
    with pytest.raises(ValueError, match=why):
        messages_from_openai(messages)


def test_other_spellings_of_a_history() -> None:
    """`developer` is system; text parts of a system message are one text; a result may name its tool."""
    found = messages_from_openai(
        [
            {
                "role": "developer",
                "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}],
            },
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "https://x", "detail": "auto"}}],
            },
            {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "tool_calls": [wire_call("f")],
                "audio": None,
            },
            {"role": "tool", "tool_call_id": "c1", "name": "f", "content": None},
            {"role": "assistant", "content": "I can but", "refusal": "I will not"},
        ]
    )
    assert (
        SystemMessage("be brief"),
        UserMessage((ImagePart(url="https://x", media_type="image/*"),)),
        AssistantMessage("", tool_calls=(ToolCall("c1", "f"),), finish_reason="tool_calls"),
        ToolMessage("c1", "f", ""),
        AssistantMessage(
            "I can but",
            finish_reason="refusal",
            provider_items=({"field": "refusal", "value": "I will not"},),
        ),
    ) == found
    assert messages_to_openai(found)[-1] == {
        "role": "assistant",
        "content": "I can but",
        "refusal": "I will not",
    }


def test_data_survive_as_bytes() -> None:
    """Data that is read is the data that was meant."""
    url = f"data:image/png;base64,{base64.b64encode(b'picture').decode()}"
    (message,) = messages_from_openai(
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    )
    assert (ImagePart(data=b"picture", media_type="image/png"),) == message.content
