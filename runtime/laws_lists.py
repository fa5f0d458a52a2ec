"""check_capabilities: a whole list. Each of its capabilities obeys the laws; what they do to each other is reported.

That a result depends on the order is no fault, and often meant; whoever composes the list should know it. Only what a
capability promised of itself is raised.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, Literal, TypeAlias

import hypothesis
from attrs import define, field, frozen
from hypothesis import HealthCheck, given

from ..capabilities.call_state import CallState
from ..capabilities.capability import AnyCapability
from ..capabilities.compose import Link, compose
from ..capabilities.grid import REDUCERS
from ..capabilities.scopes import capability_list
from ..capabilities.state import RunState
from ..capabilities.verdict import Verdict
from .chains import run_of
from .errors import HookFailed, IllegalTransition, InvalidReturn, InvalidSelection, InvalidView
from .laws_breach import Breach, differing
from .laws_check import check_capability, settings_of
from .laws_code import shown
from .laws_declared import effective
from .laws_drawn import lives_for
from .laws_lives import Life, Record, live, quiet
from .laws_states import NO_FACTS, Facts
from .laws_steps import Step, members_of, step_of
from .laws_table import LAWS
from .laws_values import Tools
from .laws_violation import Found, raised

_HERE = __name__.rpartition(".")[0]

FindingKind: TypeAlias = Literal["order", "nothing_left", "overruled", "ends_run"]
# Kind -> what it means.
FINDINGS: Final[Mapping[FindingKind, str]] = {
    "order": "the result depends on which of the two comes first",
    "nothing_left": "together they leave no tool, and each alone leaves some",
    "overruled": "one stops the run over a call that the other refuses anyway",
    "ends_run": "the list ends the run by an error that is no law broken by one of them alone",
}


@frozen(kw_only=True)
class Finding:
    """What two capabilities of a list do to each other; `keys` in list order.

    `field`, `first`, `second`: what differs, with the list's order and with the other one, for "order". `record`: one
    where it happens.
    """

    kind: FindingKind
    keys: tuple[str, ...]
    hook: str
    what: str
    field: str | None = None
    first: object = None
    second: object = None
    record: Record | None = None

    def __str__(self) -> str:
        """Say it in a line, and for an order in two more."""
        line = f"{self.kind:<12} {' and '.join(self.keys)} in {self.hook}: {self.what}"
        if self.field is None:
            return line
        return f"{line}\n    {self.field}: {shown(self.first, 90)}\n    other way: {shown(self.second, 90)}"


@frozen(kw_only=True)
class Report:
    """What was found in a list of `keys`, in so many runs: one finding for each kind, hook and pair."""

    keys: tuple[str, ...]
    runs: int
    findings: tuple[Finding, ...] = ()

    def __str__(self) -> str:
        """Say it finding by finding."""
        count = f"{len(self.findings)} finding{'' if len(self.findings) == 1 else 's'}"
        head = f"{', '.join(self.keys)}: {self.runs} runs, {count}"
        return "\n".join([head, *map(str, self.findings)])


def check_capabilities(
    capabilities: Sequence[AnyCapability],
    *,
    tools: Tools = None,
    facts: Facts = NO_FACTS,
    laws: Collection[str] | None = None,
    settings: hypothesis.settings | None = None,
) -> Report:
    """Check each capability of a list as `check_capability` does, then live runs with all of them.

    Returns what was found between them: pairs whose order changes the result, selectors that leave nothing, a stop
    over a call that is refused anyway, lists that end a run by an error. Raises LawViolation for a broken law,
    and for an order that matters between two that declare "order_insensitive"; TypeError and ValueError as
    `check_capability`, and for a list that no agent would take.
    """
    caps = capability_list(capabilities, "check_capabilities")
    compose(caps)  # refuses two of one key at once, and not as something that was found
    for cap in caps:
        own = {name: fact for name, fact in facts.items() if _has(cap, name)}
        check_capability(cap, tools=tools, facts=own, laws=laws, settings=settings)
    return report_on(caps, tools=tools, facts=facts, settings=settings)


def report_on(
    caps: tuple[AnyCapability, ...],
    *,
    tools: Tools = None,
    facts: Facts = NO_FACTS,
    settings: hypothesis.settings | None = None,
    seed: int | None = None,
) -> Report:
    """Live runs with a whole list, and report what was found between its capabilities; as `check_capabilities`."""
    watch = _Watch(caps)

    # What is drawn for a list is large, and slow is what a check of it may be.
    @hypothesis.settings(settings_of(settings), suppress_health_check=list(HealthCheck))
    @given(lives_for(caps, tools=tools, facts=facts))
    def lived(life: Life) -> None:
        watch.live(life)

    with quiet():
        (lived if seed is None else hypothesis.seed(seed)(lived))()
    if watch.broken is not None:
        raise raised(watch.broken, f"from {_HERE}.laws import check_capabilities; check_capabilities(caps)")
    return Report(keys=tuple(cap.key for cap in caps), runs=watch.runs, findings=tuple(watch.found.values()))


def _has(cap: AnyCapability, gatherer: str) -> bool:
    return any(gatherer in member.overrides for member in members_of((cap,)).values())


@define
class _Watch:
    """The runs of a list, and the shortest example of each finding in them."""

    caps: tuple[AnyCapability, ...]
    runs: int = 0
    found: dict[tuple[str, ...], Finding] = field(factory=dict)
    broken: Found | None = None
    members: Mapping[str, AnyCapability] = field(init=False)

    @members.default
    def _members(self) -> Mapping[str, AnyCapability]:
        # A condition belongs to the list, not to a pair: what stands under one is compared only where it is called.
        return members_of(self.caps)

    def live(self, life: Life) -> None:
        """Live one life, and look at every point of it where two capabilities are called one after the other."""
        points: dict[tuple[str, int, str], list[tuple[str, Record]]] = {}

        def call(link: Link, record: Record) -> object:
            if link.key not in self.members:
                return link.call(record)
            step = step_of(self.members[link.key], link.hook, record)
            where = (link.hook, run_of(record).run_step, record.id if isinstance(record, CallState) else "")
            points.setdefault(where, []).append((link.key, record))
            return step.as_called()

        reason = live(life, self.caps, call)
        self.runs += 1
        for (hook, _, _), called in points.items():
            for (one, record), (other, _) in combinations(called, 2):
                pair = self.members[one], self.members[other]
                for finding in _between(*pair, hook, record):
                    self.add(finding)
                    if finding.kind == "order" and all("order_insensitive" in cap.declares for cap in pair):
                        self.broken = self.broken or _promised(finding, pair[0])
        if isinstance(reason, _BY_LIST) and reason.key in self.members and reason.hook in REDUCERS:
            what = f"{type(reason).__name__}: {reason.message}"
            self.add(Finding(kind="ends_run", keys=tuple(self.members), hook=reason.hook, what=what))

    def add(self, finding: Finding) -> None:
        """Keep the finding, where it is the first or the shortest of its kind."""
        name = (finding.kind, finding.hook, *finding.keys)
        known = self.found.get(name)
        if known is None or len(shown(finding.record, 10_000)) < len(shown(known.record, 10_000)):
            self.found[name] = finding


_BY_LIST: Final = (HookFailed, InvalidReturn, IllegalTransition, InvalidView, InvalidSelection)


def _between(one: AnyCapability, other: AnyCapability, hook: str, record: Record) -> Iterator[Finding]:
    """Yield what two capabilities do to each other on a record."""
    alone, alone_too = step_of(one, hook, record), step_of(other, hook, record)
    if not alone.whole or not alone_too.whole:
        return
    both, other_way = _then(alone, other), _then(alone_too, one)
    if both is None or other_way is None:
        return
    keys = (one.key, other.key)
    yield from _fights(keys, hook, record, (alone.checked, alone_too.checked), both)
    for name, first, second in _order_of(both, other_way):
        what = FINDINGS["order"]
        yield Finding(
            kind="order",
            keys=keys,
            hook=hook,
            what=what,
            field=name,
            first=first,
            second=second,
            record=record,
        )
        return


def _promised(finding: Finding, capability: AnyCapability) -> Found:
    """Return the finding as the breach of a law that it is between two that declare their order to be no matter."""
    what = f"depends on whether it comes before or after {finding.keys[1]}"
    breach = Breach(what, finding.field, finding.first, finding.second)
    return Found(LAWS["order"], capability, breach, finding.hook, finding.record)


def _then(step: Step, other: AnyCapability) -> Record | None:
    second = step_of(other, step.hook, step.checked)
    rejected = second.transition is not None and second.transition.rejected
    return None if not second.whole or rejected else second.checked


def _order_of(one: Record, other: Record) -> Iterator[tuple[str, object, object]]:
    """Yield what differs for the run: notes, and who said first what both say, do not."""
    if isinstance(one, CallState) and isinstance(other, CallState):
        yield from differing(effective(one), effective(other))
        for name in ("arguments", "injected", "outcome"):
            yield from ((n, a, b) for n, a, b in differing(one, other) if n == name)
        yield from ((n, a, b) for n, a, b in differing(one, other) if n == "run.slots")
        return
    yield from (
        (n, a, b)
        for n, a, b in differing(one, other)
        if n not in {"notes", "stopped", "failed", "again", "request_messages"}
    )
    yield from differing(effective(one), effective(other))


def _fights(
    keys: tuple[str, str], hook: str, record: Record, alone: tuple[Record, Record], both: Record
) -> Iterator[Finding]:
    def finding(kind: FindingKind) -> Finding:
        return Finding(kind=kind, keys=keys, hook=hook, what=FINDINGS[kind], record=record)

    if isinstance(both, RunState):
        first, second = (made.tools for made in alone if isinstance(made, RunState))
        if not both.tools and first and second:
            yield finding("nothing_left")
        return
    if hook != "admit_tool_execute":
        return
    first_call, second_call = (made for made in alone if isinstance(made, CallState))
    for refusing, acting in ((first_call, second_call), (second_call, first_call)):
        refuses = refusing.verdict.refused is not None and _verdict(record).refused is None
        if refuses and acting.run.stopped is not None:
            yield finding("overruled")
            return


def _verdict(record: Record) -> Verdict:
    assert isinstance(record, CallState)
    return record.verdict
