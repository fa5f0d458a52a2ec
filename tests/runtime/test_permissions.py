"""Permissions: rules by name; the last that matches wins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.runtime import Permissions
from capfold.runtime.permissions import PERMISSIONS, Permission


@pytest.mark.parametrize(
    ("rules", "default", "expected"),
    [
        ((), "allow", "allow"),
        ((), "deny", "deny"),
        ((("*", "deny"),), "allow", "deny"),
        ((("*", "deny"), ("pay*", "ask")), "allow", "ask"),
        ((("pay_out", "allow"), ("pay*", "deny")), "allow", "deny"),
        ((("PAY*", "deny"),), "allow", "allow"),
        ((("p?y_out", "ask"),), "deny", "ask"),
        ((("read", "deny"),), "ask", "ask"),
    ],
)
def test_last_matching_rule_wins(
    rules: tuple[tuple[str, Permission], ...], default: Permission, expected: Permission
) -> None:
    """Globs are matched case-sensitively, in order; without a match the default says."""
    assert expected == Permissions(rules, default).of("pay_out")


@given(st.lists(st.tuples(st.sampled_from(("*", "a*", "ab", "b")), st.sampled_from(PERMISSIONS)), max_size=5))
def test_what_matches_nothing_changes_nothing(rules: list[tuple[str, Permission]]) -> None:
    """Rules for other names may be added anywhere without a difference."""
    plain = Permissions(tuple(rules))
    more = Permissions(tuple(rule for one in rules for rule in (("zz", "deny"), one)))
    assert plain.of("ab") == more.of("ab")


def test_verdict_of_each_permission() -> None:
    """Deny refuses, ask requires an approval that may stand for the tool, allow says nothing."""
    permissions = Permissions((("a", "deny"), ("b", "ask")))
    denied, asked = permissions.verdict("a"), permissions.verdict("b")
    assert permissions.verdict("c") is None
    assert denied is not None
    assert denied.refused is not None
    assert ("permissions", True) == (denied.refused.by, "'a'" in denied.refused.reason)
    assert asked is not None
    assert [("tool", "permissions")] == [(ask.always, ask.by) for ask in asked.approval]


@pytest.mark.parametrize(
    "rules", [(("a",),), (("a", "perhaps"),), ((1, "allow"),), ("ab",), (("a", "allow", "x"),)]
)
def test_bad_rules(rules: object) -> None:
    """A rule that says nothing is refused by its place."""
    with pytest.raises(ValueError, match=r"rules\[0\]"):
        Permissions(rules)


def test_bad_default() -> None:
    """So is a default that is none."""
    with pytest.raises(ValueError, match="default"):
        Permissions((), "perhaps")  # type: ignore[arg-type]  # that is the point


def test_rules_may_come_from_json() -> None:
    """Lists do as well as tuples; what is kept is hashable."""
    permissions = Permissions([["*", "deny"]])
    assert (("*", "deny"),) == permissions.rules
    assert hash(permissions) == hash(Permissions((("*", "deny"),)))
