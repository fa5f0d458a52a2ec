"""RequireApproval."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import CallState, RefuseTools, RequireApproval, Tool, fold, is_read_only
from capfold.capabilities.verdict import Ask
from tests.strategies import json_objects

PAY, SEARCH = Tool("pay", "", {"type": "object"}), Tool("search", "", {"type": "object"})
CALL = CallState(tool=PAY, arguments={"to": "Zoë", "amount": 10})


def asks(capability: RequireApproval, call: CallState = CALL) -> tuple[Ask, ...]:
    """Return what a person would be asked."""
    return fold([capability], "admit_tool_execute", call).verdict.approval


def test_the_question() -> None:
    """Tool and arguments stand in the prompt; a standing grant covers the same arguments by default."""
    expected = Ask('Allow pay with {"to": "Zoë", "amount": 10}?', always="arguments")
    assert (expected,) == asks(RequireApproval())


def test_every_parameter_reaches_the_question() -> None:
    """Denial, time and grant are as configured."""
    made = RequireApproval(prompt="Pay?", denied="No.", timeout=5, always="off")
    assert (Ask("Pay?", denied="No.", timeout=5, always="off"),) == asks(made)


@given(st.text(), json_objects())
def test_braces_are_text(text: str, arguments: dict[str, object]) -> None:
    """Whatever stands in a prompt or in arguments, only the two placeholders are replaced, and once."""
    prompt = text.replace("{tool}", "").replace("{arguments}", "")
    call = CALL.with_arguments({**arguments, "x": "{tool} {0} {arguments}"})
    (ask,) = asks(RequireApproval(prompt=prompt + "{tool}"), call)
    (whole,) = asks(RequireApproval(prompt="{arguments}"), call)
    assert prompt + "pay" == ask.prompt
    assert "{tool} {0} {arguments}" in whole.prompt


def test_which_tools() -> None:
    """Names, a predicate, or all."""
    call = CallState(tool=SEARCH)
    assert asks(RequireApproval({"pay"}), call) == ()
    assert asks(RequireApproval(is_read_only), call) == ()
    assert len(asks(RequireApproval({"search"}), call)) == 1
    assert frozenset({"pay"}) == RequireApproval({"pay"}).tool_names()
    assert frozenset() == RequireApproval().tool_names()


@pytest.mark.parametrize("first", [0, 1])
def test_a_refusal_decides_in_both_orders(first: int) -> None:
    """Who refuses wins, so nobody is asked about a call that cannot run."""
    both = [RequireApproval(), RefuseTools()]
    made = fold(both[first:] + both[:first], "admit_tool_execute", CALL)
    assert not made.will_run


def test_asking_twice_is_silent() -> None:
    """The same capability folded twice asks one question."""
    once = fold([RequireApproval()], "admit_tool_execute", CALL)
    assert fold([RequireApproval()], "admit_tool_execute", once) is once


WRONG: list[tuple[type[Exception], str, Callable[[], object]]] = [
    (ValueError, "off, arguments, tool", lambda: RequireApproval(always="ever")),  # type: ignore[arg-type]  # the value under test
    (ValueError, "positive", lambda: RequireApproval(timeout=0)),
    (ValueError, "positive", lambda: RequireApproval(timeout=float("inf"))),
    (TypeError, "seconds", lambda: RequireApproval(timeout="5")),  # type: ignore[arg-type]  # as above
    (TypeError, "one string", lambda: RequireApproval("pay")),
    (TypeError, "prompt", lambda: RequireApproval(prompt=None)),  # type: ignore[arg-type]  # as above
]


@pytest.mark.parametrize(("error", "match", "make"), WRONG)
def test_wrong_parameters(error: type[Exception], match: str, make: Callable[[], object]) -> None:
    """A bad value is refused at construction."""
    with pytest.raises(error, match=match):
        make()
