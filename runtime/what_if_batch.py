"""What became of a batch of calls, under another list: outcomes on record, refolded with the shares that it gives.

A share is what is left of a limit, split among those of the batch that may take from it; another list may leave
another batch. So what was used on record may be more than a call would have had, and a share that was spent on record
may be larger. Knows nothing of how the lane goes on.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from attrs import evolve

from ..capabilities.call_state import CallState
from ..capabilities.frozen import FrozenDict, FrozenList, Json, same
from ..capabilities.messages import Usage
from ..capabilities.records import replace
from ..capabilities.verdict import Outcome
from .audit import AuditRecord
from .below import NOTHING, Spent
from .errors import LimitExceeded, Reason, UsageUnknown
from .ledger import exceeded
from .phases import Broken, CallResult, Phase, RunTools
from .replay_batch import decided_by
from .replay_facts import entry_of, is_edge, latched, read
from .setup import Setup
from .what_if_records import Recorded

NO_OUTCOME = "[not on record: this call did not run]"
# Told from which step on the result is conditional, and why.
Unsure = Callable[[int, str], None]


class Batches:
    """The calls of a run on record, by id."""

    def __init__(self, recorded: Recorded, setup: Setup, unsure: Unsure) -> None:
        """Sort the records by call."""
        self.recorded = recorded
        self.setup = setup
        self.unsure = unsure
        self.of_call: dict[str, list[AuditRecord]] = {}
        for record in recorded.all:
            if record.call is not None:
                self.of_call.setdefault(record.call, []).append(record)

    def last(self, call: str, kind: str) -> AuditRecord | None:
        """Return the record of a kind of a call."""
        return next((one for one in reversed(self.of_call.get(call, [])) if one.kind == kind), None)

    def results(self, effect: RunTools) -> tuple[CallResult, ...]:
        """Return what became of the calls of a batch, and what of it ends the run."""
        found = [self._result(effect, i) for i in range(len(effect.calls))]
        broken = self._broken(effect)
        if broken is not None:
            found[-1] = found[-1]._replace(broken=found[-1].broken or broken)
        return tuple(found)

    def known(self, effect: RunTools) -> tuple[CallResult, ...]:
        """Return what was known of a batch that was cut short."""
        results = self.results(effect)
        return tuple([one for one in results if self.last(one.call.asked.id, "tool_settled") is not None])

    def waits(self, effect: RunTools) -> bool:
        """Tell whether the run on record still waits for one of these calls, which runs another agent."""
        calls = [call.asked.id for call in effect.calls]
        return self.recorded.held() and any(
            self.last(call, "call_admitted") is not None and self.last(call, "tool_settled") is None
            for call in calls
        )

    def at(self, effect: RunTools) -> float | None:
        """Return when the last of these calls had settled, None where none is on record."""
        settled = [self.last(call.asked.id, "tool_settled") for call in effect.calls]
        return max([self.recorded.at(one) for one in settled if one is not None], default=None)

    def _result(self, effect: RunTools, i: int) -> CallResult:
        call, step = effect.calls[i], effect.run.run_step
        name = call.asked.id
        settled, admitted = self.last(name, "tool_settled"), self.last(name, "call_admitted")
        if settled is None or admitted is None:
            self.unsure(step + 1, f"{name} did not run, so that its outcome is not on record")
            return CallResult(replace(call, outcome=Outcome("succeeded", NO_OUTCOME, attempts=1)), effect.run)
        if not same(admitted.facts["arguments"], call.arguments):
            self.unsure(step + 1, f"{name} would have run with other arguments")
        outcome = read(settled.facts["outcome"], Outcome, settled)
        ours = cast("FrozenDict[Json]", self.recorded.started.facts["capabilities"])
        if outcome.by in ours and outcome.by not in self.recorded.members:
            self.unsure(
                step + 1, f"the outcome of {name} is one that {outcome.by} made, which is not in the list"
            )
        edges = [one for one in self.of_call[name] if is_edge(one) and self.recorded.is_member(one)]
        done = decided_by(replace(call, outcome=outcome), edges)
        run, entries = latched(effect.run, edges), tuple(map(entry_of, edges))
        runs, spent = below_of(settled)
        extra = cast(int, settled.facts.get("extra", 0))
        found = CallResult(done, run, extra, entries, None, runs, spent)
        if extra and not self._wrapped(call):
            self.unsure(step + 1, f"{name} was run again by a wrapper that is not in the list")
            return found._replace(extra=0)
        return self._within(effect, i, found)

    def _wrapped(self, call: CallState) -> bool:
        plan = self.setup.plan
        return plan.wraps and bool(plan.tool(call.asked.name).wrappers.links)

    def _within(self, effect: RunTools, i: int, found: CallResult) -> CallResult:
        """Return a result that is within its call's share: what used more would have ended the run."""
        call, share, step = effect.calls[i], effect.shares[i], effect.run.run_step
        allowance = effect.allowances.get(call.asked.id)
        spent = found.spent
        if share is not None and found.extra + spent.tool_calls > share:
            self.unsure(step + 1, f"{call.asked.id} would have had a smaller share of tool_calls")
            reason = _spent("tool_calls", effect, share, self.setup, call.asked.id)
            extra = min(found.extra, share)
            left = spent._replace(tool_calls=min(spent.tool_calls, share - extra))
            return found._replace(extra=extra, spent=left, broken=Broken(reason))
        requests = allowance.requests if allowance is not None else None
        if requests is not None and spent.requests > requests:
            self.unsure(step + 1, f"{call.asked.id} would have had a smaller share of requests")
            reason = _spent("requests", effect, requests, self.setup, None)
            return found._replace(spent=spent._replace(requests=requests), broken=Broken(reason))
        return found

    def _broken(self, effect: RunTools) -> Broken | None:
        """Return what broke while the batch ran, where it would have under the other list."""
        step = effect.run.run_step
        broken = self.recorded.broken(step, Phase.EXECUTING)
        if broken is None:
            return None
        reason = broken.reason
        places = {call.asked.id: i for i, call in enumerate(effect.calls)}
        if reason.call is not None and reason.call not in places:
            return None  # it would not have run
        if not isinstance(reason, LimitExceeded | UsageUnknown):
            return broken
        lost = self._lost(effect, reason, places)
        if lost is None:
            return broken if not isinstance(reason, LimitExceeded) else Broken(self._as_now(effect, reason))
        self.unsure(step + 1, lost)
        return None

    def _lost(
        self, effect: RunTools, reason: LimitExceeded | UsageUnknown, places: Mapping[str, int]
    ) -> str | None:
        """Say why a share that was spent on record would not have been, or None."""
        recorded = reason.share if isinstance(reason, LimitExceeded) else None
        if reason.call is not None:  # its body was run again
            if not self._wrapped(effect.calls[places[reason.call]]):
                return f"{reason.call} was run again by a wrapper that is not in the list"
            shares = [effect.shares[places[reason.call]]]
        else:
            shares = [getattr(one, reason.limit) for one in effect.allowances.values()]
        if recorded is None:
            return None if shares else "the agent that spent its share would not have run"
        if any(share is not None and share <= recorded for share in shares):
            return None
        return f"there would have been a larger share of {reason.limit}, or nobody to spend it"

    def _as_now(self, effect: RunTools, reason: LimitExceeded) -> Reason:
        """Return the reason with the share that the call has here."""
        if reason.call is None:
            return reason
        share = effect.shares[[call.asked.id for call in effect.calls].index(reason.call)]
        used = effect.run.tool_calls + (share or 0)
        if share == reason.share and used == reason.used:
            return reason
        return _spent("tool_calls", effect, share or 0, self.setup, reason.call)


def _spent(name: str, effect: RunTools, share: int, setup: Setup, call: str | None) -> Reason:
    """Return the reason of a share that was spent. `call`: whose body was run again."""
    used = Spent.by(effect.run).of(name) or 0
    reason = exceeded(name, used + share, getattr(setup.limits, name) or 0, effect.run.run_step, share)
    return evolve(reason, call=call)


def below_of(settled: AuditRecord) -> tuple[tuple[str, ...], Spent]:
    """Return the runs below a settled call, and what they used."""
    facts = settled.facts
    if "below" not in facts:
        return (), NOTHING
    runs = tuple(str(cast("FrozenDict[Json]", one)["run"]) for one in cast(FrozenList, facts["below"]))
    by_model = cast("FrozenDict[Json]", facts["usage_by_model"])
    numbers: Any = facts  # Any: counts, as `facts_below` wrote them
    spent = Spent(
        numbers["requests"],
        numbers["tool_calls"],
        read(facts["usage"], Usage, settled),
        FrozenDict({name: read(usage, Usage, settled) for name, usage in by_model.items()}),
        numbers["cost"],
    )
    return runs, spent
