"""From a suspended run, however it was kept, to a run that goes on: once, when the agent has a store.

The order closes the race of two who decide: what waits is read, decisions are matched and taken by the machine,
and only then is the snapshot claimed; nothing has run by then, and whoever comes second is refused.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..capabilities.frozen import FrozenDict
from . import machine
from .approving import decision_list, match
from .building import Given, check_needs, check_options
from .decisions import Approver, Decision
from .errors import CodecError, DecisionError
from .log import Log
from .result import RunResult
from .runs import Run
from .setup import Setup
from .snapshot import read_snapshot, refuse_changed
from .stores import MessageStore, SnapshotClaimed
from .storing import Claim, answer_of
from .work import MachineState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .decisions import ApprovalRequest


async def resume(
    setup: Setup,
    given: Given,
    suspended: object,
    decisions: Mapping[str, Decision] | None,
    *,
    deps: object,
    approver: Approver | None,
    allowed: frozenset[str],
) -> Run:
    """Return the run that goes on, and how its snapshot is claimed. `Agent.resume` says what it takes and raises."""
    store = given.store
    if isinstance(suspended, RunResult):
        state, log = of_result(suspended, setup, allowed)
        text = suspended.snapshot() if store is not None else ""
    elif isinstance(suspended, str):
        text = await text_of(suspended, store)
        state, log = read_snapshot(text, setup, allow_changed=allowed)
    else:
        raise TypeError(
            "resume takes a suspended RunResult, the text of its snapshot, or its run id in the store, "
            f"not {type(suspended).__name__}"
        )
    if state.conversation is not None and store is None:
        raise ValueError(
            f"the run goes on with conversation {state.conversation.name!r}: the agent needs the store that it is in"
        )
    run_id = state.run.run_id
    known = store is not None and await is_held(store, run_id, text)
    deps = given.deps if deps is None else deps
    check_needs(state.setup, deps, state.run.context)
    asked = approver if approver is not None else given.approver
    check_options(state.setup.limits, asked)
    if not decisions and asked is not None:
        decisions = by_digest(state.pending, await given.port.ask(asked, state.pending, None))
    moved = machine.resume(state, match(state.pending, decisions or {}), given.port.now())
    if store is None:
        return Run(state.setup, moved, log, deps, asked)
    if not known:
        await answer_of(store.hold(run_id, text))
    return Run(state.setup, moved, log, deps, asked, Claim(store, run_id, text))


def of_result(result: "RunResult[object]", setup: Setup, allowed: frozenset[str]) -> tuple[MachineState, Log]:
    """Return the state of a suspended result and a log that continues its own. Raises ValueError for any other."""
    held = result.machine
    if held is None or result.status != "suspended":
        raise ValueError(f"only a suspended run can be resumed; this one is {result.status}")
    if held.setup.name != setup.name:
        raise ValueError(f"the run is of agent {held.setup.name!r}; this is {setup.name!r}")
    refuse_changed(FrozenDict(held.setup.prints), setup.prints, allowed)
    if allowed:
        held = held._replace(setup=setup)
    return held, Log.resume(*result.log.tails)


async def text_of(suspended: str, store: MessageStore | None) -> str:
    """Return the snapshot: the text itself, a JSON object, or what the store holds under a run id.

    Raises LookupError for an id that the store does not have, SnapshotClaimed for a run that was resumed.
    """
    if suspended.lstrip().startswith("{"):
        return suspended
    if store is None:
        raise CodecError(f"no snapshot, and the agent has no store that could hold a run {suspended!r:.80}")
    return await answer_of(store.held(suspended))


async def is_held(store: MessageStore, run_id: str, text: str) -> bool:
    """Tell whether the store knows the run; one that it does not is held before it is claimed, so it goes on once too.

    Raises SnapshotClaimed when it was resumed, or has been suspended anew since this snapshot.
    """
    try:
        held = await answer_of(store.held(run_id))
    except LookupError:
        return False
    if held != text:
        raise SnapshotClaimed(run_id)
    return True


def by_digest(pending: "Sequence[ApprovalRequest]", answered: "Sequence[Decision]") -> dict[str, Decision]:
    """Return the answers of an approver by the requests' digests. Raises DecisionError for too few or too many."""
    found = decision_list(answered)
    if len(found) != len(pending):
        raise DecisionError(f"{len(pending)} decisions are wanted, {len(found)} were given")
    return {request.digest: decision for request, decision in zip(pending, found, strict=True)}
