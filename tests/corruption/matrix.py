"""The matrix: what becomes of each corruption case, seen by running it. `python -m tests.corruption.matrix`.

With `--write` what was seen goes to `observed.json`, of which the tables in README and docs are made.
"""

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.corruption.cases import CASES, GROUPS, WAYS
from tests.corruption.observing import Observed, Observer

HERE = Path(__file__).parent
OBSERVED = HERE / "observed.json"
# Besides the ways a run may end: an error before or outside of a run, and a run with nothing to object to.
REFUSED, UNTOUCHED = "refused", "untouched"
ENDS = (*WAYS, REFUSED, UNTOUCHED)
Row: TypeAlias = Mapping[str, Any]  # Any: JSON, whose shape `row_of` fixes
HEAD = ("case", "what is tried", "tests", "runs", "on record", "restored", "ended", "refused", "by")
_WHICH = 4  # of the errors, the most frequent


def row_of(seen: Observed) -> Row:
    """Return what was seen of a case as JSON: its functions, counts of tests and of ends by way, the errors by name."""
    ways: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for (way, what), times in seen.ends.items():
        ways[way] += times
        if way in {"error", REFUSED}:
            errors[what] += times
    return {
        "functions": sorted(seen.functions),
        "tests": seen.tests,
        **{way: ways[way] for way in ENDS},
        "errors": dict(sorted(errors.items(), key=lambda error: (-error[1], error[0]))),
    }


def observe(arguments: Sequence[str] = ()) -> tuple[Observer, int]:
    """Run the suite; return what was seen, and pytest's exit status."""
    observer = Observer()
    # Examples are drawn the same each time, so that two runs see the same.
    options = ["-q", "--no-header", "-p", "no:cacheprovider", "--hypothesis-profile=ci", str(HERE)]
    options += ["--ignore", str(HERE / "test_cases.py")]  # it checks what is being found out
    # What observes has imported anyio, whose own asserts pytest would have rewritten otherwise: no matter.
    options += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
    return observer, int(pytest.main([*options, *arguments], plugins=[observer]))


def problems(observer: Observer) -> list[str]:
    """Return what contradicts the table: a case that failed, was not run, or ended in another way than it may."""
    found = [f"failed: {test}" for test in observer.others]
    for case in CASES.values():
        seen = observer.cases.get(case.id)
        if seen is None:
            found.append(f"{case.id}: no test")
            continue
        found += [f"{case.id}: failed: {test}" for test in seen.failed]
        row = row_of(seen)
        ways = {way for way in WAYS if row[way]} | ({"error"} if row[REFUSED] else set())
        if ways != case.ways:
            how = ", ".join(sorted(ways)) or "in no way"
            found.append(f"{case.id}: ended {how}; the table says {', '.join(sorted(case.ways))}")
    return found + [f"{case}: is not in the table" for case in sorted(observer.cases.keys() - CASES)]


def line_of(case: str, row: Row) -> tuple[str, ...]:
    """Return a line of the matrix."""
    errors = list(row["errors"])
    which = ", ".join(f"`{name}`" for name in errors[:_WHICH]) + (", ..." if len(errors) > _WHICH else "")
    runs = sum(row[way] for way in (*WAYS, UNTOUCHED))
    counts = (str(row[way] or "") for way in (*WAYS, REFUSED))
    return case, CASES[case].says, str(row["tests"]), str(runs), *counts, which


def read() -> Mapping[str, Row]:
    """Return what was seen last: case -> row. Raises FileNotFoundError when nothing was written yet."""
    rows: Mapping[str, Row] = json.loads(OBSERVED.read_text(encoding="utf-8"))
    return rows


def totals(rows: Mapping[str, Row]) -> str:
    """Return the sums, as sentences."""
    sums = Counter[str]()
    for row in rows.values():
        sums.update({name: row[name] for name in ("tests", *ENDS)})
    runs = sum(sums[way] for way in WAYS)
    return (
        f"{len(rows)} cases in {sums['tests']:,} tests, run and streamed, on asyncio and trio. Of {runs:,} runs under "
        f"attack, in {sums['recorded']:,} it took effect and is on record, in {sums['restored']:,} it was restored "
        f"and is on record, and {sums['error']:,} ended in a typed error; none went on in silence. "
        f"{sums[REFUSED]:,} attempts were refused outside of a run; {sums[UNTOUCHED]:,} runs were controls."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite and print the matrix; return 1 for whatever contradicts the table."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    write = "--write" in words
    observer, status = observe([word for word in words if word != "--write"])
    rows = {case: row_of(observer.cases[case]) for case in CASES if case in observer.cases}
    for group, cases in GROUPS.items():
        sys.stdout.write(f"\n{group}\n")
        for case in cases:
            if case.id in rows:
                sys.stdout.write("  " + " | ".join(line_of(case.id, rows[case.id])) + "\n")
    sys.stdout.write(f"\n{totals(rows)}\n")
    found = problems(observer)
    for problem in found:
        sys.stderr.write(f"{problem}\n")
    if write and not found:
        OBSERVED.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 1 if found or status else 0


if __name__ == "__main__":
    sys.exit(main())
