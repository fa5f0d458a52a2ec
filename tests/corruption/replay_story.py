"""Reads the log at a path and replays it with the agent of `digest_story`; prints the digests that come out.

Started by `test_replay` in other processes, with other hash seeds, on both event loops.
"""

import sys

import anyio

from capfold.runtime import read_log
from capfold.runtime.log_replay import replay
from tests.corruption.digest_story import agent_of


def main() -> None:
    """Print one digest per record."""

    async def inside() -> list[str]:
        again = replay(read_log(sys.argv[2]), agent_of(int(sys.argv[3])))
        return [f"{record.kind} {record.digest}" for record in again.records]

    for line in anyio.run(inside, backend=sys.argv[1]):
        print(line)  # noqa: T201  # what the parent process reads
