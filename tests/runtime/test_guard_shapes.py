"""What a hook builds by hand, past the verbs and the constructors: the guards look at types and parts too."""

from typing import Any

import pytest
from attrs import evolve

from capfold.capabilities import (
    AssistantMessage,
    CallState,
    Message,
    Outcome,
    Projection,
    RequireApproval,
    RunState,
    UserMessage,
    Verdict,
    call,
)
from capfold.capabilities.frozen import FrozenDict
from capfold.capabilities.records import replace
from capfold.capabilities.verdict import Failure
from capfold.runtime.guards import Edge
from capfold.runtime.transitions import Transition, check
from tests.runtime.desk import look, pay

TASK = UserMessage("task")
NOTED = AssistantMessage("noted", metadata={"a": 1}, at=1.0)
RUN = RunState(
    inventory=(look, pay), tools=(look, pay), messages=(UserMessage("old"), NOTED, TASK), history_start=2
)
CALL = CallState(run=RUN, asked=call("pay", {"amount": 2}, id="a"), tool=pay, arguments={"amount": 2})
RAN = replace(CALL, outcome=Outcome("succeeded", "paid", attempts=1))
# Any: nothing of it is JSON, which no type would let pass.
ODD: Any = FrozenDict({"a": object()})


def judge(before: Any, after: Any, hook: str, **edge: Any) -> tuple[Any, Transition]:
    """Check a change of either record that is one."""
    record, transition = check(before, after, Edge("Mine", 0, hook, **edge))
    assert transition is not None
    return record, transition


def rejected(before: Any, after: Any, hook: str, field: str, text: str, **edge: Any) -> None:
    """Assert that a change is rejected, with a text, and nothing of it goes on."""
    record, transition = judge(before, after, hook, **edge)
    assert record is before
    assert [field] == list(transition.rejected)
    assert text in transition.rejected[field][1]


@pytest.mark.parametrize(("name", "value"), [("stopped", "x"), ("failed", "x"), ("again", 5), ("notes", [])])
def test_a_latch_has_its_type(name: str, value: object) -> None:
    """A latch that is set to anything but its record is put back."""
    record, transition = judge(RUN, replace(RUN, **{name: value}), "after_model_request")
    assert {name: (value, getattr(RUN, name))} == transition.restored
    assert getattr(RUN, name) == getattr(record, name)


def test_equal_copies_leave_what_stood_there() -> None:
    """Messages that compare equal, with another time, are not written over those of the history."""
    copies = [evolve(message, at=9.0) for message in RUN.messages]
    added = UserMessage("more")
    record, _ = judge(RUN, replace(RUN, messages=(*copies, added)), "before_model_request")
    assert all(a is b for a, b in zip(record.messages, (*RUN.messages, added), strict=True))


def test_history_compares_by_type() -> None:
    """1 and True in a message are two messages."""
    edited: Message = evolve(NOTED, metadata={"a": True})
    assert edited == NOTED
    tried = replace(RUN, messages=(RUN.messages[0], edited, TASK))
    rejected(RUN, tried, "before_model_request", "messages", "never dropped, edited")


def test_the_newest_message_is_not_dropped() -> None:
    """A history that is shorter is not the same with nothing added."""
    rejected(
        RUN, replace(RUN, messages=RUN.messages[:-1]), "before_model_request", "messages", "never dropped"
    )
    rejected(
        RUN, replace(RUN, messages=RUN.messages[:1]), "before_run", "messages", "not the messages before"
    )


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("settings", {"a": 1}, "frozen mapping"),
        ("settings", ODD, "settings is JSON"),
        ("instructions", 5, "instructions is a string"),
        ("request_messages", Projection((TASK,), 3, task=UserMessage("task")), "the task of a projection"),
    ],
)
def test_parts_of_a_request_have_their_types(name: str, value: object, text: str) -> None:
    """What would be found out when the request is encoded is rejected where it is written."""
    rejected(RUN, replace(RUN, **{name: value}), "before_model_request", name, text)


def test_a_tuned_tool_keeps_its_gate() -> None:
    """A tool whose capabilities were left out is another tool."""
    gated = pay.with_capabilities(RequireApproval())
    run = replace(RUN, inventory=(gated,), tools=(gated,))
    open_again = replace(run, tools=(evolve(gated, capabilities=()),))
    rejected(run, open_again, "before_model_request", "tools", "keeps its capabilities")


def test_metadata_of_a_response_is_json() -> None:
    """In the response and in its calls."""
    got = replace(RUN, response=NOTED)
    odd = replace(got, response=replace(NOTED, metadata=ODD))
    rejected(got, odd, "after_model_request", "response", "metadata is JSON")
    calls = (replace(call("pay", {"amount": 1}), metadata=ODD),)
    odd = replace(got, response=replace(NOTED, tool_calls=calls))
    rejected(got, odd, "after_model_request", "response", "metadata is JSON")


def test_calls_of_a_made_up_response_name_their_origin() -> None:
    """A response in place of none holds no call of the model's, whatever it says."""
    made = AssistantMessage(tool_calls=(call("pay", {"amount": 1}, id="a"),), finish_reason="tool_calls")
    record, _ = judge(RUN, replace(RUN, response=made), "wrap_model_request")
    assert ["Mine"] == [asked.origin for asked in record.response.tool_calls]


def test_slots_are_a_frozen_mapping() -> None:
    """A plain dict could be written to later."""
    rejected(RUN, replace(RUN, slots={"Mine": 1}), "before_run", "slots", "frozen mapping")


def test_slots_compare_by_type() -> None:
    """True in place of 1 is a write, and takes effect."""
    held = replace(RUN, slots=FrozenDict({"Mine": 1}))
    record, transition = judge(held, replace(held, slots=FrozenDict({"Mine": True})), "before_run")
    assert record.slots["Mine"] is True
    assert ["slots"] == list(transition.changes)


@pytest.mark.parametrize("name", ["arguments", "injected"])
def test_arguments_are_frozen_json(name: str) -> None:
    """Arguments and injected values are what was judged, for good."""
    hook = "before_tool_execute"
    rejected(CALL, replace(CALL, **{name: {"amount": 3}}), hook, name, "frozen mapping")
    rejected(CALL, replace(CALL, **{name: ODD}), hook, name, "is JSON")


def test_arguments_satisfy_the_schema() -> None:
    """What the schema says of them rejects them by name; injected values have none."""
    tried, edge = CALL.with_arguments({"amount": 3}), {"arguments_problem": lambda _: "amount is too odd"}
    rejected(CALL, tried, "before_tool_execute", "arguments", "amount is too odd", **edge)
    assert "transition" == judge(CALL, CALL.inject(a=1), "before_tool_execute", **edge)[1].kind


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"refused": "no"}, "refused is a Refusal"),
        ({"answer": "yes"}, "answer is an Answered"),
        ({"approval": ("ask",)}, "approval is a tuple of Ask"),
        ({"approval": []}, "approval is a tuple of Ask"),
    ],
)
def test_parts_of_a_verdict_are_records(parts: dict[str, Any], text: str) -> None:
    """Each part of a verdict is of its kind, or the verdict is no verdict."""
    rejected(CALL, replace(CALL, verdict=Verdict(**parts)), "admit_tool_execute", "verdict", text)


def test_the_error_of_an_outcome_stays() -> None:
    """And its metadata is JSON."""
    assert RAN.outcome is not None
    forged = evolve(RAN.outcome, error=Failure("Odd", "not so"))
    rejected(
        RAN, replace(RAN, outcome=forged), "after_tool_execute", "outcome", "the error of an outcome stays"
    )
    odd = replace(RAN.outcome, metadata=ODD)
    rejected(
        RAN, replace(RAN, outcome=odd), "after_tool_execute", "outcome", "metadata of an outcome is JSON"
    )
