"""The Model protocol: one request in, one response out, every attempt charged.

What a model, an adapter and the port agree on. Knows nothing of capabilities, runs or the ledger's numbers.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

from attrs import field, frozen

from ..capabilities.frozen import EMPTY, FrozenDict, Json
from ..capabilities.messages import AssistantMessage, Message
from ..capabilities.shapes import none_or
from ..capabilities.state import OutputSpec
from ..capabilities.tools import Tool
from .errors import by_parts
from .prices import Price

if TYPE_CHECKING:
    from .events import Delta

ModelErrorKind: TypeAlias = Literal[
    "timeout", "rate_limit", "connection", "server", "bad_request", "auth", "invalid_response", "script"
]


@frozen(kw_only=True)
class ModelProfile:
    """What a model can do, and its price; None = not given, so that a limit on cost asks the price list."""

    tools: bool = True
    json_schema: bool = False
    images: bool = False
    audio: bool = False
    files: bool = False
    reports_usage: bool = True
    price: Price | None = field(default=None, validator=none_or(Price))


class ModelError(Exception):
    """A model request failed. `retryable`: the same request may succeed later; `retry_after` in seconds."""

    __reduce__ = by_parts

    def __init__(
        self,
        kind: ModelErrorKind,
        message: str,
        *,
        retryable: bool,
        status: int | None = None,
        retry_after: float | None = None,
        partial: str = "",
    ) -> None:
        """Describe the failure; `status` is HTTP's, `partial` the text that came before it broke off."""
        super().__init__(message)
        self.kind: ModelErrorKind = kind
        self.message = message
        self.retryable = retryable
        self.status = status
        self.retry_after = retry_after
        self.partial = partial


@frozen(kw_only=True)
class ModelRequest:
    """All that a model gets: what to show it, offer it, and ask of it."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    instructions: str = ""
    settings: FrozenDict[Json] = EMPTY
    output_spec: OutputSpec | None = None
    run_id: str = "run"
    step: int = 1


class Meter(Protocol):
    """The run's account as a model sees it."""

    def charge(self) -> None:
        """Book one attempt, just before it is sent; raises LimitError when none is left."""

    async def sleep(self, seconds: float) -> None:
        """Wait by the port's clock."""

    def random(self) -> float:
        """Return a number in [0, 1)."""


class Model(Protocol):
    """A model. `request` raises ModelError, never returns a half response."""

    @property
    def name(self) -> str:
        """The name that stands in the log."""

    @property
    def profile(self) -> ModelProfile:
        """What it can do."""

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        """Send one request; call `meter.charge()` before each attempt that leaves the process."""


ModelPart: TypeAlias = "Delta | AssistantMessage"


@runtime_checkable
class StreamingModel(Model, Protocol):
    """A model that can also say its response as it comes."""

    def stream(
        self, request: ModelRequest, meter: Meter
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelPart]]:
        """Open a stream: a `Delta` for each piece of text, and the complete response last, exactly once.

        Entering sends the request. Raises ModelError, whose `partial` is the text so far, when it breaks off,
        stalls, or ends without a finish reason; leaving early closes the connection.
        """


_FORBIDDEN: ContextVar[bool] = ContextVar("forbid_model_requests", default=False)


@contextmanager
def forbid_model_requests() -> Iterator[None]:
    """Within this context, any request that would leave the process raises RuntimeError. For tests."""
    token = _FORBIDDEN.set(True)
    try:
        yield
    finally:
        _FORBIDDEN.reset(token)


def refuse_if_forbidden(name: str) -> None:
    """Raise RuntimeError inside `forbid_model_requests()`; called by every adapter that leaves the process."""
    if _FORBIDDEN.get():
        raise RuntimeError(f"a request to {name} inside forbid_model_requests()")


ModelMaker: TypeAlias = Callable[[str], Model]


def _make_test(name: str) -> Model:
    from .scripted_model import EchoModel  # noqa: PLC0415  # it needs this module

    return EchoModel()


def _make_openai(name: str) -> Model:
    from .openai_model import OpenAIModel  # noqa: PLC0415  # it needs this module

    return OpenAIModel(name)


# How the model of a string is made: of a whole one, and of what stands before the colon of PROVIDER:NAME. Adapters
# are imported when asked for.
NAMED: dict[str, ModelMaker] = {"test": _make_test}
PROVIDERS: dict[str, ModelMaker] = {"openai": _make_openai}


def is_model(value: object) -> bool:
    """Tell whether an object has what a model has: a name, a profile, an async request()."""
    return (
        callable(getattr(value, "request", None))
        and isinstance(getattr(value, "name", None), str)
        and isinstance(getattr(value, "profile", None), ModelProfile)
    )


def as_model(value: "Model | str") -> Model:
    """Return a model; a string is "test" or "openai:NAME".

    Raises ValueError for an unknown string, TypeError for what is no model.
    """
    if isinstance(value, str):
        provider, _, name = value.partition(":")
        make = PROVIDERS.get(provider) if name else NAMED.get(value)
        if make is None:
            known = " or ".join(map(repr, [*NAMED, *(f"{one}:NAME" for one in PROVIDERS)]))
            raise ValueError(f"unknown model {value!r}: write {known}, or give a model object")
        return make(name)
    if not is_model(value):
        raise TypeError(
            f"a model has a name, a ModelProfile and an async request(); {type(value).__name__} has not"
        )
    return value
