"""Output types: from a response's text to a value, or to a sentence that says what is wrong."""

import json
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, assert_type
from uuid import UUID

import annotated_types
import attrs
import msgspec
import pydantic
import pytest
from attrs import evolve, field, frozen
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import AssistantMessage, RunState, UserMessage, hook
from capfold.capabilities.frozen import thaw
from capfold.capabilities.messages import FinishReason
from capfold.runtime import (
    Agent,
    HookError,
    IncompleteResponse,
    ModelRunError,
    OutputError,
    ScriptedModel,
    verify,
)
from capfold.runtime.codec import from_json, to_json
from capfold.runtime.output import TEXT, output_type
from tests.runtime.output_kinds import (
    Cat,
    Dog,
    Leaf,
    Level,
    Long,
    More,
    Named,
    Node,
    Options,
    Pair,
    Picky,
    Place,
    Row,
    Shop,
    T,
    Tree,
    kinds,
)


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


# --- every kind of type


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, "3", 3),
        (int, "3.0", 3),
        (float, "3", 3),
        (bool, "true", True),
        (Level, '"low"', Level.LOW),
        (Literal["a", 1], "1", 1),
        (datetime, '"2024-01-02T03:04:05Z"', datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (Decimal, '"1.50"', Decimal("1.50")),
        (UUID, f'"{UUID(int=7)}"', UUID(int=7)),
        (Annotated[str, annotated_types.Len(2, 3)], '"abc"', "abc"),
        (Annotated[int, msgspec.Meta(ge=0)], "0", 0),
        (Annotated[int | None, pydantic.Field(ge=0)], "null", None),
        (list[Level], '["low"]', [Level.LOW]),
        (tuple[int, str], '[1, "a"]', (1, "a")),
        (dict[str, date], '{"k": "2024-02-29"}', {"k": date(2024, 2, 29)}),
        (set[int], "[2, 1]", {1, 2}),
        (Cat | Dog, '{"type": "dog", "lives": 1}', Dog("dog", 1)),
        (list[Cat | Dog | None], '[null, {"type": "cat", "lives": 9}]', [None, Cat("cat", 9)]),
        (date | str, '"2024-02-29"', date(2024, 2, 29)),
        (date | str, '"soon"', "soon"),
        (str | Node, '{"value": 1}', Node(1)),
        (Node, '{"value": 1, "next": {"value": 2.0}}', Node(1, Node(2))),
        (Pair[int], '{"first": 1, "rest": [2]}', Pair(1, [2])),
        (Pair[Cat | Dog], '{"first": {"type": "cat", "lives": 1}, "rest": []}', Pair(Cat("cat", 1), [])),
        (Named, '{"first": 1, "rest": [], "name": "n"}', Named(1, [], "n")),
        (Row, "{}", Row()),
        (Long, '{"cells": [1], "size": 2, "due": null}', Long(cells=[1], size=2)),
        (Options, '{"name": "a"}', {"name": "a"}),
        (
            More,
            '{"name": "a", "size": 1, "due": "2024-02-29"}',
            {"name": "a", "size": 1, "due": date(2024, 2, 29)},
        ),
        (Leaf, '{"num": 3, "when": "2024-02-29"}', Leaf(num=3, when=date(2024, 2, 29))),
        (Tree, '{"leaf": {"num": 1}, "others": [{"leaf": {"num": 2}}]}', None),
        (Place, '[1, "here"]', Place(1, "here")),
    ],
)
def test_each_kind_is_read(kind: object, text: str, value: object) -> None:
    """Every type whose values JSON can hold may be an output; what is read is of it, and what was meant."""
    made = output_type(kind)
    read, problem = made.read(text)
    assert problem is None
    assert made.problem(read) is None
    if kind is Tree:
        assert Tree(leaf=Leaf(num=1), others=[Tree(leaf=Leaf(num=2))]) == read
    else:
        assert value == read
        assert type(value) is type(read)


def test_all_that_attrs_can_do_to_a_field() -> None:
    """Keys are the names of fields, `init=False` ones are no keys; factories, converters and validators count."""
    made = output_type(Shop)
    text = '{"_code": "c", "owner": "o", "doubled": 2, "pet": {"type": "cat", "lives": 9}}'
    value, problem = made.read(text)
    assert problem is None
    assert Shop("c", boss="o", doubled=2, pet=Cat("cat", 9)) == value
    assert isinstance(value, Shop)
    assert (4, [], 3) == (value.doubled, value.prices, value.count)
    for wrong, said in [
        (text.replace('"_code"', '"code"'), "$._code: is required"),
        (text.replace('"owner"', '"boss"'), "$.owner: is required"),
        (text.replace('"doubled"', '"count"'), "$.count: is not expected"),
        (text.replace('"doubled": 2', '"level": "high"'), "'level' must be in"),
        (text.replace('"cat"', '"cow"'), "$.pet"),
    ]:
        assert said in str(made.read(wrong)[1])


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (bool, '"false"', "$: "),
        (int, "1.9", "$: "),
        (int, "true", "$: "),
        (str | int, "low", "is not valid JSON"),
        (Level, "", "$: is empty"),
        (Level, '```json\n"low"\n```', "without a fence"),
        (list[int], '[1, "2", 3, 4.5]', "$[1]: "),
        (list[int], '[1, "2", 3, 4.5]', "$[3]: "),
        (dict[str, Leaf], '{"a": {"num": 1}, "b": {"num": -1}}', "$.b.num"),
        (dict[str, int], '{"a": 1, "a": 1}', "$.a: is given more than once"),
        (Leaf, '{"number": 1}', "$.num: is required"),
        (Leaf, '{"num": 1, "more": 1}', "$.more"),
        (Leaf, '{"num": 13}', "$.num: Value error, 13 is unlucky"),
        (Leaf, '{"num": 14}', "14 is worse"),
        (list[Leaf], '[{"num": 13}]', "$[0].num"),
        (Tree, '{"leaf": {"num": 1}, "others": [{"leaf": {"num": 13}}]}', "$.others[0].leaf.num"),
        (Picky, '{"n": 1}', "one"),
        (Picky, '{"n": 2}', "two"),
        (Picky, '{"n": 3}', "Grumpy"),
        (list[Picky], '[{"n": 0}, {"n": 4}, {"n": 2}]', "$[1]: many; $[2]: "),
        (Options, '{"loud": true}', "$.name: is required"),
        (More, '{"name": "a", "size": 1, "due": "2023-02-29"}', "$.due"),
        (Cat | Dog, '{"type": "cow", "lives": 1}', '"cow"'),
        (Node, '{"value": 1, "next": {"value": 2.5}}', "$.next.value"),
        (Annotated[str, annotated_types.Len(2, 3)], '"a"', "shorter"),
        (set[int], "[1, 1]", "unique"),
    ],
)
def test_strict_as_arguments(kind: object, text: str, said: str) -> None:
    """Nothing is coerced or guessed, whatever the type; all problems have a path, and validators of any kind count."""
    value, problem = output_type(kind).read(text)
    assert value is None
    assert said in str(problem)


@given(st.data())
def test_what_is_written_is_read(data: st.DataObject) -> None:
    """For any type and any value of it: its JSON is read as an equal value, which is of the type."""
    kind, values = data.draw(kinds())
    made = output_type(kind) if kind is not str else TEXT
    value = data.draw(values)
    text = value if kind is str else json.dumps(to_json(value))
    read, problem = made.read(text)
    assert problem is None
    assert made.problem(read) is None
    assert made.problem(value) is None
    assert value == read
    assert kind is float or type(value) is type(read)


def test_a_pydantic_value_comes_back_from_the_codec() -> None:
    """It is written by the names it reads: aliases, and nothing that it computes."""
    tree = Tree(leaf=Leaf(num=1, when=date(2024, 2, 29)), others=[Tree(leaf=Leaf(num=2))])
    written = to_json(tree)
    assert {"num": 1, "when": "2024-02-29"} == thaw(written)["leaf"]  # type: ignore[index]  # an object
    assert tree == from_json(written, Tree)


NEVER = {"?": {"?": {"?": {"?": {"?": None}}}}}  # deeper than any drawn type


def places(value: object, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of each value inside a JSON value, itself first."""
    yield at
    if isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(one, (*at, key))


def put(value: Any, at: tuple[str | int, ...], new: object) -> Any:  # Any: JSON
    """Return a JSON value with another one at a path."""
    if not at:
        return new
    made: Any = dict(value) if isinstance(value, dict) else list(value)  # as above
    made[at[0]] = put(value[at[0]], at[1:], new)
    return made


@given(st.data())
def test_near_misses_are_refused(data: st.DataObject) -> None:
    """One part that cannot be of the type, anywhere in a good text: a problem with a path, never an exception."""
    kind, values = data.draw(kinds().filter(lambda one: one[0] is not str))
    document = thaw(to_json(data.draw(values)))
    at = data.draw(st.sampled_from(list(places(document))))
    value, problem = output_type(kind).read(json.dumps(put(document, at, NEVER)))
    assert value is None
    assert str(problem).startswith("$")


@given(st.sampled_from([Report, Shop, Tree, Cat | Dog, list[Row], float]), st.text(max_size=40))
def test_reading_never_raises(kind: object, text: str) -> None:
    """Any text is a value or has a problem."""
    value, problem = output_type(kind).read(text)
    assert (value is None) or problem is None


# --- what is no output type


class Bare(Generic[T]):
    """A class that nothing says anything of."""


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("str", "must be a type"),
        (None, "must be a type"),
        (3, "must be a type"),
        ([int], "must be a type"),
        (dict, "says nothing of what is in it"),
        (list, "says nothing of what is in it"),
        (Any, "says nothing of what is in it"),
        (object, "says nothing of what is in it"),
        (complex, "complex has a part without JSON Schema"),
        (Bare, "Bare has a part without JSON Schema"),
        (Pair, "Missing type for generic argument"),
        (dict[int, int], "keys that are no strings"),
        (list["Nowhere"], "Nowhere"),  # type: ignore[name-defined]  # noqa: F821  # the point
        (Annotated[int, pydantic.AfterValidator(abs)], "AfterValidator"),
        (Annotated[date, annotated_types.Ge(date(2024, 1, 1))], "ge is not done on JSON string"),
    ],
)
def test_what_is_no_output_type(kind: object, said: str) -> None:
    """A TypeError when the agent is built, that says which type and why."""
    with pytest.raises(TypeError, match=r"output_type") as caught:
        output_type(kind)
    assert said in str(caught.value)


# --- whole runs


def answering(*texts: object, kind: Any, **keywords: Any) -> Agent[object]:  # Any: a type, arguments of Agent
    """Return an agent with an output type whose model says these texts."""
    script = ScriptedModel([text if isinstance(text, AssistantMessage) else str(text) for text in texts])
    made: Agent[object] = Agent("a", script, output_type=kind, **keywords)
    return made


def passed(state: RunState) -> RunState:
    """Put a new output in, which is equal."""
    return evolve(state, output=deepcopy(state.output))


KINDS: list[tuple[object, str, object]] = [
    (int, "3", True),
    (Level, '"low"', "low"),
    (list[int], "[1]", [1, "2"]),
    (Cat | Dog, '{"type": "dog", "lives": 1}', Dog("dog", True)),
    (More, '{"name": "a", "size": 1, "due": "2024-02-29"}', {"name": "a"}),
    (Leaf, '{"num": 3}', Leaf(num=3).model_copy(update={"number": "3"})),
    (Tree, '{"leaf": {"num": 3}}', Leaf(num=3)),
    (Row, '{"due": "2024-02-29"}', Row(cells=["1"])),  # type: ignore[list-item]  # the point
    (dict[str, Decimal], '{"a": "1.5"}', {"a": 1.5}),
    (tuple[Place, ...], '[[1, "a"]]', [Place(1, "a")]),
    (int | None, "null", "null"),
]


@pytest.mark.parametrize(("kind", "text", "wrong"), KINDS)
async def test_a_run_with_each_kind(kind: object, text: str, wrong: object) -> None:
    """Asked again with the problem, read, passed by a hook, written into the log; a wrong one is rejected."""
    result = await answering("{{", text, kind=kind, capabilities=[hook.after_run(passed)]).run("go")
    expected, _ = output_type(kind).read(text)
    assert ("completed", expected, 2) == (result.status, result.output, result.requests)
    (ended,) = [record for record in result.log if record.kind == "run_ended"]
    assert to_json(expected) == ended.facts["output"]
    assert verify(result.log).complete
    puts = hook.after_run(lambda state: evolve(state, output=wrong))
    with pytest.raises(HookError, match="output must satisfy the output type"):
        await answering(text, kind=kind, capabilities=[puts]).run("go")


async def test_a_refusal_is_no_output() -> None:
    """It is sent back as often as is forgiven, though its text may be of the type; the error has its words."""
    refusal = AssistantMessage('"I will not"', finish_reason="refusal")
    result = await answering(refusal, '"ok"', kind=str | int).run("go")
    assert "ok" == result.output
    asked = result.messages[-2]
    assert isinstance(asked, UserMessage)
    assert "it is a refusal" in str(asked.content)
    with pytest.raises(OutputError, match="I will not"):
        await answering(refusal, refusal, kind=str | int).run("go")
    # Of a text run it is the output, told by its finish reason.
    assert '"I will not"' == (await Agent("a", ScriptedModel([refusal])).run("go")).output


@pytest.mark.parametrize("reason", ["length", "content_filter", "incomplete"])
async def test_a_cut_answer_is_an_error(reason: FinishReason) -> None:
    """It is not asked for again, nor taken, though what came may be of the type."""
    with pytest.raises(ModelRunError) as caught:
        await answering(AssistantMessage("12", finish_reason=reason), kind=int).run("go")
    assert isinstance(caught.value.reason, IncompleteResponse)
    assert caught.value.partial is not None
    assert caught.value.partial.output is None


async def test_an_empty_answer_is_asked_for_again() -> None:
    """No text is no JSON."""
    result = await answering("", "3", kind=int).run("go")
    assert (3, 1) == (result.output, result.state.output_retries_used)
    assert "is empty" in str(result.messages[-2])


async def test_null_may_be_the_output() -> None:
    """Where None is of the type, null completes the run: what a stopped run has as output, but not as status."""
    result = await answering("null", kind=Row | None).run("go")
    assert ("completed", None) == (result.status, result.output)


async def test_unions_are_typed() -> None:
    """A type checker knows the output of any type form: each line below is checked by mypy."""
    one: Agent[int | str] = Agent("a", ScriptedModel(["3"]), output_type=int | str)
    assert_type(one, Agent[int | str])
    assert_type(Agent("a", "test", output_type=Cat | Dog), Agent[Cat | Dog])
    assert_type(Agent("a", "test", output_type=Annotated[int, msgspec.Meta(ge=0)]), Agent[int])
    assert_type(Agent("a", "test", output_type=Literal["a", "b"]), Agent[Literal["a", "b"]])
    assert_type(Agent("a", "test", output_type=list[Options]), Agent[list[Options]])
    assert_type(Agent("a", "test", output_type=Leaf), Agent[Leaf])
    assert_type(Agent("a", "test"), Agent[str])
    output = (await one.run("go")).output
    assert_type(output, int | str)
    assert 3 == output
