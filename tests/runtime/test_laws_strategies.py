"""The public strategies: the shape that each promises, and that what they find is small."""

import json
from collections.abc import Callable
from typing import TypeVar

import hypothesis
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from capfold.capabilities import (
    AssistantMessage,
    CallState,
    Message,
    RunState,
    Tool,
    ToolMessage,
    UserMessage,
    freeze,
    tool,
)
from capfold.capabilities.frozen import Json, json_problem
from capfold.capabilities.messages import STATUSES, SystemMessage
from capfold.capabilities.verdict import Outcome
from capfold.capabilities.views import balance_problem, view_problem
from capfold.runtime.arguments import validate
from capfold.runtime.codec import make_converter, to_text
from capfold.runtime.laws import (
    call_states,
    histories,
    json_values,
    responses,
    run_states,
    scripts,
    tools,
)

T = TypeVar("T")
few = settings(max_examples=25, deadline=None)


@tool
def transfer(amount: int, to: list[str], memo: str | None = None) -> str:
    """Transfer an amount."""
    return f"{amount} {to} {memo}"


SEARCH = settings(
    max_examples=500, database=None, deadline=None, derandomize=True, phases=[Phase.generate, Phase.shrink]
)


def smallest(strategy: SearchStrategy[T], condition: Callable[[T], bool]) -> T:
    """Return what Hypothesis shrinks to."""
    return hypothesis.find(strategy, condition, settings=SEARCH)


# --- what runs are made of


@given(json_values())
def test_json_values_are_frozen_json(value: Json) -> None:
    """Frozen all the way down, and a text reads back as the same value."""
    assert json_problem(value) is None
    assert value == json.loads(json.dumps(value))


def test_json_values_shrink() -> None:
    """To the scalar, or to the least that is nested."""
    assert smallest(json_values(), lambda _: True) is None
    assert freeze([[]]) == smallest(json_values(), lambda value: isinstance(value, list) and [] in value)


@few
@given(tools(max_size=7))
def test_tools_have_different_names(made: tuple[Tool, ...]) -> None:
    """An agent takes them as they are."""
    assert len(made) == len({one.name for one in made}) <= 7


def test_tools_shrink() -> None:
    """To the one tool that is needed, which declares nothing that is not."""
    (found,) = smallest(tools(), lambda made: any(one.annotations.read_only for one in made))
    assert (found.name, found.parameters) == ("search", {"type": "object"})


@few
@given(histories())
def test_histories_are_balanced(made: tuple[Message, ...]) -> None:
    """Each call is answered once, directly; a user speaks first; nothing waits."""
    assert balance_problem(made) is None
    spoken = [message for message in made if not isinstance(message, SystemMessage)]
    assert not spoken or isinstance(spoken[0], UserMessage)
    assert all(m.status != "pending" for m in made if isinstance(m, ToolMessage))
    ids = [call.id for m in made if isinstance(m, AssistantMessage) for call in m.tool_calls]
    assert len(ids) == len({*ids})


def test_histories_shrink() -> None:
    """To one exchange, with one call where one is needed."""
    assert smallest(histories(), lambda _: True) == ()
    made = smallest(histories(), lambda made: any(isinstance(m, ToolMessage) for m in made))
    assert ["UserMessage", "AssistantMessage", "ToolMessage", "AssistantMessage"] == [
        type(message).__name__ for message in made
    ]
    assert {""} == {message.content for message in made}


@few
@given(responses(tools=[transfer], max_calls=3))
def test_responses_call_the_given_tools(made: AssistantMessage) -> None:
    """A call of the tool has arguments of its schema, but for some that are no arguments at all."""
    assert len(made.tool_calls) == len({call.id for call in made.tool_calls}) <= 3
    for call in made.tool_calls:
        if call.name == "transfer" and call.arguments not in {'{"', "[]", '{"n": "1"}'}:
            assert validate(transfer, freeze(json.loads(call.arguments))) == ()  # type: ignore[arg-type]  # an object


def test_responses_shrink() -> None:
    """To nothing but what is needed."""
    assert AssistantMessage() == smallest(responses(), lambda _: True)
    made = smallest(
        responses(tools=[transfer]), lambda made: any(c.name == "transfer" for c in made.tool_calls)
    )
    assert ['{"amount": 0, "to": []}'] == [call.arguments for call in made.tool_calls]


@few
@given(scripts(max_steps=3))
def test_scripts_end(made: tuple[AssistantMessage, ...]) -> None:
    """Every response but the last has calls, so that each is asked for."""
    assert 1 <= len(made) <= 3
    assert [bool(one.tool_calls) for one in made] == [True] * (len(made) - 1) + [False]


def test_scripts_shrink() -> None:
    """To an empty text."""
    assert (AssistantMessage(),) == smallest(scripts(), lambda _: True)
    with pytest.raises(ValueError, match="at least one response"):
        scripts(max_steps=0)


# --- states, as they are at each hook

SHAPES: dict[str, Callable[[RunState], bool]] = {
    "before_run": lambda s: s.run_step == 0 and s.response is None and s.view == s.messages,
    "before_model_request": lambda s: s.run_step > 0 and view_problem(s.view) is None and s.output is None,
    "after_model_request": lambda s: s.response is not None and s.response not in s.messages[-1:],
    "after_run": lambda s: s.response is not None and (s.output is not None or s.stopped is not None),
}
CALL_SHAPES: dict[str, Callable[[CallState], bool]] = {
    "before_tool_execute": lambda c: c.outcome is None and not c.problems and c.verdict.refused is None,
    "admit_tool_execute": lambda c: c.outcome is None and not validate(c.tool, c.arguments),
    "after_tool_execute": lambda c: c.outcome is not None and c.outcome.status != "pending",
}


@pytest.mark.parametrize("hook", SHAPES)
def test_run_states_are_what_a_hook_gets(hook: str) -> None:
    """Counters, history, view and response agree with where the run stands; the codec carries them."""

    @few
    @given(run_states(hook=hook))
    def check(state: RunState) -> None:
        assert SHAPES[hook](state)
        assert state.status == "running"
        assert balance_problem(state.messages) is None
        assert {one.name for one in state.tools} <= {one.name for one in state.inventory}
        to_text(state, converter=make_converter())

    check()


@pytest.mark.parametrize("hook", CALL_SHAPES)
def test_call_states_are_what_a_hook_gets(hook: str) -> None:
    """Of a batch under way, whose response is the last message but for results."""

    @few
    @given(call_states(hook=hook))
    def check(call: CallState) -> None:
        assert CALL_SHAPES[hook](call)
        assert call.run.response is not None
        assert call.asked in call.run.response.tool_calls
        assert all(earlier.index < call.index for earlier in call.earlier)

    check()


def test_run_states_vary() -> None:
    """What a law has to meet occurs: hidden tools, a projected view, later steps, an earlier conversation."""
    seen: set[str] = set()

    @settings(SEARCH, max_examples=150, phases=[Phase.generate])
    @given(run_states(hook="before_model_request"))
    def collect(state: RunState) -> None:
        seen.update(["hidden tools"] if 0 < len(state.tools) < len(state.inventory) else [])
        seen.update(["view"] if len(state.view) < len(state.messages) else [])
        seen.update(["steps"] if state.run_step > 2 else [])
        seen.update(["history"] if state.history_start else [])

    collect()
    assert {"hidden tools", "view", "steps", "history"} == seen


def test_call_states_vary() -> None:
    """Verdicts of others, calls admitted earlier, and every outcome but the one of suspended runs."""
    seen: set[str] = set()

    @settings(SEARCH, max_examples=600, phases=[Phase.generate])
    @given(call_states(hook="admit_tool_execute"), call_states(hook="after_tool_execute"))
    def collect(judged: CallState, settled: CallState) -> None:
        seen.update(part for part in ("refused", "approval", "answer") if getattr(judged.verdict, part))
        seen.update(["earlier"] if judged.earlier else [])
        seen.update([settled.outcome.status] if settled.outcome is not None else [])

    collect()
    assert {"refused", "approval", "answer", "earlier", *STATUSES} - {"pending"} == seen


def test_states_shrink() -> None:
    """A planted fault is shown by the least run that has it."""
    state = smallest(run_states(hook="before_model_request"), lambda s: len(s.view) > 2)
    assert len(state.messages) == 3
    assert {""} == {m.content for m in state.messages if not isinstance(m, ToolMessage)}
    call = smallest(call_states(hook="after_tool_execute"), lambda c: c.outcome is not None and bool(c.ran))
    assert (1, Outcome("succeeded", attempts=1)) == (call.run.run_step, call.outcome)
    assert len(call.run.inventory) == 1


def test_states_hold_given_facts_and_tools() -> None:
    """Facts stand under the key they are given for."""
    made = run_states(hook="before_run", tools=[transfer], facts={"Memory": st.just(["a"])})
    state = smallest(made, lambda _: True)
    assert ({"Memory": ["a"]}, (transfer,)) == (state.facts, state.inventory)
    assert isinstance(state.facts["Memory"], list)
    assert json_problem(state.facts["Memory"]) is None


def test_a_hook_of_the_other_record_is_refused() -> None:
    """The error says which hooks are meant."""
    with pytest.raises(
        ValueError, match="'admit_tool_execute' takes a CallState; one of these is meant: before_run"
    ):
        run_states(hook="admit_tool_execute")
    with pytest.raises(ValueError, match="'wrap_run' is no reducer"):
        call_states(hook="wrap_run")
    with pytest.raises(TypeError, match=r"facts\['Memory'\] must be a Hypothesis strategy, not list"):
        run_states(facts={"Memory": ["a"]})  # type: ignore[dict-item]  # the mistake
