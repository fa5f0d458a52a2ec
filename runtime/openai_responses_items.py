"""Messages as input items of the responses API.

Pure, and imports no openai. What an item of a response holds that has no field of its own in our records goes
back in its place: `provider_items` holds {"calls": n, "item": {...}} for an opaque item, as reasoning, and
{"calls": n, "message": {...}} for what is to be known of a message beside its text; n calls came before it. What
belongs to a call stands in its metadata, under "openai_responses".
"""

from collections.abc import Mapping, Sequence

from ..capabilities.messages import (
    AssistantMessage,
    AudioPart,
    Content,
    FilePart,
    ImagePart,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from .openai_parts import Unsendable, data_url, file_body, text_only, written

CALLS = "calls"
ITEM = "item"
MESSAGE = "message"
EXTRA = "openai_responses"
# Kind of a call -> type of its item, field that holds the arguments as text, type of the item of its result.
KINDS = {
    "function": ("function_call", "arguments", "function_call_output"),
    "custom": ("custom_tool_call", "input", "custom_tool_call_output"),
}

Item = dict[str, object]


def _write_part(part: Part) -> Item:
    match part:
        case TextPart():
            return {"type": "input_text", "text": part.text}
        case ImagePart():
            url = part.url if part.data is None else data_url(part.data, part.media_type)
            return {"type": "input_image", "detail": "auto", "image_url": url}
        case FilePart(data=None):
            return {"type": "input_file", "file_url": part.url}
        case FilePart():
            assert part.data is not None
            return {"type": "input_file", **file_body(part.data, part.media_type)}
        case AudioPart():
            raise Unsendable(
                "the responses API takes no sound: send its text, or use OpenAIModel(api='chat') and wav or mp3"
            )


def _write_content(content: Content) -> str | list[Item]:
    return content if isinstance(content, str) else written(content, _write_part)


def write_result(message: ToolMessage, kind: str = "function") -> Item:
    """Return the item of a result; `kind` is that of its call."""
    return {"type": KINDS[kind][2], "call_id": message.call_id, "output": _write_content(message.content)}


def write_items(message: Message) -> list[Item]:
    """Return the items of a message; `Unsendable` names what the API has no form for."""
    match message:
        case SystemMessage():
            return [{"role": "system", "content": message.content}]
        case UserMessage():
            return [{"role": "user", "content": _write_content(message.content)}]
        case ToolMessage():
            return [write_result(message)]
        case AssistantMessage():
            return _write_assistant(message)


# --- assistant messages


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _write_call(call: ToolCall, *, ids: bool) -> Item:
    if call.kind not in KINDS:
        raise Unsendable(
            f"tool_calls: the API knows function and custom calls, not {call.kind!r} ({call.name})"
        )
    kind, field, _ = KINDS[call.kind]
    extra = _mapping(call.metadata.get(EXTRA))
    kept = {name: member for name, member in extra.items() if ids or name != "id"}
    return {**kept, "type": kind, "call_id": call.id, "name": call.name, field: call.arguments}


def _words(message: AssistantMessage) -> list[tuple[str, str]]:
    """Return text and refusal of each message that an assistant's content stands for."""
    text_only(message.content, "an assistant message")
    content = message.content
    texts = [content] if isinstance(content, str) else [p.text for p in content if isinstance(p, TextPart)]
    refusals = [item["value"] for item in map(_mapping, message.provider_items) if _is_refusal(item)]
    if not refusals and message.finish_reason == "refusal":
        return [("", text) for text in texts if text]
    words = [(text, "") for text in texts if text]
    if refusals:
        text, _ = words.pop() if words else ("", "")
        words.append((text, "".join(map(str, refusals))))
    return words


def _is_refusal(item: Mapping[str, object]) -> bool:
    return item.keys() == {"field", "value"} and item["field"] == "refusal"


def _write_words(text: str, refusal: str, known: Mapping[str, object], *, ids: bool) -> Item:
    """Return one message of an assistant: in full when its id may be told, else in short."""
    phase = {"phase": known["phase"]} if known.get("phase") else {}
    if not ids or not isinstance(known.get("id"), str):
        return {"role": "assistant", "content": text + refusal, **phase}
    content: list[Item] = [{"type": "output_text", "text": text, "annotations": []}] if text else []
    if refusal:
        content.append({"type": "refusal", "refusal": refusal})
    status = known.get("status") or "completed"
    return {
        "type": "message",
        "role": "assistant",
        "id": known["id"],
        "status": status,
        "content": content,
        **phase,
    }


def _is_reasoning(item: Mapping[str, object]) -> bool:
    return item.get("type") == "reasoning"


def _layout(message: AssistantMessage) -> list[tuple[int, str, Mapping[str, object]]]:
    """Return the entries of `provider_items` that this API wrote: the calls before each, what it is, and itself."""
    found: list[tuple[int, str, Mapping[str, object]]] = []
    for entry in map(_mapping, message.provider_items):
        place = entry.get(CALLS)
        what = ITEM if ITEM in entry else MESSAGE
        if entry.keys() == {CALLS, what} and type(place) is int:
            found.append((place, what, _mapping(entry[what])))
    return found


def _lay_out(message: AssistantMessage, *, whole: bool) -> list[Item]:
    """Return the items of an assistant message in their order, which need not fit it any more: hooks change it.

    Not `whole`: without reasoning and the ids of what came with it.
    """
    words = _words(message)
    placed: list[tuple[int, Item]] = []
    behind, last = 0, 0
    for place, what, value in _layout(message):
        if what == MESSAGE and words:
            placed.append((place, _write_words(*words.pop(0), value, ids=whole)))
            behind, last = len(placed), place
        elif what == ITEM and (whole or not _is_reasoning(value)):
            placed.append((place, {name: member for name, member in value.items() if member is not None}))
    # Words that the layout does not know stand behind those it knows, or first.
    placed[behind:behind] = [(last, _write_words(*pair, {}, ids=False)) for pair in words]

    found: list[Item] = []
    done = 0
    for place, item in placed:
        found += [_write_call(call, ids=whole) for call in message.tool_calls[done:place]]
        done = max(done, place)
        found.append(item)
    return found + [_write_call(call, ids=whole) for call in message.tool_calls[done:]]


def _is_accepted(items: Sequence[Item]) -> bool:
    """Tell whether a provider takes reasoning back: it has it in full, and what it led to follows with its id."""
    return all(
        (item.get("encrypted_content") or item.get("content")) and "id" in following
        for item, following in zip(items, [*items, {}][1:], strict=True)
        if _is_reasoning(item)
    )


def _write_assistant(message: AssistantMessage) -> list[Item]:
    """Return the items of an assistant message, as they came where that is accepted, else without reasoning."""
    items = _lay_out(message, whole=True)
    if not _is_accepted(items):
        items = _lay_out(message, whole=False)
    return items or [{"role": "assistant", "content": ""}]
