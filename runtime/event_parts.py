"""The parts of events as JSON: what wrappers changed in a run, entries, bills, what broke. Each there and back.

A run is written as what differs from the run that the effect was handed out with, so that what is recorded of a step
does not grow with the history. Knows nothing of which event holds which part.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from attrs import frozen

from ..capabilities.frozen import FrozenDict, FrozenList, Json
from ..capabilities.messages import AssistantMessage, Message, Usage
from ..capabilities.records import replace
from ..capabilities.run_parts import Fail, NamedModel, Stop
from ..capabilities.state import RunState
from ..capabilities.views import Projection
from .audit import encode, places
from .below import Spent
from .billing import Bill
from .codec import from_json, to_json
from .entries import Entry, FromTo, Row, entry_of
from .errors import Reason
from .phases import Broken

R = TypeVar("R")
JsonObject = FrozenDict[Json]
# What a wrapper may have changed, and an effect does not say anew.
_AS_JSON = ("settings", "instructions")


@frozen
class ModelOfRecord:
    """A model of which only the name is known: it was chosen by a wrapper for a request that has been answered."""

    name: str


def json_object(**members: Json) -> JsonObject:
    """Return a JSON object of members."""
    return FrozenDict(members)


def put(value: object, kind: object = None) -> Json:
    """Return a record as JSON; `kind`: its declared type, for unions. Raises CodecError."""
    return to_json(value, type=kind)


def get(data: Json, kind: type[R]) -> R:
    """Return the record of a type that JSON stands for. Raises CodecError."""
    return from_json(data, kind)


def message_of(data: Json) -> Message:
    """Return a message."""
    return from_json(data, cast("type[Message]", Message))


def messages_of(data: Json) -> tuple[Message, ...]:
    """Return messages."""
    return tuple([message_of(one) for one in cast(FrozenList, data)])


def put_messages(messages: Iterable[Message]) -> Json:
    """Return messages as JSON."""
    return FrozenList([put(one, Message) for one in messages])


def response_of(data: Json) -> AssistantMessage:
    """Return a response. Raises CodecError for any other message."""
    return from_json(data, AssistantMessage)


# --- runs


def put_run(run: RunState, base: RunState) -> JsonObject:
    """Return what wrappers changed in `base`: what they latched, and what they chose for a request."""
    changed: dict[str, Json] = {}
    for name in ("stopped", "failed"):
        if getattr(run, name) is not getattr(base, name):
            changed[name] = put(getattr(run, name))
    if run.notes != base.notes:
        changed["notes"] = FrozenList(run.notes[len(base.notes) :])  # notes are only ever added
    for name in _AS_JSON:
        if getattr(run, name) is not getattr(base, name):
            changed[name] = getattr(run, name)
    if run.model is not base.model and run.model is not None:
        changed["model"] = run.model.name
    if run.request_messages is not base.request_messages:
        changed["request_messages"] = _put_projection(run.request_messages, base.messages)
    return FrozenDict(changed)


def get_run(data: Json, base: RunState, models: Mapping[str, NamedModel]) -> RunState:
    """Return the run that `put_run` wrote; the identical `base` where nothing was changed."""
    found: dict[str, Any] = dict(cast(JsonObject, data))  # Any: fields of a run, each of its own type
    if not found:
        return base
    for name, kind in (("stopped", Stop), ("failed", Fail)):
        if found.get(name) is not None:
            found[name] = get(found[name], kind)
    if "notes" in found:
        found["notes"] = (*base.notes, *found["notes"])
    if "model" in found:
        found["model"] = models.get(found["model"]) or ModelOfRecord(found["model"])
    if found.get("request_messages") is not None:
        found["request_messages"] = _get_projection(found["request_messages"], base.messages)
    return replace(base, **found)


def _put_projection(shown: Projection | None, history: tuple[Message, ...]) -> Json:
    """Name messages of the history by their place there; write out any other."""
    if shown is None:
        return None
    found = places(shown.messages, history)
    written = [
        put(one, Message) if place is None else place
        for one, place in zip(shown.messages, found, strict=True)
    ]
    task = next((i for i, message in enumerate(shown.messages) if message is shown.task), None)
    return FrozenDict({"messages": FrozenList(written), "covers": shown.covers, "task": task})


def _get_projection(data: JsonObject, history: tuple[Message, ...]) -> Projection:
    messages = tuple(
        [history[one] if type(one) is int else message_of(one) for one in cast(FrozenList, data["messages"])]
    )
    task = cast("int | None", data["task"])
    return Projection(messages, cast(int, data["covers"]), task=None if task is None else messages[task])


# --- entries


def put_entries(entries: Iterable[Entry | Row], run_id: str) -> Json:
    """Return entries as they will stand in the log; the run's own id is left out, so that another run can take them."""
    written: list[Json] = []
    for one in map(entry_of, entries):
        place: dict[str, Json] = {} if one.run == run_id else {"run": one.run}
        written.append(FrozenDict({**_without_defaults(encode(one)), "at": one.at, **place}))
    return FrozenList(written)


_NOTHING: JsonObject = FrozenDict()
_LEFT_OUT: dict[str, Json] = {
    "call": None,
    "index": None,
    "hook": None,
    "changes": _NOTHING,
    "restored": _NOTHING,
    "rejected": _NOTHING,
    "facts": _NOTHING,
}


def _without_defaults(body: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in body.items() if name not in _LEFT_OUT or value != _LEFT_OUT[name]}


def get_entries(data: Json, run_id: str) -> tuple[Entry, ...]:
    """Return entries that are written as those again that `put_entries` took."""
    return tuple([_entry(cast(JsonObject, one), run_id) for one in cast(FrozenList, data)])


def _entry(data: JsonObject, run_id: str) -> Entry:
    found: dict[str, Any] = {
        **_LEFT_OUT,
        "run": run_id,
        **data,
    }  # Any: fields of an entry, each of its own type
    for name, second in (("restored", "kept"), ("rejected", "legal")):
        found[name] = {key: (pair["tried"], pair[second]) for key, pair in found[name].items()}
    return Entry(**found)


def put_made(entries: Iterable[Entry], response: AssistantMessage | None) -> Json:
    """Return which entries made a response that goes on: the machine tells them by identity."""
    return FrozenList(
        [
            i
            for i, entry in enumerate(entries)
            if response is not None
            and isinstance(change := entry.changes.get("response"), FromTo)
            and change.after is response
        ]
    )


def get_made(entries: Sequence[Entry], made: Json, response: AssistantMessage | None) -> tuple[Entry, ...]:
    """Return the entries, with `response` itself in those that made it."""
    found = list(entries)
    for i in cast("Sequence[int]", made):
        entry = found[i]
        written = cast(JsonObject, entry.changes["response"])
        changes = {**entry.changes, "response": FromTo(written["from"], response)}
        found[i] = entry._replace(changes=changes)
    return tuple(found)


# --- accounts, and what broke


def put_bills(bills: Iterable[Bill]) -> Json:
    """Return bills as JSON."""
    return FrozenList([FrozenList((one.model, put(one.usage), one.cost)) for one in bills])


def get_bills(data: Json) -> tuple[Bill, ...]:
    """Return bills."""
    return tuple(
        [
            Bill(model, None if usage is None else get(usage, Usage), cost)
            for model, usage, cost in cast("Sequence[tuple[str, Json, float | None]]", data)
        ]
    )


def put_spent(spent: Spent) -> Json:
    """Return what a run has used as JSON."""
    return FrozenDict(
        {
            "requests": spent.requests,
            "tool_calls": spent.tool_calls,
            "usage": put(spent.usage),
            "usage_by_model": FrozenDict({name: put(one) for name, one in spent.usage_by_model.items()}),
            "cost": spent.cost,
        }
    )


def get_spent(data: Json) -> Spent:
    """Return what a run has used."""
    found = cast(JsonObject, data)
    by_model = cast(JsonObject, found["usage_by_model"])
    return Spent(
        cast(int, found["requests"]),
        cast(int, found["tool_calls"]),
        get(found["usage"], Usage),
        FrozenDict({name: get(one, Usage) for name, one in by_model.items()}),
        cast("float | None", found["cost"]),
    )


def put_broken(broken: Broken | None) -> Json:
    """Return why an effect ends the run; the exception behind it stays where it was raised."""
    return None if broken is None else put(broken.reason, Reason)


def get_broken(data: Json) -> Broken | None:
    """Return why an effect ends the run."""
    return None if data is None else Broken(from_json(data, Reason))
