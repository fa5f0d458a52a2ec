"""The events of a streamed run: what is told, in which order, and what becomes of a run that its consumer leaves."""

import gc
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import anyio
import pytest
from attrs import evolve, frozen

from capfold.capabilities import (
    AssistantMessage,
    CallNext,
    CallState,
    Capability,
    Json,
    Message,
    Outside,
    RequireApproval,
    RunState,
    SystemMessage,
    ToolMessage,
    UserMessage,
    call,
    hook,
    tool,
)
from capfold.runtime import (
    Agent,
    BlockedError,
    Chunks,
    Delta,
    FunctionModel,
    LimitError,
    Limits,
    LocalPort,
    ModelError,
    ModelRequest,
    ModelRunError,
    RunError,
    RunResult,
    ScriptedModel,
    verify,
)
from capfold.runtime.events import CallSettled, CallStarted, Ended, RunEvent, Settled
from capfold.runtime.following import Follower
from capfold.runtime.memory_store import MemoryStore
from capfold.runtime.run_stream import RunStream
from capfold.runtime.scripted_model import Reply
from tests.runtime.desk import Trace, check_closed, look, make, port, slow

TWO_CALLS = [call("look", {"n": 1}), call("look", {"n": 2})]


async def events_of(agent: Agent[Any], prompt: str | None = "go", **options: Any) -> list[RunEvent[Any]]:
    """Return all events of a run, read to their end."""
    async with agent.stream(prompt, **options) as stream:
        return [event async for event in stream]


def names(events: Sequence[RunEvent[Any]]) -> list[str]:
    """Return the classes of events, in order."""
    return [type(event).__name__ for event in events]


def said(events: Sequence[RunEvent[Any]]) -> list[str]:
    """Return the texts of the deltas."""
    return [event.text for event in events if isinstance(event, Delta)]


def settled(events: Sequence[RunEvent[Any]]) -> list[Message]:
    """Return the settled messages."""
    return [event.message for event in events if isinstance(event, Settled)]


def end_of(events: Sequence[RunEvent[Any]]) -> RunResult[Any]:
    """Return what a run came to, by its one last event: the partial result of a failed one."""
    ends = [event for event in events if isinstance(event, Ended)]
    assert [events[-1]] == ends
    (end,) = ends
    assert (end.result is None) != (end.error is None)
    if end.result is not None:
        return end.result
    assert end.error is not None
    assert end.error.partial is not None
    return end.error.partial


def check_story(events: Sequence[RunEvent[Any]], *, prompts: int = 1) -> RunResult[Any]:
    """Assert what holds for the events of every run read to its end; return what it came to.

    `prompts`: how many of the run's own messages the consumer gave itself.
    """
    result = end_of(events)
    own = result.state.messages[result.state.history_start :]  # of a suspended run, what stands
    assert list(own[prompts:]) == settled(events)
    check_order(events)
    assert result.log.complete
    verify(result.log)
    return result


def check_order(events: Sequence[RunEvent[Any]]) -> None:
    """Assert that each call is started once after its response, then settled once, then has its result."""
    place: dict[str, str] = {}
    for event in events:
        match event:
            case Settled(AssistantMessage() as message):
                place |= dict.fromkeys((one.id for one in message.tool_calls), "asked")
            case CallStarted(call_id=name):
                assert "asked" == place[name]
                place[name] = "started"
            case CallSettled(call_id=name):
                assert "started" == place[name]
                place[name] = "settled"
            case Settled(ToolMessage(call_id=name)):
                assert place[name] in {"asked", "settled"}
                place[name] = "done"
            case _:
                pass


# --- what is told


async def test_events_of_a_run_in_their_order() -> None:
    """Each message once when it stands, each call's start and outcome between, deltas before their message."""
    events = await events_of(make([TWO_CALLS[0], Chunks("It is ", "found.")]))
    assert [
        "Settled",
        "CallStarted",
        "CallSettled",
        "Settled",
        "Delta",
        "Delta",
        "Settled",
        "Ended",
    ] == names(events)
    assert [Delta("It is ", 2), Delta("found.", 2)] == events[4:6]
    assert [CallStarted("call_1_0", "look", 1), CallSettled("call_1_0", "look", "succeeded", 1)] == events[
        1:3
    ]
    result = check_story(events)
    assert ("completed", "It is found.") == (result.status, result.output)


async def test_a_stream_is_the_run_told_as_it_goes() -> None:
    """State, messages and digests are those of `run`; settled messages are its new ones but the prompt."""
    replies: list[Reply] = [
        TWO_CALLS,
        AssistantMessage("Let me pay.", tool_calls=(call("pay", {"amount": 3}),)),
        "Done.",
    ]
    history = (UserMessage("before"), AssistantMessage("yes"))
    events = await events_of(make(replies), messages=history)
    result = await make(replies).run("go", messages=history)
    streamed = check_story(events)
    assert (evolve(result.state, model=None), result.log.head) == (
        evolve(streamed.state, model=None),  # each run had a script of its own
        streamed.log.head,
    )
    deltas = [event for event in events if isinstance(event, Delta)]
    assert ["", "Let me pay.", "Done."] == [
        "".join(delta.text for delta in deltas if delta.step == step) for step in (1, 2, 3)
    ]


async def test_deltas_of_a_response_are_its_text() -> None:
    """Where no hook changed it: whatever pieces a model makes of it, with a model that cannot stream too."""

    class Plain:
        name = "plain"
        profile = ScriptedModel(()).profile

        async def request(self, request: ModelRequest, meter: Any) -> AssistantMessage:
            return AssistantMessage("in one piece")

    assert ["in one piece"] == said(await events_of(make(model=Plain())))
    pieces = await events_of(make([Chunks("", "a", "", "b")]))
    assert ["a", "b"] == said(pieces)
    assert [] == said(await events_of(make([""])))


async def test_history_that_ends_with_the_users_words() -> None:
    """Without a prompt there is nothing that the consumer gave but the history."""
    events = await events_of(make(), None, messages=[UserMessage("all of it")])
    check_story(events, prompts=0)
    assert ["done"] == [message.content for message in settled(events)]


@frozen
class Appends(Capability):
    """Puts a message before the prompt, and appends to each request; renames nothing."""

    def before_run(self, state: RunState) -> RunState:
        own = state.messages[state.history_start :]
        return evolve(
            state, messages=(*state.messages[: state.history_start], SystemMessage("be kind"), *own)
        )

    def before_model_request(self, state: RunState) -> RunState:
        return state.append(UserMessage(f"step {state.run_step}"))


async def test_what_hooks_append_is_settled_too() -> None:
    """Around the prompt, and to each request; the prompt alone is not told, whatever stands before it."""
    events = await events_of(make([TWO_CALLS, "done"], capabilities=[Appends()]))
    own = [message for message in end_of(events).new_messages if message != UserMessage("go")]
    assert own == settled(events)
    assert ["be kind", "step 1"] == [message.content for message in settled(events)[:2]]


async def test_a_prompt_that_a_hook_rewrote_is_told() -> None:
    """What stands in the history is not what the consumer said."""

    @hook.before_run
    def mask(state: RunState) -> RunState:
        return evolve(state, messages=(UserMessage("masked"),))

    events = await events_of(make(capabilities=[mask]), "secret")
    check_story(events, prompts=0)
    assert ["masked", "done"] == [message.content for message in settled(events)]


async def test_a_message_like_the_prompt_is_told() -> None:
    """Only the prompt itself is not."""

    @hook.before_model_request
    def insist(state: RunState) -> RunState:
        return state.append(UserMessage("go"))

    events = await events_of(make(capabilities=[insist]))
    check_story(events)
    assert ["go", "done"] == [message.content for message in settled(events)]


async def test_renamed_calls_are_told_by_their_new_name() -> None:
    """An id that was used before is another one in all events."""
    again = [call("look", {"n": 1}, id="x")]
    events = await events_of(make([again, again, "done"]))
    check_story(events)
    started = [event.call_id for event in events if isinstance(event, CallStarted)]
    assert ("x", 2) == (started[0], len(set(started)))


async def test_responses_that_are_asked_for_again() -> None:
    """A refused output and an `ask_again` stand in the history, and so does what was answered to them."""

    @hook.after_model_request
    def again(state: RunState) -> RunState:
        assert state.response is not None
        return state.ask_again("Really?") if "maybe" in state.response.text else state

    agent = make(["no number", "maybe 4", "5"], capabilities=[again], output_type=int, output_retries=2)
    events = await events_of(agent)
    assert 5 == check_story(events).output
    assert 5 == len(settled(events))


async def test_a_suspended_run_tells_its_calls_and_no_results() -> None:
    """The response stands, its calls wait: nothing of them is settled yet."""
    agent = make([[call("pay", {"amount": 1}), call("look", {"n": 1})]], capabilities=[RequireApproval()])
    events = await events_of(agent)
    assert ["Settled", "Ended"] == names(events)
    assert "suspended" == check_story(events).status


@pytest.mark.parametrize("where", ["before_run", "before_model_request", "after_model_request", "after_run"])
async def test_a_failed_run_ends_with_its_error(where: str) -> None:
    """It is not raised: it is in `Ended`, with what the run came to, and equal to what `run` raises."""

    def fail(state: RunState) -> RunState:
        return state.fail("no")

    capability = getattr(hook, where)(fail)
    events = await events_of(make([Chunks("a", "b")], capabilities=[capability]))
    end = events[-1]
    assert isinstance(end, Ended)
    assert isinstance(end.error, BlockedError)
    with pytest.raises(BlockedError) as caught:
        await make([Chunks("a", "b")], capabilities=[capability]).run("go")
    assert caught.value.reason == end.error.reason
    result = check_story(events)
    assert caught.value.partial is not None
    assert evolve(caught.value.partial.state, model=None) == evolve(result.state, model=None)


async def test_a_bad_start_is_raised_on_entering() -> None:
    """TypeError and ValueError, as from `run`; nothing has happened then."""
    agent = make()
    with pytest.raises(ValueError, match="cannot be sent"):
        async with agent.stream(None):
            pytest.fail("entered")
    with pytest.raises(TypeError, match="run_id"):
        async with agent.stream("go", run_id=""):
            pytest.fail("entered")
    with pytest.raises(TypeError, match="nonsense"):
        async with agent.stream("go", nonsense=1):  # type: ignore[call-arg]  # what is tested
            pytest.fail("entered")


# --- made-up and changed replies


@frozen
class Caches(Capability):
    """Answers a request without a model."""

    async def wrap_model_request(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        return state.respond(AssistantMessage("from the cache"))


async def test_made_up_replies_stream() -> None:
    """A reply that a wrapper made comes as a delta like any other, before its message."""
    events = await events_of(make([], capabilities=[Caches()]))
    check_story(events)
    assert (["Delta", "Settled", "Ended"], ["from the cache"]) == (names(events), said(events))


@hook.after_model_request
def shout(state: RunState) -> RunState:
    """Write a response in capitals."""
    assert state.response is not None
    return evolve(state, response=evolve(state.response, content=state.response.text.upper()))


async def test_a_changed_reply_is_final_as_settled() -> None:
    """Deltas are what the model said; the message that stands is the hooks'."""
    events = await events_of(make([Chunks("so", " it is")], capabilities=[shout]))
    check_story(events)
    assert (["so", " it is"], "SO IT IS") == (said(events), settled(events)[-1].content)


@frozen
class Holds(Capability):
    """Withholds deltas until its after hook has written the response anew."""

    hold_stream: bool = True

    def after_model_request(self, state: RunState) -> RunState:
        assert state.response is not None
        text = state.response.text.replace("4111 1111", "<card>")
        return evolve(state, response=evolve(state.response, content=text))


async def test_held_streams_show_what_stands() -> None:
    """No delta before the after hooks, and none that they would have changed, over however many pieces it came."""
    replies: list[Reply] = [
        AssistantMessage("Your card 4111 1111.", tool_calls=(call("look", {"n": 1}),)),
        Chunks("Card 41", "11 11", "11."),
    ]
    events = await events_of(make(replies, capabilities=[Holds()]))
    check_story(events)
    assert ["Your card <card>.", "Card <card>."] == said(events)
    assert ["Delta", "Settled", "CallStarted"] == names(events)[:3]


@pytest.mark.parametrize("end", ["fail", "stop", "raise"])
async def test_what_after_run_withholds_is_never_shown(end: str) -> None:
    """A held stream waits for after_run too: its judgement may take the last response back."""

    @hook.after_run
    def judge(state: RunState) -> RunState:
        if end == "raise":
            raise ValueError("broken")
        return state.fail("bad") if end == "fail" else state.stop("bad")

    events = await events_of(make([Chunks("the sec", "ret")], capabilities=[Holds(), judge]))
    result = check_story(events)
    assert result.messages[-1].content not in {"the secret", ""}
    assert "sec" not in repr([event for event in events if not isinstance(event, Ended)])


@pytest.mark.parametrize("end", ["fail", "raise"])
async def test_what_after_hooks_withhold_of_a_tool_is_never_shown(end: str) -> None:
    """An outcome is told by status, its content only as it stands."""

    @hook.after_tool_execute
    def judge(call: CallState) -> CallState:
        if end == "raise":
            raise ValueError("broken")
        return call.fail("bad")

    events = await events_of(make([TWO_CALLS], capabilities=[judge]))
    check_story(events)
    assert "found" not in repr([event for event in events if not isinstance(event, Ended)])
    statuses = [event.status for event in events if isinstance(event, CallSettled)]
    assert ["succeeded", "succeeded"] == statuses


# --- models that break


@frozen
class Retries(Capability):
    """Asks again after every failure."""

    trace: Trace

    async def wrap_model_request(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        try:
            return await call_next(state)
        except ModelError as error:
            self.trace.add(error.kind)
            return await call_next(state)


async def test_a_stream_that_has_published_is_not_restarted() -> None:
    """The consumer has read half an answer; nobody asks for another one, though it would come."""
    down = ModelError("server", "down", retryable=True)
    model = ScriptedModel([Chunks("half", error=down), "whole"])
    trace = Trace()
    events = await events_of(make(model=model, capabilities=[Retries(trace)]))
    result = check_story(events)
    assert ("failed", 1, ["server"], ["half"]) == (
        result.status,
        len(model.requests),
        trace.lines,
        said(events),
    )


async def test_a_stream_that_has_not_published_may_be_restarted() -> None:
    """Nothing was shown of a request that failed at once, nor of one that is held back."""
    down = ModelError("server", "down", retryable=True)
    for first, capabilities in ((down, []), (Chunks("half", error=down), [Holds()])):
        agent = make([first, "whole"], capabilities=[Retries(Trace()), *capabilities])
        events = await events_of(agent)
        assert "completed" == check_story(events).status
        assert "whole" == "".join(said(events))


async def test_a_wrapper_may_respond_after_a_broken_stream() -> None:
    """The response that stands is the wrapper's; the pieces of the broken one were provisional."""

    @frozen
    class Falls(Capability):
        async def wrap_model_request(
            self, call_next: CallNext[RunState, RunState], state: RunState
        ) -> RunState:
            try:
                return await call_next(state)
            except ModelError:
                return state.respond(AssistantMessage("sorry"))

    down = ModelError("server", "down", retryable=True)
    events = await events_of(make([Chunks("half", error=down)], capabilities=[Falls()]))
    check_story(events)
    assert (["half"], ["sorry"]) == (said(events), [message.content for message in settled(events)])


async def _half() -> AsyncIterator[str | AssistantMessage]:
    yield "half"


Parts = Callable[[], AsyncIterator[Any]]


class Streams:
    """A model whose stream gives what a function yields, and says when it was closed."""

    name = "streams"
    profile = ScriptedModel(()).profile

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.open = 0
        self.opened = 0

    async def request(self, request: ModelRequest, meter: Any) -> AssistantMessage:
        raise AssertionError("asked for no stream")

    def stream(self, request: ModelRequest, meter: Any) -> Any:
        return self

    async def __aenter__(self) -> AsyncIterator[Any]:
        self.open += 1
        self.opened += 1
        return self.parts()

    async def __aexit__(self, *what: object) -> None:
        self.open -= 1


def _ends_early() -> Parts:
    async def parts() -> AsyncIterator[Any]:
        yield Delta("so far")

    return parts


def _says_two() -> Parts:
    async def parts() -> AsyncIterator[Any]:
        yield Delta("so far")
        yield AssistantMessage("so far")
        yield AssistantMessage("and another")

    return parts


def _breaks() -> Parts:
    async def parts() -> AsyncIterator[Any]:
        yield Delta("so ")
        yield Delta("far")
        raise ModelError("connection", "lost", retryable=True)

    return parts


def _stalls() -> Parts:
    async def parts() -> AsyncIterator[Any]:
        yield Delta("so far")
        await anyio.sleep_forever()

    return parts


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        (_ends_early(), "invalid_response"),
        (_says_two(), "invalid_response"),
        (_breaks(), "connection"),
        (_stalls(), "timeout"),
    ],
    ids=["ends early", "says two", "breaks off", "stalls"],
)
async def test_a_broken_source_is_an_error_with_the_text_so_far(parts: Parts, kind: str) -> None:
    """ModelFailed; its cause carries what was said by then, and the connection is closed."""
    model = Streams(parts)
    events = await events_of(make(model=model, limits=Limits(request_timeout=0.05)))
    end = events[-1]
    assert isinstance(end, Ended)
    assert isinstance(end.error, ModelRunError)
    cause = end.error.__cause__
    assert isinstance(cause, ModelError)
    assert (kind, "so far", 0) == (cause.kind, cause.partial, model.open)
    assert "so far" == "".join(said(events))
    check_story(events)


async def test_a_source_that_raises_something_else() -> None:
    """Whatever a model raises is a failure of the model, and ends the stream with one `Ended`."""

    async def parts() -> AsyncIterator[Any]:
        yield Delta("a")
        raise ZeroDivisionError("own fault")

    model = Streams(parts)
    events = await events_of(make(model=model))
    assert (["Delta", "Ended"], 0) == (names(events), model.open)
    end = events[-1]
    assert isinstance(end, Ended)
    assert "ZeroDivisionError" in str(end.error)
    assert isinstance(end.error, RunError)
    assert isinstance(end.error.__cause__, ModelError)
    assert "a" == end.error.__cause__.partial


# --- consumers

LONG: list[Any] = [
    TWO_CALLS,
    [call("pay", {"amount": 1}), call("hang", {})],
    Chunks("a", "b", "c"),
]


def busy(**options: Any) -> Agent[str]:
    """Return an agent with a run of many events."""

    async def hang() -> str:
        """Wait a moment."""
        await anyio.lowlevel.checkpoint()
        return "waited"

    return make(LONG, tools=[*make().tools, slow("hang", hang)], **options)


COUNT = 19


async def test_the_busy_run_has_as_many_events_as_we_think() -> None:
    """So that each of them is a place to leave at, below."""
    assert COUNT == len(await events_of(busy()))


class Records:
    """A sink that keeps what it gets."""

    best_effort = False

    def __init__(self) -> None:
        self.records: list[Any] = []

    async def write(self, records: Sequence[Any]) -> None:
        """Keep them."""
        self.records.extend(records)

    async def close(self) -> None:
        """Do nothing."""

    def check_ended_once(self) -> str:
        """Assert that the run ended once, with each call that began settled; return its status."""
        ends = [record for record in self.records if record.kind == "run_ended"]
        assert [self.records[-1]] == ends
        begun = [record.call for record in self.records if record.kind == "tool_started"]
        done = [record.call for record in self.records if record.kind == "tool_settled"]
        assert begun == done
        status: str = ends[0].facts["status"]
        return status


class Boom(Exception):
    """A consumer's own exception."""


@pytest.mark.parametrize("leave", ["break", "raise", "exit"])
@pytest.mark.parametrize("index", range(COUNT))
async def test_leaving_at_any_event_closes_the_run(index: int, leave: str) -> None:
    """It is cancelled once, its history closed and on record; the consumer's exception comes out as it is."""
    sink = Records()
    agent = busy(sinks=[sink])
    seen: list[RunEvent[str]] = []

    async def consume() -> None:
        async with agent.stream("go") as stream:
            async for event in stream:
                seen.append(event)
                if len(seen) <= index:
                    continue
                if leave == "raise":
                    raise Boom
                if leave == "exit":
                    raise KeyboardInterrupt
                break
            left.append(stream)

    left: list[RunStream[str]] = []
    if leave == "break":
        await consume()
        rest = [event async for event in left[0]]
        result = end_of([*seen, *rest])
        check_closed(result.messages)
        check_order([*seen, *rest])
        assert sink.check_ended_once() == result.status
    else:
        with pytest.raises(Boom if leave == "raise" else KeyboardInterrupt):
            await consume()
        status = sink.check_ended_once()
        assert status == ("cancelled" if index < COUNT - 2 else "completed")
    assert all(not isinstance(event, Ended) for event in seen[:-1])


@pytest.mark.parametrize("index", range(COUNT))
async def test_a_cancelled_consumer_cancels_the_run(index: int) -> None:
    """From outside, at any event: a cancellation it stays, and the log ends."""
    sink = Records()
    agent = busy(sinks=[sink])
    with anyio.CancelScope() as scope:
        async with agent.stream("go") as stream:
            count = 0
            async for _ in stream:
                count += 1
                if count > index:
                    scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert sink.check_ended_once() in {"cancelled", "completed"}


async def test_who_never_reads_leaves_a_closed_run() -> None:
    """The block may be left without a look at any event."""
    sink = Records()
    async with busy(sinks=[sink]).stream("go"):
        pass
    assert "cancelled" == sink.check_ended_once()


async def test_a_second_iteration_goes_on_and_then_ends_at_once() -> None:
    """Each event is given once: who comes second gets the rest, and nothing after `Ended`."""
    async with busy().stream("go") as stream:
        first = [await anext(stream), await anext(stream)]
        rest = [event async for event in stream]
        assert [] == [event async for event in stream]
    assert [] == [event async for event in stream]
    check_story([*first, *rest])


async def test_two_consumers_at_once_share_the_events() -> None:
    """Neither hangs, and each event is one's alone."""
    got: list[list[RunEvent[str]]] = [[], []]

    async def read(stream: RunStream[str], into: list[RunEvent[str]]) -> None:
        async for event in stream:
            into.append(event)
            await anyio.lowlevel.checkpoint()

    with anyio.fail_after(10):
        async with busy().stream("go") as stream, anyio.create_task_group() as group:
            for into in got:
                group.start_soon(read, stream, into)
    assert COUNT == sum(map(len, got))
    assert 1 == [type(event) for into in got for event in into].count(Ended)


async def test_nothing_runs_ahead_of_a_slow_consumer() -> None:
    """No tool runs before its response was read, no request before the results were."""
    ran: list[int] = []

    async def note(n: int) -> str:
        ran.append(n)
        return "ok"

    model = ScriptedModel([call("note", {"n": 1}), call("note", {"n": 2}), "done"])
    agent = make(model=model, tools=[slow("note", note)])
    async with agent.stream("go") as stream:
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        assert (1, []) == (len(model.requests), ran)  # the response is not read yet
        assert isinstance(await anext(stream), Settled)
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        assert [] == ran  # the start is not
        assert isinstance(await anext(stream), CallStarted)
        assert isinstance(await anext(stream), CallSettled)
        assert [1] == ran
        assert 1 == len(model.requests)
        assert "Ended" == names([event async for event in stream])[-1]


async def test_a_slow_consumer_does_not_use_up_a_request() -> None:
    """Deltas wait in the queue, not in the model's stream: its timeout is the model's own."""
    agent = make([Chunks(*"abcdef")], limits=Limits(request_timeout=0.2), port=LocalPort())
    events: list[RunEvent[str]] = []
    async with agent.stream("go") as stream:
        async for event in stream:
            events.append(event)
            await anyio.sleep(0.06)
    assert "completed" == check_story(events).status


@pytest.mark.parametrize("pause_at", range(5))
async def test_the_deadline_strikes_while_the_consumer_is_slow(pause_at: int) -> None:
    """It counts for all of the run: what was not begun by then does not run, and all is told."""
    agent = make(
        [TWO_CALLS, "never said"],
        limits=Limits(deadline=0.05),
        port=LocalPort(new_id=lambda: "run"),
    )
    events: list[RunEvent[str]] = []
    async with agent.stream("go") as stream:
        async for event in stream:
            if len(events) == pause_at:
                await anyio.sleep(0.1)
            events.append(event)
    end = events[-1]
    assert isinstance(end, Ended)
    assert isinstance(end.error, LimitError)
    check_closed(check_story(events).messages)


async def test_parallel_calls_are_told_as_they_end() -> None:
    """Outcomes in the order they came, results in the order of the calls."""
    second = anyio.Event()

    async def wait(n: int) -> str:
        if n == 2:
            second.set()
        else:
            await second.wait()
        return f"{n}"

    calls = [call("wait", {"n": n}, id=f"c{n}") for n in (1, 2)]
    events = await events_of(make([calls, "done"], tools=[slow("wait", wait)]))
    check_story(events)
    assert ["c2", "c1"] == [event.call_id for event in events if isinstance(event, CallSettled)]
    assert ["1", "2"] == [message.content for message in settled(events) if isinstance(message, ToolMessage)]


async def test_leaving_closes_the_connection_of_the_model() -> None:
    """The stream under way is left, and so is its connection."""
    model = Streams(_stalls())
    async with make(model=model).stream("go") as stream:
        assert isinstance(await anext(stream), Delta)
        assert 1 == model.open
    assert (1, 0) == (model.opened, model.open)


@pytest.mark.parametrize("exit_", [SystemExit, KeyboardInterrupt])
def test_an_exit_that_a_tool_asks_for_comes_out_as_of_run(
    exit_: type[BaseException], anyio_backend: str
) -> None:
    """As itself, not in a group; the history was closed before."""

    async def leave(n: int) -> str:
        raise exit_("out")

    def agent(sink: Records) -> Agent[str]:
        return make([call("leave", {"n": 1})], tools=[slow("leave", leave)], sinks=[sink])

    async def stream(made: Agent[str]) -> None:
        async with made.stream("go") as events:
            async for _ in events:
                pass

    async def run(made: Agent[str]) -> None:
        await made.run("go")

    for way in (run, stream):
        sink = Records()
        with pytest.raises(exit_, match="out"):
            anyio.run(way, agent(sink), backend=anyio_backend)
        assert "cancelled" == sink.check_ended_once()


async def test_a_fault_of_the_runtime_is_raised_out_of_the_block() -> None:
    """What is no failure of the run ends the consumer's block, with itself."""

    class Broken(LocalPort):
        async def together(self, *args: Any, **keywords: Any) -> None:
            raise AssertionError("a bug of the port")

    async def consume() -> None:
        async with make([TWO_CALLS], port=Broken()).stream("go") as stream:
            async for event in stream:
                assert not isinstance(event, Ended)
            await anyio.sleep_forever()

    with pytest.raises(AssertionError, match="a bug of the port"):
        await consume()


async def test_nothing_is_left_behind() -> None:
    """Kept events do not keep the run alive that gave them, and no thread is left waiting for one."""
    followers: list[weakref.ref[Any]] = []
    kept: list[RunStream[str]] = []
    agent = busy()

    async def use() -> None:
        before = {id(item) for item in gc.get_objects() if isinstance(item, Follower)}
        async with agent.stream("go") as stream:
            kept.append(stream)
            await anext(stream)
            found = [
                item for item in gc.get_objects() if isinstance(item, Follower) and id(item) not in before
            ]
            followers.extend(map(weakref.ref, found))
            del found

    before = threading.active_count()
    await use()
    await anyio.lowlevel.checkpoint()
    gc.collect()
    assert [None] == [ref() for ref in followers]
    assert kept
    assert threading.active_count() <= before + 1  # a worker thread that waits for work


async def test_gatherers_and_wrappers_are_not_streamed() -> None:
    """A request of a gatherer's own is no response of the run: none of its text is told."""

    @frozen
    class Asks(Capability):
        async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
            return (await outside.request([UserMessage("judge")])).text

    events = await events_of(make(["an aside", "done"], capabilities=[Asks()]))
    check_story(events)
    assert "done" == "".join(said(events))


async def test_sub_agents_are_one_call_of_the_stream() -> None:
    """What a sub-agent says is the result of a call, not a delta of the run that calls it."""
    child = Agent("helper", ScriptedModel([Chunks("the ", "answer")]), port=port())
    events = await events_of(make([call("helper", {"task": "x"}), "done"], tools=[child.as_tool("Help.")]))
    check_story(events)
    assert "done" == "".join(said(events))
    assert ["the answer"] == [m.content for m in settled(events) if isinstance(m, ToolMessage)]


async def test_tools_are_called_where_the_run_is() -> None:
    """A function model, a sync tool and context variables work in a stream as in `run`."""

    @tool
    def pause(n: int) -> str:
        """Work in a thread."""
        return f"{n} in {threading.current_thread() is not threading.main_thread()}"

    async def answer(request: ModelRequest) -> Any:
        return call("pause", {"n": 1}) if request.step == 1 else "done"

    events = await events_of(make(model=FunctionModel(answer), tools=[pause, look]))
    check_story(events)
    assert ["1 in True"] == [m.content for m in settled(events) if isinstance(m, ToolMessage)]


async def test_a_run_error_of_a_consumer_is_its_own() -> None:
    """A RunError that the block raises, of another run say, comes out as it is."""
    with pytest.raises(RunError) as other:
        await make([]).run("go")

    async def consume() -> None:
        async with busy().stream("go") as stream:
            await anext(stream)
            raise other.value

    with pytest.raises(RunError) as caught:
        await consume()
    assert other.value is caught.value


async def test_a_cancelled_run_is_saved_though_its_consumer_is_late_to_leave() -> None:
    """The closing of a run waits for nobody who is on the way out: its turn is in the conversation."""
    saved = anyio.Event()

    class Tells(MemoryStore):
        async def append(self, conversation: str, messages: Sequence[Message], expected: int) -> None:
            await super().append(conversation, messages, expected)
            saved.set()

    store = Tells()

    async def consume() -> None:
        async with make([TWO_CALLS, "done"], store=store).stream("go", conversation="c") as stream:
            try:
                async for event in stream:
                    if isinstance(event, CallSettled):
                        await anyio.sleep_forever()
            finally:
                with anyio.move_on_after(10, shield=True):
                    await saved.wait()

    with anyio.move_on_after(0.1):
        await consume()
    check_closed(await store.load("c"))
    assert 4 == len(await store.load("c"))


class Both(Capability):
    """Sends each request twice at once, and takes what came first."""

    async def wrap_model_request(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        """Ask."""
        came: list[RunState] = []
        failed: list[ModelError] = []

        async def one() -> None:
            try:
                came.append(await call_next(state))
            except ModelError as error:
                failed.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(one)
            group.start_soon(one)
        if not came:
            raise failed[0]
        return came[0]


async def test_of_two_streams_at_once_one_is_told() -> None:
    """The first to say something is the response; the other one fails, and no piece of it is between the deltas."""
    asked = iter("ab")

    async def words(request: ModelRequest) -> AsyncIterator[str]:
        name = next(asked)
        await anyio.sleep(0.01)
        for n in range(3):
            yield f"{name}{n}"
            await anyio.sleep(0.001)

    model = FunctionModel(lambda request: "unused", stream=words)
    *told, end = await events_of(make(model=model, capabilities=[Both()]))
    assert isinstance(end, Ended)
    assert end.result is not None
    said = "".join(event.text for event in told if isinstance(event, Delta))
    assert (said, 2) == (end.result.output, end.result.requests)
    assert said in {"a0a1a2", "b0b1b2"}
