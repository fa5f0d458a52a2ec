"""What async methods of a capability get from the runtime: `call_next` for wrappers, `outside` for gatherers.

Protocols only; the runtime implements them.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from .frozen import EMPTY

if TYPE_CHECKING:
    from .messages import AssistantMessage, Message
    from .state import NamedModel, RunState

Record_contra = TypeVar("Record_contra", contravariant=True)
Returned_co = TypeVar("Returned_co", covariant=True)


class Reach(Protocol):
    """What reaches beyond the records: the caller's objects, time and chance, all by way of the port."""

    @property
    def deps(self) -> object:
        """The caller's dependencies, by reference."""

    @property
    def attempt(self) -> int:
        """Which attempt of the port this is, from 1."""

    @property
    def idempotency_key(self) -> str:
        """A key that stays the same when the port runs this step again."""

    async def sleep(self, seconds: float) -> None:
        """Wait by the port's clock."""

    def random(self) -> float:
        """Return a number in [0, 1) from the port."""


class CallNext(Reach, Protocol[Record_contra, Returned_co]):
    """What a wrapper calls to go on inward, with the record it got or a legal change of it."""

    @property
    def resumed(self) -> bool:
        """Whether a tool call goes on here whose sub-agent had waited for decisions.

        What the wrapper does once a call it did before the run was suspended. False for a further attempt.
        """

    async def __call__(self, record: Record_contra, /) -> Returned_co:
        """Go on inward and return what came out."""


class SaveNext(Reach, Protocol):
    """What `wrap_save_messages` calls to go on inward."""

    async def __call__(self, state: "RunState", messages: "Sequence[Message]", /) -> None:
        """Go on inward: save these messages."""


class Outside(Reach, Protocol):
    """What a gatherer reaches the outside with."""

    async def request(
        self,
        messages: "Sequence[Message]",
        *,
        model: "NamedModel | None" = None,
        settings: Mapping[str, object] = EMPTY,
    ) -> "AssistantMessage":
        """Send a model request that is charged to the run; raises LimitError when none is left."""
