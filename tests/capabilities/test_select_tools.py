"""SelectTools."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import RunState, SelectTools, Tool, ToolMessage, call, fold, is_read_only
from capfold.runtime import Agent, ModelProfile, ScriptedModel
from tests.capabilities.shaping_kit import check_laws, desk, reloaded
from tests.strategies import TOOL_NAMES, tools

subsets = st.frozensets(st.sampled_from(TOOL_NAMES))
INVENTORY = tuple(Tool(name, "", {"type": "object"}) for name in TOOL_NAMES)


async def done() -> str:
    """Do it."""
    return "done"


RUNNABLE = [Tool(name, "", {"type": "object"}, done) for name in ("search", "pay")]


def offered(state: RunState, *capabilities: SelectTools) -> list[str]:
    """Return the names that are left."""
    return [tool.name for tool in fold(capabilities, "before_model_request", state).tools]


STATE = RunState(inventory=INVENTORY, tools=INVENTORY)


@given(subsets, subsets)
def test_narrowing_commutes_and_never_adds(first: frozenset[str], second: frozenset[str]) -> None:
    """What is left is what all of them accept, in the order of the inventory, in any order of the list."""
    expected = [name for name in TOOL_NAMES if name in first & second]
    assert expected == offered(STATE, SelectTools(first), SelectTools(second, key="b"))
    assert expected == offered(STATE, SelectTools(second), SelectTools(first, key="b"))
    assert [] == offered(RunState(inventory=INVENTORY), SelectTools(first))


@given(tools())
def test_a_predicate_selects(inventory: tuple[Tool, ...]) -> None:
    """Each tool is asked; accepting all of them is silent."""
    state = RunState(inventory=inventory, tools=inventory)
    assert [tool.name for tool in inventory if is_read_only(tool)] == offered(
        state, SelectTools(is_read_only)
    )
    assert fold([SelectTools(lambda _: True)], "before_model_request", state) is state


def test_names_are_checked_when_the_agent_is_built() -> None:
    """The names are told to the agent; one that is in no inventory is an error with the nearest."""
    assert frozenset({"pay"}) == SelectTools({"pay"}).tool_names()
    assert frozenset() == SelectTools(is_read_only).tool_names()
    with pytest.raises(ValueError, match="did you mean 'pay'"):
        offered(STATE, SelectTools({"pya"}))


def test_wrong_conditions_are_refused() -> None:
    """One string, or a predicate that returns a text, is a bug."""
    with pytest.raises(TypeError, match="one string"):
        SelectTools("pay")
    with pytest.raises(TypeError, match="True or False"):
        offered(STATE, SelectTools(lambda tool: tool.name))  # type: ignore[arg-type,return-value]  # as above
    with pytest.raises(TypeError, match="must hold names"):
        SelectTools([5])  # type: ignore[list-item]  # the value under test


async def test_in_a_run_each_request_offers_what_is_left() -> None:
    """At every step anew; a call of a tool that was left out is answered as one that is not available."""
    made, model = desk([call("pay"), call("search"), "ok"], SelectTools({"search"}), tools=[*RUNNABLE])
    result = await made.run("go")
    assert [["search"]] * 3 == [[tool.name for tool in request.tools] for request in model.requests]
    assert ["validation_error", "succeeded"] == [
        m.status for m in result.messages if isinstance(m, ToolMessage)
    ]


async def test_all_tools_may_be_left_out() -> None:
    """A request without tools is a legal one, also of a model that can use none."""
    model = ScriptedModel(["ok"], profile=ModelProfile(tools=False))
    made = Agent("desk", model, tools=[*RUNNABLE], capabilities=[SelectTools(())])
    assert ("ok", ()) == ((await made.run("go")).output, model.requests[0].tools)


def test_a_name_in_no_inventory_fails_when_the_agent_is_built() -> None:
    """The error names the capability, the name, and what there is."""
    with pytest.raises(ValueError, match=r"SelectTools mentions the tool 'pya'.*pay, search"):
        Agent("desk", "test", tools=[*RUNNABLE], capabilities=[SelectTools({"pya"})])


def test_laws_and_round_trip() -> None:
    """It keeps the laws, and comes back from its description."""
    for select in (SelectTools({"pay", "search"}), SelectTools(is_read_only), SelectTools([])):
        check_laws(select)
        assert select == reloaded(select, is_read_only)
