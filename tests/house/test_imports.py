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

# What building an agent leaves to those who need it: 5 to 400 ms each.
LATE = {
    *(
        "aiosqlite",
        "asyncio",
        "cattrs",
        "click",
        "httpx",
        "hypothesis",
        "mcp",
        "openai",
        "psycopg",
        "pydantic",
    ),
    *("pytest", "sqlite3", "ssl", "subprocess", "tenacity", "trio"),
}
# What tools need besides: their schemas are made and checked when they are declared.
FOR_TOOLS = {"jsonschema_rs", "msgspec"}
# What an import alone leaves: all modules of the packages, and the libraries below them.
MODULES = {"anyio", "attrs", "capfold.capabilities.state", "capfold.runtime.agent"}
WATCHED = {"capfold.runtime", *LATE, *FOR_TOOLS, *MODULES}
AN_AGENT = """
from capfold.capabilities import Capability
from capfold.runtime import Agent
class Noop(Capability):
    def before_model_request(self, state):
        return state
"""
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


def test_importing_the_packages_loads_nothing_below_them() -> None:
    """A program that imports both, as every user does, pays for a module when it uses a name of it."""
    assert loaded_after("import capfold.capabilities, capfold.runtime") == {"capfold.runtime"}


def test_building_an_agent_loads_no_costly_library() -> None:
    """With a capability and a model, and with a tool what tools need: nothing that only some programs use."""
    built = loaded_after(f"{AN_AGENT}\nAgent('a', 'test', capabilities=[Noop()])")
    assert built == {"capfold.runtime", *MODULES}
    with_tool = "def echo(x: int) -> str: ...\nAgent('a', 'test', tools=[echo], capabilities=[Noop()])"
    assert loaded_after(AN_AGENT + with_tool) == {"capfold.runtime", *MODULES, *FOR_TOOLS}


def test_a_run_on_trio_loads_no_asyncio() -> None:
    """The quick ways of asyncio are taken only where its loop runs."""
    run = "import trio; from capfold.runtime import Agent; trio.run(Agent('a', 'test').run, 'hi')"
    assert "asyncio" not in loaded_after(run)


def test_importing_every_module_loads_no_costly_library() -> None:
    """Even openai_* load the client only when one is built, so naming a model costs nothing."""
    assert loaded_after(IMPORT_EVERY_MODULE).isdisjoint(MAY_IMPORT)


def test_capabilities_stand_alone() -> None:
    """Importing capabilities loads no event loop, no codec and nothing of the runtime, by whatever way."""
    loaded = loaded_after("from capfold.capabilities import *")
    assert loaded & {"anyio", "capfold.runtime", *LATE, *FOR_TOOLS} == set()
