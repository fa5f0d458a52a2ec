"""The site lists every page, once, and nothing that is not there. That its links lead somewhere, `make site` checks."""

import re

from tests.docs.pages import PAGES, ROOT, name_of

INDEX = ROOT / "docs" / "index.rst"
# An entry of a toctree: an indented line that is no option.
_ENTRY = re.compile(r"^   ([\w/.-]+)$", re.MULTILINE)


def test_every_page_is_in_the_navigation_once() -> None:
    """A page that the index does not list would stop the build, and one that it lists twice has two places."""
    listed = [
        f"{entry[1:]}.md" if entry.startswith("/") else f"docs/{entry}.md"
        for entry in _ENTRY.findall(INDEX.read_text(encoding="utf-8"))
    ]
    assert sorted([*map(name_of, PAGES), "CHANGELOG.md"]) == sorted(listed)
