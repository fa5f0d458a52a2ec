"""Descriptions: configuration as data."""

from collections.abc import Callable
from enum import Enum

import pytest
from attrs import evolve, frozen

from capfold.capabilities.capability import Capability
from capfold.capabilities.combinators import for_tools, group, when
from capfold.capabilities.frozen import canonical, freeze
from capfold.capabilities.secret import Secret
from capfold.capabilities.select_tools import SelectTools
from capfold.capabilities.state import RunState
from capfold.capabilities.tool_budget import ToolBudget
from capfold.capabilities.tools import is_read_only


class Color(Enum):
    RED = "red"


@frozen
class Point:
    x: int
    y: object = None


@frozen
class Holder(Capability):
    """A capability with one field of anything."""

    value: object = None


def always(state: RunState) -> bool:
    """Hold."""
    return True


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        (1, 1),
        ({"a": [1]}, freeze({"a": [1]})),
        ([1, ["a"]], (1, ("a",))),
        ({"$set": ["a", "b"]}, frozenset({"b", "a"})),
        ({"$secret": "TOKEN"}, Secret.env("TOKEN")),
        ({"$enum": f"{__name__}:Color", "value": "red"}, Color.RED),
        ({"$record": f"{__name__}:Point", "fields": {"x": 1, "y": {"$set": []}}}, Point(1, frozenset())),
        ({"$function": f"{__name__}:always"}, always),
        ({"$json": {"$set": [1]}}, freeze({"$set": [1]})),
    ],
)
def test_what_can_be_described_whole(expected: object, value: object) -> None:
    """JSON is itself; what JSON cannot tell apart carries a tag; JSON that looks like a tag is marked."""
    described = Holder(value).describe()
    assert expected == described.config["value"]
    assert described.complete
    assert canonical(described.config)


class Opaque:
    """Nothing that could be written down."""


@pytest.mark.parametrize(
    "value", [Opaque(), lambda: None, (1, Opaque()), frozenset({Opaque()}), b"bytes", print]
)
def test_what_cannot_is_not_complete(value: object) -> None:
    """A description never raises; it says when something is missing."""
    described = Holder(value).describe()
    assert described.complete == (value is print)
    assert canonical(described.config)


def test_a_local_class_is_not_complete() -> None:
    """Nothing could import it again."""

    @frozen
    class Local(Capability):
        pass

    assert not Local().describe().complete
    assert Holder().describe().complete


def test_kind_and_key() -> None:
    """The kind is the class, the key stands apart from the config."""
    described = Holder(1, key="h").describe()
    assert (f"{__name__}:Holder", "h") == (described.kind, described.key)
    assert {"hold_stream": False, "value": 1} == described.config


def test_members() -> None:
    """A combinator describes its members, and is complete when all of them are."""
    described = group(Holder(1), when(always, Holder(2, key="b"))).describe()
    assert ["Holder", "when(b)"] == [member.key for member in described.members]
    assert described.complete
    assert not group(Holder(1), Holder(Opaque(), key="b")).describe().complete
    assert for_tools({"pay"}, ToolBudget(1)).describe().config["where"] == {"$set": ["pay"]}


def test_a_capability_in_a_field() -> None:
    """It is described within the config."""
    config = Holder(SelectTools({"pay"})).describe().config["value"]
    assert isinstance(config, dict)
    assert "$capability" in config


def test_the_digest_follows_the_config() -> None:
    """Equal configurations have equal digests; each difference, of type too, is another digest."""
    first = Holder(1).describe()
    assert first.digest == Holder(1).describe().digest
    others = [
        Holder(True),
        Holder(1.0),
        Holder(1, key="x"),
        Holder(1, hold_stream=True),
        Capability(key="Holder"),
    ]
    assert first.digest not in {other.describe().digest for other in others}
    assert first.digest != evolve(first, complete=False).digest


@pytest.mark.parametrize("make", [lambda: SelectTools(is_read_only), lambda: ToolBudget({"pay": 1})])
def test_ready_made_ones_are_complete(make: Callable[[], Capability]) -> None:
    """A list of ready-made capabilities with importable predicates can be dumped and loaded."""
    assert make().describe().complete
