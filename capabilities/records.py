"""Copying a frozen record with some fields changed, fast.

`attrs.evolve` runs converters and validators again; the verbs change fields by values that are frozen
and valid already, so they copy slot by slot, by one generated function for each set of changed names.
Measured on a RunState of 32 fields, CPython 3.11: `attrs.evolve` 9.6 us, `replace` 2.2 us. The plain twin
`replace_plainly` is what tests compare it with.
"""

from collections.abc import Callable
from typing import TypeVar

from attrs import evolve, fields

R = TypeVar("R")
Copy = Callable[[object, dict[str, object]], object]
# One entry per record class and set of names that the project's own code changes: a few dozen.
_COPIES: dict[tuple[type, tuple[str, ...]], Copy] = {}
# attrs keeps a hash in this slot, which belongs to the old values.
_CACHED_HASH = "_attrs_cached_hash"


def replace(record: R, **changes: object) -> R:
    """Return a copy of `record` with `changes`, which are valid and frozen already.

    Raises TypeError for a name that is no field.
    """
    key = (type(record), tuple(changes))
    copy = _COPIES.get(key)
    if copy is None:
        copy = _COPIES[key] = _generate(*key)
    return copy(record, changes)  # type: ignore[return-value]  # a copy of a record is of its type


def replace_plainly(record: R, **changes: object) -> R:
    """Do what `replace` does, by `attrs.evolve`."""
    return evolve(record, **changes)  # type: ignore[misc]  # R is an attrs record


def _generate(kind: type, changed: tuple[str, ...]) -> Copy:
    names = [field.name for field in fields(kind)]
    for name in changed:
        if name not in names:
            raise TypeError(f"{kind.__name__} has no field {name!r}")
    scope: dict[str, object] = {"new": object.__new__, "kind": kind}
    lines = ["def copy(record, changes):", "    made = new(kind)"]
    for i, name in enumerate(names):
        scope[f"set{i}"] = getattr(kind, name).__set__
        lines.append(f"    set{i}(made, {f'changes[{name!r}]' if name in changed else f'record.{name}'})")
    if _CACHED_HASH in getattr(kind, "__slots__", ()):
        scope["unhash"] = getattr(kind, _CACHED_HASH).__set__
        lines.append("    unhash(made, None)")
    lines.append("    return made")
    exec("\n".join(lines), scope)  # noqa: S102  # as attrs makes its own __init__; only field names enter it
    return scope["copy"]  # type: ignore[return-value]  # the function defined in the text above
