"""One chat completions request as bytes, and what the requests of both APIs are made with.

Each frozen message and tool is encoded once, while it lives. Pure, and imports no openai: what a request costs here
does not grow with the size of the messages already sent, only with their number (a look-up and a pointer each).
"""

import json
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar
from weakref import ReferenceType, ref

from attrs import frozen

from ..capabilities.messages import (
    AudioPart,
    FilePart,
    ImagePart,
    Message,
    Part,
    ToolMessage,
    UserMessage,
)
from ..capabilities.tools import Tool
from .models import ModelProfile, ModelRequest
from .openai_messages import write_handed, write_message
from .openai_output import OutputForm, output_form
from .openai_parts import Unsendable

K = TypeVar("K")
V = TypeVar("V")

# Body fields that the adapter writes itself. `n`: only one choice is read, the others would be paid in vain.
RESERVED = frozenset(
    {"model", "messages", "tools", "stream", "stream_options", "n", "functions", "function_call"}
)
# Settings that the API refuses in a request without tools.
OF_TOOLS = ("tool_choice", "parallel_tool_calls")


def to_bytes(value: object) -> bytes:
    """Return the JSON of a value, as UTF-8."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError:  # a lone surrogate, which a model can send, has an escape but no UTF-8
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


class Remembered(Generic[K, V]):
    """A pure function's results, kept for as long as the argument lives: by identity, without hashing it."""

    def __init__(self, function: Callable[[K], V]) -> None:
        """Remember what `function` makes of each object."""
        self._function = function
        self._kept: dict[int, tuple[ReferenceType[K], V]] = {}

    def __call__(self, value: K) -> V:
        """Return what the function made of this very object; an error is not remembered."""
        key = id(value)
        entry = self._kept.get(key)
        if entry is None or entry[0]() is not value:
            kept = self._kept
            entry = kept[key] = (ref(value, lambda _: kept.pop(key, None)), self._function(value))
        return entry[1]

    def __len__(self) -> int:
        """How many results are kept now."""
        return len(self._kept)


@frozen
class Fragment:
    """A message as it stands in the body.

    `needs`: fields of ModelProfile that it needs of a model, each with the index of the part that needs it.
    `after`: what must follow the results of the batch, on the chat wire. `custom_calls`: calls of custom tools
    are in it, whose results the responses API wants in another form.
    """

    data: bytes
    needs: tuple[tuple[str, int], ...] = ()
    after: bytes | None = None
    custom_calls: bool = False


_NEEDS: dict[type[Part], str] = {ImagePart: "images", AudioPart: "audio", FilePart: "files"}


def needs_of(message: Message) -> tuple[tuple[str, int], ...]:
    """Return what the parts of a message need of a model: see `Fragment`."""
    if not isinstance(message, UserMessage | ToolMessage) or isinstance(message.content, str):
        return ()
    return tuple((_NEEDS[type(part)], i) for i, part in enumerate(message.content) if type(part) in _NEEDS)


def _fragment(message: Message) -> Fragment:
    handed = write_handed(message) if isinstance(message, ToolMessage) else None
    after = None if handed is None else to_bytes(handed)
    return Fragment(to_bytes(write_message(message)), needs_of(message), after)


encode_message: Remembered[Message, Fragment] = Remembered(_fragment)


def _tool(tool: Tool) -> bytes:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return to_bytes({"type": "function", "function": function})


encode_tool: Remembered[Tool, bytes] = Remembered(_tool)


def check_settings(settings: Mapping[str, object]) -> None:
    """Raise ValueError for a setting that would overwrite what the adapter writes."""
    if taken := sorted(RESERVED & settings.keys()):
        raise Unsendable(f"not a setting, it is written by the adapter: {', '.join(taken)}")


@frozen
class Encoded:
    """A request's body, and in which form its output was asked for."""

    body: bytes
    output: OutputForm | None


def check_needs(fragment: Fragment, model: str, profile: ModelProfile) -> None:
    """Raise `Unsendable` when a model has not what a message needs of it."""
    for need, part in fragment.needs:
        if not getattr(profile, need):
            raise Unsendable(
                f"content[{part}]: {model} takes no {need}: send text, or give it a profile with {need}=True "
                "if it does"
            )


def check_tools(request: ModelRequest, model: str, profile: ModelProfile) -> None:
    """Raise `Unsendable` when tools are selected for a model that takes none."""
    if request.tools and not profile.tools:
        raise Unsendable(f"{model} takes no tools, and {len(request.tools)} are selected")


def _encode_messages(request: ModelRequest, model: str, profile: ModelProfile) -> list[bytes]:
    found: list[bytes] = []
    if request.instructions:
        found.append(to_bytes({"role": "system", "content": request.instructions}))
    handed: list[bytes] = []
    i = 0
    try:
        for i, message in enumerate(request.messages):  # noqa: B007  # it is told where an error is
            fragment = encode_message(message)
            if fragment.needs:
                check_needs(fragment, model, profile)
            if handed and type(message) is not ToolMessage:
                found += handed
                handed = []
            found.append(fragment.data)
            if fragment.after is not None:
                handed.append(fragment.after)
    except Unsendable as error:
        raise Unsendable(f"messages[{i}].{error}") from None
    return found + handed


def encode_request(
    request: ModelRequest, model: str, profile: ModelProfile, settings: Mapping[str, object]
) -> Encoded:
    """Return the body of a request. Settings are fields of the body; those of the request win, None = unset.

    Raises `Unsendable` for what this model or the chat API cannot carry.
    """
    merged = {name: value for name, value in {**settings, **request.settings}.items() if value is not None}
    check_settings(merged)
    check_tools(request, model, profile)
    output = output_form(request.output_spec, profile, [tool.name for tool in request.tools])
    tools = [encode_tool(tool) for tool in request.tools]
    if output is not None and output.as_tool:
        tools.append(to_bytes({"type": "function", "function": output.function}))
        merged.setdefault("tool_choice", "required")  # a plain text could only be refused and asked for again
    elif output is not None:
        if "response_format" in merged:
            raise Unsendable("response_format is written by the adapter when the run has an output type")
        merged["response_format"] = output.response_format
    if not tools:
        for name in OF_TOOLS:
            merged.pop(name, None)

    messages = _encode_messages(request, model, profile)
    body = [to_bytes({"model": model, **merged})[:-1], b',"messages":[', b",".join(messages), b"]"]
    if tools:
        body += [b',"tools":[', b",".join(tools), b"]"]
    return Encoded(b"".join([*body, b"}"]), output)
