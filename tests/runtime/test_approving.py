"""Approval: one question per batch, bound to what runs; four decisions; grants; edits are judged again."""

import threading
from collections.abc import Awaitable, Sequence

import anyio
import anyio.lowlevel
import pytest
from attrs import evolve, field, frozen

from capfold.capabilities import (
    CallState,
    Capability,
    Json,
    Outside,
    RequireApproval,
    TextPart,
    ToolBudget,
    ToolCall,
    call,
    hook,
    is_destructive,
    tool,
)
from capfold.runtime import Agent, Answer, Approve, DecisionError, Deny, Edit, Permissions
from capfold.runtime.decisions import ApprovalRequest, Approver, Decision
from capfold.runtime.scripted_model import Reply
from tests.runtime.desk import Trace, check_closed, contents, kinds, look, make, results

PAY = call("pay", {"amount": 10}, id="p")
LOOK = call("look", {"n": 1}, id="l")


class Desk:
    """A person who gives prepared decisions, and remembers the questions."""

    def __init__(self, *rounds: list[Decision]) -> None:
        """Decide each round so."""
        self.rounds = list(rounds)
        self.asked: list[tuple[ApprovalRequest, ...]] = []

    def __call__(self, requests: tuple[ApprovalRequest, ...]) -> list[Decision]:
        """Answer one question."""
        self.asked.append(requests)
        return self.rounds.pop(0)


async def test_one_question_for_all_calls() -> None:
    """All calls of a batch that need a person are asked about at once, in call order."""
    desk = Desk([Approve(), Deny("not that one")])
    agent = make([[PAY, LOOK], "done"], capabilities=[RequireApproval()], approver=desk)
    result = await agent.run("go")
    assert [["pay", "look"]] == [[request.tool for request in asked] for asked in desk.asked]
    assert [("pay", "succeeded"), ("look", "denied")] == results(result.messages)
    assert ["paid 10", "not that one"] == contents(result.messages)


async def test_what_a_person_sees() -> None:
    """Sealed arguments, all prompts and askers, the narrowest grant and the shortest time."""
    desk = Desk([Approve()])
    capabilities = [
        RequireApproval({"pay"}, prompt="Pay {arguments}?", always="tool", timeout=60, key="first"),
        RequireApproval({"pay"}, prompt="Sure?", always="arguments", timeout=30, key="second"),
    ]
    await make([PAY, "done"], capabilities=capabilities, approver=desk).run("go")
    (request,) = desk.asked[0]
    assert ('Pay {"amount": 10}?', "Sure?") == request.prompts
    assert (("first", "second"), "arguments", 30) == (request.asked_by, request.always, request.timeout)
    assert ("run", "desk", "p", "pay") == (request.run_id, request.agent, request.call_id, request.tool)
    assert {"amount": 10} == request.arguments


async def test_denial_without_a_message_uses_the_asker_s() -> None:
    """The model reads what the capability said a denial means."""
    desk = Desk([Deny()])
    agent = make([PAY, "done"], capabilities=[RequireApproval(denied="No money today.")], approver=desk)
    assert ["No money today."] == contents((await agent.run("go")).messages)


async def test_answer_stands_for_the_body() -> None:
    """A person's answer is the result; the tool did not run."""
    agent = make([PAY, "done"], capabilities=[RequireApproval()], approver=Desk([Answer("paid by hand")]))
    result = await agent.run("go")
    assert [("pay", "answered")] == results(result.messages)
    (record,) = [record for record in result.log if record.kind == "call_decided"]
    assert "person" == record.actor


async def test_edit_is_the_approval() -> None:
    """The person's arguments run, unasked a second time; the model's own stay in history."""
    trace = Trace()

    @hook.admit_tool_execute
    def judges(call: CallState) -> CallState:
        trace.add(str(call.arguments["amount"]))
        return call

    agent = make(
        [PAY, "done"], capabilities=[RequireApproval(), judges], approver=Desk([Edit({"amount": 4})])
    )
    result = await agent.run("go")
    assert ["paid 4"] == contents(result.messages)
    assert ["10", "4"] == trace.lines
    assert '{"amount": 10}' == result.messages[1].tool_calls[0].arguments  # type: ignore[union-attr]  # the scripted run makes it this kind


async def test_edit_may_be_refused() -> None:
    """The edited call is judged again with a fresh verdict: a guard may refuse it."""

    @hook.admit_tool_execute
    def guards(call: CallState) -> CallState:
        return call.refuse("too much") if call.arguments["amount"] == 1000 else call

    agent = make(
        [PAY, "done"], capabilities=[RequireApproval(), guards], approver=Desk([Edit({"amount": 1000})])
    )
    assert [("pay", "denied")] == results((await agent.run("go")).messages)


async def test_edit_goes_through_no_before_hook() -> None:
    """What the person wrote is not shaped again."""

    @hook.before_tool_execute
    def doubles(call: CallState) -> CallState:
        amount = call.arguments["amount"]
        assert isinstance(amount, int)
        return call.with_arguments({"amount": amount * 2})

    agent = make(
        [PAY, "done"], capabilities=[doubles, RequireApproval()], approver=Desk([Edit({"amount": 3})])
    )
    assert ["paid 3"] == contents((await agent.run("go")).messages)


@frozen
class Total(Capability):
    """Refuses a call when the batch would pay more than `most` in all."""

    most: int
    trace: Trace = field(factory=Trace)

    def admit_tool_execute(self, call: CallState) -> CallState:
        self.trace.add(call.id)
        amounts = [made.arguments["amount"] for made in (*call.earlier, call)]
        assert all(isinstance(amount, int) for amount in amounts)
        return call.refuse("over the total") if sum(amounts) > self.most else call  # type: ignore[arg-type]  # ints


async def test_calls_after_an_edited_one_are_judged_again() -> None:
    """An edit changes what later calls are judged by; approvals of unchanged calls stand, unasked."""
    trace = Trace()
    batch = [call("pay", {"amount": amount}, id=f"c{i}") for i, amount in enumerate((1, 2, 3))]
    desk = Desk([Approve(), Edit({"amount": 5}), Approve()])
    agent = make([batch, "done"], capabilities=[Total(8, trace), RequireApproval()], approver=desk)
    result = await agent.run("go")
    assert ["c0", "c1", "c2", "c1", "c2"] == trace.lines
    assert ["paid 1", "paid 5", "over the total"] == contents(result.messages)
    assert 1 == len(desk.asked)


async def test_refused_call_may_pass_after_an_edit() -> None:
    """The other way round: a call refused for the sum is judged again when an earlier one got smaller."""
    batch = [call("pay", {"amount": amount}, id=f"c{i}") for i, amount in enumerate((7, 3))]
    desk = Desk([Edit({"amount": 1})], [Approve()])
    agent = make([batch, "done"], capabilities=[Total(8), RequireApproval()], approver=desk)
    assert ["paid 1", "paid 3"] == contents((await agent.run("go")).messages)
    assert [["c0"], ["c1"]] == [[request.call_id for request in asked] for asked in desk.asked]


async def test_always_covers_the_same_arguments() -> None:
    """A standing grant spares the question for equal arguments, and for no others."""
    desk = Desk([Approve(always=True)], [Approve()])
    same, other = call("pay", {"amount": 10}), call("pay", {"amount": 11})
    agent = make(
        [PAY, same, other, "done"], capabilities=[RequireApproval(always="arguments")], approver=desk
    )
    result = await agent.run("go")
    assert ["paid 10", "paid 10", "paid 11"] == contents(result.messages)
    assert [10, 11] == [asked[0].arguments["amount"] for asked in desk.asked]


async def test_always_may_cover_the_tool() -> None:
    """Where the request allows it, every later call of the tool."""
    desk = Desk([Approve(always=True)])
    agent = make(
        [PAY, call("pay", {"amount": 99}), "done"],
        capabilities=[RequireApproval(always="tool")],
        approver=desk,
    )
    assert ["paid 10", "paid 99"] == contents((await agent.run("go")).messages)


async def test_plain_approval_is_for_once() -> None:
    """The same call in a later step is asked about again."""
    desk = Desk([Approve()], [Deny()])
    agent = make([PAY, call("pay", {"amount": 10}), "done"], capabilities=[RequireApproval()], approver=desk)
    assert ["succeeded", "denied"] == [status for _, status in results((await agent.run("go")).messages)]


async def test_grant_that_is_not_offered_suspends() -> None:
    """A decision that does not fit changes nothing: the run waits, nothing ran."""
    agent = make(
        [PAY, "done"], capabilities=[RequireApproval(always="off")], approver=Desk([Approve(always=True)])
    )
    result = await agent.run("go")
    assert "suspended" == result.status
    assert [("pay", "pending")] == results(result.messages)


def _raises(requests: tuple[ApprovalRequest, ...]) -> list[Decision]:
    raise OSError("no terminal")


def _none(requests: tuple[ApprovalRequest, ...]) -> list[Decision]:
    return []


def _wrong(requests: tuple[ApprovalRequest, ...]) -> list[Decision]:
    return ["yes"]  # type: ignore[list-item]  # that is the point


def _misfit(requests: tuple[ApprovalRequest, ...]) -> list[Decision]:
    return [Edit({"amount": "lots"})]


async def _late(requests: tuple[ApprovalRequest, ...]) -> list[Decision]:
    await anyio.sleep_forever()
    return []


@pytest.mark.parametrize("approver", [None, _raises, _none, _wrong, _misfit, _late])
async def test_undecided_run_is_suspended(approver: object) -> None:
    """Nobody, an exception, a wrong answer, a misfit, or too late: suspended, nothing ran."""
    agent = make([[LOOK, PAY]], capabilities=[RequireApproval({"pay"}, timeout=0.05)], approver=approver)
    result = await agent.run("go")
    assert ("suspended", 1) == (result.status, len(result.pending))
    assert result.state.output is None
    assert [("look", "pending"), ("pay", "pending")] == results(result.messages)
    check_closed(result.messages)
    assert "run_suspended" == kinds(result)[-1]
    assert "tool_started" not in kinds(result)


async def test_async_approver_and_per_run_approver() -> None:
    """An approver may be async, and be given for one run."""

    async def later(requests: tuple[ApprovalRequest, ...]) -> list[Decision]:
        await anyio.lowlevel.checkpoint()
        return [Approve() for _ in requests]

    agent = make([PAY, "done"], capabilities=[RequireApproval()], approver=_raises)
    assert "completed" == (await agent.run("go", approver=later)).status


async def test_digest_binds_call_tool_and_arguments() -> None:
    """Another run, another call, other arguments, another injected value: another digest."""
    inject = hook.before_tool_execute(lambda call: call.inject(who="me"))
    caps: list[Capability] = [RequireApproval()]
    made = []
    for run_id, asked, more in (
        ("r1", PAY, caps), ("r2", PAY, caps), ("r1", evolve(PAY, id="q"), caps),
        ("r1", evolve(PAY, arguments='{"amount": 11}'), caps), ("r1", PAY, [inject, *caps]),
        ("r1", PAY, caps),
    ):  # fmt: skip
        result = await make([asked], capabilities=more).run("go", run_id=run_id)
        made.append(result.pending[0].digest)
    assert made[0] == made[-1]
    assert 5 == len(set(made))


async def test_stop_beside_an_approval() -> None:
    """Calls before the stopping one may wait for a person; it and the rest are never asked about."""
    desk = Desk([Approve()])
    agent = make(
        [[PAY, call("pay", {"amount": 2})]], capabilities=[ToolBudget(1), RequireApproval()], approver=desk
    )
    result = await agent.run("go")
    assert ["succeeded", "not_executed"] == [status for _, status in results(result.messages)]
    assert ("stopped", ["p"]) == (result.status, [request.call_id for request in desk.asked[0]])


async def test_permission_asks_once_with_the_others() -> None:
    """A permission and a capability that both ask make one question of two prompts."""
    desk = Desk([Approve()])
    agent = make(
        [PAY, "done"],
        capabilities=[RequireApproval(is_destructive)],
        permissions=Permissions((("pay", "ask"),)),
        approver=desk,
    )
    await agent.run("go")
    assert ("RequireApproval", "permissions") == desk.asked[0][0].asked_by


async def test_resume_in_the_same_process() -> None:
    """A suspended result goes on with decisions; what ran before does not run again."""
    ran: list[int] = []

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    agent = make([LOOK, PAY, "done"], capabilities=[RequireApproval({"pay"})], tools=[pay, *make().tools[:1]])
    waiting = await agent.run("go")
    assert "suspended" == waiting.status
    result = await agent.resume(waiting, {waiting.pending[0].digest: Approve()})
    assert ("completed", [10], "done") == (result.status, ran, result.output)
    check_closed(result.messages)
    assert waiting.log.head == result.log[0].prev


@pytest.mark.parametrize("kind", ["none", "other", "malformed", "misfit"])
async def test_bad_decisions_at_resume(kind: str) -> None:
    """DecisionError names the digest; the run can be resumed all the same."""
    agent = make([PAY, "done"], capabilities=[RequireApproval()])
    waiting = await agent.run("go")
    digest = waiting.pending[0].digest
    bad: dict[str, object] = {
        "none": {}, "other": {"x": Approve()}, "malformed": {digest: "yes"},
        "misfit": {digest: Edit({"amount": "x"})},
    }  # fmt: skip
    with pytest.raises(DecisionError) as caught:
        await agent.resume(waiting, bad[kind])  # type: ignore[arg-type]  # that is the point
    assert caught.value.digest in {digest, "x"}
    assert "completed" == (await agent.resume(waiting, {digest: Deny()})).status


async def test_resume_asks_the_approver() -> None:
    """Without decisions the approver is asked again; a wrong number is a DecisionError."""
    agent = make([PAY, "done"], capabilities=[RequireApproval()])
    waiting = await agent.run("go")
    with pytest.raises(DecisionError):
        await agent.resume(waiting, approver=_none)
    result = await agent.resume(waiting, approver=Desk([Approve()]))
    assert "completed" == result.status


async def test_only_a_suspended_run_is_resumed() -> None:
    """A run that is over, or of another agent, is refused."""
    agent = make(["done"])
    result = await agent.run("go")
    with pytest.raises(ValueError, match="completed"):
        await agent.resume(result, {})
    with pytest.raises(ValueError, match="suspended"):
        result.snapshot()


@frozen
class Sums(Capability):
    """Brings in, for each call, what a bank says of its amount; asks a person when it says "large"."""

    trace: Trace = field(factory=Trace)

    async def gather_admit_tool_execute(self, call: CallState, outside: Outside) -> Json:
        self.trace.add(f"{call.id}: {call.arguments['amount']}")
        return "large" if call.arguments["amount"] > 5 else "small"  # type: ignore[operator]  # an integer

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.require_approval(f"A {call.fact(self)} sum?", always="arguments")


def batch_of(*amounts: int) -> list[ToolCall]:
    """Return a batch that pays these amounts, c0 first."""
    return [call("pay", {"amount": amount}, id=f"c{i}") for i, amount in enumerate(amounts)]


async def test_edit_is_judged_by_fresh_facts() -> None:
    """Gatherers look again at the edited call and at those after it, and only there; the verdict is of those facts."""
    trace = Trace()
    desk = Desk([Approve(), Edit({"amount": 3}), Approve()])
    result = await make([batch_of(7, 8, 9), "done"], capabilities=[Sums(trace)], approver=desk).run("go")
    assert ["c0: 7", "c1: 8", "c2: 9"] == sorted(trace.lines[:3])  # they gather at once, in any order
    assert ["c1: 3", "c2: 9"] == sorted(trace.lines[3:])
    assert ["paid 7", "paid 3", "paid 9"] == contents(result.messages)
    facts = [record.facts["fact"] for record in result.log if record.kind == "gathered"]
    assert ["large", "large", "large", "small", "large"] == facts
    assert 1 == len(desk.asked)


async def test_what_a_person_decided_of_later_calls_stands_beside_an_edit() -> None:
    """Denied and answered ones are not judged again; the model reads what the person said."""
    trace = Trace()
    desk = Desk([Edit({"amount": 1}), Deny("no"), Answer("by hand")])
    result = await make([batch_of(7, 8, 9), "done"], capabilities=[Sums(trace)], approver=desk).run("go")
    assert ["paid 1", "no", "by hand"] == contents(result.messages)
    assert "c0: 1" == trace.lines[3]
    assert 4 == len(trace.lines)


async def test_two_edits_are_judged_once_from_the_first() -> None:
    """Each edit is its own approval; the calls are charged once, however often they are judged."""
    desk = Desk([Edit({"amount": 1}), Edit({"amount": 2})])
    result = await make([batch_of(7, 8), "done"], capabilities=[Sums()], approver=desk).run("go")
    assert (["paid 1", "paid 2"], 2, 1) == (contents(result.messages), result.tool_calls, len(desk.asked))


async def test_edit_is_in_the_log_as_the_person_gave_it() -> None:
    """Who reads the log sees what was asked and what was made of it."""
    agent = make([PAY, "done"], capabilities=[RequireApproval()], approver=Desk([Edit({"amount": 4})]))
    result = await agent.run("go")
    (record,) = [record for record in result.log if record.kind == "call_decided"]
    assert {"type": "Edit", "arguments": {"amount": 4}} == record.facts["decision"]
    (admitted,) = [record for record in result.log if record.kind == "call_admitted"]
    assert {"amount": 4} == admitted.facts["arguments"]


@pytest.mark.parametrize(
    ("decision", "expected"),
    [(Approve(), ("answered", "from the cache")), (Deny("no"), ("denied", "no")),
     (Edit({"amount": 1}), ("answered", "from the cache")), (Answer("mine"), ("answered", "mine"))],
)  # fmt: skip
async def test_approved_call_that_has_an_answer_is_answered(
    decision: Decision, expected: tuple[str, str]
) -> None:
    """Somebody answers, somebody else asks: the person decides first, and the tool does not run."""
    answers = hook.admit_tool_execute(lambda call: call.answer("from the cache"))
    agent = make([PAY, "done"], capabilities=[answers, RequireApproval()], approver=Desk([decision]))
    result = await agent.run("go")
    assert [("pay", expected[0])] == results(result.messages)
    assert [expected[1]] == contents(result.messages)
    assert "tool_started" not in kinds(result)


async def test_answer_may_hold_parts() -> None:
    """So a person, or a client-side tool, gives back what a tool could."""
    answer = Answer((TextPart("a"), TextPart("b")))
    agent = make([PAY, "done"], capabilities=[RequireApproval()], approver=Desk([answer]))
    assert [(TextPart("a"), TextPart("b"))] == contents((await agent.run("go")).messages)


async def test_decision_is_used_once() -> None:
    """The same call in the same run, again: the digest of its id is new, and the person is asked again."""
    desk = Desk([Approve()], [Deny()])
    result = await make([PAY, PAY, "done"], capabilities=[RequireApproval()], approver=desk).run("go")
    first, second = (asked[0].digest for asked in desk.asked)
    assert first != second
    assert ["succeeded", "denied"] == [status for _, status in results(result.messages)]


async def test_wrong_number_of_decisions_at_resume() -> None:
    """One of two, or three: DecisionError, and the run can be resumed all the same."""
    agent = make([[PAY, LOOK], "done"], capabilities=[RequireApproval()])
    waiting = await agent.run("go")
    first, second = (request.digest for request in waiting.pending)
    bads: list[dict[str, Decision]] = [
        {first: Approve()},
        {first: Approve(), second: Approve(), "third": Deny()},
    ]
    for bad in bads:
        with pytest.raises(DecisionError) as caught:
            await agent.resume(waiting, bad)
        assert caught.value.digest in {second, "third"}
    with pytest.raises(DecisionError, match="2 decisions are wanted, 3 were given"):
        await agent.resume(waiting, approver=lambda requests: [Approve()] * 3)
    done = await agent.resume(waiting, {second: Deny(), first: Approve()})
    assert [("pay", "succeeded"), ("look", "denied")] == results(done.messages)


async def test_call_that_settled_does_not_run_again() -> None:
    """A batch before the suspension ran once, whatever is resumed later."""
    ran: list[int] = []

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    def build(*replies: Reply) -> Agent[str]:
        return make(replies, capabilities=[RequireApproval({"look"})], tools=[pay, look])

    waiting = await build(PAY, LOOK).run("go")
    done = await build("done").resume(waiting.snapshot(), {waiting.pending[0].digest: Approve()})
    assert ([10], "completed") == (ran, done.status)
    assert [("pay", "succeeded"), ("look", "succeeded")] == results(done.messages)


async def test_late_sync_approver_is_left_behind() -> None:
    """One that blocks in its thread does not hold the run up: suspended, and what it says later counts for nothing."""
    go_on = threading.Event()

    def blocks(requests: tuple[ApprovalRequest, ...]) -> list[Decision]:
        go_on.wait(10)
        return [Approve()]

    agent = make([PAY], capabilities=[RequireApproval(timeout=0.05)], approver=blocks)
    try:
        result = await agent.run("go")
    finally:
        go_on.set()
    assert ("suspended", [("pay", "pending")]) == (result.status, results(result.messages))


class AsyncDesk:
    """An approver that is an object with an async call."""

    async def __call__(self, requests: tuple[ApprovalRequest, ...]) -> tuple[Decision, ...]:
        """Approve."""
        await anyio.lowlevel.checkpoint()
        return tuple(Approve() for _ in requests)


async def test_approver_may_be_an_async_object() -> None:
    """Or a plain function that returns something to await."""

    def hands_on(requests: tuple[ApprovalRequest, ...]) -> Awaitable[Sequence[Decision]]:
        return AsyncDesk()(requests)

    approvers: tuple[Approver, ...] = (AsyncDesk(), hands_on)
    for approver in approvers:
        agent = make([PAY, "done"], capabilities=[RequireApproval()], approver=approver)
        assert "completed" == (await agent.run("go")).status
