"""From the records of a log back to what the machine was fed: responses, facts, outcomes, decisions, latches.

Reads records, makes parts of events. Knows nothing of how a run goes on, or of which records belong to which effect.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from ..capabilities.frozen import FrozenDict, FrozenList, Json
from ..capabilities.messages import AssistantMessage, Content, Message, UserMessage
from ..capabilities.records import replace
from ..capabilities.run_parts import Fail, Stop
from ..capabilities.state import RunState
from .audit import AuditRecord
from .codec import from_json
from .decisions import Decision
from .entries import Entry
from .errors import CodecError, Reason, ReplayError
from .phases import Broken

R = TypeVar("R")


def entry_of(record: AuditRecord) -> Entry:
    """Return an entry that is written as this record again."""
    restored: dict[str, tuple[object, object]] = {
        name: (_part(pair, "tried"), _part(pair, "kept")) for name, pair in record.restored.items()
    }
    rejected = {
        name: (_part(pair, "tried"), str(_part(pair, "legal"))) for name, pair in record.rejected.items()
    }
    return Entry(
        record.kind,
        record.run,
        record.step,
        record.at,
        record.actor,
        record.call,
        record.index,
        record.hook,
        cast("Mapping[str, Any]", record.changes),  # Any: JSON, which is written as it is
        restored,
        rejected,
        record.facts,
    )


def _part(pair: Json, name: str) -> Json:
    return pair[name] if isinstance(pair, FrozenDict) else pair


def is_edge(record: AuditRecord) -> bool:
    """Tell whether a record is of the edge of a wrapper, which is taken from the log and not run again.

    So is that of a call which a lost worker had begun: it came with what became of the call.
    """
    if record.hook is not None:
        return record.hook.startswith("wrap_")
    return record.kind == "note" and "interrupted" in record.facts


def now_of(records: Sequence[AuditRecord], after: AuditRecord | None) -> float:
    """Return when the event came in: its own first record says it, or else the one after it."""
    own = next((record for record in records if not is_edge(record)), after)
    return own.at if own is not None else records[-1].at if records else 0.0


def read(data: Json, kind: type[R], record: AuditRecord) -> R:
    """Return the value of a type that a fact stands for. Raises ReplayError naming the record's kind and run."""
    try:
        return from_json(data, kind)
    except CodecError as error:
        raise ReplayError(
            f"{record.kind} {record.seq} of run {record.run!r} cannot be read: {error}"
        ) from error


def message_of(data: Json, record: AuditRecord) -> Message:
    """Return a message; the log has no times inside its bodies."""
    plain = {**data, "at": None} if isinstance(data, FrozenDict) else data
    return read(cast(Json, plain), cast("type[Message]", Message), record)


def messages_of(data: Json, record: AuditRecord) -> tuple[Message, ...]:
    """Return messages."""
    return tuple(message_of(one, record) for one in cast(FrozenList, data))


def response_of(data: Json, record: AuditRecord) -> AssistantMessage:
    """Return a response."""
    message = message_of(data, record)
    if not isinstance(message, AssistantMessage):
        raise ReplayError(f"{record.kind} {record.seq} of run {record.run!r} holds no response")
    return message


def prompt_of(started: AuditRecord) -> Content | None:
    """Return the prompt of a run, None for a run without one."""
    given = messages_of(started.facts["prompt"], started)
    return given[0].content if given and isinstance(given[0], UserMessage) else None


def broken_of(records: Iterable[AuditRecord]) -> Broken | None:
    """Return what broke outside, or cut an effect short, as the first note of it says; None without one."""
    for record in records:
        if record.kind == "note" and "reason" in record.facts:
            return Broken(read(record.facts["reason"], Reason, record))
    return None


def latched(run: RunState, records: Iterable[AuditRecord]) -> RunState:
    """Return a run with what wrappers latched, in the order of their edges: the first stop stands, others are notes."""
    stopped, failed, notes = run.stopped, run.failed, list(run.notes)
    for record in records:
        if record.kind == "rejected":
            continue
        changes = {name.removeprefix("run."): change for name, change in record.changes.items()}
        if record.call is not None:  # a call's own notes are none of the run's
            changes = {name[4:]: one for name, one in record.changes.items() if name.startswith("run.")}
        notes += cast("Sequence[str]", member(changes.get("notes"), "added") or ())
        stop, fail = member(changes.get("stopped"), "to"), member(changes.get("failed"), "to")
        place = (record.actor, record.hook, record.call)
        if stop is not None:
            message = str(member(stop, "message"))
            if stopped is None:
                stopped = Stop(message, *place)
            else:
                notes.append(f"stop: {message}")
        if fail is not None:
            reason = str(member(fail, "reason"))
            if failed is None:
                failed = Fail(reason, *place)
            else:
                notes.append(f"fail: {reason}")
    if stopped is run.stopped and failed is run.failed and len(notes) == len(run.notes):
        return run
    return replace(run, stopped=stopped, failed=failed, notes=tuple(notes))


def member(data: object, name: str) -> Json:
    """Return a member of JSON data, None where there is none."""
    return data.get(name) if isinstance(data, FrozenDict) else None


def decision_of(record: AuditRecord) -> Decision:
    """Return what a person decided."""
    return read(record.facts["decision"], cast("type[Decision]", Decision), record)
