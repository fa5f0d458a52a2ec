"""Worker processes, and blocks of work interleaved among them.

One process per participant, so that no framework's import or garbage weighs on another. Within each round
every case runs one block, in random order: a slow minute of the machine hits all of them alike, which is why
ratios within one run hold where absolute figures do not. Must not know what the cases mean.
"""

import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from attrs import asdict, frozen

from .contract import Job
from .participants import BenchError, Participant

ROOT = Path(__file__).resolve().parent.parent


@frozen
class Pace:
    """How much is measured."""

    rounds: int
    block: float
    """Seconds of CPU time that one block should take; a run longer than that is a block of its own."""
    case: float
    """Seconds of CPU time for all blocks of one case; what takes longer has fewer blocks, at least one."""
    crowd: int
    """Runs at once, where a workload is about many of them."""


FULL = Pace(rounds=7, block=0.15, case=10.0, crowd=1000)
QUICK = Pace(rounds=3, block=0.04, case=2.0, crowd=100)


@frozen
class Figure:
    """CPU nanoseconds per run: the median of the blocks, and the distance of their quartiles."""

    median: float
    spread: float
    hook_calls: int = 0
    """Hook calls that one run makes, as counted in the check."""


def cores() -> tuple[int | None, int | None]:
    """Return the cores for workers and for a server, or two None where there is no second core."""
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    usable = sorted(os.sched_getaffinity(0))
    return (usable[-1], usable[0]) if len(usable) > 1 else (None, None)


def spawn(
    module: str, *arguments: str, scratch: Path, variables: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a module of this package in `scratch`, where whatever a framework writes may land."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = (
        os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0"} | dict(variables or {})
    )
    return subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=scratch,
        env=environment,
    )


class Worker:
    """The process of one participant; a context manager that ends it."""

    def __init__(self, participant: Participant, scratch: Path, core: int | None) -> None:
        pin = () if core is None else (str(core),)
        self.name = participant.name
        self._process = spawn(
            "worker", participant.adapter, *pin, scratch=scratch, variables=participant.environment
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def command(self, op: str, job: Job, n: int = 1) -> dict[str, object]:
        """Send one command and return the answer.

        Raises:
            BenchError: the adapter failed, or the process died.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise BenchError(f"{self.name}: the worker has no pipes")
        try:
            stdin.write(json.dumps({"op": op, "job": asdict(job), "n": n}) + "\n")
            stdin.flush()
        except BrokenPipeError:
            pass  # it died before it could read; the empty answer below says so
        line = stdout.readline()
        if not line:
            raise BenchError(
                f"{self.name}: the worker ended with {self._process.wait()}; its traceback is above"
            )
        reply: dict[str, object] = json.loads(line)
        if "error" in reply:
            raise BenchError(f"{self.name}: {reply['error']}")
        return reply

    def number(self, key: str, op: str, job: Job, n: int = 1) -> int:
        """Send one command and return the whole number that stands under `key` in the answer."""
        return int(str(self.command(op, job, n)[key]))


Case = tuple[Worker, Job]


def calibrated(worker: Worker, job: Job, pace: Pace) -> tuple[int, int]:
    """Return how many runs make a block, and how many blocks to time.

    Estimated again while the first runs, the slow ones, weigh in; a run that takes long has fewer blocks.
    """
    runs, per_run = 1, 0.0
    for _ in range(3):
        n = max(1, runs // 4)
        per_run = max(1e-9, worker.number("cpu", "bench", job, n) / n / 1e9)
        runs = max(1, int(pace.block / per_run))
        if runs == 1:
            break  # each run is a block of its own; warming it up further would only take time
    return runs, max(1, min(pace.rounds, int(pace.case / (per_run * runs))))


def spread(times: list[float]) -> float:
    """Return the distance of the quartiles, 0 for a single time."""
    if len(times) < 2:
        return 0.0
    low, _, high = statistics.quantiles(times, n=4)
    return high - low


def interleave(cases: Mapping[str, Case], pace: Pace, seed: int = 1) -> dict[str, Figure]:
    """Check each case, then time its blocks among those of the others; return the figure per label.

    Raises:
        BenchError: a case failed, or did less work than its job says.
    """
    shuffler = random.Random(seed)
    hook_calls = {label: worker.number("hook_calls", "check", job) for label, (worker, job) in cases.items()}
    plans = {label: calibrated(worker, job, pace) for label, (worker, job) in cases.items()}
    blocks: dict[str, list[float]] = {label: [] for label in cases}
    for turn in range(pace.rounds):
        labels = [label for label in cases if turn < plans[label][1]]
        shuffler.shuffle(labels)
        for label in labels:
            worker, job = cases[label]
            n = plans[label][0]
            blocks[label].append(worker.number("cpu", "bench", job, n) / n)
    return {
        label: Figure(statistics.median(times), spread(times), hook_calls[label])
        for label, times in blocks.items()
    }
