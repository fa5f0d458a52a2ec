"""`fold`: what a capability list makes of a record at one hook. Pure, without the runtime, without checks."""

from collections.abc import Iterable
from typing import TypeVar, cast

from .call_state import CallState
from .capability import AnyCapability
from .combinators import Leaf, leaves
from .grid import HOOKS, REDUCERS
from .scopes import capability_list
from .state import RunState

R = TypeVar("R", bound=RunState | CallState)


def fold(capabilities: Iterable[AnyCapability], hook: str, record: R) -> R:
    """Call the reducers of one hook in order and return the record that comes out.

    The list is expanded as an agent does it: groups to their members, after hooks of `nested` in reverse,
    `when` asked once, on the record as given, `for_tools` by the call's tool. Nothing that a hook writes is
    checked, restored or logged: `capfold.runtime.checked_fold` does that.

    Raises ValueError for a hook that is no reducer, TypeError for a record of another kind than the hook's or
    an item of the list that is no capability.
    """
    spec = HOOKS.get(hook)
    if spec is None or spec.kind != "reducer":
        what = "is no hook" if spec is None else f"is a {spec.kind}, which only a run can call"
        raise ValueError(f"{hook!r} {what}; fold takes a reducer: {', '.join(REDUCERS)}")
    if type(record) is not (RunState if spec.record == "RunState" else CallState):
        raise TypeError(f"{hook} folds a {spec.record}, not {type(record).__name__}")
    listed = leaves(capability_list(capabilities, "capabilities"), after=spec.reverse_in_nested)
    active = [
        leaf.capability for leaf in listed if hook in leaf.capability.overrides and _applies(leaf, record)
    ]
    for capability in active:
        record = cast(R, getattr(capability, hook)(record))
    return record


def _applies(leaf: Leaf, record: RunState | CallState) -> bool:
    if isinstance(record, RunState):
        return leaf.holds(record)
    return leaf.covers(record.tool) and leaf.holds(record.run)
