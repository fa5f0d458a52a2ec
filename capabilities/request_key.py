"""The key of a model request: equal for two requests that a model cannot tell apart. Knows no cache.

All that goes over the wire is in it, and what names the model. What differs from run to run and means nothing is
not: times, usage, and the ids of calls, which stand for their place alone, so they count by their order.
"""

from collections.abc import Iterable

from .description import as_json
from .frozen import canonical, digest, sha256
from .messages import (
    AssistantMessage,
    Content,
    Message,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
)
from .reply_text import lasting
from .state import NamedModel, RunState


def request_key(state: RunState, vary: Iterable[str] = ()) -> str:
    """Return the digest of the request that a state is about to send.

    `vary`: keys of the run's context that tell requests apart which look the same. Raises LookupError for one that
    the context does not have: without it, what was kept for one tenant could be told to another.
    """
    apart = {}
    for name in vary:
        if name not in state.context:
            raise LookupError(
                f"the run's context has no {name!r}, by which cached responses are kept apart: "
                f"it has {', '.join(sorted(state.context)) or 'nothing'}"
            )
        apart[name] = state.context[name]
    spec = state.output_spec
    return digest(
        [
            _model(state.model),
            state.settings,
            state.instructions,
            [tool.digest for tool in state.tools],
            None if spec is None else [spec.name, spec.schema],
            sha256(_view(state.view).encode()),
            apart,
        ]
    )


def _model(model: NamedModel | None) -> object:
    if model is None:
        return None
    # Where requests go, of a model that says it: a client of the caller's own is described by its type alone.
    url = getattr(model, "api_url", None)
    return [model.name, as_json(model)[0], url if isinstance(url, str) else None]


def _view(messages: Iterable[Message]) -> str:
    places: dict[str, int] = {}
    return canonical([_message(message, places) for message in messages])


def _message(message: Message, places: dict[str, int]) -> object:
    match message:
        case SystemMessage():
            return ["system", message.content]
        case UserMessage():
            return ["user", _content(message.content)]
        case ToolMessage():
            place = places.setdefault(message.call_id, len(places))
            return ["tool", place, message.tool, _content(message.content), message.status]
        case AssistantMessage():
            calls = [
                [places.setdefault(call.id, len(places)), call.name, call.arguments, call.kind, call.metadata]
                for call in message.tool_calls
            ]
            said = [_content(message.content), message.finish_reason, message.provider_items]
            return ["assistant", *said, lasting(message.metadata), calls]


def _content(content: Content) -> object:
    if isinstance(content, str):
        return content
    return [
        part.text
        if isinstance(part, TextPart)
        else [
            type(part).__name__,
            part.url,
            None if part.data is None else sha256(part.data),
            part.media_type,
        ]
        for part in content
    ]
