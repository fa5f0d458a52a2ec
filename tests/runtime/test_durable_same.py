"""A durable run comes to what a run in one process comes to, wherever its workers die."""

from collections.abc import Callable
from typing import Any

import anyio
from attrs import evolve
from hypothesis import given, settings

from capfold.runtime import Agent
from capfold.runtime.journal_engine import Records
from tests.runtime.durable_desk import BySteps, Deaths, bodies, local, through_lives
from tests.runtime.test_same_everywhere import CARRIED, SCRIPTS, Script, by_run, decide, scripts


def making(script: Script, *, asks: bool) -> Callable[[], Agent[Any]]:  # Any: of every output type
    """Return what makes the agent of a script for each worker, which finds its place in it by the step."""
    return lambda: script.agent(asks=asks, model=BySteps(script.replies))


@given(scripts())
@settings(max_examples=SCRIPTS)
def test_a_durable_run_comes_to_the_same(script: Script) -> None:
    """With an approver: one final state, one reason, one log head; replayed from its records, the same again."""

    async def both() -> None:
        result, reason = await local(by_run(script.agent(asks=True), script))
        records = Records()
        for _ in range(2):
            carried, lives = await through_lives(
                making(script, asks=True), records, options={"messages": script.history}
            )
            assert 1 == lives
            assert bodies(result) == bodies(carried.result)
            assert result.log.head == carried.result.log.head
            assert reason == carried.end.reason
            assert evolve(result.state, model=None) == evolve(carried.result.state, model=None)
            assert result.messages == carried.result.messages

    anyio.run(both)


@given(scripts(least=1))
@settings(max_examples=SCRIPTS)
def test_a_durable_run_that_waits_comes_to_the_same(script: Script) -> None:
    """Where people decide later it is as if an approver had said the same at once."""

    async def both() -> None:
        result, reason = await local(by_run(script.agent(asks=True), script))
        carried, _ = await through_lives(
            making(script, asks=False), Records(), decide=decide, options={"messages": script.history}
        )
        assert bodies(result, *CARRIED) == bodies(carried.result, *CARRIED)
        assert reason == carried.end.reason
        assert evolve(result.state, model=None) == evolve(carried.result.state, model=None)

    anyio.run(both)


@given(scripts())
@settings(max_examples=SCRIPTS)
def test_a_worker_may_die_at_every_moment_of_every_step(script: Script) -> None:
    """Before a step, after it was performed and before it was recorded, and right after: the run comes to the same."""

    async def both() -> None:
        result, reason = await local(by_run(script.agent(asks=True), script))
        records, deaths = Records(), Deaths()
        carried, lives = await through_lives(
            making(script, asks=False),
            records,
            faults=deaths,
            decide=decide,
            options={"messages": script.history},
        )
        assert 1 < lives <= len(deaths.places) + 1  # calls of one batch may die together
        assert bodies(result, *CARRIED) == bodies(carried.result, *CARRIED)
        assert reason == carried.end.reason
        assert evolve(result.state, model=None) == evolve(carried.result.state, model=None)

    anyio.run(both)
