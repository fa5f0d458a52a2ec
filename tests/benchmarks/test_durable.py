"""The table of what durable runs cost: whole, and in its page. That the measurements hold is for the command to see."""

from collections import defaultdict

import pytest

from benchmarks.report import between_markers
from tests.docs.pages import ROOT

pytest.importorskip("dbos", reason="dbos is missing: it is the extra `dbos`")

from benchmarks.durable import __main__ as durable


def test_every_row_has_a_figure_for_each_database() -> None:
    """Seconds are shown as milliseconds, a share of a core in per cent."""
    figures: defaultdict[str, float] = defaultdict(lambda: 0.002)
    lines = durable.table({"SQLite": figures, "PostgreSQL": figures}).splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")][2:]
    assert [title for title, _, _ in durable.ROWS] == [row[0] for row in rows]
    assert {4} == {len(row) for row in rows}
    assert {"ms": "2.00", "% of a core": "0.20", "MB": "0.00"} == {
        row[1]: row[3] for row in rows if row[1] in {"ms", "% of a core", "MB"}
    }


def test_the_table_has_its_place_in_the_docs() -> None:
    """The page has both markers once, and what is around them stays."""
    page = (ROOT / "docs" / "durable.md").read_text(encoding="utf-8")
    written = between_markers(page, "new", *durable.MARKERS)
    assert written.endswith("<!-- durable:begin -->\nnew\n<!-- durable:end -->\n")
    assert page.partition("<!-- durable:begin -->")[0] == written.partition("<!-- durable:begin -->")[0]
