"""C67: equal runs have equal digests, in another process, under another hash seed, on the other loop."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from capfold.runtime import verify
from tests.corruption.digest_story import logs

TELL = "from tests.corruption.digest_story import main; main()"
ROOT = Path(__file__).parents[2]


def told(backend: str, seed: str) -> list[str]:
    """Return the lines of the story, told by another process."""
    done = subprocess.run(
        # Not -m: the classes of the story would be those of `__main__`, which are other capabilities.
        [sys.executable, "-W", "error", "-c", TELL, backend],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def here() -> list[str]:
    """Return the story as the first other process tells it."""
    return told("asyncio", "0")


@pytest.mark.parametrize(("backend", "seed"), [("asyncio", "1"), ("trio", "0"), ("trio", "1")])
def test_c67_equal_digests_elsewhere(here: list[str], backend: str, seed: str) -> None:
    """Record by record: the first line that differs would be the culprit."""
    assert here == told(backend, seed)


async def test_c67_equal_digests_here(here: list[str]) -> None:
    """This process, whose hash seed is random, tells the same story twice; what it holds is in there."""
    first = await logs()
    again = await logs()
    for one, other in zip(first, again, strict=True):
        assert [record.digest for record in one] == [record.digest for record in other]
        assert one[0].run != other[0].run
        assert verify(one).complete
    assert here == [f"{record.kind} {record.digest}" for log in first for record in log]
    kinds = {record.kind for log in first for record in log}
    assert {
        "restored",
        "rejected",
        "gathered",
        "call_decided",
        "call_refused",
        "note",
        "tool_settled",
    } <= kinds
