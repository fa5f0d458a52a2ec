"""Results as Markdown, and that text put between the markers of a file.

Must not know how anything was measured. The text names no machine: ratios are what is meant to be read.
"""

from pathlib import Path

from .participants import BenchError
from .results import Results, Row

BEGIN = "<!-- benchmarks:begin -->"
END = "<!-- benchmarks:end -->"
NONE = "-"


def digits(value: float | None) -> str:
    """Return three significant digits in plain notation, `-` for None."""
    if value is None:
        return NONE
    size = abs(value)
    places = 0 if size >= 100 else 1 if size >= 10 else 2
    return f"{value:.{places}f}"


def times(ratio: float | None) -> str:
    """Return a ratio as text, `-` for None."""
    return NONE if ratio is None else f"{digits(ratio)}x"


def table_line(cells: list[str]) -> str:
    """Return one line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def row_line(results: Results, row: Row) -> str:
    """Return the line of one row: the ratios first, because they are what one run can say."""
    peer, floor = (times(ratio) for ratio in results.ratios(row))
    figures = [digits(row.values.get(name)) for name in results.names]
    return table_line(
        [f"{row.workload}: {row.title}", f"**{peer}**" if peer != NONE else NONE, floor, row.unit, *figures]
    )


def explanation(results: Results) -> str:
    """Return the sentences above the table."""
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    pace = "A quick run: few and short blocks. " if results.quick else ""
    missing = f" Left out: {', '.join(results.left_out)}." if results.left_out else ""
    return (
        f"{pace}CPU time, medians of blocks that were interleaved in random order, one process per "
        "participant; a stub model, so this is the overhead of the framework alone. The figures differ "
        "between machines; the ratios, taken within one run, are what to read: more than 1x means that "
        f"{results.own} is faster. {results.own} ran with its log on (in memory), the peers without tracing. "
        f"`{results.floor}` is a bare loop over dicts without any check or log, and in W7 the bare typed "
        f"`create` of the openai client. CPython {results.python}; {versions}.{missing}"
    )


def markdown(results: Results) -> str:
    """Return the explanation and the table."""
    head = [
        "work",
        f"best peer / {results.own}",
        f"{results.floor} / {results.own}",
        "unit",
        *results.names,
    ]
    rule = ["---", "---:", "---:", "---", *["---:"] * len(results.names)]
    lines = [table_line(head), table_line(rule), *(row_line(results, row) for row in results.rows)]
    return explanation(results) + "\n\n" + "\n".join(lines)


def between_markers(text: str, body: str, begin: str = BEGIN, end: str = END) -> str:
    """Return `text` with everything between its two markers replaced by `body`.

    Raises:
        BenchError: the markers are missing, doubled or in the wrong order.
    """
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise BenchError(f"the file needs one line {begin} and, after it, one line {end}")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{body}\n{end}{after}"


def write_into(path: Path, results: Results) -> None:
    """Put the table into the file at `path`, between its markers.

    Raises:
        BenchError: see `between_markers`.
    """
    path.write_text(between_markers(path.read_text(encoding="utf-8"), markdown(results)), encoding="utf-8")
