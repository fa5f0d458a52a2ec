"""Records as the JSON that agent-hooks speaks of, and what an interceptor made of it back as records.

What was not touched comes back as the identical record. What no record can hold is a ValueError that says where.
Knows nothing of emitters, verdicts or hooks.
"""

import json
from collections.abc import Mapping, Sequence
from typing import cast

from attrs import evolve

from ..capabilities.frozen import MAX_DEPTH, freeze, same, thaw
from ..capabilities.messages import (
    FINISH_REASONS,
    AssistantMessage,
    Content,
    FinishReason,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from .decoding import decode
from .strict_json import read

KINDS = {"ImagePart": "image", "AudioPart": "audio", "FilePart": "file"}


def written_content(content: Content) -> object:
    """Return text as text, and parts as a list of objects; of a medium without a URL, its size only."""
    return content if isinstance(content, str) else [_written_part(part) for part in content]


def _written_part(part: Part) -> dict[str, object]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    place: dict[str, object] = {"bytes": len(part.data or b"")} if part.url is None else {"url": part.url}
    return {"type": KINDS[type(part).__name__], "media_type": part.media_type, **place}


def read_content(value: object, before: Content, where: str) -> Content:
    """Return the content that was made of `before`: text, or parts. Media may be kept or dropped, not made.

    Raises ValueError for anything else.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if not isinstance(value, list | tuple):
        raise ValueError(f"{where} must be text or a list of parts, not {type(value).__name__}")
    kept = [] if isinstance(before, str) else list(before)
    return tuple(_read_part(one, kept, f"{where}[{i}]") for i, one in enumerate(value))


def _read_part(value: object, kept: list[Part], where: str) -> Part:
    for part in kept:
        if same(freeze(_written_part(part)), freeze(value)):
            kept.remove(part)
            return part
    if isinstance(value, Mapping) and value.get("type") == "text" and isinstance(value.get("text"), str):
        return TextPart(value["text"])
    raise ValueError(f"{where} must be a text part, or a part that was there before, not {value!r:.80}")


def written_result(content: Content) -> object:
    """Return what a tool returned: an object or an array where its text is one, else the content."""
    if isinstance(content, str) and content[:1] in {"{", "["}:
        value, problems = read(content, MAX_DEPTH, utf8=False)
        return content if problems else thaw(value)
    return written_content(content)


def read_result(value: object, before: Content) -> Content:
    """Return the content that stands for a transformed result: text and parts as they are, the rest as JSON."""
    if isinstance(value, str) or not isinstance(before, str):
        return read_content(value, before, "tool_result.value")
    return json.dumps(value, ensure_ascii=False)


def arguments_of(call: ToolCall) -> dict[str, object] | None:
    """Return a call's arguments as plain JSON; None where the model sent no JSON object."""
    found, problems = decode(call.arguments)
    return None if problems else cast(dict[str, object], thaw(found))


def written_calls(calls: Sequence[ToolCall]) -> list[dict[str, object]]:
    """Return calls as objects; arguments that are no JSON object are shown as text, under "invalid_json"."""
    return [
        {"id": call.id, "name": call.name, "args": {"invalid_json": call.arguments} if args is None else args}
        for call in calls
        for args in [arguments_of(call)]
    ]


def read_calls(value: object, before: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Return the calls of a transformed response: kept ones identical, edited and added ones as new calls.

    A call is what its id says, so an edited one gets another id: its own and a number. Raises ValueError for what
    is no call.
    """
    shown = {
        str(one["id"]): (freeze(one), call) for one, call in zip(written_calls(before), before, strict=True)
    }
    taken = set(shown)
    made: list[ToolCall] = []
    if not isinstance(value, list | tuple):
        raise ValueError(f"response.tool_calls must be a list, not {type(value).__name__}")
    for i, one in enumerate(value):
        where = f"response.tool_calls[{i}]"
        if not isinstance(one, Mapping) or not isinstance(one.get("name"), str):
            raise ValueError(f"{where} must be an object with a name and args, not {one!r:.80}")
        args = one.get("args", {})
        if not isinstance(args, Mapping):
            raise ValueError(f"{where}.args must be an object, not {type(args).__name__}")
        call_id = str(one.get("id") or "")
        if call_id in shown and same(shown[call_id][0], freeze(one)):
            made.append(shown.pop(call_id)[1])
            continue
        if call_id in taken:
            call_id = next(name for n in range(1, len(taken) + 2) if (name := f"{call_id}.{n}") not in taken)
        taken.add(call_id)
        made.append(ToolCall(call_id, one["name"], json.dumps(thaw(freeze(args)), ensure_ascii=False)))
    return tuple(made)


def written_response(response: AssistantMessage) -> dict[str, object]:
    """Return what post_model_call shows of a response, without its usage."""
    return {
        "content": written_content(response.content),
        "tool_calls": written_calls(response.tool_calls),
        "finish_reason": response.finish_reason,
    }


def read_response(value: object, before: AssistantMessage) -> AssistantMessage:
    """Return the response that was made of `before`. Raises ValueError for what no response can be."""
    if not isinstance(value, Mapping):
        raise ValueError(f"response must be an object, not {type(value).__name__}")
    finish = value.get("finish_reason", before.finish_reason)
    if finish not in FINISH_REASONS:
        raise ValueError(
            f"response.finish_reason must be one of {', '.join(FINISH_REASONS)}; not {finish!r:.80}"
        )
    return evolve(
        before,
        content=read_content(value.get("content"), before.content, "response.content"),
        tool_calls=read_calls(value.get("tool_calls", ()), before.tool_calls),
        finish_reason=cast(FinishReason, finish),
    )


def written_message(message: Message) -> dict[str, object]:
    """Return a message as an object with role and content, and with what ties calls to results."""
    if isinstance(message, SystemMessage):
        return {"role": "system", "content": message.content}
    if isinstance(message, UserMessage):
        return {"role": "user", "content": written_content(message.content)}
    if isinstance(message, ToolMessage):
        content = written_content(message.content)
        return {"role": "tool", "tool_call_id": message.call_id, "name": message.tool, "content": content}
    made: dict[str, object] = {"role": "assistant", "content": written_content(message.content)}
    if message.tool_calls:
        made["tool_calls"] = written_calls(message.tool_calls)
    return made


def read_messages(value: object, before: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages that were made of `before`: untouched ones identical, in whatever order.

    The content of a message may change, and messages may go or be added; calls and results stay what they are.
    Raises ValueError for anything else.
    """
    if not isinstance(value, list | tuple):
        raise ValueError(f"messages must be a list, not {type(value).__name__}")
    shown = [(freeze(written_message(message)), message) for message in before]
    made: list[Message] = []
    place = 0
    for i, one in enumerate(value):
        frozen_one = freeze(one)
        found = next((n for n in range(place, len(shown)) if same(shown[n][0], frozen_one)), None)
        if found is not None:
            made.append(shown[found][1])
            place = found + 1
        else:
            twin = next((n for n in range(place, len(shown)) if _twins(shown[n][0], frozen_one)), None)
            made.append(_read_message(one, None if twin is None else shown[twin][1], f"messages[{i}]"))
            place = place if twin is None else twin + 1
    return tuple(made)


def _twins(a: object, b: object) -> bool:
    """Tell whether two messages are one but for their content."""
    if not isinstance(a, Mapping) or not isinstance(b, Mapping):
        return False
    return same(
        freeze({name: part for name, part in a.items() if name != "content"}),
        freeze({name: part for name, part in b.items() if name != "content"}),
    )


def _read_message(value: object, before: Message | None, where: str) -> Message:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} must be an object, not {type(value).__name__}")
    role, content = value.get("role"), value.get("content")
    if before is not None:
        if isinstance(before, SystemMessage):
            return evolve(before, content=_text(content, where))
        return evolve(before, content=read_content(content, before.content, f"{where}.content"))
    if role == "system":
        return SystemMessage(_text(content, where))
    if role == "user":
        return UserMessage(read_content(content, "", f"{where}.content"))
    if role == "assistant" and not value.get("tool_calls"):
        return AssistantMessage(read_content(content, "", f"{where}.content"))
    raise ValueError(
        f"{where} has the role {role!r:.40}: what may be added is system, user, or an assistant without calls"
    )


def _text(content: object, where: str) -> str:
    if not isinstance(content, str):
        raise ValueError(f"{where}.content of a system message must be text, not {type(content).__name__}")
    return content
