"""Admission: a batch of calls is shaped, judged and asked about before any of it runs (step 8 of the contract).

1. Shape, in call order: prepared? decode, validate, repairs, before_tool_execute, validated after each.
2. Gather for all calls at once.
3. Judge, in call order, up to a stopping call: admit_tool_execute, then permissions.
4. Charge; one question for all approvals; nothing runs before every decision is in.
What was judged is what runs: after shaping, nobody can write the arguments.
"""

from collections.abc import Mapping

from ..capabilities.call_state import CallState
from ..capabilities.compose import Chain
from ..capabilities.frozen import FrozenDict, Json
from ..capabilities.messages import ToolCall
from ..capabilities.records import copier, replace, template
from ..capabilities.state import RunState, Stop
from ..capabilities.tools import Tool
from ..capabilities.verdict import Outcome, Problem, Verdict
from . import ledger
from .arguments import decode, validate
from .chains import NO_FACTS, accept, active, call_chain, call_link, inactive_links, write_silent
from .ending import NOT_EXECUTED, check_failed
from .gathering import NONE, NOTHING_OFF, Facts, gather
from .permissions import ABOVE
from .phases import JUDGE, Effect, Onward, Phase
from .problems import said
from .setup import Setup, placeholder
from .work import Failure, Work

IDLE = RunState()
NONE_APPROVED: frozenset[str] = frozenset()
BLANK = template(CallState(run=IDLE))
_OPEN = copier(CallState, "asked", "tool", "index", "retry", "max_retries", "arguments", "problems")
NOT_AVAILABLE = "not available"
_WITH_RUN = copier(CallState, "run")
_TO_JUDGE = copier(CallState, "run", "earlier")


def detached(call: CallState) -> CallState:
    """Return the call without its run: a batch would otherwise keep every state it passed through."""
    return _WITH_RUN(call, IDLE)


def attached(work: Work, call: CallState) -> CallState:
    """Return the call with the present run."""
    return _WITH_RUN(call, work.run)


def shape(work: Work, calls: tuple[ToolCall, ...]) -> Effect | Onward:
    """Open the batch of a response. Raises `Failure` when it is over the limit: then nothing of it is charged."""
    reason = ledger.before_batch(work.run, work.setup.limits, len(calls))
    if reason is not None:
        raise Failure(reason)
    prepared = prepared_by_name(work)
    retries = work.run.tool_retries
    batch: list[CallState] = []
    for index, asked in enumerate(calls):
        if work.run.stopped is not None:
            tool = prepared.get(asked.name) or work.setup.by_name.get(asked.name) or placeholder(asked)
            batch.append(CallState(run=IDLE, asked=asked, tool=tool, index=index))
            continue
        selected = prepared.get(asked.name)
        if selected is None:
            known = work.setup.by_name.get(asked.name) or placeholder(asked)
            call = CallState(run=IDLE, asked=asked, tool=known, index=index)
            names = ", ".join(sorted(prepared)) or "none"
            content = f"The tool {asked.name!r} is {NOT_AVAILABLE} here. Available: {names}."
            batch.append(replace(call, outcome=Outcome("validation_error", content, by="runtime")))
            continue
        arguments, problems = decode(asked.arguments)
        # A copy of a blank one: all of this is valid already, and validators cost as much again.
        call = _OPEN(
            BLANK,
            asked,
            selected,
            index,
            retries.get(asked.name, 0),
            selected.max_retries,
            arguments,
            problems or validate_all(work, selected, arguments),
        )
        batch.append(_shaped(work, call))
    work.batch = tuple(batch)
    work.judge_from = 0
    work.announced = False
    work.approved = NONE_APPROVED
    return gather_admit(work) or JUDGE


def prepared_by_name(work: Work) -> Mapping[str, Tool]:
    """Return the prepared set of the request, by name."""
    setup = work.setup
    return setup.by_name if work.prepared is setup.inventory else {tool.name: tool for tool in work.prepared}


def validate_all(work: Work, tool: Tool, arguments: FrozenDict[Json]) -> tuple[Problem, ...]:
    """Return all that is wrong with arguments of a run's tool; see `problems_of`."""
    return problems_of(work.setup, tool, arguments)


def problems_of(setup: Setup, tool: Tool, arguments: FrozenDict[Json]) -> tuple[Problem, ...]:
    """Return all that is wrong with arguments: by the schema and, where the function's types say more, by them."""
    problems = validate(tool, arguments)
    if problems:
        return problems
    rich = setup.rich.get(tool.name)
    return rich(arguments) if rich is not None else ()


def _shaped(work: Work, call: CallState) -> CallState:
    """Run the before_tool_execute hooks of one call: repairs while there are problems, the others on valid ones."""
    plan = work.setup.plan.tool(call.name)
    if call.problems and plan.repairs.links:
        call = _before_chain(work, plan.repairs, call, must_be_valid=False)
        if work.run.stopped is not None:
            return call
    if call.problems:
        return replace(call, outcome=_invalid(call))
    if plan.before.links:
        call = _before_chain(work, plan.before, call, must_be_valid=True)
    return call


def _invalid(call: CallState) -> Outcome:
    content = (
        f"The arguments are not valid: {said(call.problems)}. Call again with arguments that fit the schema."
    )
    return Outcome("validation_error", content, by="runtime")


def _before_chain(work: Work, chain: Chain, shaped: CallState, *, must_be_valid: bool) -> CallState:
    """Call the links one by one, validating after each. Raises `Failure` for one that makes arguments invalid."""

    def problem(arguments: FrozenDict[Json]) -> str | None:
        return said(validate_all(work, call.tool, arguments)) or None

    start = call = attached(work, shaped)
    for link in (
        active(chain.links, inactive_links(chain, call), call.id) if chain.conditional else chain.links
    ):
        given = call
        after = call_link(link, given)
        if after is given:
            if work.setup.audit_all:
                write_silent(work, link, call.id)
            continue
        call = accept(work, given, after, link, call.id, arguments_problem=problem if must_be_valid else None)
        work.run = call.run
        if not must_be_valid and call.arguments is not given.arguments:
            call = replace(call, problems=validate_all(work, call.tool, call.arguments))
        if work.run.stopped is not None:
            break
        check_failed(work)
    return shaped if call is start else detached(call)


def gather_admit(work: Work) -> Effect | None:
    """Gather for all calls that will be judged, at once."""
    if not work.setup.plan.judges:
        work.inactive = NOTHING_OFF
        return None
    points = []
    for call in _to_judge(work):
        chain = work.setup.plan.tool(call.name).admit
        if chain.gatherers or chain.conditional:
            points.append((chain, attached(work, call)))
    if not points:
        work.inactive = NOTHING_OFF
        return None
    return gather(work, "admit_tool_execute", points, Phase.ADMITTING)


def _to_judge(work: Work) -> list[CallState]:
    """Return the calls from `judge_from` up to a stopping one that are valid and have no outcome yet."""
    found: list[CallState] = []
    stopping = stopping_index(work)
    for call in work.batch[work.judge_from :]:
        if stopping is not None and call.index >= stopping:
            break
        if call.outcome is None:
            found.append(call)
    return found


def stopping_index(work: Work) -> int | None:
    """Return the index of the call at which a tool hook stopped the run, or None."""
    stopped = work.run.stopped
    if stopped is None:
        return None
    for call in work.batch:
        if call.id == stopped.call_id:
            return call.index
    return 0


def judge(work: Work, facts: Facts = NONE) -> None:
    """Judge the batch in call order; afterwards each call has an outcome, an open approval, or will run."""
    if work.setup.unjudged and work.run.stopped is None:
        return
    batch = list(work.batch)
    earlier: list[CallState] = [call for call in batch[: work.judge_from] if call.will_run]
    stopping, stop = stopping_index(work), work.run.stopped
    if stop is not None:
        # A before hook stopped a later call. Set aside, so that the judge of an earlier one may stop it too.
        work.run = replace(work.run, stopped=None)
    for i in range(work.judge_from, len(batch)):
        call = batch[i]
        if stopping is not None and i >= stopping:
            if call.outcome is None:
                batch[i] = replace(call, outcome=NOT_EXECUTED)
            continue
        if call.outcome is not None:
            continue
        chain = work.setup.plan.tool(call.name).admit
        if chain.links:
            full = _TO_JUDGE(call, work.run, tuple(earlier))
            done = call_chain(work, chain, full, facts.get(call.id, NO_FACTS))
            call = call if done is full else _TO_JUDGE(done, IDLE, ())
            check_failed(work)
            if work.run.stopped is not None:
                stopping = i
                batch[i] = replace(call, outcome=NOT_EXECUTED)
                continue
        call = _permitted(work, call)
        if call.will_run:
            earlier.append(call)
        batch[i] = decide(call)
    work.batch = tuple(batch)
    if stop is not None:
        work.run = _stopped_by_both(work.run, stop)


def _permitted(work: Work, call: CallState) -> CallState:
    """Join what the permissions of the run and of every run above it say: deny wins, each ask stands for itself."""
    setup = work.setup
    above = [permissions.verdict(call.name, ABOVE) for permissions in setup.above]
    for verdict in (*above, setup.permissions.verdict(call.name)):
        if verdict is not None:
            call = replace(call, verdict=call.verdict.join(verdict))
    return call


def _stopped_by_both(run: RunState, stop: Stop) -> RunState:
    """Return the run with a stop that was set aside: it was the first, so a judge's own becomes a note."""
    if run.stopped is None:
        return replace(run, stopped=stop)
    return replace(run, stopped=stop, notes=(*run.notes, f"stop: {run.stopped.message}"))


def decide(call: CallState) -> CallState:
    """Return the call with the outcome that its verdict already settles: refused, or answered unasked."""
    verdict: Verdict = call.verdict
    if verdict.refused is not None:
        return replace(
            call, outcome=Outcome("denied", verdict.refused.reason, by=verdict.refused.by or "runtime")
        )
    if verdict.answer is not None and not verdict.approval:
        answer = verdict.answer
        return replace(call, outcome=Outcome("answered", answer.content, by=answer.by or "runtime"))
    return call
