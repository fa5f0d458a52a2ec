"""Files in messages: what bytes a part has, and parts that refer to bytes kept elsewhere. Pure.

A reference is a part like any other, whose URL is `blob:` and what the store gave. Knows no store, and no run.
"""

import base64
import binascii
from collections.abc import Callable, Iterator
from typing import Final

from .messages import AudioPart, Content, FilePart, ImagePart, Part, TextPart

Medium = ImagePart | AudioPart | FilePart
SCHEME: Final = "blob:"


class AttachmentError(ValueError):
    """A part whose bytes cannot be kept; the message says why, without any of them."""


def media(content: Content) -> Iterator[Medium]:
    """Yield the parts of a content that are no text, in order."""
    for part in content if isinstance(content, tuple) else ():
        if not isinstance(part, TextPart):
            yield part


def reference_in(part: Medium) -> str | None:
    """Return what the store gave for a part that is a reference; None for any other."""
    return part.url.removeprefix(SCHEME) if part.url is not None and part.url.startswith(SCHEME) else None


def reference_to(ref: str, part: Medium) -> Medium:
    """Return the part that stands for another one in a history."""
    return type(part)(url=f"{SCHEME}{ref}", media_type=part.media_type)


def bytes_of(part: Medium, most: int) -> bytes:
    """Return the bytes that a part holds, as they are or in a `data:` URL; at most `most`.

    Raises AttachmentError for more, for base64 that is none, and for a part that holds no bytes: any other URL, or
    the path of a file, which nobody would read here.
    """
    data = part.data
    if data is None:
        url = part.url or ""
        head, comma, body = url.partition(",")
        if not head.startswith("data:"):
            raise AttachmentError(_no_bytes(url))
        if not comma or not head.endswith(";base64"):
            raise AttachmentError("its data: URL is not in base64: write data:TYPE;base64,...")
        if len(body) // 4 * 3 - 2 > most:  # before it is decoded
            raise AttachmentError(_too_large(len(body) // 4 * 3, most))
        try:
            data = base64.b64decode(body, validate=True)
        except (binascii.Error, ValueError) as error:
            raise AttachmentError(f"its data: URL holds no valid base64: {error}") from None
    if len(data) > most:
        raise AttachmentError(_too_large(len(data), most))
    return data


def _no_bytes(url: str) -> str:
    scheme, colon, _ = url.partition(":")
    if scheme.lower() in {"http", "https"}:
        what = f"it is a URL, {url!r:.80}, and what stands there now may be something else later"
    elif colon and len(scheme) > 1 and scheme.lower() != "file":
        what = f"it is a {scheme[:20]!r} URL"
    else:
        what = "it is the path of a local file, which is not read"
    return f"{what}: give the bytes, as data="


def _too_large(size: int, most: int) -> str:
    return f"it has {size:,} bytes; at most {most:,} are kept"


def map_media(content: Content, change: Callable[[Medium], Part]) -> Content:
    """Return a content with `change(part)` for each part that is no text; the same one when none is another."""
    if isinstance(content, str):
        return content
    made = tuple(part if isinstance(part, TextPart) else change(part) for part in content)
    return content if all(new is old for new, old in zip(made, content, strict=True)) else made
