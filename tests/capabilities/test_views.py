"""Views: trimming keeps requests balanced, and the balance check finds what is planted."""

import gc
from collections.abc import Callable, Iterable
from typing import Any, ClassVar
from weakref import ref

import pytest
from attrs import evolve
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from capfold.capabilities.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from capfold.capabilities.views import (
    Projection,
    balance_problem,
    groups,
    keep_newest,
    map_message,
    map_messages,
    view_problem,
)
from tests.shapes import shaped_histories

sizes = st.integers(1, 9)


def is_subsequence(part: Iterable[Message], whole: Iterable[Message]) -> bool:
    """Tell whether `part` is `whole` with some messages left out, by identity."""
    rest = iter(whole)
    return all(any(message is other for other in rest) for message in part)


def task_of(messages: tuple[Message, ...], place: int) -> UserMessage | None:
    """Return a user message, by a number that may be larger than there are any."""
    users = [message for message in messages if isinstance(message, UserMessage)]
    return users[place % len(users)] if users else None


def system_head(messages: tuple[Message, ...]) -> int:
    """Return how many leading messages are system messages."""
    return next((i for i, m in enumerate(messages) if not isinstance(m, SystemMessage)), len(messages))


@given(shaped_histories(), sizes, st.integers(0, 5))
def test_keep_newest(history: tuple[Message, ...], n: int, place: int) -> None:
    """The definition: balanced, a subsequence, head, task and newest group kept, user first, in size."""
    task = task_of(history, place)
    assert task is not None
    kept = keep_newest(history, n, task)
    assert balance_problem(kept) is None
    assert is_subsequence(kept, history)
    assert any(message is task for message in kept)
    head = system_head(history)
    assert history[:head] == kept[:head]
    assert isinstance(kept[system_head(kept)], UserMessage)
    assert kept[-1] is history[-1]
    newest = groups(history)[-1]
    counted = len(kept) - head - 1
    assert counted <= max(n, len(newest))


@given(shaped_histories(), sizes, st.integers(0, 5))
def test_keep_newest_is_idempotent(history: tuple[Message, ...], n: int, place: int) -> None:
    """Trimming what was trimmed returns the identical tuple."""
    task = task_of(history, place)
    kept = keep_newest(history, n, task)
    assert keep_newest(kept, n, task) is kept


@given(shaped_histories(), sizes)
def test_keep_newest_keeps_the_newest_groups(history: tuple[Message, ...], n: int) -> None:
    """What is left out is older than all that is counted, and nothing is left out that would have fitted."""
    task = task_of(history, 0)
    assert task is not None
    kept = keep_newest(history, n, task)
    left_out = [message for message in history if not any(message is other for other in kept)]
    if left_out:
        place = next(i for i, message in enumerate(history) if message is left_out[-1])
        tail = history[place + 1 :]
        assert kept[len(kept) - len(tail) :] == tail
        group = next(group for group in groups(history) if any(m is left_out[-1] for m in group))
        counted = sum(message is not task for message in tail)
        assert counted + len(group) > n


@given(shaped_histories(), sizes)
def test_without_a_task_the_view_still_starts_with_the_user(history: tuple[Message, ...], n: int) -> None:
    """Where an earlier projection dropped the task, the user message before what is kept stands in for it."""
    kept = keep_newest(history, n, None)
    assert balance_problem(kept) is None
    assert isinstance(kept[system_head(kept)], UserMessage)
    assert kept[-1] is history[-1]
    assert keep_newest(kept, n, None) is kept


@given(shaped_histories(), sizes, st.integers(0, 20))
def test_pinned_messages_stay_with_their_exchange(history: tuple[Message, ...], n: int, place: int) -> None:
    """A pinned message is never dropped, whatever its age, and the view stays one that can be sent."""
    pinned = history[place % len(history)]
    kept = keep_newest(history, n, task_of(history, 0), lambda message: message is pinned)
    assert any(message is pinned for message in kept)
    assert balance_problem(kept) is None
    assert isinstance(kept[system_head(kept)], UserMessage)


def test_a_task_at_the_end_lets_no_older_exchange_overflow() -> None:
    """The newest group is whole whatever its size; the one before it is not, if the newest is the task."""
    asked = AssistantMessage(tool_calls=[ToolCall(str(i), "pay") for i in range(3)])
    results = tuple(ToolMessage(str(i), "pay", "ok") for i in range(3))
    task = UserMessage("and now?")
    history: tuple[Message, ...] = (UserMessage("hi"), asked, *results, task)
    assert (task,) == keep_newest(history, 1, task)
    assert history == keep_newest(history, 5, task)


class Watched(tuple[Message, ...]):
    """A history that counts how often somebody looks at a message."""

    __slots__ = ()
    looks: ClassVar[int] = 0

    def __getitem__(self, place: Any) -> Any:  # Any: as a tuple takes it, a number or a slice
        type(self).looks += 1
        return super().__getitem__(place)


def test_trimming_looks_no_further_back_than_the_task() -> None:
    """Without a pin the work does not grow with the history: older messages are not looked at."""
    task = UserMessage("task")
    older = (UserMessage("old"), AssistantMessage("old")) * 1000
    history = Watched((*older, task, AssistantMessage("a"), UserMessage("b")))
    assert (task, UserMessage("b")) == keep_newest(history, 1, task)
    assert Watched.looks < 40


@given(shaped_histories())
def test_groups_put_together_are_the_history(history: tuple[Message, ...]) -> None:
    """Groups lose nothing, and each one is balanced by itself."""
    assert history == tuple(message for group in groups(history) for message in group)
    assert [None] * len(groups(history)) == [balance_problem(group) for group in groups(history)]


@given(shaped_histories())
def test_a_balanced_history_has_no_problem(history: tuple[Message, ...]) -> None:
    """The check is silent about what the strategy promises."""
    assert balance_problem(history) is None


@given(shaped_histories(), st.data())
def test_planted_faults_are_found(history: tuple[Message, ...], data: st.DataObject) -> None:
    """A result that is dropped, doubled, moved or made up, or a message in between, is a problem."""
    places = [i for i, message in enumerate(history) if isinstance(message, ToolMessage)]
    assume(places)
    i = data.draw(st.sampled_from(places))
    result = history[i]
    assert isinstance(result, ToolMessage)
    faulty: list[tuple[Message, ...]] = [
        history[:i] + history[i + 1 :],
        (*history[:i], result, result, *history[i + 1 :]),
        (*history[:i], UserMessage("between"), *history[i:]),
        (*history[:i], evolve(result, call_id="nobody"), *history[i + 1 :]),
        (result, *history[:i], *history[i + 1 :]),
    ]
    assert [] == [messages for messages in faulty if balance_problem(messages) is None]


def test_two_calls_of_one_id_are_a_problem() -> None:
    """One result cannot answer both."""
    twice = AssistantMessage(tool_calls=[ToolCall("1", "a"), ToolCall("1", "b")])
    assert "two calls" in str(balance_problem((twice, ToolMessage("1", "a", ""))))


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (SystemMessage("s"),),
        (AssistantMessage("hi"), UserMessage("hello")),
        (SystemMessage("s"), AssistantMessage("hi"), UserMessage("hello")),
        (UserMessage("hello"), AssistantMessage("hi")),
        (UserMessage("hello"), AssistantMessage("hi"), SystemMessage("s")),
        (UserMessage("hello"), ToolMessage("1", "pay", "ok")),
    ],
)
def test_a_view_that_cannot_be_sent_has_a_problem(messages: tuple[Message, ...]) -> None:
    """Empty, nothing but system messages, a wrong first or last speaker, an orphan."""
    assert view_problem(messages) is not None


def test_a_view_that_can_be_sent_has_none() -> None:
    """System messages may stand anywhere but between a call and its result."""
    asked = AssistantMessage(tool_calls=[ToolCall("1", "pay")])
    view = (SystemMessage("s"), UserMessage("u"), asked, ToolMessage("1", "pay", "ok"), SystemMessage("end"))
    assert view_problem(view) is None


def test_map_message_remembers_per_message_and_function() -> None:
    """A pure function is called once per message; equal messages are two, since `at` may differ."""
    calls: list[Message] = []

    def louder(message: Message) -> Message:
        calls.append(message)
        return UserMessage("LOUD")

    first, second = UserMessage("a"), UserMessage("a")
    assert map_message(louder, first) is map_message(louder, first)
    assert map_message(louder, first) is not map_message(louder, second)
    assert len(calls) == 2


def louder(message: Message) -> Message:
    """Return a message changed where it holds an `a`, and else the very message."""
    return UserMessage("LOUD") if "a" in str(message.content) else message


@settings(max_examples=40)
@given(st.lists(st.lists(st.sampled_from("abc"), max_size=40), min_size=1, max_size=4), st.data())
def test_map_messages_is_the_map_of_each(steps: list[list[str]], data: st.DataObject) -> None:
    """Whatever was mapped before, of the same history and of others that share its messages: each message is mapped."""
    history: tuple[Message, ...] = ()
    for texts in steps:
        history += tuple(UserMessage(text) for text in texts)
        view = history
        other: bool = data.draw(st.booleans(), label="another history")
        if history and other:
            place = data.draw(st.integers(0, len(history) - 1))
            view = (*history[:place], UserMessage(data.draw(st.sampled_from("abc"))), *history[place + 1 :])
        for shown in (view, history):
            mapped = map_messages(louder, shown)
            assert len(shown) == len(mapped)
            assert all(map_message(louder, old) is new for old, new in zip(shown, mapped, strict=True))
            assert (mapped is shown) is all(map_message(louder, one) is one for one in shown)


def test_map_messages_maps_what_is_new_only() -> None:
    """Of a long history that grows, each message is given to the function once, and no message outlives its owner."""
    calls: list[str] = []

    def count(message: Message) -> Message:
        calls.append(str(message.content))
        return message

    history: tuple[Message, ...] = ()
    for i in range(200):
        history += (UserMessage(f"{i}"),)
        assert map_messages(count, history) is history
    assert [f"{i}" for i in range(200)] == calls
    kept = ref(history[0])
    del history
    gc.collect()
    assert kept() is None


def test_map_messages_keeps_nothing_for_a_function_made_anew() -> None:
    """A lambda is another function at each call: what it made of a long history is not kept for it."""
    history = tuple(UserMessage(f"{i}") for i in range(100))
    seen = [ref(louder) for louder in [_maker() for _ in range(30)] if map_messages(louder, history)]
    gc.collect()
    assert sum(one() is not None for one in seen) <= 10


def _maker() -> Callable[[Message], Message]:
    return lambda message: message


def test_map_message_does_not_grow_without_bound() -> None:
    """A function that is made anew at each call pushes out older ones; results stay right."""
    message = UserMessage("a")

    def make(i: int) -> Callable[[Message], Message]:
        return lambda _: UserMessage(str(i))

    functions = [make(i) for i in range(50)]
    assert [UserMessage(str(i)) for i in range(50)] == [map_message(fn, message) for fn in functions]
    assert UserMessage("0") == map_message(functions[0], message)


def test_a_projection_covers_a_number_of_messages() -> None:
    """A negative number and something that is no message are refused."""
    with pytest.raises(ValueError, match="covers"):
        Projection((), -1)
    with pytest.raises(TypeError, match=r"projection\[0\]"):
        Projection(("text",), 1)
