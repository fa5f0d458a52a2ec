"""The scribe: whoever makes entries, inside the machine or at the edges of a wrapper."""

from collections.abc import Mapping

from ..capabilities.state import RunState
from .entries import NOTHING, Change, Entry, EntryKind
from .errors import IllegalTransition, Place, Restored
from .transitions import Transition

# What a named tuple's own constructor calls, at twice the cost.
_new = tuple.__new__


class Scribe:
    """Entries in the making, with the run and the time that stand in them. `strict`: a restore is an error."""

    def __init__(self, run: RunState, now: float, *, strict: bool) -> None:
        """Start without entries."""
        self.run = run
        self.now = now
        self.strict = strict
        self.entries: list[Entry] = []

    def write(
        self,
        kind: EntryKind,
        *,
        actor: str = "runtime",
        call: str | None = None,
        index: int | None = None,
        hook: str | None = None,
        changes: Mapping[str, Change] = NOTHING,
        restored: Mapping[str, tuple[object, object]] = NOTHING,
        rejected: Mapping[str, tuple[object, str]] = NOTHING,
        facts: Mapping[str, object] = NOTHING,
    ) -> None:
        """Write an entry."""
        run = self.run
        made = (
            kind,
            run.run_id,
            run.run_step,
            self.now,
            actor,
            call,
            index,
            hook,
            changes,
            restored,
            rejected,
            facts,
        )
        self.entries.append(_new(Entry, made))

    def write_transition(
        self, transition: Transition, call_id: str | None
    ) -> IllegalTransition | Restored | None:
        """Write a transition down, warn of what was restored; return why it ends the run, or None."""
        self.write(
            transition.kind,
            actor=transition.key,
            call=call_id,
            index=transition.index,
            hook=transition.hook,
            changes=transition.changes,
            restored=transition.restored,
            rejected=transition.rejected,
        )
        for name in transition.restored:
            import logging  # noqa: PLC0415  # 5 ms that only a restored field needs

            logging.getLogger("capfold").warning(
                "%s.%s wrote %s: restored", transition.key, transition.hook, name
            )
        return transition_problem(transition, self.run.run_step, call_id, strict=self.strict)


def transition_problem(
    transition: Transition, step: int, call_id: str | None, *, strict: bool
) -> IllegalTransition | Restored | None:
    """Return why a transition ends the run, or None."""
    if not transition.rejected and not (transition.restored and strict):
        return None
    place = Place(key=transition.key, index=transition.index, hook=transition.hook, step=step, call=call_id)
    if transition.rejected:
        name, (_, legal) = next(iter(transition.rejected.items()))
        return IllegalTransition(
            message=f"{transition.key}.{transition.hook} may not write {name} so: {legal}",
            legal=legal,
            field=name,
            **place,
        )
    name = next(iter(transition.restored))
    return Restored(
        message=f"{transition.key}.{transition.hook} wrote {name}, which belongs to the runtime",
        field=name,
        **place,
    )
