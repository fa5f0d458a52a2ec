"""Edges of wrappers where one check alone stands in the way: each test fails without it."""

import contextlib
from typing import Any

import pytest

from capfold.capabilities import (
    AssistantMessage,
    CallNext,
    CallState,
    Capability,
    RunState,
    Usage,
    call,
    tool,
)
from capfold.runtime import (
    Agent,
    IllegalTransition,
    InvalidResponse,
    LimitExceeded,
    Limits,
    Meter,
    ModelProfile,
    RunError,
    ScriptedModel,
)

Inward = CallNext[Any, Any]


async def failed(agent: Agent[Any]) -> RunError:
    """Run to the failure that the test is about."""
    with pytest.raises(RunError) as caught:
        await agent.run("go")
    return caught.value


def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


async def test_a_request_is_not_rewritten_once_it_was_sent() -> None:
    """What a model wrapper returns says what was sent, not what it would have liked to send."""

    class Rewrites(Capability):
        async def wrap_model_request(self, call_next: Inward, state: RunState) -> RunState:
            done: RunState = await call_next(state)
            return done.with_settings(temperature=0)

    reason = (await failed(Agent("desk", ScriptedModel(["done"]), capabilities=[Rewrites()]))).reason
    assert isinstance(reason, IllegalTransition)
    assert ("Rewrites", "wrap_model_request", "settings") == (reason.key, reason.hook, reason.field)


async def test_a_model_that_returns_no_message_is_found_out() -> None:
    """Whatever it is, and whatever a wrapper would make of it."""

    class Odd:
        name = "odd"
        profile = ModelProfile()

        async def request(self, request: object, meter: object) -> Any:
            return "done"

    class Passes(Capability):
        async def wrap_model_request(self, call_next: Inward, state: RunState) -> RunState:
            done: RunState = await call_next(state)
            return done

    for listed in ((), (Passes(),)):
        error = await failed(Agent("desk", Odd(), capabilities=listed))
        assert isinstance(error.reason, InvalidResponse)
        assert "str" in error.reason.message


async def test_a_limit_on_requests_ends_the_run_whatever_a_wrapper_returns() -> None:
    """One that asks twice, and hides that the second time was one too many, has a good response in its hand."""

    class Twice(Capability):
        async def wrap_model_request(self, call_next: Inward, state: RunState) -> RunState:
            done: RunState = await call_next(state)
            try:
                await call_next(state)
            except Exception:  # noqa: BLE001  # a wrapper that swallows everything
                return done
            return done

    model = ScriptedModel(["one", "two"])
    reason = (await failed(Agent("desk", model, capabilities=[Twice()], limits=Limits(requests=1)))).reason
    assert isinstance(reason, LimitExceeded)
    assert ("requests", 1) == (reason.limit, len(model.requests))


async def test_a_limit_that_a_model_hides_ends_the_run() -> None:
    """A model that tries again past the limit, and swallows that it may not, is known by its account."""

    class Hides:
        name = "hides"
        profile = ModelProfile()

        async def request(self, request: object, meter: Meter) -> AssistantMessage:
            meter.charge()
            with contextlib.suppress(RunError):
                meter.charge()
            return AssistantMessage("done", usage=Usage(input_tokens=1, output_tokens=1))

    class Passes(Capability):
        async def wrap_model_request(self, call_next: Inward, state: RunState) -> RunState:
            done: RunState = await call_next(state)
            return done

    for listed in ((), (Passes(),)):
        error = await failed(Agent("desk", Hides(), capabilities=listed, limits=Limits(requests=1)))
        assert isinstance(error.reason, LimitExceeded)
        assert ("requests", 1) == (error.reason.limit, error.reason.allowed)


async def test_what_broke_first_ends_the_run() -> None:
    """A wrapper that hides a spent share, and then returns nothing, ends the run by the share."""

    class Hides(Capability):
        async def wrap_tool_execute(self, call_next: Inward, call: CallState) -> Any:
            await call_next(call)
            try:
                await call_next(call)
            except Exception:  # noqa: BLE001  # a wrapper that swallows everything
                return None

    model = ScriptedModel([call("pay", {"amount": 1})])
    limits = Limits(tool_calls=1)
    error = await failed(Agent("desk", model, tools=[tool(pay)], capabilities=[Hides()], limits=limits))
    assert isinstance(error.reason, LimitExceeded)


@pytest.mark.parametrize("point", ["wrap_tool_execute", "wrap_model_request"])
async def test_call_next_ends_with_its_wrapper(point: str) -> None:
    """Kept and called later, it says so and does nothing: nobody would check or record it."""
    kept: list[tuple[Any, Any]] = []
    said: list[str] = []

    async def keep(self: Capability, call_next: Inward, record: Any) -> Any:
        if kept:
            late, old = kept[0]
            with pytest.raises(RuntimeError) as caught:
                await late(old)
            said.append(str(caught.value))
        kept.append((call_next, record))
        return await call_next(record)

    keeps = type("Keeps", (Capability,), {point: keep})()
    asked = call("pay", {"amount": 1})
    model = ScriptedModel([asked, asked, "done"])
    result = await Agent("desk", model, tools=[tool(pay)], capabilities=[keeps]).run("go")
    assert ("completed", 3, 2) == (result.status, result.requests, result.tool_calls)
    assert said
    assert all("had returned" in text for text in said)
