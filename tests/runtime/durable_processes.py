"""Processes that carry durable runs on, and die where they are told to: run as a program, for tests.

`python -m tests.runtime.durable_processes URL FOLDER` reads lines `RUN PLACE` from its input; for each it forks a
process that starts the run and ends itself, by SIGKILL, at the place: the n-th moment of its steps, where each step has
three (begun, performed, recorded); or `slow`: at none, in a tool that takes its time. It prints the process's id.
"""

import asyncio
import sys
from pathlib import Path

from capfold.runtime.dbos_engine import DbosEngine
from capfold.runtime.dbos_port import DurableAgent
from tests.runtime.durable_desk import Killing, make
from tests.runtime.lost_workers import fork_each

LEASE = 1.5


async def start(url: str, folder: Path, run_id: str, place: str) -> None:
    """Start a run in this process, and carry it on."""
    seconds = 0.7 if place == "slow" else 0.0
    if place != "slow":
        Killing(int(place)).set_up(DbosEngine)
    async with DurableAgent(make(folder, seconds=seconds), url, lease=LEASE) as durable:
        await durable.start("go", run_id=run_id)
        await asyncio.sleep(60)


if __name__ == "__main__":
    fork_each(start, *sys.argv[1:])
