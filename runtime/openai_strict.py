"""Which schemas OpenAI's strict mode takes: with it the provider itself sees to it that the output fits.

The mode knows a part of JSON Schema, and refuses the request for a schema with anything else in it. So it is asked
for only where every word is known to be legal; without it the schema is a strong hint, and the run's own check
is the same. Pure; knows nothing of requests.
"""

from collections.abc import Mapping
from typing import Any, Final

_WORDS: Final = frozenset(
    {
        *("$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "items"),
        *("properties", "required", "title", "type"),
        *("pattern", "format", "minItems", "maxItems"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    }
)
_FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)
_MAX_DEPTH: Final = 10
_MAX_PROPERTIES: Final = 5_000


def with_types(schema: Any) -> Any:  # Any: JSON Schema
    """Return the schema with the type of each list of texts, which goes without saying, said: the mode asks for it."""
    if not isinstance(schema, Mapping):
        return schema
    made = dict(schema)
    values = made.get("enum")
    if "type" not in made and values and all(type(one) is str for one in values):
        made["type"] = "string"
    for key in ("properties", "$defs"):
        if key in made:
            made[key] = {name: with_types(part) for name, part in made[key].items()}
    if "anyOf" in made:
        made["anyOf"] = [with_types(part) for part in made["anyOf"]]
    if "items" in made:
        made["items"] = with_types(made["items"])
    return made


def is_strict(schema: Mapping[str, Any]) -> bool:  # Any: JSON Schema
    """Tell whether strict mode takes a schema: all keys required, no others allowed, no word that it does not know."""
    parts = [schema, *schema.get("$defs", {}).values()]
    return all(_is_legal(part, 0) for part in parts) and sum(map(_properties, parts)) <= _MAX_PROPERTIES


def _is_legal(schema: Any, depth: int) -> bool:  # Any: as above, or what stands in its place
    if not isinstance(schema, Mapping) or not schema.keys() <= _WORDS or depth > _MAX_DEPTH:
        return False
    if "$ref" in schema:
        return len(schema) == 1
    if "anyOf" in schema:
        return depth > 0 and all(_is_legal(part, depth + 1) for part in schema["anyOf"])
    if schema.get("format", "date") not in _FORMATS:
        return False
    match schema.get("type"):
        case "object":
            properties = schema.get("properties", {})
            closed = schema.get("additionalProperties") is False
            every = closed and set(schema.get("required", ())) == properties.keys()
            return every and all(_is_legal(part, depth + 1) for part in properties.values())
        case "array":
            return _is_legal(schema.get("items"), depth + 1)
        case "string" | "integer" | "number" | "boolean" | "null":
            return True
        case _:
            return False


def _properties(schema: Any) -> int:  # Any: as above
    if not isinstance(schema, Mapping):
        return 0
    inside = [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), schema.get("items")]
    return len(schema.get("properties", {})) + sum(map(_properties, inside))
