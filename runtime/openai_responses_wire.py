"""One request of the responses API as bytes. Each frozen message and tool is encoded once, while it lives.

Pure, and imports no openai. The whole history goes with each request, and nothing is stored with the provider
("store": false): the run's own history is the one truth, and what hooks hide from a view stays hidden.
"""

import re
from collections.abc import Mapping

from ..capabilities.messages import AssistantMessage, Message, ToolMessage
from ..capabilities.tools import Tool
from .models import ModelProfile, ModelRequest
from .openai_output import OutputForm, output_form
from .openai_parts import Unsendable
from .openai_responses_items import write_items, write_result
from .openai_wire import (
    OF_TOOLS,
    Encoded,
    Fragment,
    Remembered,
    check_needs,
    check_tools,
    needs_of,
    to_bytes,
)

# Body fields that the adapter writes itself, or that would bring in another history than the run's.
RESERVED = frozenset(
    {
        "model",
        "input",
        "instructions",
        "tools",
        "stream",
        "stream_options",
        "background",
        "conversation",
        "previous_response_id",
    }
)
_NONE = "the responses API has no such setting"
# Settings of chat completions -> what this API has in their place.
HINTS = {
    "max_tokens": "write max_output_tokens",
    "max_completion_tokens": "write max_output_tokens",
    "reasoning_effort": "write reasoning={'effort': ...}",
    "verbosity": "write text={'verbosity': ...}",
    "response_format": "write text={'format': ...}, or give the agent an output_type",
    "logprobs": "write include=['message.output_text.logprobs'] and top_logprobs",
    "web_search_options": "give a tool",
    "messages": "the adapter writes the history, as input",
    "functions": "give the agent tools",
    "function_call": "write tool_choice",
    **dict.fromkeys(
        (
            "n",
            "stop",
            "seed",
            "frequency_penalty",
            "presence_penalty",
            "logit_bias",
            "audio",
            "modalities",
            "prediction",
        ),
        _NONE,
    ),
}
_ENCRYPTED = "reasoning.encrypted_content"
# Models that reason, by name: others refuse to be asked for their encrypted reasoning.
_REASONING = re.compile(r"(?:.*/)?(?:o\d|gpt-(?:[5-9]|\d\d)(?!.*-chat)|gpt-oss|codex)")


def _items(message: Message) -> Fragment:
    custom = isinstance(message, AssistantMessage) and any(c.kind == "custom" for c in message.tool_calls)
    data = b",".join(to_bytes(item) for item in write_items(message))
    return Fragment(data, needs_of(message), custom_calls=custom)


def _custom_result(message: Message) -> Fragment:
    assert isinstance(message, ToolMessage)
    return Fragment(to_bytes(write_result(message, "custom")), needs_of(message))


encode_items: Remembered[Message, Fragment] = Remembered(_items)
encode_custom_result: Remembered[Message, Fragment] = Remembered(_custom_result)


def _flat(name: str, description: str, parameters: object) -> bytes:
    # Unsaid, "strict" is true here, and most schemas would be refused; on the chat wire it is false.
    return to_bytes(
        {
            "type": "function",
            "name": name,
            "description": description,
            "parameters": parameters,
            "strict": False,
        }
    )


def _tool(tool: Tool) -> bytes:
    return _flat(tool.name, tool.description, tool.parameters)


encode_flat_tool: Remembered[Tool, bytes] = Remembered(_tool)


def check_settings(settings: Mapping[str, object]) -> None:
    """Raise ValueError for a setting that the adapter writes itself, or that this API spells otherwise."""
    if taken := sorted(RESERVED & settings.keys()):
        raise Unsendable(f"not a setting, it is written by the adapter: {', '.join(taken)}")
    for name in settings:
        if name in HINTS:
            raise Unsendable(f"no setting of the responses API: {name}; {HINTS[name]}")
    choice = settings.get("tool_choice")
    if isinstance(choice, Mapping) and choice.keys() & {"function", "custom"}:
        raise Unsendable(
            "tool_choice is flat in the responses API: write {'type': 'function', 'name': ...}, "
            "without an object inside"
        )
    text = settings.get("text")
    if text is not None and not isinstance(text, Mapping):
        raise Unsendable(f"text is an object, as {{'verbosity': 'low'}}, not {type(text).__name__}")


def _settings(
    model: str, settings: Mapping[str, object], output: OutputForm | None, *, tools: bool
) -> dict[str, object]:
    """Return the fields of the body that are settings. "include" of the caller's own replaces ours."""
    merged: dict[str, object] = {"store": False}
    if settings.get("reasoning") is not None or _REASONING.match(model):
        merged["include"] = [_ENCRYPTED]
    merged.update(settings)
    if output is not None and output.as_tool:
        merged.setdefault("tool_choice", "required")  # a plain text could only be refused and asked for again
    elif output is not None:
        text = merged.get("text")
        given = text if isinstance(text, Mapping) else {}
        if "format" in given:
            raise Unsendable("text.format is written by the adapter when the run has an output type")
        merged["text"] = {**given, "format": output.text_format}
    if not tools:
        for name in OF_TOOLS:
            merged.pop(name, None)
    return merged


def _encode_messages(request: ModelRequest, model: str, profile: ModelProfile) -> list[bytes]:
    found: list[bytes] = []
    custom: set[str] = set()
    i = 0
    try:
        for i, message in enumerate(request.messages):  # noqa: B007  # it is told where an error is
            if custom and isinstance(message, ToolMessage) and message.call_id in custom:
                fragment = encode_custom_result(message)
            else:
                fragment = encode_items(message)
            if fragment.needs:
                check_needs(fragment, model, profile)
            if fragment.custom_calls and isinstance(message, AssistantMessage):
                custom.update(call.id for call in message.tool_calls if call.kind == "custom")
            found.append(fragment.data)
    except Unsendable as error:
        raise Unsendable(f"messages[{i}].{error}") from None
    return found


def encode_responses_request(
    request: ModelRequest, model: str, profile: ModelProfile, settings: Mapping[str, object]
) -> Encoded:
    """Return the body of a request. Settings are fields of the body; those of the request win, None = unset.

    Raises `Unsendable` for what this model or the responses API cannot carry.
    """
    merged = {name: value for name, value in {**settings, **request.settings}.items() if value is not None}
    check_settings(merged)
    check_tools(request, model, profile)
    output = output_form(request.output_spec, profile, [tool.name for tool in request.tools])
    tools = [encode_flat_tool(tool) for tool in request.tools]
    if output is not None and output.as_tool:
        function = output.function
        tools.append(_flat(str(function["name"]), str(function["description"]), function["parameters"]))
    fields = {"model": model, **_settings(model, merged, output, tools=bool(tools))}
    if request.instructions:
        fields["instructions"] = request.instructions
    messages = _encode_messages(request, model, profile)
    body = [to_bytes(fields)[:-1], b',"input":[', b",".join(messages), b"]"]
    if tools:
        body += [b',"tools":[', b",".join(tools), b"]"]
    return Encoded(b"".join([*body, b"}"]), output)
