"""What came of each case, seen from outside: a pytest plugin that looks at the ends of runs and at the errors.

It is told nothing by the tests. It sees every run at the one place where runs come to their result, and every
other error where a test expects one. Knows neither the table of cases nor how a test goes about it.
"""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest
from attrs import define, field

from capfold.runtime import Log, RunError, RunResult
from capfold.runtime.phases import Finish, Suspend
from capfold.runtime.runs import Driving
from capfold.runtime.work import MachineState

_CASE = re.compile(r"test_(c\d+)")
_BY_CAPABILITY = {"transition", "gathered"}
_BY_RUNTIME = {"call_refused", "call_decided", "note"}
Seen: TypeAlias = tuple[str, str]  # the way, and what it looked like


def case_of(test: str) -> str | None:
    """Return the id of the case that a test function belongs to, by its name."""
    found = _CASE.match(test)
    return None if found is None else found[1].upper()


@define
class Observed:
    """What was seen of one case: test functions, how many tests they made, which failed, and the ends."""

    functions: set[str] = field(factory=set)
    tests: int = 0
    failed: list[str] = field(factory=list)
    ends: Counter[Seen] = field(factory=Counter)


class Observer:
    """The plugin. `cases`: id of a case -> what was seen of it."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self.cases: dict[str, Observed] = {}
        self.others: list[str] = []  # tests that failed and belong to no case
        self._ends: Counter[Seen] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Look on while a test runs."""
        self._ends = Counter()
        with pytest.MonkeyPatch.context() as patch:
            self._watch(patch)
            yield
        if isinstance(item, pytest.Function) and (seen := self._of(item.originalname)) is not None:
            seen.functions.add(item.originalname)
            seen.ends += self._ends

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test, and keep one that did not pass."""
        name = report.nodeid.rpartition("::")[2].partition("[")[0]
        seen = self._of(name)
        if seen is not None and report.when == "call":
            seen.tests += 1
        if not report.passed:
            (self.others if seen is None else seen.failed).append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep a file that could not be collected."""
        if report.failed:
            self.others.append(report.nodeid)

    def _of(self, test: str) -> Observed | None:
        case = case_of(test)
        return None if case is None else self.cases.setdefault(case, Observed())

    def _watch(self, patch: pytest.MonkeyPatch) -> None:
        over, expected = Driving.over, pytest.raises

        async def ended(driving: Driving, state: MachineState, end: Finish | Suspend) -> RunResult[object]:
            try:
                result = await over(driving, state, end)
            except RunError as error:
                self._ends[end_of_failure(error)] += 1
                raise
            self._ends[end_of(result)] += 1
            return result

        @contextmanager
        def raises(*wanted: Any, **options: Any) -> Iterator[Any]:  # Any: as pytest's own
            with expected(*wanted, **options) as caught:
                yield caught
            if not isinstance(caught.value, RunError):  # those of runs are seen above
                self._ends["refused", type(caught.value).__name__] += 1

        patch.setattr(Driving, "over", ended)
        patch.setattr(pytest, "raises", raises)


def end_of_failure(error: RunError) -> Seen:
    """Return how a run ended that failed.

    One that names a capability is what became of the write. Where a limit ended the run, and a write was restored
    on the way there, that is what became of it.
    """
    name = type(error.reason).__name__
    if error.reason.key is None and error.partial is not None and way_of(error.partial.log) == "restored":
        return "restored", name
    return "error", name


def end_of(result: RunResult[object]) -> Seen:
    """Return how a run ended that came to a result, by its log."""
    return way_of(result.log), result.status


def way_of(log: Log) -> str:
    """Return the gravest thing on a log: a write restored; a write, or a call refused or decided; or neither."""
    kinds = {record.kind for record in log}
    if "restored" in kinds:
        return "restored"
    settled = any(record.kind == "tool_settled" and _status(record.facts) != "succeeded" for record in log)
    return "recorded" if kinds & (_BY_CAPABILITY | _BY_RUNTIME) or settled else "untouched"


def _status(facts: Any) -> object:  # Any: frozen JSON, whose shape the log fixes
    return facts["outcome"]["status"]
