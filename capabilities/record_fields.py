"""The fields of a user's own class, whatever made it: attrs, dataclass, TypedDict or NamedTuple.

Type variables are replaced by what they stand for. Knows nothing of JSON Schema, or how a value is made.
"""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import (
    Annotated,
    Any,
    Final,
    NotRequired,
    Required,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import attrs
from attrs import frozen

NO_DEFAULT: Final = object()
_EMPTY_FACTORIES: Final = (list, dict, set, bytearray)
_Bound = Mapping[object, object]  # type variable -> what it stands for


@frozen(eq=False)
class RecordField:
    """One field that a value is built from.

    `annotation`: resolved. `default`: NO_DEFAULT where there is none to show, as when a function makes it.
    `is_converted`: the class turns what it is given into something else, which its annotation may not say.
    """

    name: str
    annotation: object
    is_required: bool
    default: object = NO_DEFAULT
    is_converted: bool = False


def is_record(kind: object) -> bool:
    """Tell whether a type is an attrs class, a dataclass or a TypedDict, maybe with type arguments."""
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and (
        is_typeddict(origin) or attrs.has(origin) or dataclasses.is_dataclass(origin)
    )


def is_named_tuple(kind: object) -> bool:
    """Tell whether a type is a NamedTuple, maybe with type arguments."""
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, tuple) and hasattr(origin, "_fields")


def record_fields(kind: object) -> tuple[RecordField, ...]:
    """Return the fields that a value of the class is built from, in order; `init=False` ones are not among them.

    Raises NameError for an annotation that leads nowhere.
    """
    origin: Any = get_origin(kind) or kind  # Any: a class of which only the fields matter
    hints = resolved(kind)
    if is_typeddict(origin):
        return tuple(_key(name, hint, name in origin.__required_keys__) for name, hint in hints.items())
    if is_named_tuple(origin):
        defaults = origin._field_defaults
        return tuple(
            RecordField(
                name, hints.get(name, Any), name not in defaults, default=defaults.get(name, NO_DEFAULT)
            )
            for name in origin._fields
        )
    if attrs.has(origin):
        return tuple(
            RecordField(
                one.name,
                hints.get(one.name, Any),
                one.default is attrs.NOTHING,
                default=_shown(one.default, getattr(one.default, "factory", None)),
                is_converted=one.converter is not None,
            )
            for one in attrs.fields(origin)
            if one.init
        )
    return tuple(
        RecordField(
            one.name,
            hints[one.name],
            one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING,
            default=_shown(one.default, one.default_factory),
        )
        for one in dataclasses.fields(origin)
        if one.init
    )


def resolved(kind: object) -> dict[str, object]:
    """Return the annotations of a class and its bases, type variables replaced. Raises NameError."""
    origin: Any = get_origin(kind) or kind  # Any: as above
    bound: dict[object, _Bound] = {}
    _bind(kind, {}, bound)
    everywhere = {variable: meant for one in bound.values() for variable, meant in one.items()}
    hints: dict[str, object] = get_type_hints(origin, include_extras=True)
    made: dict[str, object] = {}
    for name, hint in hints.items():
        owner = next((base for base in origin.__mro__ if name in inspect.get_annotations(base)), None)
        # A TypedDict has no bases at runtime: its annotations were copied from them.
        meant = everywhere if is_typeddict(origin) else bound.get(owner, {})
        made[name] = _replaced(hint, meant)
    return made


def _bind(kind: object, outer: _Bound, found: dict[object, _Bound]) -> None:
    """Note, for a class and its bases, what each type variable stands for."""
    origin: Any = get_origin(kind) or kind  # Any: as above
    variables = getattr(origin, "__parameters__", ())
    bound = {
        variable: _replaced(meant, outer) for variable, meant in zip(variables, get_args(kind), strict=False)
    }
    found.setdefault(origin, bound)
    for base in getattr(origin, "__orig_bases__", ()):
        if get_origin(base) is not None and get_origin(base) is not origin:
            _bind(base, bound, found)


def _replaced(annotation: Any, meant: _Bound) -> object:  # Any: annotations share no type
    if isinstance(annotation, TypeVar):
        return meant.get(annotation, annotation)
    variables = getattr(annotation, "__parameters__", ())
    if isinstance(annotation, type) or not variables or not meant:
        return annotation
    return annotation[tuple(meant.get(variable, variable) for variable in variables)]


def _key(name: str, hint: object, is_required: bool) -> RecordField:  # noqa: FBT001  # one caller, above
    """Return a key of a TypedDict. Its wrappers win: text annotations hide them from `__required_keys__`."""
    wrappers = []
    notes: tuple[object, ...] = ()
    while True:
        origin = get_origin(hint)
        if origin is Annotated:
            hint, *more = get_args(hint)
            notes = (*more, *notes)
        elif origin in {Required, NotRequired} or getattr(origin, "_name", "") == "ReadOnly":
            wrappers.append(origin)
            (hint,) = get_args(hint)
        else:
            break
    if Required in wrappers or NotRequired in wrappers:
        is_required = Required in wrappers
    return RecordField(name, Annotated[(hint, *notes)] if notes else hint, is_required)


def _shown(default: object, factory: object) -> object:
    """Return the default that a schema may show: none for one that a function makes, but for an empty container."""
    if factory in _EMPTY_FACTORIES:
        return factory()
    # The last: a Factory of attrs.
    if default is dataclasses.MISSING or default is attrs.NOTHING or hasattr(default, "takes_self"):
        return NO_DEFAULT
    return default
