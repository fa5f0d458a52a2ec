"""A suspended run is held in the store, and goes on once: by its id, by its snapshot, by its result."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import frozen

from capfold.capabilities import (
    CallNext,
    Capability,
    Message,
    RequireApproval,
    RunState,
    ToolMessage,
    UserMessage,
    call,
    is_destructive,
    tool,
)
from capfold.runtime import (
    Agent,
    Answer,
    Approve,
    CodecError,
    Decision,
    DecisionError,
    Deny,
    Edit,
    JsonLines,
    RunResult,
    ScriptedModel,
    StorageError,
    StoreFailed,
    read_log,
    verify,
)
from capfold.runtime.memory_store import MemoryStore
from capfold.runtime.sqlite_store import SQLiteStore
from capfold.runtime.stores import SnapshotClaimed, StoreError
from tests.house.conftest import ROOT
from tests.runtime.store_places import Place, new_place, postgres_server

__all__ = ["new_place", "postgres_server"]


class Bank:
    """What was paid."""

    def __init__(self) -> None:
        """Nothing."""
        self.paid: list[int] = []


def desk(store: Any, bank: Bank, *replies: Any, **more: Any) -> Agent[str]:  # Any: as `Agent`
    """Return an agent that must ask before it pays."""

    @tool(destructive=True)
    def pay(amount: int) -> str:
        """Pay."""
        bank.paid.append(amount)
        return f"paid {amount}"

    capabilities = [RequireApproval(is_destructive), *more.pop("capabilities", ())]
    return Agent("desk", ScriptedModel(replies), tools=[pay], capabilities=capabilities, store=store, **more)


PAY = call("pay", {"amount": 10}, id="x")


async def suspended(store: Any, bank: Bank, **options: Any) -> RunResult[str]:
    """Return a run that waits, held in the store under `r`."""
    result = await desk(store, bank, PAY, "Paid.").run("Pay.", run_id="r", **options)
    assert "suspended" == result.status
    return result


def yes(result: RunResult[str]) -> dict[str, Decision]:
    """Return the approval of all that waits."""
    return {request.digest: Approve() for request in result.pending}


async def test_a_suspended_run_is_held_and_resumed_by_its_id() -> None:
    """With the store alone: another agent that is built alike goes on."""
    store, bank = MemoryStore(), Bank()
    waiting = await suspended(store, bank)
    assert (("r",), waiting.snapshot()) == (await store.pending(), await store.held("r"))
    result = await desk(store, bank, "Paid.").resume("r", yes(waiting))
    assert ("completed", "Paid.", [10], ()) == (
        result.status,
        result.output,
        bank.paid,
        await store.pending(),
    )


async def test_every_kind_of_store(new_place: Callable[[], Place]) -> None:
    """A turn saved, a turn suspended in one store, resumed in another one of the same place, once."""
    place, bank = new_place(), Bank()
    async with place.open() as store:
        await desk(store, bank, "Hello.").run("Hi.", conversation="c")
        waiting = await suspended(store, bank, conversation="c")
    async with place.open() as store:
        made = desk(store, bank, "Paid.")
        assert "Paid." == (await made.resume("r", yes(waiting))).output
        with pytest.raises(SnapshotClaimed):
            await made.resume("r", yes(waiting))
        assert 6 == len(await store.load("c"))
    assert [10] == bank.paid


FORMS: list[Callable[[RunResult[str]], Any]] = [
    lambda result: "r",
    lambda result: result.snapshot(),
    lambda result: result,
]


@pytest.mark.parametrize("second", FORMS, ids=["id", "text", "result"])
@pytest.mark.parametrize("first", FORMS, ids=["id", "text", "result"])
async def test_a_run_is_resumed_once(first: Any, second: Any) -> None:
    """However it is given, the first time and the second."""
    store, bank = MemoryStore(), Bank()
    waiting = await suspended(store, bank)
    made = desk(store, bank, "Paid.", "Paid again.")
    await made.resume(first(waiting), yes(waiting))
    with pytest.raises(SnapshotClaimed) as caught:
        await made.resume(second(waiting), yes(waiting))
    assert ("r", [10]) == (caught.value.run_id, bank.paid)


@pytest.mark.parametrize("form", FORMS[1:], ids=["text", "result"])
async def test_a_snapshot_that_was_kept_elsewhere_is_resumed_once_too(form: Any) -> None:
    """By an agent with a store that has never seen it."""
    store, bank = MemoryStore(), Bank()
    waiting = await suspended(None, bank)
    made = desk(store, bank, "Paid.", "Paid again.")
    result = await made.resume(form(waiting), yes(waiting))
    assert ("completed", ()) == (result.status, await store.pending())
    with pytest.raises(SnapshotClaimed):
        await made.resume(form(waiting), yes(waiting))
    assert [10] == bank.paid


async def test_an_old_snapshot_of_a_run_that_waits_again() -> None:
    """Suspended anew, the run has another snapshot; the first one is spent."""
    store, bank = MemoryStore(), Bank()
    first = await suspended(store, bank)
    made = desk(store, bank, call("pay", {"amount": 20}, id="y"), "Paid.")
    again = await made.resume("r", yes(first))
    assert ("suspended", ("r",)) == (again.status, await store.pending())
    with pytest.raises(SnapshotClaimed):
        await made.resume(first.snapshot(), yes(first))
    assert ("r",) == await store.pending()
    assert "Paid." == (await made.resume("r", yes(again))).output
    assert [10, 20] == bank.paid


@pytest.mark.parametrize(
    "decisions",
    [{}, {"nobody": Approve()}, "Edit", "no decision"],
    ids=str,
)
async def test_decisions_that_do_not_fit_leave_it_held(decisions: Any) -> None:
    """It waits as before, and can be resumed rightly afterwards."""
    store, bank = MemoryStore(), Bank()
    waiting = await suspended(store, bank)
    wrong: dict[str, Any] = {"Edit": Edit({"amount": "much"}), "no decision": "yes"}
    given = decisions if isinstance(decisions, dict) else {waiting.pending[0].digest: wrong[decisions]}
    made = desk(store, bank, "Paid.")
    with pytest.raises(DecisionError):
        await made.resume("r", given)
    assert (("r",), []) == (await store.pending(), bank.paid)
    assert "Paid." == (await made.resume("r", yes(waiting))).output


@pytest.mark.parametrize(
    ("decision", "paid"),
    [(Approve(), [10]), (Deny("no"), []), (Edit({"amount": 3}), [3]), (Answer("by hand"), [])],
)
async def test_each_decision(decision: Decision, paid: list[int]) -> None:
    """By id as in the same process."""
    store, bank = MemoryStore(), Bank()
    waiting = await suspended(store, bank)
    await desk(store, bank, "Done.").resume("r", {waiting.pending[0].digest: decision})
    assert paid == bank.paid


async def test_the_approver_is_asked_before_the_claim() -> None:
    """One that answers wrongly leaves the run held; of a run that was resumed nobody is asked."""
    store, bank, asked = MemoryStore(), Bank(), []
    await suspended(store, bank)

    def nobody(requests: Any) -> Any:
        asked.append(len(requests))
        return []

    made = desk(store, bank, "Paid.", "Paid again.")
    with pytest.raises(DecisionError):
        await made.resume("r", approver=nobody)
    assert ("r",) == await store.pending()
    await made.resume("r", approver=lambda requests: [Approve() for _ in requests])
    with pytest.raises(SnapshotClaimed):
        await made.resume("r", approver=nobody)
    assert ([1], [10]) == (asked, bank.paid)


async def test_an_id_that_nobody_knows() -> None:
    """A LookupError that names it; without a store it is no snapshot either."""
    with pytest.raises(LookupError, match="'r'"):
        await desk(MemoryStore(), Bank()).resume("r", {})
    with pytest.raises(CodecError, match="no store"):
        await desk(None, Bank()).resume("r", {})


async def test_a_snapshot_of_another_agent_stays_held() -> None:
    """What cannot be resumed is not claimed."""
    store, bank = MemoryStore(), Bank()
    waiting = await suspended(store, bank)
    other = Agent("other", ScriptedModel([]), store=store)
    with pytest.raises(ValueError, match="is of agent 'desk'"):
        await other.resume("r", yes(waiting))
    with pytest.raises(CodecError, match="no tool is named 'pay'"):
        await Agent("desk", ScriptedModel([]), store=store).resume("r", yes(waiting))
    with pytest.raises(ValueError, match="Last is new"):
        await desk(store, bank, capabilities=[Last()]).resume("r", yes(waiting))
    assert ("r",) == await store.pending()


# --- conversations


async def test_a_resumed_run_saves_at_its_own_end() -> None:
    """While it waits nothing of it is saved; it goes on with what it loaded, and saves all of it at once."""
    store, bank = MemoryStore(), Bank()
    await store.append("c", [UserMessage("before")], 0)
    waiting = await suspended(store, bank, conversation="c")
    assert 1 == len(await store.load("c"))
    result = await desk(store, bank, "Paid.").resume("r", yes(waiting))
    assert ["before", "Pay.", "", "paid 10", "Paid."] == [m.content for m in await store.load("c")]
    assert 4 == result.log[-1].facts["saved"]


async def test_a_conversation_that_went_on_meanwhile() -> None:
    """A conflict at the end, as of any two writers; what was paid is in the partial."""
    store, bank = MemoryStore(), Bank()
    waiting = await suspended(store, bank, conversation="c")
    await store.append("c", [UserMessage("meanwhile")], 0)
    with pytest.raises(StorageError) as caught:
        await desk(store, bank, "Paid.").resume("r", yes(waiting))
    reason = caught.value.reason
    assert isinstance(reason, StoreFailed)
    assert (0, 1, [10]) == (reason.expected, reason.found, bank.paid)
    assert caught.value.partial is not None
    assert "Paid." == caught.value.partial.messages[-1].content


async def test_a_conversation_is_resumed_with_its_store() -> None:
    """An agent without one could not save it; nothing is done."""
    store, bank = MemoryStore(), Bank()
    waiting = await suspended(store, bank, conversation="c")
    with pytest.raises(ValueError, match="needs the store"):
        await desk(None, bank, "Paid.").resume(waiting.snapshot(), yes(waiting))
    assert [] == bank.paid


async def test_instructions_are_those_that_the_run_started_with() -> None:
    """A prompt source is not asked again, and plain text that changed meanwhile is not taken."""
    store, bank, asked = MemoryStore(), Bank(), []

    def source(state: RunState) -> str:
        asked.append(state.run_id)
        return f"Number {len(asked)}."

    waiting = await desk(store, bank, PAY, instructions=source).run("Pay.", run_id="r")
    for form in (waiting, waiting.snapshot()):
        later = desk(None, bank, "Paid.", instructions="Others.")
        result = await later.resume(form, yes(waiting), allow_changed={"none"})
        assert "Number 1." == result.state.instructions
    assert ["r"] == asked


@frozen
class Last(Capability):
    """Loads the last two messages only."""

    async def wrap_load_messages(self, call_next: Any, state: RunState) -> Any:
        return (await call_next(state))[-2:]


async def test_what_was_loaded_is_not_what_is_counted() -> None:
    """Where a wrapper shortened the history, the store still takes the run's messages: it counts its own."""
    store, bank = MemoryStore(), Bank()
    await store.append("c", [UserMessage(str(n)) for n in range(5)], 0)
    made = desk(store, bank, PAY, "Paid.", capabilities=[Last()])
    waiting = await made.run("Pay.", run_id="r", conversation="c")
    await made.resume("r", yes(waiting))
    assert 9 == len(await store.load("c"))


async def test_a_sub_agent_that_waits_is_held_with_its_caller() -> None:
    """One snapshot for the tree, under the caller's id; the sub-agent's own store has nothing."""
    store, own, bank = MemoryStore(), MemoryStore(), Bank()

    def source(state: RunState) -> str:
        return f"I am {state.agent}."

    def tree(below: list[Any], above: list[Any]) -> Agent[str]:
        child = desk(own, bank, *below, instructions=source)
        return Agent("above", ScriptedModel(above), tools=[child.as_tool("Pay.")], store=store)

    waiting = await tree([PAY], [call("desk", {"task": "pay"}, id="t")]).run("go", run_id="r")
    assert (("r",), ()) == (await store.pending(), await own.pending())
    later = tree(["Paid."], ["Done."])
    result = await later.resume("r", yes(waiting))
    assert ("Done.", [10], ()) == (result.output, bank.paid, await own.pending())
    child: Any = later.tools[0].function
    assert "I am desk." == child.agent.setup.model.requests[0].instructions


# --- a store that fails


class Failing(MemoryStore):
    """A store of which one operation fails."""

    def __init__(self, operation: str, error: Exception) -> None:
        """Fail at `operation` with `error`, until `mend`."""
        super().__init__()
        object.__setattr__(self, "at", [operation, error])

    def mend(self) -> None:
        """Fail no more."""
        object.__setattr__(self, "at", ["", None])

    def check(self, operation: str) -> None:
        """Raise at the operation."""
        at: Any = self.at  # type: ignore[attr-defined]  # set past the frozen class
        if at[0] == operation:
            raise at[1]

    async def load(self, conversation: str) -> tuple[Message, ...]:
        self.check("load")
        return await super().load(conversation)

    async def hold(self, run_id: str, snapshot: str) -> None:
        self.check("hold")
        await super().hold(run_id, snapshot)

    async def held(self, run_id: str) -> str:
        self.check("held")
        return await super().held(run_id)

    async def claim(self, run_id: str, snapshot: str | None = None) -> str:
        self.check("claim")
        return await super().claim(run_id, snapshot)


@pytest.mark.parametrize("error", [StoreError("full"), LookupError("no PASSWORD"), OSError("gone")])
async def test_a_run_that_cannot_be_held_can_still_be_resumed(error: Exception) -> None:
    """Who ran it has it in the partial; its log is whole, and when the store works again it goes on once."""
    store, bank = Failing("hold", error), Bank()
    made = desk(store, bank, PAY, "Paid.")
    with pytest.raises(StorageError) as caught:
        await made.run("Pay.", run_id="r")
    partial: Any = caught.value.partial
    assert ("suspended", 1) == (partial.status, len(partial.pending))
    assert error is caught.value.__cause__
    assert verify(partial.log).complete
    store.mend()
    assert "Paid." == (await made.resume(partial, yes(partial))).output
    with pytest.raises(SnapshotClaimed):
        await made.resume(partial, yes(partial))


async def test_a_second_run_of_an_id_that_waits(new_place: Callable[[], Place]) -> None:
    """It fails with its suspended run in the partial, and the first waits on; once claimed, it makes room."""
    place, first, second = new_place(), Bank(), Bank()
    async with place.open() as store:
        waiting = await suspended(store, first)
        made = desk(store, second, call("pay", {"amount": 20}, id="y"), "Paid later.")
        with pytest.raises(StorageError, match=r"'r' could not be held: .* another run_id") as caught:
            await made.run("Pay.", run_id="r")
        assert isinstance(caught.value.reason, StoreFailed)
        partial: Any = caught.value.partial
        assert ("suspended", 1) == (partial.status, len(partial.pending))
        assert waiting.snapshot() == await store.held("r")
        with pytest.raises(SnapshotClaimed):  # of this id another one waits
            await made.resume(partial, yes(partial))
        assert "Paid." == (await desk(store, first, "Paid.").resume("r", yes(waiting))).output
        await store.hold("r", partial.snapshot())
        assert "Paid later." == (await made.resume(partial, yes(partial))).output
    assert ([10], [20]) == (first.paid, second.paid)


@pytest.mark.parametrize("form", FORMS, ids=["id", "text", "result"])
async def test_suspended_again_and_again(new_place: Callable[[], Place], form: Any) -> None:
    """Each resume claims what waits, however it is given, so the next suspension of the same run is held."""
    bank, amounts = Bank(), [10, 20, 30]
    pays = [call("pay", {"amount": amount}, id=f"p{amount}") for amount in amounts]
    async with new_place().open() as store:
        made = desk(store, bank, *pays, "Paid.")
        result = await made.run("Pay.", run_id="r")
        for _ in amounts:
            assert ("suspended", result.snapshot()) == (result.status, await store.held("r"))
            result = await made.resume(form(result), yes(result))
        assert ("Paid.", ()) == (result.output, await store.pending())
    assert amounts == bank.paid


@pytest.mark.parametrize("operation", ["held", "claim"])
async def test_a_store_that_fails_at_a_resume_leaves_it_held(operation: str) -> None:
    """Nothing ran, and it goes on when the store works again."""
    store, bank = Failing("", OSError()), Bank()
    waiting = await suspended(store, bank)
    object.__setattr__(store, "at", [operation, StoreError("gone")])
    made = desk(store, bank, "Paid.")
    with pytest.raises(StoreError, match="gone"):
        await made.resume("r", yes(waiting))
    assert [] == bank.paid
    store.mend()
    assert "Paid." == (await made.resume("r", yes(waiting))).output


async def test_cancelled_while_it_is_held() -> None:
    """The snapshot is kept before the cancellation goes on, so that somebody can decide later."""
    holding, go_on = anyio.Event(), anyio.Event()

    class Slow(MemoryStore):
        async def hold(self, run_id: str, snapshot: str) -> None:
            holding.set()
            await go_on.wait()
            await super().hold(run_id, snapshot)

    store, bank = Slow(), Bank()
    async with desk(store, bank, PAY).start("Pay.", run_id="r") as handle:
        await holding.wait()
        handle.cancel()
        await anyio.wait_all_tasks_blocked()
        go_on.set()
    assert ("r",) == await store.pending()


@pytest.mark.parametrize("drive", ["stream", "start"])
async def test_held_however_it_is_driven(drive: str) -> None:
    """A streamed run and one beside its caller are held alike."""
    store, bank = MemoryStore(), Bank()
    made = desk(store, bank, PAY, "Paid.")
    if drive == "start":
        async with made.start("Pay.", run_id="r") as handle:
            waiting: Any = await handle.result()
    else:
        async with made.stream("Pay.", run_id="r") as events:
            seen: list[Any] = [event async for event in events]
        waiting = seen[-1].result
    assert ("suspended", ("r",)) == (waiting.status, await store.pending())
    assert "Paid." == (await made.resume("r", yes(waiting))).output


# --- several processes

PROGRAM = """
import sys, anyio
from tests.runtime.test_resume_from_store import Bank, desk
from capfold.runtime import Approve
from capfold.runtime.sqlite_store import SQLiteStore
from capfold.runtime.stores import SnapshotClaimed

async def main(path, digest):
    bank = Bank()
    agent = desk(SQLiteStore(path), bank, "Paid.")
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        result = await agent.resume("r", {digest: Approve()})
    except SnapshotClaimed:
        print("refused", bank.paid)
    else:
        print(result.output, bank.paid)

anyio.run(main, *sys.argv[1:])
"""


def test_processes_that_resume_at_once(tmp_path: Path) -> None:
    """One goes on, the others are refused, and the effect happens once."""
    path = str(tmp_path / "store.db")

    async def suspend() -> str:
        async with SQLiteStore(path) as store:
            return (await suspended(store, Bank(), conversation="c")).pending[0].digest

    line = [sys.executable, "-c", PROGRAM, path, anyio.run(suspend)]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert "ready\n" == process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    printed = sorted(process.communicate(timeout=60)[0].strip() for process in processes)
    assert ["Paid. [10]", "refused []", "refused []"] == printed
    assert 4 == anyio.run(kept_in, path)


async def kept_in(path: str) -> int:
    """Return how many messages of `c` a file has."""
    async with SQLiteStore(path) as store:
        return len(await store.load("c"))


KILLED = """
import os, signal, sys, anyio
from capfold.capabilities import Capability, call, tool
from capfold.runtime import Agent, ScriptedModel
from capfold.runtime.sqlite_store import SQLiteStore

where, path = sys.argv[1:]

def die():
    os.kill(os.getpid(), signal.SIGKILL)

@tool
def pay() -> str:
    "Pay."
    print("paid", flush=True)
    return "paid"

class Dies(Capability):
    def after_tool_execute(self, call):
        if where == "after the outcome":
            die()
        return call
    async def wrap_save_messages(self, call_next, state, messages):
        if where == "before the save":
            die()
        await call_next(state, messages)
        if where == "after the save":
            die()

store = SQLiteStore(path)
Agent("desk", ScriptedModel(["first"]), store=store).run_sync("one", conversation="c")
print("acknowledged", flush=True)
made = Agent("desk", ScriptedModel([call("pay", id="x"), "second"]), tools=[pay], capabilities=[Dies()], store=store)
made.run_sync("two", conversation="c")
"""


@pytest.mark.parametrize(
    ("where", "kept"), [("after the outcome", 2), ("before the save", 2), ("after the save", 6)]
)
def test_killed_between_the_outcome_and_the_save(where: str, kept: int, tmp_path: Path) -> None:
    """What was acknowledged is there, nothing is half there, and the next run begins with what was saved last."""
    path = str(tmp_path / "store.db")
    line = [sys.executable, "-c", KILLED, where, path]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    assert (-9, ["acknowledged", "paid"]) == (done.returncode, done.stdout.split())
    assert kept == anyio.run(kept_in, path)

    async def go_on() -> RunResult[str]:
        async with SQLiteStore(path) as store:
            return await Agent("desk", ScriptedModel(["third"]), store=store).run("three", conversation="c")

    assert (kept, kept + 2) == (anyio.run(go_on).state.history_start, anyio.run(kept_in, path))


# --- cancelled while it claims


class Acknowledges(MemoryStore):
    """A store that has claimed a while before it says so."""

    async def claim(self, run_id: str, snapshot: str | None = None) -> str:
        """Claim, and wait."""
        found = await super().claim(run_id, snapshot)
        await anyio.sleep(0.2)
        return found


class Passes(Capability):
    """Encloses the run."""

    async def wrap_run(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        """Go on."""
        return await call_next(state)


@pytest.mark.parametrize("more", [(), (Passes(),)], ids=["bare", "wrapped"])
@pytest.mark.parametrize("way", ["scope", "task"])
async def test_cancelled_between_claim_and_first_step(
    anyio_backend: str, way: str, more: Any, tmp_path: Path
) -> None:
    """A run that was claimed goes on nowhere else: it ends as cancelled, saved and on record, and nothing of it ran."""
    store, bank, path = Acknowledges(), Bank(), tmp_path / "log.jsonl"
    sink = JsonLines(path)
    agent = desk(store, bank, PAY, "Paid.", capabilities=more, sinks=[sink])
    waiting = await agent.run("Pay.", run_id="r", conversation="c")
    if way == "scope":
        with anyio.move_on_after(0.05) as scope:
            await agent.resume(waiting, yes(waiting))
        assert scope.cancelled_caught
    elif anyio_backend == "trio":
        pytest.skip("of asyncio alone")
    else:
        import asyncio  # noqa: PLC0415  # of this backend only

        task = asyncio.ensure_future(agent.resume(waiting, yes(waiting)))
        await anyio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await sink.close()
    assert ([], ()) == (bank.paid, await store.pending())
    last = (await store.load("c"))[-1]
    assert isinstance(last, ToolMessage)
    assert "not_executed" == last.status
    assert verify(read_log(path)).complete
    with pytest.raises(SnapshotClaimed):
        await agent.resume("r", yes(waiting))


async def test_cancelled_before_it_claims() -> None:
    """What was not claimed yet waits on."""

    class Late(MemoryStore):
        async def claim(self, run_id: str, snapshot: str | None = None) -> str:
            await anyio.sleep_forever()
            raise AssertionError

    store, bank = Late(), Bank()
    waiting = await suspended(store, bank, conversation="c")
    with anyio.move_on_after(0.05):
        await desk(store, bank, "Paid.").resume("r", yes(waiting))
    assert ([], ("r",), ()) == (bank.paid, await store.pending(), await store.load("c"))
