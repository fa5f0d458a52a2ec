"""The one loop over reducers: order, conditions, what a hook may return, who gets the blame."""

from collections.abc import Callable
from typing import cast

import pytest
from attrs import field, frozen

from capfold.capabilities import (
    CallState,
    Capability,
    Json,
    Outside,
    RunState,
    UserMessage,
    call,
    for_tools,
    hook,
    nested,
    when,
)
from capfold.runtime import Agent, HookError, HookFailed, IllegalTransition, InvalidReturn, ScriptedModel
from tests.runtime.desk import Trace, kinds, look, make, pay, seen


@frozen
class Step(Capability):
    """Writes its key down at each reducer."""

    trace: Trace = field(factory=Trace)

    def before_run(self, state: RunState) -> RunState:
        self.trace.add(f"{self.key}.before_run")
        return state

    def before_model_request(self, state: RunState) -> RunState:
        self.trace.add(f"{self.key}.before_model")
        return state

    def after_model_request(self, state: RunState) -> RunState:
        self.trace.add(f"{self.key}.after_model")
        return state

    def after_run(self, state: RunState) -> RunState:
        self.trace.add(f"{self.key}.after_run")
        return state

    def before_tool_execute(self, call: CallState) -> CallState:
        self.trace.add(f"{self.key}.before_tool")
        return call

    def admit_tool_execute(self, call: CallState) -> CallState:
        self.trace.add(f"{self.key}.admit")
        return call

    def after_tool_execute(self, call: CallState) -> CallState:
        self.trace.add(f"{self.key}.after_tool")
        return call


@frozen
class ToolStep(Capability):
    """Writes its key down after a tool call."""

    trace: Trace = field(factory=Trace)

    def after_tool_execute(self, call: CallState) -> CallState:
        self.trace.add(f"{self.key}.after_tool")
        return call


async def test_reducers_run_in_list_order() -> None:
    """Before and after alike; each hook of each capability once per point."""
    trace = Trace()
    agent = make([call("look", {"n": 1}), "done"], capabilities=[Step(trace, key="a"), Step(trace, key="b")])
    await agent.run("go")
    points = ["before_run", *["before_model", "after_model"], "before_tool", "admit", "after_tool"]
    points += ["before_model", "after_model", "after_run"]
    assert [f"{key}.{point}" for point in points for key in "ab"] == trace.lines


async def test_nested_reverses_after_hooks() -> None:
    """`nested` makes an onion of its members, and only of them."""
    trace = Trace()
    caps = [nested(Step(trace, key="a"), Step(trace, key="b")), Step(trace, key="c")]
    await make(["done"], capabilities=caps).run("go")
    after = [line for line in trace.lines if line.endswith("after_model")]
    assert ["b.after_model", "a.after_model", "c.after_model"] == after
    before = [line for line in trace.lines if line.endswith("before_model")]
    assert ["a.before_model", "b.before_model", "c.before_model"] == before


async def test_after_hooks_go_from_tool_to_agent() -> None:
    """The agent has the last word; a capability in two scopes is called once, at the outermost."""
    trace = Trace()
    tool_cap, both = ToolStep(trace, key="inner"), ToolStep(trace, key="both")
    agent = make(
        [call("look", {"n": 1}), "done"],
        tools=[look.with_capabilities(tool_cap, both)],
        capabilities=[both, ToolStep(trace, key="agent")],
    )
    await agent.run("go")
    assert ["inner.after_tool", "both.after_tool", "agent.after_tool"] == trace.lines


async def test_outermost_place_whose_condition_holds() -> None:
    """Where the outer place's condition is false, the inner one takes its turn."""
    trace = Trace()
    both = ToolStep(trace, key="both")
    agent = make(
        [call("look", {"n": 1}), "done"],
        tools=[look.with_capabilities(both)],
        capabilities=[when(lambda run: False, both)],
    )
    await agent.run("go")
    assert ["both.after_tool"] == trace.lines


async def test_condition_is_asked_once_per_point() -> None:
    """A `when` is evaluated on the record the point begins with, not after each hook."""
    asked: list[int] = []

    def fresh(state: RunState) -> bool:
        asked.append(state.run_step)
        return not state.notes

    @hook.before_model_request
    def notes(state: RunState) -> RunState:
        return state.note("n")

    trace = Trace()
    await make(["done"], capabilities=[notes, when(fresh, Step(trace, key="a"))]).run("go")
    assert "a.before_model" in trace.lines
    assert "a.after_model" not in trace.lines
    assert 1 == asked.count(0)  # before_run


async def test_for_tools_covers_its_tools_only() -> None:
    """Under for_tools a tool hook is called for what it names."""
    trace = Trace()
    caps = [for_tools({"pay"}, ToolStep(trace, key="a"))]
    agent = make([[call("look", {"n": 1}), call("pay", {"amount": 1})], "done"], capabilities=caps)
    result = await agent.run("go")
    assert ["a.after_tool"] == trace.lines
    assert "completed" == result.status


@pytest.mark.parametrize("point", ["before_run", "before_model_request", "after_model_request", "after_run"])
async def test_raising_hook_is_named(point: str) -> None:
    """The error names capability, index, hook and step, and carries the cause; the log ends properly."""

    def explode(state: RunState) -> RunState:
        raise KeyError("gone")

    decorate = cast(Callable[[object], Capability], getattr(hook, point))
    agent = make(["done"], capabilities=[ToolStep(key="first"), decorate(explode)])
    with pytest.raises(HookError) as caught:
        await agent.run("go")
    reason = caught.value.reason
    assert isinstance(reason, HookFailed)
    assert (1, point, "KeyError") == (reason.index, reason.hook, reason.error)
    assert reason.key is not None
    assert reason.key.endswith("explode")
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.partial is not None
    assert "run_ended" == kinds(caught.value.partial)[-1]


def _wrong(value: object) -> Callable[[RunState], RunState]:
    def wrong(state: RunState) -> RunState:
        return value  # type: ignore[return-value]  # that is the point

    return wrong


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "did you forget"), ("text", "str"), (CallState(), "CallState")],
    ids=["None", "str", "CallState"],
)
async def test_wrong_return_is_named(value: object, text: str) -> None:
    """A hook returns its own record class; the message says what it returned instead."""
    agent = make(["done"], capabilities=[hook.before_run(_wrong(value))])
    with pytest.raises(HookError) as caught:
        await agent.run("go")
    assert isinstance(caught.value.reason, InvalidReturn)
    assert text in caught.value.reason.message


async def test_subclass_of_the_record_is_refused() -> None:
    """A subclass could carry what nobody checks."""

    class More(RunState):
        pass

    agent = make(["done"], capabilities=[hook.before_run(_wrong(More()))])
    with pytest.raises(HookError, match="subclass"):
        await agent.run("go")


async def test_coroutine_is_closed_and_named() -> None:
    """A reducer that hands on a coroutine is told so, and nothing is left un-awaited."""

    async def later() -> None: ...

    agent = make(["done"], capabilities=[hook.before_run(lambda state: later())])  # type: ignore[arg-type,return-value]  # wrong on purpose
    with pytest.raises(HookError, match="a reducer is a plain function"):
        await agent.run("go")


async def test_condition_that_raises_or_returns_no_bool() -> None:
    """A predicate is the capability's own: it is named."""

    def raises(state: RunState) -> bool:
        raise ZeroDivisionError

    def truthy(state: RunState) -> bool:
        return cast(bool, "yes")

    for predicate, kind in ((raises, HookFailed), (truthy, InvalidReturn)):
        with pytest.raises(HookError) as caught:
            await make(["done"], capabilities=[when(predicate, Step(key="a"))]).run("go")
        assert isinstance(caught.value.reason, kind)
        assert "a" == caught.value.reason.key


async def test_fact_is_for_its_own_hook_and_capability() -> None:
    """`fact(self)` is what the own gatherer of this hook returned; others see None, and it does not stay."""
    facts: list[object] = []

    @frozen
    class Gathers(Capability):
        def before_model_request(self, state: RunState) -> RunState:
            facts.append(state.fact(self))
            return state.note("x")

        async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
            return {"of": self.key}  # type: ignore[return-value]  # plain JSON is frozen on arrival

        def after_model_request(self, state: RunState) -> RunState:
            facts.append(state.fact(self))
            return state

    @frozen
    class Looks(Capability):
        def before_model_request(self, state: RunState) -> RunState:
            facts.append(state.fact(self))
            facts.append(dict(state.facts))
            return state

    result = await make(["done"], capabilities=[Gathers(), Looks()]).run("go")
    assert [{"of": "Gathers"}, None, {}, None] == facts
    assert {} == result.state.facts


async def test_hook_cannot_forge_a_fact() -> None:
    """Facts are sealed: what came from outside is what was journaled."""

    @hook.before_model_request
    def forge(state: RunState) -> RunState:
        from attrs import evolve  # noqa: PLC0415  # used here alone

        return evolve(state, facts={"x": 1})

    with pytest.raises(HookError) as caught:
        await make(["done"], capabilities=[forge]).run("go")
    assert isinstance(caught.value.reason, IllegalTransition)
    assert "facts" == caught.value.reason.field


async def test_audit_all_writes_every_call() -> None:
    """With audit="all" a hook that changed nothing is on record too."""
    agent = make([call("pay", {"amount": 1}), "done"], capabilities=[Step(key="a")], audit="all", tools=[pay])
    result = await agent.run("go")
    hooks = [name for _, name in seen(result, "transition")]
    assert [
        "before_run", "before_model_request", "after_model_request", "before_tool_execute",
        "admit_tool_execute",
        "after_tool_execute", "before_model_request", "after_model_request", "after_run",
    ] == hooks  # fmt: skip


async def test_messages_that_hooks_bring_in_bear_the_clock_s_time() -> None:
    """In the history and in a view of the same hook alike; a time that a hook set itself stays."""
    own = UserMessage("own", at=7.0)

    def brings(state: RunState) -> RunState:
        state = state.append(UserMessage("more"), own)
        return state.project(state.view[:2])

    model = ScriptedModel(["done"])
    result = await Agent("a", model, capabilities=[hook.before_model_request(brings)]).run("go")
    times = [message.at for message in result.messages]
    assert None not in times
    assert 7.0 == times[2]
    assert times[:2] == [message.at for message in model.requests[0].messages]
