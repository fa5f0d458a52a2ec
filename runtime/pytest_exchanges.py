"""Exchanges: what models, tools, gatherers and people brought to each step of a run on record, by step, as JSON.

Call ids that the run made are written into the responses, so that a step is the same wherever it stands. Knows nothing
of how they are played again.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from attrs import frozen

from ..capabilities.frozen import FrozenDict, FrozenList, Json
from ..capabilities.messages import AssistantMessage
from .audit import AuditRecord, portable
from .codec import from_json
from .models import ModelError
from .replay_script import of_step

Reply = AssistantMessage | Exception


@frozen
class Exchange:
    """One step. `outcomes`, `decisions`: by call id. `facts`: [gatherer's hook, key, call id or None, fact]."""

    replies: FrozenList
    outcomes: FrozenDict[Json]
    decisions: FrozenDict[Json]
    facts: FrozenList

    def script(self) -> Sequence[Reply]:
        """Return what the models answered."""
        return [_reply(cast("FrozenDict[Json]", one)) for one in self.replies]

    def fact(self, hook: str, key: str, call: str | None) -> Json:
        """Return what a gatherer brought, None where that is not on record."""
        for one in self.facts:
            if list(cast(FrozenList, one))[:3] == [hook, key, call]:
                return cast(FrozenList, one)[3]
        return None

    def to_json(self) -> Json:
        """Return the exchange as JSON."""
        parts: dict[str, Json] = {"replies": self.replies, "outcomes": self.outcomes}
        return FrozenDict({**parts, "decisions": self.decisions, "facts": self.facts})

    @classmethod
    def of_json(cls, data: Json) -> "Exchange":
        """Return the exchange that JSON stands for."""
        parts = cast("Mapping[str, Json]", data)
        return cls(
            cast(FrozenList, parts["replies"]),
            cast("FrozenDict[Json]", parts["outcomes"]),
            cast("FrozenDict[Json]", parts["decisions"]),
            cast(FrozenList, parts["facts"]),
        )


def exchanges_of(records: Sequence[AuditRecord]) -> tuple[Exchange, ...]:
    """Return the exchanges of a run by step; that of step 0 holds the facts from before the first request."""
    steps = range(max(record.step for record in records) + 1)
    return tuple(_exchange([record for record in records if record.step == step]) for step in steps)


def _exchange(records: Sequence[AuditRecord]) -> Exchange:
    ids = list(dict.fromkeys(record.call for record in records if record.call is not None))
    renamed: dict[str, str] = {}
    for record in records:
        renamed |= cast("Mapping[str, str]", record.facts.get("renamed_calls", {}))
    return Exchange(
        FrozenList(_written(reply, ids, renamed) for reply in of_step(records)),
        _by_call(records, "tool_settled", "outcome"),
        _by_call(records, "call_decided", "decision"),
        FrozenList(
            FrozenList([record.hook, record.actor, record.call, record.facts["fact"]])
            for record in records
            if record.kind == "gathered"
        ),
    )


def _by_call(records: Iterable[AuditRecord], kind: str, fact: str) -> FrozenDict[Json]:
    found = {str(record.call): record.facts[fact] for record in records if record.kind == kind}
    return FrozenDict(found)


def _written(reply: Reply, ids: Sequence[str], renamed: Mapping[str, str]) -> Json:
    if isinstance(reply, ModelError):
        return FrozenDict(
            {
                "kind": reply.kind,
                "message": reply.message,
                "retryable": reply.retryable,
                "status": reply.status,
            }
        )
    message = cast("FrozenDict[Json]", portable(reply))
    calls: list[Json] = []
    for i, one in enumerate(cast(FrozenList, message["tool_calls"])):
        call = cast("FrozenDict[Json]", one)
        made = (name for name in ids if re.fullmatch(rf"call_\d+_{i}_*", name))
        given = str(call["id"])
        calls.append(call.assoc("id", renamed.get(given, given) or next(made, "")))
    return message.assoc("tool_calls", FrozenList(calls))


def _reply(data: FrozenDict[Json]) -> Reply:
    if "message" in data:
        error = cast("Mapping[str, object]", data)
        return ModelError(**error)  # type: ignore[arg-type]  # as it was written above
    return from_json({**data, "at": None}, AssistantMessage)
