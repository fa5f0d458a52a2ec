"""W5: many runs at once on one event loop, with a model that takes its time.

Whatever the framework, a run takes as long as its requests one after another; what comes on top is the work of the
runs that have to wait for each other. Must not know any framework.
"""

import random
from collections.abc import Mapping, Sequence
from statistics import median

from attrs import frozen

from .contract import Job
from .drive import Worker, spread
from .results import Row
from .session import Session

LATENCY = 0.05
STEPS = 3
IDEAL = (STEPS + 1) * LATENCY
"""Seconds of the requests of one run, and so of all runs at once if nothing took any time."""
WARM = 20


@frozen
class Crowd:
    """One batch of runs at once: wall nanoseconds of the batch, CPU nanoseconds and bytes of one run."""

    wall: float
    cpu: float
    memory: float


def batch(worker: Worker, job: Job, n: int) -> Crowd:
    """Run `n` times at once."""
    answer = worker.command("crowd", job, n)
    wall, cpu, memory = (int(str(answer[key])) for key in ("wall", "cpu", "memory"))
    return Crowd(wall, cpu / n, memory / n)


def batches(session: Session) -> dict[str, list[Crowd]]:
    """Return the batches of each participant, interleaved in random order; who is slow has fewer of them."""
    pace, job, shuffler = session.pace, Job(steps=STEPS, latency=LATENCY), random.Random(1)
    with session.fresh() as workers:
        found: dict[str, list[Crowd]] = {name: [] for name in workers}
        for worker in workers.values():
            worker.command("check", job)
            batch(worker, job, WARM)
        for turn in range(pace.rounds):
            names = list(workers)
            shuffler.shuffle(names)
            for name in names:
                spent = sum(each.cpu for each in found[name]) * pace.crowd / 1e9
                if turn == 0 or spent * (turn + 1) / turn <= pace.case:
                    found[name].append(batch(workers[name], job, pace.crowd))
    return found


def rows(size: int, found: Mapping[str, Sequence[Crowd]]) -> list[Row]:
    """Return the rows of all batches.

    Wall time is that of the best batch, since other work on the machine can only add to it; CPU time is the median;
    memory is that of the first batch, since later ones find some left by it.
    """
    title = f"{size} runs at once, {STEPS + 1} requests of {LATENCY * 1e3:.0f} ms each"
    wall = f"wall time of the best batch, in units of the {IDEAL * 1e3:.0f} ms that one run's requests take"
    walls = {name: [each.wall / 1e9 / IDEAL for each in crowds] for name, crowds in found.items()}
    cpus = {name: [each.cpu / 1e3 for each in crowds] for name, crowds in found.items()}
    memory = {name: crowds[0].memory / 1024 for name, crowds in found.items()}
    return [
        Row("W5", f"{title}: {wall}", "x ideal", {n: min(e) for n, e in walls.items()}, spreads(walls)),
        Row("W5", f"{title}: CPU per run", "us", {n: median(e) for n, e in cpus.items()}, spreads(cpus)),
        Row("W5", f"{title}: memory per run, by the peak of the process", "KiB", memory),
    ]


def spreads(figures: Mapping[str, list[float]]) -> dict[str, float]:
    """Return the distance of the quartiles of each."""
    return {name: spread(each) for name, each in figures.items()}


def crowd(session: Session) -> list[Row]:
    """W5: a thousand runs at once, of four requests each."""
    return rows(session.pace.crowd, batches(session))
