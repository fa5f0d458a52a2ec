"""The table: ratios from rows, text from ratios, and its place in a file."""

from pathlib import Path

import pytest

from benchmarks.participants import BenchError
from benchmarks.report import BEGIN, END, between_markers, digits, markdown, row_line, write_into
from benchmarks.results import Results, Row


def results(*rows: Row) -> Results:
    """Return results with two peers around the given rows."""
    return Results(
        rows=rows,
        names=["ours", "peer a", "peer b", "floor"],
        peers={"peer a", "peer b"},
        own="ours",
        floor="floor",
        versions={"peer a": "1.0"},
        python="3.11",
        quick=False,
    )


ROW = Row("W1", "one run", "us", {"ours": 2.0, "peer a": 30.0, "peer b": 8.0, "floor": 0.5})


def test_ratios_take_the_best_peer_and_the_floor() -> None:
    """A ratio is the other's figure in units of ours; the best peer is the fastest, the floor is none."""
    assert (4.0, 0.25) == results(ROW).ratios(ROW)


@pytest.mark.parametrize(
    "values",
    [{"peer a": 1.0}, {"ours": 1.0}, {"ours": 0.0, "peer a": 1.0}, {"ours": -1.0, "peer a": 1.0}],
    ids=["without us", "without peers", "zero", "below the noise"],
)
def test_no_ratio_without_two_positive_figures(values: dict[str, float]) -> None:
    """Where a figure is missing or not positive, there is no ratio and the table says so."""
    row = Row("W1", "one run", "us", values)
    assert (None, None) == results(row).ratios(row)
    assert row_line(results(row), row).startswith("| W1: one run | - | - | us |")


def test_exponents_are_not_divided() -> None:
    """A row that is not compared shows figures only."""
    row = Row("W3", "growth", "exponent", {"ours": 1.0, "peer a": 1.9}, compared=False)
    assert (None, None) == results(row).ratios(row)


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.314, "0.31"), (12.34, "12.3"), (1234.5, "1234"), (-0.5, "-0.50")]
)
def test_digits_are_plain_and_few(value: float | None, text: str) -> None:
    """Figures have at most two places, and no exponent notation."""
    assert text == digits(value)


def test_only_the_text_between_the_markers_changes(tmp_path: Path) -> None:
    """The rest of the file stays as it is, and writing twice is writing once."""
    path = tmp_path / "README.md"
    path.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\ntail\n", encoding="utf-8")
    write_into(path, results(ROW))
    once = path.read_text(encoding="utf-8")
    write_into(path, results(ROW))
    assert f"# Title\n\n{BEGIN}\n{markdown(results(ROW))}\n{END}\n\ntail\n" == once
    assert once == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_file_without_one_pair_of_markers_is_refused(text: str) -> None:
    """Nothing is guessed about where the table goes."""
    with pytest.raises(BenchError, match="benchmarks:begin"):
        between_markers(text, "table")


def test_the_document_carries_the_ratios() -> None:
    """The JSON form has what the table shows, computed once."""
    document = results(ROW).as_json()
    assert (4.0, 0.25) == (document["rows"][0]["best peer / own"], document["rows"][0]["floor / own"])
