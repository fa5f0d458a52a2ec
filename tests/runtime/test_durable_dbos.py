"""Durable runs on DBOS, in SQLite and PostgreSQL: processes that die or freeze, and a database that does.

By default a worker dies at some places of a run; `CAPFOLD_FULL=1 pytest tests/runtime/test_durable_dbos.py` takes all.
"""

import asyncio
import functools
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from capfold.runtime import Answer, Approve, Decision, Deny, RunResult
from tests.postgres import PostgresServer, postgres_server
from tests.runtime.desk import contents, results
from tests.runtime.durable_desk import bodies, make

pytest.importorskip("dbos", reason="dbos is missing: it is the extra `dbos`")

from capfold.runtime.dbos_port import DurableAgent  # where dbos is missing, this is skipped
from capfold.runtime.durable_engine import Policy  # as above
from tests.runtime.durable_processes import LEASE  # as above

__all__ = ["postgres_server"]
DATABASES = ("sqlite", "postgres")
STEPS = [
    "1:1:model",
    "2:1:call/call_1_0",
    "2:1:call/call_1_1",
    "3:2:model",
    "4:2:call/call_4_0",
    "5:3:model",
    "6:3:end",
]
# Of each step: before it is performed, before it is recorded, and right after.
MOMENTS = range(1, 3 * len(STEPS) + 1)
SOME = (2, 4, 5, 6, 8, 9, 11, 13, 14, 21)
PLACES = tuple(MOMENTS) if os.environ.get("CAPFOLD_FULL") else SOME
INSIDE_PAY = 14  # the second payment was made, and is not recorded
SECONDS = 120
AT_ONCE = 5


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
def nursery(url: str, folder: Path) -> Iterator[Nursery]:
    """Keep a process from which others are forked."""
    command = [sys.executable, "-m", "tests.runtime.durable_processes", url, str(folder)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    ) as process:
        try:
            yield Nursery(process)
        finally:
            process.kill()


@asynccontextmanager
async def survivor(url: str, folder: Path, policy: Policy = "unknown") -> AsyncIterator[DurableAgent[str]]:
    """Be the other worker."""
    async with DurableAgent(make(folder), url, on_interrupted=policy, lease=LEASE) as durable:
        yield durable


def effects(folder: Path, run_id: str) -> list[str]:
    """Return what the tools of a run did, without attempts and keys."""
    file = folder / run_id
    return [" ".join(line.split()[:2]) for line in file.read_text().splitlines()] if file.exists() else []


async def step_names(durable: DurableAgent[str], run_id: str) -> list[str]:
    """Return the names of the steps on record."""
    return [name for name, _ in await recorded(durable, run_id)]


async def test_a_worker_may_die_at_every_effect(url: str, tmp_path: Path) -> None:
    """Killed at every moment of every step, beside another worker: the run ends once, each step is recorded once.

    A call that was interrupted, and is not declared idempotent, is not run again; one that is, is.
    """
    with nursery(url, tmp_path) as nurse:
        async with survivor(url, tmp_path) as durable, asyncio.timeout(SECONDS):
            local = await make(tmp_path).run("go", run_id="local")
            for i, place in enumerate(PLACES):
                if i % AT_ONCE == 0:  # more at once, and they are too slow for their leases
                    for other in PLACES[i : i + AT_ONCE]:
                        nurse.start(f"run-{other}", str(other))
                run_id = f"run-{place}"
                await until_known(durable, run_id)
                result = await durable.result(run_id)
                check_once(result, effects(tmp_path, run_id), local)
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
        assert result.log.head == local.log.head


async def test_an_interrupted_call_is_run_again_where_that_is_wanted(tmp_path: Path) -> None:
    """`on_interrupted="retry"`: it runs twice, with one key, as attempts one and two, and the log says so."""
    url = f"sqlite:///{tmp_path}/runs.sqlite"
    with nursery(url, tmp_path) as nurse:
        async with survivor(url, tmp_path, "retry") as durable, asyncio.timeout(SECONDS):
            nurse.start("again", str(INSIDE_PAY))
            await until_known(durable, "again")
            result = await durable.result("again")
    lines = [line.split() for line in (tmp_path / "again").read_text().splitlines()]
    paid = [line for line in lines if line[:2] == ["pay", "3"]]
    assert [["pay", "3", "1", "again:2:call_4_0"], ["pay", "3", "2", "again:2:call_4_0"]] == paid
    notes = [record.facts for record in result.log if "interrupted" in record.facts]
    assert [{"interrupted": 1, "handled": "retry"}] == notes
    assert "completed" == result.status


DECISIONS: tuple[tuple[Decision, int, str, str], ...] = (
    (Approve(), 2, "succeeded", "paid 3"),
    (Deny("It was paid, says the bank."), 1, "unknown", "It was paid, says the bank."),
    (Answer("paid 3, says the bank"), 1, "answered", "paid 3, says the bank"),
)


async def is_waiting(durable: DurableAgent[str], run_id: str) -> bool:
    """Tell whether a run waits for somebody."""
    return bool(await durable.pending(run_id))


async def test_a_person_may_decide_what_becomes_of_an_interrupted_call(tmp_path: Path) -> None:
    """`on_interrupted="ask"`: run it again, leave it, or say what came of it; the log says what was decided."""
    url = f"sqlite:///{tmp_path}/runs.sqlite"
    with nursery(url, tmp_path) as nurse:
        async with survivor(url, tmp_path, "ask") as durable, asyncio.timeout(SECONDS):
            for i in range(len(DECISIONS)):
                nurse.start(f"asked-{i}", str(INSIDE_PAY))
            for i, (decision, times, status, content) in enumerate(DECISIONS):
                run_id = f"asked-{i}"
                await until(functools.partial(is_waiting, durable, run_id))
                pending = await durable.pending(run_id)
                assert [("pay", {"n": 3})] == [(request.tool, request.arguments) for request in pending]
                result = await durable.resume(run_id, {pending[0].digest: decision})
                assert times == effects(tmp_path, run_id).count("pay 3")
                assert ("pay", status) == results(result.messages)[-1]
                assert content == contents(result.messages)[-1]
                (note,) = [record.facts for record in result.log if "interrupted" in record.facts]
                assert "ask" == note["handled"]


async def test_a_process_that_was_frozen_changes_nothing(url: str, tmp_path: Path) -> None:
    """SIGSTOP in a tool, the run goes on elsewhere, SIGCONT: one history, whatever the thawed process still does."""
    with nursery(url, tmp_path) as nurse:
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
    assert [("look", "succeeded"), ("pay", "unknown"), ("pay", "succeeded")] == results(result.messages)
    assert 1 == effects(tmp_path, "frozen").count("pay 2")
    assert 1 == effects(tmp_path, "frozen").count("pay 3")
    assert STEPS == sorted(name for name, _ in steps)


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
