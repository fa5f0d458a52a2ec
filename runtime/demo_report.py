"""What became of a run of the demo, by three witnesses: person, log and ledger; and what was promised.

The log is read back from its file, the payments from SQLite. Knows nothing of how a run is made.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

from .audit import AuditRecord
from .demo_desk import Payment
from .errors import LogError
from .log import Log, scan_log, verify

COLUMNS = ("run", "the person approved", "what ran", "the ledger says", "log")
NOBODY_ASKED = "(was not asked)"
SAID_NO = "nothing: said no"
NOTHING = "nothing"


@frozen
class Promise:
    """What one run promises. `forger`: whose write must be restored; `culprit`: whose write must be rejected.

    `asked`: whether the person must have been asked before it: then it gets no chance when the person denies.
    """

    forger: str | None = None
    culprit: str | None = None
    asked: bool = True


@frozen(kw_only=True)
class Account:
    """One run as its witnesses tell it. `error`: how it failed, as its exception said; "" when it did not."""

    title: str
    log: Log
    log_problem: str | None
    shown: tuple[Payment, ...]
    approved: tuple[Payment, ...]
    ledger: tuple[Payment, ...]
    error: str = ""
    ran: tuple[Payment, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Read from the log what ran."""
        object.__setattr__(self, "ran", ran_by(self.log))

    def row(self) -> tuple[str, ...]:
        """Return the line of the table."""
        answer = told(self.approved) if self.approved else SAID_NO
        approved = answer if self.shown else NOBODY_ASKED
        verdict = f"{len(self.log)} records verified" if self.log_problem is None else "NOT verified"
        return (self.title, approved, told(self.ran), told(self.ledger), verdict)

    def problems(self, promise: Promise) -> list[str]:
        """Return in which points the run was not as promised; none is what one hopes for."""
        found = [] if self.log_problem is None else [f"the log does not hold: {self.log_problem}"]
        if Counter(self.ran) != Counter(self.ledger):
            found.append(f"the log says {told(self.ran)} ran, the ledger says {told(self.ledger)}")
        if Counter(self.ledger) - Counter(self.approved):
            found.append(f"paid was {told(self.ledger)}, approved was {told(self.approved)}")
        if promise.asked and not self.shown:
            found.append("the model never got as far as a payment, so nobody was asked and nothing is shown")
        if promise.forger is not None and not by(self.log, "restored", promise.forger):
            found.append(f"nothing that {promise.forger} wrote was restored")
        if promise.culprit is None:
            found += [f"it failed: {self.error}"] if self.error else []
            if Counter(self.approved) != Counter(self.ledger):
                found.append(f"approved was {told(self.approved)}, paid was {told(self.ledger)}")
        elif self.approved or not promise.asked:
            found += self._caught(promise.culprit)
        elif self.error:
            found.append(f"it failed: {self.error}")
        return found

    def _caught(self, culprit: str) -> list[str]:
        found = []
        if not any("arguments" in record.rejected for record in by(self.log, "rejected", culprit)):
            found.append(f"what {culprit} wrote was not rejected")
        if culprit not in self.error:
            found.append(f"the error does not name {culprit}: {self.error or 'there is none'}")
        if self.ledger:
            found.append(f"{told(self.ledger)} was paid")
        return found


def checked_log(path: Path) -> tuple[Log, str | None]:
    """Read a log file and verify it; return it and what is wrong with it, or None."""
    log, problem = scan_log(path)
    try:
        whole = verify(log).complete
        if problem is not None:
            raise problem
    except LogError as error:
        return log, str(error)
    return log, None if whole else "it is cut off"


def ran_by(log: Log) -> tuple[Payment, ...]:
    """Return the payments whose tool ran, by the log: with the arguments that were admitted."""
    admitted: dict[str | None, Payment] = {}
    found: list[Payment] = []
    for record in log:
        match (record.kind, record.facts):
            case ("call_admitted", {"tool": "pay", "arguments": Mapping() as arguments}):
                admitted[record.call] = payment_of(arguments)
            case ("tool_settled", {"outcome": {"status": "succeeded"}}) if record.call in admitted:
                found.append(admitted[record.call])
    return tuple(found)


def payment_of(arguments: Mapping[str, object]) -> Payment:
    """Return the payment that arguments of `pay` ask for."""
    amount = arguments["amount"]
    assert isinstance(amount, int), "the schema of pay says so"
    return (str(arguments["invoice"]), amount)


def by(log: Log, kind: str, actor: str) -> list[AuditRecord]:
    """Return the records of one kind by one capability."""
    return [record for record in log if record.kind == kind and record.actor == actor]


def told(payments: Sequence[Payment]) -> str:
    """Return payments as a few words."""
    return ", ".join(f"{amount} ({invoice})" for invoice, amount in payments) or NOTHING


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as aligned lines under the names of the columns."""
    everything = [COLUMNS, *rows]
    widths = [max(len(row[i]) for row in everything) for i in range(len(COLUMNS))]
    lines = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in everything
    ]
    rule = "  ".join("-" * width for width in widths)
    return [line.rstrip() for line in (lines[0], rule, *lines[1:])]
