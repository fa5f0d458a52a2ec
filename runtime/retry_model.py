"""Retry: a model that sends a request again after a failure that may pass. A model around a model.

Trying again is tenacity's business, how long to wait `Backoff`'s, when the port's; knows nothing of what a request
says.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from attrs import field, frozen

from ..capabilities.backoff import Backoff as Backoff  # noqa: PLC0414  # a public name of this package too
from ..capabilities.messages import AssistantMessage
from .attempts import POLICIES, Attempts, begun, with_earlier
from .models import Meter, Model, ModelError, ModelPart, ModelProfile, ModelRequest, as_model

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")


@frozen(eq=False)
class Retry:
    """A model that asks `model` up to `attempts` times, where a failure is one that may pass.

    `POLICIES` in `runtime/attempts.py` says which may: never a malformed request or one that was refused for its
    credentials, never a limit, a stop or a cancellation, and never a stream of which something was published.
    Each attempt is charged. A request_timeout of the run bounds all attempts and waits together. The error that is
    raised in the end is the last one, with the earlier ones as notes.

    `model` may be a string, as for an Agent. Raises ValueError or TypeError for what cannot work.
    """

    model: Model = field(converter=as_model)
    attempts: int = field(default=3, kw_only=True)
    backoff: Backoff = field(factory=Backoff, kw_only=True)

    @attempts.validator
    def _at_least_one(self, attribute: object, value: object) -> None:
        if type(value) is not int or value < 1:
            raise ValueError(
                f"Retry.attempts counts the first one too: give an integer from 1, not {value!r}"
            )

    @backoff.validator
    def _is_backoff(self, attribute: object, value: object) -> None:
        if not isinstance(value, Backoff):
            raise TypeError(f"Retry.backoff must be a Backoff, not {value!r:.80}")

    @property
    def name(self) -> str:
        """The name of the model inside."""
        return self.model.name

    @property
    def profile(self) -> ModelProfile:
        """What the model inside can do."""
        return self.model.profile

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        """Ask until there is an answer, or no attempt is left. Raises the last ModelError."""
        return await self._tried(lambda inner: self.model.request(request, inner), meter)

    @asynccontextmanager
    async def stream(self, request: ModelRequest, meter: Meter) -> AsyncIterator[AsyncIterator[ModelPart]]:
        """Open streams until one has begun; from then on it is that stream. Raises the last ModelError."""
        async with AsyncExitStack() as stack:
            yield await self._tried(
                lambda inner: stack.enter_async_context(begun(self.model, request, inner)), meter
            )

    async def _tried(self, attempt: Callable[[Meter], Awaitable[T]], meter: Meter) -> T:
        from tenacity import (  # noqa: PLC0415  # 180 ms, asyncio with it, that only Retry needs
            AsyncRetrying,
            retry_if_exception,
            stop_after_attempt,
        )

        attempts = Attempts(meter)
        failures: list[ModelError] = []

        async def once() -> T:
            attempts.begin(self.model)
            try:
                return await attempt(attempts)
            except ModelError as error:
                attempts.failed(error)
                failures.append(error)
                raise

        retrying = AsyncRetrying(
            sleep=meter.sleep,
            stop=stop_after_attempt(self.attempts),
            wait=self._waiting(meter),
            retry=retry_if_exception(_may_pass),
            reraise=True,
        )
        try:
            return await retrying(once)
        except ModelError as error:
            told = [f"attempt {i}: {one.kind}: {one.message}" for i, one in enumerate(failures[:-1], 1)]
            raise with_earlier(error, told)  # noqa: B904  # it is the very error, and keeps its own cause

    def _waiting(self, meter: Meter) -> "Callable[[RetryCallState], float]":
        def wait(state: "RetryCallState") -> float:
            asked = getattr(state.outcome.exception() if state.outcome else None, "retry_after", None)
            return self.backoff.delay(state.attempt_number, meter.random(), retry_after=asked)

        return wait


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, ModelError) and POLICIES[error.kind].retry and error.retryable
