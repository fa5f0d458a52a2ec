"""The events at both ends of a run, from their records; and whether a record came out as it is in the log.

Knows nothing of what lies between opening and leaving.
"""

from collections.abc import Sequence
from typing import cast

from ..capabilities.frozen import FrozenDict
from ..capabilities.records import replace
from .audit import AuditRecord
from .conversation import Conversation
from .entries import OUTSIDE_DIGEST, Entry
from .log_diff import Difference, difference_of
from .phases import Leave, Left, Open, Opened, Phase, Save, Saved
from .replay_facts import broken_of, entry_of, is_edge, latched, messages_of, now_of
from .replay_tape import Tape, at_hooks, broken_in, either, notes_of

RUN_EDGE = at_hooks("wrap_run")
_OPENING = either(at_hooks("wrap_load_messages", "wrap_prompt"), broken_in(Phase.OPENING))
_LEAVING = either(RUN_EDGE, broken_in(Phase.LEAVING))
_SAVING = either(at_hooks("wrap_save_messages"), notes_of("not_saved"), broken_in(Phase.SAVING))
_LISTED = 3


def entries_of(records: Sequence[AuditRecord]) -> tuple[Entry, ...]:
    """Return entries that are written as these records again."""
    return tuple(map(entry_of, records))


def opened(tape: Tape, effect: Open, started: AuditRecord) -> Opened:
    """Return what a run started with: its history and instructions stand in the record of its start."""
    records = tape.ahead(_OPENING, 1)
    edges = [record for record in records if is_edge(record)]
    facts = started.facts
    conversation = effect.conversation
    if conversation is not None:
        conversation = Conversation(conversation.name, cast("int | None", facts.get("stored")))
    history = messages_of(facts["history"], started) if conversation is not None else ()
    run, instructions = latched(effect.run, edges), str(facts["instructions"])
    return Opened(started.at, run, history, instructions, conversation, entries_of(edges), broken_of(records))


def left(tape: Tape, effect: Leave, head: AuditRecord) -> Left:
    """Return what wrap_run made of a run on the way out."""
    records = tape.ahead(_LEAVING)
    edges = [record for record in records if is_edge(record)]
    now = now_of((), tape.after(records) or head)
    return Left(now, latched(effect.run, edges), entries_of(edges), broken_of(records))


def saved(tape: Tape, effect: Save, head: AuditRecord) -> Saved:
    """Return what was saved of a run: how much of it stands in the record of its end."""
    records = tape.ahead(_SAVING)
    after = tape.after(records)
    told = [record for record in records if "broken" not in record.facts]
    facts = after.facts if after is not None else FrozenDict()
    run = replace(effect.run, notes=latched(effect.run, told).notes)
    if facts.get("status") == "cancelled" != run.status:
        run = replace(run, status="cancelled", output=None)  # it was cut short while it saved
    broken = broken_of([record for record in records if "broken" in record.facts])
    return Saved(now_of((), after or head), run, cast(int, facts.get("saved", 0)), entries_of(told), broken)


def problem_with(recorded: AuditRecord | None, record: AuditRecord) -> tuple[str, Difference | None] | None:
    """Say how a record that the replay wrote is not the one in the log, or None."""
    if recorded is None:
        difference = Difference(record.run, None, record, ())
        return f"the log ends before the replay does: {difference.place} is missing", difference
    unchained = record.kind in OUTSIDE_DIGEST
    if (
        recorded.digest == record.digest
        and recorded.kind == record.kind
        and not (unchained and recorded.facts != record.facts)
    ):
        return None
    fields = difference_of(recorded, record)
    if not fields or recorded.body == record.body:
        what = "its digest is not that of what it holds, which was changed after it was written"
        return f"{recorded.actor} {recorded.hook or recorded.kind}: {what}", None
    difference = Difference(record.run, recorded, record, fields)
    listed = "; ".join(str(one) for one in fields[:_LISTED])
    more = f"; and {len(fields) - _LISTED} more" if len(fields) > _LISTED else ""
    return f"{difference.place} came out differently: recorded | replayed: {listed}{more}", difference
