"""One durable run on DBOS: its steps, messages and stream are those of a workflow.

Knows keys and texts, as an engine does. What a process has beside its runs is `dbos_home`'s business.
"""

import asyncio
import json
import os
from typing import Protocol

try:
    from dbos import DBOS
    from dbos import error as dbos_error
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "durable runs on DBOS need the extra `dbos`: pip install 'capfold[dbos]'", name=error.name
    ) from error

from .dbos_tables import Tables, in_thread
from .durable_engine import Interrupts, Perform

EVENTS = "events"  # the stream of a run
FOREVER = 10 * 365 * 86_400.0  # a decision may come as late as that
_PACE = 0.02  # seconds between two writes of events to the stream


class House(Protocol):
    """What an engine needs of its process."""

    tables: Tables

    async def run_below(self, run_id: str, order: str) -> str:
        """Start a run below, or find it; return what it came to."""

    async def end_below(self, run_id: str) -> None:
        """Ask a run below to end."""

    async def send(self, run_id: str, topic: str, message: str) -> None:
        """Send a message to a run; a second one of a topic is dropped."""

    async def enter(self) -> None:
        """Take note that a step begins; once the process leaves, none does: it waits to be cancelled."""

    def leave(self) -> None:
        """Take note that a step is on record, or waits for a run below."""

    def enter_again(self) -> None:
        """Take note that a step has what it waited for."""


class DbosEngine:
    """One run, as the workflow of the same id has it. To be used inside that workflow."""

    def __init__(self, run_id: str, house: House) -> None:
        """Stand in a workflow."""
        self.run_id = run_id
        self.control = Interrupts()
        self.topic: str | None = None  # that the run waits for
        self._house = house
        self._shown: list[str] = []
        self._showing: asyncio.Task[None] | None = None  # while it has not begun to write
        self._writing = asyncio.Lock()

    async def step(self, key: str, perform: Perform, *, counted: bool) -> str:
        """Return what is recorded under a key, or perform it as a step of that name."""
        entered = False

        async def performed() -> str:
            nonlocal entered
            await self._house.enter()
            entered = True
            attempt = 1
            if counted:
                nonce = os.urandom(8).hex()
                attempt = await in_thread(self._house.tables.begin, self.run_id, key, nonce)
            text = await perform(attempt)
            await self._show()
            return text

        try:
            return await DBOS.run_step_async({"name": key}, performed)
        except dbos_error.DBOSUnexpectedStepError as error:
            raise self._parted(key) from error
        finally:
            if entered:
                self._house.leave()

    async def wait(self, topic: str, asked: str) -> str:
        """Return the message of a topic."""
        await in_thread(self._house.tables.wait, self.run_id, topic, asked)
        self.topic = topic
        try:
            message: str = await DBOS.recv_async(topic, timeout_seconds=FOREVER)
        except dbos_error.DBOSUnexpectedStepError as error:
            raise self._parted(topic) from error
        finally:
            self.topic = None
        await in_thread(self._house.tables.waited, self.run_id, topic)
        return message

    def _parted(self, key: str) -> RuntimeError:
        return RuntimeError(
            f"run {self.run_id!r} comes to {key!r} where its records have another step: the agent of this worker is "
            "not the one that the run began with, or one of its capabilities is not deterministic. A changed agent is "
            "a new `version`; `fork` goes on with what is recorded before a step"
        )

    async def child(self, run_id: str, order: str) -> str:
        """Start a run below as a workflow of its own, or find it; return what it came to."""
        self._house.leave()  # its own steps count: whoever leaves does not wait for all of it
        try:
            return await self._house.run_below(run_id, order)
        finally:
            self._house.enter_again()

    async def cut(self, run_id: str) -> None:
        """Ask a run below to end now."""
        await self._house.end_below(run_id)

    def emit(self, event: str) -> None:
        """Write an event to the run's stream, with others that come at about the same time."""
        self._shown.append(event)
        if self._showing is None:
            self._showing = asyncio.create_task(self._show_soon())

    async def _show_soon(self) -> None:
        await asyncio.sleep(_PACE)
        self._showing = None
        await self._write()

    async def _show(self) -> None:
        """Write what was not written, before the step ends: outside of steps it would be a step of its own."""
        showing, self._showing = self._showing, None
        if showing is not None:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)
        await self._write()

    async def _write(self) -> None:
        async with self._writing:
            if self._shown:
                events, self._shown = self._shown, []
                await DBOS.write_stream_async(EVENTS, json.dumps(events))

    async def keep(self, text: str) -> str:
        """Keep a text in a table."""
        return await in_thread(self._house.tables.keep, text)

    async def kept(self, name: str) -> str:
        """Return a text that was kept."""
        return await in_thread(self._house.tables.kept, name)
