"""Retries: how often tools may fail, and calls miss the prepared set, before the run ends."""

from collections.abc import Sequence

from ..capabilities.call_state import CallState
from ..capabilities.frozen import FrozenDict
from ..capabilities.records import replace
from .admission import NOT_AVAILABLE, prepared_by_name
from .errors import ToolRetriesExhausted, UnselectedRetriesExhausted
from .work import Failure, Work

FAILED = frozenset({"validation_error", "failed", "unknown"})
GOOD = frozenset({"succeeded", "answered"})


def count_retries(work: Work, batch: Sequence[CallState]) -> None:
    """Count failed steps per tool, and calls outside the prepared set. Raises `Failure` when none is forgiven.

    A step counts once per tool: failed when some call failed and none succeeded; a success starts anew.
    """
    prepared = prepared_by_name(work)
    failed: dict[str, bool] = {}
    outside: str | None = None
    for call in batch:
        assert call.outcome is not None
        if call.asked.name not in prepared:
            outside = outside or call.asked.name
        elif call.outcome.status in GOOD:
            failed[call.asked.name] = False
        elif call.outcome.status in FAILED:
            failed.setdefault(call.asked.name, True)
    counts = _counted(work.run.tool_retries, failed)
    if counts != work.run.tool_retries:
        work.run = replace(work.run, tool_retries=counts)
    if outside is not None:
        _count_outside(work, outside)
    for name, has_failed in failed.items():
        used = counts.get(name, 0)
        assert isinstance(used, int)
        if has_failed and used > prepared[name].max_retries:
            raise Failure(
                ToolRetriesExhausted(
                    message=f"tool {name!r} failed in {used} steps in a row; "
                    f"{prepared[name].max_retries} are forgiven",
                    tool=name,
                    step=work.run.run_step,
                )
            )


def _counted(before: FrozenDict[object], failed: dict[str, bool]) -> FrozenDict[object]:
    counts = dict(before)
    for name, has_failed in failed.items():
        used = counts.pop(name, 0)
        assert isinstance(used, int)
        if has_failed:
            counts[name] = used + 1
    return FrozenDict(counts)


def _count_outside(work: Work, tool: str) -> None:
    used = work.run.unselected_retries_used + 1
    work.run = replace(work.run, unselected_retries_used=used)
    if used > work.setup.unselected_retries:
        raise Failure(
            UnselectedRetriesExhausted(
                message=f"the model called {tool!r}, which is {NOT_AVAILABLE}, in {used} steps; "
                f"{work.setup.unselected_retries} are forgiven",
                tool=tool,
                step=work.run.run_step,
            )
        )
