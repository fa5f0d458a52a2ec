"""checked_fold: reducers folded over one record with the runtime's rules, outside any run. For tests and audits."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from attrs import evolve

from ..capabilities.call_state import CallState
from ..capabilities.capability import AnyCapability
from ..capabilities.compose import Chain, compose
from ..capabilities.grid import HOOKS, REDUCERS
from ..capabilities.scopes import capability_list
from ..capabilities.state import RunState
from ..capabilities.tools import Placed
from .chains import active, call_link, call_of, inactive_links, run_of, stamped
from .errors import run_error
from .guards import Edge
from .scribe import transition_problem
from .transitions import Transition, check
from .work import Failure

R = TypeVar("R", bound=RunState | CallState)


def checked_fold(
    capabilities: Sequence[AnyCapability], hook: str, record: R, *, strict: bool = False
) -> tuple[R, tuple[Transition, ...]]:
    """Fold a list's reducers of one hook over a record, and check each call as a run would.

    Returns the last record and one `Transition` per call that tried something. Raises HookError at the first
    rejection, at a hook that raises or returns something else, and in strict mode at a restore; ValueError for a
    name that is no reducer; TypeError for a record of the other kind.
    """
    if hook not in REDUCERS:
        raise ValueError(f"{hook!r} is no reducer; reducers are {', '.join(REDUCERS)}")
    if type(record).__name__ != HOOKS[hook].record:
        raise TypeError(f"{hook} takes a {HOOKS[hook].record}, not {type(record).__name__}")
    capabilities = capability_list(capabilities, "capabilities")
    if isinstance(record, CallState):
        composed = compose(capabilities, [Placed(evolve(record.tool, capabilities=()), (), ())])
        plan = composed.tool(record.tool.name)
        chains: Mapping[str, Chain] = {
            "before_tool_execute": plan.repairs if record.problems else plan.before,
            "admit_tool_execute": plan.admit,
            "after_tool_execute": plan.after,
        }
    else:
        composed = compose(capabilities)
        chains = composed.chains
    chain = chains[hook]
    found: list[Transition] = []
    try:
        call_id = call_of(record)
        for link in active(chain.links, inactive_links(chain, record), call_id or ""):
            after = call_link(link, record)
            checked, transition = check(
                record, after, Edge(link.key, link.index, link.hook, members=composed.members)
            )
            if transition is None:
                continue
            found.append(transition)
            problem = transition_problem(transition, run_of(record).run_step, call_id, strict=strict)
            if problem is not None:
                raise Failure(problem)
            record = stamped(checked, record, link, call_id)
    except Failure as failure:
        raise run_error(failure.reason, cause=failure.cause) from failure.cause
    return record, tuple(found)
