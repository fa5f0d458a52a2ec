"""Events as JSON text: what a durable engine records of a step, and feeds to the machine again.

An event is written relative to the run it answers, which whoever replays has already; so a record is as long as what
the step brought, not as the history. Exceptions do not cross: what broke is a reason. Knows nothing of engines.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from ..capabilities.call_state import CallState
from ..capabilities.frozen import FrozenDict, FrozenList, Json
from ..capabilities.json_schema import path_text
from ..capabilities.messages import AssistantMessage
from ..capabilities.records import replace
from ..capabilities.run_parts import NamedModel, Stop
from ..capabilities.state import RunState
from ..capabilities.verdict import Outcome, Verdict
from .codec_errors import codec_error
from .conversation import Conversation
from .decisions import Decision
from .errors import CodecError
from .event_parts import (
    JsonObject,
    get,
    get_bills,
    get_broken,
    get_entries,
    get_made,
    get_run,
    get_spent,
    messages_of,
    put,
    put_bills,
    put_broken,
    put_entries,
    put_made,
    put_messages,
    put_run,
    put_spent,
    response_of,
)
from .phases import (
    Broken,
    CallResult,
    Decided,
    Entered,
    Event,
    Gathered,
    Interrupted,
    Left,
    Opened,
    Responded,
    Saved,
    Sent,
    Undecided,
)
from .strict_json import read

MAX_DEPTH = 400  # of what is recorded: a record may hold, some levels down, any value that the codec carries


def dumps(value: Json) -> str:
    """Return JSON text that `loads` reads back as it was, the order of keys included."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def loads(text: str) -> JsonObject:
    """Return the JSON object of a text. Raises CodecError for a text that is none."""
    value, problems = read(text, MAX_DEPTH, utf8=False, an_object=True)
    if problems:
        raise codec_error((path_text(path), message) for path, message in sorted(problems, key=str))
    return cast(JsonObject, value)


def event_to_json(event: Event, run: RunState) -> JsonObject:
    """Return an event as JSON; `run`: that of the effect it answers, which must be there to read it again.

    Raises CodecError for what the codec cannot carry, TypeError for an event that is never recorded.
    """
    writer = _WRITERS.get(type(event))
    if writer is None:
        raise TypeError(f"{type(event).__name__} is made of what was recorded, never recorded itself")
    body: dict[str, Json] = writer(event, run)
    return FrozenDict({"event": type(event).__name__, "now": event.now, **body})


def event_from_json(data: Json, run: RunState, models: Mapping[str, NamedModel]) -> Event:
    """Return the event; `run` as it was when it was written, `models` those whose names are known.

    Raises CodecError for what is no event.
    """
    found = cast(JsonObject, data)
    reader = _READERS.get(cast(str, found.get("event")))
    if reader is None:
        raise CodecError(f"is no event: {found.get('event')!r:.60}; known: {', '.join(_READERS)}", "$.event")
    return reader(found, run, models)


# --- events, each there and back

Models = Mapping[str, NamedModel]


def _put_opened(event: Opened, run: RunState) -> dict[str, Json]:
    return {
        **_put_edges(event.run, event.entries, event.broken, run),
        "history": put_messages(event.history),
        "instructions": event.instructions,
        "conversation": put(event.conversation),
    }


def _get_opened(data: JsonObject, run: RunState, models: Models) -> Opened:
    after, entries, broken = _get_edges(data, run, models)
    told = data["conversation"]
    conversation = None if told is None else get(told, Conversation)
    instructions = cast(str, data["instructions"])
    history = messages_of(data["history"])
    return Opened(_now(data), after, history, instructions, conversation, entries, broken)


def _put_entered(event: Entered, run: RunState) -> dict[str, Json]:
    return _put_edges(event.run, event.entries, None, run)


def _get_entered(data: JsonObject, run: RunState, models: Models) -> Entered:
    after, entries, _ = _get_edges(data, run, models)
    return Entered(_now(data), after, entries)


def _put_gathered(event: Gathered, run: RunState) -> dict[str, Json]:
    return {
        "facts": FrozenList(cast("Sequence[Json]", event.facts)),
        "broken": put_broken(event.broken),
        "charged": event.charged,
        "bills": put_bills(event.bills),
    }


def _get_gathered(data: JsonObject, run: RunState, models: Models) -> Gathered:
    facts = tuple(cast(FrozenList, data["facts"]))
    charged = cast(int, data["charged"])
    return Gathered(_now(data), facts, get_broken(data["broken"]), charged, get_bills(data["bills"]))


def _put_responded(event: Responded, run: RunState) -> dict[str, Json]:
    chosen = next((i for i, one in enumerate(event.responses) if one is event.response), None)
    own = event.response if chosen is None else None  # which a wrapper made up
    return {
        **_put_edges(event.run, event.entries, event.broken, run),
        "responses": put_messages(event.responses),
        "chosen": chosen,
        "own": put(own),
        "made": put_made(event.entries, event.response),
        "charged": event.charged,
        "bills": put_bills(event.bills),
    }


def _get_responded(data: JsonObject, run: RunState, models: Models) -> Responded:
    after, entries, broken = _get_edges(data, run, models)
    responses = tuple([response_of(one) for one in cast(FrozenList, data["responses"])])
    chosen = cast("int | None", data["chosen"])
    response: AssistantMessage | None = None
    if chosen is not None:
        response = responses[chosen]
    elif data["own"] is not None:
        response = response_of(data["own"])
    made = get_made(entries, data["made"], response)
    charged = cast(int, data["charged"])
    bills = get_bills(data["bills"])
    return Responded(_now(data), after, response, charged, responses, made, broken, bills)


def _put_decided(event: Decided, run: RunState) -> dict[str, Json]:
    return {"decisions": put_decisions(event.decisions)}


def _get_decided(data: JsonObject, run: RunState, models: Models) -> Decided:
    return Decided(_now(data), decisions_of(data["decisions"]))


def _put_undecided(event: Undecided, run: RunState) -> dict[str, Json]:
    return {"why": event.why}


def _get_undecided(data: JsonObject, run: RunState, models: Models) -> Undecided:
    return Undecided(_now(data), cast(str, data["why"]))


def _put_left(event: Left, run: RunState) -> dict[str, Json]:
    return _put_edges(event.run, event.entries, event.broken, run)


def _get_left(data: JsonObject, run: RunState, models: Models) -> Left:
    return Left(_now(data), *_get_edges(data, run, models))


def _put_saved(event: Saved, run: RunState) -> dict[str, Json]:
    # Its end was not seen: the machine is told so by the status.
    cut: dict[str, Json] = {"status": event.run.status} if event.run.status != run.status else {}
    return {**_put_edges(event.run, event.entries, event.broken, run), "messages": event.messages, **cut}


def _get_saved(data: JsonObject, run: RunState, models: Models) -> Saved:
    after, entries, broken = _get_edges(data, run, models)
    if "status" in data:
        after = replace(after, status=data["status"], output=None)
    return Saved(_now(data), after, cast(int, data["messages"]), entries, broken)


def _put_interrupted(event: Interrupted, run: RunState) -> dict[str, Json]:
    if event.results:
        raise TypeError("what became of a batch is recorded call by call")
    sent = event.sent
    known: Json = None
    if sent is not None:
        after = run if sent.run is None else sent.run
        known = FrozenDict(
            {
                "charged": sent.charged,
                "bills": put_bills(sent.bills),
                "responses": put_messages(sent.responses),
                "run": None if sent.run is None else put_run(after, run),
                "entries": put_entries(sent.entries, run.run_id),
            }
        )
    return {"broken": put_broken(event.broken), "sent": known, "stop": put(event.stop)}


def _get_interrupted(data: JsonObject, run: RunState, models: Models) -> Interrupted:
    sent: Sent | None = None
    if data["sent"] is not None:
        known = cast(JsonObject, data["sent"])
        sent = Sent(
            cast(int, known["charged"]),
            get_bills(known["bills"]),
            tuple([response_of(one) for one in cast(FrozenList, known["responses"])]),
            None if known["run"] is None else get_run(known["run"], run, models),
            get_entries(known["entries"], run.run_id),
        )
    stop = None if data["stop"] is None else get(data["stop"], Stop)
    return Interrupted(_now(data), get_broken(data["broken"]), (), sent, stop)


# --- calls of a batch, each recorded for itself


def result_to_json(result: CallResult, call: CallState, run: RunState) -> JsonObject:
    """Return what became of one call as JSON; `call` as it was handed out, `run` that of its batch."""
    done = result.call
    edges = _put_edges(result.run, result.entries, result.broken, run)
    changed: dict[str, Json] = {}
    if done.verdict is not call.verdict:
        changed["verdict"] = put(done.verdict)
    if done.notes != call.notes:
        changed["notes"] = FrozenList(done.notes)
    return FrozenDict(
        {
            **edges,
            "outcome": put(done.outcome),
            **changed,
            "extra": result.extra,
            "below": FrozenList(result.below),
            "spent": put_spent(result.spent) if result.below else None,
        }
    )


def result_from_json(data: Json, call: CallState, run: RunState, models: Models) -> CallResult:
    """Return what became of one call."""
    found = cast(JsonObject, data)
    after, entries, broken = _get_edges(found, run, models)
    changes: dict[str, Any] = {"outcome": get(found["outcome"], Outcome)}  # Any: fields, each of its own type
    if "verdict" in found:
        changes["verdict"] = get(found["verdict"], Verdict)
    if "notes" in found:
        changes["notes"] = tuple(cast("Sequence[str]", found["notes"]))
    below = tuple(cast("Sequence[str]", found["below"]))
    done = CallResult(replace(call, **changes), after, cast(int, found["extra"]), entries, broken, below)
    return done._replace(spent=get_spent(found["spent"])) if below else done


def put_decisions(decisions: Sequence[Decision]) -> Json:
    """Return decisions as JSON."""
    return FrozenList([put(one, Decision) for one in decisions])


def decisions_of(data: Json) -> tuple[Decision, ...]:
    """Return decisions."""
    return tuple([get(one, cast("type[Decision]", Decision)) for one in cast(FrozenList, data)])


def _put_edges(
    after: RunState, entries: Sequence[Any], broken: Broken | None, run: RunState
) -> dict[str, Json]:
    return {
        "run": put_run(after, run),
        "entries": put_entries(entries, run.run_id),
        "broken": put_broken(broken),
    }


def _get_edges(data: JsonObject, run: RunState, models: Models) -> tuple[RunState, Any, Broken | None]:
    entries = get_entries(data["entries"], run.run_id)
    return get_run(data["run"], run, models), entries, get_broken(data["broken"])


def _now(data: JsonObject) -> float:
    return cast(float, data["now"])


# Any: each takes, or makes, the event it is filed under.
_WRITERS: Mapping[type, Callable[[Any, RunState], dict[str, Json]]] = {
    Opened: _put_opened,
    Entered: _put_entered,
    Gathered: _put_gathered,
    Responded: _put_responded,
    Decided: _put_decided,
    Undecided: _put_undecided,
    Left: _put_left,
    Saved: _put_saved,
    Interrupted: _put_interrupted,
}
_READERS: Mapping[str, Callable[[JsonObject, RunState, Models], Event]] = {
    "Opened": _get_opened,
    "Entered": _get_entered,
    "Gathered": _get_gathered,
    "Responded": _get_responded,
    "Decided": _get_decided,
    "Undecided": _get_undecided,
    "Left": _get_left,
    "Saved": _get_saved,
    "Interrupted": _get_interrupted,
}
