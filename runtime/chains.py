"""The one loop that calls reducers. Nothing else in the project does.

For each link: call it, compare, judge, write down. A record that comes back as it went in costs one `is`.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import TypeVar

from ..capabilities.call_state import CallState
from ..capabilities.compose import Chain, Link
from ..capabilities.frozen import FrozenDict, Json
from ..capabilities.records import replace
from ..capabilities.state import RunState
from .errors import HookFailed, InvalidReturn
from .guards import Edge
from .transitions import check, stamp
from .work import Failure, Work

R = TypeVar("R", bound=RunState | CallState)
NO_FACTS: FrozenDict[object] = FrozenDict()


def run_of(record: RunState | CallState) -> RunState:
    """Return the run state of a record, which may be one itself."""
    return record if type(record) is RunState else record.run  # type: ignore[union-attr]  # one of the two records


def inactive_links(chain: Chain, record: RunState | CallState) -> frozenset[tuple[str, str]]:
    """Return what a point must not call: (call id or "", link identity), by conditions evaluated on `record` once.

    A capability that stands in several scopes is called at the outermost of its places whose condition holds.
    """
    if not chain.conditional:
        return frozenset()
    run = run_of(record)
    call_id = record.id if isinstance(record, CallState) else ""
    off: set[tuple[str, str]] = set()
    for links in (chain.choice, chain.gatherers):
        taken: set[str] = set()
        for link in links:
            if link.key in taken or not all(_holds(link, condition, run) for condition in link.conditions):
                off.add((call_id, link_id(link)))
            else:
                taken.add(link.key)
    return frozenset(off)


def link_id(link: Link) -> str:
    """Return what tells a link from all others of its point."""
    return f"{link.hook}:{id(link)}"


def _holds(link: Link, condition: object, run: RunState) -> bool:
    assert callable(condition)
    try:
        verdict = condition(run)
    except Exception as error:
        raise Failure(
            HookFailed(
                message=f"the condition of {link.key} raised {type(error).__name__}: {error}",
                key=link.key,
                index=link.index,
                hook=link.hook,
                step=run.run_step,
                error=type(error).__name__,
            ),
            error,
        ) from error
    if type(verdict) is not bool:
        discard(verdict)
        raise Failure(
            InvalidReturn(
                message=f"the condition of {link.key} must return True or False, not {verdict!r:.80}",
                key=link.key,
                index=link.index,
                hook=link.hook,
                step=run.run_step,
            )
        )
    return verdict


def active(links: tuple[Link, ...], inactive: frozenset[tuple[str, str]], call_id: str) -> tuple[Link, ...]:
    """Return the links that a point calls."""
    if not inactive:
        return links
    return tuple(link for link in links if (call_id, link_id(link)) not in inactive)


def call_chain(work: Work, chain: Chain, record: R, facts: Mapping[str, object] = NO_FACTS) -> R:
    """Call the reducers of a chain in order, each transition checked and written down; return the last record.

    `work.run` follows after every link, so that a failure leaves the last accepted state. Raises `Failure`.
    """
    call_id = record.id if isinstance(record, CallState) else None
    audit_all = work.setup.audit_all
    for link in active(chain.links, work.inactive, call_id or "") if work.inactive else chain.links:
        given = record
        if facts:
            own = FrozenDict({link.key: facts[link.key]}) if link.key in facts else NO_FACTS
            given = replace(record, facts=own)
        after = call_link(link, given)
        if after is not given:
            record = accept(work, given, after, link, call_id)
            work.run = run_of(record)
        elif audit_all:
            work.write("transition", actor=link.key, call=call_id, index=link.index, hook=link.hook)
    if facts and record.facts:
        record = replace(record, facts=NO_FACTS)
        work.run = run_of(record)
    return record


def call_link(link: Link, record: R) -> R:
    """Call one reducer and see that it returns a record of its own class. Raises `Failure`."""
    try:
        after = link.call(record)
    except Exception as error:
        raise Failure(hook_failed(link, record, error), error) from error
    if after is not record and type(after) is not type(record):
        raise Failure(invalid_return(link, record, after))
    return after


def hook_failed(link: Link, record: RunState | CallState, error: BaseException) -> HookFailed:
    """Return the reason of a hook that raised."""
    return HookFailed(
        message=f"{link.key}.{link.hook} raised {type(error).__name__}: {error}",
        key=link.key,
        index=link.index,
        hook=link.hook,
        step=run_of(record).run_step,
        call=record.id if isinstance(record, CallState) else None,
        error=type(error).__name__,
    )


def discard(value: object) -> None:
    """Close a coroutine that nobody will await, so that nothing warns of it later and elsewhere."""
    if inspect.iscoroutine(value):
        value.close()


def invalid_return(link: Link, record: RunState | CallState, after: object) -> InvalidReturn:
    """Return the reason of a hook that returned something else than its record."""
    wanted = type(record).__name__
    discard(after)
    if inspect.iscoroutine(after):
        what = "a coroutine: a reducer is a plain function"
    elif isinstance(after, type(record)):
        what = f"a subclass of it, {type(after).__name__}"
    else:
        what = "None: did you forget to return the record?" if after is None else type(after).__name__
    return InvalidReturn(
        message=f"{link.key}.{link.hook} must return a {wanted}, and returned {what}",
        key=link.key,
        index=link.index,
        hook=link.hook,
        step=run_of(record).run_step,
        call=record.id if isinstance(record, CallState) else None,
    )


def accept(
    work: Work,
    before: R,
    after: R,
    link: Link,
    call_id: str | None,
    *,
    arguments_problem: "Callable[[FrozenDict[Json]], str | None] | None" = None,
) -> R:
    """Judge one transition, write it down, and return the record that goes on. Raises `Failure` on a rejection."""
    setup = work.setup
    edge = Edge(link.key, link.index, link.hook, setup.output.problem, arguments_problem, setup.plan.members)
    record, transition = check(before, after, edge)
    if transition is None:
        if work.setup.audit_all:
            work.write("transition", actor=link.key, call=call_id, index=link.index, hook=link.hook)
        return record
    problem = work.write_transition(transition, call_id)
    if problem is not None:
        raise Failure(problem)
    if link.hook in {"before_run", "before_model_request"}:  # whose view is examined afterwards
        who = (link.key, link.index, link.hook)
        work.writers = {**work.writers, **dict.fromkeys(transition.changes, who)}
    if record is not before:
        record = stamped(record, before, link, call_id)
    return record


def stamped(record: R, before: R, link: Link, call_id: str | None) -> R:
    """Write into fresh latches who set them."""
    if isinstance(record, RunState):
        return stamp(record, before, link.key, link.hook, call_id)  # type: ignore[arg-type,return-value]  # one of the two records
    run = stamp(record.run, before.run, link.key, link.hook, call_id)  # type: ignore[union-attr]  # one of the two records
    return record if run is record.run else replace(record, run=run)
