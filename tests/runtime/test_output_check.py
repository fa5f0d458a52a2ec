"""Whether a Python value is of an output type: as strict as a type checker, with paths."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import annotated_types
import pytest

from capfold.runtime.output import output_type
from capfold.runtime.output_check import misfits
from capfold.runtime.problems import problems_of, said
from tests.runtime.output_kinds import (
    Cat,
    Dog,
    Leaf,
    Level,
    Named,
    Node,
    Options,
    Pair,
    Place,
    Row,
    Shop,
    Tree,
)


def _spoilt() -> Shop:
    """Return a shop that its own validators would refuse."""
    made = Shop("c", boss="b")
    vars(made)["level"] = Level.HIGH
    return made


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, 3),
        (float, 3),
        (float, 10**400),
        (dict[Level, int], {Level.LOW: 1}),
        (int | None, None),
        (Level, Level.LOW),
        (Literal["a", 1], 1),
        (Any, object()),
        (Sequence[int], (1, 2)),
        (Mapping[str, int], {"a": 1}),
        (tuple[int, ...], (1, 2)),
        (Path, Path("a")),
        (Options, {"name": "a"}),
        (Pair[Cat | Dog], Pair[Cat | Dog](Cat("cat", 1), [Dog("dog", 2)])),
        (Shop, Shop("c", boss="b", doubled=3)),
        (Place, Place(1, "a")),
        (Tree, Tree(leaf=Leaf(num=1))),
        (Annotated[list[int], annotated_types.Len(1)], [1]),
    ],
)
def test_what_fits(kind: object, value: object) -> None:
    """A value of the type has no problem."""
    assert [] == list(misfits(value, kind))


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (int, True, "$: int is wanted, not bool"),
        (int, 1.0, "$: int is wanted, not float"),
        (float, True, "$: float is wanted, not bool"),
        (float, float("nan"), "$: nan has no JSON"),
        (date, datetime(2024, 1, 1), "$: date is wanted, not datetime"),  # noqa: DTZ001  # any will do
        (Decimal, 1.5, "$: Decimal is wanted, not float"),
        (Path, "a", "$: Path is wanted, not str"),
        (Level, "low", "$: Level is wanted, not str"),
        (Literal[1], True, "$: True is none of 1"),
        (int | None, "x", "$: int | None is wanted, not str"),
        (list[int], (1,), "$: list[int] is wanted, not tuple"),
        (Sequence[str], "text", "$: Sequence[str] is wanted, not str"),
        (list[int], [1, "2", 3.0], "$[1]: int is wanted, not str; $[2]: int is wanted, not float"),
        (tuple[int, str], (1,), "$: 2 items are wanted, not 1"),
        (dict[str, int], {1: 1}, "$: a key is wrong: str is wanted, not int"),
        (dict[str, int], {"a": "b"}, "$.a: int is wanted, not str"),
        (
            Options,
            {"loud": 1, "x": 2},
            "$.loud: bool is wanted, not int; $.name: is required; $.x: is not expected; the keys are: name, loud",
        ),
        (
            Pair[int],
            Pair("a", [1, "b"]),
            "$.first: int is wanted, not str; $.rest[1]: int is wanted, not str",
        ),
        (Pair[int], Named(1, []), "$: Pair[int] is wanted, not Named"),
        (Cat | Dog, Dog("dog", "1"), "$.lives: int is wanted, not str"),  # type: ignore[arg-type]  # the point
        (Node, Node(1, Node("2")), "$.next.value: int is wanted, not str"),  # type: ignore[arg-type]  # as above
        (Shop, _spoilt(), "'level' must be in"),
        (Row, Row(due=datetime(2024, 1, 1)), "$.due: date | None is wanted"),  # noqa: DTZ001  # any will do
        (Place, (1, "a"), "$: Place is wanted, not tuple"),
        (Leaf, Leaf(num=1).model_copy(update={"number": "1"}), "$: "),
        (list[Leaf], [{"num": 1}], "$[0]: Leaf is wanted, not dict"),
        (Annotated[int, annotated_types.Ge(3)], 2, "$: 2 is less than the minimum of 3"),
        (Annotated[list[int], annotated_types.Len(1)], [], "$: "),
    ],
)
def test_what_does_not(kind: object, value: object, problem: str) -> None:
    """Each part that is not of the type is told, with its path."""
    assert problem in said(problems_of(misfits(value, kind)))


def test_a_value_that_contains_itself() -> None:
    """It is a problem, not a RecursionError."""
    own = Node(1)
    object.__setattr__(own, "next", own)
    assert "contains itself" in str(output_type(Node).problem(own))
