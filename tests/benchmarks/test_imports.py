"""W6: what is measured is a program that works, in an interpreter that can keep its bytecode."""

from pathlib import Path

import pytest

from benchmarks.imports import import_cost
from benchmarks.participants import CAPFOLD, PARTICIPANTS, BenchError
from benchmarks.programs import p_capfold


def test_every_import_has_its_program() -> None:
    """Who is measured when imported is measured with an agent built, too."""
    folder = Path(str(p_capfold.__file__)).parent
    programs = {each.program for each in PARTICIPANTS if each.imports}
    assert programs == {path.stem for path in folder.glob("p_*.py")}


async def test_capfold_s_program_builds_an_agent_that_runs() -> None:
    """A late import that were still missing would be paid by the first run, unseen."""
    assert (await p_capfold.agent.run("hi")).status == "completed"


def test_an_import_costs_time_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are above nothing, nothing forbidden is loaded, and bytecode is written whatever the environment says."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "bytecode"))
    cost = import_cost(CAPFOLD, "import benchmarks.programs.p_capfold", tmp_path, 1)
    assert cost.cpu > 0
    assert cost.peak > 0
    assert cost.loaded == ()
    assert len(list(tmp_path.rglob("p_capfold.*.pyc"))) == 1


def test_a_failing_import_is_named(tmp_path: Path) -> None:
    """A program that does not run is no figure."""
    with pytest.raises(BenchError, match=r"capfold: `import benchmarks\.programs\.missing` ended"):
        import_cost(CAPFOLD, "import benchmarks.programs.missing", tmp_path, 1)
