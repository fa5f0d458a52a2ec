"""Run the attacks on capfold and its peers: `python -m benchmarks.attacks [CASE...] [--write]`.

The peers come with `pip install capfold[bench]`. With `--write` what was found goes to `found.json`, of which
the table in docs/corruption.md is made (`make docs`).
"""

import importlib
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from .findings import Found, named, sums, write
from .judging import Attack, Finding, judged
from .table import ATTACKS

# Name -> the distribution whose version counts, and the module of its programs.
FRAMEWORKS: Mapping[str, tuple[str, str]] = {
    "capfold": ("capfold", "on_capfold"),
    "pydantic-ai": ("pydantic-ai-slim", "on_pydantic_ai"),
    "LangChain": ("langchain", "on_langchain"),
}


def main(words: Sequence[str]) -> int:
    """Run the attacks that are named, all when none is; print what was found."""
    cases = [case for case in ATTACKS if case in words] or list(ATTACKS)
    programs: dict[str, Mapping[str, Attack]] = {
        name: importlib.import_module(f"{__package__}.{module}").PROGRAMS
        for name, (_, module) in FRAMEWORKS.items()
    }
    rows: dict[str, dict[str, Finding]] = {}
    for case in cases:
        print(f"{case}: {ATTACKS[case]}")
        rows[case] = {}
        for name in FRAMEWORKS:
            found = rows[case][name] = judged(programs[name][case])
            print(f"  {name:12} {found.outcome}: {found.what}", flush=True)
    versions = {name: version(distribution) for name, (distribution, _) in FRAMEWORKS.items()}
    all_found = Found(versions, platform.python_version(), rows)
    print("\n" + " | ".join(("", *named(all_found))))
    for line in sums(all_found):
        print(" | ".join(line))
    if "--write" in words:
        if len(cases) < len(ATTACKS):
            print("error: --write writes the whole table: name no case", file=sys.stderr)
            return 1
        write(all_found)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
