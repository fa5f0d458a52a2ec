"""Budgets in whole runs: exact under parallel calls, retries, refusals by others, suspension, and sub-agents."""

from collections.abc import Callable, Sequence
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
    RequireApproval,
    RunBudget,
    RunState,
    SharedBudget,
    Tool,
    ToolBudget,
    ToolCall,
    ToolFailed,
    ToolMessage,
    Usage,
    call,
    inherited,
    tool,
)
from capfold.capabilities.capability import AnyCapability
from capfold.runtime import (
    Agent,
    Approve,
    Counter,
    Deny,
    HookError,
    LimitError,
    Limits,
    ModelError,
    RunResult,
    ScriptedModel,
    SQLiteCounter,
)


class Bodies:
    """What really ran, in order of starting, and a tool that does: `work(n)`."""

    def __init__(self, fails: int = 0) -> None:
        """Fail in a known way the first times; then succeed."""
        self.ran: list[int] = []
        self.fails = fails

    def tool(self, name: str = "work", **options: Any) -> Tool:  # the keywords of `tool`
        """Return the tool."""

        async def body(n: int) -> str:
            """Work."""
            self.ran.append(n)
            await anyio.lowlevel.checkpoint()  # so that others that run side by side come in between
            if self.fails:
                self.fails -= 1
                raise ToolFailed("Not now.")
            return f"did {n}"

        return tool(body, name=name, **options)


def batch(*numbers: int, name: str = "work") -> list[ToolCall]:
    """Return calls of one response, with ids by their number."""
    return [call(name, {"n": n}, id=f"c{n}") for n in numbers]


def made(replies: Sequence[Any], bodies: Bodies, *capabilities: AnyCapability, **options: Any) -> Agent[str]:
    """Return an agent over a script, with the one tool; options of Agent."""
    return Agent(
        options.pop("name", "agent"),
        ScriptedModel(replies),
        tools=options.pop("tools", [bodies.tool()]),
        capabilities=capabilities,
        **options,
    )


def statuses(result: RunResult[str]) -> dict[str, str]:
    """Return the status of each call by its id."""
    return {m.call_id: m.status for m in result.messages if isinstance(m, ToolMessage)}


@frozen
class Twice(Capability):
    """Runs the body of each call again, as often as told."""

    more: int = 1

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        done = await call_next(call)
        for _ in range(self.more):
            done = await call_next(call)
        return done


@frozen
class RefuseSome(Capability):
    """Refuses the calls of some numbers."""

    numbers: frozenset[int]

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.refuse("Not this one.") if call.arguments["n"] in self.numbers else call


# --- ToolBudget

BATCHES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def numbered(sizes: Sequence[int]) -> list[list[int]]:
    """Return batches of so many calls, numbered through."""
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [list(range(start, start + size)) for start, size in zip(starts, sizes, strict=True)]


@settings(max_examples=40)
@given(st.integers(0, 8), BATCHES, st.frozensets(st.integers(0, 15)), st.integers(0, 2), st.integers(0, 2))
def test_a_tool_budget_lets_exactly_so_many_run(  # drawn
    most: int, sizes: list[int], refused: frozenset[int], more: int, place: int
) -> None:
    """The first calls that nobody else refuses run, until what ran fills the budget, wherever the budget stands.

    Attempts that a wrapper adds fill it too: a call runs while less than the budget ran before its batch, and in
    it while calls before it leave a place.
    """
    bodies, spent, expected = Bodies(), 0, list[int]()
    for numbers in numbered(sizes):
        runs = [n for n in numbers if n not in refused][: max(0, most - spent)]
        spent += len(runs) * (1 + more)
        expected += runs
    listed: list[AnyCapability] = [RefuseSome(refused), Twice(more)]
    listed.insert(place, ToolBudget(most, on_exceeded="refuse"))
    agent = made([*(batch(*numbers) for numbers in numbered(sizes)), "ok"], bodies, *listed)
    result = agent.run_sync("Go.")
    assert (sorted(expected * (1 + more)), "ok") == (sorted(bodies.ran), result.output)
    counted = result.state.slot_of("ToolBudget") or {"work": 0}
    assert counted == {"work": spent}


@pytest.mark.parametrize("place", [0, 1])
async def test_a_tool_budget_that_stops_runs_what_came_before(place: int) -> None:
    """Of a batch of three with one left, one of them refused by another: one runs, the others had no effect."""
    bodies = Bodies()
    listed: list[AnyCapability] = [RefuseSome(frozenset({1}))]
    listed.insert(place, ToolBudget(2))
    result = await made([batch(0), batch(1, 2, 3)], bodies, *listed).run("Go.")
    assert ("stopped", [0, 2]) == (result.status, bodies.ran)
    assert {"c0": "succeeded", "c1": "denied", "c2": "succeeded", "c3": "not_executed"} == statuses(result)


async def test_a_tool_budget_over_a_suspension() -> None:
    """Calls that wait take their places; who is denied gives it back to later steps; the count is in the snapshot."""
    bodies = Bodies()
    listed: list[AnyCapability] = [ToolBudget(3, on_exceeded="refuse"), RequireApproval()]
    replies = [batch(1), batch(2, 3, 4), batch(5, 6), "ok"]
    result = await made(replies, bodies, *listed).run("Go.")
    asked: list[list[str]] = []
    step = 1
    while result.status == "suspended":
        asked.append([one.call_id for one in result.pending])
        decisions = {one.digest: Deny() if one.call_id == "c2" else Approve() for one in result.pending}
        result = await made(replies[step:], bodies, *listed).resume(result.snapshot(), decisions)
        step += 1
    assert ([["c1"], ["c2", "c3"], ["c5"]], [1, 3, 5]) == (asked, bodies.ran)
    assert ["succeeded", "denied", "succeeded", "denied", "succeeded", "denied"] == list(
        statuses(result).values()
    )


async def test_a_tool_budget_that_a_sub_agent_inherits_is_its_own() -> None:
    """Each run counts for itself; what spans them is a SharedBudget."""
    bodies = Bodies()
    child = made([batch(1, 2, 3), "found"], bodies, name="child")
    parent = made(
        [[call("ask", {"task": "go"}, id="a"), *batch(4, 5, 6)], "ok"],
        bodies,
        inherited(ToolBudget(2, tools={"work"}, on_exceeded="refuse")),
        tools=[bodies.tool(), child.as_tool("Ask.", name="ask")],
    )
    await parent.run("Go.")
    assert [1, 2, 4, 5] == sorted(bodies.ran)


# --- SharedBudget


@pytest.fixture
def in_file(tmp_path: Path) -> SQLiteCounter:
    """Return a counter in a file."""
    return SQLiteCounter(tmp_path / "counts.db")


async def test_eight_calls_side_by_side_and_a_limit_of_three(in_file: SQLiteCounter) -> None:
    """Exactly three bodies run, by either counter, and the model reads of five refusals."""
    for counter in (Counter(), in_file):
        bodies = Bodies()
        agent = made([batch(*range(8)), "ok"], bodies, SharedBudget("web", 3))
        result = await agent.run("Go.", deps={"web": counter})
        assert (3, "ok") == (len(bodies.ran), result.output)
        assert {"succeeded": 3, "denied": 5} == {
            status: list(statuses(result).values()).count(status) for status in statuses(result).values()
        }
    assert 3 == await in_file.used("web")
    await in_file.close()


@settings(max_examples=25)
@given(st.integers(0, 9), st.lists(BATCHES, min_size=1, max_size=3), st.booleans())
def test_runs_side_by_side_share_an_allowance(most: int, runs: list[list[int]], below: bool) -> None:  # noqa: FBT001  # drawn
    """However runs, batches and sub-agents are spread, exactly as many bodies run as there are units for them."""
    counter, bodies = Counter(), Bodies()
    budget = SharedBudget("web", most, tools={"work"})

    async def one(sizes: list[int]) -> None:
        replies = [*(batch(*numbers) for numbers in numbered(sizes)), "ok"]
        agent = made(replies, bodies, *([] if below else [budget]), name="child")
        if below:
            asked = [call("ask", {"task": "go"}), "ok"]
            agent = made(asked, bodies, inherited(budget), tools=[agent.as_tool("Ask.", name="ask")])
        assert "ok" == (await agent.run("Go.", deps={"web": counter})).output

    async def together() -> None:
        async with anyio.create_task_group() as tasks:
            for sizes in runs:
                tasks.start_soon(one, sizes)

    for backend in ("asyncio", "trio"):
        bodies.ran.clear()
        counter = Counter()
        anyio.run(together, backend=backend)
        expected = min(most, sum(map(sum, runs)))
        assert (expected, expected) == (len(bodies.ran), counter.used("web"))


async def test_a_unit_stays_taken_whatever_becomes_of_the_call() -> None:
    """Failed, unknown or late: who cannot know that nothing happened gives nothing back."""

    async def raises(n: int) -> str:
        """Work."""
        raise OSError("Perhaps.")

    async def late(n: int) -> str:
        """Work."""
        await anyio.sleep_forever()
        return "never"

    counter = Counter()
    tools = [
        tool(raises, name="raises"),
        tool(late, name="late", timeout=0.01),
        Bodies(fails=1).tool("fails"),
    ]
    asked = [call(name, {"n": 1}, id=name) for name in ("raises", "late", "fails")]
    result = await made([asked, "ok"], Bodies(), SharedBudget("web", 9), tools=tools).run(
        "Go.", deps={"web": counter}
    )
    assert {"raises": "unknown", "late": "unknown", "fails": "failed"} == statuses(result)
    assert 3 == counter.used("web")


@pytest.mark.parametrize(("listed", "taken"), [("retry first", 3), ("budget first", 1)])
async def test_attempts_of_a_wrapper_around_it_take_a_unit_each(listed: str, taken: int) -> None:
    """What stands before it in the list goes through it with each attempt; what stands after it does not."""
    counter, bodies = Counter(), Bodies()
    both: list[AnyCapability] = [Twice(2), SharedBudget("web", 9)]
    agent = made([batch(1), "ok"], bodies, *(both if listed == "retry first" else reversed(both)))
    await agent.run("Go.", deps={"web": counter})
    assert (taken, 3) == (counter.used("web"), len(bodies.ran))


@pytest.mark.parametrize(("fails", "status"), [(0, "succeeded"), (9, "failed")])
@pytest.mark.parametrize("choice", ["refuse", "stop"])
async def test_an_attempt_without_a_unit_does_not_run(
    fails: int, status: str, choice: Any
) -> None:  # one of the two
    """Retries cannot overrun it either: what came of the last one that ran stands, and is what the model reads."""
    counter, bodies = Counter(), Bodies(fails)
    agent = made([batch(1), "ok"], bodies, Twice(5), SharedBudget("web", 2, on_exceeded=choice))
    result = await agent.run("Go.", deps={"web": counter})
    assert (2, [1, 1], {"c1": status}) == (counter.used("web"), bodies.ran, statuses(result))
    assert ("completed" if choice == "refuse" else "stopped") == result.status
    (settled,) = [record.facts["outcome"] for record in result.log if record.kind == "tool_settled"]
    assert isinstance(settled, dict)
    assert 2 == settled["attempts"]


async def test_attempts_at_once_share_what_is_left() -> None:
    """A wrapper that tries twice side by side gets one of the two through, and may return it."""

    @frozen
    class Race(Capability):
        async def wrap_tool_execute(
            self, call_next: CallNext[CallState, CallState], call: CallState
        ) -> CallState:
            done: list[CallState] = []

            async def one() -> None:
                done.append(await call_next(call))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one)
                tasks.start_soon(one)
            return next(
                each for each in done if each.outcome is not None and each.outcome.status == "succeeded"
            )

    counter, bodies = Counter(), Bodies()
    result = await made([batch(1), "ok"], bodies, Race(), SharedBudget("web", 1)).run(
        "Go.", deps={"web": counter}
    )
    assert ([1], {"c1": "succeeded"}) == (bodies.ran, statuses(result))


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("most", [1, 2])
async def test_a_call_whose_sub_agent_waits_takes_one_unit(most: int, text: bool) -> None:  # noqa: FBT001  # a value under test
    """However often it is suspended; and with none left its run goes on, since it has its unit already."""
    bodies, web = Bodies(), Counter()
    child = made([batch(1), batch(2), "found"], bodies, RequireApproval({"work"}), name="child")
    replies = [[call("ask", {"task": "go"}, id="a")], [call("ask", {"task": "go"}, id="b")], "ok"]
    agent = made(
        replies,
        bodies,
        SharedBudget("web", most),
        tools=[child.as_tool("Ask.", name="ask")],
        deps={"web": web},
    )
    result = await agent.run("Go.")
    for done in ([], [1]):
        assert ("suspended", done, 1) == (result.status, bodies.ran, web.used("web"))
        approved = {one.digest: Approve() for one in result.pending}
        result = await agent.resume(result.snapshot() if text else result, approved)
    assert ([1, 2], most) == (bodies.ran, web.used("web"))
    assert "succeeded" == statuses(result)["a"]
    assert ("denied" if most == 1 else "failed") == statuses(result)["b"]  # the child's script is used up


async def test_refused_and_waiting_calls_take_nothing() -> None:
    """A unit is taken right before the body: none for who is refused or denied, none while a person decides."""
    counter, bodies = Counter(), Bodies()
    listed: list[AnyCapability] = [SharedBudget("web", 2), RefuseSome(frozenset({1})), RequireApproval()]
    replies = [batch(1, 2, 3, 4), "ok"]
    result = await made(replies, bodies, *listed).run("Go.", deps={"web": counter})
    assert (["c2", "c3", "c4"], 0) == ([one.call_id for one in result.pending], counter.used("web"))
    decisions = {one.digest: Deny() if one.call_id == "c2" else Approve() for one in result.pending}
    await made(["ok"], bodies, *listed).resume(result.snapshot(), decisions, deps={"web": counter})
    assert ([3, 4], 2) == (sorted(bodies.ran), counter.used("web"))


async def test_a_shared_budget_that_stops() -> None:
    """The run ends as a result, without another request; no more bodies ran than there are units."""
    counter, bodies = Counter(), Bodies()
    agent = made([batch(1, 2, 3)], bodies, SharedBudget("web", 1, message="Used up.", on_exceeded="stop"))
    result = await agent.run("Go.", deps={"web": counter})
    assert ("stopped", "Used up.", 1, 1) == (result.status, result.output, result.requests, len(bodies.ran))
    assert result.stop is not None
    assert "SharedBudget" == result.stop.key


@frozen
class Plain:
    """Dependencies as an object."""

    other: int = 1


@pytest.mark.parametrize("deps", [None, {}, {"Web": Counter()}, Plain()])
async def test_a_missing_counter_fails_when_the_run_starts(deps: object) -> None:
    """Before any request, and by name."""
    agent = made([batch(1)], Bodies(), SharedBudget("web", 1))
    with pytest.raises(ValueError, match="SharedBudget needs 'web' in deps"):
        await agent.run("Go.", deps=deps)
    assert () == agent.setup.model.requests  # type: ignore[attr-defined]  # a ScriptedModel


class Broken:
    """A counter whose server is gone."""

    async def reserve(self, name: str, n: int, limit: int) -> bool:
        """Fail."""
        raise ConnectionError("No route.")


@pytest.mark.parametrize("counter", [Broken(), 3])
async def test_a_counter_that_fails_lets_nothing_through(counter: object) -> None:
    """The run ends with the capability's name, and the body did not run."""
    bodies = Bodies()
    agent = made([batch(1), "ok"], bodies, SharedBudget("web", 1))
    with pytest.raises(HookError, match=r"SharedBudget\.wrap_tool_execute"):
        await agent.run("Go.", deps={"web": counter})
    assert [] == bodies.ran


# --- RunBudget


@settings(max_examples=40)
@given(st.integers(0, 5), st.integers(0, 5), st.sampled_from(["max_steps", "max_requests"]), st.booleans())
def test_a_run_budget_and_limits_end_a_run_at_the_same_place(
    most: int,
    steps: int,
    what: str,
    first: bool,  # noqa: FBT001  # drawn
) -> None:
    """One as a result, the others by an error: after so many requests, and never a request more."""
    replies = [*(batch(n) for n in range(steps)), "ok"]
    others: list[AnyCapability] = [RefuseSome(frozenset())]
    budget: AnyCapability = RunBudget(max_steps=most) if what == "max_steps" else RunBudget(max_requests=most)
    agent = made(replies, Bodies(), *([budget, *others] if first else [*others, budget]))
    result = agent.run_sync("Go.")
    sent = min(most, steps + 1)
    expected = "completed" if most >= steps + 1 else "stopped"
    assert (expected, sent, sent) == (result.status, result.requests, len(agent.setup.model.requests))  # type: ignore[attr-defined]  # as above
    if what == "max_steps" and most == 0:
        return  # a limit on steps is at least 1
    limits = Limits(max_steps=most) if what == "max_steps" else Limits(requests=most)
    bare = made(replies, Bodies(), limits=limits)
    if expected == "completed":
        assert "ok" == bare.run_sync("Go.").output
    else:
        with pytest.raises(LimitError) as caught:
            bare.run_sync("Go.")
        assert caught.value.partial is not None
        assert sent == caught.value.partial.requests


def used(total: int | None) -> Callable[[Any], Any]:
    """Return a reply that calls the tool, and reports so many tokens."""

    def reply(request: Any) -> AssistantMessage:  # a model request
        usage = Usage(input_tokens=total, output_tokens=0)
        return AssistantMessage("", tool_calls=tuple(batch(len(request.messages))), usage=usage)

    return reply


@pytest.mark.parametrize(
    ("tokens", "requests"), [([400, 600, 1], 2), ([400, 599, 1], 3), ([None, 1, 1], 1), ([1, None], 2)]
)
async def test_tokens_that_are_known_and_those_that_are_not(tokens: list[int | None], requests: int) -> None:
    """At the number nothing more is sent; after an unknown one neither."""
    agent = made([used(one) for one in tokens], Bodies(), RunBudget(max_tokens=1000))
    result = await agent.run("Go.")
    assert ("stopped", requests) == (result.status, result.requests)


@frozen
class Forge(Capability):
    """Tries to reset what the runtime counted."""

    def before_model_request(self, state: RunState) -> RunState:

        return evolve(state, requests=0, run_step=1, usage=Usage(input_tokens=0, output_tokens=0))


async def test_no_hook_resets_it() -> None:
    """A hook before it that writes the counts has its write restored, and the budget stops the run all the same."""
    result = await made([batch(1), batch(2)], Bodies(), Forge(), RunBudget(max_requests=2, max_steps=2)).run(
        "Go."
    )
    assert ("stopped", 2) == (result.status, result.requests)


async def test_what_a_sub_agent_requests_counts() -> None:
    """One request of the run's own, two of its sub-agent's; then a budget of three is used up."""
    bodies = Bodies()
    child = made([batch(1), "found"], bodies, name="child")
    replies = [call("ask", {"task": "go"}, id="a"), "ok"]
    for most, status in ((3, "stopped"), (4, "completed")):
        child = made([batch(1), "found"], bodies, name="child")
        agent = made(replies, bodies, RunBudget(max_requests=most), tools=[child.as_tool("Ask.", name="ask")])
        result = await agent.run("Go.")
        assert (status, 3 if status == "stopped" else 4) == (result.status, result.requests)


async def test_a_run_budget_over_a_suspension() -> None:
    """Steps and requests before the suspension count after it."""
    bodies, listed = Bodies(), [RunBudget(max_requests=2), RequireApproval()]
    first = await made([batch(1)], bodies, *listed).run("Go.")
    second = await made([batch(2)], bodies, *listed).resume(
        first.snapshot(), {one.digest: Approve() for one in first.pending}
    )
    third = await made([], bodies, *listed).resume(
        second.snapshot(), {one.digest: Approve() for one in second.pending}
    )
    assert ("stopped", 2, [1, 2]) == (third.status, third.requests, bodies.ran)


@frozen
class TryAgain(Capability):
    """Sends a request again until it succeeds."""

    async def wrap_model_request(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        while True:
            try:
                return await call_next(state)
            except ModelError:
                pass


async def test_attempts_within_a_step_are_for_limits() -> None:
    """A budget looks once a step and then counts what happened; `Limits` hold within the step too."""
    busy = ModelError("server", "later", retryable=True)
    agent = made([busy, busy, batch(1)], Bodies(), TryAgain(), RunBudget(max_requests=2))
    result = await agent.run("Go.")
    assert ("stopped", 3) == (result.status, result.requests)
    limited = made([busy, busy, batch(1)], Bodies(), TryAgain(), limits=Limits(requests=2))
    with pytest.raises(LimitError):
        await limited.run("Go.")
