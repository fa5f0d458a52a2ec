"""A run in the memory of a worker, its records, and what its process does when it leaves; the first need no server."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio
import pytest
from attrs import frozen

from capfold.capabilities import CallNext, Capability, RunState, call, tool
from capfold.capabilities.run_parts import Stop
from capfold.runtime import Agent, CodecError
from tests.runtime.desk import contents, results
from tests.runtime.durable_desk import BySteps
from tests.temporal import temporal_server

pytest.importorskip("temporalio", reason="temporalio is missing: it is the extra `temporal`")

from temporalio.client import Client, WorkflowFailureError
from temporalio.converter import DefaultPayloadConverter

from capfold.runtime.durable_engine import Policy
from capfold.runtime.durable_run import Carried
from capfold.runtime.event_codec import loads
from capfold.runtime.temporal_engine import NeverAsked, TemporalEngine, short
from capfold.runtime.temporal_history import Base
from capfold.runtime.temporal_port import TemporalAgent
from capfold.runtime.temporal_records import CapfoldPayloadConverter, Done, Start, Todo, with_records

__all__ = ["temporal_server"]
SECONDS = 60
LEASE = 2.0


@pytest.fixture
def anyio_backend() -> str:
    """Run on asyncio: Temporal knows no other loop."""
    return "asyncio"


class Shelf:
    """Keeps texts, and has no run below."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def run_below(self, above: TemporalEngine, run_id: str, order: str) -> str:
        """Find nothing."""
        raise LookupError(run_id)

    async def end_below(self, run_id: str) -> None:
        """Find nothing."""
        raise LookupError(run_id)

    async def keep(self, text: str) -> str:
        """Keep a text."""
        self.texts.append(text)
        return str(len(self.texts) - 1)

    async def kept(self, name: str) -> str:
        """Return a text."""
        return self.texts[int(name)]


def stepping(
    engine: TemporalEngine, *batches: tuple[str, ...]
) -> Callable[[], Awaitable[tuple[Carried, str]]]:
    """Return work that needs steps, batch by batch; each comes to its key and the number of its attempt."""

    def performed(key: str) -> Callable[[int], Awaitable[str]]:
        async def perform(attempt: int) -> str:
            await anyio.lowlevel.checkpoint()
            return f"{key} {attempt}"

        return perform

    async def work() -> tuple[Carried, str]:
        said: list[str] = []
        for keys in batches:
            steps = [engine.step(key, performed(key), counted=True) for key in keys]
            said.extend(await asyncio.gather(*steps))
        return cast(Carried, None), ",".join(said)

    return work


async def said(engine: TemporalEngine) -> str:
    """Return the text that a run came to."""
    end = await engine.ended()
    assert end is not None
    return end[1]


async def test_a_run_stands_before_the_steps_that_are_next() -> None:
    """What is recorded is passed, a batch is known as a whole, and after its last step the next one is."""
    engine = TemporalEngine("run", "x", Shelf())
    engine.take({"1": "one"}, {})
    engine.begin(stepping(engine, ("1",), ("2", "3"), ("4",)))
    assert await engine.stands()
    assert ("2", "3") == engine.next()
    assert "3 1" == await engine.perform("3", 1)
    assert await engine.stands()
    assert ("2",) == engine.next()
    assert "2 7" == await engine.perform("2", 7)
    assert await engine.stands()
    assert ("4",) == engine.next()
    assert await engine.ended() is None
    await engine.perform("4", 1)
    assert await engine.stands()
    assert engine.is_over
    assert "one,2 7,3 1,4 1" == await said(engine)


async def test_what_other_workers_recorded_is_taken_over() -> None:
    """Also for a step that the run stands before: it is not performed here."""
    engine = TemporalEngine("run", "x", Shelf())
    engine.begin(stepping(engine, ("1", "2"), ("3",)))
    await engine.perform("1", 1)
    engine.take({"2": "two"}, {})
    assert await engine.stands()
    assert ("3",) == engine.next()
    await engine.close()


async def test_a_step_that_a_run_does_not_come_to_is_not_guessed() -> None:
    """It stands before others, or has ended: the error names both."""
    engine = TemporalEngine("run", "x", Shelf())
    engine.begin(stepping(engine, ("1",)))
    with pytest.raises(NeverAsked, match=r"'9'.*before '1'"):
        await engine.perform("9", 1)
    await engine.perform("1", 1)
    with pytest.raises(NeverAsked, match="none"):
        await engine.perform("9", 1)


async def test_what_breaks_a_run_is_raised() -> None:
    """By the step that brought it about, and by its end."""
    engine = TemporalEngine("run", "x", Shelf())

    async def fails(attempt: int) -> str:
        raise RuntimeError("no room")

    async def work() -> tuple[Carried, str]:
        return cast(Carried, None), await engine.step("1", fails, counted=True)

    engine.begin(work)
    with pytest.raises(RuntimeError, match="no room"):
        await engine.perform("1", 1)
    with pytest.raises(RuntimeError, match="no room"):
        await engine.ended()


async def test_a_wait_ends_with_its_message_only() -> None:
    """Early messages are kept; those of other topics end nothing."""
    engine = TemporalEngine("run", "x", Shelf())

    async def work() -> tuple[Carried, str]:
        first = await engine.wait("a", "?")
        return cast(Carried, None), first + await engine.wait("b", "?!")

    engine.begin(work)
    assert await engine.stands()
    assert ("a", "?") == engine.waiting
    engine.send("b", "B")
    assert ("a", "?") == engine.waiting
    engine.send("a", "A")
    assert await engine.stands()
    assert "AB" == await said(engine)


async def test_a_text_that_grows_in_its_payload_is_kept_aside() -> None:
    """A million quotes are two million characters in JSON within JSON."""
    shelf = Shelf()
    engine = TemporalEngine("run", "x", shelf)
    assert "x" * 1_000_000 == await short(engine, "x" * 1_000_000)
    text = await short(engine, '"' * 1_000_000)
    assert '"' * 1_000_000 == await engine.kept(str(loads(text)["aside"]))


def test_a_base_is_what_was_before_a_step() -> None:
    """Steps and messages; a step that was not reached has none."""
    base = Base({"1:1:model": "a", "4:2:model": "b"}, {"3:1:wait": "yes", "5:2:wait": "no"})
    assert Base({"1:1:model": "a"}, {"3:1:wait": "yes"}).text() == base.before(2).text()
    with pytest.raises(ValueError, match="not from 0"):
        base.before(0)


@pytest.mark.parametrize(
    "record",
    [
        Start("{}", 1.5, 3, forked_from="other"),
        Todo("1:1:model", 2, 0, 1, ("topic", "message"), "wish"),
        Done("queue", 'text\n"', ("1", "2"), ("topic", "asked"), "end", "completed"),
    ],
)
def test_records_cross_as_they_are(record: Start | Todo | Done) -> None:
    """Written by the codec, read strictly; all else is Temporal's own business."""
    converter = CapfoldPayloadConverter()
    payloads = converter.to_payloads([record, {"a": 1}, None])
    assert [record, {"a": 1}, None] == converter.from_payloads(payloads, [type(record), dict, type(None)])
    with pytest.raises(CodecError):
        converter.from_payloads(payloads[:1], [Stop])
    with pytest.raises(TypeError, match="none was given"):
        converter.from_payloads(payloads[:1])


# --- with a server


@frozen
class Opens(Capability):
    """Has a connection of its own, outside of any step."""

    port: int

    async def wrap_run(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        async with await anyio.connect_tcp("127.0.0.1", self.port):
            return await call_next(state)


def steady(seconds: float, **options: Any) -> Agent[str]:  # Any: whatever else Agent takes
    """Return an agent whose tool takes so long."""

    @tool
    async def work() -> str:
        """Work."""
        await anyio.sleep(seconds)
        return "worked"

    return Agent("steady", BySteps((call("work"), "done")), tools=[work], **options)


def worker(
    server: str, agent: Agent[str], queue: str, policy: Policy = "unknown", **options: Any
) -> TemporalAgent[str]:
    """Return a worker of a queue."""
    return TemporalAgent(agent, server, task_queue=queue, lease=LEASE, on_interrupted=policy, **options)


async def until_called(durable: TemporalAgent[str], run_id: str) -> None:
    """Wait until a call is under way for some time."""
    client = await durable.runs.client()
    while True:
        described = await client.get_workflow_handle(run_id).describe()
        beats = [one.heartbeat_details.payloads for one in described.raw_description.pending_activities]
        keys = [await client.data_converter.decode(beat) for beat in beats if beat]
        if any("call/" in key for (key,) in keys):
            return
        await asyncio.sleep(0.05)


async def test_wrappers_may_open_connections(temporal_server: str) -> None:
    """The machine stands in the worker's own event loop, where sockets work."""
    _, port = temporal_server.split(":")
    agent = steady(0.0, capabilities=[Opens(int(port))])
    async with worker(temporal_server, agent, "opens") as durable, asyncio.timeout(SECONDS):
        assert "done" == (await durable.run("go")).output


async def test_a_worker_that_leaves_may_end_its_steps(temporal_server: str) -> None:
    """`close(patience)`: the step under way is recorded, and the run goes on elsewhere from there."""
    first = await worker(temporal_server, steady(1.5), "patient").open()
    run_id = await first.start("go")
    await until_called(first, run_id)
    await first.close(SECONDS)
    async with worker(temporal_server, steady(0.0), "patient") as durable, asyncio.timeout(SECONDS):
        result = await durable.result(run_id)
    assert [("work", "succeeded")] == results(result.messages)


async def test_a_worker_that_leaves_at_once_leaves_its_call_unknown(temporal_server: str) -> None:
    """It was begun, and nobody knows what came of it; no lease has to run out."""
    first = await worker(temporal_server, steady(60.0), "leaves").open()
    run_id = await first.start("go")
    await until_called(first, run_id)
    await first.close()
    async with worker(temporal_server, steady(0.0), "leaves") as durable, asyncio.timeout(SECONDS):
        result = await durable.result(run_id)
    assert [("work", "unknown")] == results(result.messages)


async def test_a_step_is_not_tried_for_ever(temporal_server: str) -> None:
    """`attempts`: then the run is broken, and says which step it was."""
    first = await worker(temporal_server, steady(60.0), "tries", attempts=1).open()
    run_id = await first.start("go")
    await until_called(first, run_id)
    await first.close()
    async with worker(temporal_server, steady(0.0), "tries") as durable, asyncio.timeout(SECONDS):
        with pytest.raises(WorkflowFailureError):
            await durable.result(run_id)
        assert "was tried 1 times" in str((await durable.runs.show(run_id)).error)


async def test_a_run_below_is_found_again(temporal_server: str) -> None:
    """The worker leaves while the run above waits for the one below: that is one run, whoever carries them on."""

    def boss() -> Agent[str]:
        below = steady(1.5).as_tool("Works.", name="clerk")
        return Agent("boss", BySteps((call("clerk", {"task": "go"}), "all done")), tools=[below])

    first = await worker(temporal_server, boss(), "boss").open()
    run_id = await first.start("go")
    await until_called(first, run_id)
    await first.close()
    async with worker(temporal_server, boss(), "boss", "retry") as durable, asyncio.timeout(SECONDS):
        result = await durable.result(run_id)
        infos = await durable.list()
    assert ["done"] == contents(result.messages)
    assert {run_id, f"{run_id}/call_1_0"} == {info.run_id for info in infos if info.run_id.startswith(run_id)}
    assert "completed" == result.status


async def test_a_converter_of_ones_own_must_know_our_records(temporal_server: str) -> None:
    """Else it is refused, by name; one that derives from ours is taken."""

    class Own(DefaultPayloadConverter):
        """Knows nothing of capfold."""

    client = await Client.connect(temporal_server)
    config = client.config()
    converter = config["data_converter"]
    assert with_records(with_records(client)) is not client
    own = type(converter)(payload_converter_class=Own)
    config["data_converter"] = own
    with pytest.raises(ValueError, match="by Own: derive that"):
        TemporalAgent(steady(0.0), Client(**config))


async def test_an_unknown_namespace_is_told(temporal_server: str) -> None:
    """`run` does not wait for a worker that could not begin."""
    durable = worker(temporal_server, steady(0.0), "nowhere", namespace="nowhere")
    async with asyncio.timeout(SECONDS):
        with pytest.raises(Exception, match=r"[Nn]amespace"):
            await durable.run("go")
        with pytest.raises(RuntimeError, match=r"[Nn]amespace"):
            await durable.close()
