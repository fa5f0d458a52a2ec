"""Content and its parts on the chat completions wire, both ways; what is refused, on either API's wire.

Pure, and imports no openai. What the wire has no form for is an error that names it, never left out.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping

from ..capabilities.messages import AudioPart, Content, FilePart, ImagePart, Part, TextPart


class Unsendable(ValueError):
    """The API or this model cannot carry a message or a setting; found out before anything is sent."""


class Unreadable(ValueError):
    """Something on the wire that is no chat message, or that no record can hold; `path` says where."""

    def __init__(self, path: str, message: str) -> None:
        """Say what stands at `path`."""
        super().__init__(f"{path}: {message}")
        self.path = path


# The wire names a format, a part its media type; the first of each format is the one that is read back.
_AUDIO = {
    "audio/wav": "wav",
    "audio/mpeg": "mp3",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/vnd.wave": "wav",
    "audio/mp3": "mp3",
}
# An image by URL has no media type on the wire.
_ANY_IMAGE = "image/*"
_DATA_URL = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)


def data_url(data: bytes, media_type: str) -> str:
    """Return bytes as a URL that holds them."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def file_body(data: bytes, media_type: str) -> dict[str, object]:
    """Return a file's data under a name, which both wires want and a part has not."""
    import mimetypes  # 2 ms that only a file needs

    name = f"file{mimetypes.guess_extension(media_type) or ''}"
    return {"filename": name, "file_data": data_url(data, media_type)}


def write_part(part: Part) -> dict[str, object]:
    """Return a part of a user message as the wire has it; `Unsendable` for a form that it has not."""
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            url = part.url if part.data is None else data_url(part.data, part.media_type)
            return {"type": "image_url", "image_url": {"url": url}}
        case AudioPart():
            if part.data is None:
                raise Unsendable(
                    "chat completions take a sound as data, not by URL: give AudioPart(data=...)"
                )
            if part.media_type not in _AUDIO:
                raise Unsendable(
                    f"chat completions take wav and mp3, not {part.media_type!r}: "
                    "give media_type 'audio/wav' or 'audio/mpeg'"
                )
            sound = {"data": base64.b64encode(part.data).decode(), "format": _AUDIO[part.media_type]}
            return {"type": "input_audio", "input_audio": sound}
        case FilePart():
            if part.data is None:
                raise Unsendable("chat completions take a file as data, not by URL: give FilePart(data=...)")
            return {"type": "file", "file": file_body(part.data, part.media_type)}


def written(
    parts: Iterable[Part], write: Callable[[Part], dict[str, object]] = write_part
) -> list[dict[str, object]]:
    """Return parts as `write` writes each; its `Unsendable` is told with the place of the part."""
    found: list[dict[str, object]] = []
    for i, part in enumerate(parts):
        try:
            found.append(write(part))
        except Unsendable as error:
            raise Unsendable(f"content[{i}]: {error}") from None
    return found


def write_content(content: Content) -> str | list[dict[str, object]]:
    """Return a user's content as the wire has it."""
    return content if isinstance(content, str) else written(content)


def text_only(content: Content, who: str) -> None:
    """Raise `Unsendable` when a content that may hold text only holds another part; `who` cannot carry it."""
    if isinstance(content, str):
        return
    for i, part in enumerate(content):
        if not isinstance(part, TextPart):
            raise Unsendable(
                f"content[{i}]: the API takes text only in {who}, not {type(part).__name__}: "
                "hand it over in a user message"
            )


def _bytes(text: str, path: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Unreadable(path, "this is not base64") from None


def is_empty(value: object) -> bool:
    """Tell whether a field says nothing: null, or an empty list or object."""
    return value is None or (isinstance(value, list | dict) and not value)


def only(value: Mapping[str, object], allowed: set[str], path: str) -> None:
    """Refuse a field that no record has a place for, unless it is empty."""
    for name, member in value.items():
        if name not in allowed and not is_empty(member):
            raise Unreadable(path, f"there is no place for the field {name!r}")


def text_at(value: Mapping[str, object], name: str, path: str) -> str:
    """Return the string in a field."""
    text = value.get(name)
    if not isinstance(text, str):
        raise Unreadable(f"{path}.{name}", f"this must be a string, not {type(text).__name__}")
    return text


def mapping_at(value: object, path: str) -> Mapping[str, object]:
    """Return a JSON object, or say that it is none."""
    if not isinstance(value, Mapping):
        raise Unreadable(path, f"this must be a JSON object, not {type(value).__name__}")
    return value


def read_part(value: object, path: str) -> Part:
    """Return the part that an item of a wire content stands for."""
    item = mapping_at(value, path)
    kind = item.get("type")
    if kind == "text":
        only(item, {"type", "text"}, path)
        return TextPart(text_at(item, "text", path))
    body = mapping_at(item.get(kind) if isinstance(kind, str) else None, f"{path}.{kind}")
    only(item, {"type", str(kind)}, path)
    if kind == "image_url":
        if body.get("detail") == "auto":  # the default
            body = {name: member for name, member in body.items() if name != "detail"}
        only(body, {"url"}, f"{path}.image_url")
        url = text_at(body, "url", path)
        found = _DATA_URL.fullmatch(url)
        if found is None:
            return ImagePart(url=url, media_type=_ANY_IMAGE)
        return ImagePart(data=_bytes(found[2], path), media_type=found[1])
    if kind == "input_audio":
        sound = text_at(body, "format", path)
        for media_type, name in _AUDIO.items():
            if name == sound:
                return AudioPart(data=_bytes(text_at(body, "data", path), path), media_type=media_type)
        raise Unreadable(f"{path}.format", f"a sound is wav or mp3, not {sound!r}")
    if kind == "file":
        found = _DATA_URL.fullmatch(text_at(body, "file_data", path))
        if found is None:
            raise Unreadable(f"{path}.file_data", "this must be a data URL with base64")
        return FilePart(data=_bytes(found[2], path), media_type=found[1])
    raise Unreadable(path, f"a part is text, image_url, input_audio or file, not {kind!r}")


def read_content(value: object, path: str) -> Content:
    """Return the content that a wire value stands for; null is the empty text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, list | tuple):
        return tuple(read_part(item, f"{path}[{i}]") for i, item in enumerate(value))
    raise Unreadable(path, f"a content is a string or a list of parts, not {type(value).__name__}")
