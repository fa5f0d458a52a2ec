"""One durable run in the memory of a worker: its machine stands before the steps that the workflow may order next.

The run is carried on from what is recorded until it needs a step of which nothing is. That step waits here until its
activity comes; then it is performed, its text goes to the workflow, and the machine goes on at once as far as it can,
so that the same activity says what is next. Should its text never be recorded, the workflow orders the step again under
a new epoch, and this run in memory is dropped. Knows keys and texts, and what Temporal needs of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, cast

from attrs import define, field

from ..capabilities.frozen import FrozenDict
from ..capabilities.run_parts import Stop
from .durable_engine import Engine, Interrupts, Perform
from .durable_journal import ASIDE
from .durable_run import GRACE, Carried
from .event_codec import dumps, loads
from .event_parts import JsonObject, get
from .temporal_history import Base

# Turns of the event loop in which nothing new is asked for: then a machine stands. All that it does between two
# steps is to start the branches of a batch; a branch that came later still would be asked for with the next step.
TURNS = 20
LOOK_AHEAD = (
    0.2  # seconds that a performed step waits to say what is next: code of users may be on the way there
)
# Of a text as it stands in a payload, in bytes; a payload takes 2 MiB, and holds more than that text.
MAX_TEXT = 1_500_000


class House(Protocol):
    """What a run needs of its worker."""

    async def run_below(self, above: "TemporalEngine", run_id: str, order: str) -> str:
        """Start a run below, or find it; return what it came to."""

    async def end_below(self, run_id: str) -> None:
        """Ask a run below to end."""

    async def keep(self, text: str) -> str:
        """Keep a long text; return its name."""

    async def kept(self, name: str) -> str:
        """Return a text that was kept."""


class NeverAsked(RuntimeError):
    """The run does not come to a step that was ordered: it is not what it was when that was said to be next."""


@define(eq=False)
class Slot:
    """A step that is not recorded. `order`: the number of its attempt, or its text where another worker recorded it."""

    order: asyncio.Future[int | str]
    done: asyncio.Future[str]
    granted: bool = field(default=False)


class TemporalEngine:
    """One run, as the workflow of the same id has it.

    `execution`: Temporal's own id of the workflow's run. `base`: what it shares with the run that it is a fork of.
    """

    def __init__(self, run_id: str, execution: str, house: House) -> None:
        """Stand before what is recorded."""
        self.run_id = run_id
        self.execution = execution
        self.control = Interrupts()
        self.base = Base()
        self.texts: dict[str, str] = {}
        self.messages: dict[str, str] = {}
        self.waiting: tuple[str, str] | None = None
        self._house = house
        self._slots: dict[str, Slot] = {}
        self._news = asyncio.Event()
        self._told = 0
        self._message: asyncio.Future[str] | None = None
        self._work: asyncio.Task[tuple[Carried, str]] | None = None

    # --- as the run sees it

    async def step(self, key: str, perform: Perform, *, counted: bool) -> str:
        """Return what is recorded under a key, or wait until its activity comes, and perform it."""
        if key in self.base.texts:
            return self.base.texts[key]
        if key in self.texts:
            return self.texts[key]
        loop = asyncio.get_running_loop()
        slot = self._slots[key] = Slot(loop.create_future(), loop.create_future())
        self._tell()
        try:
            order = await slot.order
            if isinstance(order, str):
                return order
            text = await short(self, await perform(order if counted else 1))
            self.texts[key] = text
            slot.done.set_result(text)
            return text
        finally:
            del self._slots[key]
            slot.done.cancel()  # where it has no result
            self._tell()

    async def wait(self, topic: str, asked: str) -> str:
        """Return the message of a topic, which the workflow waits for."""
        if topic in self.base.messages:
            return self.base.messages[topic]
        if topic not in self.messages:
            self._message = asyncio.get_running_loop().create_future()
            self.waiting = (topic, asked)
            self._tell()
            try:
                self.messages[topic] = await self._message
            finally:
                self.waiting = self._message = None
        return self.messages[topic]

    async def child(self, run_id: str, order: str) -> str:
        """Start a run below as a child workflow, or find it; return what it came to."""
        return await self._house.run_below(self, run_id, await short(self, order))

    async def cut(self, run_id: str) -> None:
        """Ask a run below to end now."""
        await self._house.end_below(run_id)

    def emit(self, event: str) -> None:
        """Show an event to nobody: no run is started with `live` here."""

    async def keep(self, text: str) -> str:
        """Keep a text aside."""
        return await self._house.keep(text)

    async def kept(self, name: str) -> str:
        """Return a text that was kept."""
        return await self._house.kept(name)

    # --- as its worker sees it

    def begin(self, work: Callable[[], Awaitable[tuple[Carried, str]]]) -> None:
        """Begin to carry the run on."""

        async def worked() -> tuple[Carried, str]:
            try:
                return await work()
            finally:
                self._tell()

        self._work = asyncio.ensure_future(worked())
        self._work.add_done_callback(lambda done: self._tell())

    async def close(self) -> None:
        """Drop the run from memory; what is performed is cancelled, and recorded nowhere."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    def take(self, texts: Mapping[str, str], messages: Mapping[str, str]) -> None:
        """Take over what was recorded by other workers meanwhile."""
        for topic, message in messages.items():
            self.send(topic, message)
        for key, text in texts.items():
            slot = self._slots.get(key)
            if slot is None:
                self.texts.setdefault(key, text)
            elif not slot.granted:
                self.texts[key] = text
                slot.granted = True
                slot.order.set_result(text)

    def send(self, topic: str, message: str) -> None:
        """Take what was sent to a topic."""
        if self.waiting is not None and self.waiting[0] == topic:
            if self._message is not None and not self._message.done():
                self._message.set_result(message)
        else:
            self.messages.setdefault(topic, message)

    def heed(self, wish: str) -> None:
        """Let what is performed, and all that follows, be cut short as somebody wishes."""
        stop = stop_in(loads(wish))
        if stop is None:
            self.control.cancel()
        else:
            self.control.ask(stop.message, GRACE)

    async def perform(self, key: str, attempt: int) -> str:
        """Perform a step that the run stands before. Raises NeverAsked where it stands before others, or has ended."""
        while key not in self._slots and await self.stands():
            if key not in self._slots:
                raise NeverAsked(
                    f"run {self.run_id!r} does not come to step {key!r} again; it stands before "
                    f"{', '.join(map(repr, self._slots)) or 'none'}: the agent of this worker is another one, or one "
                    "of its capabilities is not deterministic"
                )
        slot = self._slots[key]
        slot.granted = True
        slot.order.set_result(attempt)
        await asyncio.wait({slot.done})
        if slot.done.cancelled():  # the run itself broke, or was dropped
            assert self._work is not None, "it was begun"
            await asyncio.wait({self._work})
            self._work.result()
            raise asyncio.CancelledError
        return slot.done.result()

    async def stands(self) -> bool:
        """Wait until the run stands before steps or a wait, or has ended; return True."""
        while True:
            if not (self._slots or self.waiting or (self._work is not None and self._work.done())):
                self._news.clear()
                await self._news.wait()
            told = self._told
            for _ in range(TURNS):
                await asyncio.sleep(0)
            if told == self._told and (self._slots or self.waiting or self.is_over):
                return True

    @property
    def is_over(self) -> bool:
        """Whether the run has come to its end, or broke on the way."""
        return self._work is not None and self._work.done()

    def next(self) -> tuple[str, ...]:
        """Return the keys of steps that can begin."""
        return tuple([key for key, slot in self._slots.items() if not slot.granted])

    async def ended(self) -> tuple[Carried, str] | None:
        """Return what the run came to, None as long as it has not. Raises what broke it."""
        return await self._work if self._work is not None and self._work.done() else None

    def _tell(self) -> None:
        self._told += 1
        self._news.set()


async def short(engine: Engine, text: str) -> str:
    """Return a text, or what stands for it where it would grow, as JSON within JSON, beyond what a payload takes."""
    if len(text) * 2 <= MAX_TEXT or len(dumps(text)) <= MAX_TEXT:
        return text
    return dumps(FrozenDict({ASIDE: await engine.keep(text)}))


def stop_in(wish: JsonObject) -> Stop | None:
    """Return the stop of a wish, None for one that a run is cancelled."""
    return None if wish["stop"] is None else get(cast(JsonObject, wish["stop"]), Stop)
