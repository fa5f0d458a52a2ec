"""The recorder: what a sink gets of a run that is cancelled while it writes."""

from collections.abc import Sequence

import anyio
import pytest
from anyio.lowlevel import checkpoint

from capfold.capabilities import ToolCall, tool
from capfold.runtime import AuditRecord
from capfold.runtime.at_last import GRACE
from tests.runtime.desk import make

CALLS = [ToolCall("a", "look"), ToolCall("b", "look")]


@tool
async def look() -> str:
    """Look."""
    await checkpoint()
    return "seen"


class Slow:
    """A sink that waits before it keeps what it gets."""

    best_effort = False

    def __init__(self, moments: int) -> None:
        """Wait for so many moments of the event loop."""
        self.moments = moments
        self.kept: list[AuditRecord] = []

    async def write(self, records: Sequence[AuditRecord]) -> None:
        """Keep them, late."""
        for _ in range(self.moments):
            await checkpoint()
        self.kept += records

    async def close(self) -> None:
        """Hold nothing open."""


async def test_a_cancelled_run_is_whole_in_every_sink() -> None:
    """Wherever a cancellation comes, each sink has each record once, in order, up to the end of the run."""
    for moment in range(60):
        first, second = Slow(2), Slow(3)
        async with make([CALLS, "done"], tools=[look], sinks=[first, second]).start("go") as handle:
            for _ in range(moment):
                await checkpoint()
            handle.cancel()
            log = [record.digest for record in (await handle.result()).log]
        assert log == [record.digest for record in first.kept] == [record.digest for record in second.kept]
        assert "run_ended" == first.kept[-1].kind


async def test_so_it_is_for_a_task_that_asyncio_cancels(anyio_backend: str) -> None:
    """A task that is cancelled without a scope has no shield: the sinks get the rest all the same."""
    if anyio_backend == "trio":
        pytest.skip("of asyncio alone")
    import asyncio  # noqa: PLC0415  # of this backend only

    for moment in range(60):
        sinks = [Slow(2), Slow(3)]
        task = asyncio.ensure_future(make([CALLS, "done"], tools=[look], sinks=sinks).run("go"))
        for _ in range(moment):
            await checkpoint()
        task.cancel()
        await asyncio.wait([task])
        kept = [[record.seq for record in sink.kept] for sink in sinks]
        assert [list(range(len(kept[0])))] * 2 == kept
        assert not kept[0] or "run_ended" == sinks[0].kept[-1].kind


async def test_a_sink_that_hangs_does_not_hold_a_cancelled_run() -> None:
    """It is given up after the grace, and the log says so."""

    class Hangs(Slow):
        async def write(self, records: Sequence[AuditRecord]) -> None:
            await anyio.sleep_forever()

    with anyio.fail_after(4 * GRACE):
        async with make(["done"], sinks=[Hangs(0)]).start("go") as handle:
            await anyio.sleep(0.01)
            handle.cancel()
            result = await handle.result()
    assert "cancelled" == result.status
    (failed,) = [record.facts["sink_failed"] for record in result.log if "sink_failed" in record.facts]
    assert "did not end in time" in str(failed)
