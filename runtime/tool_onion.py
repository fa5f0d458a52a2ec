"""One admitted tool call through its wrappers, and a batch of them at once."""

import functools

import anyio
from attrs import evolve

from ..capabilities.call_state import CallState
from ..capabilities.compose import Link
from ..capabilities.frozen import same
from ..capabilities.messages import Content
from ..capabilities.records import copier, replace
from ..capabilities.verdict import NOT_RUN_NOTE, Outcome
from .admission import IDLE
from .below import Below, RunBelow, Spent
from .chains import active, hook_failed, inactive_links, place_of
from .ending import NOT_EXECUTED, end_waiting
from .entries import NOTHING
from .errors import InvalidReturn, RunError
from .invoke import run_body
from .ledger import exceeded
from .onion import Next, Ring, latched
from .phases import CallResult, Executed, RunTools
from .port import Step
from .session import Session
from .transitions import Transition
from .work import Failure

HOOK = "wrap_tool_execute"
# A call of the class costs 1,000 instructions more.
_result, _executed = CallResult.__new__, Executed.__new__
LEFT_WAITING = Outcome(
    "unknown",
    "Its agent waited for a decision, and was not let go on; what it had done stands.",
    attempts=1,
    by="runtime",
)
UNKNOWN_NOTE = "It is not known whether this call took effect: it was interrupted."


async def run_tools(session: Session, effect: RunTools) -> Executed:
    """Execute a batch: at once, tools that declare `sequential` alone and in call order."""
    plan, calls = session.setup.plan, effect.calls
    rings: list[ToolRing] = []
    session.begin_batch(functools.partial(_so_far, session, effect, rings))
    if len(calls) == 1 and not plan.wraps:
        # The usual batch: what `_unwrapped` does, without its coroutine and a step to sort.
        result = _kept(session, effect, calls[0], await run_body(session, effect, calls[0], 1))
        if session.follower is not None:
            await session.follower.finished(result)
        return _executed(Executed, session.port.now(), (result,))
    steps: list[Step] = []
    for call, share in zip(effect.calls, effect.shares, strict=True):
        if plan.wraps and plan.tool(call.asked.name).wrappers.links:
            rings.append(ToolRing(session, effect, call, share))
            step: Step = rings[-1].run_call
        else:
            step = functools.partial(_unwrapped, session, effect, call)
        if call.tool.sequential:
            await _together(session, steps, effect.max_parallel)
            steps = []
            await step()
        else:
            steps.append(step)
    await _together(session, steps, effect.max_parallel)
    if len(session.results) < len(effect.calls):  # a body that cancelled its own task: nobody else was told
        for result in _so_far(session, effect, rings):
            session.results.setdefault(result.call.asked.id, result)
    return Executed(session.port.now(), tuple([session.results[call.asked.id] for call in effect.calls]))


async def _together(session: Session, steps: list[Step], limit: int | None) -> None:
    if len(steps) == 1:  # one call needs no task group, nor pays for one
        await steps[0]()
    elif steps:
        await session.port.together(steps, limit)


async def _unwrapped(session: Session, effect: RunTools, call: CallState) -> CallResult:
    """Run a call without the ring that nobody stands in."""
    result = _kept(session, effect, call, await run_body(session, effect, call, 1))
    if session.follower is not None:
        await session.follower.finished(result)
    return result


def _kept(session: Session, effect: RunTools, call: CallState, outcome: Outcome) -> CallResult:
    """Return the result of a call that nobody wraps, kept where a batch that is cut short finds it."""
    result = _result(CallResult, _DONE(call, outcome), effect.run)
    if session.below:
        result = _with_below(session, result)
    session.results[call.asked.id] = result
    return result


async def _keep(session: Session, result: CallResult) -> CallResult:
    """Keep the result of a call where a batch that is cut short finds it, and tell who follows the run."""
    if session.below:
        result = _with_below(session, result)
    session.results[result.call.asked.id] = result
    if session.follower is not None:
        await session.follower.finished(result)
    return result


def _with_below(session: Session, result: CallResult) -> CallResult:
    """Return the result of a call with what its sub-agent has used, and where that waits."""
    call = result.call
    below = session.below.get(call.asked.id)
    if below is None:
        return result
    if below.extra and call.outcome is not None:  # runs of its body before it was suspended are attempts too
        call = replace(call, outcome=evolve(call.outcome, attempts=call.outcome.attempts + below.extra))
    return result._replace(
        call=call,
        broken=result.broken or below.broken,
        below=below.runs,
        spent=below.spent,
        held=below.held(result.extra),
        extra=below.extra + result.extra,
    )


_DONE = copier(CallState, "outcome")


def _so_far(session: Session, effect: RunTools, rings: list["ToolRing"]) -> tuple[CallResult, ...]:
    """Return what is known of a batch that is cut short, in call order; nothing of a call that never began."""
    found = {ring.call.id: ring.so_far() for ring in rings}
    for call in effect.calls:
        if call.id in session.results:
            found[call.id] = session.results[call.id]
        elif call.id not in found and call.id in session.started:
            outcome = session.cut.get(call.id) or unknown(1)
            found[call.id] = _with_below(session, CallResult(replace(call, outcome=outcome), effect.run))
    return tuple(result for call in effect.calls if (result := found.get(call.id)) is not None)


def unknown(attempts: int) -> Outcome:
    """Return the outcome of a body that was cut short."""
    return Outcome("unknown", UNKNOWN_NOTE, attempts=attempts, by="runtime")


class ToolRing(Ring):
    """The wrappers around one call, its attempts, and the share it may run its body from."""

    def __init__(self, session: Session, effect: RunTools, call: CallState, share: int | None) -> None:
        """Start before the first attempt."""
        super().__init__(session, effect.run)
        self.effect = effect
        self.call = call
        self.share = share
        self.attempts = 0
        self.returns = 0
        self.last: CallState | None = None
        # A wrapper may try twice at once. Of a sub-agent one attempt waits for the other: what it may use is what
        # that one has left.
        below = isinstance(call.tool.function, RunBelow)
        self.turn = anyio.Lock(fast_acquire=True) if below else None

    async def run_call(self) -> None:
        """Run the call through its wrappers and keep its result; never raises but for cancellation."""
        call = self.call
        chain = self.session.setup.plan.tool(call.name).wrappers
        self.call = call = replace(call, run=self.run)
        try:
            done = await self.layer(active(chain.links, inactive_links(chain, call), call.id), 0, call)
        except Failure as failure:
            self.fail(failure.reason, failure.cause)
            done = self.interrupted()
        except RunError:
            done = self.interrupted()
        finally:
            self.over = True
        if done.outcome is None:
            done = replace(done, outcome=NOT_EXECUTED)
        if self.waits():
            self.give_up()
        await _keep(self.session, self.result(done))

    def waits(self) -> bool:
        """Tell whether the run of a sub-agent that waited was not let go on, though its decisions are there."""
        return self.call.id in self.effect.resumed and self.call.id not in self.session.below

    def give_up(self) -> None:
        """End the run that waited: no wrapper went inward to it, and nobody will any more."""
        session, resumed = self.session, self.effect.resumed[self.call.id]
        run, entries = end_waiting(resumed.state, session.port.now())
        session.recorder.append(entries)
        below = session.below[self.call.id] = Below(self.effect.allowances[self.call.id], resumed.held)
        below.end(Spent.by(run))

    def result(self, done: CallState) -> CallResult:
        """Return the result of a call that has its outcome."""
        extra = max(0, self.attempts - 1)
        outcome = done.outcome
        if (
            outcome is not None and outcome.attempts < self.attempts
        ):  # a wrapper chose the result of an earlier one
            done = replace(done, outcome=evolve(outcome, attempts=self.attempts))
        run = self.latches(done.run)
        return CallResult(replace(done, run=IDLE), run, extra, tuple(self.entries), self.broken)

    def so_far(self) -> CallResult | None:
        """Return what is known when the batch is cut short; None of a call whose body never began.

        A body that ended keeps its outcome, though its wrappers never returned.
        """
        kept = self.session.results.get(self.call.id)
        if kept is not None or not self.attempts:
            return kept
        return _with_below(self.session, self.result(self.interrupted()))

    def interrupted(self) -> CallState:
        """Return the call as it stood when a wrapper broke: what its body did stays on record."""
        last = self.last if self.last is not None else self.call
        outcome = self.begun()
        return last if outcome is None or outcome is last.outcome else replace(last, outcome=outcome)

    def begun(self) -> Outcome | None:
        """Return what came of the body so far: None when it never began, unknown when it was cut short."""
        if not self.attempts:
            return LEFT_WAITING if self.waits() else None
        last = self.last.outcome if self.last is not None else None
        if last is not None and self.returns == self.attempts:
            return last
        return self.session.cut.get(self.call.id) or unknown(self.attempts)

    async def layer(self, links: tuple[Link, ...], i: int, call: CallState) -> CallState:
        """Run wrapper `i` and what is inside it."""
        if i == len(links):
            return await self.leaf(call)
        link = links[i]
        got: list[CallState] = []
        went = False

        async def inward(passed: object) -> CallState:
            nonlocal went
            went = True
            if isinstance(passed, CallState) and passed.verdict is not call.verdict:
                raise self.fail(
                    self.illegal(
                        link, call, "verdict", "refuse and answer stand for call_next: return them instead"
                    )
                )
            inner = await self.layer(links, i + 1, self.edge(link, call, passed))
            got.append(inner)
            return inner

        try:
            key, resumed = self.key(link, call.id), not self.attempts and call.id in self.effect.resumed
            call_next = Next(self.session, inward, key, self.attempts + 1, resumed=resumed)
            after = await self.enter(link, call_next, call)
        except RunError as error:
            if self.broken is None:  # of another run: this hook raised it
                raise self.fail(hook_failed(link, call, error), error) from error
            raise
        except Exception as error:
            raise self.fail(hook_failed(link, call, error), error) from error
        return self.returned(link, call, got, after, went=went)

    def returned(
        self, link: Link, given: CallState, got: list[CallState], after: object, *, went: bool
    ) -> CallState:
        """Check what a wrapper returns, and make the outcome of a call that it refused or answered.

        `went`: it went inward, though perhaps nothing came out.
        """
        outcome = after.outcome if isinstance(after, CallState) else None
        base = next((inner for inner in got if inner.outcome is outcome), got[-1] if got else given)
        done = base.outcome if base.outcome is not None else self.begun()

        def rule(record: CallState) -> tuple[str, str] | None:
            fresh = record.verdict
            if went and (got or done is not None) and fresh.refused is not base.verdict.refused:
                return "verdict", "a call that ran cannot be refused any more"
            if fresh.answer is not base.verdict.answer and done is not None and done.status != "failed":
                return "outcome", f"only a failed outcome may be answered over, not {done.status}"
            return None

        record = self.edge(link, base, self.unsettled(link, base, after), rule)
        refused, answer = record.verdict.refused, record.verdict.answer
        if record.verdict is not base.verdict:
            if refused is not None and refused is not base.verdict.refused:
                if done is not None:  # a further attempt is refused, and what came of those before it stands
                    return replace(record, verdict=base.verdict, outcome=done)
                return replace(record, outcome=Outcome("denied", refused.reason, by=link.key))
            if answer is not None and answer is not base.verdict.answer:
                return replace(record, outcome=answered(link, done, answer.content))
        if got:
            self.last = record
            return record
        if not latched(given, record):
            raise self.fail(
                InvalidReturn(
                    message=f"{link.key}.{HOOK} returned without an outcome: await call_next(call), answer or refuse",
                    **place_of(link, given),
                )
            )
        return replace(record, outcome=done or Outcome("not_executed", NOT_RUN_NOTE, by=link.key))

    async def leaf(self, call: CallState) -> CallState:
        """Run the body once. Raises LimitError, by which the run ends, when the call's share is spent."""
        if self.turn is None:
            return await self.body(call)
        async with self.turn:
            return await self.body(call)

    async def body(self, call: CallState) -> CallState:
        """Run the body, now. Raises as `leaf` does."""
        self.check_open()
        if self.attempts and self.share is not None and (used := self.used()) >= self.share:
            limit = self.session.setup.limits.tool_calls or 0
            reason = exceeded("tool_calls", self.run.tool_calls + used, limit, self.run.run_step, self.share)
            raise self.fail(evolve(reason, call=call.id))
        self.attempts += 1
        outcome = await run_body(self.session, self.effect, call, number := self.attempts)
        if outcome.attempts < number:  # what it needs was missing: the body was not started
            self.attempts -= 1
        else:
            self.returns += 1
        self.last = replace(call, outcome=outcome)
        below = self.session.below.get(call.id)
        if below is not None and below.broken is not None:
            raise self.fail(*below.broken)
        return self.last

    def used(self) -> int:
        """Return what was used of the call's share: body runs beyond the first, and calls of its sub-agent."""
        extra = max(0, self.attempts - 1)
        below = self.session.below.get(self.call.id)
        return extra if below is None else extra + below.extra + below.spent.tool_calls

    def unsettled(self, link: Link, base: CallState, after: object) -> object:
        """Put back what a wrapper made of a call whose sub-agent waits: its outcome is yet to come."""
        if base.outcome is None or base.outcome.status != "pending" or not isinstance(after, CallState):
            return after
        kept = {"outcome": base.outcome, "verdict": base.verdict}
        tried = {name: (getattr(after, name), mine) for name, mine in kept.items()}
        undone = {name: pair for name, pair in tried.items() if not same(*pair)}
        if not undone:
            return after
        restored = Transition(link.key, link.index, link.hook, "restored", NOTHING, undone, NOTHING)
        problem = self.write_transition(restored, self.call.id)
        if problem is not None:
            raise self.fail(problem)
        return replace(after, **kept)


def answered(link: Link, done: Outcome | None, content: Content) -> Outcome:
    """Return the outcome of an answer: in place of a body that did not run, or over one that failed."""
    if done is None:
        return Outcome("answered", content, by=link.key)
    return evolve(done, status="answered", content=content, by=link.key)
