"""Messages: what the run's history is made of, and what one model request shows.

Plain frozen data. Knows nothing of tools' functions, run states or how a provider writes a message.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias, cast, get_args

from attrs import Attribute, field, frozen

from .frozen import EMPTY, FrozenDict, FrozenList, Json, freeze, freeze_mapping, is_finite
from .records import copier

Status = Literal[
    "succeeded", "answered", "validation_error", "denied", "failed", "unknown", "not_executed", "pending"
]
FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "refusal", "incomplete"]
STATUSES: tuple[Status, ...] = get_args(Status)
FINISH_REASONS: tuple[FinishReason, ...] = get_args(FinishReason)


def text_field(instance: object, attribute: "Attribute[str]", value: str) -> None:
    """Validate an attrs field that must be a string."""
    if type(value) is not str:
        kind = type(value).__name__
        raise TypeError(f"{type(instance).__name__}.{attribute.name} must be a string, not {kind}")


def _optional_text(instance: object, attribute: "Attribute[str | None]", value: str | None) -> None:
    if value is not None and type(value) is not str:
        kind = type(value).__name__
        raise TypeError(f"{type(instance).__name__}.{attribute.name} must be a string or None, not {kind}")


def _seconds(instance: object, attribute: "Attribute[float | None]", value: float | None) -> None:
    if value is None:
        return
    name = f"{type(instance).__name__}.{attribute.name}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds (UTC) or None, not {type(value).__name__}")
    if not is_finite(value):
        raise ValueError(f"{name} must be finite, not {value!r}")


@frozen
class TextPart:
    """A piece of text."""

    text: str = field(validator=text_field)


def _one_source(instance: "_Medium", attribute: "Attribute[str]", value: str) -> None:
    text_field(instance, attribute, value)
    kind = type(instance).__name__
    if (instance.url is None) == (instance.data is None):
        raise ValueError(f"{kind} takes exactly one of url= and data=")
    if instance.url is not None and type(instance.url) is not str:
        raise TypeError(f"{kind}.url must be a string, not {type(instance.url).__name__}")
    if instance.data is not None and type(instance.data) is not bytes:
        raise TypeError(f"{kind}.data must be bytes, not {type(instance.data).__name__}")


@frozen(kw_only=True)
class _Medium:
    """What is not text. Its kinds are plain subclasses: `@frozen` would compile the same methods for each."""

    url: str | None = None
    data: bytes | None = None
    media_type: str = field(validator=_one_source)


class ImagePart(_Medium):
    """An image, by URL or as bytes."""

    __slots__ = ()


class AudioPart(_Medium):
    """A sound, by URL or as bytes."""

    __slots__ = ()


class FilePart(_Medium):
    """Any other file, by URL or as bytes."""

    __slots__ = ()


Part: TypeAlias = TextPart | ImagePart | AudioPart | FilePart
Content: TypeAlias = str | tuple[Part, ...]
PARTS: tuple[type[Part], ...] = (TextPart, ImagePart, AudioPart, FilePart)
_PART_SET: frozenset[type] = frozenset(PARTS)


def as_content(value: object) -> Content:
    """Return text or a tuple of parts; a TypeError says what else was given."""
    # Exact types, here and below: a codec that met a subclass would lose what it adds.
    if type(value) is str:
        return value
    if type(value) in PARTS:
        return (cast(Part, value),)
    if isinstance(value, list | tuple) and _PART_SET.issuperset(map(type, value)):
        return tuple(value)
    kind = type(value).__name__
    raise TypeError(
        f"content must be a string or a sequence of {', '.join(part.__name__ for part in PARTS)}; not {kind}"
    )


def content_text(content: Content) -> str:
    """Return the text of a content, its text parts joined; other parts have none."""
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if isinstance(part, TextPart))


def _metadata(value: object) -> FrozenDict[Json]:
    return freeze_mapping(value, "metadata")


def _items(value: object) -> FrozenList:
    if not isinstance(value, list | tuple):
        raise TypeError(f"provider_items must be a list of JSON objects, not {type(value).__name__}")
    frozen_items = freeze(value)
    assert isinstance(frozen_items, FrozenList)
    for i, item in enumerate(frozen_items):
        if not isinstance(item, FrozenDict):
            raise TypeError(f"provider_items[{i}] must be a JSON object, not {type(item).__name__}")
    return frozen_items


def _count(instance: object, attribute: "Attribute[int | None]", value: int | None) -> None:
    if value is None:
        return
    if type(value) is not int:
        raise TypeError(f"Usage.{attribute.name} must be an integer or None, not {type(value).__name__}")
    if value < 0:
        raise ValueError(f"Usage.{attribute.name} must be at least 0, not {value}")


def _add(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


@frozen(kw_only=True)
class Usage:
    """Tokens of one or many model requests. None = the provider did not say; a sum with it is None too."""

    input_tokens: int | None = field(default=None, validator=_count)
    output_tokens: int | None = field(default=None, validator=_count)
    cached_tokens: int | None = field(default=None, validator=_count)
    reasoning_tokens: int | None = field(default=None, validator=_count)

    @property
    def total(self) -> int | None:
        """Input and output tokens together, None when either is unknown."""
        return _add(self.input_tokens, self.output_tokens)

    def __add__(self, other: "Usage") -> "Usage":
        """Add two usages, field by field."""
        a, b, c, d = self.input_tokens, self.output_tokens, self.cached_tokens, self.reasoning_tokens
        # Without the validators, which valid counts need not pass again; in line, which saves 700 instructions.
        return _SUM(
            self,
            None if a is None or other.input_tokens is None else a + other.input_tokens,
            None if b is None or other.output_tokens is None else b + other.output_tokens,
            None if c is None or other.cached_tokens is None else c + other.cached_tokens,
            None if d is None or other.reasoning_tokens is None else d + other.reasoning_tokens,
        )


_SUM = copier(Usage, "input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
NO_USAGE = Usage(input_tokens=0, output_tokens=0, cached_tokens=0, reasoning_tokens=0)


@frozen(cache_hash=True)
class ToolCall:
    """A call that a response asks for. `arguments` is the JSON text exactly as the model sent it.

    `origin` is "model", or the key of the capability that added the call to the response.
    An empty `id` is filled by the runtime, from the call's place in the history.
    """

    id: str = field(validator=text_field)
    name: str = field(validator=text_field)
    arguments: str = field(default="{}", validator=text_field)
    kind: str = field(default="function", kw_only=True, validator=text_field)
    metadata: FrozenDict[Json] = field(default=EMPTY, converter=_metadata, kw_only=True)
    origin: str = field(default="model", kw_only=True, validator=text_field)


def call(name: str, arguments: Mapping[str, object] = EMPTY, *, id: str = "") -> ToolCall:
    """Make a `ToolCall` from plain arguments, for scripts and hooks. `id` "" = the runtime makes one.

    Raises `FreezeError` when the arguments are not JSON.
    """
    return ToolCall(id, name, json.dumps(freeze_mapping(arguments, "arguments"), ensure_ascii=False))


@frozen(cache_hash=True)
class SystemMessage:
    """An instruction inside the history. `at`, here as below: UTC seconds, not compared."""

    content: str = field(validator=text_field)
    at: float | None = field(default=None, kw_only=True, eq=False, validator=_seconds)


@frozen(cache_hash=True)
class UserMessage:
    """What the user said, or what the runtime or a capability says in that role."""

    content: Content = field(converter=as_content)
    at: float | None = field(default=None, kw_only=True, eq=False, validator=_seconds)


def _status(instance: object, attribute: "Attribute[Status]", value: Status) -> None:
    if value not in STATUSES:
        raise ValueError(f"ToolMessage.status must be one of {', '.join(STATUSES)}; not {value!r}")


@frozen(cache_hash=True)
class ToolMessage:
    """The outcome of one tool call, as the model reads it."""

    call_id: str = field(validator=text_field)
    tool: str = field(validator=text_field)
    content: Content = field(converter=as_content)
    status: Status = field(default="succeeded", kw_only=True, validator=_status)
    at: float | None = field(default=None, kw_only=True, eq=False, validator=_seconds)


def _calls(value: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    calls = value if type(value) is tuple else tuple(value)
    for item in calls:
        if type(item) is not ToolCall:
            kind = type(item).__name__
            raise TypeError(f"tool_calls must hold ToolCall records, not {kind}: use call(name, arguments)")
    return calls


def _usage(instance: object, attribute: "Attribute[Usage | None]", value: Usage | None) -> None:
    if value is not None and type(value) is not Usage:
        raise TypeError(f"AssistantMessage.usage must be a Usage or None, not {type(value).__name__}")


def _finish(instance: object, attribute: "Attribute[FinishReason]", value: FinishReason) -> None:
    if value not in FINISH_REASONS:
        raise ValueError(f"finish_reason must be one of {', '.join(FINISH_REASONS)}; not {value!r}")


@frozen(cache_hash=True)
class AssistantMessage:
    """One response of a model.

    `provider_items` carries opaque items of the provider (reasoning, signatures) and returns them unchanged.
    """

    content: Content = field(default="", converter=as_content)
    tool_calls: tuple[ToolCall, ...] = field(default=(), kw_only=True, converter=_calls)
    finish_reason: FinishReason = field(default="stop", kw_only=True, validator=_finish)
    usage: Usage | None = field(default=None, kw_only=True, validator=_usage)
    model: str | None = field(default=None, kw_only=True, validator=_optional_text)
    provider_items: FrozenList = field(default=FrozenList(), kw_only=True, converter=_items)
    metadata: FrozenDict[Json] = field(default=EMPTY, kw_only=True, converter=_metadata)
    at: float | None = field(default=None, kw_only=True, eq=False, validator=_seconds)

    @property
    def text(self) -> str:
        """The text of the response."""
        return content_text(self.content)


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage
MESSAGES: tuple[type[Message], ...] = (SystemMessage, UserMessage, AssistantMessage, ToolMessage)
_MESSAGE_SET: frozenset[type] = frozenset(MESSAGES)


def as_messages(value: Iterable[object], what: str = "messages") -> tuple[Message, ...]:
    """Return a tuple of messages, the same one if it is one; a TypeError names the first that is none."""
    if type(value) is tuple:  # the usual case: asking whether a value is an Iterable costs 5,000 instructions
        messages: tuple[object, ...] = value
    elif type(value) in _MESSAGE_SET or isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"{what} must be a sequence of messages, not {type(value).__name__}")
    else:
        messages = tuple(value)
    # One pass in C: this runs over a whole history when a hook uses attrs.evolve.
    if not _MESSAGE_SET.issuperset(map(type, messages)):
        i, kind = next((i, type(item)) for i, item in enumerate(messages) if type(item) not in _MESSAGE_SET)
        raise TypeError(f"{what}[{i}] must be a message record, not {kind.__name__}")
    return cast(tuple[Message, ...], messages)
