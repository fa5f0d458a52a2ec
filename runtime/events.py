"""The events that a streamed or started run gives its consumer. Plain data; `following` says when each is given.

A `Delta` is provisional by type: hooks may still change or withhold what it said. `Settled` is final.
"""

from typing import Generic, TypeAlias, TypeVar

from attrs import frozen

from ..capabilities.messages import Message, Status
from .errors import RunError
from .result import RunResult

Out_co = TypeVar("Out_co", covariant=True)


@frozen
class Delta:
    """A piece of text of the response under way, in the step with this number (0: not of a run)."""

    text: str
    step: int = 0


@frozen
class Settled:
    """A message that stands in the history from now on, as it stands there."""

    message: Message


@frozen
class CallStarted:
    """A tool call was handed to the port. `step` is that of its response."""

    call_id: str
    tool: str
    step: int


@frozen
class CallSettled:
    """A tool call has its outcome; its content follows in a `Settled`, after the after hooks."""

    call_id: str
    tool: str
    status: Status
    step: int


@frozen(eq=False)
class Ended(Generic[Out_co]):
    """The one last event: the result of a run that completed, stopped or is suspended, or the error it failed by.

    Exactly one of the two is None; a failed run's partial result is `error.partial`.
    """

    result: RunResult[Out_co] | None
    error: RunError | None = None


# All that a run gives, in the order of the classes above; `Ended` comes last, once.
RunEvent: TypeAlias = Delta | Settled | CallStarted | CallSettled | Ended[Out_co]
EVENTS = (Delta, Settled, CallStarted, CallSettled, Ended)
