"""The one loop that calls reducers. Nothing else in the project does.

For each link: call it, compare, judge, write down. A record that comes back as it went in costs one `is`.
"""

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TypeVar, cast

from ..capabilities.call_state import CallState
from ..capabilities.combinators import Predicate
from ..capabilities.compose import Chain, Link
from ..capabilities.frozen import FrozenDict, Json
from ..capabilities.grid import HOOKS
from ..capabilities.records import replace
from ..capabilities.state import RunState
from ..capabilities.views import Projection
from .errors import HookFailed, InvalidReturn, Place, message_of
from .guards import Edge
from .reprs import bounded_repr
from .transitions import check, stamp
from .work import Failure, Work

R = TypeVar("R", bound=RunState | CallState)
NO_FACTS: FrozenDict[object] = FrozenDict()


def run_of(record: RunState | CallState) -> RunState:
    """Return the run state of a record, which may be one itself."""
    return record if isinstance(record, RunState) else record.run


def call_of(record: RunState | CallState) -> str | None:
    """Return the id of the call that a record is about, None for the run as a whole."""
    return record.id if isinstance(record, CallState) else None


def place_of(link: Link, record: RunState | CallState) -> Place:
    """Return where a reason arose that a hook gave on a record."""
    step, call = run_of(record).run_step, call_of(record)
    return Place(key=link.key, index=link.index, hook=link.hook, step=step, call=call)


def inactive_links(chain: Chain, record: RunState | CallState) -> frozenset[tuple[str, str]]:
    """Return what a point must not call: (call id or "", link identity), by conditions evaluated on `record` once.

    A capability that stands in several scopes is called at the outermost of its places whose condition holds.
    """
    if not chain.conditional:
        return frozenset()
    call_id = call_of(record) or ""
    off: set[tuple[str, str]] = set()
    for links in (chain.choice, chain.gatherers):
        taken: set[str] = set()
        for link in links:
            if link.key in taken or not all(_holds(link, condition, record) for condition in link.conditions):
                off.add((call_id, link_id(link)))
            else:
                taken.add(link.key)
    return frozenset(off)


def link_id(link: Link) -> str:
    """Return what tells a link from all others of its point."""
    return f"{link.hook}:{id(link)}"


def _holds(link: Link, condition: Predicate, record: RunState | CallState) -> bool:
    try:
        verdict: object = condition(run_of(record))
    except Exception as error:
        raise Failure(
            HookFailed(
                message=f"the condition of {link.key} raised {type(error).__name__}: {message_of(error)}",
                error=type(error).__name__,
                **place_of(link, record),
            ),
            error,
        ) from error
    if type(verdict) is not bool:
        discard(verdict)
        raise Failure(
            InvalidReturn(
                message=f"the condition of {link.key} must return True or False, not {bounded_repr(verdict):.80}",
                **place_of(link, record),
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
    audit_all, lends = work.setup.audit_all, chain.hook == "after_run"
    for link in active(chain.links, work.inactive, call_id or "") if work.inactive else chain.links:
        given = record
        if facts:
            own = FrozenDict({link.key: facts[link.key]}) if link.key in facts else NO_FACTS
            given = replace(record, facts=own)
        after = call_link(link, lend(given) if lends else given)
        if after is not given:
            record = accept(work, given, after, link, call_id)
            work.run = run_of(record)
        elif audit_all:
            write_silent(work, link, call_id)
    if facts and record.facts:
        record = replace(record, facts=NO_FACTS)
        work.run = run_of(record)
    return record


def lend(record: R) -> R:
    """Return the record with an output of its own: a hook may write into one that has lists, and is found out."""
    output = run_of(record).output
    return record if output is None or type(output) is str else replace(record, output=deepcopy(output))


def write_silent(work: Work, link: Link, call_id: str | None) -> None:
    """Write down a hook that changed nothing; for audit="all"."""
    work.write("transition", actor=link.key, call=call_id, index=link.index, hook=link.hook)


def call_link(link: Link, record: R) -> R:
    """Call one reducer and see that it returns a record of its own class. Raises `Failure`."""
    reducer = link.call  # read first: what a slot holds costs 180 instructions more when called as a method
    try:
        after = reducer(record)
    except Exception as error:
        raise Failure(hook_failed(link, record, error), error) from error
    if after is not record and type(after) is not type(record):
        raise Failure(invalid_return(link, record, after))
    return after


def hook_failed(link: Link, record: RunState | CallState, error: BaseException) -> HookFailed:
    """Return the reason of a hook that raised."""
    return HookFailed(
        message=f"{link.key}.{link.hook} raised {type(error).__name__}: {message_of(error)}",
        error=type(error).__name__,
        **place_of(link, record),
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
        wraps = HOOKS[link.hook].kind == "wrapper"
        what = f"a coroutine: {'did you forget an await?' if wraps else 'a reducer is a plain function'}"
    elif isinstance(after, type(record)):
        what = f"a subclass of it, {type(after).__name__}"
    else:
        what = "None: did you forget to return the record?" if after is None else type(after).__name__
    return InvalidReturn(
        message=f"{link.key}.{link.hook} must return a {wanted}, and returned {what}",
        **place_of(link, record),
    )


def accept(
    work: Work,
    before: R,
    after: R,
    link: Link,
    call_id: str | None,
    *,
    arguments_problem: Callable[[FrozenDict[Json]], str | None] | None = None,
) -> R:
    """Judge one transition, write it down, and return the record that goes on. Raises `Failure` on a rejection."""
    setup = work.setup
    edge = Edge(link.key, link.index, link.hook, setup.output.problem, arguments_problem, setup.plan.members)
    record, transition = check(before, after, edge)
    if transition is None:
        if setup.audit_all:
            write_silent(work, link, call_id)
        return record
    problem = work.write_transition(transition, call_id)
    if problem is not None:
        raise Failure(problem)
    if link.hook in {"before_run", "before_model_request"}:  # whose view is examined afterwards
        who = (link.key, link.index, link.hook)
        work.writers = {**work.writers, **dict.fromkeys(transition.changes, who)}
    if record is not before:
        record = stamped(record, before, link, call_id)
        if isinstance(record, RunState) and isinstance(before, RunState):
            start = before.history_start if link.hook == "before_run" else len(before.messages)
            return cast(R, dated(record, before, start, work.now))
    return record


def dated(run: RunState, before: RunState, start: int, now: float) -> RunState:
    """Return the run with the clock's time on messages that a hook brought in without one, from `start` on."""
    if run.messages is before.messages:
        return run
    fresh = {id(message): replace(message, at=now) for message in run.messages[start:] if message.at is None}
    messages = run.messages[:start] + tuple(
        fresh.get(id(message), message) for message in run.messages[start:]
    )
    shown = run.request_messages
    if shown is not None and any(id(message) in fresh for message in shown.messages):
        task = fresh.get(id(shown.task), shown.task)
        shown = Projection(
            tuple(fresh.get(id(message), message) for message in shown.messages), shown.covers, task=task
        )
    return replace(run, messages=messages, request_messages=shown) if fresh else run


def stamped(record: R, before: R, link: Link, call_id: str | None) -> R:
    """Write into fresh latches who set them."""
    if isinstance(record, RunState):
        return stamp(record, before, link.key, link.hook, call_id)  # type: ignore[arg-type,return-value]  # one of the two records
    run = stamp(record.run, before.run, link.key, link.hook, call_id)  # type: ignore[union-attr]  # one of the two records
    return record if run is record.run else replace(record, run=run)
