"""The driver: turns each effect of the machine into its event, writes the log, and closes a run on every exit.

Knows no rules: what may follow what is the machine's, what a wrapper may do is the onion's.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import cast

import anyio

from ..capabilities.records import replace
from ..capabilities.state import RunState
from . import machine
from .approving import check_decisions, decision_list
from .decisions import Approver
from .entries import Entry
from .errors import SinkFailed
from .gather_effect import gather_facts
from .ledger import exceeded
from .log import Log
from .model_onion import request_model
from .phases import (
    AskApproval,
    Broken,
    Decided,
    Effect,
    Enter,
    Entered,
    Event,
    Finish,
    Gather,
    Interrupted,
    Leave,
    Left,
    Phase,
    RequestModel,
    RunTools,
    Suspend,
    Undecided,
)
from .port import Late
from .run_onion import enclose
from .session import Session
from .sinks import Sink
from .tool_onion import run_tools
from .work import MachineState, Work

CLOSING_SECONDS = 2.0
End = Finish | Suspend


class Driver:
    """Drives one run, from `machine.start` or `machine.resume` to its end."""

    def __init__(self, session: Session, log: Log, sinks: Sequence[Sink], approver: Approver | None) -> None:
        """Take what the run is driven with."""
        self.session = session
        self.log = log
        self.sinks = list(sinks)
        self.approver = approver
        self.written = len(log)
        self.state: MachineState | None = None

    async def drive(self, moved: machine.Moved) -> tuple[MachineState, End]:
        """Drive to the end. On cancellation the history is closed and written down before it goes on.

        So it is for anything else that is no Exception, as an exit that a tool asks for.
        """
        try:
            effect = await self.until_end(moved)
        except (Exception, GeneratorExit):  # a fault of our own, and a coroutine that may not await any more
            raise
        except BaseException:
            with anyio.move_on_after(CLOSING_SECONDS, shield=True):
                await self.cut_short(None)
            raise
        assert self.state is not None
        return self.state, effect

    async def until_end(self, moved: machine.Moved) -> End:
        """Go from effect to effect until the run is over or suspended."""
        effect = await self.take(moved)
        session, deadline = self.session, self.session.setup.limits.deadline
        while type(effect) not in ENDS:
            perform = PERFORM.get(type(effect))
            if perform is not None and deadline is None and not self.sinks:
                # What `go_on` does where there is nothing to watch and nobody to write to, without its two awaits.
                assert self.state is not None
                self.state, effect, entries = machine.feed(self.state, await perform(session, effect))
                self.log.append(entries)
            elif isinstance(effect, Enter):
                return await self.inside_wrappers(effect)
            elif isinstance(effect, Leave):
                # A run that ended before its wrappers were entered has nobody to leave.
                effect = await self.left()
            else:
                effect = await self.go_on(effect)
        return cast(End, effect)

    async def left(self) -> Effect:
        """Feed that all wrappers are left, and changed nothing."""
        assert self.state is not None
        return await self.feed(Left(self.session.port.now(), self.state.run))

    async def go_on(self, effect: Effect) -> Effect:
        """Perform one effect and feed what became of it; the deadline of the run cuts it short."""
        assert self.state is not None
        limits = self.session.setup.limits
        if limits.deadline is None:
            event: Event | None = await self.perform(effect)
        else:
            event = None
            left = self.state.started + limits.deadline - self.session.port.now()
            with anyio.move_on_after(max(0.0, left)):
                event = await self.perform(effect)
        if event is None:
            assert limits.deadline is not None
            reason = exceeded("deadline", limits.deadline, limits.deadline, self.state.run.run_step)
            return await self.cut_short(Broken(reason))
        return await self.feed(event)

    async def feed(self, event: Event) -> Effect:
        """Feed the machine one event."""
        assert self.state is not None
        return await self.take(machine.feed(self.state, event))

    async def take(self, moved: machine.Moved) -> Effect:
        """Take over a move of the machine and flush its entries; a sink that fails ends the run."""
        self.state, effect, entries = moved
        if entries:
            self.log.append(entries)
        if self.sinks:
            problem = await self.flush()
            if problem is not None:
                return await self.cut_short(problem)
        return effect

    async def flush(self) -> Broken | None:
        """Write all new records to every sink; one that fails is dropped, and ends the run unless best-effort."""
        problem: Broken | None = None
        while records := self.log.encoded_since(self.written):  # again for the note of a sink that failed
            self.written += len(records)
            for sink in list(self.sinks):
                try:
                    await sink.write(records)
                except Exception as error:  # noqa: BLE001  # a sink is the user's; what it raises ends the run
                    self.sinks.remove(sink)
                    message = f"{sink!r} could not write the log: {type(error).__name__}: {error}"
                    self.log.append([self.sink_note(message)])
                    if not sink.best_effort and problem is None:
                        problem = Broken(SinkFailed(message=message), error)
        return problem

    def sink_note(self, message: str) -> Entry:
        """Return the entry that says which sink is gone."""
        assert self.state is not None
        run = self.state.run
        return Entry(
            "note", run.run_id, run.run_step, self.session.port.now(), facts={"sink_failed": message}
        )

    async def cut_short(self, broken: Broken | None) -> Effect:
        """End the run where it stands: what ran is on record, what may have run is unknown."""
        assert self.state is not None
        if self.state.phase is Phase.ENDED:
            if broken is None or self.state.reason is not None:
                return self.state.effect  # type: ignore[return-value]  # an ended run has its last effect
            return await self.unwritten(broken)
        results = self.session.so_far() if self.state.phase is Phase.EXECUTING else ()
        sent = self.session.sent() if self.session.sent is not None else None
        self.session.sent = None
        return await self.feed(Interrupted(self.session.port.now(), broken, results, sent))

    async def unwritten(self, broken: Broken) -> Finish:
        """Fail a run whose end could not be written down; the log that is left says so."""
        assert self.state is not None
        run = replace(self.state.run, status="failed", output=None)
        facts = {"status": run.status, "reason": broken.reason}
        now = self.session.port.now()
        self.log.append([Entry("run_ended", run.run_id, run.run_step, now, facts=facts)])
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
            self.log.append(entries)
            return await on(await self.cut_short(broken))

        run, entries, broken = await enclose(self.session, effect, steps, abort)
        if end:
            return await self.held(end[-1], run, entries, broken)
        last = await self.feed(Left(self.session.port.now(), run, entries, broken))
        assert isinstance(last, Finish)
        return last

    async def held(self, end: End, run: RunState, entries: tuple[Entry, ...], broken: Broken | None) -> End:
        """Take over what wrap_run did around a run that is suspended, or that a sink ended before.

        What it latched on a suspended run counts once that is resumed; a wrapper that broke ends it now.
        """
        assert self.state is not None
        self.log.append(entries)
        problem = await self.flush() if self.sinks else None
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
        assert isinstance(effect, Finish)
        return effect

    async def perform(self, effect: Effect) -> Event:
        """Perform one effect."""
        if isinstance(effect, AskApproval):
            return await self.ask(effect)
        return await PERFORM[type(effect)](self.session, effect)

    async def ask(self, effect: AskApproval) -> Event:
        """Ask the approver; nobody there, an exception, a wrong answer or a timeout leave the run suspended."""
        port = self.session.port
        if self.approver is None:
            return Undecided(port.now(), "no approver")
        timeouts = [request.timeout for request in effect.requests if request.timeout is not None]
        try:
            decisions = decision_list(
                await port.ask(self.approver, effect.requests, min(timeouts, default=None))
            )
            assert self.state is not None
            check_decisions(Work(self.state, port.now()), decisions)  # one that does not fit counts as none
        except Late:
            return Undecided(port.now(), "the approver did not answer in time")
        except Exception as error:  # noqa: BLE001  # an approver is the user's; the run is suspended and says why
            import logging  # noqa: PLC0415  # 5 ms that only a broken approver needs

            what = f"the approver raised {type(error).__name__}: {error}"
            logging.getLogger("capfold").warning("%s; the run is suspended", what)
            return Undecided(port.now(), what)
        return Decided(port.now(), decisions)


ENDS = (Finish, Suspend)
PERFORM: Mapping[type, Callable[[Session, Effect], Awaitable[Event]]] = {
    RequestModel: request_model,  # type: ignore[dict-item]  # each takes the effect it is filed under
    Gather: gather_facts,  # type: ignore[dict-item]  # likewise
    RunTools: run_tools,  # type: ignore[dict-item]  # likewise
}
