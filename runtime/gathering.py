"""Facts: which gatherers a point calls, and how what they brought reaches its reducers."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ..capabilities.call_state import CallState
from ..capabilities.compose import Chain
from ..capabilities.frozen import FrozenDict
from ..capabilities.records import copier
from ..capabilities.state import RunState
from .billing import Bill, booked
from .chains import active, call_of, inactive_links
from .ledger import left
from .phases import Effect, Gather, Gathered, GatherJob, Phase
from .work import Work

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
    work.run = charge(work.run, event.charged, event.bills)
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
        write_bills(work, event.charged, event.bills)
    if event.broken is not None:
        raise work.broke(event.broken)
    return {call_id: FrozenDict(facts) for call_id, facts in by_call.items()}


def write_bills(work: Work, requests: int, bills: Sequence[Bill]) -> None:
    """Write down the requests of gatherers, whose responses are not on record, and what they used."""
    work.write("note", facts={"requests": requests, "bills": [bill._asdict() for bill in bills]})


_CHARGED = copier(RunState, "requests", "usage", "usage_by_model", "cost")


def charge(run: RunState, requests: int, bills: Sequence[Bill]) -> RunState:
    """Return the run with requests and their bills booked."""
    if not requests and not bills:
        return run
    return _CHARGED(run, run.requests + requests, *booked(run, bills))
