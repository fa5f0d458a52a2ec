"""The events at both ends of a run, and of one that waited, for a what-if: from the records of wrappers in its list.

Knows nothing of what lies between opening and leaving.
"""

from collections.abc import Mapping
from typing import cast

from ..capabilities.frozen import Json
from ..capabilities.records import replace
from .audit import AuditRecord
from .conversation import Conversation
from .errors import Blocked
from .phases import (
    Broken,
    CallResult,
    Enter,
    Entered,
    Interrupted,
    Leave,
    Left,
    Open,
    Opened,
    Phase,
    Save,
    Saved,
)
from .replay_events import entries_of
from .replay_facts import is_edge, latched, messages_of
from .setup import Setup
from .what_if_records import Recorded


def opened(recorded: Recorded, effect: Open) -> Opened:
    """Return what a run started with: its history and instructions stand in the record of its start."""
    started, edges = recorded.started, recorded.opening
    facts = started.facts
    conversation = effect.conversation
    history = messages_of(facts["history"], started) if conversation is not None else ()
    if conversation is not None:
        conversation = Conversation(conversation.name, cast("int | None", facts.get("stored")))
    run, instructions = latched(effect.run, edges), str(facts["instructions"])
    broken = recorded.broken(0, Phase.OPENING)
    return Opened(started.at, run, history, instructions, conversation, entries_of(edges), broken)


def first_after(recorded: Recorded) -> AuditRecord:
    """Return the first record that wrap_run, going in, did not leave."""
    return next(one for one in [*recorded.all[1:], recorded.started] if not is_edge(one))


def entered(recorded: Recorded, effect: Enter, now: float, *, again: bool) -> Entered:
    """Return what wrap_run made of a run on the way in. `again`: of one that had waited, and is resumed."""
    edges = recorded.while_waiting(effect.run.run_step) if again else recorded.entering
    return Entered(now, latched(effect.run, edges), entries_of(edges))


def left(recorded: Recorded, effect: Leave, now: float) -> Left:
    """Return what wrap_run made of a run on the way out."""
    edges = recorded.leaving
    broken = recorded.broken(effect.run.run_step, Phase.LEAVING)
    return Left(now, latched(effect.run, edges), entries_of(edges), broken)


def saved(recorded: Recorded, effect: Save, now: float) -> Saved:
    """Return what was saved of a run; all of it, where the run on record ended in another step."""
    step, ended = effect.run.run_step, recorded.ended()
    facts: Mapping[str, Json] = ended.facts if ended is not None and ended.step == step else {}
    run = effect.run
    if recorded.cut(step, [Phase.SAVING]) is not None and facts.get("status") == "cancelled" != run.status:
        run = replace(run, status="cancelled", output=None)
    count = cast(int, facts.get("saved", len(effect.messages)))
    return Saved(now, run, count, broken=recorded.broken(step, Phase.SAVING))


def ended_below(
    recorded: Recorded, setup: Setup, step: int, now: float, results: tuple[CallResult, ...]
) -> Interrupted | None:
    """Return what ended a run that waited for runs below it: its caller, or what wrap_run latched meanwhile."""
    if recorded.given_up(step):
        return Interrupted(now, None, results)
    run = latched(setup.blank, recorded.while_waiting(step))
    if run.failed is not None:
        reason = Blocked(message=run.failed.reason, key=run.failed.key, hook=run.failed.hook, step=step)
        return Interrupted(now, Broken(reason), results)
    if run.stopped is not None:
        return Interrupted(now, None, results, None, run.stopped)
    return None
