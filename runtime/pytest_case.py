"""Cases: a failed run taken from its log so that it fails again, without a model, a tool or a gatherer of its own.

The model gives what it gave, tools end as they ended, facts and decisions are those on record; capabilities run in
earnest, wrappers included. Exchanges that the failure does not need are left out.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import anyio
from attrs import evolve, frozen

from ..capabilities.call_state import CallState
from ..capabilities.capability import AnyCapability
from ..capabilities.compose import Chain, Link
from ..capabilities.frozen import FrozenDict, FrozenList, Json, canonical, freeze
from ..capabilities.injected import ToolContext, ToolFailed, ToolUnknown
from ..capabilities.scopes import capability_list
from ..capabilities.state import RunState
from ..capabilities.tools import Tool
from ..capabilities.verdict import Outcome
from .audit import AuditRecord, from_fields, portable
from .building import Given, with_tools
from .codec import from_json, from_text
from .decisions import ApprovalRequest, Decision, Deny
from .errors import Reason, ReplayError, RunError
from .log import Log
from .log_replay import begun
from .permissions import Permissions
from .port import LocalPort
from .pytest_exchanges import Exchange, exchanges_of
from .result import RunResult
from .runs import Driving, Run
from .scripted_model import ScriptedModel
from .setup import Setup
from .what_if_setup import caller_of, setup_from
from .what_if_tree import place_of

NOT_ON_RECORD = "[not on record]"
Way = tuple[str, str | None, str | None, str | None]


@frozen(eq=False)
class Case:
    """A run on record, to be run again: how it started, its exchanges by step, and by what it failed.

    `above`: the permissions of the runs above it, where it is one of a sub-agent.
    """

    started: AuditRecord
    exchanges: tuple[Exchange, ...]
    reason: Reason
    above: tuple[Permissions, ...] = ()

    @property
    def way(self) -> Way:
        """By what it fails: the kind of reason, capability, hook and field."""
        return way_of(self.reason)

    def run(self, capabilities: Iterable[AnyCapability] = ()) -> RunResult[object]:
        """Run it again under a list. Raises RunError when it fails."""
        members = capability_list(tuple(capabilities), "capabilities")
        setup = self._setup(members)
        moved = begun(setup, self.started, caller_of(self.started))
        given = Given(members, (), self._decide, None, (), LocalPort(), None)
        driving = Driving(Run(setup, moved, Log(), None, self._decide), given)
        return anyio.run(driving.drive)

    def fails(self, capabilities: Iterable[AnyCapability]) -> bool:
        """Tell whether it fails the same way again."""
        try:
            self.run(capabilities)
        except RunError as error:
            return way_of(error.reason) == self.way
        except (TypeError, ValueError):
            return False  # it cannot even be started
        return False

    def shrunk(self, capabilities: Iterable[AnyCapability]) -> "Case":
        """Return the case with the fewest exchanges that still fails the same way, left out one by one from the front.

        Raises ReplayError when it does not fail so at all.
        """
        members = capability_list(tuple(capabilities), "capabilities")
        if not self.fails(members):
            raise ReplayError(
                "the run does not fail so from its log alone: another list, or the outside had a part in it, such as a "
                f"cancellation; it failed by {self.way[0]}: {self.reason}"
            )
        case, i = self, 1
        while i < len(case.exchanges):
            fewer = evolve(case, exchanges=(*case.exchanges[:i], *case.exchanges[i + 1 :]))
            if fewer.fails(members):
                case = fewer
            else:
                i += 1
        return case

    def to_text(self) -> str:
        """Return the case as JSON text, which `read_case` reads."""
        exchanges = FrozenList(one.to_json() for one in self.exchanges)
        started = freeze(self.started.to_dict())
        data = {"started": started, "exchanges": exchanges, "reason": _written(self.reason)}
        if self.above:
            data["above"] = portable(self.above)
        return canonical(data)

    def _setup(self, members: tuple[AnyCapability, ...]) -> Setup:
        setup = evolve(setup_from(self.started, members, None), above=self.above)
        replies = [reply for one in self.exchanges for reply in one.script()]
        model = ScriptedModel(replies, name=setup.model.name, profile=setup.model.profile)
        own = set(setup.tool_names) & set(cast("FrozenDict[Json]", self.started.facts["descriptors"]))
        tools = [
            self._scripted(tool) if tool.name in own and tool.function is None else tool
            for tool in setup.inventory
        ]
        bundled = {tool.name for tool in setup.inventory if tool.function is not None}
        setup = with_tools(
            evolve(setup, model=model), members, [tool for tool in tools if tool.name not in bundled]
        )
        return _with_facts(setup, self._fact)

    def _scripted(self, tool: Tool) -> Tool:
        async def end(arguments: dict[str, object], context: ToolContext) -> object:
            return self._outcome(context)

        made = Tool.from_schema(tool.name, tool.description, tool.parameters, end)
        return evolve(tool, function=made.function)

    def _outcome(self, context: ToolContext) -> object:
        """End as the call ended on record. Raises what gives the model the same words."""
        written = self._at(context.step).outcomes.get(context.call_id)
        if written is None:
            return NOT_ON_RECORD
        outcome = from_json(written, Outcome)
        if outcome.status == "failed":
            raise ToolFailed(str(outcome.content))
        if outcome.status == "unknown":
            raise ToolUnknown(str(outcome.content))
        return outcome.content if isinstance(outcome.content, str) else list(outcome.content)

    def _fact(self, link: Link, record: RunState | CallState) -> Json:
        call = record.id if isinstance(record, CallState) else None
        step = (record.run if isinstance(record, CallState) else record).run_step
        return self._at(step).fact(link.hook, link.key, call)

    def _decide(self, requests: tuple[ApprovalRequest, ...]) -> list[Decision]:
        decided: dict[str, Json] = {}
        for one in self.exchanges:
            decided |= one.decisions
        return [
            from_json(decided[one.call_id], cast("type[Decision]", Decision))
            if one.call_id in decided
            else Deny()
            for one in requests
        ]

    def _at(self, step: int) -> Exchange:
        return self.exchanges[min(step, len(self.exchanges) - 1)]


def way_of(reason: Reason) -> Way:
    """Return what tells one failure from another."""
    return type(reason).__name__, reason.key, reason.hook, reason.field


def _written(reason: Reason) -> Json:
    return portable(reason)


def _with_facts(setup: Setup, fact: Callable[[Link, RunState | CallState], Json]) -> Setup:
    """Return the setup with gatherers that bring what is on record."""

    def told(link: Link) -> Link:
        async def gather(record: RunState | CallState, outside: object) -> Json:
            return fact(link, record)

        return evolve(link, call=gather)

    def scripted(chain: Chain) -> Chain:
        return evolve(chain, gatherers=tuple(told(link) for link in chain.gatherers))

    plan = setup.plan
    chains = {name: scripted(chain) for name, chain in plan.chains.items()}
    tools = {
        name: evolve(one, admit=scripted(one.admit), after=scripted(one.after))
        for name, one in plan.tools.items()
    }
    unknown = evolve(plan.unknown, admit=scripted(plan.unknown.admit), after=scripted(plan.unknown.after))
    return evolve(setup, plan=evolve(plan, chains=chains, tools=tools, unknown=unknown))


def case_of(log: Log, run: str | None = None) -> Case:
    """Return the case of a failed run on record. Raises ReplayError for one that did not fail or cannot be replayed."""
    place = place_of(log, run)
    tape, started = place.tape, place.started
    ends = [record for record in tape.records if record.kind == "run_ended"]
    if not ends or "reason" not in ends[-1].facts:
        how = "has not ended" if not ends else f"ended as {ends[-1].facts['status']}"
        raise ReplayError(f"run {tape.run!r} did not fail: it {how}")
    reason = from_json(ends[-1].facts["reason"], Reason)
    # The history stands there; the store is the run's own affair.
    facts = FrozenDict(
        {name: fact for name, fact in started.facts.items() if name not in {"conversation", "stored"}}
    )
    return Case(evolve(started, facts=facts), exchanges_of(tape.records), reason, place.above)


def read_case(text: str) -> Case:
    """Return the case of a text that `Case.to_text` wrote. Raises CodecError for any other."""
    data = cast("FrozenDict[Json]", from_text(text, cast(Any, Json)))  # Any: an alias that names itself
    exchanges = tuple(Exchange.of_json(one) for one in cast(FrozenList, data["exchanges"]))
    started = from_fields(cast("Mapping[str, Json]", data["started"]))
    above = from_json(data.get("above", FrozenList()), tuple[Permissions, ...])
    return Case(started, exchanges, from_json(data["reason"], Reason), above)
