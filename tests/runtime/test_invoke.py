"""A tool's body: whatever it returns or raises becomes exactly one outcome."""

import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import anyio
import pytest
from attrs import frozen

from capfold.capabilities import (
    FilePart,
    ImagePart,
    ModelRetry,
    TextPart,
    Tool,
    ToolContext,
    ToolFailed,
    call,
)
from capfold.runtime import Limits
from capfold.runtime.invoke import MAX_MESSAGE, NotPortable, as_result, content_size, failure_of
from tests.runtime.desk import Trace, contents, make, results, slow


class Color(Enum):
    """A color."""

    RED = "red"


@frozen
class Price:
    """A price."""

    amount: Decimal
    at: datetime


async def outcome(run: Any, **options: Any) -> tuple[str, object]:  # Any: a function, and options of `tool`
    """Run one call of a tool and return status and content."""
    limits = options.pop("limits", Limits())
    result = await make([call("t", {"n": 1}), "done"], tools=[slow("t", run, **options)], limits=limits).run(
        "go"
    )
    ((_, status),) = results(result.messages)
    (content,) = contents(result.messages)
    return status, content


PART = TextPart("x")


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        ("", ""),
        (None, ""),
        (PART, (PART,)),
        ((PART, PART), (PART, PART)),
        ([PART], (PART,)),
        (ImagePart(url="u", media_type="image/png"), (ImagePart(url="u", media_type="image/png"),)),
        (3, "3"),
        (True, "true"),
        ([1, "ä"], '[1, "ä"]'),
        ({"a": None}, '{"a": null}'),
        ((), "[]"),
        (Color.RED, '"red"'),
        (Price(Decimal("1.10"), datetime(2024, 1, 2, tzinfo=UTC)), None),
    ],
    ids=repr,
)
async def test_what_a_tool_may_return(value: object, content: object) -> None:
    """Text, parts, None, and whatever the codec knows, as JSON text."""

    def run(n: int) -> Any:
        return value

    status, got = await outcome(run)
    assert "succeeded" == status
    if content is not None:
        assert content == got
    else:
        assert "1.10" in str(got)
        assert "2024-01-02" in str(got)


def _generator() -> Iterator[int]:
    yield 1


async def _async_generator() -> AsyncIterator[int]:
    yield 1


class Opaque:
    """Nothing the codec knows."""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"bytes", "bytes"),
        (bytearray(b"x"), "bytes"),
        (_generator(), "generator"),
        (_async_generator(), "async_generator"),
        (iter([1]), "list_iterator"),
        (float("nan"), "NaN"),
        ([1, float("inf")], "inf is not JSON"),
        (Opaque(), "Opaque"),
        ({1: "x"}, "key"),
        (lambda: 0, "function"),
    ],
    ids=[
        "bytes",
        "bytearray",
        "generator",
        "async generator",
        "iterator",
        "NaN",
        "inf",
        "object",
        "int key",
        "function",
    ],
)
async def test_what_a_tool_may_not_return(value: object, text: str) -> None:
    """The tool ran, so the outcome is unknown; the content says what it was."""

    def run(n: int) -> Any:
        return value

    status, content = await outcome(run)
    assert "unknown" == status
    assert "its result cannot be used" in str(content)
    assert text.lower() in str(content).lower()


async def test_forgotten_await_is_told() -> None:
    """A coroutine as a result is closed, and the sentence says what was forgotten."""

    async def later() -> str:
        return "x"

    def run(n: int) -> Any:
        return later()

    status, content = await outcome(run)
    assert "unknown" == status
    assert "forgot to await" in str(content)


async def test_circular_result() -> None:
    """A value that contains itself is no result, and no crash."""
    loop: list[object] = []
    loop.append(loop)
    status, _ = await outcome(_returning(loop))
    assert "unknown" == status


def _returning(value: object) -> Any:
    def run(n: int) -> Any:
        return value

    return run


@pytest.mark.parametrize("size", [10, 11])
async def test_result_has_a_size(size: int) -> None:
    """Up to the limit it passes; one byte more is refused with both numbers. Bytes, not characters."""
    status, content = await outcome(
        _returning("ä" * 5 + "x" * (size - 10)), limits=Limits(max_result_bytes=10)
    )
    if size == 10:
        assert ("succeeded", "ä" * 5) == (status, content)
    else:
        assert "unknown" == status
        assert "11 bytes; the limit is 10" in str(content)


def test_size_of_parts() -> None:
    """Data counts by its bytes, text by its encoding, a link by its length."""
    parts = (TextPart("ä"), FilePart(data=b"123", media_type="x/y"), FilePart(url="ab", media_type="x/y"))
    assert 2 + 3 + 2 == content_size(parts)
    assert 3 == content_size("\ud800")  # a lone surrogate is still text


@pytest.mark.parametrize(
    ("error", "declared", "status", "content"),
    [
        (ValueError("bad\nsecond"), None, "unknown", "ValueError: bad"),
        (ValueError(), None, "unknown", "ValueError"),
        (ValueError("bad"), "read_only", "failed", "ValueError: bad"),
        (ValueError("bad"), "idempotent", "failed", "ValueError: bad"),
        (ToolFailed("no account"), None, "failed", "no account"),
        (ModelRetry("use an id"), None, "failed", "use an id"),
        (TimeoutError("of its own"), None, "unknown", "TimeoutError: of its own"),
        (
            ExceptionGroup("many", [ValueError("x")]),
            None,
            "unknown",
            "ExceptionGroup: many (1 sub-exception)",
        ),
        (FileNotFoundError(2, "No such file", "/home/me/secret/data.csv"), None, "unknown", None),
    ],
    ids=lambda value: repr(value)[:40],
)
@pytest.mark.parametrize("color", ["sync", "async"])
async def test_exceptions(
    error: Exception, declared: str | None, status: str, content: str | None, color: str
) -> None:
    """Type and first line; never a traceback or a path."""

    def sync(n: int) -> str:
        raise error

    async def colored(n: int) -> str:
        raise error

    found, text = await outcome(
        sync if color == "sync" else colored, **({declared: True} if declared else {})
    )
    assert status == found
    if content is not None:
        assert content == text
    else:
        assert "data.csv" in str(text)
        assert "/home" not in str(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no such file: '/home/me/x/y.txt'", "no such file: 'y.txt'"),
        (r"cannot open C:\Users\me\file.txt", "cannot open file.txt"),
        ("see https://example.com/a/b", "see https://example.com/a/b"),
        ("1/2 and a/b", "1/2 and a/b"),
        ("x" * 1000, "x" * (MAX_MESSAGE - 1) + "…"),
        ("", ""),
    ],
)
def test_messages_are_bounded_and_pathless(text: str, expected: str) -> None:
    """Folders go, links and fractions stay, length is bounded."""
    failure = failure_of(RuntimeError(text))
    assert ("RuntimeError", expected) == (failure.type, failure.message)
    assert "Exception" in failure.bases


async def test_sync_tools_run_in_threads() -> None:
    """They do not hold up the loop: two of them meet at a barrier."""
    barrier = threading.Barrier(2, timeout=5)
    main = threading.get_ident()
    trace = Trace()

    def run(n: int) -> str:
        barrier.wait()
        trace.add(str(threading.get_ident() != main))
        return "met"

    agent = make([[call("t", {"n": 1}), call("t", {"n": 2})], "done"], tools=[slow("t", run)])
    assert ["met", "met"] == contents((await agent.run("go")).messages)
    assert ["True", "True"] == trace.lines


@pytest.mark.parametrize("where", ["tool", "limits"])
async def test_timeout(where: str) -> None:
    """The tool's own timeout or the run's; a sync body is abandoned in its thread."""
    release = threading.Event()

    def run(n: int) -> str:
        release.wait(5)
        return "late"

    options: dict[str, Any] = {"timeout": 0.02} if where == "tool" else {"limits": Limits(tool_timeout=0.02)}
    status, content = await outcome(run, **options)
    release.set()
    assert "unknown" == status
    assert "0.02 seconds" in str(content)


async def test_tool_s_own_timeout_wins() -> None:
    """A tool that needs longer than the run's default says so."""

    async def run(n: int) -> str:
        await anyio.sleep(0.05)
        return "ok"

    assert ("succeeded", "ok") == await outcome(run, timeout=5, limits=Limits(tool_timeout=0.01))


async def test_tool_without_a_function() -> None:
    """Only a port that runs it elsewhere could: known not to have run."""
    tool = Tool("t", "", {"type": "object", "properties": {"n": {"type": "integer"}}})
    result = await make([call("t", {"n": 1}), "done"], tools=[tool]).run("go")
    assert [("t", "failed")] == results(result.messages)
    assert "no function" in str(contents(result.messages)[0])


async def test_schema_tool_gets_plain_arguments() -> None:
    """A tool from a schema gets a plain dict of its own, and its context."""
    got: list[object] = []

    async def run(arguments: dict[str, object], context: ToolContext) -> object:
        got.append((type(arguments), arguments, context.call_id))
        arguments["n"] = 99
        return arguments

    tool = Tool.from_schema("t", "", {"type": "object", "properties": {"n": {"type": "integer"}}}, run)
    result = await make([call("t", {"n": 1}, id="c"), "done"], tools=[tool]).run("go")
    assert ['{"n": 99}'] == contents(result.messages)
    (record,) = [record for record in result.log if record.kind == "call_admitted"]
    assert {"n": 1} == record.facts["arguments"]


async def test_tool_cannot_change_its_arguments_in_the_log() -> None:
    """A list argument is the tool's own copy."""

    def run(n: int, items: list[int]) -> str:
        items.append(99)
        return str(items)

    result = await make([call("t", {"n": 1, "items": [1]}), "done"], tools=[slow("t", run)]).run("go")
    assert ["[1, 99]"] == contents(result.messages)
    (record,) = [record for record in result.log if record.kind == "call_admitted"]
    assert [1] == record.facts["arguments"]["items"]  # type: ignore[index,call-overload]  # JSON


async def test_cancelled_task_inside_a_tool(anyio_backend: str) -> None:
    """A tool that awaits something somebody else cancelled has failed; the run was not cancelled."""
    if anyio_backend == "trio":
        pytest.skip("trio has no task whose cancellation could reach another one")
    import asyncio  # noqa: PLC0415  # of this backend only

    async def run(n: int) -> str:
        task = asyncio.ensure_future(asyncio.sleep(10))
        task.cancel()
        await task
        return "x"

    agent = make(
        [[call("t", {"n": 1}), call("t", {"n": 2})], call("t", {"n": 3}), "done"], tools=[slow("t", run)]
    )
    result = await agent.run("go")
    assert [("t", "unknown")] * 3 == results(result.messages)
    assert "completed" == result.status


def test_text_subclass_is_told() -> None:
    """A str that is more than one would lose what it adds: the error names its class."""

    class Name(str):
        __slots__ = ()

    with pytest.raises(NotPortable, match="Name"):
        as_result(Name("x"))
