"""The log of a run: entries in, records out, chained; and what it takes to read one back and verify it.

In memory it keeps references and encodes when it is first read. Knows nothing of sinks or how a run goes on.

What `verify` checks, in this order, for each record:
1. its seal follows the seal before it: any changed, removed, added or moved byte of a file;
2. it follows, within its run, the number and the digest of the record before it;
3. its digest is that of its body: with the content left out or redacted this cannot be known;
4. the runs below a settled call end where it says, likewise.
"""

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, cast, overload

from attrs import frozen

from ..capabilities.records import replace
from ..capabilities.secret import Secret
from .audit import AuditRecord, next_digest, record_of
from .entries import Entry, Row, entry_of
from .errors import LogError
from .seals import Sealer, key_bytes, next_seal, parse_line, unsealed

if TYPE_CHECKING:
    from pathlib import Path

# A run is whole when its last record is one of these: it has ended, or waits, suspended, to be resumed.
ENDS = frozenset({"run_ended", "run_suspended"})
# What may still follow: that a sink failed, and what wrap_run did on its way out of a suspended run.
AFTER_END = frozenset({"note", "transition", "restored", "rejected"})
_SQLITE = b"SQLite format 3\0"  # how such a file begins
_SERVERS = ("postgresql://", "postgres://")


@frozen
class Tail:
    """Where the log of a run stands: the number of the record to come, and the digest before it."""

    run: str
    seq: int = 0
    digest: str = ""


@frozen
class Verified:
    """A log that holds. `complete` and `head`: see `Log`; an incomplete one was cut off, or goes on."""

    records: int
    complete: bool
    head: str


class Log(Sequence[AuditRecord]):
    """The records of a run and of the runs below it, or, read from a file, of all that shared its sink.

    Numbers and digests chain per run. A log of a resumed run holds what came after.
    """

    __slots__ = ("_lock", "_pending", "_records", "_tails")

    def __init__(self, entries: Iterable[Entry] = (), *, tails: Iterable[Tail] = ()) -> None:
        """Take what the machine wrote down; runs in `tails` continue there."""
        self._records: list[AuditRecord] = []
        self._pending: list[Entry | Row] = list(entries)
        self._tails = {tail.run: tail for tail in tails}
        # Reading encodes, and a run may be read from another thread while it goes on.
        self._lock = Lock()

    @classmethod
    def resume(cls, *tails: Tail) -> "Log":
        """Return an empty log whose runs continue at `tails`, which a snapshot carries."""
        return cls(tails=tails)

    @classmethod
    def from_records(cls, records: Iterable[AuditRecord], tails: Iterable[Tail] = ()) -> "Log":
        """Return a log of records that exist already; none of them is checked."""
        log = cls(tails=tails)
        log._records = list(records)
        log._tails.update({r.run: Tail(r.run, r.seq + 1, r.digest) for r in log._records})
        return log

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as records: entries hold functions and models by reference."""
        return (Log.from_records, (tuple(self), self.tails))

    def append(self, entries: Iterable[Entry | Row]) -> None:
        """Add entries, by reference. The runtime's own; reading never changes a log."""
        self._pending.extend(entries)

    def adopt(self, records: Iterable[AuditRecord]) -> None:
        """Add records of runs below, which were made elsewhere; none of them is checked."""
        self._read()
        for record in records:
            self._records.append(record)
            self._tails[record.run] = Tail(record.run, record.seq + 1, record.digest)

    def encoded_since(self, n: int) -> Sequence[AuditRecord]:
        """Return the records from number `n` on: what a sink has not had yet."""
        return self._read()[n:]

    def __len__(self) -> int:
        """Count the records; none is encoded for it."""
        with self._lock:
            return len(self._records) + len(self._pending)

    @overload
    def __getitem__(self, index: int) -> AuditRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[AuditRecord]: ...
    def __getitem__(self, index: int | slice) -> AuditRecord | Sequence[AuditRecord]:
        """Return one record, or several."""
        return self._read()[index]

    def __repr__(self) -> str:
        """Counts, not contents."""
        return f"<Log of {len(self)} records>"

    @property
    def tails(self) -> tuple[Tail, ...]:
        """Where each run stands, in order of appearance: what a snapshot carries."""
        self._read()
        return tuple(self._tails.values())

    @property
    def head(self) -> str:
        """The digest of the root run's last record; the root run is the first one. "" for an empty log."""
        tails = self.tails
        return tails[0].digest if tails else ""

    @property
    def complete(self) -> bool:
        """Whether every run in it has ended, or waits suspended; False for an empty log."""
        last = {record.run: record.kind for record in self if record.kind not in AFTER_END}
        return bool(last) and ENDS.issuperset(last.values())

    def to_jsonl(self, *, key: bytes | Secret | None = None) -> str:
        """Return the log as JSON lines, sealed anew from the first record on, with `key` or without."""
        sealer = Sealer(key=key_bytes(key))
        return "".join(f"{sealer.line(record)}\n" for record in self)

    def _read(self) -> list[AuditRecord]:
        """Encode what is pending, in order; what is not encodable stays pending and raises again."""
        with self._lock:
            done = 0
            try:
                for kept in self._pending:
                    entry = entry_of(kept)
                    tail = self._tails.get(entry.run) or Tail(entry.run)
                    if entry.kind == "tool_settled" and "below" in entry.facts:
                        entry = self._with_heads(entry)  # as encoded
                    record = record_of(entry, tail.seq, tail.digest)
                    self._tails[entry.run] = Tail(entry.run, tail.seq + 1, record.digest)
                    self._records.append(record)
                    done += 1
            finally:
                del self._pending[:done]
            return self._records

    def _with_heads(self, entry: Entry) -> Entry:
        """Return the entry of a settled call that answers for the runs below it, by their last digests."""
        runs = cast("tuple[str, ...]", entry.facts["below"])
        branches = [{"run": run, "head": self._tails[run].digest} for run in runs]
        return entry._replace(facts={**entry.facts, "below": branches})


def read_log(path: "str | Path | Secret", *, run: str | None = None) -> Log:
    """Read a log: a file of JSON lines, the file of a `SQLiteLog`, or the URL of a `PostgresLog`, in a Secret or not.

    `run`: read that run only, and the runs below it. Its records are without seals, which chain those of all
    runs; their digests chain as ever. Raises LogError naming the first record that is not exactly as it was
    stored, a torn last line included, or for what is no log; LookupError for a run that is not in it, or a Secret
    that is not set; OSError or StoreError when it cannot be read. Chains are for `verify` to check.
    """
    log, problem = scan_log(path, run=run)
    if problem is not None:
        raise problem
    return log


def scan_log(path: "str | Path | Secret", *, run: str | None = None) -> tuple[Log, LogError | None]:
    """Read a log up to the first record that is not exactly as it was stored; return it and what is wrong."""
    if isinstance(path, Secret) or (isinstance(path, str) and path.startswith(_SERVERS)):
        from .log_databases import scan_server  # noqa: PLC0415  # for those who have such a log

        log, problem = scan_server(path, run)
    else:
        log, problem = _scan_file(path, run)
    if run is not None and problem is None and not log:
        raise LookupError(f"the log has no record of run {run!r:.200}")
    return log, problem


def _scan_file(path: "str | Path", run: str | None) -> tuple[Log, LogError | None]:
    from pathlib import Path  # noqa: PLC0415  # with urllib below it 3 ms of the import

    with Path(path).open("rb") as file:
        data = file.read(len(_SQLITE))
        if data == _SQLITE:
            from .log_databases import scan_file  # noqa: PLC0415  # for those who have such a log

            return scan_file(Path(path), run)
        data += file.read()
    if not data:
        return Log(), LogError("the file is empty: it is no log, or was cut off before its first record")
    *lines, torn = data.split(b"\n")
    records: list[AuditRecord] = []
    problem = None
    try:
        for line in lines:
            records.append(parse_line(line, len(records)))
        if torn:
            # Named as what it is where that is sure; garbage of one line is no torn log.
            hint = "" if records else "; is this a log at all?"
            raise LogError(f"the last line is torn: it does not end in a newline{hint}", len(records))
    except LogError as error:
        problem = error
    return Log.from_records(records if run is None else of_run(records, run)), problem


def of_run(records: Iterable[AuditRecord], run: str) -> list[AuditRecord]:
    """Return the records of a run and of those below it, whose ids begin with its own; without their seals."""
    below = f"{run}/"
    return [replace(one, seal="") for one in records if one.run == run or one.run.startswith(below)]


def verify(log: Log, *, key: bytes | Secret | None = None, head: str | None = None) -> Verified:
    """Check a log record by record, and return what it comes to.

    `key`: that of its seals. `head`: where the log should end, by the digest of a run's last record or the
    seal of the last line. Raises LogError naming the first bad record; for a `head` that is not reached, the
    number after the last one. A log that ends at a record boundary before its runs do is returned with
    `complete` False.
    """
    if not isinstance(log, Log):
        raise TypeError(f"verify takes a Log, as read_log(path) returns it, not {type(log).__name__}")
    secret = key_bytes(key)
    records = log.encoded_since(0)
    last: dict[str, AuditRecord] = {}
    begun: set[str] = set()
    seal = ""
    for number, record in enumerate(records):
        problem = (
            _seal_problem(record, seal, secret, sealed=bool(records[0].seal))
            or _place_problem(record, last.get(record.run))
            or _digest_problem(record)
            or _branch_problem(record, last, whole=record.run in begun)
        )
        if problem is not None:
            raise LogError(problem, number)
        last[record.run] = record
        if record.seq == 0:
            begun.add(record.run)
        seal = record.seal
    ends = {record.digest for record in last.values()} | {seal}
    if head is not None and head not in ends - {""}:
        raise LogError(
            f"the log was cut off before it, or is another one: it does not reach {head}", len(log)
        )
    return Verified(len(log), log.complete, log.head)


def _seal_problem(record: AuditRecord, prev: str, key: bytes | None, *, sealed: bool) -> str | None:
    if not sealed and key is None:
        return "it is sealed, and the first record is not" if record.seal else None
    if not record.seal:
        return "it is not sealed: a log in memory has no seals for a key to check"
    if record.seal == next_seal(prev, unsealed(record), key):
        return None
    return (
        "its seal does not fit: it was changed, it does not follow the record before it, or the log was "
        f"sealed {'with a key' if key is None else 'without this key'}"
    )


def _place_problem(record: AuditRecord, before: AuditRecord | None) -> str | None:
    begins = record.seq == 0 and not record.prev
    if before is None:
        # A run that was suspended may go on in a log of its own.
        if begins or record.kind == "run_resumed":
            return None
        return f"it is number {record.seq} of run {record.run!r}, of which nothing stands before it"
    if begins and record.kind == "run_started" and before.kind == "run_ended":
        return None  # the caller gave two runs one id
    if record.seq != before.seq + 1:
        return f"it is number {record.seq} of run {record.run!r}; {before.seq + 1} would follow"
    if record.prev != before.digest:
        return f"it does not follow the digest before it in run {record.run!r}"
    return None


def _digest_problem(record: AuditRecord) -> str | None:
    if record.content != "full" or record.digest == next_digest(record.prev, record.body):
        return None
    return "its digest is not that of its contents"


def _branch_problem(record: AuditRecord, last: Mapping[str, AuditRecord], *, whole: bool) -> str | None:
    """Say how the runs below a settled call do not end as it says. `whole`: its own run began in this log."""
    if record.kind != "tool_settled" or record.content != "full":
        return None
    for branch in cast("Sequence[Mapping[str, str]]", record.facts.get("below", ())):
        end = last.get(branch["run"])
        if end is None and whole:
            return f"it settles a call of run {branch['run']!r}, of which nothing stands before it"
        if end is not None and end.digest != branch["head"]:
            return f"it settles a call of run {branch['run']!r}, which does not end in the digest it names"
    return None
