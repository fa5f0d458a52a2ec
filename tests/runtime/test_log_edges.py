"""Chains of a log that has no seals: what only numbers, or only digests, give away."""

from pathlib import Path

import pytest
from attrs import evolve

from capfold.runtime import Agent, JsonLines, Log, ScriptedModel, read_log, verify
from capfold.runtime.audit import next_digest
from capfold.runtime.errors import LogError


def log() -> Log:
    """Return the log of a run, as it is kept in memory."""
    return Agent("desk", ScriptedModel(["done"])).run_sync("go").log


@pytest.mark.parametrize("place", [1, -1])
def test_a_number_that_does_not_follow_is_found(place: int) -> None:
    """No digest covers the number: a gap is found by the number alone."""
    records = list(log())
    records[place] = evolve(records[place], seq=records[place].seq + 5)
    with pytest.raises(LogError, match="would follow") as caught:
        verify(Log.from_records(records))
    assert range(len(records))[place] == caught.value.record


def test_a_digest_that_does_not_follow_is_found() -> None:
    """A record whose own digest is right, and who stands where another one stood."""
    *records, last = log()
    foreign = "0" * 64
    forged = evolve(last, prev=foreign, digest=next_digest(foreign, last.body))
    with pytest.raises(LogError, match="does not follow the digest") as caught:
        verify(Log.from_records([*records, forged]))
    assert len(records) == caught.value.record


@pytest.mark.parametrize("key", [None, b"secret"])
def test_the_order_of_runs_in_a_file_is_sealed(tmp_path: Path, key: bytes | None) -> None:
    """Lines of two runs are chained by nothing but their seals: two that change places are found by them."""
    path = tmp_path / "log.jsonl"
    for name in ("one", "two"):
        agent = Agent("desk", ScriptedModel(["done"]), sinks=[JsonLines(path, key=key)])
        agent.run_sync("go", run_id=name)
    lines = path.read_bytes().splitlines(keepends=True)
    assert verify(read_log(path), key=key).complete
    first = next(i for i, line in enumerate(lines) if b'"run":"two"' in line)
    lines[first - 1], lines[first] = lines[first], lines[first - 1]
    path.write_bytes(b"".join(lines))
    with pytest.raises(LogError, match="seal does not fit") as caught:
        verify(read_log(path), key=key)
    assert first - 1 == caught.value.record
