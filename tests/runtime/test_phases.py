"""The table of moves: total, and the only place where it stands what may follow what."""

import inspect
from inspect import signature
from typing import get_args

import pytest

from capfold.runtime import machine, phases
from capfold.runtime.machine import HANDLERS, IllegalMove, feed
from capfold.runtime.phases import MOVES, Effect, Event, Phase
from capfold.runtime.work import MachineState
from tests.runtime.desk import begin, make

EVENTS: tuple[type, ...] = get_args(Event)
START = begin(make())[0]
ILLEGAL = [(phase, event) for phase in Phase for event in EVENTS if event not in MOVES[phase]]


def state_in(phase: Phase) -> MachineState:
    """Return a state that says it is in a phase."""
    return START._replace(phase=phase)


def an_event(kind: type) -> Event:
    """Return an event of a kind, its fields empty: an illegal move is refused before they are read."""
    made = {
        name: 0.0 if name == "now" else () if name != "why" else "why" for name in signature(kind).parameters
    }
    return kind(**made)  # type: ignore[no-any-return]  # of the kind that was given


def test_table_is_total() -> None:
    """Each phase stands in it, the dead end with nothing; what it names are events and phases."""
    assert list(Phase) == list(MOVES)
    assert {} == MOVES[Phase.ENDED]
    for phase, moves in MOVES.items():
        assert moves or phase is Phase.ENDED
        for event, targets in moves.items():
            assert event in EVENTS
            assert targets
            assert targets <= set(Phase)


def test_every_event_is_handled_and_every_phase_reached() -> None:
    """No event is without a handler or a place, and each phase can be come to from the first one."""
    assert set(EVENTS) == set(HANDLERS)
    assert set(EVENTS) == {event for moves in MOVES.values() for event in moves}
    reached, new = set(), {Phase.OPENING, Phase.ENTERING, Phase.STARTING, Phase.REQUESTING}
    while new:
        reached |= new
        new = {target for phase in new for targets in MOVES[phase].values() for target in targets} - reached
    assert set(Phase) == reached


def test_every_phase_leads_to_the_end() -> None:
    """From wherever a run stands there is a way out."""
    ends = {Phase.ENDED}
    for _ in Phase:
        ends |= {phase for phase, moves in MOVES.items() if any(targets & ends for targets in moves.values())}
    assert set(Phase) == ends


@pytest.mark.parametrize(
    ("phase", "event"), ILLEGAL, ids=lambda value: getattr(value, "__name__", None) or value.value
)
def test_what_is_not_in_the_table_is_illegal(phase: Phase, event: type) -> None:
    """An event that a phase does not wait for raises, and the message says what would have been legal."""
    given = an_event(event)
    with pytest.raises(IllegalMove) as caught:
        feed(state_in(phase), given)
    assert (phase, given) == (caught.value.phase, caught.value.event)
    legal = [kind.__name__ for kind in MOVES[phase]] or ["nothing: the run has ended"]
    assert all(name in str(caught.value) for name in (*legal, phase.value, event.__name__))


def test_unions_are_closed() -> None:
    """Each class of the module that looks like an effect or event is a member of its union."""
    records = {phases.GatherJob, phases.CallResult, phases.Broken, phases.Sent, phases.Resumption}
    parts = {*records, phases.Onward, Phase}
    here = {
        kind
        for _, kind in inspect.getmembers(phases, inspect.isclass)
        if kind.__module__ == phases.__name__ and kind not in parts
    }
    assert here == set(EVENTS) | set(get_args(Effect))


def test_machine_is_what_users_import() -> None:
    """Who drives a run by hand finds start, feed and resume in one module."""
    assert all(callable(getattr(machine, name)) for name in ("start", "feed", "resume"))
