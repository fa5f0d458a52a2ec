"""Events of the responses API: put together they are the response that would have come in one piece."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities.frozen import freeze_mapping
from capfold.capabilities.messages import AssistantMessage
from capfold.capabilities.state import OutputSpec
from capfold.runtime.models import ModelError, ModelProfile
from capfold.runtime.openai_output import OUTPUT_TOOL, OutputForm, output_form
from capfold.runtime.openai_responses_events import ResponseEvents
from capfold.runtime.openai_responses_response import decode_responses_response

# A JSON object of the wire.
Body = dict[str, Any]
NUMBER = OutputSpec("n", freeze_mapping({"type": "integer"}, "schema"))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def message(text: str, index: int = 0) -> Body:
    """Return an output item with a text."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return {
        "type": "message",
        "id": f"m{index}",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }


def called(name: str, arguments: str) -> Body:
    """Return an output item that is a call."""
    return {"type": "function_call", "call_id": "c", "name": name, "arguments": arguments}


def response(*output: Body, **fields: object) -> Body:
    """Return a whole response."""
    return {"status": "completed", "model": "m-1", "output": list(output), **fields}


def event(kind: str, **fields: object) -> Body:
    """Return an event: the name without "response." before it."""
    return {"type": f"response.{kind}", **fields}


def words(text: str, index: int = 0, part: int = 0) -> Body:
    """Return the event of a piece of text."""
    return event("output_text.delta", delta=text, output_index=index, content_index=part, item_id="m")


def ended(*output: Body, kind: str = "completed", **fields: object) -> Body:
    """Return the event that ends a stream."""
    return event(kind, response=response(*output, **fields))


def assembled(
    events: Iterable[object], output: OutputForm | None = None
) -> tuple[list[str], AssistantMessage]:
    """Return the texts that were told on the way, and the message."""
    parts = ResponseEvents(output)
    told = [parts.feed(one) for one in events]
    return [text for text in told if text], parts.finish()


@st.composite
def _answers(draw: st.DrawFn) -> tuple[Body, list[Body]]:
    """Draw a whole response, and the events that it would come in."""
    output: list[Body] = []
    events = [event("created", response=response(status="in_progress"))]
    for index in range(draw(st.integers(0, 3))):
        match draw(st.sampled_from(["text", "call", "reasoning"])):
            case "text":
                text = draw(TEXTS)
                at = sorted(draw(st.lists(st.integers(0, len(text)), max_size=2)))
                pieces = [text[i:j] for i, j in zip([0, *at], [*at, len(text)], strict=True)]
                events += [words(piece, index) for piece in pieces]
                item = message(text, index)
            case "call":
                item = called("f", draw(TEXTS))
                events.append(
                    event("function_call_arguments.delta", delta=item["arguments"], output_index=index)
                )
            case _:
                item = {"type": "reasoning", "id": f"r{index}", "summary": [], "encrypted_content": "x"}
        events.append(event("output_item.done", output_index=index, item=item))
        output.append(item)
    status = draw(st.sampled_from(["completed", "incomplete"]))
    whole = response(*output, status=status)
    told_again = whole if draw(st.booleans()) else {**whole, "output": []}
    return whole, [*events, event(status, response=told_again)]


@given(_answers())
def test_pieces_are_the_message_of_the_whole(answer: tuple[Body, list[Body]]) -> None:
    """However an answer is cut, its message is that of the answer in one piece, and its text was told."""
    whole, events = answer
    told, found = assembled(events)
    assert decode_responses_response(json.dumps(whole).encode()) == found
    assert found.text == "".join(told)


def test_a_status_counts_more_than_the_name_of_an_event() -> None:
    """Some servers say "completed" of a response that is not."""
    _, found = assembled([words("so"), ended(message("so"), status="incomplete")])
    assert "incomplete" == found.finish_reason
    with pytest.raises(ModelError, match="no luck"):
        assembled([words("so"), ended(status="failed", error={"message": "no luck"})])


def test_a_refusal_is_told_at_the_end() -> None:
    """It is the text where there is no other."""
    parts = ResponseEvents()
    assert "" == parts.feed(event("refusal.delta", delta="No", output_index=0, content_index=0))
    assert "No" == parts.text
    item = {**message(""), "content": [{"type": "refusal", "refusal": "No"}]}
    parts.feed(ended(item))
    assert ("No", "refusal") == (parts.finish().content, parts.finish().finish_reason)


@pytest.mark.parametrize("as_tool", [False, True])
def test_a_boxed_output_is_told_at_the_end(as_tool: bool) -> None:  # noqa: FBT001  # a value under test
    """Its text is not what the pieces say."""
    form = output_form(NUMBER, ModelProfile(json_schema=not as_tool), [])
    item = called(OUTPUT_TOOL, '{"value": 3}') if as_tool else message('{"value": 3}')
    pieces = [] if as_tool else [words('{"value": 3}')]
    told, found = assembled([*pieces, ended(item)], form)
    assert ([], "3") == (told, found.content)


def test_commentary_is_not_told_as_output() -> None:
    """A structured answer begins with its JSON, not with what was said on the way to it."""
    form = output_form(
        OutputSpec("o", freeze_mapping({"type": "object"}, "s")), ModelProfile(json_schema=True), []
    )
    on_the_way = {**message("Let me see."), "phase": "commentary"}
    events = [
        event("output_item.added", output_index=0, item={**on_the_way, "content": []}),
        words("Let me see."),
        words("{}", 1),
        ended(on_the_way, message("{}", 1)),
    ]
    told, found = assembled(events, form)
    assert ([], "{}") == (told, found.content)
    told, found = assembled(events)
    assert (["Let me see.", "{}"], "Let me see.{}") == (told, found.text)
    told, _ = assembled([words("{}"), ended(message("{}"))], form)
    assert ["{}"] == told


@pytest.mark.parametrize(
    ("last", "kind", "retryable"),
    [
        ({"type": "error", "code": "server_error", "message": "no luck"}, "server", True),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "no luck"}, "rate_limit", True),
        ({"type": "error", "code": "invalid_prompt", "message": "no luck"}, "bad_request", False),
        (ended(kind="failed", error={"code": "server_error", "message": "no luck"}), "server", True),
        (ended(kind="failed", error=None), "server", True),
    ],
)
def test_failures_in_the_stream(last: Body, kind: str, retryable: bool) -> None:  # noqa: FBT001  # a case of the table
    """They are errors at once, by their code, and the text so far is known."""
    parts = ResponseEvents()
    parts.feed(words("half"))
    with pytest.raises(ModelError, match=r"no luck|does not say why") as caught:
        parts.feed(last)
    assert (kind, retryable, "half") == (caught.value.kind, caught.value.retryable, parts.text)


@pytest.mark.parametrize("events", [[], [words("half"), event("output_item.done", item=message("half"))]])
def test_a_stream_without_an_end(events: list[Body]) -> None:
    """What ends before the response is whole is a lost connection."""
    with pytest.raises(ModelError, match=r"without the whole response, (after 2|with not one)") as caught:
        assembled(events)
    assert ("connection", True) == (caught.value.kind, caught.value.retryable)


@pytest.mark.parametrize(
    "events",
    [
        [[]],
        [{"choices": []}],
        [words("x", index="0")],  # type: ignore[arg-type]  # wrong on purpose
        [event("output_text.delta", delta=None)],
        [event("completed", response=[])],
        [words("a", 1), words("b", 0)],
        [words("a", 0, 1), words("b", 0, 0)],
        [words("told"), ended(message("another"))],
    ],
)
def test_what_is_no_such_stream(events: list[Any]) -> None:  # JSON
    """It is a ValueError: an invalid response, and never a message that differs from what was told."""
    with pytest.raises(ValueError, match=r"event|response\.output|whole response"):
        assembled(events)
