"""Replay: fold the log of a run again, and find the first thing that comes out differently.

Every reducer is called anew on what is on record; nothing outside is reached. What wrappers did is taken from their
edges. Knows how a run was set up, not how it goes on: that is `replaying`'s.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from attrs import evolve, frozen

from ..capabilities.frozen import FrozenDict, Json
from ..capabilities.state import RunState
from . import machine
from .audit import AuditRecord
from .building import ToolLike, with_tools
from .errors import ReplayError
from .limits import RULES
from .log import Log
from .models import Model, as_model
from .replay_facts import messages_of, prompt_of
from .replay_tape import Tape, tapes_of
from .replaying import Replaying
from .setup import Setup
from .starting import LOG_SCHEMA

if TYPE_CHECKING:
    from .agent import Agent


@frozen(repr=False, eq=False)
class Replayed:
    """A run that came out as it is on record. `state`: its last; `records`: those of the replay, in the log's order."""

    state: RunState
    records: Log

    def __repr__(self) -> str:
        """Counts, not contents."""
        return f"<Replayed {self.state.agent} {self.state.status} records={len(self.records)}>"


def replay(
    log: Log,
    agent: "Agent[Any]",  # Any: its output may be of any type
    *,
    run: str | None = None,
    model: Model | str | None = None,
    tools: Sequence[ToolLike] = (),
) -> Replayed:
    """Replay a run, and those below it, with the capabilities, tools and permissions of an agent.

    `run`: which one, where a log has several; `model` and `tools`: what the run was given in place of and beside the
    agent's. A suspended run is replayed as far as it is on record. Raises ReplayError naming the first record that
    differs: an impure hook by key, with what it wrote then and now; and for a log that cannot be replayed: written
    without its contents, redacted, cut off, or of another version.
    """
    if not isinstance(log, Log):
        raise TypeError(f"replay takes a Log, as result.log or read_log(path), not {type(log).__name__}")
    tapes = tapes_of(log)
    tape = root_of(tapes, run)
    started = started_of(tape)
    setup = setup_of(agent, started, model, tools)
    replaying = Replaying(tapes)
    state = replaying.drive(tape, begun(setup, started))
    return Replayed(state.run, _in_order(replaying.log, log))


def root_of(tapes: Mapping[str, Tape], run: str | None) -> Tape:
    """Return the tape of a root run. Raises ReplayError when it is not there, or not the only one and not named."""
    roots = {name: tape for name, tape in tapes.items() if "parent" not in tape.records[0].facts}
    if run is not None and run in roots:
        return roots[run]
    if run is None and len(roots) == 1:
        return next(iter(roots.values()))
    names = ", ".join(repr(name) for name in roots) or "none"
    what = "the log has several runs" if run is None else f"the log has no run {run!r} that nobody called"
    if not roots:
        raise ReplayError("the log has no run that nobody called" if tapes else "the log is empty")
    raise ReplayError(f"{what}: give run=, one of {names}")


def started_of(tape: Tape) -> AuditRecord:
    """Return the record of a run's start. Raises ReplayError when it is of another version."""
    started = tape.records[0]
    version = started.facts.get("schema")
    if version != LOG_SCHEMA:
        said = "has no version: it was written before logs held what a replay needs"
        if version is not None:
            said = f"is of version {version}; this capfold replays version {LOG_SCHEMA}"
        raise ReplayError(f"the log of run {tape.run!r} {said}", tape.places[0])
    return started


def begun(setup: Setup, started: AuditRecord, above: RunState | None = None) -> machine.Moved:
    """Start a run as it was started. `above`: the run that called it."""
    facts = started.facts
    conversation = cast("str | None", facts.get("conversation"))
    return machine.start(
        setup,
        prompt_of(started),
        run_id=started.run,
        now=started.at,
        context=cast("FrozenDict[Json]", facts["context"]),
        messages=() if conversation is not None else messages_of(facts["history"], started),
        conversation=conversation,
        above=above,
    )


def setup_of(
    agent: "Agent[Any]", started: AuditRecord, model: Model | str | None, tools: Sequence[ToolLike]
) -> Setup:
    """Return an agent's setup with what the run had of its own. Raises ReplayError for another agent's log."""
    facts, setup = started.facts, agent.setup
    if facts["agent"] != setup.name:
        raise ReplayError(f"the run was of agent {facts['agent']!r}; this is {setup.name!r}")
    setup = as_recorded(setup, started)
    if model is not None:
        setup = evolve(setup, model=as_model(model))
    if tools:
        setup = with_tools(setup, agent.given.capabilities, (*agent.given.tools, *tools))
    if facts["model"] != setup.model.name:
        raise ReplayError(f"the run was of model {facts['model']!r}, not {setup.model.name!r}: give model=")
    missing = sorted(cast("FrozenDict[Json]", facts["tools"]).keys() - set(setup.tool_names))
    if missing:
        raise ReplayError(
            f"the run had tools that the agent does not have: {', '.join(missing)}; give tools="
        )
    return setup


def as_recorded(setup: Setup, started: AuditRecord) -> Setup:
    """Return a setup with the limits and settings of a run on record."""
    limits = cast("FrozenDict[Json]", started.facts["limits"])
    own: dict[str, Any] = {name: limits.get(name) for name in RULES}  # Any: fields of Limits, by name
    settings = cast("FrozenDict[Json]", started.facts["settings"])
    return evolve(setup, limits=evolve(setup.limits, **own), settings=settings)


def _in_order(replayed: Log, log: Log) -> Log:
    """Return what a replay wrote in the order of the log, where runs below one another are interleaved."""
    found = {(record.run, record.seq): record for record in replayed}
    return Log.from_records(found[place] for one in log if (place := (one.run, one.seq)) in found)
