"""The history of a run's workflow, read as the journal that it is: order, texts by key, messages, the wish to end.

It is read where a worker takes a run over, and by whoever asks what a run waits for or came to. Knows no engine.
"""

from collections.abc import Sequence
from typing import TypeVar, cast

from attrs import field, frozen
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from ..capabilities.frozen import FrozenDict, Json
from .durable_engine import Engine
from .durable_journal import taken_back
from .durable_run import stop_message
from .event_codec import dumps
from .temporal_records import MESSAGE, STEP, STOP, WORKFLOW, Done, Start, Todo

R = TypeVar("R")


@frozen(eq=False)
class Recorded:
    """What is recorded of a run. `texts`: by key, in the order of recording; `messages`: taken, by topic.

    `wait`: what it waits for, where it does, and nobody has sent that yet. `wish`: the message that asks it to end.
    `worker`: that had it last.
    """

    start: Start
    texts: dict[str, str] = field(factory=dict)
    messages: dict[str, str] = field(factory=dict)
    wait: tuple[str, str] | None = None
    wish: str | None = None
    worker: str | None = None

    @property
    def step(self) -> int:
        """The step of the run of the last record, 0 before the first."""
        return max([step_of(key) for key in (*self.texts, *self.messages)], default=0)


def step_of(key: str) -> int:
    """Return the step of a run that a key, or a topic, belongs to."""
    return int(key.split(":")[1])


class _Reading:
    """A history, event by event."""

    def __init__(self, client: Client) -> None:
        self._converter = client.data_converter
        self._todos: dict[int, Todo] = {}
        self._sent: set[str] = set()
        self._epoch = 0
        self.start: Start | None = None
        self.texts: dict[str, str] = {}
        self.messages: dict[str, str] = {}
        self.wait: tuple[str, str] | None = None
        self.wish: str | None = None
        self.worker: str | None = None

    async def decoded(self, payloads: Sequence[Payload], kind: type[R]) -> R:
        found: list[R] = await self._converter.decode(payloads, [kind])
        return found[0]

    async def completed(self, scheduled: int, payloads: Sequence[Payload]) -> None:
        todo = self._todos.pop(scheduled, None)
        if todo is None:
            return
        done = await self.decoded(payloads, Done)
        if done.text is not None:
            self.texts[todo.key] = done.text
        if done.wait is not None and todo.epoch == self._epoch:  # else the workflow asks anew
            self.wait = done.wait

    async def scheduled(self, number: int, payloads: Sequence[Payload]) -> None:
        todo = self._todos[number] = await self.decoded(payloads, Todo)
        self.wait = None
        self._epoch = max(self._epoch, todo.epoch)
        if todo.message is not None:
            topic, message = todo.message
            self.messages.setdefault(topic, message)

    async def signaled(self, name: str, payloads: Sequence[Payload]) -> None:
        if name == STOP and self.wish is None:
            self.wish = await self.decoded(payloads, str)
        elif name == MESSAGE:
            self._sent.add(await self.decoded(payloads, str))

    def recorded(self) -> Recorded:
        assert self.start is not None, "each history begins with what started it"
        wait = self.wait if self.wait is None or self.wait[0] not in self._sent else None
        wait = None if self.wish is not None else wait
        return Recorded(self.start, self.texts, self.messages, wait, self.wish, self.worker)


async def read_history(client: Client, run_id: str, execution: str | None = None) -> Recorded:
    """Return what is recorded of a run; `execution`: Temporal's own id of the workflow's run, None for the last one.

    Raises LookupError for an id that is not known, RPCError where the server cannot be reached.
    """
    reading = _Reading(client)
    handle = client.get_workflow_handle(run_id, run_id=execution)
    try:
        async for event in handle.fetch_history_events():
            kind = event.event_type
            if kind == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                started = event.workflow_execution_started_event_attributes
                if started.workflow_type.name != WORKFLOW:
                    raise LookupError(f"workflow {run_id!r:.80} is no durable run")
                reading.start = await reading.decoded(started.input.payloads, Start)
            elif kind == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                scheduled = event.activity_task_scheduled_event_attributes
                if scheduled.activity_type.name == STEP:
                    await reading.scheduled(event.event_id, scheduled.input.payloads)
            elif kind == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
                reading.worker = event.activity_task_started_event_attributes.identity
            elif kind == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                completed = event.activity_task_completed_event_attributes
                await reading.completed(completed.scheduled_event_id, completed.result.payloads)
            elif kind == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                signaled = event.workflow_execution_signaled_event_attributes
                await reading.signaled(signaled.signal_name, signaled.input.payloads)
            elif kind == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
                reading.wish = reading.wish or stop_message(None, event.event_time.ToMicroseconds() / 1e6)
    except RPCError as error:
        raise_unknown(error, run_id)
        raise
    return reading.recorded()


def raise_unknown(error: RPCError, run_id: str) -> None:
    """Raise LookupError where a server said that it knows no such run."""
    if error.status == RPCStatusCode.NOT_FOUND:
        raise LookupError(f"no durable run {run_id!r:.80} on this server") from error


@frozen(eq=False)
class Base:
    """What a fork shares with the run that it is of: what that had recorded before it."""

    texts: dict[str, str] = field(factory=dict)
    messages: dict[str, str] = field(factory=dict)

    def before(self, step: int) -> "Base":
        """Return what was recorded before the first effect of a step. Raises ValueError for one not reached."""
        numbers = [_number(key) for key in self.texts if step_of(key) >= step]
        if step < 1 or not numbers:
            raise ValueError(f"a run can be forked from a step that it reached, not from {step}")
        first = min(numbers)
        return Base(*[{key: text for key, text in one.items() if _number(key) < first} for one in self._all])

    def text(self) -> str:
        """Return it as JSON."""
        texts, messages = [FrozenDict[Json](one) for one in self._all]
        return dumps(FrozenDict[Json]({"texts": texts, "messages": messages}))

    @property
    def _all(self) -> tuple[dict[str, str], ...]:
        return self.texts, self.messages


async def read_base(engine: Engine, found: Recorded) -> Base:
    """Return what a run shares with the one that it is a fork of: nothing where it is none."""
    if found.start.base is None:
        return Base()
    parts = await taken_back(engine, found.start.base)
    texts, messages = [cast(FrozenDict[str], parts[name]) for name in ("texts", "messages")]
    return Base(dict(texts), dict(messages))


def _number(key: str) -> int:
    return int(key.split(":", maxsplit=1)[0])
