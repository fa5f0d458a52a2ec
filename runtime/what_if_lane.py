"""One lane of a what-if: a run driven on the facts of another, as far as they reach.

What is on record for a step is taken for that step, whatever the other list made of it; from the first request that is
not the one on record, the result is conditional.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from ..capabilities.call_state import CallState
from ..capabilities.frozen import FrozenDict, FrozenList, Json, digest, same
from ..capabilities.records import replace
from ..capabilities.state import RunStatus
from ..capabilities.verdict import Outcome
from . import machine
from .audit import AuditRecord
from .conversation import Conversation
from .decisions import Approve, Decision
from .log import Log, Tail
from .log_replay import begun
from .phases import (
    AskApproval,
    CallResult,
    Decided,
    Effect,
    Enter,
    Entered,
    Event,
    Executed,
    Finish,
    Gather,
    Leave,
    Left,
    Open,
    Opened,
    RequestModel,
    RunTools,
    Save,
    Saved,
    Suspend,
    Undecided,
)
from .replay_facts import decision_of, entry_of, is_edge, latched, messages_of, read
from .replay_requests import REQUEST_NOTES, gathered, responded
from .replay_tape import Tape, Test, at_hooks, broken_in, cut_in, either, notes_of, of_kind
from .setup import Setup
from .work import MachineState

NO_OUTCOME = "[not on record: this call did not run]"
_REQUESTING = either(of_kind("model_responded"), at_hooks("wrap_model_request"), notes_of(*REQUEST_NOTES))


class Lane:
    """One run under another list. `asked`: calls that a person was to decide; `why`: what made the rest conditional."""

    def __init__(self, setup: Setup, tape: Tape) -> None:
        """Start before the first record."""
        self.setup = setup
        self.records = tape.records
        self.started = tape.records[0]
        self.log = Log(tails=_heads(tape.records))
        self.asked: set[str] = set()
        self.conditional_from: int | None = None
        self.why: str | None = None
        self._unsure: set[str] = set()
        self._shown = shown(tape.records)

    def drive(self) -> RunStatus | None:
        """Go on as far as the facts reach; return how the run ended, None where they ended before."""
        state, effect, entries = begun(self.setup, self.started)
        while True:
            self.log.append(entries)
            if isinstance(effect, Finish | Suspend):
                return state.run.status
            event = self._event(state, effect)
            if event is None:
                return None
            state, effect, entries = machine.feed(state, event)

    def is_conditional(self, step: int, call: str) -> bool:
        """Tell whether the judgement of a call rests on something that is not on record."""
        first = self.conditional_from
        return call in self._unsure or (first is not None and step >= first)

    def _conditional(self, step: int, why: str) -> None:
        if self.conditional_from is None or step < self.conditional_from:
            self.conditional_from, self.why = step, why

    def _of_step(self, step: int, test: Test) -> Sequence[AuditRecord]:
        return [record for record in self.records if record.step == step and test(record)]

    def _event(self, state: MachineState, effect: Effect) -> Event | None:
        now, step = self.started.at, state.run.run_step
        cut = self._of_step(step, cut_in(state.phase))
        if cut and not isinstance(effect, Save):
            self._conditional(max(step, 1), f"the run on record was cut short while {state.phase.value}")
            return None
        if isinstance(effect, RequestModel):
            return self._responded(state, effect)
        if isinstance(effect, Gather):
            test = either(of_kind("gathered"), notes_of("bills"), broken_in(state.phase))
            own = [record for record in self._of_step(step, test) if record.hook in {None, _hook_of(effect)}]

            def missing(what: str) -> Json:
                self._conditional(max(step, 1), f"what {what} would have brought is not on record")
                return None

            return gathered(own, effect, now, missing)
        if isinstance(effect, RunTools):
            return Executed(now, tuple(self._result(effect, call) for call in effect.calls))
        if isinstance(effect, AskApproval):
            waiting = self._waiting()
            if waiting.issuperset(request.call_id for request in effect.requests):
                self.asked |= waiting
                return Undecided(now, "nobody had decided")
            return Decided(now, tuple(self._decision(request.call_id, step) for request in effect.requests))
        edges = self._of_step(step, lambda record: is_edge(record) and self._is_member(record))
        if isinstance(effect, Open):
            return self._opened(effect, edges)
        if isinstance(effect, Enter):
            return Entered(now, effect.run)
        if isinstance(effect, Leave):
            return Left(now, effect.run)
        if isinstance(effect, Save):
            return Saved(now, effect.run, len(effect.messages))
        return None

    def _is_member(self, record: AuditRecord) -> bool:
        """Tell whether a wrapper that is on record is in the other list too."""
        return record.actor in self.setup.plan.members

    def _opened(self, effect: Open, edges: Sequence[AuditRecord]) -> Event:
        facts, started = self.started.facts, self.started
        conversation = effect.conversation
        history = messages_of(facts["history"], started) if conversation is not None else ()
        if conversation is not None:
            conversation = Conversation(conversation.name, cast("int | None", facts.get("stored")))
        run = latched(effect.run, edges)
        return Opened(started.at, run, history, str(facts["instructions"]), conversation)

    def _responded(self, state: MachineState, effect: RequestModel) -> Event | None:
        step = state.run.run_step
        records = self._of_step(step, either(_REQUESTING, broken_in(state.phase)))
        if not records or step not in self._shown:
            self._conditional(step, "the run on record made no request here")
            return None
        mine = shown(self.log).get(step)
        if mine != self._shown[step]:
            self._conditional(step, "the request would have been another one")
        own = [record for record in records if not is_edge(record) or self._is_member(record)]
        made = [record for record in records if is_edge(record) and "response" in record.changes]
        event = responded(own if len(own) == len(records) or not made else records, effect, self.started.at)
        return event._replace(entries=())

    def _waiting(self) -> set[str]:
        """Return the calls for which the run on record still waits."""
        decided = {record.call for record in self.records if record.kind == "call_decided"}
        suspended = [record.facts["calls"] for record in self.records if record.kind == "run_suspended"]
        asked = {str(call) for calls in suspended for call in cast(FrozenList, calls)}
        return asked - decided

    def _decision(self, call: str, step: int) -> Decision:
        self.asked.add(call)
        decided = (one for one in self.records if one.kind == "call_decided" and one.call == call)
        record = next(decided, None)
        if record is not None:
            return decision_of(record)
        self._unsure.add(call)
        self._conditional(step + 1, f"what a person would have decided on {call} is not on record")
        return Approve()

    def _result(self, effect: RunTools, call: CallState) -> CallResult:
        name = call.asked.id
        mine = [record for record in self.records if record.call == name]
        settled = next((one for one in mine if one.kind == "tool_settled"), None)
        admitted = next((one for one in mine if one.kind == "call_admitted"), None)
        step = effect.run.run_step
        if settled is None or admitted is None:
            self._conditional(step + 1, f"{name} did not run, so that its outcome is not on record")
            return CallResult(replace(call, outcome=Outcome("succeeded", NO_OUTCOME, attempts=1)), effect.run)
        if not same(admitted.facts["arguments"], call.arguments):
            self._conditional(step + 1, f"{name} would have run with other arguments")
        outcome = read(settled.facts["outcome"], Outcome, settled)
        edges = [record for record in mine if is_edge(record) and self._is_member(record)]
        extra = cast(int, settled.facts.get("extra", 0))
        return CallResult(
            replace(call, outcome=outcome), latched(effect.run, edges), extra, tuple(map(entry_of, edges))
        )


def _hook_of(effect: Gather) -> str:
    return effect.jobs[0].link.hook


def _heads(records: Iterable[AuditRecord]) -> Sequence[Tail]:
    below = [cast(FrozenList, record.facts.get("below", FrozenList())) for record in records]
    pairs = [cast("Mapping[str, str]", one) for each in below for one in each]
    return [Tail(one["run"], 0, one["head"]) for one in pairs]


_VIEW = ("messages", "response")


def shown(records: Iterable[AuditRecord]) -> Mapping[int, str]:
    """Return, per step, the digest of all that decides what its request shows: so requests are compared.

    The messages that hooks brought in or changed, what became of the calls before, the view, and what was selected.
    """
    found: dict[int, str] = {}
    so_far = ""
    outcomes: dict[str, Json] = {}
    view: Json = None
    for record in records:
        if record.kind == "step_started":
            so_far, outcomes, view = digest([so_far, FrozenDict(outcomes)]), {}, None
        elif record.kind in {"transition", "restored"} and not is_edge(record):
            own = {name: record.changes[name] for name in _VIEW if name in record.changes}
            if own:
                so_far = digest([so_far, FrozenDict(own)])
            view = record.changes.get("request_messages", view)
            if record.call is not None and "outcome" in record.changes:
                outcomes[record.call] = _said(cast("FrozenDict[Json]", record.changes["outcome"])["to"])
        elif record.kind == "tool_settled" and record.call is not None:
            outcomes[record.call] = _said(record.facts["outcome"])
        elif record.kind == "call_refused" and record.call is not None:
            outcomes[record.call] = _said(record.facts)
        elif record.kind == "model_responded":
            so_far = digest([so_far, record.facts["response"]])
        elif record.kind == "note" and "asked_again" in record.facts:
            so_far = digest([so_far, record.facts])
        elif record.kind == "model_requested":
            found[record.step] = digest([so_far, view, record.facts])
    return found


def _said(outcome: Json) -> Json:
    facts = cast("FrozenDict[Json]", outcome)
    return FrozenList([facts["status"], facts["content"]])
