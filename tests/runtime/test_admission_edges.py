"""Admission where one check alone stands between a call and its tool: each test fails without it."""

import datetime
from typing import Any, ClassVar

import pytest

from capfold.capabilities import CallState, Capability, RequireApproval, ToolCall, ToolMessage, call, tool
from capfold.capabilities.capability import Declaration
from capfold.runtime import Agent, Blocked, Edit, RunError, RunResult, ScriptedModel


class Bodies:
    """Two tools, and what they were run with."""

    def __init__(self) -> None:
        self.ran: list[object] = []

    def tools(self) -> list[Any]:
        """Return `look()`, whose schema wants nothing, `pay(amount)` and `book(day)`."""

        async def look() -> str:
            """Look."""
            self.ran.append("look")
            return "seen"

        async def pay(amount: int) -> str:
            """Pay an amount."""
            self.ran.append(amount)
            return f"paid {amount}"

        async def book(day: datetime.date) -> str:
            """Book a day."""
            self.ran.append(day)
            return f"booked {day}"

        return [tool(look), tool(pay), tool(book)]


def desk(bodies: Bodies, *calls: ToolCall, capabilities: tuple[Any, ...] = (), **options: Any) -> Agent[str]:
    """Return an agent whose model asks for these calls at once, then is done."""
    script = ScriptedModel([list(calls), "done"])
    return Agent("desk", script, tools=bodies.tools(), capabilities=capabilities, **options)


def statuses(result: RunResult[Any]) -> list[str]:
    """Return the statuses of the results, in order."""
    return [message.status for message in result.messages if isinstance(message, ToolMessage)]


async def test_text_that_is_no_json_does_not_run_a_tool_that_wants_nothing() -> None:
    """What cannot be read is a problem by itself, though nothing in it would have been asked for."""
    bodies = Bodies()
    result = await desk(bodies, ToolCall("a", "look", "[1"), ToolCall("b", "look", "{}")).run("go")
    assert (["validation_error", "succeeded"], ["look"]) == (statuses(result), bodies.ran)


class Repair(Capability):
    """Makes of wrong arguments others that are wrong."""

    declares: ClassVar[frozenset[Declaration]] = frozenset({"repairs"})

    def before_tool_execute(self, call: CallState) -> CallState:
        return call.with_arguments({"amount": "still wrong"}) if call.problems else call


async def test_a_repair_that_repairs_nothing_does_not_run() -> None:
    """After a repair the arguments are validated again."""
    bodies = Bodies()
    result = await desk(bodies, ToolCall("a", "pay", "{}"), capabilities=(Repair(),)).run("go")
    assert (["validation_error"], []) == (statuses(result), bodies.ran)


async def test_what_the_schema_cannot_say_is_checked_before_judging() -> None:
    """A day that the calendar does not have fits the schema of a text; it reaches neither gate nor body."""
    seen: list[str] = []

    class Gate(Capability):
        def admit_tool_execute(self, call: CallState) -> CallState:
            seen.append(str(call.arguments["day"]))
            return call

    bodies = Bodies()
    calls = call("book", {"day": "2024-02-31"}), call("book", {"day": "2024-02-29"})
    result = await desk(bodies, *calls, capabilities=(Gate(),)).run("go")
    assert ["validation_error", "succeeded"] == statuses(result)
    assert (["2024-02-29"], [datetime.date(2024, 2, 29)]) == (seen, bodies.ran)


async def test_a_judge_that_fails_the_run_is_the_last_that_is_asked() -> None:
    """The first failure ends the step: calls after it are judged by nobody."""
    asked: list[object] = []

    class Judge(Capability):
        def admit_tool_execute(self, call: CallState) -> CallState:
            asked.append(call.arguments["amount"])
            return call.fail("no") if call.arguments["amount"] == 1 else call

    bodies = Bodies()
    calls = call("pay", {"amount": 1}), call("pay", {"amount": 2})
    with pytest.raises(RunError) as caught:
        await desk(bodies, *calls, capabilities=(Judge(),)).run("go")
    assert isinstance(caught.value.reason, Blocked)
    assert ([1], []) == (asked, bodies.ran)


async def test_earlier_calls_are_those_that_will_run() -> None:
    """One that was refused is no earlier call of the next: it takes no place in a budget."""
    asked: list[list[object]] = []

    class Judge(Capability):
        def admit_tool_execute(self, call: CallState) -> CallState:
            asked.append([one.arguments["amount"] for one in call.earlier])
            return call.refuse("no") if call.arguments["amount"] == 2 else call

    bodies = Bodies()
    calls = [call("pay", {"amount": amount}) for amount in (1, 2, 3)]
    result = await desk(bodies, *calls, capabilities=(Judge(),)).run("go")
    assert [[], [1], [1]] == asked
    assert ["succeeded", "denied", "succeeded"] == statuses(result)


async def test_nothing_is_gathered_for_calls_after_a_stop() -> None:
    """The stopping call and those after it are judged by nobody, so that nobody need ask outside."""
    gathered: list[object] = []

    class Ask(Capability):
        async def gather_admit_tool_execute(self, call: CallState, outside: Any) -> Any:
            gathered.append(call.arguments["amount"])

        def before_tool_execute(self, call: CallState) -> CallState:
            return call.stop("enough") if call.arguments["amount"] == 2 else call

    bodies = Bodies()
    calls = [call("pay", {"amount": amount}) for amount in (1, 2, 3)]
    result = await desk(bodies, *calls, capabilities=(Ask(),)).run("go")
    assert ([1], [1]) == (gathered, bodies.ran)
    assert ["succeeded", "not_executed", "not_executed"] == statuses(result)


async def test_an_edit_does_not_reopen_a_call_before_it() -> None:
    """What was refused before the edited call stays refused: only that one and later ones are judged again."""

    class Refuse(Capability):
        def admit_tool_execute(self, call: CallState) -> CallState:
            return call.refuse("no") if call.arguments["amount"] == 1 else call

    bodies = Bodies()
    calls = call("pay", {"amount": 1}), call("pay", {"amount": 2})
    agent = desk(bodies, *calls, capabilities=(Refuse(), RequireApproval({"pay"})))
    waiting = await agent.run("go")
    (request,) = waiting.pending
    result = await agent.resume(waiting, {request.digest: Edit({"amount": 3})})
    assert (["denied", "succeeded"], [3]) == (statuses(result), bodies.ran)
