"""Timeline: a log as text for people. Per run, step and call: who changed what, what was restored or refused.

Reads records only. Knows nothing of how they were made, and trusts none of their text.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import wrap

from attrs import frozen

from .audit import AuditRecord
from .short import change, cut, printable, short

_NAME = 28  # columns that the name of an actor gets at most; of a longer one the end is shown
_LEAST = 20  # columns that are left for what is told, however narrow the terminal
_SENTENCE = 300  # characters of a refusal
# What happens in every step of every run, and says nothing by itself.
_ROUTINE = frozenset({"step_started", "model_requested", "tool_started"})
# Why something did not happen is told to its end.
_WHOLE = frozenset({"run_ended", "call_refused"})
# What a person looks for first in an event; the rest follows by name.
_FIRST = (
    "status",
    "reason",
    "prompt",
    "tool",
    "decision",
    "response",
    "arguments",
    "outcome",
    "model",
    "messages",
)
# What stands in the record of a run's start for a replay; it is long, and people look into the code for it.
_FOR_REPLAY = frozenset({"schema", "limits", "rules", "descriptors", "list"})
# Events that list all they were made with: what is empty there is left out.
_LISTS = frozenset({"run_started", "model_requested"})


@frozen
class _Row:
    """One line: who, where and what. `whole`: it is told to its end, over as many lines as it takes."""

    who: str
    where: str
    what: str
    whole: bool = False


def timeline(log: Iterable[AuditRecord], *, width: int = 110, brief: bool = False) -> str:
    """Return the log as text of at most `width` columns: runs one after another, each by step and call.

    A line says who, at which hook or event, did what. `RESTORED` and `REJECTED` begin the lines of writes
    that did not take effect; those, and why a call was refused or a run ended, are never cut. `brief` leaves
    out what happens in every step: that it started, that the model was asked, that a tool was started.
    Equal logs have equal timelines, whether they were stored or not.
    """
    runs: dict[str, dict[int, list[AuditRecord]]] = {}
    for record in log:
        runs.setdefault(record.run, {}).setdefault(record.step, []).append(record)
    lines: list[tuple[str, _Row | None]] = []
    for run, steps in runs.items():
        lines.append((f"run {printable(run)}", None))
        for step, records in steps.items():
            if step:
                lines.append((f"step {step}", None))
            lines.extend(_step(records, brief=brief))
    who = max((len(row.who) for _, row in lines if row), default=0)
    where = max((len(row.where) for _, row in lines if row), default=0)
    return "".join(f"{_line(indent, row, who, where, width)}\n" for indent, row in lines)


def _line(indent: str, row: _Row | None, who: int, where: int, width: int) -> str:
    if row is None:
        return indent
    # Rows of a call stand two columns further in, and their next column two less wide.
    head = f"{indent}{row.who:<{who + 4 - len(indent)}}  {row.where:<{where}}  "
    line = f"{head}{row.what}".rstrip()
    if len(line) <= width:
        return line
    if row.whole:
        told = wrap(row.what, max(width - len(head), _LEAST), break_on_hyphens=False)
        return head + f"\n{' ' * len(head)}".join(told)
    return f"{line[: width - 3]}..."


def _step(records: Sequence[AuditRecord], *, brief: bool) -> Iterator[tuple[str, _Row | None]]:
    """Yield a step's lines: what comes before its calls, each call, what comes after."""
    calls: dict[str, list[AuditRecord]] = {}
    after: list[AuditRecord] = []
    names: dict[str, str] = {}
    for record in records:
        names.update(_asked(record))
        if brief and record.kind in _ROUTINE:
            continue
        if record.call is not None:
            calls.setdefault(record.call, []).append(record)
        elif calls:
            after.append(record)
        else:
            yield from (("  ", row) for row in _rows(record))
    for call, members in calls.items():
        name = _tool_name(members) or names.get(call, "")
        yield f"  call {printable(call)}  {printable(name)}".rstrip(), None
        for record in members:
            yield from (("    ", row) for row in _rows(record))
    for record in after:
        yield from (("  ", row) for row in _rows(record))


def _asked(record: AuditRecord) -> Iterator[tuple[str, str]]:
    """Yield id and tool of each call of a response: one that was rejected when judged has no other name."""
    match record.facts.get("response"):
        case {"tool_calls": list(calls)}:
            for call in calls:
                match call:
                    case {"id": str(id), "name": str(name)}:
                        yield id, name


def _tool_name(records: Sequence[AuditRecord]) -> str:
    for record in records:
        name = record.facts.get("tool")
        if isinstance(name, Mapping):
            name = name.get("name", name.get("tool"))
        if isinstance(name, str):
            return name
    return ""


def _rows(record: AuditRecord) -> Iterator[_Row]:
    who, where = printable(record.actor), printable(record.hook or record.kind.replace("_", " "))
    who = who if len(who) <= _NAME else f"...{who[3 - _NAME :]}"
    told = [f"{printable(name)}: {change(written)}" for name, written in sorted(record.changes.items())]
    told += [_fact(name, value) for name, value in sorted(_told(record), key=_place)]
    if told or not (record.restored or record.rejected):
        yield _Row(who, where, "; ".join(told), whole=record.kind in _WHOLE)
    for name, pair in sorted(record.restored.items()):
        tried, kept = _parts(pair, "tried", "kept")
        what = f"RESTORED {printable(name)}: tried {short(tried)}, kept {short(kept)}"
        yield _Row(who, where, what, whole=True)
    for name, pair in sorted(record.rejected.items()):
        tried, legal = _parts(pair, "tried", "legal")
        sentence = printable(legal) if isinstance(legal, str) else short(legal)
        yield _Row(who, where, f"REJECTED {printable(name)}: tried {short(tried)}; {sentence}", whole=True)


def _told(record: AuditRecord) -> Iterator[tuple[str, object]]:
    """Yield the facts that are told: not what is empty, nor the tool's name, which heads its call.

    Nor whose a response was where it had no known cost: its request says that.
    """
    facts: Mapping[str, object] = record.facts
    if record.kind == "model_responded" and facts.get("cost") is None:
        facts = {name: value for name, value in facts.items() if name not in {"cost", "model"}}
    if record.kind == "run_started":
        facts = {name: value for name, value in facts.items() if name not in _FOR_REPLAY}
    for name, value in facts.items():
        empty = record.kind in _LISTS and value in (None, "", [], {})
        if not empty and not (name == "tool" and record.call is not None and isinstance(value, str)):
            yield name, value


def _place(fact: tuple[str, object]) -> tuple[int, str]:
    name = fact[0]
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)


def _fact(name: str, value: object) -> str:
    if name == "content" and isinstance(value, str):  # what the model was told in place of a result
        return f"content: {cut(printable(value), _SENTENCE)}"
    if name == "reason" and isinstance(value, Mapping) and isinstance(value.get("message"), str):
        return f"reason: {printable(str(value['message']))}"
    return f"{printable(name)}: {short(value)}"


def _parts(pair: object, first: str, second: str) -> tuple[object, object]:
    """Return the two members; where a sink has kept a digest only, that in place of both."""
    if isinstance(pair, Mapping) and first in pair:
        return pair[first], pair.get(second)
    return pair, pair
