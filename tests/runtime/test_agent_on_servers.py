"""Whole runs of an agent against a server that others wrote: what goes out is balanced, typed and accounted for."""

import pytest
from attrs import frozen
from pydantic import ValidationError

from capfold.capabilities import (
    RefuseTools,
    RequireApproval,
    RunState,
    SelectTools,
    ToolFailed,
    TrimMessages,
    hook,
    tool,
)
from capfold.runtime import Agent, Approve, Deny, ModelProfile, OpenAIModel
from capfold.runtime.decisions import Decision
from tests.runtime.desk import check_closed, contents, results
from tests.runtime.server_runs import (
    agent,
    asks,
    careful,
    check_types,
    judged,
    pay,
    play,
    resumed_elsewhere,
    roles,
    says,
    tool_results,
    weather,
)
from tests.servers import Aimock, Body


@frozen
class Forecast:
    """A structured output."""

    city: str
    degrees: list[int]


async def test_several_turns_with_parallel_calls(aimock: Aimock) -> None:
    """Results go back in the order of the calls, under their ids; usage is summed."""
    usage = {"prompt_tokens": 10, "completion_tokens": 3}
    play(
        aimock,
        asks(("a", "weather", {"city": "Köln"}), ("b", "weather", {"city": "Rom"}), usage=usage),
        asks(("c", "pay", {"amount": 3}), content="Paying.", usage=usage),
        says("all done", usage=usage),
    )
    result = await agent(instructions="Be brief.").run("go")
    assert ("completed", "all done", 3, 3) == (
        result.status,
        result.output,
        result.steps,
        result.tool_calls,
    )
    assert (30, 9) == (result.usage.input_tokens, result.usage.output_tokens)
    first, second, third = judged(aimock, result.requests)
    assert ["system", "user"] == roles(first)
    assert [*roles(first), "assistant", "tool", "tool"] == roles(second)
    assert [*roles(second), "assistant", "tool"] == roles(third)
    assert {"a": "rain in Köln", "b": "rain in Rom", "c": "paid 3"} == tool_results(third)
    assert second["messages"] == third["messages"][: len(second["messages"])]
    assert ["weather", "pay"] == [offered["function"]["name"] for offered in first["tools"]]


async def test_equal_ids_of_several_responses(aimock: Aimock) -> None:
    """A server that numbers its calls anew in each response gets unique ids back, each answered once."""
    play(
        aimock,
        asks(("call_0", "weather", {"city": "A"})),
        asks(("call_0", "weather", {"city": "B"})),
        says("done"),
    )
    result = await agent().run("go")
    *_, last = judged(aimock, result.requests)
    assert ["rain in A", "rain in B"] == list(tool_results(last).values())


async def test_a_refused_call(aimock: Aimock) -> None:
    """The model reads why one call was not permitted, beside the result of the other."""
    play(aimock, asks(("a", "weather", {"city": "Rom"}), ("b", "pay", {"amount": 3})), says("I may not"))
    result = await agent(RefuseTools({"pay"}, reason="Not for agents.")).run("go")
    assert [("weather", "succeeded"), ("pay", "denied")] == results(result.messages)
    _, second = judged(aimock, result.requests)
    assert {"a": "rain in Rom", "b": "Not for agents."} == tool_results(second)


async def test_a_tool_that_fails_first(aimock: Aimock) -> None:
    """A failure is a result like another; the next try counts anew."""
    tries: list[str] = []

    @tool
    def lookup(key: str) -> str:
        """Look a key up."""
        tries.append(key)
        if len(tries) == 1:
            raise ToolFailed("the shelf is locked")
        return "found"

    play(aimock, asks(("a", "lookup", {"key": "x"})), asks(("b", "lookup", {"key": "x"})), says("got it"))
    result = await agent(tools=(lookup,)).run("go")
    assert [("lookup", "failed"), ("lookup", "succeeded")] == results(result.messages)
    *_, last = judged(aimock, result.requests)
    assert {"a": "the shelf is locked", "b": "found"} == tool_results(last)
    assert {} == result.state.tool_retries


async def test_a_stopped_run_is_continued(aimock: Aimock) -> None:
    """A stop closes the open calls, so that its history can be sent with the next prompt."""

    @hook.after_model_request
    def enough(state: RunState) -> RunState:
        return state.stop("enough") if state.response is not None and state.response.tool_calls else state

    play(aimock, asks(("a", "pay", {"amount": 3}), ("b", "pay", {"amount": 4})), says("as you say"))
    stopped = await agent(enough).run("go")
    assert ("stopped", "enough") == (stopped.status, stopped.output)
    assert [("pay", "not_executed")] * 2 == results(stopped.messages)
    second = await agent().run("never mind", messages=stopped.messages)
    assert "as you say" == second.output
    _, sent = judged(aimock, stopped.requests + second.requests)
    assert ["user", "assistant", "tool", "tool"] == roles(sent)[:4]
    assert {"role": "user", "content": "never mind"} == sent["messages"][-1]


@pytest.mark.parametrize(
    ("decision", "told"),
    [(Approve(), "paid 3"), (Deny("too much"), "too much")],
    ids=["approve", "deny"],
)
async def test_suspended_and_resumed_by_its_text(aimock: Aimock, decision: Decision, told: str) -> None:
    """A run that waits sends nothing; resumed from its snapshot, it goes on with one request."""
    play(aimock, asks(("a", "weather", {"city": "Rom"}), ("b", "pay", {"amount": 3})), says("so be it"))
    suspended = await careful().run("go")
    assert "suspended" == suspended.status
    judged(aimock, 1)
    (request,) = suspended.pending
    result = await careful().resume(suspended.snapshot(), {request.digest: decision})
    assert ("completed", "so be it") == (result.status, result.output)
    _, second = judged(aimock, result.requests)
    assert {"a": "rain in Rom", "b": told} == tool_results(second)


def test_resumed_in_another_process(aimock: Aimock) -> None:
    """The text is all that the other process needs beside the same agent; both requests are on one account."""
    play(aimock, asks(("a", "pay", {"amount": 3})), says("so be it"))
    suspended = careful().run_sync("go")
    told = resumed_elsewhere(suspended)
    assert {"status": "completed", "output": "so be it", "requests": 2} == told
    _, second = judged(aimock, told["requests"])
    assert {"a": "paid 3"} == tool_results(second)


async def test_an_approver_is_asked_within_the_run(aimock: Aimock) -> None:
    """With an approver nothing is suspended; each call of a batch gets its own decision."""
    play(aimock, asks(("a", "pay", {"amount": 3}), ("b", "pay", {"amount": 1000})), says("ok"))
    result = await agent(RequireApproval(), approver=lambda requests: [Approve(), Deny("no")]).run("go")
    _, second = judged(aimock, result.requests)
    assert {"a": "paid 3", "b": "no"} == tool_results(second)


async def test_trimmed_views_stay_balanced(aimock: Aimock) -> None:
    """Every trimmed request shows the task and whole exchanges; the history stays whole."""
    steps = [asks((f"a{i}", "weather", {"city": f"{i}"}), (f"b{i}", "pay", {"amount": i})) for i in range(6)]
    play(aimock, *steps, says("done"))
    result = await agent(TrimMessages(keep_last=4)).run("the task")
    assert 7 == result.requests
    *_, last = judged(aimock, result.requests)
    assert ["user", "assistant", "tool", "tool"] == roles(last)
    assert {"a5": "rain in 5", "b5": "paid 5"} == tool_results(last)
    assert [*(["rain in", "paid"] * 6)] == [str(c).rpartition(" ")[0] for c in contents(result.messages)]


async def test_a_deselected_tool_is_called_anyway(aimock: Aimock) -> None:
    """It does not run; the model reads which tools there are; it is charged, as every call of a batch is."""
    play(aimock, asks(("a", "pay", {"amount": 3})), says("sorry"))
    result = await agent(SelectTools({"weather"})).run("go")
    assert [("pay", "validation_error")] == results(result.messages)
    assert (1, 1) == (result.tool_calls, result.state.unselected_retries_used)
    first, second = judged(aimock, result.requests)
    assert ["weather"] == [offered["function"]["name"] for offered in first["tools"]]
    assert "weather" in tool_results(second)["a"]


@pytest.mark.parametrize("as_tool", [False, True], ids=["json_schema", "output tool"])
async def test_structured_output(aimock: Aimock, as_tool: bool) -> None:  # noqa: FBT001  # a value under test
    """An attrs class comes back by a response format or by an output tool, after a tool and one invalid try."""
    profile = ModelProfile(tools=True, json_schema=not as_tool)
    bad, good = '{"city": "Rom", "degrees": ["1"]}', '{"city": "Rom", "degrees": [1, 2]}'
    play(
        aimock,
        asks(("a", "weather", {"city": "Rom"})),
        *(
            asks((f"o{i}", "final_output", text)) if as_tool else says(text)
            for i, text in enumerate((bad, good))
        ),
    )
    model = OpenAIModel("gpt-test", profile=profile)
    forecaster = Agent("forecaster", model, tools=[weather], output_type=Forecast)
    result = await forecaster.run("go")
    assert Forecast("Rom", [1, 2]) == result.output
    assert 1 == result.state.output_retries_used
    check_closed(result.messages)
    first, *_, last = judged(aimock, result.requests)
    names = [offered["function"]["name"] for offered in first["tools"]]
    if as_tool:
        assert (["weather", "final_output"], "required") == (names, first["tool_choice"])
        schema = first["tools"][-1]["function"]["parameters"]
    else:
        assert ["weather"] == names
        assert "Forecast" == first["response_format"]["json_schema"]["name"]
        schema = first["response_format"]["json_schema"]["schema"]
    assert {"city", "degrees"} == set(schema["properties"])
    assert ["assistant", "user"] == roles(last)[-2:]
    assert "$.degrees[0]" in last["messages"][-1]["content"]


async def test_history_of_a_server_is_continued_by_another_agent(aimock: Aimock) -> None:
    """A second agent without tools goes on with the messages of the first one; calls and results stand there."""
    play(aimock, asks(("a", "pay", {"amount": 3})), says("paid"), says("three"))
    first = await agent().run("go")
    second = await agent(tools=()).run("how much?", messages=first.messages)
    *_, sent = judged(aimock, first.requests + second.requests)
    assert ["user", "assistant", "tool", "assistant", "user"] == roles(sent)
    assert "tools" not in sent
    assert ("three", 1) == (second.output, second.requests)
    assert pay.name == sent["messages"][1]["tool_calls"][0]["function"]["name"]


@pytest.mark.parametrize(
    "call",
    [
        {"id": "a", "type": "function", "function": {"name": "pay", "arguments": {"amount": 3}}},
        {"id": "a", "type": "function", "function": {"name": "pay"}},
        {"type": "function", "function": {"name": "pay", "arguments": "{}"}},
        {"id": "a", "type": "functional", "function": {"name": "pay", "arguments": "{}"}},
    ],
    ids=["arguments no text", "no arguments", "no id", "wrong type"],
)
def test_the_judge_of_types_looks_into_calls(call: Body) -> None:
    """A wrong call inside a message is found, which plain validation of the message lets pass."""
    good = {"id": "a", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
    check_types({"messages": [{"role": "assistant", "content": None, "tool_calls": [good]}]})
    with pytest.raises(ValidationError):
        check_types({"messages": [{"role": "assistant", "content": None, "tool_calls": [good, call]}]})
