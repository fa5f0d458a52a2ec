"""The command line of the benchmarks: what to run, and where the results go."""

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .drive import FULL, QUICK
from .participants import CAPFOLD, HAND, BenchError, Participant, chosen, version_of
from .report import markdown, row_line, write_into
from .results import Results, Row
from .session import Session
from .workloads import WORKLOADS


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = argparse.ArgumentParser(
        prog="python benchmarks/run.py",
        description="Overhead of capfold beside its peers. They come with `pip install capfold[bench]`.",
    )
    result.add_argument(
        "workloads", nargs="*", metavar="WORKLOAD", help=f"{', '.join(WORKLOADS)}; all when none is named"
    )
    result.add_argument("--quick", action="store_true", help="few and short blocks: a look, not a result")
    result.add_argument(
        "--readme", type=Path, metavar="FILE", help="write the table between the markers of FILE"
    )
    result.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    result.add_argument(
        "--without", action="append", default=[], metavar="NAME", help="leave a participant out"
    )
    result.add_argument(
        "--pin",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep workers and server on a core each, where there are two",
    )
    return result


def selected(names: Sequence[str], readme: Path | None) -> Sequence[str]:
    """Return the workloads to run.

    Raises:
        BenchError: a name that is none, or a part of the table where the file shall hold the whole.
    """
    if unknown := [name for name in names if name not in WORKLOADS]:
        raise BenchError(f"{unknown[0]}: no such workload; there are: {', '.join(WORKLOADS)}")
    if readme is not None and names and set(names) != set(WORKLOADS):
        raise BenchError("--readme writes the whole table: name no workload, so that all of them run")
    return [name for name in WORKLOADS if name in names] if names else list(WORKLOADS)


def results_of(
    participants: Sequence[Participant], rows: Sequence[Row], arguments: argparse.Namespace
) -> Results:
    """Return the rows with what is needed to read them."""
    versions = {each.name if each is not HAND else each.package: version_of(each) for each in participants}
    return Results(
        rows=rows,
        names=[each.name for each in participants],
        peers=frozenset(each.name for each in participants if each.peer),
        own=CAPFOLD.name,
        floor=HAND.name,
        versions={name: version for name, version in versions.items() if version},
        python=platform.python_version(),
        quick=arguments.quick,
        left_out=sorted(arguments.without),
    )


def measure(arguments: argparse.Namespace) -> Results:
    """Run the selected workloads, printing each row as it comes."""
    names = selected(arguments.workloads, arguments.readme)
    participants = chosen(arguments.without)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        pace = QUICK if arguments.quick else FULL
        with Session(participants, pace, Path(folder), pinned=arguments.pin) as session:
            for name in names:
                for row in WORKLOADS[name](session):
                    rows.append(row)
                    print(row_line(results_of(participants, rows, arguments), row), flush=True)
    return results_of(participants, rows, arguments)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 0, or 1 with the reason on standard error."""
    arguments = parser().parse_args(words)
    try:
        results = measure(arguments)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(results.as_json(), indent=1) + "\n", encoding="utf-8")
        if arguments.readme is not None:
            write_into(arguments.readme, results)
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"\n{markdown(results)}")
    return 0
