"""Many random runs: whatever happens in them, log, state and what the world saw agree. `python -m tests.random_runs`.

Random lists of the ready-made capabilities and of strangers, agents above and below, faults, stops and cancellations,
on asyncio and trio in turn. Of each run: the truths of `laws_truths`, a replay that comes out equal, a fold of the log
by code that knows nothing of the runtime, no warning, no task or thread left behind.

`--pairs` takes every two of the ready-made in both orders; `--faults` plants faults in the runtime and says how long it
took to find each. A failure ends it: what failed, and the line that repeats it.
"""

import argparse
import gc
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Final

import pytest
from attrs import define, field
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from hypothesis.strategies import SearchStrategy

from capfold.capabilities import group
from capfold.capabilities.capability import AnyCapability
from capfold.runtime import Counter as Units
from capfold.runtime.laws import RunMachine
from capfold.runtime.laws_check import violations
from capfold.runtime.laws_loops import LoopName
from capfold.runtime.laws_play import Told, tell
from capfold.runtime.laws_tale import Tale
from capfold.runtime.laws_tales import tales
from capfold.runtime.laws_truths import check_told
from capfold.runtime.laws_world import ROOT
from tests.corruption.log_fold import folded
from tests.corruption.test_log_explains import check_explained, check_state
from tests.ready_made import READY_MADE
from tests.runtime.runtime_faults import FAULTS

CHUNK: Final = 100
LOOPS: Final[tuple[LoopName, LoopName]] = ("asyncio", "trio")
PATIENCE: Final = 120.0  # seconds for a planted fault to be found
_FEW: Final = settings(max_examples=10, deadline=None, database=None)
# Threads that event loops keep for the next who needs one.
_KEPT: Final = ("AnyIO worker thread", "Trio thread", "asyncio_")


@define
class Tally:
    """What was seen in many runs."""

    runs: int = 0
    seen: Counter[str] = field(factory=Counter)

    def take(self, tale: Tale, told: Told, loop: LoopName) -> None:
        """Count one run."""
        self.runs += 1
        state = told.result.state if told.result is not None else None
        self.seen.update(
            {
                f"on {loop}": 1,
                f"way: {tale.way}": 1,
                f"ended: {state.status if state is not None else 'caller cancelled'}": 1,
                f"cut: {tale.cut[1] if tale.cut is not None and told.world.cut else 'never'}": 1,
                "model requests": len(told.world.sent),
                "tool bodies": len(told.world.bodies),
                "questions to a person": len(told.world.asked),
                "records": len(told.log),
                "runs of sub-agents": len({record.run for record in told.log}) - 1,
                "runs resumed": sum(record.kind == "run_resumed" for record in told.log),
            }
        )

    def table(self) -> str:
        """Return the counts as a table."""
        wide = max(map(len, self.seen), default=0)
        return "\n".join(f"  {name:<{wide}}  {self.seen[name]:>8,}" for name in sorted(self.seen))


def fresh(names: Sequence[str]) -> list[AnyCapability]:
    """Return ready-made capabilities by the names of the table."""
    return [READY_MADE[name] for name in names]


def lists() -> SearchStrategy[list[str]]:
    """Return a strategy for the names of up to three of them."""
    return st.lists(st.sampled_from(sorted(READY_MADE)), max_size=3, unique=True)


def check_run(tale: Tale, loop: LoopName) -> Told:
    """Tell a tale and hold it against all that is promised. Raises AssertionError, ReplayError or a warning."""
    before = set(threading.enumerate())
    told = tell(tale, loop, deps=outside())
    again = check_told(told)
    # The log of all its parts; of a run whose caller was cancelled too, of which the replay alone has the last state.
    found = folded(record for record in told.log if record.run == ROOT)
    check_state(again.state, found)
    if told.result is not None:
        check_explained(told.result, found)
    left = [
        thread.name for thread in set(threading.enumerate()) - before if not thread.name.startswith(_KEPT)
    ]
    assert not left, f"threads are left: {left}"
    return told


def outside() -> Mapping[str, object]:
    """Return what hooks find outside, anew for each run."""
    return {"calls": Units()}


def say(text: str) -> None:
    """Write a line of what the command has to tell."""
    print(text, flush=True)  # noqa: T201  # it is a command, and this its output


class Failed(Exception):
    """A run that broke a promise; its text says which, and how to repeat it."""


def search(
    drawn: SearchStrategy[Tale], runs: int, first: int, *, loop: LoopName, tally: Tally, repeat: str
) -> None:
    """Tell `runs` tales, drawn from a seed. Raises `Failed` for one that breaks a promise, shrunk."""

    @seed(first)
    @settings(
        max_examples=runs,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn)
    def each(tale: Tale) -> None:
        tally.take(tale, check_run(tale, loop), loop)

    try:
        each()
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        notes = "\n".join(getattr(error, "__notes__", ()))
        said = f"{type(error).__name__}: {error} ({where.name} in {Path(where.filename).name}: {where.line})"
        raise Failed(f"{said}\n{notes}\n\nto repeat it: {repeat}") from error


def random_runs(
    runs: int, first: int, tally: Tally, tell_how: Callable[[str], None], *, only: LoopName | None = None
) -> None:
    """Tell random tales in chunks, each with a seed of its own, on one loop after the other or on one alone."""
    chunk = 0
    while tally.runs < runs:
        loop = only or LOOPS[chunk % 2]
        repeat = f"python -m tests.random_runs {CHUNK} --seed {first + chunk} --loop {loop}"
        drawn = lists().flatmap(lambda names: tales(fresh(names)))
        left = min(CHUNK, runs - tally.runs)
        search(drawn, left, first + chunk, loop=loop, tally=tally, repeat=repeat)
        chunk += 1
        tell_how(f"{tally.runs:,} runs")


def pairs() -> Iterator[tuple[str, str]]:
    """Yield every two names of the table, in both orders."""
    yield from permutations(sorted(READY_MADE), 2)


def every_pair(
    each: int,
    first: int,
    tally: Tally,
    tell_how: Callable[[str], None],
    *,
    only: tuple[str, ...] | None = None,
) -> None:
    """Tell `each` tales of every two of the ready-made, in both orders, or of two alone."""
    for number, names in enumerate(pairs()):
        if only is not None and names != only:
            continue
        loop = LOOPS[number % 2]
        repeat = f"python -m tests.random_runs --pairs {each} --seed {first} --only {','.join(names)}"
        drawn = tales(fresh(names), beside=False, shuffled=False)
        # The pair's own place, so that it is the same with --only.
        search(drawn, each, first + number, loop=loop, tally=tally, repeat=repeat)
        found = next(violations(group(*fresh(names)), settings=_FEW, seed=first + number), None)
        if found is not None:
            raise Failed(f"{found}\n\nto repeat it: {repeat}")
        tell_how(f"{' '.join(names)}: {tally.runs:,} runs")


def find(plant: Callable[[pytest.MonkeyPatch], None], examples: int) -> str:
    """Plant a fault, and return what a `RunMachine` found, "" for nothing."""

    class Planted(RunMachine):
        """Ready-made capabilities and strangers alone."""

    seek = settings(
        max_examples=examples,
        stateful_step_count=20,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        try:
            run_state_machine_as_test(Planted, settings=seek)
        except Exception as error:  # noqa: BLE001  # whatever shows the fault
            return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def every_fault(examples: int, tell_how: Callable[[str], None]) -> list[str]:
    """Seek each planted fault; print what was found and after how long; return those that were not."""
    missed: list[str] = []
    for name, plant in FAULTS.items():
        tell_how(name)
        began = time.monotonic()
        found = find(plant, examples)
        took = time.monotonic() - began
        say(f"{name:<48} {took:6.1f} s  {found or 'NOT FOUND'}"[:160])
        if not found or took > PATIENCE:
            missed.append(name)
    return missed


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.random_runs", description=__doc__)
    parser.add_argument("runs", nargs="?", type=int, default=10_000, help="how many (default: 10,000)")
    parser.add_argument("--seed", type=int, default=0, help="of the first hundred; each hundred has the next")
    parser.add_argument("--loop", choices=LOOPS, help="one event loop alone")
    parser.add_argument(
        "--pairs", type=int, metavar="N", help="N runs of every two of the ready-made, both orders"
    )
    parser.add_argument("--only", metavar="A,B", help="with --pairs: these two alone, in this order")
    parser.add_argument(
        "--faults", type=int, metavar="N", help="seek the planted faults in N examples at most"
    )
    return parser.parse_args()


def main() -> int:
    """Run what is asked for; return 1 when something failed."""
    asked, tally, began = arguments(), Tally(), time.monotonic()
    warnings.simplefilter("error")
    unraised: list[str] = []
    sys.unraisablehook = lambda what: unraised.append(
        f"{what.err_msg}: {what.exc_value!r} in {what.object!r}"
    )

    def tell_how(what: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{what:<70}")
            sys.stderr.flush()

    failed = ""
    try:
        if asked.faults is not None:
            missed = every_fault(asked.faults, tell_how)
            failed = f"not found within {PATIENCE:.0f} s: {', '.join(missed)}" if missed else ""
        elif asked.pairs is not None:
            only = tuple(asked.only.split(",")) if asked.only else None
            every_pair(asked.pairs, asked.seed, tally, tell_how, only=only)
        else:
            random_runs(asked.runs, asked.seed, tally, tell_how, only=asked.loop)
    except Failed as error:
        failed = str(error)
    gc.collect()
    failed = failed or "\n".join(unraised)
    say(f"\n{tally.runs:,} runs in {time.monotonic() - began:.0f} s\n{tally.table()}")
    say(f"\nFAILED: {failed}" if failed else "\nevery promise was kept")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
