"""Ending a run: every call gets its one outcome, whatever happened, and the run its final status."""

from attrs import evolve

from ..capabilities.call_state import CallState
from ..capabilities.frozen import FrozenDict
from ..capabilities.messages import AssistantMessage, Message, ToolCall, ToolMessage
from ..capabilities.records import copier, replace
from ..capabilities.state import RunState, RunStatus, Stop
from ..capabilities.verdict import NOT_RUN_NOTE, Outcome
from .below import Held, Spent
from .chains import NO_FACTS, call_chain
from .entries import Entry, entry_of
from .errors import Blocked, Reason
from .gathering import NONE, NOTHING_OFF, Facts, gather_run
from .phases import Broken, Effect, Finish, Leave, Phase, Save
from .work import Failure, MachineState, Work

WITHHELD = "[withheld: the run failed before this could be checked]"
NOT_EXECUTED = Outcome("not_executed", NOT_RUN_NOTE, by="runtime")
PENDING = Outcome("pending", "This call waits for a decision.", by="runtime")
CUT_WAITING = Outcome("unknown", "Its agent waited for a decision when the run ended.", by="runtime")
NOBODY_HELD: FrozenDict[Held] = FrozenDict()


def open_calls(run: RunState) -> tuple[AssistantMessage | None, int]:
    """Return the last assistant message if some call of it has no result yet, and how many results stand there."""
    answered = 0
    for message in reversed(run.messages):
        if isinstance(message, ToolMessage):
            answered += 1
            continue
        if isinstance(message, AssistantMessage) and len(message.tool_calls) > answered:
            return message, answered
        return None, 0
    return None, 0


def close(work: Work, *, withhold: bool = True) -> None:
    """Give every open call of the history its outcome, from the batch where it has one.

    `withhold`: outcomes whose after hooks did not run enter without their content; status and effect stay.
    """
    response, answered = open_calls(work.run)
    if response is None:
        return
    by_id = {call.id: call for call in work.batch}
    results: list[Message] = []
    for asked in response.tool_calls[answered:]:
        state = by_id.get(asked.id)
        outcome = state.outcome if state is not None else None
        if outcome is None:
            outcome = NOT_EXECUTED
        if not work.announced:
            write_refusal(work, asked, outcome)
        if withhold and outcome.status != "not_executed":
            outcome = evolve(outcome, content=WITHHELD)
        results.append(ToolMessage(asked.id, asked.name, outcome.content, status=outcome.status, at=work.now))
    work.run = replace(work.run, messages=work.run.messages + tuple(results))
    work.batch = ()
    work.charged = work.announced = False


def write_refusal(work: Work, asked: ToolCall, outcome: Outcome) -> None:
    """Write down a call that never reached its tool."""
    facts: dict[str, object] = {"tool": asked.name, "status": outcome.status, "content": outcome.content}
    if not work.charged:
        facts["charged"] = False  # the run ended before its batch was judged
    work.write("call_refused", actor=outcome.by, call=asked.id, facts=facts)


def interrupt(work: Work) -> None:
    """Give the calls of a batch that was cut short, and of which nothing is known, their outcome."""
    held = work.held
    work.batch = tuple(
        [
            call if call.outcome is not None and call.id not in held else _cut(work, call)
            for call in work.batch
        ]
    )
    work.held = NOBODY_HELD


def _cut(work: Work, call: CallState) -> CallState:
    held = work.held.get(call.id)
    outcome = call.outcome or NOT_EXECUTED
    facts: dict[str, object] = {}
    if held is not None:
        spent = held.earlier
        if held.state is not None:
            run, entries = end_waiting(held.state, work.now)
            work.entries.extend(entries)
            spent = spent.plus(Spent.by(run))
            outcome = evolve(CUT_WAITING, attempts=held.extra + 1)
        work.run = with_spent(work.run, spent, held.extra)
        facts = facts_below(held.runs, spent, held.extra)
    if work.announced:  # else `close` writes it down
        facts = {"outcome": outcome, **facts}
        work.write("tool_settled", actor=outcome.by, call=call.id, facts=facts)
    return replace(call, outcome=outcome)


def end_waiting(state: MachineState, now: float) -> tuple[RunState, list[Entry]]:
    """End a run that waits for decisions which nobody will give, and those that wait below it."""
    work = Work(state, now)
    cancel(work)
    return work.run, list(map(entry_of, work.entries))


def cancel(work: Work) -> Effect:
    """End a run as a cancelled one: every open call gets its outcome."""
    interrupt(work)
    close(work)
    work.run = replace(work.run, output=None)
    return leave(work, "cancelled")


def facts_below(runs: tuple[str, ...], spent: Spent, extra: int) -> dict[str, object]:
    """Return what the record of a settled call says of the runs below it, and of body runs beyond the first."""
    facts: dict[str, object] = {"extra": extra} if extra else {}
    if runs:
        facts |= {"below": runs, **spent._asdict()}
    return facts


def with_spent(run: RunState, spent: Spent, extra: int = 0) -> RunState:
    """Return a run with what runs below it have used booked, and body runs beyond the first."""
    total = Spent.by(run).plus(spent)
    return replace(
        run,
        requests=total.requests,
        tool_calls=total.tool_calls + extra,
        usage=total.usage,
        usage_by_model=total.usage_by_model,
        cost=total.cost,
    )


def pending_messages(state: MachineState) -> tuple[Message, ...]:
    """Return the messages of a suspended run, each open call answered by what it waits for: for reading only."""
    response, answered = open_calls(state.run)
    if response is None:
        return state.run.messages
    by_id = {call.id: call for call in state.batch}
    results: list[Message] = []
    for asked in response.tool_calls[answered:]:
        call = by_id.get(asked.id)
        outcome = call.outcome if call is not None and call.outcome is not None else PENDING
        results.append(ToolMessage(asked.id, asked.name, outcome.content, status=outcome.status))
    return state.run.messages + tuple(results)


def check_failed(work: Work) -> None:
    """Raise `Failure` when a capability called `fail`."""
    failed = work.run.failed
    if failed is not None:
        raise Failure(blocked(work))


def blocked(work: Work) -> Blocked:
    """Return the reason of a run that a capability failed."""
    failed = work.run.failed
    assert failed is not None
    return Blocked(
        message=failed.reason, key=failed.key, hook=failed.hook, step=work.run.run_step, call=failed.call_id
    )


# Each run passes these two: the keywords of `replace` cost 5,000 instructions a copy more.
_PUT_OUT = copier(RunState, "output")
_LEFT = copier(RunState, "status", "response", "request_messages", "facts")
_ENDED = copier(RunState, "output", "status", "response", "request_messages", "facts")


def finish(work: Work, status: RunStatus, output: object = None) -> Effect:
    """Run the after_run point for a run that completed or stopped."""
    run, chain = work.run, work.setup.plan.chains["after_run"]
    if status == "stopped":
        output = stop_output(work, run.stopped)
    elif not chain.links and not chain.gatherers and run.failed is None and run.stopped is None:
        # The usual end, which nobody looks at: what follows here, and `leave`, in one copy of the run.
        work.inactive = NOTHING_OFF
        work.run = _ENDED(run, output, status, None, None, NO_FACTS)
        return _out(work, status)
    work.run = _PUT_OUT(run, output)
    try:
        gathering = gather_run(work, "after_run", Phase.FINISHING)
    except Failure:
        work.run = withhold_reply(work.run)
        raise
    return gathering or after_facts(work)


def stop_output(work: Work, stopped: Stop | None) -> object:
    """Return the output of a stopped run: the message for text output, else None."""
    return stopped.message if stopped is not None and work.setup.output.spec is None else None


def after_facts(work: Work, facts: Facts = NONE) -> Effect:
    """Run the after_run chain and leave."""
    was_stopped = work.run.stopped
    try:
        call_chain(work, work.setup.plan.chains["after_run"], work.run, facts.get("", NO_FACTS))
    except Failure:
        work.run = withhold_reply(work.run)  # a hook that should have seen it failed
        raise
    return settle_latches(work, was_stopped)


def settle_latches(work: Work, was_stopped: Stop | None) -> Effect:
    """Honor a stop or fail that came after the output was there: the output is withheld. Raises `Failure`."""
    if work.run.failed is not None:
        work.run = replace(withhold_reply(work.run), output=None)
        raise Failure(blocked(work))
    if work.run.stopped is not None and was_stopped is None:
        work.run = replace(withhold_reply(work.run), output=stop_output(work, work.run.stopped))
    return leave(work, "stopped" if work.run.stopped is not None else "completed")


def withhold_reply(run: RunState) -> RunState:
    """Return the run with the text of its last response withheld from the history; the log keeps it."""
    if not run.messages or not isinstance(run.messages[-1], AssistantMessage):
        return run
    return replace(run, messages=(*run.messages[:-1], withheld(run.messages[-1])))


def withheld(response: AssistantMessage) -> AssistantMessage:
    """Return a response without its text; the provider's own items, which may repeat it, go too."""
    return evolve(response, content=WITHHELD, provider_items=())


def leave(work: Work, status: RunStatus) -> Effect:
    """Set the final status and let wrap_run come out."""
    # A chain that broke off left the facts of one capability, which are no other's to read.
    work.run = _LEFT(work.run, status, None, None, NO_FACTS)
    return _out(work, status)


def _out(work: Work, status: RunStatus) -> Effect:
    if work.setup.plan.chains["wrap_run"].links and status != "cancelled":
        work.phase = Phase.LEAVING
        return Leave(work.run)
    return end(work)


def end(work: Work) -> Effect:
    """Save what this run adds to its conversation, where it has one, and end.

    Only what a request could have shown is saved: input that did not pass before_run stays out.
    """
    conversation = work.conversation
    if conversation is None:
        return ended(work)
    run = work.run
    if conversation.expected is None or not run.run_step or len(run.messages) == run.history_start:
        return ended(work, saved=0)
    work.phase = Phase.SAVING
    return Save(run, conversation, run.messages[run.history_start :])


def save(work: Work, broken: Broken | None) -> Effect:
    """Return what is to be saved of a run that something else broke before it was."""
    if broken is not None and work.reason is None:
        _broke(work, broken)
    return end(work)


def saved(work: Work, count: int, broken: Broken | None) -> Effect:
    """End a run whose messages were saved, or not: a run fails by that unless it has failed before."""
    if broken is not None:
        if work.reason is None and work.run.status != "cancelled":
            work.write_broken(broken)
            _broke(work, broken)
        else:
            work.write("note", facts={"not_saved": broken.reason})
    return ended(work, saved=count)


def _broke(work: Work, broken: Broken) -> None:
    work.reason, work.cause = broken
    work.run = replace(work.run, status="failed", output=None)


def ended(work: Work, *, saved: int | None = None) -> Effect:
    """Write the end down; nothing comes after. `saved`: how many messages, of a run with a conversation."""
    work.phase = Phase.ENDED
    run = work.run
    names: tuple[str, ...] = ("status",)
    facts: tuple[object, ...] = (run.status,)
    if saved is not None:
        names, facts = (*names, "saved"), (*facts, saved)
    if run.status in {"completed", "stopped"}:
        names, facts = (*names, "output"), (*facts, run.output)
    if run.stopped is not None:
        names, facts = (*names, "stop"), (*facts, run.stopped)
    if work.reason is not None:
        names, facts = (*names, "reason"), (*facts, work.reason)
    work.event("run_ended", names, facts)
    return Finish(work.run, work.reason, work.cause)


def fail(work: Work, reason: Reason, cause: BaseException | None, *, leaving: bool = False) -> Effect:
    """End the run as a failure: close the history, keep the reason, and let wrap_run come out."""
    close(work)
    work.reason, work.cause = reason, cause
    work.run = replace(work.run, output=None)
    if leaving:
        work.run = replace(work.run, status="failed")
        return end(work)
    return leave(work, "failed")
