"""A fold of a log, written without the runtime's own code: from the records alone to what the run came to.

The runtime's rules that it knows: a response enters the history before its calls are admitted, a result after
the hooks on it; one that cannot be used, or whose request broke or was cut short, never does. Everything else must
stand in the log. Content of parts and what is in slots are JSON here.
"""

from collections.abc import Iterable
from typing import Any

from capfold.runtime import AuditRecord

RUN_FIELDS = ("messages", "notes", "slots", "stopped", "failed", "output", "response")


class Folded:
    """What the records say so far."""

    def __init__(self) -> None:
        """Start before the first record."""
        self.messages: list[dict[str, Any]] = []
        self.fields: dict[str, Any] = {"stopped": None, "failed": None, "output": None}
        self.slots: dict[str, Any] = {}
        self.notes: list[str] = []
        self.status = "running"
        self.steps = self.requests = self.tool_calls = 0
        self.tokens: int | None = 0
        self.by_model: dict[str, int | None] = {}
        self.cost: float | None = 0.0
        self.response: dict[str, Any] | None = None
        self.sent: list[dict[str, Any]] = []
        self.outcomes: dict[str, dict[str, Any]] = {}
        self.made: list[dict[str, Any]] = []
        self.open: list[dict[str, Any]] = []
        self.charged: set[str] = set()
        self.requesting = False

    def take(self, record: AuditRecord) -> None:
        """Take one record."""
        getattr(self, record.kind, self.nothing)(record)

    def nothing(self, record: AuditRecord) -> None:
        """Change nothing: the kind explains an event, or says what was prevented."""

    def run_started(self, record: AuditRecord) -> None:
        facts: Any = record.facts
        self.messages = [*facts["history"], *facts["prompt"]]

    def step_started(self, record: AuditRecord) -> None:
        self.answer()
        self.steps += 1

    def model_responded(self, record: AuditRecord) -> None:
        facts: Any = record.facts
        self.sent.append(dict(facts["response"]))
        # What came back of a request that was cut short goes nowhere.
        self.response = self.sent[-1] if self.requesting else None
        self.charge(1, [{**facts, "usage": facts["response"]["usage"]}])

    def model_requested(self, record: AuditRecord) -> None:
        self.sent, self.made, self.requesting = [], [], True

    def note(self, record: AuditRecord) -> None:
        facts: Any = record.facts
        self.requests += facts.get("requests_without_response", 0)
        if "cut" in facts:
            self.cut(facts)
        if facts.get("broken") == "requesting" or "no_response_used" in facts:
            self.response = None
        if "response_made" in facts and facts["response_made"] is not None:
            self.response = self.made[facts["response_made"]]
        if "asked_again" in facts:
            self.answer()
            self.messages.append({"content": facts["asked_again"]})
        if "response_used" in facts:
            self.response = self.sent[facts["response_used"]]
        if "requests" in facts:
            self.charge(facts["requests"], facts["bills"])
        if "renamed_calls" in facts and self.response is not None:
            calls = [
                {**call, "id": facts["renamed_calls"].get(call["id"], call["id"])}
                for call in self.response["tool_calls"]
            ]
            self.response = {**self.response, "tool_calls": calls}

    def cut(self, facts: Any) -> None:
        """End what was under way: by a stop of the caller, whose latch is an event of its own."""
        self.requesting = False
        if facts["cut"] == "requesting":
            self.response = None
        if "stop" in facts:
            self.latch("stopped", {"message": facts["stop"]})

    def latch(self, field: str, value: Any) -> None:
        """Stop or fail: the first one stands, a later one is a note."""
        if self.fields[field] is None:
            self.fields[field] = value
        elif value is not None:
            said = {"stopped": "stop", "failed": "fail"}[field]
            self.notes.append(f"{said}: {value['message' if field == 'stopped' else 'reason']}")

    def charge(self, requests: int, bills: Iterable[Any]) -> None:
        """Count requests, their tokens in all and by model, and their dollars."""
        self.requests += requests
        for bill in bills:
            tokens = _total(bill["usage"])
            self.tokens = _sum(self.tokens, tokens)
            self.by_model[bill["model"]] = _sum(self.by_model.get(bill["model"], 0), tokens)
            known = self.cost is not None and bill["cost"] is not None
            self.cost = round(self.cost + bill["cost"], 12) if known else None

    def enter(self) -> None:
        """Let the response into the history."""
        if self.response is not None:
            calls = [
                call if call["id"] else {**call, "id": self.made_id(i)}
                for i, call in enumerate(self.response["tool_calls"])
            ]
            self.messages.append({**self.response, "tool_calls": calls})
            self.open, self.charged = calls, set()
            self.response = None

    def made_id(self, i: int) -> str:
        """Return the id of the call at a place of the response, which came without one: by its place alone."""
        return f"call_{len(self.messages)}_{i}"

    def call_admitted(self, record: AuditRecord) -> None:
        self.enter()
        self.book(str(record.call))

    def book(self, call: str) -> None:
        """Count a call of the batch, once."""
        self.tool_calls += call not in self.charged
        self.charged.add(call)

    def call_refused(self, record: AuditRecord) -> None:
        self.enter()
        if record.facts.get("charged") is not False:
            self.book(str(record.call))
        self.outcomes[str(record.call)] = dict(record.facts)

    def tool_settled(self, record: AuditRecord) -> None:
        facts: Any = record.facts
        self.outcomes[str(record.call)] = dict(facts["outcome"])
        self.tool_calls += facts.get("extra", 0)
        if "below" in facts:
            self.below(facts)

    def run_suspended(self, record: AuditRecord) -> None:
        """Wait: the whole batch was judged, and is booked."""
        self.enter()
        self.status = "suspended"
        for call in self.open:
            self.book(call["id"])

    def run_resumed(self, record: AuditRecord) -> None:
        self.status = "running"

    def below(self, facts: Any) -> None:
        """Book what the runs below a call used."""
        self.requests += facts["requests"]
        self.tool_calls += facts["tool_calls"]
        self.tokens = _sum(self.tokens, _total(facts["usage"]))
        for model, usage in facts["usage_by_model"].items():
            self.by_model[model] = _sum(self.by_model.get(model, 0), _total(usage))
        known = self.cost is not None and facts["cost"] is not None
        self.cost = round(self.cost + facts["cost"], 12) if known else None

    def transition(self, record: AuditRecord) -> None:
        changes: Any = record.changes
        if record.hook in {"before_tool_execute", "admit_tool_execute"}:
            self.enter()
        for name, change in changes.items():
            field = name.removeprefix("run.")
            if name == "outcome":
                self.outcomes[str(record.call)] = dict(change["to"])
            elif field == "messages":
                self.messages = (
                    [*self.messages, *change["added"]] if "added" in change else list(change["to"])
                )
            elif field == "notes":
                self.notes += change["added"] if record.call is None or name != field else []
            elif field == "slots":
                self.slots |= change["set"]
            elif field == "response":
                self.response = dict(change["to"])
                self.made.append(self.response)
            elif field in {"stopped", "failed"}:
                self.latch(field, change["to"])
            elif field in self.fields:
                self.fields[field] = change["to"]

    restored = transition

    def answer(self) -> None:
        """Let the results of the open calls into the history."""
        self.enter()
        for call in self.open:
            self.messages.append({"call_id": call["id"], **self.outcomes[call["id"]]})
        self.open = []

    def run_ended(self, record: AuditRecord) -> None:
        facts: Any = record.facts
        if (facts.get("reason") or {}).get("type") == "InvalidResponse":
            self.response = None
        self.answer()
        self.status = facts["status"]
        self.fields["output"] = facts.get("output")


def _total(usage: Any) -> int | None:
    known = usage is not None and None not in {usage["input_tokens"], usage["output_tokens"]}
    return usage["input_tokens"] + usage["output_tokens"] if known else None


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def folded(records: Iterable[AuditRecord]) -> Folded:
    """Fold the records of one run."""
    found = Folded()
    for record in records:
        found.take(record)
    return found
