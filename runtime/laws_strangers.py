"""Strangers: capabilities beside the ones in question, that do what capabilities may do, and what they may not.

Each does the same for the same record. What is illegal must be put back or end the run, whoever else is in the list.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import anyio
from attrs import evolve, frozen

from ..capabilities.call_state import CallState
from ..capabilities.capability import Capability
from ..capabilities.frozen import FrozenDict, Json
from ..capabilities.messages import AssistantMessage, Status
from ..capabilities.outside import CallNext, Outside
from ..capabilities.state import RunState
from ..capabilities.verdict import UNDECIDED, Outcome
from .models import ModelError

LOST: Final = "a fact was lost"
Around: TypeAlias = Literal[
    "passes", "twice", "at once", "instead", "refuses", "changes", "persists", "notes", "stops", "raises"
]
Forgery: TypeAlias = Literal[
    "counters",
    "nested counters",
    "latches",
    "slot",
    "arguments",
    "arguments in",
    "verdict",
    "outcome",
    "tools",
]


@frozen
class Wraps(Capability):
    """Stands around models, tools and the run, and calls inward never, once or twice, as `does` says in turn.

    `does`: of model requests by step, of calls by their place. Waits on its way in and out.
    """

    does: tuple[Around, ...] = ("passes",)
    run: bool = False

    async def wrap_model_request(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        """Ask a model, or do without."""
        deed = self.does[state.run_step % len(self.does)]
        await call_next.sleep(0.0)
        match deed:
            case "twice" | "at once":
                await call_next(state)
            case "instead" | "refuses":
                return state.respond(AssistantMessage("made up"))
            case "changes":
                return await call_next(state.with_settings(seed=1).add_instructions("Be brief."))
            case "persists":
                try:
                    return await call_next(state)
                except ModelError:
                    return await call_next(state)
            case "stops":
                return state.stop("enough")
            case "raises":
                raise LookupError("a wrapper broke")
            case "notes":
                state = state.note("asked")
        done = await call_next(state)
        await call_next.sleep(0.0)
        return done

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        """Run a call, or do without."""
        deed = self.does[call.index % len(self.does)]
        await call_next.sleep(0.0)
        match deed:
            case "twice":
                await call_next(call)
            case "at once":
                return await _both(call_next, call)
            case "instead":
                return call.answer("made up")
            case "refuses":
                return call.refuse("not here")
            case "persists":
                done = await call_next(call)
                failed = done.outcome is not None and done.outcome.status == "failed"
                return done.answer("never mind") if failed else done
            case "stops":
                return call.stop("enough")
            case "raises":
                await call_next(call)
                raise LookupError("a wrapper broke")
            case "notes":
                call = call.note("called")
        done = await call_next(call)
        await call_next.sleep(0.0)
        return done.with_content("changed") if deed == "changes" else done

    async def wrap_run(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        """Enclose the run."""
        if self.run:
            await call_next.sleep(0.0)
        done = await call_next(state)
        return done.note("enclosed") if self.run else done


@frozen
class Gathers(Capability):
    """Brings a fact to four points that it can foretell, and notes one that did not come."""

    async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
        """Say which step it is."""
        await outside.sleep(0.0)
        return state.run_step

    def before_model_request(self, state: RunState) -> RunState:
        """Look for it."""
        return state if state.fact(self) == state.run_step else state.note(LOST)

    async def gather_after_model_request(self, state: RunState, outside: Outside) -> Json:
        """Say which step it is, once more."""
        return state.run_step

    def after_model_request(self, state: RunState) -> RunState:
        """Look for it."""
        return state if state.fact(self) == state.run_step else state.note(LOST)

    async def gather_admit_tool_execute(self, call: CallState, outside: Outside) -> Json:
        """Say which call it is."""
        await outside.sleep(0.0)
        return call.index

    def admit_tool_execute(self, call: CallState) -> CallState:
        """Look for it."""
        return call if call.fact(self) == call.index else call.note(LOST)

    async def gather_after_tool_execute(self, call: CallState, outside: Outside) -> Json:
        """Say which call it was."""
        return call.index

    def after_tool_execute(self, call: CallState) -> CallState:
        """Look for it."""
        return call if call.fact(self) == call.index else call.note(LOST)


@frozen
class Counts(Capability[int]):
    """Counts in its slot what it sees, so that there is something to be overwritten."""

    def before_model_request(self, state: RunState) -> RunState:
        """Count a step."""
        return state.put(self, state.slot(self) + 1)

    def after_tool_execute(self, call: CallState) -> CallState:
        """Count a call."""
        return call.put(self, call.slot(self) + 1)


_FORGED: Final[Mapping[str, object]] = FrozenDict({"requests": 0, "tool_calls": 0, "run_step": 0})


@frozen
class Forges(Capability):
    """Writes what is not its own, in one way, as soon as there is something to forge."""

    forgery: Forgery = "counters"

    def before_model_request(self, state: RunState) -> RunState:
        """Forge a run's counters, latches, slots, tools."""
        match self.forgery:
            case "counters" if state.run_step > 1:
                return _forged(state).note("forged")
            case "latches":
                return evolve(state, notes=())
            case "slot":
                return evolve(state, slots=FrozenDict({**state.slots, "Counts": 99}))
            case "tools":
                missing = [tool for tool in state.inventory if tool not in state.tools]
                return evolve(state, tools=(*state.tools, *missing[:1]))
        return state

    def admit_tool_execute(self, call: CallState) -> CallState:
        """Forge what is judged, or the judgement."""
        match self.forgery:
            case "arguments":
                return evolve(call, arguments=FrozenDict({"forged": True}))
            case "verdict":
                return evolve(call, verdict=UNDECIDED)
            case "nested counters":
                return evolve(call, run=_forged(call.run)).note("forged")
        return call

    def after_tool_execute(self, call: CallState) -> CallState:
        """Forge what became of a call."""
        if self.forgery == "outcome" and call.outcome is not None:
            return evolve(call, outcome=evolve(call.outcome, status=_another(call.outcome)))
        return call

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        """Forge arguments on their way in."""
        if self.forgery == "arguments in":
            return await call_next(evolve(call, arguments=FrozenDict({"forged": True})))
        return await call_next(call)


async def _both(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
    """Run a call twice at once, and go on with the one that was begun first."""
    done: dict[int, CallState] = {}

    async def run(i: int) -> None:
        done[i] = await call_next(call)

    async with anyio.create_task_group() as group:
        group.start_soon(run, 1)
        await run(0)
    return done[0]


def _forged(state: RunState) -> RunState:
    return evolve(state, **_FORGED)  # type: ignore[arg-type]  # fields by name


def _another(outcome: Outcome) -> Status:
    return "failed" if outcome.status == "succeeded" else "succeeded"
