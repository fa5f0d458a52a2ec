"""`fold`: the pure meaning of a capability list."""

import pytest
from attrs import frozen

from capfold.capabilities import (
    CallState,
    Capability,
    RunState,
    Tool,
    fold,
    for_tools,
    group,
    hook,
    inherited,
    nested,
    when,
)
from capfold.capabilities.grid import GATHERERS, HOOKS, REDUCERS, WRAPPERS


@frozen
class Mark(Capability):
    """Notes its key at every reducer."""

    def before_run(self, state: RunState) -> RunState:
        return state.note(self.key)

    def after_run(self, state: RunState) -> RunState:
        return state.note(self.key)

    def before_model_request(self, state: RunState) -> RunState:
        return state.note(self.key)

    def after_model_request(self, state: RunState) -> RunState:
        return state.note(self.key)


@frozen
class CallMark(Capability):
    """Notes its key at every tool reducer."""

    def before_tool_execute(self, call: CallState) -> CallState:
        return call.note(self.key)

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.note(self.key)

    def after_tool_execute(self, call: CallState) -> CallState:
        return call.note(self.key)


def mark(key: str) -> Mark:
    """Return a capability that notes its key."""
    return Mark(key=key)


def call_mark(key: str) -> CallMark:
    """Return a capability that notes its key on calls."""
    return CallMark(key=key)


@pytest.mark.parametrize("name", REDUCERS)
def test_an_empty_list_is_the_identity(name: str) -> None:
    """Nothing in, nothing changed: the identical record; so too for capabilities without that hook."""
    record = RunState() if HOOKS[name].record == "RunState" else CallState()
    assert fold([], name, record) is record
    assert fold([Capability(), Capability(key="b")], name, record) is record


@pytest.mark.parametrize("name", REDUCERS)
def test_reducers_run_in_list_order_before_and_after_alike(name: str) -> None:
    """Only `nested` reverses, and only its own members, and only after."""
    if HOOKS[name].record == "RunState":
        run_marks = [mark("a"), nested(mark("b"), mark("c")), group(mark("d"))]
        notes = fold(run_marks, name, RunState()).notes
    else:
        call_marks = [call_mark("a"), nested(call_mark("b"), call_mark("c")), group(call_mark("d"))]
        notes = fold(call_marks, name, CallState()).notes
    expected = ("a", "c", "b", "d") if name.startswith("after_") else ("a", "b", "c", "d")
    assert expected == notes


def test_when_is_asked_once_on_the_record_as_given() -> None:
    """What an earlier capability writes switches no later one on or off; each predicate is asked once."""
    asked: list[int] = []

    def untouched(state: RunState) -> bool:
        asked.append(len(state.notes))
        return not state.notes

    made = fold([mark("a"), when(untouched, mark("b"))], "before_run", RunState())
    assert made.notes == ("a", "b")
    assert asked == [0]
    assert fold([when(untouched, mark("b"))], "before_run", RunState(notes=("x",))).notes == ("x",)


def test_when_sees_the_run_of_a_call() -> None:
    """In a tool hook the predicate gets `call.run`."""
    call = CallState(run=RunState(agent="desk"))
    made = fold(
        [when(lambda state: state.agent == "desk", call_mark("a")), when(lambda _: False, call_mark("b"))],
        "admit_tool_execute",
        call,
    )
    assert made.notes == ("a",)


def test_for_tools_goes_by_the_calls_tool() -> None:
    """A capability for other tools is not called."""
    call = CallState(tool=Tool("pay", "", {"type": "object"}))
    marks = [
        for_tools({"pay"}, call_mark("a")),
        for_tools({"search"}, call_mark("b")),
        inherited(call_mark("c")),
    ]
    assert fold(marks, "after_tool_execute", call).notes == ("a", "c")


def test_functions_fold_too() -> None:
    """A function hook is a capability like any other."""

    @hook.before_model_request
    def brief(state: RunState) -> RunState:
        return state.add_instructions("Be brief.")

    assert fold([brief], "before_model_request", RunState()).instructions == "Be brief."


@pytest.mark.parametrize("name", [*WRAPPERS, *GATHERERS, "before_model", ""])
def test_only_reducers_fold(name: str) -> None:
    """A wrapper, a gatherer or an unknown name is an error that lists the reducers."""
    with pytest.raises(ValueError, match="before_run, after_run, before_model_request"):
        fold([], name, RunState())


@pytest.mark.parametrize("name", REDUCERS)
def test_the_record_must_be_the_hooks(name: str) -> None:
    """A CallState at a run hook, or the other way round, is a TypeError that says which one it takes."""
    wrong = CallState() if HOOKS[name].record == "RunState" else RunState()
    with pytest.raises(TypeError, match=f"{name} folds a {HOOKS[name].record}"):
        fold([], name, wrong)
    with pytest.raises(TypeError, match="not dict"):
        fold([], name, {})  # type: ignore[type-var]  # the value under test


def test_the_list_must_hold_capabilities() -> None:
    """A class is refused with a hint, whatever the hook."""
    with pytest.raises(TypeError, match=r"Mark\(\)"):
        fold([Mark], "before_run", RunState())  # type: ignore[list-item]  # the value under test


def test_nothing_is_checked() -> None:
    """A forged counter passes: checking is the runtime's, and `fold` says so."""

    @hook.before_run
    def forge(state: RunState) -> RunState:
        return RunState(tool_calls=99)

    assert fold([forge], "before_run", RunState()).tool_calls == 99
