"""ToolSearch: a few tools of many, and the tool that finds others."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import (
    CallState,
    RefuseTools,
    RequireApproval,
    RunState,
    SelectTools,
    Tool,
    ToolBudget,
    ToolMessage,
    ToolSearch,
    call,
    fold,
    hook,
    when,
)
from capfold.runtime import Agent, Approve, Deny, RunResult, ScriptedModel
from tests.capabilities.shaping_kit import check_laws, desk, reloaded


async def answer(n: int = 0) -> str:
    """Do it."""
    return f"done {n}"


def named(*names: str) -> list[Tool]:
    """Return tools that say in their description what their name says."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    return [Tool(name, name.replace("_", " ").capitalize() + ".", schema, answer) for name in names]


TOOLS = named("refund_invoice", "pay_invoice", "book_room", "cancel_room", "send_mail")


def find(query: str) -> object:
    """Return a call of the search tool."""
    return call("find_tools", {"query": query})


def offers(model: ScriptedModel) -> list[list[str]]:
    """Return the names that each request offered."""
    return [[tool.name for tool in request.tools] for request in model.requests]


def answers(result: RunResult[str]) -> list[list[str]]:
    """Return the names that each search told of."""
    told = [m for m in result.messages if isinstance(m, ToolMessage) and m.tool == "find_tools"]
    return [[one["name"] for one in json.loads(str(m.content))["found"]] for m in told]


async def test_what_somebody_else_answered_offers_nothing() -> None:
    """Of two answers the first stands: the model was not told of the tools, so they are not offered."""

    @hook.admit_tool_execute
    def instead(state: CallState) -> CallState:
        return state.answer("Ask a person.") if state.name == "find_tools" else state

    made, model = desk([find("rooms"), "ok"], instead, ToolSearch(), tools=TOOLS)
    result = await made.run("go")
    assert "Ask a person." == result.messages[2].content
    assert [["find_tools"], ["find_tools"]] == offers(model)


async def test_what_is_found_is_offered_from_the_next_request_on() -> None:
    """A few tools, then those of each search beside them; a found tool runs."""
    replies = [find("refunds of invoices"), call("refund_invoice", {"n": 1}), find("rooms"), "ok"]
    made, model = desk(replies, ToolSearch({"send_mail"}, max_results=2), tools=TOOLS)
    result = await made.run("go")
    first = ["send_mail", "find_tools"]
    second = ["refund_invoice", "pay_invoice", *first]
    assert [first, second, second, [*second[:2], "book_room", "cancel_room", *first]] == offers(model)
    assert [["refund_invoice", "pay_invoice"], ["book_room", "cancel_room"]] == answers(result)
    assert "done 1" in [m.content for m in result.messages]


async def test_a_call_of_what_was_not_found_yet_does_not_run() -> None:
    """A tool that is guessed, or found in the same response, is answered as one that is not available."""
    replies = [[find("invoice"), call("pay_invoice", {"n": 1})], "ok"]
    made, _ = desk(replies, ToolSearch(), tools=TOOLS)
    result = await made.run("go")
    statuses = [m.status for m in result.messages if isinstance(m, ToolMessage)]
    assert ["answered", "validation_error"] == statuses


async def test_nothing_found_says_so() -> None:
    """No match is an answer that asks for other words, and offers nothing new."""
    made, model = desk([find("weather"), "ok"], ToolSearch(), tools=TOOLS)
    result = await made.run("go")
    assert [["find_tools"]] * 2 == offers(model)
    told = next(m for m in result.messages if isinstance(m, ToolMessage))
    assert {"found": [], "note": "Nothing fits: try other words."} == json.loads(str(told.content))


async def test_what_others_hide_is_neither_told_nor_offered() -> None:
    """A tool that an earlier capability left out of the selection does not exist for the search."""
    hide = SelectTools(lambda tool: not tool.name.startswith("pay"))
    made, model = desk([find("invoice"), "ok"], hide, ToolSearch(), tools=TOOLS)
    result = await made.run("go")
    assert [["refund_invoice"]] == answers(result)
    assert ["refund_invoice", "find_tools"] == offers(model)[-1]


async def test_the_oldest_give_way() -> None:
    """At most `max_found` are offered; of one search the best stay longest, and what is found again is new again."""
    replies = [find("invoice"), find("room"), find("refund"), find("mail"), "ok"]
    made, model = desk(replies, ToolSearch(max_results=2, max_found=3), tools=TOOLS)
    await made.run("go")
    kept = [set(names) - {"find_tools"} for names in offers(model)]
    rooms = {"book_room", "cancel_room"}
    second, third = {"refund_invoice", "pay_invoice"}, {"refund_invoice", *rooms}
    assert [set(), second, third, third, {"book_room", "refund_invoice", "send_mail"}] == kept


async def test_it_survives_a_suspension() -> None:
    """What was found before a person was asked is offered after the run was resumed from its text."""
    replies = [find("invoice"), call("pay_invoice", {"n": 2}), "ok"]
    made, model = desk(replies, ToolSearch(), RequireApproval({"pay_invoice"}), tools=TOOLS)
    waiting = await made.run("go")
    await made.resume(waiting.snapshot(), {request.digest: Approve() for request in waiting.pending})
    assert ["refund_invoice", "pay_invoice", "find_tools"] == offers(model)[-1]


async def test_a_search_that_a_person_must_allow() -> None:
    """Approved, it is answered as ever; denied, it found nothing."""
    for decision, found in ((Approve(), ["refund_invoice", "pay_invoice"]), (Deny(), [])):
        made, model = desk([find("invoice"), "ok"], ToolSearch(), RequireApproval(None), tools=TOOLS)
        waiting = await made.run("go")
        await made.resume(waiting, {request.digest: decision for request in waiting.pending})
        assert [*found, "find_tools"] == offers(model)[-1]


async def test_others_judge_the_search_too() -> None:
    """A refusal wins and finds nothing; an answer is no run of a body, so it uses no budget of runs."""
    made, model = desk([find("invoice"), "ok"], ToolSearch(), RefuseTools({"find_tools"}), tools=TOOLS)
    await made.run("go")
    assert [["find_tools"]] * 2 == offers(model)
    made, model = desk([find("invoice"), find("room"), "ok"], ToolSearch(), ToolBudget(1), tools=TOOLS)
    assert "completed" == (await made.run("go")).status


async def test_switched_off_it_fails_and_hides_nothing() -> None:
    """Where a condition takes the capability out, its tool is there still, and says that it is off."""
    made, model = desk([find("invoice"), "ok"], when(lambda _: False, ToolSearch()), tools=TOOLS)
    result = await made.run("go")
    assert "switched off" in str(result.messages[-2].content)
    assert len(TOOLS) + 1 == len(offers(model)[0])


@given(
    st.sets(st.sampled_from([tool.name for tool in TOOLS])), st.sets(st.sampled_from([t.name for t in TOOLS]))
)
def test_it_only_narrows(left: set[str], always: set[str]) -> None:
    """Whatever is left by others, nothing that was hidden comes back, and `always` stays."""
    search = ToolSearch(always)
    inventory = (*TOOLS, *search.provide_tools())
    state = RunState(inventory=inventory, tools=[t for t in inventory if t.name in left | {"find_tools"}])
    made = fold([search], "before_model_request", state)
    assert (left & always) | {"find_tools"} == {tool.name for tool in made.tools}


def test_hundreds_of_tools_are_asked_once_each() -> None:
    """The cost of a request grows with the inventory, not with its square: each tool is looked at by name only."""
    many = named(*(f"make_thing_{i}" for i in range(600)))
    search = ToolSearch()
    state = RunState(inventory=many, tools=many)
    made = fold([search], "before_model_request", state)
    assert () == made.tools
    assert search.initial() == made.slot(search)  # nothing to note: nobody had hidden anything


def test_names_and_numbers_are_checked() -> None:
    """A name in `always` that no tool has, a number below 1, and more results than are kept."""
    with pytest.raises(ValueError, match="send_male"):
        Agent("desk", "test", tools=TOOLS, capabilities=[ToolSearch({"send_male"})])
    with pytest.raises(ValueError, match="find_tools"):
        Agent("desk", "test", tools=named("find_tools"), capabilities=[ToolSearch()])
    assert "look" == ToolSearch(name="look").provide_tools()[0].name
    for wrong in ({"max_results": 0}, {"max_found": 0}):
        with pytest.raises(ValueError, match="the least is 1"):
            ToolSearch(**wrong)  # type: ignore[arg-type]  # the values under test
    for kind in ({"max_results": True}, {"max_found": 2.5}):
        with pytest.raises(TypeError, match="integer"):
            ToolSearch(**kind)
    with pytest.raises(ValueError, match="at most max_found, 2"):
        ToolSearch(max_results=3, max_found=2)
    with pytest.raises(TypeError, match="one string"):
        ToolSearch("pay")
    with pytest.raises(TypeError, match="not a predicate"):
        ToolSearch(lambda tool: True)  # type: ignore[arg-type]  # the value under test
    with pytest.raises(ValueError, match="must not be empty"):
        ToolSearch(name="")


def test_laws_and_round_trip() -> None:
    """It keeps the laws, and comes back from its description."""
    check_laws(ToolSearch({"pay"}, max_results=1, max_found=2))
    assert ToolSearch({"pay"}) == reloaded(ToolSearch({"pay"}))
