"""Requests and decisions as JSON: what a page shows, and what it sends back, which may be anything."""

import json
from collections.abc import Mapping

import pytest

from capfold.capabilities import RequireApproval, TextPart, call
from capfold.runtime import Answer, Approve, Decision, DecisionError, Deny, Edit
from capfold.runtime.codec import to_json
from capfold.runtime.decisions_json import read_decisions, write_requests
from tests.runtime.desk import contents, make

PAY = call("pay", {"amount": 10}, id="p")


@pytest.mark.parametrize(
    "decisions",
    [
        {},
        {"d": Approve()},
        {"d": Approve(always=True), "e": Deny("no"), "f": Edit({"a": [1, {"b": None}]})},
        {"d": Answer("x"), "e": Answer((TextPart("x"), TextPart("y")))},
    ],
)
def test_what_is_written_is_read(decisions: Mapping[str, Decision]) -> None:
    """Each decision, by its digest."""
    assert decisions == read_decisions(json.dumps(to_json(dict(decisions))))


def test_what_has_a_default_may_be_left_out() -> None:
    """A button sends no more than its name."""
    text = '{"d": {"type": "Approve"}, "e": {"type": "Deny"}}'
    assert {"d": Approve(), "e": Deny()} == read_decisions(text)


@pytest.mark.parametrize(
    ("text", "digest", "says"),
    [
        ("", "", "digest -> decision"),
        ("[]", "", "must be an object"),
        ('{"d": {"type": "Deny"}, "d": {"type": "Approve"}}', "", "more than once"),
        ('{"d": "yes"}', "d", "must be an object whose 'type' is one of Answer, Approve, Deny, Edit"),
        ('{"d": null}', "d", "must be an object"),
        ('{"d": {}}', "d", "'type'"),
        ('{"d": {"type": ["Approve"]}}', "d", "'type' is"),
        ('{"d": {"type": "Run"}}', "d", "'type' is 'Run'"),
        ('{"d": {"type": "Approve", "always": "yes"}}', "d", r"\$.always: must be bool, not str"),
        ('{"d": {"type": "Approve", "alway": true}}', "d", "alway: is no field of Approve"),
        ('{"d": {"type": "Edit"}}', "d", r"\$.arguments: is missing"),
        ('{"d": {"type": "Edit", "arguments": [1]}}', "d", r"\$.arguments: must be an object"),
        ('{"d": {"type": "Answer", "content": 5}}', "d", r"\$.content"),
        ('{"a": {"type": "Approve"}, "d": {"type": "Deny", "message": null}}', "d", r"\$.message"),
    ],
)
def test_what_is_no_decision_is_refused(text: str, digest: str, says: str) -> None:
    """By its digest and place; nothing of it counts."""
    with pytest.raises(DecisionError, match=says) as caught:
        read_decisions(text)
    assert digest == caught.value.digest


async def test_a_page_shows_and_decides() -> None:
    """The requests of a suspended run as text, the decision as text, and the run goes on in another process."""
    waiting = await make([PAY], capabilities=[RequireApproval()]).run("go")
    (shown,) = json.loads(write_requests(waiting.pending))
    assert ("pay", {"amount": 10}, ["Allow pay with {\"amount\": 10}?"]) == (
        shown["tool"], shown["arguments"], shown["prompts"]
    )  # fmt: skip
    sent = json.dumps({shown["digest"]: {"type": "Edit", "arguments": {"amount": 4}}})
    agent = make(["done"], capabilities=[RequireApproval()])
    result = await agent.resume(waiting.snapshot(), read_decisions(sent))
    assert ("completed", ["paid 4"]) == (result.status, contents(result.messages))
