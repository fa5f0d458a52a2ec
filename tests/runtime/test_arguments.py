"""Decoding, validating and structuring the arguments of a tool call: all problems at once, no surprise."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from attrs import field, frozen, validators
from cattrs import Converter
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities.frozen import EMPTY, FrozenDict, FrozenList, Json, freeze_mapping
from capfold.capabilities.injected import FromCall, FromContext, FromDeps, InjectionError, ToolContext
from capfold.capabilities.signatures import signature_of
from capfold.capabilities.verdict import Problem
from capfold.runtime.arguments import decode, inject, rich_problems, structure, validate
from capfold.runtime.binding import Misfit
from capfold.runtime.decoding import MAX_DEPTH
from capfold.runtime.problems import MAX_PROBLEMS


@frozen
class Described:
    parameters: FrozenDict[Json]


@frozen
class Point:
    x: int
    y: float = 0.0
    label: str = field(default="", validator=validators.max_len(3))


@dataclass
class Row:
    cells: list[int]


class Options(TypedDict):
    n: int


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Size(str, Enum):  # noqa: UP042  # the older form, which is a str of its own making
    BIG = "big"


class Model(pydantic.BaseModel):
    n: int
    when: datetime | None = None


def strict_converter() -> Converter:
    """Return a converter that coerces nothing, with the wire formats that the schemas promise."""
    converter = Converter(forbid_extra_keys=True)

    def exactly(*kinds: type) -> Callable[[object, object], object]:
        def check(value: object, _: object) -> object:
            if type(value) not in kinds:
                raise ValueError(f"{value!r} is no {kinds[0].__name__}")
            return value

        return check

    for kinds in ((bool,), (int,), (str,), (float, int)):
        converter.register_structure_hook(kinds[0], exactly(*kinds))
    for kind in (datetime, timedelta, Decimal):
        converter.register_structure_hook(kind, msgspec.convert)
    return converter


CONVERTER = strict_converter()


def problems(schema: Mapping[str, object], arguments: Mapping[str, object]) -> list[tuple[str, str]]:
    """Validate plain arguments by a plain schema."""
    tool = Described(freeze_mapping(schema, "schema"))
    return [(one.path, one.message) for one in validate(tool, freeze_mapping(arguments, "arguments"))]


def call(function: Callable[..., object], **arguments: object) -> object:
    """Validate, structure and call."""
    signature = signature_of(function)
    frozen_arguments = freeze_mapping(arguments, "arguments")
    assert () == validate(Described(signature.schema), frozen_arguments)
    assert () == rich_problems(signature, frozen_arguments, CONVERTER)
    return function(**structure(signature, frozen_arguments, CONVERTER))


# --- decode


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", {}),
        ('  {"a": [1, 1.5, true, null, {"b": "é"}]}\n', {"a": [1, 1.5, True, None, {"b": "é"}]}),
        (r'{"a": "\u00e9\ud83d\ude00"}', {"a": "é😀"}),
        ('{"a": 1e308, "b": -0.0}', {"a": 1e308, "b": -0.0}),
    ],
)
def test_decode_good(text: str, expected: object) -> None:
    """Good JSON objects come back deep-frozen and equal, without problems."""
    value, found = decode(text)
    assert () == found
    assert expected == value
    assert type(value) is FrozenDict


@pytest.mark.parametrize(
    ("text", "paths", "word"),
    [
        ("", ["$"], "empty"),
        ("{", ["$"], "line 1, column 2"),
        ('{"a": 1} x', ["$"], "Extra data"),
        ("{}{}", ["$"], "Extra data"),
        ("[1]", ["$"], "array"),
        ('"x"', ["$"], "string"),
        ("null", ["$"], "null"),
        ("true", ["$"], "boolean"),
        ("NaN", ["$", "$"], "NaN"),
        ('{"a": NaN, "b": [0, -Infinity]}', ["$.a", "$.b[1]"], "not JSON"),
        ('{"a": 1e999}', ["$.a"], "range"),
        ('{"a": 1, "a": 2}', ["$.a"], "more than once"),
        ('{"a": [{"b": 1, "c": {"d": 1, "d": 1}, "b": 2}]}', ["$.a[0].b", "$.a[0].c.d"], "more than once"),
        ('{"x y": {"n": 1, "n": 1}}', ['$["x y"].n'], "more than once"),
        ('{"a": %s}' % ("9" * 5000), ["$.a"], "5000 digits"),
        ('{"a": %s}' % ("9" * 4250), ["$.a"], "4250 digits"),
        (r'{"a": "\ud800"}', ["$.a"], "surrogate"),
        (r'{"\udfff": 1}', ['$["\\udfff"]'], "surrogate"),
        ('{"a": "\ud800"}', ["$.a"], "surrogate"),
        ('{"a": "\n"}', ["$"], "control character"),
        ("\ufeff{}", ["$"], "not valid JSON"),
        ('{"a": ' + "[" * 150 + "]" * 150 + "}", ["$"], "deep"),
        ('{"a": ' * 100_000 + "1" + "}" * 100_000, ["$"], "deep"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", ["$"], "deep"),
    ],
    ids=range(24),
)
def test_decode_bad(text: str, paths: list[str], word: str) -> None:
    """Everything that is not one strict JSON object is a problem with its path; nothing is decoded (C29)."""
    value, found = decode(text)
    assert EMPTY == value
    assert paths == [one.path for one in found]
    assert any(word in one.message for one in found)


def test_depth_is_a_fixed_bound() -> None:
    """The deepest legal document passes every later step; one level more is a problem."""
    deepest = '{"a": ' + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1) + "}"
    value, found = decode(deepest)
    assert () == found
    assert [] == problems({"type": "object"}, value)
    _, found = decode('{"a": ' + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}")
    assert ["$"] == [one.path for one in found]


def test_digit_limit_of_the_host_is_no_exception() -> None:
    """A host that lowers Python's limit on integer digits gets a problem, not a ValueError."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        _, found = decode('{"a": [%s]}' % ("9" * 700))
    finally:
        sys.set_int_max_str_digits(before)
    assert ["$.a[0]"] == [one.path for one in found]


JSON_LIKE = st.text(alphabet='{}[]",:0123456789.eE-+\\utrfalsnN \n\ud800é', max_size=40)


@settings(max_examples=200)
@given(st.text(max_size=60) | JSON_LIKE | JSON_LIKE.map(lambda text: '{"a":' + text + "}"))
def test_decode_never_raises(text: str) -> None:
    """Any text gives arguments or problems, never both, never neither, never an exception."""
    value, found = decode(text)
    assert type(value) is FrozenDict
    if found:
        assert EMPTY == value
        assert all(one.path.startswith("$") and 0 < len(one.message) <= 300 for one in found)
    else:
        assert value == json.loads(text)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
UTF8 = VALUES.filter(lambda value: "\\ud" not in json.dumps(value) or _encodes(value))


def _encodes(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@settings(max_examples=100)
@given(st.dictionaries(st.text(max_size=3), UTF8, max_size=4).filter(_encodes), st.booleans())
def test_decode_is_the_inverse_of_dumps(value: dict[str, object], ascii_only: bool) -> None:  # noqa: FBT001  # drawn
    """What any JSON writer wrote comes back, by the fast way and by the slow one."""
    decoded, found = decode(json.dumps(value, ensure_ascii=ascii_only))
    assert () == found
    assert value == decoded


@settings(max_examples=100)
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=5), st.lists(st.sampled_from("xy[")))
def test_duplicates_are_found_at_any_depth(keys: list[str], above: list[str]) -> None:
    """Every key that occurs twice in one object is reported once, at its own path, however deep."""
    text, path = "{" + ",".join(f'"{key}": 1' for key in keys) + "}", ""
    for step in reversed(above):
        text = f"[{text}]" if step == "[" else f'{{"{step}": {text}}}'
        path = ("[0]" if step == "[" else f".{step}") + path
    _, found = decode('{"top": ' + text + "}")
    twice = sorted({key for key in keys if keys.count(key) > 1})
    assert [f"$.top{path}.{key}" for key in twice] == [one.path for one in found]


# --- validate

SCHEMA = {
    "type": "object",
    "properties": {
        "b": {"type": "boolean"},
        "n": {"type": "integer"},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"n": {"type": "integer"}},
                "required": ["n"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ({"n": 1}, []),
        ({"n": 1.0}, []),
        ({"n": 10**30}, []),
        ({"n": True}, ["$.n"]),
        ({"n": "12"}, ["$.n"]),
        ({"n": 1.9}, ["$.n"]),
        ({"n": None}, ["$.n"]),
        ({}, ["$.n"]),
        ({"n": 1, "b": "false"}, ["$.b"]),
        ({"n": 1, "b": 0}, ["$.b"]),
        ({"n": 1, "items": "abc"}, ["$.items"]),
        ({"n": 1, "zz": 1, "y y": 2}, ['$["y y"]', "$.zz"]),
        (
            {"b": 1, "items": [{"n": 1}] * 9 + [{"n": "1"}, {"m": 1}]},
            ["$.b", "$.items[9].n", "$.items[10].m", "$.items[10].n", "$.n"],
        ),
        ({"n": 1, "b": "\ud800"}, ["$.b"]),
    ],
    ids=range(14),
)
def test_validate(arguments: Mapping[str, object], paths: list[str]) -> None:
    """Strict, all problems at once, in the order of the paths (C29, E-17)."""
    assert paths == [path for path, _ in problems(SCHEMA, arguments)]


def test_messages_say_what_is_wrong() -> None:
    """Messages show small values, name missing and unexpected keys, and say what would have been legal."""
    expected = [
        ("$.n", "is required"),
        ("$.x", "is not expected; the keys are: b, n, items"),
    ]
    assert expected == problems(SCHEMA, {"x": 1})
    assert [("$.n", '"12" is not of type "integer"')] == problems(SCHEMA, {"n": "12"})
    assert [("$.n", 'this string is not of type "integer"')] == problems(SCHEMA, {"n": "x" * 1000})


def test_unions_are_explained_by_the_branch_meant() -> None:
    """A value of an optional class is explained by the class, not by null; a scalar by all its types."""

    def function(p: Point | None, n: int | None, c: Point | Row) -> None:
        pass

    found = problems(signature_of(function).schema, {"p": {"x": "1", "z": 1}, "n": "1", "c": {"cells": 1}})
    assert ["$.c", "$.n", "$.p.x", "$.p.z"] == [path for path, _ in found]
    assert "integer" in found[1][1]
    assert "null" in found[1][1]
    assert "cells" in found[0][1]


def test_problems_are_bounded() -> None:
    """Thousands of problems, long keys and values make a short list of short lines that counts the rest."""
    arguments = {"n": 1, "items": ["x" * 10_000] * 5_000, "k" * 10_000: 1}
    found = problems(SCHEMA, arguments)
    assert MAX_PROBLEMS + 1 == len(found)
    assert ("$", "and 4951 more problems") == found[-1]
    assert all(len(path) <= 300 and len(message) <= 300 for path, message in found)


def test_hidden_parameters_stay_hidden() -> None:
    """A model that sends the name of an injected parameter gets a validation error (C23)."""

    def function(n: int, user: Annotated[str, FromContext("user")], context: ToolContext) -> None:
        pass

    found = problems(signature_of(function).schema, {"n": 1, "user": "root", "context": {}})
    assert ["$.context", "$.user"] == [path for path, _ in found]


def test_equal_schemas_are_not_one() -> None:
    """Schemas that Python calls equal, const 1 and const true, judge by themselves."""
    one = {"type": "object", "properties": {"a": {"const": 1}}}
    true = {"type": "object", "properties": {"a": {"const": True}}}
    assert one == true
    assert [] == problems(one, {"a": 1})
    assert ["$.a"] == [path for path, _ in problems(true, {"a": 1})]


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(["n", "b", "items", "z"]), VALUES))
def test_validate_never_raises_and_is_ordered(arguments: dict[str, object]) -> None:
    """Whatever JSON a hook or model gives, problems come twice the same, and none means it fits."""
    found = problems(SCHEMA, arguments)
    assert found == problems(SCHEMA, arguments)
    if not found:
        assert type(arguments["n"]) in {int, float}


# --- structure


def test_scalars_pass_and_integers_are_int() -> None:
    """Nothing is coerced but `1.0` where the schema says integer."""

    def function(n: int, x: float, s: str, b: bool = True) -> object:  # noqa: FBT001, FBT002  # a tool's parameter
        return n, x, s, b

    made = call(function, n=1.0, x=2.0, s="3")
    assert (1, 2.0, "3", True) == made
    assert isinstance(made, tuple)
    assert [int, float, str, bool] == [type(value) for value in made]


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (list[int], [1.0, 2], [1, 2]),
        (list[float], [1.0], [1.0]),
        (dict[str, list[int]], {"a": [3.0]}, {"a": [3]}),
        (Any, {"a": [1.0]}, {"a": [1.0]}),
        (int | None, 1.0, 1),
        (int | float, 1.0, 1.0),
        (Literal[1, "a"], 1.0, 1),
        (tuple[int, str], [1.0, "a"], (1, "a")),
        (tuple[int, ...], [1, 2.0], (1, 2)),
        (set[int], [1.0, 2], {1, 2}),
        (frozenset[str], ["a"], frozenset({"a"})),
        (Point, {"x": 1.0, "y": 2.0}, Point(1, 2.0)),
        (list[Point], [{"x": 1}], [Point(1)]),
        (dict[str, Point | None], {"a": None, "b": {"x": 1}}, {"a": None, "b": Point(1)}),
        (Row, {"cells": [1.0]}, Row([1])),
        (Options, {"n": 1.0}, {"n": 1}),
        (Point | Row, {"cells": [1]}, Row([1])),
        (Point | Row | int, 1.0, 1),
        (datetime | str, "2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (datetime | str, "soon", "soon"),
        (Color, "red", Color.RED),
        (Level, 1.0, Level.LOW),
        (list[Size], ["big"], [Size.BIG]),
        (Decimal, "1.50", Decimal("1.50")),
        (timedelta, "PT1H", timedelta(hours=1)),
        (Model, {"n": 1.0}, Model(n=1)),
        (list[Model], [{"n": 1}], [Model(n=1)]),
    ],
    ids=str,
)
def test_structure(annotation: object, value: object, expected: object) -> None:
    """Each annotation gets what it promises, of exactly that type at every depth."""

    def function(it: object) -> object:
        return it

    function.__annotations__["it"] = annotation
    made = call(function, it=value)
    assert expected == made
    assert repr(expected) == repr(made)
    assert type(made) not in {FrozenDict, FrozenList}


def test_containers_are_fresh() -> None:
    """A tool may change what it gets: neither the record nor the next call sees it, defaults included."""

    def function(given: list[list[int]], default: list[int] = []) -> object:  # noqa: B006  # the default under test
        given[0].append(9)
        default.append(9)
        return given, default

    signature = signature_of(function)
    arguments = freeze_mapping({"given": [[1]]}, "arguments")
    for _ in range(2):
        assert ([[1, 9]], [9]) == function(**structure(signature, arguments, CONVERTER))  # type: ignore[arg-type]  # object
    assert {"given": [[1]]} == arguments


@pytest.mark.parametrize(
    ("annotation", "value", "paths"),
    [
        (datetime, "2024-13-01", ["$.it"]),
        (Point, {"x": 1, "label": "long"}, ["$.it"]),
        (list[datetime], ["2024-13-01", "2026-01-02T03:04:05Z", "x"], ["$.it[0]", "$.it[2]"]),
        (dict[str, datetime], {"a": "x"}, ["$.it.a"]),
        (Model, {"n": 1, "when": "x"}, ["$.it.when"]),
        (datetime | Decimal, "x", ["$.it"]),
        (tuple[int, Decimal], [1, "x"], ["$.it[1]"]),
    ],
    ids=str,
)
def test_rich_problems(annotation: object, value: object, paths: list[str]) -> None:
    """What fits the schema but not the type is a problem with its path, never an exception."""

    def function(it: object) -> object:
        return it

    function.__annotations__["it"] = annotation
    signature = signature_of(function)
    arguments = freeze_mapping({"it": value}, "arguments")
    assert () == validate(Described(signature.schema), arguments)
    found = rich_problems(signature, arguments, CONVERTER)
    assert paths == [one.path for one in found]
    assert all(type(one) is Problem and one.message for one in found)
    with pytest.raises(Misfit):
        structure(signature, arguments, CONVERTER)


def test_structure_refuses_what_is_no_argument() -> None:
    """A key that is no argument, an injected one above all, is refused even without validation (C23)."""

    def function(n: int, user: Annotated[str, FromContext("user")]) -> None:
        pass

    with pytest.raises(ValueError, match="'user' is no argument"):
        structure(signature_of(function), freeze_mapping({"n": 1, "user": "root"}, "arguments"), CONVERTER)


# --- inject


def injectable(
    context: ToolContext,
    user: Annotated[int, FromContext("user")],
    tags: Annotated[list[str], FromContext("tags", default=["a"])],
    trace: Annotated[str | None, FromCall("trace", default=None)],
    point: Annotated[Point | None, FromCall("point")] = None,
    *,
    db: Annotated[object, FromDeps("db")],
) -> None:
    """Take everything that can be injected."""


def test_inject() -> None:
    """Values come from where the markers say; the caller's own value wins over a default (A-21, A-22)."""
    database = object()
    signature = signature_of(injectable)
    context = ToolContext(deps={"db": database}, context={"user": 7, "trace": "not this one"})
    made = inject(signature, context, freeze_mapping({"point": {"x": 1}}, "injected"), CONVERTER)
    expected = {
        "context": context,
        "user": 7,
        "tags": ["a"],
        "trace": None,
        "point": Point(1),
        "db": database,
    }
    assert expected == made
    assert database is made["db"]
    again = inject(signature, context, EMPTY, CONVERTER)
    assert made["tags"] is not again["tags"]
    own = ToolContext(deps={"db": database}, context={"user": 7, "tags": ["b"]})
    assert ["b"] == inject(signature, own, EMPTY, CONVERTER)["tags"]


@pytest.mark.parametrize(
    ("context", "injected", "deps", "key"),
    [
        ({}, {}, {"db": 1}, "user"),
        ({"user": "7"}, {}, {"db": 1}, "user"),
        ({"user": 7}, {"point": {"x": 1, "label": "long"}}, {"db": 1}, "point"),
        ({"user": 7}, {}, {}, "db"),
        ({"user": 7}, {}, object(), "db"),
    ],
)
def test_inject_names_the_key(
    context: Mapping[str, Any],  # Any: JSON
    injected: Mapping[str, object],
    deps: object,
    key: str,
) -> None:
    """A missing value without default, or one of another type, is an error that names the key."""
    with pytest.raises(InjectionError, match=key) as caught:
        inject(
            signature_of(injectable),
            ToolContext(deps=deps, context=context),
            freeze_mapping(injected, "injected"),
            CONVERTER,
        )
    assert key == caught.value.key
