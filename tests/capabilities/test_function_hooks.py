"""Plain functions as capabilities."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from attrs import evolve

from capfold.capabilities.call_state import CallState
from capfold.capabilities.capability import AnyCapability, CallNext, Capability
from capfold.capabilities.function_hooks import ToolHook, hook
from capfold.capabilities.grid import HOOKS, REDUCERS, WRAPPERS
from capfold.capabilities.state import RunState
from capfold.capabilities.tools import Toolkit, tool
from capfold.runtime import Agent


def make(name: str, function: Callable[..., Any]) -> AnyCapability:  # Any: the color is what is tested
    """Make a capability of a function for the hook of a name."""
    made: AnyCapability = getattr(hook, name)(function)
    return made


def reduce(record: Any) -> Any:  # Any: any reducer
    """Hand back the record."""
    return record


async def wrap(call_next: Any, *given: Any) -> Any:  # Any: any wrapper
    """Go on inward."""
    return await call_next(*given)


@pytest.mark.parametrize("name", [*REDUCERS, *WRAPPERS])
def test_each_hook_can_be_a_function(name: str) -> None:
    """The capability overrides that hook alone, and its key says where the function is defined."""
    function = reduce if name in REDUCERS else wrap
    made = make(name, function)
    assert isinstance(made, Capability)
    assert frozenset({name}) == made.overrides
    assert f"{__name__}:{function.__name__}" == made.key
    assert make(name, function) == made


def test_a_reducer_is_called() -> None:
    """The decorated function is the hook."""

    @hook.before_model_request
    def brief(state: RunState) -> RunState:
        return state.add_instructions("Be brief.")

    assert brief.before_model_request(RunState()).instructions == "Be brief."

    @hook.admit_tool_execute
    def deny(call: CallState) -> CallState:
        return call.refuse("no")

    assert not deny.admit_tool_execute(CallState()).will_run


@pytest.mark.parametrize("name", WRAPPERS)
async def test_a_wrapper_is_called(name: str) -> None:
    """The decorated async function is awaited with what the hook gets, and its result is the hook's."""

    async def inward(*given: object) -> object:
        return "inside"

    given: tuple[object, ...] = (RunState(), ()) if name == "wrap_save_messages" else (RunState(),)
    expected = None if name == "wrap_save_messages" else "inside"
    assert expected == await getattr(make(name, wrap), name)(inward, *given)


@pytest.mark.parametrize("name", REDUCERS)
def test_async_reducers_are_refused(name: str) -> None:
    """A reducer waits for nothing."""
    with pytest.raises(TypeError, match="plain function"):
        make(name, wrap)


@pytest.mark.parametrize("name", WRAPPERS)
def test_sync_wrappers_are_refused(name: str) -> None:
    """A wrapper wraps something that is awaited."""
    with pytest.raises(TypeError, match="async function"):
        make(name, reduce)


@pytest.mark.parametrize("wrong", [None, 5, RunState])
def test_what_is_no_function_is_refused(wrong: Any) -> None:  # Any: the value under test
    """A value or a class is none."""
    with pytest.raises(TypeError, match="takes a function"):
        hook.before_run(wrong)


def test_tool_hook() -> None:
    """It is what `hook.wrap_tool_execute` makes; lambdas and callable objects will do; keys can be given."""

    class Around:
        async def __call__(self, call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
            return await call_next(call)

    assert hook.wrap_tool_execute(wrap) == ToolHook(wrap)
    first, second = ToolHook(lambda go, call: go(call)), ToolHook(lambda go, call: go(call))
    assert first.key == second.key
    assert evolve(first, key="first").key == "first"
    assert "Around" in ToolHook(Around()).key
    assert ToolHook(partial(wrap)).overrides == {"wrap_tool_execute"}


def test_functions_of_one_name_say_how_to_tell_them_apart() -> None:
    """Two lambdas, in one list or in two places, clash by their key, and the error says how each gets its own."""
    first, second = (lambda go, call: go(call)), (lambda go, call: go(call))
    advice = r"ToolHook\(function, key='other'\); functions of one name, such as lambdas, need a key each"
    look = tool(lambda: "", name="look", description="Look.")
    apart = look.with_capabilities(ToolHook(first), ToolHook(second, key="other"))
    assert ["look"] == [one.name for one in Agent("desk", "test", tools=[apart]).tools]
    for tools in (
        [look.with_capabilities(first, second)],
        [Toolkit("kit", [look.with_capabilities(first)], capabilities=[second])],
    ):
        with pytest.raises(ValueError, match=advice):
            Agent("desk", "test", tools=tools)
    with pytest.raises(ValueError, match=r"evolve\(it, key='other'\)"):
        Agent("desk", "test", capabilities=[hook.before_run(lambda s: s), hook.before_run(lambda s: s)])


def test_the_description_is_not_complete() -> None:
    """A function's code is not in its name."""
    for made in (hook.before_run(reduce), ToolHook(wrap)):
        described = made.describe()
        assert not described.complete
        assert described.key == made.key


def test_every_reducer_and_wrapper_has_a_decorator() -> None:
    """The decorators are those of the grid; a gatherer without its reducer would be read by nobody."""
    offered = {name for name in dir(hook) if not name.startswith("_")}
    assert {name for name, spec in HOOKS.items() if spec.kind != "gatherer"} == offered
