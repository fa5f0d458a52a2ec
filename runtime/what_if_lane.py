"""One lane of a what-if: a run driven on the facts of another, as far as they reach.

What is on record for a step is taken for that step, whatever the other list made of it; from the first request that is
not the one on record, the result is conditional. With the run's own list, the lane comes to what the run came to.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from ..capabilities.frozen import FrozenList, Json
from ..capabilities.run_parts import Stop
from ..capabilities.state import RunState, RunStatus
from . import machine, what_if_ends
from .audit import AuditRecord
from .decisions import Approve, Decision, Deny
from .errors import LimitExceeded
from .log import Log, Tail
from .log_replay import begun
from .phases import (
    AskApproval,
    CallResult,
    Decided,
    Effect,
    Enter,
    Event,
    Executed,
    Finish,
    Gather,
    Gathered,
    Interrupted,
    Leave,
    Open,
    Phase,
    RequestModel,
    Resumed,
    RunTools,
    Save,
    Sent,
    Suspend,
    Undecided,
)
from .replay_facts import broken_of, decision_of, is_edge, latched
from .replay_requests import REQUEST_NOTES, bills_of, gathered, responded
from .replay_tape import Tape, at_hooks, broken_in, either, notes_of, of_kind
from .setup import Setup
from .what_if_batch import Batches
from .what_if_records import Recorded
from .what_if_shown import shown
from .work import MachineState

_REQUESTING = either(of_kind("model_responded"), at_hooks("wrap_model_request"), notes_of(*REQUEST_NOTES))
# Where a run that waited may be cut short before it has heard the decisions.
_RESUMING = (Phase.SUSPENDED, Phase.ENTERING)


class Lane:
    """One run under another list. `asked`: calls that a person was to decide; `why`: what made the rest conditional.

    `above`: the run that called it.
    """

    def __init__(self, setup: Setup, tape: Tape, above: RunState | None = None) -> None:
        """Start before the first record."""
        self.setup = setup
        self.above = above
        self.records = Recorded(tape, setup.plan.members)
        self.batches = Batches(self.records, setup, self._conditional)
        self.log = Log(tails=_heads(tape.records))
        self.asked: set[str] = set()
        self.conditional_from: int | None = None
        self.why: str | None = None
        self._status: RunStatus | None = None
        self._goes_on = False
        self._now = tape.records[0].at
        self._unsure: set[str] = set()
        self._shown = shown(tape.records)
        self._gatherings: Counter[tuple[int, str]] = Counter()

    def drive(self) -> RunStatus | None:
        """Go on as far as the facts reach; return how the run ended, None where they ended before."""
        state, effect, entries = begun(self.setup, self.records.started, self.above)
        while True:
            self.log.append(entries)
            if isinstance(effect, Finish):
                return "failed" if self._end_was_lost() else state.run.status
            if isinstance(effect, Suspend) and not self._goes_on:
                return state.run.status
            event = self._event(state, effect)
            if event is None:
                return self._status
            state, effect, entries = machine.feed(state, event)

    def is_conditional(self, step: int, call: str) -> bool:
        """Tell whether the judgement of a call rests on something that is not on record."""
        first = self.conditional_from
        return call in self._unsure or (first is not None and step >= first)

    def _conditional(self, step: int, why: str) -> None:
        if self.conditional_from is None or step < self.conditional_from:
            self.conditional_from, self.why = step, why

    def _end_was_lost(self) -> bool:
        """Tell whether a sink refused the end of the run on record, which made it a failure whatever the list."""
        return sum(record.kind == "run_ended" for record in self.records.all) > 1

    def _at(self, records: Iterable[AuditRecord]) -> float:
        """Return when an event came in: with its last record, and never before the one that came before it."""
        self._now = max([self._now, *map(self.records.at, records)])
        return self._now

    # --- events

    def _event(self, state: MachineState, effect: Effect) -> Event | None:
        step = state.run.run_step
        if isinstance(effect, Save):
            return what_if_ends.saved(self.records, effect, self._now)
        cut = self._cut(state, effect)
        if cut is not None:
            return self._interrupted(state, effect, cut)
        if isinstance(effect, RequestModel):
            return self._responded(state, effect)
        if isinstance(effect, Gather):
            return self._gathered(state, effect)
        if isinstance(effect, RunTools):
            return self._executed(effect, step)
        if isinstance(effect, AskApproval):
            return self._decided(state, effect, step)
        if isinstance(effect, Open):
            return what_if_ends.opened(self.records, effect)
        if isinstance(effect, Enter):
            now = self._at([what_if_ends.first_after(self.records)])
            return what_if_ends.entered(self.records, effect, now, again=bool(state.pending))
        if isinstance(effect, Suspend):  # it ends before it hears what they decided
            return Resumed(self._now, (Deny(),) * len(effect.requests))
        if isinstance(effect, Leave):
            return what_if_ends.left(self.records, effect, self._now)
        return None

    def _executed(self, effect: RunTools, step: int) -> Event | None:
        if self.batches.waits(effect):
            self._status = "suspended"
            return None
        settled = self.batches.at(effect)
        self._now = max(self._now, settled if settled is not None else self._now)
        known = self.batches.known(effect)
        ended = what_if_ends.ended_below(self.records, self.setup, step, self._now, known)
        return ended if ended is not None else Executed(self._now, self.batches.results(effect))

    def _gathered(self, state: MachineState, effect: Gather) -> Gathered:
        step, hook = state.run.run_step, effect.jobs[0].link.hook
        groups = self.records.gatherings(step, hook, state.phase)
        n = self._gatherings[step, hook]
        self._gatherings[step, hook] += 1
        own = groups[n] if n < len(groups) else ()
        keys = {job.link.key for job in effect.jobs}
        broken = self.records.standing([one for one in own if broken_in(state.phase)(one)])
        if not any(one.actor in keys for one in own) and broken is None:
            own = ()  # of gatherers that are not in the list, and so are their bills
        known = [one for group in groups for one in group if one.kind == "gathered"]
        failed = set() if broken is None else {job.link.key for job in effect.jobs}

        def missing(what: str) -> Json:
            if not failed:
                self._conditional(max(step, 1), f"what {what} would have brought is not on record")
            return None

        came = gathered([*known, *own], effect, self._at(own), missing)
        return came._replace(broken=broken)

    def _responded(self, state: MachineState, effect: RequestModel) -> Event | None:
        step = state.run.run_step
        records = self.records.of_step(step, either(_REQUESTING, broken_in(state.phase)))
        if not records or not self._compare(step):
            self._conditional(step, "the run on record made no request here")
            return None
        own = [record for record in records if not is_edge(record) or self.records.is_member(record)]
        made = [record for record in records if is_edge(record) and "response" in record.changes]
        whole = len(own) == len(records)
        now = self._at([one for one in records if not is_edge(one)])
        event = responded(own if whole or not made else records, effect, now)
        if not whole:
            event = event._replace(entries=())
        lost = self._lost(state, effect, event.charged) if event.broken is not None else None
        if lost is None:
            return event
        self._conditional(step, lost)
        if not event.responses:
            return None
        return event._replace(broken=None, response=event.responses[-1])

    def _compare(self, step: int) -> bool:
        """Tell whether a request is on record for a step; where it is another one, the rest is conditional."""
        if step not in self._shown:
            return False
        if shown(self.log).get(step) != self._shown[step]:
            self._conditional(step, "the request would have been another one")
        return True

    def _lost(self, state: MachineState, effect: RequestModel, charged: int) -> str | None:
        """Say why what broke a request on record would not have done so here, or None."""
        broken = self.records.broken(state.run.run_step, state.phase)
        if broken is None:
            return "the request was broken by a wrapper that is not in the list"
        if not isinstance(broken.reason, LimitExceeded) or broken.reason.limit != "requests":
            return None
        if not self.setup.plan.chains["wrap_model_request"].links:
            return "the request was sent again by a wrapper that is not in the list"
        if effect.requests_left is not None and effect.requests_left > charged:
            return "there would have been more requests left"
        return None

    def _decided(self, state: MachineState, effect: AskApproval, step: int) -> Event:
        waiting = self.records.waiting()
        if not self._all_decided(effect) and self.records.given_up(step):
            return Interrupted(self._now)
        if self._ended_undecided(state, effect, step):
            self._goes_on = True
            self.asked |= {request.call_id for request in effect.requests}
            return Undecided(self._now, "nobody had decided")
        if waiting.issuperset(request.call_id for request in effect.requests):
            self.asked |= waiting
            return Undecided(self._now, "nobody had decided")
        decided = self.records.of_step(step, of_kind("call_decided"))
        now = self._at(decided)
        return Decided(now, tuple(self._decision(request.call_id, step) for request in effect.requests))

    def _decision(self, call: str, step: int) -> Decision:
        self.asked.add(call)
        record = self.batches.last(call, "call_decided")
        if record is not None:
            return decision_of(record)
        self._unsure.add(call)
        self._conditional(step + 1, f"what a person would have decided on {call} is not on record")
        return Approve()

    # --- runs that were cut short

    def _cut(self, state: MachineState, effect: Effect) -> AuditRecord | None:
        """Return the record that the run on record was cut short where the lane is now, or None."""
        step, phases = state.run.run_step, [state.phase]
        if isinstance(effect, AskApproval) and self._all_decided(effect):
            return None
        if isinstance(effect, RunTools):
            phases += _RESUMING if step else ()
        elif isinstance(effect, Gather):
            hook = effect.jobs[0].link.hook
            done = len(self.records.gatherings(step, hook, state.phase))
            if self._gatherings[step, hook] < done:
                return None
        return self.records.cut(step, phases)

    def _ended_undecided(self, state: MachineState, effect: AskApproval, step: int) -> bool:
        """Tell whether the run on record was resumed, and ended in wrap_run before it heard the decisions."""
        if (
            self._all_decided(effect)
            or self.records.waiting()
            or not self.setup.plan.chains["wrap_run"].links
        ):
            return False
        run = latched(state.run, self.records.while_waiting(step))
        latches = run.failed is not None or run.stopped is not None
        return latches or self.records.cut(step, _RESUMING) is not None

    def _all_decided(self, effect: AskApproval) -> bool:
        return all(self.batches.last(one.call_id, "call_decided") for one in effect.requests)

    def _interrupted(self, state: MachineState, effect: Effect, cut: AuditRecord) -> Interrupted:
        """Return what cut the run short, and what was known by then."""
        step, now = state.run.run_step, self._at([cut])
        stop = Stop(str(cut.facts["stop"]), "caller", "stop") if "stop" in cut.facts else None
        results: tuple[CallResult, ...] = ()
        sent: Sent | None = None
        if isinstance(effect, RunTools):
            results = self.batches.known(effect)
        elif isinstance(effect, RequestModel):
            self._compare(step)
            records: Sequence[AuditRecord] = [
                one
                for one in self.records.of_step(step, _REQUESTING)
                if not is_edge(one) or self.records.is_member(one)
            ]
            came = responded(records, effect, now)
            sent = Sent(came.charged, came.bills, came.responses, came.run, came.entries)
        elif isinstance(effect, Gather):
            after = self.records.of_step(step, notes_of("bills", "requests_without_response"))
            after = [one for one in after if one.seq > cut.seq]
            charged, bills = bills_of(after)
            alone = [one.facts.get("requests_without_response", 0) for one in after]
            sent = Sent(charged + sum(cast("list[int]", alone)), bills)
        return Interrupted(now, broken_of([cut]), results, sent, stop)


def _heads(records: Iterable[AuditRecord]) -> Sequence[Tail]:
    below = [cast(FrozenList, record.facts.get("below", FrozenList())) for record in records]
    pairs = [cast("Mapping[str, str]", one) for each in below for one in each]
    return [Tail(one["run"], 0, one["head"]) for one in pairs]
