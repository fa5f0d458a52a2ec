"""The durable driver: each effect of the machine is one step of an engine, and each event comes from its record.

What a run is carried on by is what was recorded; so it comes to the same, wherever and however often that happens. A
cancellation is that of the worker: nothing is recorded, and another one goes on. Knows no rules, and no engine.
"""

import math
from collections.abc import Awaitable, Callable
from typing import cast

import anyio

from ..capabilities.frozen import FrozenDict
from ..capabilities.records import replace
from ..capabilities.run_parts import NamedModel
from ..capabilities.state import RunState
from . import machine
from .driver import ENDS, PERFORM, End, ask_approver
from .durable_engine import Interrupts
from .durable_journal import NOTES, Journal
from .durable_store import KeptOnce
from .entries import Entry
from .errors import SinkFailed
from .event_codec import event_from_json, event_to_json
from .event_parts import JsonObject, get_broken, get_entries, put_broken, put_entries
from .ledger import exceeded
from .phases import (
    AskApproval,
    Broken,
    Effect,
    Enter,
    Entered,
    Event,
    Finish,
    Gather,
    Interrupted,
    Leave,
    Left,
    Open,
    RequestModel,
    RunTools,
    Save,
    Suspend,
    Undecided,
)
from .run_onion import enclose
from .saving import Saving
from .session import Session
from .work import MachineState, Work

# Waits for the decisions that nobody gave at once, and returns what comes of that.
Waits = Callable[["DurableDriver", AskApproval, Undecided], Awaitable[Event]]
# Drives a batch of calls to its event.
Batches = Callable[["DurableDriver", RunTools], Awaitable[Event]]


class DurableDriver:
    """Drives one run, from a move of the machine to its end, or until it waits for decisions."""

    def __init__(
        self,
        moved: machine.Moved,
        journal: Journal,
        sessions: Callable[[int], Session],
        batches: Batches,
        waits: Waits | None = None,
    ) -> None:
        """Take a move, and what the run is driven with; `sessions`: of one effect, from its attempts before.

        `waits`: of a run below, which is not suspended, since the one above is not.
        """
        self.state, self._effect, entries = moved
        self.journal = journal
        self.sessions = sessions
        self.base = sessions(0)
        self._batches = batches
        self._waits = waits
        self.now = entries[0].at if entries else self.state.started
        journal.recorder.append(entries)
        self._models: dict[str, NamedModel] = {self.state.setup.model.name: self.state.setup.model}

    @property
    def interrupts(self) -> Interrupts:
        """How the run is asked from outside to stop."""
        return self.journal.engine.control

    @property
    def models(self) -> dict[str, NamedModel]:
        """The models that are known, by their names: those that this run was seen to use."""
        model = self.state.run.model
        if model is not None:
            self._models.setdefault(model.name, model)
        return self._models

    def key(self, name: str) -> str:
        """Return the key of the next effect."""
        return self.journal.key(self.state.run.run_step, name)

    async def drive(self) -> tuple[MachineState, End]:
        """Drive to the end. Raises what the engine does, and cancellation: then nothing more is recorded here."""
        effect = await self.follow(self._effect)
        while type(effect) not in ENDS:
            if isinstance(effect, Enter):
                effect = await self._inside_wrappers(effect)
            elif isinstance(effect, Leave):
                effect = await self.feed(Left(self.now, self.state.run))  # no wrapper was entered
            else:
                effect = await self._go_on(effect)
        return self.state, cast(End, effect)

    async def feed(self, event: Event) -> Effect:
        """Feed the machine an event that was recorded, or that follows from what was."""
        self.now = event.now
        self.state, effect, entries = machine.feed(self.state, event)
        self.journal.recorder.append(entries)
        return await self.follow(effect)

    async def follow(self, effect: Effect) -> Effect:
        """Tell who follows the run where it stands."""
        follower = self.base.follower
        if follower is not None:
            await follower.follow(self.state)
        return effect

    async def flush(self, name: str) -> Broken | None:
        """Write all new records to the sinks, as a step of its own; return what the run ends by."""

        async def act(attempt: int) -> JsonObject:
            problem, notes = await self.journal.flushed(self.state.run.run_step, self.base.port.now())
            return FrozenDict({"broken": put_broken(problem), NOTES: notes})

        problem = get_broken((await self.journal.once(self.key(name), act))["broken"])
        self.journal.told = self.journal.told or problem is not None
        return problem

    async def recorded(
        self, name: str, perform: Callable[[int], Awaitable[Event]], *, counted: bool = False
    ) -> Event:
        """Return the event of an effect: performed now, once the log is written, or recorded before."""
        run = self.state.run

        async def act(attempt: int) -> JsonObject:
            now = self.base.port.now()
            problem, notes = await self.journal.flushed(run.run_step, now)
            event = Interrupted(now, problem) if problem is not None else await perform(attempt)
            return FrozenDict({**event_to_json(event, run), NOTES: notes})

        found = await self.journal.once(self.key(name), act, counted=counted)
        return self.read(found)

    def read(self, found: JsonObject) -> Event:
        """Return the event of what was recorded, and take note of what it says about the run's end."""
        event = event_from_json(found, self.state.run, self.models)
        if isinstance(event, Interrupted):
            if event.broken is None:
                self.interrupts.settle()
            elif isinstance(event.broken.reason, SinkFailed):
                self.journal.told = True
        return event

    def unwritten(self, broken: Broken) -> Finish:
        """Return the end of a run whose end could not be written down; the log that is left says so."""
        run = replace(self.state.run, status="failed", output=None)
        facts = {"status": run.status, "reason": broken.reason}
        self.journal.recorder.append([Entry("run_ended", run.run_id, run.run_step, self.now, facts=facts)])
        return Finish(run, broken.reason, broken.cause)

    # --- effects

    async def _go_on(self, effect: Effect) -> Effect:
        if isinstance(effect, RunTools):
            return await self.feed(await self._batches(self, effect))
        name, counted = _name_of(effect, self.state)
        if isinstance(effect, Save):

            async def save(attempt: int) -> Event:
                session = self.sessions(attempt - 1)
                if attempt > 1 and session.store is not None:
                    session.store = KeptOnce(session.store)
                saving = Saving(session, effect)
                await saving.save()
                return saving.outcome()

            return await self.feed(await self.recorded(name, save, counted=True))

        async def perform(attempt: int) -> Event:
            session = self.sessions(attempt - 1)
            event, cut = await self.within(lambda: self._perform(session, effect))
            if event is not None:
                return event
            sent = session.sent() if session.sent is not None else None
            return Interrupted(session.port.now(), cut.broken, (), sent, cut.stop)

        event = await self.recorded(name, perform, counted=counted)
        if isinstance(event, Undecided) and self._waits is not None:
            assert isinstance(effect, AskApproval)
            event = await self._waits(self, effect, event)
        return await self.feed(event)

    async def _perform(self, session: Session, effect: Effect) -> Event:
        if isinstance(effect, AskApproval):
            return await ask_approver(session, self.state, effect)
        return await PERFORM[type(effect)](session, effect)

    async def within(self, work: Callable[[], Awaitable[Event]]) -> tuple[Event | None, Interrupted]:
        """Do something as long as neither the deadline nor a stop cuts it short; return what came of it, or the cut."""
        interrupts, port = self.interrupts, self.base.port
        deadline = self.state.setup.limits.deadline
        event: Event | None = None
        if not interrupts.due:
            left = math.inf if deadline is None else self.state.started + deadline - port.now()
            with anyio.move_on_after(None if deadline is None else max(0.0, left)) as scope:
                interrupts.scopes.add(scope)
                try:
                    event = await work()
                finally:
                    interrupts.scopes.discard(scope)
        if event is not None:
            return event, Interrupted(event.now)
        now = port.now()
        if interrupts.cancelled:
            return None, Interrupted(now)
        if interrupts.due:
            return None, Interrupted(now, stop=interrupts.take())
        assert deadline is not None, "nothing else cuts an effect short"
        reason = exceeded("deadline", deadline, deadline, self.state.run.run_step)
        return None, Interrupted(now, Broken(reason))

    async def _inside_wrappers(self, effect: Enter) -> Effect:
        """Run the steps inside wrap_run, which is entered again by whoever carries the run on.

        What its wrappers did is taken from the record where there is one, whatever they do this time.
        """
        end: list[End] = []

        async def inside(live: Event, told: tuple[Entry, ...]) -> RunState:
            run_id = self.state.run.run_id

            async def act(attempt: int) -> JsonObject:
                event = event_to_json(live, self.state.run)
                return FrozenDict({**event, "told": put_entries(told, run_id)})

            found = await self.journal.once(self.key("enter"), act)
            self.journal.recorder.append(get_entries(found["told"], run_id))
            step = await self.feed(self.read(found))
            while not isinstance(step, Leave | Finish | Suspend):
                step = await self._go_on(step)
            if not isinstance(step, Leave):
                end.append(step)
            return self.state.run

        def now() -> float:
            return self.base.port.now()

        async def steps(run: RunState, entries: tuple[Entry, ...]) -> RunState:
            return await inside(Entered(now(), run, entries), ())

        async def abort(broken: Broken, entries: tuple[Entry, ...]) -> RunState:
            return await inside(Interrupted(now(), broken), entries)

        run, entries, broken = await enclose(self.base, effect, steps, abort)
        left = Left(now(), run, entries, broken)

        async def out(attempt: int) -> Event:
            return left

        event = await self.recorded("leave", out)
        if not isinstance(event, Left):  # a sink failed
            return await self.feed(event)
        return await self._held(end[-1], event) if end else await self.feed(event)

    async def _held(self, end: End, left: Left) -> Effect:
        """Take over what wrap_run did on its way out of a run that is suspended, or that has ended already.

        What it latched on a suspended run counts once that is resumed; a wrapper that broke ends it now.
        """
        self.journal.recorder.append(left.entries)
        if isinstance(end, Finish):
            return end
        work = Work(self.state, left.now)
        work.run = left.run
        self.state = work.freeze()
        if left.broken is None:
            return end
        return await self.feed(Interrupted(left.now, left.broken))


def _name_of(effect: Effect, state: MachineState) -> tuple[str, bool]:
    """Return the name of an effect in the keys of steps, and whether anybody could see how often it was begun."""
    chains = state.setup.plan.chains
    if isinstance(effect, RequestModel):
        return "model", bool(chains["wrap_model_request"].links)
    if isinstance(effect, Gather):
        return effect.hook, True
    if isinstance(effect, Open):
        return "open", bool(chains["wrap_load_messages"].links or chains["wrap_prompt"].links)
    return ("save" if isinstance(effect, Save) else "ask"), False
