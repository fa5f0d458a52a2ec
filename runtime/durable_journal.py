"""The journal of a durable run: each effect one recorded step, whose result is JSON; long ones are kept aside.

Sinks hear of a record before the effect after it, and of none twice but those that a lost worker wrote last.
Knows nothing of what the effects are.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

from ..capabilities.frozen import FrozenDict, FrozenList, Json
from .durable_engine import MAX_RECORDED, Engine
from .event_codec import dumps, loads
from .event_parts import JsonObject, get_entries, put_entries
from .phases import Broken
from .recorder import Recorder
from .replay_facts import entry_of

ASIDE = "aside"
NOTES = "notes"
# Takes the number of the attempt; returns what is recorded.
Act: TypeAlias = Callable[[int], Awaitable[JsonObject]]


class Journal:
    """The steps of one run, numbered in the order of its effects.

    `told`: whether a sink's failure has ended this run.
    """

    def __init__(self, engine: Engine, recorder: Recorder) -> None:
        """Start before the first effect."""
        self.engine = engine
        self.recorder = recorder
        self.told = False
        self._number = 0
        self._performing = 0
        self._unshown: list[str] = []

    def show(self, event: str) -> None:
        """Show an event to whoever follows the run: now, inside a step, or with the next one that is performed."""
        if self._performing:
            self.engine.emit(event)
        else:
            self._unshown.append(event)

    def key(self, step: int, name: str) -> str:
        """Return the key of the next effect; `step`: that of the run."""
        self._number += 1
        return f"{self._number}:{step}:{name}"

    async def once(self, key: str, act: Act, *, counted: bool = False) -> JsonObject:
        """Return what `act` comes to: performed now, or recorded before; the same JSON in both cases.

        What a failing sink left in the log stands there too, under `NOTES`, and is taken over from there.
        """
        performed = False

        async def perform(attempt: int) -> str:
            nonlocal performed
            performed = True
            self._performing += 1
            try:
                self._show_all()
                return await put_aside(self.engine, dumps(await act(attempt)))
            finally:
                self._performing -= 1

        text = await self.engine.step(key, perform, counted=counted)
        found = await taken_back(self.engine, text)
        if not performed:
            self._unshown.clear()  # whoever performed it has shown them
            self.recorder.append(get_entries(found.get(NOTES, FrozenList()), self.engine.run_id))
            self.recorder.replayed()
        return found

    def _show_all(self) -> None:
        for event in self._unshown:
            self.engine.emit(event)
        self._unshown.clear()

    async def flushed(self, step: int, now: float) -> tuple[Broken | None, Json]:
        """Write all new records to the sinks; return a failure to end the run by, once, and the notes that it left."""
        recorder, run_id = self.recorder, self.engine.run_id
        before = len(recorder.log)
        await recorder.flush(run_id, step, now)
        left = recorder.log.encoded_since(before) if len(recorder.log) > before else ()
        problem = None if self.told else recorder.problem
        return problem, put_entries(map(entry_of, left), run_id)


async def put_aside(engine: Engine, text: str) -> str:
    """Return the text, or where it is long what stands for it."""
    if len(text) <= MAX_RECORDED:
        return text
    return dumps(FrozenDict({ASIDE: await engine.keep(text)}))


async def taken_back(engine: Engine, text: str) -> JsonObject:
    """Return the JSON object of a text that `put_aside` returned."""
    found = loads(text)
    if len(found) == 1 and ASIDE in found:
        found = loads(await engine.kept(cast(str, found[ASIDE])))
    return found
