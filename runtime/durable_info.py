"""A durable run as seen from outside: one record, whichever engine has the run. Knows no engine."""

from typing import Literal, TypeAlias, cast

from attrs import frozen

from ..capabilities.frozen import FrozenList
from .codec import from_json
from .decisions import ApprovalRequest
from .event_codec import loads

DurableStatus: TypeAlias = Literal[
    "queued", "running", "waiting", "completed", "stopped", "failed", "cancelled", "broken"
]


@frozen(kw_only=True)
class DurableRunInfo:
    """A durable run as its database or server has it.

    `status`: "waiting" for decisions, "queued" until a worker takes it, "broken" by a fault of engine, order or agent,
    else as `RunResult` has it. `created` in UTC seconds; `worker`: the process that had it last. `pending`: what it, or
    a run below it, waits for. `step`: of the last effect on record, 0 before the first, and in lists. `forked_from`: a
    run whose first steps it shares. `error`: why it is broken.
    """

    run_id: str
    status: DurableStatus
    created: float
    worker: str | None = None
    pending: tuple[ApprovalRequest, ...] = ()
    step: int = 0
    forked_from: str | None = None
    error: str | None = None


def requests_in(asked: str) -> tuple[ApprovalRequest, ...]:
    """Return the requests that a run waits for, of what it asked; see `Engine.wait`."""
    return tuple([from_json(one, ApprovalRequest) for one in cast(FrozenList, loads(asked)["requests"])])
