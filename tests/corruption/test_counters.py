"""Counters and accounts: no hook moves a number that the runtime counts, and no wrapper outspends a limit."""

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from attrs import evolve

from capfold.capabilities import (
    AssistantMessage,
    CallNext,
    CallState,
    Capability,
    Json,
    Outside,
    RequireApproval,
    RunState,
    ToolHook,
    ToolMessage,
    Usage,
    UserMessage,
    call,
    hook,
    tool,
)
from capfold.capabilities.frozen import FrozenDict
from capfold.capabilities.owners import Owner, owners
from capfold.capabilities.records import replace
from capfold.runtime import (
    ApprovalRequest,
    Approve,
    LimitExceeded,
    Limits,
    ModelError,
    ModelRequest,
    RunError,
    ScriptedModel,
)
from tests.corruption.builders import (
    CALL_POINTS,
    POINTS,
    Bodies,
    agent,
    at,
    culprit,
    failure,
    field_at,
    forger_then_spy,
    hook_of,
    on_run,
    partial_of,
    records,
    requests_of,
    run_of,
    shapes,
)

RUNTIME_FIELDS = [name for name, owner in owners(RunState).items() if owner is Owner.RUNTIME]
FOREIGN: dict[str, object] = {
    "status": "failed",
    "tool_retries": FrozenDict({"pay": 99}),
    "usage": Usage(input_tokens=99, output_tokens=99),
    "usage_by_model": FrozenDict({"scripted": Usage(input_tokens=99, output_tokens=99)}),
}
WAYS: dict[str, Callable[..., RunState]] = {"evolve": evolve, "replace": replace}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", RUNTIME_FIELDS)
@pytest.mark.parametrize("point", POINTS)
async def test_c01_a_runtime_field_is_restored_at_every_point(
    point: str, name: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """At every hook and edge, a RUNTIME field is put back before the next one looks, on record."""
    foreign = FOREIGN.get(name, 99)
    given: list[object] = []
    seen: list[object] = []

    def write(record: Any) -> Any:
        given.append(getattr(run_of(record), name))
        return on_run(record, lambda run: WAYS[way](run, **{name: foreign}))

    caps = forger_then_spy(point, write, lambda record: seen.append(getattr(run_of(record), name)))
    bodies = Bodies()
    made = agent([call("pay", {"amount": 1}), "done"], tools=[bodies.pay()], capabilities=caps)
    with caplog.at_level(logging.WARNING, "capfold"):
        result = await made.run("go")
    assert "completed" == result.status
    assert (2, 1, 2) == (result.requests, result.tool_calls, result.steps)
    assert [("pay", 1)] == bodies.ran
    assert given == seen
    written = records(result.log, "restored")
    assert [("forger", hook_of(point))] * len(given) == [(r.actor, r.hook) for r in written]
    assert all({field_at(point, name)} == set(r.restored) for r in written)
    assert all({"tried", "kept"} == set(r.restored[field_at(point, name)]) for r in written)  # type: ignore[arg-type]  # a mapping
    assert len(given) == sum(record.levelno == logging.WARNING for record in caplog.records)


@pytest.mark.parametrize("point", POINTS)
async def test_c01_strict_makes_it_an_error(point: str) -> None:
    """In strict mode the first restored write ends the run, naming capability, hook and field."""

    def write(record: Any) -> Any:
        return on_run(record, lambda run: evolve(run, requests=99))

    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": 1}), "done"],
        tools=[bodies.pay()],
        capabilities=[at(point, write, "forger")],
        strict=True,
    )
    error = await failure(made.run("go"))
    assert ("Restored", "forger", hook_of(point), field_at(point, "requests")) == culprit(error)
    assert "failed" == partial_of(error).status
    ran = {"after_tool_execute", "wrap_tool_execute:out", "after_run", "wrap_run:out"}
    assert int(point in ran) == bodies.named("pay")


@pytest.mark.parametrize("point", POINTS)
async def test_c01_a_foreign_type_of_the_same_number_is_a_write(point: str) -> None:
    """`True` or `1.0` where the runtime counted 1 is not the confirmed value, and is put back."""
    types: set[type] = set()

    def write(record: Any) -> Any:
        return on_run(record, lambda run: evolve(run, output_retries=True, max_steps=50.0))  # type: ignore[arg-type]  # the attack

    def look(record: Any) -> None:
        types.update((type(run_of(record).output_retries), type(run_of(record).max_steps)))

    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": 1}), "done"],
        tools=[bodies.pay()],
        capabilities=forger_then_spy(point, write, look),
        output_retries=1,
    )
    result = await made.run("go")
    assert {int} == types
    fields = {field_at(point, "output_retries"), field_at(point, "max_steps")}
    assert all(fields == set(record.restored) for record in records(result.log, "restored"))
    assert records(result.log, "restored")


MESSAGE = UserMessage("more")
RUN_VERBS: dict[str, Callable[[RunState], RunState]] = {
    "project": lambda run: run.project([MESSAGE]),
    "keep_last": lambda run: run.keep_last(1),
    "map_view": lambda run: run.map_view(lambda _: MESSAGE),
    "select_tools": lambda run: run.select_tools(set()),
    "with_tools": lambda run: run.with_tools(Bodies().pay()),
    "with_model": lambda run: run.with_model(ScriptedModel(["x"])),
    "with_settings": lambda run: run.with_settings(requests=99, run_step=99),
    "add_instructions": lambda run: run.add_instructions("x"),
    "with_instructions": lambda run: run.with_instructions("x"),
    "append": lambda run: run.append(MESSAGE),
    "respond": lambda run: run.respond(AssistantMessage("x", usage=Usage(input_tokens=99))),
    "stop": lambda run: run.stop("x"),
    "fail": lambda run: run.fail("x"),
    "ask_again": lambda run: run.ask_again("x"),
    "note": lambda run: run.note("x"),
    "put": lambda run: run.put(at("before_run", lambda state: state, "usage"), None),
}
READING = {"slot", "slot_of", "fact"}


def test_c01_the_table_of_verbs_is_complete() -> None:
    """Every public method of a RunState is in the table or only reads."""
    methods = {name for name, value in vars(RunState).items() if callable(value) and not name.startswith("_")}
    assert methods - READING == set(RUN_VERBS)


@pytest.mark.parametrize("verb", RUN_VERBS)
def test_c01_no_verb_reaches_a_runtime_field(verb: str) -> None:
    """No verb changes a RUNTIME field."""
    run = RunState(run_step=1, requests=1, messages=(UserMessage("go"), UserMessage("on")))
    after = RUN_VERBS[verb](run)
    assert [getattr(run, name) for name in RUNTIME_FIELDS] == [
        getattr(after, name) for name in RUNTIME_FIELDS
    ]


@pytest.mark.parametrize("point", POINTS)
async def test_c02_clearing_tool_retries_does_not_postpone_the_end(point: str) -> None:
    """A hook that clears `tool_retries` after each failure changes nothing: the retries are as configured."""

    def write(record: Any) -> Any:
        return on_run(record, lambda run: evolve(run, tool_retries=FrozenDict()))

    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": i}) for i in range(9)],
        tools=[bodies.failing(max_retries=2)],
        capabilities=[at(point, write, "forger")],
    )
    error = await failure(made.run("go"))
    assert "ToolRetriesExhausted" == culprit(error)[0]
    assert 3 == bodies.named("pay")
    assert FrozenDict({"pay": 3}) == partial_of(error).state.tool_retries
    assert ["UserMessage", *["AssistantMessage", "ToolMessage:failed"] * 3] == shapes(partial_of(error))
    tried = records(partial_of(error).log, "restored")
    assert {("forger", hook_of(point))} >= {(record.actor, record.hook) for record in tried}
    if point not in {"before_run", "after_run", "wrap_run:in", "wrap_run:out"}:
        assert tried  # there, nothing had failed yet, or the run did not get that far
    if point == "wrap_run:out":
        assert [{"tool_retries"}] == [set(record.restored) for record in tried]


@pytest.mark.parametrize("point", POINTS)
async def test_c03_the_step_limit_holds_whatever_a_hook_writes(point: str) -> None:
    """`run_step=0, max_steps=100` from any hook: the run ends at the configured step."""

    def write(record: Any) -> Any:
        return on_run(record, lambda run: evolve(run, run_step=0, max_steps=100))

    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": i}) for i in range(9)],
        tools=[bodies.pay()],
        capabilities=[at(point, write, "forger")],
        limits=Limits(max_steps=3),
    )
    error = await failure(made.run("go"))
    reason = error.reason
    assert isinstance(reason, LimitExceeded)
    assert ("max_steps", 3, 3) == (reason.limit, reason.used, reason.allowed)
    assert (3, 3) == (requests_of(made), bodies.named("pay"))
    assert 3 == partial_of(error).steps
    tried = records(partial_of(error).log, "restored")
    assert (point == "after_run") == (not tried)  # after_run is not reached by a run that fails


@pytest.mark.parametrize("point", POINTS)
async def test_c04_a_batch_over_the_limit_is_refused_whole(point: str) -> None:
    """`tool_calls=0` from any hook: the next batch over the limit runs nothing and is not charged."""

    def write(record: Any) -> Any:
        return on_run(record, lambda run: evolve(run, tool_calls=0))

    bodies = Bodies()
    made = agent(
        [
            [call("pay", {"amount": 1}), call("pay", {"amount": 2})],
            [call("pay", {"amount": 3}), call("pay", {"amount": 4})],
        ],
        tools=[bodies.pay()],
        capabilities=[at(point, write, "forger")],
        limits=Limits(tool_calls=3),
    )
    error = await failure(made.run("go"))
    reason = error.reason
    assert isinstance(reason, LimitExceeded)
    assert ("tool_calls", 4, 3) == (reason.limit, reason.used, reason.allowed)
    assert [1, 2] == sorted(amount for _, amount in bodies.ran)  # type: ignore[type-var]  # integers
    assert 2 == partial_of(error).tool_calls
    done, refused = ["ToolMessage:succeeded"] * 2, ["ToolMessage:not_executed"] * 2
    assert ["UserMessage", "AssistantMessage", *done, "AssistantMessage", *refused] == shapes(
        partial_of(error)
    )


@pytest.mark.parametrize("point", [point for point in POINTS if point not in CALL_POINTS])
async def test_c05_output_retries_cannot_be_refilled(point: str) -> None:
    """`output_retries_used=0, output_retries=100`: exactly the configured number of model calls."""

    def write(state: RunState) -> RunState:
        return evolve(state, output_retries_used=0, output_retries=100)

    made = agent(
        ["bad"] * 9,
        capabilities=[
            at(point, write, "forger"),
            at("after_model_request", lambda state: state.ask_again("Again."), "judge"),
        ],
        output_retries=2,
    )
    error = await failure(made.run("go"))
    assert "OutputRetriesExhausted" == culprit(error)[0]
    assert 3 == requests_of(made)
    tried = records(partial_of(error).log, "restored")
    assert (point == "after_run") == (not tried)  # after_run is not reached by a run that fails
    assert {("forger", hook_of(point))} >= {(record.actor, record.hook) for record in tried}
    assert ["UserMessage", *["AssistantMessage", "UserMessage"] * 2, "AssistantMessage"] == shapes(
        partial_of(error)
    )


USAGE = Usage(input_tokens=10, output_tokens=5, cached_tokens=0, reasoning_tokens=0)
LIES = {
    "zero": Usage(input_tokens=0, output_tokens=0),
    "inflated": Usage(input_tokens=999, output_tokens=999),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("point", POINTS)
async def test_c06_the_result_shows_the_providers_usage(point: str, lie: str) -> None:
    """The run's usage, written at any point, stays what the provider reported."""

    def write(record: Any) -> Any:
        return on_run(record, lambda run: evolve(run, usage=LIES[lie]))

    bodies = Bodies()
    made = agent([], tools=[bodies.pay()], capabilities=[at(point, write, "forger")])
    model = ScriptedModel([call("pay", {"amount": 1}), "done"], usage=USAGE)
    result = await made.run("go", model=model)
    assert USAGE + USAGE == result.usage
    tried = records(result.log, "restored")
    assert {("forger", hook_of(point), field_at(point, "usage"))} == {
        (record.actor, record.hook, *record.restored) for record in tried
    }


async def test_c06_usage_of_a_response_is_restored_after_the_model() -> None:
    """A transformed response keeps the provider's usage, in the history too."""

    def write(state: RunState) -> RunState:
        assert state.response is not None
        return state.respond(evolve(state.response, content="other", usage=LIES["inflated"]))

    made = agent([], capabilities=[at("after_model_request", write, "forger")])
    result = await made.run("go", model=ScriptedModel(["done"], usage=USAGE))
    last = result.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert ("other", USAGE, USAGE) == (last.content, last.usage, result.usage)
    (record,) = records(result.log, "restored")
    assert ("forger", "after_model_request", {"response.usage"}) == (
        record.actor,
        record.hook,
        set(record.restored),
    )


@pytest.mark.parametrize("lie", LIES)
async def test_c06_a_wrapper_cannot_return_a_response_with_another_usage(lie: str) -> None:
    """A wrapper that rewrites the response it got is rejected by name; the provider's usage is booked."""

    async def forge(call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        state = await call_next(state)
        assert state.response is not None
        return state.respond(evolve(state.response, usage=LIES[lie]))

    made = agent([], capabilities=[evolve(hook.wrap_model_request(forge), key="forger")])
    error = await failure(made.run("go", model=ScriptedModel(["done"], usage=USAGE)))
    assert ("IllegalTransition", "forger", "wrap_model_request", "response") == culprit(error)
    assert USAGE == partial_of(error).usage
    assert ["UserMessage"] == shapes(partial_of(error))
    of_forger = [record for record in partial_of(error).log if record.actor == "forger"]
    assert [("rejected", {"response"}, {})] == [(r.kind, set(r.rejected), r.changes) for r in of_forger]


async def test_c06_a_made_up_response_costs_what_the_provider_took() -> None:
    """A wrapper that responds by itself adds nothing to usage and requests, whatever its message claims."""

    async def cached(call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        return state.respond(AssistantMessage("cached", usage=LIES["inflated"]))

    made = agent(["never"], capabilities=[evolve(hook.wrap_model_request(cached), key="cache")])
    result = await made.run("go")
    assert ("cached", 0, 0, 0) == (result.output, result.requests, result.usage.total, requests_of(made))


def retrying(
    times: int, key: str = "retry", catch: tuple[type[BaseException], ...] = (RunError,)
) -> Capability:
    """Return a tool wrapper that runs the body several times and swallows every error."""

    async def again(call_next: CallNext[CallState, CallState], asked: CallState) -> CallState:
        done = await call_next(asked)
        for _ in range(times - 1):
            try:
                done = await call_next(asked)
            except catch:
                continue
        return done

    return evolve(ToolHook(again), key=key)


@pytest.mark.parametrize("returns", ["last", "refused", "answered", "raises"])
async def test_c07_a_wrapper_cannot_run_a_body_beyond_the_limit(returns: str) -> None:
    """Under `tool_calls=1` the body runs once; the run ends by the limit, whatever the wrapper does."""

    async def again(call_next: CallNext[CallState, CallState], asked: CallState) -> CallState:
        done = await call_next(asked)
        for _ in range(3):
            try:
                await call_next(asked)
            except Exception as error:  # the attack: it swallows the limit too
                if returns == "raises":
                    raise ValueError("mine") from error
        return {"refused": done.refuse("no"), "answered": done.answer("yes")}.get(returns, done)

    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": 1}), "done"],
        tools=[bodies.pay()],
        capabilities=[evolve(ToolHook(again), key="retry")],
        limits=Limits(tool_calls=1),
    )
    error = await failure(made.run("go"))
    reason = error.reason
    assert isinstance(reason, LimitExceeded)
    assert ("tool_calls", 1, 0) == (reason.limit, reason.allowed, reason.share)
    assert [("pay", 1)] == bodies.ran
    partial = partial_of(error)
    assert ["UserMessage", "AssistantMessage", "ToolMessage:succeeded"] == shapes(partial)
    assert (1, 1) == (partial.tool_calls, requests_of(made))
    (settled,) = records(partial.log, "tool_settled")
    assert "succeeded" == settled.facts["outcome"]["status"]  # type: ignore[index,call-overload]  # a mapping


async def test_c07_a_kept_call_next_is_of_no_use_later() -> None:
    """A wrapper that keeps `call_next` and calls it in a later step runs no body: it is named."""
    kept: list[tuple[Any, CallState]] = []

    async def keep(call_next: CallNext[CallState, CallState], asked: CallState) -> CallState:
        for old, record in kept:
            await old(record)
        kept.append((call_next, asked))
        return await call_next(asked)

    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": 1}), call("pay", {"amount": 2}), "done"],
        tools=[bodies.pay()],
        capabilities=[evolve(ToolHook(keep), key="keeper")],
    )
    error = await failure(made.run("go"))
    assert ("HookFailed", "keeper", "wrap_tool_execute", None) == culprit(error)
    assert ([("pay", 1)], 2) == (bodies.ran, partial_of(error).tool_calls)
    assert "ToolMessage:not_executed" == shapes(partial_of(error))[-1]


async def test_c07_a_wrapper_waits_for_what_it_began() -> None:
    """A wrapper that returns while its `call_next` is running is named: the effect would be on no record."""
    bodies = Bodies()
    scope = anyio.CancelScope()

    async def hurry(call_next: CallNext[CallState, CallState], asked: CallState) -> CallState:
        async def late() -> None:
            with scope:
                await call_next(asked)

        tasks.start_soon(late)
        await anyio.lowlevel.checkpoint()
        await started.wait()
        return asked.answer("at once")

    started = anyio.Event()

    async def slow() -> str:
        """Work."""
        started.set()
        await anyio.sleep_forever()
        return "never"

    made = agent(
        [call("slow"), "done"],
        tools=[slow, bodies.pay()],
        capabilities=[evolve(ToolHook(hurry), key="hurry")],
    )
    async with anyio.create_task_group() as tasks:
        error = await failure(made.run("go"))
        scope.cancel()
    assert ("InvalidReturn", "hurry", "wrap_tool_execute", None) == culprit(error)
    (settled,) = records(partial_of(error).log, "tool_settled")
    assert "unknown" == settled.facts["outcome"]["status"]  # type: ignore[index,call-overload]  # a mapping


@pytest.mark.parametrize("verb", ["answer", "refuse", "stop", "raise"])
async def test_c07_a_body_that_a_wrapper_cut_short_may_have_happened(verb: str) -> None:
    """A wrapper that cancels the body it began cannot say that nothing ran: the outcome is `unknown`."""

    async def impatient(call_next: CallNext[CallState, CallState], asked: CallState) -> CallState:
        with anyio.move_on_after(0.01):
            return await call_next(asked)
        if verb == "raise":
            raise TimeoutError("too slow")
        made: CallState = getattr(asked, verb)("too slow")
        return made

    async def slow() -> str:
        """Work."""
        await anyio.sleep_forever()
        return "never"

    made = agent(
        [call("slow"), "done"], tools=[slow], capabilities=[evolve(ToolHook(impatient), key="timeout")]
    )
    if verb == "stop":
        result: Any = await made.run("go")
        assert ("stopped", "timeout") == (result.status, result.state.stopped.key)
    else:
        error = await failure(made.run("go"))
        kind = "HookFailed" if verb == "raise" else "IllegalTransition"
        field = {"answer": "outcome", "refuse": "verdict"}.get(verb)
        assert (kind, "timeout", "wrap_tool_execute", field) == culprit(error)
        result = partial_of(error)
    assert "ToolMessage:unknown" == shapes(result)[2]
    (settled,) = records(result.log, "tool_settled")
    outcome: Any = settled.facts["outcome"]
    assert ("unknown", 1) == (outcome["status"], outcome["attempts"])


async def test_c07_attempts_count_every_start_of_the_body() -> None:
    """A wrapper that runs the body three times and returns the first result: three attempts, all charged."""

    async def thrice(call_next: CallNext[CallState, CallState], asked: CallState) -> CallState:
        first = await call_next(asked)
        await call_next(asked)
        await call_next(asked)
        return first

    attempts: list[int] = []

    def look(state: CallState) -> CallState:
        assert state.outcome is not None
        attempts.append(state.outcome.attempts)
        return state

    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": 1}), "done"],
        tools=[bodies.pay()],
        capabilities=[evolve(ToolHook(thrice), key="thrice"), at("after_tool_execute", look, "look")],
    )
    result = await made.run("go")
    assert (3, 3, [3]) == (bodies.named("pay"), result.tool_calls, attempts)


@pytest.mark.parametrize("transport", ["result", "snapshot"])
async def test_c09_limits_survive_suspension(transport: str) -> None:
    """Tool limit 1 and five approved calls, one a step: the first is executed, the run ends by the limit."""
    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": i}) for i in range(5)],
        tools=[bodies.pay()],
        capabilities=[RequireApproval()],
        limits=Limits(tool_calls=1),
    )
    result = await made.run("go")
    assert ("suspended", 1, 0) == (result.status, len(result.pending), bodies.named("pay"))
    carried = result if transport == "result" else result.snapshot()
    error = await failure(made.resume(carried, {request.digest: Approve() for request in result.pending}))
    reason = error.reason
    assert isinstance(reason, LimitExceeded)
    assert ("tool_calls", 2, 1) == (reason.limit, reason.used, reason.allowed)
    assert [("pay", 0)] == bodies.ran
    partial = partial_of(error)
    assert 1 == partial.tool_calls
    assert ["ToolMessage:succeeded", "AssistantMessage", "ToolMessage:not_executed"] == shapes(partial)[-3:]


async def test_c09_five_approvals_in_one_batch_over_the_limit_ask_nobody() -> None:
    """A batch of five under tool limit 1 ends the run before anybody is asked; nothing is charged or run."""
    asked: list[object] = []

    def approve(requests: tuple[ApprovalRequest, ...]) -> list[Approve]:
        asked.append(requests)
        return [Approve() for _ in requests]

    bodies = Bodies()
    made = agent(
        [[call("pay", {"amount": i}) for i in range(5)]],
        tools=[bodies.pay()],
        capabilities=[RequireApproval()],
        limits=Limits(tool_calls=1),
        approver=approve,
    )
    error = await failure(made.run("go"))
    assert "LimitExceeded" == culprit(error)[0]
    assert ([], []) == (asked, bodies.ran)
    assert (0, ["ToolMessage:not_executed"] * 5) == (
        partial_of(error).tool_calls,
        shapes(partial_of(error))[-5:],
    )


@pytest.mark.parametrize("transport", ["result", "snapshot"])
async def test_c09_a_retrying_wrapper_has_no_more_after_a_resume(transport: str) -> None:
    """The share of a wrapper is what the run has left, also after a suspension."""
    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": 1})],
        tools=[bodies.pay()],
        capabilities=[RequireApproval(), retrying(5)],
        limits=Limits(tool_calls=2),
    )
    result = await made.run("go")
    carried = result if transport == "result" else result.snapshot()
    error = await failure(made.resume(carried, {result.pending[0].digest: Approve()}))
    assert "LimitExceeded" == culprit(error)[0]
    assert 2 == bodies.named("pay") == partial_of(error).tool_calls


@pytest.mark.parametrize("catch", [ModelError, Exception])
async def test_c10_a_retry_of_the_model_is_charged(catch: type[Exception]) -> None:
    """Under `requests=1`, a wrapper that asks again makes one provider call; the run ends by the limit."""

    async def again(call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        for _ in range(4):
            try:
                return await call_next(state)
            except catch:
                continue
        return state.respond(AssistantMessage("gave up"))

    down = ModelError("server", "down", retryable=True)
    made = agent(
        [down, "late"],
        capabilities=[evolve(hook.wrap_model_request(again), key="retry")],
        limits=Limits(requests=1),
    )
    error = await failure(made.run("go"))
    reason = error.reason
    assert isinstance(reason, LimitExceeded)
    assert ("requests", 1, 1) == (reason.limit, reason.used, reason.allowed)
    assert (1, 1) == (requests_of(made), partial_of(error).requests)


class Greedy(Capability):
    """Asks the model as often as it can in a gatherer, and swallows every error."""

    async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
        for _ in range(5):
            with contextlib.suppress(Exception):
                await outside.request([UserMessage("more")])
        return None


@pytest.mark.parametrize("limit", [1, 3])
async def test_c10_a_gatherers_requests_are_charged_to_the_run(limit: int) -> None:
    """A gatherer cannot outspend `requests`, whatever it catches: the run ends by the limit."""
    made = agent(["a"] * 9, capabilities=[Greedy()], limits=Limits(requests=limit))
    error = await failure(made.run("go"))
    reason = error.reason
    assert isinstance(reason, LimitExceeded)
    assert ("requests", limit, limit) == (reason.limit, reason.used, reason.allowed)
    assert (limit, limit) == (requests_of(made), partial_of(error).requests)


async def test_c10_a_request_that_a_wrapper_cut_short_is_charged() -> None:
    """A wrapper that gives up on the model and responds by itself has used a request all the same."""

    async def impatient(call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        with anyio.move_on_after(0.01):
            return await call_next(state)
        return state.respond(AssistantMessage("fallback"))

    async def hang(request: ModelRequest) -> str:
        await anyio.sleep_forever()
        return "never"

    made = agent([hang], capabilities=[evolve(hook.wrap_model_request(impatient), key="timeout")])
    result = await made.run("go")
    assert ("fallback", 1, 1) == (result.output, result.requests, requests_of(made))


@pytest.mark.parametrize("slow", [None, "a", "b"])
async def test_c13_the_last_unit_has_one_winner(slow: str | None) -> None:
    """Two retrying calls and one unit between them: the first in the batch gets it, whoever is faster."""
    ran: list[str] = []

    def worker(name: str) -> Any:
        async def body() -> str:
            """Work."""
            await anyio.sleep(0.02 if slow == name else 0)
            ran.append(name)
            return name

        return tool(body, name=name)

    made = agent(
        [[call("a"), call("b")], "done"],
        tools=[worker("a"), worker("b")],
        capabilities=[retrying(2, catch=())],
        limits=Limits(tool_calls=3),
    )
    error = await failure(made.run("go"))
    reason = error.reason
    assert isinstance(reason, LimitExceeded)
    partial = partial_of(error)
    first, second = (message for message in partial.messages if isinstance(message, ToolMessage))
    assert ("tool_calls", second.call_id, 0) == (reason.limit, reason.call, reason.share)
    assert (2, 1) == (ran.count("a"), ran.count("b"))
    assert 3 == partial.tool_calls
    assert (first.status, second.status) == ("succeeded", "succeeded")
