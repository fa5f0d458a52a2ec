"""A run as a workflow of Temporal: the journal of its steps, and nothing of what they do.

Each step is one activity, whose result is the text that is recorded of it, and which says what is next. So the history
of the workflow is the journal of the run, and this code decides by it alone: where a step is performed, how often it
was begun, what the run waits for. It has no state of the run, so no code of users runs in a workflow.
"""

import asyncio
import json
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    TimeoutError,  # noqa: A004  # Temporal's own: that of an activity
    TimeoutType,
    WorkflowAlreadyStartedError,
)

from .temporal_records import (
    BROKEN,
    CHILD,
    LEFT,
    MESSAGE,
    STATUS,
    STEP,
    STOP,
    WORKFLOW,
    Below,
    Done,
    Start,
    Todo,
)

FOREVER = timedelta(days=3650)  # a run below may wait for a person for that long
_ONCE = RetryPolicy(maximum_attempts=1)  # how often a step was begun is counted here
_LONGEST_PAUSE = 60.0


@workflow.defn(
    name=WORKFLOW, sandboxed=False
)  # there is nothing in it that could be other than deterministic
class RunWorkflow:
    """One run: the id of the workflow is that of the run."""

    @workflow.init
    def __init__(self, start: Start) -> None:
        """Start without a step."""
        self._start = start
        self._home = ""  # the task queue of the worker that has the run in memory
        self._known = 0
        self._epoch = 0
        self._begun: dict[str, int] = {}
        self._seen: set[str] = set()  # keys of steps that are under way or recorded
        self._doing: list[workflow.ActivityHandle[Done]] = []
        self._messages: dict[str, str] = {}
        self._wish: str | None = None
        self._below: set[str] = set()

    @workflow.run
    async def run(self, start: Start) -> str:
        """Carry the run on to its end; return what it came to."""
        self._show("running")
        work = asyncio.ensure_future(self._carry())
        while True:
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:  # of the workflow: the run ends in good order, as cancelled
                if workflow.cancellation_reason() is None:
                    raise  # the worker drops it from its memory
                self.stop(json.dumps({"stop": None, "at": workflow.time()}))

    @workflow.signal(name=MESSAGE)
    def message(self, topic: str, message: str) -> None:
        """Take a message; the first one of a topic stands."""
        self._messages.setdefault(topic, message)

    @workflow.signal(name=STOP)
    def stop(self, wish: str) -> None:
        """Take the wish that the run ends; the first one stands."""
        if self._wish is not None:
            return
        self._wish = wish
        for one in tuple(self._doing):  # its worker hears of it with the next heartbeat, and lets the run end
            one.cancel()

    @workflow.update(name=CHILD)
    async def child(self, below: Below) -> None:
        """Start a run below this one, or find it started."""
        if below.run_id in self._below:
            return
        self._below.add(below.run_id)
        try:
            handle = await workflow.start_child_workflow(
                RunWorkflow.run,
                Start(below.order, self._start.lease, self._start.attempts),
                id=below.run_id,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
                task_timeout=workflow.info().task_timeout,
            )
        except WorkflowAlreadyStartedError:
            return
        handle.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # the step asks for it itself

    async def _carry(self) -> str:
        _, done = await self._do(Todo("", 1, 0, 0))
        while done.end is None:
            if done.wait is not None:
                topic, message = await self._waited(done.wait[0])
                _, done = await self._do(self._todo("", (topic, message)))
            elif done.next:
                done = await self._steps(done.next)
            else:
                _, done = await self._do(self._todo(""))
        self._show(done.status or "broken")
        return done.end

    async def _waited(self, topic: str) -> tuple[str, str]:
        self._show("waiting")
        await workflow.wait_condition(lambda: topic in self._messages or self._wish is not None)
        self._show("running")
        decided = self._messages.get(topic)
        if decided is not None:
            return topic, decided
        assert self._wish is not None, "one of the two was waited for"
        return topic, self._wish

    async def _steps(self, keys: tuple[str, ...]) -> Done:
        """Perform steps at once, and those that can begin when one of them has ended; return what the last one said."""
        doing: list[
            asyncio.Task[tuple[int, Done]]
        ] = []  # in order: a set has none that is the same each time
        said = Done()
        while keys or doing:
            for key in keys:
                if key not in self._seen:
                    self._seen.add(key)
                    doing.append(asyncio.create_task(self._step(key)))
            if not doing:
                break
            done, doing = await workflow.wait(doing, return_when=asyncio.FIRST_COMPLETED)
            keys = ()
            for task in done:
                epoch, said = await task
                if epoch != self._epoch:  # something was lost since: it may have looked ahead from there
                    said = Done()
                keys += said.next
        return said if said.end is not None or said.wait is not None else Done()

    async def _step(self, key: str) -> tuple[int, Done]:
        todo = self._todo(key)
        try:
            epoch, done = await self._do(todo)
        except asyncio.CancelledError:
            if self._wish is None:
                raise  # the worker drops it from its memory
            # It ended at the moment that it was cancelled, or never began: the history knows, so a worker looks there.
            self._epoch += 1
            self._seen.discard(key)
            return todo.epoch, Done()
        self._known += 1
        return epoch, done

    def _todo(self, key: str, message: tuple[str, str] | None = None) -> Todo:
        return Todo(key, self._begun.get(key, 0) + 1, self._known, self._epoch, message, self._wish)

    async def _do(self, todo: Todo) -> tuple[int, Done]:
        """Have something done: by the worker that has the run in memory, or by any; again, where that is lost.

        Return what came of it, and the epoch of that.
        """
        tries = 0
        while tries < self._start.attempts:
            try:
                done = await self._done(todo)
            except ActivityError as error:
                tries += await self._failed(error, todo, tries)
                todo = self._todo(todo.key, todo.message)
                continue
            self._home = done.home
            return todo.epoch, done
        raise ApplicationError(
            f"step {todo.key or 'after the last one'!r} was tried {self._start.attempts} times, and never "
            "came to its end",
            type=BROKEN,
            non_retryable=True,
        )

    async def _done(self, todo: Todo) -> Done:
        lease = timedelta(seconds=self._start.lease)
        handle = workflow.start_activity(
            STEP,
            todo,
            result_type=Done,
            task_queue=self._home or None,
            schedule_to_start_timeout=lease if self._home else None,
            start_to_close_timeout=FOREVER,
            heartbeat_timeout=lease,
            retry_policy=_ONCE,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        self._doing.append(handle)
        try:
            done: Done = await handle
            return done
        finally:
            self._doing.remove(handle)

    async def _failed(self, error: ActivityError, todo: Todo, tries: int) -> bool:
        """Take note of why something was not done; return whether it was tried. Raises ApplicationError."""
        cause = error.cause
        self._home = ""
        if isinstance(cause, TimeoutError):
            if cause.type == TimeoutType.SCHEDULE_TO_START:
                return False  # now any worker may do it
            self._lost(todo.key, begun=True)
        elif isinstance(cause, CancelledError):
            self._lost(todo.key, begun=False)
            return False  # it is done anew, by whoever knows the wish
        elif isinstance(cause, ApplicationError) and cause.type == LEFT:
            self._lost(todo.key, begun=bool(cause.details[0]))
        elif isinstance(cause, ApplicationError) and cause.type == BROKEN:
            raise ApplicationError(cause.message, type=BROKEN, non_retryable=True) from error
        else:
            self._lost(todo.key, begun=False)
            await asyncio.sleep(min(_LONGEST_PAUSE, 2.0**tries))
        return True

    def _lost(self, key: str, *, begun: bool) -> None:
        self._epoch += 1
        if key and begun:
            self._begun[key] = self._begun.get(key, 0) + 1

    def _show(self, status: str) -> None:
        workflow.upsert_memo({STATUS: status})
