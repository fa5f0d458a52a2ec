"""Runs on Temporal whose workers are killed or frozen: they end once, on another worker.

By default a worker dies at some places of a run; `CAPFOLD_FULL=1 pytest tests/runtime/test_temporal_lost.py` takes all.
"""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from capfold.runtime import ApprovalRequest
from tests.runtime.durable_desk import make
from tests.runtime.lost_workers import (
    AT_ONCE,
    DECISIONS,
    INSIDE_PAY,
    STEPS,
    Nursery,
    check_again,
    check_asked,
    check_frozen,
    check_once,
    effects,
    nursery,
    places,
)
from tests.temporal import temporal_server

pytest.importorskip("temporalio", reason="temporalio is missing: it is the extra `temporal`")

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.worker import Replayer

from capfold.runtime.durable_engine import Policy
from capfold.runtime.temporal_journal import RunWorkflow
from capfold.runtime.temporal_port import TemporalAgent
from capfold.runtime.temporal_records import STEP, Done, Todo, with_records
from tests.runtime.temporal_processes import LEASE

__all__ = ["temporal_server"]
SOME = (2, 5, 9, 14, 21)
PLACES = places(SOME)
PROGRAM = "tests.runtime.temporal_processes"
SECONDS = 90


@pytest.fixture
def anyio_backend() -> str:
    """Run on asyncio: Temporal knows no other loop."""
    return "asyncio"


async def survivor(server: str, folder: Path, run_id: str, policy: Policy = "unknown") -> TemporalAgent[str]:
    """Return the other worker of a run, once the first one has it."""
    durable = TemporalAgent(make(folder), server, task_queue=run_id, on_interrupted=policy, lease=LEASE)
    while True:
        try:
            if (await durable.runs.recorded(run_id)).worker is not None:
                return durable
        except LookupError:
            pass
        await asyncio.sleep(0.05)


async def recorded(client: Client, run_id: str) -> list[tuple[str, str]]:
    """Return the steps of a run that are on record, each as often as it is, with what it came to.

    The workflow is played again from its history, which it must fit.
    """
    history = await client.get_workflow_handle(run_id).fetch_history()
    todos: dict[int, Todo] = {}
    found: list[tuple[str, str]] = []
    for event in history.events:
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            scheduled = event.activity_task_scheduled_event_attributes
            assert STEP == scheduled.activity_type.name
            (todos[event.event_id],) = await client.data_converter.decode(scheduled.input.payloads, [Todo])
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            completed = event.activity_task_completed_event_attributes
            (done,) = await client.data_converter.decode(completed.result.payloads, [Done])
            if done.text is not None:
                found.append((todos[completed.scheduled_event_id].key, done.text))
    replayer = Replayer(workflows=[RunWorkflow], data_converter=client.data_converter)
    await replayer.replay_workflow(history)
    return found


async def test_a_worker_may_die_at_every_effect(temporal_server: str, tmp_path: Path) -> None:
    """Killed at every moment of every step, beside another worker: the run ends once, each step is recorded once.

    A call that was interrupted, and is not declared idempotent, is not run again; one that is, is.
    """
    client = with_records(await Client.connect(temporal_server))
    local = await make(tmp_path).run("go", run_id="local")
    room = asyncio.Semaphore(AT_ONCE)

    async def one(nurse: Nursery, place: int) -> None:
        run_id = f"run-{place}"
        async with room:
            nurse.start(run_id, str(place))
            async with await survivor(temporal_server, tmp_path, run_id) as durable:
                result = await durable.result(run_id)
                check_once(result, effects(tmp_path, run_id), local)
                assert STEPS == sorted(key for key, _ in await recorded(client, run_id))
                assert "completed" == (await durable.runs.show(run_id)).status

    with nursery(PROGRAM, temporal_server, tmp_path) as nurse:
        async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
            for place in PLACES:
                group.create_task(one(nurse, place))


async def test_an_interrupted_call_is_handled_as_configured(temporal_server: str, tmp_path: Path) -> None:
    """Run again, with one key, as attempts one and two; or a person says what becomes of it. The log says which."""
    with nursery(PROGRAM, temporal_server, tmp_path) as nurse:
        async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
            group.create_task(runs_again(temporal_server, nurse, tmp_path))
            for number in range(len(DECISIONS)):
                group.create_task(is_asked(temporal_server, nurse, tmp_path, number))


async def runs_again(server: str, nurse: Nursery, folder: Path) -> None:
    """`on_interrupted="retry"`."""
    nurse.start("again", str(INSIDE_PAY))
    async with await survivor(server, folder, "again", "retry") as durable:
        result = await durable.result("again")
    check_again(result, folder, "again")


async def is_asked(server: str, nurse: Nursery, folder: Path, number: int) -> None:
    """`on_interrupted="ask"`: run it again, leave it, or say what came of it."""
    decision, times, status, content = DECISIONS[number]
    run_id = f"asked-{number}"
    nurse.start(run_id, str(INSIDE_PAY))
    async with await survivor(server, folder, run_id, "ask") as durable:
        pending: Sequence[ApprovalRequest] = ()
        while not pending:
            pending = await durable.pending(run_id)
            await asyncio.sleep(0.05)
        assert [("pay", {"n": 3})] == [(request.tool, request.arguments) for request in pending]
        result = await durable.resume(run_id, {pending[0].digest: decision})
    check_asked(result, effects(folder, run_id), times, status, content)


async def test_a_process_that_was_frozen_changes_nothing(temporal_server: str, tmp_path: Path) -> None:
    """SIGSTOP in a tool, the run goes on elsewhere, SIGCONT: one history, whatever the thawed process still does."""
    client = with_records(await Client.connect(temporal_server))
    with nursery(PROGRAM, temporal_server, tmp_path) as nurse:
        async with asyncio.timeout(SECONDS):
            process = nurse.start("frozen", "slow")
            try:
                done: list[str] = []
                while "pay 2" not in done:
                    await asyncio.sleep(0.01)
                    done = effects(tmp_path, "frozen")
                os.kill(process, signal.SIGSTOP)
                async with await survivor(temporal_server, tmp_path, "frozen") as durable:
                    result = await durable.result("frozen")
                    steps = await recorded(client, "frozen")
                    os.kill(process, signal.SIGCONT)
                    await asyncio.sleep(3.0)  # it hears that it was given up, or ends what it had begun
                    assert steps == await recorded(client, "frozen")
                    os.kill(process, 0)  # it lives, and carries on what it starts from now on
            finally:
                os.kill(process, signal.SIGKILL)
    check_frozen(result, effects(tmp_path, "frozen"), [key for key, _ in steps])
