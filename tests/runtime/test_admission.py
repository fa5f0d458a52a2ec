"""Admission: shape, gather, judge; and that what was judged is what runs."""

import json
from typing import ClassVar

import anyio
import pytest
from attrs import field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities import (
    CallState,
    Capability,
    Json,
    Outside,
    RefuseTools,
    RequireApproval,
    SelectTools,
    ToolBudget,
    call,
    hook,
    tool,
)
from capfold.capabilities.capability import AnyCapability, Declaration
from capfold.capabilities.frozen import FrozenDict
from capfold.capabilities.records import replace
from capfold.capabilities.state import RunState
from capfold.runtime import (
    Approve,
    BlockedError,
    HookError,
    IllegalTransition,
    LimitError,
    Limits,
    Permissions,
    ScriptedModel,
    ToolError,
    UnselectedRetriesExhausted,
)
from capfold.runtime.decisions import ApprovalRequest
from tests.runtime.desk import Observer, Trace, check_closed, contents, kinds, make, partial, results, seen


async def test_call_outside_the_prepared_set() -> None:
    """Not available: answered as such, charged, seen by after hooks; other calls of the batch run."""
    trace = Trace()
    agent = make(
        [[call("pay", {"amount": 1}), call("look", {"n": 1}), call("nothing")], "done"],
        capabilities=[SelectTools({"look"}), Observer(trace)],
    )
    result = await agent.run("go")
    assert ["pay:validation_error", "look:succeeded", "nothing:validation_error"] == trace.lines
    assert "not available" in str(contents(result.messages)[0])
    assert "Available: look" in str(contents(result.messages)[2])
    assert (3, 1) == (result.tool_calls, result.state.unselected_retries_used)
    assert {} == result.state.tool_retries


async def test_unselected_calls_are_bounded() -> None:
    """With 0 forgiven the first one ends the run, after its batch has settled."""
    agent = make([call("nothing")], unselected_retries=0)
    with pytest.raises(ToolError) as caught:
        await agent.run("go")
    assert isinstance(caught.value.reason, UnselectedRetriesExhausted)
    assert [("nothing", "validation_error")] == results(partial(caught.value).messages)
    twice = make([call("nothing"), call("nothing"), "done"], unselected_retries=2)
    assert "completed" == (await twice.run("go")).status


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"amount": "12"}', "$.amount"),
        ('{"amount": 1.9}', "$.amount"),
        ('{"amount": false}', "$.amount"),
        ('{"amount": 1, "more": 2}', "more"),
        ("{}", "amount"),
        ('{"amount": 1', "$"),
        ('{"amount": 1, "amount": 2}', "amount"),
        ("[1]", "$"),
        ('{"amount": NaN}', "$"),
        ("", "$"),
    ],
)
async def test_invalid_arguments_are_answered(arguments: str, text: str) -> None:
    """The model reads what is wrong and where; nothing runs, nothing judges it, the run goes on."""
    from capfold.capabilities import ToolCall  # noqa: PLC0415  # text as a model would send it

    judged = Trace()

    @frozen
    class Judge(Capability):
        def before_tool_execute(self, call: CallState) -> CallState:
            judged.add("before")
            return call

        def admit_tool_execute(self, call: CallState) -> CallState:
            judged.add("admit")
            return call

    result = await make([ToolCall("c", "pay", arguments), "done"], capabilities=[Judge()]).run("go")
    assert [("pay", "validation_error")] == results(result.messages)
    assert text in str(contents(result.messages)[0])
    assert [] == judged.lines
    assert {"pay": 1} == result.state.tool_retries


async def test_integral_float_is_an_integer() -> None:
    """1.0 is an integer by JSON Schema, and arrives as one."""
    from capfold.capabilities import ToolCall  # noqa: PLC0415  # text as a model would send it

    result = await make([ToolCall("c", "pay", '{"amount": 1.0}'), "done"]).run("go")
    assert ["paid 1"] == contents(result.messages)


async def test_all_problems_at_once() -> None:
    """Every wrong argument is named in one answer."""

    @tool
    def book(day: int, name: str, seats: int) -> str:
        """Book."""
        return "booked"

    result = await make([call("book", {"day": "x", "name": 3}), "done"], tools=[book]).run("go")
    (content,) = contents(result.messages)
    assert all(part in str(content) for part in ("$.day", "$.name", "seats"))


@frozen
class Repairs(Capability):
    """Mends an amount that was sent as text."""

    trace: Trace = field(factory=Trace)
    declares: ClassVar[frozenset[Declaration]] = frozenset({"repairs"})

    def before_tool_execute(self, call: CallState) -> CallState:
        self.trace.add(f"repair:{len(call.problems)}")
        amount = call.arguments.get("amount")
        return call.with_arguments({"amount": int(amount)}) if isinstance(amount, str) else call


async def test_repair_goes_first_wherever_it_stands() -> None:
    """A call with problems is repaired before others see it; a valid one is not offered for repair."""
    trace = Trace()

    @hook.before_tool_execute
    def shapes(call: CallState) -> CallState:
        trace.add(f"shape:{json.dumps(call.arguments)}")
        return call

    agent = make(
        [[call("pay", {"amount": "7"}), call("pay", {"amount": 8})], "done"],
        capabilities=[shapes, Repairs(trace)],
    )
    result = await agent.run("go")
    assert ["repair:1", 'shape:{"amount": 7}', 'shape:{"amount": 8}'] == trace.lines
    assert ["paid 7", "paid 8"] == contents(result.messages)
    message = result.messages[1]
    assert '{"amount": "7"}' == message.tool_calls[0].arguments  # type: ignore[union-attr]  # a response


async def test_repair_that_does_not_help() -> None:
    """Still invalid: the model reads what is wrong now."""
    result = await make([call("pay", {"sum": "7"}), "done"], capabilities=[Repairs()]).run("go")
    assert [("pay", "validation_error")] == results(result.messages)


async def test_hook_that_breaks_arguments_is_rejected() -> None:
    """A before hook that makes valid arguments invalid ends the run by name; nothing of the batch ran."""

    @hook.before_tool_execute
    def breaks(call: CallState) -> CallState:
        return call.with_arguments({"amount": "lots"})

    with pytest.raises(HookError) as caught:
        await make([[call("look", {"n": 1}), call("pay", {"amount": 7})]], capabilities=[breaks]).run("go")
    reason = caught.value.reason
    assert isinstance(reason, IllegalTransition)
    assert ("arguments", "before_tool_execute") == (reason.field, reason.hook)
    assert [("look", "not_executed"), ("pay", "not_executed")] == results(partial(caught.value).messages)
    assert 1 == len(seen(partial(caught.value), "rejected"))


@pytest.mark.parametrize("point", ["admit", "after", "wrap"])
async def test_arguments_are_sealed_once_judged(point: str) -> None:
    """Nobody turns 10 into 1000 after the judgement."""

    @frozen
    class Multiplies(Capability):
        def admit_tool_execute(self, call: CallState) -> CallState:
            return call.with_arguments({"amount": 1000}) if point == "admit" else call

        def after_tool_execute(self, call: CallState) -> CallState:
            return call.with_arguments({"amount": 1000}) if point == "after" else call

        async def wrap_tool_execute(self, call_next, call):  # type: ignore[no-untyped-def]  # as short as it gets
            return await call_next(call.with_arguments({"amount": 1000}) if point == "wrap" else call)

    with pytest.raises(HookError) as caught:
        await make([call("pay", {"amount": 10})], capabilities=[Multiplies()]).run("go")
    reason = caught.value.reason
    assert isinstance(reason, IllegalTransition)
    assert ("arguments", "Multiplies") == (reason.field, reason.key)
    status = {"admit": "not_executed", "after": "succeeded", "wrap": "not_executed"}[point]
    assert [("pay", status)] == results(partial(caught.value).messages)
    assert "paid 1000" not in str(partial(caught.value).messages)


async def test_verdicts_join() -> None:
    """Refused > approval > answer; all admit hooks run and see the verdict so far."""
    trace = Trace()

    @hook.admit_tool_execute
    def answers(call: CallState) -> CallState:
        return call.answer("cached")

    @hook.admit_tool_execute
    def refuses(call: CallState) -> CallState:
        return call.refuse("no") if call.name == "pay" else call

    @hook.admit_tool_execute
    def watches(call: CallState) -> CallState:
        trace.add(f"{call.name}:{call.verdict.refused is not None}:{call.verdict.answer is not None}")
        return call

    agent = make(
        [[call("look", {"n": 1}), call("pay", {"amount": 1})], "done"],
        capabilities=[answers, refuses, watches],
    )
    result = await agent.run("go")
    assert ["look:False:True", "pay:True:True"] == trace.lines
    assert [("look", "answered"), ("pay", "denied")] == results(result.messages)
    assert ["cached", "no"] == contents(result.messages)
    actors = [(record.actor.rpartition(".")[2], record.facts["status"]) for record in result.log
              if record.kind == "call_refused"]  # fmt: skip
    assert [("answers", "answered"), ("refuses", "denied")] == actors


async def test_refusal_means_nobody_is_asked() -> None:
    """A call that cannot run is not put before a person; an answered one is, when somebody requires it."""
    asked: list[str] = []

    def approver(requests: tuple[ApprovalRequest, ...]) -> list[Approve]:
        asked.extend(request.tool for request in requests)
        return [Approve() for _ in requests]

    answers = hook.admit_tool_execute(lambda call: call.answer("a") if call.name == "look" else call)
    agent = make(
        [[call("look", {"n": 1}), call("pay", {"amount": 1})], "done"],
        capabilities=[RequireApproval(), RefuseTools({"pay"}), answers],
        approver=approver,
    )
    result = await agent.run("go")
    assert ["look"] == asked
    assert [("look", "answered"), ("pay", "denied")] == results(result.messages)


async def test_earlier_calls_while_judging() -> None:
    """A budget sees the calls of its own batch that were admitted before."""
    agent = make([[call("look", {"n": i}) for i in range(4)], "done"], capabilities=[ToolBudget(2)])
    result = await agent.run("go")
    assert ["succeeded", "succeeded", "not_executed", "not_executed"] == [
        s for _, s in results(result.messages)
    ]
    assert ("stopped", 4) == (result.status, result.tool_calls)
    refusing = make(
        [[call("look", {"n": i}) for i in range(3)], "done"],
        capabilities=[ToolBudget(2, on_exceeded="refuse")],
    )
    assert ["succeeded", "succeeded", "denied"] == [
        s for _, s in results((await refusing.run("go")).messages)
    ]


@pytest.mark.parametrize("point", ["before", "admit"])
async def test_stop_in_a_batch(point: str) -> None:
    """Calls before the stopping one run, it and the rest do not; the run ends stopped, naming the call."""
    trace = Trace()

    @frozen
    class Stops(Capability):
        def before_tool_execute(self, call: CallState) -> CallState:
            return call.stop("enough") if point == "before" and call.index == 1 else call

        def admit_tool_execute(self, call: CallState) -> CallState:
            trace.add(f"admit {call.index}")
            return call.stop("enough") if point == "admit" and call.index == 1 else call

    agent = make(
        [[call("look", {"n": i}, id=f"c{i}") for i in range(3)]], capabilities=[Stops(), Observer(trace)]
    )
    result = await agent.run("go")
    assert ("stopped", "enough") == (result.status, result.output)
    assert result.stop is not None
    assert ("c1", "Stops", 3) == (result.stop.call_id, result.stop.key, result.tool_calls)
    admitted = ["admit 0"] if point == "before" else ["admit 0", "admit 1"]
    after = ["look:succeeded", "look:not_executed", "look:not_executed"]
    assert admitted + after == trace.lines
    check_closed(result.messages)


async def test_stop_while_judging_beats_a_later_call_s() -> None:
    """A budget stops at the first call; that a before hook stopped at the second one does not let the first run."""
    stops = hook.before_tool_execute(lambda call: call.stop("later") if call.index == 1 else call)
    batch = [call("look", {"n": i}) for i in range(2)]
    result = await make([batch], capabilities=[stops, ToolBudget(0)]).run("go")
    assert ["not_executed"] * 2 == [status for _, status in results(result.messages)]
    assert ("stopped", "later") == (result.status, result.output)


async def test_fail_in_a_batch() -> None:
    """`fail` before anything ran: nothing of the batch ran, nothing is seen by after hooks."""
    trace = Trace()
    fails = hook.admit_tool_execute(lambda call: call.fail("never") if call.index == 1 else call)
    agent = make([[call("look", {"n": i}) for i in range(2)]], capabilities=[fails, Observer(trace)])
    with pytest.raises(BlockedError, match="never") as caught:
        await agent.run("go")
    assert [] == trace.lines
    assert ["not_executed"] * 2 == [status for _, status in results(partial(caught.value).messages)]


async def test_batch_over_the_limit_is_uncharged() -> None:
    """A batch that does not fit ends the run, and none of it is charged or run."""
    agent = make([[call("look", {"n": i}) for i in range(3)]], limits=Limits(tool_calls=2))
    with pytest.raises(LimitError, match="tool_calls") as caught:
        await agent.run("go")
    result = partial(caught.value)
    assert 0 == result.tool_calls
    assert ["not_executed"] * 3 == [status for _, status in results(result.messages)]


async def test_permissions_join_the_verdict() -> None:
    """Deny refuses before anybody is asked; ask needs an approval; nothing is looked at for a denied tool."""
    asked: list[ApprovalRequest] = []

    def approver(requests: tuple[ApprovalRequest, ...]) -> list[Approve]:
        asked.extend(requests)
        return [Approve() for _ in requests]

    agent = make(
        [[call("look", {"n": 1}), call("pay", {"amount": 1})], "done"],
        permissions=Permissions((("*", "deny"), ("look", "ask"))),
        capabilities=[RequireApproval({"pay"})],
        approver=approver,
    )
    result = await agent.run("go")
    assert [("look", "succeeded"), ("pay", "denied")] == results(result.messages)
    assert [("look", ("permissions",))] == [(request.tool, request.asked_by) for request in asked]


async def test_gatherers_of_a_batch_run_at_once_before_judging() -> None:
    """All calls' facts are in before the first is judged; each call gets its own."""
    trace = Trace()

    @frozen
    class Policy(Capability):
        async def gather_admit_tool_execute(self, call: CallState, outside: Outside) -> Json:
            trace.add(f"gather {call.index}")
            await outside.sleep(0)
            return call.index != 1

        def admit_tool_execute(self, call: CallState) -> CallState:
            trace.add(f"judge {call.index}")
            return call if call.fact(self) is True else call.refuse("policy")

    agent = make([[call("look", {"n": i}) for i in range(3)], "done"], capabilities=[Policy()])
    result = await agent.run("go")
    assert ["gather 0", "gather 1", "gather 2"] == sorted(trace.lines[:3])
    assert ["judge 0", "judge 1", "judge 2"] == trace.lines[3:]
    assert ["succeeded", "denied", "succeeded"] == [status for _, status in results(result.messages)]
    assert 3 == kinds(result).count("gathered")


async def test_unknown_tool_has_a_descriptor() -> None:
    """A hook may read call.tool of a call that no tool answers to."""
    names: list[str] = []

    @hook.after_tool_execute
    def reads(call: CallState) -> CallState:
        names.append(f"{call.tool.name}:{call.tool.function}")
        return call

    await make([call("nothing"), "done"], capabilities=[reads]).run("go")
    assert ["nothing:None"] == names


# --- what was judged is what ran


@frozen
class Rewrites(Capability):
    """Adds to the amount while that is legal."""

    by: int

    def before_tool_execute(self, call: CallState) -> CallState:
        amount = call.arguments["amount"]
        assert isinstance(amount, int)
        return call.with_arguments({"amount": amount + self.by})


@frozen
class Judges(Capability):
    """Writes down what it was asked to judge; may answer to some amounts by a refusal."""

    refuse_above: int
    trace: Trace

    def admit_tool_execute(self, call: CallState) -> CallState:
        amount = call.arguments["amount"]
        assert isinstance(amount, int)
        self.trace.add(f"{call.id}:{amount}")
        return call.refuse("too much") if amount > self.refuse_above else call


@frozen
class Sneaks(Capability):
    """Tries to write the arguments while they are being judged, or in the wrapper."""

    where: str

    def admit_tool_execute(self, call: CallState) -> CallState:
        return replace(call, arguments=FrozenDict({"amount": 9999})) if self.where == "admit" else call

    async def wrap_tool_execute(self, call_next, call):  # type: ignore[no-untyped-def]  # as short as it gets
        sneaky = replace(call, arguments=FrozenDict({"amount": 9999})) if self.where == "wrap" else call
        return await call_next(sneaky)


@given(
    st.lists(
        st.integers(0, 5) | st.integers(10, 20).map(str) | st.sampled_from(("admit", "wrap")), max_size=5
    ),
    st.lists(st.integers(0, 9), min_size=1, max_size=3),
    st.booleans(),
)
@settings(max_examples=60)
def test_what_was_judged_is_what_ran(plan: list[int | str], amounts: list[int], asks: bool) -> None:  # noqa: FBT001  # a case of the table
    """Over random lists: every body got exactly what all judges and the person saw last, or did not run."""
    judged, shown, ran = Trace(), dict[str, object](), dict[str, object]()
    capabilities: list[AnyCapability] = []
    for i, item in enumerate(plan):
        if isinstance(item, int):
            capabilities.append(Rewrites(item, key=f"r{i}"))
        elif item.isdigit():
            capabilities.append(Judges(int(item), judged, key=f"j{i}"))
        else:
            capabilities.append(Sneaks(item, key=f"s{i}"))
    if asks:
        capabilities.append(RequireApproval())
    capabilities.append(Judges(1000, judged, key="last"))

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        ran[f"{len(ran)}"] = amount
        return str(amount)

    def approver(requests: tuple[ApprovalRequest, ...]) -> list[Approve]:
        shown.update({request.call_id: request.arguments["amount"] for request in requests})
        return [Approve() for _ in requests]

    calls = [call("pay", {"amount": amount}, id=f"c{i}") for i, amount in enumerate(amounts)]
    agent = make(
        [calls, "done"],
        tools=[pay],
        capabilities=capabilities,
        approver=approver,
        limits=Limits(max_parallel_tools=1),
    )
    sneaky = any(item in {"admit", "wrap"} for item in plan)
    try:
        result = anyio.run(agent.run, "go")
        messages = result.messages
    except HookError as error:
        assert sneaky
        messages = partial(error).messages
    check_closed(messages)
    assert 9999 not in ran.values()
    last = {line.split(":")[0]: int(line.split(":")[1]) for line in judged.lines}
    added = sum(item for item in plan if isinstance(item, int))
    for made, amount in zip(calls, amounts, strict=True):
        if made.id in last:
            assert amount + added == last[made.id]
        if made.id in shown:
            assert last[made.id] == shown[made.id]
    done = [status for _, status in results(messages)]
    assert done.count("succeeded") <= len(ran)
    assert all(amount in last.values() for amount in ran.values())


async def test_selected_tools_only_reach_a_body() -> None:
    """A tool that was hidden from the request that asked for it never runs, in any later step either."""
    ran: list[int] = []

    @tool
    def secret(n: int) -> str:
        """Do it."""
        ran.append(n)
        return "x"

    @hook.before_model_request
    def hides(state: RunState) -> RunState:
        return state.select_tools({"look"}) if state.run_step == 1 else state

    from tests.runtime.desk import look  # noqa: PLC0415  # the one that stays

    model = ScriptedModel([call("secret", {"n": 1}), call("secret", {"n": 2}), "done"])
    await make(model=model, tools=[look, secret], capabilities=[hides]).run("go")
    assert [2] == ran
