"""HasteKit's agent middleware, claim by claim: what its users could do is done here by capabilities."""

import inspect
import pkgutil
import types
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from attrs import evolve, field, frozen
from llmock.pytest_plugin import LLMock

import capfold.capabilities
import capfold.runtime
from capfold.capabilities import (
    AssistantMessage,
    Backoff,
    CallNext,
    CallState,
    Capability,
    ImagePart,
    Message,
    Outcome,
    RefuseTools,
    RunState,
    SaveNext,
    StoreAttachments,
    Tool,
    ToolContext,
    ToolMessage,
    call,
    is_declared_destructive,
    is_destructive,
    tool,
)
from capfold.capabilities.views import balance_problem
from capfold.runtime import (
    Agent,
    Chunks,
    Delta,
    FunctionModel,
    HookError,
    HookFailed,
    IllegalTransition,
    LimitError,
    Limits,
    LocalPort,
    MemoryBlobStore,
    ModelError,
    ModelFailed,
    ModelRequest,
    ModelRunError,
    OpenAIModel,
    PortViolation,
    Retry,
    RunResult,
    ScriptedModel,
    check_port,
    machine,
)
from capfold.runtime.durable_engine import Perform
from capfold.runtime.journal_engine import JournalEngine, Records
from capfold.runtime.log_replay import replay
from capfold.runtime.memory_store import MemoryStore
from capfold.runtime.phases import CallResult, Executed, Finish, RequestModel, Responded, RunTools
from tests.conformance.kit import Befores, Desk, Onion, Seen, Traced, agent, calls, requests_of, texts
from tests.corruption.builders import at, culprit, failure, partial_of, records, spy
from tests.corruption.scenes import contents, statuses
from tests.runtime.durable_desk import BySteps, Deaths, through_lives


def test_h01_a_former_hook_name_is_refused_with_the_present_one() -> None:
    """A class with `before_tool_call` cannot be created; the error names `before_tool_execute`."""
    with pytest.raises(TypeError, match="before_tool_execute"):

        class Former(Capability):
            def before_tool_call(self, call: CallState) -> CallState:
                return call


async def test_h02_a_capability_that_overrides_nothing_is_never_called() -> None:
    """A run of three steps with it has no transition, not even where every hook call is written down."""

    class Nothing(Capability):
        pass

    desk = Desk()
    made = agent([*calls(1), *calls(2), "done"], tools=[desk.tool()], capabilities=[Nothing()], audit="all")
    result = await made.run("go")
    assert ("completed", 3) == (result.status, result.steps)
    assert frozenset() == Nothing().overrides
    assert [] == records(result.log, "transition", "restored", "rejected")


async def test_h04_a_wrapper_that_only_goes_on_leaves_no_trace() -> None:
    """State and log equal those of the run without it, but for the list's names in its first record."""

    @frozen
    class Passes(Capability):
        async def wrap_tool_execute(
            self, call_next: CallNext[CallState, CallState], call: CallState
        ) -> CallState:
            return await call_next(call)

        async def wrap_model_request(
            self, call_next: CallNext[RunState, RunState], state: RunState
        ) -> RunState:
            return await call_next(state)

        async def wrap_run(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
            return await call_next(state)

    model, work = ScriptedModel([*calls(1), "done"] * 2), Desk().tool()
    port = LocalPort(clock=lambda: 1.0)
    bare = await Agent("agent", model, tools=[work], port=port).run("go", run_id="run")
    passed = await Agent("agent", model, tools=[work], port=port, capabilities=[Passes()]).run(
        "go", run_id="run"
    )
    assert bare.state == passed.state
    assert [record.body for record in bare.log[1:]] == [record.body for record in passed.log[1:]]


@frozen
class Answers(Capability):
    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        return call.answer("from the cache")


async def test_h05_a_wrapper_that_answers_skips_wrappers_and_body_but_no_reducer() -> None:
    """The outer of two wrappers answers: inner wrapper and body did not run, each reducer ran once."""
    desk, seen = Desk(), Seen()
    made = agent(
        [*calls(1), "done"],
        tools=[desk.tool()],
        capabilities=[Answers(), Onion(seen, key="inner"), Befores(seen, key="reducers")],
    )
    result = await made.run("go")
    assert [] == desk.ran
    assert ["before reducers", "admit reducers", "after reducers"] == seen.lines
    assert {"c1": "answered"} == statuses(result.messages)
    assert {"c1": "from the cache"} == contents(result.messages)


@frozen
class Breaks(Capability):
    """Raises before call n is executed."""

    n: int = 1

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        if call.arguments["n"] == self.n:
            raise RuntimeError("broken")
        return await call_next(call)


async def test_h06_a_wrapper_that_raises_before_the_call_ends_the_run_and_nothing_ran() -> None:
    """The reason is HookFailed with key, hook and call id; the call is `not_executed`."""
    desk = Desk()
    error = await failure(agent([*calls(1), "done"], tools=[desk.tool()], capabilities=[Breaks()]).run("go"))
    assert isinstance(error.reason, HookFailed)
    assert ("HookFailed", "Breaks", "wrap_tool_execute", None) == culprit(error)
    assert "c1" == error.reason.call
    assert {"c1": "not_executed"} == statuses(partial_of(error).messages)
    assert [] == desk.ran


async def test_h08_a_tool_wrapper_sees_tool_call_context_and_deps() -> None:
    """`call.tool.name`, `call.id`, `call.run.context` and `call_next.deps` are readable in it."""
    seen: list[object] = []

    async def look(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        seen.append((call.tool.name, call.id, call.run.context, call_next.deps))
        return await call_next(call)

    deps = object()
    made = agent([*calls(1), "done"], tools=[Desk().tool(capabilities=[look])])
    await made.run("go", context={"tenant": 1}, deps=deps)
    assert [("work", "c1", {"tenant": 1}, deps)] == seen


@pytest.mark.parametrize(
    ("context", "status"),
    [
        ({}, "denied"),
        ({"allow_destructive": "yes"}, "denied"),
        ({"allow_destructive": 1}, "denied"),
        ({"allow_destructive": None}, "denied"),
        ({"allow_destructive": True}, "succeeded"),
    ],
)
async def test_h09_a_missing_or_ill_typed_flag_means_not_allowed(
    context: dict[str, object], status: str
) -> None:
    """Only `True` itself permits; a text or a number that counts as true does not."""
    made = agent(
        [*calls(1), "done"],
        tools=[Desk().tool(destructive=True)],
        capabilities=[RefuseTools(unless="allow_destructive")],
    )
    result = await made.run("go", context=context)
    assert {"c1": status} == statuses(result.messages)


def test_h10_declared_destructive_is_read_from_the_annotations() -> None:
    """For destructive True, False and None it is True, False and False."""
    tools = [Desk().tool(destructive=declared) for declared in (True, False, None)]
    assert [True, False, False] == [is_declared_destructive(made) for made in tools]


async def test_h12_a_policy_that_passes_on_is_not_on_record() -> None:
    """It returns `call` itself, and the log has no record of it."""

    @frozen
    class Policy(Capability):
        def admit_tool_execute(self, call: CallState) -> CallState:
            return call.refuse("no") if call.name == "other" else call

    result = await agent([*calls(1), "done"], tools=[Desk().tool()], capabilities=[Policy()]).run("go")
    assert [] == [record for record in result.log if record.actor == "Policy"]


def test_h13_the_list_of_a_built_agent_cannot_be_changed() -> None:
    """Assigning or appending raises; it is no silent no-op."""
    made = agent([], capabilities=[Answers()])
    with pytest.raises(AttributeError, match="an agent does not change"):
        made.capabilities = ()  # type: ignore[misc]  # the case itself
    with pytest.raises(AttributeError):
        made.capabilities.append(Answers())  # type: ignore[attr-defined]  # the case itself
    assert (Answers(),) == made.capabilities


async def test_h14_permission_comes_from_the_context_and_never_from_arguments() -> None:
    """The model sends `allow_destructive=true` to a tool that even takes it: still refused."""
    ran: list[bool] = []

    @tool(destructive=True)
    def drop(*, allow_destructive: bool) -> str:
        """Drop it."""
        ran.append(allow_destructive)
        return "dropped"

    made = agent(
        [call("drop", {"allow_destructive": True}, id="c1"), "done"],
        tools=[drop],
        capabilities=[RefuseTools(unless="allow_destructive")],
    )
    result = await made.run("go")
    assert {"c1": "denied"} == statuses(result.messages)
    assert [] == ran


def test_h16_a_tool_without_function_runs_elsewhere_under_the_same_hooks() -> None:
    """A loop of one's own executes it and hands the outcome to the machine; the reducers run as ever."""
    seen = Seen()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    made = agent([], tools=[Tool("work", "", schema)], capabilities=[Befores(seen, key="A")])
    replies = [
        AssistantMessage(tool_calls=tuple(calls(1)), finish_reason="tool_calls"),
        AssistantMessage("done"),
    ]
    state, effect, _ = machine.start(made.setup, "go", run_id="run", now=0.0)
    while not isinstance(effect, Finish):
        if isinstance(effect, RequestModel):
            reply = replies.pop(0)
            state, effect, _ = machine.feed(state, Responded(0.0, effect.run, reply, 1, (reply,)))
        else:
            assert isinstance(effect, RunTools)
            (asked,) = effect.calls
            elsewhere = evolve(asked, outcome=Outcome("succeeded", "far away", attempts=1))
            state, effect, _ = machine.feed(state, Executed(0.0, (CallResult(elsewhere, effect.run),)))
    assert "completed" == effect.run.status
    assert ["before A", "admit A", "after A"] == seen.lines
    assert {"c1": "far away"} == contents(effect.run.messages)


class Elsewhere(LocalPort):
    """A port that runs tools in another place."""

    async def run_tool(self, tool: Tool, arguments: dict[str, object], context: ToolContext) -> object:
        """Say what would have run there."""
        return f"{tool.name} {arguments} far away, as {context.idempotency_key}"


async def test_h16_a_port_runs_it_elsewhere_under_wrappers_too() -> None:
    """The call executes, through wrappers and reducers; on a port that runs no tools it fails, and nothing happened."""
    seen = Seen()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    work = Tool("work", "", schema)
    made = agent([*calls(1), "done"], tools=[work], capabilities=[Onion(seen, key="A")], port=Elsewhere())
    result = await made.run("go", run_id="run")
    assert {"c1": "work {'n': 1} far away, as run:1:c1"} == contents(result.messages)
    assert {"c1": "succeeded"} == statuses(result.messages)
    assert ["enter A", "leave A"] == seen.lines
    nowhere = await agent([*calls(1), "done"], tools=[work]).run("go")
    assert {"c1": "failed"} == statuses(nowhere.messages)


async def test_h17_the_declared_test_matches_a_declaration_only() -> None:
    """With destructive=None, `RefuseTools(where=is_declared_destructive)` lets the call pass."""
    desk = Desk()
    made = agent(
        [*calls(1), "done"], tools=[desk.tool()], capabilities=[RefuseTools(where=is_declared_destructive)]
    )
    assert {"c1": "succeeded"} == statuses((await made.run("go")).messages)
    assert ["work1"] == desk.ran


def test_h18_the_conservative_test_is_true_when_nothing_is_declared() -> None:
    """Decided: a tool that declares read_only=True and no `destructive` is not destructive."""
    desk = Desk()
    assert is_destructive(desk.tool())
    assert not is_destructive(desk.tool(read_only=True))
    assert is_destructive(desk.tool(read_only=True, destructive=True))
    assert is_destructive(desk.tool(read_only=False))


@frozen
class RefuseSecond(Capability):
    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.refuse("Not two.") if call.arguments["n"] == 2 else call


async def test_h20_one_refused_call_leaves_the_others_and_the_model_goes_on() -> None:
    """Of three calls the second is refused: 1 and 3 executed, 2 `denied`, the next request is sent."""
    desk = Desk()
    made = agent([calls(1, 2, 3), "done"], tools=[desk.tool()], capabilities=[RefuseSecond()])
    result = await made.run("go")
    assert {"c1": "succeeded", "c2": "denied", "c3": "succeeded"} == statuses(result.messages)
    assert ["work1", "work3"] == sorted(desk.ran)
    assert ["did 1", "Not two.", "did 3"] == texts(requests_of(made)[1].messages[-3:])


async def test_h21_a_before_hook_that_raises_ends_the_run_before_any_body() -> None:
    """It raises on the second of three calls: no body ran, all three are `not_executed`."""

    def write(call: CallState) -> CallState:
        if call.arguments["n"] == 2:
            raise RuntimeError("broken")
        return call

    desk = Desk()
    error = await failure(
        agent(
            [calls(1, 2, 3), "done"],
            tools=[desk.tool()],
            capabilities=[at("before_tool_execute", write, "A")],
        ).run("go")
    )
    assert [] == desk.ran
    assert dict.fromkeys(("c1", "c2", "c3"), "not_executed") == statuses(partial_of(error).messages)
    assert ("HookFailed", "A", "before_tool_execute", None) == culprit(error)


async def test_h21_a_wrapper_that_raises_lets_the_others_settle_first() -> None:
    """The wrapper of the second raises: 1 and 3 settle with their after hooks, then the run ends."""
    after: list[tuple[str, str]] = []

    def look(call: CallState) -> None:
        assert call.outcome is not None
        after.append((call.id, call.outcome.status))

    desk = Desk()
    made = agent(
        [calls(1, 2, 3), "done"],
        tools=[desk.tool()],
        capabilities=[Breaks(2), spy("after_tool_execute", look)],
    )
    error = await failure(made.run("go"))
    assert [("c1", "succeeded"), ("c2", "not_executed"), ("c3", "succeeded")] == after
    assert {"c1": "did 1", "c3": "did 3"} == {
        key: value for key, value in contents(partial_of(error).messages).items() if key != "c2"
    }
    assert ("HookFailed", "Breaks", "wrap_tool_execute", None) == culprit(error)
    assert 1 == len(requests_of(made))


async def test_h22_hook_failures_are_told_by_their_class() -> None:
    """A HookFailed is caught as HookError, and is no LimitError."""
    error = await failure(agent([*calls(1)], tools=[Desk().tool()], capabilities=[Breaks()]).run("go"))
    assert isinstance(error.reason, HookFailed)
    assert isinstance(error, HookError)
    assert not isinstance(error, LimitError)


async def test_h24_a_tool_that_raises_is_read_by_the_model_and_blames_no_capability() -> None:
    """ValueError("x") becomes a ToolMessage "ValueError: x", and the run goes on."""

    @tool
    def work(n: int) -> str:
        """Do a piece of work."""
        raise ValueError("x")

    result = await agent([*calls(1), "done"], tools=[work], capabilities=[Befores(Seen())]).run("go")
    assert {"c1": "ValueError: x"} == contents(result.messages)
    assert {"c1": "unknown"} == statuses(result.messages)
    assert "completed" == result.status


async def test_h25_an_answer_from_elsewhere_carries_the_id_of_its_own_call() -> None:
    """The outcome of call A, cached and answered for call B, stands under B's id."""

    async def cached(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        cache: Any = call_next.deps
        if "first" in cache:
            return call.answer(cache["first"].outcome.content)
        cache["first"] = await call_next(call)
        done: CallState = cache["first"]
        return done

    desk = Desk()
    made = agent([*calls(1), *calls(2), "done"], tools=[desk.tool(capabilities=[cached])], deps={})
    result = await made.run("go")
    assert {"c1": "did 1", "c2": "did 1"} == contents(result.messages)
    assert ["work1"] == desk.ran


async def test_h25_the_record_of_another_call_cannot_be_returned() -> None:
    """A wrapper that hands out A's record for B ends the run, naming the field."""
    kept: list[CallState] = []

    async def confused(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        kept.append(await call_next(call))
        return kept[0]

    error = await failure(
        agent([*calls(1), *calls(2), "done"], tools=[Desk().tool(capabilities=[confused])]).run("go")
    )
    assert isinstance(error.reason, IllegalTransition)
    assert ("wrap_tool_execute", "c2") == (error.reason.hook, error.reason.call)
    assert {"c1": "succeeded", "c2": "succeeded"} == statuses(partial_of(error).messages)


async def test_h26_a_tool_cannot_be_changed_in_place() -> None:
    """`state.tools[0].metadata["x"] = 1` raises TypeError, and the next run has the tool as it was."""

    def write(state: RunState) -> RunState:
        metadata: Any = state.tools[0].metadata  # Any: the type checker, too, knows that it cannot be written
        metadata["x"] = 1
        return state

    work = Desk().tool(metadata={"y": 2})
    made = agent(["done"], tools=[work], capabilities=[at("before_model_request", write, "A")])
    error = await failure(made.run("go"))
    assert ("HookFailed", "A", "before_model_request", None) == culprit(error)
    assert isinstance(error.__cause__, TypeError)
    assert {"y": 2} == made.tools[0].metadata == work.metadata


class Oldest(Capability):
    """Leaves the oldest exchange out when the conversation is loaded; a broken one leaves half of it."""

    exchange = 2

    async def wrap_load_messages(
        self, call_next: CallNext[RunState, Sequence[Message]], state: RunState
    ) -> Sequence[Message]:
        return (await call_next(state))[self.exchange :]


class HalfOldest(Oldest):
    """Leaves the call of the oldest exchange out, and its result in."""

    exchange = 1


@frozen
class Complete(Capability):
    """Writes down the responses that its wrapper gets from inside."""

    seen: Seen

    async def wrap_model_request(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        after = await call_next(state)
        assert after.response is not None
        self.seen.add(after.response.text)
        return after


async def test_h28_a_model_wrapper_sees_whole_responses_of_a_stream() -> None:
    """One complete response, as in `run`, when the last piece of it has come."""
    seen = Seen()
    script = [Chunks("It ", "is ", "done.")]
    async with agent(script, capabilities=[Complete(seen)]).stream("go") as events:
        told = [event.text async for event in events if isinstance(event, Delta)]
    assert ["It ", "is ", "done."] == told
    await agent(script, capabilities=[Complete(seen)]).run("go")
    assert ["It is done."] * 2 == seen.lines


async def test_h29_a_wrapper_shortens_what_is_loaded() -> None:
    """The oldest exchange is dropped on load: the request shows it dropped, and the store keeps it."""
    store = MemoryStore()
    made = agent(["one", "two", "three"], capabilities=[Oldest()], store=store)
    for prompt in ("1", "2", "3"):
        await made.run(prompt, conversation="c")
    assert ["2", "two", "3"] == texts(requests_of(made)[2].messages)
    assert ["1", "one", "2", "two", "3", "three"] == texts(await store.load("c"))


async def test_h29_an_unbalanced_load_names_the_wrapper() -> None:
    """Half an exchange is left: an error by key and hook, and no request."""
    store = MemoryStore()
    made = agent(["one", "two"], capabilities=[HalfOldest()], store=store)
    await made.run("1", conversation="c")
    error = await failure(made.run("2", conversation="c"))
    assert ("InvalidView", "HalfOldest", "wrap_load_messages", "messages") == culprit(error)
    assert 1 == len(requests_of(made))


async def test_h30_a_run_that_fails_is_saved_once_and_balanced() -> None:
    """It fails at step 2: save was called once, with the closed messages of step 1."""
    seen: list[list[object]] = []

    class Saves(Capability):
        async def wrap_save_messages(
            self, call_next: SaveNext, state: RunState, messages: Sequence[Message]
        ) -> None:
            seen.append(texts(messages))
            assert balance_problem(messages) is None
            await call_next(state, messages)

    store = MemoryStore()
    lost = ModelError("server", "gone", retryable=False)
    made = agent([calls(1), lost], tools=[Desk().tool()], capabilities=[Saves()], store=store)
    await failure(made.run("go", conversation="c"))
    assert [["go", "", "did 1"]] == seen == [texts(await store.load("c"))]


async def test_h32_the_first_listed_wrapper_is_the_outermost() -> None:
    """Wrappers A, B: enter A B, leave B A."""
    seen = Seen()
    wrappers = [Onion(seen, key="A"), Onion(seen, key="B")]
    await agent([*calls(1), "done"], tools=[Desk().tool()], capabilities=wrappers).run("go")
    assert ["enter A", "enter B", "leave B", "leave A"] == seen.lines


async def test_h33_after_reducers_run_in_list_order_and_reversed_where_nested() -> None:
    """Decided: A before B, as listed; in `nested(A, B)` results return in reverse order, B before A."""

    def spies(after: list[str]) -> list[Capability[Any]]:
        def look(key: str) -> Capability[Any]:
            return spy("after_tool_execute", lambda _: after.append(key), key)

        return [look("A"), look("B")]

    listed: list[str] = []
    await agent([*calls(1), "done"], tools=[Desk().tool()], capabilities=spies(listed)).run("go")
    assert ["A", "B"] == listed

    onion: list[str] = []
    both = capfold.capabilities.nested(*spies(onion))
    await agent([*calls(1), "done"], tools=[Desk().tool()], capabilities=[both]).run("go")
    assert ["B", "A"] == onion


@frozen
class Sum(Capability[int]):
    """Adds up the numbers that were worked on."""

    def after_tool_execute(self, call: CallState) -> CallState:
        number = call.arguments["n"]
        assert isinstance(number, int)
        return call.put(self, call.slot(self) + number)


async def test_h34_one_capability_serves_concurrent_runs() -> None:
    """In 20 runs at once each run's slot and log equal those of the run alone."""

    async def reply(request: ModelRequest) -> str | list[capfold.capabilities.ToolCall]:
        await anyio.lowlevel.checkpoint()
        asked = request.messages[0].content
        assert isinstance(asked, str)
        return calls(int(asked), int(asked) + 1) if len(request.messages) == 1 else f"done {asked}"

    work = Desk().tool()
    made = Agent("agent", FunctionModel(reply), tools=[work], capabilities=[Sum()])
    together: dict[int, tuple[object, str]] = {}

    async def one(n: int) -> None:
        result = await made.run(f"{n}")
        together[n] = (result.state.slot_of("Sum"), result.log.head)

    async with anyio.create_task_group() as group:
        for n in range(20):
            group.start_soon(one, n)
    for n in range(20):
        alone = await made.run(f"{n}")
        assert (2 * n + 1, alone.log.head) == together[n]


def test_h38_capability_is_the_one_public_base() -> None:
    """Every exported class with hooks derives from `Capability`, and no alias of it is exported."""
    exported = {name: getattr(capfold.capabilities, name) for name in vars(capfold.capabilities)["__all__"]}
    classes = {name: value for name, value in exported.items() if isinstance(value, type)}
    with_hooks = {name for name, value in classes.items() if hasattr(value, "before_model_request")}
    assert with_hooks == {name for name, value in classes.items() if issubclass(value, Capability)}
    assert ["Capability"] == [name for name, value in classes.items() if value is Capability]


@frozen
class Attempts(Capability):
    """Writes down the attempt and the key of each call that passes."""

    seen: Seen = field(factory=Seen)

    def before_tool_execute(self, call: CallState) -> CallState:
        """Note that the reducer ran."""
        self.seen.lines.append("before")
        return call

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        """Note attempt and key."""
        self.seen.lines.append(f"{call_next.attempt} {call_next.idempotency_key}")
        return await call_next(call)


async def rerun(seen: Seen) -> RunResult[object]:
    """Run an agent on a port that loses its first worker inside the call, and reruns that step."""
    records, deaths = Records(), Deaths(("performed",), only=":call/")
    work = Desk().tool(idempotent=True)

    def make() -> Agent[Any]:
        model = BySteps((calls(1), "done"))
        return Agent("agent", model, tools=[work], capabilities=[Attempts(seen)])

    carried, lives = await through_lives(make, records, faults=deaths)
    assert 2 == lives
    return carried.result


async def test_h36_a_step_that_is_run_again_says_so_and_reducers_run_once() -> None:
    """Attempt is 1, then 2; in the worker that goes on the reducer sees the call once, as in the one that was lost."""
    seen = Seen()
    result = await rerun(seen)
    assert ["1", "2"] == [line.split()[0] for line in seen.lines if line != "before"]
    assert 2 == seen.lines.count("before")  # once in each worker
    assert 1 == sum(record.kind == "call_admitted" for record in result.log)


async def test_h37_attempts_carry_one_key_and_settle_once() -> None:
    """Both attempts have the key of their run, step, call and capability; audit and charge know one call."""
    seen = Seen()
    result = await rerun(seen)
    assert {"run:1:c1:Attempts"} == {line.split()[1] for line in seen.lines if line != "before"}
    assert 1 == sum(record.kind == "tool_settled" for record in result.log)
    assert 1 == result.tool_calls


class Forgetful(JournalEngine):
    """Performs the second request outside of what it records, so that it reads the clock there."""

    async def step(self, key: str, perform: Perform, *, counted: bool) -> str:
        """Record all but that."""
        if key.endswith(":2:model"):
            return await perform(1)
        return await super().step(key, perform, counted=counted)


async def test_h48_check_port_names_a_step_that_is_not_recorded() -> None:
    """It fails with the step's name; with nothing forgotten it passes."""
    records = Records()
    with pytest.raises(PortViolation, match="step '2:2:model'"):
        await check_port(lambda run_id: Forgetful(run_id, records))
    whole = Records()
    await check_port(lambda run_id: JournalEngine(run_id, whole))


AT_ONCE = Backoff(initial=0.0)


async def test_h40_a_retrying_model_is_inside_and_hooks_run_once() -> None:
    """Two attempts inside the model are two requests; wrapper and after hook are called once."""
    inner = ScriptedModel([ModelError("rate_limit", "slow down", retryable=True, status=429), "done"])
    seen = Seen()
    made = Agent("agent", Retry(inner, backoff=AT_ONCE), capabilities=[Traced(seen, key="A")])
    result = await made.run("go")
    assert 2 == result.requests == len(inner.requests)
    inside = [line for line in seen.lines if "request" in line]
    assert ["before request A", "enter request A", "leave request A", "after request A"] == inside


async def test_h41_a_rate_limit_is_met_by_another_attempt(
    llmock: LLMock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 429, then 200, and `Retry(attempts=3)`: exactly two HTTP requests, and both are in the ledger."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")  # the server is on loopback
    llmock.rate_limit(times=1, retry_after=0.05)
    llmock.reply("done")
    result = await Agent("agent", Retry(OpenAIModel("gpt-test"), attempts=3)).run("go")
    assert ("done", 2) == (result.output, result.requests)
    assert 2 == len(llmock.requests)


async def test_h42_a_large_image_is_referred_to_and_sent() -> None:
    """A tool returns an image of 1 MB: the history holds a reference, the next request the bytes."""
    image = ImagePart(data=bytes(1_000_000), media_type="image/png")
    look = tool(lambda: image, name="look", description="Look.")
    store = MemoryBlobStore()
    made = agent([call("look", id="c1"), "done"], tools=[look], capabilities=[StoreAttachments(store)])
    result = await made.run("go")
    (kept,) = store.refs()
    reference = ImagePart(url=f"blob:{kept}", media_type="image/png")
    assert [(reference,)] == [one.content for one in result.messages if isinstance(one, ToolMessage)]
    sent = requests_of(made)[1].messages
    assert [(image,)] == [one.content for one in sent if isinstance(one, ToolMessage)]


async def test_h44_a_model_that_is_too_slow_is_a_timeout() -> None:
    """`Limits(request_timeout=...)` and a slow model: ModelRunError, kind timeout."""

    async def slow(request: ModelRequest) -> str:
        await anyio.sleep(60)
        return "too late"

    made = Agent("agent", FunctionModel(slow), limits=Limits(request_timeout=0.05))
    error = await failure(made.run("go"))
    assert isinstance(error, ModelRunError)
    assert isinstance(error.reason, ModelFailed)
    assert "timeout" == error.reason.kind


async def test_h44_a_tool_that_is_too_slow_is_unknown() -> None:
    """`tool(timeout=...)`: nobody knows whether it took effect, so the outcome is `unknown`."""

    @tool(timeout=0.05)
    async def work(n: int) -> str:
        """Do a piece of work."""
        await anyio.sleep(60)
        return "too late"

    result = await agent([*calls(1), "done"], tools=[work]).run("go")
    assert {"c1": "unknown"} == statuses(result.messages)


async def test_h45_a_stop_while_two_tools_run() -> None:
    """The one that has finished keeps its result, the one that has not begun is `not_executed`, the run "stopped"."""
    reached = anyio.Event()
    desk = Desk()

    @tool(sequential=True)
    async def wait(n: int) -> str:
        """Wait for a word that never comes."""
        reached.set()
        await anyio.sleep_forever()
        return "never"

    batch = [*calls(1), *calls(2, name="wait"), *calls(3, name="wait")]
    async with agent([batch, "never"], tools=[desk.tool(), wait]).start("go") as handle:
        await reached.wait()
        await handle.stop("enough")
        result = await handle.result()
    assert ("stopped", "enough") == (result.status, result.output)
    assert {"c1": "succeeded", "c2": "unknown", "c3": "not_executed"} == statuses(result.messages)
    assert ["work1"] == desk.ran


async def test_h46_messages_carry_the_readings_of_the_clock() -> None:
    """Under a fake clock each message's time is one of its readings, in order; equal clocks, equal times."""

    async def times() -> tuple[list[float], list[float | None]]:
        readings: list[float] = []

        def clock() -> float:
            readings.append(100.0 + len(readings))
            return readings[-1]

        model = ScriptedModel([*calls(1), "done"])
        made = Agent("agent", model, tools=[Desk().tool()], port=LocalPort(clock=clock))
        result = await made.run("go")
        read = list(readings)
        again = [message.at for message in replay(result.log, made).state.messages]
        assert [message.at for message in result.messages] == again
        assert read == readings  # a replay reads no clock
        return readings, again

    readings, at_times = await times()
    assert [time for time in readings if time in at_times] == at_times
    assert 4 == len(at_times)
    assert at_times == (await times())[1]


def test_h49_what_belongs_elsewhere_is_not_here() -> None:
    """No scheduler, workflow or interface is exported, and no module is named for one."""
    packages: list[types.ModuleType] = [capfold.capabilities, capfold.runtime]
    names = [name for package in packages for name in package.__all__]
    names += [found.name for package in packages for found in pkgutil.iter_modules(package.__path__)]
    elsewhere = ("schedul", "workflow", "cron", "team", "swarm", "interface", "operation")
    assert [] == [name for name in names if any(word in name.lower() for word in elsewhere)]


def test_h01_an_agent_takes_capabilities_and_no_other_hooks() -> None:
    """Of the keywords of `Agent`, `run` and `resume` none but `capabilities` is a place for hooks."""
    functions = (Agent, Agent.run, Agent.run_sync, Agent.resume)
    names = {name for function in functions for name in inspect.signature(function).parameters}
    hooks = ("capabilit", "middleware", "hook", "guard", "before", "after", "wrap", "callback", "on_")
    assert {"capabilities"} == {name for name in names if any(word in name for word in hooks)}
