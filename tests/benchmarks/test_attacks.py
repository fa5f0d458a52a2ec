"""The attacks on capfold and its peers: the table is of what was run, and capfold still ends as it says."""

import ast
from pathlib import Path

import pytest

from benchmarks.attacks import findings, on_capfold
from benchmarks.attacks.judging import NotApplicable, Seen, judged
from benchmarks.attacks.table import ATTACKS
from tests.corruption.cases import CASES

FOLDER = Path(findings.__file__).parent


def test_each_attack_is_a_case() -> None:
    """At least fifteen, each by the id of its case."""
    assert set(ATTACKS) <= set(CASES)
    assert len(ATTACKS) >= 15


@pytest.mark.parametrize("module", ["on_capfold", "on_pydantic_ai", "on_langchain"])
def test_each_attack_has_a_program(module: str) -> None:
    """On every framework; a peer need not be installed for this."""
    tree = ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))
    programs = {node.name.upper() for node in tree.body if isinstance(node, ast.AsyncFunctionDef)}
    assert set(ATTACKS) == {name for name in programs if name[1:].isdigit()}


def test_what_was_found_is_of_these_attacks() -> None:
    """Who adds an attack runs them: the table holds only what was run, on versions that it names."""
    found = findings.read()
    assert list(ATTACKS) == list(found.rows)
    assert all(set(found.versions) == set(row) for row in found.rows.values())
    assert len(ATTACKS) == len(findings.table(found))


@pytest.mark.parametrize("case", ATTACKS)
def test_capfold_ends_as_the_table_says(case: str) -> None:
    """The programs of capfold are run again; none is silent."""
    made = judged(on_capfold.PROGRAMS[case])
    assert findings.read().rows[case]["capfold"] == made
    assert "silent" != made.outcome


async def _silent() -> Seen:
    return Seen(took=True, what="it happened", kept="nobody")


async def _named() -> Seen:
    return Seen(took=True, what="it happened", kept="by Forger")


async def _prevented() -> Seen:
    return Seen(took=False, what="it did not happen")


async def _warned() -> Seen:
    import logging  # noqa: PLC0415  # what a framework may do at any time

    logging.getLogger("a framework").warning("somebody wrote that")
    return Seen(took=True, what="it happened")


async def _raised() -> Seen:
    raise ValueError("not so\nmore")


async def _none() -> NotApplicable:
    return NotApplicable("no such thing")


def test_judging() -> None:
    """What was seen decides: an error, a record that names the forger, a warning, or nothing at all."""
    attacks = (_silent, _named, _prevented, _warned, _raised, _none)
    assert ["silent", "on record", "prevented", "warned", "error", "not applicable"] == [
        judged(attack).outcome for attack in attacks
    ]
    assert "ValueError: not so" == judged(_raised).what
