"""The payments desk of the demo: invoices as text files, a ledger in SQLite, and the tools that work on them.

Plain user code: it knows nothing of models, capabilities or logs, and `pay` pays whatever it is told to.
"""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Annotated

from attrs import frozen

from ..capabilities.injected import FromDeps, ToolFailed
from ..capabilities.tools import tool

INVOICE = """\
Invoice   {number}
From      {payee}
To        Northgate Studio
For       {what}
Amount    {amount} EUR
Account   {account}
"""
# number, payee, what, amount in EUR, account, paid before the demo starts
INVOICES = (
    ("INV-2038", "Harbor Coffee Roasters", "coffee beans, 4 kg", 48, "DE02 1203 0000 0000 2020 51", True),
    ("INV-2040", "Lumen Internet", "fiber line, June", 35, "DE02 5001 0517 0137 0750 30", True),
    ("INV-2041", "Brightwater Paper", "printer paper, 2 boxes", 10, "DE89 3704 0044 0532 0130 00", False),
)
OPEN = ("INV-2041", 10)
TABLE = "CREATE TABLE payments (invoice TEXT PRIMARY KEY, payee TEXT, account TEXT, amount INTEGER)"
Payment = tuple[str, int]


@frozen
class Desk:
    """What the tools work on: a folder of invoices and a ledger file."""

    invoices: Path
    ledger: Path

    def open(self) -> None:
        """Write the invoices, and a ledger with those that were paid before."""
        self.invoices.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.ledger)) as db, db:
            db.execute(TABLE)
            for number, payee, what, amount, account, paid in INVOICES:
                text = INVOICE.format(number=number, payee=payee, what=what, amount=amount, account=account)
                (self.invoices / f"{number}.txt").write_text(text, encoding="utf-8")
                if paid:
                    db.execute("INSERT INTO payments VALUES (?, ?, ?, ?)", (number, payee, account, amount))

    def invoice(self, number: str) -> str:
        """Return the text of an invoice. Raises ToolFailed where there is none."""
        known = sorted(path.stem for path in self.invoices.glob("*.txt"))
        if number not in known:  # a name that was listed cannot lead out of the folder
            raise ToolFailed(f"there is no invoice {number!r}; there are: {', '.join(known)}")
        return (self.invoices / f"{number}.txt").read_text(encoding="utf-8")

    def payments(self) -> tuple[Payment, ...]:
        """Return invoice and amount of what was paid since the desk was opened, as the ledger has it."""
        before = {number for number, *_, paid in INVOICES if paid}
        with closing(sqlite3.connect(self.ledger)) as db:
            rows = db.execute("SELECT invoice, amount FROM payments ORDER BY rowid").fetchall()
        return tuple((invoice, amount) for invoice, amount in rows if invoice not in before)


@tool(read_only=True)
def list_invoices(desk: Annotated[Desk, FromDeps("desk")]) -> str:
    """List the numbers of all invoices in the folder, paid or not."""
    return "\n".join(sorted(path.stem for path in desk.invoices.glob("*.txt")))


@tool(read_only=True)
def read_invoice(number: str, desk: Annotated[Desk, FromDeps("desk")]) -> str:
    """Read one invoice by its number, such as INV-1234."""
    return desk.invoice(number)


@tool(read_only=True)
def search_ledger(text: str, desk: Annotated[Desk, FromDeps("desk")]) -> str:
    """Search the ledger by a part of invoice number or payee; an empty text finds all payments."""
    with closing(sqlite3.connect(desk.ledger)) as db:
        query = "SELECT invoice, payee, account, amount FROM payments WHERE instr(invoice || ' ' || payee, ?)"
        rows = db.execute(query, (text,)).fetchall()
    return (
        "\n".join(f"{row[0]}: paid {row[3]} EUR to {row[1]}, account {row[2]}" for row in rows) or "nothing"
    )


@tool(destructive=True)
def pay(invoice: str, amount: int, desk: Annotated[Desk, FromDeps("desk")]) -> str:
    """Pay an invoice, named by its number, in whole EUR. Payee and account are read from the invoice."""
    found = dict(re.findall(r"^(\w+) +(.+)$", desk.invoice(invoice), re.MULTILINE))
    try:
        with closing(sqlite3.connect(desk.ledger)) as db, db:
            row = (invoice, found["From"], found["Account"], amount)
            db.execute("INSERT INTO payments VALUES (?, ?, ?, ?)", row)
    except sqlite3.IntegrityError:
        raise ToolFailed(f"{invoice} is paid already") from None
    return f"paid {amount} EUR for {invoice} to {found['From']}, account {found['Account']}"


@tool(destructive=True)
def erase_payment(invoice: str, desk: Annotated[Desk, FromDeps("desk")]) -> str:
    """Erase a payment from the ledger."""
    with closing(sqlite3.connect(desk.ledger)) as db, db:
        db.execute("DELETE FROM payments WHERE invoice = ?", (invoice,))
    return f"erased {invoice}"


TOOLS = (list_invoices, read_invoice, search_ledger, pay, erase_payment)
