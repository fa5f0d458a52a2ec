"""One machine: the same script comes to the same state and the same digests, whichever way it is driven."""

import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias

import anyio
import pytest
from attrs import evolve, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from capfold.capabilities import (
    AssistantMessage,
    CallNext,
    CallState,
    Capability,
    Json,
    Outside,
    RequireApproval,
    RunState,
    ToolBudget,
    ToolCall,
    TrimMessages,
    UserMessage,
    call,
    freeze,
    tool,
)
from capfold.capabilities.capability import AnyCapability
from capfold.runtime import (
    Agent,
    ApprovalRequest,
    Approve,
    AuditRecord,
    Chunks,
    Deny,
    Edit,
    Limits,
    Model,
    RunError,
    RunResult,
    ScriptedModel,
    verify,
)
from capfold.runtime.audit import next_digest
from capfold.runtime.decisions import Decision
from capfold.runtime.events import Ended
from capfold.runtime.scripted_model import Reply
from tests.runtime.desk import port
from tests.runtime.test_stream import check_story

SCRIPTS = 100

# --- tools: how long each takes depends on its argument, so that parallel calls end in another order


@tool(read_only=True)
async def look(n: int) -> str:
    """Look n up."""
    for _ in range(n):
        await anyio.lowlevel.checkpoint()
    return f"found {n}"


@tool(read_only=True)
async def miss(n: int) -> str:
    """Fail, and be known to have done nothing."""
    await anyio.lowlevel.checkpoint()
    raise ValueError(f"no {n}")


@tool
async def lose(n: int) -> str:
    """Fail, after who knows what."""
    raise ValueError(f"lost {n}")


@tool
async def pay(n: int) -> str:
    """Pay n."""
    await anyio.lowlevel.checkpoint()
    return f"paid {n}"


@tool(sequential=True)
def write(n: int) -> str:
    """Write n down, in a thread, alone."""
    return f"wrote {n}"


TOOLS = (look, miss, lose, pay, write)

# --- hooks that change something


@frozen
class Refuses(Capability):
    """Refuses calls about four, and notes that."""

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.refuse("Not four.").note("four") if call.arguments.get("n") == 4 else call


@frozen
class Shouts(Capability):
    """Writes what the model says in capitals, and what tools say too."""

    def after_model_request(self, state: RunState) -> RunState:
        assert state.response is not None
        return evolve(state, response=evolve(state.response, content=state.response.text.upper()))

    def after_tool_execute(self, call: CallState) -> CallState:
        assert call.outcome is not None
        return call.with_content(str(call.outcome.content).upper())


class Counts(Capability[int]):
    """Counts its steps in its slot, and appends the count to each request."""

    def initial(self) -> int:
        return 0

    def before_model_request(self, state: RunState) -> RunState:
        count = state.slot(self) + 1
        return state.put(self, count).append(UserMessage(f"step {count}"))


@frozen
class Stops(Capability):
    """Stops before a step."""

    step: int

    def before_model_request(self, state: RunState) -> RunState:
        return state.stop("enough") if state.run_step == self.step else state


@frozen
class StopsAtCall(Capability):
    """Stops in the middle of a batch."""

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.stop("no fives") if call.arguments.get("n") == 5 else call


@frozen
class Again(Capability):
    """Is not content with the first answer."""

    def after_model_request(self, state: RunState) -> RunState:
        return state.ask_again("Sure?") if state.run_step == 1 else state


@frozen
class Twice(Capability):
    """Runs a call again that failed, and says so."""

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        done = await call_next(call)
        if done.outcome is not None and done.outcome.status == "failed":
            done = (await call_next(call)).note("twice")
        return done


@frozen
class Gathers(Capability):
    """Brings a fact to every judgement, and encloses the run, once more when it is resumed."""

    async def gather_admit_tool_execute(self, call: CallState, outside: Outside) -> Json:
        await anyio.lowlevel.checkpoint()
        return freeze({"id": call.id})

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.note(f"{call.fact(self)}")

    async def wrap_run(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        await anyio.lowlevel.checkpoint()
        return await call_next(state)


@frozen
class Fails(Capability):
    """Fails a run that said too much."""

    hold_stream: bool = True

    def after_run(self, state: RunState) -> RunState:
        return state.fail("too many words") if len(state.messages) > 9 else state


HOOKS: tuple[AnyCapability, ...] = (
    Refuses(),
    Shouts(),
    Counts(),
    Stops(2),
    StopsAtCall(),
    Again(),
    Twice(),
    Gathers(),
    Fails(),
    ToolBudget(3),
    TrimMessages(3),
)


NO_LIMITS = Limits()


@frozen
class Script:
    """A run: what the model says, and under which hooks, limits and output type."""

    replies: tuple[Reply, ...]
    hooks: tuple[AnyCapability, ...] = ()
    approvals: tuple[str, ...] = ()
    limits: Limits = NO_LIMITS
    output: type = str
    history: tuple[Any, ...] = field(default=())

    def agent(self, *, asks: bool, model: Model | None = None) -> Agent[Any]:
        """Return a fresh agent; `asks`: its approver decides at once, else the run is suspended.

        `model`: in place of one that reads the script from its beginning.
        """
        capabilities = [*self.hooks, *([RequireApproval(self.approvals)] if self.approvals else [])]
        return Agent(
            "desk",
            ScriptedModel(self.replies) if model is None else model,
            tools=TOOLS,
            capabilities=capabilities,
            limits=self.limits,
            output_type=self.output,
            approver=decide_all if asks else None,
            port=port(),
        )


def decide(request: ApprovalRequest) -> Decision:
    """Decide by the argument, so that whoever is asked says the same."""
    n = request.arguments.get("n")
    if n == 1:
        return Deny("Not one.")
    return Edit({"n": 3}) if n == 2 else Approve(always=n == 3)


def decide_all(requests: tuple[ApprovalRequest, ...]) -> Sequence[Decision]:
    """Decide all of a batch."""
    return [decide(request) for request in requests]


def _calls() -> st.SearchStrategy[ToolCall]:
    good = st.builds(
        lambda name, n: call(name, {"n": n}), st.sampled_from([t.name for t in TOOLS]), st.integers(0, 5)
    )
    bad = st.sampled_from([call("look", {"n": "x"}), call("nowhere", {"n": 1}), ToolCall("", "pay", "{")])
    return good | good | good | bad


@st.composite
def scripts(draw: DrawFn, *, least: int = 0) -> Script:
    """Draw a script of up to six replies and four hooks, of which `least` ask for approval, and what may end it."""
    batches = draw(st.lists(st.lists(_calls(), min_size=1, max_size=3), max_size=4))
    replies: list[Reply] = []
    for batch in batches:
        said = draw(st.sampled_from(["", "let me see"]))
        replies.append(AssistantMessage(said, tool_calls=tuple(batch), finish_reason="tool_calls"))
    last: list[Reply] = [Chunks("12"), Chunks("do", "ne"), "done", "12"]
    replies.extend(draw(st.lists(st.sampled_from(last), max_size=2)))
    return Script(
        replies=tuple(replies),
        hooks=tuple(draw(st.lists(st.sampled_from(HOOKS), max_size=4, unique=True))),
        approvals=tuple(
            draw(st.lists(st.sampled_from(["pay", "look"]), min_size=least, max_size=2, unique=True))
        ),
        limits=draw(
            st.sampled_from([Limits(), Limits(max_steps=3), Limits(tool_calls=4), Limits(requests=2)])
        ),
        output=draw(st.sampled_from([str, str, int])),
        history=draw(st.sampled_from([(), (UserMessage("before"), AssistantMessage("yes"))])),
    )


# --- ways to drive it

Way: TypeAlias = Callable[[Agent[Any], Script], Awaitable[RunResult[Any]]]


async def by_run(agent: Agent[Any], script: Script) -> RunResult[Any]:
    """Await `run`."""
    return await agent.run("go", messages=script.history)


async def by_stream(agent: Agent[Any], script: Script) -> RunResult[Any]:
    """Read all events, which must tell the same story."""
    async with agent.stream("go", messages=script.history) as stream:
        events = [event async for event in stream]
    check_story(events)
    end = events[-1]
    assert isinstance(end, Ended)
    if end.error is not None:
        raise end.error
    assert end.result is not None
    return end.result


async def by_start(agent: Agent[Any], script: Script) -> RunResult[Any]:
    """Await the result of a handle."""
    async with agent.start("go", messages=script.history) as handle:
        return await handle.result()


WAYS: tuple[Way, ...] = (by_run, by_stream, by_start)


@frozen
class Ending:
    """What is compared: the final state, why it failed, and the bodies of the log."""

    state: RunState
    reason: object
    head: str
    bodies: tuple[Any, ...] = field(eq=False)


def ending(result: RunResult[Any], reason: object, records: Iterable[AuditRecord]) -> Ending:
    """Return an ending; the model is left out, which each run has of its own."""
    assert verify(result.log).complete
    return Ending(
        evolve(result.state, model=None), reason, result.log.head, tuple(record.body for record in records)
    )


async def end_by(work: Awaitable[RunResult[Any]]) -> tuple[RunResult[Any], object]:
    """Return what a run came to, and why it failed where it did."""
    try:
        return await work, None
    except RunError as error:
        return of_failure(error)


async def endings(script: Script, *, asks: bool) -> list[Ending]:
    """Return how the script ends in each way."""
    found = []
    for way in WAYS:
        result, reason = await end_by(way(script.agent(asks=asks), script))
        found.append(ending(result, reason, result.log))
    return found


def of_failure(error: RunError) -> tuple[RunResult[Any], object]:
    """Return what a failed run came to, and why it failed."""
    assert error.partial is not None
    return error.partial, error.reason


def by_run_sync(agent: Agent[Any], script: Script) -> tuple[RunResult[Any], object]:
    """Return what `run_sync` comes to, and why it failed where it did."""
    try:
        return agent.run_sync("go", messages=script.history), None
    except RunError as error:
        return of_failure(error)


@given(scripts(), st.booleans())
@settings(max_examples=SCRIPTS)
def test_every_way_comes_to_the_same(script: Script, asks: bool) -> None:  # noqa: FBT001  # drawn
    """`run`, `run_sync`, `stream`, `start`, on both loops: one final state, one reason, one log head."""
    work = functools.partial(endings, script, asks=asks)
    found = [*anyio.run(work), *anyio.run(work, backend="trio")]
    result, reason = by_run_sync(script.agent(asks=asks), script)
    found.append(ending(result, reason, result.log))
    for other in found[1:]:
        assert found[0].bodies == other.bodies  # says which record, where the head would not
        assert found[0] == other


CARRIED = {"run_suspended", "run_resumed", "call_decided"}


def remaining(records: Iterable[AuditRecord]) -> str:
    """Return the digest of a log without the records of suspending, deciding and resuming."""
    digest = ""
    for record in records:
        if record.kind not in CARRIED:
            digest = next_digest(digest, record.body)
    return digest


async def through_snapshots(script: Script) -> tuple[RunResult[Any], object, list[AuditRecord], int]:
    """Run without an approver; decide and resume each time it is suspended, from the text of its snapshot."""
    agent = script.agent(asks=False)
    result, reason = await end_by(agent.run("go", messages=script.history))
    records = list(result.log)
    times = 0
    while result.status == "suspended":
        times += 1
        decisions = {request.digest: decide(request) for request in result.pending}
        result, reason = await end_by(agent.resume(result.snapshot(), decisions))
        records.extend(result.log)
    return result, reason, records, times


@given(scripts(least=1))
@settings(max_examples=SCRIPTS)
def test_a_suspended_run_comes_to_the_same(script: Script) -> None:
    """As with an approver who says the same at once: state, reason, and digests but of how it was carried."""

    async def both() -> None:
        asked, reason = await end_by(by_run(script.agent(asks=True), script))
        resumed, later, records, _ = await through_snapshots(script)
        assert reason == later
        assert evolve(asked.state, model=None) == evolve(resumed.state, model=None)
        assert asked.messages == resumed.messages
        assert [r.body for r in asked.log if r.kind not in CARRIED] == [
            r.body for r in records if r.kind not in CARRIED
        ]
        assert remaining(asked.log) == remaining(records)

    anyio.run(both)


@pytest.mark.parametrize("approvals", [("pay",), ("look", "pay")])
def test_the_scripts_are_suspended_and_resumed(approvals: tuple[str, ...]) -> None:
    """The comparison is no empty one: a script is carried twice."""
    replies: tuple[Reply, ...] = (
        call("pay", {"n": 2}),
        [call("pay", {"n": 4}), call("look", {"n": 1})],
        "done",
    )
    script = Script(replies, approvals=approvals)
    _, _, _, times = anyio.run(through_snapshots, script)
    assert 2 == times


async def test_decisions_by_which_a_run_ends_end_it_inside_its_wrappers() -> None:
    """What ends the run is found when wrap_run has been entered again: the denied call is denied, not cut short."""
    replies: tuple[Reply, ...] = (
        call("nowhere", {"n": 1}),
        [call("look", {"n": 1}), call("nowhere", {"n": 1})],
    )
    script = Script(replies, hooks=(Gathers(),), approvals=("look",))
    asked, reason = await end_by(by_run(script.agent(asks=True), script))
    resumed, later, records, times = await through_snapshots(script)
    assert 1 == times
    assert reason == later
    assert remaining(asked.log) == remaining(records)
    assert asked.messages == resumed.messages
