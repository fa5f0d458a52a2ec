"""The generated blocks of README and docs are what the tables say today; `make docs` writes them anew."""

from pathlib import Path

import pytest

from tests.docs.generated import BLOCKS, block_names, filled
from tests.docs.pages import WRITTEN, name_of


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_generated_blocks_are_up_to_date(page: Path) -> None:
    """A table that changed must reach the pages: run `make docs`, read the difference, and commit it."""
    text = page.read_text(encoding="utf-8")
    assert filled(text) == text


def test_every_generated_block_stands_in_a_page() -> None:
    """No table is generated for nobody, and the benchmarks find their places."""
    texts = [page.read_text(encoding="utf-8") for page in WRITTEN]
    assert {*BLOCKS, "benchmarks", "durable"} == block_names(texts)


def test_filling_changes_nothing_else() -> None:
    """Text around a block stays, a block of the benchmark stays, an unknown name is an error."""
    page = (
        "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n<!-- benchmarks:begin -->\nc\n<!-- benchmarks:end -->\n"
    )
    assert page.replace("old", "new") == filled(page, {"x": lambda: "new\n"})
    with pytest.raises(KeyError, match="x"):
        filled(page, {})
