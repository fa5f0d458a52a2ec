"""Approval: what a person was shown is what runs, once; no other decision counts (C31, C33, C35, C37-C38)."""

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from attrs import evolve

from capfold.capabilities import (
    CallState,
    Capability,
    RefuseTools,
    RequireApproval,
    RunState,
    ToolCall,
    call,
    tool,
)
from capfold.capabilities.frozen import digest
from capfold.runtime import (
    Agent,
    Answer,
    ApprovalRequest,
    Approve,
    CodecError,
    Decision,
    DecisionError,
    Deny,
    Edit,
    HookFailed,
    IllegalTransition,
    RunResult,
    ScriptedModel,
)
from tests.corruption.scenes import POINTS, Works, at, batch, check_closed, failed, hook_of, of_kind, statuses

ORDERS = ["rewriter first", "approval first"]


class Payments:
    """The tool `pay(amount)`, what it paid, and who was asked to approve what."""

    def __init__(self, *decisions: Decision) -> None:
        """Decide so, request by request; without any, approve everything."""
        self.paid: list[int] = []
        self.asked: list[ApprovalRequest] = []
        self.decisions = decisions

    def agent(self, *capabilities: Capability, replies: Any = None, **options: Any) -> Agent[str]:
        """Return an agent whose model pays 10, then says done."""

        async def pay(amount: int) -> str:
            """Pay an amount."""
            self.paid.append(amount)
            return f"paid {amount}"

        script: Any = [call("pay", {"amount": 10}, id="p"), "done"] if replies is None else replies
        return Agent("desk", ScriptedModel(script), tools=[pay], capabilities=capabilities, **options)

    async def approve(self, requests: tuple[ApprovalRequest, ...]) -> list[Decision]:
        """Decide."""
        self.asked += requests
        return list(self.decisions) or [Approve() for _ in requests]


def ordered(order: str, rewriter: Capability, approval: Capability) -> tuple[Capability, ...]:
    """Return both, in one order."""
    return (rewriter, approval) if order == "rewriter first" else (approval, rewriter)


def raised(record: Any) -> Any:
    """Make it 1000, wherever the arguments stand in the record."""
    if isinstance(record, CallState):
        return record.with_arguments({"amount": 1000})
    asked = ToolCall("p", "pay", '{"amount": 1000}')
    messages = tuple(
        _with_call(message, asked) if getattr(message, "tool_calls", ()) else message
        for message in record.messages
    )
    response = record.response
    return _evolve(
        record,
        messages=messages,
        response=_with_call(response, asked) if response is not None and response.tool_calls else response,
    )


def _with_call(message: Any, asked: ToolCall) -> Any:
    return _evolve(message, tool_calls=(asked,))


def _evolve(record: Any, **changes: Any) -> Any:
    return evolve(record, **changes)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("point", ["admit_tool_execute", "wrap_tool_execute:in", "wrap_tool_execute:out"])
async def test_c31_rewritten_once_it_was_judged(point: str, order: str) -> None:
    """Sealed arguments are rejected by name, in admission and around the body: 1000 is never paid."""
    payments = Payments()
    agent = payments.agent(*ordered(order, at(point, raised), RequireApproval()), approver=payments.approve)
    error = await failed(agent)
    reason = error.reason
    assert isinstance(reason, IllegalTransition)
    assert ("Actor", hook_of(point), "p", "arguments") == (reason.key, reason.hook, reason.call, reason.field)
    assert ([10] if point == "wrap_tool_execute:out" else []) == payments.paid
    assert error.partial is not None
    check_closed(error.partial.messages)
    (rejected,) = of_kind(error.partial.log, "rejected")
    tried: Any = rejected.rejected["arguments"]
    assert ("Actor", "p") == (rejected.actor, rejected.call)
    assert {"from": {"amount": 10}, "to": {"amount": 1000}} != tried["tried"] != {"amount": 10}
    assert {"amount": 1000} == tried["tried"]


@pytest.mark.parametrize("order", ORDERS)
async def test_c31_rewritten_after_the_effect(order: str) -> None:
    """An after hook cannot make the record say 1000: rejected, and the effect of 10 stays on record."""
    payments = Payments()
    agent = payments.agent(
        *ordered(order, at("after_tool_execute", raised), RequireApproval()), approver=payments.approve
    )
    error = await failed(agent)
    reason = error.reason
    assert isinstance(reason, IllegalTransition)
    assert ("Actor", "after_tool_execute", "arguments") == (reason.key, reason.hook, reason.field)
    assert [10] == payments.paid
    assert error.partial is not None
    assert {"p": "succeeded"} == statuses(error.partial.messages)
    admitted = of_kind(error.partial.log, "call_admitted")[0]
    assert {"amount": 10} == admitted.facts["arguments"]


@pytest.mark.parametrize("order", ORDERS)
async def test_c31_rewritten_before_it_is_judged(order: str) -> None:
    """Arguments that a before hook shaped are what the person is shown, what runs, and what the log says."""
    payments = Payments()
    agent = payments.agent(
        *ordered(order, at("before_tool_execute", raised), RequireApproval()), approver=payments.approve
    )
    result = await agent.run("go")
    assert [1000] == payments.paid
    assert [{"amount": 1000}] == [request.arguments for request in payments.asked]
    assert ('Allow pay with {"amount": 1000}?',) == payments.asked[0].prompts
    assert '{"amount": 10}' == result.messages[1].tool_calls[0].arguments  # type: ignore[union-attr]  # the scripted run makes it this kind
    (shaped,) = [r for r in of_kind(result.log, "transition") if r.hook == "before_tool_execute"]
    change: Any = shaped.changes["arguments"]
    assert ("Actor", {"amount": 10}, {"amount": 1000}) == (shaped.actor, change["from"], change["to"])
    assert {"amount": 1000} == of_kind(result.log, "call_admitted")[0].facts["arguments"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("point", [p for p in POINTS if "tool" not in p])
async def test_c31_rewritten_in_a_run_hook(point: str, order: str) -> None:
    """A call that the model made keeps its arguments at every run hook: 1000 is never paid."""
    payments = Payments()
    agent = payments.agent(*ordered(order, at(point, raised), RequireApproval()), approver=payments.approve)
    if point in {"before_run", "wrap_run:in"}:
        assert "completed" == (await agent.run("go")).status  # no call stands there yet
        assert [10] == payments.paid
        return
    error = await failed(agent)
    reason = error.reason
    assert isinstance(reason, IllegalTransition)
    assert ("Actor", hook_of(point)) == (reason.key, reason.hook)
    assert reason.field in {"messages", "response"}
    assert 1000 not in payments.paid


class MaxAmount(Capability):
    """Refuses amounts of more than 100."""

    def admit_tool_execute(self, call: CallState) -> CallState:
        amount = call.arguments["amount"]
        assert isinstance(amount, int)
        return call.refuse(f"{amount} is too much") if amount > 100 else call


@pytest.mark.parametrize("order", ORDERS)
async def test_c31_a_gate_judges_what_would_run(order: str) -> None:
    """In both orders the gate reads 1000, the arguments after every before hook."""
    payments = Payments()
    agent = payments.agent(*ordered(order, at("before_tool_execute", raised), MaxAmount()))
    result = await agent.run("go")
    assert [] == payments.paid
    assert ("1000 is too much", "denied") == (result.messages[2].content, result.messages[2].status)  # type: ignore[union-attr]  # the scripted run makes it this kind
    (refused,) = of_kind(result.log, "call_refused")
    assert ("MaxAmount", "p") == (refused.actor, refused.call)


async def test_c31_an_edit_is_judged_again() -> None:
    """The person's own arguments meet the same gate, and no before hook after it."""
    payments = Payments(Edit({"amount": 500}))
    agent = payments.agent(MaxAmount(), RequireApproval(), approver=payments.approve)
    result = await agent.run("go")
    assert [] == payments.paid
    assert {"p": "denied"} == statuses(result.messages)
    assert [10] == [request.arguments["amount"] for request in payments.asked]


@pytest.mark.parametrize(
    "capabilities",
    [
        (RefuseTools({"pay"}), RequireApproval()),
        (RequireApproval(), RefuseTools({"pay"})),
        (RequireApproval(), RefuseTools({"pay"}), RequireApproval(key="Second")),
    ],
    ids=["refuse first", "approval first", "between two"],
)
async def test_c33_a_refusal_beats_every_approval(capabilities: tuple[Capability, ...]) -> None:
    """Denied in every order, and nobody is asked."""
    payments = Payments()
    result = await payments.agent(*capabilities, approver=payments.approve).run("go")
    assert ([], []) == (payments.paid, payments.asked)
    assert {"p": "denied"} == statuses(result.messages)
    (refused,) = of_kind(result.log, "call_refused")
    assert ("RefuseTools", "p") == (refused.actor, refused.call)
    assert [] == of_kind(result.log, "call_decided")


async def suspended(payments: Payments, **options: Any) -> tuple[Agent[str], RunResult[str]]:
    """Run until a person is needed."""
    agent = payments.agent(RequireApproval(), **options)
    result = await agent.run("go")
    assert "suspended" == result.status
    return agent, result


Forge = Callable[[ApprovalRequest, ApprovalRequest], dict[Any, Any]]
FORGERIES: dict[str, Forge] = {
    "another run": lambda mine, other: {other.digest: Approve()},
    "another digest": lambda mine, other: {"0" * 64: Approve()},
    "call id": lambda mine, other: {mine.call_id: Approve()},
    "tool name": lambda mine, other: {mine.tool: Approve()},
    "one too many": lambda mine, other: {mine.digest: Approve(), other.digest: Approve()},
    "JSON": lambda mine, other: {mine.digest: {"kind": "Approve", "always": False}},
    "text": lambda mine, other: {mine.digest: "approve"},
    "True": lambda mine, other: {mine.digest: True},
    "class": lambda mine, other: {mine.digest: Approve},
    "None": lambda mine, other: {mine.digest: None},
    "nothing": lambda mine, other: {},
    "standing": lambda mine, other: {mine.digest: Approve(always=True)},
    "edit that does not fit": lambda mine, other: {mine.digest: Edit({"amount": "much"})},
    "edit with too much": lambda mine, other: {mine.digest: Edit({"amount": 1, "to": "me"})},
}


@pytest.mark.parametrize("kept", ["result", "snapshot"])
@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
async def test_c35_a_decision_that_does_not_fit(forge: Forge, kept: str) -> None:
    """Refused before anything changes, naming the digest; a later right one works, once."""
    payments = Payments()
    agent = payments.agent(RequireApproval(always="off"))
    result = await agent.run("go")
    _, other = await suspended(Payments())
    held = result if kept == "result" else result.snapshot()
    mine = result.pending[0]
    with pytest.raises(DecisionError) as caught:
        await agent.resume(held, forge(mine, other.pending[0]))
    assert caught.value.digest in {mine.digest, other.pending[0].digest, "0" * 64, mine.call_id, mine.tool}
    assert [] == payments.paid
    done = await agent.resume(held, {mine.digest: Approve()})
    assert ("completed", [10]) == (done.status, payments.paid)
    assert {"p": "succeeded"} == statuses(done.messages)


async def test_c35_a_decision_for_another_call_of_the_batch() -> None:
    """Two equal calls have two digests: a decision for one says nothing of the other."""
    works = Works()
    model = ScriptedModel([[call("work", {"n": 1}, id="a"), call("work", {"n": 1}, id="b")], "done"])
    agent = Agent("desk", model, tools=[works.tool()], capabilities=[RequireApproval()])
    result = await agent.run("go")
    first, second = result.pending
    assert first.digest != second.digest
    with pytest.raises(DecisionError, match="waits for a decision too"):
        await agent.resume(result, {first.digest: Approve()})
    assert [] == works.began
    done = await agent.resume(result, {first.digest: Approve(), second.digest: Deny("no")})
    assert [1] == works.ended
    assert {"a": "succeeded", "b": "denied"} == statuses(done.messages)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-20],
        lambda text: text.replace('"amount"', '"amounts"', 1),
        lambda text: text.replace("suspended run", "message"),
        lambda text: "{}",
        lambda text: "not JSON",
        lambda text: json.dumps({**json.loads(text), "more": 1}),
    ],
    ids=["cut off", "key", "kind", "empty", "garbage", "more"],
)
async def test_c35_a_snapshot_that_was_damaged(damage: Callable[[str], str]) -> None:
    """No field is guessed: a malformed snapshot is refused, and the right one works afterwards."""
    payments = Payments()
    agent, result = await suspended(payments)
    text = result.snapshot()
    decisions = {result.pending[0].digest: Approve()}
    with pytest.raises(ValueError, match=r".+"):
        await agent.resume(damage(text), decisions)
    assert [] == payments.paid
    assert "completed" == (await agent.resume(text, decisions)).status
    assert [10] == payments.paid


@pytest.mark.parametrize("where", ["batch", "pending"])
async def test_c35_a_snapshot_that_was_forged(where: str) -> None:
    """An edited snapshot is refused by its digest; with a digest made anew, the decision still fits no such call."""
    payments = Payments()
    agent, result = await suspended(payments)
    text = result.snapshot()
    written = json.loads(text)

    def forge(value: Any) -> None:
        for key, member in value.items() if isinstance(value, dict) else enumerate(value):
            if key == "amount" and member == 10:
                value[key] = 1000
            elif isinstance(member, dict | list):
                forge(member)

    (found,) = [member for member in written.values() if isinstance(member, dict) and where in member]
    forge(found[where])
    assert json.dumps(written).count("1000") > text.count("1000")
    with pytest.raises(CodecError, match="was changed after it was written"):
        await agent.resume(json.dumps(written), {result.pending[0].digest: Approve()})
    found["digest"] = digest({name: value for name, value in found.items() if name != "digest"})
    with pytest.raises(DecisionError) as caught:
        await agent.resume(json.dumps(written), {result.pending[0].digest: Approve()})
    assert result.pending[0].digest == caught.value.digest
    assert [] == payments.paid
    assert "completed" == (await agent.resume(text, {result.pending[0].digest: Approve()})).status
    assert [10] == payments.paid


async def test_c35_a_tuned_tool_survives_the_snapshot() -> None:
    """The digest is of the tool as this request offered it, in another process too."""
    payments = Payments()

    def tune(state: RunState) -> RunState:
        return state.with_tools(*(evolve(offered, description="Pay, carefully.") for offered in state.tools))

    agent = payments.agent(at("before_model_request", tune), RequireApproval())
    result = await agent.run("go")
    decisions = {result.pending[0].digest: Approve()}
    done = await agent.resume(result.snapshot(), decisions)
    assert ("completed", [10]) == (done.status, payments.paid)


@pytest.mark.parametrize(
    "decisions", [None, "approve", [], [Approve(), Approve()], [True], {"a": 1}], ids=repr
)
async def test_c35_an_approver_that_answers_wrongly(decisions: Any) -> None:
    """A live approver's malformed answer is no answer: suspended, nothing ran, a right one works."""
    payments = Payments()

    async def approver(requests: tuple[ApprovalRequest, ...]) -> Any:
        return decisions

    agent, result = await suspended(payments, approver=approver)
    assert [] == payments.paid
    (record,) = of_kind(result.log, "run_suspended")
    assert "the approver" in str(record.facts["why"])
    done = await agent.resume(result, {result.pending[0].digest: Approve()})
    assert ("completed", [10]) == (done.status, payments.paid)


async def test_c35_a_digest_binds_to_the_arguments() -> None:
    """The same call id in the same run with other arguments is another request."""
    digests = set()
    for amount in (10, 1000):
        payments = Payments()
        agent = payments.agent(RequireApproval(), replies=[call("pay", {"amount": amount}, id="p"), "done"])
        result = await agent.run("go", run_id="same")
        digests.add(result.pending[0].digest)
    assert 2 == len(digests)


def reader(name: str, read: list[tuple[str, str]]) -> Any:
    """Make a tool, as a factory does: same parameters, same description, another name."""

    async def body(path: str) -> str:
        read.append((name, path))
        return path

    return tool(body, name=name, description="Read a file.")


@pytest.mark.parametrize(
    ("always", "covered"),
    [("off", None), ("arguments", {"x/data/x"}), ("tool", {"x/data/x", "x/etc/passwd"})],
)
async def test_c37_a_standing_approval_covers_what_was_offered(always: Any, covered: set[str] | None) -> None:
    """By default the same arguments of the same tool: not another path, nor a twin of the same factory."""
    read: list[tuple[str, str]] = []
    asked: list[str] = []

    def approver(requests: tuple[ApprovalRequest, ...]) -> list[Decision]:
        asked.extend(f"{request.tool}{request.arguments['path']}" for request in requests)
        return [Approve(always=covered is not None) for _ in requests]

    paths = ["/data/x", "/data/x", "/etc/passwd"]
    script: list[Any] = [call("x", {"path": path}) for path in paths]
    script += [call("y", {"path": path}) for path in ("/data/x", "/etc/passwd")]
    agent = Agent(
        "desk",
        ScriptedModel([*script, "done"]),
        tools=[reader("x", read), reader("y", read)],
        capabilities=[RequireApproval(always=always)],
        approver=approver,
    )
    result = await agent.run("go")
    assert 5 == len(read) == len(of_kind(result.log, "tool_settled"))
    expected = {
        "off": ["x/data/x", "x/data/x", "x/etc/passwd", "y/data/x", "y/etc/passwd"],
        "arguments": ["x/data/x", "x/etc/passwd", "y/data/x", "y/etc/passwd"],
        "tool": ["x/data/x", "y/data/x"],
    }[always]
    assert expected == asked
    assert len(asked) == len(of_kind(result.log, "call_decided"))


async def test_c37_a_standing_approval_ends_with_its_run() -> None:
    """The next run asks again."""
    payments = Payments(Approve(always=True))
    replies = [call("pay", {"amount": 10}, id="p"), "done", call("pay", {"amount": 10}, id="p"), "done"]
    agent = payments.agent(RequireApproval(), replies=replies, approver=payments.approve)
    await agent.run("go")
    await agent.run("go")
    assert (2, [10, 10]) == (len(payments.asked), payments.paid)


async def test_c37_the_narrowest_offer_counts() -> None:
    """Who asks for every single call is not overruled by who would let one decision stand."""
    payments = Payments()
    agent = payments.agent(
        RequireApproval(always="tool"),
        RequireApproval(always="off", key="Strict"),
        replies=[call("pay", {"amount": 10}, id="p"), call("pay", {"amount": 10}, id="q"), "done"],
        approver=payments.approve,
    )
    await agent.run("go")
    assert ["off", "off"] == [request.always for request in payments.asked]
    assert ("RequireApproval", "Strict") == payments.asked[0].asked_by


async def no_answer(requests: tuple[ApprovalRequest, ...]) -> Any:
    """Never decide."""
    await anyio.sleep_forever()


def broken(requests: tuple[ApprovalRequest, ...]) -> Any:
    """Raise."""
    raise RuntimeError("the desk is closed")


@pytest.mark.parametrize(
    ("approver", "why"),
    [(None, "no approver"), (broken, "RuntimeError: the desk is closed"), (no_answer, "in time")],
    ids=["missing", "raising", "timing out"],
)
async def test_c38_nobody_decides(approver: Any, why: str) -> None:
    """Three gated calls are one question; undecided, the run is suspended and nothing of the batch ran."""
    questions: list[int] = []
    works = Works()

    def counted(requests: tuple[ApprovalRequest, ...]) -> Any:
        questions.append(len(requests))
        return approver(requests)

    agent = Agent(
        "desk",
        ScriptedModel([batch(0, 1, 2), "done"]),
        tools=[works.tool()],
        capabilities=[RequireApproval(timeout=0.05)],
        approver=None if approver is None else counted,
    )
    result = await agent.run("go")
    assert ("suspended", []) == (result.status, works.began)
    assert None is result.state.output
    assert ([] if approver is None else [3]) == questions
    assert ["c0", "c1", "c2"] == [request.call_id for request in result.pending]
    assert {"c0": "pending", "c1": "pending", "c2": "pending"} == statuses(result.messages)
    check_closed(result.messages)
    record = result.log[-1]
    assert "run_suspended" == record.kind
    assert why in str(record.facts["why"])
    assert [] == [r for r in result.log if r.kind in {"tool_started", "tool_settled", "call_decided"}]
    ids = [request.digest for request in result.pending]
    decisions: dict[str, Decision] = dict(zip(ids, (Approve(), Deny("no"), Answer("by hand")), strict=True))
    done = await agent.resume(result, decisions)
    assert ("completed", [0]) == (done.status, works.ended)
    assert {"c0": "succeeded", "c1": "denied", "c2": "answered"} == statuses(done.messages)


async def test_c38_calls_without_a_gate_wait_too() -> None:
    """Nothing of a batch runs before every decision is in."""
    works = Works()
    ask = at("admit_tool_execute", lambda c: c.require_approval("Sure?") if c.index == 2 else c)
    agent = Agent("desk", ScriptedModel([batch(0, 1, 2), "done"]), tools=[works.tool()], capabilities=[ask])
    result = await agent.run("go")
    assert ("suspended", []) == (result.status, works.began)
    done = await agent.resume(result, {result.pending[0].digest: Deny()})
    assert [0, 1] == sorted(works.ended)
    assert {"c0": "succeeded", "c1": "succeeded", "c2": "denied"} == statuses(done.messages)


async def test_c38_a_gate_that_raises_asks_nobody() -> None:
    """A broken gate ends the run before the question."""
    payments = Payments()

    def bug(call: CallState) -> CallState:
        raise RuntimeError("bug")

    error = await failed(
        payments.agent(RequireApproval(), at("admit_tool_execute", bug), approver=payments.approve)
    )
    assert isinstance(error.reason, HookFailed)
    assert ("Actor", "admit_tool_execute", "p") == (error.reason.key, error.reason.hook, error.reason.call)
    assert ([], []) == (payments.asked, payments.paid)
