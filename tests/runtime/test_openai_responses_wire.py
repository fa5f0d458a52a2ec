"""The responses wire, without a server: bodies of requests, and responses."""

import gc
import json
from typing import Any

import pytest
from attrs import evolve
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from capfold.capabilities.frozen import FrozenDict, Json, freeze_mapping
from capfold.capabilities.messages import (
    AssistantMessage,
    AudioPart,
    FilePart,
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
from capfold.runtime.openai_output import OUTPUT_TOOL
from capfold.runtime.openai_parts import Unsendable
from capfold.runtime.openai_responses_items import write_items
from capfold.runtime.openai_responses_response import decode_responses_response
from capfold.runtime.openai_responses_wire import HINTS, RESERVED, encode_items, encode_responses_request
from capfold.runtime.openai_wire import Encoded
from tests.runtime.openai_histories import check_types, item_problem, sendable_histories

ALL = ModelProfile(json_schema=True, images=True, audio=True, files=True)
PLAIN = ModelProfile()
WEATHER = Tool("weather", "Look out.", {"type": "object", "properties": {"city": {"type": "string"}}})
PAYMENT: FrozenDict[Json] = freeze_mapping(
    {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}, "schema"
)
REASONING: dict[str, Any] = {  # JSON
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "encrypted_content": "secret",
}


def encode(request: ModelRequest, profile: ModelProfile = ALL, **settings: object) -> Encoded:
    """Encode a request for a model named m."""
    return encode_responses_request(request, "m", profile, settings)


# A JSON body, of which each test looks at one place.
def body(request: ModelRequest, profile: ModelProfile = ALL, **settings: object) -> Any:
    """Return the body of a request as a server reads it."""
    return json.loads(encode(request, profile, **settings).body)


def asking(*messages: Message, **fields: Any) -> ModelRequest:  # fields of ModelRequest
    """Make a request; without messages, a short one."""
    return ModelRequest(messages=messages or (UserMessage("hi"),), **fields)


def said(*texts: str, **fields: object) -> dict[str, object]:
    """Return an output message with these texts."""
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": content,
        **fields,
    }


def called(
    call_id: str, name: str = "weather", arguments: object = "{}", **fields: object
) -> dict[str, object]:
    """Return an output item that calls a function."""
    item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "status": "completed"}
    return {**item, "name": name, "arguments": arguments, **fields}


def reply(*output: object, **fields: object) -> bytes:
    """Return the body of a response."""
    return json.dumps({"model": "m-1", "status": "completed", "output": output, **fields}).encode()


def again(*output: object) -> Any:  # JSON
    """Return the items that a response is sent back as."""
    return write_items(decode_responses_response(reply(*output)))


# --- requests


def test_a_whole_request() -> None:
    """Instructions and settings are fields, tools flat; nothing is stored; None unsets a setting."""
    history = (
        SystemMessage("be brief"),
        UserMessage("weather in Köln?"),
        AssistantMessage("let me see", tool_calls=(ToolCall("c1", "weather", '{"city": "Köln"}'),)),
        ToolMessage("c1", "weather", "rain"),
    )
    request = asking(
        *history, tools=(WEATHER,), instructions="obey", settings=freeze_mapping({"top_p": None}, "settings")
    )
    sent = body(request, temperature=1, top_p=0.5)
    assert {
        "model": "m",
        "store": False,
        "temperature": 1,
        "instructions": "obey",
        "input": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "weather in Köln?"},
            {"role": "assistant", "content": "let me see"},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Köln"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        ],
        "tools": [
            {
                "type": "function",
                "name": "weather",
                "description": "Look out.",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
                "strict": False,
            }
        ],
    } == sent
    check_types(sent)


@pytest.mark.parametrize(
    ("part", "expected", "need"),
    [
        (TextPart("a"), {"type": "input_text", "text": "a"}, None),
        (
            ImagePart(url="https://x/y.png", media_type="image/png"),
            {"type": "input_image", "detail": "auto", "image_url": "https://x/y.png"},
            "images",
        ),
        (
            ImagePart(data=b"\x00\x01", media_type="image/png"),
            {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AAE="},
            "images",
        ),
        (
            FilePart(data=b"\x00\x01", media_type="application/pdf"),
            {
                "type": "input_file",
                "filename": "file.pdf",
                "file_data": "data:application/pdf;base64,AAE=",
            },
            "files",
        ),
        (
            FilePart(url="https://x/y.pdf", media_type="application/pdf"),
            {"type": "input_file", "file_url": "https://x/y.pdf"},
            "files",
        ),
    ],
)
def test_parts(part: Part, expected: object, need: str | None) -> None:
    """Each part has its form, of a user and of a result alike; a model whose profile lacks it is never asked."""
    call = AssistantMessage(tool_calls=(ToolCall("c", "look"),))
    request = asking(UserMessage((part,)), call, ToolMessage("c", "look", ("see", part)[1:]))
    sent = body(request)
    assert {"role": "user", "content": [expected]} == sent["input"][0]
    assert {"type": "function_call_output", "call_id": "c", "output": [expected]} == sent["input"][2]
    check_types(sent)
    if need is not None:
        with pytest.raises(Unsendable, match=rf"messages\[0\]\.content\[0\]: m takes no {need}"):
            encode(request, PLAIN)
        with pytest.raises(Unsendable, match=rf"messages\[2\]\.content\[0\]: m takes no {need}"):
            encode(asking(UserMessage("hi"), *request.messages[1:]), PLAIN)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (
            UserMessage((TextPart("hear"), AudioPart(data=b"x", media_type="audio/wav"))),
            r"messages\[1\]\.content\[1\]: the responses API takes no sound: .*api='chat'",
        ),
        (
            ToolMessage("c", "look", (AudioPart(url="https://x", media_type="audio/wav"),)),
            r"messages\[1\]\.content\[0\]: the responses API takes no sound",
        ),
        (
            AssistantMessage((ImagePart(data=b"x", media_type="image/png"),)),
            r"messages\[1\]\.content\[0\]: .* an assistant message, not ImagePart",
        ),
        (
            AssistantMessage(tool_calls=(ToolCall("c", "f", kind="hosted"),)),
            r"messages\[1\]\.tool_calls: .*'hosted'",
        ),
    ],
)
def test_what_the_wire_cannot_carry(message: Message, why: str) -> None:
    """It is an error that says where and what would be right, each time: nothing is left out in silence."""
    for _ in range(2):
        with pytest.raises(Unsendable, match=why):
            encode(asking(UserMessage("hi"), message))


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_reserved_settings(name: str) -> None:
    """A setting cannot overwrite what the adapter writes, nor bring in another history."""
    with pytest.raises(Unsendable, match=name):
        encode(asking(settings=freeze_mapping({name: 1}, "settings")))


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        *(({name: 1}, hint) for name, hint in HINTS.items()),
        ({"tool_choice": {"type": "function", "function": {"name": "weather"}}}, "flat"),
        ({"text": "short"}, "text is an object"),
    ],
)
def test_settings_of_chat_completions(settings: dict[str, Any], hint: str) -> None:
    """What chat completions call otherwise is refused with the right name, not sent to be ignored."""
    with pytest.raises(Unsendable) as caught:
        encode(asking(), **settings)
    assert hint in str(caught.value)


def test_settings_of_tools_need_tools() -> None:
    """The API refuses them otherwise."""
    sent = body(asking(), tool_choice="auto", parallel_tool_calls=False)
    assert {"model", "store", "input"} == sent.keys()
    assert "auto" == body(asking(tools=(WEATHER,)), tool_choice="auto")["tool_choice"]


@pytest.mark.parametrize(
    ("model", "settings", "asked"),
    [
        ("o3-mini", {}, True),
        ("gpt-5.2", {}, True),
        ("openai/gpt-10", {}, True),
        ("gpt-oss-20b", {}, True),
        ("gpt-5-chat-latest", {}, False),
        ("gpt-4.1", {}, False),
        ("gpt-4o", {}, False),
        ("deployment", {}, False),
        ("deployment", {"reasoning": {"effort": "low"}}, True),
        ("o3", {"include": []}, False),
        ("o3", {"include": None}, True),
    ],
)
def test_encrypted_reasoning_is_asked_for(model: str, settings: dict[str, object], asked: bool) -> None:  # noqa: FBT001  # a value under test
    """Of models that reason: others refuse it. The caller's own `include` counts instead."""
    sent = json.loads(encode_responses_request(asking(), model, ALL, settings).body)
    assert asked == ("reasoning.encrypted_content" in sent.get("include", []))


def test_a_message_is_encoded_once() -> None:
    """A message that lives is encoded once however often it is sent, and forgotten with it."""
    before = len(encode_items)
    messages = [UserMessage(f"m{i}") for i in range(5)]
    first = [encode_items(message) for message in messages]
    encode(asking(*messages))
    assert all(a is b for a, b in zip(first, map(encode_items, messages), strict=True))
    assert before + 5 == len(encode_items)
    del messages
    gc.collect()
    assert before == len(encode_items)


def test_a_model_without_tools() -> None:
    """It is never offered any."""
    with pytest.raises(Unsendable, match="m takes no tools, and 1 are selected"):
        encode(asking(tools=(WEATHER,)), ModelProfile(tools=False))


def test_custom_calls_and_their_results() -> None:
    """The result of a custom call has another type than that of a function, also when it is a picture."""
    picture = ImagePart(url="https://x/y.png", media_type="image/png")
    request = asking(
        UserMessage("go"),
        AssistantMessage(tool_calls=(ToolCall("a", "sql", "select 1", kind="custom"), ToolCall("b", "f"))),
        ToolMessage("a", "sql", (picture,)),
        ToolMessage("b", "f", "2"),
    )
    sent = body(request)
    assert ["custom_tool_call", "function_call", "custom_tool_call_output", "function_call_output"] == [
        item["type"] for item in sent["input"][1:]
    ]
    assert "select 1" == sent["input"][1]["input"]
    check_types(sent)


def test_a_lone_surrogate_can_be_sent() -> None:
    """What a model may send, it may be sent back."""
    assert "\ud800" == body(asking(UserMessage("\ud800")))["input"][0]["content"]


# --- structured output


def test_output_by_text_format() -> None:
    """The schema stands under text.format, beside what else the settings say of the text."""
    spec = OutputSpec("Payment due", PAYMENT)
    sent = body(asking(output_spec=spec), text={"verbosity": "low"})
    assert {
        "verbosity": "low",
        "format": {"type": "json_schema", "name": "Payment_due", "schema": PAYMENT},
    } == sent["text"]
    with pytest.raises(Unsendable, match=r"text\.format is written by the adapter"):
        encode(asking(output_spec=spec), text={"format": {"type": "text"}})


def test_output_by_tool() -> None:
    """A model without JSON Schema output gets a flat output tool, and its call comes back as content."""
    encoded = encode(asking(tools=(WEATHER,), output_spec=OutputSpec("Payment", PAYMENT)), PLAIN)
    sent = json.loads(encoded.body)
    assert (["weather", OUTPUT_TOOL], "required") == ([t["name"] for t in sent["tools"]], sent["tool_choice"])
    check_types(sent)
    message = decode_responses_response(reply(called("c", OUTPUT_TOOL, '{"sum": 3}')), encoded.output)
    assert ('{"sum": 3}', (), "stop") == (message.content, message.tool_calls, message.finish_reason)


@pytest.mark.parametrize("profile", [PLAIN, ALL])
def test_an_output_that_is_no_object(profile: ModelProfile) -> None:
    """It is boxed on the wire only."""
    spec = OutputSpec("int", freeze_mapping({"type": "integer"}, "schema"))
    form = encode(asking(output_spec=spec), profile).output
    text = '{"value": 3}'
    output = said(text) if profile is ALL else called("c", OUTPUT_TOOL, text)
    assert "3" == decode_responses_response(reply(output), form).content


def test_commentary_is_no_output() -> None:
    """What a model says on the way to a structured answer stands in the metadata; with calls it is content."""
    form = encode(asking(output_spec=OutputSpec("Payment", PAYMENT))).output
    on_the_way, answer = said("Let me see.", phase="commentary"), said('{"sum": 3}', phase="final_answer")
    message = decode_responses_response(reply(REASONING, on_the_way, answer), form)
    assert ('{"sum": 3}', "Let me see.") == (message.content, message.metadata["beside_output"])
    assert [REASONING, answer] == write_items(message)
    calling = decode_responses_response(reply(on_the_way, called("a")), form)
    assert "Let me see." == calling.content
    plain = decode_responses_response(reply(on_the_way, said("3")), None)
    assert "Let me see.3" == plain.text


# --- responses


def test_a_plain_response_is_like_that_of_chat() -> None:
    """Words and calls leave nothing of this API in the record."""
    usage = {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 12,
    }
    assert AssistantMessage(
        "looking",
        tool_calls=(ToolCall("a", "weather", '{"city":'), ToolCall("b", "weather")),
        finish_reason="tool_calls",
        usage=Usage(input_tokens=5, output_tokens=7, cached_tokens=2, reasoning_tokens=1),
        model="m-1",
    ) == decode_responses_response(
        reply(said("look", "ing"), called("a", arguments='{"city":'), called("b"), usage=usage)
    )


@pytest.mark.parametrize(
    ("fields", "expected", "word"),
    [
        ({}, "stop", None),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length", None),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            "content_filter",
            None,
        ),
        ({"status": "incomplete", "incomplete_details": {"reason": "steered"}}, "incomplete", "steered"),
        ({"status": "incomplete"}, "incomplete", None),
        ({"status": None}, "incomplete", None),
        ({"status": "odd"}, "incomplete", "odd"),
    ],
)
def test_finish_reasons(fields: dict[str, object], expected: str, word: str | None) -> None:
    """Unsaid, or said in unknown words, an end is incomplete, and the word is kept."""
    message = decode_responses_response(reply(said("so"), **fields))
    assert (expected, word) == (message.finish_reason, message.metadata.get("finish_reason"))


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        ({"code": "server_error", "message": "no luck"}, "server", True),
        ({"code": "vector_store_timeout", "message": "no luck"}, "server", True),
        ({"code": "rate_limit_exceeded", "message": "no luck"}, "rate_limit", True),
        ({"code": "insufficient_quota", "message": "no luck"}, "rate_limit", False),
        ({"code": "invalid_prompt", "message": "no luck"}, "bad_request", False),
        ({"code": "image_too_large", "message": "no luck"}, "bad_request", False),
        ({"message": "no luck"}, "server", True),
        (None, "server", True),
    ],
)
@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_failed_responses(error: object, kind: str, retryable: bool, status: str) -> None:  # noqa: FBT001  # a case of the table
    """A response that failed is an error by its code, never a half message."""
    with pytest.raises(ModelError, match="no luck" if error else "does not say why") as caught:
        decode_responses_response(reply(said("half"), status=status, error=error))
    assert (kind, retryable) == (caught.value.kind, caught.value.retryable)


def test_refusals() -> None:
    """A refusal is the content, or stands beside it, as of chat; and goes back as what it was."""
    no = {"type": "refusal", "refusal": "I will not"}
    alone = said(content=[no])
    message = decode_responses_response(reply(alone))
    assert ("I will not", "refusal") == (message.content, message.finish_reason)
    assert [alone] == write_items(message)

    text = {"type": "output_text", "text": "I can but", "annotations": []}
    both = said(content=[text, no])
    message = decode_responses_response(reply(both))
    assert ("I can but", "refusal") == (message.content, message.finish_reason)
    assert {"field": "refusal", "value": "I will not"} == message.provider_items[-1]
    assert [both] == write_items(message)

    # One that came from elsewhere has no id, without which the API takes text only.
    assert [{"role": "assistant", "content": "No"}] == write_items(
        AssistantMessage("No", finish_reason="refusal")
    )
    assert [{"role": "assistant", "content": "A bit. No"}] == write_items(
        AssistantMessage(
            "A bit. ", finish_reason="refusal", provider_items=({"field": "refusal", "value": "No"},)
        )
    )


def test_what_a_provider_needs_back() -> None:
    """Reasoning, hosted calls and phases go back unchanged and in their places, the ids with them."""
    output = (
        REASONING,
        said("First,", phase="commentary"),
        called("a"),
        {**REASONING, "id": "rs_2"},
        {
            "type": "web_search_call",
            "id": "ws",
            "status": "completed",
            "action": {"type": "search", "query": "x"},
        },
        called("b", namespace="n"),
        said("then.", id="msg_2"),
    )
    message = decode_responses_response(reply(*output))
    assert (TextPart("First,"), TextPart("then.")) == message.content
    assert ["a", "b"] == [call.id for call in message.tool_calls]
    expected = [{k: v for k, v in item.items() if k != "status" or "call_id" not in item} for item in output]
    assert expected == write_items(message)
    results = (ToolMessage("a", "weather", "1"), ToolMessage("b", "weather", "2"))
    check_types(body(asking(UserMessage("hi"), message, *results)))


def test_nulls_do_not_go_back() -> None:
    """A field that is null in an item is not accepted as null in a request."""
    assert [REASONING, said("x")] == again({**REASONING, "status": None, "content": None}, said("x"))


def test_reasoning_that_cannot_be_looked_up() -> None:
    """Without its content it stays behind, as nothing is stored; so do the ids of what came with it."""
    assert [
        {"role": "assistant", "content": "x"},
        {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"},
    ] == again({**REASONING, "encrypted_content": None}, said("x"), called("a"))
    shown = {**REASONING, "encrypted_content": None, "content": [{"type": "reasoning_text", "text": "hm"}]}
    assert "reasoning" == again(shown, said("x"))[0]["type"]


def test_reasoning_that_nothing_follows() -> None:
    """The API wants what it led to; when that is gone, the reasoning and the ids beside it stay behind too."""
    message = decode_responses_response(reply(said("x"), REASONING, called("a")))
    changed = evolve(message, tool_calls=(), finish_reason="stop")
    assert [{"role": "assistant", "content": "x"}] == write_items(changed)
    assert [{"role": "assistant", "content": ""}] == again(REASONING)


def test_changed_messages() -> None:
    """Words and calls that a hook added or took go out as they are now, whatever the layout was."""
    message = decode_responses_response(reply(REASONING, called("a"), said("x")))
    more = evolve(message, tool_calls=(*message.tool_calls, ToolCall("new", "f")), content="y")
    assert ["reasoning", "function_call", "message", "function_call"] == [
        item["type"] for item in write_items(more)
    ]
    wordy = write_items(evolve(message, content=(TextPart("y"), TextPart("z"))))
    assert ["rs_1", "fc_a", "msg_1", None] == [item.get("id") for item in wordy]
    assert {"role": "assistant", "content": "z"} == wordy[-1]
    silent = write_items(evolve(message, content=""))
    assert ["reasoning", "function_call"] == [item["type"] for item in silent]
    spoken = decode_responses_response(reply(REASONING, called("a")))
    assert [{"role": "assistant", "content": "new"}, REASONING] == write_items(evolve(spoken, content="new"))[
        :2
    ]


def test_an_output_call_leaves_no_reasoning() -> None:
    """What the reasoning led to, the output call, is no call any more; the words are no longer those of a message."""
    form = encode(asking(output_spec=OutputSpec("Payment", PAYMENT)), PLAIN).output
    output = (REASONING, said("Here:"), called("c", OUTPUT_TOOL, '{"sum": 3}'))
    message = decode_responses_response(reply(*output), form)
    assert ('{"sum": 3}', "Here:") == (message.content, message.metadata["beside_output"])
    assert [{"role": "assistant", "content": '{"sum": 3}'}] == write_items(message)


def test_items_of_another_api_stay_behind() -> None:
    """Fields of chat completions mean nothing here, nor what anybody else put there."""
    items = ({"field": "reasoning_content", "value": "hm"}, {"calls": "1", "item": {}}, {"odd": 1})
    message = AssistantMessage("x", provider_items=items)
    assert [{"role": "assistant", "content": "x"}] == write_items(message)


def test_annotations_are_shown_only() -> None:
    """Citations stand in the metadata, as of chat, and do not go back."""
    cited = {"type": "output_text", "text": "x", "annotations": [{"type": "url_citation", "url": "u"}]}
    message = decode_responses_response(reply(said(content=[cited])))
    assert {"annotations": [{"type": "url_citation", "url": "u"}]} == message.metadata
    assert [{"role": "assistant", "content": "x"}] == write_items(message)


def test_calls_of_loose_servers() -> None:
    """No id, no arguments, or an object in place of their text."""
    first, second = decode_responses_response(
        reply({**called("x", arguments=None), "call_id": None}, called("b", arguments={"a": "ö"}))
    ).tool_calls
    assert (ToolCall("", "weather", "{}"), ToolCall("b", "weather", '{"a": "ö"}')) == (first, second)


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        reply()[:-2],
        b'{"status": "completed"}',
        b'{"error": {"message": "no"}}',
        reply(1),
        reply({"type": "message"}),
        reply(said(content=[{"type": "song"}])),
        reply(said(content=[{"type": "output_text"}])),
        reply({"type": "function_call", "call_id": "a"}),
        reply(called("a", arguments=[1])),
        reply({**called("a"), "call_id": 3}),
        reply(status="in_progress"),
        reply(status="queued"),
        b'{"status": "completed", "output": [' + b"[" * 100_000,
    ],
)
def test_broken_responses(broken: bytes) -> None:
    """What is no response is "invalid_response", worth another try."""
    with pytest.raises(ModelError) as caught:
        decode_responses_response(broken)
    assert ("invalid_response", True) == (caught.value.kind, caught.value.retryable)


# --- any


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def loosely(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:  # JSON of any shape
    """Make objects with these fields, each now and then missing or another value."""
    return st.fixed_dictionaries({}, optional={name: s | json_values for name, s in fields.items()})


content_parts = loosely(
    type=st.sampled_from(["output_text", "refusal"]), text=st.text(max_size=3), refusal=st.text(max_size=3)
)
output_items = loosely(
    type=st.sampled_from(["message", "function_call", "custom_tool_call", "reasoning", "web_search_call"]),
    id=st.text(max_size=3),
    call_id=st.text(max_size=3),
    name=st.sampled_from(["f", OUTPUT_TOOL]),
    arguments=st.text(max_size=3),
    input=st.text(max_size=3),
    content=st.lists(content_parts, max_size=2),
    encrypted_content=st.text(max_size=2),
    phase=st.sampled_from(["commentary", "final_answer"]),
)
bodies = loosely(
    status=st.sampled_from(["completed", "incomplete", "failed"]),
    output=st.lists(output_items, max_size=4),
    usage=loosely(input_tokens=st.integers(-1, 3), input_tokens_details=json_values),
    incomplete_details=loosely(reason=st.sampled_from(["max_output_tokens", "content_filter"])),
    error=st.none(),
    model=st.text(max_size=3),
)
FORMS = [
    None,
    encode(asking(output_spec=OutputSpec("Payment", PAYMENT))).output,
    encode(asking(output_spec=OutputSpec("Payment", PAYMENT)), PLAIN).output,
]


@given(bodies.map(lambda made: json.dumps(made).encode()) | st.binary(max_size=8), st.sampled_from(FORMS))
@example(json.dumps({"status": "completed", "output": [{"type": "\ud800"}]}).encode(), None)
def test_any_body_is_a_message_or_a_model_error(content: bytes, form: Any) -> None:  # OutputForm | None
    """Never another exception; and a message can be sent back."""
    try:
        message = decode_responses_response(content, form)
    except ModelError:
        return
    assert body(asking(UserMessage("hi"), message))["input"][1:]


@given(sendable_histories(audio=False), st.booleans())
def test_any_history_has_the_declared_types(history: tuple[Message, ...], tools: bool) -> None:  # noqa: FBT001  # a value under test
    """What the API can carry goes out as the openai package declares it; calls have their results at once."""
    sent = body(asking(UserMessage("go"), *history, tools=(WEATHER,) if tools else ()))
    check_types(sent)
    assert item_problem(sent["input"]) is None


def test_the_judge_of_items() -> None:
    """The tests' own balance check accepts what is right and names each wrong."""
    call, result = called("a"), {"type": "function_call_output", "call_id": "a", "output": ""}
    user = {"role": "user", "content": ""}
    assert item_problem([user, call, REASONING, said("x"), result, user]) is None
    wrongs: list[list[dict[str, Any]]] = [  # JSON
        [user, call],
        [user, call, user, result],
        [user, result],
        [user, call, result, result],
        [user, call, call, result, result],
        [user, call, {**result, "type": "custom_tool_call_output"}],
    ]
    for wrong in wrongs:
        assert item_problem(wrong) is not None


def test_the_judge_of_types_looks_into_items() -> None:
    """A wrong part inside a result or a message is found, which plain validation lets pass."""
    check_types({"input": [{"type": "function_call_output", "call_id": "a", "output": "x"}]})
    for wrong in (
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "text", "text": "x"}]},
        {"type": "function_call", "name": "f", "arguments": "{}"},
        {"role": "tool", "content": "x"},
        said(content=[{"type": "output_text", "text": "x"}]),
    ):
        with pytest.raises(ValidationError):
            check_types({"input": [wrong]})
