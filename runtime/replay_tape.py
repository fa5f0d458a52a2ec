"""Tapes: the records of one run, in their order, and how far a replay has come. Knows nothing of the machine."""

from collections.abc import Callable, Mapping, Sequence

from .audit import AuditRecord
from .errors import ReplayError
from .log import Log
from .phases import Phase

Test = Callable[[AuditRecord], bool]


class Tape:
    """The records of one run. `at`: the next one to come; `places`: where each stands in the whole log."""

    def __init__(self, run: str) -> None:
        """Start empty, at the beginning."""
        self.run = run
        self.at = 0
        self.records: list[AuditRecord] = []
        self.places: list[int] = []

    def add(self, record: AuditRecord, place: int) -> None:
        """Add the next record. Raises ReplayError for one that cannot be replayed."""
        if record.content != "full":
            what = "digests only" if record.content == "digests" else "redacted content"
            raise ReplayError(f"it has {what}: what a replay needs was not stored", place)
        if record.kind == "run_started" and self.records:
            raise ReplayError(f"run {self.run!r} begins again: two runs were given one id", place)
        if not self.records and record.kind != "run_started":
            raise ReplayError(
                f"run {self.run!r} begins elsewhere: this is its record {record.seq}; put the log of what came "
                "before in front of it",
                place,
            )
        self.records.append(record)
        self.places.append(place)

    def peek(self, ahead: int = 0) -> AuditRecord | None:
        """Return the next record, or one further ahead; None where the log has no more of this run."""
        i = self.at + ahead
        return self.records[i] if i < len(self.records) else None

    @property
    def place(self) -> int:
        """Where the next record stands in the whole log; beyond its end where there is none."""
        return self.places[self.at] if self.at < len(self.places) else self.places[-1] + 1

    def ahead(self, belongs: Callable[[AuditRecord], bool], start: int = 0) -> Sequence[AuditRecord]:
        """Return the records from the next one on, `start` of them left out, as far as they belong together.

        The note of a sink that failed may stand anywhere; it is passed over.
        """
        found: list[AuditRecord] = []
        for record in self.records[self.at + start :]:
            if is_foreign(record):
                continue
            if not belongs(record):
                break
            found.append(record)
        return found

    def after(self, records: Sequence[AuditRecord]) -> AuditRecord | None:
        """Return the first record after those that lie ahead."""
        last = records[-1].seq if records else -1
        later = (one for one in self.records[self.at :] if one.seq > last and not is_foreign(one))
        return next(later, None)


def is_foreign(record: AuditRecord) -> bool:
    """Tell whether no run wrote a record, but who writes the log."""
    return record.kind == "note" and "sink_failed" in record.facts


def at_hooks(*hooks: str) -> Test:
    """Return the test for records of hooks."""
    return lambda record: record.hook in hooks


def of_kind(kind: str) -> Test:
    """Return the test for records of a kind."""
    return lambda record: record.kind == kind


def notes_of(*names: str) -> Test:
    """Return the test for notes of certain facts."""
    return lambda record: record.kind == "note" and any(name in record.facts for name in names)


def broken_in(phase: Phase) -> Test:
    """Return the test for the note of what broke in a phase."""
    return lambda record: record.kind == "note" and record.facts.get("broken") == phase.value


def cut_in(phase: Phase) -> Test:
    """Return the test for the note that a phase was cut short."""
    return lambda record: record.kind == "note" and record.facts.get("cut") == phase.value


def either(*tests: Test) -> Test:
    """Return the test for records that pass one of several."""
    return lambda record: any(test(record) for test in tests)


def tapes_of(log: Log) -> Mapping[str, Tape]:
    """Return the tapes of a log by run, in the order in which the runs began. Raises ReplayError."""
    tapes: dict[str, Tape] = {}
    for place, record in enumerate(log):
        tape = tapes.get(record.run)
        if tape is None:
            tape = tapes[record.run] = Tape(record.run)
        tape.add(record, place)
    return tapes
