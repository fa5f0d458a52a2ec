"""One streamed response of the openai client: opened, read event by event, closed early or late.

The same for every API: what the events say is an `Assembler`'s business. Knows nothing of requests or meters.
"""

import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NoReturn, Protocol, Self

from anyio import CancelScope, move_on_after

from ..capabilities.messages import AssistantMessage
from .events import Delta
from .models import ModelError, ModelPart
from .openai_failures import failures, object_failure
from .openai_post import Patience, Post
from .openai_response import invalid
from .server_events import EventDecoder
from .streaming import ending

if TYPE_CHECKING:
    from httpx2 import Response

# What comes last, and how long to wait for the end of the response after it.
_DONE = b"[DONE]"
_DRAIN_SECONDS = 0.1


class Assembler(Protocol):
    """Puts the events of one response together. Any method may raise ModelError, ValueError or TypeError.

    The latter two mean that an event is none of this API, or nothing that a record can hold.
    """

    @property
    def text(self) -> str:
        """The text so far, told or not."""

    def feed(self, event: object) -> str:
        """Take one event, decoded JSON; return the text to tell now, "" for none.

        What is told can not be taken back: it must be how the text of the finished message begins.
        """

    def finish(self) -> AssistantMessage:
        """Return the whole message; ModelError "connection" where the events end before it is whole."""


@asynccontextmanager
async def streamed(post: Post, assembler: Assembler, step: int) -> AsyncIterator[AsyncIterator[ModelPart]]:
    """Send it and give a `Delta` of `step` per piece of text, and the message last; then close the response.

    `post.timeout` bounds the waits for the server, each and all together; the consumer's time does not count.
    Raises ModelError; its `partial` is the text so far.
    """
    patience = Patience(post.timeout)
    with patience.waiting():
        from openai import AsyncStream  # 400 ms, which whoever has a client has paid

        answer = await post.client.post(
            post.path,
            content=post.body,
            cast_to=object,
            options={"timeout": post.timeout},
            stream=True,
            stream_cls=AsyncStream[object],
        )
    parts = _Parts(answer.response, assembler, step, patience)
    try:
        yield parts
    finally:
        await parts.close()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class _Parts:
    """The iterator of a streamed response. No generator: one that is left half-way would be the loop's to close.

    Of the client's own iterator that is what happens: it leaves generators behind, an error on trio.
    """

    def __init__(self, response: "Response", assembler: Assembler, step: int, patience: Patience) -> None:
        self._response = response
        self._bytes = response.aiter_bytes()
        self._decoder = EventDecoder()
        self._events: deque[bytes] = deque()
        self._assembler = assembler
        self._step = step
        self._patience = patience
        self._told: list[str] = []
        # What comes when the events are over: the rest of the text, if any, and the message.
        self._last: deque[ModelPart] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelPart:
        if self._last is None:
            try:
                text = await self._piece()
            except BaseException as error:
                self._last = deque()
                if isinstance(error, ModelError):
                    error.partial = self._assembler.text
                raise
            if text:
                self._told.append(text)
                return Delta(text, self._step)
        if not self._last:
            raise StopAsyncIteration
        return self._last.popleft()

    async def _piece(self) -> str:
        """Return the next piece of text; "" when the response is whole, and `_last` holds what is left of it."""
        try:
            while (data := await self._event()) is not None:
                event = json.loads(data.decode(), parse_constant=_no_constant)
                if isinstance(event, Mapping) and event.get("error"):
                    raise object_failure(event["error"])
                if text := self._assembler.feed(event):
                    return text
            self._last = ending("".join(self._told), self._assembler.finish(), self._step)
        except RecursionError:
            raise invalid("an event of the stream is nested too deeply") from None
        except (ValueError, TypeError) as error:  # no JSON, no such shape, or nothing that a record can hold
            raise invalid(f"the stream is none of this API: {error}") from error
        return ""

    async def _event(self) -> bytes | None:
        """Return the data of the next event; None at the end."""
        while not self._events:
            with self._patience.waiting():
                received = await anext(self._bytes, None)
            if received is None:
                return None
            self._events.extend(self._decoder.feed(received))
        data = self._events.popleft()
        if data != _DONE:
            return data
        with move_on_after(_DRAIN_SECONDS):  # to its end, so that the connection can be used again
            await self._skip()
        return None

    async def _skip(self) -> None:
        """Read what nobody asks for any more; what fails there fails nobody."""
        try:
            with failures(None):
                async for _ in self._bytes:
                    pass
        except ModelError:
            pass

    async def close(self) -> None:
        """Give up the connection, unless the response was read to its end.

        The generators of the client are left by an exception, that of a cancelled wait for the next byte, so
        that the innermost is closed here and now: it is dropped half-way by `aclose`, an error on trio.
        """
        self._last = deque()
        with CancelScope(shield=True) as scope:
            scope.cancel()
            await self._skip()
        with CancelScope(shield=True):
            await self._response.aclose()
