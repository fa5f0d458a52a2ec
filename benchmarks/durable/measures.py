"""The measurements, each in a process of its own: `python -m benchmarks.durable.measures NAME URL FOLDER NUMBER`.

Each prints one line of JSON. The bare engine is DBOS with the settings that capfold gives it.
"""

import asyncio
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from dbos import DBOS, SetWorkflowID

from capfold.runtime.dbos_port import DurableAgent

from .desk import make

AT_ONCE = 50
LEASE = 3.0
STEPS = 10  # of the agent: each is a model request and a tool call, two steps on record
RECORDED = 2 * STEPS + 2  # the last answer, and the end
SETTLED = 3.0  # seconds before what waits is looked at
WATCHED = 20.0


@DBOS.step()
async def _bare_step(text: str) -> str:
    return text


@DBOS.workflow()
async def _bare(text: str, steps: int) -> str:
    for _ in range(steps):
        text = await _bare_step(text)
    return text


async def _run_bare(number: int) -> None:
    text = json.dumps({"content": "x" * 200, "at": 1.0})
    with SetWorkflowID(f"bare-{number}"):
        handle = await DBOS.start_workflow_async(_bare, text, RECORDED)
    await handle.get_result(polling_interval_sec=0.01)


async def cost(url: str, folder: Path, rounds: int) -> dict[str, float]:
    """Seconds and CPU seconds a recorded step of one run, and recorded steps a second of many at once."""
    numbers = iter(range(1_000_000))
    async with DurableAgent(make(folder, STEPS), url) as durable:

        async def own(number: int) -> None:
            await durable.run("add", run_id=f"own-{number}")

        async def alone(job: Callable[[int], Awaitable[None]]) -> tuple[float, float]:
            cpu, wall = time.process_time(), time.monotonic()
            await job(next(numbers))
            return (time.monotonic() - wall) / RECORDED, (time.process_time() - cpu) / RECORDED

        async def crowd(job: Callable[[int], Awaitable[None]]) -> float:
            wall = time.monotonic()
            await asyncio.gather(*[job(next(numbers)) for _ in range(AT_ONCE)])
            return AT_ONCE * RECORDED / (time.monotonic() - wall)

        jobs = {"bare": _run_bare, "own": own}
        for job in jobs.values():
            await job(next(numbers))
        found: dict[str, list[float]] = {}
        for _ in range(rounds):  # interleaved: the machine's moods fall on both
            for name, job in jobs.items():
                for _ in range(3):
                    wall, cpu = await alone(job)
                    found.setdefault(f"{name} wall", []).append(wall)
                    found.setdefault(f"{name} cpu", []).append(cpu)
        for _ in range(rounds):
            for name, job in jobs.items():
                found.setdefault(f"{name} rate", []).append(await crowd(job))
        steps = await (await durable.runs.client()).list_workflow_steps_async("own-1")
        assert len(steps) == RECORDED, [step["function_name"] for step in steps]
    return {name: statistics.median(values) for name, values in found.items()}


async def waiting(url: str, folder: Path, number: int) -> dict[str, float]:
    """Megabytes and share of a core of a process in which so many runs wait; then be told to end by the input."""
    async with DurableAgent(make(folder, 1), url) as durable:
        for first in range(0, number, AT_ONCE):
            await asyncio.gather(
                *[
                    durable.start(f"pay r-{i}", run_id=f"r-{i}")
                    for i in range(first, min(first + AT_ONCE, number))
                ]
            )
        while (found := {one.status for one in await durable.list()}) != {"waiting"}:
            assert found <= {"queued", "running", "waiting"}, found
            await asyncio.sleep(0.5)
        gc.collect()
        await asyncio.sleep(SETTLED)
        cpu, wall = time.process_time(), time.monotonic()
        await asyncio.sleep(WATCHED)
        share = (time.process_time() - cpu) / (time.monotonic() - wall)
        print(json.dumps({"share": share, "megabytes": _resident(), "peak": _peak()}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    return {}


async def carry_on(url: str, folder: Path, number: int) -> dict[str, float]:
    """Be a worker with a lease of 3 seconds until somebody kills it; with a number, start a run of so many steps."""
    async with DurableAgent(make(folder, number or 1_000), url, lease=LEASE) as durable:
        print("{}", flush=True)
        if number:
            await durable.start("pause", run_id="r")
        await asyncio.Event().wait()
    return {}


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _peak() -> float:
    (line,) = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM")]
    return int(line.split()[1]) * 1024 / 1e6


if __name__ == "__main__":
    _name, _url, _folder, _number = sys.argv[1:]
    _measures = {"cost": cost, "waiting": waiting, "carry_on": carry_on}
    print(json.dumps(asyncio.run(_measures[_name](_url, Path(_folder), int(_number)))))
