"""Agents as tools: a run below another, under the limits, permissions and inherited capabilities of that one.

Knows how a run is driven, and nothing of why it is called.
"""

import re
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from ..capabilities.call_state import CallState
from ..capabilities.capability import AnyCapability
from ..capabilities.injected import ToolContext, ToolFailed
from ..capabilities.tools import Tool
from . import machine
from .below import NOTHING, UNBOUNDED, Allowance, Below, RunBelow, Spent, Waiting
from .building import check_options, has_dep, with_tools
from .driver import Driver
from .ending import end_waiting
from .errors import LimitExceeded, Reason, UsageUnknown, run_error
from .invoke import failure_of
from .ledger import exceeded
from .limits import Limits
from .permissions import Permissions
from .phases import Broken, Finish, RunTools, Suspend
from .session import Session
from .setup import Setup

if TYPE_CHECKING:
    from .agent import Agent

TASK = "task"
PARAMETERS = {
    "type": "object",
    "properties": {
        TASK: {"type": "string", "description": "What is to be done, in full: nothing else is shown."}
    },
    "required": [TASK],
    "additionalProperties": False,
}
# What of its caller's setup makes a run below another one: so much is compiled once.
Above = tuple[tuple[AnyCapability, ...], tuple[Permissions, ...], bool, bool]
MAX_COMPILED = 100
# A run below is named by the run above, the call, and from its second attempt on the attempt. No call id can
# be taken for a part of another name.
_QUOTED = str.maketrans({"%": "%25", "/": "%2F", "#": "%23"})
# What the providers take as the name of a tool.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


async def _outside(arguments: dict[str, object], context: ToolContext) -> object:
    raise RuntimeError("a sub-agent runs inside the run that calls it: await agent.run(...) outside of one")


@frozen(eq=False)
class SubAgent(RunBelow):
    """The function of a tool that runs `agent`. `limits`: in place of the agent's own."""

    agent: "Agent[object]"
    limits: Limits | None
    compiled: dict[Above, Setup] = field(factory=dict, init=False, repr=False)

    def setup_under(self, above: Setup, allowance: Allowance = UNBOUNDED) -> Setup:
        """Return the setup of a run below another, which may use no more than `allowance`.

        Raises ValueError when a capability that it inherits has the key of a different one of its own.
        """
        key = (above.inherits, (*above.above, above.permissions), above.strict, above.audit_all)
        setup = self.compiled.get(key)
        if setup is None:
            if len(self.compiled) >= MAX_COMPILED:  # callers that come and go must not pile up
                self.compiled.clear()
            setup = self.compiled[key] = self._compile(above)
        limits, bounded = bound(self.limits if self.limits is not None else setup.limits, allowance)
        return evolve(setup, limits=limits, bounded=bounded)

    def _compile(self, above: Setup) -> Setup:
        own, given = self.agent.setup, self.agent.given
        setup = evolve(
            own,
            above=(*above.above, above.permissions),
            strict=own.strict or above.strict,
            audit_all=own.audit_all or above.audit_all,
        )
        try:
            return with_tools(setup, given.capabilities, given.tools, inherits=above.inherits)
        except ValueError as error:
            raise ValueError(f"agent {own.name!r} cannot run below this one: {error}") from error

    def provides(self, need: tuple[str, str, str]) -> bool:
        """Tell whether the agent has a need (who, where, key) itself, for a caller without deps."""
        _, where, key = need
        return where == "deps" and has_dep(self.agent.given.deps, key)

    async def run_below(self, session: Session, effect: RunTools, call: CallState, attempt: int) -> object:
        """Run the agent on the task, or let its run go on that waited for decisions.

        Raises ToolFailed when that run failed, and `Waiting` when it waits for decisions.
        """
        resumed = effect.resumed.get(call.id)
        below = session.below.get(call.id)
        if below is None:
            held = resumed.held if resumed is not None else None
            below = session.below[call.id] = Below(effect.allowances[call.id], held)
        now = session.port.now()
        if below.waiting is not None:  # a wrapper runs the body again: nobody will be asked
            run, entries = end_waiting(below.waiting, now)
            session.recorder.append(entries)
            below.end(Spent.by(run))
        number = below.extra + attempt
        setup = self.setup_under(session.setup, below.left(number - 1))
        if session.children is not None:
            return await session.children.run_below(session, setup, below, effect, call, number)
        if resumed is not None and attempt == 1:
            state = resumed.state._replace(setup=setup)
            moved = machine.resume(state, resumed.decisions, now)
        else:
            run_id = run_id_below(effect.run.run_id, call.id, number)
            task = call.arguments[TASK]
            assert isinstance(task, str), "validated by its schema"
            context = effect.run.context
            moved = machine.start(setup, task, run_id=run_id, now=now, context=context, above=effect.run)
        given = self.agent.given
        child = Session(
            setup,
            session.port,
            session.deps if session.deps is not None else given.deps,
            session.recorder,
            approver=given.approver if given.approver is not None else session.approver,
            patience=session.patience,
        )
        driver = Driver(child, moved)
        below.begin(
            moved[0].run.run_id,
            lambda: NOTHING if driver.state is None else Spent.by(driver.state.run),
        )
        state, end = await driver.drive()
        if isinstance(end, Suspend):
            below.waiting = state
            raise Waiting
        reason = end.reason
        if isinstance(reason, LimitExceeded | UsageUnknown) and reason.limit in setup.bounded:
            before = Spent.by(effect.run).plus(Spent(tool_calls=number - 1))
            below.broken = Broken(
                share_spent(reason, session.setup.limits, before, below, effect.run.run_step)
            )
        return output_of(end)


def output_of(end: Finish) -> object:
    """Return what a run below answers with. Raises ToolFailed when it failed."""
    run, reason = end.run, end.reason
    if reason is None:
        return run.stopped.message if run.stopped is not None else run.output
    error = failure_of(run_error(reason))
    raise ToolFailed(f"agent {run.agent!r} failed: {error.type}: {error.message}") from end.cause


def run_id_below(above: str, call_id: str, number: int) -> str:
    """Return the id of the run that a call makes below the run `above`; `number`: of its attempts, from 1."""
    return f"{above}/{call_id.translate(_QUOTED)}" + (f"#{number}" if number > 1 else "")


def share_spent(
    reason: LimitExceeded | UsageUnknown, limits: Limits, before: Spent, below: Below, step: int
) -> Reason:
    """Return the reason of a run whose sub-agent has spent its share of a limit."""
    name = reason.limit
    allowed, used = getattr(limits, name), before.plus(below.spent).of(name)
    if isinstance(reason, UsageUnknown) or used is None:
        message = f"{name} is limited to {allowed}, and its sub-agent could not keep to it: {reason.message}"
        return UsageUnknown(message=message, limit=name, step=step)
    return exceeded(name, used, allowed, step, getattr(below.allowance, name))


def bound(limits: Limits, allowance: Allowance) -> tuple[Limits, frozenset[str]]:
    """Return limits that are nowhere wider than an allowance, and the names of those that it narrowed."""
    narrowed: dict[str, float] = {}
    for name, most in allowance._asdict().items():
        own = getattr(limits, name)
        if most is not None and (own is None or most < own):
            narrowed[name] = most
    return evolve(limits, **narrowed) if narrowed else limits, frozenset(narrowed)  # type: ignore[arg-type]  # by name


def as_tool(agent: "Agent[object]", description: str, *, name: str | None, limits: Limits | None) -> Tool:
    """Return a tool that runs an agent; `Agent.as_tool` says what it promises."""
    if limits is not None:
        check_options(limits, None)
    if name is None:
        name = agent.name
        if not _TOOL_NAME.fullmatch(name):
            hint = re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:64]
            raise ValueError(
                f"no tool can be named {name!r}, as the agent is: give as_tool(..., name={hint!r})"
            )
    return Tool(name, description, PARAMETERS, SubAgent(_outside, agent, limits))
