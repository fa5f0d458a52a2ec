"""The codec: what it writes comes back equal in type and value, and whatever else it gets is a CodecError."""

import json
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import pytest
from attrs import evolve, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities.call_state import CallState
from capfold.capabilities.frozen import FrozenDict, FrozenList, Json, freeze, same
from capfold.capabilities.messages import (
    AssistantMessage,
    Content,
    FilePart,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    UserMessage,
)
from capfold.capabilities.state import RunState
from capfold.capabilities.tools import Tool
from capfold.capabilities.verdict import Ask, Failure, Outcome, Verdict
from capfold.runtime.codec import (
    MAX_DEPTH,
    CodecError,
    envelope,
    from_json,
    from_text,
    input_converter,
    make_converter,
    open_envelope,
    register_union,
    to_json,
    to_text,
)
from capfold.runtime.decisions import Answer, Approve, Decision, Deny, Edit
from capfold.runtime.errors import LimitExceeded, Reason, UsageUnknown
from capfold.runtime.limits import Limits
from tests.strategies import (
    MODELS,
    SLOT_TYPES,
    call_states,
    json_values,
    messages,
    outcomes,
    run_states,
    usages,
    verdicts,
)


class Color(Enum):
    RED = "red"
    ONE = 1
    PAIR = (1, 2)


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    YES = "yes"


class Point(NamedTuple):
    x: int
    y: int


class Movie(TypedDict):
    title: str


@frozen
class Leaf:
    n: int
    label: str | None = None


@frozen
class Other:
    n: int


@frozen
class Tree:
    leaf: Leaf
    children: "tuple[Tree, ...]" = ()


@frozen
class Either:
    one: Leaf | Other | None
    many: tuple[Leaf | Other, ...] = ()
    text: str | int | tuple[int, ...] = ""


def _failing(data: object, kind: Any) -> CodecError:  # Any: annotations as well as classes
    with pytest.raises(CodecError) as caught:
        from_json(data, kind)
    return caught.value


# --- round trips


def _comes_back(value: object, kind: object, **known: Any) -> None:
    converter = make_converter(slot_types=SLOT_TYPES, models=MODELS, **known)
    text = to_text(value, converter=converter)
    back = from_text(text, kind, converter=converter)
    assert same(value, back), text
    assert text == to_text(back, converter=converter)
    assert freeze(json.loads(text)) == to_json(value, converter=converter)


@given(messages())
def test_a_message_comes_back(message: Message) -> None:
    """Every message comes back equal, alone and as a member of the union, its time included."""
    _comes_back(message, Message)
    _comes_back(message, type(message))
    assert message.at == from_text(to_text(message), type(message)).at


@given(st.one_of(verdicts().map(lambda one: (one, Verdict)), outcomes().map(lambda one: (one, Outcome))))
def test_verdicts_and_outcomes_come_back(drawn: tuple[object, type]) -> None:
    """Verdicts and outcomes come back equal; an int timeout stays an int."""
    _comes_back(*drawn)


@given(run_states())
@settings(max_examples=50)
def test_a_run_state_comes_back(state: RunState) -> None:
    """A run state comes back equal: tools and models by name, slots by their types."""
    tools = {tool.name: tool for tool in state.inventory}
    _comes_back(state, RunState, tools=tools)


@given(call_states())
@settings(max_examples=30)
def test_a_call_state_comes_back(call: CallState) -> None:
    """A call state comes back equal, earlier calls and a placeholder of an unknown tool included."""
    tools = {tool.name: tool for tool in call.run.inventory}
    _comes_back(call, CallState, tools=tools)


@given(json_values())
def test_json_comes_back(value: Json) -> None:
    """Frozen JSON is written as it is: the identical object, or an equal one."""
    assert same(value, to_json(value))
    assert same(value, from_text(to_text(value), object))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC), datetime),
        (datetime(2024, 1, 2, tzinfo=timezone(timedelta(hours=5, minutes=30))), datetime),
        (date(2024, 2, 29), date),
        (time(1, 2, 3, 4), time),
        (timedelta(days=-3, seconds=4, microseconds=5), timedelta),
        (timedelta(0), timedelta),
        (Decimal("1.10"), Decimal),
        (UUID(int=7), UUID),
        (Path("a/b"), Path),
        (b"\x00\xff", bytes),
        (b"", bytes),
        (Color.RED, Color),
        (Color.ONE, Color),
        (Color.PAIR, Color),
        (Level.LOW, Level),
        (Word.YES, Word),
        (Point(1, 2), Point),
        ({"title": "x"}, Movie),
        (frozenset({"b", "a"}), frozenset[str]),
        (frozenset({Leaf(1), Leaf(2)}), frozenset[Leaf]),
        (frozenset({date(2024, 1, 1)}), frozenset[date]),
        ((1, "a"), tuple[int, str]),
        ((), tuple[int, ...]),
        (FrozenDict({"a": Leaf(1)}), FrozenDict[Leaf]),
        (FrozenDict({"a": Decimal(1)}), FrozenDict[Decimal]),
        (FrozenList([1, None]), FrozenList),
        ({"a": [1]}, dict[str, list[int]]),
        (5, float),
        (5.5, float),
        (None, str | None),
        (1, int | float),
        (1.0, int | float),
        (5, float | None),
        ("a", Literal["a", 1]),
        (1, Literal["a", 1]),
        ((1,), str | int | tuple[int, ...]),
        (date(2024, 1, 1), date | int),
        (Tree(Leaf(1), (Tree(Leaf(2)),)), Tree),
        (Either(Other(1), (Leaf(1), Other(1))), Either),
        (Either(None, text=(1, 2)), Either),
        (Leaf(1), Leaf | Other),
        (Limits(requests=1), Limits),
    ],
    ids=repr,
)
def test_a_type_comes_back(value: object, kind: object) -> None:
    """Each type that the codec knows comes back equal in type and value, by its declared type."""
    text = to_text(value, type=kind)
    back = from_text(text, kind)
    assert same(value, back)
    assert type(value) is type(back)


def test_a_set_has_one_text() -> None:
    """Sets of the same members have the same text, whatever the order they were made in."""
    assert '["a","b","c"]' == to_text(frozenset("cab"))


def test_half_a_surrogate_pair_comes_back() -> None:
    """A model can send half a surrogate pair; it has a text, and comes back."""
    _comes_back(UserMessage("\ud800"), UserMessage)


# --- unions


@pytest.mark.parametrize("decision", [Approve(always=True), Deny("no"), Edit({"n": 1}), Answer("x")])
def test_a_decision_comes_back(decision: Decision) -> None:
    """Each decision comes back through its union."""
    _comes_back(decision, Decision)


@pytest.mark.parametrize(
    "reason",
    [
        LimitExceeded(message="m", limit="requests", used=3, allowed=2),
        UsageUnknown(message="m", limit="total_tokens", step=1),
    ],
)
def test_a_reason_comes_back(reason: Reason) -> None:
    """Each reason comes back by the base class that stands for their union."""
    _comes_back(reason, Reason)
    assert type(reason).__name__ == json.loads(to_text(reason))["type"]


def test_the_tag_is_written_wherever_a_member_stands() -> None:
    """A member carries its tag alone, under a union, and inside plain data."""
    expected = {"type": "TextPart", "text": "x"}
    part = TextPart("x")
    assert [expected] * 2 == [to_json(part), to_json(part, type=Part)]
    assert {"inside": [expected]} == to_json({"inside": [part]})


def test_an_unknown_tag_lists_the_legal_ones() -> None:
    """An unknown tag is a CodecError that says which tags there are."""
    error = _failing([{"type": "Robot", "content": "x"}], tuple[Message, ...])
    assert "$[0]" == error.path
    assert "AssistantMessage, SystemMessage, ToolMessage, UserMessage" in str(error)


@pytest.mark.parametrize("data", [{"content": "x", "at": None}, [], "UserMessage", None])
def test_a_missing_tag_is_refused(data: object) -> None:
    """A member without its tag is not guessed at."""
    for kind in (Message, UserMessage):
        assert "'type'" in str(_failing(data, kind))


def test_a_wrong_tag_is_refused() -> None:
    """A record is not read from another record's data."""
    assert "UserMessage" in str(_failing(to_json(SystemMessage("x")), UserMessage))


def test_a_union_can_be_registered() -> None:
    """A converter takes further tagged unions; a record that has a field `type` is refused."""
    converter = make_converter()
    register_union(converter, Leaf | Other, (Leaf, Other))
    assert {"type": "Other", "n": 1} == to_json(Other(1), converter=converter)
    assert Other(1) == from_json({"type": "Other", "n": 1}, Leaf | Other, converter=converter)
    with pytest.raises(ValueError, match="field 'type'"):
        register_union(converter, Failure, (Failure,))


@pytest.mark.parametrize("kind", [str | datetime, tuple[int, ...] | frozenset[int], Color | int])
def test_what_looks_alike_in_json_is_refused(kind: object) -> None:
    """A union whose members could not be told apart is refused, not read as its first member."""
    assert "cannot be told apart" in str(_failing("2024-01-01T00:00:00", kind))


# --- strictness


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ("7", int),
        (7, str),
        (1, bool),
        ("false", bool),
        (True, int),
        (3.9, int),
        (1.0, int),
        ("1e3", float),
        (True, float),
        (None, str),
        (0, type(None)),
        ("abc", tuple[str, ...]),
        ({"a": 1}, tuple[str, ...]),
        ("abc", frozenset[str]),
        ("abc", list[str]),
        ("ab", tuple[str, str]),
        (["a", "a"], frozenset[str]),
        (["a"], tuple[str, str]),
        (["a", "b", "c"], tuple[str, str]),
        ([], dict[str, int]),
        ([["a", 1]], FrozenDict[Json]),
        ({}, FrozenList),
        (1, Literal["a", True]),
        (True, Level),
        (2, Level),
        ("no", Word),
        ({"x": 1}, str | int),
        ("2024-01-01", datetime),
        (0, datetime),
        ("2024-13-01", date),
        ("NaN", Decimal),
        ("1_0", Decimal),
        ("x", Decimal),
        ("{00000000-0000-0000-0000-000000000007}", UUID),
        ("AA", bytes),
        ("A A=", bytes),
        ("1 day", timedelta),
        ([1, 2, 3], Point),
        ({"title": "x", "year": 1}, Movie),
        ({}, Movie),
        ([], Leaf),
        ("x", Leaf),
        (None, Leaf),
        ({"n": 1, "label": None, "x": 1}, Leaf),
    ],
    ids=repr,
)
def test_nothing_is_coerced(data: object, kind: object) -> None:
    """What is not exactly the JSON of a type is a CodecError."""
    assert _failing(data, kind).path.startswith("$")


def test_a_missing_field_is_no_default() -> None:
    """E-42: a record of which any field is missing is refused, and the error names that field."""
    data = json.loads(to_text(RunState()))
    for name in data:
        error = _failing({key: one for key, one in data.items() if key != name}, RunState)
        assert f"$.{name}" == error.path
        assert "is missing" in str(error)


def test_a_missing_field_of_an_inner_record_is_no_default() -> None:
    """E-42: inner records have no defaults either, those of a user's own class included."""
    data = {"calls": [{"id": "1", "name": "x"}]}
    assert "$.calls[0].arguments" == _failing(data, dict[str, tuple[ToolCall, ...]]).path
    assert "$.label" == _failing({"n": 1}, Leaf).path


def test_where_people_send_data_defaults_count() -> None:
    """The converter for input fills in defaults, and is as strict in all else."""
    assert Leaf(1) == from_json({"n": 1}, Leaf, converter=input_converter)
    with pytest.raises(CodecError, match="is missing"):
        from_json({}, Leaf, converter=input_converter)
    with pytest.raises(CodecError, match="no field"):
        from_json({"n": 1, "m": 1}, Leaf, converter=input_converter)


def test_all_problems_are_told_at_once() -> None:
    """Every problem stands in the message with its path; `path` is that of the first."""
    data = json.loads(to_text((UserMessage("a"), AssistantMessage("b", tool_calls=(ToolCall("1", "x"),)))))
    data[0]["at"] = "now"
    data[1]["tool_calls"][0]["arguments"] = {}
    data[1]["extra"] = 1
    del data[1]["usage"]
    error = _failing({"run": {"messages": data}}, dict[str, dict[str, tuple[Message, ...]]])
    assert "$.run.messages[0].at" == error.path
    for path in (
        "$.run.messages[1].tool_calls[0].arguments",
        "$.run.messages[1].extra",
        "$.run.messages[1].usage",
    ):
        assert f"{path}: " in str(error)


def test_the_content_of_a_message_is_named() -> None:
    """A path leads through unions to the field itself."""
    data = json.loads(to_text([UserMessage((TextPart("x"), FilePart(url="u", media_type="m")))]))
    data[0]["content"][1]["media_type"] = 3
    assert "$[0].content[1].media_type" == _failing(data, tuple[Message, ...]).path
    data[0]["content"] = 3
    assert "$[0].content" == _failing(data, tuple[Message, ...]).path
    assert "$" == _failing(3, Content).path


def test_what_a_record_refuses_is_a_codec_error() -> None:
    """Validators of the records run, and what they raise has a path."""
    data = {"prompt": "p", "denied": "d", "timeout": -1, "always": "off", "by": None}
    error = _failing([data], tuple[Ask, ...])
    assert "$[0]" == error.path
    assert "timeout must be a positive number" in str(error)


def test_a_constructor_that_raises_anything_is_a_codec_error() -> None:
    """KeyError and the like from a user's class do not get out, nor pass for a missing field."""

    def explode(value: object) -> object:
        return {"known": 1}[str(value)]

    @frozen
    class Bad:
        n: int = field(converter=explode)

    error = _failing({"n": 1}, Bad)
    assert "KeyError" in str(error)


# --- what cannot be carried


@frozen
class Opaque:
    inside: object


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (Opaque(float("nan")), "$.inside"),
        ([Opaque(float("inf"))], "$[0].inside"),
        (Opaque(10**5000), "$.inside"),
        (RunState(slots={"Mine": Opaque(print)}), "$.slots.Mine.inside"),
        (RunState(slots={"Mine": (1, {1: 2})}), "$.slots.Mine[1]"),
        (RunState(facts={"k": print}), "$.facts.k"),
        (RunState(facts={"k": FrozenDict({"a": Opaque(object())})}), "$.facts.k.a.inside"),
        (RunState(output=Opaque(Decimal("NaN"))), "$.output.inside"),
        ({"a": [print]}, "$.a[0]"),
        (Opaque(1j), "$.inside"),
    ],
)
def test_what_cannot_be_carried_has_a_path(value: object, path: str) -> None:
    """Writing what JSON cannot carry is a CodecError with the place of it."""
    with pytest.raises(CodecError) as caught:
        to_json(value)
    assert path == caught.value.path


def test_rot_inside_a_frozen_mapping_is_found_when_it_is_written() -> None:
    """A frozen mapping that was built around the rules does not become broken text."""
    with pytest.raises(CodecError) as caught:
        to_text(RunState(settings=FrozenDict({"a": FrozenDict({"b": print})})))
    assert "$.settings.a.b" == caught.value.path


def _nested(depth: int) -> Any:  # Any: JSON of that depth
    value: Any = 1
    for i in range(depth):
        value = [value] if i % 2 else {"a": value}
    return value


def test_depth_is_bounded_the_same_both_ways() -> None:
    """What is written can be read: there is one bound for writing and for reading."""
    text = to_text(_nested(MAX_DEPTH))
    assert freeze(_nested(MAX_DEPTH)) == from_text(text, object)
    deeper = _nested(MAX_DEPTH + 1)
    with pytest.raises(CodecError, match="nested more than"):
        to_text(deeper)
    with pytest.raises(CodecError, match="nested more than"):
        from_text(json.dumps(deeper), object)
    with pytest.raises(CodecError, match="nested more than"):
        from_json(deeper, object)


@pytest.mark.parametrize("depth", [900, 5_000, 200_000])
@pytest.mark.parametrize("kind", [object, RunState, FrozenDict[Json], tuple[int, ...], Message], ids=str)
def test_no_depth_is_a_recursion_error(depth: int, kind: object) -> None:
    """Depth of any size is a CodecError, in text and in data."""
    with pytest.raises(CodecError):
        from_text("[" * depth + "]" * depth, kind)
    with pytest.raises(CodecError):
        from_text('{"a":' * depth + "1" + "}" * depth, kind)
    if depth < 1_000:
        with pytest.raises(CodecError):
            from_json(_nested(depth), kind)
        with pytest.raises(CodecError):
            to_text(_nested(depth))


def test_a_value_that_contains_itself_is_a_codec_error() -> None:
    """A cycle is told from depth by nobody, and ends."""
    loop: list[object] = []
    loop += [loop, loop]
    with pytest.raises(CodecError):
        to_json(loop)
    assert "nested" in str(_failing(loop, object))


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("", "$", "empty"),
        ("{", "$", "not valid JSON"),
        ("1 2", "$", "not valid JSON"),
        ('{"a":1,"a":1}', "$.a", "more than once"),
        ('{"b":[{"a":1,"a":1}]}', "$.b[0].a", "more than once"),
        ("[NaN]", "$[0]", "NaN"),
        ("[-Infinity]", "$[0]", "Infinity"),
        ("[1e999]", "$[0]", "range"),
        ("[" + "9" * 5000 + "]", "$[0]", "5000 digits"),
    ],
)
def test_text_is_read_strictly(text: str, path: str, said: str) -> None:
    """Text that is not strict JSON is a CodecError with the place."""
    with pytest.raises(CodecError, match=said) as caught:
        from_text(text, object)
    assert path == caught.value.path


@given(run_states(), st.data())
@settings(max_examples=40)
def test_damage_is_always_a_codec_error(state: RunState, data: st.DataObject) -> None:
    """Whatever is changed in the JSON of a state, reading gives a state or a CodecError, nothing else."""
    converter = make_converter(
        tools={tool.name: tool for tool in state.inventory}, slot_types=SLOT_TYPES, models=MODELS
    )
    document = json.loads(to_text(state, converter=converter))
    place: Any = document
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            break
        place = inner
    if data.draw(st.booleans()):
        del place[key]
    else:
        place[key] = json.loads(json.dumps(data.draw(json_values())))
    with suppress(CodecError):
        assert isinstance(from_json(document, RunState, converter=converter), RunState)


# --- tools, models and slots by name


def _tool(**changes: Any) -> Tool:  # Any: fields of a tool
    return evolve(Tool("pay", "Pay", {"type": "object"}, print, metadata={"a": 1}), **changes)


def test_a_tool_is_read_back_by_name() -> None:
    """A tool is written without its function and comes back as the identical one."""
    tool = _tool()
    text = to_text(tool)
    assert "print" not in text
    assert tool is from_text(text, Tool, converter=make_converter(tools={"pay": tool}))


def test_an_unknown_tool_lists_the_known_ones() -> None:
    """A tool that is not known is a CodecError that lists those that are."""
    with pytest.raises(CodecError, match=r"no tool is named 'pay'; known: look, see"):
        from_text(to_text(_tool()), Tool, converter=make_converter(tools={"see": _tool(), "look": _tool()}))


@pytest.mark.parametrize(
    "changes",
    [
        {"parameters": {"type": "object", "title": "t"}},
        {"description": "Pay twice"},
        {"max_retries": 9},
        {"metadata": {"a": True}},
    ],
    ids=str,
)
def test_a_changed_tool_in_an_inventory_is_refused(changes: dict[str, object]) -> None:
    """An inventory is only read with exactly the tools it was written with; what differs is named."""
    state = RunState(inventory=(_tool(),))
    with pytest.raises(CodecError) as caught:
        from_text(to_text(state), RunState, converter=make_converter(tools={"pay": _tool(**changes)}))
    assert "$.inventory[0]" == caught.value.path
    assert all(name in str(caught.value) for name in (*changes, "digest"))


def test_a_tuned_tool_comes_back_in_a_selection() -> None:
    """What `with_tools` tunes comes back; what is sealed in a tuned tool must be the known tool's."""
    tool = _tool()
    state = RunState(inventory=(tool,)).with_tools(evolve(tool, description="now", max_retries=0))
    converter = make_converter(tools={"pay": tool})
    tuned = evolve(state, tools=(evolve(tool, description="now", timeout=3, sequential=True),))
    assert same(tuned, from_text(to_text(tuned), RunState, converter=converter))
    sealed = evolve(state, tools=(evolve(tool, parameters={"type": "object", "title": "t"}),))
    with pytest.raises(CodecError, match="parameters, digest differ"):
        from_text(to_text(sealed), RunState, converter=converter)


@pytest.mark.parametrize(
    "damage", [{"digest": "0" * 64}, {"digest": None}, {"name": None}, {"function": 1}, {"x": 1}]
)
def test_a_damaged_tool_is_refused(damage: dict[str, object]) -> None:
    """A written tool whose parts do not fit together is refused, tuned or not."""
    converter = make_converter(tools={"pay": _tool()})
    written = json.loads(to_text(_tool()))
    with pytest.raises(CodecError):
        from_json({**written, **damage}, Tool, converter=converter)


def test_models_and_slots_are_found_by_name() -> None:
    """An unknown model or slot is a CodecError that lists the known ones."""
    state = RunState(model=MODELS["other"], slots={"Budget": 1})
    with pytest.raises(CodecError, match="no model is named 'other'; known: none") as caught:
        from_text(to_text(state), RunState)
    assert "$.slots.Budget: no capability has the key 'Budget'; known: none" in str(caught.value)
    text = to_text(state).replace('"Budget":1', '"Budget":"1"')
    with pytest.raises(CodecError) as caught:
        from_text(text, RunState, converter=make_converter(slot_types=SLOT_TYPES, models=MODELS))
    assert "$.slots.Budget" == caught.value.path


def test_a_slot_is_written_by_its_type() -> None:
    """A slot whose type is a union of records carries a tag, so that the right one comes back."""
    converter = make_converter(slot_types={"Mine": Leaf | Other})
    state = RunState(slots={"Mine": Other(1)})
    assert same(state, from_text(to_text(state, converter=converter), RunState, converter=converter))


@pytest.mark.parametrize("output", [None, Leaf(1), Leaf(2, "x")])
def test_an_output_is_read_by_its_type(output: object) -> None:
    """A structured output comes back as the type it was made of, and none stays none."""
    converter = make_converter(output_type=Leaf)
    state = RunState(output=output)
    assert same(state, from_text(to_text(state, converter=converter), RunState, converter=converter))


# --- documents


def test_a_document_comes_back() -> None:
    """An envelope carries version and kind, and its value comes back."""
    text = envelope("message", UserMessage("x"))
    assert {"capfold": 1, "kind": "message"}.items() <= json.loads(text).items()
    assert UserMessage("x") == open_envelope(text, "message", UserMessage)


def _document(**changes: object) -> str:
    return json.dumps({**json.loads(envelope("message", UserMessage("x"))), **changes})


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        (
            _document(capfold=2, later="field"),
            "$.capfold",
            "version 2 was found; this capfold reads version 1",
        ),
        (_document(capfold=True), "$.capfold", "version True"),
        (_document(capfold="1"), "$.capfold", "version '1'"),
        (_document(kind="state"), "$.kind", "kind 'state', not 'message'"),
        (_document(extra=1), "$.extra", "not expected"),
        ('{"capfold":1,"kind":"message"}', "$.value", "is missing"),
        ("[]", "$", "no capfold document"),
        ("{}", "$", "no capfold document"),
        (_document(value={"type": "UserMessage", "at": None}), "$.value.content", "is missing"),
    ],
)
def test_another_document_is_refused(text: str, path: str, said: str) -> None:
    """A document of another version or kind, or none, is a CodecError that says what was found."""
    with pytest.raises(CodecError, match=said) as caught:
        open_envelope(text, "message", UserMessage)
    assert path == caught.value.path


@given(usages())
def test_writing_a_document_is_reading_it(value: object) -> None:
    """Opening what was enveloped gives an equal value, and enveloping it again the same text."""
    text = envelope("usage", value)
    opened = open_envelope(text, "usage", type(value))
    assert text == envelope("usage", opened)


@pytest.mark.parametrize("text", [b"1", None, 1])
def test_text_that_is_no_string_is_the_callers_mistake(text: Any) -> None:  # Any: what a caller must not give
    """Bytes and the like are a TypeError: not bad data but a bad call."""
    with pytest.raises(TypeError):
        from_text(text, object)
