"""How JSON spells what is personal: numbers and escapes, read for the detector and written as they stood.

Knows no kind of secret, and nothing of what is done with what is found.
"""

import json
import re
from collections.abc import Sequence
from typing import Self

# An escape of JSON, however often the text around it was escaped again. Backslashes in a row are looked at once.
_ESCAPE = re.compile(r"(?<!\\)\\{1,8}(?:u([0-9A-Fa-f]{4})|[nrt])")
LARGEST_BITS = 256
_LARGEST_WHOLE = 1e20


class Pairs(dict[str, object]):
    """An object of a JSON text; `pairs` has what stands twice in it, too."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        """Take the pairs as they stand in the text."""
        super().__init__(pairs)
        self.pairs = pairs


class Written(float):
    """A number of a JSON text with a point or an exponent; `text` is how it stands there."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        """Read the number."""
        made = super().__new__(cls, text)
        made.text = text
        return made


# Made once: `json.loads` with hooks would make one each time, which takes longer than to read a few arguments.
_DECODER = json.JSONDecoder(object_pairs_hook=Pairs, parse_float=Written)


def parsed(text: str) -> object:
    """Return what a JSON text holds, objects as `Pairs`; None for a text that is none, or no container or string."""
    if text.lstrip()[:1] not in {"{", "[", '"'}:
        return None
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):  # a text like any other
        return None


def written(value: object, *, ascii_only: bool) -> str:
    """Return what `parsed` read as JSON text, numbers as they stood; `value` has few levels, all looked at before."""
    if isinstance(value, Written):
        return value.text
    if isinstance(value, list):
        return f"[{', '.join([written(member, ascii_only=ascii_only) for member in value])}]"
    if isinstance(value, dict):
        pairs = value.pairs if isinstance(value, Pairs) else value.items()
        members = [
            f"{json.dumps(key, ensure_ascii=ascii_only)}: {written(member, ascii_only=ascii_only)}"
            for key, member in pairs
        ]
        return f"{{{', '.join(members)}}}"
    return json.dumps(value, ensure_ascii=ascii_only)


def digits_of(value: object) -> str | None:
    """Return the digits of a number that is whole, however it is written; None for any other value.

    A column with a gap in it makes 4155550132.0 of 4155550132.
    """
    if type(value) is int:
        return str(value) if value.bit_length() <= LARGEST_BITS else None
    if isinstance(value, float) and abs(value) < _LARGEST_WHOLE and value.is_integer():
        return str(int(value))
    return None


def unescaped(text: str) -> tuple[str, Sequence[int]]:
    """Return a text with the escapes of JSON read, and where each sign of it, and its end, stood before."""
    pieces: list[str] = []
    places: list[int] = []
    done = 0
    for found in _ESCAPE.finditer(text):
        pieces += [text[done : found.start()], "\n" if found[1] is None else chr(int(found[1], 16))]
        places += range(done, found.start() + 1)
        done = found.end()
    pieces.append(text[done:])
    places += range(done, len(text) + 1)
    return "".join(pieces), places
