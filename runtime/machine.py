"""The machine: a pure, synchronous run. Same state and event, same result.

`start` opens a run, `feed` takes the event that an effect became; both return the next state, the next effect
and the entries to write down. Who has a loop of their own can drive it; `driver` is ours.
The legal moves are `phases.MOVES`; the steps themselves stand in the files named after them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from ..capabilities.frozen import EMPTY, freeze_mapping
from ..capabilities.messages import Content, Message, UserMessage, as_messages
from ..capabilities.records import replace
from ..capabilities.state import RunState
from ..capabilities.views import view_problem
from .approving import decided, judged, suspend
from .decisions import Decision
from .ending import (
    after_facts,
    check_failed,
    close,
    end,
    fail,
    finish,
    interrupt,
    leave,
    settle_latches,
    withhold_reply,
)
from .entries import Entry
from .errors import LimitExceeded
from .gathering import Facts, book
from .phases import (
    MOVES,
    Decided,
    Effect,
    Enter,
    Entered,
    Event,
    Executed,
    Finish,
    Gathered,
    Interrupted,
    Left,
    Onward,
    Phase,
    Responded,
    Resumed,
    Undecided,
)
from .responding import effective, enter_unseen, responded, take_sent
from .settling import confirmed, executed, settled, take_results
from .setup import Setup
from .stepping import begin, gathered, started, step
from .work import CallIndex, Failure, MachineState, Work

BLANK = RunState()
Moved: TypeAlias = tuple[MachineState, Effect, tuple[Entry, ...]]


class IllegalMove(ValueError):
    """An event that the phase does not wait for. `phase` and `event` say which; the message, what is legal."""

    def __init__(self, phase: Phase, event: object) -> None:
        """Name the phase and the event."""
        legal = ", ".join(kind.__name__ for kind in MOVES[phase]) or "nothing: the run has ended"
        super().__init__(f"{type(event).__name__} in phase {phase.value}; legal: {legal}")
        self.phase = phase
        self.event = event


def start(
    setup: Setup,
    prompt: Content | None,
    *,
    run_id: str,
    now: float,
    context: Mapping[str, object] = EMPTY,
    messages: Sequence[Message] = (),
) -> Moved:
    """Open a run. `now` in UTC seconds; `messages` is the history before the prompt.

    Raises ValueError when prompt and history together cannot be sent, and TypeError for what is no message.
    """
    history = as_messages(messages)
    own: tuple[Message, ...] = () if prompt is None else (UserMessage(prompt, at=now),)
    problem = view_problem((*history, *own))
    if problem is not None:
        raise ValueError(f"prompt and messages cannot be sent: {problem}")
    run = replace(  # of a blank one: all of this is valid already, and validators cost several times as much
        BLANK,
        run_id=run_id,
        root_run_id=run_id,
        agent=setup.name,
        inventory=setup.inventory,
        context=freeze_mapping(context, "context"),
        history_start=len(history),
        output_spec=setup.output.spec,
        max_steps=setup.limits.max_steps,
        output_retries=setup.output_retries,
        messages=(*history, *own),
        model=setup.model,
        settings=setup.settings,
        instructions=setup.instructions,
        tools=setup.inventory,
    )
    state = MachineState(
        setup=setup, phase=Phase.ENTERING, run=run, started=now, call_index=CallIndex(run.messages)
    )
    work = Work(state, now)
    work.write(
        "run_started",
        facts={
            "agent": setup.name,
            "model": setup.model.name,
            "prompt": own,
            "history": history,
            "context": run.context,
            "instructions": setup.instructions,
            "settings": setup.settings,
            "tools": setup.tool_digests,
            "output": setup.output.spec,
            "capabilities": setup.prints,
        },
    )
    return _run(work, _enter, None)


def resume(state: MachineState, decisions: Sequence[Decision], now: float) -> Moved:
    """Go on with a suspended run: one decision per pending request, in their order."""
    return feed(state, Resumed(now, tuple(decisions)))


def feed(state: MachineState, event: Event) -> Moved:
    """Take an event; return the next state, the next effect and what to write down.

    Raises `IllegalMove` for an event that the phase does not wait for, and DecisionError for decisions that fit
    no request; the state can be fed again then.
    """
    legal = MOVES[state.phase]
    if type(event) not in legal:
        raise IllegalMove(state.phase, event)
    work = Work(state, event.now)
    moved = _run(work, HANDLERS[type(event)], event)
    reached = work.phase
    if reached is not state.phase and reached not in legal[type(event)]:
        raise AssertionError(
            f"{type(event).__name__} led from {state.phase.value} to {reached.value}: not in MOVES"
        )
    return moved


Handler: TypeAlias = Callable[[Work, Any], "Effect | Onward"]  # Any: each takes the event it is filed under


def _run(work: Work, handle: Handler, event: Event | None) -> Moved:
    """Go on until something has to be waited for; a failure ends the run, history closed."""
    try:
        found = handle(work, event)
        while isinstance(found, Onward):
            found = step(work) if found is Onward.STEP else judged(work)
    except Failure as failure:
        found = _fail(work, failure)
    work.effect = found
    return work.freeze(), found, tuple(work.entries)


def _fail(work: Work, failure: Failure) -> Effect:
    # What broke while a batch ran comes first, whatever breaks while that batch settles.
    reason, cause = (work.reason, work.cause) if work.reason is not None else (failure.reason, failure.cause)
    return fail(work, reason, cause, leaving=work.phase is Phase.LEAVING)


def _enter(work: Work, event: None) -> Effect | Onward:
    if work.setup.plan.chains["wrap_run"].links:
        work.phase = Phase.ENTERING
        return Enter(work.run)
    return begin(work)


def _entered(work: Work, event: Entered) -> Effect | Onward:
    work.run = event.run
    work.entries.extend(event.entries)
    if not work.pending:
        return begin(work)
    check_failed(work)
    if work.run.stopped is not None:
        close(work)
        return finish(work, "stopped")
    return decided(work, work.resumed)


_AFTER_FACTS: Mapping[Phase, Callable[[Work, Facts], Effect | Onward]] = {
    Phase.STARTING: started,
    Phase.PREPARING: gathered,
    Phase.RESPONDING: effective,
    Phase.ADMITTING: judged,
    Phase.SETTLING: settled,
    Phase.FINISHING: after_facts,
}


def _gathered(work: Work, event: Gathered) -> Effect | Onward:
    try:
        facts = book(work, event)
    except Failure:
        _withhold_unseen(work)
        raise
    return _AFTER_FACTS[work.phase](work, facts)


def _withhold_unseen(work: Work) -> None:
    """Withhold the text of a response whose after hooks waited for facts that did not come."""
    if work.phase is Phase.RESPONDING:
        enter_unseen(work)
    elif work.phase is Phase.FINISHING:
        work.run = withhold_reply(work.run)


def _decided(work: Work, event: Decided) -> Effect | Onward:
    return decided(work, event.decisions)


def _undecided(work: Work, event: Undecided) -> Effect:
    return suspend(work, event.why)


def _resumed(work: Work, event: Resumed) -> Effect | Onward:
    work.started = event.now - (work.suspended_at - work.started)  # waiting does not use up the deadline
    work.write("run_resumed", facts={"calls": [request.call_id for request in work.pending]})
    if work.setup.plan.chains["wrap_run"].links:
        check = work.freeze()
        decided(Work(check, event.now), event.decisions)  # refuse bad decisions before wrap_run is entered
        work.resumed = event.decisions
        work.phase = Phase.ENTERING
        work.run = replace(work.run, status="running")
        return Enter(work.run)
    return decided(work, event.decisions)


def _left(work: Work, event: Left) -> Effect:
    before = work.run
    work.entries.extend(event.entries)
    work.run = event.run
    if event.broken is not None and work.reason is None:
        return fail(work, event.broken.reason, event.broken.cause, leaving=True)
    if before.status == "failed":
        return end(work)
    try:
        return _relatch(work, before)
    except Failure as failure:
        return fail(work, failure.reason, failure.cause, leaving=True)


def _relatch(work: Work, before: RunState) -> Effect:
    """Honor a stop or fail that a wrap_run set on its way out."""
    effect = settle_latches(work, before.stopped)
    return effect if isinstance(effect, Finish) else end(work)


def _interrupted(work: Work, event: Interrupted) -> Effect | Onward:
    """Close the history of a run that was cut short: what ran is on record, what may have run is unknown."""
    if event.results:
        take_results(work, event.results)
    if event.sent is not None:
        take_sent(work, event.sent)
    _withhold_unseen(work)
    interrupt(work)
    if event.broken is not None:
        if work.phase is Phase.EXECUTING and isinstance(event.broken.reason, LimitExceeded):
            return confirmed(work, event.broken)  # a reached limit lets the batch settle
        return fail(work, event.broken.reason, event.broken.cause, leaving=work.phase is Phase.LEAVING)
    close(work)
    work.run = replace(work.run, output=None)
    return leave(work, "cancelled")


HANDLERS: Mapping[type, Handler] = {
    Entered: _entered,
    Gathered: _gathered,
    Responded: responded,
    Decided: _decided,
    Undecided: _undecided,
    Executed: executed,
    Left: _left,
    Resumed: _resumed,
    Interrupted: _interrupted,
}
