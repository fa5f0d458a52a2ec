"""An engine in memory: what is recorded lives as long as the process. For tests, and to read a recorded run again.

It is the plainest engine there is: a table of texts by key. `faults` lets a test end a worker at any point of a step.
"""

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

import anyio
from attrs import field, frozen

from .durable_engine import Interrupts, Perform

# Where a step stands: about to be performed, performed and not recorded, recorded.
Moment: TypeAlias = Literal["begun", "performed", "recorded"]
# Called at each moment of each step of each run, with run id and key; raises what ends the worker.
Faults: TypeAlias = Callable[[str, str, Moment], None]
# Carries a run below on: its engine, and its order.
CarryBelow: TypeAlias = Callable[["JournalEngine", str], Awaitable[str]]


def no_fault(run_id: str, key: str, moment: Moment) -> None:
    """Let every worker live."""


@frozen(eq=False)
class Records:
    """What is recorded of runs: texts by run and key, in order of recording. Shared by all engines over it.

    `begun`: how often a counted step was begun. `messages`: sent and not taken, by run and topic. `asked`: what runs
    wait for, by run. `shown`: the events of each run. `aside`: long texts by name. `ended`: what runs below came to.
    """

    steps: dict[str, dict[str, str]] = field(factory=dict)
    begun: dict[tuple[str, str], int] = field(factory=dict)
    messages: dict[tuple[str, str], str] = field(factory=dict)
    asked: dict[str, str] = field(factory=dict)
    shown: dict[str, list[str]] = field(factory=dict)
    aside: dict[str, str] = field(factory=dict)
    ended: dict[str, str] = field(factory=dict)

    def send(self, run_id: str, topic: str, message: str) -> None:
        """Send a message to a run that waits, or will."""
        self.messages.setdefault((run_id, topic), message)


class NothingRecorded(LookupError):
    """A run that is only read has no record of its next step: it has not ended yet. `key`: of that step."""

    def __init__(self, key: str) -> None:
        """Name the step."""
        super().__init__(f"nothing is recorded under {key!r}")
        self.key = key


class JournalEngine:
    """One run over records in memory. `live` False: it is only read; what is not recorded raises NothingRecorded.

    `below`: what carries runs below on, in the task of the step that calls them.
    """

    def __init__(
        self,
        run_id: str,
        records: Records,
        *,
        below: CarryBelow | None = None,
        faults: Faults = no_fault,
        live: bool = True,
    ) -> None:
        """Go on with what is recorded of a run."""
        self.run_id = run_id
        self.control = Interrupts()
        self.records = records
        self._steps = records.steps.setdefault(run_id, {})
        self._below = below
        self._faults = faults
        self._live = live
        self._news = anyio.Event()
        self._children: dict[str, JournalEngine] = {}

    async def step(self, key: str, perform: Perform, *, counted: bool) -> str:
        """Return what is recorded under a key, or perform and record it."""
        if key in self._steps:
            return self._steps[key]
        if not self._live:
            raise NothingRecorded(key)
        attempt = 1
        if counted:
            place = (self.run_id, key)
            attempt = self.records.begun[place] = self.records.begun.get(place, 0) + 1
        self._faults(self.run_id, key, "begun")
        text = await perform(attempt)
        self._faults(self.run_id, key, "performed")
        self._steps[key] = text
        self._faults(self.run_id, key, "recorded")
        return text

    async def wait(self, topic: str, asked: str) -> str:
        """Return the message of a topic; a run that is only read shows what it waits for in `records.asked`."""
        self.records.asked[self.run_id] = asked
        if topic not in self._steps:
            if not self._live:
                raise NothingRecorded(topic)
            self._faults(self.run_id, topic, "begun")
            while (self.run_id, topic) not in self.records.messages:
                self._news = anyio.Event()
                await self._news.wait()
            self._steps[topic] = self.records.messages.pop((self.run_id, topic))
            self._faults(self.run_id, topic, "recorded")
        self.records.asked.pop(self.run_id, None)
        return self._steps[topic]

    def send(self, topic: str, message: str) -> None:
        """Send the run a message, and wake it."""
        self.records.send(self.run_id, topic, message)
        self._news.set()

    async def child(self, run_id: str, order: str) -> str:
        """Carry a run below on, here."""
        if run_id not in self.records.ended:
            if self._below is None:
                raise RuntimeError(
                    f"run {self.run_id!r} calls {run_id!r} below it, and nothing carries that on"
                )
            engine = self._children[run_id] = self.engine_below(run_id)
            self.records.ended[run_id] = await self._below(engine, order)
        return self.records.ended[run_id]

    def engine_below(self, run_id: str) -> "JournalEngine":
        """Return the engine of a run below."""
        return JournalEngine(run_id, self.records, below=self._below, faults=self._faults)

    async def cut(self, run_id: str) -> None:
        """Ask a run below to end."""
        engine = self._children.get(run_id)
        if engine is not None:
            engine.control.cancel()

    def emit(self, event: str) -> None:
        """Show an event."""
        self.records.shown.setdefault(self.run_id, []).append(event)

    async def keep(self, text: str) -> str:
        """Keep a text aside."""
        name = f"text-{len(self.records.aside)}"
        self.records.aside[name] = text
        return name

    async def kept(self, name: str) -> str:
        """Return a text that was kept aside."""
        return self.records.aside[name]
