"""What is public: `__all__` of both packages is what their `__init__` brings in, and it can be imported."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ("capfold.capabilities", "capfold.runtime")


def brought_in(source: str) -> Iterator[str]:
    """Yield the names that an `__init__` defines or imports from its own modules, lazy ones included."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(level=1 | 2, names=names):  # `from . import machine` too
                yield from (alias.asname or alias.name for alias in names)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def isort_style(name: str) -> tuple[int, str]:
    """Order as ruff (RUF022) writes it: CONSTANTS, then Classes, then functions."""
    kind = 0 if len(name) > 1 and name.isupper() else 1 if name[0].isupper() else 2
    return kind, name


@pytest.mark.parametrize("name", PACKAGES)
def test_all_is_what_the_package_brings_in(name: str) -> None:
    """A name is public exactly when it is listed."""
    package = importlib.import_module(name)
    source = Path(str(package.__file__)).read_text(encoding="utf-8")
    assert {public for public in brought_in(source) if not public.startswith("_")} == set(package.__all__)


@pytest.mark.parametrize("name", PACKAGES)
def test_all_can_be_imported(name: str) -> None:
    """Every listed name is there, the lazily loaded ones too, and `dir` shows it."""
    package = importlib.import_module(name)
    missing = [public for public in package.__all__ if not hasattr(package, public)]
    assert missing == []
    assert sorted(set(package.__all__) - set(dir(package))) == []


@pytest.mark.parametrize("name", PACKAGES)
def test_all_is_sorted_and_unique(name: str) -> None:
    """One order, so that a name is found and two branches merge."""
    package = importlib.import_module(name)
    assert sorted(set(package.__all__), key=isort_style) == list(package.__all__)
