"""Ending a run: every call gets its one outcome, whatever happened, and the run its final status."""

from attrs import evolve

from ..capabilities.call_state import CallState
from ..capabilities.messages import AssistantMessage, Message, ToolCall, ToolMessage
from ..capabilities.records import replace
from ..capabilities.state import RunState, RunStatus, Stop
from ..capabilities.verdict import NOT_RUN_NOTE, Outcome
from .chains import NO_FACTS, call_chain
from .errors import Blocked, Reason
from .gathering import NONE, Facts, gather_run
from .phases import Effect, Finish, Leave, Phase
from .work import Failure, MachineState, Work

WITHHELD = "[withheld: the run failed before this could be checked]"
NOT_EXECUTED = Outcome("not_executed", NOT_RUN_NOTE, by="runtime")
PENDING = Outcome("pending", "This call waits for a decision.", by="runtime")


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
    work.batch = tuple([call if call.outcome is not None else _cut(work, call) for call in work.batch])


def _cut(work: Work, call: CallState) -> CallState:
    if work.announced:  # else `close` writes it down
        work.write("tool_settled", call=call.id, facts={"outcome": NOT_EXECUTED})
    return replace(call, outcome=NOT_EXECUTED)


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


def finish(work: Work, status: RunStatus, output: object = None) -> Effect:
    """Run the after_run point for a run that completed or stopped."""
    work.run = replace(
        work.run, output=stop_output(work, work.run.stopped) if status == "stopped" else output
    )
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
    work.run = replace(work.run, status=status, response=None, request_messages=None, facts=NO_FACTS)
    if work.setup.plan.chains["wrap_run"].links and status != "cancelled":
        work.phase = Phase.LEAVING
        return Leave(work.run)
    return end(work)


def end(work: Work) -> Effect:
    """Write the end down; nothing comes after."""
    work.phase = Phase.ENDED
    facts: dict[str, object] = {"status": work.run.status}
    if work.run.status in {"completed", "stopped"}:
        facts["output"] = work.run.output
    if work.run.stopped is not None:
        facts["stop"] = work.run.stopped
    if work.reason is not None:
        facts["reason"] = work.reason
    work.write("run_ended", facts=facts)
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
