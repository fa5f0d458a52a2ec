"""What was found, as a file and as tables. Knows no framework: who has none of the peers reads it too."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from attrs import frozen

from .judging import Finding, Outcome
from .table import ATTACKS

FOUND = Path(__file__).with_name("found.json")
# Worst first, as they are summed up.
OUTCOMES: tuple[Outcome, ...] = ("silent", "warned", "on record", "prevented", "error", "not applicable")
Rows: TypeAlias = Mapping[str, Mapping[str, Finding]]


@frozen
class Found:
    """Case -> framework -> finding, with the versions that were run and the Python they ran on."""

    versions: Mapping[str, str]
    python: str
    rows: Rows


def write(found: Found) -> None:
    """Keep what was found."""
    rows = {
        case: {name: {"outcome": one.outcome, "what": one.what} for name, one in row.items()}
        for case, row in found.rows.items()
    }
    made = {"versions": dict(found.versions), "python": found.python, "rows": rows}
    FOUND.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def read() -> Found:
    """Return what was found last. Raises FileNotFoundError when nothing was."""
    made = json.loads(FOUND.read_text(encoding="utf-8"))
    rows = {
        case: {name: Finding(one["outcome"], one["what"]) for name, one in row.items()}
        for case, row in made["rows"].items()
    }
    return Found(made["versions"], made["python"], rows)


def table(found: Found) -> list[tuple[str, ...]]:
    """Return the lines of the table: case, attack, and per framework the outcome and what was seen."""
    return [
        (case, ATTACKS[case], *(cell(row[name]) for name in found.versions))
        for case, row in found.rows.items()
    ]


def cell(finding: Finding) -> str:
    """Return a finding in a cell: the outcome, and below it what it rests on."""
    return f"**{finding.outcome}**: {finding.what}"


def sums(found: Found) -> list[tuple[str, ...]]:
    """Return the lines of the sums: outcome, and per framework how many of the attacks ended so."""
    counts = {name: Counter(row[name].outcome for row in found.rows.values()) for name in found.versions}
    return [
        (outcome, *(str(counts[name][outcome]) for name in found.versions))
        for outcome in OUTCOMES
        if any(counts[name][outcome] for name in found.versions)
    ]


def named(found: Found) -> tuple[str, ...]:
    """Return the frameworks with their versions, as heads of columns."""
    return tuple(f"{name} {version}" for name, version in found.versions.items())
