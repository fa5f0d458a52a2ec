"""Views: which messages one request shows. Pure functions over messages; no run state in sight.

A *group* is the smallest balanced run of messages: one user, system or plain assistant message, or an
assistant message with calls together with the results that directly follow it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import is_
from weakref import ref

from attrs import Attribute, field, frozen

from .messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage, as_messages

Group = tuple[Message, ...]
_ANSWERED = (AssistantMessage, ToolMessage)
# More functions than this per message are made anew at each call, as a lambda in a hook is.
_MAPPINGS = 8
# Of a view that is not longer each message is looked up by itself.
_SHORT = 32


def _as_messages(value: Sequence[object]) -> tuple[Message, ...]:
    return as_messages(value, "projection")


def _covers(instance: object, attribute: "Attribute[int]", value: int) -> None:
    if type(value) is not int or value < 0:
        raise ValueError(f"Projection.covers must be an integer of at least 0, not {value!r}")


@frozen
class Projection:
    """The messages that stand for the first `covers` canonical ones in a request.

    `task` is the message among them that stands for this run's task, which a mapping may have rewritten.
    """

    messages: tuple[Message, ...] = field(converter=_as_messages)
    covers: int = field(validator=_covers)
    task: Message | None = field(default=None, kw_only=True)


def groups(messages: Sequence[Message]) -> tuple[Group, ...]:
    """Split messages into groups, in order; results that follow no call form a group of their own."""
    found: list[list[Message]] = []
    for message in messages:
        if found and isinstance(message, ToolMessage) and isinstance(found[-1][0], _ANSWERED):
            found[-1].append(message)
        else:
            found.append([message])
    return tuple(tuple(group) for group in found)


def keep_newest(
    messages: tuple[Message, ...],
    n: int,
    task: Message | None,
    pin: Callable[[Message], bool] | None = None,
    *,
    task_at: int = -1,
) -> tuple[Message, ...]:
    """Return leading system messages, the task, pinned groups, and the newest whole groups of `n` messages.

    Task, leading system and pinned messages are not counted; the newest group is kept whole at any size.
    A user message comes first: an assistant group before the first one kept is dropped or, where it is
    pinned or no user message is left, the user message before it stays, uncounted.
    The same tuple comes back when nothing goes. Looks no further back than the window, or to the beginning when
    there is a `pin`; `task_at`: where the task stands, if it is known, for which it would have to look.
    """
    leading = 0
    while leading < len(messages) and isinstance(messages[leading], SystemMessage):
        leading += 1
    if leading < len(messages) <= n + leading and isinstance(messages[leading], UserMessage):
        return messages
    spans: list[_Span] = []
    left, end, found = n, len(messages), task is None
    while end > leading and (left >= 0 or pin is not None):
        start = _group_start(messages, leading, end)
        is_task = any(messages[i] is task for i in range(start, end))
        held = is_task or (pin is not None and any(map(pin, messages[start:end])))
        fits = left >= 0 and (end == len(messages) or end - start <= left)
        if held or fits:
            spans.append(_Span(start, end, held))
        if not held:
            left = left - (end - start) if fits else -1
        found = found or is_task
        end = start
    if not found:
        at = _place_of(task, messages, task_at, leading, end)
        if at >= 0:  # a task is a user message, which is a group by itself
            spans.append(_Span(at, at + 1, held=True))
    spans = _user_first(messages, leading, spans[::-1])
    if leading + sum(span.end - span.start for span in spans) == len(messages):
        return messages
    return messages[:leading] + tuple(
        message for span in spans for message in messages[span.start : span.end]
    )


def _place_of(task: Message | None, messages: tuple[Message, ...], likely: int, first: int, end: int) -> int:
    """Return where a task stands from `first` up to `end`, -1 if it does not; where it likely is comes first."""
    if first <= likely < end and messages[likely] is task:
        return likely
    return next((i for i in range(end - 1, first - 1, -1) if messages[i] is task), -1)


@frozen
class _Span:
    start: int
    end: int
    held: bool


def _group_start(messages: tuple[Message, ...], first: int, end: int) -> int:
    """Return where the group begins that ends before `end`; as in `groups`, but from behind."""
    start = end - 1
    while (
        start > first
        and isinstance(messages[start], ToolMessage)
        and isinstance(messages[start - 1], _ANSWERED)
    ):
        start -= 1
    return start


def _user_first(messages: tuple[Message, ...], first: int, spans: list[_Span]) -> list[_Span]:
    """Return the spans so that the first message which is no system message is the user's."""
    has_user = any(isinstance(messages[span.start], UserMessage) for span in spans)
    kept: list[_Span] = []
    for i, span in enumerate(spans):
        message = messages[span.start]
        if isinstance(message, UserMessage):
            return [*kept, *spans[i:]]
        if isinstance(message, SystemMessage):
            kept.append(span)
        elif span.held or not has_user:
            return _with_user(messages, first, span.start, [*kept, *spans[i:]])
    return _with_user(messages, first, len(messages), kept)


def _with_user(messages: tuple[Message, ...], first: int, end: int, spans: list[_Span]) -> list[_Span]:
    for i in range(end - 1, first - 1, -1):
        if isinstance(messages[i], UserMessage):
            return sorted([*spans, _Span(i, i + 1, held=True)], key=lambda span: span.start)
    return spans


def rewritten_task(view: tuple[Message, ...], shown: tuple[Message, ...], task: Message) -> Message | None:
    """Return what stands for the task after a rewrite, None when it was dropped.

    A message-by-message rewrite keeps the task's place, whatever follows; it is no other message of the view.
    """
    place = next((i for i, message in enumerate(view) if message is task), len(view))
    if len(shown) < len(view) or place == len(view):
        return None
    found = shown[place]
    if not isinstance(found, UserMessage) or any(message is found for message in view):
        return None
    return found


_Map = Callable[[Message], Message]


class _Remembered:
    """What was made of a message, and, where it was the last one of a view, of those before it."""

    __slots__ = ("before", "made", "message")

    def __init__(self, message: Message, forget: Callable[[object], None]) -> None:
        self.message = ref(message, forget)
        # None stands for the message itself: a reference to it would keep it alive for ever.
        self.made: dict[_Map, Message | None] = {}
        self.before: dict[_Map, tuple[tuple[Message, ...], tuple[Message, ...]]] = {}


_MEMO: dict[int, _Remembered] = {}


def _forget(memo: dict[int, _Remembered], key: int, _: object) -> None:
    memo.pop(key, None)


def map_messages(fn: _Map, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return `fn(message)` for each message, remembered as by `map_message`; the same tuple where all are the same.

    What was made of a long beginning is remembered with the message after it: comparing it takes some nanoseconds
    for a message. So the part of a history that did not change costs hardly more, the longer it is.
    """
    start, before, shown = _known(fn, messages)
    # A function that was seen before will be seen again; one that is new at each call, as a lambda is, never.
    returns = len(messages) > _SHORT and (start > 0 or fn in _remembered(messages[0]).made)
    tail = messages[start:]
    mapped = [map_message(fn, message) for message in tail]
    same = shown is before and all(map(is_, mapped, tail))
    made = messages if same else (*shown, *mapped)
    if returns:
        head = messages[:-1]
        _remembered(messages[-1]).before[fn] = (head, head if same else made[:-1])
        if 0 < start < len(messages) - 1:
            _remembered(messages[start]).before.pop(fn, None)  # it is in the longer one
    return made


def _known(fn: _Map, messages: tuple[Message, ...]) -> tuple[int, tuple[Message, ...], tuple[Message, ...]]:
    """Return how long a beginning is known, that beginning, and what was made of it: the longest there is."""
    for last in range(len(messages) - 1, _SHORT - 1, -1):
        message = messages[last]
        entry = _MEMO.get(id(message))
        found = entry.before.get(fn) if entry is not None and entry.message() is message else None
        if found is None or len(found[0]) != last or found[0] != messages[:last]:
            continue
        before, shown = found
        # Of equal messages the same comes out; where something was changed, it must be these very ones that stay.
        if shown is before or all(map(is_, before, messages)):
            return last, before, shown
    return 0, (), ()


def _remembered(message: Message) -> _Remembered:
    key = id(message)
    entry = _MEMO.get(key)
    if entry is None or entry.message() is not message:
        # Bound now: when the interpreter ends, globals are gone before the last messages are.
        entry = _MEMO[key] = _Remembered(message, partial(_forget, _MEMO, key))
    return entry


def map_message(fn: _Map, message: Message) -> Message:
    """Return `fn(message)`, remembered for as long as the message lives.

    By identity, not by value: equal messages may differ in `at`. So an unchanged part of a history is mapped
    once, and the result is the same object at each step, which is what a model's encoder remembers it by.
    """
    entry = _MEMO.get(id(message))
    if entry is not None and entry.message() is message:
        try:
            return entry.made[fn] or message
        except KeyError:  # new, or another thread has just made room
            pass
    made = _remembered(message).made
    mapped = fn(message)
    if len(made) >= _MAPPINGS:
        made.clear()
    made[fn] = None if mapped is message else mapped
    return mapped


def balance_problem(messages: Sequence[Message]) -> str | None:
    """Say what is unbalanced in a view, or None.

    Balanced: the results of an assistant message's calls stand directly after it, each call answered exactly
    once, and no result stands anywhere else.
    """
    i, n = 0, len(messages)
    while i < n:
        message = messages[i]
        i += 1
        if isinstance(message, ToolMessage):
            return f"message {i - 1} is a result of call {message.call_id!r}, which is not directly before it"
        if not isinstance(message, AssistantMessage) or not message.tool_calls:
            continue
        open_calls = {call.id for call in message.tool_calls}
        if len(open_calls) != len(message.tool_calls):
            return f"message {i - 1} holds two calls with one id"
        while i < n and isinstance(result := messages[i], ToolMessage):
            if result.call_id not in open_calls:
                return f"message {i} is a second result, or one of an unknown call: {result.call_id!r}"
            open_calls.remove(result.call_id)
            i += 1
        if open_calls:
            return f"call {min(open_calls)!r} of message {i - 1} has no result directly after it"
    return None


def view_problem(messages: Sequence[Message]) -> str | None:
    """Say why a request cannot show these messages, or None.

    It must be balanced and not empty. Of the messages that are no system messages the first must be the
    user's, the last one the user's or a tool's.
    """
    spoken = [message for message in messages if not isinstance(message, SystemMessage)]
    if not spoken:
        return "it shows no message but system messages"
    if not isinstance(spoken[0], UserMessage):
        kind = type(spoken[0]).__name__
        return f"its first message that is no system message must be the user's, not {kind}"
    if not isinstance(spoken[-1], UserMessage | ToolMessage):
        return f"its last message must be the user's or a tool's, not {type(spoken[-1]).__name__}"
    return balance_problem(messages)
