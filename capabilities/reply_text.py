"""One response of a model as JSON text, to be kept outside of runs, and read back with care.

Explicit, field by field, and of a version of its own: what is kept may be older than the program that reads it.
The runtime's codec carries all records of a run; this carries a reply alone, without ids, times and usage. Knows
no store and no run.
"""

import base64
import binascii
import json
from typing import Final

from .frozen import FrozenDict, FrozenList, Json, canonical, freeze, sha256
from .messages import (
    NO_USAGE,
    AssistantMessage,
    AudioPart,
    Content,
    FilePart,
    ImagePart,
    Part,
    TextPart,
    ToolCall,
)

# Counted up when the form changes: what has another number is not read.
VERSION: Final = 1
CACHED: Final = "cached"  # in the metadata of a reply: whether it was kept, not said
_MEDIA: Final[dict[str, type[ImagePart | AudioPart | FilePart]]] = {
    "image": ImagePart,
    "audio": AudioPart,
    "file": FilePart,
}
_KINDS: Final[dict[type, str]] = {kind: name for name, kind in _MEDIA.items()}
_ENVELOPE: Final = {"capfold_reply", "key", "digest", "reply"}
_FIELDS: Final = {"content", "tool_calls", "finish_reason", "model", "provider_items", "metadata"}
_CALL: Final = {"name", "arguments", "kind", "metadata"}


class ReplyTextError(ValueError):
    """A text that holds no reply, another one, or a damaged one."""


def to_text(reply: AssistantMessage, key: str) -> str:
    """Return a reply as JSON text, sealed by a digest together with the key it is kept under."""
    calls = [
        {"name": call.name, "arguments": call.arguments, "kind": call.kind, "metadata": call.metadata}
        for call in reply.tool_calls
    ]
    body = {
        "content": content_json(reply.content),
        "tool_calls": calls,
        "finish_reason": reply.finish_reason,
        "model": reply.model,
        "provider_items": reply.provider_items,
        "metadata": lasting(reply.metadata),
    }
    return canonical({"capfold_reply": VERSION, "key": key, "digest": seal(key, body), "reply": body})


def from_text(text: str, key: str) -> AssistantMessage:
    """Return the reply of a text that `to_text` wrote for this key: no usage, calls without ids, marked as cached.

    Raises ReplyTextError for anything else: no JSON, another version, another key, damaged or edited.
    """
    try:
        held = freeze(json.loads(text))
    except (ValueError, RecursionError, TypeError) as error:
        raise ReplyTextError(f"it is no JSON: {error}"[:200]) from error
    if not isinstance(held, FrozenDict) or held.keys() != _ENVELOPE:
        raise ReplyTextError("it is no reply that capfold kept")
    if held["capfold_reply"] != VERSION:
        raise ReplyTextError(
            f"it has version {held['capfold_reply']!r:.20}; this capfold reads version {VERSION}"
        )
    if held["key"] != key:
        raise ReplyTextError("it was kept for another request")
    body = held["reply"]
    if held["digest"] != seal(key, body):
        raise ReplyTextError("it is damaged: it was changed after it was written")
    try:
        return _reply(body)
    except (KeyError, TypeError, ValueError) as error:
        raise ReplyTextError(f"it holds no reply: {type(error).__name__}: {error}"[:200]) from error


def seal(key: str, body: object) -> str:
    """Return the digest of a reply's JSON together with its key; it finds accidents, not forgery."""
    return sha256(canonical([VERSION, key, body]).encode())


def lasting(metadata: FrozenDict[Json]) -> FrozenDict[Json]:
    """Return the metadata of a reply without the mark that it was kept."""
    return FrozenDict((name, value) for name, value in metadata.items() if name != CACHED)


def content_json(content: Content) -> object:
    """Return a content as JSON, bytes in base64."""
    return content if isinstance(content, str) else [_part_json(part) for part in content]


def _part_json(part: Part) -> object:
    if isinstance(part, TextPart):
        return {"text": part.text}
    data = None if part.data is None else base64.b64encode(part.data).decode()
    return {"medium": _KINDS[type(part)], "url": part.url, "data": data, "media_type": part.media_type}


def _reply(body: Json) -> AssistantMessage:
    fields = _object(body, _FIELDS)
    finish, model, calls = fields["finish_reason"], fields["model"], fields["tool_calls"]
    if not isinstance(calls, FrozenList) or not isinstance(model, str | None):
        raise TypeError("tool_calls must be an array, and model a string or null")
    return AssistantMessage(
        _content(fields["content"]),
        tool_calls=tuple(_call(call) for call in calls),
        finish_reason=finish,  # type: ignore[arg-type]  # its validator says what is wrong with it
        usage=NO_USAGE,
        model=model,
        provider_items=fields["provider_items"],
        metadata={**_object(fields["metadata"]), CACHED: True},
    )


def _call(data: Json) -> ToolCall:
    fields = _object(data, _CALL)
    name, arguments, kind = fields["name"], fields["arguments"], fields["kind"]
    if not isinstance(name, str) or not isinstance(arguments, str) or not isinstance(kind, str):
        raise TypeError("the name, arguments and kind of a call must be strings")
    return ToolCall("", name, arguments, kind=kind, metadata=_object(fields["metadata"]))


def _content(data: Json) -> Content:
    if isinstance(data, str):
        return data
    if not isinstance(data, FrozenList):
        raise TypeError("content must be a string or an array of parts")
    return tuple(_part(part) for part in data)


def _part(data: Json) -> Part:
    fields = _object(data)
    if fields.keys() == {"text"}:
        return TextPart(fields["text"])  # type: ignore[arg-type]  # its validator says what is wrong with it
    kind = _MEDIA[str(fields["medium"])]
    found = fields["data"]
    try:
        held = None if found is None else base64.b64decode(str(found), validate=True)
    except binascii.Error as error:
        raise ValueError(f"the data of a part is no base64: {error}") from error
    return kind(url=fields["url"], data=held, media_type=fields["media_type"])  # type: ignore[arg-type]  # as above


def _object(data: Json, names: set[str] | None = None) -> FrozenDict[Json]:
    if not isinstance(data, FrozenDict) or (names is not None and data.keys() != names):
        raise TypeError(f"must be an object with {', '.join(sorted(names or ())) or 'any names'}")
    return data
