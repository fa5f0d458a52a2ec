"""A scripted reply: what may be one, the response it becomes, and that response in pieces.

Knows nothing of models, of who asks or of what comes of an answer.
"""

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Self, TypeAlias

from anyio.lowlevel import checkpoint
from attrs import field, frozen

from ..capabilities.messages import AssistantMessage, ToolCall, Usage
from .events import Delta
from .models import ModelError, ModelPart, ModelRequest

# In how many deltas a text comes that is no `Chunks`.
_PIECES = 4


def _texts(instance: object, attribute: object, value: tuple[object, ...]) -> None:
    for text in value:
        if type(text) is not str:
            raise TypeError(f"Chunks takes strings, not {type(text).__name__}")


def _error(instance: object, attribute: object, value: Exception | None) -> None:
    if value is not None and not isinstance(value, Exception):
        raise TypeError(f"Chunks.error must be an exception object, not {value!r}")


@frozen(init=False)
class Chunks:
    """A text that arrives in pieces; with `error` it breaks off after them, and the error is raised."""

    texts: tuple[str, ...] = field(validator=_texts)
    error: Exception | None = field(default=None, validator=_error)

    def __init__(self, *text: str, error: Exception | None = None) -> None:
        """Take the pieces in order; TypeError for what is no string, or an error that is no exception."""
        self.__attrs_init__(text, error)


Made: TypeAlias = str | ToolCall | Sequence[ToolCall] | AssistantMessage | Chunks | Exception
Reply: TypeAlias = Made | Callable[[ModelRequest], "Reply | Awaitable[Reply]"]

_WHAT = "text, ToolCall, a sequence of them, AssistantMessage, Chunks, exception, or function of the request"


def reply_problem(reply: object) -> str | None:
    """Say why `reply` is none, or None."""
    if isinstance(reply, str | ToolCall | AssistantMessage | Chunks | Exception):
        return None
    if isinstance(reply, list | tuple):
        if reply and all(isinstance(item, ToolCall) for item in reply):
            return None
        return f"a sequence in a script must hold ToolCalls, at least one; not {reply!r:.80}"
    if callable(reply) and not isinstance(reply, type):
        return None
    return f"a reply must be {_WHAT}; not {reply!r:.80}"


async def made(reply: Reply, request: ModelRequest, name: str) -> Made:
    """Call functions until something else comes of them; ModelError "script" when that is no reply."""
    while callable(reply):
        found = reply(request)
        reply = await found if inspect.isawaitable(found) else found
    problem = reply_problem(reply)
    if problem is not None:
        raise ModelError("script", f"{name}: {problem}", retryable=False)
    return reply


def response(reply: Made, name: str, usage: Usage) -> AssistantMessage:
    """Turn a reply into a response; an exception, or a text that breaks off, is raised.

    An AssistantMessage is the response exactly as it is given, its usage too.
    """
    match reply:
        case AssistantMessage():
            return reply
        case str():
            return AssistantMessage(reply, usage=usage, model=name)
        case ToolCall():
            return response((reply,), name, usage)
        case Exception():
            raise reply
        case Chunks():
            text = "".join(reply.texts)
            if reply.error is not None:
                raise broken_off(reply.error, text) from reply.error
            return response(text, name, usage)
        case _:
            calls = tuple(reply)
            return AssistantMessage(tool_calls=calls, finish_reason="tool_calls", usage=usage, model=name)


def broken_off(error: Exception, text: str) -> Exception:
    """Return the error of a response that broke off after `text`: a ModelError tells it, another stays as it is."""
    if not isinstance(error, ModelError):
        return error
    return ModelError(
        error.kind,
        error.message,
        retryable=error.retryable,
        status=error.status,
        retry_after=error.retry_after,
        partial=text,
    )


class ReplyParts:
    """The response of a reply in pieces: those of `Chunks`, a few of any other text, and the message last.

    What `response` raises is raised after the pieces that came before.
    """

    def __init__(self, reply: Made, name: str, usage: Usage, step: int) -> None:
        """Stream what becomes of this reply, as deltas of `step`; raises it at once where it is an exception."""
        if isinstance(reply, Chunks):
            texts: Sequence[str] = [text for text in reply.texts if text]
        else:
            text = response(reply, name, usage).text
            size = -(-len(text) // _PIECES) or 1
            texts = [text[i : i + size] for i in range(0, len(text), size)]
        self._message = partial(response, reply, name, usage)
        self._left: deque[ModelPart] = deque([Delta(text, step) for text in texts])
        self._over = False

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> ModelPart:
        """Give the next part; others may run in between, as they do where parts come from afar."""
        await checkpoint()
        if self._left:
            return self._left.popleft()
        if self._over:
            raise StopAsyncIteration
        self._over = True
        return self._message()
