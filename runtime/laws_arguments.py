"""Strategies for JSON values: any, and those that a JSON Schema describes, such as the arguments of a tool.

The generator covers what the schemas of typed functions are made of; what it does not understand is drawn as any
JSON, and the tool's own validation decides. Knows nothing of calls or runs.
"""

from collections.abc import Callable, Mapping
from typing import cast

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ..capabilities.frozen import FrozenDict, Json, freeze, freeze_mapping
from ..capabilities.tools import Tool
from .arguments import validate

_DEPTH = 3  # of nested objects and arrays; deeper ones are left empty, so that recursive schemas end
words = st.text(max_size=8)


def json_values(*, max_leaves: int = 8) -> SearchStrategy[Json]:
    """Return a strategy for frozen JSON values of at most `max_leaves` scalars; shrinks to None.

    Integers of any size, finite floats, any text (empty keys and lone surrogates apart), nested lists and objects.
    """
    scalars = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=10)
    )
    nested = st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
        max_leaves=max_leaves,
    )
    return nested.map(freeze)


def json_objects(*, max_size: int = 3) -> SearchStrategy[FrozenDict[Json]]:
    """Return a strategy for frozen JSON objects of at most `max_size` small values; shrinks to `{}`."""
    made = st.dictionaries(words, json_values(max_leaves=3), max_size=max_size)
    return made.map(lambda value: freeze_mapping(value, "drawn"))


# By identity, since equality would take {"const": 1} and {"const": True} for one; the entry keeps the schema alive.
_KNOWN: dict[int, tuple[FrozenDict[Json], SearchStrategy[FrozenDict[Json]]]] = {}
_MAX_KNOWN = 500


def arguments_of(tool: Tool) -> SearchStrategy[FrozenDict[Json]]:
    """Return a strategy for arguments that the tool's schema accepts; made once for each schema."""
    found = _KNOWN.get(id(tool.parameters))
    if found is None:
        if len(_KNOWN) >= _MAX_KNOWN:
            _KNOWN.clear()
        found = _KNOWN[id(tool.parameters)] = (tool.parameters, _arguments(tool))
    return found[1]


def _arguments(tool: Tool) -> SearchStrategy[FrozenDict[Json]]:
    made = _of(tool.parameters, tool.parameters, _DEPTH)
    return (
        made.filter(lambda value: isinstance(value, dict))
        .map(lambda value: freeze_mapping(value, "arguments"))
        .filter(lambda value: not validate(tool, value))
    )


def _of(schema: object, root: Mapping[str, Json], depth: int) -> SearchStrategy[object]:
    if not isinstance(schema, Mapping):
        return json_values(max_leaves=3)  # `true`, or nothing said
    if "const" in schema:
        return st.just(schema["const"])
    if isinstance(schema.get("enum"), list):
        return st.sampled_from(schema["enum"])
    if isinstance(schema.get("$ref"), str):
        return _of(_referred(str(schema["$ref"]), root), root, depth)
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            return st.one_of([_of(branch, root, depth) for branch in schema[word]])
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return st.one_of([_of({**schema, "type": kind}, root, depth) for kind in kinds])
    make = _MAKERS.get(str(kinds))
    return json_values(max_leaves=3) if make is None else make(schema, root, depth)


def _referred(reference: str, root: Mapping[str, Json]) -> object:
    found: object = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _object(schema: Mapping[str, object], root: Mapping[str, Json], depth: int) -> SearchStrategy[object]:
    properties = cast(Mapping[str, object], schema.get("properties") or {})
    required = set(cast(list[str], schema.get("required") or []))
    if depth <= 0:
        properties = {name: value for name, value in properties.items() if name in required}
    made = {name: _of(value, root, depth - 1) for name, value in properties.items()}
    wanted = {name: value for name, value in made.items() if name in required}
    return st.fixed_dictionaries(
        wanted, optional={name: value for name, value in made.items() if name not in required}
    )


def _array(schema: Mapping[str, object], root: Mapping[str, Json], depth: int) -> SearchStrategy[object]:
    least = int(cast(int, schema.get("minItems", 0)))
    most = min(int(cast(int, schema.get("maxItems", least + 3))), least + 3) if depth > 0 else least
    prefix = schema.get("prefixItems")
    if isinstance(prefix, list):
        return st.tuples(*[_of(item, root, depth - 1) for item in prefix]).map(list)
    return st.lists(_of(schema.get("items"), root, depth - 1), min_size=least, max_size=max(least, most))


def _integer(schema: Mapping[str, object], root: Mapping[str, Json], depth: int) -> SearchStrategy[object]:
    low, high = schema.get("minimum"), schema.get("maximum")
    return st.integers(
        None if low is None else int(cast(float, low)), None if high is None else int(cast(float, high))
    )


def _number(schema: Mapping[str, object], root: Mapping[str, Json], depth: int) -> SearchStrategy[object]:
    low, high = cast(float | None, schema.get("minimum")), cast(float | None, schema.get("maximum"))
    return st.floats(low, high, allow_nan=False, allow_infinity=False)


# What texts of a format are drawn from: one is enough for a reducer, which sees a string.
_FORMATS: Mapping[str, str] = {
    "date": "2031-01-02",
    "date-time": "2031-01-02T03:04:05Z",
    "time": "03:04:05",
    "duration": "PT1H",
    "uuid": "6f8b0f2e-2d1c-4c53-9a39-4f1a3e8a7b11",
    "email": "ann@example.org",
    "uri": "https://example.org",
}


def _string(schema: Mapping[str, object], root: Mapping[str, Json], depth: int) -> SearchStrategy[object]:
    if str(schema.get("format")) in _FORMATS:
        return st.just(_FORMATS[str(schema["format"])])
    if isinstance(schema.get("pattern"), str):
        return st.from_regex(str(schema["pattern"]))
    least = int(cast(int, schema.get("minLength", 0)))
    most = int(cast(int, schema.get("maxLength", least + 8)))
    return st.text(min_size=least, max_size=min(most, least + 8))


_Maker = Callable[[Mapping[str, object], Mapping[str, Json], int], SearchStrategy[object]]
_MAKERS: Mapping[str, _Maker] = {
    "object": _object,
    "array": _array,
    "integer": _integer,
    "number": _number,
    "string": _string,
    "boolean": lambda schema, root, depth: st.booleans(),
    "null": lambda schema, root, depth: st.none(),
}
