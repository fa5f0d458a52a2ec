"""GateTools: a tool is offered once another one succeeded."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import (
    CallState,
    GateTools,
    Outcome,
    RequireApproval,
    RunState,
    Tool,
    ToolFailed,
    ToolMessage,
    call,
    fold,
    is_destructive,
    tool,
)
from capfold.capabilities.capability import AnyCapability
from capfold.capabilities.messages import STATUSES
from capfold.runtime import Agent, Answer, Approve, ScriptedModel
from tests.capabilities.shaping_kit import check_laws, desk, reloaded

NAMES = ("a", "b", "c", "d")
INVENTORY = tuple(Tool(name, "", {"type": "object"}) for name in NAMES)


@tool(read_only=True)
def search(text: str) -> str:
    """Search."""
    if text == "broken":
        raise ToolFailed("the index is down")
    return f"found {text}"


@tool(destructive=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def offers(model: ScriptedModel) -> list[list[str]]:
    """Return the names that each request offered."""
    return [[tool.name for tool in request.tools] for request in model.requests]


async def test_a_gate_opens_after_the_first_success() -> None:
    """A failure opens nothing; a success does, from the next request on and for the rest of the run."""
    replies = [
        call("search", {"text": "broken"}),
        call("search", {"text": "x"}),
        call("pay", {"amount": 1}),
        "ok",
    ]
    made, model = desk(replies, GateTools({"pay": "search"}), tools=[search, pay])
    await made.run("go")
    assert [["search"], ["search"], ["search", "pay"], ["search", "pay"]] == offers(model)


async def test_a_call_beside_the_first_success_was_not_on_offer() -> None:
    """Both in one response: the gated one is answered as a tool that is not available, and has not run."""
    replies = [[call("search", {"text": "x"}), call("pay", {"amount": 1})], call("pay", {"amount": 2}), "ok"]
    made, _ = desk(replies, GateTools({"pay": "search"}), tools=[search, pay])
    result = await made.run("go")
    statuses = [m.status for m in result.messages if isinstance(m, ToolMessage)]
    assert ["succeeded", "validation_error", "succeeded"] == statuses


async def test_it_is_remembered_over_a_suspension() -> None:
    """What succeeded before a person was asked counts after the run was resumed from its text."""
    replies = [call("search", {"text": "x"}), call("pay", {"amount": 1}), "ok"]
    listed: list[AnyCapability] = [GateTools({"pay": "search"}), RequireApproval({"pay"})]
    made, model = desk(replies, *listed, tools=[search, pay])
    waiting = await made.run("go")
    result = await made.resume(waiting.snapshot(), {request.digest: Approve() for request in waiting.pending})
    assert ("ok", ["search", "pay"]) == (result.output, offers(model)[-1])


@pytest.mark.parametrize("answered", [False, True])
async def test_an_answer_counts_where_it_is_said_to(*, answered: bool) -> None:
    """A person's answer in place of the tool opens the gate only with `answered`."""
    replies = [call("search", {"text": "x"}), "ok"]
    gate = GateTools({"pay": "search"}, answered=answered)
    made, model = desk(replies, gate, RequireApproval({"search"}), tools=[search, pay])
    waiting = await made.run("go")
    await made.resume(waiting, {request.digest: Answer("seen") for request in waiting.pending})
    assert [["search"], ["search", "pay"] if answered else ["search"]] == offers(model)


@given(
    st.dictionaries(st.sampled_from(NAMES[1:]), st.just({"a"}), min_size=1),
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(STATUSES)), max_size=8),
)
def test_what_is_offered_is_what_succeeded_allows(
    gates: dict[str, Collection[str]], became: list[tuple[str, str]]
) -> None:
    """For any outcomes in any order: offered are the tools without a gate, and those whose gates all opened."""
    gate = GateTools(gates)
    run = RunState(inventory=INVENTORY, tools=INVENTORY)
    for name, status in became:
        done = CallState(
            run=run,
            asked=call(name),
            tool=INVENTORY[NAMES.index(name)],
            outcome=Outcome(status, ""),  # type: ignore[arg-type]  # a status
        )
        run = fold([gate], "after_tool_execute", done).run
    good = {name for name, status in became if status == "succeeded"}
    expected = [name for name in NAMES if set(gates.get(name, ())) <= good]
    assert expected == [tool.name for tool in fold([gate], "before_model_request", run).tools]


def test_a_predicate_waits_for_after() -> None:
    """All that it accepts waits; the tools that come first never wait for themselves."""
    tools = [search, pay, Tool("refund", "", {"type": "object"})]
    state = RunState(inventory=tools, tools=tools)
    gate = GateTools(is_destructive, after={"search", "refund"})
    assert ["search", "refund"] == [t.name for t in fold([gate], "before_model_request", state).tools]
    assert {"search", "refund"} == gate.tool_names()
    assert {"pay", "search"} == GateTools({"pay"}, after="search").tool_names()


def test_names_are_checked_when_the_agent_is_built() -> None:
    """A gated tool or one it waits for that no inventory has is an error that says what there is."""
    for gate in (
        GateTools({"pya": "search"}),
        GateTools({"pay": "serach"}),
        GateTools({"pay"}, after="serach"),
    ):
        with pytest.raises(ValueError, match="which does not exist; there are: pay, search"):
            Agent("desk", "test", tools=[search, pay], capabilities=[gate])


def test_gates_that_never_open_are_refused() -> None:
    """A tool that waits for itself, alone or in a circle, would never be offered."""
    with pytest.raises(ValueError, match="never offer pay"):
        GateTools({"pay": "pay"})
    with pytest.raises(ValueError, match="never offer a, b, c"):
        GateTools({"a": "b", "b": ["c"], "c": {"a", "d"}})
    with pytest.raises(ValueError, match="never offer pay"):
        GateTools({"pay", "search"}, after={"pay"})
    assert {"a", "b", "c"} == GateTools({"a": "b", "b": "c"}).tool_names()


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (({},), ValueError, "empty mapping"),
        ((set(),), ValueError, "names no tool"),
        (({"pay": ()},), ValueError, "must name the tools"),
        (({"pay"},), ValueError, "needs after="),
        (("pay",), TypeError, "one string"),
        (({"pay": 5},), TypeError, "must be a set of names"),
        (({5: "pay"},), TypeError, "must hold names"),
    ],
)
def test_wrong_gates_are_refused(arguments: tuple[object, ...], error: type[Exception], said: str) -> None:
    """Each wrong shape says what would be right."""
    with pytest.raises(error, match=said):
        GateTools(*arguments)  # type: ignore[arg-type]  # the values under test


def test_a_mapping_says_itself_what_comes_first() -> None:
    """A mapping and after= are two ways of saying one thing."""
    with pytest.raises(ValueError, match="a mapping says it itself"):
        GateTools({"pay": "search"}, after="search")


def test_laws_and_round_trip() -> None:
    """It keeps the laws, and comes back from its description in both forms."""
    for gate in (GateTools({"pay": ["search", "look"], "refund": "pay"}), GateTools({"pay"}, after="search")):
        check_laws(gate)
        assert gate == reloaded(gate)
    assert GateTools(is_destructive, after="search") == reloaded(
        GateTools(is_destructive, after="search"), is_destructive
    )
