"""Constraints in `Annotated`, as JSON Schema."""

from typing import Any

import annotated_types
import pydantic
import pytest

from capfold.capabilities.constraints import constrained, is_constraint

INT: dict[str, Any] = {"type": "integer"}
STR: dict[str, Any] = {"type": "string"}
LIST: dict[str, Any] = {"type": "array"}


@pytest.mark.parametrize(
    ("schema", "note", "added"),
    [
        (INT, annotated_types.Ge(1), {"minimum": 1}),
        (INT, annotated_types.Interval(gt=1, le=9), {"exclusiveMinimum": 1, "maximum": 9}),
        (INT, annotated_types.MultipleOf(3), {"multipleOf": 3}),
        (STR, annotated_types.Len(1, 3), {"minLength": 1, "maxLength": 3}),
        (LIST, annotated_types.MinLen(2), {"minItems": 2}),
        ({"type": "object"}, annotated_types.MaxLen(2), {"maxProperties": 2}),
        (
            INT,
            pydantic.Field(ge=0, lt=5, description="words"),
            {"minimum": 0, "exclusiveMaximum": 5, "description": "words"},
        ),
        (STR, pydantic.Field(pattern="^a+$"), {"pattern": "^a+$"}),
        (STR, pydantic.StringConstraints(min_length=2), {"minLength": 2}),
        (STR, pydantic.Strict(), {}),
    ],
)
def test_what_notes_add(schema: dict[str, Any], note: object, added: dict[str, object]) -> None:
    """Bounds of numbers, lengths by the JSON type, patterns, descriptions."""
    assert is_constraint(note)
    assert {**schema, **added} == constrained(schema, [note])


def test_in_a_union() -> None:
    """They hold for each member but null."""
    schema = {"anyOf": [INT, {"type": "null"}]}
    assert {"anyOf": [{**INT, "minimum": 1}, {"type": "null"}]} == constrained(
        schema, [annotated_types.Ge(1)]
    )


@pytest.mark.parametrize(
    ("schema", "note"),
    [
        (STR, annotated_types.Ge(1)),
        (INT, annotated_types.MinLen(1)),
        ({}, annotated_types.Ge(1)),
        (INT, annotated_types.Predicate(bool)),
        (INT, pydantic.AfterValidator(abs)),
        (STR, pydantic.StringConstraints(strip_whitespace=True)),
        (LIST, pydantic.StringConstraints(pattern="a")),
        ({"anyOf": [INT, STR]}, annotated_types.Ge(1)),
    ],
)
def test_what_cannot_be_said(schema: dict[str, Any], note: object) -> None:
    """A TypeError: a constraint that is written down and not checked would be worse than none."""
    with pytest.raises(TypeError, match="is not done on"):
        constrained(schema, [note])


def test_other_notes_are_nobody_elses() -> None:
    """Texts and markers of others are let be."""
    assert not any(map(is_constraint, ["words", 3, object()]))
