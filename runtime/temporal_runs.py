"""Durable runs on Temporal as seen from outside: which there are, what they wait for; to decide, stop and fork them.

Needs the server only: neither the agent nor a worker has to be in this process, and none has to be alive.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import cast

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from ..capabilities.outside_stores import BlobStore
from ..capabilities.run_parts import Stop
from .decisions import ApprovalRequest, Decision
from .durable_info import DurableRunInfo, DurableStatus, requests_in
from .durable_journal import put_aside
from .durable_run import decisions_message, matched, stop_message
from .errors import DecisionError
from .handle import check_stop
from .journal_engine import JournalEngine, Records
from .temporal_engine import short
from .temporal_history import Base, Recorded, raise_unknown, read_base, read_history
from .temporal_house import keep_aside, kept_aside
from .temporal_journal import RunWorkflow
from .temporal_records import MESSAGE, STATUS, STOP, WORKFLOW, Start, with_records


class TemporalRuns:
    """The durable runs of a task queue. `server`: its address, or a client; `aside`: where long texts are kept."""

    def __init__(
        self,
        server: str | Client,
        task_queue: str,
        *,
        namespace: str = "default",
        aside: BlobStore | None = None,
    ) -> None:
        """Connect when first used. Raises ValueError for a client that converts payloads in a way of its own."""
        self.task_queue = task_queue
        self.aside = aside
        self._server = server
        self._namespace = namespace
        self._client = None if isinstance(server, str) else with_records(server)

    async def client(self) -> Client:
        """Return what reaches the server. Raises RuntimeError where there is none."""
        if self._client is None:
            assert isinstance(self._server, str), "a client is taken at once"
            self._client = with_records(await Client.connect(self._server, namespace=self._namespace))
        return self._client

    async def begin(self, run_id: str, start: Start) -> None:
        """Start a run; one of that id that is there, or was, is left as it is."""
        client = await self.client()
        try:
            await client.start_workflow(
                RunWorkflow.run,
                start,
                id=run_id,
                task_queue=self.task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                # What the workflow itself does takes no time; a worker that is lost holds it up for that long.
                task_timeout=timedelta(seconds=min(10.0, max(2.0, start.lease))),
            )
        except WorkflowAlreadyStartedError:
            return

    async def list(
        self, status: DurableStatus | None = None, *, limit: int = 1000
    ) -> tuple[DurableRunInfo, ...]:
        """Return the newest runs first, runs below others included; `step` and `worker` are told by `show`."""
        client = await self.client()
        infos: list[DurableRunInfo] = []
        query = f"WorkflowType = '{WORKFLOW}' AND TaskQueue = '{self.task_queue}'"
        async for one in client.list_workflows(query, limit=limit):
            found = await _status(one)
            if status is None or found == status:
                pending = await self.pending(one.id) if found == "waiting" else ()
                infos.append(_info(one, found, pending))
        return tuple(infos)

    async def show(self, run_id: str) -> DurableRunInfo:
        """Return one run. Raises LookupError for an id that is not known."""
        client = await self.client()
        recorded = await self.recorded(run_id)
        handle = client.get_workflow_handle(run_id)
        one = await handle.describe()
        status = await _status(one)
        error: str | None = None
        if status == "broken":
            try:
                await handle.result()
            except Exception as problem:  # noqa: BLE001  # whatever it is, it is what is asked for
                cause = problem.__cause__ or problem
                error = f"{type(cause).__name__}: {cause}"
        pending = () if recorded.wait is None or status != "waiting" else requests_in(recorded.wait[1])
        return _info(one, status, pending, recorded, error)

    async def recorded(self, run_id: str) -> Recorded:
        """Return what is recorded of a run. Raises LookupError for an id that is not known."""
        return await read_history(await self.client(), run_id)

    async def pending(self, run_id: str) -> tuple[ApprovalRequest, ...]:
        """Return what a run waits for; none for one that does not wait. Raises LookupError."""
        wait = (await self.recorded(run_id)).wait
        return () if wait is None else requests_in(wait[1])

    async def decide(self, run_id: str, decisions: Mapping[str, Decision], *, now: float) -> None:
        """Decide what a run waits for: digest of each pending request -> decision, all of them.

        Raises DecisionError for decisions that do not fit, and for a run that does not wait: where somebody decided it
        already, too; LookupError for an id that is not known. Nothing is done then. Of two who decide at the same
        moment the first one counts, and neither is told.
        """
        wait = (await self.recorded(run_id)).wait
        if wait is None:
            info = await self.show(run_id)
            raise DecisionError(f"run {run_id!r} waits for no decision: it is {info.status}")
        topic, asked = wait
        requests = requests_in(asked)
        matched(requests, decisions)
        await self._signal(run_id, MESSAGE, topic, decisions_message(decisions, now, requests))

    async def stop(self, run_id: str, message: str, *, now: float) -> None:
        """Let a run end as a result, status "stopped"; nothing happens to one that has ended.

        A step under way hears of it within a heartbeat. Raises TypeError or ValueError for no message, LookupError for
        an id that is not known.
        """
        check_stop(message, 0.0)
        info = await self.show(run_id)
        if info.status in {"running", "waiting"}:
            await self._signal(run_id, STOP, stop_message(Stop(message, key="caller", hook="stop"), now))

    async def fork(self, run_id: str, step: int, new_id: str) -> None:
        """Start a run that shares all that another one did before a step, and does the rest anew.

        Raises LookupError for an id that is not known, ValueError for a step that the run did not reach.
        """
        found = await self.recorded(run_id)
        reader = Reader(new_id, found, self.aside)
        await reader.open()
        base = await short(reader, await put_aside(reader, reader.whole().before(step).text()))
        start = found.start
        await self.begin(new_id, Start(start.order, start.lease, start.attempts, base, run_id))

    async def _signal(self, run_id: str, name: str, *args: str) -> None:
        client = await self.client()
        try:
            await client.get_workflow_handle(run_id).signal(name, args=args)
        except RPCError as error:
            raise_unknown(error, run_id)
            raise


class Reader(JournalEngine):
    """Reads the records of a run; nothing is performed. To be opened before it is used."""

    def __init__(self, run_id: str, found: Recorded | None, aside: BlobStore | None) -> None:
        """Take what is recorded; None: it only keeps texts aside."""
        super().__init__(run_id, Records(), live=False)
        self._found = found
        self._base = Base()
        self._aside = aside

    async def open(self) -> None:
        """Take over what the run shares with the one that it is a fork of, and its own."""
        assert self._found is not None, "there is nothing to read"
        self._base = await read_base(self, self._found)
        whole = self.whole()
        self.records.steps[self.run_id].update({**whole.texts, **whole.messages})

    def whole(self) -> Base:
        """Return all that is recorded of the run, with what it shares."""
        assert self._found is not None, "there is nothing to read"
        found, base = self._found, self._base
        return Base({**base.texts, **found.texts}, {**base.messages, **found.messages})

    async def keep(self, text: str) -> str:
        """Keep a text aside."""
        return await keep_aside(self._aside, text)

    async def kept(self, name: str) -> str:
        """Return a text that was kept."""
        return await kept_aside(self._aside, name)


async def _status(one: WorkflowExecution) -> DurableStatus:
    if one.status not in {WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.COMPLETED}:
        return "broken"
    told = await one.memo_value(STATUS, "running", type_hint=str)
    return cast(DurableStatus, told)


def _info(
    one: WorkflowExecution,
    status: DurableStatus,
    pending: tuple[ApprovalRequest, ...],
    recorded: Recorded | None = None,
    error: str | None = None,
) -> DurableRunInfo:
    return DurableRunInfo(
        run_id=one.id,
        status=status,
        created=one.start_time.timestamp(),
        pending=pending,
        worker=None if recorded is None else recorded.worker,
        step=0 if recorded is None else recorded.step,
        forked_from=None if recorded is None else recorded.start.forked_from,
        error=error,
    )
