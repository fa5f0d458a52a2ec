"""Late names: loaded at the first use, once, and refused like those of an ordinary module."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = """
from capfold.capabilities.late_names import late_names
__getattr__, __dir__ = late_names(__name__, {"Thing": "things", "tools": "tools"})
"""


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the name of a package with one late class and one late module."""
    home = tmp_path / "late_example"
    home.mkdir()
    (home / "__init__.py").write_text(PACKAGE)
    (home / "things.py").write_text("class Thing: ...\n")
    (home / "tools.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield home.name
    for loaded in [loaded for loaded in sys.modules if loaded.startswith(home.name)]:
        del sys.modules[loaded]


def test_a_name_is_loaded_when_it_is_used(name: str) -> None:
    """The package alone loads nothing, and lists all; the first use loads one module and keeps what it gave."""
    package = importlib.import_module(name)
    assert {"Thing", "tools"} <= set(dir(package))
    assert f"{name}.things" not in sys.modules
    thing = package.Thing
    assert vars(package)["Thing"] is thing is sys.modules[f"{name}.things"].Thing
    assert f"{name}.tools" not in sys.modules


def test_a_module_may_be_public_itself(name: str) -> None:
    """A name that is its module's own stands for the module, whoever imported it first."""
    package = importlib.import_module(name)
    assert package.tools is sys.modules[f"{name}.tools"]


def test_an_unknown_name_says_which_package(name: str) -> None:
    """Modules that are not listed are no names before somebody imported them."""
    package = importlib.import_module(name)
    with pytest.raises(AttributeError, match="module 'late_example' has no attribute 'things'") as caught:
        _ = package.things
    assert ("things", package) == (caught.value.name, caught.value.obj)
    assert importlib.import_module(f"{name}.things") is package.things
