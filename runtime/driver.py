"""The driver: turns each effect of the machine into its event, writes the log, and closes a run on every exit.

Knows no rules: what may follow what is the machine's, what a wrapper may do is the onion's.
"""

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, cast

import anyio

from ..capabilities.records import replace
from ..capabilities.run_parts import Stop
from ..capabilities.state import RunState
from . import machine
from .approving import check_decisions, decision_list
from .control import Control
from .entries import Entry
from .errors import message_of
from .gather_effect import gather_facts
from .ledger import exceeded
from .model_onion import request_model
from .phases import (
    AskApproval,
    Broken,
    Decided,
    Effect,
    Enter,
    Entered,
    Event,
    Executed,
    Finish,
    Gather,
    Interrupted,
    Leave,
    Left,
    Open,
    Phase,
    RequestModel,
    RunTools,
    Save,
    Suspend,
    Undecided,
)
from .port import Late
from .run_onion import enclose
from .session import Session
from .tool_onion import run_tools
from .work import MachineState, Work

if TYPE_CHECKING:
    from .saving import Saving

CLOSING_SECONDS = 2.0
End = Finish | Suspend


class Driver:
    """Drives one run, from `machine.start` or `machine.resume` to its end."""

    __slots__ = (
        "_moved",
        "_state",
        "_work",
        "grace",
        "plain",
        "recorder",
        "saving",
        "session",
        "told",
    )

    def __init__(self, session: Session, moved: machine.Moved) -> None:
        """Take what the run is driven with, and its first move."""
        self.session = session
        self._moved: machine.Moved | None = moved  # until it is driven: of the first state, nothing is kept
        self.recorder = session.recorder
        self._state: MachineState | None = None
        self._work: Work | None = None  # goes ahead of `_state` while it is there
        self.told = False  # whether a sink's failure has ended this run
        self.saving: Saving | None = None  # once it was begun
        self.grace = CLOSING_SECONDS  # of a save under way, when the run is cancelled
        # With nothing to watch and nobody to tell, an effect is performed and fed without the layers between.
        self.plain = (
            session.setup.limits.deadline is None
            and session.control is None
            and session.follower is None
            and not session.recorder.sinks
        )

    @property
    def state(self) -> MachineState | None:
        """Where the run stands; None before it began."""
        return self._state if self._work is None else self._work.freeze()

    @state.setter
    def state(self, state: MachineState) -> None:
        self._state, self._work = state, None

    async def drive(self) -> tuple[MachineState, End]:
        """Drive to the end. On cancellation the history is closed and written down before it goes on.

        So it is for anything else that is no Exception, as an exit that a tool asks for.
        """
        moved, self._moved = self._moved, None
        assert moved is not None, "a run is driven once"
        log = self.recorder.log
        try:
            effect = await self.take(moved)
            del moved
            while type(effect) not in ENDS:
                if self.plain and (perform := PERFORM.get(type(effect))) is not None:
                    # What `go_on` does as long as there is only something to perform: without its awaits, and in one
                    # scratch, of which the state is made when somebody looks, in place of twice a step. In line: a
                    # coroutine of its own is resumed at each await, and is kept by each run that waits.
                    work = self.scratch()
                    try:
                        while perform is not None:
                            effect = machine.advance(work, await perform(self.session, effect))
                            log.append(work.entries)
                            work.entries.clear()
                            perform = PERFORM.get(type(effect))
                    finally:
                        log.append(work.entries)  # of a hook that raised what is no Exception
                        self.state = work.freeze()
                        del work
                elif isinstance(effect, Enter):
                    effect = await self.inside_wrappers(effect)
                elif isinstance(effect, Leave):
                    # A run that ended before its wrappers were entered has nobody to leave.
                    effect = await self.left()
                else:
                    effect = await self.go_on(effect)
        except (Exception, GeneratorExit):  # a fault of our own, and a coroutine that may not await any more
            raise
        except BaseException:
            await self.close()
            raise
        assert self.state is not None
        return self.state, cast(End, effect)

    async def close(self) -> None:
        """End the run as a cancelled one where it stands, which may be before its first effect; in limited time."""
        if self._moved is not None:
            (self.state, _, entries), self._moved = self._moved, None
            self.recorder.append(entries)
        self.grace = 0.0  # it is the same that is granted here
        if self.session.follower is not None:
            self.session.follower.hurry()
        with anyio.move_on_after(CLOSING_SECONDS, shield=True):
            await self.saved(await self.cut_short(None))
            await self.flush()  # where it had ended already, its end may not be written yet
        self.give_up()

    def scratch(self) -> Work:
        """Return a scratch of the state, which goes ahead of it until the state is set again."""
        assert self.state is not None
        self._work = work = Work(self.state, 0.0)
        self._state = None
        return work

    async def left(self) -> Effect:
        """Feed that all wrappers are left, and changed nothing."""
        assert self.state is not None
        return await self.feed(Left(self.session.port.now(), self.state.run))

    async def go_on(self, effect: Effect) -> Effect:
        """Perform one effect and feed what became of it; the deadline of the run, or a stop, cuts it short."""
        assert self.state is not None
        if isinstance(effect, Save):
            return await self.saved(effect)
        deadline, control = self.session.setup.limits.deadline, self.session.control
        if control is not None and control.due:
            return await self.halt(control)
        if deadline is None and control is None:
            return await self.feed(await self.perform(effect))
        event: Event | None = None
        left = math.inf if deadline is None else self.state.started + deadline - self.session.port.now()
        with anyio.move_on_after(None if deadline is None else max(0.0, left)) as scope:
            if control is not None:
                control.scope = scope
            event = await self.perform(effect)
        if control is not None:
            control.scope = None
        stopped = control is not None and control.due
        if event is not None and not (stopped and isinstance(event, Executed)):
            return await self.feed(event)
        if stopped:  # with a batch, whatever came of it
            assert control is not None
            return await self.halt(control)
        assert deadline is not None
        return await self.cut_short(Broken(exceeded("deadline", deadline, deadline, self.state.run.run_step)))

    async def halt(self, control: Control) -> Effect:
        """End the run by the stop that its caller asked for, once."""
        return await self.cut_short(None, control.take())

    async def feed(self, event: Event) -> Effect:
        """Feed the machine one event."""
        assert self.state is not None
        return await self.take(machine.feed(self.state, event))

    async def take(self, moved: machine.Moved) -> Effect:
        """Take over a move of the machine and flush its entries; a sink that fails ends the run."""
        self.state, effect, entries = moved
        if entries:
            self.recorder.append(entries)
        problem = await self.flush()
        if problem is not None:
            return await self.cut_short(problem)
        if self.session.follower is not None:
            assert self.state is not None
            await self.session.follower.follow(self.state)
        return effect

    async def flush(self) -> Broken | None:
        """Write all new records; return a sink's failure the first time that this run hears of it."""
        assert self.state is not None
        recorder, run = self.recorder, self.state.run
        await recorder.flush(run.run_id, run.run_step, self.session.port.now())
        if recorder.problem is None or self.told:
            return None
        self.told = True
        return recorder.problem

    async def cut_short(self, broken: Broken | None, stop: Stop | None = None) -> Effect:
        """End the run where it stands: what ran is on record, what may have run is unknown.

        By what `broken` says, as a result by `stop`, or with neither as a cancelled run.
        """
        assert self.state is not None
        if self.state.phase is Phase.ENDED:
            if broken is None or self.state.reason is not None:
                return self.state.effect  # type: ignore[return-value]  # an ended run has its last effect
            return await self.unwritten(broken)
        if self.saving is not None:
            return await self.feed(self.saving.outcome())
        results = self.session.so_far() if self.state.phase is Phase.EXECUTING else ()
        sent = self.session.sent() if self.session.sent is not None else None
        self.session.sent = None
        return await self.feed(Interrupted(self.session.port.now(), broken, results, sent, stop))

    async def saved(self, effect: Effect) -> Effect:
        """Save what this run adds to its conversation, if that is what it waits for; no deadline and no stop cuts it.

        A cancelled run still saves, as long as its closing may take.
        """
        if not isinstance(effect, Save):
            return effect
        from .at_last import to_its_end  # noqa: PLC0415  # for runs with a conversation
        from .saving import Saving  # noqa: PLC0415  # likewise

        self.saving = Saving(self.session, effect)
        await to_its_end(self.saving.save, self.grace)
        return await self.feed(self.saving.outcome())

    def give_up(self) -> None:
        """End a run whose closing had no more time for its save; the log in memory says what is known."""
        state = self.state
        if self.saving is not None and state is not None and state.phase is Phase.SAVING:
            self.state, _, entries = machine.feed(state, self.saving.outcome())
            self.recorder.append(entries)

    async def unwritten(self, broken: Broken) -> Finish:
        """Fail a run whose end could not be written down; the log that is left says so."""
        assert self.state is not None
        run = replace(self.state.run, status="failed", output=None)
        facts = {"status": run.status, "reason": broken.reason}
        now = self.session.port.now()
        self.recorder.append([Entry("run_ended", run.run_id, run.run_step, now, facts=facts)])
        await self.flush()
        return Finish(run, broken.reason, broken.cause)

    # --- effects

    async def inside_wrappers(self, effect: Enter) -> End:
        """Run the steps inside wrap_run, and end the run by what came out of it."""
        end: list[End] = []

        async def on(effect: Effect) -> RunState:
            while not isinstance(effect, Leave | Finish | Suspend):
                effect = await self.go_on(effect)
            if not isinstance(effect, Leave):
                end.append(effect)
            assert self.state is not None
            return self.state.run

        async def steps(run: RunState, entries: tuple[Entry, ...]) -> RunState:
            return await on(await self.feed(Entered(self.session.port.now(), run, entries)))

        async def abort(broken: Broken, entries: tuple[Entry, ...]) -> RunState:
            self.recorder.append(entries)
            return await on(await self.cut_short(broken))

        run, entries, broken = await enclose(self.session, effect, steps, abort)
        if end:
            return await self.held(end[-1], run, entries, broken)
        last = await self.saved(await self.feed(Left(self.session.port.now(), run, entries, broken)))
        assert isinstance(last, Finish)
        return last

    async def held(self, end: End, run: RunState, entries: tuple[Entry, ...], broken: Broken | None) -> End:
        """Take over what wrap_run did around a run that is suspended, or that a sink ended before.

        What it latched on a suspended run counts once that is resumed; a wrapper that broke ends it now.
        """
        assert self.state is not None
        self.recorder.append(entries)
        problem = await self.flush()
        if isinstance(end, Finish):
            return end
        work = Work(self.state, self.session.port.now())
        work.run = run
        self.state = work.freeze()
        broken = broken or problem
        if broken is None:
            return end
        effect = await self.cut_short(broken)
        if isinstance(effect, Leave):
            effect = await self.left()
        effect = await self.saved(effect)
        assert isinstance(effect, Finish)
        return effect

    async def perform(self, effect: Effect) -> Event:
        """Perform one effect."""
        if isinstance(effect, AskApproval):
            assert self.state is not None
            return await ask_approver(self.session, self.state, effect)
        if isinstance(effect, RunTools) and self.session.follower is not None:
            await self.session.follower.started(effect)
        return await PERFORM[type(effect)](self.session, effect)


async def ask_approver(session: Session, state: MachineState, effect: AskApproval) -> Event:
    """Ask the approver; nobody there, an exception, a wrong answer or a timeout leave the run suspended."""
    port, approver = session.port, session.approver
    if approver is None:
        return Undecided(port.now(), "no approver")
    timeouts = [request.timeout for request in effect.requests if request.timeout is not None]
    try:
        decisions = decision_list(await port.ask(approver, effect.requests, min(timeouts, default=None)))
        check_decisions(Work(state, port.now()), decisions)  # one that does not fit counts as none
    except Late:
        return Undecided(port.now(), "the approver did not answer in time")
    except Exception as error:  # noqa: BLE001  # an approver is the user's; the run is suspended and says why
        import logging  # noqa: PLC0415  # 5 ms that only a broken approver needs

        what = f"the approver raised {type(error).__name__}: {message_of(error)}"
        logging.getLogger("capfold").warning("%s; the run is suspended", what)
        return Undecided(port.now(), what)
    return Decided(port.now(), decisions)


async def open_run(session: Session, effect: Open) -> Event:
    """Load the conversation and resolve the instructions."""
    from . import opening  # noqa: PLC0415  # for runs that have something to load or resolve

    return await opening.open_run(session, effect)


ENDS = (Finish, Suspend)
PERFORM: Mapping[type, Callable[[Session, Effect], Awaitable[Event]]] = {
    RequestModel: request_model,  # type: ignore[dict-item]  # each takes the effect it is filed under
    Gather: gather_facts,  # type: ignore[dict-item]  # likewise
    Open: open_run,  # type: ignore[dict-item]  # likewise
    RunTools: run_tools,  # type: ignore[dict-item]  # likewise
}
