"""The work of one event: a scratch copy of the machine's state that the steps below write, and entries.

Lives only inside `machine.feed`; nothing outside it sees a half-done state.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ..capabilities.call_state import CallState
from ..capabilities.frozen import FrozenDict
from ..capabilities.messages import AssistantMessage, Message
from ..capabilities.state import RunState
from ..capabilities.tools import Tool
from .below import Held
from .conversation import Conversation
from .decisions import ApprovalRequest, Decision
from .entries import Entry, EntryKind
from .errors import Reason
from .phases import Broken, Effect, Phase
from .scribe import Scribe
from .setup import Setup

# What a named tuple's own constructor calls: 2,500 instructions less, two times a step.
_new = tuple.__new__


class Failure(Exception):
    """The run ends by `reason`; raised by a step, caught by `machine.feed` alone."""

    def __init__(self, reason: Reason, cause: BaseException | None = None) -> None:
        """Carry the reason, and the user's exception where there is one."""
        super().__init__(str(reason))
        self.reason = reason
        self.cause = cause


class MachineState(NamedTuple):
    """A run between two events; what suspends and resumes.

    `prepared`: the tools of the request under way. `batch`: its calls, without their run. `grants`: standing
    approvals. `approved`: digests of this batch that a person approved. `call_index` finds earlier call ids.
    `charged`, `announced`: whether the batch is booked, and whether what became of its calls is on record.
    `held`: by call id, the sub-agents that wait for decisions. `instructions`: what the agent's came to when the
    run started, with which each step begins. `conversation`: where this run's messages go.
    """

    setup: Setup
    phase: Phase
    run: RunState
    started: float = 0.0
    suspended_at: float = 0.0
    prepared: tuple[Tool, ...] = ()
    batch: tuple[CallState, ...] = ()
    grants: frozenset[str] = frozenset()
    approved: frozenset[str] = frozenset()
    judge_from: int = 0
    charged: bool = False
    announced: bool = False
    pending: tuple[ApprovalRequest, ...] = ()
    resumed: tuple[Decision, ...] = ()
    inactive: frozenset[tuple[str, str]] = frozenset()
    effect: Effect | None = None
    writers: Mapping[str, tuple[str, int, str]] = FrozenDict()
    reason: Reason | None = None
    cause: BaseException | None = None
    call_index: "CallIndex | None" = None
    held: Mapping[str, Held] = FrozenDict()
    instructions: str = ""
    conversation: Conversation | None = None


class CallIndex:
    """Call id -> place of the message that made it; only ever added to, so that older states stay right.

    Shared by the states of one run; an entry counts only where the history really holds the call.
    """

    __slots__ = ("places",)

    def __init__(self, messages: tuple[Message, ...]) -> None:
        """Index a given history."""
        self.places: dict[str, int] = {}
        for i, message in enumerate(messages):
            if isinstance(message, AssistantMessage):
                self.add(message, i)

    def add(self, message: AssistantMessage, place: int) -> None:
        """Index the calls of a message at its place."""
        for call in message.tool_calls:
            self.places[call.id] = place

    def taken(self, call_id: str, messages: tuple[Message, ...]) -> bool:
        """Tell whether an earlier response of this history has a call with this id."""
        place = self.places.get(call_id)
        if place is None or place >= len(messages):
            return False
        message = messages[place]
        return isinstance(message, AssistantMessage) and any(
            call.id == call_id for call in message.tool_calls
        )


class Work(Scribe):
    """The mutable scratch of one event."""

    def __init__(self, state: MachineState, now: float) -> None:
        """Start from a state, at a time."""
        # The scribe's part in line: two of these a step.
        self.now = now
        self.strict = state.setup.strict
        self.entries: list[Entry] = []
        # Results of a batch that enter the history together with the next step's reset, in one copy of the run.
        self.results: tuple[Message, ...] = ()
        (
            self.setup,
            self.phase,
            self.run,
            self.started,
            self.suspended_at,
            self.prepared,
            self.batch,
            self.grants,
            self.approved,
            self.judge_from,
            self.charged,
            self.announced,
            self.pending,
            self.resumed,
            self.inactive,
            self.effect,
            self.writers,
            self.reason,
            self.cause,
            self.call_index,
            self.held,
            self.instructions,
            self.conversation,
        ) = state

    def event(
        self,
        kind: EntryKind,
        names: tuple[str, ...] = (),
        facts: tuple[object, ...] = (),
        call: str | None = None,
        actor: str = "runtime",
    ) -> None:
        """Write down something that is no hook's doing, as a `Row`: what `write` does, at half the cost.

        Six of these a step.
        """
        run = self.run
        row = (kind, run.run_id, run.run_step, self.now, actor, call, names) + facts  # noqa: RUF005  # unpacking costs twice as much
        self.entries.append(row)  # type: ignore[arg-type]  # read by `feed` and the log alone, which make entries of rows

    def broke(self, broken: Broken) -> Failure:
        """Write down what broke outside, and return what the run ends by."""
        self.write_broken(broken)
        return Failure(broken.reason, broken.cause)

    def write_broken(self, broken: Broken) -> None:
        """Write down what broke outside, and in which phase: no replay could work it out."""
        self.write("note", facts={"broken": self.phase.value, "reason": broken.reason})

    def freeze(self) -> MachineState:
        """Return the state that the work has come to."""
        made = (
            self.setup,
            self.phase,
            self.run,
            self.started,
            self.suspended_at,
            self.prepared,
            self.batch,
            self.grants,
            self.approved,
            self.judge_from,
            self.charged,
            self.announced,
            self.pending,
            self.resumed,
            self.inactive,
            self.effect,
            self.writers,
            self.reason,
            self.cause,
            self.call_index,
            self.held,
            self.instructions,
            self.conversation,
        )
        return _new(MachineState, made)
