"""A batch of tool calls in a durable run: each call one step, folded in call order.

Knows what becomes of a call that was begun by a worker that was lost; nothing of engines.
"""

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

from ..capabilities.call_state import CallState
from ..capabilities.frozen import FrozenDict, FrozenList, Json, digest
from ..capabilities.records import replace
from ..capabilities.run_parts import Stop
from ..capabilities.tools import is_idempotent
from ..capabilities.verdict import Outcome
from .audit import from_fields
from .below import RunBelow
from .decisions import Answer, ApprovalRequest, Approve, Decision, Deny
from .durable_engine import Policy, policy_for
from .entries import Entry
from .event_codec import result_from_json, result_to_json
from .event_parts import JsonObject, get, get_broken, json_object, put, put_broken
from .phases import CallResult, Event, Executed, Interrupted, RunTools
from .port import Step
from .session import Session
from .tool_onion import run_tools

if TYPE_CHECKING:
    from .durable_driver import DurableDriver

LOST_NOTE = "It is not known whether this call took effect: the process that ran it was lost, and it was not run again."
ASKED = "This call was begun by a process that was lost; it may have taken effect. Run it again?"
INTERRUPTED = ("runtime",)  # who asks about an interrupted call
# Lets a person decide what becomes of interrupted calls: requests in, one decision each.
Decide: TypeAlias = Callable[["DurableDriver", tuple[ApprovalRequest, ...]], Awaitable[tuple[Decision, ...]]]


class Batches:
    """Drives the batches of one run.

    `policy`: what becomes of an interrupted call; `decide`: who is asked; `sinked`: whether the run has sinks.
    """

    def __init__(self, policy: Policy, decide: Decide, *, sinked: bool) -> None:
        """Take what is decided outside."""
        self._policy = policy
        self._decide = decide
        self._sinked = sinked

    async def __call__(self, driver: "DurableDriver", effect: RunTools) -> Event:
        """Return what became of a batch."""
        if self._sinked:  # before any of the calls, which then run at once
            problem = await driver.flush("flush")
            if problem is not None:
                return Interrupted(driver.now, problem)
        if driver.base.follower is not None:
            await driver.base.follower.started(effect)
        found: dict[str, JsonObject] = {}
        calls = effect.calls
        while calls:
            await self._perform(driver, effect, calls, found)
            calls = await self._interrupted(driver, effect, found)
        return self._folded(driver, effect, found)

    async def _perform(
        self,
        driver: "DurableDriver",
        effect: RunTools,
        calls: Sequence[CallState],
        found: dict[str, JsonObject],
    ) -> None:
        """Perform calls as `run_tools` does: at once, those that are declared sequential alone and in call order."""
        base = driver.key("call")
        steps: list[Step] = []
        for call in calls:
            step = functools.partial(self._call, driver, effect, call, f"{base}/{call.asked.id}", found)
            if call.tool.sequential:
                await together(driver.base, steps, effect.max_parallel)
                steps = []
                await step()
            else:
                steps.append(step)
        await together(driver.base, steps, effect.max_parallel)

    async def _call(
        self,
        driver: "DurableDriver",
        effect: RunTools,
        call: CallState,
        key: str,
        found: dict[str, JsonObject],
    ) -> None:
        below = isinstance(call.tool.function, RunBelow)
        asked = found.get(call.asked.id)  # a person wants it to be run again
        offset = 0 if asked is None else cast(int, asked["interrupted"])

        async def act(attempt: int) -> JsonObject:
            policy = "retry" if attempt == 1 or below else policy_for(call.tool, self._policy)
            begun = offset + attempt - 1
            if policy == "ask":
                return FrozenDict({"interrupted": begun})
            if policy == "unknown":
                now = driver.base.port.now()
                return _told(lost(effect, call, now, begun), call, effect, now)
            handled = "retry" if asked is None else "ask"
            return await self._run(driver, effect, call, begun, handled)

        found[call.asked.id] = await driver.journal.once(key, act, counted=not below)

    async def _run(  # one call, and all that is known of it
        self, driver: "DurableDriver", effect: RunTools, call: CallState, begun: int, handled: str
    ) -> JsonObject:
        """Run one call through its wrappers, as long as nothing cuts it short."""
        place = effect.calls.index(call)
        alone = effect._replace(calls=(call,), shares=(effect.shares[place],))
        session = driver.sessions(begun)
        event, cut = await driver.within(lambda: run_tools(session, alone))
        records = session.children.records if session.children is not None else ()
        result: CallResult | None
        if isinstance(event, Executed):
            (result,) = event.results
            if begun and not isinstance(call.tool.function, RunBelow) and not is_idempotent(call.tool):
                note = interrupted_note(effect, call, event.now, begun, handled)
                result = result._replace(entries=(note, *result.entries))
            return _told(result, call, effect, event.now, records=records)
        result = next(iter(session.so_far()), None)
        return _told(result, call, effect, cut.now, cut, records=records)

    async def _interrupted(
        self, driver: "DurableDriver", effect: RunTools, found: dict[str, JsonObject]
    ) -> tuple[CallState, ...]:
        """Let a person decide the calls that were interrupted; return those that are to be run again."""
        open_calls = [call for call in effect.calls if "interrupted" in found[call.asked.id]]
        if not open_calls:
            return ()
        requests = tuple(
            [question(effect, call, cast(int, found[call.asked.id]["interrupted"])) for call in open_calls]
        )
        again: list[CallState] = []
        for call, decision in zip(open_calls, await self._decide(driver, requests), strict=True):
            if isinstance(decision, Approve):
                again.append(call)
                continue
            begun = cast(int, found[call.asked.id]["interrupted"])
            result = lost(effect, call, driver.now, begun, decision)
            found[call.asked.id] = _told(result, call, effect, driver.now)
        return tuple(again)

    def _folded(self, driver: "DurableDriver", effect: RunTools, found: dict[str, JsonObject]) -> Event:
        """Return the event of the batch: what became of its calls, in their order."""
        results: list[CallResult] = []
        now, cut = driver.now, None
        for call in effect.calls:
            told = found[call.asked.id]
            now = max(now, cast(float, told["now"]))
            cut = cut if cut is not None else cast("JsonObject | None", told["cut"])
            driver.journal.recorder.adopt(
                [from_fields(cast(JsonObject, one)) for one in cast("Sequence[Json]", told["records"])]
            )
            if told["result"] is not None:
                results.append(result_from_json(told["result"], call, effect.run, driver.models))
        if cut is None:
            return Executed(now, tuple(results))
        stop = None if cut["stop"] is None else get(cut["stop"], Stop)
        broken = get_broken(cut["broken"])
        if broken is None:
            driver.interrupts.settle()
        return Interrupted(now, broken, tuple(results), None, stop)


async def together(session: Session, steps: Sequence[Step], limit: int | None) -> None:
    """Perform steps at once; what one raises is raised as it is: an engine knows its own exceptions."""
    if len(steps) == 1:
        await steps[0]()
    elif steps:
        try:
            await session.port.together(steps, limit)
        except BaseExceptionGroup as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from group


def question(effect: RunTools, call: CallState, begun: int) -> ApprovalRequest:
    """Return what a person is asked about an interrupted call; `begun`: how often it was begun."""
    run = effect.run
    return ApprovalRequest(
        digest=digest([run.run_id, call.id, call.digest, "interrupted", begun]),
        run_id=run.run_id,
        agent=run.agent,
        call_id=call.id,
        tool=call.tool.name,
        arguments=call.arguments,
        prompts=(ASKED,),
        asked_by=INTERRUPTED,
        always="off",
        timeout=None,
    )


def lost(
    effect: RunTools, call: CallState, now: float, begun: int, decision: Decision | None = None
) -> CallResult:
    """Return the result of a call that was begun `begun` times, and is not run again: unknown, or as a person says."""
    handled = "unknown" if decision is None else "ask"
    outcome = Outcome("unknown", LOST_NOTE, attempts=begun, by="runtime")
    if isinstance(decision, Answer):
        outcome = Outcome("answered", decision.content, attempts=begun, by="person")
    elif isinstance(decision, Deny) and decision.message:
        outcome = Outcome("unknown", decision.message, attempts=begun, by="person")
    entry = interrupted_note(effect, call, now, begun, handled, decision)
    return CallResult(replace(call, outcome=outcome), effect.run, 0, (entry,))


def interrupted_note(  # noqa: PLR0917  # all that the record says
    effect: RunTools, call: CallState, now: float, begun: int, handled: str, decision: Decision | None = None
) -> Entry:
    """Return the record of a call that was interrupted, and of what became of it."""
    facts: dict[str, object] = {"interrupted": begun, "handled": handled}
    if decision is not None:
        facts["decision"] = put(decision, Decision)
    run = effect.run
    return Entry("note", run.run_id, run.run_step, now, call=call.asked.id, facts=facts)


def _told(  # noqa: PLR0917  # all that is recorded
    result: CallResult | None,
    call: CallState,
    effect: RunTools,
    now: float,
    cut: Interrupted | None = None,
    records: Sequence[Json] = (),
) -> JsonObject:
    """Return what is recorded of a call; `records`: of the runs below it."""
    why: Json = None
    if cut is not None:
        why = json_object(broken=put_broken(cut.broken), stop=put(cut.stop))
    written = None if result is None else result_to_json(result, call, effect.run)
    return json_object(result=written, now=now, cut=why, records=FrozenList(records))
