"""What a request shows, as a digest: so requests of two lanes are compared. Knows nothing of who wrote the records."""

from collections.abc import Iterable, Mapping
from typing import cast

from ..capabilities.frozen import FrozenDict, FrozenList, Json, digest
from .audit import AuditRecord
from .replay_facts import is_edge

_VIEW = ("messages", "response")


def shown(records: Iterable[AuditRecord]) -> Mapping[int, str]:
    """Return, per step, the digest of all that decides what its request shows: so requests are compared.

    The messages that hooks brought in or changed, what became of the calls before, the view, and what was selected.
    """
    found: dict[int, str] = {}
    so_far = ""
    outcomes: dict[str, Json] = {}
    view: Json = None
    for record in records:
        if record.kind == "step_started":
            so_far, outcomes, view = digest([so_far, FrozenDict(outcomes)]), {}, None
        elif record.kind in {"transition", "restored"} and not is_edge(record):
            own = {name: record.changes[name] for name in _VIEW if name in record.changes}
            if own:
                so_far = digest([so_far, FrozenDict(own)])
            view = record.changes.get("request_messages", view)
            if record.call is not None and "outcome" in record.changes:
                outcomes[record.call] = _said(cast("FrozenDict[Json]", record.changes["outcome"])["to"])
        elif record.kind == "tool_settled" and record.call is not None:
            outcomes[record.call] = _said(record.facts["outcome"])
        elif record.kind == "call_refused" and record.call is not None:
            outcomes[record.call] = _said(record.facts)
        elif record.kind == "model_responded":
            so_far = digest([so_far, record.facts["response"]])
        elif record.kind == "note" and "asked_again" in record.facts:
            so_far = digest([so_far, record.facts])
        elif record.kind == "model_requested":
            found[record.step] = digest([so_far, view, record.facts])
    return found


def _said(outcome: Json) -> Json:
    facts = cast("FrozenDict[Json]", outcome)
    return FrozenList([facts["status"], facts["content"]])
