"""The code in README and docs runs as printed, one page after the other, and prints what stands below it."""

import contextlib
import io
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from capfold.runtime.demo import run_demo
from tests.docs.pages import PAGES, ROOT, Block, blocks, name_of

ELISION = "..."
# What a page needs that is not in the base install: it is skipped where that is missing.
NEEDS = {"docs/agent-hooks.md": "agent_hooks", "docs/durable.md": "dbos", "docs/temporal.md": "temporalio"}
# What differs with every detail of a run: how many records it has, and digests.
VOLATILE = re.compile(r"\b\d+(?= records)|(?<=sha256 )[0-9a-f]+|\x1b\[\d*m")


@pytest.fixture
def page_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return an empty module that can be found by its name, in a folder where files may be written."""
    module = ModuleType("a_page_of_the_docs")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    return module


def run_block(block: Block, page: Path, module: ModuleType) -> str:
    """Run a block in the page's namespace, with line numbers of the page; return what it printed."""
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, vars(module))  # noqa: S102  # our own pages
    return out.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_blocks_run_and_print_what_is_shown(page: Path, page_module: ModuleType) -> None:
    """Each page is one program from top to bottom; a text block right below code is exactly its output."""
    if name_of(page) in NEEDS:
        pytest.importorskip(NEEDS[name_of(page)], reason=f"{name_of(page)} needs an extra")
    printed: str | None = None
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "text" and block.follows and printed is not None:
            assert block.text == printed, f"{name_of(page)}:{block.line}"
        elif printed:
            pytest.fail(f"{name_of(page)}:{block.line}: the code above prints, and no output is shown")
        printed = run_block(block, page, page_module) if block.language == "python" else None
    assert not printed, f"{name_of(page)}: the last block prints, and no output is shown"


def test_a_wrong_output_is_seen() -> None:
    """A page's text block belongs to the code right above it, and to no other."""
    page = "```python\nprint(1)\n```\n\n```text\n1\n```\nwords\n```text\n2\n```\n"
    assert [("python", False), ("text", True), ("text", False)] == [
        (block.language, block.follows) for block in blocks(page)
    ]


def excerpts(text: str) -> list[list[str]]:
    """Return the runs of lines between elisions, commands left out."""
    parts: list[list[str]] = [[]]
    for line in text.splitlines():
        if line == ELISION:
            parts.append([])
        elif not line.startswith("$ "):
            parts[-1].append(line)
    return [part for part in parts if part]


def find(part: list[str], lines: list[str], start: int) -> int:
    """Return where a run of lines ends in the lines from `start` on; -1 when it is not there."""
    places = range(start, len(lines) - len(part) + 1)
    return next((i + len(part) for i in places if lines[i : i + len(part)] == part), -1)


def test_the_demo_prints_what_the_readme_shows(tmp_path: Path) -> None:
    """Each line of the README's excerpt is in the demo's output, in order, unbroken between elisions.

    Numbers of records and digests may be others.
    """
    told: list[str] = []
    assert 0 == run_demo(None, "yes", tmp_path / "demo", told.append)
    lines = VOLATILE.sub("", "\n".join(told)).splitlines()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = [block for block in blocks(readme) if block.language == "console"]
    place = 0
    for part in excerpts(VOLATILE.sub("", shown.text)):
        place = find(part, lines, place)
        assert place > 0, "not in the demo's output: " + "\n".join(part)
