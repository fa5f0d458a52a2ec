"""What a run weighs while it waits: the bound that lets a thousand of them share one process. Bytes, no times."""

import functools
import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import pytest
from attrs import field, frozen

from capfold.capabilities import AssistantMessage, RunState, ToolCall, Usage, UserMessage, tool
from capfold.runtime import Agent, Meter, ModelProfile, ModelRequest
from tests.runtime.meters import CountingMeter

# Any: what a coroutine yields to its loop is the loop's affair
Start: TypeAlias = Callable[[], Coroutine[Any, Any, object]]
RUNS = 200
STEPS = 3
BOUND = 16 * 1024
"""Bytes of one run in its fourth request: its state, its log, its coroutines and its task."""
USAGE = Usage(input_tokens=10, output_tokens=5)
REPLIES = (
    *(
        AssistantMessage(tool_calls=(ToolCall(f"c{step}", "echo", '{"x": 1}'),), usage=USAGE)
        for step in range(STEPS)
    ),
    AssistantMessage("done", usage=USAGE),
)
"""Made once: what models say, and how much of it, is not weighed."""
LAST = ModelRequest(messages=(UserMessage("go"),) * (2 * STEPS + 1))
"""A request as long as the one that a run waits for."""


@frozen
class Waiting:
    """Asks for the tool three times, then waits for its gate before it answers. `waiting`: the runs that do."""

    gate: anyio.Event
    waiting: list[str]
    name: str = "waiting"
    profile: ModelProfile = field(factory=ModelProfile)

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        """Reply by the length of the history."""
        step = (len(request.messages) - 1) // 2
        if step == STEPS:
            self.waiting.append(request.run_id)
            await self.gate.wait()
        return REPLIES[step]


async def echo(x: int) -> str:
    """Return the same text always."""
    return "ok"


@asynccontextmanager
async def crowd(runs: int, model: Waiting, start: Start) -> AsyncIterator[None]:
    """Start something often, give way until all of it waits for the model, and let it end afterwards."""
    async with anyio.create_task_group() as group:
        for _ in range(runs):
            group.start_soon(start)
        while len(model.waiting) < runs:
            await anyio.lowlevel.checkpoint()
        yield
        model.gate.set()


def made() -> tuple[Waiting, Start]:
    """Return a model, and what starts a run that asks it."""
    model = Waiting(anyio.Event(), [])
    return model, functools.partial(Agent("crowd", model, tools=(tool(echo),)).run, "go")


def bare() -> tuple[Waiting, Start]:
    """Return a model, and what asks it without any run: a task of the loop, and the model's own waiting."""
    model = Waiting(anyio.Event(), [])
    return model, functools.partial(model.request, LAST, CountingMeter())


async def weight(make: Callable[[], tuple[Waiting, Start]]) -> float:
    """Return the bytes of one of many that wait; what all of them share was made before."""
    async with crowd(2, *make()):
        pass
    model, start = make()
    gc.collect()
    tracemalloc.start(1)
    try:
        async with crowd(RUNS, model, start):
            gc.collect()
            held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return held / RUNS


async def test_a_waiting_run_weighs_less_than_sixteen_kibibytes() -> None:
    """With its log on and three steps behind it, over the task and the wait that a request takes without a run."""
    assert await weight(made) - await weight(bare) <= BOUND


@pytest.mark.parametrize("runs", [1, 5])
async def test_a_waiting_run_keeps_one_state(runs: int) -> None:
    """Of the states that it went through, all but the last are gone: with its request, batches and first move."""
    model, start = made()
    async with crowd(runs, model, start):
        gc.collect()
        kept = [each for each in gc.get_objects() if type(each) is RunState and each.run_id in model.waiting]
        assert sorted(model.waiting) == sorted(state.run_id for state in kept)
        assert {STEPS + 1} == {state.run_step for state in kept}
