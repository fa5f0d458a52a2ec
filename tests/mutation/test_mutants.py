"""The table of mutants does not rot: each applies, is Python, and names tests that there are."""

import ast
from pathlib import Path

import pytest

from capfold import runtime
from tests.mutation.__main__ import ROOT, mutated
from tests.mutation.mutants import MUTANTS, Mutant

PACKAGES = Path(runtime.__file__).parents[1]  # of what is installed, which may be a wheel


def name_of(mutant: Mutant) -> str:
    """Return what a test of a mutant is called."""
    return f"{mutant.file}: {mutant.check}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=name_of)
def test_each_mutant_applies(mutant: Mutant) -> None:
    """Its text stands in its file exactly once, and with what replaces it the file is Python, and another program."""
    source = (PACKAGES / mutant.file).read_text(encoding="utf-8")
    made = mutated(mutant, source)
    assert ast.dump(ast.parse(source)) != ast.dump(ast.parse(made))


def test_each_mutant_names_tests() -> None:
    """Files and folders of tests that exist; words after `-k` are for pytest to match."""
    for call in {call for mutant in MUTANTS for call in mutant.tests}:
        paths = call[: call.index("-k")] if "-k" in call else call
        assert paths
        assert all((ROOT / path).exists() for path in paths)


def test_no_mutant_stands_twice() -> None:
    """Each check is taken out once."""
    assert len(MUTANTS) == len({(mutant.file, mutant.check) for mutant in MUTANTS})
    assert len(MUTANTS) == len({(mutant.file, mutant.text, mutant.instead) for mutant in MUTANTS})
