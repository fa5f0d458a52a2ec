"""Another attempt at a request: after which failures there is one, who is charged, and how far a stream may have got.

What Retry and Fallback share. Knows nothing of waiting, of orders of models, or of any API.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Self

from attrs import frozen

from .billing import sent_to
from .models import Meter, Model, ModelError, ModelErrorKind, ModelPart, ModelRequest
from .streaming import stream_of


@frozen
class Policy:
    """Whether a failure is worth the same request again, and whether it is worth another model."""

    retry: bool
    fallback: bool


# Kind of a ModelError -> what may be done about it. Retry also asks the error itself, by `retryable`. A malformed
# request is not made better by repeating it, nor is a mistake in a script.
POLICIES: dict[ModelErrorKind, Policy] = {
    "timeout": Policy(retry=True, fallback=True),
    "rate_limit": Policy(retry=True, fallback=True),
    "connection": Policy(retry=True, fallback=True),
    "server": Policy(retry=True, fallback=True),
    "invalid_response": Policy(retry=True, fallback=True),
    "auth": Policy(retry=False, fallback=True),
    "bad_request": Policy(retry=False, fallback=False),
    "script": Policy(retry=False, fallback=False),
}


class Attempts:
    """The attempts of one request, as the meter of each: all are charged, and none twice.

    A model charges its own attempts, and an outer meter holds one that is booked before anything is sent. From the
    second attempt on, the next one is booked here before it begins, so that a model that never charges cannot go
    beyond a limit either; the first charge of the model that gets it is then paid. What a model that fails has not
    used is the next one's.
    """

    def __init__(self, meter: Meter) -> None:
        """Charge `meter`."""
        self._meter = meter
        self._paid = False
        self._any = False
        self._this = False

    def begin(self, model: Model) -> None:
        """Begin an attempt at `model`. Raises LimitError when none is left: the run ends by it."""
        sent_to(self._meter, model)
        if self._any and not self._paid:
            self._meter.charge()
            self._paid = True
        self._this = False

    def failed(self, error: ModelError) -> None:
        """End the attempt by its failure: one that is worth a repetition was sent, whether charged or not."""
        if error.retryable and not self._this:
            self.charge()

    def charge(self) -> None:
        """Book one attempt, unless that of this model is booked already. Raises LimitError."""
        if self._paid:
            self._paid = False
        else:
            self._meter.charge()
        self._any = self._this = True

    def sent_to(self, model: Model) -> None:
        """Hand on which model gets the next attempt; see `billing.sent_to`. Raises LimitError."""
        sent_to(self._meter, model)

    async def sleep(self, seconds: float) -> None:
        """Wait by the port's clock."""
        await self._meter.sleep(seconds)

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return self._meter.random()


class _Begun:
    """A stream whose first part is there already; None, where it ended without one."""

    def __init__(self, first: "ModelPart | None", rest: AsyncIterator[ModelPart]) -> None:
        self._first = first
        self._rest = rest

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelPart:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return await anext(self._rest)


@asynccontextmanager
async def begun(model: Model, request: ModelRequest, meter: Meter) -> AsyncIterator[AsyncIterator[ModelPart]]:
    """Open a model's stream and wait for its first part: what fails in here failed before anything was published."""
    async with stream_of(model, request, meter) as parts:
        yield _Begun(await anext(parts, None), parts)


def with_earlier(error: ModelError, earlier: Iterable[str]) -> ModelError:
    """Return the error that is raised in the end, with what was tried before as notes."""
    for note in earlier:
        error.add_note(note)
    return error
