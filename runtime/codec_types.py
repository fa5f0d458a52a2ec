"""Strict cattrs hooks for scalars, enums and literals: nothing is coerced, or read as what it is not.

Knows nothing of messages, tools or runs; `codec` registers the project's records on top.
"""

import base64
import binascii
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum, Flag
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from cattrs import Converter

from ..capabilities.frozen import freeze, same

Read = Callable[[Any, Any], Any]  # Any: cattrs calls a hook with the JSON value and the type it is to become
Write = Callable[[Any], Any]  # Any: and with a value of the type the hook was registered for


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
    converter.register_structure_hook_factory(_is_literal, _literal)
    converter.register_structure_hook_factory(lambda t: issubclass(t, Enum), enum_reader)
    converter.register_unstructure_hook_func(lambda t: issubclass(t, Enum), lambda value: value.value)
    converter.register_structure_hook_func(_is_pydantic, lambda value, t: t.model_validate(value))
    converter.register_unstructure_hook_func(_is_pydantic, _write_pydantic)


def _write_pydantic(value: Any) -> object:  # Any: a pydantic model, by its protocol
    # What the model reads: its aliases, and nothing that it computes.
    return value.model_dump(mode="json", by_alias=True, round_trip=True)


def _is_pydantic(t: object) -> bool:  # by its protocol, so that it need not be installed
    return isinstance(t, type) and hasattr(t, "model_validate_json")


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
            raise TypeError(f"must be {kind.__name__}, not {named(value)}")
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
        raise TypeError(f"must be null, not {named(value)}")


def _write_any(value: object) -> object:
    # Reading cannot tell what stood in a field that is typed `object`: only JSON comes back as it was.
    if isinstance(value, tuple):
        raise TypeError(
            f"a tuple in a field typed object would come back as a list; declare its type: {value!r:.60}"
        )
    return value


def named(value: object) -> str:
    """Return what people call a value's type: null, or the name of its class."""
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
    import msgspec  # noqa: PLC0415  # as above

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
            raise TypeError(f"must be text that says a {name}, not {named(value)}")
        try:
            return parse(value)
        except (ValueError, InvalidOperation, binascii.Error):
            raise ValueError(f"{value!r:.60} is no {name}") from None

    return read


# --- closed sets of values


def _is_literal(t: Any) -> bool:  # Any: any annotation may be asked about
    return (get_origin(t) or t) is Literal


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
