"""From the text a model sent to frozen arguments, or to everything that makes it no good JSON.

Pure, and never raises, whatever the text. Knows nothing of schemas or tools; `strict_json` does the reading.
"""

from collections.abc import Iterator
from typing import Final

from ..capabilities.frozen import EMPTY, FrozenDict, Json
from ..capabilities.verdict import Problem
from . import strict_json
from .problems import Found, problems_of

MAX_DEPTH: Final = 100  # nested arrays and objects; a fixed bound, so that it does not depend on the stack


def decode(text: str) -> tuple[FrozenDict[Json], tuple[Problem, ...]]:
    """Return the arguments in a JSON text and no problems, or an empty mapping and all problems.

    Strict: one object and nothing after it, no duplicate keys at any level, no NaN or infinity, no number or
    nesting that other programs could not read back, no half surrogate pair. Never raises.
    """
    value, found = strict_json.read(text, MAX_DEPTH, utf8=True, an_object=True)
    return (value, ()) if type(value) is FrozenDict else (EMPTY, problems_of(found))


def unreadable(document: object) -> Iterator[Found]:
    """Yield what no later step could work with; with a stack of its own, so that depth is no danger."""
    return strict_json.unreadable(document, MAX_DEPTH, utf8=True)
