"""Chunks of a chat completion: put together they are the response that would have come in one piece."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities.frozen import freeze_mapping
from capfold.capabilities.messages import AssistantMessage, ToolCall, Usage
from capfold.capabilities.state import OutputSpec
from capfold.runtime.models import ModelError, ModelProfile
from capfold.runtime.openai_chunks import ChatChunks
from capfold.runtime.openai_output import OUTPUT_TOOL, OutputForm, output_form
from capfold.runtime.openai_response import decode_response

# A JSON object of the wire.
Body = dict[str, Any]
OBJECT = OutputSpec("pay", freeze_mapping({"type": "object"}, "schema"))
NUMBER = OutputSpec("n", freeze_mapping({"type": "integer"}, "schema"))


def chunk(finish_reason: str | None = None, /, **delta: object) -> Body:
    """Return one chunk with one choice."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"object": "chat.completion.chunk", "model": "m-1", "choices": [choice]}


def called(*calls: Body) -> Body:
    """Return a chunk with pieces of tool calls."""
    return chunk(tool_calls=list(calls))


def piece(index: int | None, arguments: object = None, /, **fields: object) -> Body:
    """Return a piece of a call: `name` and the arguments stand in its function, None is left out."""
    function = {"name": fields.pop("name", None), "arguments": arguments}
    body: Body = {"index": index, "function": {k: v for k, v in function.items() if v is not None}, **fields}
    return {k: v for k, v in body.items() if v is not None}


def assembled(
    chunks: Iterable[object], output: OutputForm | None = None
) -> tuple[list[str], AssistantMessage]:
    """Return the texts that were told on the way, and the message."""
    parts = ChatChunks(output)
    told = [parts.feed(one) for one in chunks]
    return [text for text in told if text], parts.finish()


def calls_of(*chunks: Body) -> list[tuple[str, str, str]]:
    """Return the calls that chunks come to: ids, names and arguments."""
    _, message = assembled([*chunks, chunk("tool_calls")])
    return [(call.id, call.name, call.arguments) for call in message.tool_calls]


# --- the same as in one piece

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@st.composite
def _answers(draw: st.DrawFn) -> tuple[Body, list[Body]]:
    """Draw a whole response, and the same cut into chunks, the pieces of its calls mixed."""
    pieces: list[list[Body]] = []  # each inner list keeps its order

    def cut(text: str) -> list[str]:
        at = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
        return [text[i:j] for i, j in zip([0, *at], [*at, len(text)], strict=True)]

    message: Body = {"role": "assistant", "content": draw(st.none() | _TEXTS)}
    if message["content"] is not None:
        pieces.append([chunk(content=text) for text in cut(message["content"])])
    for name in draw(st.sets(st.sampled_from(["refusal", "reasoning_content"]))):
        message[name] = draw(_TEXTS)
        pieces.append([chunk(**{name: text}) for text in cut(message[name])])
    calls: list[Body] = []
    for index in range(draw(st.integers(0, 3))):
        arguments, call_id = draw(_TEXTS), f"c{index}"
        function = {"name": draw(st.sampled_from(["f", "g"])), "arguments": arguments}
        calls.append({"id": call_id, "type": "function", "function": function})
        first, *rest = [called(piece(index, text)) for text in cut(arguments)]
        opening = first["choices"][0]["delta"]["tool_calls"][0]
        opening["function"]["name"] = function["name"]
        last = (rest or [first])[-1]["choices"][0]["delta"]["tool_calls"][0]
        # An id can come with the first piece, late, or with each.
        for one in draw(st.sampled_from([(opening,), (last,), (opening, last)])):
            one.update(id=call_id, type="function")
        pieces.append([first, *rest])
    if calls:
        message["tool_calls"] = calls
    finish = draw(st.sampled_from(["stop", "tool_calls", "length", "content_filter", "odd"]))
    usage = draw(st.none() | st.just({"prompt_tokens": 3, "completion_tokens": 4}))
    whole = {
        "model": "m-1",
        "usage": usage,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }
    mixed = [chunk(role="assistant")]
    while pieces := [queue for queue in pieces if queue]:
        mixed.append(draw(st.sampled_from(pieces)).pop(0))
    mixed.append(chunk(finish))
    if usage is not None:
        mixed.append({"model": "m-1", "choices": [], "usage": usage})
    return whole, mixed


@given(_answers())
def test_chunks_are_the_response_in_pieces(answer: tuple[Body, list[Body]]) -> None:
    """However an answer is cut and its calls mixed, the message is that of the answer in one piece."""
    whole, chunks = answer
    told, message = assembled(chunks)
    assert decode_response(json.dumps(whole).encode()) == message
    assert message.text.startswith("".join(told))
    assert (whole["choices"][0]["message"]["content"] or "") == "".join(told)


@given(
    st.lists(
        st.recursive(
            st.none() | st.integers() | st.text(max_size=3),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        [
                            "choices",
                            "delta",
                            "index",
                            "tool_calls",
                            "function",
                            "content",
                            "id",
                            "finish_reason",
                            "name",
                        ]
                    ),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=12,
        ),
        max_size=4,
    )
)
def test_any_chunks_at_all(chunks: list[object]) -> None:
    """Whatever JSON comes: a message, or one of the errors that an assembler may raise."""
    try:
        _, message = assembled(chunks)
    except (ModelError, ValueError, TypeError):
        return
    assert isinstance(message, AssistantMessage)


# --- calls


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param(
            [called(piece(0, "", id="a", name="f"), piece(1, "", id="b", name="g"))]
            + [called(piece(i % 2, text)) for i, text in enumerate(['{"x"', '{"y"', ":1}", ":2}"])],
            [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')],
            id="interleaved",
        ),
        pytest.param(
            [called(piece(1, "{}", id="b", name="g")), called(piece(0, "{}", id="a", name="f"))],
            [("a", "f", "{}"), ("b", "g", "{}")],
            id="out of order",
        ),
        pytest.param(
            [called(piece(0, "{", name="f")), called(piece(0, "}", id="late"))],
            [("late", "f", "{}")],
            id="a late id",
        ),
        pytest.param([called(piece(0, "{}", name="f"))], [("", "f", "{}")], id="no id"),
        pytest.param(
            [called(piece(0, "{", id="a", name="f")), called(piece(0, "}", id="a", name="f"))],
            [("a", "f", "{}")],
            id="id and name in each piece",
        ),
        pytest.param(
            [called(piece(0, "{}", id="a", name="f")), called(piece(0, "{}", id="b", name="f"))],
            [("a", "f", "{}"), ("b", "f", "{}")],
            id="one index for two calls",
        ),
        pytest.param(
            [
                called(piece(None, "{", id="a", name="f")),
                called(piece(None, "}")),
                called(piece(None, "{", id="b", name="g")),
                called(piece(None, "}", id="b")),
            ],
            [("a", "f", "{}"), ("b", "g", "{}")],
            id="no index",
        ),
        pytest.param(
            [called(piece(0, {"x": 1}, id="a", name="f"))], [("a", "f", '{"x": 1}')], id="an object"
        ),
        pytest.param([called(piece(0, id="a", name="f"))], [("a", "f", "{}")], id="no arguments"),
        pytest.param([called(piece(0, '{"x', id="a", name="f"))], [("a", "f", '{"x')], id="cut off"),
    ],
)
def test_calls_in_pieces(chunks: list[Body], expected: list[tuple[str, str, str]]) -> None:
    """Pieces go to the call of their index; ids may be late, missing, repeated; the arguments stay as they are."""
    assert expected == calls_of(*chunks)


def test_a_custom_call_and_what_comes_with_a_call() -> None:
    """A custom call is read too, and fields that are the provider's own come back with their call."""
    custom = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "sql", "input": "sel"}}
    extra = {"index": 1, "id": "b", "function": {"name": "f"}, "extra_content": {"signature": "s"}}
    chunks = [
        called(custom),
        called({"index": 0, "custom": {"input": "ect"}}),
        called(extra),
        chunk("tool_calls"),
    ]
    _, message = assembled(chunks)
    assert (
        ToolCall("a", "sql", "select", kind="custom"),
        ToolCall("b", "f", metadata={"openai": {"extra_content": {"signature": "s"}}}),
    ) == message.tool_calls


# --- what else a stream says


def test_usage_and_model() -> None:
    """The usage is that of the chunk without choices, and the model the first that is named."""
    chunks = [
        {"model": "", "choices": [], "prompt_filter_results": []},
        chunk(content="hi"),
        {**chunk("stop"), "usage": None},
        {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 1}},
    ]
    _, message = assembled(chunks)
    assert ("hi", "m-1", Usage(input_tokens=2, output_tokens=1)) == (
        message.text,
        message.model,
        message.usage,
    )


def test_a_refusal_is_told_at_the_end() -> None:
    """A refusal is the message's text only when there is no content, which shows at the end; so far it is `text`."""
    parts = ChatChunks()
    assert ["", ""] == [parts.feed(chunk(refusal="I will ")), parts.feed(chunk(refusal="not."))]
    assert "I will not." == parts.text
    parts.feed(chunk("stop"))
    message = parts.finish()
    assert ("I will not.", "refusal") == (message.text, message.finish_reason)


def test_fields_of_a_provider_come_together() -> None:
    """Texts are joined, lists go on, and an item with the index of an earlier one fills that up."""
    details = [{"index": 0, "type": "text", "text": "a"}], [{"index": 0, "type": "text", "text": "b"}]
    chunks = [
        chunk(reasoning="x", reasoning_details=details[0]),
        chunk(reasoning="y", reasoning_details=details[1]),
    ]
    _, message = assembled([*chunks, chunk("stop", content="so")])
    assert {
        "reasoning": "xy",
        "reasoning_details": [{"index": 0, "type": "text", "text": "ab"}],
    } == {item["field"]: item["value"] for item in message.provider_items if isinstance(item, dict)}


def test_content_in_parts() -> None:
    """Where content comes as parts, their texts are told; what is no text is an error."""
    told, message = assembled([chunk(content=[{"type": "text", "text": "hi"}]), chunk("stop")])
    assert (["hi"], "hi") == (told, message.text)
    with pytest.raises(ValueError, match="text only"):
        assembled([chunk(content=[{"type": "image_url", "image_url": {"url": "http://a/b.png"}}])])


# --- structured outputs


def test_an_object_by_schema_is_told_as_it_comes() -> None:
    """Native JSON output is content: its text is told in pieces."""
    form = output_form(OBJECT, ModelProfile(json_schema=True), [])
    told, message = assembled([chunk(content='{"sum"'), chunk(content=":1}"), chunk("stop")], form)
    assert (['{"sum"', ":1}"], '{"sum":1}') == (told, message.text)


def test_a_boxed_output_is_told_unboxed() -> None:
    """A number stands in a box on the wire; nothing of the box is told."""
    form = output_form(NUMBER, ModelProfile(json_schema=True), [])
    told, message = assembled([chunk(content='{"value"'), chunk(content=":1}"), chunk("stop")], form)
    assert ([], "1") == (told, message.text)


def test_an_output_tool_is_told_as_content() -> None:
    """What stands beside a call of the output tool is not the message's text, so nothing is told on the way."""
    form = output_form(OBJECT, ModelProfile(), [])
    chunks = [
        chunk(content="Let me"),
        called(piece(0, '{"sum":1}', id="a", name=OUTPUT_TOOL)),
        chunk("tool_calls"),
    ]
    told, message = assembled(chunks, form)
    assert ([], '{"sum":1}', (), "stop") == (told, message.text, message.tool_calls, message.finish_reason)


# --- what is none


@pytest.mark.parametrize(
    ("event", "where"),
    [
        (1, "chunk 0"),
        ({"choices": 3}, r"chunk 0\.choices"),
        ({"choices": [{"index": 1, "delta": {"content": "x"}}]}, "one choice was asked for"),
        ({"choices": [{"delta": {}}, {"delta": {}}]}, "one choice was asked for"),
        ({"choices": [{"delta": "x"}]}, r"chunk 0\.delta"),
        (chunk(content=3), "content"),
        (chunk(tool_calls={"a": 1}), "tool_calls"),
        (called({"index": "0"}), "index"),
        (called(piece(0, 3)), "arguments"),
    ],
)
def test_what_is_no_chunk(event: object, where: str) -> None:
    """It is an error that says where."""
    with pytest.raises(ValueError, match=where):
        ChatChunks().feed(event)


@pytest.mark.parametrize(
    ("chunks", "came"), [([], "not one chunk"), ([chunk(content="hi")], "after 1 chunks")]
)
def test_no_finish_reason(chunks: list[Body], came: str) -> None:
    """A stream that ends without a finish reason was cut off, however much it said."""
    with pytest.raises(ModelError, match=came) as caught:
        assembled(chunks)
    assert ("connection", True) == (caught.value.kind, caught.value.retryable)
