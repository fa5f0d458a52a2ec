"""The text of a pytest file for a case. Knows nothing of how a case is run."""

import re
from collections.abc import Mapping
from typing import cast

from ..capabilities.frozen import FrozenDict, FrozenList, Json, canonical
from .codec import envelope
from .dump import KIND
from .pytest_case import Case

_OWN = "capfold.capabilities."
# What a description has of somebody else's.
_FOREIGN = ("$object", "$function", "$record", "$enum")


def pytest_file(case: Case, source: str | None) -> str:
    """Return a test that fails as the case does. `source`: `module:attribute` of its list; else what the log says.

    Of a list with capabilities of somebody else the log has descriptions only: then there is a place to fill in.
    """
    kind, key, hook, _ = case.way
    who = f" in {key}.{hook}" if key else ""
    agent = str(case.started.facts["agent"])
    lines = [
        f'"""Agent {_plain(agent)} fails by {kind}{who}. Taken from its log: no model, tool or gatherer is called."""',
        "",
        "import pytest",
        "",
        *_imports(case, source),
        "from capfold.runtime.pytest_case import read_case, way_of",
        "",
        *_capabilities(case, source),
        f"CASE = {_literal(case.to_text())}",
        "",
        "",
        f"def test_{_name(agent)}_fails_by_{_name(kind)}() -> None:",
        f'    """{_plain(case.reason.message)[:90]}"""',
        "    with pytest.raises(RunError) as caught:",
        "        read_case(CASE).run(CAPABILITIES)",
        f"    assert {case.way!r} == way_of(caught.value.reason)",
        "",
    ]
    return "\n".join(lines)


def is_own(case: Case) -> bool:
    """Tell whether the log describes the whole list: all of it ready-made."""
    return all(map(_own, cast(FrozenList, case.started.facts["list"])))


def described(case: Case) -> str:
    """Return the list of the run as text, as `load_capabilities` reads it."""
    return envelope(KIND, case.started.facts["list"])


def _own(described: Json) -> bool:
    entry = cast("FrozenDict[Json]", described)
    config = canonical(entry["config"])
    foreign = any(f'"{tag}"' in config for tag in _FOREIGN)
    ready = str(entry["kind"]).startswith(_OWN)
    return ready and not foreign and all(map(_own, cast(FrozenList, entry["members"])))


def _imports(case: Case, source: str | None) -> list[str]:
    if source is None and is_own(case):
        return ["from capfold.runtime import RunError, load_capabilities"]
    found = ["from capfold.runtime import RunError"]
    if source is not None:
        module, _, path = source.partition(":")
        found.insert(0, f"from {module} import {path.partition('.')[0]}")
    return found


def _capabilities(case: Case, source: str | None) -> list[str]:
    listed = cast(FrozenList, case.started.facts["list"])
    if source is not None:
        return [f"CAPABILITIES = {source.partition(':')[2]}", ""]
    if is_own(case):
        return [f"CAPABILITIES = load_capabilities({_literal(described(case))}, allowed=[])", ""]
    told = [
        f"#   {one['kind']} {canonical(one['config'])}" for one in cast("list[Mapping[str, Json]]", listed)
    ]
    return ["# Fill in the list of the run, which the log describes so:", *told, "CAPABILITIES = ()", ""]


def _literal(text: str) -> str:
    """Return a string literal over several lines."""
    pieces = [text[i : i + 100] for i in range(0, len(text), 100)]
    return "(\n" + "\n".join(f"    {piece!r}" for piece in pieces) + "\n)"


def _name(text: str) -> str:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text)
    return re.sub(r"\W+", "_", words).strip("_").lower() or "run"


def _plain(text: str) -> str:
    return re.sub(r"[^ -~]|[\"\\]", "'", text)
