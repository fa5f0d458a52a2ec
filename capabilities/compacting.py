"""Where a history is cut for a summary, and what a request shows of it then. Pure functions over a state.

A cut is a number of canonical messages, so that it means the same at every step. What a request shows may have
been rewritten or trimmed before, so messages of the view are found by where they stand, not by what they say.
"""

from collections.abc import Sequence

from .messages import AssistantMessage, Message, SystemMessage, ToolMessage
from .state import RunState
from .views import groups


def next_cut(state: RunState, covered: int, after: int, keep_last: int) -> int | None:
    """Return how many messages the next summary covers; None while no more than `after` are shown in full.

    System messages and the task are not counted: they are never summarised. All but the newest whole exchanges of
    `keep_last` messages go, and the newest one stays at any size. Looks at nothing before `covered`.
    """
    task = state.task_index
    counted = [
        i
        for i in range(covered, len(state.messages))
        if i != task and not isinstance(state.messages[i], SystemMessage)
    ]
    if len(counted) <= after:
        return None
    cut = counted[-keep_last]
    while cut < len(state.messages) and isinstance(state.messages[cut], ToolMessage):
        cut += 1  # within an exchange: it is one too many
    if cut == len(state.messages):  # the newest exchange alone is longer
        cut -= 1
        while cut > covered and isinstance(state.messages[cut], ToolMessage):
            cut -= 1
    return cut if any(i < cut for i in counted) else None


def compacted(state: RunState, covers: int, summary: Message, system: Sequence[int]) -> tuple[Message, ...]:
    """Return the view with a summary in place of the exchanges among the first `covers` messages of the history.

    It stands behind what is kept of the old part: system messages, which stand at the places `system` in the history,
    and the task. What other capabilities brought in, and exchanges that reach beyond the cut, stay where they are.
    The view as it is comes back where nothing of the old part is shown.
    """
    if state.request_messages is None:
        # Of a history as it is, only what stays is looked at: the cost does not grow with what is hidden.
        at = state.task_index
        kept = sorted({*system, at}) if 0 <= at < covers else system
        return (*(state.messages[i] for i in kept), summary, *state.messages[covers:])
    view, task = state.view, state.task
    found = places(view, state.messages)
    shown: list[Message] = []
    cut: int | None = None
    end = 0
    for group in groups(view):
        start, end = end, end + len(group)
        old = all(i is not None and i < covers for i in found[start:end])
        stays = isinstance(group[0], SystemMessage) or any(message is task for message in group)
        if not old or stays:
            shown.extend(group)
        if old and (cut is not None or not stays):
            cut = len(shown)
    if cut is None or not shown:
        return view
    return (*shown[:cut], summary, *shown[cut:])


def places(view: Sequence[Message], messages: Sequence[Message]) -> list[int | None]:
    """Return where each message of a view stands in the history, rising; None for one that stands for none there.

    Found by identity, from the end: an object that stands there twice is meant where it stands last. A run of
    others between two that were found stands for what is between them in the history where it is as many, of the
    same kinds: then it was rewritten, message by message.
    """
    known: dict[int, list[int]] = {}
    for i, message in enumerate(messages):
        known.setdefault(id(message), []).append(i)
    found: list[int | None] = [None] * len(view)
    stop, after = len(view), len(messages)
    for start in range(len(view) - 1, -2, -1):
        here = -1
        if start >= 0:
            there = known.get(id(view[start]), [])
            while there and there[-1] >= after:
                there.pop()
            if not there:
                continue
            here = found[start] = there.pop()
        between = range(here + 1, after)
        if len(between) == stop - start - 1 and _alike(view[start + 1 : stop], messages[here + 1 : after]):
            found[start + 1 : stop] = between
        stop, after = start, here
    return found


def _alike(shown: Sequence[Message], meant: Sequence[Message]) -> bool:
    return all(type(a) is type(b) and _ids(a) == _ids(b) for a, b in zip(shown, meant, strict=True))


def _ids(message: Message) -> object:
    if isinstance(message, AssistantMessage):
        return [call.id for call in message.tool_calls]
    return message.call_id if isinstance(message, ToolMessage) else None
