"""Short: any JSON value of a record as one bounded line, safe for a terminal. Knows nothing of layout.

Whatever a model or a tool wrote reaches a terminal with its control characters escaped.
"""

import json
from collections.abc import Mapping, Sequence

_MEMBERS = 5  # members of a list or mapping that are shown
_TEXT = 48  # characters of a string that are shown
_HASH = 64  # characters of a SHA-256 in hexadecimal
_DECISIONS = frozenset({"Approve", "Deny", "Edit", "Answer"})


def short(value: object) -> str:
    """Return a JSON value as one short line: what a person looks for first, bounded, safe for a terminal."""
    if isinstance(value, str):
        return f"sha256 {value[:8]}..." if _is_hash(value) else f'"{cut(printable(value))}"'
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, list | tuple):
        return f"[{some([short(member) for member in value])}]"
    return json.dumps(value)


def change(written: object) -> str:
    """Return the change of a field, as a record has it, as one short line."""
    match written:
        case {"from": None, "to": {"covers": int(covers), "messages": list(messages)}}:
            return _shown(messages, covers)
        case {"from": list(before), "to": list(after)} if _narrowed(before, after):
            gone = [short(tool) for tool in before if tool not in after]
            return f"{len(after)} of {len(before)}, without {some(gone)}"
        case {"from": {"approval": _}, "to": {"approval": _} as verdict}:
            return short(verdict)  # a join only grows: what it came to holds what it was
        case {"from": before, "to": after}:
            return f"{short(before)} -> {short(after)}"
        case {"added": list(items)}:
            return f"added {some([short(item) for item in items])}"
        case {"set": Mapping() as members, "removed": list(removed)}:
            told = [f"{printable(name)}={short(value)}" for name, value in sorted(members.items())]
            return some(told + [f"without {printable(name)}" for name in removed])
    return short(written)


def some(told: Sequence[str]) -> str:
    """Join the first few, and say how many more there are."""
    more = len(told) - _MEMBERS
    return ", ".join(told[:_MEMBERS]) + (f", {more} more" if more > 0 else "")


def cut(text: str, size: int = _TEXT) -> str:
    """Return the text, cut to `size` characters."""
    return text if len(text) <= size else f"{text[: size - 3]}..."


def printable(text: str) -> str:
    """Escape what a terminal would obey or not show, such as colors or changes of direction."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


def _mapping(value: Mapping[str, object]) -> str:
    match value:
        case {"$repr": str(text)}:
            return cut(printable(text))
        case {"digest": str(digest)} if len(value) == 1 and _is_hash(digest):
            return short(digest)
        case {"tool": str(name), "digest": str()}:
            return printable(name)
        case {"name": str(name), "arguments": arguments}:  # a tool call; the arguments are the model's text
            given = cut(printable(arguments)) if isinstance(arguments, str) else short(arguments)
            return f"{printable(name)}({given})"
        case {"refused": refused, "approval": list(asks), "answer": answer}:
            return _verdict(refused, asks, answer)
        case {"type": str(kind)} if kind in _DECISIONS:
            rest = [(name, member) for name, member in sorted(value.items()) if name != "type" and member]
            told = [short(x) if isinstance(x, str) else f"{name}={short(x)}" for name, x in rest]
            return " ".join([kind, *told])
        case {"message": str(text)}:  # a reason, a stop, a failure
            return cut(printable(text), 3 * _TEXT)
        case {"status": str(status), "content": content}:  # an outcome; most succeed, and that is not told
            return _spoken(content, None) if status == "succeeded" else f"{status} {_spoken(content, None)}"
        case {"content": content}:
            return _spoken(content, value.get("tool_calls"))
    if value and all(isinstance(member, str) and _is_hash(member) for member in value.values()):
        return f"[{some([printable(name) for name in sorted(value)])}]"  # names and digests: the names
    told_members = [
        f"{printable(name)}={short(member)}" for name, member in sorted(value.items()) if member is not None
    ]
    return f"{{{some(told_members)}}}"


def _verdict(refused: object, asks: Sequence[object], answer: object) -> str:
    told = [] if refused is None else [f"refuse {_part(refused, 'reason')}"]
    told += [f"ask {_part(ask, 'prompt')}" for ask in asks]
    told += [] if answer is None else [f"answer {_part(answer, 'content')}"]
    return ", ".join(told) or "undecided"


def _part(value: object, name: str) -> str:
    found = value.get(name, value) if isinstance(value, Mapping) else value
    # The question that a person was asked is what one looks for: it is given more room.
    return f'"{cut(printable(found), 2 * _TEXT)}"' if isinstance(found, str) else short(found)


def _spoken(content: object, calls: object) -> str:
    told = [short(content)] if content != "" else []
    if isinstance(calls, list):
        told += [short(call) for call in calls]
    return " ".join(told) or '""'


def _shown(messages: Sequence[object], covers: int) -> str:
    """Count the messages of a written projection, in which [start, stop] stands for a run of them."""
    n = sum(item[1] - item[0] if isinstance(item, list) else 1 for item in messages)
    new = sum(isinstance(item, Mapping) for item in messages)
    return f"shows {n} message{'' if n == 1 else 's'} for {covers}" + (f", {new} rewritten" if new else "")


def _narrowed(before: Sequence[object], after: Sequence[object]) -> bool:
    """Tell whether both are lists of tools, the second a part of the first."""
    tools = all(isinstance(item, Mapping) and "tool" in item for item in before)
    return tools and len(after) < len(before) and all(item in before for item in after)


def _is_hash(text: str) -> bool:
    return len(text) == _HASH and set(text) <= set("0123456789abcdef")
