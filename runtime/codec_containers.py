"""Strict cattrs hooks for arrays, sets and mappings: text is no tuple of letters, an object no tuple of keys.

Any in this module: list[int] and the like are no types, and hooks take what JSON holds.
"""

from collections.abc import Set as AbstractSet
from typing import Any, Final, ForwardRef, get_args, get_origin, is_typeddict

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

from ..capabilities.frozen import FrozenDict, FrozenList, Json, canonical, freeze
from ..capabilities.json_schema import members
from .codec_typed_dicts import typed_dict_reader, typed_dict_writer
from .codec_types import Read, Write, named

# Scalars that frozen JSON holds as they are.
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})


def register_containers(converter: Converter) -> None:
    """Register the hooks of this module. The order counts: cattrs asks the last one first."""
    converter.register_structure_hook_factory(is_mapping, _mapping)
    converter.register_structure_hook_factory(_is_typed_dict, lambda t: typed_dict_reader(t, converter))
    converter.register_unstructure_hook_factory(_is_typed_dict, lambda t: typed_dict_writer(t, converter))
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


def _is_typed_dict(t: Any) -> bool:
    return is_typeddict(_base(t))


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
            raise TypeError(f"must be {name}, not {named(value)}")
        return inner(value, t)

    return read
