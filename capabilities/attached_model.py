"""A model around a model that shows other parts in place of some: for one request, and without keeping them.

So the bytes of a file are in the request and nowhere else: neither in the run's state nor in its log. Knows no store.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar, cast

from .attached_files import Medium, map_media
from .messages import AssistantMessage, Message, Part, ToolMessage, UserMessage
from .records import replace
from .run_parts import NamedModel

R = TypeVar("R")


class _Inner(Protocol):
    """What a model has, as far as it is handed on; the runtime says it in full."""

    @property
    def profile(self) -> object: ...

    async def request(self, request: object, meter: object) -> AssistantMessage: ...

    def stream(
        self, request: object, meter: object
    ) -> AbstractAsyncContextManager[AsyncIterator[object]]: ...


class AttachedModel:
    """Asks `model`, under its name, with `shown[part]` for each part of a message that stands there.

    What it shows is forgotten by `forget`, so that who keeps the model, as a log does, keeps no bytes with it.
    """

    def __init__(self, model: NamedModel, shown: Mapping[Medium, Part]) -> None:
        """Show `shown`."""
        self.model = model
        self._shown = shown

    @property
    def name(self) -> str:
        """The name of the model inside."""
        return self.model.name

    @property
    def profile(self) -> object:
        """What the model inside can do."""
        return cast(_Inner, self.model).profile

    def forget(self) -> None:
        """Let go of what is shown."""
        self._shown = {}

    async def request(self, request: object, meter: object) -> AssistantMessage:
        """Ask the model inside."""
        self._tell(meter)
        return await cast(_Inner, self.model).request(self._resolved(request), meter)

    def _tell(self, meter: object) -> None:
        """Say whose the next attempt is: a run books it by the name and price of that one."""
        tell = getattr(meter, "sent_to", None)
        if callable(tell):
            tell(self.model)

    def _resolved(self, request: R) -> R:
        messages: tuple[Message, ...] = request.messages  # type: ignore[attr-defined]  # a ModelRequest has them
        return replace(request, messages=tuple(map(self._message, messages)))

    def _message(self, message: Message) -> Message:
        if not isinstance(message, UserMessage | ToolMessage | AssistantMessage):
            return message
        content = map_media(message.content, lambda part: self._shown.get(part, part))
        return message if content is message.content else replace(message, content=content)


class StreamedModel(AttachedModel):
    """The same around a model that can also stream."""

    def stream(self, request: object, meter: object) -> AbstractAsyncContextManager[AsyncIterator[object]]:
        """Open a stream of the model inside."""
        self._tell(meter)
        return cast(_Inner, self.model).stream(self._resolved(request), meter)


def attached_model(model: NamedModel, shown: Mapping[Medium, Part]) -> AttachedModel:
    """Return a model around `model`; it streams if that one does."""
    made = StreamedModel if callable(getattr(model, "stream", None)) else AttachedModel
    return made(model, shown)
