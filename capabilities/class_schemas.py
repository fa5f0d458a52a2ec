"""The schemas of classes: records field by field, whatever else is a class by msgspec or pydantic.

Knows nothing of unions and containers: who asks puts those together.
"""

import collections
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args, get_origin

from .record_fields import NO_DEFAULT, RecordField, record_fields

Schema = dict[str, Any]  # Any: JSON Schema is JSON of any shape


def record_schema(kind: object, assemble: Callable[[RecordField], Schema]) -> Schema:
    """Return the schema of an attrs class, dataclass or TypedDict, its fields made by `assemble`.

    Raises TypeError for a default that JSON cannot carry, NameError for an annotation that leads nowhere.
    """
    import msgspec  # noqa: PLC0415  # 20 ms that only a process with typed tools needs

    origin = get_origin(kind) or kind
    schema: Schema = {"title": _title(kind)}
    if said := _said(origin):
        schema["description"] = said
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for one in record_fields(kind):
        properties[one.name] = made = dict(assemble(one))
        if one.default is not NO_DEFAULT:
            made["default"] = msgspec.to_builtins(one.default, str_keys=True)
        if one.is_required:
            required.append(one.name)
    return {**schema, "type": "object", "properties": properties, "required": required}


def record_names(kinds: Iterable[object], taken: Iterable[str]) -> Mapping[object, str]:
    """Return a name for the definition of each class: its own, longer where two would have the same."""
    listed = list(kinds)
    short = collections.Counter([*map(_normal, map(_title, listed)), *taken])
    used = set(taken)
    names: dict[object, str] = {}
    for kind in listed:
        origin: Any = get_origin(kind) or kind  # Any: a class
        name = _normal(_title(kind))
        if short[name] > 1:
            name = _normal(f"{origin.__module__}.{origin.__qualname__}{_title(kind)[len(origin.__name__) :]}")
        made, n = name, 2
        while made in used:  # a function can make many classes of one path
            made, n = f"{name}_{n}", n + 1
        used.add(made)
        names[kind] = made
    return names


def _title(kind: object) -> str:
    origin: Any = get_origin(kind) or kind  # Any: a class
    arguments = [one.__name__ if isinstance(one, type) else repr(one) for one in get_args(kind)]
    name: str = origin.__name__
    return f"{name}[{', '.join(arguments)}]" if arguments else name


def _normal(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9.\-_]", "_", name)


def _said(origin: Any) -> str:  # Any: a class
    """Return the docstring of a class, but for the one that a dataclass writes itself."""
    said = origin.__dict__.get("__doc__") or ""
    return "" if said.startswith(f"{origin.__name__}(") and said.endswith(")") else inspect.cleandoc(said)


def components(leaves: list[object], *, prefixed: bool) -> tuple[tuple[Schema, ...], dict[str, Schema], bool]:
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


def close(schema: object) -> None:
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
        close(part)
