"""What an MCP server returns becomes content that says all of it, once, and in its order."""

import json
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import AudioPart, FilePart, ImagePart, TextPart, call
from capfold.capabilities.messages import Content, content_text
from capfold.runtime.mcp import mcp_toolkit
from capfold.runtime.mcp_content import MAX_ERROR, content_of, error_of
from tests.runtime.desk import contents, make, results
from tests.runtime.mcp_desk import PIXEL, SOUND, desk, paged, plain


def result(*texts: str, **fields: Any) -> types.CallToolResult:  # Any: whatever else a result has
    """Return a result of texts."""
    return types.CallToolResult(content=[types.TextContent(text=text) for text in texts], **fields)


async def test_each_kind_of_block_is_a_part() -> None:
    """Images, sounds and files are kept as bytes; links and the names of resources are text for the model."""
    async with mcp_toolkit(desk(), name="desk") as kit:
        ran = await make([call("everything"), call("lists"), "done"], tools=[kit]).run("go")
    parts, words = contents(ran.messages)
    assert (
        TextPart("a text"),
        ImagePart(data=PIXEL, media_type="image/png"),
        AudioPart(data=SOUND, media_type="audio/wav"),
        TextPart('{"name":"a link","uri":"desk://link","mimeType":"text/plain","type":"resource_link"}'),
        TextPart("Resource desk://text (text/plain):\nread me"),
        TextPart("Resource desk://blob (application/pdf):"),
        FilePart(data=b"%PDF", media_type="application/pdf"),
    ) == parts
    assert (TextPart("one"), TextPart("two")) == words


@pytest.mark.parametrize(
    ("given_result", "content"),
    [
        (result(), ""),
        (result("one"), "one"),
        (result("one", "two"), (TextPart("one"), TextPart("two"))),
        (result(structured_content={"a": 1}), '{"a": 1}'),
        (result('{ "a" : 1 }', structured_content={"a": 1}), '{ "a" : 1 }'),
        (result("3", structured_content={"result": 3}), "3"),
        (result("[3]", structured_content={"result": "[3]"}), "[3]"),
        (result("read me", structured_content={"content": "read me"}), "read me"),
        (result("x", structured_content={"content": [{"type": "text", "text": "x"}]}), "x"),
        (
            result("one", "two", structured_content={"result": ["one", "two"]}),
            (TextPart("one"), TextPart("two")),
        ),
        (result("1", "2", structured_content={"result": [1, 2]}), (TextPart("1"), TextPart("2"))),
        (
            result("a summary", structured_content={"rows": [1]}),
            (TextPart("a summary"), TextPart('{"rows": [1]}')),
        ),
        (result("two", "one", structured_content={"result": ["one"]}), "two+one"),
    ],
)
def test_structured_content_is_told_once(given_result: types.CallToolResult, content: object) -> None:
    """Most servers say it a second time as text; where they do not, it is added."""
    found = content_of(given_result)
    if content == "two+one":
        assert 'twoone{"result": ["one"]}' == content_text(found)
    else:
        assert content == found


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(json_values, st.lists(st.text(), max_size=3), st.booleans())
def test_nothing_that_is_structured_is_lost(value: Any, texts: list[str], said: bool) -> None:  # noqa: FBT001  # a drawn value
    """Whatever the texts are, the structured content can be read from the content: as a text or as the last one."""
    wrapped = {"result": value} if not isinstance(value, dict) else value
    said_texts = [*texts, json.dumps(value)] if said else texts
    content: Content = content_of(result(*said_texts, structured_content=wrapped))
    found = [content] if isinstance(content, str) else [p.text for p in content if isinstance(p, TextPart)]
    read = [_read(text) for text in found]
    inner = list(wrapped.values()) if len(wrapped) == 1 else []  # under one name: what stands there is enough
    told = (*read, *found, read, found)
    assert any(one in told for one in (value, wrapped, *inner))
    assert len(found) <= len(said_texts) + (not said)


def _read(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


async def test_an_image_that_is_none_is_unknown() -> None:
    """The tool ran, and its result cannot be used: nobody says that it did not run."""

    async def answer(name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        return types.CallToolResult(content=[types.ImageContent(data="!", mime_type="image/png")])

    async with mcp_toolkit(paged({None: ([plain("look")], None)}, answer), name="desk") as kit:
        ran = await make([call("look"), "done"], tools=[kit]).run("go")
    assert [("look", "unknown")] == results(ran.messages)
    assert "ValueError: an image in the result is not base64" == contents(ran.messages)[0]


def test_an_error_is_its_texts() -> None:
    """Lines of text; what is no text is named, what cannot be read is said, and the whole is bounded."""
    image = types.ImageContent(data="!", mime_type="image/png")
    sound = types.AudioContent(data="", mime_type="audio/wav")
    blocks: list[types.ContentBlock] = [
        types.TextContent(text="no"),
        types.TextContent(text="paper"),
        image,
        sound,
    ]
    error = types.CallToolResult(content=blocks, is_error=True)
    assert "no\npaper\n[an image in the result is not base64]\n[audio/wav]" == error_of(error)
    assert "the server says that the call failed, and not why" == error_of(result("  ", is_error=True))
    assert MAX_ERROR == len(error_of(result("x" * 10 * MAX_ERROR, is_error=True)))
