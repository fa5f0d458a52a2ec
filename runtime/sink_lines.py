"""What every sink of sealed lines does with a record before it is sealed: keep it whole, as digests, or redacted.

Knows no file, no database and no chain.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeAlias, cast

from attrs import field, frozen

from ..capabilities.frozen import FrozenDict, FrozenList, Json, digest
from ..capabilities.records import replace
from ..capabilities.secret import Secret
from .audit import AuditRecord
from .seals import key_bytes

_PAYLOADS = ("changes", "restored", "rejected", "facts")


class Redactor(Protocol):
    """Anything that takes secrets out of text.

    One that has `redact_json(value)` besides is given each value whole, and so sees its keys and numbers too.
    """

    def redact_text(self, text: str, /) -> str:
        """Return the text without its secrets."""


Redact: TypeAlias = Redactor | Callable[[str], str]


@frozen
class SinkLines:
    """What a sink keeps of records, and the key of its seals; `made` checks what a user gives."""

    content: bool
    redact: Callable[[Json], Json] | None
    key: bytes | None = field(repr=False)

    @classmethod
    def made(cls, *, key: bytes | Secret | None, content: bool, redact: Redact | None) -> "SinkLines":
        """Return it. Raises TypeError for what is none of these, LookupError for a Secret that is not set."""
        return cls(check_flag("content", content), json_function(redact), key_bytes(key))

    def kept(self, record: AuditRecord) -> AuditRecord:
        """Return what is kept of a record. Raises what the redactor raises, TypeError where it returns no string."""
        if not self.content:
            digests = {name: _digests(getattr(record, name)) for name in _PAYLOADS}
            return replace(record, **digests, content="digests")
        if self.redact is not None:
            redacted = {name: self.redact(getattr(record, name)) for name in _PAYLOADS}
            return replace(record, **redacted, content="redacted")
        return record


def check_flag(name: str, value: object) -> bool:
    """Return a flag. Raises TypeError for anything else, such as a string that would count as true."""
    if type(value) is not bool:
        raise TypeError(f"{name} must be True or False, not {value!r:.80}")
    return value


def json_function(redact: Redact | None) -> Callable[[Json], Json] | None:
    """Return a redactor as a function of JSON values, None without one. Raises TypeError for what is none."""
    whole = getattr(redact, "redact_json", None)
    if whole is not None and callable(whole):
        return cast("Callable[[Json], Json]", whole)
    found = getattr(redact, "redact_text", redact)
    if found is None:
        return None
    if callable(found):
        return partial(_redacted, redact=found)
    raise TypeError(f"redact must be a callable or have redact_text(str), not {type(redact).__name__}")


def _digests(payload: FrozenDict[Json]) -> FrozenDict[Json]:
    digests: dict[str, Json] = {
        name: FrozenDict({"digest": digest(value)}) for name, value in payload.items()
    }
    return FrozenDict(digests)


def _redacted(value: Json, redact: Callable[[str], str]) -> Json:
    """Return the JSON value with every string redacted; keys stay, for they name fields."""
    if isinstance(value, str):
        text = redact(value)
        if type(text) is not str:
            raise TypeError(f"a redactor must return a string, not {type(text).__name__}")
        return text
    if isinstance(value, FrozenDict):
        return FrozenDict({key: _redacted(member, redact) for key, member in value.items()})
    if isinstance(value, FrozenList):
        return FrozenList([_redacted(member, redact) for member in value])
    return value
