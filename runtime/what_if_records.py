"""The records of a run for a what-if: found by step and place, whatever order another list would have them in.

Times leave out how long a run waited for decisions, which uses up no deadline. Knows nothing of the machine's moves.
"""

from collections.abc import Container, Sequence

from .audit import AuditRecord
from .phases import Broken, Phase
from .replay_facts import broken_of, is_edge
from .replay_tape import Tape, Test, at_hooks, broken_in, cut_in, either, notes_of, of_kind

_BILLS = notes_of("bills")
_SAVING = either(at_hooks("wrap_save_messages"), notes_of("not_saved"), broken_in(Phase.SAVING))
_AT_THE_END = either(of_kind("run_ended"), _SAVING, cut_in(Phase.SAVING), notes_of("sink_failed"))


class Recorded:
    """The records of one run. `members`: the keys of the other list, whose wrappers alone are taken from them."""

    def __init__(self, tape: Tape, members: Container[str]) -> None:
        """Sort the records."""
        self.all = tape.records
        self.started = tape.records[0]
        self.members = members
        self._waited = _waited(tape.records)
        inward = _inward(tape.records)
        self.entering = [one for one in inward if one.hook == "wrap_run" and self.is_member(one)]
        self.opening = [one for one in inward if one.hook != "wrap_run" and self.is_member(one)]
        outward = [one for one in _outward(tape.records) if one not in inward]
        self.leaving = [one for one in outward if is_edge(one) and self.is_member(one)]

    def is_member(self, record: AuditRecord) -> bool:
        """Tell whether who wrote a record is in the other list too."""
        return record.actor in self.members

    def of_step(self, step: int, test: Test) -> Sequence[AuditRecord]:
        """Return the records of a step that pass a test."""
        return [record for record in self.all if record.step == step and test(record)]

    def at(self, record: AuditRecord) -> float:
        """Return when a record was written, less what the run had waited for decisions by then."""
        return record.at - self._waited.get(record.seq, 0.0)

    def ended(self) -> AuditRecord | None:
        """Return the last record that says how the run ended."""
        return next((record for record in reversed(self.all) if record.kind == "run_ended"), None)

    def broken(self, step: int, phase: Phase) -> Broken | None:
        """Return what broke in a phase of a step, unless it was a capability that the other list does not have."""
        return self.standing(self.of_step(step, broken_in(phase)))

    def standing(self, records: Sequence[AuditRecord]) -> Broken | None:
        """Return what records say that broke or cut something, likewise."""
        broken = broken_of(records)
        lost = broken is not None and broken.reason.key is not None and broken.reason.key not in self.members
        return None if lost else broken

    def cut(self, step: int, phases: Sequence[Phase]) -> AuditRecord | None:
        """Return the record that a step was cut short in one of some phases, likewise."""
        for record in self.of_step(step, either(*map(cut_in, phases))):
            if "reason" not in record.facts or self.standing([record]) is not None:
                return record
        return None

    def waiting(self) -> set[str]:
        """Return the calls for whose decision the run still waits; those of runs below it are not its own."""
        if not self._suspended():
            return set()
        decided = {record.call for record in self.all if record.kind == "call_decided"}
        asked: set[str] = set()
        for record in self.all:
            if record.kind == "run_suspended" and not waits_below(self.all, record):
                calls = record.facts["calls"]
                assert isinstance(calls, list)
                asked |= set(map(str, calls))
        return asked - decided

    def held(self) -> bool:
        """Tell whether the run waits for runs below it, as far as it is on record."""
        last = self._suspended()
        return last is not None and waits_below(self.all, last)

    def _suspended(self) -> AuditRecord | None:
        """Return the record that the run waits, where it goes on nowhere."""
        ends = [one for one in self.all if one.kind in {"run_suspended", "run_resumed", "run_ended"}]
        return ends[-1] if ends and ends[-1].kind == "run_suspended" else None

    def given_up(self, step: int) -> bool:
        """Tell whether a run waited in a step when the run that had called it ended, or called it anew."""
        ends = [one for one in self.all if one.kind in {"run_suspended", "run_resumed", "run_ended"}][-2:]
        kinds = [one.kind for one in ends]
        return kinds == ["run_suspended", "run_ended"] and ends[0].step == step

    def while_waiting(self, step: int) -> Sequence[AuditRecord]:
        """Return what wrap_run left when the run was suspended in a step, and when it was entered again."""
        suspended = next((one for one in self.all if one.kind == "run_suspended" and one.step == step), None)
        if suspended is None or self._suspended() is not None:
            return ()
        after = self.all[self.all.index(suspended) :]  # by place: what comes out of wrap_run says step 0
        steps = (i for i, one in enumerate(after) if one.kind == "step_started")
        edges = filter(at_hooks("wrap_run"), after[: next(steps, None)])
        return [one for one in edges if self.is_member(one) and one not in self.leaving]

    def gatherings(self, step: int, hook: str, phase: Phase) -> Sequence[Sequence[AuditRecord]]:
        """Return, for each time that a hook's facts were gathered in a step, the records of it."""
        records = self.of_step(step, lambda _: True)
        fails = broken_in(phase)
        found: list[list[AuditRecord]] = []
        going = False
        for i, record in enumerate(records):
            fact = record.kind == "gathered" and record.hook == hook
            bills = _BILLS(record)
            if bills and not going:  # of a gatherer that asked a model, and then failed
                after = records[i + 1] if i + 1 < len(records) else None
                bills = after is not None and fails(after) and records[i - 1].kind != "gathered"
                fact = fact or bills
            if (fact or fails(record)) and not going:
                found.append([])
                going = True
            going = going and (fact or bills or fails(record))
            if going:
                found[-1].append(record)
        return found


def waits_below(records: Sequence[AuditRecord], suspended: AuditRecord) -> bool:
    """Tell whether a suspended run waits for runs below it: its own batch is judged by then."""
    return any(
        one.kind in {"call_admitted", "call_refused"} and one.step == suspended.step
        for one in records
        if one.seq < suspended.seq
    )


def _waited(records: Sequence[AuditRecord]) -> dict[int, float]:
    found: dict[int, float] = {}
    since, waited = None, 0.0
    for record in records:
        if record.kind == "run_suspended":
            since = record.at
        elif record.kind == "run_resumed" and since is not None:
            waited, since = waited + record.at - since, None
        found[record.seq] = waited
    return found


def _inward(records: Sequence[AuditRecord]) -> Sequence[AuditRecord]:
    """Return the edges between the start of a run and whatever else comes first."""
    found: list[AuditRecord] = []
    for record in records[1:]:
        if not is_edge(record):
            break
        found.append(record)
    return found


def _outward(records: Sequence[AuditRecord]) -> Sequence[AuditRecord]:
    """Return what wrap_run left on the way out of a run that ended."""
    found: list[AuditRecord] = []
    for record in reversed(records):
        if record.hook == "wrap_run" or broken_in(Phase.LEAVING)(record):
            found.append(record)
        elif not _AT_THE_END(record):
            break
    return found[::-1] if any(record.kind == "run_ended" for record in records) else []
