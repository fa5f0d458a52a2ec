"""Guards and effects: what ran is on record, what no guard saw is withheld (C46, C47, C50, C63, C72, C74)."""

from typing import Any, ClassVar

import anyio
import anyio.lowlevel
import pytest
from attrs import evolve

from capfold.capabilities import (
    AssistantMessage,
    CallNext,
    CallState,
    Capability,
    ModelRetry,
    RunState,
    ToolBudget,
    ToolCall,
    call,
    hook,
    tool,
)
from capfold.capabilities.capability import Declaration
from capfold.runtime import Agent, Blocked, HookFailed, ScriptedModel
from capfold.runtime.ending import WITHHELD
from tests.corruption.scenes import (
    Works,
    at,
    batch,
    check_closed,
    contents,
    failed,
    kinds,
    of_kind,
    settled,
    shapes,
    statuses,
)


def bug(record: Any) -> Any:
    """Raise as a hook with a bug does."""
    raise RuntimeError("bug")


# --- C46


async def test_c46_an_after_model_hook_raises() -> None:
    """The history holds the last accepted response, its text withheld, its calls closed; nothing ran."""
    works = Works()
    said = AssistantMessage(
        "secret plan",
        tool_calls=tuple(batch(0, 1)),
        finish_reason="tool_calls",
        provider_items=[{"reasoning_content": "secret plan"}],
    )
    add = at(
        "after_model_request",
        lambda run: run.respond(evolve(run.response, tool_calls=(*run.response.tool_calls, *batch(2)))),
        "Adds",
    )
    drop = at(
        "after_model_request",
        lambda run: run.respond(evolve(run.response, tool_calls=run.response.tool_calls[1:])),
        "Drops",
    )
    agent = Agent(
        "desk",
        ScriptedModel([said]),
        tools=[works.tool()],
        capabilities=[add, at("after_model_request", bug), drop],
    )
    error = await failed(agent)
    assert isinstance(error.reason, HookFailed)
    assert ("Actor", 1, "after_model_request", 1) == (
        error.reason.key,
        error.reason.index,
        error.reason.hook,
        error.reason.step,
    )
    assert isinstance(error.__cause__, RuntimeError)
    assert error.partial is not None
    assert ["user", "assistant", "tool", "tool", "tool"] == shapes(error.partial.messages)
    check_closed(error.partial.messages)
    response: Any = error.partial.messages[1]
    assert (WITHHELD, ["model", "model", "Adds"]) == (
        response.content,
        [asked.origin for asked in response.tool_calls],
    )
    assert {"c0": "not_executed", "c1": "not_executed", "c2": "not_executed"} == statuses(
        error.partial.messages
    )
    assert [] == works.began
    assert "secret plan" not in repr(error.partial.messages)
    raw: Any = of_kind(error.partial.log, "model_responded")[0].facts["response"]
    assert "secret plan" == raw["content"]


@pytest.mark.parametrize("gatherer", ["gather_after_model_request", "gather_after_run"])
async def test_c46_a_gatherer_of_an_after_hook_raises(gatherer: str) -> None:
    """A judge that could not be asked has seen nothing: the text is withheld from the history."""

    async def gather(self: Capability, state: RunState, outside: Any) -> Any:
        raise RuntimeError("the judge is away")

    judge = type("Judge", (Capability,), {gatherer: gather})()
    error = await failed(Agent("desk", ScriptedModel(["a risky answer"]), capabilities=[judge]))
    assert isinstance(error.reason, HookFailed)
    assert ("Judge", gatherer) == (error.reason.key, error.reason.hook)
    assert error.partial is not None
    assert ["user", "assistant"] == shapes(error.partial.messages)
    assert WITHHELD == error.partial.messages[1].content
    assert None is error.partial.output


# --- C47


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_c47_an_after_tool_hook_raises(place: int) -> None:
    """The effect stays with its status; content that was not checked to the end is not in the history."""
    works = Works()
    mask = at("after_tool_execute", lambda call: call.with_content("masked"), "Mask")
    broken = at("after_tool_execute", lambda call: bug(call) if call.index == place else call)
    agent = Agent("desk", ScriptedModel([batch(0, 1, 2)]), tools=[works.tool()], capabilities=[mask, broken])
    error = await failed(agent)
    assert isinstance(error.reason, HookFailed)
    assert ("Actor", "after_tool_execute", f"c{place}") == (
        error.reason.key,
        error.reason.hook,
        error.reason.call,
    )
    assert error.partial is not None
    assert ("failed", 3) == (error.partial.status, error.partial.tool_calls)
    check_closed(error.partial.messages)
    assert {"succeeded"} == set(statuses(error.partial.messages).values())
    assert ["masked"] * place + [WITHHELD] * (3 - place) == list(contents(error.partial.messages).values())
    assert {"c0": "succeeded", "c1": "succeeded", "c2": "succeeded"} == settled(error.partial.log)


# --- C50


@pytest.mark.parametrize("where", ["after hook", "next batch", "next response", "wrapper beside it"])
async def test_c50_a_tool_that_finished_before_a_guard_tripped(where: str) -> None:
    """The guard fails the run; the finished tool is in history and log, wherever the guard stands."""
    works = Works()
    guards: dict[str, Capability] = {
        "after hook": at("after_tool_execute", lambda c: c.fail("no") if c.index == 1 else c, "Guard"),
        "next batch": at("admit_tool_execute", lambda c: c.fail("no") if c.run.run_step == 2 else c, "Guard"),
        "next response": at("after_model_request", lambda s: s.fail("no") if s.run_step == 2 else s, "Guard"),
        "wrapper beside it": at("wrap_tool_execute:in", lambda c: c.fail("no") if c.index else c, "Guard"),
    }
    script: list[Any] = [batch(0, 1), batch(2), "done"]
    agent = Agent("desk", ScriptedModel(script), tools=[works.tool()], capabilities=[guards[where]])
    error = await failed(agent)
    assert isinstance(error.reason, Blocked)
    assert ("Guard", "no") == (error.reason.key, error.reason.message)
    assert error.partial is not None
    check_closed(error.partial.messages)
    assert [0, 1] == sorted(works.ended)
    assert {"c0": "succeeded", "c1": "succeeded"} == settled(error.partial.log)
    found = statuses(error.partial.messages)
    assert ("succeeded", "succeeded") == (found["c0"], found["c1"])
    assert ({"c2"} if where.startswith("next") else set()) == set(found) - {"c0", "c1"}
    assert "not_executed" == found.get("c2", "not_executed")


# --- C63


class Seen(Capability):
    """Notes which reducers it was called in."""

    def before_model_request(self, state: RunState) -> RunState:
        return state.note("before_model_request")

    def after_model_request(self, state: RunState) -> RunState:
        assert state.response is not None
        return state.note(f"after_model_request {state.response.text}")

    def before_tool_execute(self, call: CallState) -> CallState:
        return evolve(call, run=call.run.note("before_tool_execute"))

    def admit_tool_execute(self, call: CallState) -> CallState:
        return evolve(call, run=call.run.note("admit_tool_execute"))

    def after_tool_execute(self, call: CallState) -> CallState:
        assert call.outcome is not None
        return evolve(call, run=call.run.note(f"after_tool_execute {call.outcome.content}"))


class Mask(Capability):
    """Takes the secret out of what the model reads, and of what it said."""

    def after_model_request(self, state: RunState) -> RunState:
        assert state.response is not None
        return state.respond(evolve(state.response, content=state.response.text.replace("secret", "***")))

    def after_tool_execute(self, call: CallState) -> CallState:
        assert call.outcome is not None
        return call.with_content(str(call.outcome.content).replace("secret", "***"))


async def _answer_model(call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
    if state.run_step == 1:
        return state.respond(AssistantMessage(tool_calls=tuple(batch(0)), finish_reason="tool_calls"))
    return state.respond(AssistantMessage("the secret answer"))


async def _answer_tool(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
    return call.answer("the secret cache")


@pytest.mark.parametrize("place", ["first", "last"])
async def test_c63_a_wrapper_that_answers_skips_nobody(place: str) -> None:
    """No request, no body, and yet every reducer of everybody ran, redaction among them."""
    works = Works()
    model = ScriptedModel([])
    cache: list[Capability] = [
        evolve(hook.wrap_model_request(_answer_model), key="CacheModel"),
        evolve(hook.wrap_tool_execute(_answer_tool), key="CacheTool"),
    ]
    others: list[Capability] = [Mask(), Seen()]
    listed = [*cache, *others] if place == "first" else [*others, *cache]
    result = await Agent("desk", model, tools=[works.tool()], capabilities=listed).run("go")
    assert ("completed", "the *** answer") == (result.status, result.output)
    assert ((), []) == (model.requests, works.began)
    assert (0, 1) == (result.requests, result.tool_calls)
    assert (
        "before_model_request",
        "after_model_request ",
        "before_tool_execute",
        "admit_tool_execute",
        "after_tool_execute the *** cache",
        "before_model_request",
        "after_model_request the *** answer",
    ) == result.state.notes
    assert {"c0": "answered"} == statuses(result.messages)
    assert "secret" not in repr(result.messages)
    (record,) = of_kind(result.log, "tool_settled")
    assert "CacheTool" == record.actor


@pytest.mark.parametrize("place", ["first", "last"])
async def test_c63_a_budget_sees_what_ran_and_what_did_not(place: str) -> None:
    """An answered call leaves its place in the budget to the next one, wherever the budget stands."""
    works = Works()

    async def answer_zero(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        return call.answer("cached") if call.arguments["n"] == 0 else await call_next(call)

    cache = hook.wrap_tool_execute(answer_zero)
    budget = ToolBudget(1, on_exceeded="refuse")
    listed: list[Capability[Any]] = [cache, budget] if place == "first" else [budget, cache]
    script: list[Any] = [batch(0), batch(1), batch(2), "done"]
    result = await Agent("desk", ScriptedModel(script), tools=[works.tool()], capabilities=listed).run("go")
    assert [1] == works.ended
    assert {"c0": "answered", "c1": "succeeded", "c2": "denied"} == statuses(result.messages)
    assert {"work": 1} == result.state.slot_of("ToolBudget")


# --- C72


class MaxAmount(Capability):
    """Reads the amount, without asking whether there is one."""

    def before_tool_execute(self, call: CallState) -> CallState:
        assert call.arguments["amount"] is not None
        return call

    def admit_tool_execute(self, call: CallState) -> CallState:
        amount = call.arguments["amount"]
        return call.refuse("too much") if amount > 100 else call  # type: ignore[operator]  # the schema says int


MALFORMED = {
    "missing": "{}",
    "null": '{"amount": null}',
    "text": '{"amount": "10"}',
    "list": '{"amount": [10]}',
    "array": "[10]",
    "scalar": "10",
    "not JSON": "{amount: 10",
    "empty": "",
    "twice": '{"amount": 1, "amount": 1000}',
    "NaN": '{"amount": NaN}',
    "extra": '{"amount": 1, "note": "x"}',
    "deep": '{"amount": ' + "[" * 300 + "]" * 300 + "}",
    "huge": '{"amount": 1' + "0" * 5000 + "}",
}


@pytest.mark.parametrize("arguments", MALFORMED.values(), ids=MALFORMED)
async def test_c72_a_malformed_call_reaches_no_gate(arguments: str) -> None:
    """Shape and gate are called for valid calls only; the model reads what is wrong, and the run goes on."""
    paid: list[int] = []

    async def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        return "paid"

    script: list[Any] = [ToolCall("bad", "pay", arguments), call("pay", {"amount": 5}, id="good"), "done"]
    agent = Agent("desk", ScriptedModel(script), tools=[pay], capabilities=[MaxAmount()])
    result = await agent.run("go")
    assert ("completed", [5]) == (result.status, paid)
    assert {"bad": "validation_error", "good": "succeeded"} == statuses(result.messages)
    asked: Any = result.messages[1]
    assert arguments == asked.tool_calls[0].arguments
    assert [("bad", "validation_error")] == [
        (record.call, record.facts["status"]) for record in of_kind(result.log, "call_refused")
    ]


class Repair(Capability):
    """Fills a missing amount in."""

    declares: ClassVar[frozenset[Declaration]] = frozenset({"repairs"})

    def before_tool_execute(self, call: CallState) -> CallState:
        return call.with_arguments({"amount": 7}) if call.problems else call


async def test_c72_a_repaired_call_is_judged() -> None:
    """A repair hook sees the problems first, whatever its place; the gate then reads valid arguments."""
    paid: list[int] = []

    async def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        return "paid"

    script: list[Any] = [ToolCall("bad", "pay", "{}"), "done"]
    agent = Agent("desk", ScriptedModel(script), tools=[pay], capabilities=[MaxAmount(), Repair()])
    result = await agent.run("go")
    assert ("completed", [7]) == (result.status, paid)
    (record,) = of_kind(result.log, "transition")
    assert ("Repair", ["arguments"]) == (record.actor, list(record.changes))


# --- C74


@pytest.mark.parametrize("good", [0, 1, 2])
@pytest.mark.parametrize("how", ["raise", "retry", "timeout", "invalid"])
@pytest.mark.parametrize("finish", ["in order", "reversed"])
async def test_c74_two_of_three_parallel_reads_fail(good: int, how: str, finish: str) -> None:
    """Which of them fails, and who is done first, changes nothing: the step counts as one that succeeded."""
    done: list[int] = []

    async def read(n: int) -> str:
        """Read something."""
        order = n if finish == "in order" else 2 - n
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        while len(done) < order and how != "timeout":
            await anyio.lowlevel.checkpoint()
        if n != good and how == "timeout":
            await anyio.sleep_forever()
        done.append(n)
        if n != good and how == "raise":
            raise OSError("gone")
        if n != good and how == "retry":
            raise ModelRetry("try again")
        return f"read {n}"

    script: list[Any] = [
        [
            ToolCall(f"c{n}", "read", '{"n": ' + ("null}" if how == "invalid" and n != good else f"{n}}}"))
            for n in range(3)
        ],
        "done",
    ]
    if how == "invalid":
        done.extend(range(3))  # nobody waits for a body that never begins
    reads = tool(read, read_only=True, max_retries=0, timeout=0.2 if how == "timeout" else None)
    result = await Agent("desk", ScriptedModel(script), tools=[reads]).run("go")
    assert ("completed", "done") == (result.status, result.output)
    bad = {"raise": "failed", "retry": "failed", "timeout": "unknown", "invalid": "validation_error"}[how]
    assert {f"c{n}": "succeeded" if n == good else bad for n in range(3)} == statuses(result.messages)
    assert {} == result.state.tool_retries
    started = [] if how == "invalid" else ["c0", "c1", "c2"]
    assert (started or [f"c{good}"]) == [record.call for record in of_kind(result.log, "tool_started")]
    assert (started or [f"c{good}"]) == [record.call for record in of_kind(result.log, "tool_settled")]
    assert 1 == kinds(result.log).count("run_ended")
