"""The control lane of a what-if: a run judged by its own list comes to what it came to, however it ended."""

from typing import Any

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from capfold.capabilities import (
    AssistantMessage,
    CallState,
    Capability,
    RequireApproval,
    ToolBudget,
    call,
    tool,
)
from capfold.capabilities.capability import AnyCapability
from capfold.runtime import Agent, Approve, Limits, LocalPort, Log, MemoryStore, ScriptedModel
from capfold.runtime.log_what_if import WhatIf, what_if
from tests.corruption.scenes import POINTS, Works
from tests.runtime.family import above, ask, made
from tests.runtime.test_replay import (
    PARENT_HOOKS,
    Answers,
    Persists,
    Stores,
    cut_short,
    ended_at,
    rich_scripts,
    tree,
)
from tests.runtime.test_same_everywhere import (
    SCRIPTS,
    Gathers,
    Script,
    StopsAtCall,
    Twice,
    decide,
    end_by,
    scripts,
)


def check(log: Log, agent: Agent[Any]) -> WhatIf:
    """The lane of the agent's own list finds nothing, with its tools and from the log alone."""
    found = what_if(log, agent.capabilities, agent=agent)
    assert found.control is not None
    assert found.empty, str(found)
    assert found.control.empty
    return found


def spent(*batches: list[Any], limit: int, hooks: tuple[AnyCapability, ...] = (Twice(),)) -> Script:
    """Return a script of batches under a limit of tool calls."""
    replies = [AssistantMessage("", tool_calls=tuple(one), finish_reason="tool_calls") for one in batches]
    return Script(replies=(*replies, "done"), hooks=hooks, limits=Limits(tool_calls=limit))


def miss(n: int = 0) -> Any:
    """Return a call that fails."""
    return call("miss", {"n": n})


async def log_of(agent: Agent[Any]) -> Log:
    """Return the log of a run, whatever its end."""
    result, _ = await end_by(agent.run("go"))
    return result.log


# --- shares


async def test_a_run_that_ended_by_a_spent_share() -> None:
    """A call that was run again had used up what was left: it ends so in the lane too, by the same records."""
    script = spent([miss()], [call("look", {"n": 1}), miss()], limit=4)
    log = await log_of(script.agent(asks=True))
    found = check(log, script.agent(asks=False))
    assert ("failed", "failed") == found.status
    assert log.head == found.records.head
    assert what_if(log, script.hooks).empty


async def test_a_share_that_would_have_been_larger() -> None:
    """Who refuses the other call of the batch leaves its calls to those that remain; what they bring nobody knows."""
    script = spent([miss(), miss()], [miss(1), miss(2)], limit=7)
    log = await log_of(script.agent(asks=True))
    assert "run_ended" == log[-1].kind
    agent = script.agent(asks=False)
    check(log, agent)

    class First(Capability):
        """Refuses the first call of the second batch."""

        def admit_tool_execute(self, call: CallState) -> CallState:
            return call.refuse("no") if call.arguments.get("n") == 1 else call

    found = what_if(log, [*script.hooks, First()], agent=agent)
    assert ["call_4_0"] == [one.call for one in found.refused]
    assert ("failed", None) == found.status


async def test_a_share_that_would_have_been_smaller() -> None:
    """Who lets one more call run leaves less to run others again: the run would have ended there."""

    class First(Capability):
        """Refuses the first call."""

        def admit_tool_execute(self, call: CallState) -> CallState:
            return call.refuse("no") if call.arguments.get("n") == 1 else call

    script = spent([miss(1), miss(2)], [miss(0)], limit=4, hooks=(Twice(), First()))
    log = await log_of(script.agent(asks=True))
    agent = script.agent(asks=False)
    check(log, agent)
    narrow = spent([miss(1), miss(2)], [miss(0)], limit=3, hooks=(Twice(), First()))
    log = await log_of(narrow.agent(asks=True))
    found = what_if(log, [Twice()], agent=narrow.agent(asks=False))
    assert found.control is not None
    assert found.control.empty
    assert 1 == found.conditional_after
    assert ["call_1_0"] == [one.call for one in found.allowed]


async def test_a_body_that_nobody_would_have_run_again() -> None:
    """Without the wrapper that did, nothing more is charged, and what it came to is not on record."""
    script = spent([miss()], limit=3)
    log = await log_of(script.agent(asks=True))
    found = what_if(log, [], agent=script.agent(asks=False))
    assert "call_1_0 was run again by a wrapper that is not in the list" == found.why
    settled = next(record for record in found.records if record.kind == "tool_settled")
    assert "extra" not in settled.facts


@given(
    st.lists(st.lists(st.sampled_from(["look", "miss", "pay"]), min_size=1, max_size=3), max_size=4),
    st.integers(0, 9),
    st.lists(st.sampled_from([Twice(), Answers(), ToolBudget(3)]), max_size=2, unique=True),
)
@settings(max_examples=SCRIPTS // 2)
def test_any_share(names: list[list[str]], limit: int, hooks: list[AnyCapability]) -> None:
    """Whatever is left to whom: the lane ends as the run did, by the same records."""
    batches = [[call(name, {"n": i}) for i, name in enumerate(one)] for one in names]
    script = spent(*batches, limit=limit, hooks=tuple(hooks))
    log = anyio.run(log_of, script.agent(asks=True))
    found = check(log, script.agent(asks=False))
    assert log.head == found.records.head
    assert what_if(log, script.hooks).empty


@given(
    st.sampled_from(["requests", "tool_calls", "total_tokens", "cost"]),
    st.integers(0, 9),
    st.integers(0, 2),
    st.lists(st.sampled_from([Twice(), ToolBudget(3)]), max_size=1),
)
@settings(max_examples=SCRIPTS // 2)
def test_any_share_of_a_sub_agent(name: str, most: int, looks: int, hooks: list[AnyCapability]) -> None:
    """What runs below used is booked, and their shares of requests, calls, tokens and dollars end the lane too."""
    factor = {"total_tokens": 640}.get(name, 1)
    limits: Any = {name: most * factor}
    calls = [[call("look", {"n": n}, id=f"l{n}")] for n in range(looks)]
    child = made("child", *calls, "found", tools=[Works().tool(name="look")])

    async def run() -> None:
        parent = above(
            child, [ask(call_id="a"), ask(call_id="b")], "done", capabilities=hooks, limits=Limits(**limits)
        )
        log = await log_of(parent)
        found = check(log, parent)
        assert [one.digest for one in log if one.run == "run"] == [one.digest for one in found.records]
        assert what_if(log, hooks).empty

    anyio.run(run)


# --- any end


@given(rich_scripts())
@settings(max_examples=SCRIPTS // 2)
def test_any_run_with_wrappers_and_gatherers(script: Script) -> None:
    """Models asked twice, answers made up, latches on the way, bills of gatherers: the lane comes to the same."""

    async def run() -> Log:
        result, _ = await end_by(script.agent(asks=True).run("go", messages=script.history))
        return result.log

    log = anyio.run(run)
    found = check(log, script.agent(asks=False))
    assert log.head == found.records.head


@given(scripts(), st.lists(st.sampled_from(PARENT_HOOKS), max_size=3, unique=True), st.booleans())
@settings(max_examples=SCRIPTS // 4)
def test_any_tree_of_runs(script: Script, hooks: list[AnyCapability], asks: bool) -> None:  # noqa: FBT001  # drawn
    """The run at the top, while it waits for those below it, and however it goes on."""

    async def run() -> None:
        agent = tree(script, tuple(hooks), asks=asks)
        result, _ = await end_by(agent.run("go"))
        records = list(result.log)
        check(Log.from_records(records), agent)
        while result.status == "suspended":
            decisions = {request.digest: decide(request) for request in result.pending}
            result, _ = await end_by(agent.resume(result, decisions))
            records.extend(result.log)
            check(Log.from_records(records), agent)

    anyio.run(run)


# Stopped by a hook in the batch that waits, which a run inside wrap_run finds before it hears the decisions.
STOPPED = Script(
    replies=(AssistantMessage("", tool_calls=(call("pay", {"n": 0}), call("look", {"n": 5}))),),
    hooks=(Gathers(), StopsAtCall()),
    approvals=("pay",),
)


@example(STOPPED)
@given(rich_scripts().filter(lambda script: bool(script.approvals)))
@settings(max_examples=SCRIPTS // 2)
def test_any_run_that_was_resumed(script: Script) -> None:
    """From the logs of before and after, one behind the other."""

    async def run() -> None:
        agent = script.agent(asks=False)
        result, _ = await end_by(agent.run("go", messages=script.history))
        records = list(result.log)
        while result.status == "suspended":
            check(Log.from_records(records), agent)
            decisions = {request.digest: decide(request) for request in result.pending}
            result, _ = await end_by(agent.resume(result, decisions))
            records.extend(result.log)
        check(Log.from_records(records), agent)

    anyio.run(run)


@pytest.mark.parametrize("act", ["stop", "fail", "note", "raise"])
@pytest.mark.parametrize("point", POINTS)
async def test_any_hook_may_end_the_run(point: str, act: str) -> None:
    """Stopped, failed or broken at any hook, in the second step where there is one."""
    agent = ended_at(point, act)
    check(await log_of(agent), agent)


@pytest.mark.parametrize("how", ["cancel", "stop", "deadline"])
@pytest.mark.parametrize("where", ["model", "tool", "gather"])
async def test_a_run_that_was_cut_short(where: str, how: str) -> None:
    """Cancelled, stopped by its caller, or late, while the model, a tool or a gatherer is under way."""
    agent, result = await cut_short(where, how, Persists(), Answers())
    check(result.log, agent)


async def test_a_deadline_that_passed_between_two_steps() -> None:
    """The clock of the run counts, less what it waited for a person."""
    now = [1_000.0]

    @tool
    async def nap(n: int) -> str:
        """Take n seconds."""
        now[0] += n
        return "slept"

    agent = Agent(
        "desk",
        ScriptedModel([call("nap", {"n": 3}), call("nap", {"n": 20}), "done"]),
        tools=[nap],
        capabilities=[RequireApproval({"nap"})],
        limits=Limits(deadline=10),
        port=LocalPort(clock=lambda: now[0]),
    )
    result, _ = await end_by(agent.run("go"))
    records = list(result.log)
    while result.status == "suspended":
        now[0] += 100
        result, _ = await end_by(agent.resume(result, {one.digest: Approve() for one in result.pending}))
        records.extend(result.log)
    assert "failed" == result.status
    check(Log.from_records(records), agent)


async def test_conversations() -> None:
    """What was loaded, resolved and saved is on record."""
    agent = Agent(
        "desk",
        ScriptedModel(["a", "b", "c"]),
        instructions=lambda state: f"You serve {state.context['who']}.",
        capabilities=[Stores()],
        store=MemoryStore(),
    )
    for prompt in ("one", "two", "three"):
        result = await agent.run(prompt, conversation="c", context={"who": "Ada"})
        check(result.log, agent)
