"""What must hold of any tale that was told: its log and its states against what the world saw, as assertions.

Each truth looks at the whole and says in its message what is wrong. Knows nothing of how tales are drawn or told.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from attrs import evolve, fields

from ..capabilities.frozen import canonical, same
from ..capabilities.owners import ANY, RULES, Owner
from ..capabilities.state import RunState
from ..capabilities.views import balance_problem
from .audit import BODY, AuditRecord, next_digest
from .entries import OUTSIDE_DIGEST
from .laws_lives import quiet
from .laws_play import Told
from .laws_strangers import LOST
from .laws_truths_of_calls import bodies_were_allowed, bodies_were_offered, outcomes_tell_what_ran
from .laws_world import ROOT
from .log import verify
from .log_replay import Replayed, replay
from .transitions import CALL_OWNERS, RUN_OWNERS


def check_told(told: Told) -> Replayed:
    """Raise AssertionError for the first truth that does not hold; return the replay of the run."""
    for truth in TRUTHS:
        truth(told)
    with quiet():
        again = replay(told.log, told.agent)
    _replayed(told, again)
    _counted(told, again.state)
    return again


# --- the history


def history_is_closed(told: Told) -> None:
    """Each call of a run has one outcome in the history, directly after it; so in what is stored."""
    if told.result is not None:
        problem = balance_problem(told.result.messages)
        assert problem is None, problem
        calls = [call.id for message in told.result.messages for call in getattr(message, "tool_calls", ())]
        assert len(calls) == len(set(calls)), "two calls of a history have one id"
    problem = balance_problem(told.stored)
    assert problem is None, f"stored: {problem}"


def outcomes_are_single(told: Told) -> None:
    """Each call on record was settled or refused once, and each run has one end."""
    ended = Counter(record.run for record in told.log if record.kind == "run_ended")
    outcomes = Counter(
        (record.run, record.call) for record in told.log if record.kind in {"tool_settled", "call_refused"}
    )
    began = {(r.run, r.call) for r in told.log if r.kind in {"call_admitted", "tool_started", "call_decided"}}
    for place, times in outcomes.items():
        assert times == 1, f"{place} has {times} outcomes"
    for run, call in began:
        assert (run, call) in outcomes or run not in ended, f"{call} of run {run} has no outcome"
    if not _sink_failed(told):
        for run, times in ended.items():
            assert times == 1, f"run {run} ended {times} times"


def _sink_failed(told: Told) -> bool:
    return any("SinkFailed" in str(record.facts.get("reason")) for record in told.log)


# --- the log


def writes_are_legal(told: Told) -> None:
    """What took effect is what its owner allows at that hook, and a slot is written by its own capability alone."""
    for record in told.log:
        for name, change in record.changes.items():
            field = name.removeprefix("run.")
            nested = name != field
            owner = RUN_OWNERS.get(field) if nested or record.call is None else CALL_OWNERS.get(field)
            if owner is None or record.hook is None:
                continue
            allowed = RULES[owner].allowed
            where = f"{record.actor}.{record.hook} wrote {name}"
            assert ANY in allowed or record.hook in allowed, f"{where}, which it may not"
            if owner is Owner.PRIVATE:
                written = set(cast(Any, change)["set"])
                assert written <= {record.actor}, f"{where} of {', '.join(written)}"


def log_is_whole(told: Told) -> None:
    """The log holds, is complete where the run has an end, and no part of a record can be another unseen."""
    seen = verify(told.log)
    over = told.result is not None and told.result.status != "suspended"
    assert seen.complete or not over, "a run is over, and its log is not complete"
    for record in {
        record.kind: record for record in told.log
    }.values():  # one of each kind: each costs ten digests
        if record.kind not in OUTSIDE_DIGEST:
            _covered(record)
    facts = {canonical(_bound(request)): request.digest for request in told.world.asked}
    assert len(facts) == len(set(facts.values())), "one approval would fit two calls"


def _covered(record: AuditRecord) -> None:
    body = record.body
    for name in BODY:
        changed = next_digest(record.prev, {**body, name: "another"})
        assert changed != record.digest, f"the digest of a record does not cover {name}"


def _bound(request: Any) -> Any:  # Any: JSON
    return [request.run_id, request.call_id, request.tool, request.arguments]


def facts_arrived(told: Told) -> None:
    """What a gatherer brought, its reducer found."""
    for record in told.log:
        notes = record.changes.get("notes") or record.changes.get("run.notes")
        lost = LOST in str(notes)
        assert not lost, (
            f"{record.actor}.{record.hook} did not find in step {record.step} what was gathered for it"
        )


def nothing_is_left(told: Told) -> None:
    """No task of the run goes on after it."""
    assert not told.left, f"still running: {', '.join(told.left)}"


# --- the numbers


def limits_hold(told: Told) -> None:
    """What reached models and tools is within the limits of the run, sub-agents included."""
    limits, world = told.tale.root.limits, told.world
    steps = Counter(record.run for record in told.log if record.kind == "step_started")
    for run, taken in steps.items():
        below = run != ROOT and told.tale.helper is not None
        most = told.tale.helper.limits.max_steps if below and told.tale.helper else limits.max_steps
        assert taken <= most, f"run {run} took {taken} steps, and may take {most}"
    if limits.requests is not None:
        assert len(world.sent) <= limits.requests, (
            f"{len(world.sent)} requests, {limits.requests} are allowed"
        )
    if limits.tool_calls is not None:
        ran = len(world.bodies)
        assert ran <= limits.tool_calls, f"{ran} bodies ran, {limits.tool_calls} calls are allowed"


TRUTHS: Final[Sequence[Callable[[Told], None]]] = (
    history_is_closed,
    outcomes_are_single,
    bodies_were_offered,
    bodies_were_allowed,
    outcomes_tell_what_ran,
    writes_are_legal,
    log_is_whole,
    facts_arrived,
    limits_hold,
    nothing_is_left,
)


def _counted(told: Told, state: RunState) -> None:
    """The counters of a run say what was asked of models and tools, by it and all below it."""
    world = told.world
    assert state.requests == len(world.sent), (
        f"{len(world.sent)} requests were sent, {state.requests} counted"
    )
    tokens = 5 * world.answered
    assert state.usage.total == tokens, f"{tokens} tokens were used, {state.usage.total} counted"
    assert state.tool_calls >= len(world.bodies), (
        f"{len(world.bodies)} bodies ran, {state.tool_calls} calls were counted"
    )
    most = told.tale.root.limits.tool_calls
    assert most is None or state.tool_calls <= most, f"{state.tool_calls} calls, {most} are allowed"
    own = sum(record.kind == "step_started" and record.run == ROOT for record in told.log)
    assert state.run_step == own, f"{own} steps were begun, {state.run_step} counted"


def _replayed(told: Told, again: Replayed) -> None:
    """The log is folded again to the same records, and to the state that the run ended in."""
    mine = [(r.run, r.seq, r.kind, r.digest) for r in told.log]
    theirs = [(r.run, r.seq, r.kind, r.digest) for r in again.records]
    assert mine == theirs, "a replay wrote another log"
    if told.result is not None:
        state = evolve(told.result.state, model=None)
        other = evolve(again.state, model=None)
        differ = [
            f"{one.name} {getattr(state, one.name)!r:.200} | {getattr(other, one.name)!r:.200}"
            for one in fields(RunState)
            if not same(getattr(state, one.name), getattr(other, one.name))
        ]
        assert not differ, f"a replay came to another state: {'; '.join(differ)}"
