"""Audit records: what a hook call or an event did, as data that can be stored, chained and compared.

`encode` is pure: an entry in, its body out. Knows nothing of logs, sinks, seals or how a run goes on.
A body holds no time, no sequence number and no random id, so equal runs have equal digests.
"""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, TypeVar

from attrs import frozen

from ..capabilities.frozen import EMPTY, FreezeError, FrozenDict, FrozenList, Json, canonical, freeze, sha256
from ..capabilities.messages import MESSAGES, Message
from ..capabilities.tools import Tool
from ..capabilities.views import Projection
from .entries import OUTSIDE_DIGEST, Added, Entry, EntryKind, FromTo, Items, Projected
from .errors import CodecError
from .late_codec import json_writer
from .reprs import bounded_repr

V = TypeVar("V")
ContentKind: TypeAlias = Literal["full", "digests", "redacted"]
CHANGES: tuple[type, ...] = (FromTo, Added, Items, Projected)
_SCALARS = frozenset({bool, int, float, str})
# What describes an event; the rest of a record is its place in the log.
BODY = ("kind", "step", "call", "actor", "index", "hook", "changes", "restored", "rejected", "facts")
PLACE = ("seq", "run", "prev", "digest", "at")


@frozen(kw_only=True)
class AuditRecord:
    """One hook call or event.

    `seq` counts the records of one run from 0. `digest` chains the bodies of a run, `prev` is the one before;
    `seal` chains the stored lines of a sink, "" for a record that no sink has sealed. `at`: UTC seconds.
    `content`: "full", or what a sink has made of it: "digests" only, or "redacted"; such a record cannot be
    replayed, and its digest names the full body.
    """

    seq: int
    run: str
    step: int
    call: str | None
    actor: str
    index: int | None
    hook: str | None
    kind: EntryKind
    changes: FrozenDict[Json]
    restored: FrozenDict[Json]
    rejected: FrozenDict[Json]
    facts: FrozenDict[Json]
    prev: str
    digest: str
    at: float
    seal: str = ""
    content: ContentKind = "full"

    def to_dict(self) -> dict[str, Json]:
        """Return the record as JSON; `content` is left out when it is full, `seal` stands last."""
        content: dict[str, Json] = {} if self.content == "full" else {"content": self.content}
        place: dict[str, Json] = {name: getattr(self, name) for name in PLACE}
        return {**self.body, **place, **content, "seal": self.seal}

    @property
    def body(self) -> dict[str, Json]:
        """What the digest covers."""
        return {name: getattr(self, name) for name in BODY}


def record_of(entry: Entry, seq: int, prev: str) -> AuditRecord:
    """Return the record of an entry that follows the digest `prev` of its run.

    Raises CodecError when a change or a fact holds what the codec cannot carry.
    """
    body = encode(entry)
    digest = next_digest(prev, body)
    return from_fields({**body, "seq": seq, "run": entry.run, "prev": prev, "digest": digest, "at": entry.at})


def from_fields(fields: Mapping[str, Json]) -> AuditRecord:
    """Return the record with these fields, whose types were seen to already."""
    return AuditRecord(**fields)  # type: ignore[arg-type]  # one call for fields of many types


def next_digest(prev: str, body: Mapping[str, Json]) -> str:
    """Return the digest after `prev`: SHA-256 of it and the canonical body; unchanged outside the chain."""
    if body["kind"] in OUTSIDE_DIGEST:
        return prev
    return sha256((prev + canonical(body)).encode())


def encode(entry: Entry) -> dict[str, Json]:
    """Return the body of an entry.

    Raises CodecError naming the field when a change or a fact holds what the codec cannot carry. What was
    tried and did not take effect may be anything: then it is written as `{"$repr": ...}`, bounded.
    """
    return {
        "kind": entry.kind,
        "step": entry.step,
        "call": entry.call,
        "actor": entry.actor,
        "index": entry.index,
        "hook": entry.hook,
        "changes": _each(entry.changes, _named),
        "restored": _each(entry.restored, _restored),
        "rejected": _each(entry.rejected, _rejected),
        "facts": _each(entry.facts, _named),
    }


def _each(members: Mapping[str, V], write: Callable[[str, V], Json]) -> FrozenDict[Json]:
    return FrozenDict([(name, write(name, member)) for name, member in members.items()]) if members else EMPTY


def _restored(name: str, pair: tuple[object, object]) -> Json:
    tried, kept = pair
    return FrozenDict({"tried": _tried(name, tried), "kept": _tried(name, kept)})


def _rejected(name: str, pair: tuple[object, str]) -> Json:
    tried, legal = pair
    return FrozenDict({"tried": _tried(name, tried), "legal": legal})


def portable(value: object) -> Json:
    """Return `value` as JSON: messages without `at`, tools by name and digest, other records by the codec.

    Raises CodecError for what the codec cannot carry.
    """
    if value is None or type(value) in _SCALARS:
        try:
            return freeze(value)
        except FreezeError as error:
            raise CodecError(str(error).removeprefix("$: ")) from None
    if isinstance(value, Mapping):
        return FrozenDict([(_key(key), portable(member)) for key, member in value.items()])
    if isinstance(value, list | tuple):
        return FrozenList(map(portable, value))
    if isinstance(value, Tool):
        return FrozenDict({"tool": value.name, "digest": value.digest})
    if isinstance(value, MESSAGES):
        return _message(value)
    if isinstance(value, CHANGES):
        return _change(value, portable)
    if isinstance(value, Projection):
        return _projection(value, ())
    return json_writer()(value)


def _key(key: object) -> str:
    if type(key) is not str:
        raise CodecError(f"a key must be a string, not {key!r:.80}")
    return key


def _message(message: Message) -> Json:
    # The record's own `at` is the clock reading; one inside the body would make equal runs differ.
    written = json_writer()(message)
    assert isinstance(written, FrozenDict)
    return FrozenDict({name: value for name, value in written.items() if name != "at"})


def _change(change: object, write: Callable[[object], Json]) -> Json:
    match change:
        case FromTo(before=before, after=after):
            return FrozenDict({"from": write(before), "to": write(after)})
        case Added(items=items):
            return FrozenDict({"added": FrozenList(map(write, items))})
        case Items(set=members, removed=removed):
            return FrozenDict({"set": portable(members), "removed": FrozenList(removed)})
        case Projected(projection=projection, history=history):
            shown = None if projection is None else _projection(projection, history)
            return FrozenDict({"from": None, "to": shown})
    raise TypeError(f"a change is one of FromTo, Added, Items, Projected; not {type(change).__name__}")


def _named(name: str, value: object) -> Json:
    """Write the value of a field or fact; models stand there by name."""
    write = _model_name if name.rpartition(".")[2] == "model" else portable
    try:
        return _change(value, write) if isinstance(value, CHANGES) else write(value)
    except CodecError as error:
        problem = str(error).removeprefix(f"{error.path}: ")
        raise CodecError(problem, f"$.{name}{error.path[1:]}") from error
    except RecursionError:
        raise CodecError("nested too deeply, or contains itself", f"$.{name}") from None


def _model_name(value: object) -> Json:
    name = getattr(value, "name", None)
    return name if type(name) is str else portable(value)


def _tried(name: str, value: object) -> Json:
    try:
        return _named(name, value)
    except Exception:  # noqa: BLE001  # a value that was refused may be anything, and reading it may raise anything
        return FrozenDict({"$repr": bounded_repr(value)})


def _projection(projection: Projection, history: tuple[Message, ...]) -> Json:
    """Name canonical messages by index, runs of them as [start, stop]; write out any other message.

    `task`: the place, in the projection, of the message that stands for the task.
    """
    shown = projection.messages
    written: list[Json] = []
    start = stop = -1  # the run of indices under way

    def close() -> None:
        if stop > start:
            written.append(start if stop == start + 1 else FrozenList((start, stop)))

    for message, index in zip(shown, places(shown, history[: projection.covers]), strict=True):
        if index is not None and index == stop:
            stop += 1
            continue
        close()
        start, stop = (-1, -1) if index is None else (index, index + 1)
        if index is None:
            written.append(_message(message))
    close()
    task = next((i for i, message in enumerate(shown) if message is projection.task), None)
    return FrozenDict({"covers": projection.covers, "messages": FrozenList(written), "task": task})


def places(shown: tuple[Message, ...], history: tuple[Message, ...]) -> list[int | None]:
    """Return where each shown message stands in the history, by identity; None for one that does not.

    A view is most often a beginning and an end of the history, so both ends are matched first: then a window
    on a long history costs what the window does. Only what is left is looked up in a table.
    """
    found: list[int | None] = [None] * len(shown)
    first, short = 0, min(len(shown), len(history))
    while first < short and shown[first] is history[first]:
        found[first] = first
        first += 1
    last = 0
    while last < short - first and shown[-1 - last] is history[-1 - last]:
        last += 1
        found[-last] = len(history) - last
    if first + last < len(shown):
        table = {id(message): i for i, message in reversed(list(enumerate(history)))}
        for i in range(first, len(shown) - last):
            found[i] = table.get(id(shown[i]))
    return found
