"""What a workload hands to the report: rows of figures, and the ratios within a row.

Must not know how a figure was measured, nor how it is printed.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from attrs import asdict, field, frozen


@frozen
class Row:
    """One line of the table."""

    workload: str
    """"W1" ... or "micro"."""
    title: str
    unit: str
    values: Mapping[str, float]
    """The figure per participant, in `unit`; the smaller the better."""
    spreads: Mapping[str, float] = field(factory=dict)
    """The distance of the quartiles of each figure that came from blocks, in `unit`."""
    compared: bool = True
    """False where a quotient would say nothing: exponents."""

    def best_peer(self, peers: Collection[str]) -> float | None:
        """Return the smallest figure of a peer, None when there is none."""
        return min((value for name, value in self.values.items() if name in peers), default=None)

    def ratio(self, other: float | None, own: str) -> float | None:
        """Return `other` in units of the figure of `own`; None when one is missing or is not positive."""
        mine = self.values.get(own)
        if not self.compared or other is None or mine is None or mine <= 0 or other <= 0:
            return None
        return other / mine


@frozen
class Results:
    """All rows of one start of the command, and what is needed to read them."""

    rows: Sequence[Row]
    names: Sequence[str]
    """Participants in the order of the columns."""
    peers: Collection[str]
    own: str
    floor: str
    versions: Mapping[str, str]
    """Version per participant, where it has one."""
    python: str
    quick: bool
    left_out: Sequence[str] = ()

    def ratios(self, row: Row) -> tuple[float | None, float | None]:
        """Return (best peer / own, floor / own)."""
        return row.ratio(row.best_peer(self.peers), self.own), row.ratio(row.values.get(self.floor), self.own)

    def as_json(self) -> dict[str, Any]:  # Any: a JSON document
        """Return everything as a document for `json.dumps`, each row with its ratios."""
        document = asdict(self)
        for row, entry in zip(self.rows, document["rows"], strict=True):
            entry["best peer / own"], entry["floor / own"] = self.ratios(row)
        document["peers"] = sorted(self.peers)
        return document
