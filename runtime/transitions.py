"""Transitions: what one hook call did to its record, and whether it may.

Rules, numbered as the tests name them:
1. A hook returns its own record class, or it is an InvalidReturn.
2. A field that is the identical object, or equal in type and value, did not change.
3. A changed field is judged by its owner's guard for this hook; a missing guard *is* the illegal move.
4. An illegal write of a RUNTIME or LATCH field is restored, of any other field rejected.
The owners' table is `capabilities/owners.py`; the guards are in `guards.py`. Nothing here knows of phases.
"""

from collections.abc import Mapping
from typing import Literal, Protocol, TypeAlias, TypeVar

from attrs import AttrsInstance, fields, frozen

from ..capabilities.call_state import CallState
from ..capabilities.frozen import FrozenDict, same
from ..capabilities.owners import ANY, RULES, Owner, owners
from ..capabilities.records import replace
from ..capabilities.state import Fail, RunState, Stop
from ..capabilities.views import Projection
from .entries import Added, Change, FromTo, Items, Projected
from .guards import GUARDS, Edge, Guard, slots_guard

R = TypeVar("R", bound=RunState | CallState)

RUN_OWNERS: Mapping[str, Owner] = owners(RunState)
CALL_OWNERS: Mapping[str, Owner] = owners(CallState)


Kind: TypeAlias = Literal["transition", "restored", "rejected"]


class Diff(Protocol):
    """Names of the fields that are not the identical object, in field order."""

    def __call__(self, before: RunState | CallState, after: RunState | CallState, /) -> list[str]:
        """Compare two records of one class."""


def generate_diff(record: type[AttrsInstance]) -> Diff:
    """Return an unrolled comparison of a record's fields; on a RunState it takes a fraction of the loop below."""
    lines = ["def diff(a, b):", "    changed = []"]
    for field in fields(record):
        lines += [f"    if a.{field.name} is not b.{field.name}:", f"        changed.append({field.name!r})"]
    lines.append("    return changed")
    scope: dict[str, object] = {}
    exec("\n".join(lines), scope)  # noqa: S102  # field names of our own records only
    return scope["diff"]  # type: ignore[return-value]  # the function defined in the text above


def plain_diff(before: RunState | CallState, after: RunState | CallState) -> list[str]:
    """Do what a generated diff does, by a loop: the twin that tests compare it with."""
    return [
        field.name
        for field in fields(type(before))
        if getattr(before, field.name) is not getattr(after, field.name)
    ]


DIFFS: dict[type, Diff] = {RunState: generate_diff(RunState), CallState: generate_diff(CallState)}


@frozen(eq=False)
class Transition:
    """One hook call as the log keeps it. `kind` is the gravest of transition < restored < rejected."""

    key: str
    index: int
    hook: str
    kind: Kind
    changes: Mapping[str, Change]
    restored: Mapping[str, tuple[object, object]]
    rejected: Mapping[str, tuple[object, str]]


class _Tally:
    """What one call tried, field by field. `keep`: what takes effect in place of what the hook wrote."""

    def __init__(self) -> None:
        self.changes: dict[str, Change] = {}
        self.restored: dict[str, tuple[object, object]] = {}
        self.rejected: dict[str, tuple[object, str]] = {}
        self.keep: dict[str, object] = {}

    def take_nested(self, nested: Transition) -> None:
        """Take over what a call's hook tried on the run inside the record."""
        self.changes.update({f"run.{name}": change for name, change in nested.changes.items()})
        self.restored.update({f"run.{name}": pair for name, pair in nested.restored.items()})
        self.rejected.update({f"run.{name}": pair for name, pair in nested.rejected.items()})

    def transition(self, edge: Edge) -> Transition | None:
        """Return the transition, None when nothing was tried."""
        if not (self.changes or self.restored or self.rejected):
            return None
        kind: Kind = "rejected" if self.rejected else "restored" if self.restored else "transition"
        return Transition(edge.key, edge.index, edge.hook, kind, self.changes, self.restored, self.rejected)


def check(before: R, after: R, edge: Edge, diffs: Mapping[type, Diff] = DIFFS) -> tuple[R, Transition | None]:
    """Judge what a hook made of its record.

    Returns the record that goes on and, when anything was tried, the transition. With something rejected the
    record is `before`, and the caller ends the run.
    """
    if after is before:
        return before, None
    tally = _Tally()
    table = rules_of(type(before), edge.hook)
    for name in diffs[type(before)](before, after):
        old, new = getattr(before, name), getattr(after, name)
        if name == "run" and type(new) is RunState:
            run, nested = check(old, new, edge, diffs)
            if run is not new:
                tally.keep[name] = run
            if nested is not None:
                tally.take_nested(nested)
            continue
        owner, guard = table[name]
        # The guard of slots compares key by key itself.
        if guard is not slots_guard and same(old, new):
            tally.keep[name] = old
        else:
            _judge(tally, name, owner, guard, before, after, edge)
    transition = tally.transition(edge)
    if transition is None or not tally.changes or tally.rejected:
        return before, transition
    return (replace(after, **tally.keep) if tally.keep else after), transition


def _judge(  # noqa: PLR0917  # one field of two records, and the rules for it
    tally: _Tally, name: str, owner: Owner, guard: "Guard | None", before: R, after: R, edge: Edge
) -> None:
    """Judge the write of one field that did change."""
    old, new = getattr(before, name), getattr(after, name)
    run = after if isinstance(after, RunState) else after.run
    if guard is None:
        problem: str | None = legal_text(name, owner)
        value = new
    else:
        if name == "request_messages":
            edge = edge._replace(history=len(run.messages))
        problem, value, undone = guard(name, old, new, before, edge)
        tally.restored.update(undone)
    if problem is None:
        if value is not new:
            tally.keep[name] = value
        if value is not old and guard is slots_guard:
            assert isinstance(value, FrozenDict)
            tally.changes[name] = Items({edge.key: value[edge.key]})  # the guard lets through nothing else
        elif value is not old:
            tally.changes[name] = change_of(name, old, value, run)
    elif RULES[owner].consequence == "restored":
        tally.restored[name] = (new, old)
        tally.keep[name] = old
    else:
        tally.rejected[name] = (new, problem)


_RULES: "dict[tuple[type, str], Mapping[str, tuple[Owner, Guard | None]]]" = {}


def rules_of(record: type, hook: str) -> "Mapping[str, tuple[Owner, Guard | None]]":
    """Return, per field, its owner and what judges a write of it at a hook; None where no write is legal."""
    found = _RULES.get((record, hook))
    if found is None:
        found = _RULES[record, hook] = {
            name: (owner, GUARDS.get((owner, hook)) or GUARDS.get((owner, ANY)))
            for name, owner in (RUN_OWNERS if record is RunState else CALL_OWNERS).items()
        }
    return found


def legal_text(name: str, owner: Owner) -> str:
    """Say what would have been a legal write of a field."""
    rule = RULES[owner]
    where = [f"in {hook}: {law}" for hook, law in rule.allowed.items() if hook != ANY]
    if owner is Owner.PRIVATE:
        return (
            "a reducer writes its own slot, by put(self, value); a wrapper hands facts on in outcome.metadata"
        )
    if not where:
        return f"no hook writes it; it is {rule.meaning}"
    return f"legal only {'; or '.join(where)}"


_MISSING = object()


def change_of(name: str, old: object, new: object, run: RunState) -> Change:
    """Return the change of one field, whose size follows the change and not the history."""
    if (
        isinstance(old, tuple)
        and isinstance(new, tuple)
        and name in {"messages", "notes"}
        and _extends(new, old)
    ):
        return Added(new[len(old) :])
    if (
        isinstance(old, FrozenDict)
        and isinstance(new, FrozenDict)
        and name in {"slots", "settings", "injected"}
    ):
        changed = {
            key: value
            for key, value in new.items()
            if old.get(key, _MISSING) is not value and not (key in old and same(old[key], value))
        }
        return Items(changed, tuple(key for key in old if key not in new))
    if name == "request_messages":
        assert new is None or isinstance(new, Projection)
        return Projected(new, run.messages)
    return FromTo(old, new)


def _extends(new: tuple[object, ...], old: tuple[object, ...]) -> bool:
    return len(new) > len(old) and new[: len(old)] == old


def stamp(run: RunState, before: RunState, key: str, hook: str, call_id: str | None) -> RunState:
    """Write into fresh latches who set them."""
    changes: dict[str, object] = {}
    if run.stopped is not None and run.stopped is not before.stopped:
        changes["stopped"] = Stop(run.stopped.message, key, hook, call_id)
    if run.failed is not None and run.failed is not before.failed:
        changes["failed"] = Fail(run.failed.reason, key, hook, call_id)
    return replace(run, **changes) if changes else run
