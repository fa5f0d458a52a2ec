"""One admitted tool call through its wrappers, and a batch of them at once."""

import functools

from attrs import evolve

from ..capabilities.call_state import CallState
from ..capabilities.compose import Link
from ..capabilities.injected import ToolContext
from ..capabilities.records import replace
from ..capabilities.verdict import NOT_RUN_NOTE, Outcome
from .admission import IDLE
from .chains import active, hook_failed, inactive_links
from .errors import IllegalTransition, InvalidReturn, RunError
from .invoke import run_body
from .ledger import exceeded
from .onion import Next, Ring, latched
from .phases import CallResult, Executed, RunTools
from .session import Session
from .work import Failure

HOOK = "wrap_tool_execute"


async def run_tools(session: Session, effect: RunTools) -> Executed:
    """Execute a batch: at once, tools that declare `sequential` alone and in call order."""
    session.results.clear()
    session.started.clear()
    rings = [ToolRing(session, effect, call, share) for call, share in zip(effect.calls, effect.shares, strict=True)]
    together: list[ToolRing] = []
    for ring in rings:
        if not ring.call.tool.sequential:
            together.append(ring)
            continue
        await _together(session, together, effect.max_parallel)
        together = []
        await ring.run_call()
    await _together(session, together, effect.max_parallel)
    return Executed(session.port.now(), tuple(session.results[call.id] for call in effect.calls))


async def _together(session: Session, rings: list["ToolRing"], limit: int | None) -> None:
    if len(rings) == 1:  # one call needs no task group: 2 us on asyncio, 18 us through anyio
        await rings[0].run_call()
    elif rings:
        await session.port.together([ring.run_call for ring in rings], limit)


class ToolRing(Ring):
    """The wrappers around one call, its attempts, and the share it may run its body from."""

    def __init__(self, session: Session, effect: RunTools, call: CallState, share: int | None) -> None:
        """Start before the first attempt."""
        super().__init__(session, effect.run)
        self.effect = effect
        self.call = call
        self.share = share
        self.attempts = 0
        self.last: CallState | None = None

    async def run_call(self) -> None:
        """Run the call through its wrappers and keep its result; never raises but for cancellation."""
        call = self.call
        chain = self.session.setup.plan.tool(call.name).wrappers
        if not chain.links:
            done = replace(call, outcome=await self.attempt())
            self.session.results[call.id] = CallResult(done, self.run)
            return
        self.call = call = replace(call, run=self.run)
        try:
            done = await self.layer(active(chain.links, inactive_links(chain, call), call.id), 0, call)
        except Failure as failure:
            self.fail(failure.reason, failure.cause)
            done = self.interrupted()
        except RunError:
            done = self.interrupted()
        if done.outcome is None:
            done = replace(done, outcome=Outcome("not_executed", NOT_RUN_NOTE, by="runtime"))
        extra = max(0, self.attempts - 1)
        self.session.results[call.id] = CallResult(
            replace(done, run=IDLE), done.run, extra, tuple(self.entries), self.broken
        )

    def interrupted(self) -> CallState:
        """Return the call as it stood when a wrapper broke: what its body did stays on record."""
        return self.last if self.last is not None else self.call

    async def layer(self, links: tuple[Link, ...], i: int, call: CallState) -> CallState:
        """Run wrapper `i` and what is inside it."""
        if i == len(links):
            return await self.leaf(call)
        link = links[i]
        got: list[CallState] = []

        async def inward(passed: CallState) -> CallState:
            if isinstance(passed, CallState) and passed.verdict is not call.verdict:
                raise self.fail(self.illegal(link, "verdict", "refuse and answer stand for call_next: return them instead"))
            inner = await self.layer(links, i + 1, self.edge(link, call, passed))
            got.append(inner)
            return inner

        try:
            after = await link.call(Next(self.session, inward, self.key(link, call.id), self.attempts + 1), call)
        except RunError:
            raise  # what broke is kept in the ring
        except Exception as error:
            raise self.fail(hook_failed(link, call, error), error) from error
        return self.returned(link, call, got, after)

    def returned(self, link: Link, given: CallState, got: list[CallState], after: object) -> CallState:
        """Check what a wrapper returns, and make the outcome of a call that it refused or answered."""
        outcome = after.outcome if isinstance(after, CallState) else None
        base = next((inner for inner in got if inner.outcome is outcome), got[-1] if got else given)
        record = self.edge(link, base, after)
        refused, answer = record.verdict.refused, record.verdict.answer
        if record.verdict is not base.verdict:
            if refused is not None and refused is not base.verdict.refused:
                if got:
                    raise self.fail(self.illegal(link, "verdict", "a call that ran cannot be refused any more"))
                return replace(record, outcome=Outcome("denied", refused.reason, by=link.key))
            if answer is not None and answer is not base.verdict.answer:
                return replace(record, outcome=self.answered(link, base, answer.content))
        if got:
            self.last = record
            return record
        if not latched(given, record):
            raise self.fail(
                InvalidReturn(
                    message=f"{link.key}.{HOOK} returned without an outcome: await call_next(call), answer or refuse",
                    key=link.key,
                    index=link.index,
                    hook=HOOK,
                    step=self.run.run_step,
                    call=given.id,
                )
            )
        return replace(record, outcome=Outcome("not_executed", NOT_RUN_NOTE, by=link.key))

    def answered(self, link: Link, base: CallState, content: object) -> Outcome:
        """Return the outcome of an answer: in place of a body that did not run, or over one that failed."""
        done = base.outcome
        if done is None:
            return Outcome("answered", content, by=link.key)  # type: ignore[arg-type]  # content of an Answered
        if done.status != "failed":
            raise self.fail(self.illegal(link, "outcome", f"only a failed outcome may be answered over, not {done.status}"))
        return evolve(done, status="answered", content=content, by=link.key)

    def illegal(self, link: Link, field: str, legal: str) -> IllegalTransition:
        """Return the reason of an illegal write at an edge, written down."""
        self.write(
            "rejected", actor=link.key, call=self.call.id, index=link.index, hook=HOOK, rejected={field: (None, legal)}
        )
        return IllegalTransition(
            message=f"{link.key}.{HOOK} may not write {field} so: {legal}",
            key=link.key,
            index=link.index,
            hook=HOOK,
            step=self.run.run_step,
            call=self.call.id,
            field=field,
            legal=legal,
        )

    async def leaf(self, call: CallState) -> CallState:
        """Run the body once. Raises LimitError, by which the run ends, when the call's share is spent."""
        if self.attempts and self.share is not None and self.attempts > self.share:
            limit = self.session.setup.limits.tool_calls or 0
            reason = exceeded("tool_calls", self.run.tool_calls + self.attempts - 1, limit, self.run.run_step, self.share)
            raise self.fail(evolve(reason, call=call.id))
        self.last = replace(call, outcome=await self.attempt())
        return self.last

    async def attempt(self) -> Outcome:
        """Run the body, within its timeout."""
        self.attempts += 1
        run, call = self.run, self.call
        context = ToolContext(
            deps=self.session.deps,
            context=run.context,
            run_id=run.run_id,
            step=run.run_step,
            call_id=call.id,
            attempt=self.attempts,
            idempotency_key=f"{run.run_id}:{run.run_step}:{call.id}",
        )
        self.session.started.add(call.id)
        timeout = call.tool.timeout if call.tool.timeout is not None else self.effect.timeout
        body = functools.partial(run_body, call, context, self.effect.max_result_bytes)
        try:
            outcome = await self.session.port.bounded(body, timeout)
        except TimeoutError:
            content = f"No result within {timeout} seconds; it is not known whether the call took effect."
            outcome = Outcome("unknown", content, attempts=self.attempts, by="runtime")
        return outcome
