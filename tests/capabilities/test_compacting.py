"""Where a history is cut for a summary, and what is shown of it: over histories of every shape."""

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import AssistantMessage, Message, RunState, SystemMessage, ToolMessage, UserMessage
from capfold.capabilities.compacting import compacted, next_cut, places
from capfold.capabilities.views import Projection, groups, view_problem
from tests.shapes import shaped_histories

SUMMARY = UserMessage("So far: much.")
windows = st.integers(1, 6)


def compact(state: RunState, cut: int) -> tuple[Message, ...]:
    """Return the view with the summary in place of what it covers."""
    system = [i for i in range(cut) if isinstance(state.messages[i], SystemMessage)]
    return compacted(state, cut, SUMMARY, system)


def state_of(messages: tuple[Message, ...], start: int) -> RunState:
    """Return a state at a request: the last message is the user's or a tool's."""
    if not isinstance(messages[-1], UserMessage | ToolMessage):
        messages = (*messages, UserMessage("and now?"))
    return RunState(messages=messages, history_start=min(start, len(messages) - 1))


@given(shaped_histories(max_steps=14), st.integers(0, 20), windows, st.integers(0, 6))
def test_a_cut_is_between_exchanges_and_leaves_the_newest(
    messages: tuple[Message, ...], start: int, keep_last: int, more: int
) -> None:
    """What is left is whole exchanges, at most `keep_last` messages or the newest one; less than that is never cut."""
    state = state_of(messages, start)
    after = keep_last + more
    counted = [
        i for i, m in enumerate(state.messages) if i != state.task_index and not isinstance(m, SystemMessage)
    ]
    cut = next_cut(state, 0, after, keep_last)
    if len(counted) <= after:
        assert cut is None
        return
    if cut is None:  # one exchange is all there is
        assert 1 == len([g for g in groups(state.messages) if state.messages.index(g[0]) in counted])
        return
    assert not isinstance(state.messages[cut], ToolMessage)
    left = [i for i in counted if i >= cut]
    newest = len(groups(state.messages)[-1])
    assert len(left) <= max(keep_last, newest)
    assert any(i < cut for i in counted)
    # Nothing new: with this much covered, no further cut before more than `after` are there again.
    assert next_cut(state, cut, max(after, newest), keep_last) is None


@given(shaped_histories(max_steps=14), st.integers(0, 20), windows)
def test_a_compacted_view_can_be_sent(messages: tuple[Message, ...], start: int, keep_last: int) -> None:
    """Balanced, with the task, all system messages and the newer exchanges as they are; the old ones are gone."""
    state = state_of(messages, start)
    cut = next_cut(state, 0, keep_last, keep_last)
    if cut is None:
        return
    made = state.project(compact(state, cut))
    assert view_problem(made.view) is None
    assert state.task is made.task
    # A projection of everything is looked through message by message, to the same end.
    projected = evolve(state, request_messages=Projection(state.messages, len(state.messages)))
    assert made.view == compact(projected, cut)
    assert state.messages[cut:] == made.view[len(made.view) - len(state.messages[cut:]) :]
    assert 1 == sum(message is SUMMARY for message in made.view)
    kept = [m for m in state.messages[:cut] if isinstance(m, SystemMessage) or m is state.task]
    assert [*kept, SUMMARY, *state.messages[cut:]] == list(made.view)
    # Once more on its own result: nothing old is left to stand for.
    assert compact(made, cut) == made.view


def copied(message: Message) -> Message:
    """Return another object that stands for a message, as a redactor makes one."""
    return message if isinstance(message, SystemMessage) else evolve(message, content="***")


@given(shaped_histories(max_steps=14), windows, st.data())
def test_a_rewritten_view_is_compacted_like_the_history(
    messages: tuple[Message, ...], keep_last: int, data: st.DataObject
) -> None:
    """Where an earlier capability rewrote some messages, each stands where the one stood that it replaces."""
    state = state_of(messages, 0)
    cut = next_cut(state, 0, keep_last, keep_last)
    if cut is None:
        return
    rewritten = data.draw(st.sets(st.sampled_from(range(len(state.messages)))))
    view = [copied(m) if i in rewritten else m for i, m in enumerate(state.messages)]
    seen = state.project(view)
    assert list(range(len(view))) == places(seen.view, state.messages)
    shown = seen.project(compact(seen, cut))
    assert view_problem(shown.view) is None
    assert len(compact(state, cut)) == len(shown.view)
    assert shown.task is seen.task


@given(shaped_histories(max_steps=14), windows, windows)
def test_a_trimmed_view_keeps_what_it_shows(messages: tuple[Message, ...], keep_last: int, n: int) -> None:
    """After a trim the newer exchanges stay as they were, and what the trim hid stays hidden."""
    state = state_of(messages, 0)
    cut = next_cut(state, 0, keep_last, keep_last)
    if cut is None:
        return
    trimmed = state.keep_last(n)
    made = trimmed.project(compact(trimmed, cut))
    assert view_problem(made.view) is None
    assert made.task is trimmed.task
    assert len(made.view) <= len(trimmed.view) + 1
    newer = [m for m in trimmed.view if any(m is one for one in state.messages[cut:])]
    assert newer == [m for m in made.view if any(m is one for one in state.messages[cut:])]
    there = {id(m) for m in trimmed.view}
    assert all(m is SUMMARY or id(m) in there for m in made.view)


def test_places_of_what_came_in_between() -> None:
    """A message that another capability brought in stands for none of the history, and stays."""
    history = tuple(UserMessage(str(i)) for i in range(5))
    view = [history[0], UserMessage("found"), *history[1:]]
    assert [0, None, 1, 2, 3, 4] == places(view, history)
    state = RunState(messages=history, history_start=4).project(view)
    assert [view[1], SUMMARY, *history[3:]] == list(compact(state, 3))
    assert [None, None, 4] == places([UserMessage("a"), UserMessage("b"), history[4]], history)


def test_an_object_that_stands_there_twice() -> None:
    """One message object at several places is meant where it stands last, so that nothing new is taken for old."""
    again = UserMessage("yes")
    history = (again, AssistantMessage("a"), again, AssistantMessage("b"), again)
    assert [0, 1, 2, 3, 4] == places(history, history)
    assert [4] == places([again], history)
    assert [2, 3, 4] == places(history[2:], history)
