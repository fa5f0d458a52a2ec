"""RunState: its verbs, its view, its shapes."""

import pickle
from collections.abc import Callable

import pytest
from attrs import evolve, frozen
from attrs.exceptions import FrozenInstanceError
from hypothesis import given, settings

from capfold.capabilities.capability import Capability
from capfold.capabilities.messages import AssistantMessage, Message, SystemMessage, UserMessage, call
from capfold.capabilities.state import Fail, RunState, Stop
from capfold.capabilities.tools import Tool
from capfold.capabilities.views import Projection, groups
from tests.strategies import StubModel, run_states

SCHEMA: dict[str, object] = {"type": "object"}
SEARCH, PAY = Tool("search", "", SCHEMA), Tool("pay", "", SCHEMA)
MODEL = StubModel("other")
TASK, REPLY, MORE = UserMessage("task"), AssistantMessage("reply"), UserMessage("more")
STATE = RunState(
    inventory=(SEARCH, PAY), tools=(SEARCH, PAY), messages=(TASK, REPLY, MORE), model=MODEL, settings={"t": 1}
)


@frozen
class Count(Capability[int]):
    """A capability that counts."""


@frozen
class Other(Capability[int]):
    """Another one."""


SILENT: dict[str, Callable[[RunState], RunState]] = {
    "project": lambda state: state.project(state.view),
    "project a list": lambda state: state.project(list(state.view)),
    "keep_last": lambda state: state.keep_last(100),
    "map_view": lambda state: state.map_view(lambda message: message),
    "select_tools": lambda state: state.select_tools(lambda _: True),
    "with_tools": lambda state: state.with_tools(*state.tools),
    "with_model": lambda state: state.with_model(state.model or MODEL),
    "with_settings": lambda state: state.with_settings(**state.settings),
    "add_instructions": lambda state: state.add_instructions(""),
    "with_instructions": lambda state: state.with_instructions(state.instructions),
    "append": lambda state: state.append(),
    "respond": lambda state: state.respond(state.response or AssistantMessage()),
    "put": lambda state: state.put(Count(), state.slot(Count())),
}
LOUD: dict[str, Callable[[RunState], RunState]] = {
    "project": lambda state: state.project((MORE,)),
    "keep_last": lambda state: state.keep_last(1),
    "map_view": lambda state: state.map_view(lambda message: SystemMessage("x")),
    "select_tools": lambda state: state.select_tools({"pay"}),
    "with_tools": lambda state: state.with_tools(evolve(PAY, description="better")),
    "with_model": lambda state: state.with_model(StubModel("third")),
    "with_settings": lambda state: state.with_settings(t=True),
    "add_instructions": lambda state: state.add_instructions("Be brief."),
    "with_instructions": lambda state: state.with_instructions("Be brief."),
    "append": lambda state: state.append(UserMessage("x")),
    "respond": lambda state: state.respond(AssistantMessage("x")),
    "stop": lambda state: state.stop("done"),
    "fail": lambda state: state.fail("bad"),
    "ask_again": lambda state: state.ask_again("again"),
    "note": lambda state: state.note("seen"),
    "put": lambda state: state.put(Count(), 3),
}


@pytest.mark.parametrize("verb", SILENT)
def test_a_verb_that_changes_nothing_returns_the_identical_state(verb: str) -> None:
    """Unchanged means identical, so that an untouched record costs one `is`."""
    state = evolve(STATE, model=MODEL, response=AssistantMessage("x")).put(Count(), 1)
    assert SILENT[verb](state) is state


@settings(max_examples=30)
@given(run_states())
def test_silent_verbs_are_silent_on_any_state(state: RunState) -> None:
    """The same over drawn states, where the verb has nothing to name."""
    for verb in ("project", "project a list", "map_view", "select_tools", "with_tools", "append"):
        assert SILENT[verb](state) is state
    assert SILENT["with_settings"](state) is state


@pytest.mark.parametrize("verb", LOUD)
def test_a_verb_changes_a_copy_only(verb: str) -> None:
    """A change makes another state and leaves the one it was called on."""
    before = evolve(STATE)
    made = LOUD[verb](STATE)
    assert made != STATE or verb == "with_settings"
    assert made is not STATE
    assert before == STATE


def test_states_are_frozen_through_and_through() -> None:
    """Neither a field nor anything inside one can be written."""
    with pytest.raises(FrozenInstanceError):
        STATE.run_step = 5  # type: ignore[misc]  # the write under test
    with pytest.raises(TypeError, match="frozen"):
        STATE.settings["t"] = 2


@settings(max_examples=20)
@given(run_states())
def test_repr_is_bounded(state: RunState) -> None:
    """The repr shows counts, whatever the history holds; the state survives pickling."""
    big = state.append(UserMessage("x" * 100_000))
    assert len(repr(big)) < 400
    assert f"messages={len(big.messages)}" in repr(big)


def test_pickle() -> None:
    """A state without functions comes back equal."""
    assert pickle.loads(pickle.dumps(STATE)) == STATE  # noqa: S301  # our own bytes


def test_a_change_of_type_is_a_change() -> None:
    """1, True and 1.0 are three values in settings and in slots."""
    counter: Capability[object] = Capability(key="Count")
    for value in (True, 1.0):
        assert STATE.with_settings(t=value) is not STATE
        put = STATE.put(Count(), 1)
        assert put.put(counter, value) is not put


def test_the_view_is_the_projection_and_what_came_after() -> None:
    """A projection stands for what it covers; later messages follow it; history stays."""
    shown = STATE.project((TASK,))
    later = shown.append(UserMessage("later"))
    assert (TASK,) == shown.view
    assert (TASK, UserMessage("later")) == later.view
    assert STATE.messages == shown.messages
    assert groups(later.view) == later.exchanges
    assert (*STATE.messages, UserMessage("later")) == later.messages


def test_the_task_is_the_first_user_message_of_this_run() -> None:
    """Of a history that came in, nothing is the task; without input of its own the last user message is."""
    old = (UserMessage("old"), AssistantMessage("old"))
    state = RunState(messages=(*old, TASK, REPLY, MORE), history_start=2)
    assert state.task is TASK
    assert RunState(messages=(*old, TASK), history_start=3).task is TASK
    assert RunState(messages=(SystemMessage("s"),)).task is None
    assert RunState().task is None


def mask(message: Message) -> Message:
    """Rewrite user messages only."""
    return UserMessage("masked") if isinstance(message, UserMessage) else message


def test_the_task_survives_a_rewrite() -> None:
    """What a mapping makes of the task is the task, also with notes appended; trimming then keeps it."""
    mapped = STATE.map_view(mask)
    assert mapped.task is mapped.view[0]
    appended = STATE.project((*map(mask, STATE.view), UserMessage("note")))
    assert appended.task is appended.view[0]
    assert UserMessage("masked") == mapped.keep_last(1).view[0]
    assert mapped.keep_last(1).task is mapped.task


def test_a_dropped_task_is_gone() -> None:
    """A projection without it, or with another message in its place, has no task."""
    assert STATE.project((MORE,)).task is None
    assert STATE.project((MORE, REPLY, TASK)[:1]).task is None
    assert evolve(STATE, request_messages=Projection((MORE,), 3)).task is None
    assert evolve(STATE, request_messages=Projection((TASK, MORE), 3)).task is TASK


def test_keep_last_takes_a_positive_number() -> None:
    """Zero, a bool and a float are refused: silence would hide a bug."""
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(ValueError, match="keep_last"):
            STATE.keep_last(wrong)  # type: ignore[arg-type]  # the values under test


def test_select_tools_names_the_nearest_tool() -> None:
    """A misspelt name is an error that says which was meant; a set of none is legal."""
    with pytest.raises(ValueError, match="did you mean 'search'"):
        STATE.select_tools({"serach"})
    assert STATE.select_tools(()).tools == ()
    assert STATE.select_tools({"pay"}).select_tools({"search"}).tools == ()


def test_with_tools_replaces_in_place_and_adds_at_the_end() -> None:
    """A tuned tool keeps its place; one that is not selected is added for the check to see."""
    tuned = evolve(SEARCH, description="better")
    assert (tuned, PAY) == STATE.with_tools(tuned).tools
    added = Tool("new", "", SCHEMA)
    assert (SEARCH, PAY, added) == STATE.with_tools(added).tools
    with pytest.raises(ValueError, match="one tool of a name"):
        STATE.with_tools(tuned, SEARCH)


def test_latches_keep_the_first_and_note_the_second() -> None:
    """A second stop, fail or ask_again is on record without replacing the first."""
    state = RunState().stop("a").stop("b").fail("c").fail("d").ask_again("e").ask_again("f")
    assert Stop("a") == state.stopped
    assert Fail("c") == state.failed
    assert state.again == "e"
    assert state.notes == ("stop: b", "fail: d", "ask_again: f")


def test_slots_belong_to_keys() -> None:
    """A slot starts with its empty value, is read by its owner, and by others by key only."""
    state = STATE.put(Count(), 2)
    assert state.slot(Count()) == 2
    assert state.slot(Other()) == 0
    assert state.slot_of("Count") == 2
    assert state.slot_of("Other") is None
    assert state.slot(Count(key="second")) == 0


def test_facts_are_read_by_their_capability() -> None:
    """A capability reads what its own gatherer brought in, None without one."""
    state = evolve(STATE, facts={"Count": "fact"})
    assert state.fact(Count()) == "fact"
    assert state.fact(Other()) is None


WRONG: dict[str, Callable[[], object]] = {
    "messages": lambda: RunState(messages=("text",)),
    "tools": lambda: RunState(tools=("pay",)),  # type: ignore[arg-type]  # the value under test
    "instructions": lambda: evolve(STATE, instructions=None),  # type: ignore[arg-type]  # as above
    "response": lambda: evolve(STATE, response="text"),  # type: ignore[arg-type]  # as above
    "model": lambda: evolve(STATE, model="gpt"),  # type: ignore[arg-type]  # as above
    "notes": lambda: evolve(STATE, notes="text"),  # type: ignore[arg-type]  # as above
    "stopped": lambda: evolve(STATE, stopped="text"),  # type: ignore[arg-type]  # as above
    "request_messages": lambda: evolve(STATE, request_messages=(TASK,)),  # type: ignore[arg-type]  # as above
    "with_model": lambda: STATE.with_model("gpt"),  # type: ignore[arg-type]  # as above
    "respond": lambda: STATE.respond("text"),  # type: ignore[arg-type]  # as above
    "stop": lambda: STATE.stop(None),  # type: ignore[arg-type]  # as above
    "fail": lambda: STATE.fail(5),  # type: ignore[arg-type]  # as above
    "ask_again": lambda: STATE.ask_again(b""),  # type: ignore[arg-type]  # as above
    "note": lambda: STATE.note(None),  # type: ignore[arg-type]  # as above
    "append": lambda: STATE.append(call("pay")),  # type: ignore[arg-type]  # as above
    "project": lambda: STATE.project(TASK),  # type: ignore[arg-type]  # as above
    "select_tools": lambda: STATE.select_tools("pay"),
    "add_instructions": lambda: STATE.add_instructions(5),  # type: ignore[arg-type]  # as above
    "with_instructions": lambda: STATE.with_instructions(None),  # type: ignore[arg-type]  # as above
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_shapes_are_refused_where_they_are_written(case: str) -> None:
    """A value of another type is a TypeError in the hook that writes it, not a puzzle on the wire."""
    with pytest.raises(TypeError):
        WRONG[case]()
