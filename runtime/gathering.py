"""Facts: which gatherers a point calls, and how what they brought reaches its reducers."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ..capabilities.call_state import CallState
from ..capabilities.compose import Chain
from ..capabilities.frozen import FrozenDict
from ..capabilities.messages import Usage
from ..capabilities.records import replace
from ..capabilities.state import RunState
from .chains import active, call_of, inactive_links
from .ledger import left
from .phases import Effect, Gather, Gathered, GatherJob, Phase
from .work import Failure, Work

UNKNOWN = Usage()
# Call id ("" for a run point) -> key -> fact.
Facts: TypeAlias = Mapping[str, FrozenDict[object]]
NONE: Facts = {}
NOTHING_OFF: frozenset[tuple[str, str]] = frozenset()


def gather_run(work: Work, hook: str, phase: Phase) -> Effect | None:
    """Choose the active links of a run point; return the effect that gathers for it, or None."""
    chain = work.setup.plan.chains[hook]
    if not chain.gatherers and not chain.conditional:
        work.inactive = NOTHING_OFF
        return None
    return gather(work, hook, [(chain, work.run)], phase)


def gather(
    work: Work, hook: str, points: Sequence[tuple[Chain, RunState | CallState]], phase: Phase
) -> Effect | None:
    """Choose the active links of a point's records; return the effect that gathers for all of them, or None."""
    inactive = NOTHING_OFF
    jobs: list[GatherJob] = []
    for chain, record in points:
        if chain.conditional:
            inactive |= inactive_links(chain, record)
        if chain.gatherers:
            call_id = call_of(record) or ""
            jobs += [GatherJob(link, record) for link in active(chain.gatherers, inactive, call_id)]
    work.inactive = inactive
    if not jobs:
        return None
    work.phase = phase
    limits = work.setup.limits
    return Gather(hook, tuple(jobs), work.run, limits.tool_timeout, left(limits.requests, work.run.requests))


def book(work: Work, event: Gathered) -> Facts:
    """Write the facts down and charge their requests; return call id ("" for a run point) -> key -> fact.

    Raises `Failure` when a gatherer failed.
    """
    effect = work.effect
    assert isinstance(effect, Gather)
    work.run = charge(work.run, event.charged, event.usages)
    by_call: dict[str, dict[str, object]] = {}
    for job, fact in zip(effect.jobs, event.facts, strict=False):
        call_id = call_of(job.record) or ""
        by_call.setdefault(call_id, {})[job.link.key] = fact
        work.write(
            "gathered",
            actor=job.link.key,
            call=call_id or None,
            index=job.link.index,
            hook=job.link.hook,
            facts={"fact": fact},
        )
    if event.charged:
        work.write("note", facts={"requests": event.charged, "usages": event.usages})
    if event.broken is not None:
        raise Failure(event.broken.reason, event.broken.cause)
    return {call_id: FrozenDict(facts) for call_id, facts in by_call.items()}


def charge(run: RunState, requests: int, usages: Sequence[Usage | None], **changes: object) -> RunState:
    """Return the run with requests and their usage booked, and other changes made in the same copy."""
    if not requests and not usages and not changes:
        return run
    return replace(run, requests=run.requests + requests, usage=booked(run.usage, usages), **changes)


def booked(usage: Usage, usages: Sequence[Usage | None]) -> Usage:
    """Return the sum; a response without usage makes it unknown."""
    for item in usages:
        usage += item if item is not None else UNKNOWN
    return usage
