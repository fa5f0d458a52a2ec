"""Fallback: a model that asks the next of several models where one fails. A model around models.

Waits for nothing and asks none twice: that is Retry's business, inside or outside.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Self, TypeVar

from attrs import evolve, field, frozen

from ..capabilities.messages import AssistantMessage
from .attempts import POLICIES, Attempts, begun, with_earlier
from .models import Meter, Model, ModelError, ModelPart, ModelProfile, ModelRequest, as_model, is_model

T = TypeVar("T")


def _models(value: Iterable[Model | str]) -> tuple[Model, ...]:
    if isinstance(value, str) or is_model(value) or not isinstance(value, Iterable):
        raise TypeError(f"Fallback takes a list of models, as in Fallback([{value!r:.40}, ...])")
    models = tuple(map(as_model, value))
    if not models:
        raise ValueError("Fallback needs at least one model")
    return models


@frozen(eq=False)
class Fallback:
    """A model that asks `models` in their order, the next one where one failed.

    `POLICIES` in `runtime/attempts.py` says after which failures: never after a malformed request, a limit, a stop or
    a cancellation, and never once a stream has published something. Each attempt is charged. It can do what all of
    them can, and `model` of a response says which one answered. The error that is raised in the end is the last
    model's, with those of the earlier ones as notes.

    Models may be strings, as for an Agent. Raises ValueError or TypeError for what are no models.
    """

    models: tuple[Model, ...] = field(converter=_models)

    @property
    def name(self) -> str:
        """The names of all: "fallback(a, b)"."""
        return f"fallback({', '.join(model.name for model in self.models)})"

    @property
    def profile(self) -> ModelProfile:
        """What all of them can do. The price is that of the one who answers."""
        profiles = [model.profile for model in self.models]
        return ModelProfile(
            tools=all(profile.tools for profile in profiles),
            json_schema=all(profile.json_schema for profile in profiles),
            images=all(profile.images for profile in profiles),
            audio=all(profile.audio for profile in profiles),
            files=all(profile.files for profile in profiles),
            reports_usage=all(profile.reports_usage for profile in profiles),
        )

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        """Ask until one answers. Raises the ModelError of the last that was asked."""

        async def ask(model: Model, inner: Meter) -> AssistantMessage:
            return _signed(await model.request(request, inner), model)

        return await self._tried(ask, meter)

    @asynccontextmanager
    async def stream(self, request: ModelRequest, meter: Meter) -> AsyncIterator[AsyncIterator[ModelPart]]:
        """Open streams until one has begun; from then on it is that stream. Raises likewise."""
        async with AsyncExitStack() as stack:

            async def ask(model: Model, inner: Meter) -> AsyncIterator[ModelPart]:
                parts = await stack.enter_async_context(begun(model, request, inner))
                return _SignedParts(parts, model)

            yield await self._tried(ask, meter)

    async def _tried(self, ask: Callable[[Model, Meter], Awaitable[T]], meter: Meter) -> T:
        attempts = Attempts(meter)
        earlier: list[str] = []
        for i, model in enumerate(self.models, 1):
            attempts.begin(model)
            try:
                return await ask(model, attempts)
            except ModelError as error:
                attempts.failed(error)
                if i == len(self.models) or not POLICIES[error.kind].fallback:
                    raise with_earlier(error, earlier)  # noqa: B904  # it is the very error, and keeps its own cause
                earlier.append(f"{model.name} before: {error.kind}: {error.message}")
        raise AssertionError("the last model answers or raises")


def _signed(response: AssistantMessage, model: Model) -> AssistantMessage:
    """Return a response that names a model: its provider's own name for it, or else that of ours."""
    return evolve(response, model=model.name) if response.model is None else response


class _SignedParts:
    """The parts of a stream, its message with a name."""

    def __init__(self, parts: AsyncIterator[ModelPart], model: Model) -> None:
        self._parts = parts
        self._model = model

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelPart:
        part = await anext(self._parts)
        return _signed(part, self._model) if isinstance(part, AssistantMessage) else part
