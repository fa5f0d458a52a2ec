"""Records to the JSON of agent-hooks and back: what was not touched is the identical record. Needs no SDK."""

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    call,
)
from capfold.runtime.agent_hooks_wire import (
    read_calls,
    read_content,
    read_messages,
    read_response,
    read_result,
    written_calls,
    written_content,
    written_message,
    written_response,
    written_result,
)
from capfold.runtime.laws import histories, responses


def wire(messages: tuple[Message, ...]) -> list[dict[str, object]]:
    """Return messages as the interceptors see them."""
    return [written_message(message) for message in messages]


@settings(max_examples=50)
@given(histories())
def test_untouched_messages_are_the_identical_ones(history: tuple[Message, ...]) -> None:
    """In their order, equal ones too."""
    after = read_messages(wire(history), history)
    assert len(after) == len(history)
    assert all(new is old for new, old in zip(after, history, strict=True))


@settings(max_examples=50)
@given(histories(), st.data())
def test_what_is_dropped_or_changed_is_that_alone(history: tuple[Message, ...], data: st.DataObject) -> None:
    """The other messages stay the identical ones; a changed one keeps all but its content."""
    if not history:
        return
    place = data.draw(st.integers(0, len(history) - 1))
    shown = wire(history)
    assert (*history[:place], *history[place + 1 :]) == read_messages(
        shown[:place] + shown[place + 1 :], history
    )
    shown[place] = {**shown[place], "content": "[changed by an interceptor]"}
    after = read_messages(shown, history)
    assert evolve(history[place], content="[changed by an interceptor]") == after[place]
    others = [new is old for i, (new, old) in enumerate(zip(after, history, strict=True)) if i != place]
    assert all(others)


@settings(max_examples=50)
@given(responses())
def test_an_untouched_response_is_an_equal_one(response: AssistantMessage) -> None:
    """Calls are the identical ones, also those whose arguments are no JSON."""
    after = read_response(written_response(response), response)
    assert response == after
    assert all(new is old for new, old in zip(after.tool_calls, response.tool_calls, strict=True))


def test_an_edited_call_gets_an_id_that_nobody_has() -> None:
    """An id stands for one call with its arguments; an added call without an id is given one by the runtime."""
    before = (call("pay", {"n": 1}, id="a"), call("pay", {"n": 1}, id="a.1"))
    shown = written_calls(before)
    after = read_calls([{**shown[0], "args": {"n": 2}}, shown[1], {"name": "look", "args": {}}], before)
    assert [("a.2", '{"n": 2}'), ("a.1", '{"n": 1}'), ("", "{}")] == [
        (one.id, one.arguments) for one in after
    ]
    assert after[1] is before[1]
    assert {"invalid_json": "{"} == written_calls([ToolCall("x", "pay", "{")])[0]["args"]


def test_results_are_shown_as_what_they_are() -> None:
    """Objects and arrays as such; numbers, broken JSON and other texts as text; back again as text."""
    assert {"n": [1]} == written_result('{"n": [1]}')
    assert ["[1", "4", '{"n": NaN}', "[]x"] == [
        written_result(text) for text in ("[1", "4", '{"n": NaN}', "[]x")
    ]
    assert ('{"n": 2}', "4", "plain") == tuple(read_result(value, "x") for value in ({"n": 2}, 4, "plain"))


def test_media_may_be_kept_or_dropped() -> None:
    """A part is kept by what is shown of it; of two that look alike, each once."""
    one, two = ImagePart(data=b"1", media_type="image/png"), ImagePart(data=b"2", media_type="image/png")
    far = FilePart(url="https://example.org/a.pdf", media_type="application/pdf")
    before = (TextPart("a"), one, two, far)
    shown = written_content(before)
    assert isinstance(shown, list)
    assert before == read_content(shown, before, "content")
    assert (one, TextPart("b")) == read_content([shown[1], {"type": "text", "text": "b"}], before, "content")
    with pytest.raises(ValueError, match=r"content\[2\] must be a text part, or a part that was there"):
        read_content([shown[1]] * 3, before, "content")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("text", "messages must be a list, not str"),
        (["text"], r"messages\[0\] must be an object, not str"),
        ([{"role": "tool", "content": "x"}], r"messages\[0\] has the role 'tool'"),
        ([{"role": "assistant", "content": "", "tool_calls": [{}]}], "an assistant without calls"),
        ([{"role": "system", "content": 1}], "content of a system message must be text, not int"),
        ([{"role": "user", "content": 1}], r"messages\[0\].content must be text or a list of parts, not int"),
    ],
)
def test_what_is_no_message_is_said(made: object, said: str) -> None:
    """The error says where, and what would have been right."""
    with pytest.raises(ValueError, match=said):
        read_messages(made, [UserMessage("a"), ToolMessage("c", "t", "x")])


def test_messages_may_be_added() -> None:
    """System and user messages, and words of an assistant."""
    added = [{"role": role, "content": "x"} for role in ("system", "user", "assistant")]
    assert (SystemMessage("x"), UserMessage("x"), AssistantMessage("x")) == read_messages(added, [])


@pytest.mark.parametrize("made", [[1], [{"args": {}}], [{"name": "pay", "args": 1}], "calls"])
def test_what_is_no_call_is_said(made: object) -> None:
    """As for messages."""
    with pytest.raises(ValueError, match="tool_calls"):
        read_calls(made, [])
