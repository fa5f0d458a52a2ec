"""Wrappers around model, tool and run: order, what may pass each edge, and every misuse by name."""

from collections.abc import Awaitable, Callable

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
    SystemMessage,
    ToolFailed,
    ToolHook,
    UserMessage,
    call,
    hook,
    when,
)
from capfold.capabilities.records import replace
from capfold.runtime import (
    Approve,
    BlockedError,
    HookError,
    HookFailed,
    IllegalTransition,
    InvalidReturn,
    InvalidView,
    LimitError,
    Limits,
    ModelError,
    ModelFailed,
    ModelRunError,
    RunError,
    ScriptedModel,
)
from capfold.runtime.scripted_model import Reply
from tests.runtime.desk import (
    Ends,
    Observer,
    Trace,
    check_closed,
    contents,
    kinds,
    look,
    make,
    partial,
    results,
    seen,
    slow,
)

RunNext = CallNext[RunState, RunState]
ToolNext = CallNext[CallState, CallState]
DOWN = ModelError("server", "down", retryable=True)


@frozen
class Layer(Capability):
    """Writes down when it is entered and left, at all three wrappers."""

    trace: Trace = field(factory=Trace)

    async def _through(self, name: str, go_on: Callable[[], Awaitable[RunState]]) -> RunState:
        self.trace.add(f"{self.key} {name} in")
        after = await go_on()
        self.trace.add(f"{self.key} {name} out")
        return after

    async def wrap_run(self, call_next: RunNext, state: RunState) -> RunState:
        return await self._through("run", lambda: call_next(state))

    async def wrap_model_request(self, call_next: RunNext, state: RunState) -> RunState:
        return await self._through("model", lambda: call_next(state))

    async def wrap_tool_execute(self, call_next: ToolNext, call: CallState) -> CallState:
        self.trace.add(f"{self.key} tool in")
        after = await call_next(call)
        self.trace.add(f"{self.key} tool out")
        return after


async def test_first_listed_is_outermost() -> None:
    """All three onions nest in list order."""
    trace = Trace()
    await make(
        [call("look", {"n": 1}), "done"], capabilities=[Layer(trace, key="a"), Layer(trace, key="b")]
    ).run("go")
    for name in ("run", "model", "tool"):
        lines = [line for line in trace.lines if f" {name} " in line][:4]
        assert [f"a {name} in", f"b {name} in", f"b {name} out", f"a {name} out"] == lines
    assert ["a run in", "b run in"] == trace.lines[:2]
    assert ["b run out", "a run out"] == trace.lines[-2:]


async def test_wrapper_under_a_condition() -> None:
    """A wrapper whose condition is false is not entered."""
    trace = Trace()
    await make(["done"], capabilities=[when(lambda state: state.run_step > 0, Layer(trace, key="a"))]).run(
        "go"
    )
    assert ["a model in", "a model out"] == trace.lines


# --- model


def model_wrapper(fn: Callable[[RunNext, RunState], Awaitable[RunState]]) -> Capability:
    """Make a capability of a model wrapper."""
    return hook.wrap_model_request(fn)


async def test_model_wrapper_tunes_the_request() -> None:
    """Settings, instructions, model and view may change on the way in; the log shows by whom."""
    other = ScriptedModel(["from other"], name="other")

    async def tunes(call_next: RunNext, state: RunState) -> RunState:
        tuned = state.with_settings(seed=3).with_instructions("Be brief.").with_model(other)
        return await call_next(tuned.project(state.view[-1:]))

    history = (UserMessage("old"), AssistantMessage("a"))
    result = await make(capabilities=[model_wrapper(tunes)]).run("go", messages=history)
    (request,) = other.requests
    assert ({"seed": 3}, "Be brief.", (UserMessage("go"),)) == (
        request.settings, request.instructions, request.messages
    )  # fmt: skip
    assert "from other" == result.output
    assert 1 == len(seen(result, "transition"))


async def test_cache_hit_costs_nothing() -> None:
    """`respond` without call_next: no request is charged, inner wrappers are skipped, after hooks run."""
    trace = Trace()
    model = ScriptedModel([])

    async def caches(call_next: RunNext, state: RunState) -> RunState:
        return state.respond(AssistantMessage("cached"))

    @hook.after_model_request
    def watch(state: RunState) -> RunState:
        trace.add("after")
        return state

    result = await make(model=model, capabilities=[model_wrapper(caches), Layer(trace, key="b"), watch]).run(
        "go"
    )
    assert ("cached", 0) == (result.output, result.requests)
    assert ["b run in", "after", "b run out"] == trace.lines


async def test_cache_may_give_the_same_answer_twice() -> None:
    """A response equal to the one of the step before is a response."""

    async def caches(call_next: RunNext, state: RunState) -> RunState:
        return state.respond(AssistantMessage("same"))

    @hook.after_model_request
    def again(state: RunState) -> RunState:
        return state.ask_again("really?") if state.run_step == 1 else state

    result = await make(model=ScriptedModel([]), capabilities=[model_wrapper(caches), again]).run("go")
    assert ("same", 2) == (result.output, result.steps)


async def test_retry_and_fallback_by_a_wrapper() -> None:
    """A model failure raises ModelError; the wrapper may try again, each attempt charged, or respond."""

    async def retries(call_next: RunNext, state: RunState) -> RunState:
        try:
            return await call_next(state)
        except ModelError:
            return await call_next(state)

    async def answers(call_next: RunNext, state: RunState) -> RunState:
        try:
            return await call_next(state)
        except ModelError:
            return state.respond(AssistantMessage("sorry"))

    result = await make([DOWN, "done"], capabilities=[model_wrapper(retries)]).run("go")
    assert ("done", 2) == (result.output, result.requests)
    result = await make([DOWN], capabilities=[model_wrapper(answers)]).run("go")
    assert ("sorry", 1) == (result.output, result.requests)


async def test_model_error_goes_through_wrappers() -> None:
    """Nobody catches it: the run fails as a model failure, not as a hook's."""
    with pytest.raises(ModelRunError) as caught:
        await make([DOWN], capabilities=[Layer(key="a"), Layer(key="b")]).run("go")
    assert isinstance(caught.value.reason, ModelFailed)


async def _nothing(call_next: RunNext, state: RunState) -> RunState:
    return state


async def _none(call_next: RunNext, state: RunState) -> RunState:
    await call_next(state)
    return None  # type: ignore[return-value]  # that is the point


async def _forged_response(call_next: RunNext, state: RunState) -> RunState:
    return (await call_next(state)).respond(AssistantMessage("forged"))


async def _response_inward(call_next: RunNext, state: RunState) -> RunState:
    return await call_next(state.respond(AssistantMessage("forged")))


async def _selects(call_next: RunNext, state: RunState) -> RunState:
    return await call_next(state.select_tools({"look"}))


async def _slot(call_next: RunNext, state: RunState) -> RunState:
    return replace(await call_next(state), slots=state.slots.assoc("x", 1))


async def _appends(call_next: RunNext, state: RunState) -> RunState:
    return await call_next(state.append(UserMessage("x")))


async def _unbalanced(call_next: RunNext, state: RunState) -> RunState:
    return await call_next(state.project((SystemMessage("only"),)))


async def _raises(call_next: RunNext, state: RunState) -> RunState:
    await call_next(state)
    raise OSError("broke")


async def _raises_model_error(call_next: RunNext, state: RunState) -> RunState:
    raise ModelError("script", "mine", retryable=False)


async def _inner_run(call_next: RunNext, state: RunState) -> RunState:
    await make([DOWN]).run("inner")
    return await call_next(state)


@pytest.mark.parametrize(
    ("wrapper", "kind", "name", "text"),
    [
        (_nothing, InvalidReturn, None, "returned no response"),
        (_none, InvalidReturn, None, "must return a RunState"),
        (_forged_response, IllegalTransition, "response", "return a response it got"),
        (_response_inward, IllegalTransition, "response", "stands for call_next"),
        (_selects, IllegalTransition, "tools", "before_model_request"),
        (_slot, IllegalTransition, "slots", "own slot"),
        (_appends, IllegalTransition, "messages", "append"),
        (_unbalanced, InvalidView, "request_messages", "no message"),
        (_raises, HookFailed, None, "OSError"),
        (_raises_model_error, HookFailed, None, "mine"),
        (_inner_run, HookFailed, None, "down"),
    ],
)
async def test_misuse_of_a_model_wrapper(
    wrapper: Callable[[RunNext, RunState], Awaitable[RunState]], kind: type, name: str | None, text: str
) -> None:
    """Each ends the run by key, index, hook and perhaps field; even if an outer one swallows it."""

    async def swallows(call_next: RunNext, state: RunState) -> RunState:
        try:
            return await call_next(state)
        except Exception:  # noqa: BLE001  # that is the point
            return state.respond(AssistantMessage("nothing happened"))

    for outer in ([], [model_wrapper(swallows)]):
        with pytest.raises(HookError) as caught:
            await make(["done"], capabilities=[*outer, model_wrapper(wrapper)]).run("go")
        reason = caught.value.reason
        assert isinstance(reason, kind)
        assert (len(outer), "wrap_model_request", 1, name) == (
            reason.index,
            reason.hook,
            reason.step,
            reason.field,
        )
        assert text in reason.message
        partial(caught.value)


async def test_model_wrapper_forges_a_counter() -> None:
    """Put back at its edge, on record, and the run goes on."""

    async def forges(call_next: RunNext, state: RunState) -> RunState:
        return replace(await call_next(replace(state, requests=50)), requests=70)

    result = await make(["done"], capabilities=[model_wrapper(forges)]).run("go")
    assert (1, 2) == (result.requests, len(seen(result, "restored")))


async def test_model_wrapper_stops() -> None:
    """A stop instead of a request ends the run as a result."""

    async def stops(call_next: RunNext, state: RunState) -> RunState:
        return state.stop("no budget")

    result = await make(["done"], capabilities=[model_wrapper(stops)]).run("go")
    assert ("stopped", "no budget", 0) == (result.status, result.output, result.requests)


async def test_limit_inside_a_wrapper_ends_the_run() -> None:
    """A wrapper that retries past the limit cannot catch its way out."""

    async def stubborn(call_next: RunNext, state: RunState) -> RunState:
        for _ in range(5):
            try:
                return await call_next(state)
            except Exception:  # noqa: BLE001  # that is the point
                await call_next.sleep(0)
        return state.respond(AssistantMessage("anyway"))

    model = ScriptedModel([DOWN, DOWN, DOWN, "done"])
    with pytest.raises(LimitError) as caught:
        await make(model=model, capabilities=[model_wrapper(stubborn)], limits=Limits(requests=2)).run("go")
    assert (2, 2) == (len(model.requests), partial(caught.value).requests)


async def test_call_next_carries_what_a_wrapper_needs() -> None:
    """deps, attempt, a key that is stable, sleep, random."""
    found: list[object] = []

    async def looks(call_next: RunNext, state: RunState) -> RunState:
        found.extend((call_next.deps, call_next.attempt, call_next.idempotency_key, call_next.random()))
        return await call_next(state)

    await make(["done"], capabilities=[evolve(model_wrapper(looks), key="w")]).run("go", deps={"a": 1})
    assert [{"a": 1}, 1, "run:1::w", 0.5] == found


# --- tool


async def test_tool_wrapper_sees_a_failure_as_a_record() -> None:
    """A tool that raises comes back as an outcome; the wrapper may answer over a known failure."""

    def fails(n: int) -> str:
        raise ToolFailed("no")

    async def answers(call_next: ToolNext, call: CallState) -> CallState:
        done = await call_next(call)
        assert done.outcome is not None
        return done.answer("cached") if done.outcome.status == "failed" else done

    result = await make(
        [call("t", {"n": 1}), "done"], tools=[slow("t", fails)], capabilities=[ToolHook(answers)]
    ).run("go")
    assert [("t", "answered")] == results(result.messages)
    assert ["cached"] == contents(result.messages)


async def test_tool_wrapper_refuses_and_answers() -> None:
    """Without call_next: the body and inner wrappers are skipped, after hooks are not."""
    trace = Trace()

    async def guards(call_next: ToolNext, call: CallState) -> CallState:
        return call.refuse("no") if call.index == 0 else call.answer("yes")

    agent = make(
        [[call("look", {"n": 1}), call("look", {"n": 2})], "done"],
        capabilities=[ToolHook(guards), Layer(trace, key="b"), Observer(trace)],
    )
    result = await agent.run("go")
    assert ["no", "yes"] == contents(result.messages)
    assert ["look:denied", "look:answered"] == [line for line in trace.lines if line.startswith("look")]
    assert not [line for line in trace.lines if line.startswith("b tool")]


async def test_tool_wrapper_changes_content() -> None:
    """Content and metadata after call_next; the own after hook reads the metadata."""
    read: list[object] = []

    @frozen
    class Masks(Capability):
        async def wrap_tool_execute(self, call_next: ToolNext, call: CallState) -> CallState:
            return (await call_next(call)).with_content("masked", metadata={"took": 3})

        def after_tool_execute(self, call: CallState) -> CallState:
            assert call.outcome is not None
            read.append(call.outcome.metadata["took"])
            return call.put(self, None)

    result = await make([call("look", {"n": 1}), "done"], capabilities=[Masks()]).run("go")
    assert (["masked"], [3]) == (contents(result.messages), read)


async def _tool_nothing(call_next: ToolNext, call: CallState) -> CallState:
    return call


async def _tool_none(call_next: ToolNext, call: CallState) -> CallState:
    await call_next(call)
    return None  # type: ignore[return-value]  # that is the point


async def _tool_refuses_late(call_next: ToolNext, call: CallState) -> CallState:
    return (await call_next(call)).refuse("too late")


async def _tool_answers_over_success(call_next: ToolNext, call: CallState) -> CallState:
    return (await call_next(call)).answer("instead")


async def _tool_turns_status(call_next: ToolNext, call: CallState) -> CallState:
    done = await call_next(call)
    assert done.outcome is not None
    return replace(done, outcome=evolve(done.outcome, status="failed"))


async def _tool_verdict_inward(call_next: ToolNext, call: CallState) -> CallState:
    return await call_next(call.refuse("but run"))


async def _tool_arguments(call_next: ToolNext, call: CallState) -> CallState:
    return await call_next(call.with_arguments({"n": 1000}))


async def _tool_slot(call_next: ToolNext, call: CallState) -> CallState:
    done = await call_next(call)
    return replace(done, run=replace(done.run, slots=done.run.slots.assoc("x", 1)))


async def _tool_raises(call_next: ToolNext, call: CallState) -> CallState:
    await call_next(call)
    raise OSError("broke")


async def _tool_inner_run(call_next: ToolNext, call: CallState) -> CallState:
    await make([DOWN]).run("inner")
    return await call_next(call)


@pytest.mark.parametrize(
    ("wrapper", "kind", "text", "status"),
    [
        (_tool_nothing, InvalidReturn, "returned without an outcome", "not_executed"),
        (_tool_none, InvalidReturn, "must return a CallState", "succeeded"),
        (_tool_refuses_late, IllegalTransition, "cannot be refused", "succeeded"),
        (_tool_answers_over_success, IllegalTransition, "not succeeded", "succeeded"),
        (_tool_turns_status, IllegalTransition, "status", "succeeded"),
        (_tool_verdict_inward, IllegalTransition, "stand for call_next", "not_executed"),
        (_tool_arguments, IllegalTransition, "before_tool_execute", "not_executed"),
        (_tool_slot, IllegalTransition, "own slot", "succeeded"),
        (_tool_raises, HookFailed, "OSError", "succeeded"),
        (_tool_inner_run, HookFailed, "down", "not_executed"),
    ],
)
async def test_misuse_of_a_tool_wrapper(
    wrapper: Callable[[ToolNext, CallState], Awaitable[CallState]], kind: type, text: str, status: str
) -> None:
    """Each ends the run by name, also beneath a wrapper that swallows; what the body did stays on record."""

    async def swallows(call_next: ToolNext, call: CallState) -> CallState:
        try:
            return await call_next(call)
        except Exception:  # noqa: BLE001  # that is the point
            return call.answer("nothing happened")

    with pytest.raises(HookError) as caught:
        await make([call("look", {"n": 1})], capabilities=[ToolHook(wrapper)]).run("go")
    reason = caught.value.reason
    assert isinstance(reason, kind)
    assert ("wrap_tool_execute", "call_1_0") == (reason.hook, reason.call)
    assert text in reason.message
    assert [("look", status)] == results(partial(caught.value).messages)
    with pytest.raises(HookError):
        await make(
            [call("look", {"n": 1})], capabilities=[ToolHook(swallows), ToolHook(wrapper, key="w")]
        ).run("go")


async def test_tool_wrapper_stops_instead() -> None:
    """A stop without call_next: not executed, and the run ends stopped."""

    async def stops(call_next: ToolNext, call: CallState) -> CallState:
        return call.stop("enough")

    result = await make([call("look", {"n": 1})], capabilities=[ToolHook(stops)]).run("go")
    assert ("stopped", [("look", "not_executed")]) == (result.status, results(result.messages))
    assert result.stop is not None
    assert "call_1_0" == result.stop.call_id


async def test_retrying_wrapper_counts_attempts() -> None:
    """Each body run gets its number; the outcome says how many there were; the call's key stays."""
    attempts: list[tuple[int, str]] = []
    from capfold.capabilities import ToolContext  # noqa: PLC0415  # used here alone

    def flaky(n: int, context: ToolContext) -> str:
        attempts.append((context.attempt, context.idempotency_key))
        if context.attempt < 3:
            raise ToolFailed("not yet")
        return "ok"

    async def retries(call_next: ToolNext, call: CallState) -> CallState:
        while True:
            done = await call_next(call)
            if done.outcome is None or done.outcome.status == "succeeded":
                return done

    result = await make(
        [call("t", {"n": 1}), "done"], tools=[slow("t", flaky)], capabilities=[ToolHook(retries)]
    ).run("go")
    assert [(i, "run:1:call_1_0") for i in (1, 2, 3)] == attempts
    assert 3 == result.tool_calls


async def test_scoped_wrapper_covers_its_tool() -> None:
    """A wrapper on one tool is entered for that tool only, inside the agent's."""
    trace = Trace()

    @frozen
    class Wraps(Capability):
        async def wrap_tool_execute(self, call_next: ToolNext, call: CallState) -> CallState:
            trace.add(f"{self.key} {call.name}")
            return await call_next(call)

    agent = make(
        [[call("look", {"n": 1}), call("pay", {"amount": 1})], "done"],
        tools=[look.with_capabilities(Wraps(key="own")), make().tools[1]],
        capabilities=[Wraps(key="all")],
    )
    await agent.run("go")
    assert ["all look", "all pay", "own look"] == sorted(trace.lines)
    assert trace.lines.index("all look") < trace.lines.index("own look")


# --- run


def run_wrapper(fn: Callable[[RunNext, RunState], Awaitable[RunState]]) -> Capability:
    """Make a capability of a run wrapper."""
    return hook.wrap_run(fn)


@pytest.mark.parametrize("how", ["completed", "stopped", "failed", "suspended"])
async def test_run_wrapper_sees_every_ending(how: str) -> None:
    """It is left on every kind of exit, with the final state and its status, and never an exception."""
    statuses: list[str] = []

    async def watches(call_next: RunNext, state: RunState) -> RunState:
        after = await call_next(state)
        statuses.append(after.status)
        return after

    scripts: dict[str, list[Reply]] = {"failed": [DOWN], "suspended": [call("pay", {"amount": 1})]}
    script = scripts.get(how, ["done"])
    capabilities = [run_wrapper(watches)]
    if how == "stopped":
        capabilities.append(hook.before_run(lambda state: state.stop("s")))
    if how == "suspended":
        capabilities.append(RequireApproval())
    agent = make(script, capabilities=capabilities)
    if how == "failed":
        with pytest.raises(ModelRunError):
            await agent.run("go")
    else:
        assert how == (await agent.run("go")).status
    assert [how] == statuses


async def test_run_wrapper_stops_before_and_after() -> None:
    """A stop on the way in prevents the run; one on the way out withholds the output."""

    async def inward(call_next: RunNext, state: RunState) -> RunState:
        return await call_next(state.stop("closed"))

    async def outward(call_next: RunNext, state: RunState) -> RunState:
        return (await call_next(state)).stop("held")

    async def fails(call_next: RunNext, state: RunState) -> RunState:
        return (await call_next(state)).fail("no")

    trace = Trace()
    result = await make(["done"], capabilities=[run_wrapper(inward), Ends(trace)]).run("go")
    assert ("stopped", "closed", 0) == (result.status, result.output, result.requests)
    result = await make(["secret"], capabilities=[run_wrapper(outward)]).run("go")
    assert ("stopped", "held") == (result.status, result.output)
    assert "secret" not in str(result.messages)
    with pytest.raises(BlockedError) as caught:
        await make(["secret"], capabilities=[run_wrapper(fails)]).run("go")
    assert "secret" not in str(partial(caught.value).messages)


async def _run_never(call_next: RunNext, state: RunState) -> RunState:
    return state


async def _run_twice(call_next: RunNext, state: RunState) -> RunState:
    await call_next(state)
    return await call_next(state)


async def _run_raises_in(call_next: RunNext, state: RunState) -> RunState:
    raise OSError("in")


async def _run_raises_out(call_next: RunNext, state: RunState) -> RunState:
    await call_next(state)
    raise OSError("out")


async def _run_writes_in(call_next: RunNext, state: RunState) -> RunState:
    return await call_next(state.append(UserMessage("x")))


async def _run_writes_out(call_next: RunNext, state: RunState) -> RunState:
    return replace(await call_next(state), output="forged")


async def _run_inner(call_next: RunNext, state: RunState) -> RunState:
    after = await call_next(state)
    await make([DOWN]).run("inner")
    return after


@pytest.mark.parametrize(
    ("wrapper", "kind", "text", "requests"),
    [
        (_run_never, InvalidReturn, "without call_next", 0),
        (_run_twice, InvalidReturn, "twice", 1),
        (_run_raises_in, HookFailed, "OSError: in", 0),
        (_run_raises_out, HookFailed, "OSError: out", 1),
        (_run_writes_in, IllegalTransition, "messages", 0),
        (_run_writes_out, IllegalTransition, "output", 1),
        (_run_inner, HookFailed, "down", 1),
    ],
)
async def test_misuse_of_a_run_wrapper(
    wrapper: Callable[[RunNext, RunState], Awaitable[RunState]], kind: type, text: str, requests: int
) -> None:
    """Each ends the run by name; outer wrappers still see how it ended; the log ends once."""
    trace = Trace()
    with pytest.raises(HookError) as caught:
        await make(["done"], capabilities=[Layer(trace, key="outer"), run_wrapper(wrapper)]).run("go")
    reason = caught.value.reason
    assert isinstance(reason, kind)
    assert (1, "wrap_run") == (reason.index, reason.hook)
    assert text in reason.message
    assert ["outer run in", "outer run out"] == [line for line in trace.lines if " run " in line]
    result = partial(caught.value)
    assert requests == result.requests
    assert 1 == kinds(result).count("run_ended")


async def test_run_wrapper_is_entered_again_on_resume() -> None:
    """Once for each part of the run; a stop on the way in keeps the approved call from running."""
    trace = Trace()
    agent = make(
        [call("pay", {"amount": 1}), "done"], capabilities=[Layer(trace, key="a"), RequireApproval()]
    )
    waiting = await agent.run("go")
    result = await agent.resume(waiting, {waiting.pending[0].digest: Approve()})
    assert "completed" == result.status
    assert ["a run in", "a run out"] * 2 == [line for line in trace.lines if " run " in line]


@pytest.mark.parametrize("latch", ["stop", "fail"])
async def test_latch_on_the_way_in_of_a_resumed_run(latch: str) -> None:
    """What was approved does not run when the run is closed meanwhile; the call has its outcome."""
    entered: list[int] = []

    async def closes(call_next: RunNext, state: RunState) -> RunState:
        entered.append(1)
        if len(entered) == 1:
            return await call_next(state)
        return await call_next(state.stop("closed") if latch == "stop" else state.fail("closed"))

    agent = make([call("pay", {"amount": 1}), "done"], capabilities=[run_wrapper(closes), RequireApproval()])
    waiting = await agent.run("go")
    decisions = {waiting.pending[0].digest: Approve()}
    if latch == "stop":
        result = await agent.resume(waiting, decisions)
        assert "stopped" == result.status
        messages = result.messages
    else:
        with pytest.raises(BlockedError) as caught:
            await agent.resume(waiting, decisions)
        messages = partial(caught.value).messages
    assert [("pay", "not_executed")] == results(messages)
    check_closed(messages)


async def test_broken_wrapper_around_a_suspended_run() -> None:
    """A wrapper that raises on the way out ends the run, though it only waited; nothing ran."""
    agent = make([call("pay", {"amount": 1})], capabilities=[run_wrapper(_run_raises_out), RequireApproval()])
    with pytest.raises(RunError, match="out") as caught:
        await agent.run("go")
    assert [("pay", "not_executed")] == results(partial(caught.value).messages)


async def test_wrapper_may_answer_in_parallel() -> None:
    """Wrappers of one batch run side by side."""
    inside = 0
    most = 0

    async def counts(call_next: ToolNext, call: CallState) -> CallState:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await anyio.sleep(0.005)
        inside -= 1
        return await call_next(call)

    await make([[call("look", {"n": i}) for i in range(3)], "done"], capabilities=[ToolHook(counts)]).run(
        "go"
    )
    assert 3 == most
