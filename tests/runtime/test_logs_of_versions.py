"""Logs that other versions of Python wrote: each replays here, and a run of today ends in the same digest.

They are made anew by `python -m tests.runtime.write_logs` under each version, when what a log holds has changed.
"""

from pathlib import Path

import pytest

from capfold.runtime import read_log, replay, verify
from tests.runtime.write_logs import LOGS, desk, run

FILES = sorted(LOGS.glob("*.jsonl"))


def test_there_are_logs_of_three_versions() -> None:
    """Of the oldest that is supported, and two later ones."""
    assert ["desk-3.11.jsonl", "desk-3.12.jsonl", "desk-3.13.jsonl"] == [path.name for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
async def test_a_log_of_another_version_is_replayed(path: Path) -> None:
    """Its chain holds, every reducer comes to what is on record, and a fresh run to the same head."""
    log = read_log(path)
    assert verify(log).complete
    again = replay(log, desk())
    fresh = await run()
    assert [record.digest for record in log] == [record.digest for record in again.records]
    assert ("completed", log.head, log.head) == (again.state.status, again.records.head, fresh.log.head)
