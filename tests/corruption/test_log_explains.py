"""C71: every change in the final state is explained by the log: folding its facts gives the state."""

from typing import Any

import anyio
import pytest
from attrs import evolve, frozen

from capfold.capabilities import (
    AssistantMessage,
    CallNext,
    CallState,
    Capability,
    Message,
    RequireApproval,
    RunState,
    TextPart,
    ToolBudget,
    ToolMessage,
    Usage,
    UserMessage,
    call,
    hook,
)
from capfold.runtime import Agent, Approve, Deny, ModelError, ModelProfile, RunResult, ScriptedModel
from capfold.runtime.audit import portable
from capfold.runtime.ending import WITHHELD
from capfold.runtime.prices import Price
from tests.corruption.log_fold import Folded, folded
from tests.corruption.scenes import POINTS, Works, at, batch, failed

USAGE = Usage(input_tokens=3, output_tokens=2, cached_tokens=0, reasoning_tokens=0)


class Busy(Capability[int]):
    """Writes at every reducer what it may write there."""

    def before_run(self, state: RunState) -> RunState:
        return evolve(state, messages=(*state.messages, UserMessage("more"))).put(self, 1)

    async def gather_before_model_request(self, state: RunState, outside: Any) -> Any:
        reply = await outside.request([UserMessage("hint?")], model=outside.deps)
        return reply.text

    def before_model_request(self, state: RunState) -> RunState:
        return state.append(UserMessage(str(state.fact(self)))).note("hinted").put(self, state.slot(self) + 1)

    def after_model_request(self, state: RunState) -> RunState:
        response = state.response
        assert response is not None
        if not response.tool_calls:
            return state.respond(evolve(response, content=response.text.upper()))
        calls = (*response.tool_calls, call("work", {"n": 9}, id=f"own{state.run_step}"))
        return state.respond(evolve(response, tool_calls=calls))

    def before_tool_execute(self, call: CallState) -> CallState:
        return call.with_arguments({"n": int(str(call.arguments["n"])) + 10})

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.refuse("not twelve") if call.arguments["n"] == 12 else call

    def after_tool_execute(self, call: CallState) -> CallState:
        assert call.outcome is not None
        return call.with_content(f"<{call.outcome.content}>").put(self, call.slot(self) + 1)

    def after_run(self, state: RunState) -> RunState:
        return evolve(state, output=f"{state.output}!").note("over")


async def again(call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
    """Ask a second time when the model failed."""
    try:
        return await call_next(state)
    except ModelError:
        return await call_next(state)


async def twice(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
    """Run a body twice."""
    await call_next(call)
    return await call_next(call)


PRICED = ModelProfile(price=Price(input=3, output=15))


def check_explained(result: RunResult[Any], found: Folded) -> None:
    """What the log says is what the run came to; text that was withheld stands in the log alone."""
    assert (result.output, len(result.state.messages)) == (found.fields["output"], len(found.messages))
    check_state(result.state, found)


def check_state(state: RunState, found: Folded) -> None:
    """What the log says is the last state of a run, whether it has ended or waits."""
    assert state.status == found.status
    assert (state.run_step, state.tool_calls) == (found.steps, found.tool_calls)
    assert (state.requests, state.usage.total) == (found.requests, found.tokens)
    assert {name: used.total for name, used in state.usage_by_model.items()} == found.by_model
    assert state.cost == found.cost
    assert portable(state.slots) == found.slots
    assert list(state.notes) == found.notes
    stop: Any = found.fields["stopped"]
    assert (None if state.stopped is None else state.stopped.message) == (stop and stop["message"])
    fail: Any = found.fields["failed"]
    assert (None if state.failed is None else state.failed.reason) == (fail and fail["reason"])
    assert portable(state.output) == found.fields["output"]
    assert len(state.messages) == len(found.messages)
    for message, told in zip(state.messages, found.messages, strict=True):
        assert _told(message, told), (message, told)


def _told(message: Message, told: dict[str, Any]) -> bool:
    content = portable(message.content)
    if isinstance(message, ToolMessage):
        if (message.call_id, message.status) != (told["call_id"], told["status"]):
            return False
        return message.status == "not_executed" or content in (WITHHELD, told["content"])
    if isinstance(message, AssistantMessage) and [asked.id for asked in message.tool_calls] != [
        asked["id"] for asked in told["tool_calls"]
    ]:
        return False
    return content in (WITHHELD, told["content"])


def agent_of(works: Works, *capabilities: Capability) -> Agent[str]:
    """Return an agent whose first request fails, and whose steps have batches."""
    script: list[Any] = [
        ModelError("server", "busy", retryable=True),
        batch(0, 1, 2),
        batch(0),
        "done",
    ]
    return Agent(
        "desk",
        ScriptedModel(script, usage=USAGE, profile=PRICED),
        tools=[works.tool()],
        capabilities=[
            Busy(),
            hook.wrap_model_request(again),
            hook.wrap_tool_execute(twice),
            *capabilities,
        ],
        deps=ScriptedModel([f"hint {i}" for i in range(9)], usage=USAGE, name="hints", profile=PRICED),
    )


async def test_c71_a_run_with_everything() -> None:
    """Rewritten input, appended and gathered text, added calls, retries, refusals, slots, notes, output."""
    works = Works()
    result = await agent_of(works).run("go", messages=(UserMessage("old"), AssistantMessage("old")))
    assert ("completed", "DONE!", 7) == (result.status, result.output, result.requests)
    assert [10, 10, 10, 10, 11, 11, 19, 19, 19, 19] == sorted(works.began)
    check_explained(result, folded(result.log))


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("act", ["stop", "fail"])
@pytest.mark.parametrize("point", POINTS)
async def test_c71_a_run_that_ends_early(point: str, act: str, step: int) -> None:
    """Stopped or failed at any hook, in the first step or the second."""
    ended: list[str] = []

    def action(record: Any) -> Any:
        run = record.run if isinstance(record, CallState) else record
        if (run.run_step not in {step, 0} and point not in {"after_run", "wrap_run:out"}) or ended:
            return record
        ended.append(point)
        return getattr(record, act)("enough")

    agent = agent_of(Works(), at(point, action))
    if act == "stop":
        result: Any = await agent.run("go")
        assert "stopped" == result.status
    else:
        result = (await failed(agent)).partial
        assert "failed" == result.status
    check_explained(result, folded(result.log))


async def test_c71_parts_and_renamed_calls() -> None:
    """Content of parts, and ids that the runtime renamed."""
    works = Works()
    script: list[Any] = [batch(0), batch(0), AssistantMessage((TextPart("a"), TextPart("b")), usage=USAGE)]
    agent = Agent(
        "desk", ScriptedModel(script, usage=USAGE), tools=[works.tool()], capabilities=[ToolBudget(5)]
    )
    result = await agent.run("go")
    found = folded(result.log)
    assert ["c0", "call_3_0"] == [m.call_id for m in result.messages if isinstance(m, ToolMessage)]
    assert ["c0", "call_3_0"] == [told["call_id"] for told in found.messages if "call_id" in told]
    assert (result.requests, result.usage.total) == (found.requests, found.tokens)
    assert {"ToolBudget": {"work": 2}} == found.slots == dict(result.state.slots)


@frozen
class Seen:
    """What a slot holds, which stands in a log as JSON."""

    names: tuple[str, ...] = ()


class Remembers(Capability[Seen]):
    """Keeps the tools that ran in a record of its own."""

    def initial(self) -> Seen:
        return Seen()

    def after_tool_execute(self, call: CallState) -> CallState:
        return call.put(self, Seen((*call.slot(self).names, call.name)))


async def test_c71_records_in_slots_and_content_of_parts() -> None:
    """Both are JSON in the log, in a prompt, a response and a slot."""
    script: list[Any] = [batch(0), AssistantMessage((TextPart("a"), TextPart("b")), usage=USAGE)]
    agent = Agent(
        "desk", ScriptedModel(script, usage=USAGE), tools=[Works().tool()], capabilities=[Remembers()]
    )
    result = await agent.run((TextPart("look"), TextPart("here")))
    assert Seen(("work",)) == result.state.slots["Remembers"]
    check_explained(result, folded(result.log))


@pytest.mark.parametrize("retries", [False, True])
async def test_c71_a_response_that_came_to_nothing(*, retries: bool) -> None:
    """It is on record and paid for; its wrapper failed, so that it never entered the history."""

    async def breaks(call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        done = await call_next(state)
        if state.run_step == 2:
            if retries:
                await call_next(state)
            raise LookupError("lost")
        return done

    script: list[Any] = [batch(0), batch(1), "done"]
    agent = Agent(
        "desk",
        ScriptedModel(script, usage=USAGE),
        tools=[Works().tool()],
        capabilities=[hook.wrap_model_request(breaks)],
    )
    result = (await failed(agent)).partial
    assert result is not None
    assert (2 + retries, 3) == (result.requests, len(result.messages))
    check_explained(result, folded(result.log))


async def test_c71_two_answers_of_a_wrapper() -> None:
    """The one that went on is the one that stands there, though another was made after it."""
    made: list[RunState] = []

    async def first(call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        kept = await call_next(state)
        await call_next(state)
        return kept

    async def makes(call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        made.append(state)
        return state.respond(AssistantMessage("mine" if len(made) == 1 else "theirs"))

    agent = Agent(
        "desk",
        ScriptedModel([]),
        capabilities=[hook.wrap_model_request(first), hook.wrap_model_request(makes)],
    )
    result = await agent.run("go")
    assert "mine" == result.output
    check_explained(result, folded(result.log))


@pytest.mark.parametrize("how", ["cancel", "stop"])
@pytest.mark.parametrize("where", ["model", "tool"])
async def test_c71_a_run_that_was_cut_short(where: str, how: str) -> None:
    """Its closed state, with what was known of the request or the batch."""
    reached = anyio.Event()

    async def hang(*_: object) -> Any:
        reached.set()
        await anyio.sleep_forever()

    async def body(n: int) -> None:
        if n == 1:
            await hang()

    script: list[Any] = [batch(0), hang if where == "model" else batch(2, 1, 3), "done"]
    agent = Agent(
        "desk",
        ScriptedModel(script, usage=USAGE),
        tools=[Works(body).tool()],
        capabilities=[Remembers(), ToolBudget(9)],
    )
    async with agent.start("go") as handle:
        with anyio.fail_after(10):
            await reached.wait()
            if how == "cancel":
                handle.cancel()
            else:
                await handle.stop("enough", grace=0.1)
            events = [event async for event in handle.events]
    ended: Any = events[-1]
    result = ended.result if ended.error is None else ended.error.partial
    assert {"cancel": "cancelled", "stop": "stopped"}[how] == result.status
    check_explained(result, folded(result.log))


async def test_c71_a_run_that_waited() -> None:
    """While it waits, and over both logs once it has gone on."""
    agent = Agent(
        "desk",
        ScriptedModel([batch(0, 1), "done"], usage=USAGE),
        tools=[Works().tool()],
        capabilities=[Remembers(), RequireApproval({"work"})],
    )
    result = await agent.run("go")
    records = list(result.log)
    check_state(result.state, folded(records))
    assert ("suspended", 2) == (result.status, folded(records).tool_calls)
    first, second = result.pending
    result = await agent.resume(result, {first.digest: Approve(), second.digest: Deny()})
    check_explained(result, folded([*records, *result.log]))
