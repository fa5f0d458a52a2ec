"""What is public: the table of each `__init__`, what type checkers see and `__all__` are one list, and all is there."""

import ast
import importlib
import inspect
import pickle
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

PACKAGES = ("capfold.capabilities", "capfold.runtime")

# Each public module as the first one that a program loads: no order of imports may be needed.
EACH_FIRST = """
import importlib, sys
for name in sys.argv[1:]:
    for loaded in [loaded for loaded in sys.modules if loaded.startswith("capfold")]:
        del sys.modules[loaded]
    importlib.import_module(name)
"""


@pytest.fixture(params=PACKAGES)
def package(request: pytest.FixtureRequest) -> ModuleType:
    """Return each of the two packages."""
    return importlib.import_module(request.param)


def seen_by_type_checkers(package: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield name and module of what is imported below TYPE_CHECKING, `from . import machine` too."""
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    for block in tree.body:
        match block:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body):
                for node in body:
                    assert isinstance(node, ast.ImportFrom), ast.unparse(node)
                    for alias in node.names:
                        assert alias.name == alias.asname, f"{alias.name}: only `as` makes it public"
                        yield alias.name, node.module or alias.name


def isort_style(name: str) -> tuple[int, str]:
    """Order as ruff (RUF022) would write it: CONSTANTS, then Classes, then functions."""
    kind = 0 if len(name) > 1 and name.isupper() else 1 if name[0].isupper() else 2
    return kind, name


def submodules(package: ModuleType) -> list[str]:
    """Return the names of a package's modules."""
    return [module.name for module in pkgutil.iter_modules(package.__path__)]


def test_type_checkers_see_what_the_interpreter_loads(package: ModuleType) -> None:
    """Every name of the table is imported below TYPE_CHECKING, from the same module, and no other is."""
    table: dict[str, str] = vars(package)["_MODULE_OF"]
    assert dict(seen_by_type_checkers(package)) == table
    assert list(table) == package.__all__


def test_names_are_sorted(package: ModuleType) -> None:
    """One order, so that a name is found and two branches merge."""
    assert sorted(package.__all__, key=isort_style) == package.__all__


def test_no_module_hides_a_name(package: ModuleType) -> None:
    """Importing a module sets it as an attribute of its package: none is called like an object that is public.

    The exception is a module that is public itself.
    """
    clashes = [
        name
        for name in {*package.__all__} & {*submodules(package)}
        if vars(package)["_MODULE_OF"][name] != name or not inspect.ismodule(getattr(package, name))
    ]
    assert clashes == []


def test_all_is_there_whatever_was_loaded_before(package: ModuleType) -> None:
    """Every listed name is what its module holds, with all modules loaded; `dir` and `import *` bring it."""
    for name in submodules(package):
        if name != "__main__":
            importlib.import_module(f"{package.__name__}.{name}")
    brought: dict[str, object] = {}
    exec(f"from {package.__name__} import *", brought)  # noqa: S102  # only so is a star import allowed here
    for name, home in vars(package)["_MODULE_OF"].items():
        module = importlib.import_module(f"{package.__name__}.{home}")
        expected = module if home == name else getattr(module, name)
        assert getattr(package, name) is expected
        assert brought[name] is expected
    assert set(package.__all__) - set(dir(package)) == set()


def test_public_names_can_be_pickled_and_inspected(package: ModuleType) -> None:
    """Classes and functions are found again by the module they are defined in, and tell their source."""
    for name in package.__all__:
        value = getattr(package, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert pickle.loads(pickle.dumps(value)) is value  # noqa: S301  # our own bytes
            assert inspect.getsourcefile(value)


def test_a_misspelt_name_is_refused(package: ModuleType) -> None:
    """As of an ordinary module: AttributeError, and ImportError where it was to be imported."""
    with pytest.raises(AttributeError, match=rf"module '{package.__name__}' has no attribute 'Agnet'"):
        _ = package.Agnet
    with pytest.raises(ImportError, match=rf"cannot import name 'Agnet' from '{package.__name__}'"):
        exec(f"from {package.__name__} import Agnet", {})  # noqa: S102  # mypy would refuse it, rightly


def test_any_module_may_be_the_first(package: ModuleType) -> None:
    """No name works only after another one was used."""
    homes = sorted({f"{package.__name__}.{home}" for home in vars(package)["_MODULE_OF"].values()})
    subprocess.run([sys.executable, "-I", "-c", EACH_FIRST, *homes], check=True)
