"""RunMachine: a stateful test of whole runs, for a capability of one's own and ready-made ones beside it.

Hypothesis chooses what happens next: what the model says, what tools do, what a person decides, when the caller stops
or cancels, whether the run waits in JSON meanwhile. After every move what must hold of any run is checked. Without IO:
the machine is fed, no event loop runs, so that a failure is the same each time.
"""

from collections.abc import Callable
from typing import ClassVar, TypeVar

from attrs import evolve
from hypothesis import strategies as st
from hypothesis import target
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.strategies import DataObject

from ..capabilities.capability import AnyCapability
from ..capabilities.frozen import same
from ..capabilities.records import replace
from ..capabilities.refuse_tools import RefuseTools
from ..capabilities.require_approval import RequireApproval
from ..capabilities.run_parts import Stop
from ..capabilities.tool_budget import ToolBudget
from ..capabilities.trim_messages import TrimMessages
from ..capabilities.views import balance_problem
from . import machine
from .agent import Agent
from .decisions import Answer, Approve, Decision, Deny, Edit
from .ending import pending_messages
from .errors import DecisionError, ModelFailed
from .laws_arguments import arguments_of, json_values
from .laws_drawn import lives_for
from .laws_invariants import closed, grown, may_run
from .laws_lives import quiet
from .laws_states import NO_FACTS, endings
from .laws_values import Tools, responses_of
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

Rule = TypeVar("Rule", bound=Callable[..., None])
_MODEL = ScriptedModel([])
_OURS: tuple[AnyCapability, ...] = (
    ToolBudget(2, key="ours: budget"),
    RefuseTools(key="ours: refuse"),
    RequireApproval(key="ours: ask"),
    TrimMessages(2, key="ours: trim"),
)
_LIMITS = st.sampled_from(
    (
        Limits(max_steps=6),
        Limits(max_steps=2),
        Limits(max_steps=6, requests=2),
        Limits(max_steps=6, tool_calls=3),
    )
)


def _waits_for(*kinds: type) -> Callable[[Rule], Rule]:
    return precondition(lambda self: isinstance(self.effect, kinds))


class RunMachine(RuleBasedStateMachine):
    """Set `capabilities`, and take its `TestCase`: `class Mine(RunMachine): capabilities = (MyCap(),)`.

    `tools`: an inventory, or a strategy for inventories; None = any, and those that the capabilities mention.
    """

    capabilities: ClassVar[tuple[AnyCapability, ...]] = ()
    tools: ClassVar[Tools] = None

    def __init__(self) -> None:
        """Nothing has happened yet."""
        super().__init__()
        self.state: MachineState | None = None
        self.effect: Effect | None = None
        self.now = 1_700_000_000.0
        self.ran: set[str] = set()
        self.approved: set[str] = set()

    # --- moves

    @initialize(data=st.data())
    def begin(self, data: DataObject) -> None:
        """Start a run under the capabilities and some of ours, in any order."""
        life = data.draw(lives_for(self.capabilities, tools=self.tools, facts=NO_FACTS))
        some = data.draw(st.lists(st.sampled_from(_OURS), unique=True, max_size=len(_OURS)))
        listed = data.draw(st.permutations([*self.capabilities, *some]))
        agent = Agent(
            "agent",
            _MODEL,
            tools=life.tools,
            capabilities=(life.neighbour, *listed),
            limits=data.draw(_LIMITS),
        )
        moved = machine.start(
            agent.setup, life.prompt, run_id="run", now=self.now, context=life.context, messages=life.history
        )
        self._reached(moved[0], moved[1])
        self._pass_on()

    @_waits_for(RequestModel)
    @rule(data=st.data())
    def the_model_answers(self, data: DataObject) -> None:
        """With text, calls that are right or wrong, or something cut off."""
        said = data.draw(responses_of(self._live.setup.inventory, 4))
        self._feed(Responded(self._tick(), self._live.run, said, 1, (said,)))

    @_waits_for(RequestModel)
    @rule()
    def the_model_fails(self) -> None:
        """For good."""
        reason = ModelFailed(message="it failed", kind="server", step=self._live.run.run_step)
        self._feed(Responded(self._tick(), self._live.run, None, 1, (), (), Broken(reason)))

    @_waits_for(RunTools)
    @rule(data=st.data())
    def the_tools_run(self, data: DataObject) -> None:
        """And succeed, fail, time out, or return what nobody expected."""
        effect = self.effect
        assert isinstance(effect, RunTools)
        done = [replace(call, outcome=data.draw(endings)) for call in effect.calls]
        self._feed(Executed(self._tick(), tuple(CallResult(call, effect.run) for call in done)))

    @_waits_for(Gather)
    @rule(data=st.data())
    def facts_come(self, data: DataObject) -> None:
        """Of any shape."""
        effect = self.effect
        assert isinstance(effect, Gather)
        self._feed(Gathered(self._tick(), tuple(data.draw(json_values(max_leaves=3)) for _ in effect.jobs)))

    @_waits_for(AskApproval)
    @rule(data=st.data())
    def a_person_decides(self, data: DataObject) -> None:
        """Approves, denies, edits or answers each call."""
        self._feed(Decided(self._tick(), self._decisions(data)))

    @_waits_for(AskApproval)
    @rule()
    def nobody_decides(self) -> None:
        """The run is suspended."""
        self._feed(Undecided(self._tick(), "nobody was there"))

    @_waits_for(AskApproval, Suspend)
    @rule()
    def a_decision_is_malformed(self) -> None:
        """It is refused, and changes nothing."""
        before = self._live
        event = Resumed if before.phase is Phase.SUSPENDED else Decided
        wrong = (*[Approve()] * len(before.pending), Approve()) if before.pending else (Approve(),) * 99
        try:
            machine.feed(before, event(self._tick(), wrong))
        except DecisionError:
            pass
        else:
            raise AssertionError("one decision too many was taken")
        assert self._live is before

    @_waits_for(RequestModel, RunTools, Gather)
    @rule()
    def a_decision_comes_late(self) -> None:
        """Nobody waits for it any more: it is an illegal move, and changes nothing."""
        try:
            machine.feed(self._live, Decided(self._tick(), (Approve(),)))
        except machine.IllegalMove:
            return
        raise AssertionError("a decision that nobody waited for was taken")

    @_waits_for(Suspend)
    @rule(data=st.data())
    def the_run_resumes(self, data: DataObject) -> None:
        """From its snapshot, as another process would."""
        before = self._live
        text = write_snapshot(before, Log())
        state, _ = read_snapshot(text, before.setup, allow_changed=frozenset())
        assert same(evolve(state.run, model=before.run.model), before.run), (
            "a snapshot came back as another run"
        )
        assert same(state.pending, before.pending), "a snapshot came back with other questions"
        self.state = state
        self._feed(Resumed(self._tick(), self._decisions(data)))

    @_waits_for(RequestModel, RunTools, Gather, AskApproval)
    @rule(stops=st.booleans())
    def the_caller_interrupts(self, stops: bool) -> None:  # noqa: FBT001  # Hypothesis gives it by its name
        """Stops the run, or cancels it, wherever it stands."""
        self._feed(Interrupted(self._tick(), stop=Stop("enough") if stops else None))

    @_waits_for(Finish)
    @rule()
    def the_run_is_over(self) -> None:
        """Nothing is taken any more."""
        try:
            machine.feed(self._live, Interrupted(self._tick()))
        except machine.IllegalMove:
            return
        raise AssertionError("a run that had ended was interrupted")

    # --- what must hold after every move

    @invariant()
    def the_history_is_closed(self) -> None:
        """Each call of the run has one outcome: in a batch under way all but the open ones, at the end all."""
        if self.state is None:
            return
        messages = self.state.run.messages
        if isinstance(self.effect, Finish):
            problem = balance_problem(messages)
        elif isinstance(self.effect, Suspend):
            problem = balance_problem(pending_messages(self.state))
        else:
            problem = balance_problem(closed(messages))
        assert problem is None, problem

    def teardown(self) -> None:
        """Cancel a run that is under way; its history is closed then too. Deep runs with large batches are aimed at."""
        target(float(len(self.ran)), label="calls that ran")
        if self.state is not None and not isinstance(self.effect, Finish):
            self._feed(Interrupted(self._tick()))
            self.the_history_is_closed()
        super().teardown()

    @property
    def _live(self) -> MachineState:
        assert self.state is not None
        return self.state

    def _tick(self) -> float:
        self.now += 1
        return self.now

    def _decisions(self, data: DataObject) -> tuple[Decision, ...]:
        made: list[Decision] = []
        for request in self._live.pending or getattr(self.effect, "requests", ()):
            tool = self._live.setup.by_name[request.tool]
            kinds = st.sampled_from((Approve(), Deny(), Answer("known"), None))
            chosen = data.draw(kinds)
            decision = Edit(data.draw(arguments_of(tool))) if chosen is None else chosen
            if isinstance(decision, Approve | Edit):
                self.approved.add(request.call_id)
            made.append(decision)
        return tuple(made)

    def _feed(self, event: Event) -> None:
        """Feed the machine twice with the same event, which must come to the same, and look at what it reached."""
        with quiet():
            moved, again = machine.feed(self._live, event), machine.feed(self._live, event)
        assert same(moved[0].run, again[0].run), "the same event led to two states"
        assert len(moved[2]) == len(again[2]), "the same event was written down in two ways"
        self._reached(moved[0], moved[1])
        self._pass_on()

    def _pass_on(self) -> None:
        """Answer what needs no choice."""
        match self.effect:
            case Open(run=run):
                self._feed(Opened(self._tick(), run, instructions=run.instructions))
            case Enter(run=run):
                self._feed(Entered(self._tick(), run))
            case Leave(run=run):
                self._feed(Left(self._tick(), run))

    def _reached(self, state: MachineState, effect: Effect) -> None:
        before, self.state, self.effect = self.state, state, effect
        run, limits = state.run, state.setup.limits
        if before is not None:
            grown(before.run, run)
        for name, most in (("requests", limits.requests), ("tool_calls", limits.tool_calls)):
            assert most is None or getattr(run, name) <= most, f"{name} is over its limit"
        assert run.run_step <= limits.max_steps, "more steps than max_steps"
        if isinstance(effect, RunTools):
            may_run(effect, state.prepared, self.approved, self.ran)
            self.ran.update(call.id for call in effect.calls)
