"""Entries: what the machine writes down, as references; the audit log makes records of them when they are read.

Making an entry costs one object; encoding and hashing it is the log's business, and lazy in memory.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from attrs import frozen

from ..capabilities.messages import Message
from ..capabilities.views import Projection

EntryKind: TypeAlias = Literal[
    "run_started",
    "run_ended",
    "run_suspended",
    "run_resumed",
    "step_started",
    "gathered",
    "transition",
    "restored",
    "rejected",
    "model_requested",
    "model_responded",
    "call_admitted",
    "call_refused",
    "call_decided",
    "tool_started",
    "tool_settled",
    "note",
]
ENTRY_KINDS: tuple[EntryKind, ...] = get_args(EntryKind)
# Suspending is how a run was carried, not what it did: these stay out of the digest chain.
OUTSIDE_DIGEST: frozenset[EntryKind] = frozenset({"run_suspended", "run_resumed"})


@frozen(eq=False)
class FromTo:
    """A field that had one value and has another."""

    before: object
    after: object


@frozen(eq=False)
class Added:
    """Items appended to a sequence."""

    items: tuple[object, ...]


@frozen(eq=False)
class Items:
    """Keys set in and removed from a mapping."""

    set: Mapping[str, object]
    removed: tuple[str, ...] = ()


@frozen(eq=False)
class Projected:
    """A new projection; `history` is the canonical history that it projects, by which its messages are named."""

    projection: Projection | None
    history: tuple[Message, ...]


Change: TypeAlias = FromTo | Added | Items | Projected
NOTHING: Mapping[str, Any] = {}  # Any: an empty mapping of any type


class Entry(NamedTuple):  # six of these a step: a frozen attrs class takes about three times as long to make
    """One hook call or event. `at`: UTC seconds. `actor`: a capability's key, or runtime, model, tool, person.

    `restored`: field -> (tried, kept). `rejected`: field -> (tried, what would have been legal).
    `facts`: what came from outside, as records or frozen JSON.
    """

    kind: EntryKind
    run: str
    step: int
    at: float
    actor: str = "runtime"
    call: str | None = None
    index: int | None = None  # type: ignore[assignment]  # hides tuple.index, which nobody calls
    hook: str | None = None
    changes: Mapping[str, Change] = NOTHING
    restored: Mapping[str, tuple[object, object]] = NOTHING
    rejected: Mapping[str, tuple[object, str]] = NOTHING
    facts: Mapping[str, object] = NOTHING


Row: TypeAlias = tuple[Any, ...]  # Any: each place has a type of its own
"""An event until somebody reads it: kind, run, step, at, actor, call, the names of its facts, and the facts.

One tuple in place of an entry and a dict. A thousand runs at once pay a microsecond for each object that they keep,
since the garbage collector looks at all of them again and again, but at no tuple of mere texts and numbers; and a dict
of three facts takes as much memory as all the rest of an event.
"""


def entry_of(kept: Entry | Row) -> Entry:
    """Return what was kept of an entry as the entry."""
    if isinstance(kept, Entry):
        return kept
    kind, run, step, at, actor, call, names, *facts = kept
    return Entry(kind, run, step, at, actor, call, facts=dict(zip(names, facts, strict=True)))
