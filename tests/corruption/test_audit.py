"""The log: what was changed in it is found, and a sink that fails is not passed over (C66, C70)."""

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from capfold.capabilities import UserMessage
from capfold.capabilities.frozen import FrozenDict
from capfold.runtime import (
    Agent,
    AuditRecord,
    JsonLines,
    Log,
    LogError,
    ScriptedModel,
    Sink,
    SinkFailed,
    StorageError,
    read_log,
    verify,
)
from capfold.runtime.seals import Sealer
from tests.corruption.scenes import (
    MemorySink,
    Works,
    at,
    batch,
    check_closed,
    failed,
    kinds,
    of_kind,
    settled,
    statuses,
)

KEY = b"of the auditor"


def stored(path: Path, key: bytes | None, *replies: Any) -> tuple[Path, list[bytes]]:
    """Store the log of a run; return its file and lines."""
    works = Works()
    agent = Agent(
        "desk",
        ScriptedModel([*replies, "done"]),
        tools=[works.tool()],
        capabilities=[at("before_model_request", lambda run: run.append(UserMessage("hint")))],
        sinks=[JsonLines(path, key=key)],
    )
    assert "completed" == agent.run_sync("go").status
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == verify(read_log(path), key=key).records
    return path, lines


def problem(path: Path, data: bytes, key: bytes | None, head: str | None = None) -> int | None:
    """Return the number of the first bad record of a changed file, None when nothing is found."""
    path.write_bytes(data)
    try:
        verify(read_log(path), key=key, head=head)
    except LogError as error:
        return error.record
    return None


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "keyed"])
def test_c66_any_flipped_byte(tmp_path: Path, key: bytes | None) -> None:
    """Every byte of the file: the record that holds it is named."""
    path, lines = stored(tmp_path / "log.jsonl", key)
    data = b"".join(lines)
    place = 0
    for number, line in enumerate(lines):
        for offset in range(len(line)):
            at_byte = place + offset
            flipped = data[:at_byte] + bytes([data[at_byte] ^ (1 << at_byte % 8)]) + data[at_byte + 1 :]
            assert number == problem(path, flipped, key), (number, offset, line[offset : offset + 1])
        place += len(line)


Damage = Callable[[list[bytes], int], list[bytes]]


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "keyed"])
def test_c66_deleted_duplicated_swapped(tmp_path: Path, key: bytes | None) -> None:
    """At each place, the first record that does not follow is named."""
    path, lines = stored(tmp_path / "log.jsonl", key, batch(0, 1))
    last = len(lines) - 1
    for i in range(len(lines)):
        deleted = [*lines[:i], *lines[i + 1 :]]
        doubled = [*lines[: i + 1], *lines[i:]]
        assert (i if i < last else None) == problem(path, b"".join(deleted), key)
        assert i + 1 == problem(path, b"".join(doubled), key)
        if i < last:
            swapped = [*lines[:i], lines[i + 1], lines[i], *lines[i + 2 :]]
            assert i == problem(path, b"".join(swapped), key)


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "keyed"])
def test_c66_cut_off(tmp_path: Path, key: bytes | None) -> None:
    """In a line it is torn there; between two lines it is incomplete, and does not reach the kept head."""
    path, lines = stored(tmp_path / "log.jsonl", key, batch(0))
    head = read_log(path).head
    data = b"".join(lines)
    assert None is problem(path, data, key, head)
    for i, line in enumerate(lines):
        before = b"".join(lines[:i])
        for part in (1, len(line) // 2, len(line) - 1):
            assert i == problem(path, before + line[:part], key)
        if i:
            assert None is problem(path, before, key)
            assert not verify(read_log(path), key=key).complete
            assert i == problem(path, before, key, head)
    assert not Log().complete
    path.write_bytes(b"")
    with pytest.raises(LogError, match="is empty"):
        read_log(path)


def test_c66_a_chain_recomputed_without_the_key(tmp_path: Path) -> None:
    """Who rewrites a record, its digest and all seals after it passes without a key, and fails with one."""
    _, lines = stored(tmp_path / "log.jsonl", KEY, batch(0))
    _, plain = stored(tmp_path / "plain.jsonl", None, batch(0))
    for i in range(len(lines)):
        records = list(read_log(_write(tmp_path / "read.jsonl", lines)))
        forged = Sealer(records[i - 1].seal if i else "")
        resealed = [forged.line(record).encode() + b"\n" for record in records[i:]]
        assert i == problem(tmp_path / "forged.jsonl", b"".join([*lines[:i], *resealed]), KEY)
        other = Sealer(records[i - 1].seal if i else "", b"of somebody else")
        resealed = [other.line(record).encode() + b"\n" for record in records[i:]]
        assert i == problem(tmp_path / "forged.jsonl", b"".join([*lines[:i], *resealed]), KEY)
    assert 0 == problem(tmp_path / "forged.jsonl", b"".join(plain), KEY)
    assert None is problem(tmp_path / "forged.jsonl", b"".join(plain), None)


def test_c66_another_body_under_the_same_digest(tmp_path: Path) -> None:
    """Seals made anew over a changed body do not help: its digest is not that of its contents."""
    path, lines = stored(tmp_path / "log.jsonl", None, batch(0))
    records = list(read_log(path))
    for i, record in enumerate(records):
        sealer = Sealer()
        forged = [
            sealer.line(_forged(record) if j == i else other).encode() + b"\n"
            for j, other in enumerate(records)
        ]
        assert len(forged) == len(lines)
        assert i == problem(tmp_path / "forged.jsonl", b"".join(forged), None)


def _forged(record: AuditRecord) -> AuditRecord:
    return evolve(record, facts=FrozenDict({**record.facts, "planted": True}))


def _write(path: Path, lines: Sequence[bytes]) -> Path:
    path.write_bytes(b"".join(lines))
    return path


# --- C70


class FailingSink(MemorySink):
    """Fails from its `n`th write on, as a full disk does."""

    def __init__(self, n: int, *, best_effort: bool = False) -> None:
        """Count down from `n`."""
        super().__init__()
        self.left = n
        self.best_effort = best_effort

    async def write(self, records: Sequence[AuditRecord]) -> None:
        if self.left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.left -= 1
        await super().write(records)


def agent_of(works: Works, *sinks: Sink, capabilities: Any = ()) -> Agent[str]:
    """Return an agent whose model asks for two batches, then says done."""
    script: list[Any] = [batch(0, 1), batch(2), "done"]
    return Agent("desk", ScriptedModel(script), tools=[works.tool()], capabilities=capabilities, sinks=sinks)


WRAPPED = at("wrap_run:in", lambda run: run)


@pytest.mark.parametrize("wrapped", ["", "in wrap_run"])
@pytest.mark.parametrize("n", range(8))
async def test_c70_a_sink_that_fails_ends_the_run(n: int, wrapped: str) -> None:
    """At whichever write: a typed error, history closed, no effect without a record; other sinks go on."""
    works, broken, other = Works(), FailingSink(n), MemorySink()
    agent = agent_of(works, broken, other, capabilities=[WRAPPED] if wrapped else [])
    probe = FailingSink(99)
    await agent_of(Works(), probe, capabilities=[WRAPPED] if wrapped else []).run("go")
    writes = 99 - probe.left
    if n >= writes:
        assert "completed" == (await agent.run("go")).status
        return
    error = await failed(agent)
    assert isinstance(error, StorageError)
    assert isinstance(error.reason, SinkFailed)
    assert "OSError" in error.reason.message
    assert isinstance(error.__cause__, OSError)
    assert error.partial is not None
    assert "failed" == error.partial.status
    check_closed(error.partial.messages)
    started = {record.call for record in of_kind(broken.records, "tool_started")}
    assert {f"c{k}" for k in works.began} <= started
    found = statuses(error.partial.messages)
    assert {f"c{k}": "succeeded" for k in works.ended} == {
        key: status for key, status in found.items() if status == "succeeded"
    }
    assert {f"c{k}" for k in works.ended} == {
        key for key, status in settled(other.records).items() if status == "succeeded"
    }
    (note,) = (one for one in of_kind(error.partial.log, "note") if "sink_failed" in one.facts)
    assert "No space left" in str(note.facts["sink_failed"])
    assert kinds(error.partial.log) == kinds(other.records)
    assert error.partial.log.complete
    assert verify(error.partial.log).complete


@pytest.mark.parametrize("wrapped", ["", "in wrap_run"])
@pytest.mark.parametrize("n", range(6))
async def test_c70_a_best_effort_sink(n: int, wrapped: str) -> None:
    """Declared so, the run goes on and says so: in the log, and to the sinks that work."""
    works, broken, other = Works(), FailingSink(n, best_effort=True), MemorySink()
    result = await agent_of(works, broken, other, capabilities=[WRAPPED] if wrapped else []).run("go")
    assert ("completed", "done", [0, 1, 2]) == (result.status, result.output, sorted(works.ended))
    (note,) = of_kind(result.log, "note")
    assert "No space left" in str(note.facts["sink_failed"])
    assert kinds(result.log) == kinds(other.records)
    assert result.log.complete


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
async def test_c70_a_full_disk() -> None:
    """A real one: nothing runs, for nothing could be written down."""
    works = Works()
    error = await failed(agent_of(works, JsonLines("/dev/full")))
    assert isinstance(error.reason, SinkFailed)
    assert "No space left on device" in error.reason.message
    assert ([], 0) == (works.began, error.partial.requests if error.partial else None)


async def test_c70_a_torn_last_line_is_found(tmp_path: Path) -> None:
    """Reading names the torn line, and a sink does not write on behind it: the run ends before any effect."""
    path = tmp_path / "log.jsonl"
    works = Works()
    await agent_of(works, JsonLines(path)).run("go")
    data = path.read_bytes()
    number = data.count(b"\n") - 1
    path.write_bytes(data[:-30])
    with pytest.raises(LogError, match="torn") as caught:
        read_log(path)
    assert number == caught.value.record
    again = Works()
    error = await failed(agent_of(again, JsonLines(path)))
    assert isinstance(error.reason, SinkFailed)
    assert f"record {number}" in error.reason.message
    assert [] == again.began
    assert data[:-30] == path.read_bytes()


async def test_c70_a_value_that_cannot_be_written_ends_the_run() -> None:
    """A sink that raises something of its own is a sink that failed, not a crash of the run."""

    class Odd(MemorySink):
        async def write(self, records: Sequence[AuditRecord]) -> None:
            raise KeyError("odd")

    works = Works()
    error = await failed(agent_of(works, Odd()))
    assert isinstance(error.reason, SinkFailed)
    assert "KeyError" in error.reason.message
    assert [] == works.began
