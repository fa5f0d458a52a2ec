"""Why: which capabilities decided what became of one call. Found by folding the run again with fewer of them.

Knows what became of the call, not the reasons: a set is named since with it, and with none smaller, the call comes to
the same as on record.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import frozen

from ..capabilities.capability import AnyCapability
from ..capabilities.frozen import FrozenList, Json, same
from ..capabilities.scopes import capability_list
from .audit import AuditRecord
from .errors import ReplayError
from .log import Log
from .what_if_tree import lane_of, place_of

if TYPE_CHECKING:
    from .agent import Agent

Holds: TypeAlias = Callable[[Sequence[AnyCapability]], bool]
# So many folds are tried for the smallest set; then single capabilities are left out as long as that goes.
MAX_FOLDS = 2_000


@frozen
class Why:
    """Who decided a call. `keys`: the smallest set of capabilities, in list order; none where it needed nobody.

    `fate`: what became of it. `smallest`: False where the list was too long to try all sets of that size.
    """

    call: str
    fate: str
    keys: tuple[str, ...]
    smallest: bool

    def __str__(self) -> str:
        """One sentence."""
        if not self.keys:
            return f"{self.call}: {self.fate}. No capability decided that: it comes to the same without any."
        only = "the smallest set" if self.smallest else "a set, of which none can be left out,"
        return f"{self.call}: {self.fate}. Decided by {', '.join(self.keys)}: {only} with which it comes to the same."


def why(
    log: Log,
    call: str,
    capabilities: Iterable[AnyCapability],
    *,
    agent: "Agent[Any] | None" = None,  # Any: its output may be of any type
    run: str | None = None,
) -> Why:
    """Find the smallest set of a run's capabilities with which a call comes to what it came to.

    `run`: as for `what_if`, one of a sub-agent too, with the list of that one. Raises ReplayError for a call that is
    not in the run, or when even the whole list judges it otherwise.
    """
    members = capability_list(tuple(capabilities), "capabilities")
    place = place_of(log, run)
    tape = place.tape
    fate = fate_of(tape.records, call)
    if fate is None:
        known = ", ".join(dict.fromkeys(record.call for record in tape.records if record.call)) or "none"
        raise ReplayError(f"no call {call!r} was judged in run {tape.run!r}; there are: {known}")

    def holds(part: Sequence[AnyCapability]) -> bool:
        try:
            lane = lane_of(place, tuple(part), agent)
        except ValueError:
            return False  # no agent would take that part of the list
        lane.drive()
        return same(fate_of(list(lane.log), call), fate)

    if not holds(members):
        raise ReplayError(
            f"with this list {call} does not come to what is on record: is it the list of the run?"
        )
    found, smallest = _smallest(members, holds)
    return Why(call, _said(fate), tuple(member.key for member in found), smallest)


def _smallest(members: Sequence[AnyCapability], holds: Holds) -> tuple[Sequence[AnyCapability], bool]:
    folds = 0
    for size in range(len(members)):
        folds += comb(len(members), size)
        if folds > MAX_FOLDS:
            break
        for part in combinations(members, size):
            if holds(part):
                return part, True
    else:
        return members, True
    left = list(members)
    for member in members:
        fewer = [one for one in left if one is not member]
        if holds(fewer):
            left = fewer
    return left, False


def fate_of(records: Iterable[AuditRecord], call: str) -> Json:
    """Return what became of a call before it ran: whether a person was asked, and then what; None if not on record."""
    asked = False
    fate: list[Json] = []
    for record in records:
        if record.kind == "run_suspended" and call in _calls(record):
            asked, fate = True, fate or ["waits for a decision"]
        if record.call != call:
            continue
        if record.kind == "call_decided":
            asked = True
        elif record.kind == "call_admitted":
            fate = ["allowed", record.facts["arguments"], record.facts.get("injected")]
        elif record.kind == "call_refused":
            fate = [str(record.facts["status"]), record.facts["content"], record.actor]
    return FrozenList([asked, *fate]) if fate else None


def _calls(record: AuditRecord) -> Iterator[str]:
    calls = record.facts["calls"]
    assert isinstance(calls, list)
    yield from map(str, calls)


def _said(fate: Json) -> str:
    assert isinstance(fate, list)
    asked = "after a person was asked, " if fate[0] else ""
    return f"{asked}{str(fate[1]).replace('_', ' ')}"
