"""What streamed responses have in common: how each ends, and how a model that cannot stream is streamed.

Knows nothing of any API, script or run.
"""

from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Self

from anyio.lowlevel import checkpoint

from ..capabilities.messages import AssistantMessage
from .events import Delta
from .models import Meter, Model, ModelPart, ModelRequest, StreamingModel


def ending(told: str, message: AssistantMessage, step: int) -> deque[ModelPart]:
    """Return what is left of a response: its text after what was `told` already, if any, and the message.

    Raises ValueError where the text does not begin with what was told.
    """
    if not message.text.startswith(told):
        raise ValueError(
            f"a message's text must begin with what was streamed of it: {told[:80]!r} was, of {message.text[:80]!r}"
        )
    rest = message.text[len(told) :]
    return deque([Delta(rest, step), message] if rest else [message])


class Listed:
    """Parts that are all there. An iterator, not a generator, which the event loop would have to close."""

    def __init__(self, parts: Iterable[ModelPart]) -> None:
        """Give these parts, one after another."""
        self._left = deque(parts)

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> ModelPart:
        """Give the next part; others may run in between, as they do where parts come from afar."""
        await checkpoint()
        if not self._left:
            raise StopAsyncIteration
        return self._left.popleft()


@asynccontextmanager
async def stream_of(
    model: Model, request: ModelRequest, meter: Meter
) -> AsyncIterator[AsyncIterator[ModelPart]]:
    """Open the stream of any model. One that cannot stream says its whole text at once, then the message."""
    if isinstance(model, StreamingModel):
        async with model.stream(request, meter) as parts:
            yield parts
        return
    yield Listed(ending("", await model.request(request, meter), request.step))
