"""Limits in full: each ends a run by its name, before anything is sent that it forbids, whoever sends it."""

from typing import Any

import anyio
import pytest
from attrs import evolve, frozen

from capfold.capabilities import (
    AssistantMessage,
    Capability,
    Json,
    Outside,
    RunState,
    Usage,
    UserMessage,
    call,
    hook,
    tool,
)
from capfold.runtime import (
    Agent,
    Approve,
    FunctionModel,
    HookError,
    LimitError,
    LimitExceeded,
    Limits,
    LocalPort,
    ModelError,
    ModelProfile,
    ModelRequest,
    ModelRunError,
    ScriptedModel,
    UsageUnknown,
    billing,
)
from capfold.runtime.prices import Price
from tests.runtime.desk import contents, make, partial, results

USAGE = Usage(input_tokens=600, output_tokens=40, cached_tokens=0, reasoning_tokens=0)
PRICED = ModelProfile(price=Price(input=1_000, output=10_000))  # USAGE costs a dollar
LOOK = call("look", {"n": 1})


def looking(times: int = 9, **options: Any) -> ScriptedModel:
    """Return a model that looks something up so many times; each response costs a dollar."""
    return ScriptedModel([LOOK] * times + ["done"], usage=USAGE, profile=PRICED, **options)


async def reached(agent: Agent[str], **options: Any) -> LimitExceeded:
    """Return which limit ended a run."""
    with pytest.raises(LimitError) as caught:
        await agent.run("go", **options)
    partial(caught.value)
    assert isinstance(caught.value.reason, LimitExceeded)
    return caught.value.reason


async def unknown(agent: Agent[str]) -> UsageUnknown:
    """Return why what a run uses could not be held to a limit."""
    with pytest.raises(LimitError) as caught:
        await agent.run("go")
    partial(caught.value)
    assert isinstance(caught.value.reason, UsageUnknown)
    return caught.value.reason


@pytest.mark.parametrize(
    ("limits", "name", "used", "requests"),
    [
        (Limits(max_steps=2), "max_steps", 2, 2),
        (Limits(requests=2), "requests", 2, 2),
        (Limits(requests=0), "requests", 0, 0),
        (Limits(tool_calls=2), "tool_calls", 3, 3),
        (Limits(tool_calls=0), "tool_calls", 1, 1),
        (Limits(input_tokens=1200), "input_tokens", 1200, 2),
        (Limits(input_tokens=1201), "input_tokens", 1800, 3),
        (Limits(output_tokens=41), "output_tokens", 80, 2),
        (Limits(total_tokens=1280), "total_tokens", 1280, 2),
        (Limits(total_tokens=0), "total_tokens", 0, 0),
        (Limits(cost=2.0), "cost", 2.0, 2),
        (Limits(cost=2.01), "cost", 3.0, 3),
        (Limits(cost=2), "cost", 2.0, 2),
        (Limits(cost=0), "cost", 0.0, 0),
    ],
)
@pytest.mark.parametrize("per_run", [False, True])
async def test_each_limit_ends_the_run(
    limits: Limits, name: str, used: float, requests: int, *, per_run: bool
) -> None:
    """By its name, with what was used, before the next request or batch; of the agent or of one run."""
    model = looking()
    agent = make(model=model, limits=Limits() if per_run else limits)
    reason = await reached(agent, **({"limits": limits} if per_run else {}))
    assert (name, used, getattr(limits, name)) == (reason.limit, reason.used, reason.allowed)
    assert requests == len(model.requests)


async def test_below_its_limits_a_run_completes() -> None:
    """All of them at once, each a little above what is used."""
    limits = Limits(
        max_steps=3, requests=3, tool_calls=2, input_tokens=1801, output_tokens=121, total_tokens=1921,
        cost=3.01, deadline=60, request_timeout=60, tool_timeout=60, max_parallel_tools=1, max_result_bytes=7,
    )  # fmt: skip
    result = await make(model=looking(2), limits=limits).run("go")
    assert ("completed", 3.0, 3) == (result.status, result.cost, result.requests)


# --- cost


async def test_a_model_without_a_price_is_refused_before_its_request() -> None:
    """Under a limit on cost: the reason names the model and what to do; nothing was sent."""
    model = ScriptedModel(["done"], name="unheard of", usage=USAGE)
    reason = await unknown(make(model=model, limits=Limits(cost=1)))
    assert ("cost", ()) == (reason.limit, model.requests)
    assert "model 'unheard of' has no known price: give it one, ModelProfile(price=Price(" in reason.message


async def test_a_model_that_reports_no_usage_is_refused_before_its_request() -> None:
    """What it cost could never be known."""
    model = ScriptedModel(["done"], profile=evolve(PRICED, reports_usage=False))
    reason = await unknown(make(model=model, limits=Limits(cost=1)))
    assert ("cost", ()) == (reason.limit, model.requests)


@pytest.mark.parametrize("limits", [Limits(cost=100), Limits(total_tokens=9999)])
async def test_unknown_usage_is_never_counted_as_nothing(limits: Limits) -> None:
    """A response without usage ends the run before the next request."""
    model = ScriptedModel([AssistantMessage(tool_calls=(LOOK,), usage=None), "done"], profile=PRICED)
    reason = await unknown(make(model=model, limits=limits))
    assert 1 == len(model.requests)
    assert reason.message.endswith("of a response is not known")


async def test_a_model_that_a_capability_chose_needs_a_price_too() -> None:
    """In before_model_request, and on the way in of a wrapper that catches everything."""
    stranger = ScriptedModel(["x"] * 9, name="stranger", usage=USAGE)
    chooses = hook.before_model_request(lambda state: state.with_model(stranger))

    async def tries(call_next: Any, state: RunState) -> RunState:
        try:
            found: RunState = await call_next(state.with_model(stranger))
        except Exception:  # noqa: BLE001  # that is the point
            return state.respond(AssistantMessage("caught"))
        return found

    for capability in (chooses, hook.wrap_model_request(tries)):
        reason = await unknown(make(model=looking(), capabilities=[capability], limits=Limits(cost=9)))
        assert "'stranger'" in reason.message
    assert () == stranger.requests


@frozen
class Asks(Capability):
    """Asks the model of deps before each request, so many times in a row, and gives up when it may not."""

    times: int = 1

    async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
        try:
            for _ in range(self.times):
                await outside.request([UserMessage("ok?")], model=outside.deps)  # type: ignore[arg-type]  # a model
        except Exception:  # noqa: BLE001  # a limit ends the run whatever a gatherer makes of it
            return "caught"
        return None


async def test_a_model_that_a_gatherer_asks_needs_a_price_too() -> None:
    """The run ends before the gatherer's request, though it catches everything."""
    stranger = ScriptedModel(["x"] * 9, name="stranger", usage=USAGE)
    reason = await unknown(make(model=looking(), capabilities=[Asks()], deps=stranger, limits=Limits(cost=9)))
    assert ("'stranger'" in reason.message, ()) == (True, stranger.requests)


async def test_what_gatherers_used_counts_before_the_request_of_the_step() -> None:
    """They spent it all: the step's own request is not sent."""
    judge, model = looking(name="judge"), looking()
    reason = await reached(make(model=model, capabilities=[Asks(2)], deps=judge, limits=Limits(cost=2)))
    assert (2.0, 2, 0) == (reason.used, len(judge.requests), len(model.requests))


async def test_a_gatherer_is_held_to_the_limit_within_its_hook() -> None:
    """Its own third request is not sent when two reached the limit."""
    judge = looking(name="judge")
    reason = await reached(make(capabilities=[Asks(9)], deps=judge, limits=Limits(cost=2)))
    assert (2.0, 2) == (reason.used, len(judge.requests))


@pytest.mark.parametrize("limits", [Limits(cost=2), Limits(total_tokens=1280)])
async def test_a_wrapper_is_held_to_the_limit_within_its_step(limits: Limits) -> None:
    """It asks again and again, and catches everything: no request is sent beyond the limit."""

    async def insists(call_next: Any, state: RunState) -> RunState:
        found = state
        for _ in range(5):
            try:
                found = await call_next(state)
            except Exception:  # noqa: BLE001  # that is the point
                break
        return found

    model = looking()
    agent = make(model=model, capabilities=[hook.wrap_model_request(insists)], limits=limits)
    reason = await reached(agent)
    assert 2 == len(model.requests)
    assert getattr(limits, reason.limit) == reason.used


async def test_the_list_of_prices_is_asked_under_a_limit_on_cost_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No run imports it for nothing; with the limit, once it is asked, its price counts."""
    asked: list[tuple[str, str | None]] = []

    def listed(name: str, api_url: str | None) -> Price:
        asked.append((name, api_url))
        return Price(input=1_000, output=10_000)

    monkeypatch.setattr(billing, "listed_price", listed)

    def build(**options: Any) -> Agent[str]:
        return make(model=ScriptedModel([LOOK] * 3, usage=USAGE), **options)

    result = make(model=ScriptedModel(["done"], usage=USAGE), limits=Limits(total_tokens=9999))
    assert (None, []) == ((await result.run("go")).cost, asked)
    reason = await reached(build(limits=Limits(cost=2)))
    assert (2.0, {("scripted", None)}) == (reason.used, set(asked))


async def test_a_limit_on_cost_survives_a_snapshot() -> None:
    """A dollar before, a dollar after: the third request is not sent."""

    def build(model: ScriptedModel) -> Agent[str]:
        asks = hook.admit_tool_execute(lambda call: call.require_approval("ok?"))
        return make(model=model, capabilities=[asks], limits=Limits(cost=2))

    waiting = await build(looking()).run("go")
    second = looking()
    again = await build(second).resume(waiting.snapshot(), {waiting.pending[0].digest: Approve()})
    assert ("suspended", 2.0, 1) == (again.status, again.cost, len(second.requests))
    with pytest.raises(LimitError) as caught:
        await build(second).resume(again.snapshot(), {again.pending[0].digest: Approve()})
    assert isinstance(caught.value.reason, LimitExceeded)
    assert ("cost", 2.0, 1) == (caught.value.reason.limit, caught.value.reason.used, len(second.requests))


# --- time, width, size


async def _never(request: ModelRequest) -> str:
    await anyio.sleep_forever()
    return ""


async def test_request_timeout() -> None:
    """A model that does not answer: ModelRunError of kind timeout; a gatherer's request likewise, named."""
    never = FunctionModel(_never)
    limits = Limits(request_timeout=0.05)
    with pytest.raises(ModelRunError) as caught:
        await make(model=never, limits=limits, port=LocalPort()).run("go")
    assert "timeout" == caught.value.reason.kind  # type: ignore[attr-defined]  # ModelFailed
    assert 1 == partial(caught.value).requests

    class Once(Capability):
        async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
            return (await outside.request([UserMessage("ok?")], model=never)).text

    with pytest.raises(HookError) as failed:
        await make(capabilities=[Once()], limits=limits, port=LocalPort()).run("go")
    assert isinstance(failed.value.__cause__, ModelError)
    assert ("timeout", "Once") == (failed.value.__cause__.kind, failed.value.reason.key)


@pytest.mark.parametrize(("own", "expected"), [(None, "unknown"), (5.0, "succeeded")])
async def test_tool_timeout(own: float | None, expected: str) -> None:
    """The run's bound is for tools without one of their own."""

    @tool(timeout=own)
    async def slow() -> str:
        """Take a while."""
        await anyio.sleep(0.2)
        return "there"

    agent = make([call("slow"), "done"], tools=[slow], limits=Limits(tool_timeout=0.05), port=LocalPort())
    assert [("slow", expected)] == results((await agent.run("go")).messages)


async def test_no_tool_timeout() -> None:
    """None is no bound at all."""

    @tool
    async def quick() -> str:
        """Return."""
        return "there"

    agent = make([call("quick"), "done"], tools=[quick], limits=Limits(tool_timeout=None))
    assert ["there"] == contents((await agent.run("go")).messages)


@pytest.mark.parametrize(("most", "expected"), [(1, 1), (2, 2), (None, 4)])
async def test_max_parallel_tools(most: int | None, expected: int) -> None:
    """So many bodies at once, at most."""
    running: list[int] = []
    peak: list[int] = []

    @tool
    async def body(n: int) -> str:
        """Count who is there."""
        running.append(n)
        await anyio.sleep(0.01)
        peak.append(len(running))
        running.remove(n)
        return "there"

    batch = [call("body", {"n": n}) for n in range(4)]
    await make([batch, "done"], tools=[body], limits=Limits(max_parallel_tools=most)).run("go")
    assert expected == max(peak)


@pytest.mark.parametrize(("bytes_", "expected"), [(7, "succeeded"), (6, "unknown")])
async def test_max_result_bytes(bytes_: int, expected: str) -> None:
    """A larger result is unknown: the tool did run."""
    agent = make([LOOK, "done"], limits=Limits(max_result_bytes=bytes_))
    assert [("look", expected)] == results((await agent.run("go")).messages)


async def test_deadline_covers_a_person_who_is_asked_within_the_run() -> None:
    """An approver that never answers: the run ends by its deadline, nothing ran."""

    async def never(requests: Any) -> Any:
        await anyio.sleep_forever()

    asks = hook.admit_tool_execute(lambda call: call.require_approval("ok?"))
    agent = make([LOOK], capabilities=[asks], approver=never, limits=Limits(deadline=0.05), port=LocalPort())
    with pytest.raises(LimitError) as caught:
        await agent.run("go")
    assert "deadline" == caught.value.reason.limit  # type: ignore[attr-defined]  # LimitExceeded
    assert [("look", "not_executed")] == results(partial(caught.value).messages)


@pytest.mark.parametrize(
    "bad",
    [
        {"cost": -0.01}, {"cost": float("nan")}, {"cost": float("inf")}, {"cost": True}, {"cost": "1"},
        {"deadline": float("inf")}, {"tool_timeout": 10**400}, {"cost": 10**400},
        {"request_timeout": float("inf")}, {"request_timeout": True},
        {"total_tokens": 1.5}, {"tool_calls": True},
    ],
)  # fmt: skip
def test_bad_limits(bad: dict[str, Any]) -> None:
    """A limit that could not hold, or that a snapshot could not carry, is refused by its name."""
    (name,) = bad
    with pytest.raises(ValueError, match=f"Limits.{name}"):
        Limits(**bad)
