"""Messages on the chat completions wire, both ways: one message, or a whole history.

Pure, and imports no openai. Two things of a provider have no field of their own in our records and go back to
it unchanged: an unknown field of its assistant message stands in `provider_items`, as
{"field": name, "value": ...}; one of a tool call stands in that call's metadata, under "openai".

A result holds text only on this wire. Its other parts are handed over in a user message of their own, which
stands after all results of the batch, so that the history stays balanced; a text in their place says so.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from ..capabilities.frozen import freeze
from ..capabilities.messages import (
    AssistantMessage,
    Content,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    as_messages,
    content_text,
)
from .openai_parts import (
    Unreadable,
    Unsendable,
    is_empty,
    mapping_at,
    only,
    read_content,
    text_at,
    text_only,
    write_content,
    written,
)

# Kind of a call -> the field of its body that holds the arguments as text.
_ARGUMENTS = {"function": "arguments", "custom": "input"}
_EXTRA = "openai"
_OURS = {"role", "content", "tool_calls"}
# Citations of hosted search: there to be shown, and no provider takes them back.
SHOWN = "annotations"


# --- to the wire


def _write_call(call: ToolCall) -> dict[str, object]:
    if call.kind not in _ARGUMENTS:
        raise Unsendable(
            f"tool_calls: the API knows function and custom calls, not {call.kind!r} ({call.name})"
        )
    extra = call.metadata.get(_EXTRA)
    return {
        **(extra if isinstance(extra, dict) else {}),
        "id": call.id,
        "type": call.kind,
        call.kind: {"name": call.name, _ARGUMENTS[call.kind]: call.arguments},
    }


def _write_assistant(message: AssistantMessage) -> dict[str, object]:
    text_only(message.content, "an assistant message")
    said: dict[str, object] = {"role": "assistant", "content": write_content(message.content)}
    if message.tool_calls:
        said["tool_calls"] = [_write_call(call) for call in message.tool_calls]
    # Items of another form belong to another API, which alone can read them.
    extra = {
        str(item["field"]): item["value"]
        for item in message.provider_items
        if isinstance(item, dict) and item.keys() == {"field", "value"}
    }
    if clash := _OURS & extra.keys():
        raise Unsendable(f"provider_items: they may not overwrite {', '.join(sorted(clash))} of a message")
    if message.finish_reason == "refusal" and "refusal" not in extra and message.content:
        said.update(content=None, refusal=content_text(message.content))
    return {**said, **extra}


def _write_result_part(part: Part) -> dict[str, object]:
    """Return a part of a result, or the text that stands in its place."""
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    return {"type": "text", "text": f"({part.media_type}, in the user message after the results)"}


def write_handed(message: ToolMessage) -> dict[str, object] | None:
    """Return the user message that hands over what is no text in a result, None where all is text.

    It must stand after the last result of the batch. Raises `Unsendable` for a part that no user message can
    carry either.
    """
    if isinstance(message.content, str) or all(isinstance(part, TextPart) for part in message.content):
        return None
    content = written(message.content)
    others = [w for w, part in zip(content, message.content, strict=True) if not isinstance(part, TextPart)]
    intro = f"These belong to the result of {message.tool} (call {message.call_id}):"
    return {"role": "user", "content": [{"type": "text", "text": intro}, *others]}


def write_message(message: Message) -> dict[str, object]:
    """Return a message as the wire has it; `Unsendable` names what the wire has no form for.

    Of a result, what is no text is left to `write_handed`.
    """
    match message:
        case SystemMessage():
            return {"role": "system", "content": message.content}
        case UserMessage():
            return {"role": "user", "content": write_content(message.content)}
        case ToolMessage():
            content = message.content
            if not isinstance(content, str):
                return {
                    "role": "tool",
                    "tool_call_id": message.call_id,
                    "content": [_write_result_part(part) for part in content],
                }
            return {"role": "tool", "tool_call_id": message.call_id, "content": content}
        case AssistantMessage():
            return _write_assistant(message)


def messages_to_openai(messages: Iterable[Message]) -> list[dict[str, object]]:
    """Return a history as chat completions take it.

    What they have no field for is left behind: times, usage, model, metadata, the status of a result, finish
    reasons but refusals. An image, sound or file in a result follows the results in a user message. Raises
    ValueError, with the place, for what they cannot carry, such as a sound by URL.
    """
    found: list[dict[str, object]] = []
    handed: list[dict[str, object]] = []
    for i, message in enumerate(as_messages(messages, "messages")):
        if not isinstance(message, ToolMessage):
            found += handed
            handed = []
        try:
            found.append(write_message(message))
            if isinstance(message, ToolMessage) and (parts := write_handed(message)):
                handed.append(parts)
        except Unsendable as error:
            raise Unsendable(f"messages[{i}].{error}") from None
    return found + handed


# --- from the wire


def _text_only(content: Content, path: str, who: str) -> Content:
    if not isinstance(content, str) and not all(isinstance(part, TextPart) for part in content):
        raise Unreadable(path, f"{who} holds text only")
    return content


def _read_call(value: object, path: str) -> ToolCall:
    item = mapping_at(value, path)
    kind = item.get("type") or "function"
    if not isinstance(kind, str) or kind not in _ARGUMENTS:
        raise Unreadable(f"{path}.type", f"a call is a function or a custom one, not {kind!r:.80}")
    body = mapping_at(item.get(kind), f"{path}.{kind}")
    name = text_at(body, "name", f"{path}.{kind}")
    field = _ARGUMENTS[kind]
    arguments = body.get(field)
    if arguments is None:
        arguments = "{}"
    elif isinstance(arguments, Mapping):  # some compatible servers send the object instead of its text
        arguments = json.dumps(arguments, ensure_ascii=False)
    elif not isinstance(arguments, str):
        raise Unreadable(f"{path}.{kind}.{field}", f"arguments are a text, not {type(arguments).__name__}")
    call_id = "" if item.get("id") is None else text_at(item, "id", path)
    # `index` belongs to streams, and some servers send it everywhere.
    extra = {k: v for k, v in item.items() if k not in {"id", "type", "index", kind} and v is not None}
    return ToolCall(call_id, name, arguments, kind=kind, metadata={_EXTRA: extra} if extra else {})


def read_assistant(value: object, path: str) -> AssistantMessage:
    """Return the record of an assistant message; its finish reason is what the message itself shows.

    Raises ValueError (`Unreadable` with a path, or of a record) when it is none.
    """
    message = mapping_at(value, path)
    calls = message.get("tool_calls") or ()
    if not isinstance(calls, list | tuple):
        raise Unreadable(f"{path}.tool_calls", f"this must be a list, not {type(calls).__name__}")
    content, refused = _read_spoken(message.get("content"), f"{path}.content")
    refusal = message.get("refusal") or refused
    items = [
        {"field": name, "value": member}
        for name, member in message.items()
        if name not in {*_OURS, "refusal", SHOWN} and not is_empty(member)
    ]
    if refusal:
        if not isinstance(refusal, str):
            raise Unreadable(f"{path}.refusal", f"this must be a string, not {type(refusal).__name__}")
        if content:
            items.append({"field": "refusal", "value": refusal})
        else:
            content = refusal
    return AssistantMessage(
        content,
        tool_calls=tuple(_read_call(call, f"{path}.tool_calls[{i}]") for i, call in enumerate(calls)),
        finish_reason="refusal" if refusal else "tool_calls" if calls else "stop",
        provider_items=tuple(items),
        metadata={SHOWN: freeze(message[SHOWN])} if message.get(SHOWN) else {},
    )


def _read_spoken(value: object, path: str) -> tuple[Content, str]:
    """Return content and refusal of an assistant's content, where a refusal can be one of the parts."""
    if not isinstance(value, list | tuple):
        return read_content(value, path), ""
    refused = [item for item in value if isinstance(item, Mapping) and item.get("type") == "refusal"]
    said = [item for item in value if not any(item is other for other in refused)]
    content = _text_only(read_content(said, path), path, "an assistant message")
    return content or "", "".join(text_at(item, "refusal", path) for item in refused)


def _read_tool(message: Mapping[str, object], path: str, names: Mapping[str, str]) -> ToolMessage:
    only(message, {"role", "content", "tool_call_id", "name"}, path)
    call_id = text_at(message, "tool_call_id", path)
    tool = message.get("name") or names.get(call_id)
    if not isinstance(tool, str):
        raise Unreadable(path, f"no message before it holds a call {call_id!r}, so its tool is unknown")
    return ToolMessage(call_id, tool, read_content(message.get("content"), f"{path}.content"))


def messages_from_openai(messages: Sequence[Mapping[str, object]]) -> tuple[Message, ...]:
    """Return the records of a chat completions history; `developer` reads as system.

    The name of a result's tool comes from the call that it answers. A file's name is left behind. Raises
    ValueError, with the place, for what is no such message or has a field that no record can hold. Whether
    the history is balanced is checked when it is used.
    """
    found: list[Message] = []
    names: dict[str, str] = {}
    if isinstance(messages, str | Mapping) or not isinstance(messages, Iterable):
        raise Unreadable("messages", f"a history is a list of messages, not {type(messages).__name__}")
    for i, value in enumerate(messages):
        path = f"messages[{i}]"
        message = mapping_at(value, path)
        content_path = f"{path}.content"
        match message.get("role"):
            case "system" | "developer":
                only(message, {"role", "content"}, path)
                content = read_content(message.get("content"), content_path)
                found.append(
                    SystemMessage(content_text(_text_only(content, content_path, "a system message")))
                )
            case "user":
                only(message, {"role", "content"}, path)
                if message.get("content") is None:
                    raise Unreadable(content_path, "a user message has content: a string or parts")
                found.append(UserMessage(read_content(message.get("content"), content_path)))
            case "assistant":
                said = read_assistant(message, path)
                names.update((call.id, call.name) for call in said.tool_calls)
                found.append(said)
            case "tool":
                found.append(_read_tool(message, path, names))
            case role:
                known = "system, developer, user, assistant or tool"
                raise Unreadable(f"{path}.role", f"a role is {known}, not {role!r:.80}")
    return tuple(found)
