"""The docs name everything there is: hooks, verbs, arguments, statuses, kinds of records, commands; links resolve.

Generated tables do not count where a sentence is wanted.
"""

import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

import click
import pytest
from attrs import fields

from capfold.capabilities import CallState, Capability, RunState, Tool, tool
from capfold.capabilities.grid import HOOKS
from capfold.capabilities.messages import STATUSES
from capfold.capabilities.run_parts import RunStatus
from capfold.runtime import Agent, JsonLines, Limits, LocalPort, RunResult
from capfold.runtime.commands import capfold
from capfold.runtime.decisions import DECISIONS
from capfold.runtime.entries import ENTRY_KINDS
from capfold.runtime.runs import Options
from tests.docs.pages import PAGES, ROOT, WRITTEN, blocks, name_of, prose

CAPABILITIES, RUNNING, AUDIT = (ROOT / "docs" / f"{name}.md" for name in ("capabilities", "running", "audit"))


def missing(names: Iterable[str], page: Path) -> list[str]:
    """Return the names that a page mentions neither in its code nor, as `code`, in its sentences."""
    text = prose(page.read_text(encoding="utf-8"))
    code = [block.text for block in blocks(text)] + re.findall(r"`([^`\n]+)`", text)
    words = set(re.findall(r"\w+", " ".join(code)))
    return [name for name in names if name not in words]


def table(page: Path, head: str) -> list[str]:
    """Return the first column of the table whose first heading is `head`, without backticks."""
    text = page.read_text(encoding="utf-8")
    (rows,) = re.findall(rf"^\| {re.escape(head)} \|.*\n\| ---.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [row.split("|")[1].strip().strip("`") for row in str(rows).splitlines()]


def public(cls: type) -> list[str]:
    """Return the public methods and properties that a class defines itself."""
    own = [name for name, thing in vars(cls).items() if callable(thing) or isinstance(thing, property)]
    return [name for name in own if not name.startswith("_")]


def parameters(function: object) -> list[str]:
    """Return the names of a function's parameters."""
    assert callable(function)
    return [name for name in inspect.signature(function).parameters if name != "self"]


def test_every_hook_is_explained() -> None:
    """Each hook of the grid stands in the page's own words or code, not only in the generated table."""
    assert missing(HOOKS, CAPABILITIES) == []


@pytest.mark.parametrize("record", [RunState, CallState])
def test_every_verb_is_explained(record: type) -> None:
    """What a hook can do with its record can be found: `task_index` and `id` need no words of their own."""
    verbs = [name for name in public(record) if name not in {"task_index", "id", "name"}]
    assert missing(verbs, CAPABILITIES) == []


def test_every_part_of_a_capability_is_explained() -> None:
    """All that can be overridden or set is named."""
    names = [field.name for field in fields(Capability)] + public(Capability)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in missing(names, CAPABILITIES) if name not in readme] == []


@pytest.mark.parametrize(
    "names",
    [
        parameters(Agent),
        ["prompt", *(field.name for field in fields(Options))],
        [name for name in parameters(Agent.resume) if name not in {"suspended", "decisions"}],
        parameters(LocalPort),
        [field.name for field in fields(Limits)],
        list(public(RunResult)),
        [decision.__name__ for decision in DECISIONS],
        [status for status in get_args(RunStatus) if status != "running"],
        sorted(
            {*parameters(tool), *(field.name for field in fields(Tool))}
            - {"function", "options", "parameters"}
        ),
    ],
    ids=["Agent", "run", "resume", "LocalPort", "Limits", "RunResult", "decisions", "run statuses", "tool"],
)
def test_everything_a_run_takes_is_explained(names: list[str]) -> None:
    """A new argument, limit, decision or status is described before it is there."""
    assert missing(names, RUNNING) == []


def test_the_table_of_outcomes_is_whole() -> None:
    """Each status has its row, in the order of the code, and no other row is there."""
    assert list(STATUSES) == table(CAPABILITIES, "`call.outcome.status`")


def test_the_table_of_record_kinds_is_whole() -> None:
    """Each kind of record has its row, in the order of the code, and no other row is there."""
    assert list(ENTRY_KINDS) == table(AUDIT, "kind")


def test_every_option_of_a_sink_is_explained() -> None:
    """What can be said of a log file is in the page about logs."""
    assert missing(parameters(JsonLines), AUDIT) == []


def commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield each command with the words that call it."""
    for word, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {word}")
        else:
            yield f"{name} {word}", command


def test_every_command_and_option_is_in_the_readme() -> None:
    """The README's command line is the one that there is."""
    section = (
        (ROOT / "README.md").read_text(encoding="utf-8").partition("## Command line")[2].partition("## ")[0]
    )
    there = dict(commands(capfold, "capfold"))
    listed = {words: line for line in section.splitlines() for words in there if line.startswith(words)}
    assert set(there) == set(listed)
    for words, command in there.items():
        options = {option for parameter in command.params for option in parameter.opts if option[:2] == "--"}
        assert options == set(re.findall(r"--[\w-]+", listed[words])), words


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as viewers make them."""
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """Each relative link names a file that is there, and a heading that it has."""
    broken = []
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in anchors(file.read_text(encoding="utf-8"))):
            broken.append(target)
    assert broken == []


def test_every_page_is_linked_from_the_readme() -> None:
    """A page that nobody finds is none."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name_of(page) for page in PAGES if page.parent != ROOT and name_of(page) not in readme] == []


FILE = re.compile(r"`((?:capabilities|runtime|tests|benchmarks|docs)/[\w./]+)`")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_are_named_are_there(page: Path) -> None:
    """A file that moved moves in the docs too."""
    if not (ROOT / "capabilities").is_dir():
        pytest.skip("an installed wheel is under test: the source folders are not here to compare with")
    named = FILE.findall(page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []
