"""Constraints that stand in `Annotated`, as JSON Schema: those of annotated-types, which pydantic uses too.

By their attributes, so that neither need be installed. msgspec's own are msgspec's to translate.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

Schema = dict[str, Any]  # Any: JSON Schema is JSON of any shape

_SOURCES: Final = ("annotated_types", "pydantic")
_NUMBERS: Final[Mapping[str, str]] = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
# By the JSON type that is bounded.
_LENGTHS: Final[Mapping[str, str]] = {"string": "Length", "array": "Items", "object": "Properties"}
_BOUNDS: Final[Mapping[str, str]] = {"min_length": "min", "max_length": "max"}
# What would change a value instead of judging it.
_CHANGES: Final = ("strip_whitespace", "to_upper", "to_lower")
# What these libraries put into an annotation and no schema needs to say.
_SILENT: Final = frozenset({"FieldInfo", "Strict", "StringConstraints", "Interval", "Len", "DocInfo"})


def is_constraint(note: object) -> bool:
    """Tell whether a note in `Annotated` is one of those this module speaks for."""
    return type(note).__module__.partition(".")[0] in _SOURCES


def constrained(schema: Schema, notes: Sequence[object]) -> Schema:
    """Return the schema with what the notes add.

    Raises TypeError for a note that the schema's type cannot have, or that JSON Schema cannot say: a constraint
    that nobody checks would be worse than none. In a union they hold for each member but null.
    """
    if "anyOf" in schema:
        options = [one if one == {"type": "null"} else constrained(one, notes) for one in schema["anyOf"]]
        return {**schema, "anyOf": options}
    made = dict(schema)
    for note in notes:
        for one in _single(note):
            made.update(_keywords(one, schema))
    return made


def _single(note: object) -> Iterator[object]:
    """Yield a note, and those that it holds: a `Field(...)`, an `Interval` are several."""
    yield note
    held = getattr(note, "metadata", None)
    for one in held if isinstance(held, list) else ():
        yield from _single(one)


def _keywords(note: object, schema: Schema) -> Schema:
    kind = schema.get("type")
    found: Schema = {}

    def add(name: str, keyword: str | None, bound: object) -> None:
        if keyword is None:
            raise TypeError(_cannot(note, name, kind))
        found[keyword] = bound

    for name in (*_NUMBERS, *_BOUNDS, *_CHANGES, "pattern"):
        bound = getattr(note, name, None)
        if bound is None or bound is False or (name == "min_length" and bound == 0):
            continue
        if name in _NUMBERS:
            numeric = kind in {"integer", "number"} and type(bound) in {int, float}
            add(name, _NUMBERS[name] if numeric else None, bound)
        elif name in _BOUNDS:
            what = _LENGTHS.get(kind) if isinstance(kind, str) else None
            add(name, None if what is None else _BOUNDS[name] + what, bound)
        else:
            judged = name == "pattern" and kind == "string"
            add(name, "pattern" if judged else None, getattr(bound, "pattern", bound))
    said = getattr(note, "description", None)
    if isinstance(said, str):
        found["description"] = said
    if not found and type(note).__name__ not in _SILENT:
        raise TypeError(_cannot(note, type(note).__name__, kind))
    return found


def _cannot(note: object, name: str, kind: object) -> str:
    what = f"JSON {kind}" if isinstance(kind, str) else "this type"
    return (
        f"{note!r:.80}: {name} is not done on {what} here; put it into a pydantic model, or use a validator"
    )
