"""The workloads W1 to W8: which jobs they are, and what is read off them.

Must not know any framework.
"""

import math
from collections.abc import Mapping, Sequence

from .contract import Job
from .crowd import crowd
from .imports import import_cost
from .micro import micro
from .participants import CAPFOLD, BenchError
from .ready_made import ready_made
from .results import Row
from .session import Session, Workload, row_of

STEPS = 10
LONG_RUNS = (100, 250, 500, 1000, 2000)
TOO_LONG = 1e6
"""Microseconds of one run after which no longer one is measured."""


def one_run(session: Session) -> list[Row]:
    """W1: one request, no tools, no capabilities."""
    return [session.row("W1", "one run without tools", "us", Job())]


def steps(session: Session) -> list[Row]:
    """W2: ten steps of one tool call each, with capabilities on every hook point."""
    rows = []
    for count in (0, 1, 5, 20):
        noun = "capability" if count == 1 else "capabilities"
        title = f"per step, {count} no-op {noun}" if count else "per step, no capability"
        rows.append(session.row("W2", title, "us/step", Job(steps=STEPS, hooks=count), STEPS))
    changing = Job(steps=STEPS, hooks=5, kind="changing")
    title = "per step, 5 capabilities that change the state at every hook (the others: no-ops)"
    rows.append(session.row("W2", title, "us/step", changing, STEPS))
    if session.capfold is not None:
        stored = {CAPFOLD.name: (session.capfold, Job(steps=STEPS, variant="stored"))}
        title = "per step, no capability, log also written to a JSON-lines file"
        rows.append(row_of("W2", title, "us/step", session.figures(stored), STEPS))
    return rows


def exponent(points: Sequence[tuple[int, float]]) -> float:
    """Return the slope of the least-squares line through the points on doubly logarithmic paper."""
    xs = [math.log(size) for size, _ in points]
    ys = [math.log(cost) for _, cost in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - mean_x) ** 2 for x in xs)


def growth(session: Session) -> list[Row]:
    """W3: one long run. Who is slow and grows is not asked for the longest ones: they would take minutes."""
    cases = session.everyone(Job())
    points: dict[str, list[tuple[int, float]]] = {name: [] for name in cases}
    row = Row("W3", "", "us/step", {})
    for size in LONG_RUNS:
        jobs = {
            name: (worker, Job(steps=size))
            for name, (worker, _) in cases.items()
            if not points[name] or points[name][-1][1] < TOO_LONG
        }
        row = row_of("W3", f"per step of {size} in one run", "us/step", session.figures(jobs), size)
        for name, value in row.values.items():
            points[name].append((size, value * size))
    slopes = {name: exponent(found) for name, found in points.items()}
    title = (
        f"one run of {LONG_RUNS[0]} to {LONG_RUNS[-1]} steps: its time grows with the power "
        "(1: no step costs more than the one before; who took over a second was not asked for longer runs)"
    )
    return [Row("W3", title, "exponent", slopes, compared=False), row]


def parallel(session: Session) -> list[Row]:
    """W4: a hundred tool calls in one response."""
    return [session.row("W4", "one run with 100 tool calls in one response", "ms", Job(steps=1, fanout=100))]


def importing(session: Session) -> list[Row]:
    """W6: the import in a fresh interpreter, and the import with an agent built: what is loaded late shows there.

    Raises:
        BenchError: capfold loaded a module that it must leave to those who need it.
    """
    alone, built = {}, {}
    for each in session.participants:
        if each.imports:
            statement = f"import benchmarks.programs.{each.program}"
            alone[each.name] = import_cost(each, each.imports, session.scratch, session.pace.rounds)
            built[each.name] = import_cost(each, statement, session.scratch, session.pace.rounds)
            for cost in (alone[each.name], built[each.name]):
                if each == CAPFOLD and cost.loaded:
                    raise BenchError(f"{each.name} loads {', '.join(cost.loaded)}, which it must not")
    title = "import, and an agent built with a tool and a capability"
    return [
        Row("W6", "import, CPU", "ms", {name: cost.cpu / 1e6 for name, cost in alone.items()}),
        Row("W6", f"{title}, CPU", "ms", {name: cost.cpu / 1e6 for name, cost in built.items()}),
        Row(
            "W6",
            f"{title}, peak memory of the process",
            "MiB",
            {name: cost.peak / 2**20 for name, cost in built.items()},
        ),
    ]


def client(session: Session) -> list[Row]:
    """W7: one request through the real openai client, after a short and a long history."""
    with session.server() as url:
        return [
            session.row(
                "W7",
                f"one request through the openai client, {size} messages",
                "ms",
                Job(base_url=url, history=size),
            )
            for size in (10, 1000)
        ]


WORKLOADS: Mapping[str, Workload] = {
    "W1": one_run,
    "W2": steps,
    "W3": growth,
    "W4": parallel,
    "W5": crowd,
    "W6": importing,
    "W7": client,
    "W8": ready_made,
    "micro": micro,
}
