"""Measure durable runs beside the bare engine: `python -m benchmarks.durable [--write FILE] [--quick]`.

Needs the extra `dbos` and, for its column, PostgreSQL's server binaries. `--write` puts the table between the markers
of a page. Each measurement has a process of its own, so that CPU time and memory are those of durable runs alone.
"""

import argparse
import asyncio
import contextlib
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import cast

from capfold.runtime import Approve
from capfold.runtime.dbos_runs import DurableRuns
from tests.postgres import running

from ..report import between_markers, digits, table_line
from .desk import stamps
from .measures import AT_ONCE, LEASE, STEPS

MARKERS = ("<!-- durable:begin -->", "<!-- durable:end -->")
ROOT = Path(__file__).parents[2]
WAITING = 300
DECIDED = 30
PATIENCE = 120.0
Figures = Mapping[str, float]
Row = tuple[str, str, Callable[[Figures], float]]
ROWS: Sequence[Row] = (
    ("one step on record, bare DBOS", "ms", lambda found: 1e3 * found["bare wall"]),
    ("one step on record, capfold", "ms", lambda found: 1e3 * found["own wall"]),
    ("CPU of a step on record, bare DBOS", "ms", lambda found: 1e3 * found["bare cpu"]),
    ("CPU of a step on record, capfold", "ms", lambda found: 1e3 * found["own cpu"]),
    (f"{AT_ONCE} runs at once, bare DBOS", "steps/s", lambda found: found["bare rate"]),
    (f"{AT_ONCE} runs at once, capfold", "steps/s", lambda found: found["own rate"]),
    (
        f"from kill -9 of a worker until its run goes on elsewhere, lease {LEASE:g} s",
        "s",
        lambda found: found["failover"],
    ),
    (f"{WAITING} runs waiting for approval in one process: memory", "MB", lambda found: found["megabytes"]),
    (
        f"{WAITING} runs waiting for approval in one process: CPU",
        "% of a core",
        lambda found: 100 * found["share"],
    ),
    ("from a decision until its call runs, median", "ms", lambda found: 1e3 * found["wake"]),
    (
        f"from a decision until its call runs, the slowest of {DECIDED}",
        "ms",
        lambda found: 1e3 * found["slowest"],
    ),
)


@contextlib.contextmanager
def child(measure: str, url: str, folder: Path, number: int) -> Iterator["subprocess.Popen[str]"]:
    """Run a measurement in a process of its own."""
    command = [sys.executable, "-m", f"{__package__}.measures", measure, url, str(folder), str(number)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: "subprocess.Popen[str]") -> dict[str, float]:
    """Return the next line of a process, which is JSON."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"a measurement ended with {process.wait()}; what it said stands above")
    return cast("dict[str, float]", json.loads(line))


def failover(url: str, folder: Path, number: int) -> float:
    """Return the seconds from the death of a worker, in the middle of a step, until that step begins elsewhere."""
    del number
    with child("carry_on", url, folder, 0) as other:
        said(other)
        with child("carry_on", url, folder, 1_000) as first:
            said(first)
            wait_for(lambda: len(stamps(folder).get("pause 2", ())) > 0)
            first.kill()
            killed = time.monotonic()
        wait_for(lambda: last(folder) > killed)
        return min(when for found in stamps(folder).values() for when in found if when > killed) - killed


def last(folder: Path) -> float:
    """Return when something last happened."""
    return max((when for found in stamps(folder).values() for when in found), default=0.0)


def wait_for(done: Callable[[], bool]) -> None:
    """Wait until something is so. Raises TimeoutError when it never is."""
    end = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"it was not so within {PATIENCE:g} s")
        time.sleep(0.005)


def waiting(url: str, folder: Path) -> dict[str, float]:
    """Return what a process costs in which many runs wait, and how fast a decision from another one wakes its run."""
    with child("waiting", url, folder, WAITING) as process:
        found = said(process)
        times = asyncio.run(decided(url, folder))
    return {**found, "wake": statistics.median(times), "slowest": max(times)}


async def decided(url: str, folder: Path) -> list[float]:
    """Decide one run after the other; return the seconds from each decision until the call runs."""
    runs = DurableRuns(url)
    times = []
    try:
        await runs.client()
        for number in range(DECIDED):
            run_id = f"r-{number}"
            (request,) = await runs.pending(run_id)
            begun = time.monotonic()
            await runs.decide(run_id, {request.digest: Approve()}, now=time.time())
            await asyncio.to_thread(wait_for, lambda run_id=run_id: f"pay {run_id}" in stamps(folder))  # type: ignore[misc]  # a default binds the loop's value
            times.append(stamps(folder)[f"pay {run_id}"][0] - begun)
            await asyncio.sleep(0.2)
    finally:
        await runs.close()
    return times


def measured(new_url: Callable[[], str], folder: Path, *, quick: bool) -> Figures:
    """Return all figures on one kind of database."""
    places = iter(range(100))

    def place() -> Path:
        made = folder / str(next(places))
        made.mkdir()
        return made

    with child("cost", new_url(), place(), 1 if quick else 5) as process:
        found = said(process)
    deaths = [failover(new_url(), place(), number) for number in range(1 if quick else 3)]
    found["failover"] = statistics.median(deaths)
    return {**found, **waiting(new_url(), place())}


def table(columns: Mapping[str, Figures]) -> str:
    """Return how it was measured, and the table."""
    how = (
        f"Medians; a run of {STEPS} steps, each a model request and a tool call that do nothing, beside a bare DBOS "
        f"workflow that records as many steps of the same size with the same settings. CPython "
        f"{platform.python_version()}, DBOS {version('dbos')}; database and workers on one machine. Figures differ "
        "between machines and hours: read ratios."
    )
    lines = [table_line(["", "unit", *columns]), table_line(["---", "---", *["---:"] * len(columns)])]
    for title, unit, figure in ROWS:
        lines.append(table_line([title, unit, *[digits(figure(found)) for found in columns.values()]]))
    return "\n".join([how, "", *lines])


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.durable", description="What durable runs cost."
    )
    parser.add_argument("--quick", action="store_true", help="few rounds: a look, not a result")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="write the table between the markers of FILE"
    )
    parser.add_argument("--without", choices=["SQLite", "PostgreSQL"], help="leave a database out")
    arguments = parser.parse_args(words)
    columns: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        folder = Path(made)
        numbers = iter(range(100))
        if arguments.without != "SQLite":
            (lite := folder / "lite").mkdir()
            columns["SQLite"] = measured(
                lambda: f"sqlite:///{folder}/{next(numbers)}.sqlite", lite, quick=arguments.quick
            )
        if arguments.without != "PostgreSQL":
            server = stack.enter_context(running())
            (large := folder / "large").mkdir()
            columns["PostgreSQL"] = measured(server.new_database, large, quick=arguments.quick)
    print(table(columns))
    if arguments.write is not None:
        text = arguments.write.read_text(encoding="utf-8")
        arguments.write.write_text(between_markers(text, table(columns), *MARKERS), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
