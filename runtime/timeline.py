"""Timeline: a log as text for people. Per run, step and call: who changed what, what was restored or refused.

Reads records only. Knows nothing of how they were made, and trusts none of their text: whatever a model or a
tool wrote reaches a terminal with its control characters escaped.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import frozen

from .audit import AuditRecord

_SHOWN = 5  # members of a list or mapping that are shown
_TEXT = 48  # characters of a string that are shown
_HASH = 64


@frozen
class _Row:
    who: str
    where: str
    what: str


def timeline(log: Iterable[AuditRecord], *, width: int = 110) -> str:
    """Return the log as text of at most `width` columns: runs one after another, each by step and call.

    A line says who, at which hook or event, did what. `RESTORED` and `REJECTED` begin the lines of writes
    that did not take effect; those are not cut. Names stand sorted, as in a stored line, so that
    a log has one timeline whether it was stored or not.
    """
    runs: dict[str, dict[int, list[AuditRecord]]] = {}
    for record in log:
        runs.setdefault(record.run, {}).setdefault(record.step, []).append(record)
    lines: list[tuple[str, _Row | None]] = []
    for run, steps in runs.items():
        lines.append((f"run {_printable(run)}", None))
        for step, records in steps.items():
            if step:
                lines.append((f"step {step}", None))
            lines.extend(_step(records))
    who = max((len(row.who) for _, row in lines if row), default=0)
    where = max((len(row.where) for _, row in lines if row), default=0)
    return "".join(f"{_line(indent, row, who, where, width)}\n" for indent, row in lines)


def _line(indent: str, row: _Row | None, who: int, where: int, width: int) -> str:
    if row is None:
        return indent
    # Rows of a call stand two columns further in, and their next column two less wide.
    line = f"{indent}{row.who:<{who + 4 - len(indent)}}  {row.where:<{where}}  {row.what}".rstrip()
    whole = len(line) <= width or row.what.startswith(("RESTORED", "REJECTED"))
    return line if whole else f"{line[: width - 3]}..."


def _step(records: Sequence[AuditRecord]) -> Iterator[tuple[str, _Row | None]]:
    """Yield a step's lines: what comes before its calls, each call, what comes after."""
    calls: dict[str, list[AuditRecord]] = {}
    after: list[AuditRecord] = []
    for record in records:
        if record.call is not None:
            calls.setdefault(record.call, []).append(record)
        elif calls:
            after.append(record)
        else:
            yield from (("  ", row) for row in _rows(record))
    for call, members in calls.items():
        yield f"  call {_printable(call)}{_tool_name(members)}", None
        for record in members:
            yield from (("    ", row) for row in _rows(record))
    for record in after:
        yield from (("  ", row) for row in _rows(record))


def _tool_name(records: Sequence[AuditRecord]) -> str:
    for record in records:
        name = record.facts.get("tool")
        if isinstance(name, Mapping):
            name = name.get("name", name.get("tool"))
        if isinstance(name, str):
            return f"  {_printable(name)}"
    return ""


def _rows(record: AuditRecord) -> Iterator[_Row]:
    who, where = _printable(record.actor), _printable(record.hook or record.kind.replace("_", " "))
    told = [f"{_printable(name)}: {_change(change)}" for name, change in sorted(record.changes.items())]
    told += [f"{_printable(name)}: {short(value)}" for name, value in sorted(record.facts.items())]
    if told or not (record.restored or record.rejected):
        yield _Row(who, where, "; ".join(told))
    for name, pair in sorted(record.restored.items()):
        tried, kept = _parts(pair, "tried", "kept")
        yield _Row(who, where, f"RESTORED {_printable(name)}: tried {short(tried)}, kept {short(kept)}")
    for name, pair in sorted(record.rejected.items()):
        tried, legal = _parts(pair, "tried", "legal")
        sentence = _printable(legal) if isinstance(legal, str) else short(legal)
        yield _Row(who, where, f"REJECTED {_printable(name)}: tried {short(tried)}; {sentence}")


def _parts(pair: object, first: str, second: str) -> tuple[object, object]:
    """Return the two members; where a sink has kept a digest only, that in place of both."""
    if isinstance(pair, Mapping) and first in pair:
        return pair[first], pair.get(second)
    return pair, pair


def _change(change: object) -> str:
    match change:
        case {"from": None, "to": {"covers": int(covers), "messages": list(messages)}}:
            return f"shows {_count(messages)} for {covers}"
        case {"from": before, "to": after}:
            return f"{short(before)} -> {short(after)}"
        case {"added": list(items)}:
            return f"added {_some([short(item) for item in items])}"
        case {"set": Mapping() as members, "removed": list(removed)}:
            told = [f"{_printable(name)}={short(value)}" for name, value in sorted(members.items())]
            return _some(told + [f"without {_printable(name)}" for name in removed])
    return short(change)


def _count(messages: Sequence[object]) -> str:
    """Count the messages of a written projection, in which [start, stop] stands for a run of them."""
    n = sum(item[1] - item[0] if isinstance(item, list) else 1 for item in messages)
    return f"{n} message{'' if n == 1 else 's'}"


def short(value: object) -> str:
    """Return a JSON value as one short line: what a person looks for first, bounded, safe for a terminal."""
    if isinstance(value, str):
        return f'"{_cut(_printable(value))}"'
    if isinstance(value, Mapping):
        return _short_mapping(value)
    if isinstance(value, list | tuple):
        return f"[{_some([short(member) for member in value])}]"
    return json.dumps(value)


def _short_mapping(value: Mapping[str, object]) -> str:
    match value:
        case {"$repr": str(text)}:
            return _cut(_printable(text))
        case {"digest": str(digest)} if len(value) == 1 and len(digest) == _HASH:
            return f"sha256 {_printable(digest[:8])}..."
        case {"tool": str(name), "digest": str()}:
            return _printable(name)
        case {"name": str(name), "arguments": arguments}:  # a tool call; the arguments are the model's text
            told = _cut(_printable(arguments)) if isinstance(arguments, str) else short(arguments)
            return f"{_printable(name)}({told})"
        case {"message": str(text)}:  # a reason, a stop, a failure
            return _cut(_printable(text), 3 * _TEXT)
        case {"content": content}:
            return _spoken(content, value.get("tool_calls"))
    told_members = [
        f"{_printable(name)}={short(member)}" for name, member in sorted(value.items()) if member is not None
    ]
    return f"{{{_some(told_members)}}}"


def _spoken(content: object, calls: object) -> str:
    told = [short(content)] if content != "" else []
    if isinstance(calls, list):
        told += [short(call) for call in calls]
    return " ".join(told) or '""'


def _some(told: Sequence[str]) -> str:
    more = len(told) - _SHOWN
    return ", ".join(told[:_SHOWN]) + (f", {more} more" if more > 0 else "")


def _cut(text: str, size: int = _TEXT) -> str:
    return text if len(text) <= size else f"{text[: size - 3]}..."


def _printable(text: str) -> str:
    """Escape what a terminal would obey or not show, such as colors or changes of direction."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )
