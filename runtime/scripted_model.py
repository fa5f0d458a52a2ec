"""Models for tests: a script, a plain function, an echo. None of them leaves the process.

They answer at once and know nothing of capabilities, of the machine, or of what their answers lead to. Each says
the same whether it is asked by `request` or by `stream`.
"""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self, TypeAlias

from attrs import field, frozen

from ..capabilities.messages import AssistantMessage, Usage, UserMessage, content_text
from .events import Delta
from .models import Meter, ModelError, ModelPart, ModelProfile, ModelRequest
from .replies import Chunks as Chunks  # noqa: PLC0414  # a public name of this module
from .replies import Made, ReplyParts, broken_off, made, reply_problem, response
from .replies import Reply as Reply  # noqa: PLC0414  # likewise
from .streaming import ending

if TYPE_CHECKING:
    from .audit import AuditRecord

_PROFILE = ModelProfile()
_FREE = Usage(input_tokens=0, output_tokens=0)

# What gives the pieces of a response: texts, and at last a message where it is to say more than they do.
Streaming: TypeAlias = Callable[[ModelRequest], AsyncIterable[str | AssistantMessage]]


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
            if problem := reply_problem(reply):
                raise TypeError(f"replies[{i}]: {problem}")
        self._left = deque(script)
        self._length = len(script)
        self._requests: list[ModelRequest] = []
        self._name = name
        self._profile = profile
        self._usage = usage

    @classmethod
    def from_log(
        cls, log: Iterable["AuditRecord"], *, run: str | None = None, profile: ModelProfile = _PROFILE
    ) -> "ScriptedModel":
        """Return the script of what models answered in a run on record: `run`, or the first one of the log.

        Under the name of the run's model. A request that brought no response fails again. Raises ReplayError for a
        log without that run, or without its contents.
        """
        from .replay_script import script_of  # noqa: PLC0415  # it loads the codec, which a script can do without

        name, replies = script_of(log, run)
        return cls(replies, name=name, profile=profile)

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
        return response(await self._next(request, meter), self._name, self._usage)

    @asynccontextmanager
    async def stream(self, request: ModelRequest, meter: Meter) -> AsyncIterator[AsyncIterator[ModelPart]]:
        """Do as `request` does, and give the response in pieces: those of `Chunks`, a few of any other text."""
        yield ReplyParts(await self._next(request, meter), self._name, self._usage, request.step)

    async def _next(self, request: ModelRequest, meter: Meter) -> Made:
        meter.charge()
        self._requests.append(request)
        if not self._left:
            raise ModelError(
                "script",
                f"{self._name}: the script is used up: it has {self._length} replies, this is request "
                f"{len(self._requests)}",
                retryable=False,
            )
        return await made(self._left.popleft(), request, self._name)

    def assert_complete(self) -> None:
        """Raise AssertionError unless each reply was used."""
        if self._left:
            left = f"{len(self._left)} of {self._length} replies are left"
            raise AssertionError(f"{self._name}: {left}; the next is {self._left[0]!r:.80}")


@frozen(eq=False)
class FunctionModel:
    """A model that answers with the reply that a function, sync or async, makes of the request.

    `stream`: an async generator function of the request, for the answer in pieces. It yields texts and, where
    the response is to say more than they do, an AssistantMessage as the last, whose text they begin; without
    it, the answer of the function is what comes in pieces.
    """

    function: Callable[[ModelRequest], Reply | Awaitable[Reply]] = field()
    name: str = field(default="function", kw_only=True)
    profile: ModelProfile = field(default=_PROFILE, kw_only=True)
    usage: Usage = field(default=_FREE, kw_only=True)
    streaming: Streaming | None = field(default=None, kw_only=True, alias="stream")

    @function.validator
    def _callable(self, attribute: object, value: object) -> None:
        if not callable(value) or isinstance(value, type):
            raise TypeError(f"FunctionModel takes a function of the request, not {value!r:.80}")

    @streaming.validator
    def _generator_function(self, attribute: object, value: object) -> None:
        if value is not None and (not callable(value) or isinstance(value, type)):
            raise TypeError(f"stream= takes an async generator function of the request, not {value!r:.80}")

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        """Charge once and call the function."""
        meter.charge()
        return response(await made(self.function, request, self.name), self.name, self.usage)

    @asynccontextmanager
    async def stream(self, request: ModelRequest, meter: Meter) -> AsyncIterator[AsyncIterator[ModelPart]]:
        """Charge once and give the answer in pieces; the generator is closed when it is left early."""
        meter.charge()
        if self.streaming is None:
            yield ReplyParts(
                await made(self.function, request, self.name), self.name, self.usage, request.step
            )
            return
        pieces = self.streaming(request)
        if not isinstance(pieces, AsyncIterable):
            raise _wrong(
                self.name, f"stream= must be an async generator function, it returned {pieces!r:.80}"
            )
        iterator = aiter(pieces)
        try:
            yield _FunctionParts(iterator, self, request.step)
        finally:
            if isinstance(iterator, AsyncGenerator):
                await iterator.aclose()


def _wrong(name: str, message: str) -> ModelError:
    return ModelError("script", f"{name}: {message}", retryable=False)


class _FunctionParts:
    """The pieces that a function yields, and what is left of the response when it is done."""

    def __init__(
        self, pieces: AsyncIterator[str | AssistantMessage], model: FunctionModel, step: int
    ) -> None:
        self._pieces = pieces
        self._model = model
        self._step = step
        self._told = ""
        self._last: deque[ModelPart] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelPart:
        while self._last is None:
            try:
                piece = await anext(self._pieces, None)
            except ModelError as error:
                raise broken_off(error, self._told) from error
            if type(piece) is str:
                if piece:
                    self._told += piece
                    return Delta(piece, self._step)
            else:
                self._last = await self._ending(piece)
        if not self._last:
            raise StopAsyncIteration
        return self._last.popleft()

    async def _ending(self, message: object) -> deque[ModelPart]:
        model = self._model
        if message is None:
            message = response(self._told, model.name, model.usage)
        elif not isinstance(message, AssistantMessage):
            raise _wrong(model.name, f"stream= yields strings and one AssistantMessage, not {message!r:.80}")
        elif (more := await anext(self._pieces, None)) is not None:
            raise _wrong(model.name, f"the AssistantMessage comes last, and {more!r:.80} came after it")
        try:
            return ending(self._told, message, self._step)
        except ValueError as error:
            raise _wrong(model.name, str(error)) from error


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
        return response(_echo(request), self.name, _FREE)

    @asynccontextmanager
    async def stream(self, request: ModelRequest, meter: Meter) -> AsyncIterator[AsyncIterator[ModelPart]]:
        """Charge once and echo likewise, in a few pieces."""
        meter.charge()
        yield ReplyParts(_echo(request), self.name, _FREE, request.step)
