"""From a Python annotation to JSON Schema 2020-12, and from a JSON Schema to something that judges values.

`class_schemas` makes those of classes and scalars; unions and containers are put together here.
Knows nothing of functions, parameters or tools.
"""

import types
from collections import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, time
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol, Union, get_args, get_origin

from .class_schemas import Schema, close, components, record_names, record_schema
from .constraints import constrained, is_constraint
from .frozen import freeze, thaw
from .record_fields import RecordField, is_record, record_fields

if TYPE_CHECKING:
    import jsonschema_rs

Kind = Literal["list", "dict", "tuple", "set", "frozenset"]

# What a container annotation gives to the function; the abstract ones get the plain JSON type.
_KINDS: Final[Mapping[object, Kind]] = {
    list: "list",
    abc.Sequence: "list",
    abc.MutableSequence: "list",
    abc.Collection: "list",
    dict: "dict",
    abc.Mapping: "dict",
    abc.MutableMapping: "dict",
    tuple: "tuple",
    set: "set",
    abc.Set: "set",
    abc.MutableSet: "set",
    frozenset: "frozenset",
}
_SCALARS: Final = frozenset({str, bool, int, float, type(None)})
# Hints for the model; formats are not asserted, so a time without an offset passes.
_TIMES: Final[Mapping[object, str]] = {datetime: "date-time", time: "time"}
_LONG_KEY: Final = 100  # a model can send a key of any length
# Stands in validation messages where the value would; the caller of `compile_schema` replaces it.
MASK: Final = "\ufffc"


def unwrap(annotation: object) -> object:
    """Return the annotation without `Annotated`, `NewType` and 3.12 `type` aliases around it."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType" and hasattr(annotation, "__value__"):
            annotation = annotation.__value__
        else:
            return None.__class__ if annotation is None else annotation


def members(annotation: object) -> tuple[object, ...]:
    """Return the members of a union, or () for anything else."""
    return get_args(annotation) if get_origin(annotation) in {Union, types.UnionType} else ()


def container(annotation: object) -> tuple[Kind, tuple[object, ...]] | None:
    """Return kind and type arguments of a container annotation, None for anything else."""
    kind = _KINDS.get(get_origin(annotation) or annotation) if _hashable(annotation) else None
    return None if kind is None else (kind, get_args(annotation))


def is_plain(annotation: object) -> bool:
    """Tell whether the JSON value is itself what the function gets: scalars, lists and string-keyed dicts."""
    bare = unwrap(annotation)
    if bare is Any or bare is object or bare in _SCALARS or get_origin(bare) is Literal:
        return not any(isinstance(member, Enum) for member in get_args(bare))
    if union := members(bare):
        return all(map(is_plain, union))
    found = container(bare)
    return found is not None and found[0] in {"list", "dict"} and all(map(is_plain, found[1]))


def schemas_of(annotations: Sequence[object]) -> tuple[list[Schema], dict[str, Schema]]:
    """Return one schema per annotation and the definitions they refer to as `#/$defs/<name>`.

    Every object schema that comes from a class refuses extra keys unless the class says otherwise.
    Raises TypeError for a type that has no JSON Schema.
    """
    first = _Collect()
    for annotation in annotations:
        _assemble(annotation, first)
    schemas, definitions, clash = components(first.leaves, prefixed=False)
    if clash:
        schemas, definitions, _ = components(first.leaves, prefixed=True)
    names = record_names(first.records, taken=definitions)
    second = _Place(iter(schemas), names, definitions)
    assembled = [_assemble(annotation, second) for annotation in annotations]
    for schema in [*assembled, *definitions.values()]:
        close(schema)
    return assembled, definitions


def schema_of(annotation: object) -> Schema:
    """Return the schema of one annotation, with its definitions inside. Raises TypeError as `schemas_of`."""
    (schema,), definitions = schemas_of([annotation])
    return {**schema, "$defs": definitions} if definitions else schema


def compile_schema(schema: Mapping[str, object]) -> "jsonschema_rs.Validator":
    """Return a validator for a schema, by its own `$schema`, else draft 2020-12.

    In its messages `MASK` stands for the value. It never fetches anything: a remote `$ref` is a ValueError.
    Raises ValueError when the schema cannot be used.
    """
    import jsonschema_rs  # noqa: PLC0415  # 25 ms that only a run with tools needs

    # Validators copy what they read; mappings of other kinds than dict are refused, hence thaw(freeze()).
    plain: Schema = {key: thaw(freeze(part)) for key, part in schema.items()}
    return jsonschema_rs.validator_for(plain, mask=MASK, offline=True)


# The schema of any object at all: known to be valid, so a placeholder does not load the library that validates.
_ANY_OBJECT: Schema = {"type": "object"}


def check_schema(schema: object) -> None:
    """Raise ValueError, with the path, unless `schema` is valid JSON Schema whose root is an object.

    `$schema` is honored; without it the schema is draft 2020-12. A reference must lead somewhere inside it.
    """
    if not isinstance(schema, Mapping):
        raise ValueError(f"$: a tool's parameters are a JSON Schema object, not {type(schema).__name__}")
    if schema == _ANY_OBJECT:
        return
    try:
        compile_schema(schema)
    except ValueError as error:
        path = path_text(getattr(error, "instance_path", ()))
        reason = getattr(error, "message", None) or str(error)
        raise ValueError(f"{path}: not valid JSON Schema: {reason}"[:500].replace(MASK, "it")) from None
    if schema.get("type") != "object":
        raise ValueError(
            f"$.type: a tool takes an object: the root says 'type': 'object', not {schema.get('type')!r:.80}"
        )


def path_text(path: Iterable[str | int]) -> str:
    """Return the path as people read it: `$.items[0].n`, and `$["a b"]` for a key that is no name."""
    text = "$"
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.isidentifier() and len(step) <= _LONG_KEY:
            text += f".{step}"
        else:
            quoted = step if len(step) <= _LONG_KEY else step[: _LONG_KEY - 1] + "…"
            # A lone surrogate has no UTF-8, so it is written as its escape.
            text += '["' + quoted.encode("utf-8", "backslashreplace").decode() + '"]'
    return text


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


class _Parts(Protocol):
    """Where `_assemble` gets the schemas of classes and scalars from."""

    def leaf(self, annotation: object) -> Schema:
        """Return the schema of what is no union, container or record."""

    def record(self, kind: object) -> Schema:
        """Return the schema of a record."""


class _Collect:
    """The first pass: what leaves and records there are. The schemas it gives are empty."""

    def __init__(self) -> None:
        self.leaves: list[object] = []
        self.records: dict[object, None] = {}

    def leaf(self, annotation: object) -> Schema:
        self.leaves.append(annotation)
        return {}

    def record(self, kind: object) -> Schema:
        if kind not in self.records:
            self.records[kind] = None
            for one in record_fields(kind):
                _field(kind, one, self)
        return {}


class _Place:
    """The second pass, in the order of the first: hands out what was made of the leaves, defines the records."""

    def __init__(
        self, leaves: Iterator[Schema], names: Mapping[object, str], definitions: dict[str, Schema]
    ) -> None:
        self.leaves = leaves
        self.names = names
        self.definitions = definitions

    def leaf(self, annotation: object) -> Schema:
        return next(self.leaves)

    def record(self, kind: object) -> Schema:
        name = self.names[kind]
        if name not in self.definitions:
            self.definitions[name] = {}  # in place before its fields, which may refer to it
            self.definitions[name] = record_schema(kind, lambda one: _field(kind, one, self))
        return {"$ref": f"#/$defs/{name}"}


def _field(kind: object, one: RecordField, parts: _Parts) -> Schema:
    annotation = one.annotation
    if hasattr(get_origin(kind) or kind, "__pydantic_validator__"):
        annotation = unwrap(annotation)  # a dataclass of pydantic checks its notes itself
    bare = unwrap(annotation)
    found = container(bare)
    if bare is object or (
        found and found[0] == "dict" and found[1] and unwrap(found[1][0]) not in {str, Any}
    ):
        return parts.leaf(annotation)  # msgspec knows which keys are text in JSON, and refuses `object`
    return _assemble(annotation, parts)


def _assemble(annotation: object, parts: _Parts) -> Schema:
    # Called twice per annotation: first to collect, then to hand out what was made, in the same order.
    if get_origin(annotation) is Annotated:
        bare, *notes = get_args(annotation)
        if any(type(note).__module__ == "msgspec" for note in notes):
            kept = tuple(note for note in notes if type(note).__module__ == "msgspec")
            schema = parts.leaf(Annotated[(bare, *kept)])  # a constraint is msgspec's to translate
        else:
            schema = _assemble(bare, parts)
        bounds = [note for note in notes if is_constraint(note)]
        if bounds and isinstance(parts, _Place):  # before, nothing is known yet
            schema = constrained(schema, bounds)
        texts = [note for note in notes if isinstance(note, str)]
        return {**schema, "description": " ".join(texts)} if texts else schema
    bare = unwrap(annotation)
    if bare is Any or bare is object:
        return {}
    if union := members(bare):
        return {"anyOf": [_assemble(member, parts) for member in union]}
    if bare in _TIMES if _hashable(bare) else False:
        return {"type": "string", "format": _TIMES[bare]}
    found = container(bare)
    if found is not None:
        return _contain(bare, *found, parts)
    return parts.record(bare) if is_record(bare) else parts.leaf(bare)


def _contain(annotation: object, kind: Kind, arguments: tuple[object, ...], parts: _Parts) -> Schema:
    if kind == "dict":
        if arguments and unwrap(arguments[0]) not in {str, Any}:
            raise TypeError(f"{annotation} has keys that are no strings; JSON keys are: use dict[str, ...]")
        values = _assemble(arguments[1], parts) if arguments else {}
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
    if kind == "tuple" and arguments and arguments[-1] is not ...:
        items = [_assemble(argument, parts) for argument in arguments if argument != ()]
        size = len(items)
        prefix = {"prefixItems": items} if items else {}
        return {"type": "array", **prefix, "items": False, "minItems": size, "maxItems": size}
    item = _assemble(arguments[0], parts) if arguments else {}
    unique = {"uniqueItems": True} if kind in {"set", "frozenset"} else {}
    return {"type": "array", **({"items": item} if item else {}), **unique}
