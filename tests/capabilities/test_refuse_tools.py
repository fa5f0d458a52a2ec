"""RefuseTools."""

import pytest

from capfold.capabilities import (
    Annotations,
    CallState,
    RefuseTools,
    RunState,
    Tool,
    fold,
    is_declared_destructive,
)

PLAIN = Tool("pay", "", {"type": "object"})
READING = Tool("search", "", {"type": "object"}, annotations=Annotations(read_only=True))


def refused(capability: RefuseTools, tool: Tool, **context: object) -> bool:
    """Tell whether a call of the tool is refused."""
    call = CallState(run=RunState(context=context), tool=tool)
    return fold([capability], "admit_tool_execute", call).verdict.refused is not None


def test_a_tool_that_declares_nothing_is_refused() -> None:
    """The default predicate is the careful one; the other one is there to be chosen."""
    assert refused(RefuseTools(), PLAIN)
    assert not refused(RefuseTools(), READING)
    assert not refused(RefuseTools(is_declared_destructive), PLAIN)


@pytest.mark.parametrize("value", ["true", 1, "yes", [True], {"a": True}, 1.0, False, None])
def test_only_true_permits(value: object) -> None:
    """A text or number that counts as true is no permission."""
    assert refused(RefuseTools(unless="may_pay"), PLAIN, may_pay=value)
    assert not refused(RefuseTools(unless="may_pay"), PLAIN, may_pay=True)
    assert refused(RefuseTools(unless="may_pay"), PLAIN, other=True)


def test_the_model_cannot_permit() -> None:
    """A flag among the arguments is the model's, and is not looked at."""
    call = CallState(tool=PLAIN, arguments={"may_pay": True})
    made = fold([RefuseTools(unless="may_pay", reason="No.")], "admit_tool_execute", call)
    assert made.verdict.refused is not None
    assert made.verdict.refused.reason == "No."


def test_names() -> None:
    """Named tools are refused, whatever they declare, and told to the agent."""
    assert refused(RefuseTools({"search"}), READING)
    assert not refused(RefuseTools({"search"}), PLAIN)
    assert frozenset({"search"}) == RefuseTools({"search"}).tool_names()
    assert frozenset() == RefuseTools().tool_names()


@pytest.mark.parametrize("unless", ["", True, 5])
def test_wrong_parameters(unless: object) -> None:
    """What cannot be a key of the context is refused at construction."""
    with pytest.raises(ValueError, match="key of the run's context"):
        RefuseTools(unless=unless)  # type: ignore[arg-type]  # the value under test
