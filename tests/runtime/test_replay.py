"""Replay: a log is folded again, from memory and from a file, and comes out as it is on record."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities import (
    AssistantMessage,
    CallNext,
    CallState,
    Capability,
    Outside,
    RequireApproval,
    RunState,
    UserMessage,
    call,
    inherited,
    tool,
)
from capfold.capabilities.capability import AnyCapability
from capfold.runtime import (
    Agent,
    JsonLines,
    Limits,
    LocalPort,
    Log,
    MemoryStore,
    ModelError,
    Price,
    RunError,
    RunResult,
    ScriptedModel,
    read_log,
)
from capfold.runtime.errors import ReplayError
from capfold.runtime.log_replay import replay
from capfold.runtime.models import ModelProfile
from tests.corruption.log_fold import folded
from tests.corruption.scenes import POINTS, Works, at, batch
from tests.corruption.test_log_explains import check_explained
from tests.runtime.desk import port
from tests.runtime.family import above, ask, made
from tests.runtime.test_same_everywhere import (
    SCRIPTS,
    TOOLS,
    Counts,
    Script,
    Shouts,
    Twice,
    decide,
    decide_all,
    end_by,
    scripts,
)

# --- wrappers and gatherers, of which only the records are left


@frozen
class Persists(Capability):
    """Asks a model again that failed, with other settings, and may give up with an answer of its own."""

    async def wrap_model_request(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        for i in range(2):
            try:
                return await call_next(state.with_settings(attempt=i).note(f"attempt {i}"))
            except ModelError:
                continue
        return state.respond(AssistantMessage("I give up."))


@frozen
class Chooses(Capability):
    """Asks twice and goes on with the first response; shows the last messages only."""

    async def wrap_model_request(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        first = await call_next(state.keep_last(3).add_instructions("Be brief."))
        await call_next(state.with_settings(second=True))
        return first


@frozen
class Asks(Capability):
    """Gathers at every hook, with a request of its own before each step."""

    async def gather_before_model_request(self, state: RunState, outside: Outside) -> Any:
        reply = await outside.request([UserMessage("hint?")], model=ScriptedModel(["look up"]))
        return {"hint": reply.text, "ms": 0.5}

    def before_model_request(self, state: RunState) -> RunState:
        return state.note(f"{state.fact(self)}")

    async def gather_after_tool_execute(self, call: CallState, outside: Outside) -> Any:
        return [call.id]

    def after_tool_execute(self, call: CallState) -> CallState:
        return call.with_content(f"{call.fact(self)}", metadata={"seen": True})

    async def gather_after_run(self, state: RunState, outside: Outside) -> Any:
        return state.run_step

    def after_run(self, state: RunState) -> RunState:
        return state.note(f"after {state.fact(self)}")


@frozen
class Answers(Capability):
    """Answers what failed and refuses fives, each in place of the body or over it; latches on its way."""

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        if call.arguments.get("n") == 5:
            return call.refuse("No fives.")
        done = await call_next(call.note("in"))
        if done.outcome is not None and done.outcome.status == "failed":
            return done.answer("never mind")
        return done.stop("four is enough") if call.arguments.get("n") == 4 else done

    async def wrap_run(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        done = await call_next(state.note("in"))
        return done.stop("no") if done.run_step == 1 else done.note("out")


WRAPPERS = (Persists(), Chooses(), Asks(), Answers())
FAILS = ModelError("server", "busy", retryable=True)


@st.composite
def rich_scripts(draw: st.DrawFn) -> Script:
    """Draw a script with wrappers and gatherers too, and a model that fails now and then."""
    script = draw(scripts())
    replies = list(script.replies)
    for _ in range(draw(st.integers(0, 2))):
        replies.insert(draw(st.integers(0, len(replies))), FAILS)
    more = draw(st.lists(st.sampled_from(WRAPPERS), max_size=2, unique=True))
    hooks: list[AnyCapability] = [*script.hooks, *more]
    return evolve(script, replies=tuple(replies), hooks=tuple(draw(st.permutations(hooks))))


def check(log: Log, agent: Agent[Any], state: RunState, **options: Any) -> None:
    """The replay of a log writes its records, number for number, and ends in the run's state."""
    again = replay(log, agent, **options)
    assert [(r.run, r.seq, r.kind, r.digest) for r in log] == [
        (r.run, r.seq, r.kind, r.digest) for r in again.records
    ]
    assert evolve(state, model=None) == evolve(again.state, model=None)
    assert state.model is None or again.state.model is not None


def stored(log: Iterable[Any], path: Path) -> Log:
    """Return a log as a file gives it back."""
    path.write_text(Log.from_records(log).to_jsonl())
    return read_log(path)


# --- properties


@given(rich_scripts())
@settings(max_examples=SCRIPTS)
def test_a_replay_comes_out_as_the_run(tmp_path_factory: pytest.TempPathFactory, script: Script) -> None:
    """Records and final state, from memory and from a file, by a fresh agent whose model is never asked."""

    async def run() -> RunResult[Any]:
        result, _ = await end_by(script.agent(asks=True).run("go", messages=script.history))
        return result

    result = anyio.run(run)
    fresh = evolve(script, replies=()).agent(asks=False)
    check(result.log, fresh, result.state)
    check(stored(result.log, tmp_path_factory.getbasetemp() / "run.jsonl"), fresh, result.state)


@given(rich_scripts().filter(lambda script: bool(script.approvals)))
@settings(max_examples=SCRIPTS)
def test_a_suspended_run_is_replayed(script: Script) -> None:
    """As far as it is on record: each time that it waits, and when it was resumed to its end."""

    async def run() -> None:
        agent = script.agent(asks=False)
        result, _ = await end_by(agent.run("go", messages=script.history))
        records = list(result.log)
        fresh = evolve(script, replies=()).agent(asks=False)
        check(Log.from_records(records), fresh, result.state)
        while result.status == "suspended":
            decisions = {request.digest: decide(request) for request in result.pending}
            result, _ = await end_by(agent.resume(result, decisions))
            records.extend(result.log)
            check(Log.from_records(records), fresh, result.state)

    anyio.run(run)


def tree(script: Script, hooks: tuple[AnyCapability, ...], *, asks: bool) -> Agent[Any]:
    """Return an agent that calls another one twice at once, then again; that one follows the script in each run."""
    last: tuple[Any, ...] = ("done",) * 9
    gates = [RequireApproval(script.approvals)] if script.approvals else []
    child = made(
        "child",
        *script.replies,
        *last,
        tools=TOOLS,
        capabilities=[*script.hooks, *gates],
        approver=decide_all if asks else None,
    )
    calls: list[Any] = [
        [ask(call_id="a"), ask(call_id="b"), call("look", {"n": 1}, id="l")],
        ask(call_id="c"),
    ]
    return above(child, *calls, "done", tools=TOOLS, capabilities=hooks, limits=script.limits)


PARENT_HOOKS: tuple[AnyCapability, ...] = (Twice(), Answers(), Asks(), Counts(), inherited(Shouts()))


@given(scripts(), st.lists(st.sampled_from(PARENT_HOOKS), max_size=3, unique=True), st.booleans())
@settings(max_examples=SCRIPTS)
def test_a_tree_of_runs_is_replayed(script: Script, hooks: list[AnyCapability], asks: bool) -> None:  # noqa: FBT001  # drawn
    """Runs below that fail, are called again, wait for decisions and are resumed, within the limits above them."""

    async def run() -> None:
        agent = tree(script, tuple(hooks), asks=asks)
        result, _ = await end_by(agent.run("go"))
        records = list(result.log)
        fresh = tree(script, tuple(hooks), asks=False)
        check(Log.from_records(records), fresh, result.state)
        while result.status == "suspended":
            decisions = {request.digest: decide(request) for request in result.pending}
            result, _ = await end_by(agent.resume(result, decisions))
            records.extend(result.log)
            check(Log.from_records(records), fresh, result.state)

    anyio.run(run)


@given(scripts())
@settings(max_examples=SCRIPTS)
def test_c71_the_log_explains_the_state(script: Script) -> None:
    """C71 A fold of the records alone, which knows nothing of the machine, comes to the final state."""

    async def run() -> RunResult[Any]:
        result, _ = await end_by(script.agent(asks=True).run("go", messages=script.history))
        return result

    result = anyio.run(run)
    check_explained(result, folded(result.log))


# --- endings


def ended_at(point: str, act: str) -> Agent[str]:
    """Return an agent whose run is stopped, failed or broken at a hook, in the second step where there is one."""

    def action(record: Any) -> Any:
        run = record.run if isinstance(record, CallState) else record
        if run.run_step == 1 and "run" not in point:
            return record
        if act == "raise":
            raise LookupError("enough")
        return getattr(record, act)("enough")

    return Agent(
        "desk",
        ScriptedModel([batch(0, 1), batch(0, 1, 2), "done"]),
        tools=[Works().tool()],
        capabilities=[Persists(), at(point, action), Asks()],
    )


@pytest.mark.parametrize("act", ["stop", "fail", "note", "raise"])
@pytest.mark.parametrize("point", POINTS)
async def test_each_hook_may_end_the_run(point: str, act: str) -> None:
    """Stopped, failed or broken at any hook, in the second step where there is one."""
    agent = ended_at(point, act)
    result, _ = await end_by(agent.run("go"))
    check(result.log, agent, result.state)


async def cut_short(where: str, how: str, *capabilities: AnyCapability) -> tuple[Agent[str], RunResult[str]]:
    """Cut a run short while the model, a tool or a gatherer is under way: by its caller, or since it is late."""
    reached = anyio.Event()

    async def hang() -> None:
        reached.set()
        await anyio.sleep_forever()

    async def slow(request: Any) -> Any:
        await hang()

    @tool
    async def wait(n: int) -> str:
        """Wait."""
        if n:
            return f"did {n}"
        await hang()
        return "late"

    class Gathers(Capability):
        async def gather_before_model_request(self, state: RunState, outside: Outside) -> Any:
            if where == "gather" and state.run_step == 2:
                await outside.request([UserMessage("?")], model=ScriptedModel(["yes"]))
                await hang()
            return state.run_step

        def before_model_request(self, state: RunState) -> RunState:
            return state.note(f"{state.fact(self)}")

    calls = [call("wait", {"n": n}) for n in ((1, 0, 2) if where == "tool" else (1,))]
    agent = Agent(
        "desk",
        ScriptedModel([calls, slow if where == "model" else "done"]),
        tools=[wait],
        capabilities=[Gathers(), *capabilities],
        limits=Limits(deadline=0.2 if how == "deadline" else None),
    )
    async with agent.start("go") as handle:
        with anyio.fail_after(10):
            if how != "deadline":
                await reached.wait()
            if how == "cancel":
                handle.cancel()
            elif how == "stop":
                await handle.stop("enough", grace=0.1)
            events = [event async for event in handle.events]
    ended: Any = events[-1]
    return agent, ended.result if ended.error is None else ended.error.partial


@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("how", ["cancel", "stop", "deadline"])
@pytest.mark.parametrize("where", ["model", "tool", "gather"])
async def test_a_run_that_was_cut_short(where: str, how: str, *, wraps: bool) -> None:
    """Cancelled, stopped by its caller, or late, while the model, a tool or a gatherer is under way."""
    agent, result = await cut_short(where, how, *([Persists(), Answers()] if wraps else []))
    check(result.log, agent, result.state)


class Stores(Capability):
    """Trims what it loads, saves less than there is, and writes the prompt."""

    async def wrap_load_messages(self, call_next: Any, state: RunState) -> Any:
        return (await call_next(state))[:2]

    async def wrap_save_messages(self, call_next: Any, state: RunState, messages: Any) -> None:
        await call_next(state.note("saved"), messages[:1] if messages[0].content == "two" else messages)

    async def wrap_prompt(self, call_next: Any, state: RunState) -> str:
        return f"{await call_next(state.note('prompted'))} Be kind."


async def test_conversations_and_prompts_are_replayed() -> None:
    """What was loaded and resolved is taken from the log; the store is not touched again."""
    store = MemoryStore()
    agent = Agent(
        "desk",
        ScriptedModel(["a", "b", "c"]),
        instructions=lambda state: f"You serve {state.context['who']}.",
        capabilities=[Stores()],
        store=store,
    )
    for prompt in ("one", "two", "three"):
        result = await agent.run(prompt, conversation="c", context={"who": "Ada"})
        before = await store.load("c")
        check(result.log, agent, result.state)
        assert before == await store.load("c")


async def test_runs_below_are_replayed() -> None:
    """Each from its own records, inside the call that ran it; one that fails is called again."""
    child = made(
        "child", [call("look", {"n": 1}), call("look", {"n": 2})], "found", tools=[Works().tool(name="look")]
    )
    parent = above(
        child,
        [ask(call_id="a"), ask(call_id="b")],
        "done",
        limits=Limits(requests=20, tool_calls=30, cost=50),
    )
    result = await parent.run("go")
    assert 3 == len({record.run for record in result.log})
    check(result.log, parent, result.state)
    greedy = above(made("child", [call("look", {"n": 1})], "found"), ask(), "done", limits=Limits(cost=1.5))
    failed, reason = await end_by(greedy.run("go"))
    assert reason is not None
    check(failed.log, greedy, failed.state)


async def test_times_are_reproduced() -> None:
    """H-46 Each message has the time that it got in the run: the clock is not read again."""
    clock = iter(float(1_000 + n) for n in range(1_000))
    agent = Agent(
        "desk",
        ScriptedModel([batch(0), batch(1), "done"]),
        tools=[Works().tool()],
        capabilities=[Asks(), at("before_model_request", lambda state: state.append(UserMessage("more")))],
        port=LocalPort(clock=lambda: next(clock)),
    )
    result = await agent.run("go")
    again = replay(result.log, agent)
    times = [message.at for message in result.messages]
    known = [time for time in times if time is not None]
    assert times == sorted(known)
    assert times == [message.at for message in again.state.messages]
    assert [record.at for record in result.log] == [record.at for record in again.records]


async def test_what_the_run_had_of_its_own() -> None:
    """Settings and limits come from the log; a model and tools of the run are given again, or named."""
    agent = Agent("desk", ScriptedModel([]))
    works = Works().tool()
    model = ScriptedModel([batch(0), "done"], name="other")
    result = await agent.run(
        "go", model=model, tools=[works], settings={"seed": 7}, limits=Limits(max_steps=3)
    )
    with pytest.raises(ReplayError, match="of model 'other', not 'scripted': give model="):
        replay(result.log, agent)
    with pytest.raises(ReplayError, match="tools that the agent does not have: work; give tools="):
        replay(result.log, agent, model=model)
    check(result.log, agent, result.state, model=model, tools=[works])


# --- what cannot be replayed


async def test_a_log_without_its_contents_cannot_be_replayed(tmp_path: Path) -> None:
    """Digests only, or redacted: the error says which record, and what is missing."""
    bare = JsonLines(tmp_path / "bare.jsonl", content=False)
    masked = JsonLines(tmp_path / "masked.jsonl", redact=lambda value: "***" if value == "go" else value)
    agent = Agent("desk", ScriptedModel(["done"]), sinks=[bare, masked])
    await agent.run("go")
    with pytest.raises(ReplayError, match=r"^record 0: it has digests only") as caught:
        replay(read_log(tmp_path / "bare.jsonl"), agent)
    assert 0 == caught.value.record
    with pytest.raises(ReplayError, match="redacted content"):
        replay(read_log(tmp_path / "masked.jsonl"), agent)


async def test_a_log_that_is_not_whole_cannot_be_replayed() -> None:
    """Cut off at any record, or without its beginning; the first record that is missing is named."""
    agent = Agent("desk", ScriptedModel([batch(0), "done"]), tools=[Works().tool()], capabilities=[Asks()])
    log = (await agent.run("go")).log
    for n in range(1, len(log)):
        with pytest.raises(ReplayError, match="ends before") as caught:
            replay(Log.from_records(log[:n]), agent)
        assert n == caught.value.record
    with pytest.raises(ReplayError, match="begins elsewhere"):
        replay(Log.from_records(log[1:]), agent)
    with pytest.raises(ReplayError, match="is empty"):
        replay(Log(), agent)
    with pytest.raises(TypeError, match="takes a Log"):
        replay(log[:], agent)  # type: ignore[arg-type]  # the mistake


async def test_a_log_of_another_version_or_agent_is_refused() -> None:
    """One without a version, of a later one, or of somebody else."""
    agent = Agent("desk", ScriptedModel(["done"]))
    first, *rest = (await agent.run("go")).log
    old = evolve(first, facts=type(first.facts)({k: v for k, v in first.facts.items() if k != "schema"}))
    with pytest.raises(ReplayError, match="has no version"):
        replay(Log.from_records([old, *rest]), agent)
    new = evolve(first, facts=first.facts.assoc("schema", 99))
    with pytest.raises(ReplayError, match="version 99; this capfold replays version 1"):
        replay(Log.from_records([new, *rest]), agent)
    with pytest.raises(ReplayError, match="of agent 'desk'; this is 'till'"):
        replay(Log.from_records([first, *rest]), Agent("till", ScriptedModel([])))


async def test_several_runs_of_one_file(tmp_path: Path) -> None:
    """The one that is meant must be named."""
    agent = Agent("desk", ScriptedModel(["a", "b"]), sinks=[JsonLines(tmp_path / "runs.jsonl")])
    first = await agent.run("go", run_id="first")
    await agent.run("on", run_id="second")
    log = read_log(tmp_path / "runs.jsonl")
    with pytest.raises(ReplayError, match=r"several runs: give run=, one of 'first', 'second'"):
        replay(log, agent)
    with pytest.raises(ReplayError, match="no run 'third'"):
        replay(log, agent, run="third")
    assert first.log.head == replay(log, agent, run="first").records.head


async def test_a_changed_fact_is_found() -> None:
    """A record that was edited by hand is named: its digest, or what follows from it."""
    agent = Agent("desk", ScriptedModel([batch(0), "done"]), tools=[Works().tool()])
    records = list((await agent.run("go")).log)
    place = next(i for i, record in enumerate(records) if record.kind == "tool_settled")
    outcome: Any = records[place].facts["outcome"]
    facts = records[place].facts.assoc("outcome", outcome.assoc("content", "did more"))
    records[place] = evolve(records[place], facts=facts)
    with pytest.raises(ReplayError, match="was changed after it was written") as caught:
        replay(Log.from_records(records), agent)
    assert place == caught.value.record


# --- the script of a log


async def test_a_script_from_a_log() -> None:
    """The same responses, failures in their places: a run with it comes to the same head."""
    script: list[Any] = [FAILS, batch(0, 1), batch(2), FAILS, "done"]
    capabilities = [Persists(), Asks()]

    def agent(model: ScriptedModel) -> Agent[str]:
        return Agent("desk", model, tools=[Works().tool()], capabilities=capabilities, port=port())

    first = await agent(ScriptedModel(script, name="recorded")).run("go")
    model = ScriptedModel.from_log(first.log)
    again = await agent(model).run("go")
    model.assert_complete()
    assert "recorded" == model.name
    assert first.log.head == again.log.head


async def test_a_script_whose_model_fails_in_the_end() -> None:
    """The run fails by the same reason."""
    error = ModelError("auth", "who are you?", retryable=False, status=401)
    agent = Agent("desk", ScriptedModel([batch(0), error]), tools=[Works().tool()])
    with pytest.raises(RunError) as caught:
        await agent.run("go")
    assert caught.value.partial is not None
    model = ScriptedModel.from_log(caught.value.partial.log)
    with pytest.raises(RunError) as again:
        await Agent("desk", model, tools=[Works().tool()]).run("go")
    assert caught.value.reason == again.value.reason
    priced = ModelProfile(price=Price(input=1, output=1))
    assert priced == ScriptedModel.from_log(caught.value.partial.log, profile=priced).profile
    with pytest.raises(ReplayError, match="is empty"):
        ScriptedModel.from_log(Log())
    with pytest.raises(ReplayError):
        ScriptedModel.from_log(caught.value.partial.log, run="none")
