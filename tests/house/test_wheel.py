"""What is packaged: the list of packages, the installed modules, and the comparison that CI makes."""

import importlib
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.house.compare_wheel import FOLDERS, differences, tree_files, wheel_files

WHEEL = "capfold-0.1.0-py3-none-any.whl"


def a_tree(root: Path) -> Path:
    """Lay out two source folders with one module each."""
    for folder in FOLDERS:
        (root / folder / "__pycache__").mkdir(parents=True)
        (root / folder / "__init__.py").write_text(f'"""{folder}"""')
        (root / folder / "__pycache__" / "__init__.cpython-311.pyc").write_bytes(b"")
    return root


def a_wheel(path: Path, files: dict[str, bytes]) -> Path:
    """Zip the files under the name of a wheel, with metadata beside them."""
    with ZipFile(path / WHEEL, "w") as archive:
        for name, data in {"capfold-0.1.0.dist-info/METADATA": b"", **files}.items():
            archive.writestr(name, data)
    return path / WHEEL


def test_packages_listed_are_the_folders_of_the_tree(source_root: Path) -> None:
    """A subpackage that is not listed in pyproject.toml would be missing from the wheel."""
    tool = tomllib.loads((source_root / "pyproject.toml").read_text())["tool"]["setuptools"]
    modules = [name for name in tree_files(source_root) if name.endswith(".py")]
    folders = {name.rpartition("/")[0].replace("/", ".") for name in modules}
    assert folders == set(tool["packages"])
    assert {target.replace("/", "."): folder for folder, target in FOLDERS.items()} == tool["package-dir"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_installed_modules_are_those_of_the_tree(source_root: Path, folder: str) -> None:
    """An editable install older than a module would hide it: `make test` installs again."""
    package = importlib.import_module(FOLDERS[folder].replace("/", "."))
    installed = Path(package.__path__[0])
    expected = {path.relative_to(source_root / folder) for path in (source_root / folder).rglob("*.py")}
    assert expected == {path.relative_to(installed) for path in installed.rglob("*.py")}


@pytest.mark.parametrize("folder", FOLDERS)
def test_types_are_shipped(folder: str) -> None:
    """Both packages carry py.typed, so type checkers of users read them."""
    package = importlib.import_module(FOLDERS[folder].replace("/", "."))
    assert (Path(package.__path__[0]) / "py.typed").is_file()


def test_namespace_has_no_init() -> None:
    """`capfold` is a PEP 420 namespace: others can ship capfold.contrib_x."""
    assert getattr(importlib.import_module("capfold"), "__file__", None) is None


def test_equal_wheel_has_no_differences(tmp_path: Path) -> None:
    """Metadata of the wheel and caches of the tree do not count."""
    root = a_tree(tmp_path)
    wheel = a_wheel(tmp_path, tree_files(root))
    assert tree_files(root) == wheel_files(wheel)
    assert differences(wheel, root) == []


def test_every_kind_of_difference_is_named(tmp_path: Path) -> None:
    """A file that is missing, foreign or altered is named with its path in the wheel."""
    root = a_tree(tmp_path)
    wheel = a_wheel(tmp_path, {"capfold/__init__.py": b"", "capfold/runtime/__init__.py": b"altered"})
    assert differences(wheel, root) == [
        "not in the wheel: capfold/capabilities/__init__.py",
        "not in the tree: capfold/__init__.py",
        "not the same: capfold/runtime/__init__.py",
    ]
