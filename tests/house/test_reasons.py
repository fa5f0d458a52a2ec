"""Every exception has its reason beside it: ignored rules, silenced lines, dependencies."""

import importlib
import re
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

PACKAGES = ("capfold.capabilities", "capfold.runtime")
LISTS = re.compile(r'^("?[\w{},/*.-]+"?) = \[\n(.*?)^\]', re.MULTILINE | re.DOTALL)
# The reason follows on the line, or stands in a comment on the line before.
CODES = r":?\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*|\[[\w, -]*\]"
SILENCED = re.compile(rf"#\s*(?:noqa|type: ignore|pragma: no cover)\b(?:{CODES})?")


def listed(table: str, text: str) -> dict[str, list[str]]:
    """Return the lines of each multi-line list below a table header of a TOML text, by key."""
    body = text.partition(f"\n[{table}]\n")[2].partition("\n[")[0] + "\n"
    return {key.strip('"'): lines.splitlines() for key, lines in LISTS.findall(body)}


def without_reason(lines: list[str]) -> list[str]:
    """Return the entries that are not followed by a comment on their line."""
    return [line.strip() for line in lines if line.strip()[:1] in {'"', "{"} and "#" not in line]


def unexplained(text: str) -> Iterator[int]:
    """Yield the numbers of lines that silence a checker and say nowhere why."""
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        found = SILENCED.search(line)
        if found and not line[found.end() :].strip(" #-:") and not before.lstrip().startswith("#"):
            yield number
        before = line


def test_ignored_rules_have_reasons(root: Path) -> None:
    """Each rule that ruff ignores, everywhere or in some files, has a comment on its line."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    ruff = tomllib.loads(text)["tool"]["ruff"]["lint"]
    everywhere = listed("tool.ruff.lint", text)["ignore"]
    by_file = listed("tool.ruff.lint.per-file-ignores", text)
    assert len(ruff["ignore"]) == len(everywhere)
    assert set(ruff["per-file-ignores"]) == set(by_file)
    assert without_reason([*everywhere, *chain(*by_file.values())]) == []


def test_dependencies_have_bounds_and_reasons(root: Path) -> None:
    """Each dependency, of users and of developers, says what it is for; each of users has a lower bound."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    project = data["project"]
    extras = project["optional-dependencies"]
    tables = ("project", "project.optional-dependencies", "dependency-groups")
    lists = {key: lines for table in tables for key, lines in listed(table, text).items()}
    named = {"dependencies", *extras, *data["dependency-groups"]}
    assert named <= set(lists)
    assert [line for key in named for line in without_reason(lists[key]) if "include-group" not in line] == []
    assert [
        entry for entry in chain(project["dependencies"], *extras.values()) if not re.search("[>=]=", entry)
    ] == []


def test_silenced_lines_have_reasons(root: Path) -> None:
    """Each `noqa` and `type: ignore` says why, on its line or in a comment on the line before."""
    folders = [Path(importlib.import_module(name).__path__[0]) for name in PACKAGES]
    folders += [root / "tests", root / "benchmarks"]
    found = [
        f"{path}:{number}"
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        if path != Path(__file__)
        for number in unexplained(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_a_silenced_line_is_seen() -> None:
    """The search above tells an explained line from a bare one, in each form."""
    assert list(unexplained("x = 1  # noqa: E501")) == [1]
    assert list(unexplained("x = 1  # type: ignore[arg-type]")) == [1]
    assert list(unexplained("x = 1  # noqa: E501, S101")) == [1]
    assert list(unexplained("x = 1  # noqa: E501 a reason")) == []
    assert list(unexplained("x = 1  # type: ignore[arg-type]  # a reason")) == []
    assert list(unexplained("# a reason\nx = 1  # noqa: E501")) == []
