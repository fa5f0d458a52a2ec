"""What may leave the process: slot values that the codec carries there and back.

Kept apart so that the guards need not know the codec.
"""

import dataclasses
from collections.abc import Iterable, Mapping

import attrs

from ..capabilities.frozen import FrozenDict, FrozenList, Json, same

_PLAIN = frozenset({int, str, bool, type(None)})
_SMALL = 1 << 64


def _changeable(value: object) -> str | None:
    """Name a part of a value that can be written to in place, though it may be hashable; or None."""
    kind = type(value)
    if isinstance(value, list | dict | set | bytearray) and kind not in {FrozenDict, FrozenList}:
        return kind.__name__
    members: Iterable[object] = ()
    if isinstance(value, Mapping):
        members = value.values()
    elif isinstance(value, list | tuple | frozenset):
        members = value
    elif attrs.has(kind):
        names = [field.name for field in attrs.fields(kind)]
        if names and not _is_frozen(value, names[0]):
            return kind.__name__
        members = [getattr(value, name) for name in names]
    elif dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
        if names and not _is_frozen(value, names[0]):
            return kind.__name__
        members = [getattr(value, name) for name in names]
    return next((part for part in map(_changeable, members) if part is not None), None)


def _is_frozen(value: object, name: str) -> bool:
    """Tell whether a record refuses to have a field set: neither attrs nor dataclasses say so publicly."""
    try:
        setattr(value, name, getattr(value, name))
    except AttributeError:  # FrozenInstanceError of both
        return True
    return False


def slot_problem(value: object, kind: object = None) -> str | None:
    """Say why a value cannot be a slot's of type `kind`, or None; a slot without declared type holds JSON.

    It must be hashable, and come back from the codec as it was: else a suspended run could not be resumed.
    """
    made = type(value)
    fits = made in _PLAIN and (kind is made or kind is None)
    if fits and (made is not int or -_SMALL < value < _SMALL):  # type: ignore[operator]  # an int
        return None
    try:
        hash(value)
    except TypeError:
        return f"a slot holds an immutable value, and {made.__name__} can change: use a tuple or freeze(...)"
    part = _changeable(value)
    if part is not None:
        return (
            f"a slot holds an immutable value, and {part} can change: decorate it with @frozen, use a tuple"
        )
    from .codec import from_json, to_json  # noqa: PLC0415  # the codec is needed for rich slot values only
    from .errors import CodecError  # noqa: PLC0415  # as above

    declared = Json if kind is None else kind
    try:
        back = from_json(to_json(value, type=declared), declared)
    except CodecError as error:
        return f"a slot holds what the codec carries: {error}"
    if same(back, value):
        return None
    if kind is None:
        hint = "declare it, as in Capability[tuple[int, ...]]"
        return f"a slot without declared type holds JSON, not {made.__name__}: {hint}"
    return f"the slot is declared as {kind}, and this {made.__name__} would not come back as it is"
