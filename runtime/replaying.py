"""A replay under way: each effect of the machine becomes the event that is on record, and nothing is performed.

What the machine writes is compared record by record; the first that differs ends the replay. A run below another is
replayed inside the call that ran it, as `subagents` runs it. Knows nothing of agents.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import cast

from ..capabilities.call_state import CallState
from ..capabilities.records import replace
from ..capabilities.run_parts import Stop
from . import machine, replay_batch
from .audit import AuditRecord
from .below import NOTHING, Below, RunBelow, Spent
from .decisions import Decision, Deny
from .ending import end_waiting
from .entries import Entry
from .errors import ReplayError
from .log import Log
from .log_diff import Difference
from .phases import (
    AskApproval,
    CallResult,
    Decided,
    Effect,
    Enter,
    Entered,
    Event,
    Executed,
    Finish,
    Gather,
    Interrupted,
    Leave,
    Open,
    RequestModel,
    Resumed,
    RunTools,
    Save,
    Sent,
    Suspend,
    Undecided,
)
from .replay_events import RUN_EDGE, entries_of, left, opened, problem_with, saved
from .replay_facts import broken_of, decision_of, entry_of, is_edge, latched, now_of
from .replay_requests import REQUEST_NOTES, bills_of, gathered, responded
from .replay_tape import Tape, at_hooks, broken_in, cut_in, either, is_foreign, notes_of, of_kind
from .subagents import TASK, run_id_below
from .work import MachineState

# Of which records what became of an effect consists, beside what broke in its phase.
_REQUESTING = either(of_kind("model_responded"), at_hooks("wrap_model_request"), notes_of(*REQUEST_NOTES))
_GATHERING = either(of_kind("gathered"), notes_of("bills"))


class Replaying:
    """One log being replayed: its tapes, and the log that the replay writes."""

    def __init__(self, tapes: Mapping[str, Tape]) -> None:
        """Start before the first record."""
        self.tapes = tapes
        self.log = Log()
        self._written = 0

    def drive(self, tape: Tape, moved: machine.Moved, *, below: bool = False) -> MachineState:
        """Go from effect to effect to the end of a run, or until nothing is on record that resumes it.

        `below`: it is resumed with the run above it. Raises ReplayError.
        """
        state, effect, entries = moved
        while True:
            self.take(entries)
            if isinstance(effect, Finish):
                return self._ended(tape, state)
            if isinstance(effect, Suspend):
                state = self._suspended(tape, state)
                head = tape.peek()
                if head is None or (not cut_in(state.phase)(head) and (below or head.kind != "run_resumed")):
                    return state
            try:
                state, effect, entries = machine.feed(state, self.event(tape, state, effect))
            except (ValueError, AssertionError, KeyError, IndexError) as error:
                if isinstance(error, ReplayError):
                    raise
                message = f"what is on record does not fit: {type(error).__name__}: {error}"
                raise ReplayError(message, tape.place) from error

    def take(self, entries: Iterable[Entry]) -> None:
        """Compare what the machine wrote with what is on record. Raises ReplayError for the first that differs."""
        for entry in entries:
            tape = self.tapes.get(entry.run)
            if tape is not None:
                self._pass_foreign(tape)
            self.log.append((entry,))
            (record,) = self.log.encoded_since(self._written)
            self._written += 1
            recorded = tape.peek() if tape is not None else None
            problem = problem_with(recorded, record)
            if problem is not None:
                raise ReplayError(*problem[:1], tape.place if tape is not None else None, problem[1])
            assert tape is not None, "else it has no record, which is a problem"
            tape.at += 1

    def _splice(self, records: Iterable[AuditRecord]) -> None:
        """Take records over that no machine writes."""
        self.take(map(entry_of, records))

    def _pass_foreign(self, tape: Tape) -> None:
        while (head := tape.peek()) is not None and is_foreign(head):
            self.log.append((entry_of(head),))
            self._written += 1
            tape.at += 1

    # --- ends

    def _ended(self, tape: Tape, state: MachineState) -> MachineState:
        """Take over what may follow the end of a run: wrappers coming out, and an end that no sink could write."""
        self._splice(tape.ahead(RUN_EDGE))
        self._pass_foreign(tape)
        again = tape.peek()
        if again is not None and again.kind == "run_ended":
            self._splice([again])
            self._pass_foreign(tape)
            state = state._replace(run=replace(state.run, status="failed", output=None))
        rest = tape.peek()
        if rest is not None:
            raise ReplayError(
                f"run {tape.run!r} has ended in the replay, and goes on in the log",
                tape.place,
                Difference(tape.run, rest, None, ()),
            )
        return state

    def _suspended(self, tape: Tape, state: MachineState) -> MachineState:
        """Take over what wrap_run latched while a suspended run was left."""
        edges = tape.ahead(RUN_EDGE)
        self._splice(edges)
        self._pass_foreign(tape)
        return state._replace(run=latched(state.run, edges))

    # --- events

    def event(self, tape: Tape, state: MachineState, effect: Effect) -> Event:
        """Return what became of an effect."""
        self._pass_foreign(tape)
        head = tape.peek()
        if head is None:
            raise ReplayError(
                f"the log ends before run {tape.run!r} does: it waits in phase {state.phase.value}",
                tape.place,
            )
        if isinstance(effect, Open):
            cut = tape.peek(1)
            if cut is not None and cut_in(state.phase)(cut):
                return self._interrupted(tape, state, effect, cut)
            return opened(tape, effect, head)
        if isinstance(effect, Enter):
            edges = tape.ahead(RUN_EDGE)
            after = tape.after(edges)
            if after is None or not cut_in(state.phase)(after):
                return Entered(now_of((), after or head), latched(effect.run, edges), entries_of(edges))
            self._splice(edges)  # a wrapper broke before it had called inward
            head = after
        if cut_in(state.phase)(head):
            return self._interrupted(tape, state, effect, head)
        return self._event(tape, state, effect, head)

    def _event(self, tape: Tape, state: MachineState, effect: Effect, head: AuditRecord) -> Event:
        if isinstance(effect, RequestModel):
            records = tape.ahead(either(_REQUESTING, broken_in(state.phase)))
            return responded(records, effect, now_of(records, tape.after(records)))
        if isinstance(effect, Gather):
            records = tape.ahead(either(_GATHERING, broken_in(state.phase)))
            return gathered(records, effect, now_of(records, tape.after(records)), _no_fact(tape))
        if isinstance(effect, RunTools):
            results, records = replay_batch.executed(tape, state, effect, self._below(tape, state, effect))
            return Executed(now_of(records, tape.after(records)), results)
        if isinstance(effect, AskApproval):
            if head.kind == "run_suspended":
                return Undecided(head.at, str(head.facts["why"]))
            return Decided(head.at, self._decisions(state))
        if isinstance(effect, Suspend):
            return Resumed(head.at, self._decisions(state))
        if isinstance(effect, Leave):
            return left(tape, effect, head)
        assert isinstance(effect, Save)
        return saved(tape, effect, head)

    def _decisions(self, state: MachineState) -> tuple[Decision, ...]:
        """Return the decisions on what is pending; where the run ended before it heard them, any will do."""
        found: list[Decision] = []
        for request in state.pending:
            tape = self.tapes[request.run_id]
            decided = (
                record
                for record in tape.records[tape.at :]
                if record.kind == "call_decided" and record.call == request.call_id
            )
            record = next(decided, None)
            found.append(Deny() if record is None else decision_of(record))
        return tuple(found)

    def _interrupted(self, tape: Tape, state: MachineState, effect: Effect, cut: AuditRecord) -> Interrupted:
        """Return what cut an effect short, and what was known of it by then."""
        skip = cut.seq - tape.records[tape.at].seq + 1
        broken = broken_of([cut])
        stop = Stop(str(cut.facts["stop"]), "caller", "stop") if "stop" in cut.facts else None
        results: tuple[CallResult, ...] = ()
        sent: Sent | None = None
        if isinstance(effect, RunTools):
            below = self._below(tape, state, effect)
            results = replay_batch.cut_short(tape, state, effect, below, skip)
        elif isinstance(effect, RequestModel):
            records = tape.ahead(_REQUESTING, skip)
            came = responded(records, effect, cut.at)
            edges = [record for record in records if is_edge(record)]
            run = latched(effect.run, edges)
            sent = Sent(came.charged, came.bills, came.responses, run, came.entries)
        elif isinstance(effect, Gather):
            records = tape.ahead(either(_REQUESTING, _GATHERING), skip)
            charged, bills = bills_of(records)
            alone = [record for record in records if "requests_without_response" in record.facts]
            charged += sum(cast(int, record.facts["requests_without_response"]) for record in alone)
            sent = Sent(charged, bills)
        return Interrupted(cut.at, broken, results, sent, stop)

    # --- runs below

    def _below(self, tape: Tape, state: MachineState, effect: RunTools) -> Mapping[str, Below]:
        """Replay the runs that a batch called, as far as they went before the next record of this run."""
        found: dict[str, Below] = {}
        for call in effect.calls:
            function = call.tool.function
            if isinstance(function, RunBelow) and call.asked.id in effect.allowances:
                below = self._attempts(tape.place, state, effect, call, function)
                if below is not None:
                    found[call.asked.id] = below
        return found

    def _attempts(
        self, until: int, state: MachineState, effect: RunTools, call: CallState, function: RunBelow
    ) -> Below | None:
        """Replay what a call ran, one attempt after the other; None where nothing had begun by then."""
        resumed = effect.resumed.get(call.asked.id)
        below = Below(effect.allowances[call.asked.id], resumed.held if resumed is not None else None)
        number = first = below.extra + 1
        while True:
            run_id = run_id_below(effect.run.run_id, call.asked.id, number)
            tape = self.tapes.get(run_id)
            head = tape.peek() if tape is not None else None
            if tape is None or head is None or tape.place >= until:
                return below if number > first else None
            if resumed is not None and head.kind != "run_resumed":  # no wrapper went inward to it
                run, entries = end_waiting(resumed.state, head.at)
                self.take(entries)
                below.end(Spent.by(run))
                return below
            if below.waiting is not None:
                run, entries = end_waiting(below.waiting, head.at)
                self.take(entries)
                below.end(Spent.by(run))
            setup = function.setup_under(state.setup, below.left(number - 1))
            if resumed is not None:
                held = resumed.state._replace(setup=setup)
                moved = machine.resume(held, resumed.decisions, head.at)
                resumed = None
            else:
                task, context = str(call.arguments[TASK]), effect.run.context
                moved = machine.start(
                    setup, task, run_id=run_id, now=head.at, context=context, above=effect.run
                )
            ended: list[MachineState] = []
            below.begin(run_id, lambda ended=ended: Spent.by(ended[0].run) if ended else NOTHING)  # type: ignore[misc]  # mypy knows no default here
            ended.append(self.drive(tape, moved, below=True))
            if ended[0].run.status == "suspended":
                below.waiting = ended[0]
            number += 1


def _no_fact(tape: Tape) -> Callable[[str], None]:
    def missing(what: str) -> None:
        raise ReplayError(
            f"no fact of {what} is on record: other gatherers are called than in the run", tape.place
        )

    return missing
