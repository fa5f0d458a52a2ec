"""The guards: for each owner and hook, what makes a write legal."""

from collections.abc import Sequence

import pytest
from attrs import evolve

from capfold.capabilities import (
    AssistantMessage,
    CallState,
    Message,
    Outcome,
    Projection,
    RunState,
    SystemMessage,
    ToolMessage,
    Usage,
    UserMessage,
    Verdict,
    call,
)
from capfold.capabilities.frozen import FrozenDict
from capfold.capabilities.messages import FinishReason
from capfold.capabilities.owners import RULES
from capfold.capabilities.records import replace
from capfold.capabilities.state import Stop
from capfold.capabilities.verdict import Ask
from capfold.runtime.guards import GUARDS, Edge
from capfold.runtime.transitions import Transition, check
from tests.runtime.desk import look, pay

TASK = UserMessage("task")
OLD = (UserMessage("old"), AssistantMessage("answer"))
RUN = RunState(inventory=(look, pay), tools=(look, pay), messages=(*OLD, TASK), history_start=2)


def judge(before: RunState, after: RunState, hook: str) -> tuple[RunState, Transition]:
    """Check a change that is one."""
    record, transition = check(before, after, Edge("Mine", 0, hook))
    assert transition is not None
    return record, transition


def judge_call(before: CallState, after: CallState, hook: str) -> tuple[CallState, Transition]:
    """Check a change that is one."""
    record, transition = check(before, after, Edge("Mine", 0, hook))
    assert transition is not None
    return record, transition


def legal(before: RunState, after: RunState, hook: str) -> None:
    """Assert that a change is legal and takes effect."""
    record, transition = judge(before, after, hook)
    assert ("transition", after) == (transition.kind, record)


def rejected(before: RunState, after: RunState, hook: str, field: str, text: str) -> None:
    """Assert that a change is rejected, with a text."""
    record, transition = judge(before, after, hook)
    assert record is before
    assert [field] == list(transition.rejected)
    assert text in transition.rejected[field][1]


def test_guards_are_the_rules() -> None:
    """Each rule of the owners' table has a guard, and there is no other."""
    assert {(owner, hook) for owner, rule in RULES.items() for hook in rule.allowed} == set(GUARDS)


# --- latches


def test_latches_are_set_once() -> None:
    """Stop, fail and notes may be set at any hook; clearing or replacing one is put back."""
    for hook in ("before_run", "after_model_request", "wrap_run", "admit_tool_execute"):
        legal(RUN, RUN.stop("s").fail("f").note("n"), hook)
    latched = RUN.stop("s").note("n")
    for tried in (
        replace(latched, stopped=None),
        replace(latched, stopped=Stop("t")),
        replace(latched, notes=()),
    ):
        record, transition = judge(latched, tried, "before_run")
        assert record is latched
        assert "restored" == transition.kind


def test_second_stop_is_a_note() -> None:
    """A second stop keeps the first and stands in the notes, which is legal."""
    latched = RUN.stop("first")
    record, transition = judge(latched, latched.stop("second"), "before_run")
    assert "transition" == transition.kind
    assert record.stopped == latched.stopped
    assert ("stop: second",) == record.notes


def test_ask_again_belongs_to_one_hook() -> None:
    """ask_again counts in after_model_request only; elsewhere it is put back."""
    legal(RUN, RUN.ask_again("m"), "after_model_request")
    record, transition = judge(RUN, RUN.ask_again("m"), "before_model_request")
    assert record is RUN
    assert {"again"} == set(transition.restored)


def test_notes_are_texts() -> None:
    """A note that is no text is put back."""
    record, transition = judge(RUN, replace(RUN, notes=(1,)), "before_run")
    assert record is RUN
    assert {"notes"} == set(transition.restored)


# --- history


def test_before_run_rewrites_its_own_input_only() -> None:
    """The messages before this run stay; this run's input may be any user and system messages."""
    mine = (SystemMessage("s"), UserMessage("other task"))
    legal(RUN, replace(RUN, messages=(*OLD, *mine)), "before_run")
    rejected(RUN, replace(RUN, messages=(TASK,)), "before_run", "messages", "not the messages before it")
    rejected(
        RUN,
        replace(RUN, messages=(*OLD, AssistantMessage("x"))),
        "before_run",
        "messages",
        "AssistantMessage",
    )


def test_history_is_appended_to() -> None:
    """User and system messages are appended; dropping, editing and other kinds are rejected."""
    hook = "before_model_request"
    legal(RUN, RUN.append(UserMessage("a"), SystemMessage("b")), hook)
    rejected(RUN, replace(RUN, messages=RUN.messages[1:]), hook, "messages", "project a view")
    edited = (*OLD, UserMessage("edited"), UserMessage("a"))
    rejected(RUN, replace(RUN, messages=edited), hook, "messages", "appended to")
    for message in (AssistantMessage("x"), ToolMessage("c", "look", "x")):
        rejected(RUN, RUN.append(message), hook, "messages", type(message).__name__)
    rejected(RUN, RUN.append(TASK), "after_model_request", "messages", "append user and system messages")


# --- request


def test_selection_is_only_narrowed_or_tuned() -> None:
    """Tools may be left out and described otherwise; added, doubled or rebuilt ones are rejected."""
    hook = "before_model_request"
    legal(RUN, RUN.select_tools({"look"}), hook)
    legal(RUN, RUN.with_tools(evolve(look, description="Other.")), hook)
    narrow = RUN.select_tools({"look"})
    rejected(narrow, RUN, hook, "tools", "'pay' was not in it")
    rejected(RUN, replace(RUN, tools=(look, look)), hook, "tools", "twice")
    rejected(RUN, replace(RUN, tools=("look",)), hook, "tools", "tuple of Tool")
    other = evolve(look, parameters={"type": "object"})
    rejected(RUN, RUN.with_tools(other), hook, "tools", "keeps its parameters")
    rejected(RUN, RUN.with_tools(evolve(look, function=None)), hook, "tools", "keeps its function")
    rejected(RUN, RUN.with_tools(evolve(pay, annotations=look.annotations)), hook, "tools", "annotations")


def test_wrapper_cannot_select() -> None:
    """A model wrapper changes model, settings, instructions; not tools."""
    legal(RUN, RUN.with_settings(a=1).with_instructions("x"), "wrap_model_request")
    rejected(RUN, RUN.select_tools({"look"}), "wrap_model_request", "tools", "before_model_request")


def test_what_was_hidden_stays_hidden() -> None:
    """A projection may rewrite or drop; it may not bring back what an earlier capability dropped."""
    hook = "before_model_request"
    hidden = RUN.project((TASK,))
    legal(RUN, hidden, hook)
    legal(hidden, hidden.project((UserMessage("rewritten"),)), hook)
    rejected(hidden, hidden.project(RUN.messages), hook, "request_messages", "stays hidden")
    equal = (UserMessage("old"), TASK)
    rejected(hidden, hidden.project(equal), hook, "request_messages", "stays hidden")


def test_projection_covers_the_whole_history() -> None:
    """A projection of a part would show the rest twice or never."""
    tried = replace(RUN, request_messages=Projection((TASK,), 1))
    rejected(RUN, tried, "before_model_request", "request_messages", "covers the whole history")
    cleared = replace(RUN.project((TASK,)), request_messages=None)
    rejected(RUN.project((TASK,)), cleared, "before_model_request", "request_messages", "use project")


def test_model_must_be_usable() -> None:
    """A model without a request method is rejected where it is chosen."""

    class Named:
        name = "nothing"

    rejected(RUN, RUN.with_model(Named()), "before_model_request", "model", "async request()")


# --- response

ASKED = AssistantMessage(
    "text",
    tool_calls=(call("look", {"n": 1}, id="a"), call("pay", {"amount": 2}, id="b")),
    finish_reason="tool_calls",
    usage=Usage(input_tokens=1, output_tokens=2),
)
GOT = replace(RUN, response=ASKED)


def respond(**changes: object) -> RunState:
    """Return the run with a changed response."""
    return replace(GOT, response=evolve(ASKED, **changes))  # type: ignore[arg-type]  # fields of many types


def test_calls_may_be_dropped_and_reordered() -> None:
    """after_model_request may drop and reorder calls, and change the text."""
    a, b = ASKED.tool_calls
    for calls in ((b, a), (a,), ()):
        legal(GOT, respond(tool_calls=calls, content="other"), "after_model_request")


def test_kept_call_is_unchanged() -> None:
    """A call that keeps its id keeps its name, arguments and origin."""
    a, b = ASKED.tool_calls
    for forged in (evolve(b, arguments='{"amount": 1000}'), evolve(b, name="look"), evolve(b, origin="Mine")):
        rejected(GOT, respond(tool_calls=(a, forged)), "after_model_request", "response", "call 'b' keeps")


def test_added_call_gets_its_origin() -> None:
    """A call that a capability adds is stamped with its key, whatever it pretended."""
    added = call("look", {"n": 5}, id="new")
    record, transition = judge(GOT, respond(tool_calls=(*ASKED.tool_calls, added)), "after_model_request")
    assert "transition" == transition.kind
    assert record.response is not None
    assert ["model", "model", "Mine"] == [made.origin for made in record.response.tool_calls]


def test_equal_ids_in_a_response_are_rejected() -> None:
    """A call that stands twice could not be answered once."""
    a, _ = ASKED.tool_calls
    rejected(GOT, respond(tool_calls=(a, a)), "after_model_request", "response", "twice")
    new = call("look", {"n": 5}, id="new")
    rejected(GOT, respond(tool_calls=(new, new)), "after_model_request", "response", "twice")


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_usage_and_cut_off_are_restored(finish: FinishReason) -> None:
    """The usage is the provider's, and a cut-off response stays one; the rest of the write takes effect."""
    cut = evolve(ASKED, finish_reason=finish)
    before = replace(GOT, response=cut)
    after = replace(before, response=evolve(cut, content="x", finish_reason="stop", usage=None))
    record, transition = judge(before, after, "after_model_request")
    assert "restored" == transition.kind
    assert {"response.usage", "response.finish_reason"} == set(transition.restored)
    assert record.response == evolve(cut, content="x")


def test_response_cannot_be_taken_away() -> None:
    """A response is transformed, not removed; and no other hook writes it."""
    rejected(GOT, replace(GOT, response=None), "after_model_request", "response", "AssistantMessage")
    for hook in ("before_model_request", "after_run", "before_run"):
        rejected(GOT, respond(content="x"), hook, "response", "after_model_request")


# --- slots, output


@pytest.mark.parametrize("hook", ["before_run", "after_run", "before_model_request", "after_model_request"])
def test_own_slot_only(hook: str) -> None:
    """A reducer writes its own slot; another's, or its removal, is rejected."""
    legal(RUN, replace(RUN, slots=RUN.slots.assoc("Mine", 1)), hook)
    rejected(
        RUN, replace(RUN, slots=RUN.slots.assoc("Other", 1)), hook, "slots", "'Other' belongs to another"
    )
    held = replace(RUN, slots=FrozenDict({"Mine": 1}))
    rejected(held, replace(held, slots=FrozenDict()), hook, "slots", "not removed")


def test_slot_of_a_wrapper() -> None:
    """A wrapper writes no slot."""
    rejected(RUN, replace(RUN, slots=RUN.slots.assoc("Mine", 1)), "wrap_run", "slots", "reducer")


@pytest.mark.parametrize("value", [[1], object(), {1}, lambda: 0], ids=["list", "object", "set", "function"])
def test_slot_value_must_be_portable(value: object) -> None:
    """What could change behind the state's back, or cannot leave the process, is no slot value."""
    tried = replace(RUN, slots=RUN.slots.assoc("Mine", value))
    rejected(RUN, tried, "before_run", "slots", "a slot holds")


def test_output_keeps_its_type() -> None:
    """after_run may transform the output, within the output type; another hook may not."""

    def problem(value: object) -> str | None:
        return None if type(value) is str else "str is wanted"

    done = replace(RUN, output="a")
    at = Edge("Mine", 0, "after_run", problem)
    assert "b" == check(done, replace(done, output="b"), at)[0].output
    record, transition = check(done, replace(done, output=3), at)
    assert record is done
    assert transition is not None
    assert "str is wanted" in transition.rejected["output"][1]
    rejected(done, replace(done, output="b"), "wrap_run", "output", "after_run")


# --- calls

CALL = CallState(run=RUN, asked=ASKED.tool_calls[1], tool=pay, arguments={"amount": 2})
RAN = replace(CALL, outcome=Outcome("succeeded", "paid", attempts=1))


def call_rejected(before: CallState, after: CallState, hook: str, field: str, text: str) -> None:
    """Assert that a change of a call is rejected, with a text."""
    record, transition = judge_call(before, after, hook)
    assert record is before
    assert [field] == list(transition.rejected)
    assert text in transition.rejected[field][1]


def test_arguments_change_before_only() -> None:
    """Arguments and injected values are written in before_tool_execute; later they are sealed."""
    after = CALL.with_arguments({"amount": 3}).inject(who="me")
    record, transition = judge_call(CALL, after, "before_tool_execute")
    assert ("transition", after) == (transition.kind, record)
    for hook in ("admit_tool_execute", "after_tool_execute", "wrap_tool_execute"):
        call_rejected(CALL, CALL.with_arguments({"amount": 1000}), hook, "arguments", "before_tool_execute")
        call_rejected(CALL, CALL.inject(who="me"), hook, "injected", "before_tool_execute")


def test_verdict_is_only_added_to() -> None:
    """Who added is stamped; nothing that stands is taken back or replaced."""
    hook = "admit_tool_execute"
    record, _ = judge_call(CALL, CALL.refuse("no").answer("a").require_approval("ok?"), hook)
    verdict = record.verdict
    assert verdict.refused is not None
    assert verdict.answer is not None
    assert ["Mine"] * 3 == [verdict.refused.by, verdict.answer.by, verdict.approval[0].by]
    for other in (Verdict(), replace(verdict, refused=None), replace(verdict, approval=(Ask("other?"),))):
        call_rejected(record, replace(record, verdict=other), hook, "verdict", "only added to")
    call_rejected(CALL, CALL.refuse("no"), "before_tool_execute", "verdict", "admit_tool_execute")
    call_rejected(RAN, RAN.refuse("no"), "after_tool_execute", "verdict", "admit_tool_execute")


def test_wrapper_cannot_ask_for_approval() -> None:
    """When the wrapper runs, nobody is asked any more."""
    text = "before anything runs"
    call_rejected(CALL, CALL.require_approval("?"), "wrap_tool_execute", "verdict", text)


def test_content_changes_but_not_what_happened() -> None:
    """Content and metadata of an outcome may change; status, error, attempts and who decided stay."""
    for hook in ("after_tool_execute", "wrap_tool_execute"):
        after = RAN.with_content("masked", metadata={"n": 1})
        assert after == judge_call(RAN, after, hook)[0]
        assert RAN.outcome is not None
        for part in ({"status": "failed"}, {"attempts": 0}, {"by": "runtime"}):
            forged = replace(RAN, outcome=evolve(RAN.outcome, **part))
            call_rejected(RAN, forged, hook, "outcome", next(iter(part)))
        call_rejected(RAN, replace(RAN, outcome=None), hook, "outcome", "Outcome")


def test_no_hook_makes_an_outcome() -> None:
    """A call without an outcome gets one from the runtime only."""
    made = replace(CALL, outcome=Outcome("succeeded", "forged"))
    call_rejected(CALL, made, "wrap_tool_execute", "outcome", "only the runtime")
    call_rejected(CALL, made, "admit_tool_execute", "outcome", "after_tool_execute")


def test_messages_of_any_length_compare_by_value() -> None:
    """A history rebuilt of equal messages counts as the same prefix."""
    rebuilt: Sequence[Message] = [evolve(message) for message in RUN.messages]
    legal(RUN, replace(RUN, messages=(*rebuilt, UserMessage("next"))), "before_model_request")
