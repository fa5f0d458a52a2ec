"""The laws of what a capability declares: idempotent, order_insensitive. And what two results have in common."""

from collections.abc import Callable, Iterator

from attrs import frozen

from ..capabilities.call_state import CallState
from ..capabilities.state import RunState
from .chains import run_of
from .laws_breach import Breach, differing
from .laws_lives import Record
from .laws_steps import Step


def idempotent_breach(step: Step) -> Breach | None:
    """Say what a second call on its own result changed, where none should."""
    if "idempotent" not in step.capability.declares:
        return None
    second = step.fold(step.checked)
    if second is None:
        return Breach("failed on what it made itself")
    for name, once, twice in differing(step.checked, second):
        return Breach("made something else of its own result", name, once, twice)
    return None


def order_breach(step: Step) -> Breach | None:
    """Say how the result depends on another capability's place, where it should not."""
    if "order_insensitive" not in step.capability.declares:
        return None
    for what, partner in _partners(step.given):
        other = step.fold(partner(step.given))
        if other is None:
            return Breach(f"failed after {what}")
        for name, first, last in differing(effective(partner(step.checked)), effective(other)):
            return Breach(f"depends on whether it comes before or after {what}", name, first, last)
    return None


_Partner = Callable[[Record], Record]


def _partners(record: Record) -> Iterator[tuple[str, _Partner]]:
    """Yield what another capability might do at the same hook, in words and as a function."""
    if isinstance(record, RunState):
        for tool in record.tools[:3]:
            yield f"one that hides {tool.name!r}", _hider(tool.name)
        return
    yield "one that refuses the call", lambda call: as_call(call).refuse("no")
    yield "one that asks a person", lambda call: as_call(call).require_approval("may it?")


def _hider(hidden: str) -> _Partner:
    return lambda state: run_of(state).select_tools(lambda tool: tool.name != hidden)


@frozen
class _Decision:
    """What a verdict comes to; who said it first, and why, is no difference."""

    verdict: str
    asks: frozenset[str]
    stopped: bool
    failed: bool


@frozen
class _Request:
    tools: tuple[object, ...]
    view: tuple[object, ...]
    settings: object
    instructions: str
    slots: object
    stopped: bool
    failed: bool


def effective(record: Record) -> object:
    """Return what a record comes to: which tools and messages are shown, what becomes of a call."""
    run = run_of(record)
    ended = run.stopped is not None, run.failed is not None
    if isinstance(record, RunState):
        return _Request(run.tools, run.view, run.settings, run.instructions, run.slots, *ended)
    verdict = record.verdict
    asks = frozenset(ask.prompt for ask in verdict.approval)
    decided = "refused" if verdict.refused else "asked" if asks else "answered" if verdict.answer else "none"
    return _Decision(decided, asks, *ended)


def as_call(record: Record) -> CallState:
    """Return a record that is a call's."""
    assert isinstance(record, CallState)
    return record
