"""SelectModel: the model of one request, chosen by the state."""

import pytest

from capfold.capabilities import RunState, SelectModel, call, fold, tool
from capfold.capabilities.state import NamedModel
from capfold.runtime import Agent, ModelProfile, RunError, ScriptedModel
from tests.capabilities.shaping_kit import check_laws, desk, reloaded


def never(state: RunState) -> NamedModel | None:
    """Choose none."""
    return None


@tool
def look(n: int) -> str:
    """Look something up."""
    return f"saw {n}"


async def test_each_request_goes_to_the_model_chosen_for_it() -> None:
    """The choice is made at every step anew, from the agent's own model; the log says who changed it."""
    other = ScriptedModel(["done"], name="other")
    chosen = SelectModel(lambda state: other if state.run_step == 2 else None)
    made, own = desk([call("look", {"n": 1}), "never"], chosen, tools=[look])
    result = await made.run("go")
    assert ("done", 1, 1) == (result.output, len(own.requests), len(other.requests))
    assert {"scripted", "other"} == set(result.state.usage_by_model)


async def test_a_model_that_cannot_use_tools_is_refused_before_the_request() -> None:
    """Tools are selected and the chosen model has no way to offer them: an error, and nothing is charged."""
    mute = ScriptedModel(["never"], name="mute", profile=ModelProfile(tools=False))
    made, own = desk(["never"], SelectModel(lambda _: mute), tools=[look])
    with pytest.raises(RunError, match="mute") as caught:
        await made.run("go")
    assert caught.value.partial is not None
    assert (0, 0, 0) == (caught.value.partial.requests, len(own.requests), len(mute.requests))


async def test_an_answer_that_is_no_model_ends_the_run() -> None:
    """A name is no model: the error says who, and what would have been one."""
    made, model = desk(["never"], SelectModel(lambda _: "gpt"))  # type: ignore[arg-type,return-value]  # under test
    with pytest.raises(RunError, match=r"SelectModel.*an object with a name"):
        await made.run("go")
    assert () == model.requests


def test_none_is_silent() -> None:
    """No choice, or the model that is there already, is the identical state."""
    own = ScriptedModel([])
    state = RunState(model=own)
    assert fold([SelectModel(never)], "before_model_request", state) is state
    assert fold([SelectModel(lambda _: own)], "before_model_request", state) is state


def test_what_is_no_function_of_the_state_is_refused() -> None:
    """A model, a class or an async function in its place is a TypeError."""

    async def later(state: RunState) -> None:
        return None

    for wrong in (ScriptedModel([]), ScriptedModel, later, None):
        with pytest.raises(TypeError, match="plain function of the state"):
            SelectModel(wrong)  # type: ignore[arg-type]  # the values under test


def test_laws_and_round_trip() -> None:
    """It keeps the laws; a named function makes the description whole, a lambda does not."""
    check_laws(SelectModel(never))
    assert SelectModel(never) == reloaded(SelectModel(never), never)
    assert not SelectModel(lambda _: None).describe().complete


def test_a_choice_by_chance_breaks_a_law() -> None:
    """A function that reads the clock is found, as in any reducer."""
    import time  # noqa: PLC0415  # what the choice below reads

    with pytest.raises(AssertionError, match="pure"):
        check_laws(SelectModel(lambda _: None if time.time() > 0 else ScriptedModel([])))


def test_an_agent_takes_it() -> None:
    """It needs nothing of the agent."""
    Agent("desk", "test", capabilities=[SelectModel(never)])
