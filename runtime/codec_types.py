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
    converter.register_structure_hook_factory(lambda t: _base(t) is Literal, _literal)
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


# Any in this part: list[int] and the like are no types, and hooks take what JSON holds.


def _register_containers(converter: Converter) -> None:
    converter.register_structure_hook_factory(is_mapping, _mapping)
    converter.register_structure_hook_factory(is_typeddict, _typed_dict)
    converter.register_structure_hook_factory(is_sequence, _sequence)
    converter.register_structure_hook_factory(_is_fixed_tuple, _fixed_tuple)
    converter.register_structure_hook_factory(is_namedtuple, _named_tuple)
    converter.register_structure_hook_factory(_is_set, _set)
    converter.register_unstructure_hook_factory(_is_set, _write_set)
    converter.register_structure_hook_factory(lambda t: _base(t) is FrozenDict, _frozen_mapping)
    converter.register_unstructure_hook_factory(lambda t: _base(t) is FrozenDict, _write_frozen_mapping)
    converter.register_structure_hook_func(
        lambda t: t is FrozenList, _guarded(list | tuple, "an array", lambda value, _: freeze(value))
    )
    converter.register_unstructure_hook_factory(lambda t: t is FrozenList, _write_list)
    converter.register_structure_hook_func(is_json, lambda value, _: freeze(value))
    converter.register_unstructure_hook_func(is_json, lambda value: value)


def _base(t: Any) -> Any:
    return get_origin(t) or t


def _member(t: Any) -> Any:
    return (get_args(t) or (object,))[0]


def _is_fixed_tuple(t: Any) -> bool:
    return _base(t) is tuple and t is not tuple and ... not in get_args(t)


def _is_set(t: Any) -> bool:
    return is_any_set(t) or _base(t) is AbstractSet


def _array(member: Any, converter: Converter) -> Read:
    listed: Any = list.__class_getitem__(member)
    return _guarded(list | tuple, "an array", list_structure_factory(listed, converter))


def _sequence(t: Any, converter: Converter) -> Read:
    if _base(t) is not tuple:
        return _guarded(list | tuple, "an array", list_structure_factory(t, converter))
    inner = _array(_member(t), converter)
    return lambda value, _: tuple(inner(value, t))


def _fixed_tuple(t: Any, converter: Converter) -> Read:
    return _guarded(list | tuple, "an array", make_hetero_tuple_structure_fn(t, converter))


def _named_tuple(t: Any, converter: Converter) -> Read:
    return _guarded(list | tuple, "an array", namedtuple_structure_factory(t, converter))


def _set(t: Any, converter: Converter) -> Read:
    build = set if _base(t) is set else frozenset
    inner = _array(_member(t), converter)

    def read(value: object, _: object) -> object:
        made = inner(value, t)
        unique = build(made)
        if len(unique) != len(made):
            raise ValueError("holds a value twice, which a set does not")
        return unique

    return read


def _write_set(t: Any, converter: Converter) -> Write:
    args = get_args(t)
    write: Write = converter.get_unstructure_hook(args[0]) if args else converter.unstructure
    # Sorted by their JSON text: sets have no order, and their members need none.
    return lambda value: sorted((freeze(write(one)) for one in value), key=canonical)


def _mapping(t: Any, converter: Converter) -> Read:
    return _guarded(dict, "an object", mapping_structure_factory(t, converter))


def _typed_dict(t: Any, converter: Converter) -> Read:
    return _guarded(dict, "an object", converter.gen_structure_typeddict(t))


def _frozen_mapping(t: Any, converter: Converter) -> Read:
    member = _member(t)
    if member is object or is_json(member):
        return _guarded(dict, "an object", lambda value, _: freeze(value))
    mapped: Any = dict.__class_getitem__((str, member))
    inner: Any = mapping_structure_factory(mapped, converter)
    return _guarded(dict, "an object", lambda value, _: FrozenDict(inner(value, t)))


def _write_frozen_mapping(t: Any, converter: Converter) -> Write:
    member = _member(t)
    if is_json(member):
        return lambda value: value
    # Not typed: whoever made it may have put anything in.
    write: Write = converter.unstructure if member is object else converter.get_unstructure_hook(member)
    return lambda value: (
        value
        if member is object and _PLAIN.issuperset(map(type, value.values()))
        else {key: write(one) for key, one in value.items()}
    )


def _write_list(_: Any, converter: Converter) -> Write:
    return lambda value: (
        value if _PLAIN.issuperset(map(type, value)) else [converter.unstructure(one) for one in value]
    )


_JSON_MEMBERS: Final = frozenset({str, bool, int, float, type(None)})


def is_json(t: object) -> bool:
    """Tell whether a type is `Json`. It names itself, so where it was resolved it is another object."""
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
