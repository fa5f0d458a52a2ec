"""The runs that a worker of Temporal has in memory: taken over from their histories, dropped when they go on elsewhere.

A run in memory may be ahead of its history by what was performed last. Where that is known to be lost, the workflow
counts an epoch, and the run is taken over anew. Knows nothing of activities.
"""

import asyncio

from attrs import define
from temporalio.client import Client

from ..capabilities.frozen import FrozenDict, FrozenList
from .durable_journal import put_aside, taken_back
from .durable_order import place_of
from .durable_run import Carried, Worker, carry, told
from .event_codec import dumps
from .temporal_engine import House, TemporalEngine, short
from .temporal_history import read_base, read_history
from .temporal_records import Todo

IN_MEMORY = 500  # runs that stand here without a step under way
Place = tuple[str, str]  # the id of a workflow, and Temporal's own id of its run


@define(eq=False)
class Held:
    """A run in memory. `epoch`: of the records that it goes on from; `users`: activities that need it now."""

    engine: TemporalEngine
    epoch: int
    users: int = 0


class Memory:
    """The runs of one agent in this process."""

    def __init__(self, client: Client, worker: Worker, house: House) -> None:
        """Start without a run."""
        self._client = client
        self._worker = worker
        self._house = house
        self._held: dict[Place, Held] = {}
        self._taking: dict[Place, asyncio.Lock] = {}
        self._retired: list[Held] = []
        self._closing: set[asyncio.Future[None]] = set()

    async def take(self, place: Place, todo: Todo) -> Held:
        """Return a run that stands where its records end, with one user more."""
        async with self._taking.setdefault(place, asyncio.Lock()):
            held = self._held.get(place)
            if held is not None and held.epoch < todo.epoch:
                self.retire(place, held)
                held = None
            if held is None:
                held = Held(await self._begun(place), todo.epoch)
            self._held.pop(place, None)
            self._held[place] = held  # the last one now
            held.users += 1
            if len(held.engine.texts) < todo.known:
                await self.refresh(place, held)
        return held

    async def refresh(self, place: Place, held: Held) -> bool:
        """Take over what other workers recorded; return whether there was anything."""
        found = await read_history(self._client, *place)
        before = len(held.engine.texts)
        held.engine.take(found.texts, found.messages)
        return len(held.engine.texts) > before

    def forget(self, place: Place) -> None:
        """Drop a run that has ended."""
        self._held.pop(place, None)

    def retire(self, place: Place, held: Held) -> None:
        """Hand a run out no more; it is dropped when nobody needs it."""
        if self._held.get(place) is held:
            del self._held[place]
        if held not in self._retired:
            self._retired.append(held)

    def drop(self) -> None:
        """Drop the runs that nobody needs any more, and the oldest where there are too many."""
        idle = [held for held in self._retired if not held.users]
        self._retired = [held for held in self._retired if held.users]
        old = [place for place in [*self._held][:-IN_MEMORY] if not self._held[place].users]
        idle.extend([self._held.pop(place) for place in old])
        for place, lock in [*self._taking.items()]:
            if place not in self._held and not lock.locked():
                del self._taking[place]
        for held in idle:
            self._close(held)

    async def close(self) -> None:
        """Drop all."""
        for held in [*self._held.values(), *self._retired]:
            self._close(held)
        self._held.clear()
        self._retired.clear()
        await asyncio.gather(*self._closing)

    def _close(self, held: Held) -> None:
        closing = asyncio.ensure_future(held.engine.close())  # a tool may take its time to end
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _begun(self, place: Place) -> TemporalEngine:
        found = await read_history(self._client, *place)
        engine = TemporalEngine(*place, self._house)
        engine.base = await read_base(engine, found)
        engine.take(found.texts, found.messages)

        async def work() -> tuple[Carried, str]:
            order = await taken_back(engine, found.start.order)
            carried = await carry(engine, self._worker, found.start.order)
            text = told(carried)
            if place_of(self._worker.agent, order).is_root:
                text = FrozenDict({**text, "records": FrozenList()})  # its records are its history
            return carried, await short(engine, await put_aside(engine, dumps(text)))

        engine.begin(work)
        return engine
