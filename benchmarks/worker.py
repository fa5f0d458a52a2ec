"""One participant in a process of its own: `python -m benchmarks.worker ADAPTER [CORE]`.

Reads one JSON command a line from standard input and answers each with one JSON line:
`{"op": "check" | "ask" | "bench" | "crowd", "job": {...}, "n": int}`. Answers with `{"error": text}` when the adapter
fails. Must not know what a figure is used for, nor that other participants exist.
"""

import asyncio
import gc
import json
import os
import resource
import sys
import time
import warnings
from collections import Counter
from contextlib import closing
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TextIO, cast

from .contract import FINAL, Adapter, Job, Run


class Workbench:
    """The prepared runs of one adapter on one event loop."""

    def __init__(self, adapter: Adapter, file: str) -> None:
        self._adapter = adapter
        self._file = file
        self._loop = asyncio.new_event_loop()
        self._runs: dict[Job, Run] = {}

    def close(self) -> None:
        """Close the event loop."""
        self._loop.close()

    def prepared(self, job: Job) -> Run:
        """Return the run for `job`, made at the first request."""
        if job not in self._runs:
            self._runs[job] = self._adapter.make(job)
        return self._runs[job]

    def ask(self, job: Job) -> dict[str, object]:
        """Run once and return the output as it is."""
        run = self.prepared(job)

        async def once() -> str:
            return await run()

        return {"output": self._loop.run_until_complete(once())}

    def check(self, job: Job) -> dict[str, object]:
        """Run once, count the calls of tool and hooks, and refuse a run that did less than the job says.

        Counting goes through the profiler, so the timed runs carry no counters.
        """
        calls: Counter[str] = Counter()

        def count(frame: FrameType, event: str, _argument: object) -> None:
            # A coroutine is entered anew after each await; tool and hooks never suspend, so they count once.
            if event == "call" and frame.f_code.co_filename == self._file:
                calls[frame.f_code.co_name] += 1

        self.prepared(job)
        sys.setprofile(count)
        try:
            output = self.ask(job)["output"]
        finally:
            sys.setprofile(None)
        hook_calls = sum(calls[name] for name in self._adapter.HOOKS)
        wanted = job.steps * job.fanout
        if output != FINAL:
            raise RuntimeError(f"{job}: the output is {output!r}, expected {FINAL!r}")
        if calls["echo"] != wanted:
            raise RuntimeError(f"{job}: the tool ran {calls['echo']} times, expected {wanted}")
        for name in self._adapter.HOOKS:
            if job.kind != "absent" and calls[name] < job.hooks * job.steps:
                raise RuntimeError(f"{job}: {name} was called {calls[name]} times, less than hooks * steps")
        return {"hook_calls": hook_calls}

    def bench(self, job: Job, n: int) -> dict[str, object]:
        """Run `n` times in a row; return wall and CPU time of the whole block in nanoseconds."""
        run = self.prepared(job)

        async def block() -> None:
            for _ in range(n):
                await run()

        gc.collect()
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        self._loop.run_until_complete(block())
        return {"cpu": time.process_time_ns() - cpu, "wall": time.perf_counter_ns() - wall}

    def crowd(self, job: Job, n: int) -> dict[str, object]:
        """Run `n` times at once; return wall and CPU time of them all, and by how many bytes the process grew.

        What it grew by is its peak of resident memory over what was resident before.
        """
        run = self.prepared(job)

        async def together() -> None:
            await asyncio.gather(*[run() for _ in range(n)])

        gc.collect()
        before = resident(forget_peak=True)
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        self._loop.run_until_complete(together())
        wall, cpu = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
        return {"cpu": cpu, "wall": wall, "memory": max(0, resident() - before)}


def resident(*, forget_peak: bool = False) -> int:
    """Return the peak of resident memory in bytes: since the start, or since it was last forgotten.

    Where Linux's /proc is missing nothing can be forgotten, so that growth below an earlier peak is not seen.
    """
    if not Path("/proc/self/clear_refs").exists():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024  # bytes there, KiB elsewhere
    if forget_peak:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def answer(bench: Workbench, line: str) -> dict[str, object]:
    """Perform one command; an exception becomes an answer, for the driver to raise."""
    command = json.loads(line)
    try:
        job = Job(**command["job"])
        if command["op"] == "check":
            return bench.check(job)
        if command["op"] == "ask":
            return bench.ask(job)
        if command["op"] == "crowd":
            return bench.crowd(job, command["n"])
        return bench.bench(job, command["n"])
    except Exception as error:  # noqa: BLE001  # a framework may raise anything; the driver raises it again
        return {"error": f"{type(error).__name__}: {error}"}


def protected_output() -> TextIO:
    """Return standard output for the answers alone, and send what a framework prints to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def main() -> None:
    """Serve commands until standard input ends."""
    answers = protected_output()
    if len(sys.argv) > 2:
        os.sched_setaffinity(0, {int(sys.argv[2])})
    # The peers' own deprecation warnings are not our figures' business.
    warnings.simplefilter("ignore")
    module = import_module(f".adapters.{sys.argv[1]}", __package__)
    with closing(Workbench(cast(Adapter, module), str(module.__file__))) as bench:
        for line in sys.stdin:
            answers.write(json.dumps(answer(bench, line)) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
