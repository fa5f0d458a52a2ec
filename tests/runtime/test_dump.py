"""Dumped capability lists: an equal list comes back, and nothing is built that was not allowed."""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any

import pytest
from attrs import evolve, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities.capability import AnyCapability, Capability
from capfold.capabilities.combinators import for_tools, group, inherited, nested, when
from capfold.capabilities.description import describe
from capfold.capabilities.frozen import EMPTY, FrozenDict, FrozenList, Json, freeze, same
from capfold.capabilities.function_hooks import ToolHook, hook
from capfold.capabilities.secret import Secret
from capfold.capabilities.state import RunState
from capfold.capabilities.tools import Tool, is_destructive, is_read_only
from capfold.runtime.codec import CodecError, envelope
from capfold.runtime.dump import dump_capabilities, load_capabilities
from tests.strategies import json_values, words


class Mode(Enum):
    FAST = "fast"
    PAIR = (1, True)


@frozen
class Price:
    amount: int
    unit: str = "EUR"


@frozen
class Plain(Capability[int]):
    n: int = 0


@frozen
class Rich(Capability):
    """A capability with one field for each kind of value that a configuration can hold."""

    values: tuple[object, ...] = ()
    schema: FrozenDict[Json] = EMPTY
    names: frozenset[object] = frozenset()
    check: Callable[..., object] = is_read_only
    secret: Secret | None = None
    _hidden: Price | None = field(default=None)
    derived: int = field(init=False, default=7)


@frozen
class Picky(Capability):
    n: int = field(default=1)

    @n.validator
    def _small(self, attribute: object, value: int) -> None:
        if value > 9:
            raise KeyError(value)


def always(state: RunState) -> bool:
    """Stand for a condition."""
    return True


@hook.before_model_request
def untouched(state: RunState) -> RunState:
    """Stand for a hook."""
    return state


async def around(call_next: Any, call: Any) -> Any:  # Any: a wrapper that is never called here
    """Stand for a wrapper."""
    return await call_next(call)


# A frozen mapping takes what it is given: records and tuples in it are configuration too.
MIXED: FrozenDict[object] = FrozenDict(
    {"a": (1, FrozenList([(2,)])), "$b": Mode.FAST, "c": frozenset({Price(1)})}  # type: ignore[list-item]  # what is under test
)
ALLOWED = (Plain, Rich, Picky, Mode, Price)

# What a configuration may hold, besides capabilities.
leaves: st.SearchStrategy[object] = st.one_of(
    json_values(max_leaves=3),
    st.sampled_from((Mode.FAST, Mode.PAIR, Secret("KEY"), Price(1), Price(2, "USD"), is_destructive, always)),
    st.sampled_from((Plain, Mode, freeze({"$set": [1]}), freeze({"a": {"$function": "os:system"}}))),
    st.just(MIXED),
)
values: st.SearchStrategy[object] = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=6,
)


@st.composite
def capabilities(draw: st.DrawFn) -> AnyCapability:
    """Draw a capability, leaf or combinator, with a configuration that can be dumped."""
    key = draw(st.text("abc", min_size=1, max_size=3))
    leaf = st.one_of(
        st.builds(Plain, st.integers(), key=st.just(key), hold_stream=st.booleans()),
        st.builds(
            Rich,
            st.lists(values, max_size=3).map(tuple),
            st.sampled_from((EMPTY, freeze({"$ref": "#", "n": [1, [2]]}))),
            st.frozensets(words | st.integers(), max_size=3),
            st.sampled_from((is_destructive, always)),
            st.none() | st.just(Secret("KEY")),
            st.none() | st.just(Price(3)),
        ),
    )
    drawn = draw(leaf)
    match draw(st.integers(0, 5)):
        case 0:
            return when(always, group(drawn))
        case 1:
            return nested(drawn, evolve(Plain(), key="other"))
        case 2:
            return inherited(for_tools({"a", "b"} if draw(st.booleans()) else is_destructive, Plain()))
        case 3:
            return Rich((drawn,))
        case _:
            return drawn


@given(st.lists(capabilities(), max_size=3).map(tuple))
@settings(max_examples=80)
def test_an_equal_list_comes_back(listed: tuple[AnyCapability, ...]) -> None:
    """A list whose descriptions are complete comes back equal, in type and value, and has the same text."""
    text = dump_capabilities(listed)
    loaded = load_capabilities(text, allowed=ALLOWED)
    assert same(listed, loaded)
    assert text == dump_capabilities(loaded)
    assert [one.describe().digest for one in listed] == [one.describe().digest for one in loaded]


@given(values)
def test_values_that_differ_are_described_differently(value: object) -> None:
    """Wrapping a value in a tuple, a frozen list or a set gives four texts: none can be read as another."""
    wrapped: list[object] = [value, (value,), frozenset({value})]
    with suppress(ValueError):  # a frozen list holds JSON only
        wrapped.append(freeze([value]))
    texts = [dump_capabilities([Rich((one,))]) for one in wrapped]
    assert len(texts) == len(set(texts))


def test_numbers_keep_their_type() -> None:
    """`1`, `True` and `1.0` come back as what they were."""
    listed = (Rich((1, True, 1.0, frozenset({True}))),)
    assert same(listed, load_capabilities(dump_capabilities(listed), allowed=[Rich]))


@frozen
class Holder(Capability):
    inside: object = None


class Loose:
    def method(self) -> None:
        """Stand for a bound method."""


def _local() -> type[Capability]:
    @frozen
    class Local(Capability):
        pass

    return Local


@pytest.mark.parametrize(
    ("capability", "named"),
    [
        (Holder(lambda state: True), r"Holder\.inside"),
        (Holder(Loose()), r"Holder\.inside"),
        (Holder(Loose().method), r"Holder\.inside"),
        (Holder((1, Loose())), r"Holder\.inside"),
        (Holder(float("nan")), r"Holder\.inside"),
        (Holder(10**5000), r"Holder\.inside"),
        (when(lambda state: True, Plain()), r"when\(Plain\)\.predicate"),
        (group(Plain(), Holder(Loose())), r"Holder\.inside"),
        (_local()(), "Local: its class .* is local"),
        (ToolHook(around), "around .* not complete"),
        (untouched, "untouched .* not complete"),
    ],
)
def test_an_incomplete_description_names_capability_and_field(capability: AnyCapability, named: str) -> None:
    """What cannot be built again is not dumped, and the error says which field of which capability it is."""
    assert not describe(capability).complete or not capability.describe().complete
    with pytest.raises(ValueError, match=named):
        dump_capabilities([Plain(), capability])


def test_a_secret_is_dumped_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The value of a secret never gets into the text."""
    monkeypatch.setenv("KEY", "hunter2")
    assert "hunter2" not in dump_capabilities([Rich(secret=Secret("KEY"))])


# --- nothing that was not allowed


def _text(**changes: object) -> str:
    described = json.loads(dump_capabilities([Plain(1)]))["value"][0]
    return envelope("capabilities", [{**described, **changes}])


def _held(value: object) -> str:
    described = json.loads(dump_capabilities([Rich()]))["value"][0]
    return envelope("capabilities", [{**described, "config": {**described["config"], "values": [value]}}])


@pytest.mark.parametrize(
    "kind",
    [
        "builtins:eval",
        "os:system",
        "subprocess:Popen",
        "tests.runtime.test_dump:Holder",
        "capfold.capabilities.tools:Tool",
        "capfold.capabilities.capability:Callable",
        "capfold.capabilities.frozen:hashlib.sha256",
        "capfold.capabilities..frozen:freeze",
        "capfold.capabilities.nowhere:Nobody",
        "capfold.runtime.sinks:JsonLines",
        "",
        ":",
        None,
        3,
    ],
)
def test_a_class_that_was_not_allowed_is_not_built(kind: object) -> None:
    """Only allowed classes, and capabilities of capfold itself, are built, whatever the text names."""
    with pytest.raises(CodecError) as caught:
        load_capabilities(_text(kind=kind), allowed=[Plain])
    assert "$.value[0].kind".removeprefix("$.value") in caught.value.path


@pytest.mark.parametrize(
    "value",
    [
        {"$function": "os:system"},
        {"$function": "tests.runtime.test_dump:sys.exit"},
        {"$function": "tests.runtime.test_dump:pytest.exit"},
        {"$function": "tests.runtime.test_dump:Loose"},
        {"$function": "tests.runtime.test_dump:Holder"},
        {"$function": "builtins:eval"},
        {"$function": "capfold.capabilities.frozen:json.dumps"},
        {"$function": None},
        {"$record": "subprocess:Popen", "fields": {"args": "true"}},
        {"$record": "tests.runtime.test_dump:Plain", "fields": {"n": 1}},
        {"$record": "tests.runtime.test_dump:Mode", "fields": {}},
        {"$enum": "tests.runtime.test_dump:Price", "value": 1},
        {"$enum": "tests.runtime.test_dump:Mode", "value": "slow"},
        {"$enum": "http:HTTPStatus", "value": 200},
        {"$object": "os:environ"},
        {"$eval": "1"},
        {"$set": 1},
        {"$set": [], "also": 1},
        {"$json": []},
        {"$secret": 1},
        {"$capability": {}},
        {"$capability": {"kind": "os:system", "key": "x", "config": {}, "members": []}},
    ],
    ids=str,
)
def test_a_value_that_was_not_allowed_is_not_built(value: object) -> None:
    """No tag reaches beyond what was allowed; each failure is a CodecError with the place."""
    with pytest.raises(CodecError) as caught:
        load_capabilities(_held(value), allowed=ALLOWED)
    assert caught.value.path.startswith("$[0].config.values[0]")


def test_nothing_is_imported() -> None:
    """A name in a module that is not loaded is refused without loading it."""
    for module in ("this", "antigravity"):
        assert module not in sys.modules
        with pytest.raises(CodecError):
            load_capabilities(_held({"$function": f"{module}:x"}), allowed=ALLOWED)
        with pytest.raises(CodecError):
            load_capabilities(_text(kind=f"{module}:X"), allowed=ALLOWED)
        assert module not in sys.modules


def test_functions_can_be_allowed_by_themselves() -> None:
    """A function is found when it is listed, from whatever module; what has no name cannot be listed."""
    listed = (when(always, evolve(Plain(), key="all")), Holder(around))
    text = dump_capabilities(listed)
    with pytest.raises(CodecError, match="not allowed"):
        load_capabilities(text, allowed=[])
    assert same(listed, load_capabilities(text, allowed=[Plain, Holder, around, always]))
    assert same((Holder(len),), load_capabilities(dump_capabilities([Holder(len)]), allowed=[Holder, len]))
    with pytest.raises(TypeError, match="allowed holds"):
        load_capabilities(text, allowed=[3])  # type: ignore[list-item]  # what is under test


# --- texts that do not fit


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        (_text(config={"hold_stream": False}), "$[0].config.n", "'Plain' .* needs the field 'n'"),
        (_text(config={"hold_stream": False, "n": 1, "m": 2}), "$[0].config.m", "has no field 'm'"),
        (_text(key=""), "$[0].config", "cannot be built: TypeError"),
        (_text(key=None), "$[0].config", "cannot be built: TypeError"),
        (_text(members=[{}]), "$[0].members", "no combinator"),
        (_text(members=None), "$[0]", "members an array"),
        (_text(extra=1), "$[0]", "must be an object with config, key, kind, members"),
        (
            _text(kind="tests.runtime.test_dump:Price", config={"amount": 1, "unit": ""}),
            "$[0].kind",
            "no capability",
        ),
        (
            _text(kind="tests.runtime.test_dump:Picky", config={"hold_stream": False, "n": 10}),
            "$[0].config",
            "cannot be built: KeyError",
        ),
        (_text().replace('"capfold":1', '"capfold":2'), "$.capfold", "version 2"),
        (envelope("run", []), "$.kind", "kind 'run'"),
        (envelope("capabilities", {}), "$.value", "array"),
        ("[" * 5000, "$", "deep"),
        ("", "$", "empty"),
    ],
)
def test_a_text_that_does_not_fit_names_the_place(text: str, path: str, said: str) -> None:
    """Missing and unknown fields, refused values and other documents are CodecErrors with path and reason."""
    with pytest.raises(CodecError, match=said) as caught:
        load_capabilities(text, allowed=ALLOWED)
    assert path == caught.value.path


def _one_more(value: int) -> int:
    return value + 1


@frozen
class Shifting(Capability):
    n: int = field(default=0, converter=_one_more)


def test_what_is_built_otherwise_than_described_is_refused() -> None:
    """A constructor that makes something else of the same configuration does not pass silently."""
    with pytest.raises(CodecError, match="not built as the text describes"):
        load_capabilities(dump_capabilities([Shifting(1)]), allowed=[Shifting])


def test_a_tool_in_a_configuration_is_refused_or_comes_back() -> None:
    """A tool whose function can be named comes back with it; one around a lambda is not dumped."""
    tool = Tool("x", "", {"type": "object"}, always)
    listed = (Holder(tool),)
    loaded = load_capabilities(dump_capabilities(listed), allowed=[Holder])
    assert same(listed, loaded)
    with pytest.raises(ValueError, match=r"Holder\.inside"):
        dump_capabilities([Holder(evolve(tool, function=lambda: None))])
