"""Seals: the one stored form of a record, a line, and the chain of seals that finds any changed byte of it.

A line is the canonical JSON of the record, its seal last. A seal covers the seal before it and the bytes of
its line: SHA-256, or HMAC-SHA256 with a key. Without a key it shows accidents, with one forgery.
Knows nothing of runs, digests or files.
"""

import json
import re

from ..capabilities.frozen import FrozenDict, Json, canonical, freeze, sha256
from ..capabilities.secret import Secret
from .audit import AuditRecord, from_fields
from .entries import ENTRY_KINDS
from .errors import LogError

_SEALED = re.compile(r'(\{.*),"seal":"([0-9a-f]{64})"\}', re.DOTALL)
_TEXT, _MAYBE_TEXT, _INT, _MAYBE_INT = (str,), (str, type(None)), (int,), (int, type(None))
_SHAPE: dict[str, tuple[type, ...]] = {
    "seq": _INT,
    "run": _TEXT,
    "step": _INT,
    "call": _MAYBE_TEXT,
    "actor": _TEXT,
    "index": _MAYBE_INT,
    "hook": _MAYBE_TEXT,
    "kind": _TEXT,
    "changes": (FrozenDict,),
    "restored": (FrozenDict,),
    "rejected": (FrozenDict,),
    "facts": (FrozenDict,),
    "prev": _TEXT,
    "digest": _TEXT,
    "at": (float, int),
}
_LEGAL = {
    "kind": re.compile("|".join(ENTRY_KINDS)),
    "prev": re.compile(r"[0-9a-f]{64}|"),
    "digest": re.compile(r"[0-9a-f]{64}|"),
    "content": re.compile("digests|redacted"),
}


def key_bytes(key: bytes | Secret | None) -> bytes | None:
    """Return the key of a seal; a `Secret` is read from its environment variable, as UTF-8.

    Raises LookupError when the variable is not set, TypeError or ValueError for what is no key.
    """
    made = key.reveal().encode() if isinstance(key, Secret) else key
    if made is not None and not isinstance(made, bytes):
        raise TypeError(f"key must be bytes, Secret.env(NAME) or None, not {type(made).__name__}")
    if made == b"":
        raise ValueError("key must not be empty: anybody can make a seal with an empty key")
    return made


def unsealed(record: AuditRecord) -> str:
    """Return the canonical line of a record without its seal: what a seal covers."""
    written = record.to_dict()
    del written["seal"]
    return canonical(written)


def next_seal(prev: str, text: str, key: bytes | None) -> str:
    """Return the seal of an unsealed line that follows the seal `prev`, "" for the first."""
    covered = (prev + text).encode()
    if key is None:
        return sha256(covered)
    import hmac  # noqa: PLC0415  # with a key only; frozen.sha256 says what it costs

    return hmac.new(key, covered, "sha256").hexdigest()


class Sealer:
    """Seals records one after another; `seal` is the last one given, "" before the first."""

    def __init__(self, seal: str = "", key: bytes | None = None) -> None:
        """Continue after `seal`."""
        self.seal = seal
        self._key = key

    def line(self, record: AuditRecord) -> str:
        """Return the sealed line of a record, without its newline."""
        text = unsealed(record)
        self.seal = next_seal(self.seal, text, self._key)
        return f'{text[:-1]},"seal":"{self.seal}"}}'


def parse_line(line: bytes, number: int) -> AuditRecord:
    """Return the record of a line without its newline.

    Raises LogError for record `number` unless the bytes are exactly the stored form of a record.
    """
    hint = "; is this a log at all?" if number == 0 else ""
    text, seal = split_line(line)
    if not seal:
        raise LogError(f"it is not a sealed audit record{hint}", number)
    try:
        value = freeze(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise LogError(f"it is not JSON ({error}){hint}", number) from None
    assert isinstance(value, FrozenDict)  # the text is JSON that starts with a brace
    problem = _shape_problem(value)
    if problem is not None:
        raise LogError(f"{problem}{hint}", number)
    record = from_fields({**value, "seal": seal})
    if unsealed(record) != text:
        raise LogError("it is not written in the canonical form: it was changed after it was written", number)
    return record


def split_line(line: bytes) -> tuple[str, str]:
    """Return the unsealed line and the seal, both empty when the line is not sealed."""
    try:
        found = _SEALED.fullmatch(line.decode("ascii"))
    except UnicodeDecodeError:
        found = None
    return (f"{found[1]}}}", found[2]) if found else ("", "")


def _shape_problem(value: FrozenDict[Json]) -> str | None:
    names = value.keys() - {"content"}
    if names != _SHAPE.keys():
        missing, foreign = sorted(_SHAPE.keys() - names), sorted(names - _SHAPE.keys())
        return f"it is not an audit record: missing {missing or 'nothing'}, unknown {foreign or 'nothing'}"
    for name, types in _SHAPE.items():
        if type(value[name]) not in types:
            return f"its {name} is {value[name]!r:.80}"
    for name, legal in _LEGAL.items():
        if name in value and not legal.fullmatch(str(value[name])):
            return f"its {name} is {value[name]!r:.80}"
    return None
