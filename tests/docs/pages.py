"""The pages of the project and the fenced blocks in them. Knows nothing of what a block should hold."""

import re
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
WRITTEN = (*PAGES, ROOT / "CHANGELOG.md")  # where generated blocks stand
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@frozen
class Block:
    """One fenced block: its language, its text, and the number of its first line."""

    language: str
    text: str
    line: int
    follows: bool  # whether nothing but blank lines stands between it and the block before


def name_of(page: Path) -> str:
    """Return a page's path as people write it."""
    return page.relative_to(ROOT).as_posix()


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page, from top to bottom."""
    end = 0
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start(2)) + 1
        yield Block(found[1], found[2], line, bool(end) and not text[end : found.start()].strip())
        end = found.end()


def prose(text: str) -> str:
    """Return a page without its generated blocks: what somebody wrote."""
    return re.sub(r"<!-- (\w+):begin -->.*?<!-- \1:end -->", "", text, flags=re.DOTALL)
