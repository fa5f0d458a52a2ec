"""Whether a value is of an output type, as a type checker would say: for outputs that a hook put in.

What a model sends is judged by its schema; this is for Python values, which no JSON stood behind. Nothing is
coerced. Knows nothing of JSON text, hooks or runs.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from math import isfinite
from pathlib import PurePath
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, is_typeddict

import attrs

from ..capabilities.frozen import same, thaw
from ..capabilities.json_schema import MASK, compile_schema, container, members, schema_of, unwrap
from ..capabilities.record_fields import is_named_tuple, is_record, record_fields
from .errors import message_of
from .late_codec import json_writer
from .output_unions import name_of
from .problems import Found, Path, shown

_CONCRETE = (list, tuple, dict, set, frozenset)


def misfits(value: object, annotation: object, path: Path = ()) -> Iterator[Found]:
    """Yield why a value is not of a type, with paths; nothing when it is.

    An integer is a float, as everywhere in Python's typing; a bool is no integer. A record is of the very class,
    its fields too, and passes the class's own validators.
    """
    if get_origin(annotation) is Annotated:
        found = list(misfits(value, get_args(annotation)[0], path))
        yield from found or _out_of_bounds(value, annotation, path)
        return
    bare: Any = unwrap(annotation)  # Any: annotations share no type
    if bare is Any or bare is object:
        return
    if union := members(bare):
        if all(any(misfits(value, one, path)) for one in union):
            yield from _nearest(value, union, path)
    elif get_origin(bare) is Literal:
        if not any(same(value, one) for one in get_args(bare)):
            yield path, f"{value!r:.60} is none of {', '.join(map(repr, get_args(bare))):.200}"
    elif found_kind := container(bare):
        yield from _in_container(value, bare, found_kind[0], found_kind[1], path)
    elif is_typeddict(get_origin(bare) or bare):
        yield from _in_typed_dict(value, bare, path)
    elif is_record(bare) or is_named_tuple(bare):
        yield from _in_record(value, bare, path)
    elif isinstance(bare, type):
        yield from _of_class(value, bare, path)


def _wanted(value: object, annotation: object, path: Path) -> Found:
    return path, f"{name_of(annotation)} is wanted, not {type(value).__name__}"


def _nearest(value: object, union: tuple[object, ...], path: Path) -> Iterator[Found]:
    """Say what is wrong by the member whose class the value is of, if there is one."""
    for one in union:
        if (get_origin(unwrap(one)) or unwrap(one)) is type(value):
            yield from misfits(value, one, path)
            return
    names = " | ".join("None" if one is NoneType else name_of(one) for one in union)
    yield path, f"{names} is wanted, not {type(value).__name__}"


def _of_class(value: object, kind: Any, path: Path) -> Iterator[Found]:  # Any: a class
    if kind is float and type(value) in {int, float}:
        if isinstance(value, float) and not isfinite(value):
            yield path, f"{value} has no JSON"
    elif issubclass(kind, PurePath):
        if not isinstance(value, kind):
            yield _wanted(value, kind, path)
    elif type(value) is not kind:
        yield _wanted(value, kind, path)
    elif not issubclass(kind, Enum) and hasattr(kind, "model_dump_json"):  # pydantic, by its protocol
        try:
            kind.model_dump_json(value, warnings="error")
        except Exception as error:  # noqa: BLE001  # serializers of the user's own run here
            yield path, " ".join(message_of(error).split())


def _in_container(
    value: object, bare: object, kind: str, arguments: tuple[object, ...], path: Path
) -> Iterator[Found]:
    origin: Any = get_origin(bare) or bare  # Any: a class
    if (
        not (type(value) is origin if origin in _CONCRETE else isinstance(value, origin))
        or type(value) is str
    ):
        yield _wanted(value, bare, path)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            if found := list(misfits(key, arguments[0] if arguments else str, path)):
                yield path, f"a key is wrong: {found[0][1]}"
            elif arguments:
                yield from misfits(one, arguments[1], (*path, str(key)))
    elif kind == "tuple" and arguments and arguments[-1] is not ...:
        kinds = [one for one in arguments if one != ()]
        items = list(value)  # type: ignore[call-overload]  # a tuple: seen above
        if len(items) != len(kinds):
            yield path, f"{len(kinds)} items are wanted, not {len(items)}"
        for i, (one, wanted) in enumerate(zip(items, kinds, strict=False)):
            yield from misfits(one, wanted, (*path, i))
    elif arguments:
        for i, one in enumerate(value):  # type: ignore[arg-type]  # a container that is no mapping
            yield from misfits(one, arguments[0], (*path, i))


def _in_typed_dict(value: object, bare: object, path: Path) -> Iterator[Found]:
    if type(value) is not dict:
        yield _wanted(value, bare, path)
        return
    fields = {one.name: one for one in record_fields(bare)}
    for name, one in fields.items():
        if name in value:
            yield from misfits(value[name], one.annotation, (*path, name))
        elif one.is_required:
            yield (*path, name), "is required"
    for name in value.keys() - fields.keys():
        yield (*path, str(name)), f"is not expected; the keys are: {', '.join(fields) or 'none'}"


def _in_record(value: Any, bare: object, path: Path) -> Iterator[Found]:  # Any: attrs has a type of its own
    if type(value) is not (get_origin(bare) or bare):
        yield _wanted(value, bare, path)
        return
    wrong = False
    for one in record_fields(bare):
        if not one.is_converted:  # what a converter makes of it, the class knows
            for found in misfits(getattr(value, one.name), one.annotation, (*path, one.name)):
                wrong = True
                yield found
    if attrs.has(type(value)) and not wrong:
        try:
            attrs.validate(value)
        except Exception as error:  # noqa: BLE001  # the user's own validators run here
            said = error.args[0] if error.args and isinstance(error.args[0], str) else message_of(error)
            yield path, said or type(error).__name__


def _out_of_bounds(value: object, annotation: object, path: Path) -> Iterator[Found]:
    """Judge what the notes of `Annotated` ask, by the schema that they make."""
    if all(isinstance(note, str) for note in get_args(annotation)[1:]):
        return
    for error in compile_schema(schema_of(annotation)).iter_errors(thaw(json_writer()(value))):
        yield path, error.message.replace(MASK, shown(error.instance))
