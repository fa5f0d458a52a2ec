"""The rules printout: complete, and nothing in it that is not in the tables."""

import json
import re

import pytest
from attrs import fields

from capfold.capabilities.call_state import CallState
from capfold.capabilities.grid import HOOKS
from capfold.capabilities.owners import RULES, owners
from capfold.capabilities.state import RunState
from capfold.runtime.phases import MOVES, Phase
from capfold.runtime.rules import rules_json, rules_markdown, rules_mermaid, rules_text

TABLES = json.loads(json.dumps(rules_json()))


@pytest.mark.parametrize("record", [RunState, CallState])
def test_every_field_stands_with_its_owner(record: type) -> None:
    """A new field of a record is in the printout without anybody's doing, once, with its owner."""
    listed = {
        name: owner
        for owner, rule in TABLES["owners"].items()
        for name in rule["fields"].get(record.__name__, [])
    }
    assert {name: owner.name for name, owner in owners(record).items()} == listed


def test_tables_are_whole() -> None:
    """Each owner with its law, each hook, each phase and each move is there, in the order of the tables."""
    assert [owner.name for owner in RULES] == list(TABLES["owners"])
    assert list(HOOKS) == list(TABLES["hooks"])
    assert [phase.value for phase in Phase] == list(TABLES["phases"])
    for phase, moves in MOVES.items():
        told = {event: set(targets) for event, targets in TABLES["phases"][phase.value].items()}
        assert {
            event.__name__: {target.value for target in targets} for event, targets in moves.items()
        } == told


def everything() -> set[str]:
    """Return each owner, field, hook, phase and event by name."""
    return {
        *(owner.name for owner in RULES),
        *(field.name for record in (RunState, CallState) for field in fields(record)),
        *HOOKS,
        *(phase.value for phase in Phase),
        *(event.__name__ for moves in MOVES.values() for event in moves),
    }


def test_text_names_everything() -> None:
    """The text has every owner, field, hook, phase and event, within its width."""
    text = rules_text(width=100)
    assert set() == everything() - set(re.findall(r"\w+", text))
    assert max(map(len, text.splitlines())) <= 100


def test_markdown_names_everything() -> None:
    """So has the Markdown, in tables whose lines have as many cells as their heads."""
    text = rules_markdown()
    assert set() == everything() - set(re.findall(r"\w+", text))
    tables = [re.findall(r"^\|.*\|$", part, re.MULTILINE) for part in text.split("\n\n")]
    assert 3 == len([lines for lines in tables if lines])
    assert all(1 == len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) for lines in tables if lines)


def test_mermaid_draws_every_move() -> None:
    """Each move is an arrow, the first phase has the entry, a dead end the exit; nothing else is drawn."""
    first, *lines = rules_mermaid().splitlines()
    arrows = {tuple(line.strip().partition(": ")[0].split(" --> ")) for line in lines}
    expected = {
        (phase.value, target.value)
        for phase, moves in MOVES.items()
        for targets in moves.values()
        for target in targets
    }
    ends = {(phase.value, "[*]") for phase, moves in MOVES.items() if not moves}
    assert "stateDiagram-v2" == first
    assert expected | ends | {("[*]", next(iter(MOVES)).value)} == arrows
    assert len(lines) == len(arrows)
