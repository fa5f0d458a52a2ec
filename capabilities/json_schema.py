"""From a Python annotation to JSON Schema 2020-12, and from a JSON Schema to something that judges values.

msgspec makes the schemas of classes and scalars; unions and containers are put together here, since msgspec
refuses a union of two classes. Knows nothing of functions, parameters or tools.
"""

import collections
import types
from collections import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, time
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union, get_args, get_origin

from .frozen import freeze, thaw

if TYPE_CHECKING:
    import jsonschema_rs

Schema = dict[str, Any]  # Any: JSON Schema is JSON of any shape
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
    leaves: list[object] = []

    def collect(leaf: object) -> Schema:
        leaves.append(leaf)
        return {}

    for annotation in annotations:
        _assemble(annotation, collect)
    schemas, definitions, clash = _components(leaves, prefixed=False)
    if clash:
        schemas, definitions, _ = _components(leaves, prefixed=True)
    in_order = iter(schemas)
    assembled = [_assemble(annotation, lambda _: next(in_order)) for annotation in annotations]
    for schema in [*assembled, *definitions.values()]:
        _close(schema)
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


def _assemble(annotation: object, leaf: Callable[[object], Schema]) -> Schema:
    # Called twice per annotation: first `leaf` collects, then it hands out what msgspec made, in that order.
    if get_origin(annotation) is Annotated:
        bare, *notes = get_args(annotation)
        if any(type(note).__module__ == "msgspec" for note in notes):
            kept = tuple(note for note in notes if type(note).__module__ == "msgspec")
            schema = leaf(Annotated[(bare, *kept)])  # a constraint is msgspec's to translate
        else:
            schema = _assemble(bare, leaf)
        texts = [note for note in notes if isinstance(note, str)]
        return {**schema, "description": " ".join(texts)} if texts else schema
    bare = unwrap(annotation)
    if bare is Any or bare is object:
        return {}
    if union := members(bare):
        return {"anyOf": [_assemble(member, leaf) for member in union]}
    if bare in _TIMES if _hashable(bare) else False:
        return {"type": "string", "format": _TIMES[bare]}
    found = container(bare)
    return leaf(bare) if found is None else _contain(bare, *found, leaf)


def _contain(
    annotation: object, kind: Kind, arguments: tuple[object, ...], leaf: Callable[[object], Schema]
) -> Schema:
    if kind == "dict":
        if arguments and unwrap(arguments[0]) not in {str, Any}:
            raise TypeError(f"{annotation} has keys that are no strings; JSON keys are: use dict[str, ...]")
        values = _assemble(arguments[1], leaf) if arguments else {}
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
    if kind == "tuple" and arguments and arguments[-1] is not ...:
        items = [_assemble(argument, leaf) for argument in arguments if argument != ()]
        size = len(items)
        prefix = {"prefixItems": items} if items else {}
        return {"type": "array", **prefix, "items": False, "minItems": size, "maxItems": size}
    item = _assemble(arguments[0], leaf) if arguments else {}
    unique = {"uniqueItems": True} if kind in {"set", "frozenset"} else {}
    return {"type": "array", **({"items": item} if item else {}), **unique}


def _components(
    leaves: list[object], *, prefixed: bool
) -> tuple[tuple[Schema, ...], dict[str, Schema], bool]:
    """Let msgspec make schemas and definitions, and tell whether two classes want one name.

    `prefixed` gives the definitions of pydantic models their module's name, which keeps them apart.
    """
    import msgspec  # noqa: PLC0415  # 20 ms that only a process with typed tools needs

    hoisted: dict[str, Schema] = {}
    clash = False

    def hook(kind: type) -> Schema:
        # pydantic by its protocol, so that it need not be installed; its own $defs move to the root.
        nonlocal clash
        make = getattr(kind, "model_json_schema", None)
        if make is None:
            raise NotImplementedError  # msgspec's own word for "no schema"
        prefix = f"{kind.__module__}.{kind.__qualname__}.".replace("<locals>", "local") if prefixed else ""
        schema: Schema = make(ref_template=f"#/$defs/{prefix}{{model}}")
        for name, definition in schema.pop("$defs", {}).items():
            clash |= hoisted.setdefault(prefix + name, definition) != definition
        return schema

    made, named = msgspec.json.schema_components(leaves, schema_hook=hook, ref_template="#/$defs/{name}")
    return made, {**named, **hoisted}, clash or bool(hoisted.keys() & named.keys())


def _close(schema: object) -> None:
    """Forbid extra keys in every class-made object below, walking only where schemas stand."""
    if not isinstance(schema, dict):
        return
    if "properties" in schema and schema.get("type") == "object":
        schema.setdefault("additionalProperties", False)
    nested: collections.deque[object] = collections.deque()
    for key in ("properties", "patternProperties", "$defs"):
        nested.extend(schema.get(key, {}).values())
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        nested.extend(schema.get(key, ()))
    for key in ("items", "additionalProperties", "not"):
        nested.append(schema.get(key))
    for part in nested:
        _close(part)
