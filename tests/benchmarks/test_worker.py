"""One participant's process: a job is done in full, or it is not timed."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing

import pytest
from attrs import asdict

from benchmarks.adapters import a_hand
from benchmarks.contract import FINAL, Job, Run, history_pairs
from benchmarks.worker import Workbench, answer, resident


@pytest.fixture
def bench() -> Iterator[Workbench]:
    """Return the workbench of the bare loop."""
    with closing(Workbench(a_hand, a_hand.__file__)) as made:
        yield made


@pytest.mark.parametrize("job", [Job(), Job(steps=3, hooks=2), Job(steps=1, fanout=5, hooks=1)])
def test_every_tool_and_hook_call_of_a_job_is_counted(bench: Workbench, job: Job) -> None:
    """The bare loop calls each hook before and after every request and every tool call."""
    expected = job.hooks * (2 * (job.steps + 1) + 2 * job.steps * job.fanout)
    assert {"hook_calls": expected} == bench.check(job)


class Lazy:
    """An adapter that answers at once, without running anything."""

    HOOKS: tuple[str, ...] = ("hook",)

    def make(self, job: Job) -> Run:
        """Return a run that does nothing."""

        async def run() -> str:
            return FINAL

        return run


def test_a_run_that_skips_its_tools_is_not_timed() -> None:
    """Right output is not enough: the tool must have run as often as the job says."""
    with (
        closing(Workbench(Lazy(), __file__)) as bench,
        pytest.raises(RuntimeError, match="the tool ran 0 times"),
    ):
        bench.check(Job(steps=2))


def test_a_failure_becomes_an_answer(bench: Workbench) -> None:
    """The worker goes on after a job it cannot do, and the driver learns why."""
    line = json.dumps({"op": "bench", "job": asdict(Job()), "n": "many"})
    assert str(answer(bench, line)["error"]).startswith("TypeError: ")


def test_a_block_is_timed_in_nanoseconds(bench: Workbench) -> None:
    """A block has its CPU time and its wall time; both are whole and not negative."""
    reply = answer(bench, json.dumps({"op": "bench", "job": asdict(Job()), "n": 3}))
    assert {"cpu", "wall"} == set(reply)
    assert all(isinstance(value, int) and value >= 0 for value in reply.values())


class Meeting:
    """An adapter whose runs wait for each other: none ends before `size` of them have begun."""

    HOOKS: tuple[str, ...] = ()

    def __init__(self, size: int) -> None:
        self.missing = size
        self.full = asyncio.Event()

    def make(self, job: Job) -> Run:
        """Return a run that waits for the rest of the crowd."""

        async def run() -> str:
            self.missing -= 1
            if not self.missing:
                self.full.set()
            await self.full.wait()
            return FINAL

        return run


def test_a_crowd_runs_at_once() -> None:
    """All runs of a crowd are under way together; what it took and what it grew by are whole and not negative."""
    with closing(Workbench(Meeting(5), __file__)) as bench:
        reply = answer(bench, json.dumps({"op": "crowd", "job": asdict(Job()), "n": 5}))
    assert {"cpu", "wall", "memory"} == set(reply)
    assert all(isinstance(value, int) and value >= 0 for value in reply.values())


def test_resident_memory_is_seen_to_grow() -> None:
    """What is written to is resident, and its peak stays after it is gone."""
    before = resident(forget_peak=True)
    size = 64 * 2**20
    del bytearray(size)[:]
    assert resident() - before >= size // 2


def test_the_history_alternates_and_ends_before_the_prompt() -> None:
    """Histories begin with the user, so that any model accepts them."""
    assert ["user", "assistant", "user"] == [role for role, _ in history_pairs(3)]
