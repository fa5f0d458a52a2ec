"""Approval: the one question a batch asks, and what the decisions make of it.

An approval binds to a digest of run, call, tool, arguments and injected values; it is used once and checked
again right before execution.
"""

from collections.abc import Iterable, Mapping, Sequence

from ..capabilities.call_state import CallState
from ..capabilities.frozen import digest, same
from ..capabilities.records import copier, replace
from ..capabilities.state import RunState
from ..capabilities.verdict import ALWAYS, UNDECIDED, Always, Outcome
from .admission import gather_admit, judge, validate_all
from .decisions import DECISIONS, Answer, ApprovalRequest, Approve, Decision, Deny, Edit
from .ending import check_failed
from .errors import DecisionError
from .gathering import NONE, Facts
from .phases import AskApproval, Effect, Onward, Phase
from .problems import said
from .settling import execute, resume_below
from .waiting import parts_below
from .work import Work

PERSON = "person"
_CHARGED = copier(RunState, "tool_calls")


def judged(work: Work, facts: Facts = NONE) -> Effect | Onward:
    """Judge the batch, then ask for what needs a person, or execute."""
    judge(work, facts)
    check_failed(work)
    if (
        not work.charged
    ):  # once, by `responding` perhaps, and however often an edit has the batch judged again
        work.charged = True
        work.run = _CHARGED(work.run, work.run.tool_calls + len(work.batch))
    if work.setup.unjudged:  # nobody could have asked for an approval
        return execute(work)
    requests = tuple(request_for(work, call) for call in work.batch if needs_person(work, call))
    if requests:
        work.pending = requests
        work.phase = Phase.APPROVING
        return AskApproval(requests)
    return approved(work)


def call_digest(work: Work, call: CallState) -> str:
    """Return what a decision binds to: run, call, tool, arguments, injected values."""
    return digest([work.run.run_id, call.id, call.digest])


def needs_person(work: Work, call: CallState) -> bool:
    """Tell whether a call waits for a decision: no outcome, an approval required, and none given that covers it."""
    if call.verdict is UNDECIDED or call.outcome is not None or not call.verdict.approval:
        return False
    if call_digest(work, call) in work.approved:
        return False
    always = narrowest(call)
    grant = grant_of(call, always)
    return grant is None or grant not in work.grants


def narrowest(call: CallState) -> Always:
    """Return the narrowest standing grant that all who asked allow."""
    return min((ask.always for ask in call.verdict.approval), key=ALWAYS.index)


def grant_of(call: CallState, always: Always) -> str | None:
    """Return the standing grant that covers this call: the same tool, and by default the same arguments."""
    if always == "tool":
        return f"tool:{call.tool.digest}"
    if always == "arguments":
        return f"arguments:{call.digest}"
    return None


def request_for(work: Work, call: CallState) -> ApprovalRequest:
    """Return the question about one call, rendered from its sealed arguments."""
    asks = call.verdict.approval
    timeouts = [ask.timeout for ask in asks if ask.timeout is not None]
    return ApprovalRequest(
        digest=call_digest(work, call),
        run_id=work.run.run_id,
        agent=work.run.agent,
        call_id=call.id,
        tool=call.tool.name,
        arguments=call.arguments,
        prompts=tuple(ask.prompt for ask in asks),
        asked_by=tuple(ask.by or "" for ask in asks),
        always=narrowest(call),
        timeout=min(timeouts, default=None),
    )


def match(pending: Sequence[ApprovalRequest], decisions: Mapping[str, object]) -> tuple[Decision, ...]:
    """Return one decision per request, in their order. Raises DecisionError naming the digest; nothing changes."""
    if not isinstance(decisions, Mapping):
        raise DecisionError(
            f"decisions is a mapping from a pending request's digest to its decision, not {type(decisions).__name__}"
        )
    wanted = {request.digest for request in pending}
    for given in decisions:
        if given not in wanted:
            known = ", ".join(sorted(wanted))
            raise DecisionError(f"no pending request has the digest {given!r}; pending: {known}", str(given))
    found: list[Decision] = []
    for request in pending:
        decision = decisions.get(request.digest)
        if decision is None:
            raise DecisionError(
                f"{request.tool} ({request.call_id}) waits for a decision too: all pending ones at once",
                request.digest,
            )
        found.append(check_decision(request, decision))
    return tuple(found)


def decision_list(given: object) -> tuple[Decision, ...]:
    """Return an approver's answer as a tuple, its items unchecked. Raises DecisionError for what is no list."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise DecisionError(
            f"an approver returns a list of decisions, one per request, not {type(given).__name__}"
        )
    return tuple(given)


def check_decision(request: ApprovalRequest, decision: object) -> Decision:
    """Return the decision if it is one and fits the request. Raises DecisionError."""
    if not isinstance(decision, DECISIONS):
        kinds = ", ".join(kind.__name__ for kind in DECISIONS)
        raise DecisionError(f"a decision is one of {kinds}; not {type(decision).__name__}", request.digest)
    if isinstance(decision, Approve) and decision.always and request.always == "off":
        raise DecisionError(f"{request.tool} does not offer a standing approval", request.digest)
    return decision


def check_decisions(work: Work, decisions: Sequence[Decision]) -> None:
    """Raise DecisionError unless there is one decision per pending request, and each fits."""
    if len(decisions) != len(work.pending):
        raise DecisionError(
            f"{len(work.pending)} decisions are wanted, one per request; {len(decisions)} were given"
        )
    if work.held:
        for _, _, state, part in parts_below(work, decisions):
            check_decisions(Work(state, work.now), part)
        return
    calls = {call.id: call for call in work.batch}
    for request, decision in zip(work.pending, decisions, strict=True):
        check_decision(request, decision)
        call = calls.get(request.call_id)
        if call is None or not same(request, request_for(work, call)):
            raise DecisionError(
                f"what {request.tool} was to run with is not what was asked about", request.digest
            )
        if isinstance(decision, Edit):
            problems = validate_all(work, call.tool, decision.arguments)
            if problems:
                raise DecisionError(
                    f"the edited arguments of {request.tool} are not valid: {said(problems)}", request.digest
                )


def decided(work: Work, decisions: Sequence[Decision]) -> Effect | Onward:
    """Apply one decision per pending request. Raises DecisionError before anything is changed."""
    check_decisions(work, decisions)
    if work.held:
        return resume_below(work, decisions)
    calls = {call.id: call for call in work.batch}
    edited: list[int] = []
    for request, decision in zip(work.pending, decisions, strict=True):
        call = calls[request.call_id]
        work.write(
            "call_decided", actor=PERSON, call=call.id, facts={"decision": decision, "digest": call.digest}
        )
        calls[call.id] = _apply(work, request, call, decision)
        if isinstance(decision, Edit):
            edited.append(call.index)
    work.pending = ()
    work.batch = tuple(calls[call.id] for call in work.batch)
    if work.run.status != "running":
        work.run = replace(work.run, status="running")
    if edited:
        return _judge_again(work, min(edited))
    return approved(work)


def _apply(work: Work, request: ApprovalRequest, call: CallState, decision: Decision) -> CallState:
    if isinstance(decision, Deny):
        message = decision.message or call.verdict.approval[0].denied
        return replace(call, outcome=Outcome("denied", message, by=PERSON))
    if isinstance(decision, Answer):
        return replace(call, outcome=Outcome("answered", decision.content, by=PERSON))
    if isinstance(decision, Edit):
        call = replace(call, arguments=decision.arguments, verdict=UNDECIDED)
        work.approved |= {call_digest(work, call)}
        return call
    work.approved |= {request.digest}
    if decision.always:
        grant = grant_of(call, request.always)
        if grant is not None:
            work.grants |= {grant}
    return call


def _judge_again(work: Work, start: int) -> Effect | Onward:
    """Judge the edited call and those after it again: fresh verdicts, fresh facts; standing approvals stay.

    What a person decided stands, and so does what no judging can change: invalid arguments, a stop.
    """
    work.judge_from = start
    work.batch = tuple(_unjudged(call) if call.index >= start else call for call in work.batch)
    return gather_admit(work) or Onward.JUDGE


def _unjudged(call: CallState) -> CallState:
    if call.outcome is None:
        return replace(call, verdict=UNDECIDED)
    if call.outcome.status in {"denied", "answered"} and call.outcome.by != PERSON:
        return replace(call, verdict=UNDECIDED, outcome=None)
    return call


def approved(work: Work) -> Effect | Onward:
    """Turn approvals into outcomes where the call is answered, and execute the rest."""
    work.batch = tuple([call if call.verdict is UNDECIDED else _cleared(work, call) for call in work.batch])
    return execute(work)


def _cleared(work: Work, call: CallState) -> CallState:
    answer = call.verdict.answer
    if call.outcome is None and answer is not None:
        return replace(call, outcome=Outcome("answered", answer.content, by=answer.by or "runtime"))
    if needs_person(work, call):  # no assert: nothing may run unapproved, optimized or not
        raise AssertionError(f"call {call.id!r} reached execution undecided")
    return call
