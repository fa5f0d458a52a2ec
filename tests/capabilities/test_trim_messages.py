"""TrimMessages: over every window and every cut of histories; what trimming means is tested with the views too."""

from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import (
    AssistantMessage,
    Message,
    RunState,
    SystemMessage,
    ToolMessage,
    TrimMessages,
    UserMessage,
    call,
    fold,
    tool,
)
from capfold.capabilities.views import groups, keep_newest, view_problem
from tests.capabilities.shaping_kit import check_laws, desk, reloaded
from tests.shapes import shaped_histories


def trimmed(state: RunState, n: int) -> RunState:
    """Return a state trimmed to a window."""
    return fold([TrimMessages(n)], "before_model_request", state)


def cuts(history: tuple[Message, ...]) -> list[RunState]:
    """Return the state of every request that a history can have been at, with every message as the run's first."""
    states = []
    for end in range(1, len(history) + 1):
        shown, spoken = history[:end], groups(history[:end])[-1]
        whole = end == len(history) or not isinstance(history[end], ToolMessage)
        if whole and isinstance(spoken[-1], UserMessage | ToolMessage):
            states += [RunState(messages=shown, history_start=start) for start in range(end)]
    return states


def is_subsequence(part: tuple[Message, ...], whole: tuple[Message, ...]) -> bool:
    """Tell whether the objects of one sequence stand in another, in order."""
    left = iter(whole)
    return all(any(message is other for other in left) for message in part)


@given(shaped_histories(max_steps=6))
def test_every_window_of_every_cut(history: tuple[Message, ...]) -> None:
    """What trimming promises, for each request of a history, each place of the task, and each window."""
    for state in cuts(history):
        leading = 0
        while isinstance(state.messages[leading], SystemMessage):
            leading += 1
        newest = groups(state.messages)[-1]
        for n in range(1, len(history) + 2):
            made = trimmed(state, n)
            view = made.view
            # Balanced, and a user begins it; the history is the one it was.
            assert view_problem(view) is None
            assert state.messages is made.messages
            # Nothing but what was there, in its order; the newest exchange whole, so the last message too.
            assert is_subsequence(view, state.messages)
            assert newest == view[-len(newest) :]
            # The task and what leads are there, uncounted; of the rest no more than the window, or the newest.
            assert made.task is state.task
            assert state.messages[:leading] == view[:leading]
            rest = [message for message in view[leading:] if message is not state.task]
            assert len(rest) <= max(n, len(newest))
            # Once more changes nothing, nor does a wider window; a window of all shows all.
            assert trimmed(made, n) is made
            assert trimmed(made, n + 1) is made
            if n >= len(state.messages):
                assert trimmed(state, n) is state


@given(shaped_histories(), st.integers(1, 8))
def test_after_another_projection(history: tuple[Message, ...], n: int) -> None:
    """It works on what earlier capabilities left: what they hid stays hidden, what they rewrote stays so."""
    history = (*history, UserMessage("and now?"))
    state = RunState(messages=history, history_start=len(history) - 1).map_view(_masked)
    made = trimmed(state, n)
    assert view_problem(made.view) is None
    assert is_subsequence(made.view, state.view)
    assert made.task is state.task
    assert "***" == made.view[-1].content


def _masked(message: Message) -> Message:
    return UserMessage("***") if isinstance(message, UserMessage) else message


@given(shaped_histories(), st.integers(1, 8), st.integers(1, 8))
def test_two_trims_are_the_smaller_one(history: tuple[Message, ...], a: int, b: int) -> None:
    """Trimming narrows only, so a wider window after a narrow one brings nothing back."""
    state = RunState(messages=history)
    both = fold([TrimMessages(a), TrimMessages(b, key="second")], "before_model_request", state)
    assert trimmed(state, min(a, b)).view == both.view


class Watched(tuple[Message, ...]):
    """A history that counts how often one of its messages is looked at."""

    __slots__ = ()
    looks: ClassVar[int] = 0

    def __getitem__(self, key: Any) -> Any:  # Any: an index or a slice, as of any tuple
        """Count the look."""
        Watched.looks += isinstance(key, int)
        return super().__getitem__(key)


@pytest.mark.parametrize("n", [1, 5, 1000])
def test_what_did_not_change_costs_nothing(n: int) -> None:
    """However long the run, as many messages are looked at: those of the window, and the task where it stands."""
    looks = []
    for steps in (20, 200, 400):
        history: list[Message] = [UserMessage("task")]
        for i in range(steps):
            asked = AssistantMessage("", tool_calls=[call("look", {"n": i}, id=f"c{i}")])
            history += [asked, ToolMessage(f"c{i}", "look", "saw it")]
        Watched.looks = 0
        shown = keep_newest(Watched(history), n, history[0], task_at=0)
        looks.append(Watched.looks)
        assert n >= len(history) or history[0] is shown[0]
    assert 1 == len(set(looks))


@tool
def look(n: int) -> str:
    """Look something up."""
    return f"saw {n}"


@pytest.mark.parametrize("n", [1, 2, 3, 20])
async def test_in_a_run_the_history_is_whole_and_the_task_is_asked(n: int) -> None:
    """With any window each request has the task first and the newest results last, and the run keeps everything."""
    replies = [[call("look", {"n": i}), call("look", {"n": -i})] for i in range(4)]
    made, model = desk([*replies, "ok"], TrimMessages(n), tools=[look], instructions="Look.")
    result = await made.run("Look at four.")
    assert (1 + 4 * 3 + 1, "ok") == (len(result.messages), result.output)
    for i, request in enumerate(model.requests):
        assert "Look at four." == request.messages[0].content
        assert len(request.messages) <= 1 + max(n, 3)
        if i:
            assert f"saw {1 - i}" == request.messages[-1].content


def test_the_default_window() -> None:
    """Twenty messages beside the task."""
    history = (UserMessage("task"), *(AssistantMessage(str(i)) for i in range(30)))
    made = fold([TrimMessages()], "before_model_request", RunState(messages=history))
    assert (history[0], *history[-20:]) == made.view


def test_wrong_parameters() -> None:
    """Nothing to keep is no window, and only an integer is a number of messages."""
    for value in (0, -3):
        with pytest.raises(ValueError, match="the least is 1"):
            TrimMessages(value)
    for wrong in (True, 1.5, "20", None):
        with pytest.raises(TypeError, match="integer"):
            TrimMessages(wrong)  # type: ignore[arg-type]  # the values under test


def test_laws_and_round_trip() -> None:
    """It keeps the laws, and comes back from its description."""
    check_laws(TrimMessages(2))
    assert TrimMessages(7) == reloaded(TrimMessages(7))
