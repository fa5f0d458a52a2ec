"""The site of the docs: Sphinx reads README, the changelog and these pages where they are, so that no link breaks.

`make site` builds it with warnings as errors: a link or an anchor that leads nowhere, or a page that `index.rst`
does not list, stops the build. There is no page that only the site has but `index.rst`.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from pygments.lexers.special import TextLexer

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# The source folder is the project's root: README and pages link to each other, as on any viewer of Markdown.
ROOT = Path(__file__).parents[1]
PAGES = {"README.md", "CHANGELOG.md", "LICENSE", "docs"}

project = "capfold"
copyright = "capfold contributors"  # noqa: A001  # the name that Sphinx reads
root_doc = "docs/index"
extensions = ["myst_parser"]
exclude_patterns = sorted({path.name for path in ROOT.iterdir()} - PAGES)

myst_heading_anchors = 4  # links to headings, as viewers of Markdown make them
nitpicky = True

html_theme = "furo"
html_title = "capfold"
html_copy_source = False
html_show_sourcelink = False


def front_door(app: "Sphinx", error: Exception | None) -> None:
    """Lead who opens the site's folder to the index, which stands in `docs` as its source does."""
    if error is None:
        there = '<!doctype html><meta http-equiv="refresh" content="0; url=docs/index.html"><title>capfold</title>\n'
        (Path(app.outdir) / "index.html").write_text(there, encoding="utf-8")


def setup(app: "Sphinx") -> None:
    """Show diagrams as their text: the tables beside them say the same, and no script has to be fetched."""
    app.add_lexer("mermaid", TextLexer)
    app.connect("build-finished", front_door)
