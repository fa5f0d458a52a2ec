"""What a tool function may get besides the model's arguments, and what it may raise to say how it ended.

Plain frozen markers and three exceptions. Knows nothing of schemas, runs or who fills the values in.
"""

from collections.abc import Mapping

from attrs import Attribute, field, frozen

from .frozen import EMPTY, FrozenDict, Json, freeze, freeze_mapping, thaw
from .messages import text_field


def _context(value: Mapping[str, object]) -> FrozenDict[Json]:
    return freeze_mapping(value, "ToolContext.context")


@frozen(kw_only=True)
class ToolContext:
    """What a tool learns about the call it serves; a parameter annotated with it is never in the schema.

    `deps` is the caller's object, by reference; `context` the caller's read-only JSON. `step` counts from 1
    in a run, `attempt` from 1 in a call. `idempotency_key` is the same when the call is run again.
    The defaults are there for calling a tool by hand, as in a unit test.
    """

    deps: object = field(default=None, repr=False, hash=False)  # may hold secrets, and need not be hashable
    context: Mapping[str, Json] = field(default=EMPTY, converter=_context)
    run_id: str = field(default="", validator=text_field)
    step: int = 0
    call_id: str = field(default="", validator=text_field)
    attempt: int = 1
    idempotency_key: str = field(default="", validator=text_field)


def _key(instance: object, attribute: "Attribute[str]", value: str) -> None:
    text_field(instance, attribute, value)
    if not value:
        raise ValueError(f"{type(instance).__name__} needs the key to look up, as in FromContext('user_id')")


def _default(value: object) -> object:
    return value if value is ... else freeze(value)


@frozen
class _WithDefault:
    """A marker whose value may be missing. Its kinds are plain subclasses: they add no field."""

    key: str = field(validator=_key)
    default: object = field(default=..., kw_only=True, converter=_default)

    @property
    def has_default(self) -> bool:
        """Whether there is a value to use when the key is missing."""
        return self.default is not ...

    def fresh(self) -> object:
        """Return the default as plain dicts and lists that nobody else holds."""
        return thaw(self.default)


class FromContext(_WithDefault):
    """`Annotated[T, FromContext("id")]`: the value of `context["id"]` of the run, never the model's.

    `default` is JSON (FreezeError otherwise); it is used when the key is missing, and fresh for each call.
    """

    __slots__ = ()


class FromCall(_WithDefault):
    """`Annotated[T, FromCall("id")]`: what a hook put there by `call.inject(id=...)`, never the model's.

    `default` is JSON (FreezeError otherwise); it is used when the key is missing, and fresh for each call.
    """

    __slots__ = ()


@frozen
class FromDeps:
    """`Annotated[T, FromDeps("db")]`: `deps["db"]` where deps is a mapping, else `deps.db`; by reference."""

    key: str = field(validator=_key)


class InjectionError(LookupError):
    """A value that a tool asks for is missing or does not fit; `key` says which. The body has not run."""

    def __init__(self, message: str, key: str) -> None:
        """Raise for the value of `key`."""
        super().__init__(message)
        self.key = key

    def __str__(self) -> str:
        """Return the message alone."""
        return str(self.args[0])


class _Said(Exception):
    """An exception whose one argument is a message for the model."""

    def __init__(self, message: str) -> None:
        """Raise with the sentence the model is to read; TypeError or ValueError without one."""
        if type(message) is not str:
            raise TypeError(
                f"{type(self).__name__} takes the message as a string, not {type(message).__name__}"
            )
        if not message.strip():
            raise ValueError(f"{type(self).__name__} needs a message: the model reads it and acts on it")
        super().__init__(message)
        self.message = message


class ModelRetry(_Said):
    """Raised by a tool: these arguments do not do, and `message` tells the model what to try instead."""


class ToolFailed(_Said):
    """Raised by a tool: it failed in a known way and had no effect that matters; the outcome is `failed`."""


class ToolUnknown(_Said):
    """Raised by a tool that was cut off, as by a lost connection: nobody knows whether the call took effect.

    The outcome is `unknown`, also from a tool declared idempotent, whose other exceptions are `failed`.
    """
