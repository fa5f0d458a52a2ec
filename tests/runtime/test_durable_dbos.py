"""Durable runs on DBOS, in SQLite and PostgreSQL: processes that die or freeze, and a database that does.

By default a worker dies at some places of a run; `CAPFOLD_FULL=1 pytest tests/runtime/test_durable_dbos.py` takes all.
"""

import asyncio
import functools
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.postgres import PostgresServer, postgres_server
from tests.runtime.durable_desk import make
from tests.runtime.lost_workers import (
    AT_ONCE,
    DECISIONS,
    INSIDE_PAY,
    STEPS,
    check_again,
    check_asked,
    check_frozen,
    check_once,
    effects,
    nursery,
    places,
)

pytest.importorskip("dbos", reason="dbos is missing: it is the extra `dbos`")

from capfold.runtime.dbos_port import DurableAgent  # where dbos is missing, this is skipped
from capfold.runtime.durable_engine import Policy  # as above
from tests.runtime.durable_processes import LEASE  # as above

__all__ = ["postgres_server"]
DATABASES = ("sqlite", "postgres")
SOME = (2, 4, 5, 6, 8, 9, 11, 13, 14, 21)
PLACES = places(SOME)
PROGRAM = "tests.runtime.durable_processes"
SECONDS = 120


@pytest.fixture
def anyio_backend() -> str:
    """Run on asyncio: DBOS knows no other loop."""
    return "asyncio"


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.sqlite"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.new_database()


@asynccontextmanager
async def survivor(url: str, folder: Path, policy: Policy = "unknown") -> AsyncIterator[DurableAgent[str]]:
    """Be the other worker."""
    async with DurableAgent(make(folder), url, on_interrupted=policy, lease=LEASE) as durable:
        yield durable


async def step_names(durable: DurableAgent[str], run_id: str) -> list[str]:
    """Return the names of the steps on record."""
    return [name for name, _ in await recorded(durable, run_id)]


async def test_a_worker_may_die_at_every_effect(url: str, tmp_path: Path) -> None:
    """Killed at every moment of every step, beside another worker: the run ends once, each step is recorded once.

    A call that was interrupted, and is not declared idempotent, is not run again; one that is, is.
    """
    with nursery(PROGRAM, url, tmp_path) as nurse:
        async with survivor(url, tmp_path) as durable, asyncio.timeout(SECONDS):
            local = await make(tmp_path).run("go", run_id="local")
            for i, place in enumerate(PLACES):
                if i % AT_ONCE == 0:
                    for other in PLACES[i : i + AT_ONCE]:
                        nurse.start(f"run-{other}", str(other))
                run_id = f"run-{place}"
                await until_known(durable, run_id)
                result = await durable.result(run_id)
                if check_once(result, effects(tmp_path, run_id), local):
                    assert local.log.head == result.log.head
                assert STEPS == sorted(await step_names(durable, run_id))
                assert "completed" == (await durable.runs.show(run_id)).status


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is so that happens in another process."""
    while not await true():  # noqa: ASYNC110  # of another process, which tells nobody
        await asyncio.sleep(0.02)


async def until_done(folder: Path, run_id: str, effect: str) -> None:
    """Wait until a tool of a run has done something."""

    async def is_done() -> bool:
        return effect in effects(folder, run_id)

    await until(is_done)


async def is_recorded(durable: DurableAgent[str], run_id: str, step: str) -> bool:
    """Tell whether a step of a run is on record."""
    return step in await step_names(durable, run_id)


async def until_known(durable: DurableAgent[str], run_id: str) -> None:
    """Wait until a run has been started."""

    async def is_known() -> bool:
        try:
            await durable.runs.show(run_id)
        except LookupError:
            return False
        return True

    await until(is_known)


async def test_an_interrupted_call_is_run_again_where_that_is_wanted(tmp_path: Path) -> None:
    """`on_interrupted="retry"`: it runs twice, with one key, as attempts one and two, and the log says so."""
    url = f"sqlite:///{tmp_path}/runs.sqlite"
    with nursery(PROGRAM, url, tmp_path) as nurse:
        async with survivor(url, tmp_path, "retry") as durable, asyncio.timeout(SECONDS):
            nurse.start("again", str(INSIDE_PAY))
            await until_known(durable, "again")
            result = await durable.result("again")
    check_again(result, tmp_path, "again")


async def is_waiting(durable: DurableAgent[str], run_id: str) -> bool:
    """Tell whether a run waits for somebody."""
    return bool(await durable.pending(run_id))


async def test_a_person_may_decide_what_becomes_of_an_interrupted_call(tmp_path: Path) -> None:
    """`on_interrupted="ask"`: run it again, leave it, or say what came of it; the log says what was decided."""
    url = f"sqlite:///{tmp_path}/runs.sqlite"
    with nursery(PROGRAM, url, tmp_path) as nurse:
        async with survivor(url, tmp_path, "ask") as durable, asyncio.timeout(SECONDS):
            for i in range(len(DECISIONS)):
                nurse.start(f"asked-{i}", str(INSIDE_PAY))
            for i, (decision, times, status, content) in enumerate(DECISIONS):
                run_id = f"asked-{i}"
                await until(functools.partial(is_waiting, durable, run_id))
                pending = await durable.pending(run_id)
                assert [("pay", {"n": 3})] == [(request.tool, request.arguments) for request in pending]
                result = await durable.resume(run_id, {pending[0].digest: decision})
                check_asked(result, effects(tmp_path, run_id), times, status, content)


async def test_a_process_that_was_frozen_changes_nothing(url: str, tmp_path: Path) -> None:
    """SIGSTOP in a tool, the run goes on elsewhere, SIGCONT: one history, whatever the thawed process still does."""
    with nursery(PROGRAM, url, tmp_path) as nurse:
        async with survivor(url, tmp_path) as durable, asyncio.timeout(SECONDS):
            process = nurse.start("frozen", "slow")
            try:
                await until_done(tmp_path, "frozen", "pay 2")
                # With its other call on record: frozen while it writes, it would keep SQLite's one lock.
                await until(functools.partial(is_recorded, durable, "frozen", STEPS[1]))
                os.kill(process, signal.SIGSTOP)
                result = await durable.result("frozen")
                steps = await recorded(durable, "frozen")
                os.kill(process, signal.SIGCONT)
                await until_done(tmp_path, "frozen", "paid 2")  # it ends what it had begun
                await asyncio.sleep(1.0)  # and would go on
                assert steps == await recorded(durable, "frozen")
                os.kill(process, 0)  # it lives, and carries on what it starts from now on
            finally:
                os.kill(process, signal.SIGKILL)
    check_frozen(result, effects(tmp_path, "frozen"), [name for name, _ in steps])


async def recorded(durable: DurableAgent[str], run_id: str) -> list[tuple[str, object]]:
    """Return the steps of a run that are on record, with what they came to."""
    client = await durable.runs.client()
    steps = await client.list_workflow_steps_async(run_id)
    return [(step["function_name"], step["output"]) for step in steps]


async def test_a_database_that_crashes_and_comes_back_loses_nothing(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """No step is lost, and none is repeated: the result of a tool is recorded once the database is there again."""
    url = postgres_server.new_database()
    async with (
        DurableAgent(make(tmp_path, seconds=0.5), url, lease=30.0) as durable,
        asyncio.timeout(SECONDS),
    ):
        await durable.start("go", run_id="kept")
        await until_done(tmp_path, "kept", "pay 2")
        postgres_server.stop("immediate")
        await asyncio.sleep(1.0)
        postgres_server.start()
        result = await durable.result("kept")
        assert STEPS == sorted(await step_names(durable, "kept"))
    local = await make(tmp_path).run("go", run_id="local")
    assert local.log.head == result.log.head
    done = ["look 1", "pay 2", "paid 2", "pay 3", "paid 3"]
    assert sorted(done) == sorted(effects(tmp_path, "kept"))
