"""The machine: a pure, synchronous run. Same state and event, same result.

`start` opens a run, `feed` takes the event that an effect became; both return the next state, the next effect
and the entries to write down. Who has a loop of their own can drive it; `driver` is ours.
The legal moves are `phases.MOVES`; the steps themselves stand in the files named after them.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Required, TypeAlias, TypedDict, Unpack

from ..capabilities.frozen import EMPTY, freeze_mapping
from ..capabilities.messages import Content, Message, UserMessage, as_content, as_messages
from ..capabilities.records import copier, replace
from ..capabilities.run_parts import Stop
from ..capabilities.state import RunState
from ..capabilities.views import view_problem
from .approving import decided, judged
from .conversation import Conversation
from .decisions import Decision
from .ending import (
    after_facts,
    cancel,
    check_failed,
    close,
    end,
    fail,
    finish,
    interrupt,
    leave,
    save,
    saved,
    settle_latches,
    stop_output,
    withhold_reply,
)
from .entries import Entry, entry_of
from .errors import LimitExceeded, by_parts
from .gathering import Facts, book
from .phases import (
    MOVES,
    STEP,
    Broken,
    Decided,
    Effect,
    Enter,
    Entered,
    Event,
    Executed,
    Gathered,
    Interrupted,
    Leave,
    Left,
    Onward,
    Open,
    Opened,
    Phase,
    Responded,
    Resumed,
    Saved,
    Undecided,
)
from .responding import effective, enter_unseen, responded, take_sent
from .settling import confirmed, execute, executed, settled, take_results
from .setup import Setup
from .starting import opened, write_started
from .stepping import begin, gathered, started, step
from .waiting import suspend
from .work import CallIndex, Failure, MachineState, Work

# A call of the class, with its validators, costs 5,000 instructions more.
NO_PROMPT = UserMessage("")
_PROMPT = copier(UserMessage, "content", "at")
_STARTED = copier(RunState, "run_id", "root_run_id", "parent_run_id", "context", "history_start", "messages")
Moved: TypeAlias = tuple[MachineState, Effect, tuple[Entry, ...]]


class IllegalMove(ValueError):
    """An event that the phase does not wait for. `phase` and `event` say which; the message, what is legal."""

    __reduce__ = by_parts

    def __init__(self, phase: Phase, event: object) -> None:
        """Name the phase and the event."""
        legal = ", ".join(kind.__name__ for kind in MOVES[phase]) or "nothing: the run has ended"
        super().__init__(f"{type(event).__name__} in phase {phase.value}; legal: {legal}")
        self.phase = phase
        self.event = event


class Opening(TypedDict, total=False):
    """What a run is opened with. `now` in UTC seconds; `messages` is the history before the prompt.

    `conversation`: a stored one, whose messages are the history. `above`: the run that calls this one.
    """

    run_id: Required[str]
    now: Required[float]
    context: Mapping[str, object]
    messages: Sequence[Message]
    conversation: str | None
    above: RunState | None


def start(setup: Setup, prompt: Content | None, **opening: Unpack[Opening]) -> Moved:
    """Open a run.

    Raises ValueError when prompt and history together cannot be sent, or there are two histories, and TypeError for
    what is no message.
    """
    work, effect = begun(setup, prompt, **opening)
    return work.freeze(), effect, tuple(map(entry_of, work.entries))


def begun(
    setup: Setup,
    prompt: Content | None,
    *,
    run_id: str,
    now: float,
    context: Mapping[str, object] = EMPTY,
    messages: Sequence[Message] = (),
    conversation: str | None = None,
    above: RunState | None = None,
) -> tuple[Work, Effect]:
    """Do what `start` does, and return the work with its entries as they are kept: for who only hands them on."""
    history = as_messages(messages)
    if history and conversation is not None:
        raise ValueError(
            f"messages and conversation={conversation!r:.80} are two histories: give one of them; what is in a "
            "conversation comes from its store"
        )
    own: tuple[Message, ...] = () if prompt is None else (_PROMPT(NO_PROMPT, as_content(prompt), now),)
    if (history or not own) and conversation is None:  # else once it is loaded; a prompt alone can be sent
        problem = view_problem((*history, *own))
        if problem is not None:
            raise ValueError(f"prompt and messages cannot be sent: {problem}")
    run = _STARTED(
        setup.blank,
        run_id,
        run_id if above is None else above.root_run_id,
        None if above is None else above.run_id,
        freeze_mapping(context, "context"),
        len(history),
        (*history, *own),
    )
    work = Work(MachineState(setup, Phase.ENTERING, run, now), now)
    work.call_index = CallIndex(run.messages)
    work.instructions = setup.instructions
    if conversation is not None:
        work.conversation = Conversation(conversation)
    if setup.unresolved or conversation is not None:
        work.phase = Phase.OPENING
        effect: Effect = Open(run, work.conversation)
        work.effect = effect
    else:
        write_started(work)
        effect = _run(work, _enter, None)
    return work, effect


def resume(state: MachineState, decisions: Sequence[Decision], now: float) -> Moved:
    """Go on with a suspended run: one decision per pending request, in their order."""
    return feed(state, Resumed(now, tuple(decisions)))


def feed(state: MachineState, event: Event) -> Moved:
    """Take an event; return the next state, the next effect and what to write down.

    Raises `IllegalMove` for an event that the phase does not wait for, and DecisionError for decisions that fit
    no request; the state can be fed again then.
    """
    work = Work(state, 0.0)
    effect = advance(work, event)
    return work.freeze(), effect, tuple(map(entry_of, work.entries))


def advance(work: Work, event: Event) -> Effect:
    """Take an event in place: what `feed` does to a copy. The entries are added to those of `work`.

    For who needs the state before it no more: a copy in and out costs 4,000 instructions an event, two events a step.
    """
    phase, kind = work.phase, type(event)
    legal = MOVES[phase]
    if kind not in legal:
        raise IllegalMove(phase, event)
    work.now = event.now
    effect = _run(work, HANDLERS[kind], event)
    reached = work.phase
    if reached is not phase and reached not in legal[kind]:
        raise AssertionError(f"{kind.__name__} led from {phase.value} to {reached.value}: not in MOVES")
    return effect


Handler: TypeAlias = Callable[[Work, Any], "Effect | Onward"]  # Any: each takes the event it is filed under


def _run(work: Work, handle: Handler, event: Event | None) -> Effect:
    """Go on until something has to be waited for; a failure ends the run, history closed."""
    try:
        found = handle(work, event)
        while isinstance(found, Onward):
            found = step(work) if found is STEP else judged(work)
    except Failure as failure:
        found = _fail(work, failure)
    work.effect = found
    return found


def _fail(work: Work, failure: Failure) -> Effect:
    # What broke while a batch ran comes first, whatever breaks while that batch settles.
    reason, cause = (work.reason, work.cause) if work.reason is not None else (failure.reason, failure.cause)
    return fail(work, reason, cause, leaving=work.phase is Phase.LEAVING)


def _opened(work: Work, event: Opened) -> Effect | Onward:
    opened(work, event)
    return _enter(work, None)


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
    run, held = work.run, work.held
    if run.stopped is not None or run.failed is not None:
        interrupt(work)
    check_failed(work)
    if run.stopped is not None:
        if held:
            return confirmed(work, None)  # the rest of the batch has run
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
        # Refuse bad decisions before wrap_run is entered; what ends the run by good ones ends it inside.
        with contextlib.suppress(Failure):
            decided(Work(check, event.now), event.decisions)
        work.resumed = event.decisions
        work.phase = Phase.ENTERING
        work.run = replace(work.run, status="running")
        return Enter(work.run)
    return decided(work, event.decisions)


def _left(work: Work, event: Left) -> Effect:
    before = work.run
    work.entries.extend(event.entries)
    work.run = event.run
    if event.broken is not None:
        work.write_broken(event.broken)
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
    return end(work) if isinstance(effect, Leave) else effect


def _saved(work: Work, event: Saved) -> Effect:
    work.entries.extend(event.entries)
    work.run = event.run
    return saved(work, event.messages, event.broken)


def _interrupted(work: Work, event: Interrupted) -> Effect | Onward:
    """Close the history of a run that was cut short: what ran is on record, what may have run is unknown."""
    if work.phase is Phase.OPENING:
        write_started(work)
    _write_cut(work, event)
    if work.phase is Phase.SAVING:
        return save(work, event.broken)
    broken = take_results(work, event.results) if event.results else None
    if event.sent is not None:
        take_sent(work, event.sent)
    _withhold_unseen(work)
    interrupt(work)
    if event.broken is not None:
        if work.phase is Phase.EXECUTING and isinstance(event.broken.reason, LimitExceeded):
            return confirmed(work, event.broken)  # a reached limit lets the batch settle
        return fail(work, event.broken.reason, event.broken.cause, leaving=work.phase is Phase.LEAVING)
    if event.stop is not None:
        return _halted(work, event.stop, broken)
    return cancel(work)


def _write_cut(work: Work, event: Interrupted) -> None:
    """Write down where the run was cut short, and by what; by neither a reason nor a stop, it was cancelled."""
    facts: dict[str, object] = {"cut": work.phase.value}
    if event.broken is not None:
        facts["reason"] = event.broken.reason
    elif event.stop is not None:
        facts["stop"] = event.stop.message
    work.write("note", actor="runtime" if event.stop is None else "caller", facts=facts)


def _halted(work: Work, stop: Stop, broken: Broken | None) -> Effect | Onward:
    """End a run by a stop of its caller, as by one of a hook: the batch settles, after_run is called.

    What broke in the batch that was cut short ends it as a failure.
    """
    run = work.run
    if run.stopped is None:
        work.run = replace(run, stopped=stop)
    else:
        work.run = replace(run, notes=(*run.notes, f"stop: {stop.message}"))
    if work.phase is Phase.EXECUTING:
        return confirmed(work, broken)
    if work.phase in {Phase.ADMITTING, Phase.APPROVING}:
        work.pending = ()
        return execute(work)  # all its calls have an outcome: none of them runs
    close(work)
    if work.phase in {Phase.FINISHING, Phase.LEAVING}:
        work.run = replace(work.run, output=stop_output(work, work.run.stopped))
        return leave(work, "stopped")
    return finish(work, "stopped")


HANDLERS: Mapping[type, Handler] = {
    Opened: _opened,
    Entered: _entered,
    Gathered: _gathered,
    Responded: responded,
    Decided: _decided,
    Undecided: _undecided,
    Executed: executed,
    Left: _left,
    Saved: _saved,
    Resumed: _resumed,
    Interrupted: _interrupted,
}
