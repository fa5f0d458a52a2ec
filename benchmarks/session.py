"""One start of the command: its workers, its server, its pace, and jobs measured on all of them at once.

Must not know the workloads.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from .contract import Job
from .drive import Case, Figure, Pace, Worker, cores, interleave, spawn
from .participants import CAPFOLD, BenchError, Participant
from .results import Row

NANOSECONDS: Mapping[str, float] = {"ns": 1.0, "us": 1e3, "ms": 1e6}


class Session:
    """The workers of all participants; a context manager that ends them."""

    def __init__(
        self, participants: Sequence[Participant], pace: Pace, scratch: Path, *, pinned: bool
    ) -> None:
        self.participants = participants
        self.pace = pace
        self.scratch = scratch
        self._cores = cores() if pinned else (None, None)
        self._workers: dict[str, Worker] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def worker(self, participant: Participant) -> Worker:
        """Return the process of `participant`, started when first asked for."""
        if participant.adapter not in self._workers:
            worker = Worker(participant, self.scratch, self._cores[0])
            self._workers[participant.adapter] = self._stack.enter_context(worker)
        return self._workers[participant.adapter]

    @contextmanager
    def fresh(self) -> Iterator[Mapping[str, Worker]]:
        """Yield processes of all participants, by name, that have done nothing yet, and end them."""
        with ExitStack() as stack:
            yield {
                each.name: stack.enter_context(Worker(each, self.scratch, self._cores[0]))
                for each in self.participants
            }

    @property
    def capfold(self) -> Worker | None:
        """The worker of capfold, None when it was left out."""
        return self.worker(CAPFOLD) if CAPFOLD in self.participants else None

    def everyone(self, job: Job, label: str = "") -> dict[str, Case]:
        """Return a case for each participant, labelled by `label` and its name."""
        return {label + each.name: (self.worker(each), job) for each in self.participants}

    def figures(self, cases: Mapping[str, Case]) -> dict[str, Figure]:
        """Measure the cases among each other, at this session's pace."""
        return interleave(cases, self.pace)

    def row(self, workload: str, title: str, unit: str, job: Job, per: int = 1) -> Row:
        """Measure one job on everyone; of a `unit` like "us/step" the part before "/" sets the scale."""
        return row_of(workload, title, unit, self.figures(self.everyone(job)), per)

    @contextmanager
    def server(self) -> Iterator[str]:
        """Start the loopback server on the other core and yield its base URL.

        Raises:
            BenchError: it did not start.
        """
        pin = () if self._cores[1] is None else (str(self._cores[1]),)
        process = spawn("server", *pin, scratch=self.scratch)
        try:
            port = process.stdout.readline().strip() if process.stdout else ""
            if not port:
                raise BenchError("the loopback server did not start; its traceback is above")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()
            process.communicate()


def row_of(workload: str, title: str, unit: str, figures: Mapping[str, Figure], per: int = 1) -> Row:
    """Return the row of figures that are labelled by participant, each divided by `per`."""
    scale = NANOSECONDS[unit.partition("/")[0]] * per
    return Row(
        workload,
        title,
        unit,
        {name: figure.median / scale for name, figure in figures.items()},
        {name: figure.spread / scale for name, figure in figures.items()},
    )


Workload = Callable[[Session], list[Row]]
