"""Who imports what: the costly libraries stay with the modules that need them, and are loaded by nobody else.

The one arrow runtime -> capabilities is a contract of import-linter, in pyproject.toml.
"""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ("capfold.capabilities", "capfold.runtime")

# library -> the modules that may import it, as path patterns below their package
MAY_IMPORT = {
    "openai": "runtime/openai_*.py",
    "hypothesis": "runtime/laws*.py",
}

# What an import leaves to those who need it: 10 to 400 ms each.
LATE = {"asyncio", "cattrs", "click", "hypothesis", "jsonschema_rs", "msgspec", "openai", "pydantic"}
WATCHED = {"anyio", "capfold.runtime", *LATE}
# laws is left out: importing it is asking for hypothesis
IMPORT_EVERY_MODULE = """
import importlib, pkgutil
for name in ("capfold.capabilities", "capfold.runtime"):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.startswith("capfold.runtime.laws"):
            importlib.import_module(module.name)
"""


def loaded_after(code: str) -> set[str]:
    """Return which of the watched modules a fresh interpreter holds after running the code."""
    command = [sys.executable, "-I", "-c", f"{code}\nimport sys\nprint(*sys.modules)"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return WATCHED & set(done.stdout.split())


def modules() -> Iterator[Path]:
    """Yield the files of both packages as they are imported."""
    for name in PACKAGES:
        yield from Path(importlib.import_module(name).__path__[0]).rglob("*.py")


def imported_by(path: Path) -> set[str]:
    """Return the top-level names of all absolute imports in a file, those inside functions included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                found.update(alias.name for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                found.add(module)
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(module))]):
                found.add(module)
    return {module.partition(".")[0] for module in found}


@pytest.mark.parametrize("library", MAY_IMPORT)
def test_costly_library_is_imported_by_its_own_modules_only(library: str) -> None:
    """Only openai_* knows the client, only the laws know Hypothesis."""
    own = MAY_IMPORT[library]
    strangers = [path for path in modules() if not path.match(own) and library in imported_by(path)]
    assert strangers == []


def test_importing_the_packages_loads_no_costly_library() -> None:
    """Importing both packages, as every user does, loads nothing that only some of them need."""
    assert LATE & loaded_after("import capfold.capabilities, capfold.runtime") == set()


def test_a_run_on_trio_loads_no_asyncio() -> None:
    """The quick ways of asyncio are taken only where its loop runs."""
    run = "import trio; from capfold.runtime import Agent; trio.run(Agent('a', 'test').run, 'hi')"
    assert "asyncio" not in loaded_after(run)


def test_importing_every_module_loads_no_costly_library() -> None:
    """Even openai_* load the client only when one is built, so naming a model costs nothing."""
    assert loaded_after(IMPORT_EVERY_MODULE).isdisjoint(MAY_IMPORT)


def test_capabilities_stand_alone() -> None:
    """Importing capabilities loads no event loop, no codec and nothing of the runtime, by whatever way."""
    assert loaded_after("import capfold.capabilities") == set()
