"""Lives: whole runs as data, and the machine that lives them, so that every record is one that a run reaches.

A life says what the model replies, what becomes of tool calls, what gatherers bring and what a person decides; nothing
in it happens by itself. `live` feeds it to the machine without any IO and shows each reducer's record to a spy. Knows
nothing of laws.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Final

from attrs import evolve, field, frozen

from ..capabilities.call_state import CallState
from ..capabilities.capability import AnyCapability, Capability
from ..capabilities.compose import Chain, Link, Plan, ToolPlan
from ..capabilities.frozen import EMPTY, FrozenDict, Json
from ..capabilities.grid import HOOKS
from ..capabilities.messages import AssistantMessage, Content, Message
from ..capabilities.records import replace
from ..capabilities.state import RunState
from ..capabilities.tools import Tool
from ..capabilities.verdict import Outcome
from . import machine
from .agent import Agent
from .decisions import Approve, Deny
from .errors import Reason
from .limits import Limits
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
    Gathered,
    Leave,
    Left,
    Open,
    Opened,
    RequestModel,
    Responded,
    RunTools,
)
from .scripted_model import ScriptedModel

# What a reducer was called with, and what calls it: the spy returns what the run is to go on with.
Record = RunState | CallState
Spy = Callable[[Link, Record], object]

NEIGHBOUR: Final = "Neighbour"
_NOW: Final = 1_700_000_000.0
_OVER: Final = AssistantMessage("over")
_MODEL: Final = ScriptedModel([], name="scripted")


@frozen
class Neighbour(Capability):
    """Stands for the capabilities listed before: narrows, trims, tunes and judges, each as drawn, step by step.

    `hidden`: tool names; `keep_last`: 0 = all; `verdicts`: of each call in turn, "" none.
    """

    hidden: frozenset[str] = frozenset()
    keep_last: int = 0
    instructions: str = ""
    verdicts: tuple[str, ...] = ()

    def before_model_request(self, state: RunState) -> RunState:
        """Leave a narrower request, from the second step on: the first is as the agent made it."""
        if state.run_step > 1 or state.history_start:
            state = state.select_tools(lambda tool: tool.name not in self.hidden)
            state = state.keep_last(self.keep_last) if self.keep_last else state
        return state.add_instructions(self.instructions)

    def admit_tool_execute(self, call: CallState) -> CallState:
        """Judge some of the calls."""
        match self.verdicts[call.index] if call.index < len(self.verdicts) else "":
            case "refuse":
                return call.refuse("no")
            case "ask":
                return call.require_approval("may it?")
            case "answer":
                return call.answer("known")
        return call


@frozen(kw_only=True)
class Life:
    """One run as data. What is used up starts again from its first item.

    `results`: status and content of each call that runs, with its attempts. `approvals`: whether each question is
    answered with yes. `facts`: `key.gatherer` -> what it brings, one after the other.
    """

    tools: tuple[Tool, ...] = ()
    history: tuple[Message, ...] = ()
    prompt: Content = ""
    context: FrozenDict[Json] = EMPTY
    instructions: str = ""
    settings: FrozenDict[Json] = EMPTY
    script: tuple[AssistantMessage, ...] = ()
    results: tuple[Outcome, ...] = (Outcome("succeeded"),)
    approvals: tuple[bool, ...] = (True,)
    neighbour: Neighbour = Neighbour()
    facts: Mapping[str, tuple[Json, ...]] = field(factory=FrozenDict)


def live(life: Life, capabilities: Sequence[AnyCapability], spy: Spy) -> Reason | None:
    """Live a life under a list of capabilities, the neighbour first; return why the run failed, None where it did not.

    Every reducer of `capabilities` is called by way of `spy`. Raises ValueError or TypeError for a list that no agent
    would take.
    """
    agent = Agent(
        "agent",
        _MODEL,
        instructions=life.instructions,
        tools=life.tools,
        capabilities=(life.neighbour, *capabilities),
        settings=life.settings,
        limits=Limits(max_steps=len(life.script) + 3),
    )
    setup = evolve(agent.setup, plan=_spied(agent.setup.plan, spy))
    state, effect, _ = machine.start(
        setup, life.prompt, run_id="run", now=_NOW, context=life.context, messages=life.history
    )
    world = _World(life)
    event = world.answer(effect)
    while event is not None:
        state, effect, _ = machine.feed(state, event)
        event = world.answer(effect)
    return effect.reason if isinstance(effect, Finish) else None


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the log free of the warnings of restored fields, which are what is looked for here."""
    logger = logging.getLogger("capfold")
    logger.addFilter(_nothing)
    try:
        yield
    finally:
        logger.removeFilter(_nothing)


def _nothing(record: logging.LogRecord) -> bool:
    return False


class _World:
    """What is outside the machine, as a life has it."""

    def __init__(self, life: Life) -> None:
        self._script = iter(life.script)
        self._results = cycle(life.results)
        self._approvals = cycle(life.approvals)
        self._facts = {name: cycle(values) for name, values in life.facts.items()}
        self._now = _NOW

    def answer(self, effect: Effect) -> Event | None:
        """Return what becomes of an effect, None where the run is over or waits."""
        self._now += 1
        match effect:
            case Open(run=run):
                return Opened(self._now, run, instructions=run.instructions)
            case Enter(run=run):
                return Entered(self._now, run)
            case Gather(jobs=jobs):
                return Gathered(
                    self._now, tuple(self._fact(f"{job.link.key}.{job.link.hook}") for job in jobs)
                )
            case RequestModel(run=run):
                said = next(self._script, _OVER)
                return Responded(self._now, run, said, 1, (said,))
            case AskApproval(requests=requests):
                return Decided(
                    self._now, tuple(Approve() if next(self._approvals) else Deny() for _ in requests)
                )
            case RunTools(run=run, calls=calls):
                done = (replace(call, outcome=next(self._results)) for call in calls)
                return Executed(self._now, tuple(CallResult(call, run) for call in done))
            case Leave(run=run):
                return Left(self._now, run)
        return None

    def _fact(self, name: str) -> Json:
        return next(self._facts[name]) if name in self._facts else None


def _spied(plan: Plan, spy: Spy) -> Plan:
    """Return the plan with the reducers of all but the neighbour called by way of `spy`."""
    made: dict[int, Link] = {}

    def link_of(link: Link) -> Link:
        if link.key == NEIGHBOUR or HOOKS[link.hook].kind != "reducer":
            return link
        if id(link) not in made:  # a link in `choice` is known by its identity in `links`
            made[id(link)] = evolve(link, call=lambda record: spy(link, record))
        return made[id(link)]

    def chain_of(chain: Chain) -> Chain:
        return evolve(
            chain,
            links=tuple(map(link_of, chain.links)),
            choice=tuple(map(link_of, chain.choice)),
        )

    def tool_plan(given: ToolPlan) -> ToolPlan:
        return ToolPlan(
            chain_of(given.before),
            chain_of(given.repairs),
            chain_of(given.admit),
            chain_of(given.after),
            given.wrappers,
        )

    return evolve(
        plan,
        chains=FrozenDict({name: chain_of(chain) for name, chain in plan.chains.items()}),
        tools=FrozenDict({name: tool_plan(one) for name, one in plan.tools.items()}),
        unknown=tool_plan(plan.unknown),
    )
