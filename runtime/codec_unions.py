"""Unions in JSON: records carry their tag, and whatever cannot be told apart is refused before it is written.

Knows nothing of which unions there are.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin, is_typeddict

from ..capabilities.frozen import FrozenDict, FrozenList
from ..capabilities.json_schema import container, members
from .codec_literals import discriminator, literal_reader
from .codec_records import Codec, field_names, is_record, record_reader, record_writer
from .codec_types import TEXT_TYPES, Read, Write

TAG: Final = "type"


def register_union(codec: Codec, union: object, records: Iterable[type]) -> None:
    """Make `records` a tagged union, under the type object `union` (a Union, or a base class of them).

    Each writes `"type": <class name>` wherever it stands, and is only read with it. Raises ValueError for two
    classes of one name, and for a record with a field `type`.
    """
    by_tag: dict[str, type] = {}
    for record in records:
        name = record.__name__
        if by_tag.setdefault(name, record) is not record:
            raise ValueError(f"two records of one union are named {name}")
        if record not in codec.tags:
            _register_tagged(codec, record)
    readers: dict[str, Read] = {}
    writers: dict[type, Write] = {}

    def write(value: object) -> object:
        kind = type(value)
        writer = writers.get(kind)
        if writer is None:
            if by_tag.get(kind.__name__) is not kind:
                raise TypeError(f"{kind.__name__} is none of {', '.join(by_tag)}")
            writer = writers[kind] = codec.get_unstructure_hook(kind)
        return writer(value)

    def read(value: object, _: object) -> object:
        tag = _tag_of(value, by_tag)
        reader = readers.get(tag)
        if reader is None:
            reader = readers[tag] = codec.get_structure_hook(by_tag[tag])
        return reader(value, by_tag[tag])

    codec.register_unstructure_hook_func(lambda t: t == union, write)
    codec.register_structure_hook_func(lambda t: t == union, read)


def _tag_of(value: object, legal: Iterable[str]) -> str:
    tag = value.get(TAG) if isinstance(value, dict) else None
    if not isinstance(value, dict) or TAG not in value:
        raise TypeError(f"must be an object whose {TAG!r} is one of {', '.join(sorted(legal))}")
    if type(tag) is not str or tag not in legal:
        raise ValueError(f"{TAG!r} is {tag!r:.60}, but must be one of {', '.join(sorted(legal))}")
    return tag


def _register_tagged(codec: Codec, record: type) -> None:
    """Let the record's own hooks write and read its tag, so that it has one wherever it stands."""
    if TAG in field_names(record):
        raise ValueError(f"{record.__name__} has a field {TAG!r}, which is where a union writes its tag")
    tag = codec.tags[record] = record.__name__

    def writer(t: Any) -> Write:  # Any: the type cattrs asks for
        inner = record_writer(codec, t)
        return lambda value: {TAG: tag, **inner(value)}

    def reader(t: Any) -> Read:
        inner = record_reader(codec, t)

        def read(value: object, kind: object) -> object:
            _tag_of(value, (tag,))
            assert isinstance(value, dict)
            return inner({name: one for name, one in value.items() if name != TAG}, kind)

        return read

    codec.register_unstructure_hook_factory(lambda t: t is record, writer)
    codec.register_structure_hook_factory(lambda t: t is record, reader)


# --- any other union


def register_unions(codec: Codec) -> None:
    """Register hooks for unions that nobody registered by name, as `str | tuple[Part, ...] | None`."""
    codec.register_unstructure_hook_factory(_is_union, lambda t: _union_writer(codec, t))
    codec.register_structure_hook_factory(_is_union, lambda t: _union_reader(codec, t))


def _is_union(t: object) -> bool:
    return bool(members(t))


def _records(union: object) -> list[Any]:  # Any: record classes, maybe generic aliases
    return [member for member in members(union) if is_record(member)]


def _untagged(codec: Codec, union: object) -> dict[type, str]:
    """Return the records of a union that need a tag and do not write one themselves."""
    records = _records(union)
    # One record is told from the rest by being an object.
    if len(records) < 2 or discriminator(records) is not None:  # noqa: PLR2004  # the line above
        return {}
    found: dict[type, str] = {}
    for record in records:
        kind = get_origin(record) or record
        if TAG in field_names(kind):
            raise TypeError(
                f"{union}: {kind.__name__} has a field {TAG!r}, which is where a union writes its tag"
            )
        if kind not in codec.tags:
            found[kind] = kind.__name__
    names = [(get_origin(record) or record).__name__ for record in records]
    if len(set(names)) < len(names):
        raise TypeError(f"{union}: two of its records have one name")
    return found


def _union_writer(codec: Codec, union: object) -> Write:
    tags = _untagged(codec, union)
    writers: dict[type, Write] = {}
    present = [member for member in members(union) if member is not NoneType]
    if len(present) == 1:
        only: Write = codec.get_unstructure_hook(present[0])
        return lambda value: None if value is None else only(value)
    for member in present:
        kind = get_origin(member) or member
        if isinstance(kind, type) and kind is not object:
            writers.setdefault(kind, codec.get_unstructure_hook(member))

    def write(value: object) -> object:
        if value is None:
            return None
        kind = type(value)
        written = writers.get(kind, codec.unstructure)(value)
        return {TAG: tags[kind], **written} if kind in tags else written

    return write


_JSON_KINDS: Final[Mapping[type, str]] = {
    NoneType: "null",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    list: "array",
    tuple: "array",
    dict: "object",
    FrozenDict: "object",
    FrozenList: "array",
}


def _json_kinds(member: Any) -> set[str]:  # Any: a member of a union may be any annotation
    if get_origin(member) is Literal or (isinstance(member, type) and issubclass(member, Enum)):
        values = get_args(member) or list(member)
        return {_JSON_KINDS.get(type(getattr(one, "value", one)), "object") for one in values}
    kind = get_origin(member) or member
    if kind in TEXT_TYPES:
        return {"str"}
    if kind in _JSON_KINDS:
        return {_JSON_KINDS[kind]}
    if is_record(kind) or is_typeddict(kind):
        return {"object"}
    found = container(member)
    if found is not None:
        return {"object" if found[0] == "dict" else "array"}
    return set()  # what only its own hook knows


def _union_reader(codec: Codec, union: object) -> Read:
    tags = _untagged(codec, union)
    table: dict[str, list[Any]] = {}
    unknown = []
    for member in members(union):
        kinds = _json_kinds(member)
        for kind in kinds:
            table.setdefault(kind, []).append(member)
        if not kinds:
            unknown.append(member)
    if "float" in table:
        table.setdefault("int", list(table["float"]))  # 5 for a float is fine where no int is meant
    if unknown:
        for kind in set(_JSON_KINDS.values()) - table.keys():
            table[kind] = unknown
    readers = {kind: _choose(codec, union, choices, tags) for kind, choices in table.items()}

    def read(value: object, _: object) -> object:
        kind = _JSON_KINDS.get(type(value), "")
        reader = readers.get(kind)
        if reader is None:
            raise TypeError(f"must be {' or '.join(sorted(table))}, not {kind or type(value).__name__}")
        return reader(value, union)

    return read


def _choose(codec: Codec, union: object, choices: list[Any], tags: Mapping[type, str]) -> Read:
    """Return the hook for the members of a union that are of one JSON kind."""
    if len(choices) == 1:
        only = choices[0]
        hook: Read = codec.get_structure_hook(only)
        return lambda value, _: hook(value, only)
    if all(map(is_record, choices)):
        told = discriminator(choices)
        return _by_tag(codec, choices, tags) if told is None else literal_reader(codec, told)
    if all(one in (str, int, bool, float) or _is_plain_literal(one) for one in choices):
        hooks = [(codec.get_structure_hook(one), one) for one in choices]
        return _first_that_fits(hooks)
    named = ", ".join(getattr(one, "__name__", str(one)) for one in choices)
    raise TypeError(f"{union} cannot be told apart in JSON: {named} look alike; use a record for one of them")


def _is_plain_literal(t: object) -> bool:
    return get_origin(t) is Literal and not any(isinstance(one, Enum) for one in get_args(t))


def _by_tag(codec: Codec, choices: list[Any], tags: Mapping[type, str]) -> Read:
    kinds = {(get_origin(one) or one).__name__: (get_origin(one) or one, one) for one in choices}
    hooks = {tag: codec.get_structure_hook(one) for tag, (_, one) in kinds.items()}

    def read(value: object, _: object) -> object:
        tag = _tag_of(value, kinds)
        kind, one = kinds[tag]
        if kind in tags:
            assert isinstance(value, dict)
            value = {name: member for name, member in value.items() if name != TAG}
        return hooks[tag](value, one)

    return read


def _first_that_fits(hooks: list[tuple[Callable[[Any, Any], Any], Any]]) -> Read:  # Any: as in Read
    def read(value: object, _: object) -> object:
        reasons = []
        for hook, one in hooks:
            try:
                return hook(value, one)
            except (TypeError, ValueError) as error:
                reasons.append(str(error))
        raise ValueError("; or ".join(reasons))

    return read
