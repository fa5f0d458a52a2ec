"""Output types: from a response's text to a value, or to a sentence that says what is wrong."""

from datetime import date
from enum import Enum

import attrs
import pytest
from attrs import field, frozen

from capfold.runtime.output import TEXT, output_type


class Level(Enum):
    """A level."""

    LOW = "low"
    HIGH = "high"


@frozen
class Item:
    """A line of a report."""

    name: str
    price: float = field(validator=attrs.validators.ge(0))


@frozen
class Report:
    """A structured output with nested, optional and rich fields."""

    title: str
    level: Level
    due: date
    items: list[Item]
    pages: int = 1
    note: str | None = None


GOOD = '{"title": "t", "level": "low", "due": "2024-02-29", "items": [{"name": "a", "price": 1.5}]}'


def test_text_is_taken_as_it_is() -> None:
    """Text needs no schema, and any text is one."""
    assert output_type(str) is TEXT
    assert TEXT.spec is None
    assert ("", None) == TEXT.read("")
    assert TEXT.problem("x") is None
    assert "str is wanted, not int" == TEXT.problem(3)


def test_a_class_is_structured() -> None:
    """Nested classes, enums and dates become what the fields say."""
    kind = output_type(Report)
    value, problem = kind.read(GOOD)
    assert problem is None
    assert Report("t", Level.LOW, date(2024, 2, 29), [Item("a", 1.5)]) == value
    assert kind.spec is not None
    assert "Report" == kind.spec.name
    assert kind.problem(value) is None
    assert "Report is wanted" in str(kind.problem("x"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "$"),
        ("not json", "$"),
        ("[1]", "$"),
        ("null", "$"),
        (GOOD[:-1], "$"),
        (GOOD.replace('"t"', "3"), "$.title"),
        (GOOD.replace('"low"', '"medium"'), "$.level"),
        (GOOD.replace("2024-02-29", "2023-02-29"), "due"),
        (GOOD.replace('"price": 1.5', '"price": "1"'), "$.items[0].price"),
        (GOOD.replace("1.5", "-1"), "price"),
        (GOOD.replace('"title": "t", ', ""), "title"),
        (GOOD.replace('"title"', '"titel": 1, "title"'), "titel"),
        (GOOD.replace('"title": "t"', '"title": "t", "title": "u"'), "title"),
        (GOOD.replace('"title": "t"', '"title": "t", "pages": 1.5'), "$.pages"),
    ],
)
def test_what_is_wrong_is_said(text: str, problem: str) -> None:
    """Never an exception, never a guess: the place and the reason, for the model to mend."""
    value, said = output_type(Report).read(text)
    assert value is None
    assert said is not None
    assert problem in said
    assert "sub-exception" not in said


def test_all_problems_at_once() -> None:
    """Two wrong fields are both named."""
    _, said = output_type(Report).read(GOOD.replace('"t"', "3").replace('"low"', "4"))
    assert said is not None
    assert "$.title" in said
    assert "$.level" in said


def test_integral_float_is_an_integer() -> None:
    """1.0 is an integer by JSON Schema, and arrives as one."""
    value, problem = output_type(Report).read(GOOD.replace('"title": "t"', '"title": "t", "pages": 2.0'))
    assert problem is None
    assert isinstance(value, Report)
    assert (2, int) == (value.pages, type(value.pages))


@pytest.mark.parametrize("kind", [dict, "str", None, list[int], 3])
def test_other_types_are_refused(kind: object) -> None:
    """What cannot be an output type yet is a TypeError when the agent is built."""
    with pytest.raises(TypeError, match="output_type"):
        output_type(kind)  # type: ignore[arg-type]  # that is the point
