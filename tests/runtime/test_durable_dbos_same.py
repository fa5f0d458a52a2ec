"""The same random scripts on DBOS, in SQLite and PostgreSQL, come to what they come to in one process.

`CAPFOLD_FULL=1 pytest tests/runtime/test_durable_dbos_same.py` tries a hundred in each database, CI fewer.
"""

import asyncio
import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, field, frozen
from hypothesis import Phase, given, settings

from capfold.runtime import DecisionError
from tests.postgres import PostgresServer, postgres_server
from tests.runtime.durable_desk import BySteps, bodies, local
from tests.runtime.test_same_everywhere import CARRIED, SCRIPTS, Script, by_run, decide, scripts

pytest.importorskip("dbos", reason="dbos is missing: it is the extra `dbos`")

from capfold.runtime.dbos_port import DurableAgent  # where dbos is missing, this is skipped

__all__ = ["postgres_server"]
EXAMPLES = SCRIPTS if os.environ.get("CAPFOLD_FULL") else 25


def drawn(least: int, count: int) -> list[Script]:
    """Return random scripts, drawn before DBOS is there: its threads use random numbers, which Hypothesis guards."""
    found: list[Script] = []

    @given(scripts(least=least))
    @settings(max_examples=count, database=None, phases=[Phase.generate])
    def draw(script: Script) -> None:
        found.append(script)

    draw()
    return found


@frozen(eq=False)
class Place:
    """A worker on a database, which carries one script on after another."""

    durable: DurableAgent[Any]  # Any: of every output type
    numbers: Iterator[int] = field(factory=itertools.count)

    async def check(self, script: Script, *, asks: bool) -> None:
        """Run a script here and in this process; `asks`: an approver decides at once, else somebody later."""
        result, reason = await local(by_run(script.agent(asks=True), script))
        self.durable.replace(script.agent(asks=asks, model=BySteps(script.replies)))
        run_id = await self.durable.start(
            "go", messages=script.history, run_id=f"script-{next(self.numbers)}"
        )
        deciding = asyncio.create_task(self._decide(run_id))
        again, failed = await local(self.durable.result(run_id))
        deciding.cancel()
        await asyncio.gather(deciding, return_exceptions=True)
        left = () if asks else tuple(CARRIED)
        assert bodies(result, *left) == bodies(again, *left)
        assert reason == failed
        # Its own id is all that differs; digests do not cover it.
        assert evolve(result.state, model=None) == evolve(
            again.state, model=None, run_id="run", root_run_id="run"
        )
        assert result.messages == again.messages
        if asks:
            assert result.log.head == again.log.head

    async def _decide(self, run_id: str) -> None:
        while True:
            pending = await self.durable.pending(run_id)
            with contextlib.suppress(DecisionError):  # it went on meanwhile
                await self.durable.decide(run_id, {one.digest: decide(one) for one in pending})
            await asyncio.sleep(0.01)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.sqlite"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.new_database()


def check_all(url: str, found: Sequence[Script], *, asks: bool) -> None:
    """Carry scripts on, one after another, by one worker on a database."""

    async def carried() -> None:
        first: DurableAgent[Any] = DurableAgent(Script(("done",)).agent(asks=True), url)
        async with first as durable:
            place = Place(durable)
            for script in found:
                try:
                    await place.check(script, asks=asks)
                except AssertionError as error:
                    error.add_note(repr(script))
                    raise

    asyncio.run(carried())


def test_scripts_come_to_the_same_on_dbos(url: str) -> None:
    """With an approver: one final state, one reason, one log head."""
    check_all(url, drawn(0, EXAMPLES), asks=True)


def test_scripts_that_wait_come_to_the_same_on_dbos(url: str) -> None:
    """Where decisions are sent to a run that waits, likewise, but for the records of waiting and deciding."""
    check_all(url, drawn(1, max(10, EXAMPLES // 2)), asks=False)
