"""Deep-frozen JSON."""

import copy
import json
import pickle
from collections.abc import Callable

import jsonschema_rs
import msgspec
import pytest
from attrs import frozen
from hypothesis import given

from capfold.capabilities.frozen import (
    MAX_DEPTH,
    FreezeError,
    FrozenDict,
    FrozenList,
    Json,
    canonical,
    digest,
    freeze,
    freeze_mapping,
    same,
    thaw,
)
from tests.strategies import json_objects, json_values


@given(json_values())
def test_equals_the_plain_value_both_ways(value: Json) -> None:
    """A frozen value equals the plain one, and thawing gives plain dicts and lists."""
    plain = json.loads(json.dumps(value))
    assert plain == value
    assert value == plain
    assert type(thaw(value)) in {dict, list, str, int, float, bool, type(None)}
    assert same(value, freeze(plain))


@given(json_values())
def test_hash_is_stable_and_follows_equality(value: Json) -> None:
    """Equal values have equal hashes, and a second call returns the first one's."""
    again = freeze(thaw(value))
    assert hash(value) == hash(again)
    assert hash(value) == hash(value)


@given(json_values())
def test_pickle_and_copy_keep_the_value(value: Json) -> None:
    """A pickled value comes back frozen and equal; a copy is the identical object."""
    back = pickle.loads(pickle.dumps(value))  # noqa: S301  # our own bytes
    assert same(value, back)
    assert hash(value) == hash(back)
    if isinstance(value, dict | list):
        assert copy.copy(value) is value
        assert copy.deepcopy(value) is value


def test_order_is_kept() -> None:
    """Keys stay in the order they came in, though order is no part of equality or hash."""
    made = freeze_mapping({"b": 1, "a": 2}, "test")
    assert ["b", "a"] == list(made)
    assert freeze({"a": 2, "b": 1}) == made
    assert hash(freeze({"a": 2, "b": 1})) == hash(made)


@given(json_values())
def test_freeze_of_frozen_is_identical(value: Json) -> None:
    """Freezing twice costs nothing and changes nothing."""
    assert freeze(value) is value


WRITES: list[Callable[[FrozenDict[Json]], object]] = [
    lambda d: d.__setitem__("a", 1),
    lambda d: d.__delitem__("a"),
    lambda d: d.update(a=1),
    lambda d: d.setdefault("b", 1),
    lambda d: d.pop("a"),
    lambda d: d.popitem(),
    lambda d: d.clear(),
    lambda d: d.__ior__({"a": 2}),
]
LIST_WRITES: list[Callable[[FrozenList], object]] = [
    lambda x: x.__setitem__(0, 1),
    lambda x: x.__delitem__(0),
    lambda x: x.append(1),
    lambda x: x.extend([1]),
    lambda x: x.insert(0, 1),
    lambda x: x.remove(1),
    lambda x: x.pop(),
    lambda x: x.clear(),
    lambda x: x.sort(),
    lambda x: x.reverse(),
    lambda x: x.__iadd__([1]),
    lambda x: x.__imul__(2),
]


@pytest.mark.parametrize("write", WRITES)
def test_every_write_to_a_mapping_raises(write: Callable[[FrozenDict[Json]], object]) -> None:
    """No method of dict changes a frozen mapping, and the error says what to do instead."""
    made = freeze_mapping({"a": 1}, "test")
    with pytest.raises(TypeError, match="frozen"):
        write(made)
    made.__init__({"a": 2})  # type: ignore[misc]  # the write under test
    assert made == {"a": 1}


@pytest.mark.parametrize("write", LIST_WRITES)
def test_every_write_to_an_array_raises(write: Callable[[FrozenList], object]) -> None:
    """No method of list changes a frozen array."""
    made = freeze([1])
    assert isinstance(made, FrozenList)
    with pytest.raises(TypeError, match="frozen"):
        write(made)
    made.__init__([2])  # type: ignore[misc]  # the write under test
    assert made == [1]


def test_every_mutator_of_dict_and_list_is_among_them() -> None:
    """A method that Python adds to dict or list some day, and that writes, is noticed."""
    reading = {"copy", "fromkeys", "get", "items", "keys", "values", "count", "index"}
    for kind in (FrozenDict, FrozenList):
        plain = kind.__mro__[1]
        inherited = {
            n for n in vars(plain) if not n.startswith("_") and getattr(kind, n) is getattr(plain, n)
        }
        assert inherited <= reading


def test_the_callers_own_objects_are_not_shared() -> None:
    """A later edit of what was frozen does not reach the frozen value."""
    inner = [1]
    made = freeze({"a": inner})
    inner.append(2)
    assert made == {"a": [1]}


@given(json_objects())
def test_json_libraries_take_it_as_it_is(value: FrozenDict[Json]) -> None:
    """The standard library, msgspec and jsonschema_rs read a frozen value like the plain one."""
    schema = {"type": "object", "additionalProperties": True}
    assert json.dumps(thaw(value)) == json.dumps(value)
    assert msgspec.json.encode(thaw(value)) == msgspec.json.encode(value)
    assert jsonschema_rs.is_valid(schema, value)
    assert jsonschema_rs.is_valid({"type": "array"}, freeze([value]))


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), "$"),
        ({"a": [0, float("inf")]}, "$.a[1]"),
        ({"a": {1: 2}}, "$.a"),
        ([{"x y": {2}}], '$[0]["x y"]'),
        ({"a": 10**5000}, "$.a"),
        ({"a": b"bytes"}, "$.a"),
        ({"a": object()}, "$.a"),
    ],
)
def test_what_json_cannot_carry_is_refused_with_its_place(value: object, path: str) -> None:
    """The error is a ValueError that says where the value stands; it survives pickling."""
    with pytest.raises(FreezeError) as caught:
        freeze(value)
    assert path == caught.value.path
    assert str(caught.value).startswith(f"{path}: ")
    assert path == pickle.loads(pickle.dumps(caught.value)).path  # noqa: S301  # our own bytes


def test_nesting_is_bounded() -> None:
    """A value of the greatest depth passes and is usable; one level more, or a cycle, is refused."""

    def nest(levels: int) -> list[object]:
        made: list[object] = []
        for _ in range(levels - 1):
            made = [made]
        return made

    deepest = freeze(nest(MAX_DEPTH))
    assert nest(MAX_DEPTH) == json.loads(canonical(deepest))
    assert hash(deepest) == hash(freeze(nest(MAX_DEPTH)))
    with pytest.raises(FreezeError, match="levels deep"):
        freeze(nest(MAX_DEPTH + 1))
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(FreezeError, match="contains itself"):
        freeze(cycle)


def test_same_is_strict_about_types() -> None:
    """`1`, `True`, `1.0` are three values wherever they stand, and so are 0.0 and -0.0."""

    @frozen
    class Slot:
        value: object

    values: list[object] = [1, True, 1.0]
    for a in values:
        for b in values:
            expected = a is b
            assert expected == same(a, b)
            assert expected == same({"x": [a]}, {"x": [b]})
            assert expected == same((a,), (b,))
            assert expected == same(frozenset({a}), frozenset({b}))
            assert expected == same(Slot(a), Slot(b))
    assert not same(0.0, -0.0)
    assert not same([1], (1,))
    assert same(float("1.5"), 1.5)


@given(json_values())
def test_canonical_is_one_text(value: Json) -> None:
    """The text reads back to the value, holds ASCII only, and does not depend on the order of keys."""
    text = canonical(value)
    assert text.isascii()
    assert same(value, freeze(json.loads(text)))
    assert digest(value) == digest(freeze(thaw(value)))
    assert canonical({"a": 1, "b": "\ud800"}) == canonical({"b": "\ud800", "a": 1})


def test_freeze_mapping_names_what_it_is_for() -> None:
    """Anything but a mapping is a TypeError that names the field."""
    with pytest.raises(TypeError, match="settings must be a mapping"):
        freeze_mapping([1], "settings")
