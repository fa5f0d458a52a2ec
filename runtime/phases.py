"""Phases, events and effects of a run, and the one table of legal moves.

The table is total: a phase without an outgoing event is written as empty, and a missing key *is* the illegal
move. `capfold rules` prints it and draws it. Plain data: what a move does is the machine's business.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..capabilities.call_state import CallState
from ..capabilities.compose import Link
from ..capabilities.frozen import FrozenDict
from ..capabilities.messages import AssistantMessage, Message
from ..capabilities.run_parts import Stop
from ..capabilities.state import RunState
from .below import NOTHING, Allowance, Held, Spent
from .billing import Bill
from .conversation import Conversation
from .decisions import ApprovalRequest, Decision
from .entries import Entry
from .errors import Reason
from .models import ModelRequest

if TYPE_CHECKING:
    from .work import MachineState


class Phase(Enum):
    """Where a run stands between two events: what it waits for."""

    # Members are singletons: hashing by identity spares a Python call at each look-up of a move.
    __hash__ = object.__hash__

    OPENING = "opening"  # the conversation, the prompt source
    ENTERING = "entering"  # wrap_run goes in
    STARTING = "starting"  # facts for before_run
    PREPARING = "preparing"  # facts for before_model_request
    REQUESTING = "requesting"  # the model
    RESPONDING = "responding"  # facts for after_model_request
    ADMITTING = "admitting"  # facts for admit_tool_execute
    APPROVING = "approving"  # a person
    SUSPENDED = "suspended"  # a person, in another process perhaps
    EXECUTING = "executing"  # the tools
    SETTLING = "settling"  # facts for after_tool_execute
    FINISHING = "finishing"  # facts for after_run
    LEAVING = "leaving"  # wrap_run comes out
    SAVING = "saving"  # the conversation
    ENDED = "ended"


# --- effects: what the machine wants done. Named tuples: two of these a step, and an event for each; a frozen
# attrs class takes about three times as long to make.


class Open(NamedTuple):
    """Load the conversation, where there is one, and resolve the instructions, through their wrappers."""

    run: RunState
    conversation: Conversation | None


class Enter(NamedTuple):
    """Enter the wrap_run wrappers."""

    run: RunState


class GatherJob(NamedTuple):
    """One gatherer call: the link and the record it looks at."""

    link: Link
    record: RunState | CallState


class Gather(NamedTuple):
    """Call the gatherers, all at once, each at most `timeout` seconds."""

    hook: str
    jobs: tuple[GatherJob, ...]
    run: RunState
    timeout: float | None
    requests_left: int | None


class RequestModel(NamedTuple):
    """Send one model request through its wrappers; at most `requests_left` attempts (None = any number)."""

    run: RunState
    request: ModelRequest
    requests_left: int | None
    timeout: float | None


class AskApproval(NamedTuple):
    """Let a person decide all of these at once."""

    requests: tuple[ApprovalRequest, ...]


class Resumption(NamedTuple):
    """A run below that waited for decisions, what is held of its call, and the decisions, one per request."""

    state: "MachineState"
    held: Held
    decisions: tuple[Decision, ...]


class RunTools(NamedTuple):
    """Execute admitted calls through their wrappers. `shares`: body runs each may add to its first (None = any).

    `calls` are without their run, which is `run` for all of them. `max_parallel`: how many at once (None = all).
    By call id: `allowances`, what a sub-agent may use; `resumed`, where one goes on that waited for decisions.
    """

    run: RunState
    calls: tuple[CallState, ...]
    shares: tuple[int | None, ...]
    timeout: float | None
    max_parallel: int | None
    max_result_bytes: int
    allowances: Mapping[str, Allowance] = FrozenDict()
    resumed: Mapping[str, Resumption] = FrozenDict()


class Leave(NamedTuple):
    """Leave the wrap_run wrappers; the run's status is final but for what they latch."""

    run: RunState


class Suspend(NamedTuple):
    """The run waits for decisions; its state can be snapshotted."""

    requests: tuple[ApprovalRequest, ...]
    why: str


class Save(NamedTuple):
    """Save this run's messages through the wrappers of that; the status of the run is final but for a failure here."""

    run: RunState
    conversation: Conversation
    messages: tuple[Message, ...]


class Finish(NamedTuple):
    """The run is over; `reason` where it failed."""

    run: RunState
    reason: Reason | None = None
    cause: BaseException | None = None


class Onward(Enum):
    """What comes next without waiting for anything; `feed` goes on until there is an effect."""

    STEP = "step"
    JUDGE = "judge"


# By names of their own, since each read of a member through its class costs 400 instructions.
STEP, JUDGE = Onward


Effect: TypeAlias = (
    Open | Enter | Gather | RequestModel | AskApproval | RunTools | Leave | Save | Suspend | Finish
)


# --- events: what became of an effect. Each carries `now`, UTC seconds.


class Broken(NamedTuple):
    """Why an effect ends the run: a wrapper or gatherer that failed, a limit, a model that failed."""

    reason: Reason
    cause: BaseException | None = None


class Opened(NamedTuple):
    """What the run starts with: the history that was loaded, and its whole instructions.

    `run` carries the latches of wrappers. With `broken`, the run ends before it began.
    """

    now: float
    run: RunState
    history: tuple[Message, ...] = ()
    instructions: str = ""
    conversation: Conversation | None = None
    entries: tuple[Entry, ...] = ()
    broken: Broken | None = None


class Entered(NamedTuple):
    """All wrap_run wrappers called inward; `run` carries their latches."""

    now: float
    run: RunState
    entries: tuple[Entry, ...] = ()


class Gathered(NamedTuple):
    """One fact per job, in the jobs' order; `charged` model requests were sent for them, and brought `bills`."""

    now: float
    facts: tuple[object, ...]
    broken: Broken | None = None
    charged: int = 0
    bills: tuple[Bill, ...] = ()


class Responded(NamedTuple):
    """The request is through its wrappers: `response` is what came out, None where a wrapper stopped the run.

    `responses`: all that models sent, those that a wrapper retried or dropped among them; `charged` requests
    were sent for them. `run` carries what wrappers latched and chose. `bills`: one per response; without them,
    each is the bill of the run's model.
    """

    now: float
    run: RunState
    response: AssistantMessage | None
    charged: int
    responses: tuple[AssistantMessage, ...] = ()
    entries: tuple[Entry, ...] = ()
    broken: Broken | None = None
    bills: tuple[Bill, ...] = ()


class Decided(NamedTuple):
    """One decision per request, in their order."""

    now: float
    decisions: tuple[Decision, ...]


class Undecided(NamedTuple):
    """Nobody decided: no approver, it raised, or it took too long."""

    now: float
    why: str


class CallResult(NamedTuple):
    """One executed call with its outcome, without its run. `extra`: body runs beyond the first.

    `run` carries what its wrappers latched. Of a sub-agent: `below` has the ids of its runs, one for each time that
    the body ran, `spent` what they used; `held` where it waits for decisions: then the call has no outcome yet.
    """

    call: CallState
    run: RunState
    extra: int = 0
    entries: tuple[Entry, ...] = ()
    broken: Broken | None = None
    below: tuple[str, ...] = ()
    spent: Spent = NOTHING
    held: Held | None = None


class Executed(NamedTuple):
    """All calls of the batch have an outcome, in call order."""

    now: float
    results: tuple[CallResult, ...]


class Left(NamedTuple):
    """All wrap_run wrappers returned."""

    now: float
    run: RunState
    entries: tuple[Entry, ...] = ()
    broken: Broken | None = None


class Saved(NamedTuple):
    """Whether the store has `messages` of the run; `broken` where not all went well. `run` carries wrappers' notes.

    `messages`: how many were saved.
    """

    now: float
    run: RunState
    messages: int
    entries: tuple[Entry, ...] = ()
    broken: Broken | None = None


class Resumed(NamedTuple):
    """A suspended run goes on with decisions, one per pending request."""

    now: float
    decisions: tuple[Decision, ...]


class Sent(NamedTuple):
    """What is known of requests that were cut short: how many were charged, and what had come back.

    `bills` without `responses` are of gatherers' requests.
    `run` carries what wrappers latched; `entries` what is on record of their edges.
    """

    charged: int
    bills: tuple[Bill, ...] = ()
    responses: tuple[AssistantMessage, ...] = ()
    run: RunState | None = None
    entries: tuple[Entry, ...] = ()


class Interrupted(NamedTuple):
    """The effect under way was cut short: by what `broken` says, by the caller's `stop`, or by cancellation.

    `results`: those calls of the batch of which something is known, if only that their body began.
    `sent`: what is known of the requests under way.
    """

    now: float
    broken: Broken | None = None
    results: tuple[CallResult, ...] = ()
    sent: Sent | None = None
    stop: Stop | None = None


Event: TypeAlias = (
    Opened
    | Entered
    | Gathered
    | Responded
    | Decided
    | Undecided
    | Executed
    | Left
    | Saved
    | Resumed
    | Interrupted
)

_ENDING = frozenset({Phase.FINISHING, Phase.LEAVING, Phase.SAVING, Phase.ENDED})
_STEP = frozenset({Phase.PREPARING, Phase.REQUESTING}) | _ENDING
_BATCH = frozenset({Phase.APPROVING, Phase.EXECUTING, Phase.SETTLING}) | _STEP
# What is cut short ends; a stopped run passes after_run, and its batch, as one that a limit ended, settles first.
_CUT: dict[type[Event], frozenset[Phase]] = {Interrupted: _ENDING | {Phase.SETTLING}}

# Phase -> event -> the phases it may lead to. Phases without anything to wait for are passed through, so one
# event can lead far; what it cannot lead to is an error of the machine itself, found by `feed`.
MOVES: Mapping[Phase, Mapping[type[Event], frozenset[Phase]]] = {
    Phase.OPENING: {Opened: _STEP | {Phase.ENTERING, Phase.STARTING}, **_CUT},
    Phase.ENTERING: {Entered: _STEP | _BATCH | {Phase.STARTING, Phase.ADMITTING}, **_CUT},
    Phase.STARTING: {Gathered: _STEP, **_CUT},
    Phase.PREPARING: {Gathered: frozenset({Phase.REQUESTING}) | _ENDING, **_CUT},
    Phase.REQUESTING: {Responded: _BATCH | {Phase.RESPONDING, Phase.ADMITTING}, **_CUT},
    Phase.RESPONDING: {Gathered: _BATCH | {Phase.ADMITTING}, **_CUT},
    Phase.ADMITTING: {Gathered: _BATCH, **_CUT},
    Phase.APPROVING: {Decided: _BATCH | {Phase.ADMITTING}, Undecided: frozenset({Phase.SUSPENDED}), **_CUT},
    Phase.SUSPENDED: {Resumed: _BATCH | {Phase.ADMITTING, Phase.ENTERING}, **_CUT},
    Phase.EXECUTING: {
        Executed: _STEP | {Phase.SETTLING, Phase.SUSPENDED},  # a sub-agent may wait for a person
        **_CUT,
    },
    Phase.SETTLING: {Gathered: _STEP, **_CUT},
    Phase.FINISHING: {Gathered: frozenset({Phase.LEAVING, Phase.SAVING, Phase.ENDED}), **_CUT},
    Phase.LEAVING: {Left: frozenset({Phase.SAVING, Phase.ENDED}), **_CUT},
    # Not cut short: what is not saved yet still is, whatever comes.
    Phase.SAVING: {Saved: frozenset({Phase.ENDED}), Interrupted: frozenset({Phase.SAVING})},
    Phase.ENDED: {},
}
