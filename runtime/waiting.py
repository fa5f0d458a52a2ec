"""A run that waits for decisions: its own calls, or those of runs below it, which suspend the whole tree."""

from collections.abc import Iterator, Sequence

from ..capabilities.records import replace
from .below import Held
from .decisions import Decision
from .phases import Effect, Phase, Suspend
from .work import MachineState, Work


def suspend(work: Work, why: str) -> Effect:
    """Hold the run until somebody decides; its calls stay open.

    Outcomes that are there are settled in call order later, and are on record as of now.
    """
    work.phase = Phase.SUSPENDED
    work.suspended_at = work.now
    work.run = replace(work.run, status="suspended")
    facts: dict[str, object] = {"why": why, "calls": [request.call_id for request in work.pending]}
    outcomes = {
        call.id: call.outcome for call in work.batch if call.outcome is not None and call.id in work.held
    }
    if outcomes:
        facts["outcomes"] = outcomes
    work.write("run_suspended", facts=facts)
    return Suspend(work.pending, why)


def wait_below(work: Work) -> Effect:
    """Hold the run until somebody decides what its sub-agents wait for; the other calls keep their outcomes."""
    waiting = [state for _, _, state in _waiting(work)]
    work.pending = tuple([request for state in waiting for request in state.pending])
    return suspend(work, f"{len(waiting)} of its sub-agents wait for decisions")


def _waiting(work: Work) -> Iterator[tuple[str, Held, MachineState]]:
    """Yield the calls whose sub-agents wait, in call order: id, what is held, and the run that waits."""
    for call in work.batch:
        held = work.held.get(call.asked.id)
        if held is not None and held.state is not None:
            yield call.asked.id, held, held.state


def parts_below(
    work: Work, decisions: Sequence[Decision]
) -> Iterator[tuple[str, Held, MachineState, tuple[Decision, ...]]]:
    """Split decisions among the sub-agents that wait for them: call id, who waits, its run, and its decisions."""
    start = 0
    for call_id, held, state in _waiting(work):
        end = start + len(state.pending)
        yield call_id, held, state, tuple(decisions[start:end])
        start = end
