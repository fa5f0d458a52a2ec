"""One run, told from end to end: a payments desk pays an invoice, and all that can happen on the way does.

Selection, a repaired call, a refusal, an approval edited by a person, a tool failure with a retry, an after
hook that masks, and a structured output; read it once to know what a run is.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import anyio
import pytest
from attrs import evolve, field, frozen

from capfold.capabilities import (
    AssistantMessage,
    CallNext,
    CallState,
    Capability,
    RequireApproval,
    RunState,
    SelectTools,
    ToolBudget,
    ToolContext,
    ToolFailed,
    ToolMessage,
    Usage,
    UserMessage,
    call,
    is_destructive,
    tool,
)
from capfold.capabilities.capability import Declaration
from capfold.runtime import Agent, Edit, LocalPort, RunResult, ScriptedModel, verify
from capfold.runtime.decisions import ApprovalRequest, Decision


@frozen
class Receipt:
    """What the run must come to."""

    invoice: str
    paid: int


class Bank:
    """The world outside: what was paid, and whether the line is up."""

    def __init__(self) -> None:
        """Nothing paid; the first attempt will find the line down."""
        self.paid: list[tuple[str, int]] = []
        self.attempts = 0


@tool(read_only=True)
def read_invoice(number: int) -> str:
    """Read an invoice."""
    return f"invoice A-{number}: 10 EUR, IBAN DE00123456"


@tool
def pay(amount: int, context: ToolContext) -> str:
    """Pay an amount."""
    bank = context.deps
    assert isinstance(bank, Bank)
    bank.attempts += 1
    if bank.attempts == 1:
        raise ToolFailed("the line is down")
    bank.paid.append((context.idempotency_key, amount))
    return f"paid {amount} EUR"


@tool
def delete_books() -> str:
    """Delete the books."""
    raise AssertionError("nobody may get here")


@frozen
class MendNumbers(Capability):
    """Makes a number of a text that is one: some models quote everything."""

    declares: ClassVar[frozenset[Declaration]] = frozenset({"repairs"})

    def before_tool_execute(self, call: CallState) -> CallState:
        number = call.arguments.get("number")
        return call.with_arguments({"number": int(number)}) if isinstance(number, str) else call


@frozen
class OnePayment(Capability):
    """Refuses a second payment in one batch."""

    def admit_tool_execute(self, call: CallState) -> CallState:
        paying = any(earlier.name == "pay" for earlier in call.earlier)
        return call.refuse("One payment at a time.") if call.name == "pay" and paying else call


@frozen
class TryTwice(Capability):
    """Runs a body a second time where the first is known to have had no effect."""

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        done = await call_next(call)
        again = done.outcome is not None and done.outcome.status == "failed" and done.outcome.effect == "no"
        return await call_next(call) if again else done


@frozen
class MaskIban(Capability[int]):
    """Takes bank numbers out of what the model reads, and counts them."""

    marker: str = field(default="[IBAN]")

    def after_tool_execute(self, call: CallState) -> CallState:
        assert call.outcome is not None
        content = call.outcome.content
        if not isinstance(content, str) or "DE00123456" not in content:
            return call
        masked = call.with_content(content.replace("DE00123456", self.marker))
        return masked.put(self, masked.slot(self) + 1)


CAPABILITIES = (
    SelectTools({"read_invoice", "pay"}),
    MendNumbers(),
    ToolBudget(5),
    OnePayment(),
    RequireApproval(is_destructive, prompt="Run {tool} with {arguments}?"),
    TryTwice(),
    MaskIban(),
)
USAGE = Usage(input_tokens=10, output_tokens=2, cached_tokens=0, reasoning_tokens=0)


def script() -> ScriptedModel:
    """Return the model's part: read, pay twice at once, fail the output once, then answer."""
    return ScriptedModel(
        [
            [call("read_invoice", {"number": "7"}, id="read"), call("delete_books", id="delete")],
            [call("pay", {"amount": 10}, id="pay"), call("pay", {"amount": 10}, id="again")],
            "I paid it.",
            '{"invoice": "A-7", "paid": 9}',
        ],
        usage=USAGE,
    )


def decide(requests: tuple[ApprovalRequest, ...]) -> list[Decision]:
    """Be the person: pay 9, the discount was forgotten."""
    (request,) = requests
    assert ("pay", {"amount": 10}, ('Run pay with {"amount": 10}?',)) == (
        request.tool, request.arguments, request.prompts
    )  # fmt: skip
    return [Edit({"amount": 9})]


async def tell(model: ScriptedModel, bank: Bank) -> RunResult[Receipt]:
    """Run the story once."""
    agent = Agent(
        "desk",
        model,
        instructions="You pay invoices.",
        tools=[read_invoice, pay, delete_books],
        capabilities=CAPABILITIES,
        output_type=Receipt,
        port=LocalPort(clock=lambda: 100.0, new_id=lambda: "run"),
    )
    return await agent.run("Pay invoice 7.", deps=bank, approver=decide)


async def test_the_story() -> None:
    """What the model saw, what ran, what was written down and what it came to, each exactly."""
    model, bank = script(), Bank()
    result = await tell(model, bank)
    model.assert_complete()

    # The world: one payment, of what the person wrote, under a key that names run, step and call.
    assert [("run:2:pay", 9)] == bank.paid
    assert 2 == bank.attempts

    # The result.
    assert ("completed", Receipt("A-7", 9)) == (result.status, result.output)
    assert (4, 4, 5) == (result.steps, result.requests, result.tool_calls)  # the second attempt is the fifth
    assert (40, 8) == (result.usage.input_tokens, result.usage.output_tokens)
    assert 1 == result.state.output_retries_used
    assert {"MaskIban": 1, "ToolBudget": {"read_invoice": 1, "pay": 2}} == dict(result.state.slots)

    # The history: what the model asked stands as it asked it, and each call has one answer.
    task, first, read, deleted, second, paid, refused, prose, complaint, last = result.messages
    assert UserMessage("Pay invoice 7.") == task
    assert isinstance(first, AssistantMessage)
    assert '{"number": "7"}' == first.tool_calls[0].arguments
    assert ToolMessage("read", "read_invoice", "invoice A-7: 10 EUR, IBAN [IBAN]") == read
    assert isinstance(deleted, ToolMessage)
    assert "validation_error" == deleted.status
    assert "'delete_books' is not available" in str(deleted.content)
    assert isinstance(second, AssistantMessage)
    assert ToolMessage("pay", "pay", "paid 9 EUR") == paid
    assert ToolMessage("again", "pay", "One payment at a time.", status="denied") == refused
    assert isinstance(prose, AssistantMessage)
    assert "I paid it." == prose.text
    assert isinstance(complaint, UserMessage)
    assert "not valid" in str(complaint.content)
    assert isinstance(last, AssistantMessage)

    # The requests: the selection held for each, and the model never read the bank number.
    assert [["read_invoice", "pay"]] * 4 == [
        [made.name for made in request.tools] for request in model.requests
    ]
    assert "DE00123456" not in str([request.messages for request in model.requests])

    # The log: every event in order.
    assert STORY == [(record.kind, record.actor, record.call) for record in result.log]
    assert verify(result.log).complete
    (edited,) = [record for record in result.log if record.kind == "call_decided"]
    assert "9" in str(edited.facts["decision"])


SELECTED = [
    ("step_started", "runtime", None),
    ("transition", "SelectTools", None),
    ("model_requested", "runtime", None),
]
ANSWERED = [("model_responded", "model", None)]
STORY = [
    ("run_started", "runtime", None),
    *SELECTED,
    *ANSWERED,
    ("transition", "MendNumbers", "read"),
    ("call_admitted", "runtime", "read"),
    ("call_refused", "runtime", "delete"),
    ("tool_started", "runtime", "read"),
    ("tool_settled", "tool", "read"),
    ("transition", "ToolBudget", "read"),
    ("transition", "MaskIban", "read"),
    *SELECTED,
    *ANSWERED,
    ("transition", "RequireApproval", "pay"),
    ("transition", "OnePayment", "again"),
    ("transition", "RequireApproval", "again"),
    ("call_decided", "person", "pay"),
    ("transition", "RequireApproval", "pay"),
    ("transition", "OnePayment", "again"),
    ("transition", "RequireApproval", "again"),
    ("call_admitted", "runtime", "pay"),
    ("call_refused", "OnePayment", "again"),
    ("tool_started", "runtime", "pay"),
    ("tool_settled", "tool", "pay"),
    ("transition", "ToolBudget", "pay"),
    *SELECTED,
    *ANSWERED,
    ("note", "runtime", None),
    *SELECTED,
    *ANSWERED,
    ("run_ended", "runtime", None),
]


def test_the_story_is_the_same_on_both_loops() -> None:
    """Told on asyncio and on trio, it has one head."""
    heads = {anyio.run(tell, script(), Bank(), backend=backend).log.head for backend in ("asyncio", "trio")}
    assert 1 == len(heads)


def test_the_story_does_not_depend_on_hashing() -> None:
    """Told by processes whose sets and dicts of strings have other orders, it has one head."""
    command = (
        "import anyio; from tests.test_story import Bank, script, tell; "
        "print(anyio.run(tell, script(), Bank()).log.head)"
    )
    heads = {
        subprocess.run(
            [sys.executable, "-c", command],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[1],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            timeout=60,
        ).stdout
        for seed in ("0", "1")
    }
    assert {f"{anyio.run(tell, script(), Bank()).log.head}\n"} == heads


@pytest.mark.parametrize("missing", ["SelectTools", "RequireApproval", "MaskIban"])
async def test_each_capability_counts(missing: str) -> None:
    """Without one of them the story is another one: none stands there for show."""
    model, bank = script(), Bank()
    agent = Agent(
        "desk",
        model,
        tools=[read_invoice, pay, evolve(delete_books, function=None)],
        capabilities=[made for made in CAPABILITIES if made.key != missing],
        output_type=Receipt,
        approver=lambda requests: [
            Edit({"amount": 9}) if one.tool == "pay" else Edit({}) for one in requests
        ],
    )
    result = await agent.run("Pay invoice 7.", deps=bank)
    assert ("DE00123456" in str(result.messages)) == (missing == "MaskIban")
    assert ([10] if missing == "RequireApproval" else [9]) == [amount for _, amount in bank.paid]
    assert (len(model.requests[0].tools) == 3) == (missing == "SelectTools")
    assert isinstance(result.state, RunState)
