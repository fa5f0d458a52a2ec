"""What if: the facts of a run on record, under another capability list. Which calls would be judged otherwise?

The machine is fed as in a replay, step by step; what wrappers of the other list would do is not known, so it is left
out. Once a request would have been another one, or a fact is not on record, what follows is conditional, and said to
be. Runs below are facts: the outcomes of their calls.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from attrs import field, frozen

from ..capabilities.capability import AnyCapability
from ..capabilities.frozen import FrozenDict, Json
from ..capabilities.scopes import capability_list
from ..capabilities.state import RunStatus
from .audit import AuditRecord
from .errors import ReplayError
from .log import Log
from .what_if_lane import Lane
from .what_if_records import waits_below
from .what_if_tree import Place, lane_of, list_of, place_of

if TYPE_CHECKING:
    from .agent import Agent

_LISTED = 5
Judgement: TypeAlias = Literal["allowed", "refused", "answered", "invalid", "not executed", "open"]
_BY_STATUS: Mapping[str, Judgement] = {
    "denied": "refused",
    "answered": "answered",
    "validation_error": "invalid",
    "not_executed": "not executed",
}


@frozen
class Judged:
    """A call that the other list judges otherwise. `conditional`: by then the run itself might have been another.

    `before`, `after`: what became of it, and `asked`: whether a person was to decide it, each on record and now.
    """

    step: int
    call: str
    tool: str
    before: Judgement | None
    after: Judgement | None
    conditional: bool

    def __str__(self) -> str:
        """Tool, call and step, and both judgements."""
        after = "not called" if self.after is None else self.after
        before = "not called" if self.before is None else self.before
        hint = " (conditional)" if self.conditional else ""
        return f"{self.tool} {self.call} in step {self.step}: {before} -> {after}{hint}"


@frozen(repr=False, eq=False)
class WhatIf:
    """What another list would have made of a run.

    `steps`: of the run on record; `covered`: how many of them were decided on facts. `conditional_after`: the step
    after which the result is conditional, and `why`; None when none of it is. `refused`: calls that ran and would not
    have, by a verdict, a stop, or since their tool was not selected; `allowed`, `asked`: newly so.
    `status`: of the run on record and of this one, None where it went as far as the facts reach. `control`: the same
    with the agent's own list, which finds nothing unless something is wrong; None without an agent. `not_judged`: the
    ids of the runs below this one, each of which `what_if(..., run=id)` judges, by a list for its agent.
    """

    run: str
    steps: int
    covered: int
    conditional_after: int | None
    why: str | None
    refused: tuple[Judged, ...]
    allowed: tuple[Judged, ...]
    asked: tuple[Judged, ...]
    status: tuple[str, RunStatus | None]
    records: Log
    control: "WhatIf | None" = field(default=None)
    not_judged: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing would have been otherwise."""
        same = self.status[0] == self.status[1]
        return same and self.conditional_after is None and not (self.refused or self.allowed or self.asked)

    def __repr__(self) -> str:
        """Counts, not contents."""
        counts = f"refused={len(self.refused)} allowed={len(self.allowed)} asked={len(self.asked)}"
        return f"<WhatIf {self.run} {counts} covered={self.covered}/{self.steps}>"

    def __str__(self) -> str:
        """Coverage, then each call that is judged otherwise."""
        lines = [f"run {self.run}: {self.covered} of {self.steps} steps decided on facts"]
        if self.conditional_after is not None:
            lines.append(f"  conditional after step {self.conditional_after}: {self.why}")
        for name in ("refused", "allowed", "asked"):
            lines += [f"  newly {name}: {one}" for one in getattr(self, name)]
        before, after = self.status
        if after is not None and before != after:
            lines.append(f"  the run would have ended as {after}, not {before}")
        if self.empty:
            lines.append("  nothing would have been otherwise")
        if self.control is not None and not self.control.empty:
            lines.append("  the control lane, with the agent's own list, is not empty: do not rely on this")
        if self.not_judged:
            more = len(self.not_judged) - _LISTED
            named = ", ".join(self.not_judged[:_LISTED]) + (f" and {more} more" if more > 0 else "")
            lines.append(
                f"  not judged, but taken as they were: the runs below it, {named}; each has an id to name"
            )
        return "\n".join(lines)


def what_if(
    log: Log,
    capabilities: Iterable[AnyCapability],
    *,
    agent: "Agent[Any] | None" = None,  # Any: its output may be of any type
    run: str | None = None,
) -> WhatIf:
    """Judge a run on record by another list of capabilities.

    `agent`: whose tools are judged, with the capabilities of their own, and whose list is the control; without it, the
    tools are those that the log describes. `run`: which one, where the log has several; one of a sub-agent too, with
    the list of that one, `agent` being of the run at the top. Runs below are facts, and not judged. Raises ReplayError
    for a log that cannot be replayed, TypeError or ValueError for a list that no agent would take.
    """
    if not isinstance(log, Log):
        raise TypeError(f"what_if takes a Log, as result.log or read_log(path), not {type(log).__name__}")
    members = capability_list(tuple(capabilities), "capabilities")
    place = place_of(log, run)
    control = None if agent is None else _lane(place, list_of(place, agent), agent, None)
    return _lane(place, members, agent, control)


def _lane(
    place: Place,
    members: tuple[AnyCapability, ...],
    agent: "Agent[Any] | None",
    control: WhatIf | None,
) -> WhatIf:
    tape = place.tape
    if tape.records[-1].kind not in {"run_ended", "run_suspended"} and not any(
        record.kind in {"run_ended", "run_suspended"} for record in tape.records
    ):
        raise ReplayError(f"the log ends before run {tape.run!r} does", tape.places[-1] + 1)
    lane = lane_of(place, members, agent)
    status = lane.drive()
    steps = max(record.step for record in tape.records)
    first = lane.conditional_from
    after = None if first is None else max(0, min(steps, first - 1))
    if after == steps:
        after = None  # nothing of it was left to decide
    refused, allowed, asked = _judged(tape.records, list(lane.log), lane)
    return WhatIf(
        run=tape.run,
        steps=steps,
        covered=steps if after is None else after,
        conditional_after=after,
        why=None if after is None else lane.why,
        refused=refused,
        allowed=allowed,
        asked=asked,
        status=(_status(tape.records), status),
        records=lane.log,
        control=control,
        not_judged=place.below,
    )


def _status(records: Sequence[AuditRecord]) -> str:
    ends = [record for record in records if record.kind in {"run_ended", "run_suspended"}]
    return str(ends[-1].facts["status"]) if ends[-1].kind == "run_ended" else "suspended"


@frozen
class _Call:
    """What became of one call."""

    step: int
    tool: str
    judgement: Judgement
    asked: bool


def _calls(records: Sequence[AuditRecord]) -> dict[str, _Call]:
    found: dict[str, _Call] = {}
    names: dict[str, str] = {}
    asked: set[str] = set()
    for record in records:
        call = record.call
        if record.kind == "model_responded":
            names |= dict(_names(record.facts["response"]))
        elif record.kind == "run_suspended":
            if waits_below(records, record):
                continue  # those are calls of other runs
            waiting = cast("Sequence[str]", record.facts["calls"])
            asked |= set(waiting)
            for one in waiting:
                found.setdefault(one, _Call(record.step, names.get(one, ""), "open", asked=True))
        elif call is None:
            continue
        elif record.kind == "call_decided":
            asked.add(call)
        elif record.kind == "call_admitted":
            found[call] = _Call(record.step, str(record.facts["tool"]), "allowed", call in asked)
        elif record.kind == "call_refused":
            judgement = _BY_STATUS.get(str(record.facts["status"]), "not executed")
            found[call] = _Call(record.step, str(record.facts["tool"]), judgement, call in asked)
    return found


def _names(response: Json) -> Iterator[tuple[str, str]]:
    for one in cast("FrozenDict[Any]", response)["tool_calls"]:  # Any: a response in JSON
        yield one["id"], one["name"]


def _judged(
    recorded: Sequence[AuditRecord], now: Sequence[AuditRecord], lane: Lane
) -> tuple[tuple[Judged, ...], tuple[Judged, ...], tuple[Judged, ...]]:
    before, after = _calls(recorded), _calls(now)
    refused: list[Judged] = []
    allowed: list[Judged] = []
    asked: list[Judged] = []
    for name, call in after.items():
        was = before.get(name)
        conditional = lane.is_conditional(call.step, name)
        then = None if was is None else was.judgement
        judged = Judged(call.step, name, call.tool, then, call.judgement, conditional)
        if call.judgement != "allowed" and then == "allowed":
            refused.append(judged)
        if call.judgement == "allowed" and then != "allowed":
            allowed.append(judged)
        if name in lane.asked and (was is None or not was.asked):
            asked.append(judged)
    return tuple(refused), tuple(allowed), tuple(asked)
