"""Moves: a run whose machine is fed by hand, one event after another. Without IO: no event loop, no wrapper.

After every move what must hold of any run is checked: on the states before and after it, and by feeding the same event
twice. Which event comes when is chosen by who drives it.
"""

from attrs import evolve

from ..capabilities.capability import AnyCapability
from ..capabilities.frozen import Json, same
from ..capabilities.messages import AssistantMessage
from ..capabilities.records import replace
from ..capabilities.run_parts import Stop
from ..capabilities.verdict import Outcome
from ..capabilities.views import balance_problem
from . import machine
from .agent import Agent
from .decisions import ApprovalRequest, Approve, Decision, Edit
from .ending import pending_messages
from .errors import DecisionError, ModelFailed
from .laws_invariants import closed, grown, may_run
from .laws_lives import Life, quiet
from .limits import Limits
from .log import Log
from .phases import (
    AskApproval,
    Broken,
    CallResult,
    Decided,
    Effect,
    Enter,
    Entered,
    Event,
    Executed,
    Finish,
    Gather,
    Gathered,
    Interrupted,
    Leave,
    Left,
    Open,
    Opened,
    Phase,
    RequestModel,
    Responded,
    Resumed,
    RunTools,
    Suspend,
    Undecided,
)
from .scripted_model import ScriptedModel
from .snapshot import read_snapshot, write_snapshot
from .work import MachineState

_MODEL = ScriptedModel([])


class Moves:
    """One run that is fed by hand. `effect`: what it waits for; `ran`: ids of the calls that ran."""

    def __init__(self, life: Life, listed: list[AnyCapability], limits: Limits) -> None:
        """Start a run of a life's tools, history and prompt, under the capabilities."""
        self.now = 1_700_000_000.0
        self.ran: set[str] = set()
        self.approved: set[str] = set()
        agent = Agent(
            "agent",
            _MODEL,
            tools=life.tools,
            capabilities=(life.neighbour, *listed),
            limits=limits,
        )
        self.state: MachineState
        self.effect: Effect
        self.state, self.effect, _ = machine.start(
            agent.setup, life.prompt, run_id="run", now=self.now, context=life.context, messages=life.history
        )
        self._look(None)
        self._pass_on()

    # --- what the world does

    def answers(self, said: AssistantMessage) -> None:
        """A model answers."""
        self.feed(Responded(self._tick(), self.state.run, said, 1, (said,)))

    def fails(self) -> None:
        """A model fails for good."""
        reason = ModelFailed(message="it failed", kind="server", step=self.state.run.run_step)
        self.feed(Responded(self._tick(), self.state.run, None, 1, (), (), Broken(reason)))

    def execute(self, outcomes: list[Outcome]) -> None:
        """The calls that were handed out end, each as it is said."""
        effect = self.effect
        assert isinstance(effect, RunTools)
        done = [replace(call, outcome=outcome) for call, outcome in zip(effect.calls, outcomes, strict=True)]
        self.feed(Executed(self._tick(), tuple(CallResult(call, effect.run) for call in done)))

    def brings(self, facts: list[Json]) -> None:
        """Gatherers bring their facts."""
        self.feed(Gathered(self._tick(), tuple(facts)))

    def decide(self, decisions: list[Decision]) -> None:
        """A person decides; a suspended run is resumed."""
        for request, decision in zip(self.requests, decisions, strict=True):
            if isinstance(decision, Approve | Edit):
                self.approved.add(request.call_id)
        event = Resumed if self.state.phase is Phase.SUSPENDED else Decided
        self.feed(event(self._tick(), tuple(decisions)))

    def waits(self) -> None:
        """Nobody decides."""
        self.feed(Undecided(self._tick(), "nobody was there"))

    def interrupt(self, *, stops: bool) -> None:
        """The caller stops the run, or cancels it."""
        self.feed(Interrupted(self._tick(), stop=Stop("enough") if stops else None))

    # --- what is refused, and changes nothing

    def decide_wrongly(self) -> None:
        """Try a decision too many."""
        before = self.state
        event = Resumed if before.phase is Phase.SUSPENDED else Decided
        wrong = (*[Approve()] * len(before.pending), Approve()) if before.pending else (Approve(),) * 99
        try:
            machine.feed(before, event(self._tick(), wrong))
        except DecisionError:
            pass
        else:
            raise AssertionError("one decision too many was taken")
        assert self.state is before

    def decide_late(self) -> None:
        """Try a decision that nobody waits for any more."""
        self._try(Decided(self._tick(), (Approve(),)), "a decision that nobody waited for was taken")

    def interrupt_late(self) -> None:
        """Try to interrupt a run that is over."""
        self._try(Interrupted(self._tick()), "a run that had ended was interrupted")

    def _try(self, event: Event, otherwise: str) -> None:
        try:
            machine.feed(self.state, event)
        except machine.IllegalMove:
            return
        raise AssertionError(otherwise)

    def carry(self) -> None:
        """Go on from a snapshot, as another process would."""
        before = self.state
        state, _ = read_snapshot(write_snapshot(before, Log()), before.setup, allow_changed=frozenset())
        back = evolve(state.run, model=before.run.model)
        assert same(back, before.run), "a snapshot came back as another run"
        assert same(state.pending, before.pending), "a snapshot came back with other questions"
        self.state = state

    # --- what must hold

    @property
    def requests(self) -> tuple[ApprovalRequest, ...]:
        """What a person is asked."""
        if self.state.pending:
            return self.state.pending
        return self.effect.requests if isinstance(self.effect, AskApproval) else ()

    def check_closed(self) -> None:
        """Raise AssertionError unless each call has one outcome: all at the end, all but the open ones of a batch."""
        messages = self.state.run.messages
        if isinstance(self.effect, Finish):
            problem = balance_problem(messages)
        elif isinstance(self.effect, Suspend):
            problem = balance_problem(pending_messages(self.state))
        else:
            problem = balance_problem(closed(messages))
        assert problem is None, problem

    def feed(self, event: Event) -> None:
        """Feed the machine twice with the same event, which must come to the same, and look at what it reached."""
        before = self.state
        with quiet():
            moved, again = machine.feed(before, event), machine.feed(before, event)
        assert same(moved[0].run, again[0].run), "the same event led to two states"
        assert len(moved[2]) == len(again[2]), "the same event was written down in two ways"
        self.state, self.effect, _ = moved
        self._look(before)
        self._pass_on()

    def _tick(self) -> float:
        self.now += 1
        return self.now

    def _pass_on(self) -> None:
        """Answer what needs no choice."""
        match self.effect:
            case Open(run=run):
                self.feed(Opened(self._tick(), run, instructions=run.instructions))
            case Enter(run=run):
                self.feed(Entered(self._tick(), run))
            case Leave(run=run):
                self.feed(Left(self._tick(), run))

    def _look(self, before: MachineState | None) -> None:
        run, limits, effect = self.state.run, self.state.setup.limits, self.effect
        if before is not None:
            grown(before.run, run)
        for name, most in (("requests", limits.requests), ("tool_calls", limits.tool_calls)):
            assert most is None or getattr(run, name) <= most, f"{name} is over its limit"
        assert run.run_step <= limits.max_steps, "more steps than max_steps"
        if isinstance(effect, RunTools):
            may_run(effect, self.state.prepared, self.approved, self.ran)
            self.ran.update(call.id for call in effect.calls)


# What a run may wait for while a decision comes late.
BUSY: tuple[type, ...] = (RequestModel, RunTools, Gather)
