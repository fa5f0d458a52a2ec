"""Gatherers: all at once, bounded, journaled, charged; the first in list order that failed is named."""

import anyio
import pytest
from attrs import field, frozen

from capfold.capabilities import (
    AssistantMessage,
    CallState,
    Capability,
    Json,
    Outside,
    RunState,
    Usage,
    UserMessage,
    call,
    when,
)
from capfold.runtime import (
    HookError,
    HookFailed,
    InvalidReturn,
    LimitError,
    Limits,
    ModelError,
    ScriptedModel,
)
from tests.runtime.desk import Trace, kinds, make, partial, seen


@frozen
class Gathers(Capability):
    """Brings a fact in before each request."""

    trace: Trace = field(factory=Trace)
    what: str = "fact"

    async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
        self.trace.add(f"{self.key} in")
        await outside.sleep(0.001)
        match self.what:
            case "raise":
                raise LookupError(self.key)
            case "hang":
                await anyio.sleep_forever()
            case "object":
                return object()  # type: ignore[return-value]  # that is the point
            case "nan":
                return float("nan")
            case "timeout":
                raise TimeoutError("of its own")
        self.trace.add(f"{self.key} out")
        return f"{self.what} {state.run_step}"

    def before_model_request(self, state: RunState) -> RunState:
        fact = state.fact(self)
        return state.add_instructions(str(fact))


async def test_all_gather_at_once_and_are_journaled() -> None:
    """Both begin before either ends; each result is one record, in list order."""
    trace = Trace()
    model = ScriptedModel(["done"])
    result = await make(
        model=model, capabilities=[Gathers(trace, "x", key="a"), Gathers(trace, "y", key="b")]
    ).run("go")
    assert {"a in", "b in"} == set(trace.lines[:2])
    assert "x 1\n\ny 1" == model.requests[0].instructions
    records = [record for record in result.log if record.kind == "gathered"]
    assert [("a", "x 1"), ("b", "y 1")] == [(record.actor, record.facts["fact"]) for record in records]
    assert {"gather_before_model_request"} == {record.hook for record in records}


@pytest.mark.parametrize(
    ("what", "kind", "text"),
    [
        ("raise", HookFailed, "LookupError"),
        ("hang", HookFailed, "no result within 0.05 seconds"),
        ("object", InvalidReturn, "must return JSON"),
        ("nan", InvalidReturn, "must return JSON"),
        ("timeout", HookFailed, "of its own"),
    ],
)
async def test_failing_gatherer_is_named(what: str, kind: type, text: str) -> None:
    """It ends the run by capability, index and hook; nothing was asked of the model."""
    model = ScriptedModel(["done"])
    agent = make(
        model=model,
        capabilities=[Gathers(key="a"), Gathers(what=what, key="b")],
        limits=Limits(tool_timeout=0.05),
    )
    with pytest.raises(HookError) as caught:
        await agent.run("go")
    reason = caught.value.reason
    assert isinstance(reason, kind)
    assert ("b", 1, "gather_before_model_request") == (reason.key, reason.index, reason.hook)
    assert text in reason.message
    assert () == model.requests
    partial(caught.value)


async def test_first_in_list_order_is_named() -> None:
    """Two fail: the first of the list is named, whichever failed first."""
    with pytest.raises(HookError) as caught:
        await make(capabilities=[Gathers(what="raise", key="a"), Gathers(what="object", key="b")]).run("go")
    assert "a" == caught.value.reason.key


async def test_condition_is_asked_before_the_gatherer() -> None:
    """Under a `when` that is false, neither gatherer nor reducer is called."""
    trace = Trace()
    await make(["done"], capabilities=[when(lambda state: False, Gathers(trace))]).run("go")
    assert [] == trace.lines


@frozen
class Asks(Capability):
    """Asks a model of its own before the request."""

    times: int = 1

    async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
        answers = [await outside.request([UserMessage("is this fine?")]) for _ in range(self.times)]
        return answers[-1].text if answers else None

    def before_model_request(self, state: RunState) -> RunState:
        return state.note(str(state.fact(self)))


async def test_requests_of_a_gatherer_are_charged() -> None:
    """They count as the run's requests, and their tokens as its tokens."""
    model = ScriptedModel(
        ["fine", "done"], usage=Usage(input_tokens=3, output_tokens=1, cached_tokens=0, reasoning_tokens=0)
    )
    result = await make(model=model, capabilities=[Asks()]).run("go")
    assert (2, 8, ("fine",)) == (result.requests, result.usage.total, result.state.notes)


async def test_requests_of_a_gatherer_are_bounded() -> None:
    """The run's limit holds inside a gatherer, and ends the run whatever the gatherer makes of it."""

    @frozen
    class Swallows(Asks):
        async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
            for _ in range(3):
                try:
                    await outside.request([UserMessage("?")])
                except Exception:  # noqa: BLE001  # that is the point
                    return "swallowed"
            return None

    model = ScriptedModel(["a", "b", "c"])
    with pytest.raises(LimitError, match="requests") as caught:
        await make(model=model, capabilities=[Swallows()], limits=Limits(requests=2)).run("go")
    assert 2 == len(model.requests)
    assert 2 == partial(caught.value).requests


async def test_model_error_inside_a_gatherer() -> None:
    """It is the hook that failed, not the run's model; what was sent is charged."""
    model = ScriptedModel([ModelError("server", "down", retryable=True)])
    with pytest.raises(HookError, match="down") as caught:
        await make(model=model, capabilities=[Asks()]).run("go")
    assert isinstance(caught.value.reason, HookFailed)
    assert 1 == partial(caught.value).requests


@frozen
class Everywhere(Capability):
    """Brings a number in at each hook, and writes down what its reducer got of it."""

    trace: Trace = field(factory=Trace)

    def _note(self, name: str, fact: object) -> None:
        self.trace.add(f"{name}:{fact}")

    async def gather_before_run(self, state: RunState, outside: Outside) -> Json:
        return 1

    async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
        return 2

    async def gather_after_model_request(self, state: RunState, outside: Outside) -> Json:
        assert isinstance(state.response, AssistantMessage)
        return 3

    async def gather_admit_tool_execute(self, call: CallState, outside: Outside) -> Json:
        return 4

    async def gather_after_tool_execute(self, call: CallState, outside: Outside) -> Json:
        assert call.outcome is not None
        return 5

    async def gather_after_run(self, state: RunState, outside: Outside) -> Json:
        assert "done" == state.output
        return 6

    def before_run(self, state: RunState) -> RunState:
        self._note("before_run", state.fact(self))
        return state

    def before_model_request(self, state: RunState) -> RunState:
        self._note("before_model", state.fact(self))
        return state

    def after_model_request(self, state: RunState) -> RunState:
        self._note("after_model", state.fact(self))
        return state

    def admit_tool_execute(self, call: CallState) -> CallState:
        self._note("admit", call.fact(self))
        return call

    def after_tool_execute(self, call: CallState) -> CallState:
        self._note("after_tool", call.fact(self))
        return call

    def after_run(self, state: RunState) -> RunState:
        self._note("after_run", state.fact(self))
        return state


async def test_gatherers_at_every_hook() -> None:
    """Each of the six is called at its point, and its fact reaches its reducer."""
    trace = Trace()
    result = await make([call("look", {"n": 1}), "done"], capabilities=[Everywhere(trace)]).run("go")
    expected = ["before_run:1", "before_model:2", "after_model:3", "admit:4", "after_tool:5"]
    assert [*expected, "before_model:2", "after_model:3", "after_run:6"] == trace.lines
    assert 8 == kinds(result).count("gathered")
    assert {"Everywhere"} == {actor for actor, _ in seen(result, "gathered")}


async def test_gatherer_without_a_reducer_is_called() -> None:
    """Bringing a fact in is enough reason to be called: the log has it."""

    @frozen
    class Only(Capability):
        async def gather_before_run(self, state: RunState, outside: Outside) -> Json:
            return {"now": outside.random(), "key": outside.idempotency_key, "attempt": outside.attempt}  # type: ignore[return-value]  # wrong on purpose

    result = await make(["done"], capabilities=[Only()]).run("go")
    (record,) = [record for record in result.log if record.kind == "gathered"]
    assert {"now": 0.5, "key": "run:0::Only:gather_before_run", "attempt": 1} == record.facts["fact"]
