"""What a run adds to its conversation: once per ending, its own messages, through the wrappers, on record."""

import contextlib
import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest
from attrs import frozen

from capfold.capabilities import (
    AssistantMessage,
    Capability,
    Message,
    RunState,
    SaveNext,
    ToolMessage,
    UserMessage,
    call,
    tool,
)
from capfold.runtime import (
    Agent,
    AuditRecord,
    BlockedError,
    FunctionModel,
    HookError,
    HookFailed,
    IllegalTransition,
    InvalidReturn,
    InvalidView,
    ModelError,
    ModelRunError,
    RunError,
    ScriptedModel,
    StorageError,
    StoreFailed,
    machine,
    verify,
)
from capfold.runtime.conversation import Conversation
from capfold.runtime.ending import WITHHELD
from capfold.runtime.memory_store import MemoryStore
from capfold.runtime.phases import Finish, Open, Opened, RequestModel, Responded, Save, Saved
from capfold.runtime.scripted_model import Reply
from capfold.runtime.sqlite_store import SQLiteStore
from capfold.runtime.stores import StoreConflict, StoreError

# Any: a wrapper of the user's, which may do what it should not
Way = Callable[[Any, RunState, Any], Awaitable[Any]]
TURN: tuple[Message, ...] = (UserMessage("first"), AssistantMessage("1"))


@frozen
class Saves(Capability):
    """Wraps saving by a function."""

    do: Way

    async def wrap_save_messages(
        self, call_next: SaveNext, state: RunState, messages: Sequence[Message]
    ) -> None:
        result: None = await self.do(call_next, state, messages)
        return result


class Counting(MemoryStore):
    """A store that counts its appends, and does something in place of one."""

    def __init__(self, instead: Callable[[], Awaitable[None]] | None = None) -> None:
        """Do `instead`, if it is given."""
        super().__init__()
        object.__setattr__(self, "appended", [])
        object.__setattr__(self, "instead", instead)

    async def append(self, conversation: str, messages: Sequence[Message], expected: int) -> None:
        """Count, and append."""
        self.appended.append(len(messages))  # type: ignore[attr-defined]  # set past the frozen class
        if self.instead is not None:  # type: ignore[attr-defined]  # likewise
            await self.instead()  # type: ignore[attr-defined]  # likewise
        await super().append(conversation, messages, expected)


def counted(store: MemoryStore) -> list[int]:
    """Return how many messages each append had."""
    found: list[int] = store.appended  # type: ignore[attr-defined]  # of a Counting
    return found


@tool
def look() -> str:
    """Look."""
    return "seen"


def agent(
    store: Any, *capabilities: Capability[Any], replies: Sequence[Reply] = ("said",), **more: Any
) -> Agent[str]:  # Any: as `Agent`
    """Return an agent with a script."""
    script = ScriptedModel(list(replies))
    return Agent("a", script, store=store, tools=[look], capabilities=capabilities, **more)


async def contents(store: MemoryStore) -> list[object]:
    """Return the contents of the stored conversation `c`."""
    return [message.content for message in await store.load("c")]


def saves(log: Sequence[AuditRecord]) -> list[tuple[str, object]]:
    """Return who changed what at saving."""
    return [(record.actor, dict(record.changes)) for record in log if record.hook == "wrap_save_messages"]


async def failed(made: Agent[Any], kind: type[RunError]) -> RunError:
    """Run a turn of `c`, and return how it failed; its partial has the messages, its log is whole."""
    with pytest.raises(kind) as caught:
        await made.run("go", conversation="c")
    partial = caught.value.partial
    assert partial is not None
    assert "failed" == partial.status
    assert "go" == partial.new_messages[0].content
    assert verify(partial.log).complete
    return caught.value


# --- each ending


async def test_a_run_saves_its_own_messages_once() -> None:
    """The history is not written again, and results of tools are among what is."""
    store = Counting()
    made = agent(store, replies=["1", call("look", id="x"), "2"])
    await made.run("first", conversation="c")
    result = await made.run("second", conversation="c")
    assert [2, 4] == counted(store)
    assert (*result.messages,) == await store.load("c")
    assert ["first", "1", "second", "", "seen", "2"] == await contents(store)
    assert 4 == result.log[-1].facts["saved"]


@frozen
class Fails(Capability):
    """Fails or stops at a hook."""

    hook: str
    verb: str = "fail"

    def before_run(self, state: RunState) -> RunState:
        return self.at("before_run", state)

    def after_model_request(self, state: RunState) -> RunState:
        return self.at("after_model_request", state)

    def after_run(self, state: RunState) -> RunState:
        return self.at("after_run", state)

    def at(self, hook: str, state: RunState) -> RunState:
        if hook != self.hook:
            return state
        return state.stop("enough") if self.verb == "stop" else state.fail("enough")


async def test_a_run_that_fails_saves_balanced_messages() -> None:
    """At step 2: the calls of step 1 have their outcome, and the next run goes on from there."""
    store = Counting()
    lost = ModelError("server", "gone", retryable=False)
    made = agent(store, replies=[call("look", id="x"), lost, "2"])
    error = await failed(made, ModelRunError)
    assert ([3], 3) == (counted(store), error.partial.log[-1].facts["saved"] if error.partial else None)
    assert "2" == (await made.run("again", conversation="c")).output
    assert ["go", "", "seen", "again", "2"] == await contents(store)


@pytest.mark.parametrize("verb", ["fail", "stop"])
async def test_what_is_withheld_stays_withheld(verb: str) -> None:
    """Of a response that after_run failed or stopped, the store gets no word; the log keeps it."""
    store = MemoryStore()
    made = agent(store, Fails("after_run", verb), replies=["secret"])
    if verb == "fail":
        await failed(made, BlockedError)
    else:
        assert "enough" == (await made.run("go", conversation="c")).output
    assert ["go", WITHHELD] == await contents(store)


async def test_a_stop_message_is_not_the_assistants_word() -> None:
    """The output is the stop's message; what the model said before it is stored, the message is not."""
    store = MemoryStore()
    made = agent(store, Fails("after_model_request", "stop"), replies=[call("look", id="x")])
    result = await made.run("go", conversation="c")
    assert ("stopped", "enough") == (result.status, result.output)
    assert ["go", "", "not_executed"] == [
        message.status if isinstance(message, ToolMessage) else message.content
        for message in await store.load("c")
    ]


@pytest.mark.parametrize("verb", ["fail", "stop"])
async def test_input_that_did_not_pass_before_run_is_not_saved(verb: str) -> None:
    """Whoever blocks it keeps it out of the store, and out of the next run's request."""
    store = Counting()
    made = agent(store, Fails("before_run", verb))
    if verb == "fail":
        await failed(made, BlockedError)
    else:
        await made.run("go", conversation="c")
    assert ([], []) == (counted(store), await contents(store))


async def test_a_cancelled_run_saves_its_closed_history() -> None:
    """Cancelled in a tool: the call is `unknown`, and the store has it."""
    store, started = Counting(), anyio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await anyio.sleep_forever()
        return ""

    made = Agent("a", ScriptedModel([call("wait", id="x")]), tools=[wait], store=store)
    async with anyio.create_task_group() as group:
        group.start_soon(functools.partial(made.run, "go", conversation="c"))
        await started.wait()
        group.cancel_scope.cancel()
    assert [3] == counted(store)
    assert "unknown" == (await store.load("c"))[-1].status  # type: ignore[union-attr]  # a ToolMessage


async def test_a_run_without_a_message_of_its_own_saves_nothing() -> None:
    """A run without a prompt that failed before the first response."""
    store = Counting()
    await store.append("c", [UserMessage("well?")], 0)
    lost = ModelError("server", "gone", retryable=False)
    with pytest.raises(ModelRunError) as caught:
        await agent(store, replies=[lost]).run(None, conversation="c")
    assert caught.value.partial is not None
    assert ([1], 0) == (counted(store), caught.value.partial.log[-1].facts["saved"])


# --- two writers, and a store that fails


async def test_two_runs_of_one_conversation_at_once() -> None:
    """One of them saves; the other one ends by a conflict that says what it saw and found, and loses nothing."""
    store, both = MemoryStore(), anyio.Event()
    ended: list[object] = []
    ready: list[int] = []

    @tool
    async def meet() -> str:
        """Wait for the other run."""
        ready.append(1)
        if len(ready) == 2:
            both.set()
        await both.wait()
        return "met"

    async def run(name: str) -> None:
        made = Agent("a", ScriptedModel([call("meet", id="x"), name]), tools=[meet], store=store)
        try:
            ended.append(await made.run(name, conversation="c"))
        except StorageError as error:
            ended.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(run, "one")
        group.start_soon(run, "two")
    (error,) = [end for end in ended if isinstance(end, StorageError)]
    assert isinstance(error.reason, StoreFailed)
    assert ("c", 0, 4) == (error.reason.conversation, error.reason.expected, error.reason.found)
    assert isinstance(error.__cause__, StoreConflict)
    partial = error.partial
    assert partial is not None
    assert ("failed", None, 4) == (partial.status, partial.output, len(partial.new_messages))
    kept = await contents(store)
    assert (4, True) == (len(kept), kept[0] != partial.new_messages[0].content)
    assert {"status": "failed", "saved": 0} == {
        name: fact for name, fact in partial.log[-1].facts.items() if name in {"status", "saved"}
    }


async def full() -> None:
    """Fail as a full disk does."""
    raise StoreError("the disk is full", "c")


async def secret() -> None:
    """Fail as a secret that is not set."""
    raise LookupError("the variable PASSWORD is not set")


@pytest.mark.parametrize("instead", [full, secret])
async def test_a_store_that_fails_is_no_silent_loss(instead: Callable[[], Awaitable[None]]) -> None:
    """Whatever it raises: the run fails, and the log and the partial have what was to be saved."""
    error = await failed(agent(Counting(instead)), StorageError)
    assert isinstance(error.reason, StoreFailed)
    assert ("c", None) == (error.reason.conversation, error.reason.expected)
    assert error.partial is not None
    assert ["go", "said"] == [message.content for message in error.partial.new_messages]


async def test_what_failed_first_stays_the_reason() -> None:
    """A run that failed by its model still has that reason when it cannot be saved either; both are on record."""
    lost = ModelError("server", "gone", retryable=False)
    error = await failed(agent(Counting(full), replies=[lost]), ModelRunError)
    assert error.partial is not None
    reason: Any = error.partial.log[-2].facts["not_saved"]
    assert "the disk is full" in reason["message"]


# --- wrappers


async def masked(call_next: Any, state: RunState, messages: Any) -> None:
    """Mask the first message."""
    await call_next(state, [UserMessage("***"), *messages[1:]])


async def test_a_wrapper_may_pass_on_other_messages() -> None:
    """They are what is stored; the result has the messages as they were, and the record says who did it."""
    store = MemoryStore()
    result = await agent(store, Saves(masked)).run("go", conversation="c")
    assert ["***", "said"] == await contents(store)
    assert "go" == result.messages[0].content
    ((actor, written),) = saves(result.log)
    change: Any = written
    assert ("Saves", "go", "***") == (
        actor,
        change["saved"]["from"][0]["content"],
        change["saved"]["to"][0]["content"],
    )
    assert "run_ended" == result.log[-1].kind


async def test_wrappers_nest_and_see_the_ended_run() -> None:
    """The first listed is outermost; the state has its final status."""
    seen: list[tuple[str, str, int]] = []

    def watching(name: str) -> Way:
        async def watch(call_next: Any, state: RunState, messages: Any) -> None:
            seen.append((name, state.status, len(messages)))
            await call_next(state.note(name), messages)
            seen.append((name, "out", 0))

        return watch

    store = MemoryStore()
    made = agent(store, Saves(watching("A"), key="A"), Saves(watching("B"), key="B"))
    result = await made.run("go", conversation="c")
    assert [("A", "completed", 2), ("B", "completed", 2), ("B", "out", 0), ("A", "out", 0)] == seen
    assert ("A", "B") == result.state.notes


async def test_not_saved_is_on_record() -> None:
    """A wrapper that does not go on keeps the run out of the store, by name."""

    async def never(call_next: Any, state: RunState, messages: Any) -> None:
        """Do nothing."""

    store = Counting()
    result = await agent(store, Saves(never)).run("go", conversation="c")
    assert ("completed", [], 0) == (result.status, counted(store), result.log[-1].facts["saved"])
    ((actor, written),) = saves(result.log)
    change: Any = written
    assert ("Saves", []) == (actor, change["saved"]["to"])


async def raises(call_next: Any, state: RunState, messages: Any) -> None:
    """Raise before it goes on."""
    raise KeyError("mine")


async def raises_after(call_next: Any, state: RunState, messages: Any) -> None:
    """Raise after it went on."""
    await call_next(state, messages)
    raise KeyError("mine")


async def twice(call_next: Any, state: RunState, messages: Any) -> None:
    """Save twice."""
    await call_next(state, messages)
    await call_next(state, messages)


async def returns(call_next: Any, state: RunState, messages: Any) -> Any:
    """Return something."""
    await call_next(state, messages)
    return messages


async def not_awaited(call_next: Any, state: RunState, messages: Any) -> Any:
    """Forget to await."""
    return call_next(state, messages)


async def no_messages(call_next: Any, state: RunState, messages: Any) -> None:
    """Hand on what is no message."""
    await call_next(state, ["go"])


async def no_sequence(call_next: Any, state: RunState, messages: Any) -> None:
    """Pass on one message, in no sequence."""
    await call_next(state, UserMessage("go"))


async def half_an_exchange(call_next: Any, state: RunState, messages: Any) -> None:
    """Leave a call without its result."""
    await call_next(state, [*messages[:-1], AssistantMessage("", tool_calls=(call("look", id="x"),))])


async def no_user(call_next: Any, state: RunState, messages: Any) -> None:
    """Drop the user's message."""
    await call_next(state, messages[1:])


async def stops(call_next: Any, state: RunState, messages: Any) -> None:
    """Stop a run that has ended."""
    await call_next(state.stop("too late"), messages)


async def writes(call_next: Any, state: RunState, messages: Any) -> None:
    """Write what belongs to a request."""
    await call_next(state.with_settings(a=1), messages)


@pytest.mark.parametrize(
    ("do", "kind", "said", "kept"),
    [
        (raises, HookFailed, "raised KeyError", 0),
        (raises_after, HookFailed, "raised KeyError", 2),
        (twice, InvalidReturn, "call_next again", 2),
        (returns, InvalidReturn, "must return None", 2),
        (not_awaited, InvalidReturn, "must return None", 0),
        (no_messages, InvalidReturn, "no messages", 0),
        (no_sequence, InvalidReturn, "no messages", 0),
        (half_an_exchange, InvalidView, "'x'", 0),
        (no_user, InvalidView, "must be the user's", 0),
        (stops, IllegalTransition, "has ended", 0),
        (writes, IllegalTransition, "settings", 0),
    ],
)
async def test_a_wrapper_that_breaks_is_named(do: Way, kind: type, said: str, kept: int) -> None:
    """By key, place and hook; the record says how many messages were saved all the same."""
    store = MemoryStore()
    error = await failed(agent(store, Saves(do)), HookError)
    reason = error.reason
    assert kind is type(reason)
    assert ("Saves", 0, "wrap_save_messages") == (reason.key, reason.index, reason.hook)
    assert said in reason.message
    assert error.partial is not None
    assert (kept, kept) == (len(await contents(store)), error.partial.log[-1].facts["saved"])


async def test_a_wrapper_may_save_again_what_was_not_saved() -> None:
    """The store's exception passes through the wrapper; what the store has by then is for its count to say."""
    left = [1]

    async def once() -> None:
        if left:
            left.clear()
            raise StoreError("busy", "c")

    async def again(call_next: Any, state: RunState, messages: Any) -> None:
        try:
            await call_next(state, messages)
        except StoreError:
            await call_next(state, messages)

    store = Counting(once)
    result = await agent(store, Saves(again)).run("go", conversation="c")
    assert ([2, 2], 2) == (counted(store), result.log[-1].facts["saved"])


async def test_a_wrapper_may_let_a_failed_save_be() -> None:
    """It may catch the store's exception, as a model's; the record still says that nothing was saved, and why."""

    async def swallow(call_next: Any, state: RunState, messages: Any) -> None:
        with contextlib.suppress(StoreError):
            await call_next(state, messages)

    result = await agent(Counting(full), Saves(swallow)).run("go", conversation="c")
    assert ("completed", 0) == (result.status, result.log[-1].facts["saved"])
    (note,) = [record for record in result.log if record.kind == "note"]
    reason: Any = note.facts["not_saved"]
    assert "the disk is full" in reason["message"]


# --- wrap_run, and being cut short


@frozen
class Stops(Capability):
    """Stops the run on its way out of wrap_run."""

    async def wrap_run(self, call_next: Any, state: RunState) -> RunState:
        done: RunState = await call_next(state)
        return done.stop("after all")


async def test_what_wrap_run_withholds_on_its_way_out_is_not_saved() -> None:
    """The run is saved as it ended, and it ends when the last wrapper is left."""
    store = MemoryStore()
    result = await agent(store, Stops(), replies=["secret"]).run("go", conversation="c")
    assert ("stopped", "after all") == (result.status, result.output)
    assert ["go", WITHHELD] == await contents(store)


async def test_cancelled_while_it_saves() -> None:
    """What is being saved is saved, once, before the cancellation goes on; the run had ended by then."""
    saving, go_on = anyio.Event(), anyio.Event()

    async def slowly() -> None:
        saving.set()
        await go_on.wait()

    store = Counting(slowly)
    async with agent(store).start("go", conversation="c") as handle:
        await saving.wait()
        handle.cancel()
        await anyio.sleep(0.01)
        go_on.set()
        result = await handle.result()
    assert [2] == counted(store)
    assert ["go", "said"] == await contents(store)
    assert ("completed", 2) == (result.status, result.log[-1].facts["saved"])
    assert verify(result.log).complete


async def test_a_save_that_hangs_does_not_hold_a_cancelled_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time it is given up, and the log says that nobody knows whether it was saved."""
    monkeypatch.setattr("capfold.runtime.driver.CLOSING_SECONDS", 0.05)
    saving = anyio.Event()

    async def hang() -> None:
        saving.set()
        await anyio.sleep_forever()

    store = Counting(hang)
    async with agent(store).start("go", conversation="c") as handle:
        await saving.wait()
        handle.cancel()
        result = await handle.result()
    assert ("cancelled", 0) == (result.status, result.log[-1].facts["saved"])
    (note,) = [record for record in result.log if record.kind == "note"]
    reason: Any = note.facts["not_saved"]
    assert "may have been saved" in reason["message"]


async def test_a_cancelled_run_is_not_held_by_a_store_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saving is part of closing it, and has the time of that; the log says what is not known."""
    monkeypatch.setattr("capfold.runtime.driver.CLOSING_SECONDS", 0.05)
    asked = anyio.Event()

    async def wait(request: object) -> str:
        asked.set()
        await anyio.sleep_forever()
        return ""

    store = Counting(anyio.sleep_forever)
    made = Agent("a", FunctionModel(wait), store=store)
    async with made.start("go", conversation="c") as handle:
        await asked.wait()
        handle.cancel()
        result = await handle.result()
    assert ("cancelled", 0, [1]) == (result.status, result.log[-1].facts["saved"], counted(store))
    assert verify(result.log).complete


async def test_driven_by_hand() -> None:
    """Who has a loop of their own gets two effects more, and says what became of them."""
    made = agent(MemoryStore(), instructions=lambda state: "Be brief.")
    state, effect, records = machine.start(made.setup, "go", run_id="r", now=0.0, conversation="c")
    assert isinstance(effect, Open)
    assert () == records
    kept = Conversation("c", len(TURN))
    opened = Opened(0.0, effect.run, TURN, "Be brief.", kept)
    state, effect, records = machine.feed(state, opened)
    assert isinstance(effect, RequestModel)
    assert ("Be brief.", 3) == (effect.request.instructions, len(effect.request.messages))
    assert "run_started" == records[0].kind
    reply = AssistantMessage("said")
    state, effect, _ = machine.feed(state, Responded(0.0, effect.run, reply, 1, (reply,)))
    assert isinstance(effect, Save)
    assert (kept, ["go", "said"]) == (effect.conversation, [message.content for message in effect.messages])
    state, effect, records = machine.feed(state, Saved(0.0, effect.run, 2))
    assert isinstance(effect, Finish)
    assert ("completed", 2) == (effect.run.status, records[-1].facts["saved"])


async def test_an_exit_while_it_saves_comes_out_as_it_is() -> None:
    """A wrapper that ends the process is no failure of the run, and not wrapped in a group."""

    async def leave(call_next: Any, state: RunState, messages: Any) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        await agent(MemoryStore(), Saves(leave)).run("go", conversation="c")


async def test_a_stop_that_comes_while_it_saves_changes_nothing() -> None:
    """The run has ended; who asked waits for it."""
    saving, go_on = anyio.Event(), anyio.Event()

    async def slowly() -> None:
        saving.set()
        await go_on.wait()

    async with agent(Counting(slowly)).start("go", conversation="c") as handle:
        await saving.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(handle.stop, "enough")
            await anyio.wait_all_tasks_blocked()
            go_on.set()
        result = await handle.result()
    assert ("completed", "said") == (result.status, result.output)


class Full:
    """A sink that fails from some record on."""

    best_effort = False

    def __init__(self, kind: str) -> None:
        """Fail at the first record of a kind."""
        self.kind = kind

    async def write(self, records: Sequence[AuditRecord]) -> None:
        """Fail, or write nothing."""
        if any(record.kind == self.kind for record in records):
            raise OSError("no space left")

    async def close(self) -> None:
        """Have nothing to close."""


@pytest.mark.parametrize(("kind", "saved"), [("model_responded", 2), ("run_ended", 2)])
async def test_a_log_that_cannot_be_written_does_not_keep_a_run_from_the_store(kind: str, saved: int) -> None:
    """The run fails by its sink, and is saved as any failed run."""
    store = Counting()
    error = await failed(agent(store, sinks=[Full(kind)]), StorageError)
    assert "no space left" in str(error)
    assert [saved] == counted(store)


async def test_runs_that_are_driven_by_a_database(tmp_path: Any) -> None:
    """Two agents, two stores, one file: the second goes on where the first ended."""
    path = tmp_path / "store.db"
    async with SQLiteStore(path) as store:
        await agent(store).run("one", conversation="c")
    async with SQLiteStore(path) as store:
        result = await agent(store).run("two", conversation="c")
    assert ["one", "said", "two", "said"] == [message.content for message in result.messages]
