"""From a typed function to its signature: the schema the model sees, and mistakes found when it is made."""

import functools
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NewType, Required, TypedDict

import jsonschema_rs
import msgspec
import pydantic
import pytest
from attrs import frozen

from capfold.capabilities.docstrings import argument_docs
from capfold.capabilities.frozen import FrozenDict, thaw
from capfold.capabilities.injected import FromCall, FromContext, FromDeps, ToolContext
from capfold.capabilities.signatures import Parameter, check_schema, signature_of


@frozen
class Point:
    x: int
    next: "Point | None" = None


@frozen
class Empty:
    pass


@dataclass
class Row:
    cells: list[int] = field(default_factory=list)


class Options(TypedDict, total=False):
    name: Required[str]
    loud: bool


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Leaf(pydantic.BaseModel):
    n: int


class Model(pydantic.BaseModel):
    leaves: list[Leaf] = []


class Open(pydantic.BaseModel, extra="allow"):
    n: int


UserId = NewType("UserId", int)


def schema_of(annotation: object) -> Any:  # Any: JSON Schema
    """Return the schema of the one parameter of a function annotated so, and the root."""

    def function(it: object) -> str:
        return ""

    function.__annotations__["it"] = annotation
    schema: Any = thaw(signature_of(function).schema)  # Any: JSON Schema
    jsonschema_rs.meta.validate(schema)
    return schema


def test_schema_of_a_whole_function() -> None:
    """Names in order, descriptions from notes before docstring, defaults, required, nothing extra."""

    def search(query: str, limit: Annotated[int, "How many"] = 10, *, deep: bool = False) -> str:
        """Search.

        Args:
            query: What to look for,
                in plain words.
            limit: Not this.
            deep (bool): Follow links.

        Returns:
            query: not a parameter.
        """
        return query

    expected = {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for, in plain words."},
            "limit": {"type": "integer", "description": "How many", "default": 10},
            "deep": {"type": "boolean", "description": "Follow links.", "default": False},
        },
        "required": ["query"],
        "additionalProperties": False,
    }
    signature = signature_of(search)
    assert expected == signature.schema
    assert ["query", "limit", "deep"] == list(signature.schema["properties"])  # type: ignore[arg-type]  # an object
    assert type(signature.schema) is FrozenDict
    assert not signature.is_async


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (float, {"type": "number"}),
        (None, {"type": "null"}),
        (Any, {}),
        (object, {}),
        (UserId, {"type": "integer"}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Literal["a", 1], {"enum": [1, "a"]}),
        (list, {"type": "array"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "items": False,
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (dict[str, Any], {"type": "object"}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (datetime, {"type": "string", "format": "date-time"}),
        (date, {"type": "string", "format": "date"}),
        (timedelta, {"type": "string", "format": "duration"}),
        (Decimal, {"type": "string", "format": "decimal"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (list[Annotated[int, "one"]], {"type": "array", "items": {"type": "integer", "description": "one"}}),
        (Annotated[int, msgspec.Meta(ge=3)], {"type": "integer", "minimum": 3}),
    ],
)
def test_schema_of_types(annotation: object, expected: object) -> None:
    """Each supported type has the schema one would write by hand."""
    assert expected == schema_of(annotation)["properties"]["it"]


@pytest.mark.parametrize(
    ("annotation", "valid", "invalid"),
    [
        (Point, {"x": 1, "next": {"x": 2}}, {"x": 1, "next": {"x": 2, "y": 3}}),
        (Empty, {}, {"y": 3}),
        (Row, {"cells": [1]}, {"cells": [1], "y": 3}),
        (Options, {"name": "a"}, {"name": "a", "y": 3}),
        (Model, {"leaves": [{"n": 1}]}, {"leaves": [{"n": 1, "y": 3}]}),
        (list[Model | None], [{"leaves": []}, None], [{"leaves": [], "y": 3}]),
        (Point | Row, {"cells": [1]}, {"cells": [1], "x": 1}),
        (dict[str, Point | Leaf], {"a": {"x": 1}, "b": {"n": 1}}, {"a": {"x": 1, "n": 1}}),
        (Color, "red", "green"),
        (Open, {"n": 1, "y": 3}, {"n": "1"}),
    ],
)
def test_classes_refuse_extra_keys(annotation: object, valid: object, invalid: object) -> None:
    """Objects that come from classes take their own keys only, at every depth, unless the class is open."""
    validator = jsonschema_rs.validator_for(schema_of(annotation))
    assert validator.is_valid({"it": valid})
    assert not validator.is_valid({"it": invalid})
    assert not validator.is_valid({"it": valid, "more": 1})


def test_equal_names_stay_apart() -> None:
    """Two classes of one name, one of attrs and one below a pydantic model, have two definitions."""

    def make() -> tuple[type, type]:
        @frozen
        class Leaf:
            other: str

        return Leaf, Model

    attrs_leaf, model = make()
    validator = jsonschema_rs.validator_for(schema_of(tuple[attrs_leaf, model]))  # type: ignore[valid-type]  # made above
    assert validator.is_valid({"it": [{"other": "a"}, {"leaves": [{"n": 1}]}]})
    assert not validator.is_valid({"it": [{"n": 1}, {"leaves": []}]})
    assert not validator.is_valid({"it": [{"other": "a"}, {"leaves": [{"other": "a"}]}]})


def test_injected_parameters_are_absent() -> None:
    """Injected parameters are not in the schema; sources, keys and defaults are on record (C23)."""

    async def act(
        context: ToolContext,
        n: int,
        user: Annotated[str, FromContext("user_id")],
        trace: Annotated[str | None, FromCall("trace", default=None)],
        tags: Annotated[list[str], FromContext("tags")] = [],  # noqa: B006  # the default under test
        *,
        db: Annotated[Callable[[], None], FromDeps("db")],
    ) -> None:
        pass

    signature = signature_of(act)
    assert ["n"] == list(signature.schema["properties"])  # type: ignore[arg-type]  # an object
    assert ["n"] == signature.schema["required"]
    assert signature.is_async
    expected = (
        Parameter("context", ToolContext, "tool_context", "", ...),
        Parameter("n", int, "arguments", "n", ...),
        Parameter("user", str, "context", "user_id", ...),
        Parameter("trace", str | None, "call", "trace", None),
        Parameter("tags", list[str], "context", "tags", []),
        Parameter("db", Callable[[], None], "deps", "db", ...),
    )
    assert expected == signature.parameters


@pytest.mark.parametrize(
    "default",
    [
        datetime(2026, 1, 2, tzinfo=UTC),
        Color.RED,
        Point(1),
        Model(),
        frozenset({"b", "a"}),
        None,
        Decimal("1.50"),
        timedelta(hours=1),
    ],
)
def test_rich_defaults_are_json(default: object) -> None:
    """The default in the schema is JSON that the parameter's own schema accepts."""

    def function(it: object) -> None:
        pass

    kind = frozenset[str] if isinstance(default, frozenset) else type(default)
    function.__annotations__["it"] = kind
    function.__defaults__ = (default,)
    schema: Any = thaw(signature_of(function).schema)  # Any: JSON Schema
    shown = schema["properties"]["it"]["default"]
    assert jsonschema_rs.validator_for(schema).is_valid({"it": shown})
    if isinstance(default, frozenset):
        assert ["a", "b"] == shown


def bare(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, RUF100  # the mistake under test
    """Have no annotation."""


def variadic(*x: int) -> None:
    """Be variadic."""


def keywords(**x: int) -> None:
    """Be variadic by name."""


def positional(x: int, /) -> None:
    """Be positional-only."""


def unresolvable(x: "Missing") -> None:  # type: ignore[name-defined]  # noqa: F821  # the mistake under test
    """Have an annotation that leads nowhere."""


def no_schema(x: complex) -> None:
    """Take what JSON has not."""


def nested_no_schema(x: list[Callable[[], int]]) -> None:
    """Take what JSON has not, inside."""


def number_keys(x: dict[int, str]) -> None:
    """Take keys that JSON has not."""


def hidden_context(x: ToolContext | None = None) -> None:
    """Put the context where the model would fill it."""


def hidden_marker(x: list[Annotated[int, FromContext("x")]]) -> None:
    """Put a marker where the model would fill it."""


def class_marker(x: Annotated[int, FromContext]) -> None:
    """Forget to call the marker."""


def two_markers(x: Annotated[int, FromContext("x"), FromCall("x")]) -> None:
    """Mark twice."""


def deps_default(x: Annotated[int, FromDeps("x")] = 1) -> None:
    """Give deps a default."""


def two_defaults(x: Annotated[int, FromContext("x", default=1)] = 2) -> None:
    """Give two defaults."""


def context_no_schema(x: Annotated[complex, FromContext("x")]) -> None:
    """Take from JSON context what JSON has not."""


def wrong_default(x: int = None) -> None:  # type: ignore[assignment]  # noqa: RUF013  # the mistake under test
    """Have a default of another type."""


MISTAKES = [
    bare,
    variadic,
    keywords,
    positional,
    unresolvable,
    no_schema,
    nested_no_schema,
    number_keys,
    hidden_context,
    hidden_marker,
    class_marker,
    two_markers,
    deps_default,
    two_defaults,
    context_no_schema,
    wrong_default,
]


@pytest.mark.parametrize("function", MISTAKES)
def test_mistakes_name_function_and_parameter(function: Callable[..., None]) -> None:
    """What cannot work is a TypeError that names function and parameter."""
    with pytest.raises(TypeError, match=rf"{function.__name__}\(\): parameter '\**x'"):
        signature_of(function)


def test_default_that_json_cannot_carry() -> None:
    """A default that is not JSON is a ValueError naming function, parameter and what would do."""

    def function(it: float = float("inf")) -> None:
        pass

    def other(it: Any = object()) -> None:  # noqa: B008  # the mistake under test
        pass

    with pytest.raises(ValueError, match=r"function\(\): parameter 'it'.*inf"):
        signature_of(function)
    with pytest.raises(ValueError, match=r"other\(\): parameter 'it'.*none of JSON, datetime"):
        signature_of(other)


def test_not_a_function() -> None:
    """Classes, values and generators are no tools."""

    def stream() -> Iterator[str]:
        yield ""

    async def astream() -> AsyncIterator[str]:
        yield ""

    for value in (Point, 3, stream, astream):
        with pytest.raises(TypeError):
            signature_of(value)  # type: ignore[arg-type]  # the mistake under test


class Service:
    def look(self, city: str) -> str:
        return city

    async def __call__(self, city: str, n: int) -> str:
        return city * n


def test_methods_objects_partials() -> None:
    """Bound methods, callable objects, wrapped functions and partials show what is left to fill."""
    service = Service()

    @functools.wraps(Service.look)
    def wrapper(*args: object) -> None:
        pass

    assert ["city"] == [parameter.name for parameter in signature_of(service.look).parameters]
    assert ["city", "n"] == [parameter.name for parameter in signature_of(service).parameters]
    assert signature_of(service).is_async
    assert ["city"] == [
        parameter.name for parameter in signature_of(functools.partial(service, n=2)).parameters
    ]
    assert ["n"] == [parameter.name for parameter in signature_of(functools.partial(service, "x")).parameters]
    assert signature_of(service.look) is signature_of(service.look)


def test_docstring_without_section() -> None:
    """No `Args:` section, no docstring, or odd indentation give no descriptions and no error."""
    assert {} == argument_docs(None)
    assert {} == argument_docs("Do it.\n\nx: not a section")
    assert {"x": "One. Two: three."} == argument_docs("Do.\n\nArgs:\n  x: One.\n\n    Two: three.\nNote: y")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "integer"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "definitions": {}},
    ],
)
def test_check_schema_accepts(schema: object) -> None:
    """Valid schemas of an object pass, by the draft they name."""
    assert check_schema(schema) is None  # type: ignore[func-returns-value]  # that it returns is the property


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "objekt"}, r"\$\.type"),
        ({"type": "object", "properties": {"a": {"type": 3}}}, r"\$\.properties\.a\.type"),
        ({"type": "object", "properties": {"a b": 3}}, r'\$\.properties\["a b"\]'),
        ({"type": "array"}, r"\$\.type"),
        ({}, r"\$\.type"),
        ([], r"\$:"),
        ({"type": "object", "$schema": "urn:nobody"}, "urn:nobody"),
        ({"type": "object", "$ref": "#/$defs/none"}, r"\$.*none"),
        ({"type": "object", "$ref": "http://localhost:1/schema"}, "localhost"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, r"pattern"),
        ({"type": "object", "properties": {"a": {"default": float("nan")}}}, r"\$"),
    ],
)
def test_check_schema_refuses(schema: object, path: str) -> None:
    """An unusable schema is a ValueError with the path; a remote reference is refused, not fetched."""
    with pytest.raises(ValueError, match=path):
        check_schema(schema)
