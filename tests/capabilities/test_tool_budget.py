"""ToolBudget: what ran and what is about to run, whatever others say."""

from collections.abc import Callable, Sequence

import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import (
    CallState,
    Capability,
    Outcome,
    RunState,
    Tool,
    ToolBudget,
    ToolCall,
    fold,
    is_destructive,
)
from capfold.capabilities.capability import AnyCapability

PAY, SEARCH = Tool("pay", "", {"type": "object"}), Tool("search", "", {"type": "object"})


@frozen
class RefuseFirst(Capability):
    """Refuses the first call of a batch."""

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.refuse("no") if call.index == 0 else call


@frozen
class Ask(Capability):
    """Requires an approval of every call."""

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.require_approval("?")


@frozen
class Answer(Capability):
    """Answers every call."""

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.answer("cached")


def judge(
    run: RunState, capabilities: Sequence[AnyCapability], batch: Sequence[Tool]
) -> tuple[RunState, list[CallState]]:
    """Judge a batch as the runtime does: in call order, up to a stopping call; `earlier` grows with it."""
    judged: list[CallState] = []
    for index, tool in enumerate(batch):
        call = CallState(run=run, asked=ToolCall(str(index), tool.name), tool=tool, index=index)
        made = fold(capabilities, "admit_tool_execute", evolve(call, earlier=tuple(judged)))
        run = made.run
        if run.stopped is not None:
            break
        judged.append(made)
    return run, judged


def settle(
    run: RunState, capabilities: Sequence[AnyCapability], judged: Sequence[CallState], attempts: int = 1
) -> RunState:
    """Run what was admitted, and fold the after hooks in call order."""
    for call in judged:
        outcome = Outcome("succeeded", "ok", attempts=attempts) if call.will_run else Outcome("denied")
        run = fold(capabilities, "after_tool_execute", evolve(call, run=run, outcome=outcome)).run
    return run


def ran(judged: Sequence[CallState]) -> list[int]:
    """Return the indexes of the calls that will run."""
    return [call.index for call in judged if call.will_run]


def test_the_tripping_call_does_not_run() -> None:
    """A batch of three with one left: the first runs, the run stops at the second, with the message."""
    run, judged = judge(RunState(), [ToolBudget(1)], [PAY, SEARCH, PAY])
    assert [0] == ran(judged)
    assert run.stopped is not None
    assert run.stopped.message == "Tool budget of 1 calls is used up."


@pytest.mark.parametrize("budget", [ToolBudget(1), ToolBudget(1, tools={"pay"}), ToolBudget({"pay": 1})])
@pytest.mark.parametrize("first", [0, 1])
def test_a_call_refused_by_another_leaves_its_place(first: int, budget: ToolBudget) -> None:
    """Call 1 refused: call 2 runs, in both orders of the list, whatever the number is for."""
    both: list[AnyCapability] = [budget, RefuseFirst()]
    run, judged = judge(RunState(), both[first:] + both[:first], [PAY, PAY])
    assert [1] == ran(judged)
    assert run.stopped is None


@pytest.mark.parametrize("first", [0, 1])
def test_an_answered_call_leaves_its_place(first: int) -> None:
    """What does not run costs nothing."""
    both: list[AnyCapability] = [ToolBudget(1), Answer()]
    run, judged = judge(RunState(), both[first:] + both[:first], [PAY, PAY, PAY])
    assert len(judged) == 3
    assert run.stopped is None


@pytest.mark.parametrize("first", [0, 1])
def test_a_call_that_waits_for_approval_counts(first: int) -> None:
    """It may run, so its place is taken."""
    both: list[AnyCapability] = [ToolBudget(1), Ask()]
    run, judged = judge(RunState(), both[first:] + both[:first], [PAY, PAY])
    assert len(judged) == 1
    assert run.stopped is not None


def test_what_ran_counts_over_the_steps() -> None:
    """The account is kept in the slot; retries inside a wrapper count as attempts."""
    budget = ToolBudget(3)
    run, judged = judge(RunState(), [budget], [PAY])
    run = settle(run, [budget], judged, attempts=2)
    assert {"pay": 2} == run.slot(budget)
    run, judged = judge(run, [budget], [SEARCH, PAY])
    assert [0] == ran(judged)
    assert run.stopped is not None


@pytest.mark.parametrize("status", ["denied", "answered", "validation_error", "not_executed"])
def test_what_did_not_run_is_not_counted(status: str) -> None:
    """An outcome without attempts leaves the record as it is."""
    outcome = Outcome(status)  # type: ignore[arg-type]  # one of the statuses
    call = CallState(tool=PAY, outcome=outcome)
    assert fold([ToolBudget(1)], "after_tool_execute", call) is call


def test_refuse_lets_the_run_go_on() -> None:
    """The model reads the message; later calls of the batch are judged by themselves."""
    budget = ToolBudget(1, on_exceeded="refuse", message="{max_calls} is {all}; %s {max_calls}")
    run, judged = judge(RunState(), [budget], [PAY, PAY, PAY])
    assert [0] == ran(judged)
    assert run.stopped is None
    refused = judged[1].verdict.refused
    assert refused is not None
    assert refused.reason == "1 is {all}; %s 1"


def test_a_mapping_gives_each_tool_its_own_budget() -> None:
    """Tools that it does not name have none."""
    budget = ToolBudget({"pay": 1}, on_exceeded="refuse")
    _, judged = judge(RunState(), [budget], [SEARCH, PAY, SEARCH, PAY, SEARCH])
    assert [0, 1, 2, 4] == ran(judged)
    assert frozenset({"pay"}) == budget.tool_names()


def test_one_number_for_some_tools() -> None:
    """With `tools`, others neither count nor are stopped."""
    budget = ToolBudget(1, tools={"pay"}, on_exceeded="refuse")
    run, judged = judge(RunState(), [budget], [SEARCH, PAY, PAY, SEARCH])
    assert [0, 1, 3] == ran(judged)
    assert {"pay": 1} == settle(run, [budget], judged).slot(budget)
    assert frozenset({"pay"}) == budget.tool_names()
    assert frozenset() == ToolBudget(1, tools=is_destructive).tool_names()


@given(
    st.integers(0, 4),
    st.lists(st.lists(st.sampled_from([PAY, SEARCH]), min_size=1, max_size=4), max_size=4),
    st.booleans(),
)
def test_never_more_than_the_budget(most: int, batches: list[list[Tool]], first: bool) -> None:  # noqa: FBT001  # drawn
    """Over any batches, beside a capability that refuses, in both orders, no more runs than is allowed."""
    budget = ToolBudget(most)
    capabilities: list[AnyCapability] = [budget, RefuseFirst()] if first else [RefuseFirst(), budget]
    run, total = RunState(), 0
    for batch in batches:
        run, judged = judge(run, capabilities, batch)
        total += len(ran(judged))
        run = settle(run, capabilities, judged)
        if run.stopped is not None:
            break
    assert total <= most
    assert total == sum(run.slot(budget).values())


WRONG: list[tuple[type[Exception], str, Callable[[], object]]] = [
    (ValueError, "the least is 0", lambda: ToolBudget(-1)),
    (ValueError, "the least is 0", lambda: ToolBudget({"pay": -1})),
    (ValueError, "empty mapping", lambda: ToolBudget({})),
    (TypeError, "integer", lambda: ToolBudget(True)),
    (TypeError, "integer", lambda: ToolBudget(2.0)),  # type: ignore[arg-type]  # the value under test
    (TypeError, "integer", lambda: ToolBudget({"pay": "1"})),  # type: ignore[dict-item]  # as above
    (TypeError, "names", lambda: ToolBudget({1: 1})),  # type: ignore[dict-item]  # as above
    (ValueError, "'stop' or 'refuse'", lambda: ToolBudget(1, on_exceeded="raise")),  # type: ignore[arg-type]  # as above
    (ValueError, "mapping names its tools", lambda: ToolBudget({"pay": 1}, tools={"pay"})),
    (TypeError, "one string", lambda: ToolBudget(1, tools="pay")),
    (TypeError, "message", lambda: ToolBudget(1, message=None)),  # type: ignore[arg-type]  # as above
]


@pytest.mark.parametrize(("error", "match", "make"), WRONG)
def test_wrong_parameters(error: type[Exception], match: str, make: Callable[[], object]) -> None:
    """A bad value is refused at construction, with the nearest legal one."""
    with pytest.raises(error, match=match):
        make()
