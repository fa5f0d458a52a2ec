"""The log: lazy, chained per run, read back byte for byte; and `verify` names the first bad record."""

import copy
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import example, given
from hypothesis import strategies as st

from capfold.capabilities.frozen import canonical, freeze_mapping
from capfold.capabilities.secret import Secret
from capfold.runtime.audit import AuditRecord, next_digest
from capfold.runtime.entries import Entry
from capfold.runtime.errors import CodecError, LogError
from capfold.runtime.log import Log, Tail, Verified, read_log, scan_log, verify
from capfold.runtime.seals import Sealer, next_seal, unsealed
from tests.runtime.entries_story import digests, story

KEY = b"a key of the auditor"
TEXT = Log(story()).to_jsonl()
LINES = TEXT.splitlines()
N = len(LINES)


def read(folder: Path, data: bytes | str) -> Log:
    """Write a file and read it as a log."""
    path = folder / "log.jsonl"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_log(path)


def bad_record(folder: Path, data: bytes | str, *, key: bytes | None = None) -> int | None:
    """Return the number of the record that reading or verifying names."""
    with pytest.raises(LogError) as raised:
        verify(read(folder, data), key=key)
    return raised.value.record


# --- in memory


class Watched(Entry):
    """An entry that counts how often its changes are looked at."""

    looks = 0

    def __getattribute__(self, name: str) -> object:
        if name == "facts":
            Watched.looks += 1
        return super().__getattribute__(name)


def test_nothing_is_encoded_until_it_is_read() -> None:
    """Appending and counting keep references; the first reading encodes, a second one does not."""
    Watched.looks = 0
    log = Log()
    log.append([Watched("note", "r", 1, 0.0), Watched("note", "r", 1, 0.0)])
    assert (2, 0) == (len(log), Watched.looks)
    assert "note" == log[0].kind
    assert [0, 1] == [record.seq for record in log]
    assert 2 == Watched.looks


def test_reading_does_not_change_a_log() -> None:
    """A log that was read between appends equals one that was not."""
    entries = story()
    log = Log()
    for entry in entries:
        log.append([entry])
        assert log.head == log[-1].digest
    assert digests(entries) == [record.digest for record in log]


def test_chain() -> None:
    """Each digest follows the one before it, the first one nothing; each run counts from 0."""
    log = Log(story())
    assert ["", *[record.digest for record in log][:-1]] == [record.prev for record in log]
    assert list(range(len(log))) == [record.seq for record in log]
    assert log.head == log[-1].digest
    assert len({record.digest for record in log}) == len(log)


def test_interleaved_runs_chain_by_themselves() -> None:
    """Whatever else is in the log, a run has the digests that it has alone."""
    one, other = story("run-1"), story("run-2", end=False)
    mixed = Log(entry for pair in zip(one, other, strict=False) for entry in pair)
    mixed.append(one[len(other) :])
    assert digests(one) == [record.digest for record in mixed if record.run == "run-1"]
    assert digests(other) == [record.digest for record in mixed if record.run == "run-2"]
    assert digests(one)[-1] == mixed.head


def test_a_suspended_and_resumed_run_has_the_digests_of_one_that_was_not() -> None:
    """Suspending is how a run was carried, not what it did."""
    entries = story()
    carried = [Entry("run_suspended", "run-1", 1, 200.0), Entry("run_resumed", "run-1", 1, 300.0)]
    log = Log([*entries[:5], *carried, *entries[5:]])
    assert Log(entries).head == log.head


def test_resumed_log_continues_where_the_tail_says() -> None:
    """Two logs, before and after a suspension, are one chain; the second holds together by itself."""
    entries = story()
    first = Log([*entries[:5], Entry("run_suspended", "run-1", 1, 200.0)])
    second = Log.resume(*first.tails)
    assert first.head == second.head
    second.append([Entry("run_resumed", "run-1", 1, 300.0), *entries[5:]])
    assert (Tail("run-1", 6, first.head),) == first.tails
    assert 6 == second[0].seq
    assert digests(entries)[-1] == second.head
    assert Verified(6, complete=True, head=second.head) == verify(second)


@pytest.mark.parametrize(
    ("last", "complete"),
    [("run_ended", True), ("run_suspended", True), ("run_resumed", False), ("note", False)],
)
def test_complete(last: str, complete: bool) -> None:  # noqa: FBT001  # a column of the table above
    """A run is whole when it has ended or waits suspended."""
    log = Log([*story(end=False), Entry(last, "run-1", 1, 0.0)])  # type: ignore[arg-type]  # kinds of the table
    assert complete is log.complete


def test_one_open_run_makes_a_log_incomplete() -> None:
    """Every run counts, not the first alone; nothing at all is not complete either."""
    assert not Log([*story("run-1"), *story("run-2", end=False)]).complete
    assert not Log().complete
    assert "" == Log().head


def test_encoded_since() -> None:
    """A sink gets what it has not had."""
    log = Log(story())
    assert list(log)[3:] == list(log.encoded_since(3))
    assert [] == list(log.encoded_since(len(log)))


def test_slices_and_copies() -> None:
    """A log is a sequence; it pickles and copies as records."""
    log = Log(story())
    assert list(log)[2:4] == list(log[2:4])
    for twin in (pickle.loads(pickle.dumps(log)), copy.deepcopy(log)):  # noqa: S301  # our own bytes
        assert list(log) == list(twin)
        assert log.tails == twin.tails
    assert "<Log of 10 records>" == repr(log)


def test_what_cannot_be_encoded_is_named_and_loses_nothing() -> None:
    """An entry that the codec cannot carry raises at each reading; the records before it stand."""
    log = Log([*story(end=False), Entry("note", "run-1", 1, 0.0, facts={"x": object()})])
    for _ in range(2):
        with pytest.raises(CodecError):
            _ = log[0]
    assert N == len(log)


def test_memory_log_verifies() -> None:
    """A log in memory has no seals; its digests and numbers hold."""
    log = Log(story())
    assert Verified(N, complete=True, head=log.head) == verify(log)


# --- written and read


@pytest.mark.parametrize("key", [None, KEY])
def test_round_trip(tmp_path: Path, key: bytes | None) -> None:
    """What is written reads back equal, verifies with its key, and is written as the same bytes again."""
    log = Log(story())
    again = read(tmp_path, log.to_jsonl(key=key))
    assert list(log) == [evolve(record, seal="") for record in again]
    assert Verified(N, complete=True, head=log.head) == verify(again, key=key, head=log.head)
    assert log.to_jsonl(key=key) == again.to_jsonl(key=key)


def test_a_line_ends_in_its_seal() -> None:
    """The seal stands last in the line, and the rest is canonical."""
    record = Log(story())[0]
    assert unsealed(record)[:-1] + f',"seal":"{next_seal("", unsealed(record), None)}"}}' == LINES[0]


def test_secret_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key by reference is read from its environment variable, and one that is not there is named."""
    monkeypatch.setenv("AUDIT_KEY", KEY.decode())
    log = read(tmp_path, Log(story()).to_jsonl(key=Secret.env("AUDIT_KEY")))
    assert verify(log, key=KEY).complete
    monkeypatch.delenv("AUDIT_KEY")
    with pytest.raises(LookupError, match="AUDIT_KEY"):
        verify(log, key=Secret.env("AUDIT_KEY"))
    with pytest.raises(ValueError, match="empty"):
        verify(log, key=b"")


# --- C66: every corruption is found, at its record

STORED = TEXT.encode()


def record_at(place: int) -> int:
    """Return the number of the line that a byte stands in; a newline belongs to the line it ends."""
    return STORED.count(b"\n", 0, place)


@given(st.integers(0, len(STORED) - 1), st.integers(1, 255))
@example(len(STORED) - 1, 1)
@example(len(LINES[0]), ord("\n") ^ ord(" "))
def test_c66_any_flipped_byte_is_found_at_its_record(
    tmp_path_factory: pytest.TempPathFactory, place: int, flip: int
) -> None:
    """Whatever byte becomes whatever other byte, the record named is the one whose line it stands in."""
    data = bytearray(STORED)
    data[place] ^= flip
    assert record_at(place) == bad_record(tmp_path_factory.getbasetemp(), bytes(data))


def test_c66_every_single_bit_of_a_log_with_a_key(tmp_path: Path) -> None:
    """The same with a key, for one bit of every byte of a log of three records."""
    stored = "".join(f"{line}\n" for line in Log(story()).to_jsonl(key=KEY).splitlines()[:3]).encode()
    for place in range(len(stored)):
        data = bytearray(stored)
        data[place] ^= 1
        assert stored.count(b"\n", 0, place) == bad_record(tmp_path, bytes(data), key=KEY)


@pytest.mark.parametrize(
    ("attack", "record"),
    [
        (lambda lines: [*lines[:3], *lines[4:]], 3),
        (lambda lines: lines[1:], 0),
        (lambda lines: [*lines[:4], lines[3], *lines[4:]], 4),
        (lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]], 3),
        (lambda lines: [*lines[:3], "", *lines[3:]], 3),
        (lambda lines: [*lines, lines[-1]], N),
        (lambda lines: [lines[0].replace(",", ", ", 1), *lines[1:]], 0),
        (lambda lines: [*lines[:2], "{}", *lines[2:]], 2),
        (lambda lines: [*lines[:-1], lines[-1].replace('"kind":"run_ended"', '"kind":"note"')], N - 1),
    ],
    ids=["delete", "behead", "duplicate", "swap", "blank", "append", "respace", "insert", "rewrite"],
)
def test_c66_moved_records_are_found(
    tmp_path: Path, attack: Callable[[list[str]], list[str]], record: int
) -> None:
    """A record deleted, duplicated, swapped or put in: the first line that is not where it was is named."""
    assert record == bad_record(tmp_path, "".join(f"{line}\n" for line in attack(LINES)))


def forge(records: Sequence[AuditRecord], key: bytes | None = None) -> str:
    """Write records as somebody would who recomputes digests and seals after an edit."""
    sealer, lines, prev = Sealer(key=key), [], ""
    for seq, record in enumerate(records):
        digest = next_digest(prev, record.body)
        lines.append(sealer.line(evolve(record, seq=seq, prev=prev, digest=digest)))
        prev = digest
    return "".join(f"{line}\n" for line in lines)


def test_c66_recomputing_the_chain_without_the_key_does_not_pass(tmp_path: Path) -> None:
    """Who has no key can make no seal: not with another key, and not without one."""
    log = Log(story())
    edited = [evolve(log[0], facts=freeze_mapping({"prompt": "pay 1000"}, "facts")), *log[1:]]
    for forged_with in (None, b"another"):
        assert 0 == bad_record(tmp_path, forge(edited, forged_with), key=KEY)
    assert verify(read(tmp_path, forge(edited, KEY)), key=KEY).complete


def test_c66_without_a_key_a_forger_is_caught_by_the_head_alone(tmp_path: Path) -> None:
    """An unkeyed seal shows accidents; a forged log ends elsewhere than the head that was kept."""
    log = Log(story())
    forged = read(tmp_path, forge([evolve(log[0], actor="somebody"), *log[1:]]))
    assert verify(forged).complete
    with pytest.raises(LogError) as raised:
        verify(forged, head=log.head)
    assert N == raised.value.record


def test_digest_is_recomputed(tmp_path: Path) -> None:
    """A body that was edited and sealed anew, its digest kept, is found by the digest."""
    log = Log(story())
    sealer = Sealer()
    lines = [sealer.line(r if r.seq != 4 else evolve(r, actor="else")) for r in log]
    assert 4 == bad_record(tmp_path, "".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("cut", range(1, N))
def test_c66_a_log_cut_at_a_record_is_recognised(tmp_path: Path, cut: int) -> None:
    """Without a head it is not complete; with one, the number of the first missing record is named."""
    log = read(tmp_path, "".join(f"{line}\n" for line in LINES[:cut]))
    whole = Log(story())
    assert not verify(log).complete
    for head in (whole.head, LINES[-1][-66:-2]):
        with pytest.raises(LogError) as raised:
            verify(log, head=head)
        assert cut == raised.value.record


def test_head_may_be_a_digest_or_the_last_seal(tmp_path: Path) -> None:
    """Both name the end of a log: the digest of a run's last record, the seal of the file's last line."""
    log = read(tmp_path, TEXT)
    assert verify(log, head=log[-1].digest) == verify(log, head=log[-1].seal)
    with pytest.raises(LogError):
        verify(log, head="")


@pytest.mark.parametrize("cut", [1, 10, len(LINES[-1])])
def test_c70_a_torn_last_line_is_named(tmp_path: Path, cut: int) -> None:
    """A line that was not written to its end is reported by number; what stands before it can be read."""
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f"{line}\n" for line in LINES[:-1]) + LINES[-1][:cut])
    log, problem = scan_log(path)
    assert problem is not None
    assert (N - 1, N - 1) == (len(log), problem.record)
    assert "torn" in str(problem)


@pytest.mark.parametrize(
    ("data", "record", "message"),
    [
        (b"", None, "empty"),
        (b"\n", 0, "is this a log at all"),
        (b"\x00\xff\xfe\n", 0, "is this a log at all"),
        (b"\x89PNG\r\n\x1a\n\x00", 0, "is this a log at all"),
        (b'{"name": "capfold"}\n', 0, "is this a log at all"),
        (b"[1, 2]\n", 0, "is this a log at all"),
        (b"no newline", 0, "is this a log at all"),
        (b'{"a":1,"seal":"' + b"0" * 64 + b'"}\n', 0, "missing"),
        (b'{"a":NaN,"seal":"' + b"0" * 64 + b'"}\n', 0, "not JSON"),
        (b'{"a":' + b"[" * 100_000 + b',"seal":"' + b"0" * 64 + b'"}\n', 0, "not JSON"),
    ],
)
def test_a_file_that_is_no_log_is_refused(
    tmp_path: Path, data: bytes, record: int | None, message: str
) -> None:
    """Whatever it is, the error says so and names the first record."""
    with pytest.raises(LogError, match=message) as raised:
        read(tmp_path, data)
    assert record == raised.value.record


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seq", "0"),
        ("seq", True),
        ("kind", "else"),
        ("facts", []),
        ("prev", "x"),
        ("at", None),
        ("content", "full"),
    ],
)
def test_a_field_of_another_type_is_named(tmp_path: Path, field: str, value: object) -> None:
    """A sealed line whose fields are not those of a record is refused."""
    record = Log(story())[0]
    text = unsealed(evolve(record, content="redacted") if field == "content" else record)
    before = getattr(record, field) if field != "content" else "redacted"
    edited = text.replace(f'"{field}":{encoded(before)}', f'"{field}":{encoded(value)}')
    assert edited != text
    line = f'{edited[:-1]},"seal":"{next_seal("", edited, None)}"}}\n'
    with pytest.raises(LogError, match=f"its {field} is"):
        read(tmp_path, line)


def encoded(value: object) -> str:
    """Return the JSON text of a value."""
    return canonical(value)


def test_unsealed_log_has_nothing_for_a_key_to_check() -> None:
    """A key on a log in memory is a mistake, not a pass."""
    with pytest.raises(LogError, match="not sealed"):
        verify(Log(story()), key=KEY)


def test_one_run_id_used_twice(tmp_path: Path) -> None:
    """A caller that gives two runs one id gets a log that holds: the second starts where the first ended."""
    one = Log(story())
    sealer = Sealer()
    lines = [sealer.line(record) for record in (*one, *one)]
    assert 2 * N == verify(read(tmp_path, "".join(f"{line}\n" for line in lines))).records
    sealer = Sealer()
    lines = [sealer.line(record) for record in (*one[:4], *one)]
    assert 4 == bad_record(tmp_path, "".join(f"{line}\n" for line in lines))
