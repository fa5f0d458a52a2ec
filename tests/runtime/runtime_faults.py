"""Faults of the runtime itself, to be planted: what is broken in each, by name. A `RunMachine` must find every one."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import pytest

from capfold.capabilities import CallState
from capfold.capabilities.frozen import canonical, digest
from capfold.capabilities.grid import REDUCERS
from capfold.capabilities.owners import Owner
from capfold.capabilities.records import replace
from capfold.capabilities.state import RunState
from capfold.capabilities.verdict import Verdict
from capfold.runtime import Approve, admission, approving, gathering, guards, transitions
from capfold.runtime.memory_store import MemoryStore

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]
# Any, here and below: what the runtime's own functions take and return
Function: TypeAlias = Callable[..., Any]


def put(name: str, function: Function) -> Plant:
    """Return a plant that puts a function in the place of one of the runtime's."""
    return lambda patch: patch.setattr(f"capfold.runtime.{name}", function)


def nothing(*given: object, **named: object) -> None:
    """Check nothing, do nothing."""


async def nothing_async(*given: object) -> None:
    """Do nothing, and take a moment for it."""


def counter_kept(patch: pytest.MonkeyPatch) -> None:
    """Let a hook's write of a counter pass."""
    judge: Function = transitions._judge  # noqa: SLF001  # the check itself is what is broken

    def lenient(tally: Any, name: str, *more: Any) -> None:
        if name != "requests":
            judge(tally, name, *more)
            return
        before, after = more[2:4]
        tally.changes[name] = transitions.change_of(name, before.requests, after.requests, RunState())

    patch.setattr(transitions, "_judge", lenient)


def guarded_by(patch: pytest.MonkeyPatch, owner: Owner, hooks: tuple[str, ...], guard: Function) -> None:
    """Have another guard judge writes of an owner's fields at some hooks."""
    for hook in hooks:
        patch.setitem(guards.GUARDS, (owner, hook), guard)
    patch.setattr(transitions, "_RULES", {})


def lenient(name: str, old: object, new: object, *place: object) -> tuple[None, object, Mapping[str, Any]]:
    """Take any write for legal."""
    return None, new, {}


def anothers_slot(patch: pytest.MonkeyPatch) -> None:
    """Let any slot be written."""
    guarded_by(patch, Owner.PRIVATE, tuple(REDUCERS), lenient)


def arguments_late(patch: pytest.MonkeyPatch) -> None:
    """Let arguments be written after they were judged."""
    guarded_by(patch, Owner.ARGUMENTS, ("admit_tool_execute", "wrap_tool_execute"), lenient)


def approved_for_good(patch: pytest.MonkeyPatch) -> None:
    """Take each approval for a standing one."""
    apply: Function = approving._apply  # noqa: SLF001  # as above

    def applied(work: Any, request: Any, call: Any, decision: Any) -> Any:
        done = apply(work, request, call, decision)
        grant = approving.grant_of(call, request.always)
        if isinstance(decision, Approve) and grant is not None:
            work.grants |= {grant}
        return done

    patch.setattr(approving, "_apply", applied)


def refusal_overlooked(patch: pytest.MonkeyPatch) -> None:
    """Decide as if nobody had refused."""
    decide: Function = admission.decide

    def decided(call: CallState) -> Any:
        return decide(replace(call, verdict=Verdict(None, call.verdict.approval, call.verdict.answer)))

    patch.setattr(admission, "decide", decided)


def facts_lost(patch: pytest.MonkeyPatch) -> None:
    """Write facts down, and hand none of them on."""
    book: Function = gathering.book

    def booked(work: Any, event: Any) -> Mapping[str, Any]:
        book(work, event)
        return {}

    patch.setattr("capfold.runtime.machine.book", booked)


def digest_skips(field: str) -> Plant:
    """Leave a field of a record out of its digest."""

    def skipping(body: Any) -> str:
        return canonical({name: value for name, value in body.items() if name != field})

    return put("audit.canonical", skipping)


def call_digest_skips(patch: pytest.MonkeyPatch) -> None:
    """Leave the arguments out of what a standing approval binds to."""
    patch.setattr(CallState, "digest", property(lambda call: digest([call.tool.digest])))


def snapshot_twice(patch: pytest.MonkeyPatch) -> None:
    """Have a store give out a snapshot as often as it is asked."""
    patch.setattr(MemoryStore, "claim", nothing_async)
    patch.setattr("capfold.runtime.resuming.is_held", nothing_async)


# What is broken -> how. The ten of the list, and more of their kind.
FAULTS: Final[Mapping[str, Plant]] = {
    "a counter is not restored": counter_kept,
    "an outcome is lost on cancel": put("tool_onion._so_far", lambda *given: ()),
    "an approval is used twice": approved_for_good,
    "a prepared set is widened": put("admission.prepared_by_name", lambda work: work.setup.by_name),
    "a digest skips a field": digest_skips("restored"),
    "a refusal is overlooked": refusal_overlooked,
    "a batch is not held against its limit": put("ledger.before_batch", nothing),
    "history is not closed when a run is cut short": put("ending.close", nothing),
    "a step is not held against limits": put("ledger.before_step", nothing),
    "a fact is lost": facts_lost,
    "another's slot is written": anothers_slot,
    "arguments are changed after judging": arguments_late,
    "a sub-agent is not charged to its parent": put("settling.with_spent", lambda run, spent: run),
    "an approval binds to the tool alone": call_digest_skips,
    "a snapshot is resumed twice": snapshot_twice,
}
