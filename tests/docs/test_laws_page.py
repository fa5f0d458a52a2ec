"""The page about laws has the tables that the code has: laws, and kinds of findings."""

import re

from capfold.runtime.laws import FINDINGS, LAWS
from tests.docs.pages import ROOT


def rows(head: str) -> dict[str, str]:
    """Return the first two columns of the table whose first heading is `head`."""
    text = (ROOT / "docs" / "laws.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^\| {re.escape(head)} \|.*\n\| ---.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    cells = [[cell.strip() for cell in line.split("|")[1:3]] for line in str(found).splitlines()]
    return {first.strip("`"): second for first, second in cells}


def test_every_law_has_its_row() -> None:
    """In the order of the table, and with its sentence's first words; the page may add to it."""
    there = rows("law")
    assert list(LAWS) == list(there)
    for name, law in LAWS.items():
        assert law.sentence.split()[:2] == there[name].replace(", by `order_insensitive`", "").split()[:2], (
            name
        )


def test_every_kind_of_finding_has_its_row() -> None:
    """With its meaning."""
    there = rows("`finding.kind`")
    assert list(FINDINGS) == list(there)
    assert [name for name, meaning in FINDINGS.items() if not there[name].startswith(meaning)] == []
