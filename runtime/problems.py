"""How what is wrong with arguments is put in words: ordered, bounded in number and length.

Knows nothing of where problems are found.
"""

import json
from collections.abc import Iterable
from typing import Final

from ..capabilities.json_schema import path_text
from ..capabilities.verdict import Problem

MAX_PROBLEMS: Final = 50  # the model reads them all; what is cut off is counted
_MAX_MESSAGE: Final = 300
_MAX_SHOWN: Final = 60

Path = tuple[str | int, ...]
Found = tuple[Path, str]


def shown(value: object) -> str:
    """Return a small value as JSON, a large one as `this object` or the like."""
    # Only small values are written out: the reason must not drown in what the model sent.
    if isinstance(value, dict | list):
        return f"this {kind_of(value)}"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN else f"this {kind_of(value)}"


def kind_of(value: object) -> str:
    """Return JSON's word for the type of a value."""
    if value is None:
        return "null"
    for kind, word in ((bool, "boolean"), (str, "string"), (list, "array"), (dict, "object")):
        if isinstance(value, kind):
            return word
    return "number"


def problems_of(found: Iterable[Found]) -> tuple[Problem, ...]:
    """Order by path, then message; bound number and length."""

    def order(one: Found) -> tuple[list[tuple[bool, int, str]], str]:
        path, message = one
        return [
            (type(step) is str, 0 if isinstance(step, str) else step, str(step)) for step in path
        ], message

    listed = [
        Problem(short(path_text(path)), short(message)) for path, message in sorted(set(found), key=order)
    ]
    if len(listed) > MAX_PROBLEMS:
        more = len(listed) - MAX_PROBLEMS
        return (*listed[:MAX_PROBLEMS], Problem("$", f"and {more} more problems"))
    return tuple(listed)


def said(problems: Iterable[Problem]) -> str:
    """Return problems as one line, "" for none."""
    return "; ".join(f"{problem.path}: {problem.message}" for problem in problems)


def short(message: str) -> str:
    """Return the message, cut to a bounded length."""
    return message if len(message) <= _MAX_MESSAGE else message[: _MAX_MESSAGE - 1] + "…"
