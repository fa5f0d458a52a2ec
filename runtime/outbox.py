"""The events of a durable run on their way out, as JSON, and back again where somebody reads them.

What was shown before, by whoever recorded the steps, is not shown again. Knows no engine.
"""

from typing import cast

from ..capabilities.frozen import FrozenDict
from .codec import from_json, to_json
from .durable_journal import Journal
from .event_codec import dumps, loads
from .event_parts import JsonObject
from .events import CallSettled, CallStarted, Delta, RunEvent, Settled
from .run_stream import RunStream

Shown = Delta | Settled | CallStarted | CallSettled
_KINDS: dict[str, type[Shown]] = {kind.__name__: kind for kind in (Delta, Settled, CallStarted, CallSettled)}


class Outbox(RunStream[object]):
    """Takes the events of a run and shows them through its engine; nobody waits for whoever reads them."""

    def __init__(self, journal: Journal) -> None:
        """Stand before a journal."""
        super().__init__(paced=False)
        self._journal = journal

    def put(self, event: RunEvent[object]) -> None:
        """Show an event."""
        self._journal.show(event_text(event))


def event_text(event: RunEvent[object]) -> str:
    """Return an event as JSON text. Raises TypeError for the last one, which is not shown: the run itself says it."""
    if not isinstance(event, Shown):
        raise TypeError(f"{type(event).__name__} is not shown: it is what the run came to")
    return dumps(FrozenDict({"type": type(event).__name__, **cast(JsonObject, to_json(event))}))


def event_of(text: str) -> Shown:
    """Return the event of a text. Raises CodecError for what is none."""
    found = dict(loads(text))
    kind = _KINDS[str(found.pop("type"))]
    return from_json(FrozenDict(found), kind)
