"""Which unions an output type may have, and what people read their names as."""

from datetime import date, datetime
from typing import Annotated, Any, Literal, TypedDict

import pydantic
import pytest
from attrs import frozen

from capfold.runtime.output_unions import check_unions, name_of
from tests.runtime.output_kinds import Cat, Dog, Leaf, Level, Node, Options, Pair, Row


@frozen
class One:
    """Looks like Two where Two's own key is left out."""

    n: int


@frozen
class Two:
    """Looks like One."""

    n: int
    more: int = 0


@frozen
class Words:
    """Its key is of another JSON type than One's."""

    n: str


@frozen
class Holder:
    """Has an ambiguous union inside."""

    it: list[One | Two]


class Tagged(pydantic.BaseModel):
    """Told from a Cat by its tag."""

    type: Literal["tagged"]
    lives: int


class Open(pydantic.BaseModel, extra="allow"):
    """Takes keys that it does not name."""

    m: int = 0


class Few(TypedDict, total=False):
    """Needs no key."""

    n: int


@pytest.mark.parametrize(
    "kind",
    [
        Cat | Dog,
        Cat | Dog | Tagged | None,
        list[Cat | Dog] | Cat,
        One | Words,
        One | Node,
        One | dict[str, int],
        list[One] | list[Node],
        Options | Leaf,
        date | datetime | str,
        Level | str,
        int | float | str | bool | None,
        int | Level,
        str | Literal["a"],  # noqa: PYI051  # redundant for a type checker, and people write it
        list[int] | list[str],
        bytes | str,
        Pair[int | str],
        Annotated[One | None, "words"] | str,
    ],
)
def test_what_json_tells_apart(kind: object) -> None:
    """A key that only one must have, one of two JSON types, a Literal; or where it makes no difference."""
    check_unions(kind)


@pytest.mark.parametrize(
    "kind", [One | Two, Two | One, Holder, list[One] | list[Two], One | Few, Open | One, Row | Few]
)
def test_what_looks_alike(kind: object) -> None:
    """Two classes that one object can be both of are refused, wherever they stand, with what would help."""
    with pytest.raises(TypeError, match=r"look alike in JSON.*Literal field"):
        check_unions(kind)


@pytest.mark.parametrize(
    "kind", [str | date, str | Level, dict[str, int] | One, dict[str, Any] | One, list[One] | tuple[One, ...]]
)
def test_what_would_never_be_read(kind: object) -> None:
    """A member behind one that takes all its values is refused: the order is wrong."""
    with pytest.raises(TypeError, match=r"would never be read: .* Put it first"):
        check_unions(kind)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Cat, "Cat"),
        (Cat | None, "Cat | None"),
        (Pair[Cat | Dog], "Pair[Cat | Dog]"),
        (dict[str, tuple[int, ...]], "dict[str, tuple[int, ...]]"),
        (Annotated[int, "words"], "int"),
        (Literal["a"], "Literal['a']"),
    ],
)
def test_names(kind: object, name: str) -> None:
    """A type is called as it is written, without modules."""
    assert name == name_of(kind)
