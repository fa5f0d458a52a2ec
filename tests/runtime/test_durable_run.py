"""Durable runs over an engine in memory: sub-agents, interrupted calls, stops, sinks, stores, long values, events."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from attrs import evolve, field, frozen

from capfold.capabilities import (
    CallNext,
    Capability,
    Json,
    Message,
    Outside,
    RequireApproval,
    RunState,
    ToolContext,
    call,
    tool,
)
from capfold.runtime import (
    Agent,
    Answer,
    Approve,
    AuditRecord,
    Delta,
    Deny,
    Limits,
    MemoryStore,
    RunResult,
    Settled,
    replay,
    verify,
)
from capfold.runtime.decisions import Decision
from capfold.runtime.durable_engine import MAX_RECORDED, OnInterrupted, policy_for, policy_of
from capfold.runtime.durable_order import write_order
from capfold.runtime.durable_run import Worker, carry
from capfold.runtime.event_codec import dumps
from capfold.runtime.journal_engine import JournalEngine, NothingRecorded, Records
from capfold.runtime.outbox import event_of
from tests.runtime.desk import Trace, contents, look, make, pay, port, results
from tests.runtime.durable_desk import RUN, BySteps, Deaths, Lost, bodies, order_of, through_lives


def desk(replies: Sequence[Any], **options: Any) -> Agent[str]:  # Any: replies, and options of an agent
    """Return a desk that finds its place in a script by the step."""
    return make(model=BySteps(tuple(replies)), **options)


# --- sub-agents


def family() -> Agent[str]:
    """Return an agent whose kid needs an approval."""
    kid = Agent(
        "kid",
        BySteps((call("look", {"n": 5}), call("pay", {"amount": 5}), "found it")),
        tools=(look, pay),
        port=port(),
        capabilities=[RequireApproval(["pay"])],
    )
    replies = ([call("kid", {"task": "x"}), call("look", {"n": 1})], call("pay", {"amount": 9}), "done")
    return desk(replies, tools=(look, pay, kid.as_tool("A kid.")), limits=Limits(requests=10))


async def test_a_sub_agent_is_a_run_of_its_own_that_survives_its_workers() -> None:
    """With a worker lost at every moment of both runs, the tree comes to what it comes to in one process."""

    def approving(requests: Sequence[object]) -> list[Decision]:
        return [Approve() for _ in requests]

    wanted = await family().run("go", run_id=RUN, approver=approving)
    records = Records()
    carried, lives = await through_lives(family, records, faults=Deaths(), decide=lambda request: Approve())
    assert lives > 30
    assert {RUN, f"{RUN}/call_1_0"} == set(records.steps)
    result = carried.result
    assert evolve(wanted.state, model=None) == evolve(result.state, model=None)
    own = [record.kind for record in wanted.log if record.run == RUN]
    assert own == [
        record.kind for record in result.log if record.run == RUN and "interrupted" not in record.facts
    ]
    assert verify(result.log).complete
    assert result.messages == replay(result.log, family()).state.messages


async def test_the_log_of_a_tree_has_one_head_here_and_there() -> None:
    """Without interruptions the digests are those of one process, the runs below included."""
    wanted = await family().run("go", run_id=RUN, approver=lambda requests: [Approve() for _ in requests])
    carried, _ = await through_lives(family, Records(), decide=lambda request: Approve())
    left = [record.body for record in wanted.log if record.kind not in {"call_decided", "tool_settled"}]
    found = [
        record.body for record in carried.result.log if record.kind not in {"call_decided", "tool_settled"}
    ]
    assert left == found


# --- interrupted calls


POLICIES: tuple[tuple[OnInterrupted, str, int], ...] = (("unknown", "unknown", 1), ("retry", "succeeded", 2))


def paying(done: list[tuple[int, str]], *, idempotent: bool = False) -> Agent[str]:
    """Return an agent that pays once; each payment is noted with attempt and key."""

    @tool(idempotent=idempotent)
    async def pay(n: int, context: ToolContext) -> str:
        """Pay."""
        done.append((context.attempt, context.idempotency_key))
        return f"paid {n}"

    return desk((call("pay", {"n": 3}), "done"), tools=(pay,))


@pytest.mark.parametrize(("policy", "status", "times"), POLICIES)
async def test_a_lost_call_is_handled_as_configured(policy: OnInterrupted, status: str, times: int) -> None:
    """It is left alone or run again, the log says which, and the log replays."""
    done: list[tuple[int, str]] = []
    deaths = Deaths(("performed",), only=":call/")
    carried, _ = await through_lives(lambda: paying(done), Records(), faults=deaths, policy=policy)
    assert [("pay", status)] == results(carried.result.messages)
    assert [(i + 1, f"{RUN}:1:call_1_0") for i in range(times)] == done
    notes = [record.facts for record in carried.result.log if "interrupted" in record.facts]
    assert [{"interrupted": 1, "handled": policy}] == notes
    assert carried.result.messages == replay(carried.result.log, paying([])).state.messages


async def test_a_lost_call_of_an_idempotent_tool_is_no_news() -> None:
    """It is run again, whatever is configured, and nothing in the log differs from an undisturbed run."""
    done: list[tuple[int, str]] = []
    wanted = await paying([], idempotent=True).run("go", run_id=RUN)
    carried, _ = await through_lives(
        lambda: paying(done, idempotent=True),
        Records(),
        faults=Deaths(("performed",), only=":call/"),
        policy="unknown",
    )
    assert [1, 2] == [attempt for attempt, _ in done]
    assert wanted.log.head == carried.result.log.head


DECISIONS: tuple[tuple[Decision, str, str], ...] = (
    (Approve(), "succeeded", "paid 3"),
    (Deny("Paid, says the bank."), "unknown", "Paid, says the bank."),
    (Answer("paid 3, says the bank"), "answered", "paid 3, says the bank"),
)


@pytest.mark.parametrize(("decision", "status", "content"), DECISIONS)
async def test_a_person_decides_about_a_lost_call(decision: Decision, status: str, content: str) -> None:
    """Lost twice, asked twice: a repetition may be interrupted, too."""
    asked: list[str] = []

    def decide(request: Any) -> Decision:  # Any: of one request
        asked.append(request.tool)
        return decision

    deaths = Deaths(("performed",), only=":call/", most=2)
    carried, _ = await through_lives(
        lambda: paying([]), Records(), faults=deaths, policy="ask", decide=decide
    )
    assert [("pay", status)] == results(carried.result.messages)
    assert [content] == contents(carried.result.messages)
    assert {"pay"} == set(asked)
    notes = [record.facts["handled"] for record in carried.result.log if "interrupted" in record.facts]
    assert ["ask"] == notes
    assert carried.result.messages == replay(carried.result.log, paying([])).state.messages


def test_a_policy_is_checked() -> None:
    """A word that is none names the words that are; a function may choose by the tool."""
    with pytest.raises(ValueError, match="'unknown', 'ask', 'retry'"):
        policy_of("again")
    with pytest.raises(TypeError, match="a word or a function"):
        policy_of(5)
    assert "ask" == policy_for(pay, lambda tool: "ask" if tool.name == "pay" else "retry")
    assert "retry" == policy_for(look, "unknown")
    with pytest.raises(ValueError, match="chose 'perhaps' for pay"):
        policy_for(pay, lambda tool: "perhaps")  # type: ignore[arg-type,return-value]  # that is what is tested


# --- what ends a run from outside


class Stopping(JournalEngine):
    """An engine that hears a wish while a step is under way, each time that it is carried on."""

    wish = "stop"
    during = ":call/"

    async def step(self, key: str, perform: Any, *, counted: bool) -> str:
        """Hear it."""

        async def heard(attempt: int) -> str:
            async def hear() -> None:
                await anyio.sleep(0.01)
                if self.wish == "stop":
                    self.control.ask("enough", 0.1)
                else:
                    self.control.cancel()

            async with anyio.create_task_group() as group:
                if self.during in key:
                    group.start_soon(hear)
                text: str = await perform(attempt)
            return text

        return await super().step(key, heard, counted=counted)


@tool
async def hang() -> str:
    """Never end."""
    await anyio.sleep_forever()
    return ""


async def stopped(wish: str, during: str, replies: Sequence[Any], **options: Any) -> RunResult[object]:
    """Return what a run came to that was told to end, and whose worker was lost at each moment after that."""
    records, deaths = Records(), Deaths()

    def agent() -> Agent[str]:
        return desk(replies, tools=(hang, look), **options)

    order = order_of(agent())
    while True:
        engine = Stopping(RUN, records, faults=deaths)
        engine.wish, engine.during = wish, during
        try:
            return (await carry(engine, Worker(agent(), "retry"), order)).result
        except Lost:
            continue


async def test_a_stop_is_taken_once_and_ends_the_run_as_a_result() -> None:
    """The call that was cut short is unknown, the other one stands; what is on record is not heard again."""
    result = await stopped("stop", "/call_1_0", ([call("hang"), call("look", {"n": 1})], "done"))
    assert ("stopped", "enough") == (result.status, result.output)
    assert [("hang", "unknown"), ("look", "succeeded")] == results(result.messages)


async def test_a_cancelled_run_closes_its_history() -> None:
    """As one whose task is cancelled, in one process."""
    result = await stopped("cancel", ":call/", (call("hang"), "done"))
    assert "cancelled" == result.status
    assert [("hang", "unknown")] == results(result.messages)


async def test_a_deadline_that_passed_stays_passed() -> None:
    """It is recorded with the step that it cut short; another worker's clock does not undo it."""
    records = Records()

    def agent() -> Agent[str]:
        return Agent("desk", BySteps((call("hang"), "done")), tools=(hang,), limits=Limits(deadline=0.3))

    given = agent()
    order = dumps(write_order(given, "go", {}, given.given.port.now()))
    first = await carry(JournalEngine(RUN, records), Worker(given), order)
    again = await carry(JournalEngine(RUN, records), Worker(agent()), order)
    assert "deadline" == first.end.reason.limit  # type: ignore[union-attr]  # LimitExceeded
    assert first.end.reason == again.end.reason
    assert bodies(first.result) == bodies(again.result)


# --- sinks, stores, long values


class Keeping:
    """A sink that all workers share. `fails`: after so many records."""

    best_effort = False

    def __init__(self, fails: int = 1_000_000) -> None:
        """Start empty."""
        self.records: list[AuditRecord] = []
        self.fails = fails

    async def write(self, records: Sequence[AuditRecord]) -> None:
        """Keep records, or fail."""
        if len(self.records) + len(records) > self.fails:
            raise OSError("full")
        self.records.extend(records)

    async def close(self) -> None:
        """Do nothing."""


async def test_sinks_get_every_record_and_only_the_last_ones_twice() -> None:
    """What was written before a step that is on record is not written again by whoever goes on."""
    replies = ([call("look", {"n": 1}), call("look", {"n": 2})], "done")
    sink = Keeping()
    carried, lives = await through_lives(lambda: desk(replies, sinks=[sink]), Records(), faults=Deaths())
    assert lives > 5
    found = {record.seq: record.digest for record in sink.records}
    assert {record.seq: record.digest for record in carried.result.log} == found
    calm = Keeping()
    await through_lives(lambda: desk(replies, sinks=[calm]), Records())
    assert list(carried.result.log) == calm.records


async def test_a_sink_that_fails_ends_the_run_the_same_way_for_every_worker() -> None:
    """Its failure is on record with the step that it prevented, whatever the sink does for the next worker."""
    records = Records()
    replies = (call("look", {"n": 1}), "done")
    first, _ = await through_lives(lambda: desk(replies, sinks=[Keeping(4)]), records)
    again, _ = await through_lives(lambda: desk(replies, sinks=[Keeping()]), records)
    assert "failed" == first.result.status
    assert first.end.reason == again.end.reason
    assert first.result.log.head == again.result.log.head


async def test_a_conversation_is_saved_once() -> None:
    """A worker that was lost after it had saved, and before that was recorded, has saved."""
    store = MemoryStore()
    for _ in range(2):
        records = Records()
        carried, _ = await through_lives(
            lambda: desk((call("look", {"n": 1}), "done"), store=store),
            records,
            faults=Deaths(),
            options={"conversation": "talk"},
        )
        assert "completed" == carried.result.status
    messages: tuple[Message, ...] = await store.load("talk")
    assert 8 == len(messages)


async def test_long_values_are_kept_aside() -> None:
    """A step whose result is over a million characters records a name; it comes back whole."""
    long = "x" * (MAX_RECORDED + 1)

    @tool(read_only=True)
    async def read() -> str:
        """Read a lot."""
        return long

    records = Records()
    for _ in range(2):
        carried, _ = await through_lives(lambda: desk((call("read"), "done"), tools=(read,)), records)
        assert [long] == contents(carried.result.messages)
    assert max(len(text) for text in records.steps[RUN].values()) < 1_000
    assert 1 == len(records.aside)


async def test_what_a_step_records_does_not_grow_with_the_history() -> None:
    """The tenth step of a run is recorded in as many characters as the second, but for digits."""

    @frozen
    class Wraps(Capability):
        async def wrap_model_request(
            self, call_next: CallNext[RunState, RunState], state: RunState
        ) -> RunState:
            return await call_next(state.keep_last(2).add_instructions("Be brief.").note("wrapped"))

    replies = [*[call("look", {"n": n}) for n in range(10)], "done"]
    records = Records()
    carried, _ = await through_lives(lambda: desk(replies, capabilities=[Wraps()]), records)
    assert "completed" == carried.result.status
    sizes = {key: len(text) for key, text in records.steps[RUN].items()}
    models = [size for key, size in sizes.items() if key.endswith(":model")][2:-1]
    assert max(models) - min(models) < 20


# --- attempts, wrap_run, events


async def test_gatherers_and_wrappers_hear_that_they_are_run_again() -> None:
    """Attempt is 2 in the worker that goes on with the step; the key is the same."""
    seen: list[tuple[str, int, str]] = []

    @frozen
    class Hears(Capability):
        async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
            seen.append(("gather", outside.attempt, outside.idempotency_key))
            return None

        async def wrap_model_request(
            self, call_next: CallNext[RunState, RunState], state: RunState
        ) -> RunState:
            seen.append(("model", call_next.attempt, call_next.idempotency_key))
            return await call_next(state)

    deaths = Deaths(("performed",))
    await through_lives(lambda: desk(("done",), capabilities=[Hears()]), Records(), faults=deaths)
    assert [1, 2] == [attempt for kind, attempt, _ in seen if kind == "gather"]
    assert [1, 2] == [attempt for kind, attempt, _ in seen if kind == "model"]
    assert 2 == len({key for _, _, key in seen})


@frozen
class Latches(Capability):
    """Notes how often it enclosed the run."""

    trace: Trace = field(factory=Trace)

    async def wrap_run(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        """Note it on the way in."""
        self.trace.add("entered")
        return await call_next(state.note(f"entered {len(self.trace.lines)}"))


async def test_wrap_run_is_entered_by_each_worker_and_recorded_once() -> None:
    """What it latched first stands, whatever it does for the workers after that."""
    latches = Latches()
    carried, lives = await through_lives(
        lambda: desk((call("look", {"n": 1}), "done"), capabilities=[latches]), Records(), faults=Deaths()
    )
    assert lives == len(latches.trace.lines)
    assert 1 == len(carried.result.state.notes)


async def test_a_live_run_shows_its_events() -> None:
    """Deltas as they come, messages once they are settled; a run that is not live shows nothing."""
    records = Records()
    await through_lives(lambda: desk((call("look", {"n": 1}), "done")), records, options={"live": True})
    shown = [event_of(text) for text in records.shown[RUN]]
    assert "done" == "".join(event.text for event in shown if isinstance(event, Delta))
    assert 3 == sum(isinstance(event, Settled) for event in shown)
    quiet = Records()
    await through_lives(lambda: desk(("done",)), quiet)
    assert {} == quiet.shown


async def test_a_run_that_is_only_read_says_where_its_records_end() -> None:
    """Nothing is performed."""
    agent = desk(("done",))
    with pytest.raises(NothingRecorded) as found:
        await carry(JournalEngine(RUN, Records(), live=False), Worker(agent), order_of(agent))
    assert "1:1:model" == found.value.key


def test_an_order_is_refused_before_anything_is_recorded() -> None:
    """What cannot be written down, or could not start, is named."""
    agent = desk(("done",))
    with pytest.raises(TypeError, match="name of a model"):
        order_of(agent, model=BySteps(()))
    with pytest.raises(TypeError, match="nonsense"):
        order_of(agent, nonsense=5)
    with pytest.raises(ValueError, match="needs a store"):
        order_of(agent, conversation="talk")
