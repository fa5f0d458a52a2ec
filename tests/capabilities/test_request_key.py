"""The key of a request: what a model is told makes it, and nothing else does."""

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    RunState,
    SystemMessage,
    TextPart,
    Tool,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from capfold.capabilities.frozen import FrozenDict
from capfold.capabilities.request_key import request_key
from capfold.capabilities.state import OutputSpec
from capfold.runtime import FunctionModel, ModelRequest, OpenAIModel, ScriptedModel
from tests.strategies import histories

TOOL = Tool("pay", "Pay.", {"type": "object"})
PNG = ImagePart(data=b"1", media_type="image/png")
BASE = RunState(
    model=ScriptedModel([], name="m"),
    messages=(
        UserMessage("go"),
        AssistantMessage("", tool_calls=[ToolCall("c1", "pay")]),
        ToolMessage("c1", "pay", "x"),
    ),
    settings={"temperature": 0},
    instructions="Be brief.",
    tools=(TOOL,),
    context={"tenant": "a", "user": 1},
)


def says(request: ModelRequest) -> str:
    """Answer."""
    return "yes"


def spoken(*messages: Message) -> RunState:
    """Return the state with other messages."""
    return evolve(BASE, messages=messages)


@pytest.mark.parametrize(
    "other",
    [
        evolve(BASE, model=ScriptedModel([], name="n")),
        evolve(BASE, model=FunctionModel(says, name="m")),
        evolve(BASE, model=None),
        evolve(BASE, settings={"temperature": 0.0}),
        evolve(BASE, settings={}),
        evolve(BASE, instructions=""),
        evolve(BASE, tools=()),
        evolve(BASE, tools=(evolve(TOOL, description="Pay now."),)),
        evolve(BASE, tools=(TOOL, evolve(TOOL, name="b"))),
        evolve(BASE, output_spec=OutputSpec("Ticket", FrozenDict({"type": "object"}))),
        spoken(UserMessage("go")),
        spoken(SystemMessage("go")),
        spoken(UserMessage("go "), *BASE.messages[1:]),
        spoken(*BASE.messages[:2], ToolMessage("c1", "pay", "y")),
        spoken(*BASE.messages[:2], ToolMessage("c1", "pay", "x", status="failed")),
        BASE.project(BASE.messages[:1]),
    ],
)
def test_another_request_has_another_key(other: RunState) -> None:
    """Model, settings, instructions, tools, output type and each message tell requests apart."""
    assert request_key(BASE) != request_key(other)


def test_parts_tell_apart() -> None:
    """Text and a text part, kinds of parts, and bytes are different on the wire, or may be."""
    contents = [
        "a",
        (TextPart("a"),),
        PNG,
        evolve(PNG, data=b"2"),
        FilePart(data=b"1", media_type="image/png"),
    ]
    keys = [request_key(spoken(UserMessage(content))) for content in contents]
    assert len(contents) == len(set(keys))


def renamed(message: Message) -> Message:
    """Return a message with other ids, times, usage and origin."""
    match message:
        case AssistantMessage():
            calls = [evolve(one, id=f"x{one.id}", origin="somebody") for one in message.tool_calls]
            return evolve(message, tool_calls=calls, usage=Usage(), model="n", at=7.0)
        case ToolMessage():
            return evolve(message, call_id=f"x{message.call_id}", at=8.0)
        case _:
            return evolve(message, at=9.0)


@given(histories())
def test_ids_times_and_usage_are_no_part(messages: tuple[Message, ...]) -> None:
    """Equal but for what the provider made up, and what nobody sends: one key, whatever the run is called."""
    there = evolve(BASE, messages=messages)
    again = evolve(
        BASE, messages=tuple(map(renamed, messages)), run_id="r2", run_step=5, requests=9, agent="b"
    )
    assert request_key(there) == request_key(again)


@given(histories(), st.data())
def test_a_message_less_is_another_request(messages: tuple[Message, ...], data: st.DataObject) -> None:
    """No message can go without a trace."""
    if not messages:
        return
    gone = data.draw(st.integers(0, len(messages) - 1))
    rest = messages[:gone] + messages[gone + 1 :]
    assert request_key(evolve(BASE, messages=messages)) != request_key(evolve(BASE, messages=rest))


def test_a_reply_from_the_cache_makes_no_other_request() -> None:
    """The mark of a kept reply is no part of what is sent."""
    marked = AssistantMessage("x", metadata={"a": 1, "cached": True})
    plain = AssistantMessage("x", metadata={"a": 1})
    assert request_key(spoken(UserMessage("go"), marked)) == request_key(spoken(UserMessage("go"), plain))


def test_context_tells_apart_where_it_is_said_to() -> None:
    """Two tenants share replies without `vary`, and do not with it; a missing key is an error, never a hit."""
    other = evolve(BASE, context={"tenant": "b", "user": 1})
    assert request_key(BASE) == request_key(other)
    assert request_key(BASE, ["tenant"]) != request_key(other, ["tenant"])
    assert request_key(BASE, ["user"]) == request_key(other, ["user"])
    none = evolve(BASE, context={"tenant": None, "user": 1})
    assert request_key(none, ["tenant"]) != request_key(BASE, ["tenant"])
    with pytest.raises(LookupError, match=r"no 'team'.*tenant, user"):
        request_key(BASE, ["team"])


def test_two_places_of_one_model_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same name behind another URL, or with settings of its own, is another model; made anew it is the same."""
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    first, again = (evolve(BASE, model=OpenAIModel("m", base_url="http://127.0.0.1:1/v1")) for _ in range(2))
    second = evolve(BASE, model=OpenAIModel("m", base_url="http://127.0.0.1:2/v1"))
    third = evolve(BASE, model=OpenAIModel("m", base_url="http://127.0.0.1:1/v1", settings={"seed": 1}))
    assert request_key(first) == request_key(again)
    assert 3 == len({request_key(state) for state in (first, second, third)})
