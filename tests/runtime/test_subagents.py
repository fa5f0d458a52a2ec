"""Agents as tools: ids, one log, one account, the same context and deps; what becomes of a child's end."""

from collections.abc import Sequence
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest
from attrs import evolve, frozen

from capfold.capabilities import (
    CallNext,
    CallState,
    FromDeps,
    Json,
    Outside,
    RunState,
    Tool,
    ToolCall,
    ToolContext,
    Toolkit,
    Usage,
    UserMessage,
    call,
    hook,
    inherited,
    tool,
)
from capfold.capabilities.capability import Capability
from capfold.runtime import (
    Agent,
    AuditRecord,
    JsonLines,
    Limits,
    LogError,
    ModelError,
    RunError,
    SinkFailed,
    StorageError,
    read_log,
    verify,
)
from capfold.runtime.log import Log
from tests.corruption.log_fold import folded
from tests.corruption.scenes import MemorySink
from tests.runtime.desk import contents, partial, results
from tests.runtime.family import above, ask, by_run, by_step, check_tree, looks, made, settled


async def again(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
    """Run the body twice."""
    await call_next(call)
    return await call_next(call)


# --- one tree


async def test_ids_are_linked_over_three_levels() -> None:
    """Each run knows its root and its parent, and has the name of its own agent."""
    seen: list[RunState] = []
    low = made("low", "found", capabilities=[looks(seen)])
    middle = above(low, ask("low", "g"), "passed on", name="middle", capabilities=[looks(seen)])
    result = await above(middle, capabilities=[looks(seen)]).run("go")
    found = [(run.agent, run.run_id, run.parent_run_id, run.root_run_id) for run in seen[:3]]
    assert [
        ("parent", "run", None, "run"),
        ("middle", "run/c", "run", "run"),
        ("low", "run/c/g", "run/c", "run"),
    ] == found
    assert ["passed on"] == contents(result.messages)
    assert list(by_run(result.log)) == ["run", "run/c", "run/c/g"]
    check_tree(result.log)


async def test_each_attempt_is_a_run_of_its_own() -> None:
    """A wrapper that runs the body twice makes two runs; the parent answers for both."""
    child = made("child", "found")
    result = await made("parent", ask(), "done", tools=[child.as_tool("Ask.").with_capabilities(again)]).run(
        "go"
    )
    assert ["run", "run/c", "run/c#2"] == list(by_run(result.log))
    facts = settled(result.log)
    assert ["run/c", "run/c#2"] == [branch["run"] for branch in facts["below"]]
    assert (2, 1) == (facts["requests"], facts["extra"])
    assert (4, 2) == (result.requests, result.tool_calls)
    check_tree(result.log)


@pytest.mark.parametrize(
    ("first", "second", "inner"),
    [("a", "a#2", "x"), ("a", "a/x", "x"), ("a#2", "a%232", "x"), ("a", "b", "#2")],
)
async def test_no_call_id_can_take_another_runs_name(first: str, second: str, inner: str) -> None:
    """Whatever ids a model gives its calls: as many names as runs."""
    low = made("low", "found")
    child = above(low, ask("low", inner), "passed on", name="child")
    tools = [child.as_tool("Ask.").with_capabilities(again)]
    calls = [ask("child", first), ask("child", second)]
    result = await made("parent", calls, "done", tools=tools).run("go")
    assert 9 == len(by_run(result.log))
    check_tree(result.log)


async def test_a_parent_answers_for_the_log_of_its_child() -> None:
    """A child's records that were changed, cut off or left out, chain made anew, are found by its parent's."""
    result = await above(made("child", "found")).run("go")
    records = list(result.log)
    for damaged in (
        [one for one in records if one.run == "run"],
        [one for one in records if one.run == "run" or one.kind != "run_ended"],
    ):
        with pytest.raises(LogError, match="settles a call of run 'run/c'"):
            verify(Log.from_records(damaged))
    assert verify(Log.from_records(records)).complete


async def test_a_sink_gets_each_record_once_and_in_order() -> None:
    """Two children side by side, whoever is slow: what the sink has is the log."""

    async def wait(request: Any) -> None:
        await anyio.sleep(0.002 if "slow" in str(request.messages) else 0)

    sink = MemorySink()
    child = made("child", ask("look", "l"), "found", wait=wait, tools=[made("look", "seen").as_tool("Look.")])
    calls = [ask("child", "a", "slow"), ask("child", "b")]
    result = await above(child, calls, "done", sinks=[sink]).run("go")
    assert list(result.log) == sink.records
    assert 5 == len(by_run(result.log))
    check_tree(result.log)


async def test_a_tree_is_read_back_from_a_file(tmp_path: Any) -> None:
    """One file has all runs, and holds."""
    path = tmp_path / "log.jsonl"
    result = await above(made("child", "found"), sinks=[JsonLines(path)]).run("go")
    assert verify(read_log(path), head=result.log.head).complete
    assert {"run", "run/c"} == set(by_run(read_log(path)))


class Breaking:
    """A sink that fails at the first record of a run below."""

    best_effort = False

    async def write(self, records: Sequence[AuditRecord]) -> None:
        await anyio.lowlevel.checkpoint()
        if any("/" in record.run for record in records):
            raise OSError("disk full")

    async def close(self) -> None:
        """Nothing to release."""


async def test_a_sink_that_fails_below_ends_child_and_parent() -> None:
    """Each run of the tree is told once; nothing is asked of a model any more."""
    child = made("child", "found")
    calls = [ask("child", "a"), ask("child", "b")]
    with pytest.raises(StorageError) as caught:
        await above(child, calls, "done", sinks=[Breaking()]).run("go")
    assert isinstance(caught.value.reason, SinkFailed)
    result = partial(caught.value)
    assert {"run", "run/a", "run/b"} == set(by_run(result.log))
    ends = [record for record in result.log if record.kind == "run_ended"]
    assert ["failed"] * 3 == [record.facts["status"] for record in ends]
    assert {"failed"} == {status for _, status in results(result.messages)}
    check_tree(result.log)


async def test_context_and_deps_are_the_callers() -> None:
    """The same context, and the same object, in hooks and tools of the child."""
    seen: list[RunState] = []
    got: list[object] = []

    @tool
    def look(context: ToolContext, client: Annotated[object, FromDeps("client")]) -> str:
        """Look."""
        got.extend([context.deps, client])
        return "seen"

    deps = {"client": object()}
    child = made("child", call("look"), "found", tools=[look], capabilities=[looks(seen)])
    with pytest.raises(ValueError, match="'client' in deps"):
        await above(child).run("go")
    await above(child).run("go", context={"tenant": [1]}, deps=deps)
    assert {"tenant": [1]} == seen[0].context
    assert got[0] is deps
    assert got[1] is deps["client"]


async def test_the_childs_own_deps_serve_a_caller_without() -> None:
    """What the caller brings comes first; a caller that brings nothing need not know what its agents use."""
    got: list[object] = []

    @tool
    def look(client: Annotated[object, FromDeps("client")]) -> str:
        """Look."""
        got.append(client)
        return "seen"

    child = made("child", call("look"), "found", tools=[look], deps={"client": "own"})
    await above(child).run("go")
    await above(child).run("go", deps={"client": "given"})
    assert ["own", "given"] == got


async def test_slots_are_of_each_run() -> None:
    """A capability of both lists has a slot in each run."""

    class Counts(Capability[int]):
        def before_model_request(self, state: RunState) -> RunState:
            return state.put(self, state.slot(self) + 1)

    seen: list[RunState] = []
    child = made("child", call("no"), "found", capabilities=[Counts(), looks(seen)], unselected_retries=3)
    result = await above(child, capabilities=[Counts()]).run("go")
    assert ([1, 2], 2) == ([run.slots["Counts"] for run in seen], result.state.slots["Counts"])


# --- one account


class Asks(Capability):
    """A gatherer that asks a model."""

    async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
        await outside.request([UserMessage("hint?")])
        return None


def spent(result: Any) -> tuple[int, int, int | None, float | None]:
    """Return what a run used in all."""
    return (result.requests, result.tool_calls, result.usage.total, result.cost)


async def test_the_account_is_inclusive() -> None:
    """Requests, tool calls, tokens, cost, also by model, also of gatherers and of the runs below those below."""
    low = made("low", "found", capabilities=[Asks()])
    child = above(low, ask("low", "g"), "passed on", name="child")
    result = await above(child).run("go")
    assert (6, 2, 6 * 640, 6.0) == spent(result)
    by_model = {name: usage.total for name, usage in result.usage_by_model.items()}
    assert {"parent-model": 1280, "child-model": 1280, "low-model": 1280} == by_model
    below = settled(result.log)
    assert (4, 1, 4.0) == (below["requests"], below["tool_calls"], below["cost"])
    assert 2400 == below["usage"]["input_tokens"]


async def test_what_a_failed_child_used_is_booked() -> None:
    """Its requests cost what they cost."""
    child = made("child", call("no", id="n"), tools=[], unselected_retries=0)
    result = await above(child).run("go")
    assert (3, 2, 3 * 640, 3.0) == spent(result)
    assert [("child", "failed")] == results(result.messages)


async def test_what_a_child_used_that_was_cut_off_is_booked() -> None:
    """A timeout on the tool cuts the child off: what it had sent is charged, its tokens as far as they are known."""

    async def wait(request: Any) -> None:
        if request.step == 2:
            await anyio.sleep(30)

    child = made("child", call("no"), "found", wait=wait, unselected_retries=9)
    within: Tool = Tool("child", "Ask.", *_parts(child), timeout=0.2)
    result = await made("parent", ask(), "done", tools=[within]).run("go")
    assert [("child", "unknown")] == results(result.messages)
    assert (4, 2, 3 * 640, 3.0) == spent(result)
    check_tree(result.log)


def _parts(agent: Agent[Any]) -> tuple[Any, Any]:
    made = agent.as_tool("Ask.")
    return made.parameters, made.function


async def test_unknown_usage_below_is_unknown_above() -> None:
    """What one response does not report is not counted as nothing."""
    unknown = Usage(input_tokens=None, output_tokens=1, cached_tokens=None, reasoning_tokens=None)
    child = Agent("child", by_step("found", usage=unknown, name="child-model"))
    result = await above(child).run("go")
    assert (None, None) == (result.usage.input_tokens, result.cost)
    assert 81 == result.usage.output_tokens


@pytest.mark.parametrize("wrapped", [False, True])
async def test_folding_the_log_gives_the_state(wrapped: bool) -> None:  # noqa: FBT001  # a value under test
    """From its own records alone, each run's messages, counts and cost."""
    low = made("low", "found", capabilities=[Asks()])
    child = above(low, ask("low", "g"), "passed on", name="child")
    tools = [child.as_tool("Ask.").with_capabilities(*([again] if wrapped else []))]
    result = await made("parent", [ask(), ask("child", "d")], "done", tools=tools).run("go")
    found = folded(record for record in result.log if record.run == "run")
    assert spent(result) == (found.requests, found.tool_calls, found.tokens, found.cost)
    by_model = {name: usage.total for name, usage in result.usage_by_model.items()}
    assert (by_model, "completed", "done") == (found.by_model, found.status, found.fields["output"])
    assert [message.content for message in result.messages] == [one["content"] for one in found.messages]


# --- how a child ends


@frozen
class Found:
    """A structured output."""

    place: str
    count: int


async def test_structured_output_is_json() -> None:
    """The model reads the child's output as JSON."""
    child = made("child", '{"place": "Röm", "count": 2}', output_type=Found)
    result = await above(child).run("go")
    assert ['{"place": "Röm", "count": 2}'] == contents(result.messages)


async def test_a_stopped_child_answers_with_its_message() -> None:
    """A stop is a result of the child."""

    @hook.before_model_request
    def stops(state: RunState) -> RunState:
        return state.stop("enough for today")

    result = await above(made("child", "never", capabilities=[stops], output_type=Found)).run("go")
    assert ([("child", "succeeded")], ["enough for today"]) == (
        results(result.messages),
        contents(result.messages),
    )


async def test_output_that_is_too_big_is_unknown() -> None:
    """As with any tool: it ran, and its result cannot be used."""
    result = await above(made("child", "x" * 100), limits=Limits(max_result_bytes=50)).run("go")
    assert [("child", "unknown")] == results(result.messages)
    assert "the limit is 50" in str(contents(result.messages))


def _raises(state: RunState) -> RunState:
    raise OSError("first line\n/secret/second line")


def _writes(state: RunState) -> RunState:
    return evolve(state, run_id="forged")


def _fails(state: RunState) -> RunState:
    return state.fail("not here")


FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "hook": ({"capabilities": [hook.before_model_request(_raises)]}, "HookError: "),
    "transition": ({"capabilities": [hook.before_model_request(_writes)]}, "HookError: "),
    "blocked": ({"capabilities": [hook.before_model_request(_fails)]}, "BlockedError: not here"),
    "limit": ({"limits": Limits(requests=0)}, "LimitError: limit requests reached: 0 of 0"),
    "steps": ({"limits": Limits(max_steps=1)}, "LimitError: limit max_steps reached: 1 of 1"),
    "model": (
        {"model": by_step(ModelError("auth", "who are you?", retryable=False))},
        "ModelRunError: the model failed: who are you?",
    ),
    "unselected": ({"unselected_retries": 0}, "ToolError: "),
    "output": ({"output_type": Found, "model": by_step("no", "no", "no")}, "OutputError: "),
}


@pytest.mark.parametrize("case", list(FAILURES))
async def test_the_failure_of_a_child_is_the_outcome_of_the_call(case: str) -> None:
    """Type and first line; the parent goes on, and reads no traceback and no folders."""
    options, said = FAILURES[case]
    child = made("child", call("no", id="n"), "found", **options)
    result = await above(child).run("go")
    assert ("completed", [("child", "failed")]) == (result.status, results(result.messages))
    (content,) = contents(result.messages)
    assert str(content).startswith(f"agent 'child' failed: {said}")
    assert "Traceback" not in str(content)
    assert "secret" not in str(content)
    check_tree(result.log)


async def test_a_failure_is_told_with_its_cause() -> None:
    """The outcome in the log names what failed, for who counts on types."""
    result = await above(made("child", "never", capabilities=[hook.before_model_request(_raises)])).run("go")
    outcome = settled(result.log)["outcome"]
    assert ("failed", "ToolFailed") == (outcome["status"], outcome["error"]["type"])


async def test_failures_of_a_child_are_retries_of_its_tool() -> None:
    """Counted like those of any tool; the one after the last that is forgiven ends the run."""
    child = made("child", "never", limits=Limits(requests=0))
    calls: list[ToolCall | str] = [ask("child", f"c{n}") for n in range(5)]
    with pytest.raises(RunError, match="child") as caught:
        await above(child, *calls, "done").run("go")
    assert [("child", "failed")] * 4 == results(partial(caught.value).messages)


async def test_hooks_of_the_parent_see_the_call_as_any_other() -> None:
    """Wrapper, after hook, arguments that are not valid."""
    seen: list[tuple[str, object]] = []

    class Looks(Capability):
        async def wrap_tool_execute(
            self, call_next: CallNext[CallState, CallState], call: CallState
        ) -> CallState:
            done = await call_next(call)
            assert done.outcome is not None
            seen.append(("wrapped", done.outcome.content))
            return done.with_content(f"{done.outcome.content}!")

        def after_tool_execute(self, call: CallState) -> CallState:
            assert call.outcome is not None
            seen.append(("after", call.outcome.content))
            return call

    bad = call("child", {"task": 1}, id="bad")
    result = await above(made("child", "found"), [ask(), bad], "done", capabilities=[Looks()]).run("go")
    assert [("wrapped", "found"), ("after", "found!")] == seen[:2]
    assert [("child", "succeeded"), ("child", "validation_error")] == results(result.messages)


# --- how one is made


async def test_an_agent_as_a_tool_of_one_run() -> None:
    """`run(tools=[...])` takes it like any tool."""
    child = made("child", "found")
    result = await made("parent", ask(), "done").run("go", tools=[child.as_tool("Ask.")])
    assert ["found"] == contents(result.messages)
    check_tree(result.log)


def test_two_tools_of_one_name_fail_when_the_parent_is_built() -> None:
    """Whatever they run."""
    child = made("child", "found")
    with pytest.raises(ValueError, match="child"):
        made("parent", "done", tools=[child.as_tool("Ask."), child.as_tool("Ask again.")])


@pytest.mark.parametrize("name", ["Research Agent", "größe", "x" * 65])
def test_an_agent_whose_name_no_tool_can_have(name: str) -> None:
    """Said when the tool is made, with a name that would do."""
    child = made(name, "found")
    with pytest.raises(ValueError, match=r"give as_tool\(\.\.\., name='\w+'\)"):
        child.as_tool("Ask.")
    assert "research" == child.as_tool("Ask.", name="research").name


def test_limits_of_a_tool_are_limits() -> None:
    """Anything else is refused at once."""
    with pytest.raises(TypeError, match="limits is a Limits"):
        made("child", "found").as_tool("Ask.", limits=3)  # type: ignore[arg-type]  # what a user may get wrong


async def test_outside_of_a_run_it_says_what_to_do() -> None:
    """The function of the tool alone has no run to stand below."""
    function: Any = made("child", "found").as_tool("Ask.").function
    with pytest.raises(RuntimeError, match=r"await agent\.run"):
        await function.call({"task": "x"}, None)


async def test_in_a_toolkit_under_its_gate() -> None:
    """A gate on the toolkit is asked before the child runs."""
    seen: list[str] = []

    async def gate(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        seen.append(call.name)
        return call.refuse("Not today.")

    kit = Toolkit("kit", [Toolkit("inner", [made("child", "never").as_tool("Ask.")])], capabilities=[gate])
    result = await made("parent", ask(), "done", tools=[kit]).run("go")
    assert (["child"], [("child", "denied")]) == (seen, results(result.messages))
    assert ["run"] == list(by_run(result.log))


async def test_one_child_serves_many_callers() -> None:
    """What is compiled for a caller is kept, not for ever; each caller gets its own."""
    child = made("child", "found")
    as_tool = child.as_tool("Ask.")
    function: Any = as_tool.function
    for n in range(250):
        key = f"k{n}"

        @hook.before_run
        def noted(state: RunState, key: str = key) -> RunState:
            return state.note(key)

        made("parent", "done", tools=[as_tool], capabilities=[inherited(evolve(noted, key=key))])
    assert len(function.compiled) <= 100
