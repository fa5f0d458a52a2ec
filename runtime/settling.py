"""Executing a batch and settling it: charge shares, confirm all outcomes, after_tool_execute, retries (9 and 10)."""

from collections.abc import Mapping, Sequence

from ..capabilities.call_state import CallState
from ..capabilities.compose import Chain
from ..capabilities.frozen import FrozenDict
from ..capabilities.messages import Message, ToolMessage
from ..capabilities.records import copier, replace
from ..capabilities.state import RunState
from . import ledger
from .admission import attached, detached
from .below import NOTHING, Allowance, Held
from .chains import NO_FACTS, call_chain
from .decisions import Decision
from .ending import blocked, facts_below, finish, interrupt, with_spent, write_refusal
from .gathering import NONE, NOTHING_OFF, Facts, gather
from .phases import STEP, Broken, CallResult, Effect, Executed, Onward, Phase, Resumption, RunTools
from .retries import FAILED, count_retries
from .waiting import parts_below, wait_below
from .work import Failure, Work

# Reading a member of an enumeration costs 400 instructions, and calling the class of a named tuple 1,000 more.
_EXECUTING = Phase.EXECUTING
_run_tools = RunTools.__new__
NOBODY: Sequence[bool] = ()
# The names of what three of the records say.
ADMITTED: tuple[str, ...] = ("tool", "arguments")
STARTED: tuple[str, ...] = ("tool",)
SETTLED: tuple[str, ...] = ("outcome",)
NO_ALLOWANCES: Mapping[str, Allowance] = FrozenDict()


def execute(work: Work) -> Effect | Onward:
    """Hand the admitted calls to the port; with none, settle at once."""
    running: list[CallState] = []
    work.announced = True
    for call in work.batch:
        _write_admission(work, call)
        if call.outcome is None:
            running.append(call)
    if not running:
        return confirmed(work, None)
    for call in running:
        work.event("tool_started", STARTED, (call.tool.name,), call.asked.id)
    return hand_over(work, running)


def hand_over(work: Work, running: list[CallState]) -> RunTools:
    """Hand calls to the port, each with its share of what is left of the limits."""
    plan, limits, run = work.setup.plan, work.setup.limits, work.run
    below = [call.asked.name in work.setup.below for call in running] if work.setup.below else NOBODY
    shares: tuple[int | None, ...] = (None,) * len(running)
    if limits.tool_calls is not None:
        takers = [
            (plan.wraps and bool(plan.tool(call.asked.name).wrappers.links)) or (bool(below) and below[i])
            for i, call in enumerate(running)
        ]
        shares = ledger.shares(ledger.left(limits.tool_calls, run.tool_calls), takers)
    allowances: Mapping[str, Allowance] = NO_ALLOWANCES
    if below and any(below):
        given = ledger.allowances(run, limits, below, shares)
        allowances = {call.asked.id: one for call, one in zip(running, given, strict=True) if one is not None}
    work.phase = _EXECUTING
    return _run_tools(
        RunTools,
        run,
        tuple(running),
        shares,
        limits.tool_timeout,
        limits.max_parallel_tools,
        limits.max_result_bytes,
        allowances,
    )


def resume_below(work: Work, decisions: Sequence[Decision]) -> Effect:
    """Let the sub-agents that waited go on, each with its decisions; the rest of the batch keeps its outcomes."""
    work.pending = ()
    if work.run.status != "running":
        work.run = replace(work.run, status="running")
    waiting = {
        name: Resumption(state, held, part) for name, held, state, part in parts_below(work, decisions)
    }
    effect = hand_over(work, [call for call in work.batch if call.asked.id in waiting])
    # What each may use was fixed when it was admitted.
    allowances = {name: one.held.allowance for name, one in waiting.items()}
    shares = tuple([allowances[call.asked.id].tool_calls for call in effect.calls])
    return effect._replace(resumed=waiting, allowances=allowances, shares=shares)


def _write_admission(work: Work, call: CallState) -> None:
    if call.outcome is None:
        names = ADMITTED
        facts: tuple[object, ...] = (call.tool.name, call.arguments)
        if call.injected:
            names, facts = (*names, "injected"), (*facts, call.injected)
        work.event("call_admitted", names, facts, call.asked.id)
        return
    write_refusal(work, call.asked, call.outcome)


def executed(work: Work, event: Executed) -> Effect | Onward:
    """Take in the outcomes of the batch: all are confirmed before any after hook runs."""
    broken = take_results(work, event.results)
    if work.held and broken is None and work.run.stopped is None and work.run.failed is None:
        return wait_below(work)
    if work.held:
        interrupt(work)  # where the run ends, so does what waits below it
    return confirmed(work, broken)


def take_results(work: Work, results: tuple[CallResult, ...]) -> Broken | None:
    """Book outcomes, extra body runs and latches, in call order; return the first thing that ends the run."""
    by_id = {result.call.asked.id: result for result in results}
    broken: Broken | None = None
    batch: list[CallState] = []
    given = work.run
    extra, below = 0, NOTHING
    before = work.held
    held: dict[str, Held] = {}
    for call in work.batch:
        result = by_id.get(call.asked.id) or _unsettled(call, before, given)
        if result is None:
            batch.append(call)
            continue
        # At once: each field of a named tuple that is read by its name costs 250 instructions.
        done, after, more, entries, problem, runs, spent, waits = result
        if entries:
            work.entries.extend(entries)
        if after is not given:
            work.run = merge_latches(work.run, given, after)
        broken = broken or problem
        batch.append(done if waits is None else call)
        if waits is not None or held:  # settled in call order: those after one that waits wait too
            held[call.asked.id] = waits or Held(None, earlier=spent, extra=more, runs=runs)
            continue
        outcome = done.outcome
        assert outcome is not None
        names = SETTLED
        facts: tuple[object, ...] = (outcome,)
        if more or runs:
            extra += more
            known = facts_below(runs, spent, more)
            names, facts = (*names, *known), (*facts, *known.values())
        if runs:
            below = below.plus(spent)
        work.event("tool_settled", names, facts, call.asked.id, outcome.by)
    work.batch = tuple(batch)
    if before or held:
        work.held = FrozenDict(held)
    if below is not NOTHING:
        work.run = with_spent(work.run, below)
    if extra:
        work.run = replace(work.run, tool_calls=work.run.tool_calls + extra)
    if broken is not None:
        work.write_broken(broken)
    return broken


def _unsettled(call: CallState, before: Mapping[str, Held], run: RunState) -> CallResult | None:
    """Return what was known of a call when the run was suspended; None when it had been settled."""
    held = before.get(call.asked.id)
    if held is None:
        return None
    waits = held if held.state is not None else None
    return CallResult(call, run, held.extra, below=held.runs, spent=held.earlier, held=waits)


def merge_latches(run: RunState, given: RunState, after: RunState) -> RunState:
    """Return `run` with the latches that a wrapper added to `given`: the first in call order stands."""
    if after is given:
        return run
    changes: dict[str, object] = {}
    notes = after.notes[len(given.notes) :]
    if after.stopped is not None and given.stopped is None:
        if run.stopped is None:
            changes["stopped"] = after.stopped
        else:
            notes = (*notes, f"stop: {after.stopped.message}")
    if after.failed is not None and given.failed is None:
        if run.failed is None:
            changes["failed"] = after.failed
        else:
            notes = (*notes, f"fail: {after.failed.reason}")
    if notes:
        changes["notes"] = run.notes + notes
    return replace(run, **changes) if changes else run


def confirmed(work: Work, broken: Broken | None) -> Effect | Onward:
    """Gather for the after hooks of the whole batch, then settle it."""
    work.reason, work.cause = (broken.reason, broken.cause) if broken is not None else (None, None)
    points = []
    for call in work.batch if work.setup.plan.observes else ():
        chain = work.setup.plan.tool(call.name).after
        if chain.gatherers or chain.conditional:
            points.append((chain, attached(work, call)))
    if points:
        return gather(work, "after_tool_execute", points, Phase.SETTLING) or settled(work)
    work.inactive = NOTHING_OFF
    return settled(work)


def settled(work: Work, facts: Facts = NONE) -> Effect | Onward:
    """Run the after hooks in call order, one result message each; then count retries and go on."""
    results: list[Message] = []
    batch, plan = list(work.batch), work.setup.plan
    if work.run.failed is not None:
        raise Failure(blocked(work))
    quiet = not work.run.tool_retries  # nothing failed so far, so that there may be nothing to count
    for i, call in enumerate(batch):
        if plan.observes:
            chain = plan.tool(call.asked.name).after
            if chain.links:
                _enter(work, results)  # the hook sees the results of the calls before this one
                batch[i] = _observe(work, chain, i, facts.get(call.asked.id, NO_FACTS))
        outcome = batch[i].outcome
        assert outcome is not None
        quiet = quiet and outcome.status not in FAILED
        asked = call.asked
        results.append(_RESULT(BLANK, asked.id, asked.name, outcome.content, outcome.status, work.now))
    work.batch = ()
    work.charged = work.announced = False
    if quiet and work.reason is None and work.run.stopped is None:
        work.results = tuple(results)
        return STEP
    _enter(work, results)
    if work.reason is not None:
        reason, cause = work.reason, work.cause
        work.reason = work.cause = None
        raise Failure(reason, cause)
    if work.run.stopped is not None:
        return finish(work, "stopped")
    count_retries(work, batch)
    return STEP


BLANK = ToolMessage("", "", "")
_RESULT = copier(ToolMessage, "call_id", "tool", "content", "status", "at")
_APPENDED = copier(RunState, "messages")


def _enter(work: Work, results: list[Message]) -> None:
    """Move results into the history."""
    if results:
        work.run = _APPENDED(work.run, work.run.messages + tuple(results))
        results.clear()


def _observe(work: Work, chain: Chain, i: int, facts: FrozenDict[object]) -> CallState:
    """Run the after hooks of a call; the batch follows, so that a failure of a later one keeps what was done."""
    call = work.batch[i]
    full = attached(work, call)
    done = call_chain(work, chain, full, facts)
    if done is not full:
        call = detached(done)
        work.batch = (*work.batch[:i], call, *work.batch[i + 1 :])
    if work.run.failed is not None:
        raise Failure(blocked(work))
    return call
