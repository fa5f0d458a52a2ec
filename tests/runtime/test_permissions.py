"""Permissions: rules by name; the last that matches wins."""

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import AssistantMessage, RequireApproval, call
from capfold.runtime import Approve, Permissions
from capfold.runtime.machine import Moved, feed, start
from capfold.runtime.permissions import PERMISSIONS, Permission
from capfold.runtime.phases import AskApproval, Decided, RequestModel, Responded, RunTools
from tests.runtime.desk import make


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


DENY, ASK, ALLOW = (Permissions((("pay", permission),)) for permission in ("deny", "ask", "allow"))


def paying(own: Permissions, *above: Permissions, **options: Any) -> Moved:  # Any: whatever else Agent takes
    """Start a run below others, and let its model pay: what happens then."""
    agent = make(permissions=own, **options)
    state, effect, _ = start(evolve(agent.setup, above=above), "go", run_id="run", now=100.0)
    assert isinstance(effect, RequestModel)
    reply = AssistantMessage(tool_calls=(call("pay", {"amount": 1}, id="p"),))
    return feed(state, Responded(100.0, effect.run, reply, 1, (reply,)))


@pytest.mark.parametrize(
    ("own", "above"),
    [(DENY, (ALLOW,)), (ALLOW, (DENY,)), (ASK, (ALLOW, DENY)), (ALLOW, (DENY, ASK)), (ASK, (DENY,))],
)
def test_deny_wins_wherever_it_stands(own: Permissions, above: tuple[Permissions, ...]) -> None:
    """Of the run or of any run above it: denied, and nobody is asked, whatever the others say."""
    _, effect, entries = paying(own, *above, capabilities=[RequireApproval()])
    assert isinstance(effect, RequestModel)
    (refused,) = [entry for entry in entries if entry.kind == "call_refused"]
    assert "denied" == refused.facts["status"]
    assert refused.actor == ("permissions above" if DENY in above else "permissions")


@pytest.mark.parametrize(
    ("own", "above", "asked_by"),
    [
        (ASK, (), ("permissions",)),
        (ALLOW, (ASK,), ("permissions above",)),
        (ASK, (ALLOW, ASK), ("permissions above", "permissions")),
    ],
)
def test_each_ask_needs_an_approval(
    own: Permissions, above: tuple[Permissions, ...], asked_by: tuple[str, ...]
) -> None:
    """One question shows who asks; the call runs once it is approved, and not before."""
    state, effect, _ = paying(own, *above)
    assert isinstance(effect, AskApproval)
    (request,) = effect.requests
    assert asked_by == request.asked_by
    _, effect, _ = feed(state, Decided(101.0, (Approve(),)))
    assert isinstance(effect, RunTools)


def test_allowed_all_the_way_up() -> None:
    """Where all of them allow, the call runs unasked; nothing is judged where no rule says otherwise."""
    _, effect, _ = paying(ALLOW, ALLOW, ALLOW)
    assert isinstance(effect, RunTools)
    setup = make().setup
    assert [True, True, False, False] == [
        evolve(setup, above=above).unjudged for above in ((), (ALLOW,), (ALLOW, ASK), (DENY,))
    ]
