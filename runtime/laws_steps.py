"""Steps: one reducer of one capability, called on one record, with what the runtime's check makes of it.

Knows no law: what a step must be is the table's business.
"""

from collections.abc import Mapping, Sequence

from attrs import field, frozen

from ..capabilities.call_state import CallState
from ..capabilities.capability import AnyCapability
from ..capabilities.combinators import leaves
from ..capabilities.state import RunState
from .chains import discard
from .guards import Edge
from .laws_lives import Record
from .laws_purity import Copy, Reads, watched
from .transitions import Transition, check


@frozen(eq=False)
class Step:
    """What one call of a reducer did.

    `pristine`: the record, which the reducer never saw; `copy`: of it, which it got; `after`: what it returned, or None
    with `error`, the exception it raised. `whole`: it returned a record of the right class. `checked`: the record
    that a run would go on with. `transition`: what was tried, None when nothing was.
    """

    capability: AnyCapability
    hook: str
    pristine: Record
    copy: Copy[Record]
    after: object = None
    error: Exception | None = None
    checked: Record = field(default=None)
    transition: Transition | None = None

    @property
    def given(self) -> Record:
        """The record that the reducer got."""
        return self.copy.made

    @property
    def whole(self) -> bool:
        """Whether a record of the right class came back."""
        return self.error is None and type(self.after) is type(self.given)

    @property
    def result(self) -> Record:
        """What the reducer returned, where it is whole."""
        assert isinstance(self.after, RunState | CallState)
        return self.after

    def as_called(self) -> object:
        """Return what the reducer would have returned of the record itself; raises what it raised."""
        if self.error is not None:
            raise self.error
        return self.copy.returned(self.result) if self.whole else self.after

    def again(self, record: Record, reads: Reads) -> object:
        """Return what the reducer makes of another record, and note what it reads; raises what it raises."""
        reducer = getattr(self.capability, self.hook)
        return watched(lambda: reducer(record), reads)

    def fold(self, record: Record) -> Record | None:
        """Return the record that a run would go on with after the reducer, None where it would end by a failure."""
        step = step_of(self.capability, self.hook, record)
        rejected = step.transition is not None and step.transition.rejected
        return None if not step.whole or rejected else step.checked


def members_of(capabilities: Sequence[AnyCapability]) -> Mapping[str, AnyCapability]:
    """Return the capabilities of a list that are called, by key: of a combinator, its members."""
    return {leaf.capability.key: leaf.capability for leaf in leaves(capabilities)}


def step_of(capability: AnyCapability, hook: str, record: Record) -> Step:
    """Call a reducer on a copy of a record, and check the transition as a run would."""
    copy = Copy(record)
    given = copy.made
    try:
        after = getattr(capability, hook)(given)
    except Exception as error:  # noqa: BLE001  # whatever a hook raises is what is looked for
        return Step(capability, hook, record, copy, error=error, checked=given)
    if type(after) is not type(given):
        discard(after)
        return Step(capability, hook, record, copy, after, checked=given)
    edge = Edge(capability.key, 0, hook, members={capability.key: capability})
    checked, transition = check(given, after, edge)
    return Step(capability, hook, record, copy, after, checked=checked, transition=transition)
