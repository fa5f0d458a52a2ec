"""Executing a batch and settling it: charge shares, confirm all outcomes, after_tool_execute, retries (9 and 10)."""

from ..capabilities.call_state import CallState
from ..capabilities.compose import Chain
from ..capabilities.frozen import FrozenDict
from ..capabilities.messages import Message, ToolMessage
from ..capabilities.records import copier, replace
from ..capabilities.state import RunState
from . import ledger
from .admission import attached, detached
from .chains import NO_FACTS, call_chain
from .ending import blocked, finish, write_refusal
from .gathering import NONE, NOTHING_OFF, Facts, gather
from .phases import Broken, CallResult, Effect, Executed, Onward, Phase, RunTools
from .retries import FAILED, count_retries
from .work import Failure, Work


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
    plan, limits = work.setup.plan, work.setup.limits
    takers = [plan.wraps and bool(plan.tool(call.asked.name).wrappers.links) for call in running]
    shares = ledger.shares(ledger.left(limits.tool_calls, work.run.tool_calls), takers)
    for call in running:
        work.write("tool_started", call=call.asked.id, facts={"tool": call.tool.name})
    work.phase = Phase.EXECUTING
    return RunTools(
        work.run,
        tuple(running),
        shares,
        limits.tool_timeout,
        limits.max_parallel_tools,
        limits.max_result_bytes,
    )


def _write_admission(work: Work, call: CallState) -> None:
    if call.outcome is None:
        facts: dict[str, object] = {"tool": call.tool.name, "arguments": call.arguments}
        if call.injected:
            facts["injected"] = call.injected
        work.write("call_admitted", call=call.asked.id, facts=facts)
        return
    write_refusal(work, call.asked, call.outcome)


def executed(work: Work, event: Executed) -> Effect | Onward:
    """Take in the outcomes of the batch: all are confirmed before any after hook runs."""
    broken = take_results(work, event.results)
    return confirmed(work, broken)


def take_results(work: Work, results: tuple[CallResult, ...]) -> Broken | None:
    """Book outcomes, extra body runs and latches, in call order; return the first thing that ends the run."""
    by_id = {result.call.asked.id: result for result in results}
    broken: Broken | None = None
    batch: list[CallState] = []
    given = work.run
    extra = 0
    for call in work.batch:
        result = by_id.get(call.asked.id)
        if result is None:
            batch.append(call)
            continue
        work.entries.extend(result.entries)
        extra += result.extra
        work.run = merge_latches(work.run, given, result.run)
        batch.append(result.call)
        broken = broken or result.broken
        outcome = result.call.outcome
        assert outcome is not None
        work.write(
            "tool_settled",
            actor=outcome.by,
            call=call.asked.id,
            facts={"outcome": outcome} if result.extra == 0 else {"outcome": outcome, "extra": result.extra},
        )
    work.batch = tuple(batch)
    if extra:
        work.run = replace(work.run, tool_calls=work.run.tool_calls + extra)
    return broken


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
        return Onward.STEP
    _enter(work, results)
    if work.reason is not None:
        reason, cause = work.reason, work.cause
        work.reason = work.cause = None
        raise Failure(reason, cause)
    if work.run.stopped is not None:
        return finish(work, "stopped")
    count_retries(work, batch)
    return Onward.STEP


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
