"""Differences between logs: the first record in which two runs part, field by field.

Runs are compared by what they did: numbers, times, seals and the ids that a run was given are left out. Knows nothing
of how a log came about.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

from attrs import frozen

from ..capabilities.frozen import FrozenDict, FrozenList, Json, same
from .audit import AuditRecord
from .short import short

MAX_FIELDS = 12


class _Absent:
    """What stands where one of two sides has nothing."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = _Absent()


@frozen
class Parting:
    """One field that is not the same in both: its path, and what each side has; `ABSENT` where it has none."""

    field: str
    a: object
    b: object

    def __str__(self) -> str:
        """The field, and both values, shortened."""
        return f"{self.field}: {_said(self.a)} | {_said(self.b)}"


def _said(value: object) -> str:
    return repr(value) if value is ABSENT else short(value)


@frozen
class Difference:
    """The first record in which two runs part; `a` or `b` is None where that one has ended before.

    `run` is the id in the first log. `fields`: what differs, at most twelve of them.
    """

    run: str
    a: AuditRecord | None
    b: AuditRecord | None
    fields: tuple[Parting, ...]

    @property
    def place(self) -> str:
        """Whose record it is: actor and hook or kind, with step and call."""
        record = self.a or self.b
        assert record is not None, "one of them is there"
        call = "" if record.call is None else f" of call {record.call}"
        return f"{record.actor} {record.hook or record.kind} in step {record.step}{call}"

    def __str__(self) -> str:
        """Where, and each field with both values."""
        if self.a is None or self.b is None:
            missing = "first" if self.a is None else "second"
            return f"run {self.run}: {self.place}: missing in the {missing}"
        lines = "".join(f"\n  {one}" for one in self.fields)
        return f"run {self.run}, record {self.a.seq}: {self.place}{lines}"


@frozen
class Diff:
    """Two logs side by side. `same`: how many records are equal before the first difference, None without one."""

    same: int
    difference: Difference | None

    def __bool__(self) -> bool:
        """Whether they differ."""
        return self.difference is not None

    def __str__(self) -> str:
        """What is equal, and the first difference."""
        if self.difference is None:
            return f"{self.same} records are equal; there is no difference"
        return f"{self.same} records are equal, then:\n{self.difference}"


def diff(a: Iterable[AuditRecord], b: Iterable[AuditRecord]) -> Diff:
    """Compare two logs, or lists of records, run by run in the order in which they began.

    What is named is the first difference of the first log's order; equal runs have none, whatever their ids.
    """
    first, second = _by_run(a), _by_run(b)
    ids = dict(zip(second, first, strict=False))
    names = list(second)
    equal = 0
    for place, (run, records) in enumerate(first.items()):
        others = second[names[place]] if place < len(names) else []
        for i in range(max(len(records), len(others))):
            one = records[i] if i < len(records) else None
            other = others[i] if i < len(others) else None
            found = difference_of(one, other, ids)
            if found is not None:
                return Diff(equal, Difference(run, one, other, found))
            equal += 1
    for run in names[len(first) :]:
        return Diff(equal, Difference(run, None, second[run][0], ()))
    return Diff(equal, None)


def _by_run(records: Iterable[AuditRecord]) -> dict[str, Sequence[AuditRecord]]:
    found: dict[str, list[AuditRecord]] = {}
    for record in records:
        found.setdefault(record.run, []).append(record)
    return cast("dict[str, Sequence[AuditRecord]]", found)


def difference_of(
    a: AuditRecord | None, b: AuditRecord | None, ids: Mapping[str, str] | None = None
) -> tuple[Parting, ...] | None:
    """Return what differs between two records, None when nothing does. `ids`: runs of `b` by their names in `a`."""
    if a is None or b is None:
        return ()
    if a.digest == b.digest and a.prev == b.prev and a.kind == b.kind:
        return None
    one, other = a.body, b.body
    if ids is not None:
        one["facts"], other["facts"] = _unnamed(one["facts"], {}), _unnamed(other["facts"], ids)
    found = list(_partings("", one, other))
    return tuple(found[:MAX_FIELDS]) or None


def _unnamed(facts: Json, ids: Mapping[str, str]) -> Json:
    """Return facts with the ids of runs as the other log has them, and without the digests that follow from ids."""
    assert isinstance(facts, FrozenDict)
    changed: dict[str, Json] = dict(facts)
    for name in ("parent", "root"):
        value = facts.get(name)
        if isinstance(value, str):
            changed[name] = ids.get(value, value)
    below = facts.get("below")
    if isinstance(below, FrozenList):
        runs = [str(one["run"]) for one in below if isinstance(one, FrozenDict)]
        changed["below"] = FrozenList(ids.get(run, run) for run in runs)
    return FrozenDict(changed)


def _partings(path: str, a: object, b: object) -> Iterator[Parting]:
    """Yield the innermost members that differ; of sequences, each place."""
    if same(a, b):
        return
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for name in [*a, *(name for name in b if name not in a)]:
            inner = f"{path}.{name}" if path else str(name)
            yield from _partings(inner, a.get(name, ABSENT), b.get(name, ABSENT))
    elif isinstance(a, list) and isinstance(b, list):
        for i in range(max(len(a), len(b))):
            inner = f"{path}[{i}]"
            yield from _partings(inner, a[i] if i < len(a) else ABSENT, b[i] if i < len(b) else ABSENT)
    else:
        yield Parting(path, a, b)
