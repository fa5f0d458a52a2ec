"""The fields of a class, whatever made it."""

import dataclasses
from typing import Annotated, Any, Generic, NamedTuple, NotRequired, Required, TypedDict, TypeVar

import attrs
import pytest

from capfold.capabilities.record_fields import NO_DEFAULT, is_record, record_fields

T = TypeVar("T")
U = TypeVar("U")


@attrs.frozen
class Base(Generic[T, U]):
    first: T
    second: "dict[str, U]"


@attrs.frozen
class Swapped(Base[U, T], Generic[T, U]):
    third: T | None = None


@attrs.define
class Fields:
    plain: int
    empty: list[int] = attrs.field(factory=list)
    made: int = attrs.field(factory=lambda: 3)
    turned: str = attrs.field(default="1", converter=str)
    hidden: int = attrs.field(init=False, default=1)


@dataclasses.dataclass
class Data:
    plain: Annotated[int, "words"]
    shown: int = 2
    empty: dict[str, int] = dataclasses.field(default_factory=dict)
    hidden: int = dataclasses.field(init=False, default=1)


class Keys(TypedDict, Generic[T], total=False):
    must: Required[T]
    may: "NotRequired[Annotated[int, 'words']]"
    left: str


class Named(NamedTuple):
    x: int
    y: str = "y"


def told(kind: object) -> dict[str, tuple[object, bool, object]]:
    """Return annotation, whether it must be there, and the default of each field."""
    return {one.name: (one.annotation, one.is_required, one.default) for one in record_fields(kind)}


def test_attrs() -> None:
    """Fields that are no part of the constructor are none; empty containers are shown, other factories are not."""
    assert {
        "plain": (int, True, NO_DEFAULT),
        "empty": (list[int], False, []),
        "made": (int, False, NO_DEFAULT),
        "turned": (str, False, "1"),
    } == told(Fields)
    assert ["turned"] == [one.name for one in record_fields(Fields) if one.is_converted]


def test_dataclass_and_named_tuple() -> None:
    """The same of both; notes of `Annotated` are kept."""
    assert {
        "plain": (Annotated[int, "words"], True, NO_DEFAULT),
        "shown": (int, False, 2),
        "empty": (dict[str, int], False, {}),
    } == told(Data)
    assert {"x": (int, True, NO_DEFAULT), "y": (str, False, "y")} == told(Named)


def test_typed_dict() -> None:
    """Wrappers count, also in annotations given as text; what they wrap is the annotation."""
    assert {
        "must": (int, True, NO_DEFAULT),
        "may": (Annotated[int, "words"], False, NO_DEFAULT),
        "left": (str, False, NO_DEFAULT),
    } == told(Keys[int])


def test_type_variables() -> None:
    """Each stands for what was given, through the bases, where one name may mean two things."""
    assert {"first": int, "second": dict[str, str], "third": str | None} == {
        one.name: one.annotation for one in record_fields(Swapped[str, int])
    }
    assert [T, "dict[str, ~U]"] == [
        one.annotation if one.name == "first" else str(one.annotation) for one in record_fields(Base)
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Fields, True),
        (Data, True),
        (Keys, True),
        (Keys[int], True),
        (Named, False),
        (dict, False),
        (Any, False),
    ],
)
def test_what_is_a_record(kind: object, expected: bool) -> None:  # noqa: FBT001  # a parameter of the test
    """A class of attrs, a dataclass and a TypedDict; not a NamedTuple, which is an array in JSON."""
    assert expected is is_record(kind)
