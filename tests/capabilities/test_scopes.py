"""Where capabilities may stand."""

import pytest
from attrs import frozen

from capfold.capabilities.call_state import CallState
from capfold.capabilities.capability import CallNext, Capability
from capfold.capabilities.combinators import group
from capfold.capabilities.function_hooks import ToolHook
from capfold.capabilities.scopes import capability_list, tool_scope
from capfold.capabilities.state import RunState
from capfold.capabilities.tools import Toolkit, tool


@frozen
class Gate(Capability):
    def admit_tool_execute(self, call: CallState) -> CallState:
        return call


@frozen
class Shaper(Capability):
    def before_model_request(self, state: RunState) -> RunState:
        return state


async def around(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
    """Go on inward."""
    return await call_next(call)


def search(query: str) -> str:
    """Search."""
    return query


@pytest.mark.parametrize(
    ("item", "hint"),
    [
        (Gate, r"write an instance, Gate\(\)"),
        (None, "NoneType"),
        (around, "hook."),
        ("Gate", "str"),
        ({}, "dict"),
    ],
)
def test_an_agent_list_holds_capabilities(item: object, hint: str) -> None:
    """A class, None, a function or a name is refused with its place and what to write instead."""
    with pytest.raises(TypeError, match=rf"capabilities\[1\].*{hint}"):
        capability_list([Gate(), item], "capabilities")


def test_a_single_capability_is_no_list() -> None:
    """Forgetting the brackets is noticed, in all scopes."""
    with pytest.raises(TypeError, match="must be a list"):
        capability_list(Gate(), "capabilities")  # type: ignore[arg-type]  # the value under test
    with pytest.raises(TypeError, match="must be a list"):
        tool_scope(Gate())  # type: ignore[arg-type]  # the value under test


def test_a_plain_async_function_becomes_a_tool_hook() -> None:
    """On a tool or toolkit a function is enough; a sync one cannot wrap an effect."""
    assert (Gate(), ToolHook(around)) == tool_scope([Gate(), around])
    assert (ToolHook(around),) == tool(search, capabilities=[around]).capabilities
    assert (ToolHook(around),) == Toolkit("kit", [search], capabilities=[around]).capabilities
    with pytest.raises(TypeError, match="async function"):
        tool_scope([search])


def test_model_hooks_do_not_work_on_a_tool() -> None:
    """They would never be called there, so they are refused by name, inside groups too."""
    for item in (Shaper(), group(Gate(), Shaper())):
        with pytest.raises(TypeError, match="before_model_request"):
            tool_scope([item])
    with pytest.raises(TypeError, match="only tool hooks"):
        tool(search, capabilities=[Shaper()])
