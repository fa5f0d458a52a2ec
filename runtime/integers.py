"""`1.0` is an integer to JSON Schema but not to a Python function that declares `int`: the one change made.

Walks plain JSON beside its schema. Knows nothing of Python types.
"""

from collections.abc import Mapping
from typing import Any

from ..capabilities.class_schemas import Schema


def with_integers(value: Any, schema: Any, root: Mapping[str, Any]) -> Any:  # Any: JSON and JSON Schema
    """Return plain JSON with `1` for `1.0` wherever the schema says integer and does not say number."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and _means_integer(value, schema, root) else value
    if not isinstance(value, dict | list) or not isinstance(schema, dict):
        return value
    for option in _options(schema, root):
        if isinstance(value, dict):
            named, rest = option.get("properties", {}), option.get("additionalProperties")
            value = {key: with_integers(item, named.get(key, rest), root) for key, item in value.items()}
        else:
            first, rest = option.get("prefixItems", ()), option.get("items")
            value = [
                with_integers(item, first[i] if i < len(first) else rest, root)
                for i, item in enumerate(value)
            ]
    return value


def _means_integer(value: float, schema: Any, root: Mapping[str, Any]) -> bool:  # Any: JSON Schema
    options = _options(schema, root) if isinstance(schema, dict) else []
    kinds = {kind for option in options for kind in _kinds(option)}
    listed = any(type(one) is int and one == value for option in options for one in option.get("enum", ()))
    return "number" not in kinds and ("integer" in kinds or listed)


def _kinds(schema: Schema) -> list[str]:
    kind = schema.get("type", [])
    return [kind] if isinstance(kind, str) else list(kind)


def _options(schema: Schema, root: Mapping[str, Any]) -> list[Schema]:  # Any: JSON Schema
    """Return the schemas that a reference or a union stands for."""
    if "$ref" in schema:
        target = root.get("$defs", {}).get(str(schema["$ref"]).removeprefix("#/$defs/"), {})
        return _options(target, root)
    nested = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    return [option for part in nested for option in _options(part, root)] or [schema]
