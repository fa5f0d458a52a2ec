"""RunMachine: a test of whole runs, for a capability of one's own, with ready-made ones and strangers beside it.

Hypothesis chooses what happens: half of the runs are fed to the machine move by move, without any IO, the other half
are tales, which are lived on an event loop with wrappers, sub-agents, timeouts and cancellation. What must hold of any
run is checked after every move, and of every tale. A failure is the same each time.
"""

from collections.abc import Callable
from typing import ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis import target
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.strategies import DataObject

from ..capabilities.capability import AnyCapability
from .decisions import Answer, Approve, Decision, Deny, Edit
from .laws_arguments import arguments_of, json_values
from .laws_drawn import lives_for
from .laws_moves import BUSY, Moves
from .laws_play import tell
from .laws_states import NO_FACTS, endings
from .laws_tales import OURS, tales
from .laws_truths import check_told
from .laws_values import Tools, responses_of
from .limits import Limits
from .phases import AskApproval, Finish, Gather, RequestModel, RunTools, Suspend

Rule = TypeVar("Rule", bound=Callable[..., None])
_LIMITS = st.sampled_from(
    (
        Limits(max_steps=6),
        Limits(max_steps=2),
        Limits(max_steps=6, requests=2),
        Limits(max_steps=6, tool_calls=3),
    )
)
# So many tales are told in one example; more of them would be drawn from what is left, and be poor ones.
_TALES = 2


def _waits_for(*kinds: type) -> Callable[[Rule], Rule]:
    return precondition(lambda self: self.moves is not None and isinstance(self.moves.effect, kinds))


class RunMachine(RuleBasedStateMachine):
    """Set `capabilities`, and take its `TestCase`: `class Mine(RunMachine): capabilities = (MyCap(),)`.

    `tools`: an inventory, or a strategy for inventories; None = any, and those that the capabilities mention. Their
    functions are not called. `deps`: for gatherers and wrappers, which are called in tales, in earnest; there their
    `sleep` costs no time, and threads are not waited for.
    """

    capabilities: ClassVar[tuple[AnyCapability, ...]] = ()
    tools: ClassVar[Tools] = None
    deps: ClassVar[object] = None

    def __init__(self) -> None:
        """Nothing has happened yet."""
        super().__init__()
        self.moves: Moves | None = None
        self.told = 0

    @initialize(data=st.data(), moves=st.booleans())
    def begin(self, data: DataObject, moves: bool) -> None:  # noqa: FBT001  # Hypothesis gives it by its name
        """Start a run under the capabilities and some of ours, in any order; or tell the first tale of it."""
        if not moves:
            self._tell(data)
            return
        life = data.draw(lives_for(self.capabilities, tools=self.tools, facts=NO_FACTS))
        some = data.draw(st.lists(st.sampled_from(OURS), unique=True, max_size=len(OURS)))
        listed = data.draw(st.permutations([*self.capabilities, *some]))
        self.moves = Moves(life, listed, data.draw(_LIMITS))

    # --- tales

    @precondition(lambda self: 0 < self.told < _TALES)
    @rule(data=st.data())
    def another_tale(self, data: DataObject) -> None:
        """Of another run under them."""
        self._tell(data)

    @precondition(lambda self: self.told >= _TALES)
    @rule()
    def all_is_told(self) -> None:
        """Nothing more happens."""

    def _tell(self, data: DataObject) -> None:
        told = tell(data.draw(tales(self.capabilities, tools=self.tools)), deps=self.deps)
        self.told += 1
        target(float(len(told.world.bodies)), label=f"bodies that ran in tale {self.told}")
        check_told(told)

    # --- moves

    @_waits_for(RequestModel)
    @rule(data=st.data())
    def the_model_answers(self, data: DataObject) -> None:
        """With text, calls that are right or wrong, or something cut off."""
        self._live.answers(data.draw(responses_of(self._live.state.setup.inventory, 4)))

    @_waits_for(RequestModel)
    @rule()
    def the_model_fails(self) -> None:
        """For good."""
        self._live.fails()

    @_waits_for(RunTools)
    @rule(data=st.data())
    def the_tools_run(self, data: DataObject) -> None:
        """And succeed, fail, time out, or return what nobody expected."""
        effect = self._live.effect
        assert isinstance(effect, RunTools)
        self._live.execute([data.draw(endings) for _ in effect.calls])

    @_waits_for(Gather)
    @rule(data=st.data())
    def facts_come(self, data: DataObject) -> None:
        """Of any shape."""
        effect = self._live.effect
        assert isinstance(effect, Gather)
        self._live.brings([data.draw(json_values(max_leaves=3)) for _ in effect.jobs])

    @_waits_for(AskApproval)
    @rule(data=st.data())
    def a_person_decides(self, data: DataObject) -> None:
        """Approves, denies, edits or answers each call."""
        self._live.decide(self._decisions(data))

    @_waits_for(AskApproval)
    @rule()
    def nobody_decides(self) -> None:
        """The run is suspended."""
        self._live.waits()

    @_waits_for(AskApproval, Suspend)
    @rule()
    def a_decision_is_malformed(self) -> None:
        """It is refused, and changes nothing."""
        self._live.decide_wrongly()

    @_waits_for(*BUSY)
    @rule()
    def a_decision_comes_late(self) -> None:
        """Nobody waits for it any more: it is an illegal move, and changes nothing."""
        self._live.decide_late()

    @_waits_for(Suspend)
    @rule(data=st.data())
    def the_run_resumes(self, data: DataObject) -> None:
        """From its snapshot, as another process would."""
        self._live.carry()
        self._live.decide(self._decisions(data))

    @_waits_for(*BUSY, AskApproval)
    @rule(stops=st.booleans())
    def the_caller_interrupts(self, stops: bool) -> None:  # noqa: FBT001  # as above
        """Stops the run, or cancels it, wherever it stands."""
        self._live.interrupt(stops=stops)

    @_waits_for(Finish)
    @rule()
    def the_run_is_over(self) -> None:
        """Nothing is taken any more."""
        self._live.interrupt_late()

    @invariant()
    def the_history_is_closed(self) -> None:
        """Each call of the run has one outcome: in a batch under way all but the open ones, at the end all."""
        if self.moves is not None:
            self.moves.check_closed()

    def teardown(self) -> None:
        """Cancel a run that is under way; its history is closed then too. Deep runs with large batches are aimed at."""
        if self.moves is not None:
            target(float(len(self.moves.ran)), label="calls that ran")
            if not isinstance(self.moves.effect, Finish):
                self.moves.interrupt(stops=False)
                self.moves.check_closed()
        super().teardown()

    @property
    def _live(self) -> Moves:
        assert self.moves is not None
        return self.moves

    def _decisions(self, data: DataObject) -> list[Decision]:
        made: list[Decision] = []
        for request in self._live.requests:
            tool = self._live.state.setup.by_name[request.tool]
            chosen = data.draw(st.sampled_from((Approve(), Deny(), Answer("known"), None)))
            made.append(Edit(data.draw(arguments_of(tool))) if chosen is None else chosen)
        return made
