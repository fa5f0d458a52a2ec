"""The command line: what it refuses, and in which words."""

from pathlib import Path

import pytest

from benchmarks import participants
from benchmarks.command import main
from benchmarks.workloads import WORKLOADS, exponent


def test_an_unknown_workload_is_named_and_the_known_ones_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt workload ends with 1 before anything is measured."""
    assert 1 == main(["W9"])
    assert f"error: W9: no such workload; there are: {', '.join(WORKLOADS)}\n" == capsys.readouterr().err


def test_a_part_of_the_table_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file holds all workloads or is left alone."""
    path = tmp_path / "README.md"
    assert 1 == main(["W1", "--readme", str(path)])
    assert "--readme writes the whole table" in capsys.readouterr().err
    assert not path.exists()


def test_a_missing_peer_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the peers there is no comparison, and no silent half of one."""
    monkeypatch.setattr(participants, "find_spec", lambda _name: None)
    assert 1 == main(["W1", "--without", "capfold", "--without", "by hand"])
    assert (
        "error: pydantic-ai, fastaiagent: not installed. Run `pip install capfold[bench]`, "
        "or leave it out with --without 'pydantic-ai'.\n"
    ) == capsys.readouterr().err


def test_leaving_out_nobody_known_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt participant is named, so it cannot be measured by mistake."""
    assert 1 == main(["W1", "--without", "pydantic"])
    assert "--without pydantic: no such participant" in capsys.readouterr().err


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_the_exponent_is_that_of_a_power_law(power: float) -> None:
    """Points on c * n ** p give p, whatever c is."""
    assert power == pytest.approx(exponent([(n, 7.0 * n**power) for n in (10, 100, 1000)]))
