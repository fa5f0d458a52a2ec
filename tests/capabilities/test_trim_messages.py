"""TrimMessages; what trimming means is tested with the views."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import AssistantMessage, Message, RunState, TrimMessages, UserMessage, fold
from capfold.capabilities.views import view_problem
from tests.shapes import shaped_histories


@given(shaped_histories(), st.integers(1, 8))
def test_the_history_stays_and_the_view_can_be_sent(history: tuple[Message, ...], n: int) -> None:
    """Canonical messages are untouched, the task is in the view, and trimming again is silent."""
    history = (*history, UserMessage("and now?"))
    state = RunState(messages=history, history_start=len(history) - 1)
    made = fold([TrimMessages(n)], "before_model_request", state)
    assert history == made.messages
    assert view_problem(made.view) is None
    assert made.task is history[-1]
    assert made.view[-1] is history[-1]
    assert fold([TrimMessages(n)], "before_model_request", made) is made


@given(shaped_histories(), st.integers(1, 8), st.integers(1, 8))
def test_two_trims_are_the_smaller_one(history: tuple[Message, ...], a: int, b: int) -> None:
    """Trimming narrows only, so a wider window after a narrow one brings nothing back."""
    state = RunState(messages=history)
    both = fold([TrimMessages(a), TrimMessages(b, key="second")], "before_model_request", state)
    assert fold([TrimMessages(min(a, b))], "before_model_request", state).view == both.view


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
