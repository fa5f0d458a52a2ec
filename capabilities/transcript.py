"""A piece of a history as text, for a model that is to read about it and not to take part in it.

Calls and results are told in words: a request that shows calls without offering their tools is refused by some
providers. Knows nothing of what the text is for.
"""

from collections.abc import Iterable

from .messages import AssistantMessage, Content, Message, SystemMessage, TextPart, ToolMessage, UserMessage


def transcript(messages: Iterable[Message]) -> str:
    """Return messages as paragraphs, each begun by who speaks. What is no text is named by its media type."""
    return "\n\n".join(line for message in messages for line in _lines(message))


def _lines(message: Message) -> Iterable[str]:
    match message:
        case SystemMessage():
            yield f"[system] {message.content}"
        case UserMessage():
            yield f"[user] {_text(message.content)}"
        case ToolMessage():
            yield f"[{message.tool} {message.status}] {_text(message.content)}"
        case AssistantMessage():
            if message.content:
                yield f"[assistant] {_text(message.content)}"
            for call in message.tool_calls:
                yield f"[assistant calls {call.name}] {call.arguments}"


def _text(content: Content) -> str:
    if isinstance(content, str):
        return content
    return " ".join(part.text if isinstance(part, TextPart) else f"<{part.media_type}>" for part in content)
