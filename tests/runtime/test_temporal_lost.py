"""Runs on Temporal whose workers are killed or frozen: they end once, on another worker.

By default a worker dies at some places of a run; `CAPFOLD_FULL=1 pytest tests/runtime/test_temporal_lost.py` takes all.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from capfold.runtime import Answer, ApprovalRequest, Approve, Decision, Deny, RunResult
from tests.runtime.desk import contents, results
from tests.runtime.durable_desk import bodies, make
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
STEPS = [
    "1:1:model",
    "2:1:call/call_1_0",
    "2:1:call/call_1_1",
    "3:2:model",
    "4:2:call/call_4_0",
    "5:3:model",
    "6:3:end",
]
# Of each step: before it is performed, before anybody is told, and right after.
MOMENTS = range(1, 3 * len(STEPS) + 1)
SOME = (2, 5, 9, 14, 21)
PLACES = tuple(MOMENTS) if os.environ.get("CAPFOLD_FULL") else SOME
INSIDE_PAY = 14  # the second payment was made, and nobody was told
SECONDS = 90
AT_ONCE = 5


@pytest.fixture
def anyio_backend() -> str:
    """Run on asyncio: Temporal knows no other loop."""
    return "asyncio"


class Nursery:
    """Starts processes that are to die."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def start(self, run_id: str, place: str) -> int:
        """Start one; return its id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{run_id} {place}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@contextmanager
def nursery(server: str, folder: Path) -> Iterator[Nursery]:
    """Keep a process from which others are forked."""
    command = [sys.executable, "-m", "tests.runtime.temporal_processes", server, str(folder)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    ) as process:
        try:
            yield Nursery(process)
        finally:
            process.kill()


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


def effects(folder: Path, run_id: str) -> list[str]:
    """Return what the tools of a run did, without attempts and keys."""
    file = folder / run_id
    return [" ".join(line.split()[:2]) for line in file.read_text().splitlines()] if file.exists() else []


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

    with nursery(temporal_server, tmp_path) as nurse:
        async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
            for place in PLACES:
                group.create_task(one(nurse, place))


def check_once(result: RunResult[str], done: list[str], local: RunResult[str]) -> None:
    """Assert that nothing was paid twice, and that what is not known to be paid is said to be unknown."""
    assert "completed" == result.status
    said = [status for tool, status in results(result.messages) if tool == "pay"]
    notes = {record.call: record.facts for record in result.log if "interrupted" in record.facts}
    for n, status in zip((2, 3), said, strict=True):
        assert done.count(f"pay {n}") <= 1
        if status == "succeeded":
            assert 1 == done.count(f"paid {n}")
        else:
            assert "unknown" == status
    assert said.count("unknown") == len(notes)
    assert {"unknown"} >= {str(facts["handled"]) for facts in notes.values()}
    if not notes:
        assert bodies(result) == bodies(local)


DECISIONS: tuple[tuple[Decision, int, str, str], ...] = (
    (Approve(), 2, "succeeded", "paid 3"),
    (Deny("It was paid, says the bank."), 1, "unknown", "It was paid, says the bank."),
    (Answer("paid 3, says the bank"), 1, "answered", "paid 3, says the bank"),
)


async def test_an_interrupted_call_is_handled_as_configured(temporal_server: str, tmp_path: Path) -> None:
    """Run again, with one key, as attempts one and two; or a person says what becomes of it. The log says which."""
    with nursery(temporal_server, tmp_path) as nurse:
        async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
            group.create_task(runs_again(temporal_server, nurse, tmp_path))
            for number in range(len(DECISIONS)):
                group.create_task(is_asked(temporal_server, nurse, tmp_path, number))


async def runs_again(server: str, nurse: Nursery, folder: Path) -> None:
    """`on_interrupted="retry"`."""
    nurse.start("again", str(INSIDE_PAY))
    async with await survivor(server, folder, "again", "retry") as durable:
        result = await durable.result("again")
    lines = [line.split() for line in (folder / "again").read_text().splitlines()]
    paid = [line for line in lines if line[:2] == ["pay", "3"]]
    assert [["pay", "3", "1", "again:2:call_4_0"], ["pay", "3", "2", "again:2:call_4_0"]] == paid
    notes = [record.facts for record in result.log if "interrupted" in record.facts]
    assert [{"interrupted": 1, "handled": "retry"}] == notes
    assert "completed" == result.status


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
    assert times == effects(folder, run_id).count("pay 3")
    assert ("pay", status) == results(result.messages)[-1]
    assert content == contents(result.messages)[-1]
    (note,) = [record.facts for record in result.log if "interrupted" in record.facts]
    assert "ask" == note["handled"]


async def test_a_process_that_was_frozen_changes_nothing(temporal_server: str, tmp_path: Path) -> None:
    """SIGSTOP in a tool, the run goes on elsewhere, SIGCONT: one history, whatever the thawed process still does."""
    client = with_records(await Client.connect(temporal_server))
    with nursery(temporal_server, tmp_path) as nurse:
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
    assert [("look", "succeeded"), ("pay", "unknown"), ("pay", "succeeded")] == results(result.messages)
    assert 1 == effects(tmp_path, "frozen").count("pay 2")
    assert 1 == effects(tmp_path, "frozen").count("pay 3")
    assert STEPS == sorted(key for key, _ in steps)
