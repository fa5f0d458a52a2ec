"""Unions in an output type: refused when the agent is built, where JSON would not tell their members apart.

The rule by which a value is read is `binding`'s: the first member, in the order written, that the value fits.
Here only what that rule would decide by surprise is found. Knows nothing of responses.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations
from types import NoneType
from typing import Any, get_args, get_origin

from attrs import frozen

from ..capabilities.class_schemas import Schema
from ..capabilities.json_schema import (
    compile_schema,
    container,
    is_plain,
    members,
    schemas_of,
    unwrap,
)
from ..capabilities.record_fields import is_record, record_fields

_WORDS = frozenset({"title", "description", "default", "uniqueItems"})  # say nothing that tells values apart


@frozen(eq=False)
class _Member:
    annotation: object
    schema: Schema
    root: Schema

    @property
    def name(self) -> str:
        """The type as people write it."""
        return name_of(self.annotation)


def name_of(annotation: object) -> str:
    """Return a type as people write it, without the modules of its classes."""
    bare = unwrap(annotation)
    if union := members(bare):
        return " | ".join("None" if one is NoneType else name_of(one) for one in union)
    arguments = get_args(bare)
    origin = get_origin(bare) or bare
    if not isinstance(origin, type):
        return str(bare).replace("typing.", "")
    inside = ", ".join("..." if one is ... else name_of(one) for one in arguments)
    return f"{origin.__name__}[{inside}]" if arguments else origin.__name__


def check_unions(annotation: object) -> None:
    """Raise TypeError for a union, anywhere in the type, whose members JSON does not tell apart."""
    for union in _unions(annotation, set()):
        present = [one for one in members(union) if one is not NoneType]
        schemas, definitions = schemas_of(present)
        found = [
            _Member(one, schema, {**schema, "$defs": definitions})
            for one, schema in zip(present, schemas, strict=True)
        ]
        for earlier, later in combinations(found, 2):
            _check_pair(earlier, later)


def _unions(annotation: object, seen: set[object]) -> Iterator[object]:
    bare = unwrap(annotation)
    if is_record(bare):
        if bare not in seen:
            seen.add(bare)
            for field in record_fields(bare):
                yield from _unions(field.annotation, seen)
        return
    if union := members(bare):
        yield bare
        for one in union:
            yield from _unions(one, seen)
    elif container(bare):
        for one in get_args(bare):
            yield from _unions(one, seen)


def _target(schema: Schema, root: Schema) -> Schema:
    """Return what a reference stands for."""
    while "$ref" in schema:
        schema = root["$defs"][str(schema["$ref"]).removeprefix("#/$defs/")]
    return schema


def _check_pair(earlier: _Member, later: _Member) -> None:
    root = earlier.root
    first, second = _inside(_target(earlier.schema, root), _target(later.schema, root), root)
    if _is_class(first) and _is_class(second):
        if not _are_apart(first, second, root) and not _are_apart(second, first, root):
            raise TypeError(
                f"{earlier.name} and {later.name} look alike in JSON: one object can be both. "
                "Give each class a Literal field with a value of its own"
            )
        return
    if is_plain(earlier.annotation) and is_plain(later.annotation):
        return  # the value is the same, whichever it is read as
    hides = _is_class(second) and first.get("type") == "object"
    if hides or _takes_all(earlier, first, second):
        raise TypeError(
            f"{later.name} would never be read: {earlier.name} stands before it in the union and takes what it "
            "takes. Put it first"
        )


def _is_class(schema: Schema) -> bool:
    return schema.get("type") == "object" and "properties" in schema


def _inside(one: Schema, other: Schema, root: Schema) -> tuple[Schema, Schema]:
    """Return what two arrays hold, where both are arrays of one type; any other two as they are."""
    while isinstance(one.get("items"), dict) and isinstance(other.get("items"), dict):
        inner, outer = _target(one["items"], root), _target(other["items"], root)
        if not (_is_class(inner) and _is_class(outer)) and "items" not in inner:
            break
        if inner == outer:
            break
        one, other = inner, outer
    return one, other


def _are_apart(one: Schema, other: Schema, root: Schema) -> bool:
    """Tell whether a key that the first must have rules the second out."""
    properties = other["properties"]
    for name in one.get("required", ()):
        if name not in properties:
            if other.get("additionalProperties") is False:
                return True
            continue
        mine = _target(one["properties"][name], root)
        if _differ(mine, _target(properties[name], root)):
            return True
    return False


def _differ(one: Schema, other: Schema) -> bool:
    """Tell whether no value fits both; where it cannot be seen at a glance, one may."""
    values, others = _values(one), _values(other)
    if values and others:
        return not any(type(a) is type(b) and a == b for a in values for b in others)
    kinds, them = _kinds(one, values), _kinds(other, others)
    return bool(kinds and them) and not kinds & them


def _values(schema: Schema) -> list[object]:
    return [schema["const"]] if "const" in schema else list(schema.get("enum", ()))


_KINDS: Mapping[type, str] = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    NoneType: "null",
}


def _kinds(schema: Schema, values: list[object]) -> set[str]:
    if values:
        return {_KINDS.get(type(value), "") for value in values}
    kind = schema.get("type")
    return {"number" if kind == "integer" else kind} if isinstance(kind, str) else set()


def _takes_all(earlier: _Member, one: Schema, other: Schema) -> bool:
    if values := _values(other):
        validator = compile_schema(earlier.root)
        return all(map(validator.is_valid, values))
    mine, other = _meaning(one), _meaning(other)
    return not mine or mine == other or (mine == {"type": "string"} == {"type": other.get("type")})


def _meaning(schema: Any) -> Any:  # Any: JSON Schema
    """Return a schema without what tells no values apart."""
    if isinstance(schema, dict):
        return {
            key: {name: _meaning(one) for name, one in part.items()}
            if key == "properties"
            else _meaning(part)
            for key, part in schema.items()
            if key not in _WORDS
        }
    return [_meaning(part) for part in schema] if isinstance(schema, list) else schema
