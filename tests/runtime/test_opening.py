"""Before a run begins: its conversation and its instructions, through their wrappers, checked and on record."""

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest
from attrs import frozen

from capfold.capabilities import (
    AssistantMessage,
    CallNext,
    Capability,
    Message,
    RunState,
    UserMessage,
    call,
    tool,
    when,
)
from capfold.runtime import (
    Agent,
    HookError,
    HookFailed,
    IllegalTransition,
    InvalidReturn,
    InvalidView,
    LimitError,
    Limits,
    LocalPort,
    Log,
    RunError,
    ScriptedModel,
    StorageError,
    StoreFailed,
    verify,
)
from capfold.runtime.events import Ended, Settled
from capfold.runtime.memory_store import MemoryStore
from capfold.runtime.stores import StoreError

TURN: tuple[Message, ...] = (UserMessage("first"), AssistantMessage("1"))
# Any: a wrapper of the user's, which may do what it should not
Load = Callable[[Any, RunState], Awaitable[Any]]


@frozen
class Loads(Capability):
    """Wraps loading by a function."""

    do: Load

    async def wrap_load_messages(
        self, call_next: CallNext[RunState, Sequence[Message]], state: RunState
    ) -> Sequence[Message]:
        found: Sequence[Message] = await self.do(call_next, state)
        return found


@frozen
class Prompts(Capability):
    """Wraps resolving by a function."""

    do: Load

    async def wrap_prompt(self, call_next: CallNext[RunState, str], state: RunState) -> str:
        found: str = await self.do(call_next, state)
        return found


@frozen
class Bundle(Capability):
    """Brings instructions along."""

    def provide_instructions(self) -> str:
        return "Be kind."


async def stored(*messages: Message) -> MemoryStore:
    """Return a store that has messages of conversation `c`."""
    store = MemoryStore()
    await store.append("c", messages, 0)
    return store


def contents(messages: Sequence[Message]) -> list[object]:
    """Return the contents of messages."""
    return [message.content for message in messages]


def agent(store: Any = None, *capabilities: Capability[Any], **more: Any) -> Agent[str]:  # Any: as `Agent`
    """Return an agent that answers once."""
    return Agent("a", ScriptedModel(["said"]), store=store, capabilities=capabilities, **more)


async def failed(made: Agent[Any], kind: type[RunError], **options: Any) -> RunError:
    """Run, and return how it failed; nothing was asked of the model, and the log is whole."""
    with pytest.raises(kind) as caught:
        await made.run("go", **options)
    partial = caught.value.partial
    assert partial is not None
    assert ("failed", 0) == (partial.status, partial.requests)
    assert ["run_started", "run_ended"] == [partial.log[0].kind, partial.log[-1].kind]
    assert verify(partial.log).complete
    return caught.value


def changes(log: Log, hook: str) -> list[tuple[str, object]]:
    """Return who changed what at a hook."""
    return [(record.actor, dict(record.changes)) for record in log if record.hook == hook]


# --- loading


async def test_a_run_goes_on_with_its_conversation() -> None:
    """What is stored stands before the prompt, is history and no message of this run, and stands in the log."""
    made = agent(await stored(*TURN))
    result = await made.run("second", conversation="c")
    assert ["first", "1", "second", "said"] == contents(result.messages)
    assert ["second", "said"] == contents(result.new_messages)
    facts: Any = result.log[0].facts
    assert ("c", 2, 2) == (facts["conversation"], facts["stored"], len(facts["history"]))


async def test_an_unknown_conversation_is_empty() -> None:
    """The first run of a conversation begins it."""
    result = await agent(MemoryStore()).run("go", conversation="new")
    assert ["go", "said"] == contents(result.messages)


async def test_without_a_conversation_the_store_is_not_asked() -> None:
    """An agent with a store also has runs of no conversation."""
    store = MemoryStore()
    result = await agent(store).run("go")
    assert "completed" == result.status
    assert "saved" not in result.log[-1].facts


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"conversation": ""}, ValueError, "must not be empty"),
        ({"conversation": 5}, TypeError, "must be a string"),
        ({"conversation": "x" * 600}, ValueError, "at most 512"),
        ({"conversation": "c", "messages": TURN}, ValueError, "two histories"),
        ({"run_id": "a\0b"}, ValueError, "NUL"),
    ],
)
async def test_what_no_run_starts_with(options: Any, error: type[Exception], said: str) -> None:
    """A wrong name and two histories are refused before anything."""
    with pytest.raises(error, match=said):
        await agent(MemoryStore()).run("go", **options)


async def test_a_conversation_needs_a_store() -> None:
    """It would be lost without a word."""
    with pytest.raises(ValueError, match="needs a store"):
        await agent().run("go", conversation="c")


@pytest.mark.parametrize("given", [MemoryStore, "file.db", object()])
def test_what_is_no_store(given: Any) -> None:
    """A class, a path and any object are refused when the agent is built."""
    with pytest.raises(TypeError, match="store is a MessageStore"):
        agent(given)


async def test_a_wrapper_sees_the_run_that_is_about_to_start() -> None:
    """Ids, context, and the prompt as its only message."""
    seen: list[RunState] = []

    async def look(call_next: Any, state: RunState) -> Any:
        seen.append(state)
        return await call_next(state)

    made = agent(await stored(*TURN), Loads(look))
    result = await made.run("go", conversation="c", context={"tenant": "t"}, run_id="r")
    (state,) = seen
    assert ("r", {"tenant": "t"}, ["go"], 0) == (
        state.run_id,
        state.context,
        contents(state.messages),
        state.history_start,
    )
    assert [] == changes(result.log, "wrap_load_messages")


async def test_what_wrappers_change_is_on_record() -> None:
    """Each by its name, from what it got to what it made of it, after the run's first record."""

    async def last_turn(call_next: Any, state: RunState) -> Any:
        return (await call_next(state))[-2:]

    async def greeting(call_next: Any, state: RunState) -> Any:
        return [UserMessage("hello"), AssistantMessage("hi"), *await call_next(state)]

    store = await stored(*TURN, UserMessage("x"), AssistantMessage("2"))
    made = agent(store, Loads(greeting, key="Outer"), Loads(last_turn, key="Inner"))
    result = await made.run("go", conversation="c")
    assert ["hello", "hi", "x", "2", "go", "said"] == contents(result.messages)
    assert "run_started" == result.log[0].kind
    told = changes(result.log, "wrap_load_messages")
    assert ["Inner", "Outer"] == [actor for actor, _ in told]
    written: Any = told[-1][1]
    assert ["x", "2", "go"] == contents_of(written["messages"]["from"])
    assert ["hello", "hi", "x", "2", "go"] == contents_of(written["messages"]["to"])
    assert ["first", "1", "x", "2", "go", "said"] == contents(await store.load("c"))


def contents_of(written: Any) -> list[object]:
    """Return the contents of messages as the log has them."""
    return [message["content"] for message in written]


async def test_an_equal_copy_is_no_change() -> None:
    """A list in place of a tuple changes nothing, and is no transition."""

    async def copied(call_next: Any, state: RunState) -> Any:
        return list(await call_next(state))

    result = await agent(await stored(*TURN), Loads(copied)).run("go", conversation="c")
    assert [] == changes(result.log, "wrap_load_messages")


async def broken(call_next: Any, state: RunState) -> Any:
    """Go on, then raise."""
    await call_next(state)
    raise KeyError("mine")


async def nothing(call_next: Any, state: RunState) -> Any:
    """Go on, and forget to return."""
    await call_next(state)


async def text(call_next: Any, state: RunState) -> Any:
    """Return a string."""
    return "no messages"


async def no_messages(call_next: Any, state: RunState) -> Any:
    """Hand on what is no message."""
    return [*await call_next(state), {"role": "user"}]


async def not_awaited(call_next: Any, state: RunState) -> Any:
    """Forget to await."""
    return call_next(state)


async def left_open(call_next: Any, state: RunState) -> Any:
    """Leave a call without its result."""
    return (*await call_next(state), AssistantMessage("", tool_calls=(call("look", id="x"),)))


async def assistant_first(call_next: Any, state: RunState) -> Any:
    """Drop the first message of the user."""
    return (await call_next(state))[1:]


async def rewritten(call_next: Any, state: RunState) -> Any:
    """Write the history."""
    return await call_next(state.append(UserMessage("mine")))


async def no_record(call_next: Any, state: RunState) -> Any:
    """Pass on what is no record."""
    return await call_next("state")


@pytest.mark.parametrize(
    ("do", "kind", "said"),
    [
        (broken, HookFailed, "raised KeyError"),
        (nothing, InvalidReturn, "None: did you forget"),
        (text, InvalidReturn, "a sequence of messages"),
        (no_messages, InvalidReturn, "must be a message record"),
        (not_awaited, InvalidReturn, "await"),
        (left_open, InvalidView, "'x'"),
        (assistant_first, InvalidView, "must be the user's"),
        (rewritten, IllegalTransition, "messages"),
        (no_record, InvalidReturn, "RunState"),
    ],
)
async def test_a_wrapper_that_breaks_is_named(do: Load, kind: type, said: str) -> None:
    """By key, place and hook; the run ends before it asked anything, and what is stored stays."""
    store = await stored(*TURN)
    error = await failed(agent(store, Prompts(passing), Loads(do)), HookError, conversation="c")
    reason = error.reason
    assert kind is type(reason)
    assert ("Loads", 1, "wrap_load_messages") == (reason.key, reason.index, reason.hook)
    assert said in reason.message
    assert ["first", "1"] == contents(await store.load("c"))


async def passing(call_next: Any, state: RunState) -> Any:
    """Go on, and change nothing."""
    return await call_next(state)


async def test_a_broken_wrapper_stays_broken_whatever_an_outer_one_makes_of_it() -> None:
    """Nobody swallows another one's fault."""

    async def swallow(call_next: Any, state: RunState) -> Any:
        try:
            return await call_next(state)
        except HookError:
            return ()

    made = agent(await stored(*TURN), Loads(swallow, key="Outer"), Loads(broken, key="Inner"))
    error = await failed(made, HookError, conversation="c")
    assert "Inner" == error.reason.key


async def test_call_next_after_the_wrapper_returned_raises() -> None:
    """What it would load, nobody would check."""
    kept: list[Any] = []

    async def keep(call_next: Any, state: RunState) -> Any:
        kept.append(functools.partial(call_next, state))
        return await call_next(state)

    await agent(await stored(*TURN), Loads(keep)).run("go", conversation="c")
    with pytest.raises(RuntimeError, match="had returned"):
        await kept[0]()


async def test_a_wrapper_may_stop_fail_and_note() -> None:
    """By the state that it passes on, as any wrapper; a stopped run asks nothing, and saves nothing."""

    async def stop(call_next: Any, state: RunState) -> Any:
        return await call_next(state.stop("closed").note("seen"))

    store = await stored(*TURN)
    result = await agent(store, Loads(stop)).run("go", conversation="c")
    assert ("stopped", "closed", 0, ("seen",)) == (
        result.status,
        result.output,
        result.requests,
        result.state.notes,
    )
    assert (2, 0) == (len(await store.load("c")), result.log[-1].facts["saved"])


async def test_a_wrapper_under_a_condition() -> None:
    """It is called where its condition holds; one that breaks is named."""

    async def none(call_next: Any, state: RunState) -> Any:
        await call_next(state)
        return ()

    fresh = when(lambda state: "fresh" in state.context, Loads(none))
    made = Agent("a", ScriptedModel(["1", "2"]), store=await stored(*TURN), capabilities=[fresh])
    assert 4 == len((await made.run("go", conversation="c")).messages)
    assert 2 == len((await made.run("go", conversation="c", context={"fresh": 1})).messages)
    bad = when(lambda state: bool(1 / 0), Loads(none))
    error = await failed(agent(await stored(*TURN), bad), HookError, conversation="c")
    assert ("Loads", "wrap_load_messages") == (error.reason.key, error.reason.hook)


class Failing(MemoryStore):
    """A store whose loading fails so often."""

    def __init__(self, times: int) -> None:
        """Fail the first `times` times."""
        super().__init__()
        object.__setattr__(self, "left", [times])

    async def load(self, conversation: str) -> tuple[Message, ...]:
        """Fail, or load."""
        left: list[int] = self.left  # type: ignore[attr-defined]  # set past the frozen class
        if left[0]:
            left[0] -= 1
            raise StoreError("the disk is gone", conversation)
        return await super().load(conversation)


async def test_a_store_that_fails_ends_the_run() -> None:
    """By a typed reason that names the conversation; its exception is the cause."""
    error = await failed(agent(Failing(9), Loads(passing)), StorageError, conversation="c")
    assert isinstance(error.reason, StoreFailed)
    assert ("c", None) == (error.reason.conversation, error.reason.key)
    assert isinstance(error.__cause__, StoreError)
    assert "the disk is gone" in str(error)


async def test_a_wrapper_may_load_again_or_do_without() -> None:
    """A store's failure is an exception that a wrapper may catch."""

    async def again(call_next: Any, state: RunState) -> Any:
        try:
            return await call_next(state)
        except StoreError:
            return await call_next(state)

    async def without(call_next: Any, state: RunState) -> Any:
        return ()

    store = Failing(1)
    await store.append("c", TURN, 0)
    assert 4 == len((await agent(store, Loads(again)).run("go", conversation="c")).messages)
    # Its own history, and still the stored one is counted: another run's messages would be noticed.
    result = await agent(store, Loads(without)).run("go", conversation="c")
    assert ["go", "said"] == contents(result.messages)
    assert ["first", "1", "go", "said", "go", "said"] == contents(await store.load("c"))


async def test_who_does_without_a_store_that_fails_still_fails() -> None:
    """What is not counted could not be saved."""

    async def without(call_next: Any, state: RunState) -> Any:
        return ()

    error = await failed(agent(Failing(9), Loads(without)), StorageError, conversation="c")
    assert isinstance(error.reason, StoreFailed)


async def test_what_a_store_returns_is_checked() -> None:
    """A store of the user's own may return anything."""

    class Odd(MemoryStore):
        async def load(self, conversation: str) -> Any:
            return ["hello"]

    error = await failed(agent(Odd()), StorageError, conversation="c")
    assert "TypeError" in str(error)


async def test_a_stored_history_that_the_prompt_cannot_follow() -> None:
    """Without a prompt the conversation must end with the user's word or a result; nobody's hook is to blame."""
    with pytest.raises(HookError) as caught:
        await agent(await stored(*TURN)).run(None, conversation="c")
    assert isinstance(caught.value.reason, InvalidView)
    assert "conversation 'c'" in str(caught.value)
    made = agent(await stored(*TURN, UserMessage("well?")))
    assert "said" == (await made.run(None, conversation="c")).output


async def test_the_deadline_covers_opening() -> None:
    """A store that hangs does not outlive the run's deadline."""

    class Hanging(MemoryStore):
        async def load(self, conversation: str) -> tuple[Message, ...]:
            await anyio.sleep_forever()
            raise AssertionError

    limits = Limits(deadline=0.05)
    error = await failed(agent(Hanging(), limits=limits), LimitError, conversation="c")
    assert "deadline" in str(error)


@pytest.mark.parametrize("how", ["cancel", "stop"])
async def test_cut_short_while_it_opens(how: str) -> None:
    """The run has begun and ended on record, nothing was asked, and the store is as it was."""
    store, opening = await stored(*TURN), anyio.Event()

    async def hang(call_next: Any, state: RunState) -> Any:
        opening.set()
        await anyio.sleep_forever()

    async with agent(store, Loads(hang)).start("go", conversation="c") as handle:
        await opening.wait()
        if how == "stop":
            await handle.stop("enough")
        else:
            handle.cancel()
        result = await handle.result()
    assert ("stopped" if how == "stop" else "cancelled", 0) == (result.status, result.requests)
    assert verify(result.log).complete
    assert 2 == len(await store.load("c"))


# --- instructions


async def source(state: RunState) -> str:
    """Return instructions of a run."""
    return f"You serve {state.context['user']}."


@pytest.mark.parametrize(
    "given", [source, lambda state: f"You serve {state.context['user']}."], ids=["async", "sync"]
)
async def test_a_prompt_source_is_asked_once_a_run(given: Any) -> None:
    """Its text begins each request, and stands in the log as the run's instructions, bundles after it."""
    asked: list[str] = []

    def counted(state: RunState) -> Any:
        asked.append(state.run_id)
        return given(state)

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedModel([call("look"), "done"])
    made = Agent("a", model, instructions=counted, tools=[look], capabilities=[Bundle()])
    result = await made.run("go", context={"user": "ada"}, run_id="r")
    whole = "You serve ada.\n\nBe kind."
    assert [whole, whole] == [request.instructions for request in model.requests]
    assert (["r"], whole) == (asked, result.log[0].facts["instructions"])


async def test_a_prompt_source_sees_the_history() -> None:
    """Given or loaded: the run is as it is about to start."""
    seen: list[list[object]] = []

    def look(state: RunState) -> str:
        seen.append([contents(state.messages), state.history_start])
        return ""

    await agent(instructions=look).run("go", messages=TURN)
    result = await agent(await stored(*TURN), instructions=look).run("go", conversation="c")
    assert [[["first", "1", "go"], 2]] * 2 == seen
    assert ["go", "said"] == contents(result.new_messages)


async def test_what_wraps_a_prompt_is_on_record() -> None:
    """For plain text as for a source; the record has the whole instructions, as requests have them."""

    async def dated(call_next: Any, state: RunState) -> Any:
        return f"{await call_next(state)} It is Monday."

    made = agent(None, Prompts(dated), Bundle(), instructions="Be brief.")
    result = await made.run("go")
    model: Any = made.setup.model
    assert "Be brief. It is Monday.\n\nBe kind." == model.requests[0].instructions
    ((actor, written),) = changes(result.log, "wrap_prompt")
    change = {"from": "Be brief.\n\nBe kind.", "to": "Be brief. It is Monday.\n\nBe kind."}
    assert ("Prompts", {"instructions": change}) == (actor, written)


async def five(call_next: Any, state: RunState) -> Any:
    """Return a number."""
    return 5


@pytest.mark.parametrize(
    ("do", "kind", "said"),
    [
        (broken, HookFailed, "raised KeyError"),
        (nothing, InvalidReturn, "None: did you forget"),
        (five, InvalidReturn, "a string, and returned int"),
        (not_awaited, InvalidReturn, "await"),
    ],
)
async def test_a_prompt_wrapper_that_breaks_is_named(do: Load, kind: type, said: str) -> None:
    """By key, place and hook, as any other; what was loaded before stands in no record, for it was not used."""
    store = await stored(*TURN)
    error = await failed(agent(store, Prompts(do)), HookError, conversation="c")
    assert kind is type(error.reason)
    assert ("Prompts", 0, "wrap_prompt") == (error.reason.key, error.reason.index, error.reason.hook)
    assert said in error.reason.message


@pytest.mark.parametrize("given", [lambda state: 5, lambda state: 1 / 0], ids=["no text", "raises"])
async def test_a_prompt_source_that_fails_ends_the_run(given: Any) -> None:
    """It is no capability's fault: the reason names the field."""
    error = await failed(agent(instructions=given), HookError)
    assert isinstance(error.reason, HookFailed)
    assert (None, "instructions") == (error.reason.key, error.reason.field)
    assert "prompt source" in str(error)
    assert isinstance(error.__cause__, Exception)


async def test_a_prompt_wrapper_may_catch_a_source_that_fails() -> None:
    """A fallback is a change like any other."""

    async def fallback(call_next: Any, state: RunState) -> Any:
        try:
            return await call_next(state)
        except ZeroDivisionError:
            return "Be careful."

    result = await agent(None, Prompts(fallback), instructions=lambda state: str(1 / 0)).run("go")
    assert "Be careful." == result.state.instructions
    assert 1 == len(changes(result.log, "wrap_prompt"))


@pytest.mark.parametrize("given", [5, None, str, ["Be brief."]])
def test_what_are_no_instructions(given: Any) -> None:
    """Refused when the agent is built."""
    with pytest.raises(TypeError, match="instructions is a string, or a function"):
        agent(instructions=given)


async def test_a_sub_agent_resolves_its_own_prompt() -> None:
    """A source below sees the run below; the store of its agent is not used."""
    store = MemoryStore()
    below = Agent(
        "below", ScriptedModel(["found"]), instructions=lambda state: f"I am {state.agent}.", store=store
    )
    above = Agent(
        "above", ScriptedModel([call("below", {"task": "look"}), "done"]), tools=[below.as_tool("")]
    )
    result = await above.run("go")
    started = [record for record in result.log if record.kind == "run_started"]
    assert ["", "I am below."] == [record.facts["instructions"] for record in started]
    assert () == await store.pending()


async def test_the_same_records_however_it_is_driven() -> None:
    """Loading, resolving and saving are part of the one run; who follows it is told of its own messages only."""

    async def last(call_next: Any, state: RunState) -> Any:
        return (await call_next(state))[-2:]

    async def made() -> Agent[str]:
        port = LocalPort(clock=lambda: 5.0, new_id=lambda: "r")
        return agent(
            await stored(*TURN, *TURN), Loads(last), port=port, instructions=lambda state: "Be brief."
        )

    result = await (await made()).run("go", conversation="c")
    async with (await made()).start("go", conversation="c") as handle:
        started = await handle.result()
    async with (await made()).stream("go", conversation="c") as events:
        seen = [event async for event in events]
    assert isinstance(seen[-1], Ended)
    assert seen[-1].result is not None
    assert ["said"] == [event.message.content for event in seen if isinstance(event, Settled)]
    assert [result.log.head] * 2 == [started.log.head, seen[-1].result.log.head]
    assert 2 == result.log[-1].facts["saved"]
