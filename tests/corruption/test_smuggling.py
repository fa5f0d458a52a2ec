"""Writes that look finished and are not: a list behind a frozen mapping, an effect that begins too late."""

import asyncio
import json
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from attrs import define, evolve, frozen

from capfold.capabilities import (
    AssistantMessage,
    CallNext,
    CallState,
    Capability,
    RequireApproval,
    RunState,
    Usage,
    UserMessage,
    Verdict,
    call,
    hook,
    tool,
)
from capfold.runtime import (
    Agent,
    Approve,
    CodecError,
    Limits,
    LocalPort,
    ModelRequest,
    RunError,
    ScriptedModel,
)
from capfold.runtime.models import Meter, ModelProfile

from .builders import Bodies, agent, at, culprit, failure, partial_of
from .scenes import MemorySink, kinds, settled, statuses


class Uncharging:
    """A model that never charges its meter, and counts what it is sent."""

    name = "uncharging"
    profile = ModelProfile()

    def __init__(self) -> None:
        """Start with nothing sent."""
        self.sent = 0

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        self.sent += 1
        await anyio.lowlevel.checkpoint()
        return AssistantMessage("done", usage=Usage(input_tokens=1, output_tokens=1))


async def twice(call_next: CallNext[Any, Any], record: Any) -> Any:
    """Call inward twice at the same time, and return what came first."""
    got: list[Any] = []

    async def one() -> None:
        got.append(await call_next(record))

    async with anyio.create_task_group() as group:
        group.start_soon(one)
        group.start_soon(one)
    return got[0]


async def test_c31_a_list_behind_frozen_arguments_is_rejected() -> None:
    """Arguments that hold a list could change after a person approved them: rejected where they are written."""
    amounts, ran = [10], []

    async def body(amounts: list[int]) -> str:
        """Pay amounts."""
        ran.append(list(amounts))
        return "paid"

    def smuggle(record: CallState) -> CallState:
        return evolve(record, arguments=record.arguments.assoc("amounts", amounts))  # type: ignore[arg-type]  # the bug

    capabilities = [at("before_tool_execute", smuggle, "forger"), RequireApproval({"pay"})]
    made = agent(
        [call("pay", {"amounts": [1]}), "done"], tools=[tool(body, name="pay")], capabilities=capabilities
    )
    error = await failure(made.run("go", approver=lambda asked: [Approve() for _ in asked]))
    assert ("IllegalTransition", "forger", "before_tool_execute", "arguments") == culprit(error)
    assert [] == ran


@pytest.mark.parametrize(
    "value", [[1], {"a": 1}, object(), float("nan")], ids=["list", "dict", "object", "nan"]
)
async def test_settings_that_are_no_json_are_rejected(value: object) -> None:
    """A value in the settings that is not frozen JSON would make the log unreadable: rejected by name."""

    def write(state: RunState) -> RunState:
        return evolve(state, settings=state.settings.assoc("x", value))  # type: ignore[arg-type]  # the bug

    error = await failure(
        agent(["done"], capabilities=[at("before_model_request", write, "forger")]).run("go")
    )
    assert ("IllegalTransition", "forger", "before_model_request", "settings") == culprit(error)
    assert [] != list(partial_of(error).log)


@pytest.mark.parametrize(
    "verdict",
    [Verdict(refused="no"), Verdict(approval=("x",)), Verdict(approval=None), Verdict(answer="hi")],  # type: ignore[arg-type]  # the bug
    ids=["refused", "approval", "no tuple", "answer"],
)
async def test_a_verdict_of_other_parts_is_rejected(verdict: Verdict) -> None:
    """A verdict built by hand from strings is rejected by name, and ends the run like any other bad write."""
    bodies = Bodies()
    forger = at("admit_tool_execute", lambda record: evolve(record, verdict=verdict), "forger")
    made = agent([call("pay", {"amount": 1}), "done"], tools=[bodies.pay()], capabilities=[forger])
    error = await failure(made.run("go"))
    assert ("IllegalTransition", "forger", "admit_tool_execute", "verdict") == culprit(error)
    assert [] == bodies.ran


@pytest.mark.parametrize("field", ["settings", "instructions"])
async def test_a_request_is_not_rewritten_once_it_was_sent(field: str) -> None:
    """A model wrapper that changes the request on its way out would put on record what was never sent."""
    value: Any = {"settings": {"t": 1}, "instructions": "other"}[field]
    forger = at("wrap_model_request:out", lambda state: evolve(state, **{field: value}), "forger")
    error = await failure(agent(["done"], capabilities=[forger]).run("go"))
    assert ("IllegalTransition", "forger", "wrap_model_request", field) == culprit(error)


async def test_appended_messages_leave_those_before_as_they_are() -> None:
    """Equal copies with another time, in front of an appended message, do not take the place of the history."""

    def write(state: RunState) -> RunState:
        return evolve(state, messages=(evolve(state.messages[0], at=1.0), UserMessage("more")))

    result = await agent(["done"], capabilities=[at("before_model_request", write, "forger")]).run("go")
    assert 1_000.0 == result.messages[0].at


@pytest.mark.parametrize("limit", [None, 1])
async def test_c10_requests_at_once_are_all_charged(limit: int | None) -> None:
    """A wrapper that sends twice at once is charged twice, also for a model that leaves charging to the runtime."""
    model = Uncharging()
    made = Agent(
        "a",
        model,
        capabilities=[hook.wrap_model_request(twice)],
        limits=Limits(requests=limit),
        port=LocalPort(),
    )
    if limit is None:
        assert 2 == (await made.run("go")).requests == model.sent
        return
    error = await failure(made.run("go"))
    assert "LimitExceeded" == type(error.reason).__name__
    assert 1 == partial_of(error).requests == model.sent


async def test_gatherers_at_once_are_all_charged() -> None:
    """Two gatherers that ask a model at once are charged two requests."""

    class Asks(Capability):
        async def gather_before_run(self, state: RunState, outside: Any) -> str:
            return str((await outside.request([UserMessage("?")])).text)

        def before_run(self, state: RunState) -> RunState:
            return state

    model = Uncharging()
    result = await Agent("a", model, capabilities=[Asks(key="a"), Asks(key="b")]).run("go")
    assert 3 == result.requests == model.sent


async def test_nothing_begins_after_the_run_went_on() -> None:
    """An inner wrapper that an outer one left running cannot start the body that was called not executed."""
    inside = anyio.Event()

    async with anyio.create_task_group() as group:

        async def leaves(call_next: CallNext[CallState, CallState], record: CallState) -> CallState:
            async def left() -> None:
                with pytest.raises(RunError, match="the run went on"):
                    await call_next(record)

            group.start_soon(left)
            await anyio.sleep(0.01)
            return record.answer("x")

        async def waits(call_next: CallNext[CallState, CallState], record: CallState) -> CallState:
            await inside.wait()
            return await call_next(record)

        wrappers = [evolve(hook.wrap_tool_execute(made), key=made.__name__) for made in (leaves, waits)]
        bodies = Bodies()
        made = agent([call("pay", {"amount": 1}), "done"], tools=[bodies.pay()], capabilities=wrappers)
        error = await failure(made.run("go"))
        inside.set()
    assert ("InvalidReturn", "leaves", "wrap_tool_execute", None) == culprit(error)
    assert ["not_executed"] == list(statuses(partial_of(error).messages).values())
    assert [] == bodies.ran


async def test_c45_a_response_that_came_before_the_deadline_is_on_record() -> None:
    """A wrapper that waits after a response is cut short by the deadline: response, request and usage are booked."""

    async def slow(call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        await call_next(state)
        await anyio.sleep(60)
        return await call_next(state)

    model = ScriptedModel(["one", "two"], usage=Usage(input_tokens=7, output_tokens=7))
    made = Agent("a", model, capabilities=[hook.wrap_model_request(slow)], limits=Limits(deadline=0.05))
    partial = partial_of(await failure(made.run("go")))
    assert (1, 7) == (partial.requests, partial.usage.input_tokens)
    assert 1 == kinds(partial.log).count("model_responded")


@frozen
class Answer:
    """An output with a list in it."""

    items: list[int]


@define(eq=False)
class Loose:
    """Hashable, and can change."""

    items: tuple[int, ...] = ()


def add(state: RunState) -> RunState:
    """Write into the output in place."""
    assert isinstance(state.output, Answer)
    state.output.items.append(2)
    return state


async def test_c41_a_write_into_the_output_is_on_record() -> None:
    """after_run may change the output; writing into a list of it is no way past the record."""
    model = ScriptedModel(['{"items":[1]}'])
    result = await Agent("a", model, output_type=Answer, capabilities=[at("after_run", add, "forger")]).run(
        "go"
    )
    assert Answer([1, 2]) == result.output
    assert ["forger"] == [record.actor for record in result.log if "output" in record.changes]


async def test_c41_a_write_into_the_final_output_is_rejected() -> None:
    """wrap_run may not change the output, in place neither."""
    model = ScriptedModel(['{"items":[1]}'])
    made = Agent("a", model, output_type=Answer, capabilities=[at("wrap_run:out", add, "forger")])
    with pytest.raises(RunError) as caught:
        await made.run("go")
    assert ("IllegalTransition", "forger", "wrap_run", "output") == culprit(caught.value)


async def test_c53_a_hashable_slot_value_that_can_change_is_rejected() -> None:
    """A class that is hashable by identity and not frozen would change without a put."""

    class Keeps(Capability[Loose]):
        def before_model_request(self, state: RunState) -> RunState:
            return state.put(self, Loose((1,)))

    error = await failure(agent(["done"], capabilities=[Keeps()]).run("go"))
    assert ("IllegalTransition", "Keeps", "before_model_request", "slots") == culprit(error)


class Exit(BaseException):
    """What ends a process rather than a run."""


async def test_c45_what_is_no_exception_closes_the_log() -> None:
    """A tool that asks for an exit: it goes on, but the call's outcome and the end of the run are on record first."""

    async def leave() -> str:
        """Leave."""
        raise Exit

    sink = MemorySink()
    with pytest.raises(Exit):
        await agent([call("leave", {})], tools=[tool(leave)], sinks=[sink]).run("go")
    assert "run_ended" == kinds(sink.records)[-1]
    assert ["unknown"] == list(settled(sink.records).values())


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_c45_a_body_that_cancels_its_own_task_has_an_outcome(anyio_backend: str) -> None:
    """In a batch nobody else is told of it: the call is unknown, and the run goes on."""

    async def body(n: int) -> str:
        """Cancel the task of an odd call."""
        task = asyncio.current_task()
        if n % 2 and task is not None:
            task.cancel()
            await anyio.sleep(60)
        return "done"

    calls = [call("body", {"n": n}, id=f"c{n}") for n in range(2)]
    result = await agent([calls, "done"], tools=[tool(body)]).run("go")
    assert {"c0": "succeeded", "c1": "unknown"} == statuses(result.messages)


@pytest.mark.parametrize("part", ["batch", "pending"])
@pytest.mark.parametrize("change", ["twice", "none"])
async def test_c34_a_snapshot_with_other_calls_is_refused(part: str, change: str) -> None:
    """A call that stands twice in a snapshot would run twice by one approval: the snapshot is refused, nothing runs."""
    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": 10}), "done"],
        tools=[bodies.pay()],
        capabilities=[RequireApproval({"pay"})],
    )
    waiting = await made.run("go")
    document = json.loads(waiting.snapshot())
    value = document["value"]
    value[part] = value[part] * 2 if change == "twice" else []
    with pytest.raises(CodecError):
        await made.resume(json.dumps(document), {waiting.pending[0].digest: Approve()})
    assert [] == bodies.ran
