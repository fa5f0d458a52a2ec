"""How a run fails: a closed union of reasons, and one exception class for each family of them.

A reason is plain data that names where it arose and says what would have been legal; the exception carries it.
One that adds no field is a plain subclass: `@frozen` would only compile the same methods again, 0.6 ms each.
"""

from typing import TYPE_CHECKING, TypedDict

from attrs import frozen

if TYPE_CHECKING:
    from .log_diff import Difference
    from .result import RunResult


@frozen(kw_only=True)
class Reason:
    """Base of all reasons: where it arose, as far as that applies. `message` is the sentence people read."""

    message: str
    key: str | None = None
    index: int | None = None
    hook: str | None = None
    step: int | None = None
    call: str | None = None
    field: str | None = None

    def __str__(self) -> str:
        """The sentence, with its place."""
        place = [
            f"{name} {value!r}" if isinstance(value, str) else f"{name} {value}"
            for name, value in (
                ("capability", self.key),
                ("index", self.index),
                ("hook", self.hook),
                ("step", self.step),
                ("call", self.call),
                ("field", self.field),
            )
            if value is not None
        ]
        return f"{self.message} ({', '.join(place)})" if place else self.message


class Place(TypedDict):
    """Where in a list a reason arose: fields of `Reason`, as in `HookFailed(message=..., **place)`."""

    key: str
    index: int
    hook: str
    step: int
    call: str | None


# --- a capability is at fault


@frozen(kw_only=True)
class HookFailed(Reason):
    """A hook raised; the cause is the exception's `__cause__`."""

    error: str = ""


class InvalidReturn(Reason):
    """A hook returned something else than its record."""


@frozen(kw_only=True)
class IllegalTransition(Reason):
    """A hook wrote a field that it may not write there; `legal` says what would have been."""

    legal: str = ""


class Restored(Reason):
    """In strict mode, a hook wrote a field that belongs to the runtime."""


class InvalidSelection(Reason):
    """The tools selected for a request cannot be offered."""


class InvalidView(Reason):
    """The messages projected for a request cannot be sent."""


# --- a limit


@frozen(kw_only=True)
class LimitExceeded(Reason):
    """A limit of the run was reached. `limit` is its name in `Limits`; `used` and `allowed` in its unit."""

    limit: str
    used: float
    allowed: float
    share: float | None = None


@frozen(kw_only=True)
class UsageUnknown(Reason):
    """A limit on tokens or cost is set, and a model's usage or price is not known. `limit` is its name in `Limits`."""

    limit: str


# --- the model


@frozen(kw_only=True)
class ModelFailed(Reason):
    """A model request failed; `kind` as in ModelError."""

    kind: str
    retryable: bool = False
    status: int | None = None


@frozen(kw_only=True)
class IncompleteResponse(Reason):
    """The response was cut off, filtered or ended without being finished."""

    finish_reason: str


class InvalidResponse(Reason):
    """The response cannot be used: equal call ids, or not a message."""


# --- tools, output, policy, storage


@frozen(kw_only=True)
class ToolRetriesExhausted(Reason):
    """A tool failed in more steps in a row than its `max_retries` forgive."""

    tool: str


@frozen(kw_only=True)
class UnselectedRetriesExhausted(Reason):
    """The model called tools outside its prepared set more often than is forgiven."""

    tool: str


class OutputRetriesExhausted(Reason):
    """The output was invalid, or sent back, more often than is forgiven."""


class Blocked(Reason):
    """A capability ended the run by `fail(reason)`."""


class SinkFailed(Reason):
    """A log sink could not write."""


@frozen(kw_only=True)
class StoreFailed(Reason):
    """A message store could not read or write. `expected`, `found`: the counts of messages where another run wrote."""

    conversation: str | None = None
    expected: int | None = None
    found: int | None = None


class RunError(Exception):
    """A run ended in failure. `reason` is a typed record, `partial` what the run had come to."""

    def __init__(self, reason: Reason, partial: "RunResult[object] | None" = None) -> None:
        """Carry the reason and the partial result."""
        super().__init__(str(reason))
        self.reason = reason
        self.partial = partial


class HookError(RunError):
    """A capability broke: it raised, or broke a rule."""


class LimitError(RunError):
    """A limit of the run was reached."""


class ModelRunError(RunError):
    """The model failed, or answered what cannot be used."""


class ToolError(RunError):
    """Tools failed more often than is forgiven."""


class OutputError(RunError):
    """The output never became valid."""


class BlockedError(RunError):
    """A capability ended the run on purpose."""


class StorageError(RunError):
    """The log or the store failed."""


FAMILIES: dict[type[Reason], type[RunError]] = {
    HookFailed: HookError,
    InvalidReturn: HookError,
    IllegalTransition: HookError,
    Restored: HookError,
    InvalidSelection: HookError,
    InvalidView: HookError,
    LimitExceeded: LimitError,
    UsageUnknown: LimitError,
    ModelFailed: ModelRunError,
    IncompleteResponse: ModelRunError,
    InvalidResponse: ModelRunError,
    ToolRetriesExhausted: ToolError,
    UnselectedRetriesExhausted: ToolError,
    OutputRetriesExhausted: OutputError,
    Blocked: BlockedError,
    SinkFailed: StorageError,
    StoreFailed: StorageError,
}


def run_error(
    reason: Reason, partial: "RunResult[object] | None" = None, cause: BaseException | None = None
) -> RunError:
    """Return the exception of a reason, its cause attached."""
    error = FAMILIES[type(reason)](reason, partial)
    error.__cause__ = cause
    return error


def message_of(error: BaseException) -> str:
    """Return what an exception says: of one of the user's that cannot say it, what that came to."""
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001  # `__str__` is the user's, and must not hide that there was an error
        return f"its message cannot be had: str() raised {type(broken).__name__}"


def by_parts(error: BaseException) -> tuple[object, ...]:
    """Reduce an exception to what it is made of, so that another process reads it as it was.

    By default it is made of its message, which is not what the `__init__` of these takes.
    """
    return _remade, (type(error), error.args, vars(error))


def _remade(kind: type[BaseException], args: tuple[object, ...], fields: dict[str, object]) -> BaseException:
    error: BaseException = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class CodecError(ValueError):
    """Data that the codec cannot read or write; `path` says where."""

    __reduce__ = by_parts

    def __init__(self, message: str, path: str = "$") -> None:
        """Raise for what stands at `path`."""
        super().__init__(f"{path}: {message}")
        self.path = path


class DecisionError(ValueError):
    """A decision that fits no pending request, or is malformed; nothing changed. `digest` names the request."""

    def __init__(self, message: str, digest: str = "") -> None:
        """Raise for the request with `digest`."""
        super().__init__(message)
        self.digest = digest


class LogError(ValueError):
    """A log that is none, is torn, or was changed; `record` is the number of the first bad record, from 0."""

    def __init__(self, message: str, record: int | None = None) -> None:
        """Raise for the record with this number."""
        super().__init__(message if record is None else f"record {record}: {message}")
        self.record = record


class ReplayError(ValueError):
    """A log that cannot be replayed, or a replay that came out differently.

    `record`: the number of the record in the log, from 0, where it shows; `difference`: what differs there.
    """

    def __init__(
        self, message: str, record: int | None = None, difference: "Difference | None" = None
    ) -> None:
        """Raise for the record with this number."""
        super().__init__(message if record is None else f"record {record}: {message}")
        self.record = record
        self.difference = difference
