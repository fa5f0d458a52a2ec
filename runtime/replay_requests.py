"""What came of a model request and of gatherers, from their records: responses, whose went on, bills and facts.

Knows nothing of which records belong to which effect, or of how the run goes on.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from attrs import frozen

from ..capabilities.call_state import CallState
from ..capabilities.frozen import FrozenDict, FrozenList, Json
from ..capabilities.messages import AssistantMessage, Message, Usage
from ..capabilities.records import replace
from ..capabilities.run_parts import NamedModel
from ..capabilities.state import RunState
from ..capabilities.views import Projection
from .audit import AuditRecord
from .billing import Bill
from .entries import Entry, FromTo
from .phases import Gather, Gathered, RequestModel, Responded
from .replay_facts import broken_of, entry_of, latched, member, message_of, read, response_of

# What the notes of one model request say.
REQUEST_NOTES = frozenset(
    {"requests_without_response", "response_used", "response_made", "no_response_used", "request"}
)


@frozen
class NamedOnly:
    """Stands for a model that a wrapper chose: of that one, the log has the name."""

    name: str


def responded(records: Sequence[AuditRecord], effect: RequestModel, now: float) -> Responded:
    """Return what came of a model request."""
    responses: list[AssistantMessage] = []
    bills: list[Bill] = []
    edges: list[AuditRecord] = []
    notes: dict[str, Json] = {}
    noted: AuditRecord | None = None
    for record in records:
        if record.kind == "model_responded":
            responses.append(response_of(record.facts["response"], record))
            bills.append(bill_of(record.facts, responses[-1].usage))
        elif record.kind == "note":
            notes |= record.facts
            noted = record if "request" in record.facts else noted
        else:
            edges.append(record)
    broken = broken_of(records)
    run = latched(effect.run, edges)
    if "request" in notes and noted is not None:
        run = _chosen(run, cast("FrozenDict[Json]", notes["request"]), noted)
    charged = len(responses) + cast(int, notes.get("requests_without_response", 0))
    response, maker = (None, None) if broken is not None else _response(responses, edges, notes)
    entries = tuple(_made(record, response) if record is maker else entry_of(record) for record in edges)
    return Responded(now, run, response, charged, tuple(responses), entries, broken, tuple(bills))


def _response(
    responses: Sequence[AssistantMessage], edges: Sequence[AuditRecord], notes: Mapping[str, Json]
) -> tuple[AssistantMessage | None, AuditRecord | None]:
    """Return the response that went on, and the edge that made it, where none of a model did.

    It is the model's last one, unless a note says which.
    """
    if "no_response_used" in notes:
        return None, None
    if "response_used" in notes:
        return responses[cast(int, notes["response_used"])], None
    made = [record for record in edges if "response" in record.changes]
    if responses and "response_made" not in notes:
        return responses[-1], None
    if not made:
        return None, None
    maker = made[cast(int, notes.get("response_made", -1))]
    return response_of(member(maker.changes["response"], "to"), maker), maker


def _made(record: AuditRecord, response: AssistantMessage | None) -> Entry:
    """Return the edge that made a response, with it: by its identity the machine knows whose it is."""
    change = FromTo(member(record.changes["response"], "from"), response)
    return entry_of(record)._replace(
        changes={**cast("Mapping[str, Any]", record.changes), "response": change}
    )


def _chosen(run: RunState, request: FrozenDict[Json], record: AuditRecord) -> RunState:
    """Return the run with what wrappers left of the request."""
    changes: dict[str, object] = {
        name: request[name] for name in ("settings", "instructions") if name in request
    }
    if "model" in request:
        changes["model"] = cast(NamedModel, NamedOnly(str(request["model"])))
    if "request_messages" in request:
        projected = member(request["request_messages"], "to")
        changes["request_messages"] = projection_of(projected, run.messages, record)
    return replace(run, **changes)


def projection_of(data: Json, history: tuple[Message, ...], record: AuditRecord) -> Projection | None:
    """Return a projection, whose canonical messages stand there by their places in the history."""
    if not isinstance(data, FrozenDict):
        return None
    shown: list[Message] = []
    for one in cast(FrozenList, data["messages"]):
        if isinstance(one, int):
            shown.append(history[one])
        elif isinstance(one, FrozenList):
            start, stop = cast("tuple[int, int]", tuple(one))
            shown += history[start:stop]
        else:
            shown.append(message_of(one, record))
    task = cast("int | None", data["task"])
    return Projection(tuple(shown), cast(int, data["covers"]), task=None if task is None else shown[task])


def bill_of(facts: Mapping[str, Json], usage: Usage | None) -> Bill:
    """Return the bill of a response."""
    return Bill(str(facts["model"]), usage, cast("float | None", facts["cost"]))


def bills_of(records: Iterable[AuditRecord]) -> tuple[int, tuple[Bill, ...]]:
    """Return how many requests gatherers sent, and their bills."""
    for record in records:
        if record.kind == "note" and "bills" in record.facts:
            bills = [
                bill_of(
                    cast("FrozenDict[Json]", one),
                    read(member(one, "usage"), cast("type[Usage]", Usage | None), record),
                )
                for one in cast(FrozenList, record.facts["bills"])
            ]
            return cast(int, record.facts["requests"]), tuple(bills)
    return 0, ()


Missing = Callable[[str], Json]


def gathered(records: Sequence[AuditRecord], effect: Gather, now: float, missing: Missing) -> Gathered:
    """Return what gatherers brought. `missing`: called with what is not in the log, it may raise."""
    found = {
        (record.actor, record.hook, record.call): record.facts["fact"]
        for record in records
        if record.kind == "gathered"
    }
    facts: list[Json] = []
    for job in effect.jobs:
        call_id = job.record.id if isinstance(job.record, CallState) else None
        place = (job.link.key, job.link.hook, call_id)
        if place in found:
            facts.append(found[place])
        else:
            where = "" if call_id is None else f" for call {call_id!r}"
            facts.append(missing(f"{job.link.key}.{job.link.hook}{where}"))
    charged, bills = bills_of(records)
    return Gathered(now, tuple(facts), broken_of(records), charged, bills)
