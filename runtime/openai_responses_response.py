"""One response of the responses API, from the bytes of its body to an AssistantMessage.

Pure, and imports no openai. Any bytes give an AssistantMessage or a ModelError, never another exception. The
record is that of chat completions for the same words and calls; what that API has not stands in
`provider_items` and in the metadata of calls, as `openai_responses_items` says.
"""

import json
from collections.abc import Mapping

from attrs import evolve

from ..capabilities.frozen import freeze
from ..capabilities.messages import AssistantMessage, Content, FinishReason, TextPart, ToolCall, Usage
from .models import ModelError
from .openai_failures import CODES, Meaning
from .openai_messages import SHOWN
from .openai_output import BESIDE_OUTPUT, OutputForm, read_output
from .openai_parts import Unreadable, is_empty, mapping_at, text_at
from .openai_response import SHOWN_CHARACTERS, count_at, invalid, parsed
from .openai_responses_items import CALLS, EXTRA, ITEM, KINDS, MESSAGE

# Error code of a failed response -> what it means; one that is not known finds fault with the request.
_CODES: dict[str, Meaning] = {**CODES, "vector_store_timeout": ("server", True)}
_COMMENTARY = "commentary"
_TYPES = {item: (kind, field) for kind, (item, field, _) in KINDS.items()}


def read_usage(value: object) -> Usage | None:
    """Return the usage of a response, None where it says nothing."""
    if not isinstance(value, Mapping):
        return None
    return Usage(
        input_tokens=count_at(value, "input_tokens"),
        output_tokens=count_at(value, "output_tokens"),
        cached_tokens=count_at(value.get("input_tokens_details"), "cached_tokens"),
        reasoning_tokens=count_at(value.get("output_tokens_details"), "reasoning_tokens"),
    )


def response_failure(error: object) -> ModelError:
    """Return what the error object of a failed response, or an event of a stream, means."""
    found = error if isinstance(error, Mapping) else {}
    code, message = found.get("code"), found.get("message")
    kind, retryable = _CODES.get(code, ("bad_request", False)) if isinstance(code, str) else ("server", True)
    told = f"{code or 'no code'}: {message or 'the provider does not say why'}"
    return ModelError(kind, f"the response failed: {told}"[:SHOWN_CHARACTERS], retryable=retryable)


def _read_call(item: Mapping[str, object], path: str) -> ToolCall:
    kind, field = _TYPES[str(item["type"])]
    name = text_at(item, "name", path)
    arguments = item.get(field)
    if arguments is None:
        arguments = "{}"
    elif isinstance(arguments, Mapping):  # some compatible servers send the object instead of its text
        arguments = json.dumps(arguments, ensure_ascii=False)
    elif not isinstance(arguments, str):
        raise Unreadable(f"{path}.{field}", f"arguments are a text, not {type(arguments).__name__}")
    call_id = "" if item.get("call_id") is None else text_at(item, "call_id", path)
    ours = {"type", "call_id", "name", field}
    extra = {
        k: v
        for k, v in item.items()
        if k not in ours and not is_empty(v) and not (k == "status" and v == "completed")
    }
    return ToolCall(call_id, name, arguments, kind=kind, metadata={EXTRA: extra} if extra else {})


class _Reading:
    """The items of one response, as they are read."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.refusals: list[str] = []
        self.calls: list[ToolCall] = []
        self.layout: list[dict[str, object]] = []
        self.opaque = False
        self.shown: list[object] = []
        # Of each text: whether it was said on the way to an answer.
        self.commentary: list[bool] = []
        self.left = ""

    def read(self, value: object, path: str) -> None:
        item = mapping_at(value, path)
        kind = item.get("type")
        if kind in _TYPES:
            self.calls.append(_read_call(item, path))
        elif kind == "message":
            self._read_message(item, path)
        else:
            self.opaque = True
            self.layout.append({CALLS: len(self.calls), ITEM: item})

    def _read_message(self, item: Mapping[str, object], path: str) -> None:
        content = item.get("content")
        if not isinstance(content, list | tuple):
            raise Unreadable(f"{path}.content", f"this must be a list, not {type(content).__name__}")
        said, refused = "", ""
        for i, part in enumerate(content):
            place = f"{path}.content[{i}]"
            body = mapping_at(part, place)
            match body.get("type"):
                case "output_text":
                    said += text_at(body, "text", place)
                    notes = body.get("annotations")
                    self.shown += notes if isinstance(notes, list) else ()
                case "refusal":
                    refused += text_at(body, "refusal", place)
                case other:
                    raise Unreadable(place, f"a part is output_text or refusal, not {other!r:.80}")
        known = {name: item[name] for name in ("id", "status", "phase") if not is_empty(item.get(name))}
        if said or refused:
            self.layout.append({CALLS: len(self.calls), MESSAGE: known})
        if said:
            self.texts.append(said)
            self.commentary.append(is_commentary(known))
        if refused:
            self.refusals.append(refused)

    def leave_commentary(self) -> None:
        """Leave out what was said on the way to a structured answer: it is none of the JSON."""
        if self.calls or all(self.commentary):
            return
        texts = list(zip(self.texts, self.commentary, strict=True))
        self.texts = [text for text, commentary in texts if not commentary]
        self.left = "".join(text for text, commentary in texts if commentary)
        self.layout = [entry for entry in self.layout if not is_commentary(entry.get(MESSAGE))]

    def message(self) -> AssistantMessage:
        refusal = "".join(self.refusals)
        texts = self.texts or ([refusal] if refusal else [])
        content: Content = tuple(map(TextPart, texts)) if len(texts) > 1 else "".join(texts)
        beside = ({"field": "refusal", "value": refusal},) if refusal and self.texts else ()
        calls = self.calls if self.opaque else [_without_id(call) for call in self.calls]
        return AssistantMessage(
            content,
            tool_calls=tuple(calls),
            finish_reason="refusal" if refusal else "tool_calls" if calls else "stop",
            provider_items=(*(self.layout if self._is_telling() else ()), *beside),
            metadata={
                **({SHOWN: freeze(self.shown)} if self.shown else {}),
                **({BESIDE_OUTPUT: self.left} if self.left else {}),
            },
        )

    def _is_telling(self) -> bool:
        """Tell whether the layout says more than that a text came, and then calls.

        The id of a message is wanted back only by what belongs to it: reasoning, a refusal beside a text.
        """
        return (
            self.opaque
            or bool(self.refusals)
            or len(self.layout) > 1
            or any(entry[CALLS] or "phase" in mapping_at(entry[MESSAGE], "") for entry in self.layout)
        )


def is_commentary(message: object) -> bool:
    """Tell whether a message is said on the way to an answer, and is none itself."""
    return isinstance(message, Mapping) and message.get("phase") == _COMMENTARY


def _without_id(call: ToolCall) -> ToolCall:
    """Return a call without the id of its item, which is wanted back only beside what refers to it."""
    extra = call.metadata.get(EXTRA)
    if not isinstance(extra, dict) or "id" not in extra:
        return call
    kept = {name: member for name, member in extra.items() if name != "id"}
    return evolve(call, metadata={EXTRA: kept} if kept else {})


def _finish(response: Mapping[str, object], message: AssistantMessage) -> tuple[FinishReason, str | None]:
    """Return why a response ended, and the word for it when it is one that is not known here."""
    status = response.get("status")
    if status == "completed":
        return message.finish_reason, None
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    if status != "incomplete":
        return "incomplete", status if isinstance(status, str) else None
    match reason:
        case "max_output_tokens":
            return "length", None
        case "content_filter":
            return "content_filter", None
        case _:
            return "incomplete", reason if isinstance(reason, str) else None


def read_response(response: Mapping[str, object], output: OutputForm | None = None) -> AssistantMessage:
    """Return the message of a response object. `output`: how the request asked for it.

    Raises ModelError for one that failed, ValueError or TypeError for what is no response.
    """
    said = _read(response, structured=output is not None)
    message = read_output(said, output)
    if message.tool_calls or not said.tool_calls:
        return message
    # The words are those of the output call now, of which the layout knows nothing.
    kept = [item for item in message.provider_items if MESSAGE not in mapping_at(item, "layout")]
    return evolve(message, provider_items=kept)


def _read(response: Mapping[str, object], *, structured: bool) -> AssistantMessage:
    status = response.get("status")
    if status in ("failed", "cancelled"):
        raise response_failure(response.get("error"))
    if response.get("error"):  # some compatible servers send an error with status 200
        raise invalid(f"the response is an error: {json.dumps(response['error'])[:SHOWN_CHARACTERS]}")
    if status in ("in_progress", "queued"):
        raise invalid(f"the response is {status}, which only one in the background may be")
    output = response.get("output")
    if not isinstance(output, list):
        fields = ", ".join(response)[:SHOWN_CHARACTERS]
        raise invalid(f"the response has no list of output items; its fields are: {fields}")
    reading = _Reading()
    for i, item in enumerate(output):
        reading.read(item, f"output[{i}]")
    if structured:
        reading.leave_commentary()
    message = reading.message()
    finish, word = _finish(response, message)
    model = response.get("model")
    return evolve(
        message,
        finish_reason=finish,
        usage=read_usage(response.get("usage")),
        model=model if isinstance(model, str) else None,
        metadata=message.metadata.assoc("finish_reason", word) if word else message.metadata,
    )


def decode_responses_response(body: bytes, output: OutputForm | None = None) -> AssistantMessage:
    """Return the message of a response; ModelError "invalid_response" for a body that is none.

    Arguments of tool calls are kept as the raw text, cut or not. `output`: how the request asked for it.
    """
    return parsed(
        body,
        lambda value: read_response(mapping_at(value, "response"), output),
        "response of the responses API",
    )
