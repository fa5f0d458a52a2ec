"""Strict cattrs hooks for Python's own types: nothing is coerced, and nothing is read as what it is not.

Knows nothing of messages, tools or runs; `codec` registers the project's records on top.
"""

import base64
import binascii
import uuid
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum, Flag
from pathlib import Path
from typing import Any, Final, ForwardRef, Literal, get_args, get_origin, is_typeddict

from cattrs import Converter
from cattrs.cols import (
    is_any_set,
    is_mapping,
    is_namedtuple,
    is_sequence,
    list_structure_factory,
    mapping_structure_factory,
    namedtuple_structure_factory,
)
from cattrs.gen import make_hetero_tuple_structure_fn

from ..capabilities.frozen import FrozenDict, FrozenList, Json, canonical, freeze, same
from ..capabilities.json_schema import members

Read = Callable[[Any, Any], Any]  # Any: cattrs calls a hook with the JSON value and the type it is to become
Write = Callable[[Any], Any]  # Any: and with a value of the type the hook was registered for
# Scalars that frozen JSON holds as they are.
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})


def register_types(converter: Converter) -> None:
    """Register the hooks of this module. The order counts: cattrs asks the last one first."""
    for kind, read in _SCALARS.items():
        converter.register_structure_hook(kind, read)
    for kind, (write, parse) in _TEXTS.items():
        converter.register_unstructure_hook(kind, write)
        converter.register_structure_hook(kind, _text_hook(parse))
    converter.register_unstructure_hook(str, _write_str)
    converter.register_structure_hook_func(lambda t: t is None or t is type(None), _read_none)
    converter.register_structure_hook_func(lambda t: t is object, lambda value, _: value)
    converter.register_unstructure_hook_func(lambda t: t is object, _write_any)
    _register_containers(converter)
    converter.register_structure_hook_factory(lambda t: get_origin(t) is Literal, _literal)
    converter.register_structure_hook_factory(lambda t: issubclass(t, Enum), enum_reader)
    converter.register_unstructure_hook_func(lambda t: issubclass(t, Enum), lambda value: value.value)
    # pydantic, by its protocol, so that it need not be installed
    converter.register_structure_hook_func(
        lambda t: isinstance(t, type) and hasattr(t, "model_validate_json"),
        lambda value, t: t.model_validate(value),
    )
    converter.register_unstructure_hook_func(
        lambda t: isinstance(t, type) and hasattr(t, "model_validate_json"),
        lambda value: value.model_dump(mode="json"),
    )


# --- scalars


def _exactly(kind: type, *also: type) -> Read:
    """Read a JSON scalar of exactly this type. cattrs dispatches subclasses here too, so `t` is looked at."""
    legal = (kind, *also)

    def read(value: object, t: Any) -> object:  # Any: the type, which may be an enum
        if t is not kind:
            if issubclass(t, Enum):
                return enum_reader(t)(value, t)
            raise TypeError(f"{t.__qualname__} cannot be read: use {kind.__name__} or an Enum")
        if type(value) not in legal:
            raise TypeError(f"must be {kind.__name__}, not {_named(value)}")
        return value  # an int for a float stays one, so that what is written comes back as it was

    return read


_SCALARS: Final[Mapping[type, Read]] = {
    str: _exactly(str),
    bool: _exactly(bool),
    int: _exactly(int),
    float: _exactly(float, int),
}


def _write_str(value: str) -> object:
    # cattrs sends a StrEnum here; any other subclass of str is left for `freeze` to refuse.
    return value.value if isinstance(value, Enum) else value


def _read_none(value: object, _: object) -> None:
    if value is not None:
        raise TypeError(f"must be null, not {_named(value)}")


def _write_any(value: object) -> object:
    # Reading cannot tell what stood in a field that is typed `object`: only JSON comes back as it was.
    if isinstance(value, tuple):
        raise TypeError(
            f"a tuple in a field typed object would come back as a list; declare its type: {value!r:.60}"
        )
    return value


def _named(value: object) -> str:
    return "null" if value is None else type(value).__name__


def _datetime(text: str) -> datetime:
    if len(text) <= len("2000-01-01"):
        raise ValueError
    return datetime.fromisoformat(text)


def _decimal(text: str) -> Decimal:
    made = Decimal(text)
    if not made.is_finite() or text.strip() != text or "_" in text:
        raise ValueError
    return made


def _uuid(text: str) -> uuid.UUID:
    made = uuid.UUID(text)
    if str(made) != text.lower():
        raise ValueError
    return made


def _write_decimal(value: Decimal) -> object:
    # Not a number is no JSON as a float either; `freeze` refuses it with its path.
    return str(value) if value.is_finite() else float(value)


def _write_duration(value: timedelta) -> object:
    import msgspec  # noqa: PLC0415  # 20 ms that only durations need; the schema of a tool says ISO 8601 too

    return msgspec.to_builtins(value)


def _read_duration(text: str) -> timedelta:
    import msgspec  # noqa: PLC0415

    return msgspec.convert(text, timedelta)


def _write_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _read_bytes(text: str) -> bytes:
    made = base64.b64decode(text, validate=True)
    if _write_bytes(made) != text:
        raise ValueError
    return made


# Types that are text in JSON: how they are written, and how they are read.
_TEXTS: Final[Mapping[type, tuple[Write, Callable[[str], object]]]] = {
    bytes: (_write_bytes, _read_bytes),
    datetime: (datetime.isoformat, _datetime),
    date: (date.isoformat, date.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    timedelta: (_write_duration, _read_duration),
    Decimal: (_write_decimal, _decimal),
    uuid.UUID: (str, _uuid),
    Path: (str, Path),
}
TEXT_TYPES: Final = frozenset(_TEXTS)


def _text_hook(parse: Callable[[str], object]) -> Read:
    def read(value: object, t: Any) -> object:  # Any: a class, for its name
        name = "base64 text" if t is bytes else t.__name__
        if type(value) is not str:
            raise TypeError(f"must be text that says a {name}, not {_named(value)}")
        try:
            return parse(value)
        except (ValueError, InvalidOperation, binascii.Error):
            raise ValueError(f"{value!r:.60} is no {name}") from None

    return read


# --- closed sets of values


def _literal(t: Any) -> Read:  # Any: Literal[...] is no type
    def read(value: object, _: object) -> object:
        for one in values:
            if same(_frozen_value(one), value):
                return one
        raise ValueError(f"must be one of {', '.join(map(repr, values))}; not {value!r:.60}")

    values = get_args(t)
    return read


def enum_reader(t: type[Enum]) -> Read:
    """Return the hook that finds an enum's member by its value, type-strictly."""
    members = [(freeze(_frozen_value(member)), member) for member in t]

    def read(value: object, _: object) -> object:
        for known, member in members:
            if same(known, value):
                return member
        if issubclass(t, Flag) and type(value) is int:
            return t(value)
        legal = ", ".join(repr(known) for known, _ in members)
        raise ValueError(f"must be one of {legal:.200}; not {value!r:.60}")

    return read


def _frozen_value(value: object) -> object:
    return value.value if isinstance(value, Enum) else value


# --- containers


def _register_containers(converter: Converter) -> None:
    def sequence(t: Any) -> Read:  # Any: here and below, list[int] and the like are no types
        if get_origin(t) is tuple or t is tuple:
            member = (get_args(t) or (object,))[0]
            inner: Read = list_structure_factory(list[member], converter)  # type: ignore[valid-type]
            return _guarded(list | tuple, "an array", lambda value, _: tuple(inner(value, t)))
        return _guarded(list | tuple, "an array", list_structure_factory(t, converter))

    def hetero(t: Any) -> Read:
        return _guarded(list | tuple, "an array", make_hetero_tuple_structure_fn(t, converter))

    def named(t: Any) -> Read:
        return _guarded(list | tuple, "an array", namedtuple_structure_factory(t, converter))

    def collection(t: Any) -> Read:
        build = set if (get_origin(t) or t) is set else frozenset
        member = (get_args(t) or (object,))[0]
        inner: Read = list_structure_factory(list[member], converter)  # type: ignore[valid-type]

        def read(value: object, _: object) -> object:
            made = inner(value, t)
            unique = build(made)
            if len(unique) != len(made):
                raise ValueError("holds a value twice, which a set does not")
            return unique

        return _guarded(list | tuple, "an array", read)

    def mapping(t: Any) -> Read:
        return _guarded(dict, "an object", mapping_structure_factory(t, converter))

    def typed(t: Any) -> Read:
        return _guarded(dict, "an object", converter.gen_structure_typeddict(t))

    def frozen_mapping(t: Any) -> Read:
        member = (get_args(t) or (object,))[0]
        if member is object or is_json(member):
            return _guarded(dict, "an object", lambda value, _: freeze(value))
        inner: Read = mapping_structure_factory(dict[str, member], converter)  # type: ignore[valid-type]
        return _guarded(dict, "an object", lambda value, _: FrozenDict(inner(value, t)))

    def write_frozen_mapping(t: Any) -> Write:
        member = (get_args(t) or (object,))[0]
        if is_json(member):
            return lambda value: value
        if member is object:
            return write_members
        write = converter.get_unstructure_hook(member)
        return lambda value: {key: write(one) for key, one in value.items()}

    def write_members(value: FrozenDict[object]) -> object:
        if _PLAIN.issuperset(map(type, value.values())):
            return value
        return {key: converter.unstructure(one) for key, one in value.items()}

    def write_list(value: FrozenList) -> object:
        return value if _PLAIN.issuperset(map(type, value)) else [converter.unstructure(one) for one in value]

    def write_set(t: Any) -> Write:
        member = (get_args(t) or (None,))[0]
        write: Write = converter.unstructure if member is None else converter.get_unstructure_hook(member)
        # Sorted by their JSON text: sets have no order, and their members need none.
        return lambda value: sorted((freeze(write(one)) for one in value), key=canonical)

    converter.register_structure_hook_factory(is_mapping, mapping)
    converter.register_structure_hook_factory(is_typeddict, typed)
    converter.register_structure_hook_factory(is_sequence, sequence)
    converter.register_structure_hook_factory(
        lambda t: get_origin(t) is tuple and ... not in get_args(t), hetero
    )
    converter.register_structure_hook_factory(is_namedtuple, named)
    converter.register_structure_hook_factory(is_any_set, collection)
    converter.register_structure_hook_factory(lambda t: (get_origin(t) or t) is AbstractSet, collection)
    converter.register_unstructure_hook_factory(
        lambda t: is_any_set(t) or (get_origin(t) or t) is AbstractSet, write_set
    )
    converter.register_structure_hook_factory(lambda t: (get_origin(t) or t) is FrozenDict, frozen_mapping)
    converter.register_unstructure_hook_factory(
        lambda t: (get_origin(t) or t) is FrozenDict, write_frozen_mapping
    )
    converter.register_structure_hook_func(
        lambda t: t is FrozenList, _guarded(list | tuple, "an array", lambda value, _: freeze(value))
    )
    converter.register_unstructure_hook_func(lambda t: t is FrozenList, write_list)
    converter.register_structure_hook_func(is_json, lambda value, _: freeze(value))
    converter.register_unstructure_hook_func(is_json, lambda value: value)


_JSON_MEMBERS: Final = frozenset({str, bool, int, float, type(None)})


def is_json(t: object) -> bool:
    """Tell whether a type is `Json`: it names itself, so where it was resolved it is another object each time."""
    found = members(t)
    return t is Json or (_JSON_MEMBERS.issubset(found) and all(map(_is_json_member, found)))


def _is_json_member(member: Any) -> bool:  # Any: a class, an alias or a ForwardRef
    if isinstance(member, ForwardRef):
        return member.__forward_arg__.startswith(("FrozenList", "FrozenDict"))
    return member in _JSON_MEMBERS or (get_origin(member) or member) in (FrozenList, FrozenDict)


def _guarded(legal: Any, name: str, inner: Read) -> Read:  # Any: a class or a union of them
    # cattrs iterates whatever it gets: text as a tuple of letters, an object as a tuple of its keys.
    def read(value: object, t: object) -> object:
        if not isinstance(value, legal):
            raise TypeError(f"must be {name}, not {_named(value)}")
        return inner(value, t)

    return read
