"""What must hold of any run after any move, as assertions on its states. Knows nothing of how moves are chosen."""

from collections.abc import Collection

from ..capabilities.messages import AssistantMessage, Message, ToolMessage
from ..capabilities.state import RunState
from ..capabilities.tools import Tool
from .arguments import validate
from .phases import RunTools

_COUNTERS = ("run_step", "requests", "tool_calls")


def may_run(
    effect: RunTools, prepared: tuple[Tool, ...], approved: Collection[str], ran: Collection[str]
) -> None:
    """See that what is handed out was offered, valid, not refused, approved where asked, and never ran before.

    `approved`, `ran`: ids of calls so far.
    """
    offered = {tool.name for tool in prepared}
    for call in effect.calls:
        assert call.name in offered, f"{call.name} runs, which was not offered"
        assert validate(call.tool, call.arguments) == (), f"{call.name} runs with invalid arguments"
        assert call.verdict.refused is None, f"{call.name} runs, which was refused"
        if call.verdict.approval:
            assert call.id in approved, f"{call.name} runs, which nobody approved"
        assert call.id not in ran, f"{call.name} runs twice"


def grown(before: RunState, after: RunState) -> None:
    """See that counters, latches and history of a run only grow."""
    for name in _COUNTERS:
        assert getattr(before, name) <= getattr(after, name), f"{name} went back"
    for name in ("stopped", "failed"):
        assert getattr(before, name) is None or getattr(after, name) is not None, f"{name} was cleared"
    assert before.notes == after.notes[: len(before.notes)], "a note is gone"
    assert len(before.messages) <= len(after.messages), "a message is gone"


def closed(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the messages before the last response with calls, whose batch may be under way."""
    for i in range(len(messages) - 1, -1, -1):
        message = messages[i]
        if isinstance(message, AssistantMessage) and message.tool_calls:
            return messages[:i]
        if not isinstance(message, ToolMessage):
            return messages
    return messages
