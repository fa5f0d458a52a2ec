"""Runs below a durable run, each a durable run of its own: started by one step of the run above, or found started.

The run below is carried on by whichever worker has it; what crosses is its order, and what it came to. Knows nothing
of engines.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import anyio
from anyio import get_cancelled_exc_class

from ..capabilities.call_state import CallState
from ..capabilities.frozen import FrozenDict, FrozenList, Json
from ..capabilities.injected import ToolFailed
from ..capabilities.messages import Content
from ..capabilities.state import RunState
from .below import NOTHING, Allowance, Below, Spent
from .codec import from_json
from .durable_engine import Engine
from .durable_journal import put_aside, taken_back
from .errors import LimitExceeded, Reason, UsageUnknown, run_error
from .event_codec import dumps
from .event_parts import JsonObject, get_spent, json_object
from .invoke import NotPortable, failure_of
from .phases import Broken, RunTools
from .setup import Setup

if TYPE_CHECKING:
    from .session import Session

CUT_SECONDS = 10.0  # that a run below may take to end when the one above is cut short


class Told(NamedTuple):
    """What a run below came to: the content of its output or why there is none, and what it used."""

    content: Content | None
    problem: str | None
    reason: Reason | None
    spent: Spent
    records: Sequence[Json]


class Children:
    """Runs below one effect of a durable run. `records`: of those that ended, as JSON.

    `is_cut`: whether the effect is being cut short, so that what runs below ends too.
    """

    def __init__(self, engine: Engine, order: JsonObject, is_cut: Callable[[], bool]) -> None:
        """Take the order of the run above."""
        self.records: tuple[Json, ...] = ()
        self._engine = engine
        self._order = order
        self._is_cut = is_cut

    async def run_below(  # noqa: PLR0917  # one attempt, and all that is known of it
        self, session: "Session", setup: Setup, below: Below, effect: RunTools, call: CallState, number: int
    ) -> object:
        """Run it as the `number`th attempt of a call, and return its output.

        Raises ToolFailed when that run failed, `NotPortable` when its output is none that a tool could return.
        """
        from .subagents import TASK, run_id_below, share_spent  # noqa: PLC0415  # which needs the driver

        run_id = run_id_below(self._engine.run_id, call.id, number)
        allowance = below.left(number - 1)
        task = call.arguments[TASK]
        order = order_below(self._order, call, allowance, cast(str, task), effect.run, session.port.now())
        text = await put_aside(self._engine, dumps(order))
        spent = NOTHING
        below.begin(run_id, lambda: spent)
        try:
            told = await self._told(run_id, text)
        except get_cancelled_exc_class():
            if self._is_cut():
                with anyio.move_on_after(CUT_SECONDS, shield=True):
                    await self._engine.cut(run_id)
                    spent = (await self._told(run_id, text)).spent
            raise
        spent = told.spent
        reason = told.reason
        if isinstance(reason, LimitExceeded | UsageUnknown) and reason.limit in setup.bounded:
            before = Spent.by(effect.run).plus(Spent(tool_calls=number - 1))
            step = effect.run.run_step
            below.broken = Broken(share_spent(reason, session.setup.limits, before, below, step))
        if reason is not None:
            error = failure_of(run_error(reason))
            raise ToolFailed(f"agent {setup.name!r} failed: {error.type}: {error.message}")
        if told.problem is not None:
            raise NotPortable(told.problem)
        return told.content

    async def _told(self, run_id: str, order: str) -> Told:
        found = await taken_back(self._engine, await self._engine.child(run_id, order))
        told = read_told(found)
        self.records = (*self.records, *told.records)
        return told


def order_below(  # noqa: PLR0917  # all that a run begins with
    above: JsonObject, call: CallState, allowance: Allowance, task: str, run: RunState, now: float
) -> JsonObject:
    """Return the order of a run below: that of the root run, and how its agent is reached from there."""
    path = cast(FrozenList, above["path"])
    place = json_object(tool=call.tool.name, allowance=FrozenDict(allowance._asdict()))
    changed = json_object(
        path=FrozenList([*path, place]),
        prompt=task,
        context=run.context,
        messages=FrozenList(),
        conversation=None,
        above=json_object(run_id=run.run_id, root_run_id=run.root_run_id),
        now=now,
    )
    return FrozenDict({**above, **changed})


def read_told(found: JsonObject) -> Told:
    """Return what a run came to, from what was recorded of it."""
    reason = None if found["reason"] is None else from_json(found["reason"], Reason)
    content = None
    if found["content"] is not None:
        content = from_json(found["content"], cast("type[Content]", Content))
    problem = cast("str | None", found["problem"])
    return Told(content, problem, reason, get_spent(found["spent"]), cast("Sequence[Json]", found["records"]))
