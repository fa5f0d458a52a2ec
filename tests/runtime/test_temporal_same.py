"""A run on Temporal comes to what a run in one process comes to: the same random scripts, side by side on one server.

CI takes some of them; `CAPFOLD_FULL=1 pytest tests/runtime/test_temporal_same.py` takes a hundred each way.
"""

import asyncio
import os

import pytest
from attrs import evolve
from hypothesis import HealthCheck, Phase, given, seed, settings

pytest.importorskip("temporalio", reason="temporalio is missing: it is the extra `temporal`")

from temporalio.client import Client
from temporalio.worker import Replayer

from capfold.runtime.temporal_journal import RunWorkflow
from capfold.runtime.temporal_port import TemporalAgent
from capfold.runtime.temporal_records import with_records
from tests.runtime.durable_desk import BySteps, bodies, local
from tests.runtime.test_same_everywhere import CARRIED, Script, decide, scripts
from tests.temporal import temporal_server

__all__ = ["temporal_server"]
SCRIPTS = 100 if os.environ.get("CAPFOLD_FULL") else 8
AT_ONCE = 8
SECONDS = 60


@pytest.fixture
def anyio_backend() -> str:
    """Run on asyncio: Temporal knows no other loop."""
    return "asyncio"


def drawn(least: int) -> list[Script]:
    """Return random scripts, of which `least` hooks ask for approval: all are run at once on the server."""
    found: list[Script] = []

    @seed(least)
    @given(scripts(least=least))
    @settings(
        max_examples=SCRIPTS, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    def draw(script: Script) -> None:
        found.append(script)

    draw()
    return found


async def by_temporal(client: Client, script: Script, run_id: str, *, asks: bool) -> "TemporalAgent[object]":
    """Run a script, decided by its approver, or by signals; return the agent, with the run ended."""
    agent = script.agent(asks=asks, model=BySteps(script.replies))
    durable = TemporalAgent(agent, client, task_queue=f"queue-{run_id}", lease=30.0)
    async with durable, asyncio.timeout(SECONDS):
        await durable.start("go", run_id=run_id, messages=script.history)
        end = asyncio.ensure_future(client.get_workflow_handle(run_id).result())
        while not end.done():
            pending = await durable.pending(run_id)
            if pending:
                await durable.decide(run_id, {request.digest: decide(request) for request in pending})
            await asyncio.wait({end}, timeout=None if asks else 0.1)
        await end
    return durable


@pytest.mark.parametrize("least", [0, 1])
async def test_a_run_on_temporal_comes_to_the_same(temporal_server: str, least: int) -> None:
    """One final state, one reason, one log head; where people decide by signals, but for the records of that.

    Read from the history afterwards, nothing is performed: the agent that reads it has no worker any more. The
    workflow, played again from its history, gives the same commands.
    """
    client = with_records(await Client.connect(temporal_server))
    replayer = Replayer(workflows=[RunWorkflow], data_converter=client.data_converter)
    room = asyncio.Semaphore(AT_ONCE)

    async def both(number: int, script: Script) -> None:
        asks = not least
        run_id = f"run-{least}-{number}"
        async with room:
            by_itself = script.agent(asks=True)
            result, reason = await local(by_itself.run("go", messages=script.history, run_id=run_id))
            durable = await by_temporal(client, script, run_id, asks=asks)
            reader = TemporalAgent(durable.agent, client, task_queue=durable.runs.task_queue, works=False)
            found, why = await local(reader.result(run_id))
            history = await client.get_workflow_handle(run_id).fetch_history()
            await replayer.replay_workflow(history)
            carried = set() if asks else CARRIED
            assert bodies(result, *carried) == bodies(found, *carried)
            assert result.log.head == found.log.head or not asks
            assert reason == why
            assert evolve(result.state, model=None) == evolve(found.state, model=None)

    async with asyncio.TaskGroup() as group:
        for number, script in enumerate(drawn(least)):
            group.create_task(both(number, script))
