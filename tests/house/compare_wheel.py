"""Compare a wheel with the tree, as a command for CI: `python tests/house/compare_wheel.py WHEEL`.

Knows where the two source folders go inside the wheel; must not know what is in them.
"""

import sys
from pathlib import Path
from zipfile import ZipFile

FOLDERS = {"capabilities": "capfold/capabilities", "runtime": "capfold/runtime"}


def tree_files(root: Path) -> dict[str, bytes]:
    """Return what the source folders hold, caches left out, by its path in the wheel."""
    return {
        f"{target}/{path.relative_to(root / folder).as_posix()}": path.read_bytes()
        for folder, target in FOLDERS.items()
        for path in (root / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def wheel_files(wheel: Path) -> dict[str, bytes]:
    """Return what the wheel holds, its own metadata left out."""
    metadata = "-".join(wheel.name.split("-")[:2]) + ".dist-info/"
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.startswith(metadata)}


def differences(wheel: Path, root: Path) -> list[str]:
    """Return one line for each file that is missing from the wheel, foreign to the tree, or not the same."""
    packed, sources = wheel_files(wheel), tree_files(root)
    both = sorted(packed.keys() & sources.keys())
    return [
        *(f"not in the wheel: {name}" for name in sorted(sources.keys() - packed.keys())),
        *(f"not in the tree: {name}" for name in sorted(packed.keys() - sources.keys())),
        *(f"not the same: {name}" for name in both if packed[name] != sources[name]),
    ]


def main() -> None:
    """Exit with the differences, or say how many files were found equal."""
    wheel, root = Path(sys.argv[1]), Path(__file__).parents[2]
    found = differences(wheel, root)
    if found:
        sys.exit("\n".join(found))
    sys.stdout.write(f"{wheel.name}: {len(tree_files(root))} files, as in the tree\n")


if __name__ == "__main__":
    main()
