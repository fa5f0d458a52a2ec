"""JSON lines: a file of sealed lines, continued by later writers, that never hides a failure."""

# ruff: noqa: ASYNC240 - the file that a sink has written is read by the test itself, which waits for nothing else

import gc
import os
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from capfold.capabilities.secret import Secret
from capfold.runtime.audit import AuditRecord
from capfold.runtime.entries import Entry
from capfold.runtime.errors import LogError
from capfold.runtime.log import Log, read_log, verify
from capfold.runtime.sink_lines import Redact
from capfold.runtime.sinks import JsonLines, Sink
from tests.runtime.entries_story import story, write_by_threads

KEY = b"a key of the auditor"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the log goes."""
    return tmp_path / "log.jsonl"


async def keep(sink: Sink, records: Sequence[AuditRecord]) -> None:
    """Write records to a sink, and close it."""
    await sink.write(records)
    await sink.close()


async def test_written_as_it_goes(path: Path) -> None:
    """After each write the file holds exactly the records so far, sealed in order."""
    log, sink = Log(story()), JsonLines(path)
    for n in range(len(log)):
        await sink.write(log[n : n + 1])
        assert n + 1 == verify(read_log(path)).records
    await sink.close()
    assert log.to_jsonl() == path.read_text()


@pytest.mark.parametrize("key", [None, KEY])
async def test_a_second_sink_continues_the_file(path: Path, key: bytes | None) -> None:
    """A log continued later, by another process as it were, is one chain of seals."""
    log = Log(story())
    await keep(JsonLines(path, key=key), log[:4])
    await keep(JsonLines(path, key=key), log[4:])
    assert log.to_jsonl(key=key) == path.read_text()
    assert verify(read_log(path), key=key, head=log.head).complete


async def test_a_closed_sink_opens_again(path: Path) -> None:
    """One sink serves run after run, closed in between or not; closing twice is no matter."""
    sink = JsonLines(path)
    for run in ("run-1", "run-2"):
        await keep(sink, Log(story(run)))
        await sink.close()
    assert verify(read_log(path)).complete


async def test_two_sinks_on_one_file_take_turns(path: Path) -> None:
    """A sink notices that another one wrote, and goes on after it."""
    one, other = JsonLines(path), JsonLines(path)
    log = Log(story())
    for n in range(len(log)):
        await (one, other)[n % 2].write(log[n : n + 1])
    await one.close()
    await other.close()
    assert log.to_jsonl() == path.read_text()


async def test_many_runs_at_once_share_a_sink(path: Path) -> None:
    """Records of interleaved runs are sealed in order of arrival; each run keeps its own chain of digests."""
    sink = JsonLines(path)

    async def run(name: str) -> None:
        log = Log(story(name))
        for n in range(len(log)):
            await sink.write(log[n : n + 1])
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for n in range(8):
            group.start_soon(run, f"run-{n}")
    await sink.close()
    log = read_log(path)
    assert log[0].run != log[1].run
    assert verify(log).complete
    assert {tail.digest for tail in Log(story()).tails} == {tail.digest for tail in log.tails}


def test_threads_share_a_sink(path: Path) -> None:
    """Runs in several threads, as by run_sync, write whole lines in one chain."""
    sink = JsonLines(path)
    write_by_threads(sink)
    assert 4 * len(story()) == verify(read_log(path)).records


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[:-30], lambda data: data + b"x"]
)
async def test_c70_a_torn_file_is_not_continued(path: Path, damage: object) -> None:
    """A torn last line is named and nothing is written after it, where it would be hidden."""
    assert callable(damage)
    await keep(JsonLines(path), Log(story()))
    torn = damage(path.read_bytes())
    path.write_bytes(torn)
    sink = JsonLines(path)
    with pytest.raises(LogError, match="torn") as raised:
        await sink.write(Log(story("run-2")))
    await sink.close()
    assert torn == path.read_bytes()
    assert torn.count(b"\n") == raised.value.record


async def test_another_key_does_not_continue_a_log(path: Path) -> None:
    """A log of mixed keys could never be verified: the sink refuses before it writes."""
    log = Log(story())
    await keep(JsonLines(path, key=KEY), log[:4])
    for key in (None, b"another"):
        sink = JsonLines(path, key=key)
        with pytest.raises(LogError, match="another key") as raised:
            await sink.write(log[4:])
        await sink.close()
        assert 3 == raised.value.record
    assert 4 == verify(read_log(path), key=KEY).records


@pytest.mark.parametrize("content", ["hello\n", '{"a": 1}\n', "\n"])
async def test_a_file_that_is_no_log_is_not_written_to(path: Path, content: str) -> None:
    """A file of something else is left as it is."""
    path.write_text(content)
    sink = JsonLines(path)
    with pytest.raises(LogError):
        await sink.write(Log(story()))
    await sink.close()
    assert content == path.read_text()


async def test_a_last_line_longer_than_a_block_is_found(path: Path) -> None:
    """Continuing a file reads its end in blocks, however long a line is."""
    log = Log(
        [
            Entry("run_started", "r", 0, 0.0, facts={"x": "y" * 200_000}),
            Entry("note", "r", 0, 0.0, facts={"x": "z" * 200_000}),
            Entry("run_ended", "r", 0, 0.0),
        ]
    )
    for n in range(len(log)):
        await keep(JsonLines(path), log[n : n + 1])
    assert verify(read_log(path)).complete


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is a device of Linux")
async def test_c70_a_full_disk_is_an_error() -> None:
    """A disk that takes nothing more raises; the run that writes is told."""
    sink = JsonLines("/dev/full")
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            await sink.write(Log(story()))
    await sink.close()


async def test_c70_a_write_that_breaks_off_leaves_no_torn_line(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a full disk took of a line is cut off again, and a later write continues the chain."""
    log, sink, write = Log(story()), JsonLines(path), os.write
    await sink.write(log[:3])

    def half(fd: int, data: memoryview) -> int:
        if len(data) < 100:
            raise OSError(28, "No space left on device")
        return write(fd, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space left"):
        await sink.write(log[3:])
    monkeypatch.undo()
    assert 3 == verify(read_log(path)).records
    await sink.write(log[3:])
    await sink.close()
    assert log.to_jsonl() == path.read_text()


async def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """A path that cannot be opened is the system's own error."""
    with pytest.raises(FileNotFoundError):
        await JsonLines(tmp_path / "missing" / "log.jsonl").write(Log(story()))


async def test_a_new_file_is_private(path: Path) -> None:
    """A log holds what people wrote: only the owner reads a new one."""
    await keep(JsonLines(path), Log(story()))
    assert 0 == path.stat().st_mode & 0o077


def open_files() -> int:
    """Count this process's descriptors."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="only Linux lists the descriptors of a process there"
)
async def test_a_sink_that_nobody_closes_gives_its_file_back(path: Path) -> None:
    """Dropping the last reference closes the descriptor, without a warning."""
    sink = JsonLines(path)
    await sink.write(Log(story()))
    gc.collect()
    before = open_files()
    del sink
    gc.collect()
    assert before - 1 == open_files()


# --- less than the whole record


async def test_content_false_keeps_digests_only(path: Path) -> None:
    """No text of changes and facts is stored; fields are named, each line says so, and the log verifies."""
    log = Log(story())
    await keep(JsonLines(path, content=False), log)
    text, kept = path.read_text(), read_log(path)
    for secret in ("Pay the invoice", "1000", "paid", "sealed once judged"):
        assert secret not in text
    assert {"digests"} == {record.content for record in kept}
    assert [r.digest for r in log] == [r.digest for r in kept]
    assert [sorted(r.changes) for r in log] == [list(r.changes) for r in kept]
    assert verify(kept, head=log.head).complete


async def test_content_false_is_sealed(path: Path) -> None:
    """Without content the digest cannot be recomputed, but the seal still finds an edit."""
    await keep(JsonLines(path, content=False), Log(story()))
    path.write_text(path.read_text().replace("Multiplier", "Selector.."))
    with pytest.raises(LogError) as raised:
        verify(read_log(path))
    assert 6 == raised.value.record


class Cards:
    """A redactor as an object."""

    def redact_text(self, text: str, /) -> str:
        """Hide what the story says."""
        return text.replace("Pay the invoice", "[redacted]").replace("10}", "[n]}")


@pytest.mark.parametrize("redact", [Cards(), Cards().redact_text])
async def test_redact(path: Path, redact: Redact) -> None:
    """C51 Every string of changes and facts goes through the redactor; names stay; each line says so."""
    log = Log(story())
    await keep(JsonLines(path, redact=redact), log)
    kept = read_log(path)
    assert "Pay the invoice" not in path.read_text()
    assert "[redacted]" in path.read_text()
    assert {"redacted"} == {record.content for record in kept}
    assert [r.digest for r in log] == [r.digest for r in kept]
    assert verify(kept, head=log.head).complete


async def test_a_redactor_that_fails_writes_nothing(path: Path) -> None:
    """A redactor that raises, or returns no string, is an error before anything is stored."""

    def broken(text: str) -> str:
        raise RuntimeError("no")

    for redact, error in ((broken, RuntimeError), (lambda text: None, TypeError)):
        sink = JsonLines(path, redact=redact)  # type: ignore[arg-type]  # what it returns is under test
        with pytest.raises(error):
            await sink.write(Log(story()))
        await sink.close()
    assert not path.exists()
    with pytest.raises(TypeError, match="redact must be"):
        JsonLines(path, redact=3)  # type: ignore[arg-type]  # what is refused is under test


def test_key_by_reference(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key comes from the environment; a missing one is named when the sink is built; none is shown."""
    with pytest.raises(LookupError, match="AUDIT_KEY"):
        JsonLines(path, key=Secret.env("AUDIT_KEY"))
    monkeypatch.setenv("AUDIT_KEY", KEY.decode())
    sink = JsonLines(path, key=Secret.env("AUDIT_KEY"))
    assert KEY.decode() not in repr(sink)
    anyio.run(keep, sink, Log(story()))
    assert verify(read_log(path), key=KEY).complete


def test_best_effort(path: Path) -> None:
    """Whether a run outlives its sink is said when the sink is built; by default it does not."""
    assert (False, True) == (JsonLines(path).best_effort, JsonLines(path, best_effort=True).best_effort)
