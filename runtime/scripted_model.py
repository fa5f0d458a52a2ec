"""Models for tests: a script, a plain function, an echo. None of them leaves the process.

They answer at once and know nothing of capabilities, of the machine, or of what their answers lead to.
"""

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from attrs import field, frozen

from ..capabilities.messages import AssistantMessage, ToolCall, Usage, UserMessage, content_text
from .models import Meter, ModelError, ModelProfile, ModelRequest

_PROFILE = ModelProfile()
_FREE = Usage(input_tokens=0, output_tokens=0)


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


def _problem(reply: object) -> str | None:
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


def _message(reply: Made, name: str, usage: Usage) -> AssistantMessage:
    """Turn a reply into a response; an exception, or a text that breaks off, is raised.

    An AssistantMessage is the response exactly as it is given, its usage too.
    """
    match reply:
        case AssistantMessage():
            return reply
        case str():
            return AssistantMessage(reply, usage=usage, model=name)
        case ToolCall():
            return _message((reply,), name, usage)
        case Exception():
            raise reply
        case Chunks():
            return _whole(reply, name, usage)
        case _:
            calls = tuple(reply)
            return AssistantMessage(tool_calls=calls, finish_reason="tool_calls", usage=usage, model=name)


def _whole(chunks: Chunks, name: str, usage: Usage) -> AssistantMessage:
    """Put the pieces together, or raise the error that broke them off: a ModelError with what came before."""
    text = "".join(chunks.texts)
    error = chunks.error
    if error is None:
        return _message(text, name, usage)
    if not isinstance(error, ModelError):
        raise error
    raise ModelError(
        error.kind,
        error.message,
        retryable=error.retryable,
        status=error.status,
        retry_after=error.retry_after,
        partial=text,
    ) from error


async def _answer(reply: Reply, request: ModelRequest, name: str, usage: Usage) -> AssistantMessage:
    """Call functions until something else comes of them, and turn that into a response."""
    while callable(reply):
        made = reply(request)
        reply = await made if inspect.isawaitable(made) else made
    problem = _problem(reply)
    if problem is not None:
        raise ModelError("script", f"{name}: {problem}", retryable=False)
    return _message(reply, name, usage)


class ScriptedModel:
    """A model that gives the replies it was made with, one for each request, in order.

    The script belongs to the model object: any number of runs may share it, and each request takes the next
    reply, whichever run it comes from. `usage` goes into each response that is not given as an
    AssistantMessage. A ToolCall without id keeps none: the runtime makes one. A reply may be a function of
    the request, sync or async, that returns the reply. When none is left, ModelError "script" is raised.
    """

    def __init__(
        self,
        replies: Iterable[Reply],
        *,
        name: str = "scripted",
        profile: ModelProfile = _PROFILE,
        usage: Usage = _FREE,
    ) -> None:
        """Read the script; TypeError names the first thing in it that is no reply."""
        if isinstance(replies, str) or not isinstance(replies, Iterable):
            raise TypeError(f"a script is a list of replies, as in ScriptedModel([{replies!r:.40}])")
        script = tuple(replies)
        for i, reply in enumerate(script):
            if problem := _problem(reply):
                raise TypeError(f"replies[{i}]: {problem}")
        self._left = deque(script)
        self._length = len(script)
        self._requests: list[ModelRequest] = []
        self._name = name
        self._profile = profile
        self._usage = usage

    def __repr__(self) -> str:
        """The name, and how far the script has got."""
        return f"<ScriptedModel {self._name} {self._length - len(self._left)}/{self._length}>"

    @property
    def name(self) -> str:
        """The name that stands in the log."""
        return self._name

    @property
    def profile(self) -> ModelProfile:
        """What it pretends to be able to do."""
        return self._profile

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """The requests that were charged, oldest first: also one that failed or found no reply left."""
        return tuple(self._requests)

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        """Charge, note the request, and give the next reply; raises ModelError "script" when none is left."""
        meter.charge()
        self._requests.append(request)
        if not self._left:
            raise ModelError(
                "script",
                f"{self._name}: the script is used up: it has {self._length} replies, this is request "
                f"{len(self._requests)}",
                retryable=False,
            )
        return await _answer(self._left.popleft(), request, self._name, self._usage)

    def assert_complete(self) -> None:
        """Raise AssertionError unless each reply was used."""
        if self._left:
            left = f"{len(self._left)} of {self._length} replies are left"
            raise AssertionError(f"{self._name}: {left}; the next is {self._left[0]!r:.80}")


@frozen(eq=False)
class FunctionModel:
    """A model that answers with the reply that a function, sync or async, makes of the request."""

    function: Callable[[ModelRequest], Reply | Awaitable[Reply]] = field()
    name: str = field(default="function", kw_only=True)
    profile: ModelProfile = field(default=_PROFILE, kw_only=True)
    usage: Usage = field(default=_FREE, kw_only=True)

    @function.validator
    def _callable(self, attribute: object, value: object) -> None:
        if not callable(value) or isinstance(value, type):
            raise TypeError(f"FunctionModel takes a function of the request, not {value!r:.80}")

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        """Charge once and call the function."""
        meter.charge()
        return await _answer(self.function, request, self.name, self.usage)


def _echo(request: ModelRequest) -> str:
    said = [message for message in request.messages if isinstance(message, UserMessage)]
    return content_text(said[-1].content) if said else ""


@frozen(eq=False)
class EchoModel:
    """The model behind "test": it says what the user said last, and calls no tool."""

    name: str = "test"
    profile: ModelProfile = _PROFILE

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        """Charge once and echo the text of the last user message; "" when there is none."""
        meter.charge()
        return _message(_echo(request), self.name, _FREE)
