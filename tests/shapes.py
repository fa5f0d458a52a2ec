"""Histories of which only the shape is drawn: who speaks, and how many calls a response makes.

Contents do not matter to trimming and balance, order does; so these are cheap, and of more shapes than
`tests.strategies.histories`: several responses in a row, system messages anywhere between groups.
"""

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from capfold.capabilities.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)

_STEPS = ("system", "user", 0, 1, 2, 3)


def _build(steps: list[str | int]) -> tuple[Message, ...]:
    made: list[Message] = []
    for place, step in enumerate(steps):
        match step:
            case "system":
                made.append(SystemMessage(f"system {place}"))
            case "user":
                made.append(UserMessage(f"user {place}"))
            case int():
                calls = [ToolCall(f"{place}-{i}", "search") for i in range(step)]
                made.append(AssistantMessage(f"reply {place}", tool_calls=tuple(calls)))
                made.extend(ToolMessage(call.id, call.name, "ok") for call in calls)
    return tuple(made)


def shaped_histories(*, max_steps: int = 9) -> SearchStrategy[tuple[Message, ...]]:
    """Return a strategy for balanced histories that a user begins, after system messages at most."""
    head: SearchStrategy[list[str | int]] = st.lists(st.just("system"), max_size=2).map(list)
    body: SearchStrategy[list[str | int]] = st.lists(st.sampled_from(_STEPS), max_size=max_steps)
    return st.tuples(head, body).map(lambda drawn: _build([*drawn[0], "user", *drawn[1]]))
