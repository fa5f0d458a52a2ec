"""What a run comes to, as its caller sees it. How a suspended one becomes text is `snapshot`'s business."""

from typing import Generic, Literal, TypeAlias, TypeVar, cast

from attrs import field, frozen

from ..capabilities.frozen import FrozenDict
from ..capabilities.messages import Message, Usage
from ..capabilities.records import copier
from ..capabilities.state import RunState, Stop
from .decisions import ApprovalRequest
from .ending import pending_messages
from .log import Log
from .phases import Finish, Suspend
from .work import MachineState

Out_co = TypeVar("Out_co", covariant=True)
ResultStatus: TypeAlias = Literal["completed", "stopped", "suspended", "failed", "cancelled"]


@frozen(kw_only=True, repr=False, eq=False)
class RunResult(Generic[Out_co]):
    """The result of a run.

    `status`: "failed" and "cancelled" stand in the `partial` of an error only. `output`: of the agent's output
    type; for a stopped run the stop's message where the output is text, else None. `messages`: all that the run
    saw; `pending`: what a suspended run waits for. `machine`: the state it can be resumed from.
    """

    state: RunState
    log: Log
    output: Out_co
    pending: tuple[ApprovalRequest, ...] = ()
    messages: tuple[Message, ...] = ()
    machine: MachineState | None = field(default=None)

    @property
    def status(self) -> ResultStatus:
        """How the run ended."""
        return cast(ResultStatus, self.state.status)  # a result is never made of a running state

    @property
    def new_messages(self) -> tuple[Message, ...]:
        """The messages of this run, without the history it was given."""
        return self.messages[self.state.history_start :]

    @property
    def usage(self) -> Usage:
        """Tokens of all its requests."""
        return self.state.usage

    @property
    def usage_by_model(self) -> FrozenDict[Usage]:
        """Tokens by the configured name of the model that was asked."""
        return self.state.usage_by_model

    @property
    def cost(self) -> float | None:
        """US dollars of all its responses; None when one had no known price or usage."""
        return self.state.cost

    @property
    def requests(self) -> int:
        """How many model requests were charged."""
        return self.state.requests

    @property
    def tool_calls(self) -> int:
        """How many tool calls were charged, body runs beyond the first included."""
        return self.state.tool_calls

    @property
    def steps(self) -> int:
        """How many steps it took."""
        return self.state.run_step

    @property
    def stop(self) -> Stop | None:
        """Who stopped it, and with which message."""
        return self.state.stopped

    def snapshot(self) -> str:
        """Return a suspended run as JSON text, from which another process can resume it.

        Raises ValueError for a run that is not suspended.
        """
        from .snapshot import write_snapshot  # noqa: PLC0415  # the agent, which it serves, needs this module

        if self.machine is None or self.status != "suspended":
            raise ValueError(f"only a suspended run has a snapshot; this one is {self.status}")
        return write_snapshot(self.machine, self.log)

    def __repr__(self) -> str:
        """Counts, not contents."""
        return (
            f"<RunResult {self.state.agent} {self.status} steps={self.steps} requests={self.requests} "
            f"tool_calls={self.tool_calls} messages={len(self.messages)} pending={len(self.pending)}>"
        )


def result_of(state: MachineState, end: Finish | Suspend, log: Log) -> RunResult[object]:
    """Return the result of a run that is over or suspended."""
    run = state.run if isinstance(end, Suspend) else end.run
    if isinstance(end, Suspend):
        return RunResult(
            state=run,
            log=log,
            output=None,
            pending=state.pending,
            messages=pending_messages(state),
            machine=state,
        )
    return _OVER(_BLANK, run, log, run.output, run.messages)


# A call of the class, with its keywords, costs twice as much.
_BLANK: RunResult[object] = RunResult(state=RunState(), log=Log(), output=None)
_OVER = copier(RunResult, "state", "log", "output", "messages")
