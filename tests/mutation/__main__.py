"""Apply each mutant to a copy of the packages and run its tests against it: `python -m tests.mutation [WORD...]`.

With words, only the mutants whose file or check contains one of them. A mutant that no test notices is a check
that could be lost: the command names it and returns 1.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.mutation.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
PACKAGES = ("capabilities", "runtime")
FAILED = 1  # pytest's exit status when tests were run and some failed
PATIENCE = 300.0  # seconds: a mutant that makes a test hang is noticed too


def copy_packages(folder: Path) -> None:
    """Copy the packages to where `import capfold` finds them with the folder on the path."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / "capfold" / name, ignore=shutil.ignore_patterns("__pycache__"))


@contextmanager
def applied(mutant: Mutant, folder: Path) -> Iterator[None]:
    """Have a mutant in the copy for a while. Raises ValueError when its text does not stand there once."""
    path = folder / "capfold" / mutant.file
    source = path.read_text(encoding="utf-8")
    path.write_text(mutated(mutant, source), encoding="utf-8")
    _forget(path)
    try:
        yield
    finally:
        path.write_text(source, encoding="utf-8")
        _forget(path)


def mutated(mutant: Mutant, source: str) -> str:
    """Return the source of a file with the mutant in it. Raises ValueError when its text does not stand there once."""
    found = source.count(mutant.text)
    if found != 1:
        raise ValueError(f"{mutant.file}: the text of {mutant.check!r} stands there {found} times, not once")
    return source.replace(mutant.text, mutant.instead)


def _forget(path: Path) -> None:
    """Remove what was compiled of a file: two texts of one size within a second look the same to Python."""
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()


def run(folder: Path, tests: Sequence[str]) -> int:
    """Run tests against the copy, up to the first that fails; return pytest's exit status, FAILED when it hangs."""
    options = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "--hypothesis-profile=mutants"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return FAILED
    return done.returncode


class Trials:
    """Mutants on trial in one copy. Tests count only once they are known to pass without any mutant."""

    def __init__(self, folder: Path) -> None:
        """Start with the copy as it is."""
        self.folder = folder
        self._passing: set[tuple[str, ...]] = set()

    def verdict(self, mutant: Mutant) -> str:
        """Return "killed", "SURVIVED", or why neither can be said."""
        for tests in mutant.tests:
            with applied(mutant, self.folder):
                status = run(self.folder, tests)
            if not status:
                continue
            if status != FAILED:
                return f"BROKEN: it does not import, or its tests are not there (pytest: {status})"
            if not self._pass(tests):
                return f"BROKEN: without it these tests do not pass either: {' '.join(tests)}"
            return "killed"
        return "SURVIVED"

    def _pass(self, tests: tuple[str, ...]) -> bool:
        if tests not in self._passing and not run(self.folder, tests):
            self._passing.add(tests)
        return tests in self._passing


def check_copy(folder: Path) -> None:
    """See that the tests would import the copy and nothing else. Raises RuntimeError."""
    command = [sys.executable, "-c", "import capfold.runtime; print(capfold.runtime.__file__)"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    if not done.stdout.startswith(str(folder)):
        raise RuntimeError(
            f"the tests would run against {done.stdout.strip()}, not against the copy in {folder}"
        )


def main(words: Sequence[str]) -> int:
    """Run the mutants; return 1 when one survives or cannot be judged."""
    chosen = [mutant for mutant in MUTANTS if _named(mutant, words)]
    bad: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        copy_packages(folder)
        check_copy(folder)
        trials = Trials(folder)
        for number, mutant in enumerate(chosen, 1):
            verdict = trials.verdict(mutant)
            line = f"{verdict}: {mutant.file}: {mutant.check}"
            sys.stdout.write(f"[{number}/{len(chosen)}] {line}\n")
            sys.stdout.flush()
            if verdict != "killed":
                bad.append(line)
    sys.stdout.write(f"{len(chosen) - len(bad)} of {len(chosen)} mutants were killed\n")
    for line in bad:
        sys.stdout.write(f"  {line}\n")
    return 1 if bad else 0


def _named(mutant: Mutant, words: Sequence[str]) -> bool:
    return not words or any(word in mutant.file or word in mutant.check for word in words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
