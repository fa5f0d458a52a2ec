"""The small records inside a RunState, and the shapes of its fields. Knows neither verbs nor hooks."""

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

from attrs import Attribute, field, frozen

from .frozen import FrozenDict, Json, freeze_mapping
from .messages import Message, Usage, as_messages, text_field
from .tools import Tool

RunStatus = Literal["running", "completed", "stopped", "suspended", "failed", "cancelled"]


class NamedModel(Protocol):
    """All that a record needs to know of a model."""

    @property
    def name(self) -> str:
        """The model's name, as it stands in the log."""


@frozen
class Stop:
    """The run ends as a result. The runtime fills in who stopped it: key, hook, and the call if one."""

    message: str = field(validator=text_field)
    key: str | None = None
    hook: str | None = None
    call_id: str | None = None


@frozen
class Fail:
    """The run ends as a failure. The runtime fills in who failed it."""

    reason: str = field(validator=text_field)
    key: str | None = None
    hook: str | None = None
    call_id: str | None = None


@frozen
class OutputSpec:
    """What the output must be: a type's name and the JSON Schema that a response's text must satisfy."""

    name: str
    schema: FrozenDict[Json]


def context_of(value: object) -> FrozenDict[Json]:
    """Convert a run's context."""
    return freeze_mapping(value, "context")


def settings_of(value: object) -> FrozenDict[Json]:
    """Convert model settings."""
    return freeze_mapping(value, "settings")


def history_of(value: Iterable[object]) -> tuple[Message, ...]:
    """Convert a history; a tuple of messages stays the identical one."""
    return as_messages(value)


def usages_of(value: Mapping[str, Usage]) -> FrozenDict[Usage]:
    """Convert usages by the name of a model."""
    return value if type(value) is FrozenDict else FrozenDict(value)


def tools_of(value: Iterable[Tool]) -> tuple[Tool, ...]:
    """Convert a selection or an inventory; TypeError for anything that is no Tool."""
    tools = value if type(value) is tuple else tuple(value)
    for item in tools:
        if type(item) is not Tool:
            raise TypeError(f"tools must hold Tool records, not {type(item).__name__}")
    return tools


def check_model(value: object) -> None:
    """Raise TypeError for what cannot be a model."""
    if type(getattr(value, "name", None)) is not str:
        raise TypeError(f"a model must be an object with a name, such as OpenAIModel(...), not {value!r:.80}")


def model_field(
    instance: object, attribute: "Attribute[NamedModel | None]", value: NamedModel | None
) -> None:
    """Validate a field that holds a model or None."""
    if value is not None:
        check_model(value)
