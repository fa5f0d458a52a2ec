"""What a run on Temporal needs beside its history: runs below it, and a place for long texts.

A server that is away is waited for. Knows nothing of steps.
"""

import asyncio

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from ..capabilities.outside_stores import BlobStore
from .durable_run import stop_message
from .port import Port
from .stores import StoreError
from .temporal_engine import TemporalEngine
from .temporal_records import CHILD, STOP, Below

# What is raised where a server or a store is away, and not by a fault of the run.
AWAY = (RPCError, StoreError, OSError)
PAUSE = 1.0
_PASSING = {
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.CANCELLED,
}


class TemporalHouse:
    """A server, and a store. `aside`: where long texts are kept."""

    def __init__(self, client: Client, port: Port, aside: BlobStore | None) -> None:
        """Take them."""
        self._client = client
        self._port = port
        self._aside = aside

    async def run_below(self, above: TemporalEngine, run_id: str, order: str) -> str:
        """Start a run below as a child of the workflow above, or find it; return what it came to, wherever it ends."""
        handle = self._client.get_workflow_handle(above.run_id, run_id=above.execution)
        below = self._client.get_workflow_handle(run_id, result_type=str)
        while True:
            try:
                await handle.execute_update(CHILD, Below(run_id, order))
                text: str = await below.result()
            except RPCError as error:
                if error.status not in _PASSING:
                    raise
            else:
                return text
            await asyncio.sleep(PAUSE)

    async def end_below(self, run_id: str) -> None:
        """Ask a run below to end."""
        try:
            await self._client.get_workflow_handle(run_id).signal(STOP, stop_message(None, self._port.now()))
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:  # else it has ended, or was never started
                raise

    async def keep(self, text: str) -> str:
        """Keep a long text where the agent was told to. Raises RuntimeError where it was told nothing."""
        return await keep_aside(self._aside, text)

    async def kept(self, name: str) -> str:
        """Return a text that was kept. Raises LookupError where it is not there."""
        return await kept_aside(self._aside, name)


async def keep_aside(aside: BlobStore | None, text: str) -> str:
    """Keep a long text; return its name. Raises RuntimeError where there is no place for it."""
    if aside is None:
        raise RuntimeError(
            f"a text of {len(text):,} characters is longer than what Temporal records: give TemporalAgent(aside=...) "
            "a BlobStore that all workers share"
        )
    return await aside.put("capfold", text.encode(), "application/json")


async def kept_aside(aside: BlobStore | None, name: str) -> str:
    """Return a text that was kept. Raises LookupError where it is not there, RuntimeError where there is no place."""
    if aside is None:
        raise RuntimeError(
            f"a text of this run is kept aside as {name!r:.80}: give TemporalAgent(aside=...) the BlobStore it is in"
        )
    return (await aside.get(name)).decode()
