"""Which run of a log tree a what-if is about, and what it stood under: the runs, agents and permissions above it.

Knows how a lane is set up, not how it is driven or judged.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from attrs import evolve, frozen

from ..capabilities.capability import AnyCapability
from ..capabilities.frozen import FrozenDict, Json
from .audit import AuditRecord
from .building import with_tools
from .codec import from_json
from .errors import ReplayError
from .log import Log
from .log_replay import as_recorded, root_of, started_of
from .permissions import Permissions
from .replay_tape import Tape, tapes_of
from .setup import Setup
from .subagents import SubAgent, run_id_below
from .what_if_lane import Lane
from .what_if_setup import caller_of, setup_from

if TYPE_CHECKING:
    from .agent import Agent

    AnyAgent: TypeAlias = Agent[Any]  # Any: its output may be of any type


@frozen(eq=False)
class Place:
    """A run on record. `callers`: the runs above it, the outermost first; `below`: the ids of all runs below it."""

    tape: Tape
    started: AuditRecord
    callers: tuple[Tape, ...]
    below: tuple[str, ...]

    @property
    def above(self) -> tuple[Permissions, ...]:
        """The permissions of the runs above it, which it stands under too."""
        rules = [cast("FrozenDict[Json]", one.records[0].facts["rules"]) for one in self.callers]
        return tuple(from_json(one["permissions"], Permissions) for one in rules)


def place_of(log: Log, run: str | None) -> Place:
    """Return the place of a run, or of a log's only one that nobody called. Raises ReplayError when it is not there."""
    tapes = tapes_of(log)
    if run is None:
        tape = root_of(tapes, None)
    elif run in tapes:
        tape = tapes[run]
    else:
        names = ", ".join(map(repr, tapes)) or "none"
        raise ReplayError(f"the log has no run {run!r}: give run=, one of {names}")
    callers: list[Tape] = []
    started = started_of(tape)
    above = started
    while (parent := above.facts.get("parent")) is not None:
        caller = tapes.get(str(parent))
        if caller is None:
            raise ReplayError(f"the log does not hold run {parent!r}, which called {above.run!r}")
        callers.insert(0, caller)
        above = started_of(caller)
    return Place(tape, started, tuple(callers), tuple(_below(tapes, tape.run)))


def _below(tapes: Mapping[str, Tape], run: str) -> Sequence[str]:
    found = [run]
    for name, tape in tapes.items():  # in the order in which they began: a caller before those it called
        if tape.records[0].facts.get("parent") in found:
            found.append(name)
    return sorted(found[1:])  # runs side by side begin in any order


def list_of(place: Place, agent: "AnyAgent") -> tuple[AnyCapability, ...]:
    """Return the own list of the run's agent. `agent`: of the outermost run. Raises ReplayError for another's log."""
    return _stood(place, agent)[0].given.capabilities


def lane_of(place: Place, members: tuple[AnyCapability, ...], agent: "AnyAgent | None") -> Lane:
    """Return the lane of a run under another list of its own. `agent`: of the outermost run, where there is one.

    What the run inherits, and the permissions above it, stay. Raises ReplayError, and ValueError for a list that no
    agent would take.
    """
    if agent is None:
        setup = setup_from(place.started, members, None, below=_agents(place))
        setup = evolve(setup, above=place.above)
    elif not place.callers:
        setup = setup_from(place.started, members, agent)
    else:
        own, base, inherits = _stood(place, agent)
        made = with_tools(base, members, own.given.tools, inherits=inherits)
        setup = as_recorded(made, place.started)
    return Lane(setup, place.tape, caller_of(place.started))


def _stood(place: Place, agent: "AnyAgent") -> "tuple[AnyAgent, Setup, tuple[AnyCapability, ...]]":
    """Return the agent of a run, its setup under those above it, and what it inherits."""
    setup, inherits = agent.setup, cast("tuple[AnyCapability, ...]", ())
    runs = [*place.callers, place.tape]
    if place.callers and runs[0].records[0].facts["agent"] != setup.name:
        name = runs[0].records[0].facts["agent"]
        raise ReplayError(f"run {runs[0].run!r}, above all, was of agent {name!r}; this is {setup.name!r}")
    for caller, called in pairwise(runs):
        tool = _tool_of(caller, called.run)
        found = setup.by_name.get(tool)
        function = found.function if found is not None else None
        if not isinstance(function, SubAgent):
            raise ReplayError(
                f"agent {setup.name!r} has no agent as the tool {tool!r}, which ran {called.run!r}"
            )
        agent, inherits = function.agent, setup.inherits
        setup = function.setup_under(setup)
    return agent, setup, inherits


def _agents(place: Place) -> frozenset[str]:
    """Return the names of the tools that ran agents, as far as the log tells."""
    return frozenset(_tool_of(place.tape, run) for run in place.below) - {""}


def _tool_of(caller: Tape, run: str) -> str:
    """Return the name of the tool by which a run called another one, "" where it did not."""
    first = run.removeprefix(f"{caller.run}/").partition("#")[0]  # whichever attempt it was
    for record in caller.records:
        if (
            record.kind == "call_admitted"
            and record.call is not None
            and (run_id_below(caller.run, record.call, 1) == f"{caller.run}/{first}")
        ):
            return str(record.facts["tool"])
    return ""
