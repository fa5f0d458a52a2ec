"""How an output is asked for and found again on OpenAI's wires; strict mode where the schema allows it."""

from typing import Any, Literal

import pytest

from capfold.capabilities.frozen import Json, freeze_mapping
from capfold.capabilities.messages import AssistantMessage, ToolCall
from capfold.runtime.models import ModelProfile
from capfold.runtime.openai_output import OUTPUT_TOOL, OutputForm, output_form, read_output
from capfold.runtime.openai_strict import is_strict, with_types
from capfold.runtime.output import output_type
from tests.runtime.output_kinds import Cat, Dog, Leaf, Level, Node, Pair, Row

NATIVE = ModelProfile(json_schema=True)


def form(kind: object, profile: ModelProfile = NATIVE) -> OutputForm:
    """Return how an output of a type is asked for."""
    made = output_form(output_type(kind).spec, profile, ())
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("kind", "boxed", "strict"),
    [
        (Cat, False, True),
        (Pair[Level], False, True),
        (Cat | Dog, True, True),
        (int, True, True),
        (list[Literal["a", "b"]], True, True),
        (Node, False, False),  # `next` has a default
        (Row, False, False),
        (Leaf, False, False),
        (tuple[int, str], True, False),
        (dict[str, int], False, False),
    ],
)
def test_strict_mode(kind: object, boxed: bool, strict: bool) -> None:  # noqa: FBT001  # parameters of the test
    """The root is an object, in a box where the type is none; strict only where each key must be there."""
    made = form(kind)
    named: Any = made.response_format["json_schema"]  # JSON
    assert boxed is made.boxed
    assert strict is named.get("strict", False)
    assert {"type": "json_schema", **named} == made.text_format


def test_texts_have_their_type_said() -> None:
    """Strict mode wants a type where a list of texts would do."""
    schema = {"type": "object", "properties": {"a": {"anyOf": [{"enum": ["x"]}, {"enum": [1]}]}}}
    assert {"anyOf": [{"type": "string", "enum": ["x"]}, {"enum": [1]}]} == with_types(schema)["properties"][
        "a"
    ]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "string", "minLength": 1},
        {"type": "string", "format": "decimal"},
        {"type": "array"},
        {"type": ["string", "null"]},
        {"$ref": "#/$defs/A", "default": None},
        {"type": "object", "properties": {}, "required": []},
        {"enum": [1]},
        {},
        True,
    ],
)
def test_what_strict_mode_does_not_know(part: Json) -> None:
    """One word that the mode may not know, anywhere, and it is not asked for: the request would be refused."""
    root = {"type": "object", "properties": {"a": part}, "required": ["a"], "additionalProperties": False}
    assert not is_strict(root)
    good = {**root, "properties": {"a": {"type": "string", "format": "date"}}}
    assert is_strict(good)
    assert not is_strict({**good, "$defs": {"A": part}})


@pytest.mark.parametrize("profile", [NATIVE, ModelProfile()])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"value": 1.0}', "1.0"),
        ('{"value": [1, {"é": "\\u00e9"}]}', '[1, {"é": "é"}]'),
        ('{"value": {"a": 1, "a": 2}}', None),
        ('{"value": 1, "value": 2}', None),
        ('{"value": NaN}', None),
        ('{"value": 1', None),
        ('{"value": 1, "more": 2}', None),
        ("3", None),
    ],
)
def test_the_box_is_opened_strictly(profile: ModelProfile, text: str, expected: str | None) -> None:
    """What is in the box comes out as it was; a key given twice does not vanish on the way to the check."""
    made = form(list[int], profile)
    sent = (
        AssistantMessage(tool_calls=(ToolCall("c", OUTPUT_TOOL, text),), finish_reason="tool_calls")
        if made.as_tool
        else AssistantMessage(text)
    )
    read = read_output(sent, made)
    assert (text if expected is None else expected, "stop") == (read.content, read.finish_reason)


def test_what_stands_around_an_output() -> None:
    """Further output calls and words beside them are no output; the metadata have them."""
    calls = tuple(ToolCall(f"c{n}", OUTPUT_TOOL, f'{{"value": {n}}}') for n in range(2))
    sent = AssistantMessage("Here it is:", tool_calls=calls, finish_reason="tool_calls")
    read = read_output(sent, form(int, ModelProfile()))
    assert ("0", (), "stop") == (read.content, read.tool_calls, read.finish_reason)
    assert {"output_calls": 2, "beside_output": "Here it is:"} == read.metadata


def test_a_refusal_stays_as_it_is() -> None:
    """Whatever its words are."""
    refusal = AssistantMessage(
        '{"value": 1}', finish_reason="refusal", metadata=freeze_mapping({"a": 1}, "m")
    )
    assert refusal is read_output(refusal, form(int))
