"""Histories that the APIs of OpenAI can carry, with parts of every kind, and the judge of the responses wire."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from openai.types.responses import ResponseInputItemParam, ToolParam
from pydantic import TypeAdapter

from capfold.capabilities.messages import (
    AssistantMessage,
    AudioPart,
    Content,
    FilePart,
    FinishReason,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from tests.runtime.server_runs import exhaust

ITEMS = TypeAdapter(list[ResponseInputItemParam])
TOOLS = TypeAdapter(list[ToolParam])
REASONING = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"}


def check_types(sent: Mapping[str, Any]) -> None:  # JSON
    """Raise ValidationError unless items and tools of a body are as the openai package declares them."""
    exhaust(ITEMS.validate_python(sent["input"]))
    exhaust(TOOLS.validate_python(sent.get("tools", [])))


def item_problem(items: list[dict[str, Any]]) -> str | None:  # JSON
    """Say what no responses API may be sent, or None: an unanswered call, an orphan or a second result."""
    open_calls: list[tuple[str, str]] = []
    for i, item in enumerate(items):
        kind = str(item.get("type"))
        name = (kind.removesuffix("_output"), str(item.get("call_id")))
        if kind.endswith("_output"):
            if name not in open_calls:
                return f"input[{i}] is an orphan or second result: {name}"
            open_calls.remove(name)
        elif "call_id" in item:
            if name in open_calls:
                return f"input[{i}] is a call with the id of another: {name}"
            open_calls.append(name)
        elif open_calls and item.get("role") in ("user", "system"):
            return f"calls {open_calls} have no result before input[{i}]"
    return f"calls {open_calls} have no result" if open_calls else None


def _blobs(kind: Any, *media_types: str) -> st.SearchStrategy[Any]:  # a part class, and parts of it
    return st.builds(kind, data=st.binary(max_size=4), media_type=st.sampled_from(media_types))


def _contents(*, audio: bool) -> st.SearchStrategy[Content]:
    parts = st.one_of(
        st.builds(TextPart, st.text(max_size=4)),
        st.just(ImagePart(url="https://x/y.png", media_type="image/*")),
        _blobs(ImagePart, "image/png", "image/webp"),
        _blobs(FilePart, "application/pdf", "text/plain"),
        *([_blobs(AudioPart, "audio/wav", "audio/mpeg")] if audio else []),
    )
    return st.text(max_size=5) | st.lists(parts, min_size=1, max_size=3).map(tuple)


@st.composite
def sendable_histories(draw: st.DrawFn, *, audio: bool) -> tuple[Message, ...]:
    """Make balanced histories, with images and files in results too; `audio`: and sounds."""
    found: list[Message] = []
    contents = _contents(audio=audio)
    for i in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            found.append(SystemMessage(draw(st.text(max_size=4))))
        found.append(UserMessage(draw(contents)))
        kinds = draw(st.lists(st.sampled_from(["function", "custom"]), max_size=3))
        calls = tuple(
            ToolCall(f"c{i}_{j}", "f", draw(st.text(max_size=4)), kind=k) for j, k in enumerate(kinds)
        )
        items = draw(
            st.lists(
                st.sampled_from(
                    [
                        {"field": "refusal", "value": "no"},
                        {"calls": 0, "item": REASONING},
                        {"calls": 2, "item": REASONING},
                        {"calls": 1, "item": {**REASONING, "encrypted_content": None}},
                        {"calls": 1, "message": {"id": "msg", "phase": "commentary"}},
                        {"calls": 0, "message": {"status": "completed"}},
                    ]
                ),
                max_size=3,
            )
        )
        finish: FinishReason = draw(st.sampled_from(["stop", "refusal"]))
        texts = st.text(max_size=4) | st.lists(st.builds(TextPart, st.text(max_size=3)), max_size=2).map(
            tuple
        )
        found.append(
            AssistantMessage(draw(texts), tool_calls=calls, finish_reason=finish, provider_items=items)
        )
        found += [ToolMessage(call.id, call.name, draw(contents)) for call in calls]
    return tuple(found)
