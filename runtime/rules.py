"""The rules as text, Markdown, Mermaid and JSON, generated from the tables that the runtime itself obeys.

Nothing here is a rule of its own: owners, fields, hooks, phases and moves are read where they are decided.
"""

from collections.abc import Iterable, Sequence
from textwrap import fill, indent, wrap

from attrs import fields

from ..capabilities.call_state import CallState
from ..capabilities.grid import HOOKS
from ..capabilities.owners import ANY, RULES, Owner, owners
from ..capabilities.state import RunState
from .phases import MOVES, Phase

RECORDS: tuple[type, ...] = (RunState, CallState)

# How to read each table, for who sees it for the first time.
OWNERS_READ = (
    "Every field of the two records that hooks take and return has one owner. A write that is not legal is "
    "`restored`: the runtime's value stays, the run goes on, and the log names who tried; or `rejected`: the "
    "run ends with an error that names capability, hook and field. Hooks are trusted code of your own program. "
    "capfold finds bugs in them, and capabilities that disagree with each other; it is no sandbox."
)
HOOKS_READ = (
    "Override only what you need. A `reducer` takes the record and returns a new one, synchronously; a "
    "`wrapper` is async and encloses an effect; a `gatherer` is async and brings in the fact for the reducer "
    "that it is named after."
)
PHASES_READ = (
    "Each row is a phase, an event that may arrive in it, and the phases that may follow. No other move "
    "exists."
)


def rules_json() -> dict[str, object]:
    """Return owners, hooks and phases as plain JSON data."""
    return {
        "owners": {
            owner.name: {
                "meaning": rule.meaning,
                "fields": {
                    record.__name__: owned for record in RECORDS if (owned := fields_of(record, owner))
                },
                "otherwise": rule.consequence,
                "legal": dict(rule.allowed),
            }
            for owner, rule in RULES.items()
        },
        "hooks": {
            hook.name: {
                "kind": hook.kind,
                "record": hook.record,
                "when": hook.when,
                "gatherer": hook.gatherer,
                "reverse_in_nested": hook.reverse_in_nested,
            }
            for hook in HOOKS.values()
        },
        "phases": {
            phase.value: {event.__name__: _names(targets) for event, targets in moves.items()}
            for phase, moves in MOVES.items()
        },
    }


def rules_text(*, width: int = 110) -> str:
    """Return owners, hooks and phases as text for people, at most `width` columns wide."""
    sections: tuple[tuple[str, str, Sequence[tuple[str, str, str]]], ...] = (
        ("Owners: who may write a field", OWNERS_READ, _owner_rows()),
        (
            "Hooks: when each is called",
            HOOKS_READ,
            [(hook.name, hook.kind, f"{hook.record}: {hook.when}") for hook in HOOKS.values()],
        ),
        ("Phases: what a run waits for, and where each event may lead", PHASES_READ, _phase_rows()),
    )
    told = (indent(fill(read, width - 2), "  ") for _, read, _ in sections)
    return "\n".join(
        f"{title}\n\n{read}\n\n{_table(rows, width)}"
        for (title, _, rows), read in zip(sections, told, strict=True)
    )


def rules_mermaid() -> str:
    """Return the phases and legal moves as a Mermaid state diagram; events with equal ends share an arrow."""
    lines = ["stateDiagram-v2", f"    [*] --> {next(iter(MOVES)).value}"]
    for phase, moves in MOVES.items():
        arrows: dict[str, list[str]] = {}
        for event, targets in moves.items():
            for target in _names(targets):
                arrows.setdefault(target, []).append(event.__name__)
        lines += [f"    {phase.value} --> {target}: {', '.join(events)}" for target, events in arrows.items()]
        if not moves:
            lines.append(f"    {phase.value} --> [*]")
    return "\n".join(lines) + "\n"


def rules_markdown() -> str:
    """Return owners, hooks and phases as the Markdown that README and docs hold."""
    parts = (
        ("Owners: who may write a field", OWNERS_READ, owners_markdown()),
        ("Hooks: when each is called", HOOKS_READ, hooks_markdown()),
        ("Phases: what a run waits for", PHASES_READ, phases_markdown()),
    )
    return "\n".join(f"## {title}\n\n{read}\n\n{table}" for title, read, table in parts)


def owners_markdown() -> str:
    """Return the owners as a Markdown table, one row each; fields of a CallState stand as `call.name`."""
    rows: list[tuple[str, ...]] = []
    for owner, rule in RULES.items():
        owned = [f"`{name}`" for name in fields_of(RunState, owner)]
        owned += [f"`call.{name}`" for name in fields_of(CallState, owner)]
        laws = "; ".join(f"{law} ({', '.join(hooks)})" for law, hooks in _laws(owner)) or "none"
        rows.append((owner.name, rule.meaning, " ".join(owned), laws, f"**{rule.consequence}**"))
    return markdown_table(("owner", "meaning", "fields", "legal writes", "any other write"), rows)


def hooks_markdown() -> str:
    """Return the hooks as a Markdown table, in the order of the grid."""
    rows = [(f"`{hook.name}`", hook.kind, f"`{hook.record}`", hook.when) for hook in HOOKS.values()]
    return markdown_table(("hook", "kind", "takes", "when"), rows)


def phases_markdown() -> str:
    """Return the phases as a Markdown table: one row for each phase and event."""
    rows = [(phase, event, targets) for phase, event, targets in _phase_rows()]
    return markdown_table(("phase", "event", "may lead to"), rows)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; a bar inside a cell is escaped."""
    lines = [[cell.replace("|", r"\|") for cell in line] for line in (head, ["---"] * len(head), *rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def fields_of(record: type, owner: Owner) -> list[str]:
    """Return the names of a record's fields that belong to an owner, in field order."""
    owned = owners(record)
    return [field.name for field in fields(record) if owned[field.name] is owner]


def _names(phases: Iterable[Phase]) -> list[str]:
    """Return the phases' names in the order of the table, not of a set."""
    targets = set(phases)
    return [phase.value for phase in Phase if phase in targets]


def _laws(owner: Owner) -> list[tuple[str, list[str]]]:
    """Return what is legal for an owner's fields, each with the hooks where it is."""
    by_law: dict[str, list[str]] = {}
    for hook, law in RULES[owner].allowed.items():
        by_law.setdefault(law, []).append("any hook" if hook == ANY else hook)
    return list(by_law.items())


def _owner_rows() -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for owner, rule in RULES.items():
        rows.append((owner.name, "meaning", rule.meaning))
        for record in RECORDS:
            owned = " ".join(fields_of(record, owner))
            rows += [("", record.__name__, owned)] if owned else []
        rows += [("", "legal", f"{law} ({', '.join(hooks)})") for law, hooks in _laws(owner)]
        rows.append(("", rule.consequence, "any other write" if rule.allowed else "any write"))
    return rows


def _phase_rows() -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for phase, moves in MOVES.items():
        name = phase.value
        for event, targets in moves.items():
            rows.append((name, event.__name__, " ".join(_names(targets))))
            name = ""
        if not moves:
            rows.append((name, "-", "nothing follows"))
    return rows


def _table(rows: Sequence[tuple[str, str, str]], width: int) -> str:
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    lines: list[str] = []
    for a, b, text in rows:
        head = f"  {a:<{first}}  {b:<{second}}  "
        lines += wrap(text, width, initial_indent=head, subsequent_indent=" " * len(head))
    return "".join(f"{line.rstrip()}\n" for line in lines)
