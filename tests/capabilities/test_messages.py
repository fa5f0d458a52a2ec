"""Messages: shapes, and what is refused when one is made."""

import math
from collections.abc import Callable

import pytest
from attrs import evolve
from attrs.exceptions import FrozenInstanceError
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    as_messages,
    call,
    content_text,
)
from tests.strategies import messages, usages


@given(messages())
def test_messages_are_frozen_and_hashable(message: Message) -> None:
    """No attribute of a message can be set, and equal messages have equal hashes."""
    with pytest.raises(FrozenInstanceError):
        message.at = 1.0  # type: ignore[misc]  # the write under test
    assert hash(message) == hash(evolve(message))


@given(messages(), st.floats(0, 1e9))
def test_time_is_not_compared(message: Message, at: float) -> None:
    """`at` is no part of equality or hash."""
    later = evolve(message, at=at)
    assert message == later
    assert hash(message) == hash(later)


WRONG: list[tuple[type[Exception], Callable[[], object]]] = [
    (TypeError, lambda: TextPart(1)),  # type: ignore[arg-type]  # the value under test
    (TypeError, lambda: UserMessage(5)),
    (TypeError, lambda: UserMessage([TextPart("a"), "b"])),
    (TypeError, lambda: SystemMessage(None)),  # type: ignore[arg-type]  # the value under test
    (TypeError, lambda: ToolCall("1", "pay", {"a": 1})),  # type: ignore[arg-type]  # the value under test
    (TypeError, lambda: AssistantMessage(tool_calls=[{"name": "pay"}])),  # type: ignore[list-item]  # as above
    (TypeError, lambda: AssistantMessage(usage={"input_tokens": 1})),  # type: ignore[arg-type]  # as above
    (TypeError, lambda: AssistantMessage(provider_items={"a": 1})),
    (TypeError, lambda: AssistantMessage(provider_items=["text"])),
    (ValueError, lambda: AssistantMessage(finish_reason="done")),  # type: ignore[arg-type]  # as above
    (ValueError, lambda: ToolMessage("1", "pay", "", status="ok")),  # type: ignore[arg-type]  # as above
    (TypeError, lambda: UserMessage("a", at="now")),  # type: ignore[arg-type]  # the value under test
    (ValueError, lambda: UserMessage("a", at=math.nan)),
    (ValueError, lambda: ImagePart(media_type="image/png")),
    (ValueError, lambda: ImagePart(url="u", data=b"d", media_type="image/png")),
    (TypeError, lambda: FilePart(data="text", media_type="text/plain")),  # type: ignore[arg-type]  # as above
    (ValueError, lambda: Usage(input_tokens=-1)),
    (TypeError, lambda: Usage(input_tokens=True)),
    (ValueError, lambda: AssistantMessage(metadata={"x": math.inf})),
]


@pytest.mark.parametrize(("error", "make"), WRONG)
def test_wrong_shapes_are_refused_at_construction(error: type[Exception], make: Callable[[], object]) -> None:
    """A wrong type is a TypeError, a wrong value a ValueError, at once."""
    with pytest.raises(error):
        make()


def test_contents_become_tuples() -> None:
    """A list of parts or a single part is a tuple of parts; text stays text."""
    part = TextPart("a")
    assert (part,) == UserMessage([part]).content
    assert (part,) == UserMessage(part).content
    assert UserMessage("a").content == "a"
    assert content_text((part, ImagePart(url="u", media_type="image/png"), TextPart("b"))) == "ab"


def test_arguments_are_kept_as_sent() -> None:
    """The text of a call's arguments is never rewritten, valid JSON or not."""
    sent = '{"a" : 1,, }'
    assert sent == ToolCall("1", "pay", sent).arguments


def test_call_writes_plain_arguments() -> None:
    """`call` makes the JSON text; what JSON cannot carry is refused with its path."""
    made = call("pay", {"to": "Zoë", "n": [1]})
    assert ToolCall("", "pay", '{"to": "Zoë", "n": [1]}') == made
    with pytest.raises(ValueError, match=r"\$\.n"):
        call("pay", {"n": {1}})


@given(usages(), usages())
def test_a_sum_with_an_unknown_is_unknown(a: Usage, b: Usage) -> None:
    """Tokens are never guessed: None plus anything is None, and order does not matter."""
    assert a + b == b + a
    known = a.input_tokens is not None and b.input_tokens is not None
    assert known == ((a + b).input_tokens is not None)
    assert (a.input_tokens is None or a.output_tokens is None) == (a.total is None)


def test_as_messages_names_the_first_that_is_none() -> None:
    """The error gives the place; a single message or a text is no sequence of messages."""
    message = UserMessage("a")
    with pytest.raises(TypeError, match=r"append\[1\]"):
        as_messages([message, {"role": "user"}], "append")
    for single in (message, "text", 5):
        with pytest.raises(TypeError, match="sequence of messages"):
            as_messages(single)  # type: ignore[arg-type]  # the value under test
    history = (message,)
    assert as_messages(history) is history


def test_a_subclass_of_a_message_is_none() -> None:
    """The codec would lose what a subclass adds, so it is refused where it enters."""

    class Mine(UserMessage):
        pass

    with pytest.raises(TypeError, match="Mine"):
        as_messages([Mine("a")])
