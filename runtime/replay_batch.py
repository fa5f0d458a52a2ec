"""What became of a batch of tool calls, read back from its records: outcomes, latches of wrappers, who still waits.

A batch settles in call order, up to a call whose sub-agent waits for decisions; those after it settle with it later,
and until then their outcomes stand in `run_suspended`. Knows nothing of how the runs below are replayed.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from ..capabilities.call_state import CallState
from ..capabilities.frozen import FrozenDict, Json
from ..capabilities.records import replace
from ..capabilities.verdict import Outcome, Verdict
from .audit import AuditRecord
from .below import NOTHING, Below
from .ending import NOT_EXECUTED
from .phases import Broken, CallResult, RunTools
from .replay_facts import broken_of, entry_of, is_edge, latched, read
from .replay_tape import Tape, broken_in
from .work import MachineState

Batch = tuple[CallResult, ...]


def executed(
    tape: Tape, state: MachineState, effect: RunTools, below: Mapping[str, Below]
) -> tuple[Batch, Sequence[AuditRecord]]:
    """Return what became of all calls of an effect, and the records of it that come next."""
    records = _ahead(tape, state, 0)
    found: list[CallResult] = []
    for call in effect.calls:
        name = call.asked.id
        edges = [record for record in records if record.call == name and is_edge(record)]
        settled, outcome = _outcome(tape, call)
        found.append(_result(effect, call, edges, settled, outcome, below.get(name)))
    return _with_broken(found, broken_of(tape.ahead(broken_in(state.phase), len(records)))), records


def cut_short(
    tape: Tape, state: MachineState, effect: RunTools, below: Mapping[str, Below], skip: int
) -> Batch:
    """Return what was known of the calls of a batch that was cut short; nothing of those that never began.

    `skip`: how many records come before those of the batch. What the machine gives a call of which nothing was known
    stands behind all that was known, and out of turn.
    """
    records = _ahead(tape, state, skip)
    order = {call.asked.id: i for i, call in enumerate(state.batch)}
    waits = [order[name] for name, one in below.items() if one.waiting is not None]
    first = min(waits, default=len(order))
    known: set[str] = set()
    ends: set[str] = set()
    last = -1
    used = 0
    for record in records:
        name = str(record.call)
        if name in state.held and name not in below:
            break  # it had waited, and was not resumed yet
        if order[name] < last or name in ends or (not is_edge(record) and order[name] >= first):
            break
        last, used = order[name], used + 1
        known.add(name)
        if not is_edge(record):
            ends.add(name)
    found: list[CallResult] = []
    for call in effect.calls:
        name = call.asked.id
        settled, outcome = _outcome(tape, call)
        waiting = name in below and below[name].waiting is not None
        held = order[name] > first and outcome is not None and outcome != NOT_EXECUTED
        if name in known or waiting or held:
            edges = [record for record in records if record.call == name and is_edge(record)]
            found.append(_result(effect, call, edges, settled, outcome, below.get(name)))
    return _with_broken(found, broken_of(tape.ahead(broken_in(state.phase), skip + used)))


def _ahead(tape: Tape, state: MachineState, skip: int) -> Sequence[AuditRecord]:
    batch = {call.asked.id for call in state.batch}
    return tape.ahead(
        lambda one: one.call in batch and (one.kind == "tool_settled" or _is_of_call(one)),
        skip,
    )


def _is_of_call(record: AuditRecord) -> bool:
    return record.hook == "wrap_tool_execute" or (record.hook is None and is_edge(record))


def _outcome(tape: Tape, call: CallState) -> tuple[AuditRecord | None, Outcome | None]:
    """Return the next record that says what became of a call, and its outcome."""
    name = call.asked.id
    for record in tape.records[tape.at :]:
        if record.kind == "tool_settled" and record.call == name:
            return record, read(record.facts["outcome"], Outcome, record)
        if record.kind == "run_suspended":
            outcomes = cast("FrozenDict[Json]", record.facts.get("outcomes", FrozenDict()))
            if name in outcomes:
                settled = next(
                    (one for one in tape.records if one.kind == "tool_settled" and one.call == name), None
                )
                return settled, read(outcomes[name], Outcome, record)
    return None, None


def _result(  # noqa: PLR0917  # one call, and all that is known of it
    effect: RunTools,
    call: CallState,
    edges: Sequence[AuditRecord],
    settled: AuditRecord | None,
    outcome: Outcome | None,
    below: Below | None,
) -> CallResult:
    run, entries = latched(effect.run, edges), tuple(map(entry_of, edges))
    runs, spent = (below.runs, below.spent) if below is not None else ((), NOTHING)
    again = max(0, len(runs) - 1)
    if below is not None and below.waiting is not None:
        return CallResult(call, run, again, entries, None, runs, spent, below.held(again - below.extra))
    extra = cast(int, settled.facts.get("extra", 0)) if settled is not None else again
    done = decided_by(replace(call, outcome=outcome or NOT_EXECUTED), edges)
    return CallResult(done, run, extra, entries, None, runs, spent)


def decided_by(call: CallState, edges: Sequence[AuditRecord]) -> CallState:
    """Return a call that has its outcome with the verdict of the wrapper that made it, where one did."""
    assert call.outcome is not None
    for record in reversed(edges):
        change = record.changes.get("verdict")
        if record.actor == call.outcome.by and record.kind != "rejected" and isinstance(change, FrozenDict):
            return replace(call, verdict=read(change["to"], Verdict, record))
    return call


def _with_broken(results: list[CallResult], broken: Broken | None) -> Batch:
    """Return the results with what ends the run; whose it is does not matter, since the first one counts."""
    if broken is not None and results:
        results[-1] = results[-1]._replace(broken=broken)
    return tuple(results)
