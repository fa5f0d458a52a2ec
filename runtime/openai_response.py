"""One chat completions response, from the bytes of its body to an AssistantMessage; and how any body is parsed.

Pure, and imports no openai. Any bytes give an AssistantMessage or a ModelError, never another exception.
"""

import json
from collections.abc import Callable, Mapping
from typing import NoReturn

from attrs import evolve

from ..capabilities.messages import AssistantMessage, FinishReason, Usage
from .models import ModelError
from .openai_messages import read_assistant
from .openai_output import OutputForm, read_output
from .openai_parts import mapping_at

SHOWN_CHARACTERS = 300


def invalid(message: str) -> ModelError:
    """Return the error for a body that is no response.

    Retryable: a cut or garbled one is chance, as a model's words are.
    """
    return ModelError("invalid_response", message, retryable=True)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def count_at(value: object, name: str) -> int | None:
    """Return the count in a field of an object, None where there is none."""
    count = value.get(name) if isinstance(value, Mapping) else None
    return count if type(count) is int and count >= 0 else None


def read_usage(value: object) -> Usage | None:
    """Return the usage of a response, None where it says nothing."""
    if not isinstance(value, Mapping):
        return None
    return Usage(
        input_tokens=count_at(value, "prompt_tokens"),
        output_tokens=count_at(value, "completion_tokens"),
        cached_tokens=count_at(value.get("prompt_tokens_details"), "cached_tokens"),
        reasoning_tokens=count_at(value.get("completion_tokens_details"), "reasoning_tokens"),
    )


def _finish(said: object, message: AssistantMessage) -> FinishReason:
    """Return why a response ended: unsaid, or said in unknown words, it is incomplete."""
    match said:
        case "length":
            return "length"
        case "content_filter":
            return "content_filter"
        case "stop" | "tool_calls" | "function_call" if message.finish_reason == "refusal":
            return "refusal"
        case "stop" | "tool_calls" if message.tool_calls:  # a forced call ends with "stop"
            return "tool_calls"
        case "stop":
            return "stop"
        case _:
            return "incomplete"


def _read(body: object) -> AssistantMessage:
    response = mapping_at(body, "response")
    error = response.get("error")
    if error:  # some compatible servers send an error with status 200
        raise invalid(f"the response is an error: {json.dumps(error)[:SHOWN_CHARACTERS]}")
    choices = response.get("choices")
    if not isinstance(choices, list):
        fields = ", ".join(response)[:SHOWN_CHARACTERS]
        raise invalid(f"the response has no list of choices; its fields are: {fields}")
    if not choices:
        raise invalid("the response has no choice in it")
    choice = mapping_at(choices[0], "choices[0]")
    message = read_assistant(choice.get("message"), "choices[0].message")
    said = choice.get("finish_reason")
    finish = _finish(said, message)
    model = response.get("model")
    metadata = message.metadata
    if finish == "incomplete" and isinstance(said, str):
        metadata = metadata.assoc("finish_reason", said)
    return evolve(
        message,
        finish_reason=finish,
        usage=read_usage(response.get("usage")),
        model=model if isinstance(model, str) else None,
        metadata=metadata,
    )


def parsed(body: bytes, read: Callable[[object], AssistantMessage], what: str) -> AssistantMessage:
    """Return what `read` makes of the JSON of a body; ModelError "invalid_response" for one that is not `what`."""
    try:
        return read(json.loads(body, parse_constant=_no_constant))
    except RecursionError:
        raise invalid("the response is nested too deeply") from None
    except (ValueError, TypeError) as error:  # no JSON, no such shape, or nothing that a record can hold
        start = body[:80].decode(errors="replace")
        raise invalid(f"the response is no {what}: {error}; it starts with {start!r}") from error


def read_response(response: object, output: OutputForm | None = None) -> AssistantMessage:
    """Return the message of a response as decoded JSON. `output`: how the request asked for it.

    Raises ModelError "invalid_response", ValueError or TypeError for what is none.
    """
    return read_output(_read(response), output)


def decode_response(body: bytes, output: OutputForm | None = None) -> AssistantMessage:
    """Return the message of a response; ModelError "invalid_response" for a body that is none.

    Arguments of tool calls are kept as the raw text, cut or not. `output`: how the request asked for it.
    """
    return parsed(body, lambda value: read_response(value, output), "chat completion")
