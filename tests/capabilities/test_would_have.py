"""The words for what a hook would have done."""

from collections.abc import Callable

import pytest
from attrs import evolve

from capfold.capabilities import (
    AssistantMessage,
    CallState,
    Outcome,
    RunState,
    SystemMessage,
    Tool,
    ToolCall,
    UserMessage,
)
from capfold.capabilities.grid import REDUCERS, TOOL_HOOKS
from capfold.capabilities.owners import ANY, RULES, owners
from capfold.capabilities.would_have import quoted, would_have
from capfold.runtime import ScriptedModel

PAY, SEARCH = Tool("pay", "", {"type": "object"}), Tool("search", "", {"type": "object"})
SAID = AssistantMessage("Hello.", tool_calls=(ToolCall("c1", "pay"),))
RUN = RunState(
    messages=(SystemMessage("S"), UserMessage("U")),
    inventory=(PAY, SEARCH),
    tools=(PAY, SEARCH),
    response=SAID,
)
CALL = CallState(
    run=RUN, asked=ToolCall("c1", "pay"), tool=PAY, outcome=Outcome("succeeded", "paid", attempts=1)
)
OPEN = evolve(CALL, outcome=None)

Change = Callable[[RunState], RunState]
OF_RUNS: list[tuple[str, Change, str]] = [
    (
        "before_run",
        lambda s: s.append(UserMessage("x")),
        "would have written 1 messages into the history of 2",
    ),
    ("before_model_request", lambda s: s.select_tools({"pay"}), "would have hidden search"),
    ("before_model_request", lambda s: s.with_tools(evolve(PAY, description="Pay.")), "would have tuned pay"),
    (
        "before_model_request",
        lambda s: s.project([UserMessage("x"), s.view[1]]),
        "would have shown 2 messages in place of 2, 1 of them as they were",
    ),
    (
        "before_model_request",
        lambda s: s.with_model(ScriptedModel([], name="large")),
        "would have asked the model large",
    ),
    ("before_model_request", lambda s: s.with_settings(temperature=0), 'would have set {"temperature": 0}'),
    (
        "before_model_request",
        lambda s: s.add_instructions("Be  brief."),
        "would have set the instructions: Be brief.",
    ),
    (
        "after_model_request",
        lambda s: s.respond(AssistantMessage("Bye.")),
        "would have replaced the response by: Bye. (no calls)",
    ),
    (
        "after_model_request",
        lambda s: s.respond(evolve(SAID, content="Bye.")),
        "would have replaced the response by: Bye. (pay)",
    ),
    ("after_model_request", lambda s: s.ask_again("Once more."), "would have asked again: Once more."),
    (
        "before_run",
        lambda s: s.ask_again("x"),
        "would have been restored: again is set once or added to, never cleared",
    ),
    ("after_run", lambda s: evolve(s, output="Bye."), "would have changed the output to: Bye."),
    ("before_run", lambda s: evolve(s, output=1), "would have been rejected: output is the run's output"),
    ("after_run", lambda s: s.stop("Enough."), "would have stopped the run: Enough."),
    ("after_run", lambda s: s.fail("Broken."), "would have failed the run: Broken."),
    ("after_run", lambda s: s.note("Seen."), "would have noted: Seen."),
    (
        "after_run",
        lambda s: evolve(s, requests=0, run_step=9),
        "would have been restored: run_step is counted by the runtime alone",
    ),
    (
        "after_run",
        lambda s: evolve(s, context={"a": 1}),
        "would have been rejected: context is fixed when the run starts",
    ),
    (
        "after_run",
        lambda s: evolve(s, slots={"own": 1, "other": 2}),
        "would have been rejected: the slot 'other' is another one's",
    ),
]


@pytest.mark.parametrize(("hook", "change", "expected"), OF_RUNS)
def test_a_change_of_a_run(hook: str, change: Change, expected: str) -> None:
    """One sentence for one change."""
    assert (expected,) == would_have(RUN, change(RUN), hook, "own")


def test_instructions_that_are_added_to() -> None:
    """Only what is new is quoted; what was replaced is quoted whole."""
    before = evolve(RUN, instructions="Be kind.")
    added = would_have(before, before.add_instructions("Be brief."), "before_model_request", "own")
    replaced = would_have(before, before.with_instructions("Be brief."), "before_model_request", "own")
    assert ("would have added to the instructions: Be brief.",) == added
    assert ("would have set the instructions: Be brief.",) == replaced


CallChange = Callable[[CallState], CallState]
OF_CALLS: list[tuple[str, CallChange, tuple[str, ...]]] = [
    ("admit_tool_execute", lambda c: c.refuse("No."), ("would have refused call c1 (pay): No.",)),
    ("admit_tool_execute", lambda c: c.answer("x"), ("would have answered call c1 (pay): x",)),
    (
        "admit_tool_execute",
        lambda c: c.require_approval("Pay?").refuse("No."),
        ("would have refused call c1 (pay): No.", "would have required an approval of call c1 (pay): Pay?"),
    ),
    ("admit_tool_execute", lambda c: c.stop("Enough."), ("would have stopped the run: Enough.",)),
    (
        "admit_tool_execute",
        lambda c: c.with_arguments({"a": 1}),
        ("would have been rejected: arguments is the arguments and injected values of one call",),
    ),
    (
        "before_tool_execute",
        lambda c: c.with_arguments({"a": 1}),
        ('would have run call c1 (pay) with {"a": 1}',),
    ),
    ("before_tool_execute", lambda c: c.inject(id=1), ('would have injected into call c1 (pay): {"id": 1}',)),
    (
        "admit_tool_execute",
        lambda c: c.note("Seen.").note("Twice."),
        ("would have noted: Seen.", "would have noted: Twice."),
    ),
]


@pytest.mark.parametrize(("hook", "change", "expected"), OF_CALLS)
def test_a_change_of_a_call(hook: str, change: CallChange, expected: tuple[str, ...]) -> None:
    """The call is named, the run below it is looked at too."""
    assert expected == would_have(OPEN, change(OPEN), hook, "own")


def test_a_changed_result() -> None:
    """What the model would read is quoted; an outcome that is gone is no change of one."""
    told = would_have(CALL, CALL.with_content("[hidden]"), "after_tool_execute", "own")
    assert ("would have changed the result of call c1 (pay) to: [hidden]",) == told
    (gone,) = would_have(CALL, evolve(CALL, outcome=None), "after_tool_execute", "own")
    assert "would have been rejected: the outcome of call c1 (pay) stays" == gone


def test_a_verdict_that_is_taken_back() -> None:
    """It is told as what it is."""
    refused = OPEN.refuse("No.")
    (told,) = would_have(refused, OPEN, "admit_tool_execute", "own")
    assert "would have been rejected: a verdict on call c1 (pay) is never taken back" == told


@pytest.mark.parametrize("hook", REDUCERS)
def test_what_no_hook_may_write_there_is_told_by_name(hook: str) -> None:
    """Of every field whose owner allows nothing at the hook, with the consequence that a run would draw."""
    record = CALL if hook in TOOL_HOOKS else RUN
    for name, owner in owners(type(record)).items():
        allowed = RULES[owner].allowed
        if name != "run" and hook not in allowed and ANY not in allowed:
            changed = evolve(record)
            object.__setattr__(changed, name, object())
            expected = f"would have been {RULES[owner].consequence}: {name} is {RULES[owner].meaning}"
            assert (expected,) == would_have(record, changed, hook, "own")


def test_what_is_silent() -> None:
    """Nothing is said of a record that is as it was, nor of the own slot."""
    assert would_have(CALL, CALL, "after_tool_execute", "own") == ()
    assert would_have(CALL, evolve(CALL), "after_tool_execute", "own") == ()
    assert would_have(RUN, evolve(RUN, slots={"own": 1}), "after_run", "own") == ()


def test_long_texts_are_cut() -> None:
    """A megabyte of reason is one line of two hundred characters."""
    assert "a b" == quoted("a\n\n b")
    cut = quoted("x" * 10**6)
    assert (200, "…") == (len(cut), cut[-1])
    (told,) = would_have(OPEN, OPEN.refuse("x" * 10**6), "admit_tool_execute", "own")
    assert len(told) < 300
