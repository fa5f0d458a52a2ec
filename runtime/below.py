"""What a run knows of the runs below it: what a sub-agent may use, what it has used, and where it waits.

Records and arithmetic; how a sub-agent is run is `subagents`' business.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from attrs import frozen

from ..capabilities.annotations import SchemaFunction
from ..capabilities.call_state import CallState
from ..capabilities.frozen import FrozenDict
from ..capabilities.messages import NO_USAGE, Usage
from ..capabilities.state import RunState
from .billing import PLACES

if TYPE_CHECKING:
    from .phases import Broken, RunTools
    from .session import Session
    from .setup import Setup
    from .work import MachineState

NO_MODELS: FrozenDict[Usage] = FrozenDict()


class Allowance(NamedTuple):
    """What one call of a sub-agent may use of its caller's limits; None = no bound. `cost` in US dollars.

    `tool_calls` is its share of the caller's: for its own calls, and for running its body again.
    """

    requests: int | None = None
    tool_calls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cost: float | None = None


UNBOUNDED = Allowance()


class Spent(NamedTuple):
    """What a run has used, runs below it included. `cost` in US dollars, None = unknown."""

    requests: int = 0
    tool_calls: int = 0
    usage: Usage = NO_USAGE
    usage_by_model: FrozenDict[Usage] = NO_MODELS
    cost: float | None = 0.0

    @classmethod
    def by(cls, run: RunState) -> "Spent":
        """Return what a run has used so far."""
        return cls(run.requests, run.tool_calls, run.usage, run.usage_by_model, run.cost)

    def of(self, name: str) -> float | None:
        """Return what was used of a limit, by the name it has in `Limits`."""
        if name == "total_tokens":
            return self.usage.total
        value: float | None = getattr(self.usage if name.endswith("_tokens") else self, name)
        return value

    def plus(self, other: "Spent") -> "Spent":
        """Return the sum; what is unknown in one is unknown in it."""
        by_model = dict(self.usage_by_model)
        for name, usage in other.usage_by_model.items():
            by_model[name] = by_model.get(name, NO_USAGE) + usage
        return Spent(
            self.requests + other.requests,
            self.tool_calls + other.tool_calls,
            self.usage + other.usage,
            FrozenDict(by_model),
            None if self.cost is None or other.cost is None else round(self.cost + other.cost, PLACES),
        )


NOTHING = Spent()


class Held(NamedTuple):
    """A call that was executed and is not settled: its sub-agent waits for decisions, or that of a call before it.

    `state`: the run that waits; None where the call has its outcome. `allowance`: what it may use, all in all.
    `earlier`: what its other attempts used. `extra`: how often its body was run again. `runs`: the ids of all
    attempts. All of it is booked when the call settles.
    """

    state: "MachineState | None"
    allowance: Allowance = UNBOUNDED
    earlier: Spent = NOTHING
    extra: int = 0
    runs: tuple[str, ...] = ()


class Below:
    """One call of a sub-agent under way: what its attempts have used, and what came of them. Mutable.

    `runs`: the ids of its attempts. `extra`: how often its body was run again before its run was resumed.
    `waiting`: the state of an attempt that waits for decisions. `broken`: a share of the caller's limits was
    spent, which ends the caller's run.
    """

    def __init__(self, allowance: Allowance, held: Held | None) -> None:
        """Start before the first attempt, or where an earlier one waited."""
        self.allowance = allowance
        self.extra = held.extra if held is not None else 0
        self.runs = held.runs if held is not None else ()
        self.waiting: MachineState | None = None
        self.broken: Broken | None = None
        self._ended = held.earlier if held is not None else NOTHING
        self._read: Callable[[], Spent] | None = None

    def begin(self, run_id: str, read: Callable[[], Spent]) -> None:
        """Take note of an attempt, or of one that goes on; `read` says at any time what it has used."""
        if run_id not in self.runs:
            self.runs = (*self.runs, run_id)
        self._ended = self.spent
        self._read = read

    def end(self, spent: Spent) -> None:
        """Take note that an attempt which waited is over, and of all that it used."""
        self.waiting = None
        self._ended = self._ended.plus(spent)
        self._read = None

    def held(self, extra: int) -> Held | None:
        """Return what waits, its body run `extra` times again; None when nothing does."""
        if self.waiting is None:
            return None
        return Held(self.waiting, self.allowance, self._ended, self.extra + extra, self.runs)

    @property
    def spent(self) -> Spent:
        """What all attempts have used."""
        return self._ended if self._read is None else self._ended.plus(self._read())

    def left(self, extra: int) -> Allowance:
        """Return what the next attempt, or one that goes on, may use in all; `extra`: body runs beyond the first."""
        spent = self.spent
        # Running it again is a call of the caller's, too.
        used = spent._replace(tool_calls=spent.tool_calls + extra)

        def rest(name: str, allowed: float | None) -> float | None:
            spent = used.of(name)
            # What is unknown is not counted as 0: nothing is left then.
            return None if allowed is None else 0 if spent is None else max(0, allowed - spent)

        pairs = self.allowance._asdict().items()
        return Allowance(**{name: rest(name, allowed) for name, allowed in pairs})  # type: ignore[arg-type]  # by name


class Waiting(Exception):
    """A run below waits for decisions; raised in place of its output, caught where the call's outcome is made."""


@frozen
class RunBelow(SchemaFunction):
    """The function of a tool that runs another agent: it needs the run that calls it, not the arguments alone."""

    def setup_under(self, above: "Setup", allowance: Allowance = UNBOUNDED) -> "Setup":
        """Return the setup of a run below another. Raises ValueError when it cannot stand there."""
        raise NotImplementedError

    def provides(self, need: tuple[str, str, str]) -> bool:
        """Tell whether what a run below needs (who, where, key) is there though its caller brings nothing."""
        raise NotImplementedError

    async def run_below(
        self, session: "Session", effect: "RunTools", call: CallState, attempt: int
    ) -> object:
        """Run it as the `attempt`th try of a call, and return its output."""
        raise NotImplementedError
