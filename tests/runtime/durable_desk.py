"""What the tests of durable runs share: workers that die where they are told to, and others that go on."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from attrs import field, frozen

from capfold.capabilities import AssistantMessage, Json, ToolContext, call, tool
from capfold.runtime import (
    Agent,
    ApprovalRequest,
    ModelError,
    ModelRequest,
    RunError,
    RunResult,
    ScriptedModel,
)
from capfold.runtime.codec import from_json
from capfold.runtime.decisions import Decision
from capfold.runtime.durable_engine import Engine, Perform, Policy
from capfold.runtime.durable_order import DurableOptions, write_order
from capfold.runtime.durable_run import Carried, Worker, carry, carry_below, decisions_message
from capfold.runtime.event_codec import dumps, loads
from capfold.runtime.journal_engine import Faults, JournalEngine, Moment, Records, no_fault
from capfold.runtime.models import Meter, ModelPart
from capfold.runtime.scripted_model import Reply
from tests.runtime.meters import CountingMeter
from tests.runtime.test_same_everywhere import of_failure

RUN = "run"
NAME = "teller"
E = TypeVar("E", bound=Engine)
Decide = Callable[[ApprovalRequest], Decision]


class Lost(BaseException):
    """The worker dies here."""


@frozen(eq=False)
class Deaths:
    """Ends one worker at each moment of each step, as far as `moments` goes.

    `only`: of steps whose key has it. `most`: how many die.
    """

    moments: tuple[Moment, ...] = ("begun", "performed", "recorded")
    only: str = ""
    most: int = 1000
    places: list[tuple[str, str, Moment]] = field(factory=list)

    def __call__(self, run_id: str, key: str, moment: Moment) -> None:
        """Die, once at each place."""
        place = (run_id, key, moment)
        wanted = moment in self.moments and self.only in key and len(self.places) < self.most
        if wanted and place not in self.places:
            self.places.append(place)
            raise Lost(f"{run_id} {key} {moment}")


class Answering(JournalEngine):
    """An engine whose people decide at once; `decide` None: they never do."""

    def __init__(
        self, run_id: str, records: Records, worker: Worker, faults: Faults, decide: Decide | None
    ) -> None:
        """Carry runs below on by the same worker."""

        async def below(engine: JournalEngine, order: str) -> str:
            return await carry_below(engine, worker, order)

        super().__init__(run_id, records, below=below, faults=faults)
        self._again: Callable[[str], JournalEngine] = lambda run_id: Answering(
            run_id, records, worker, faults, decide
        )
        self._decide = decide

    def engine_below(self, run_id: str) -> JournalEngine:
        """Return an engine of the same people."""
        return self._again(run_id)

    async def wait(self, topic: str, asked: str) -> str:
        """Send the decisions before they are waited for."""
        if self._decide is not None:
            requests = [from_json(one, ApprovalRequest) for one in loads(asked)["requests"]]  # type: ignore[union-attr]  # an array
            decisions = {request.digest: self._decide(request) for request in requests}
            self.records.send(self.run_id, topic, decisions_message(decisions, 100.0))
        return await super().wait(topic, asked)


class BySteps:
    """A script that answers by the number of the step, so that each worker that goes on finds its place in it."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        """Take the replies of all steps."""
        self._replies = replies

    name = "scripted"
    profile = ScriptedModel(()).profile

    async def _at(self, step: int) -> ScriptedModel:
        model = ScriptedModel(self._replies)
        for _ in range(step - 1):
            with contextlib.suppress(ModelError):
                await model.request(ModelRequest(messages=()), CountingMeter())
        return model

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        """Answer as the script does at this step."""
        return await (await self._at(request.step)).request(request, meter)

    @contextlib.asynccontextmanager
    async def stream(self, request: ModelRequest, meter: Meter) -> AsyncIterator[AsyncIterator[ModelPart]]:
        """Answer as the script does, in pieces."""
        async with (await self._at(request.step)).stream(request, meter) as parts:
            yield parts


def order_of(agent: Agent[Any], prompt: str = "go", **options: Any) -> str:  # Any: DurableOptions
    """Return the order of a run."""
    given: DurableOptions = options  # type: ignore[assignment]  # by name
    return dumps(write_order(agent, prompt, given, 100.0))


async def through_lives(
    make: Callable[[], Agent[Any]],  # Any: of every output type
    records: Records,
    *,
    faults: Faults = no_fault,
    policy: Policy = "retry",
    decide: Decide | None = None,
    options: Mapping[str, Any] | None = None,
) -> tuple[Carried, int]:
    """Carry a run on by one worker after another until one comes to its end; return that, and how many there were.

    `make` makes a worker's agent.
    """
    order = order_of(make(), **(options or {}))
    lives = 0
    while True:
        lives += 1
        worker = Worker(make(), policy)
        try:
            return await carry(Answering(RUN, records, worker, faults, decide), worker, order), lives
        except Lost:
            continue


def answered(records: Records, run_id: str = RUN) -> int:
    """Return how many responses are recorded of a run."""
    return sum(key.endswith(":model") for key in records.steps.get(run_id, {}))


def bodies(result: RunResult[Any], *leave_out: str) -> list[Mapping[str, Json]]:
    """Return the bodies of a log but for those of kinds, and for notes that a call was interrupted."""
    return [
        record.body
        for record in result.log
        if record.kind not in leave_out and "interrupted" not in record.facts
    ]


async def local(work: Any) -> tuple[RunResult[Any], object]:  # Any: an awaitable of a result
    """Return what a run in this process came to, and why it failed where it did."""
    try:
        return await work, None
    except RunError as error:
        return of_failure(error)


def make(folder: Path, *, seconds: float = 0.0) -> Agent[str]:
    """Return an agent of three steps; its tools write what they do to a file per run: `seconds` go by in `pay`."""

    def write(context: ToolContext, line: str) -> None:
        with (folder / context.run_id).open("a") as effects:
            effects.write(f"{line} {context.attempt} {context.idempotency_key}\n")

    @tool(read_only=True)
    async def look(n: int, context: ToolContext) -> str:
        """Look n up."""
        write(context, f"look {n}")
        return f"found {n}"

    @tool
    async def pay(n: int, context: ToolContext) -> str:
        """Pay n."""
        write(context, f"pay {n}")
        await asyncio.sleep(seconds)
        write(context, f"paid {n}")
        return f"paid {n}"

    replies = ([call("look", {"n": 1}), call("pay", {"n": 2})], call("pay", {"n": 3}), "done")
    return Agent(NAME, BySteps(replies), tools=[look, pay])


class Killing:
    """Ends the process at the n-th moment of its steps."""

    def __init__(self, at: int) -> None:
        """Count from 1."""
        self._left = at

    def moment(self) -> None:
        """Pass a moment, or end here."""
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def set_up(self, kind: type[E]) -> None:
        """Stand in the way of every step of a kind of engine that is not recorded yet."""
        step = kind.step

        async def watched(engine: E, key: str, perform: Perform, *, counted: bool) -> str:
            was_performed = False

            async def performed(attempt: int) -> str:
                nonlocal was_performed
                was_performed = True
                self.moment()
                text = await perform(attempt)
                self.moment()
                return text

            text = await step(engine, key, performed, counted=counted)
            if was_performed:
                self.moment()
            return text

        setattr(kind, "step", watched)  # noqa: B010  # in a process of its own; a type of methods has no assignments
