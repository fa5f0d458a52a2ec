"""Durable runs as seen from outside: which there are, what they wait for; to decide, stop and fork them.

Needs the database only: neither the agent nor a worker has to be in this process.
"""

import re
import threading
from collections.abc import Mapping
from typing import cast

try:
    from dbos import DBOSClient, StepInfo, WorkflowStatus
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "durable runs on DBOS need the extra `dbos`: pip install 'capfold[dbos]'", name=error.name
    ) from error

from ..capabilities.run_parts import Stop
from .dbos_home import WORKFLOW, client_of, wish_text
from .dbos_tables import Tables, in_thread, shown_url
from .decisions import ApprovalRequest, Decision
from .durable_info import DurableRunInfo, DurableStatus, requests_in
from .durable_journal import ASIDE
from .durable_run import decisions_message, matched
from .errors import DecisionError
from .event_codec import loads
from .handle import check_stop

_KEY = re.compile(r"\d+:(\d+):")  # of a step: its number, and that of the run's step
_ACTIVE: Mapping[str, DurableStatus] = {"ENQUEUED": "queued", "DELAYED": "queued", "PENDING": "running"}


class DurableRuns:
    """The durable runs of a database. `agent`: of one agent only; None: of all."""

    def __init__(self, url: str, *, agent: str | None = None) -> None:
        """Connect when first used. Raises ValueError for a URL that is not of SQLite or PostgreSQL."""
        self.tables = Tables(url)
        self._url = url
        self._agent = agent
        self._client: DBOSClient | None = None
        self._lock = threading.Lock()  # of two who use it first, one connects

    async def client(self) -> DBOSClient:
        """Return what reaches DBOS. Raises LookupError for a database that was never opened by an agent."""
        return await in_thread(self._connected)

    def _connected(self) -> DBOSClient:
        with self._lock:
            if self._client is None:
                if not self.tables.has_runs():
                    raise LookupError(
                        f"no durable runs in {shown_url(self._url)}: a DurableAgent or `capfold worker` makes its "
                        "tables"
                    )
                self.tables.make()
                self._client = client_of(self._url, self._agent)
            return self._client

    async def close(self) -> None:
        """Release connections."""
        client, self._client = self._client, None
        if client is not None:
            await in_thread(client.destroy)
        await in_thread(self.tables.close)

    async def list(
        self, status: DurableStatus | None = None, *, limit: int = 1000
    ) -> tuple[DurableRunInfo, ...]:
        """Return the newest runs first, runs below others included."""
        client = await self.client()
        found = await client.list_workflows_async(
            name=WORKFLOW, limit=limit, sort_desc=True, load_input=False
        )
        waits = await in_thread(self.tables.waits)
        infos = [_info(one, _pending(one.workflow_id, waits)) for one in found]
        return tuple([one for one in infos if status is None or one.status == status])

    async def show(self, run_id: str) -> DurableRunInfo:
        """Return one run, with the step that it is in. Raises LookupError for an id that is not known."""
        client = await self.client()
        found = await client.list_workflows_async(workflow_ids=[run_id], name=WORKFLOW, load_input=False)
        if not found:
            raise LookupError(f"no durable run {run_id!r:.80} in this database")
        waits = await in_thread(self.tables.waits, run_id)
        steps = await client.list_workflow_steps_async(run_id, load_output=False)
        last = max((number for one in steps if (number := step_of(one)) is not None), default=0)
        return _info(found[0], _pending(run_id, waits), last)

    async def pending(self, run_id: str) -> tuple[ApprovalRequest, ...]:
        """Return what a run and those below it wait for; none for one that does not wait, or is not known."""
        await self.client()
        waits = await in_thread(self.tables.waits, run_id)
        return _pending(run_id, waits)

    async def decide(self, run_id: str, decisions: Mapping[str, Decision], *, now: float) -> None:
        """Decide what a run, or one below it, waits for: digest of each pending request -> decision.

        All that one run waits for is decided at once. Raises DecisionError for decisions that do not fit, for a run
        that does not wait, and where somebody else has decided otherwise; LookupError for an id that is not known.
        """
        await self.client()
        waits = await in_thread(self.tables.waits, run_id)
        if not waits:
            info = await self.show(run_id)
            raise DecisionError(f"run {run_id!r} waits for no decision: it is {info.status}")
        asked = {one: requests_in(wait[1]) for one, wait in waits.items()}
        owners = {request.digest: one for one, requests in asked.items() for request in requests}
        split: dict[str, dict[str, Decision]] = {one: {} for one in waits if len(waits) == 1}
        for digest, decision in decisions.items():
            if digest not in owners:
                known = ", ".join(sorted(owners))
                raise DecisionError(f"no pending request has the digest {digest!r}; pending: {known}", digest)
            split.setdefault(owners[digest], {})[digest] = decision
        for one, part in split.items():
            matched(asked[one], part)
        wished = [
            tree for tree in await in_thread(self.tables.stops) if any(is_within(one, tree) for one in split)
        ]
        if wished:
            raise DecisionError(f"run {wished[0]!r} was stopped already, and ends when a worker hears of it")
        for one, part in split.items():
            await self._decide(one, waits[one][0], decisions_message(part, now, asked[one]))

    async def _decide(self, run_id: str, topic: str, message: str) -> None:
        stands = await in_thread(self.tables.decide, run_id, topic, message)
        client = await self.client()
        # Sent again where it stands already: whoever kept it may have been lost before it was sent.
        await client.send_async(run_id, stands, topic, idempotency_key=f"{run_id} {topic}")
        if loads(stands)["decisions"] != loads(message)["decisions"]:
            raise DecisionError(f"run {run_id!r} was decided otherwise already")

    async def stop(self, run_id: str, message: str) -> None:
        """Let a run end as a result, status "stopped"; nothing happens to one that has ended.

        The process that has it hears of it within half a second. Raises TypeError or ValueError for no message,
        LookupError for an id that is not known.
        """
        check_stop(message, 0.0)
        info = await self.show(run_id)
        if info.status in {"queued", "running", "waiting"}:
            stop = Stop(message, key="caller", hook="stop")
            await in_thread(self.tables.stop, run_id, wish_text(stop))

    async def fork(self, run_id: str, step: int) -> str:
        """Start a run that shares all that this one did before a step, and does the rest anew; return its id.

        Raises LookupError for an id that is not known, ValueError for a step that the run did not reach.
        """
        await self.show(run_id)
        client = await self.client()
        steps = await client.list_workflow_steps_async(run_id, load_output=False)
        first = next((one for one in steps if (at := step_of(one)) is not None and at >= step), None)
        if step < 1 or first is None:
            raise ValueError(f"run {run_id!r} can be forked from a step that it reached, not from {step}")
        handle = await client.fork_workflow_async(run_id, first["function_id"])
        return handle.get_workflow_id()


def step_of(info: StepInfo) -> int | None:
    """Return the step of a run that a recorded step belongs to; None for what is DBOS's own, as a message."""
    found = _KEY.match(info["function_name"])
    return None if found is None else int(found[1])


def is_within(run_id: str, tree: str) -> bool:
    """Tell whether a run is the root of a tree of runs, or one below it."""
    return run_id == tree or run_id.startswith(f"{tree}/")


def _pending(run_id: str, waits: Mapping[str, tuple[str, str]]) -> tuple[ApprovalRequest, ...]:
    return tuple(
        [request for one in sorted(waits) if is_within(one, run_id) for request in requests_in(waits[one][1])]
    )


def _info(found: WorkflowStatus, pending: tuple[ApprovalRequest, ...], step: int = 0) -> DurableRunInfo:
    status = _ACTIVE.get(found.status)
    if status in {"running", "queued"} and pending:  # queued: the worker that it waited on has left it
        status = "waiting"
    if status is None:
        status = "broken"
        if found.status == "SUCCESS" and isinstance(found.output, str):
            told = loads(found.output)
            status = cast(DurableStatus, told.get("status", "completed" if ASIDE in told else "broken"))
    return DurableRunInfo(
        run_id=found.workflow_id,
        status=status,
        created=(found.created_at or 0) / 1000,
        worker=found.executor_id,
        pending=pending if status == "waiting" else (),
        step=step,
        forked_from=found.forked_from,
        error=None if found.error is None else f"{type(found.error).__name__}: {found.error}",
    )
