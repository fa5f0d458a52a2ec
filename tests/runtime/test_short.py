"""Values of a record as one line: what a person looks for first, bounded."""

import pytest

from capfold.capabilities.frozen import freeze
from capfold.runtime.short import change, short


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1.0, "1.0"),
        ("x" * 60, f'"{"x" * 45}..."'),
        ({"$repr": "<Foreign>"}, "<Foreign>"),
        ({"digest": "ab" * 32}, "sha256 abababab..."),
        ({"message": "The limit was reached", "limit": "requests"}, "The limit was reached"),
        ({"a": None, "b": 1}, "{b=1}"),
        (list(range(8)), "[0, 1, 2, 3, 4, 3 more]"),
        ({"content": "", "tool_calls": []}, '""'),
        ({"name": "pay", "arguments": {"n": 1}}, "pay({n=1})"),
    ],
)
def test_short(value: object, text: str) -> None:
    """One bounded line for any JSON value."""
    assert text == short(freeze(value))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"type": "Approve", "always": False}, "Approve"),
        ({"type": "Deny", "message": "no"}, 'Deny "no"'),
        ({"type": "Edit", "arguments": {"n": 1}}, "Edit arguments={n=1}"),
        ({"status": "succeeded", "content": "paid"}, '"paid"'),
        ({"status": "failed", "content": "no"}, 'failed "no"'),
        ({"a": "ab" * 32, "b": "cd" * 32}, "[a, b]"),
        ({"refused": None, "approval": [], "answer": None}, "undecided"),
        (
            {"refused": {"reason": "no", "by": "X"}, "approval": [{"prompt": "Pay?"}], "answer": None},
            'refuse "no", ask "Pay?"',
        ),
        ("ab" * 32, "sha256 abababab..."),
    ],
)
def test_short_of_what_a_run_writes(value: object, text: str) -> None:
    """Decisions, outcomes, verdicts and digests are told by what a person wants to know of them."""
    assert text == short(freeze(value))


def test_a_selection_is_told_by_what_it_hides() -> None:
    """Of tools that were narrowed, those left out are named; any other change shows both sides."""
    read, pay = {"tool": "read", "digest": "1"}, {"tool": "pay", "digest": "2"}
    assert "1 of 2, without pay" == change(freeze({"from": [read, pay], "to": [read]}))
    assert "[read] -> [pay]" == change(freeze({"from": [read], "to": [pay]}))
    assert "[1, 2] -> [1]" == change(freeze({"from": [1, 2], "to": [1]}))
