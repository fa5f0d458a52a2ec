"""Steps of a run where one check alone stands in the way: each test fails without it."""

from typing import Any

import pytest

from capfold.capabilities import AssistantMessage, Capability, RunState, ToolFailed, ToolMessage, call, tool
from capfold.runtime import Agent, Blocked, InvalidResponse, RunError, RunResult, ScriptedModel


class Fails(Capability):
    """Fails the run before its first request."""

    def before_model_request(self, state: RunState) -> RunState:
        return state.fail("not today")


async def test_a_run_that_failed_sends_no_request() -> None:
    """The failure is found before the request goes out, and names who failed it."""
    model = ScriptedModel(["done"])
    with pytest.raises(RunError) as caught:
        await Agent("desk", model, capabilities=[Fails()]).run("go")
    reason = caught.value.reason
    assert isinstance(reason, Blocked)
    assert ("Fails", "before_model_request", "not today") == (reason.key, reason.hook, reason.message)
    assert () == model.requests


async def test_who_stopped_is_in_the_result() -> None:
    """The stop names capability and hook, whatever the hook itself could write there."""

    class Stops(Capability):
        def after_model_request(self, state: RunState) -> RunState:
            return state.stop("enough")

    result = await Agent("desk", ScriptedModel(["done"]), capabilities=[Stops()]).run("go")
    assert result.stop is not None
    assert ("enough", "Stops", "after_model_request") == (
        result.stop.message,
        result.stop.key,
        result.stop.hook,
    )


async def test_a_write_into_a_list_of_the_output_is_on_record() -> None:
    """A hook gets an output of its own, so that what it does to it in place is seen, and is its doing."""

    class Writes(Capability):
        def after_run(self, state: RunState) -> RunState:
            output: Any = state.output
            output.append(99)
            return state

    agent = Agent("desk", ScriptedModel(["[1, 2]"]), output_type=list[int], capabilities=[Writes()])
    result: RunResult[list[int]] = await agent.run("go")
    (record,) = [record for record in result.log if record.kind == "transition"]
    assert ("Writes", {"from": [1, 2], "to": [1, 2, 99]}) == (record.actor, record.changes["output"])
    assert [1, 2, 99] == result.output


async def test_an_output_that_is_none_of_its_type_is_asked_for_again() -> None:
    """It is not returned, and the model reads what is wrong."""
    model = ScriptedModel(['"five"', "5"])
    result: RunResult[int] = await Agent("desk", model, output_type=int).run("go")
    assert (5, 2) == (result.output, result.requests)
    assert "not valid" in str(model.requests[1].messages[-1].content)


async def test_a_refusal_is_no_output_of_a_type() -> None:
    """A model that refuses has not answered with what was asked for, though its words would fit."""
    refused = AssistantMessage("5", finish_reason="refusal")
    model = ScriptedModel([refused, "6"])
    result: RunResult[int] = await Agent("desk", model, output_type=int).run("go")
    assert (6, 2) == (result.output, result.requests)


async def test_ids_of_calls_are_one_of_a_kind() -> None:
    """Equal ids in a response end the run; one of an earlier response is renamed, on record."""

    def pay(amount: int) -> str:
        """Pay an amount."""
        return "paid"

    same = call("pay", {"amount": 1}, id="a")
    with pytest.raises(RunError) as caught:
        await Agent("desk", ScriptedModel([[same, same]]), tools=[tool(pay)]).run("go")
    assert isinstance(caught.value.reason, InvalidResponse)
    result = await Agent("desk", ScriptedModel([same, same, "done"]), tools=[tool(pay)]).run("go")
    ids = [message.call_id for message in result.messages if isinstance(message, ToolMessage)]
    assert ("a", 2) == (ids[0], len(set(ids)))
    assert [{"a": ids[1]}] == [
        record.facts["renamed_calls"] for record in result.log if "renamed_calls" in record.facts
    ]


async def test_a_tool_that_was_not_offered_does_not_run() -> None:
    """What is prepared is what the request offered, not what the agent has."""
    ran: list[int] = []

    def pay(amount: int) -> str:
        """Pay an amount."""
        ran.append(amount)
        return "paid"

    class Hide(Capability):
        def before_model_request(self, state: RunState) -> RunState:
            return state.select_tools(set())

    model = ScriptedModel([call("pay", {"amount": 1}), "done"])
    result = await Agent("desk", model, tools=[tool(pay)], capabilities=[Hide()]).run("go")
    assert [] == ran
    assert ["validation_error"] == [m.status for m in result.messages if isinstance(m, ToolMessage)]


async def test_one_success_makes_a_step_of_a_tool_one_that_succeeded() -> None:
    """Whichever of its calls comes first: no retry is counted, and none was to be had."""

    def pay(amount: int) -> str:
        """Pay an amount."""
        if amount > 10:
            raise ToolFailed("too much")
        return "paid"

    for amounts in ((1, 99), (99, 1)):
        batch = [call("pay", {"amount": amount}) for amount in amounts]
        agent = Agent("desk", ScriptedModel([batch, "done"]), tools=[tool(pay, max_retries=0)])
        result = await agent.run("go")
        assert ("completed", {}) == (result.status, result.state.tool_retries)
