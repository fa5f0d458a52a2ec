"""Output types of every kind, and a strategy that puts them together and draws values of them."""

import dataclasses
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, Required, TypedDict, TypeVar
from uuid import UUID

import attrs
import pydantic
from attrs import define, field, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")


class Level(Enum):
    """Texts."""

    LOW = "low"
    HIGH = "high"


@frozen
class Cat:
    """Told from a Dog by its first field."""

    type: Literal["cat"]
    lives: int


@frozen
class Dog:
    """Told from a Cat by its first field."""

    type: Literal["dog"]
    lives: int


@frozen
class Node:
    """Holds another of its own."""

    value: int
    next: "Node | None" = None


@frozen
class Pair(Generic[T]):
    """Two of one type."""

    first: T
    rest: list[T]


@frozen
class Named(Pair[int]):
    """A Pair of integers, with a name."""

    name: str = ""


def double(value: int) -> int:
    """Convert a field."""
    return value * 2


@define(slots=False)
class Shop:
    """All that attrs can do to a field."""

    _code: str
    owner: str = field(alias="boss")
    prices: list[float] = field(factory=list, kw_only=True)
    pet: Cat | Dog | None = field(default=None, kw_only=True)
    doubled: int = field(default=0, converter=double)
    count: int = field(init=False, default=3)
    level: Level = field(default=Level.LOW, kw_only=True, validator=attrs.validators.in_([Level.LOW]))


@dataclasses.dataclass(kw_only=True)
class Row:
    """What a dataclass can do to a field."""

    cells: list[int] = dataclasses.field(default_factory=list)
    due: date | None = None
    made: int = dataclasses.field(init=False, default=1)


@dataclasses.dataclass
class Long(Row):
    """Inherits, and has a positional field."""

    size: "int" = 0


class Options(TypedDict, total=False):
    """Not all its keys must be there."""

    name: Required[str]
    loud: bool


class More(Options):
    """Inherits, and has a key that may be left out."""

    due: NotRequired[date]
    size: int


class Leaf(pydantic.BaseModel):
    """A model with an alias, a constraint and a validator."""

    number: int = pydantic.Field(alias="num", ge=0)
    when: date | None = None

    @pydantic.field_validator("number")
    @classmethod
    def _unlucky(cls, value: int) -> int:
        if value == 13:
            raise ValueError("13 is unlucky")
        if value == 14:
            raise ZeroDivisionError("14 is worse")
        return value


class Tree(pydantic.BaseModel):
    """A model of models, of itself too."""

    leaf: Leaf
    others: list["Tree"] = []

    @pydantic.computed_field  # type: ignore[prop-decorator]  # the way that pydantic documents
    @property
    def size(self) -> int:
        """How many there are: written by pydantic, never read."""
        return 1 + len(self.others)


class Place(NamedTuple):
    """A tuple with names."""

    x: int
    label: str


class Grumpy(Exception):
    """An exception of the user's own."""


@frozen
class Picky:
    """Raises whatever it likes."""

    n: int

    def __attrs_post_init__(self) -> None:
        """Refuse almost anything."""
        if self.n:
            raise {1: KeyError("one"), 2: Grumpy("two"), 3: Grumpy()}.get(self.n, ValueError("many"))


# --- strategies: a type, and values of it

Kind = tuple[Any, SearchStrategy[Any]]  # Any: annotations, and values of them

_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=6)
_INTS = st.integers(-(2**60), 2**60)
_PYDANTIC_LEAF = st.builds(lambda n, when: Leaf(num=n, when=when), st.integers(0, 12), st.none() | st.dates())
LEAVES: list[Kind] = [
    (int, _INTS),
    (bool, st.booleans()),
    (str, _TEXTS),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (Level, st.sampled_from(Level)),
    (Literal["a", 1] | None, st.sampled_from(["a", 1, None])),
    (date, st.dates()),
    (datetime, st.datetimes()),
    (timedelta, st.timedeltas(timedelta(0), timedelta(days=999))),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (UUID, st.uuids()),
    (bytes, st.binary(max_size=6)),
    (Annotated[int, pydantic.Field(ge=0, le=9)], st.integers(0, 9)),
    (Cat, st.builds(Cat, st.just("cat"), _INTS)),
    (Cat | Dog, st.builds(Cat, st.just("cat"), _INTS) | st.builds(Dog, st.just("dog"), _INTS)),
    (Node, st.builds(Node, _INTS, st.none() | st.builds(Node, _INTS))),
    (Pair[int], st.builds(Pair[int], _INTS, st.lists(_INTS, max_size=2))),
    (Named, st.builds(Named, _INTS, st.lists(_INTS, max_size=2), _TEXTS)),
    (Row, st.builds(Row, cells=st.lists(_INTS, max_size=2), due=st.none() | st.dates())),
    (Options, st.fixed_dictionaries({"name": _TEXTS}, optional={"loud": st.booleans()})),
    (More, st.fixed_dictionaries({"name": _TEXTS, "size": _INTS}, optional={"due": st.dates()})),
    (Leaf, _PYDANTIC_LEAF),
    (Tree, st.builds(lambda leaf: Tree(leaf=leaf, others=[Tree(leaf=leaf)]), _PYDANTIC_LEAF)),
    (Place, st.builds(Place, _INTS, _TEXTS)),
]


def _classes(name: str, kind: Any) -> list[tuple[Any, Callable[[Any], Any]]]:
    """Return a class of each sort with one field of a type, and what makes a value of it.

    None of pydantic's: those do not take all others in.
    """
    typed: Any = TypedDict("Typed", {name: kind})  # type: ignore[misc]  # made while the test runs
    made = attrs.make_class("Made", {name: attrs.field(type=kind)}, frozen=True)
    data = dataclasses.make_dataclass("Data", [(name, kind)])
    return [
        (typed, lambda value: {name: value}),
        (made, made),
        (data, data),
    ]


@st.composite
def kinds(draw: st.DrawFn, depth: int = 2) -> Kind:
    """Draw an output type and a strategy for its values: scalars, classes, containers of them, classes of those."""
    if depth == 0:
        return draw(st.sampled_from(LEAVES))
    kind, values = draw(kinds(depth - 1))
    match draw(st.integers(0, 6)):
        case 0:
            return list[kind], st.lists(values, max_size=2)  # type: ignore[valid-type]  # drawn
        case 1:
            return dict[str, kind], st.dictionaries(_TEXTS, values, max_size=2)  # type: ignore[valid-type]  # drawn
        case 2:
            return tuple[kind, ...], st.lists(values, max_size=2).map(tuple)  # type: ignore[valid-type]  # drawn
        case 3:
            other, more = draw(kinds(0))
            return tuple[kind, other], st.tuples(values, more)  # type: ignore[valid-type]  # drawn
        case 4:
            return kind | None, st.none() | values
        case 5:
            made, build = draw(st.sampled_from(_classes("it", kind)))
            return made, values.map(build)
        case _:
            return kind, values
