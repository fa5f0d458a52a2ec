"""What an MCP server returned, as the content of a message: text, images, sounds, files.

Pure; knows nothing of connections, tools or runs. What the server said is kept, each block in its place:
a block that has no part of ours becomes text, and structured content is added where no block says it already.
"""

import base64
import binascii
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..capabilities.messages import AudioPart, Content, FilePart, ImagePart, Part, TextPart

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

# An error's text goes to the model whatever its size, while a result is bounded by the run's limit.
MAX_ERROR = 16_384
_ANY_TYPE = "application/octet-stream"


def content_of(result: "CallToolResult") -> Content:
    """Return a result as content: a string where it is one text, else parts.

    Raises ValueError where image, sound or file is not base64, or a media type is missing.
    """
    parts = [part for block in result.content for part in _parts(block)]
    if result.structured_content is not None and not _says(result.content, result.structured_content):
        parts.append(TextPart(json.dumps(result.structured_content, ensure_ascii=False)))
    if not parts:
        return ""
    (first, *more) = parts
    return first.text if isinstance(first, TextPart) and not more else tuple(parts)


def error_of(result: "CallToolResult") -> str:
    """Return the text of a result that is an error; what is no text is named in brackets."""
    lines = [part.text if isinstance(part, TextPart) else f"[{part.media_type}]" for part in _lenient(result)]
    text = "\n".join(line for line in lines if line.strip())
    if not text:
        return "the server says that the call failed, and not why"
    return text if len(text) <= MAX_ERROR else f"{text[: MAX_ERROR - 1]}…"


def _lenient(result: "CallToolResult") -> Iterator[Part]:
    for block in result.content:
        try:
            yield from _parts(block)
        except ValueError as error:  # the failure itself is what must be told
            yield TextPart(f"[{error}]")


def _parts(block: "ContentBlock") -> Iterator[Part]:
    match block.type:
        case "text":
            yield TextPart(block.text)
        case "image":
            yield ImagePart(data=_bytes(block.data, "an image"), media_type=block.mime_type)
        case "audio":
            yield AudioPart(data=_bytes(block.data, "a sound"), media_type=block.mime_type)
        case "resource_link":
            # Its address means something to the server alone, which has tools to read it: the model must see it.
            yield TextPart(block.model_dump_json(by_alias=True, exclude_none=True, exclude={"meta", "icons"}))
        case "resource":
            resource = block.resource
            kind = resource.mime_type
            header = f"Resource {resource.uri}" + (f" ({kind})" if kind else "") + ":"
            if hasattr(resource, "text"):
                yield TextPart(f"{header}\n{resource.text}")
            else:
                yield TextPart(header)
                yield _blob(_bytes(resource.blob, f"the resource {resource.uri}"), kind or _ANY_TYPE)


def _blob(data: bytes, media_type: str) -> Part:
    if media_type.startswith("image/"):
        return ImagePart(data=data, media_type=media_type)
    if media_type.startswith("audio/"):
        return AudioPart(data=data, media_type=media_type)
    return FilePart(data=data, media_type=media_type)


def _bytes(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{what} in the result is not base64") from None


def _says(blocks: "list[ContentBlock]", structured: object) -> bool:
    """Tell whether the blocks hold the structured content: as JSON, as a text for each item, or as themselves.

    No text says nothing, not an empty list.
    Servers wrap what is no object in an object of one key: {"result": 3}, {"content": [the blocks again]}.
    """
    texts = [block.text for block in blocks if block.type == "text"]
    said = [_value(text) for text in texts]
    held: list[object] = [*texts, *said]
    if texts:
        held += [texts, said]
    if blocks:
        held.append(_dumped(blocks))
    wanted = [structured]
    if isinstance(structured, dict) and len(structured) == 1:
        wanted.extend(structured.values())
    return any(one in held for one in wanted)


def _dumped(blocks: "list[ContentBlock]") -> list[object]:
    return [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in blocks]


def _value(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value
