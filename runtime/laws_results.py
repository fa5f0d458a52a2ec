"""The laws on many capabilities at once: what `capfold check` prints, as data. Nothing here prints."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import hypothesis
from attrs import frozen

from ..capabilities.capability import AnyCapability
from .building import ToolLike
from .laws_check import violations
from .laws_code import shown
from .laws_lists import Finding, Report, report_on
from .laws_steps import members_of
from .laws_table import LAWS, Law
from .laws_violation import LawViolation

Verdict: TypeAlias = Literal["ok", "broken", "-"]
_DECLARED: Final = {"idempotent": "idempotent", "order": "order_insensitive"}
_TEXT: Final = 2_000


@frozen(kw_only=True)
class Results:
    """What was found: per capability and law, and `report` of those that are one list, None for a single one.

    "-": the law does not speak of any hook that the capability has, or of what it does not declare.
    """

    table: Mapping[str, Mapping[str, Verdict]]
    violations: tuple[LawViolation, ...]
    report: Report | None
    examples: int
    seed: int

    def to_json(self) -> dict[str, object]:
        """Return it as JSON."""
        return {
            "examples": self.examples,
            "seed": self.seed,
            "capabilities": {key: dict(row) for key, row in self.table.items()},
            "violations": [_violation(one) for one in self.violations],
            "findings": [_finding(one) for one in self.report.findings] if self.report is not None else [],
        }


def _violation(found: LawViolation) -> dict[str, object]:
    return {
        "law": found.law,
        "key": found.key,
        "what": found.what,
        "hook": found.hook,
        "field": found.field,
        "before": _text(found.before),
        "after": _text(found.after),
        "record": _text(found.record),
        "code": found.code,
    }


def _finding(found: Finding) -> dict[str, object]:
    return {
        "kind": found.kind,
        "keys": list(found.keys),
        "hook": found.hook,
        "what": found.what,
        "field": found.field,
        "first": _text(found.first),
        "second": _text(found.second),
        "record": _text(found.record),
    }


def _text(value: object) -> str | None:
    return None if value is None else shown(value, _TEXT)


def results_of(
    capabilities: Iterable[AnyCapability],
    listed: Sequence[AnyCapability],
    tools: Sequence[ToolLike] | None,
    *,
    examples: int,
    seed: int,
) -> Results:
    """Check each capability and, where all obey the laws and there are several, the list of them.

    Raises ValueError or TypeError for what no agent would take.
    """
    settings = hypothesis.settings(max_examples=examples, database=None, deadline=None, derandomize=False)
    table: dict[str, Mapping[str, Verdict]] = {}
    broken: list[LawViolation] = []
    for cap in capabilities:
        found = list(violations(cap, tools=tools, settings=settings, seed=seed))
        broken += found
        table[cap.key] = _row(cap, {one.law for one in found})
    report = None
    if len(listed) > 1 and not broken:
        try:
            report = report_on(tuple(listed), tools=tools, settings=settings, seed=seed)
        except LawViolation as violation:
            broken.append(violation)
    return Results(table=table, violations=tuple(broken), report=report, examples=examples, seed=seed)


def _row(cap: AnyCapability, broken: set[str]) -> Mapping[str, Verdict]:
    return {name: "broken" if name in broken else _applies(cap, law) for name, law in LAWS.items()}


def _applies(cap: AnyCapability, law: Law) -> Verdict:
    members = members_of((cap,)).values()
    speaks = law.once is not None or any(member.overrides & {*law.hooks} for member in members)
    declared = law.name not in _DECLARED or any(_DECLARED[law.name] in member.declares for member in members)
    return "ok" if speaks and declared else "-"
