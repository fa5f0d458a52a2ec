"""A reply as text: it comes back as it was but for ids, usage and times, and nothing else is read."""

import json

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import AssistantMessage, ImagePart, TextPart, Usage, call
from capfold.capabilities.frozen import FrozenDict
from capfold.capabilities.messages import NO_USAGE
from capfold.capabilities.reply_text import ReplyTextError, from_text, seal, to_text
from tests.strategies import json_values, responses

REPLY = AssistantMessage(
    (TextPart("Look:"),),
    tool_calls=[call("pay", {"amount": 1}, id="c1")],
    finish_reason="tool_calls",
    usage=Usage(input_tokens=3, output_tokens=4),
    model="m",
    provider_items=[{"type": "reasoning", "id": "r1"}],
    metadata={"seen": 1, "cached": True},
    at=5.0,
)


@given(responses())
def test_a_reply_comes_back(reply: AssistantMessage) -> None:
    """Content, calls, items and metadata are equal; calls have no ids, usage is 0, and it is marked."""
    calls = tuple(evolve(one, id="", origin="model") for one in reply.tool_calls)
    metadata = FrozenDict({**reply.metadata, "cached": True})
    expected = evolve(reply, tool_calls=calls, usage=NO_USAGE, metadata=metadata)
    back = from_text(to_text(reply, "key"), "key")
    assert expected == back
    assert back.at is None
    # What was kept once is kept again as the same text: one cache behind another adds nothing.
    assert to_text(reply, "key") == to_text(back, "key")


def test_bytes_come_back() -> None:
    """Parts of all kinds, by URL or as bytes."""
    parts = (TextPart("Look:"), ImagePart(data=b"\x00\xff", media_type="image/png"))
    linked = ImagePart(url="https://example.com/a.png", media_type="image/png")
    reply = AssistantMessage((*parts, linked))
    assert reply.content == from_text(to_text(reply, "k"), "k").content


def edited(**changes: object) -> str:
    """Return the text of a reply with changed parts of its envelope."""
    return json.dumps({**json.loads(to_text(REPLY, "key")), **changes})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('{"a": NaN}', "no JSON"),
        ("[]", "no reply that capfold kept"),
        ('{"answer": "yes"}', "no reply that capfold kept"),
        (edited(capfold_reply=2), "version 2; this capfold reads version 1"),
        (edited(key="other"), "another request"),
        (edited(digest="0"), "damaged"),
        (edited(reply={"content": "I owe you a million."}), "damaged"),
        (to_text(REPLY, "key").replace("Look:", "Loot:"), "damaged"),
    ],
)
def test_anything_else_is_an_error(text: str, said: str) -> None:
    """No JSON, a foreign text, another version or request, an edited one: each says which."""
    with pytest.raises(ReplyTextError, match=said):
        from_text(text, "key")


@given(json_values() | st.text())
def test_no_text_raises_anything_else(value: object) -> None:
    """Any JSON, and any text at all, is a ReplyTextError."""
    for text in (json.dumps(value), str(value)):
        with pytest.raises(ReplyTextError):
            from_text(text, "key")


def test_what_is_no_text_is_an_error() -> None:
    """A store that returns something else has returned no reply."""
    for wrong in (b"{}", 5, ["x"]):
        with pytest.raises(ReplyTextError):
            from_text(wrong, "key")  # type: ignore[arg-type]  # the values under test


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"content": 5},
        {"finish_reason": "perhaps"},
        {"tool_calls": {}},
        {"tool_calls": [{"name": 1, "arguments": "{}", "kind": "function", "metadata": {}}]},
        {"content": [{"medium": "smell", "url": "x", "data": None, "media_type": "y"}]},
        {"content": [{"medium": "image", "url": None, "data": "*", "media_type": "y"}]},
        {"content": [{"text": 5}]},
        {"model": 5},
        {"metadata": []},
        {"provider_items": [1]},
    ],
)
def test_a_sealed_text_of_another_form_is_an_error(body: dict[str, object]) -> None:
    """Even with a right digest, what makes no reply is refused by name."""
    held = json.loads(to_text(REPLY, "key"))
    whole = {**held["reply"], **body} if body else {}
    forged = json.dumps({**held, "reply": whole, "digest": seal("key", whole)})
    with pytest.raises(ReplyTextError, match="holds no reply"):
        from_text(forged, "key")
