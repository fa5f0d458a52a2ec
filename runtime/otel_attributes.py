"""What a record says in the words of OpenTelemetry's conventions for generative AI. Pure: attributes, no spans.

The strings stand here, and nowhere else: the package that held them marks each one as moved. Content (what people,
models and tools said) is in an attribute only where a `Writer` is given.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from ..capabilities.frozen import FrozenDict, FrozenList, Json, canonical, freeze
from .audit import AuditRecord

Value: TypeAlias = str | int | float | bool | Sequence[str]
Attributes: TypeAlias = dict[str, Value]
Writer: TypeAlias = Callable[[Json], Json]  # what may be told of content: a redactor, or what it is given

# --- the strings
OPERATION: Final = "gen_ai.operation.name"
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
PROVIDER: Final = "gen_ai.provider.name"
AGENT: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TOOL: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
CALL_ID: Final = "gen_ai.tool.call.id"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"
INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
INSTRUCTIONS: Final = "gen_ai.system_instructions"
ERROR_TYPE: Final = "error.type"
OTHER: Final = "_OTHER"  # an error of no name
USAGE: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
}
# Only where there were some, as others leave them out too.
DETAILS: Final = {
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
# Settings of a request, by the names that they have in OpenAI's interface.
SETTINGS: Final = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "max_output_tokens": "gen_ai.request.max_tokens",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
    "stop": "gen_ai.request.stop_sequences",
}
# capfold's own: where a span stands in the log, and how what it stands for ended.
RUN_ID: Final = "capfold.run.id"
STEP: Final = "capfold.step"
STATUS: Final = "capfold.status"
# Outcomes that are no failure: the call was answered, or a person is asked.
_FINE: Final = frozenset({"succeeded", "answered", "pending"})


def agent_attributes(record: AuditRecord, write: Writer | None) -> Attributes:
    """Return what its first record says of a run, beside its names."""
    found: Attributes = {OPERATION: INVOKE_AGENT, RUN_ID: record.run}
    if write is not None:
        _content(found, INPUT, _messages(record.facts.get("prompt")), write)
        instructions = record.facts.get("instructions")
        if instructions:
            _content(found, INSTRUCTIONS, FrozenList([_part(instructions)]), write)
    return found


def agent_end(record: AuditRecord, write: Writer | None) -> Attributes:
    """Return what is known when a run ended, or waits."""
    status = record.facts.get("status")
    found: Attributes = {STATUS: status if isinstance(status, str) else "suspended"}
    output = record.facts.get("output")
    if write is not None and output is not None:
        _content(found, OUTPUT, FrozenList([_said("assistant", [_part(output)], "stop")]), write)
    return found


def chat_attributes(
    asked: AuditRecord | None, model: str, provider: str | None, conversation: str | None
) -> Attributes:
    """Return what is known of a request when it goes out. `asked`: the record of it, where there is one."""
    found: Attributes = {OPERATION: CHAT, REQUEST_MODEL: model}
    if provider is not None:
        found[PROVIDER] = provider
    if conversation is not None:
        found[CONVERSATION] = conversation
    settings = asked.facts.get("settings") if asked is not None else None
    if isinstance(settings, Mapping):
        for name, attribute in SETTINGS.items():
            value = settings.get(name)
            if name == "stop" and isinstance(value, str):
                value = FrozenList([value])
            if isinstance(value, FrozenList):
                found[attribute] = [str(one) for one in value]
            elif isinstance(value, int | float):
                found[attribute] = value
    return found


def chat_end(response: object, write: Writer | None) -> Attributes:
    """Return what a response says."""
    found: Attributes = {}
    if not isinstance(response, Mapping):
        return found
    model, reason = response.get("model"), response.get("finish_reason")
    if isinstance(model, str):
        found[RESPONSE_MODEL] = model
    if isinstance(reason, str):
        found[FINISH_REASONS] = [reason]
    found |= usage_attributes(response.get("usage"))
    if write is not None:
        _content(found, OUTPUT, FrozenList([_said("assistant", _parts(response), str(reason))]), write)
    return found


def usage_attributes(usage: object) -> Attributes:
    """Return the tokens that are known."""
    found: Attributes = {}
    if isinstance(usage, Mapping):
        for name, attribute in USAGE.items():
            if isinstance(value := usage.get(name), int):
                found[attribute] = value
        for name, attribute in DETAILS.items():
            if isinstance(value := usage.get(name), int) and value:
                found[attribute] = value
    return found


def gatherer_chats(record: AuditRecord) -> Iterator[tuple[str | None, Attributes]]:
    """Yield the model and the tokens of each request of a gatherer, None where there was no response."""
    bills, requests = record.facts.get("bills"), record.facts.get("requests")
    listed = bills if isinstance(bills, FrozenList) else ()
    for bill in listed:
        if isinstance(bill, Mapping):
            yield str(bill.get("model")), usage_attributes(bill.get("usage"))
    for _ in range((requests if isinstance(requests, int) else 0) - len(listed)):
        yield None, {}


def tool_attributes(call: str, tool: str, agent: str, arguments: Json, write: Writer | None) -> Attributes:
    """Return what is known of a call when it is handed to its tool."""
    found: Attributes = {OPERATION: EXECUTE_TOOL, TOOL: tool, TOOL_TYPE: "function", CALL_ID: call}
    if agent:
        found[AGENT] = agent
    if write is not None and arguments is not None:
        _content(found, ARGUMENTS, arguments, write)
    return found


def tool_end(facts: Mapping[str, Json], write: Writer | None) -> Attributes:
    """Return what became of a call."""
    outcome = facts.get("outcome")
    found: Attributes = {}
    if isinstance(outcome, Mapping):
        found[STATUS] = str(outcome.get("status"))
        content = outcome.get("content")
        if write is not None and content is not None:
            _content(found, RESULT, content, write)
    return found


def error_of_outcome(facts: Mapping[str, Json]) -> tuple[str, str] | None:
    """Return type and message of a tool's failure, None where it did not fail."""
    outcome = facts.get("outcome")
    if not isinstance(outcome, Mapping) or outcome.get("status") in _FINE:
        return None
    error = outcome.get("error")
    if isinstance(error, Mapping):
        return str(error.get("type")), str(error.get("message"))
    return str(outcome.get("status")), str(outcome.get("content"))


def error_of_run(record: AuditRecord) -> tuple[str, str] | None:
    """Return type and message of the reason why a run failed or was cancelled, None where it did not."""
    status, reason = record.facts.get("status"), record.facts.get("reason")
    if isinstance(reason, Mapping):
        return str(reason.get("type", status)), str(reason.get("message"))
    return (str(status), "") if status in {"failed", "cancelled"} else None


# --- content


def _content(found: Attributes, name: str, value: Json, write: Writer) -> None:
    told = write(value)
    found[name] = told if isinstance(told, str) else canonical(told)


def _messages(prompt: Json) -> FrozenList:
    written: list[Json] = []
    for message in prompt if isinstance(prompt, FrozenList) else ():
        if isinstance(message, FrozenDict):
            role = str(message.get("type", "")).removesuffix("Message").lower()
            written.append(_said(role, _parts(message)))
    return FrozenList(written)


def _said(role: str, parts: Sequence[Json], finish_reason: str | None = None) -> Json:
    said: dict[str, Json] = {"role": role, "parts": FrozenList(parts)}
    return FrozenDict(said if finish_reason is None else {**said, "finish_reason": finish_reason})


def _parts(message: Mapping[str, Json]) -> list[Json]:
    content = message.get("content")
    parts: list[Json] = []
    if isinstance(content, FrozenList):
        parts += [_part(part) for part in content]
    elif content:
        parts.append(_part(content))
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, FrozenList) else ():
        if isinstance(call, FrozenDict):
            parts.append(
                FrozenDict(
                    {
                        "type": "tool_call",
                        "id": call.get("id"),
                        "name": call.get("name"),
                        "arguments": _arguments(call.get("arguments")),
                    }
                )
            )
    return parts


def _part(part: Json) -> Json:
    """Write text as text; of what is no text, only its kind, for an image is no attribute."""
    if isinstance(part, str):
        return FrozenDict({"type": "text", "content": part})
    if isinstance(part, FrozenDict) and part.get("type") == "TextPart":
        return FrozenDict({"type": "text", "content": part.get("text")})
    if isinstance(part, FrozenDict) and "type" in part:
        return FrozenDict({"type": str(part["type"]).removesuffix("Part").lower()})
    return FrozenDict({"type": "text", "content": canonical(part)})


def _arguments(text: Json) -> Json:
    """Return arguments as JSON; text that is none, as a model may send, stays text."""
    try:
        return freeze(json.loads(text)) if isinstance(text, str) else text
    except (ValueError, RecursionError):  # FreezeError, such as for NaN, is a ValueError
        return text
