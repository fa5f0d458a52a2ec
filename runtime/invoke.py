"""Running a tool's body: arguments in, one outcome out, whatever it does. Nothing a body raises gets past here.

Knows nothing of wrappers, batches or limits of the run but the size of a result.
"""

import functools
import inspect
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeAlias, cast

import anyio.to_thread

from ..capabilities.call_state import CallState
from ..capabilities.frozen import thaw
from ..capabilities.injected import InjectionError, ModelRetry, ToolContext, ToolFailed, ToolUnknown
from ..capabilities.messages import PARTS, Content, Status, TextPart
from ..capabilities.records import copier
from ..capabilities.signatures import Signature, signature_of
from ..capabilities.state import RunState
from ..capabilities.tools import SchemaFunction, Tool, is_idempotent
from ..capabilities.verdict import Failure, Outcome
from .abandon import Abandoned, Leavable
from .arguments import inject, structure
from .below import RunBelow, Waiting
from .errors import CodecError, message_of
from .late_codec import input_converter, json_writer
from .phases import RunTools
from .port import Late, RunsTools, is_stray
from .session import Session

Body: TypeAlias = Callable[[], Awaitable[object]]
MAX_MESSAGE = 500
SUCCEEDED = Outcome("succeeded")
_SUCCEEDED = copier(Outcome, "content", "attempts")
# A model has no use for the folders of the machine, and a log reader may not be meant to know them.
_FOLDERS = re.compile(r"(?<![\w:/.])(?:/[\w.@+ -]+?)+/(?=[\w.@+-]+)|\b[A-Za-z]:\\(?:[^\\\s'\"]+\\)+")


class NotPortable(Exception):
    """A result that cannot be written as a message."""


async def run_body(session: Session, effect: RunTools, call: CallState, attempts: int) -> Outcome:
    """Call the tool's function once, within its timeout, and return the outcome; this is the `attempts`th time."""
    tool = call.tool
    session.started[call.asked.id] = True
    timeout = tool.timeout
    # A sub-agent has its own limits, and its caller's.
    if timeout is None and not isinstance(tool.function, RunBelow):
        timeout = effect.timeout
    try:
        body = _bind(tool, call, session, effect, attempts)
    except InjectionError as error:
        # Before the body: nothing happened, and no other arguments would help the model.
        return Outcome("failed", f"{error}", error=failure_of(error), attempts=attempts - 1, by="runtime")
    aside: Leavable | None = None
    if session.patience is not None and not isinstance(tool.function, RunBelow):
        body = aside = Leavable(body, session.patience, in_thread=_is_threaded(body))
    try:
        result = await session.port.bounded(body, timeout)
    except BaseException as error:
        outcome = _outcome_of(error, tool, attempts, timeout)
        if outcome is None:
            if aside is not None and aside.known is not None:
                session.cut[call.asked.id] = _known(aside.known, effect, tool, attempts)
            raise
        return outcome
    return _outcome_with(result, effect, attempts)


def _known(body: Callable[[], object], effect: RunTools, tool: Tool, attempts: int) -> Outcome:
    """Return the outcome of a body that a stop has cut short, and of which it is known what it came to."""
    try:
        return _outcome_with(body(), effect, attempts)
    except BaseException as error:
        outcome = _outcome_of(error, tool, attempts, None)
        if outcome is None:
            raise
        return outcome


def _outcome_of(error: BaseException, tool: Tool, attempts: int, timeout: float | None) -> Outcome | None:
    """Return the outcome of a body that raised; None for a cancellation and other exits, which go on."""
    if isinstance(error, Late):
        content = f"No result within {timeout} seconds; it is not known whether the call took effect."
        return Outcome("unknown", content, attempts=attempts, by="runtime")
    if isinstance(error, ModelRetry | ToolFailed | ToolUnknown):
        status: Status = "unknown" if isinstance(error, ToolUnknown) else "failed"
        return Outcome(status, message_of(error), error=failure_of(error), attempts=attempts)
    if isinstance(error, Abandoned):
        return Outcome("unknown", f"{error}", attempts=attempts, by="runtime")
    if isinstance(error, Waiting):
        return Outcome("pending", "", attempts=attempts, by="runtime")
    if not isinstance(error, Exception) and not is_stray(error):
        return None
    status = "failed" if is_idempotent(tool) else "unknown"
    failure = failure_of(error)
    text = f"{failure.type}: {failure.message}" if failure.message else failure.type
    return Outcome(status, text, error=failure, attempts=attempts)


def _outcome_with(result: object, effect: RunTools, attempts: int) -> Outcome:
    """Return the outcome of a body that returned."""
    try:
        content = as_result(result)
        size = content_size(content)
        if size > effect.max_result_bytes:
            raise NotPortable(f"the result has {size} bytes; the limit is {effect.max_result_bytes}")
    except NotPortable as error:
        content = f"The tool ran, but its result cannot be used: {error}"
        return Outcome(
            "unknown", content, error=Failure("NotPortable", str(error)), attempts=attempts, by="runtime"
        )
    return _SUCCEEDED(SUCCEEDED, content, attempts)


def context_of(call: CallState, run: RunState, deps: object, attempt: int) -> ToolContext:
    """Return what a tool may learn about its call."""
    return ToolContext(
        deps=deps,
        context=run.context,
        run_id=run.run_id,
        step=run.run_step,
        call_id=call.id,
        attempt=attempt,
        idempotency_key=f"{run.run_id}:{run.run_step}:{call.id}",
    )


def _bind(tool: Tool, call: CallState, session: Session, effect: RunTools, attempt: int) -> Body:
    run, deps = effect.run, session.deps
    number = attempt + session.again
    function = tool.function
    if isinstance(function, RunBelow):
        return functools.partial(function.run_below, session, effect, call, attempt)
    if function is None and isinstance(session.port, RunsTools):
        plain = thaw(call.arguments)
        assert isinstance(plain, dict)
        context = context_of(call, run, deps, number)
        return functools.partial(session.port.run_tool, tool, plain, context)
    if function is None:
        problem = f"tool {tool.name!r} has no function: only a port that runs tools elsewhere can execute it"
        raise InjectionError(problem, tool.name)
    if isinstance(function, SchemaFunction):
        plain = thaw(call.arguments)
        assert isinstance(plain, dict)
        return functools.partial(function.call, plain, context_of(call, run, deps, number))
    signature = _signature(function)
    keywords = structure(signature, call.arguments, input_converter)
    if signature.injects:
        keywords |= inject(signature, context_of(call, run, deps, number), call.injected, input_converter)
    if signature.is_async:
        return cast(Body, functools.partial(function, **keywords))
    return functools.partial(_in_thread, functools.partial(function, **keywords))


# By identity, as plans are kept: the weak dictionary of `signature_of` costs 1,800 instructions a call more. The entry
# keeps the function alive, so its id stays its own.
_SIGNATURES: dict[int, tuple[object, Signature]] = {}
_MAX_SIGNATURES = 1_000


def _signature(function: Callable[..., object]) -> Signature:
    found = _SIGNATURES.get(id(function))
    if found is None:
        if len(_SIGNATURES) >= _MAX_SIGNATURES:  # functions that come and go must not pile up
            _SIGNATURES.clear()
        found = _SIGNATURES[id(function)] = (function, signature_of(function))
    return found[1]


def _is_threaded(body: Body) -> bool:
    return isinstance(body, functools.partial) and body.func is _in_thread


async def _in_thread(function: Callable[[], object]) -> object:
    # In a tuple: trio takes a coroutine as a result for a mistake of ours, and says so in its own words.
    (result,) = await anyio.to_thread.run_sync(lambda: (function(),), abandon_on_cancel=True)
    return result


def failure_of(error: BaseException) -> Failure:
    """Return an exception as data: type, first line without folders, bounded, and the names of its bases."""
    text = message_of(error)
    line = text.splitlines()[0] if text else ""
    line = _FOLDERS.sub("", line)
    if len(line) > MAX_MESSAGE:
        line = line[: MAX_MESSAGE - 1] + "…"
    bases = tuple(base.__name__ for base in type(error).__mro__[:-1] if base is not BaseException)
    return Failure(type(error).__name__, line, bases)


def as_result(value: object) -> Content:
    """Return what a tool returned as content. Raises `NotPortable` saying what it was and what would do."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    if isinstance(value, PARTS):
        return (value,)
    if isinstance(value, tuple | list) and value and all(isinstance(part, PARTS) for part in value):
        return tuple(value)
    if isinstance(value, bytes | bytearray | memoryview):
        raise NotPortable("it is bytes: return text, or FilePart(data=..., media_type=...)")
    if inspect.isgenerator(value) or inspect.isasyncgen(value) or isinstance(value, Iterator | AsyncIterator):
        raise NotPortable(f"it is a {type(value).__name__}: return what it yields, as a list")
    if inspect.iscoroutine(value):
        value.close()
        raise NotPortable("it is a coroutine: the tool forgot to await it")
    dump = getattr(type(value), "model_dump", None)
    try:
        return json.dumps(
            dump(value, mode="json") if callable(dump) else json_writer()(value), ensure_ascii=False
        )
    except CodecError as error:
        raise NotPortable(f"{error}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise NotPortable(f"{type(error).__name__}: {message_of(error)}") from None


def content_size(content: Content) -> int:
    """Return the size of a content in bytes, as sent."""
    if isinstance(content, str):
        return len(content) if content.isascii() else len(content.encode("utf-8", "surrogatepass"))
    total = 0
    for part in content:
        if isinstance(part, TextPart):
            total += len(part.text.encode("utf-8", "surrogatepass"))
        else:
            total += len(part.data) if part.data is not None else len(part.url or "")
    return total
