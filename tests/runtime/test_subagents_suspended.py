"""A child that waits for decisions suspends the whole tree, which goes on as if it had never stopped."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from capfold.capabilities import CallNext, CallState, Capability, RequireApproval, RunState, call, tool
from capfold.capabilities.capability import AnyCapability
from capfold.capabilities.frozen import digest
from capfold.runtime import (
    Agent,
    Answer,
    Approve,
    CodecError,
    DecisionError,
    Deny,
    Edit,
    HookError,
    LimitError,
    LimitExceeded,
    Limits,
    LocalPort,
    Log,
    Permissions,
    RunError,
    RunResult,
    replay,
)
from capfold.runtime.decisions import ApprovalRequest, Decision
from capfold.runtime.entries import OUTSIDE_DIGEST
from tests.corruption.scenes import MemorySink, at
from tests.runtime import family_desk
from tests.runtime.desk import check_closed, contents, partial, results
from tests.runtime.family import above, ask, by_run, check_tree, made, settled

PAID: list[int] = []
LOOKED: list[int] = []


@tool
def pay(amount: int) -> str:
    """Pay."""
    PAID.append(amount)
    return f"paid {amount}"


@tool
def look(n: int) -> str:
    """Look."""
    LOOKED.append(n)
    return f"saw {n}"


@pytest.fixture(autouse=True)
def _nothing_happened() -> None:
    PAID.clear()
    LOOKED.clear()


# What a person says, by the amount.
SAYS: dict[int, Decision] = {
    1: Approve(),
    2: Deny("no"),
    3: Edit({"amount": 30}),
    4: Answer("by hand"),
    5: Approve(always=False),
}


def says(requests: Sequence[ApprovalRequest]) -> list[Decision]:
    """Decide by the amount."""
    return [SAYS[int(str(request.arguments["amount"]))] for request in requests]


def pays(*amounts: int) -> Any:
    """Return a batch of payments."""
    return [call("pay", {"amount": amount}, id=f"p{amount}") for amount in amounts]


def paying(*replies: Any, name: str = "child", **options: Any) -> Agent[Any]:
    """Return an agent that asks before it pays."""
    capabilities = [*options.pop("capabilities", ()), RequireApproval({"pay"}, always="off")]
    script = replies or (pays(1), "found")
    return made(name, *script, tools=[pay, look], capabilities=capabilities, **options)


def decided(result: RunResult[Any]) -> dict[str, Decision]:
    """Return a decision for all that waits."""
    return {one.digest: SAYS[int(str(one.arguments["amount"]))] for one in result.pending}


async def through(agent: Agent[Any], *, text: bool) -> tuple[RunResult[Any], list[Any], int]:
    """Run and decide until it has ended; return the end, all records, and how often it was suspended."""
    result = await agent.run("go")
    records, times = list(result.log), 0
    while result.status == "suspended":
        times += 1
        check_tree(result.log, ends=("run_ended", "run_suspended"))
        result = await agent.resume(result.snapshot() if text else result, decided(result))
        records += result.log
    return result, records, times


def digests(records: Sequence[Any]) -> dict[str, list[str]]:
    """Return run id -> the digests of its records, but for those of suspending and resuming."""
    kept = {
        run: [one for one in own if one.kind not in OUTSIDE_DIGEST] for run, own in by_run(records).items()
    }
    return {run: [one.digest for one in own] for run, own in kept.items()}


async def around(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
    """Stand around a tool call."""
    return await call_next(call)


class Runs(Capability):
    """Stands around a run."""

    async def wrap_run(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        return await call_next(state)


def one_level() -> Agent[Any]:
    """One child; all kinds of decisions."""
    return above(paying(pays(1, 2, 3, 4), "found"))


def two_levels() -> Agent[Any]:
    """The child of a child waits."""
    return above(above(paying(name="low"), ask("low", "g"), "passed on", name="middle"))


def side_by_side() -> Agent[Any]:
    """Two that wait, one that does not, and a tool that runs meanwhile."""
    quick = made("quick", "here")
    calls = [ask("child", "a"), call("look", {"n": 1}, id="l"), ask("quick", "q"), ask("child", "b")]
    return above(paying(pays(1, 2), "found"), calls, "done", tools=[look, quick.as_tool("Ask.")])


def again_and_again() -> Agent[Any]:
    """The child waits three times; beside it one that waits once."""
    once = paying(pays(4), "once", name="once")
    child = paying(pays(1), pays(2, 3), pays(5), "found")
    return above(child, [ask(), ask("once", "o")], "done", tools=[once.as_tool("Ask.")])


def wrapped() -> Agent[Any]:
    """Wrappers on every level."""
    child = paying(pays(1), pays(2), "found", capabilities=[Runs()])
    kit = [child.as_tool("Ask.").with_capabilities(around)]
    return made("parent", ask(), "done", tools=kit, capabilities=[Runs()])


def limited() -> Agent[Any]:
    """Just enough of everything."""
    child = paying(pays(1), pays(2), "found")
    limits = Limits(requests=8, tool_calls=6, total_tokens=6000, cost=9.0, deadline=5.0)
    return above(child, [ask("child", "a"), ask("child", "b")], "done", limits=limits)


def asked_above() -> Agent[Any]:
    """The question is the caller's, by its permissions, about a call of the child's."""
    child = made("child", pays(1, 2), "found", tools=[pay])
    return above(child, permissions=Permissions((("pay", "ask"),)))


async def twice(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
    """Run a body again that failed."""
    done = await call_next(call)
    assert done.outcome is not None
    return await call_next(call) if done.outcome.status == "failed" else done


def tried_again(**options: Any) -> Agent[Any]:
    """The first run of the child looks and fails, the second one looks and waits."""

    def fails_once(run: RunState) -> RunState:
        return run.fail("first time") if run.run_step == 2 and run.run_id == "run/c" else run

    fails = at("before_model_request", fails_once, "fails")
    child = paying(call("look", {"n": 1}, id="l"), pays(1), "found", capabilities=[fails])
    return made("parent", ask(), "done", tools=[child.as_tool("Ask.").with_capabilities(twice)], **options)


TREES: dict[str, tuple[Callable[[], Agent[Any]], int]] = {
    "one level": (one_level, 1),
    "two levels": (two_levels, 1),
    "side by side": (side_by_side, 1),
    "again and again": (again_and_again, 3),
    "wrapped": (wrapped, 2),
    "limited": (limited, 2),
    "asked above": (asked_above, 1),
    "tried again": (tried_again, 1),
}


@pytest.mark.parametrize("text", [False, True], ids=["result", "snapshot"])
@pytest.mark.parametrize("name", list(TREES))
async def test_a_suspended_tree_comes_to_the_same(name: str, text: bool) -> None:  # noqa: FBT001  # a value under test
    """Same final state, same effects, each once; same digests, but for the records of suspending and resuming."""
    build, times = TREES[name]
    agent = build()
    plain = await agent.run("go", approver=says)
    effects = sorted(PAID), sorted(LOOKED)
    PAID.clear()
    LOOKED.clear()
    result, records, suspended = await through(agent, text=text)
    assert (plain.state, plain.output) == (result.state, result.output)
    assert effects == (sorted(PAID), sorted(LOOKED))
    assert times == suspended
    assert digests(plain.log) == digests(records)
    assert plain.log.head == result.log.head
    check_tree(Log.from_records(records))
    check_closed(result.messages)
    kinds = {run: [one.kind for one in own] for run, own in by_run(records).items()}
    assert times == kinds["run"].count("run_suspended") == kinds["run"].count("run_resumed")


async def test_what_a_suspended_tree_waits_for() -> None:
    """The requests of all children, in call order; the calls of the others keep their outcomes."""
    result = await side_by_side().run("go")
    assert ["run/a", "run/a", "run/b", "run/b"] == [one.run_id for one in result.pending]
    assert {"child"} == {one.agent for one in result.pending}
    statuses = [("child", "pending"), ("look", "succeeded"), ("quick", "succeeded"), ("child", "pending")]
    assert statuses == results(result.messages)
    assert ([1], []) == (LOOKED, PAID)
    last = by_run(result.log)["run"][-1]
    outcomes: Any = last.facts["outcomes"]
    assert ("run_suspended", {"l": "saw 1", "q": "here"}) == (
        last.kind,
        {name: one["content"] for name, one in outcomes.items()},
    )


def _missing(result: RunResult[Any]) -> Mapping[str, Any]:
    return dict(list(decided(result).items())[:-1])


WRONG: dict[str, Callable[[RunResult[Any]], Any]] = {
    "missing": _missing,
    "foreign": lambda result: {**decided(result), "0" * 64: Approve()},
    "no decision": lambda result: dict.fromkeys(decided(result), True),
    "not offered": lambda result: dict.fromkeys(decided(result), Approve(always=True)),
    "invalid edit": lambda result: dict.fromkeys(decided(result), Edit({"amount": "much"})),
    "no mapping": lambda result: list(decided(result).values()),
}


@pytest.mark.parametrize("case", list(WRONG))
async def test_decisions_that_do_not_fit_change_nothing(case: str) -> None:
    """Refused before anything goes on, wrappers around or not; the right ones are taken afterwards."""
    for agent in (side_by_side(), wrapped(), two_levels()):
        PAID.clear()
        result = await agent.run("go")
        for held in (result, result.snapshot()):
            with pytest.raises(DecisionError):
                await agent.resume(held, WRONG[case](result))
        assert ([], len(result.log)) == (PAID, len(list(result.log)))
        done = await agent.resume(result, decided(result))
        assert 1 in PAID
        assert done.status in {"completed", "suspended"}


async def test_an_approver_may_decide_when_it_goes_on() -> None:
    """Without decisions, the caller's approver is asked about the children's requests."""
    agent = side_by_side()
    result = await agent.run("go")
    done = await agent.resume(result, approver=says)
    assert ("completed", [1, 1]) == (done.status, PAID)


async def test_in_another_process() -> None:
    """Through JSON alone: two levels, two that wait; nothing that ran runs again."""
    told = await anyio.to_thread.run_sync(_process, "suspend", "")
    snapshot = json.loads(told.stdout)
    assert "looked 1" in told.stderr
    assert "paid" not in told.stderr
    told = await anyio.to_thread.run_sync(_process, "resume", snapshot["snapshot"])
    done = json.loads(told.stdout)
    assert {"paid 1", "paid 2"} == set(told.stderr.split("\n")) - {""}
    plain = await family_desk.build().run("go", approver=family_desk.approves)
    assert [plain.output, plain.requests, plain.tool_calls, plain.log.head] == done


def _process(command: str, text: str) -> "subprocess.CompletedProcess[str]":
    root = Path(__file__).parents[2]
    start = "import sys, anyio; from tests.runtime.family_desk import main; anyio.run(main, *sys.argv[1:])"
    run = [sys.executable, "-c", start, command]
    return subprocess.run(run, input=text, capture_output=True, text=True, check=True, cwd=root)


async def test_an_edited_snapshot_is_refused() -> None:
    """At any depth: what a child waits for cannot be rewritten."""
    agent = two_levels()
    result = await agent.run("go")
    text = result.snapshot()
    assert 1 == text.count('amount\\\\\\\\\\\\\\": 1') or "amount" in text
    for old, new in (("run/c/g", "run/c/h"), ("p1", "p9")):
        with pytest.raises((CodecError, DecisionError)):
            await agent.resume(text.replace(old, new), decided(result))
    assert [] == PAID


def _sealed(text: str, edit: Callable[[dict[str, Any]], None]) -> str:
    """Return a snapshot that was edited, with the digest that fits it."""
    whole = json.loads(text)
    edit(whole["value"])
    rest = {name: value for name, value in whole["value"].items() if name != "digest"}
    return json.dumps({**whole, "value": {**rest, "digest": digest(rest)}})


@pytest.mark.parametrize(
    "changed", [{"parent_run_id": "x"}, {"root_run_id": "x"}, {"parent_run_id": None}, {}]
)
async def test_a_child_of_another_run_is_refused(changed: dict[str, Any]) -> None:
    """A waiting child belongs below the run that holds it, in its tree; a snapshot sealed anew is no way around."""
    agent = above(paying())
    result = await agent.run("go")

    def adopt(value: dict[str, Any]) -> None:
        (held,) = value["held"]
        held["snapshot"] = _sealed(held["snapshot"], lambda child: child["run"].update(changed))

    text = _sealed(result.snapshot(), adopt)
    if not changed:
        assert "completed" == (await agent.resume(text, decided(result))).status
        return
    with pytest.raises(CodecError, match="below 'run' in that of 'run'") as caught:
        await agent.resume(text, decided(result))
    assert ("$.value.held", []) == (caught.value.path, PAID)


async def test_a_changed_list_of_the_child_is_refused() -> None:
    """As one of the caller's own, unless it is allowed by name."""
    text = (await one_level().run("go")).snapshot()
    changed = above(paying(pays(1, 2, 3, 4), "found", capabilities=[Runs()]))
    with pytest.raises(ValueError, match="Runs is new"):
        await changed.resume(text, {})
    with pytest.raises(DecisionError):
        await changed.resume(text, {}, allow_changed={"Runs"})


# --- what was used counts on


async def test_limits_hold_over_a_suspension() -> None:
    """C09 of a tree: what a child used before it waited counts, however often it waits."""
    child = paying(pays(1), pays(2), pays(3), pays(5), "found")
    agent = above(child, limits=Limits(tool_calls=3))
    for text in (False, True):
        PAID.clear()
        with pytest.raises(LimitError) as caught:
            await through(agent, text=text)
        reason = caught.value.reason
        assert isinstance(reason, LimitExceeded)
        assert ("tool_calls", 3, 3, 2) == (reason.limit, reason.used, reason.allowed, reason.share)
        assert ([1], 3) == (PAID, partial(caught.value).tool_calls)


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize(("allowed", "ends"), [(4, True), (5, False)])
async def test_earlier_attempts_count_over_a_suspension(text: bool, allowed: int, ends: bool) -> None:  # noqa: FBT001  # values under test
    """A wrapper ran the body, then again, and that waited: requests, calls and the body run are kept."""
    agent = tried_again(limits=Limits(tool_calls=allowed))
    if ends:
        with pytest.raises(LimitError) as caught:
            await through(agent, text=text)
        assert (4, []) == (partial(caught.value).tool_calls, PAID)
        return
    result, records, times = await through(agent, text=text)
    assert (1, 5, [1, 1], [1]) == (times, result.tool_calls, LOOKED, PAID)
    assert ["run", "run/c", "run/c#2"] == list(by_run(records))
    facts = settled(records)
    assert (1, 4, 3) == (facts["extra"], facts["requests"], facts["tool_calls"])
    assert 6 == result.requests
    check_tree(Log.from_records(records))


async def test_waiting_does_not_use_up_a_deadline() -> None:
    """Neither the parent's nor the child's own; what was used before counts."""
    now = [100.0]
    clock = LocalPort(clock=lambda: now[0], new_id=lambda: "run")
    child = paying(limits=Limits(deadline=10.0))
    agent = above(child, limits=Limits(deadline=20.0), port=clock)
    result = await agent.run("go")
    for held in (result, result.snapshot()):
        now[0] += 1000.0
        done = await agent.resume(held, decided(result))
        assert ("completed", ["found"]) == (done.status, contents(done.messages))


# --- ends while something waits


def ended(records: Sequence[Any]) -> dict[str, Any]:
    """Return run id -> the status that it ended with; None for one that did not."""
    found = {
        run: [one.facts["status"] for one in own if one.kind == "run_ended"]
        for run, own in by_run(records).items()
    }
    assert all(len(one) <= 1 for one in found.values())
    return {run: one[0] if one else None for run, one in found.items()}


@pytest.mark.parametrize("kept", ["result", "snapshot"])
@pytest.mark.parametrize("verb", ["stop", "fail", "raise"])
@pytest.mark.parametrize("build", [side_by_side, two_levels])
async def test_wrap_run_may_end_a_tree_that_waits(
    build: Callable[[], Agent[Any]], verb: str, kept: str
) -> None:
    """When it is entered again: every run below is ended, every call has one outcome, what was used is booked."""
    base = build()
    entered: list[int] = []

    def ends(run: RunState) -> RunState:
        if run.run_step == 0:
            return run
        entered.append(1)
        if verb == "raise":
            raise OSError("gone")
        return run.stop("enough") if verb == "stop" else run.fail("no more")

    agent = made(
        "parent",
        model=base.setup.model,
        tools=list(base.given.tools),
        capabilities=[at("wrap_run:in", ends)],
    )
    result = await agent.run("go")
    held = result.snapshot() if kept == "snapshot" else result
    if verb == "stop":
        done: RunResult[Any] = await agent.resume(held, decided(result))
        assert ("stopped", "enough") == (done.status, done.output)
    else:
        with pytest.raises(RunError) as caught:
            await agent.resume(held, decided(result))
        done = partial(caught.value)
    check_closed(done.messages)
    assert [] == PAID
    records = [*result.log, *done.log]
    check_tree(Log.from_records(records))
    statuses = ended(records)
    assert "cancelled" == statuses["run/a" if build is side_by_side else "run/c/g"]
    waiting = {"child": "unknown", "middle": "unknown", "look": "succeeded", "quick": "succeeded"}
    assert {(name, waiting[name]) for name, _ in results(done.messages)} == set(results(done.messages))
    requests = [one for one in records if one.kind == "model_responded"]
    calls = [one for one in records if one.kind in {"call_admitted", "call_refused"}]
    assert (len(requests), len(calls)) == (done.requests, done.tool_calls)


async def test_a_limit_beside_one_that_waits_ends_the_tree() -> None:
    """Two children at once: one waits, the other spends the parent's share."""
    greedy = made("greedy", *[call("look", {"n": n}, id=f"l{n}") for n in range(9)], tools=[look])
    calls = [ask("child", "a"), ask("greedy", "b")]
    agent = above(paying(), calls, "done", tools=[greedy.as_tool("Ask.")], limits=Limits(requests=6))
    with pytest.raises(LimitError) as caught:
        await agent.run("go")
    result = partial(caught.value)
    check_tree(result.log)
    assert {"run": "failed", "run/a": "cancelled", "run/b": "failed"} == ended(list(result.log))
    assert [("child", "unknown"), ("greedy", "failed")] == results(result.messages)
    assert len([one for one in result.log if one.kind == "model_responded"]) == result.requests


async def test_a_stop_beside_one_that_waits() -> None:
    """A wrapper around another call of the batch stops the run: what waits is ended too."""

    async def stops(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        return (await call_next(call)).stop("enough")

    calls = [ask(), call("look", {"n": 1}, id="l")]
    result = await above(paying(), calls, "done", tools=[look.with_capabilities(stops)]).run("go")
    assert ("stopped", "enough") == (result.status, result.output)
    assert {"run": "stopped", "run/c": "cancelled"} == ended(list(result.log))
    assert [("child", "unknown"), ("look", "succeeded")] == results(result.messages)
    check_tree(result.log)


@pytest.mark.parametrize("parallel", [None, 1])
async def test_cancelled_after_it_was_resumed(parallel: int | None) -> None:
    """One goes on, the other too, or has not begun to: all are closed, each call has one outcome."""

    async def wait(request: Any) -> None:
        if request.step == 2:
            await anyio.sleep(30)

    child = paying(pays(1), "late", wait=wait)
    agent = above(
        child, [ask("child", "a"), ask("child", "b")], "done", limits=Limits(max_parallel_tools=parallel)
    )
    result = await agent.run("go")
    sink = MemorySink()
    again = Agent(
        "parent",
        agent.setup.model,
        tools=agent.given.tools,
        sinks=[sink],
        port=agent.given.port,
        limits=Limits(max_parallel_tools=parallel),
    )
    with anyio.move_on_after(0.2) as scope:
        await again.resume(result.snapshot(), decided(result))
    assert scope.cancelled_caught
    records = [*result.log, *sink.records]
    assert {"cancelled"} == set(ended(records).values())
    check_tree(Log.from_records(records))
    outcomes = [
        one.facts["outcome"]["status"] for one in records if one.kind == "tool_settled" and one.run == "run"
    ]
    assert ["unknown", "unknown"] == outcomes


# --- wrappers around one that waits


def writer(verb: str) -> AnyCapability:
    """Return a capability that makes something of a call that waits."""

    class Writes(Capability):
        async def wrap_tool_execute(
            self, call_next: CallNext[CallState, CallState], call: CallState
        ) -> CallState:
            done = await call_next(call)
            assert done.outcome is not None
            if call.name != "child":
                return done
            if verb == "answer":
                return done.answer("instead")
            if verb == "refuse":
                return done.refuse("no")
            return done.with_content(f"<{done.outcome.content}>")

    return Writes()


async def test_what_a_wrapper_makes_of_a_call_that_waits_is_put_back() -> None:
    """On record as restored; when the call has its outcome, the wrapper has its say."""
    agent = above(paying(), capabilities=[writer("content")])
    result = await agent.run("go")
    (restored,) = [one for one in result.log if one.kind == "restored"]
    assert ("Writes", "wrap_tool_execute", ["outcome"]) == (
        restored.actor,
        restored.hook,
        list(restored.restored),
    )
    done = await agent.resume(result, decided(result))
    assert ["<found>"] == contents(done.messages)


@pytest.mark.parametrize("verb", ["answer", "refuse"])
async def test_a_wrapper_cannot_decide_in_place_of_a_person(verb: str) -> None:
    """It is put back, on record; in strict mode it ends the run, and what waits."""
    agent = above(paying(), capabilities=[writer(verb)])
    result = await agent.run("go")
    (restored,) = [one for one in result.log if one.kind == "restored"]
    assert ("suspended", ["verdict"]) == (result.status, list(restored.restored))
    with pytest.raises(HookError) as caught:
        await above(paying(), capabilities=[writer(verb)], strict=True).run("go")
    check_tree(partial(caught.value).log)


async def test_a_wrapper_that_runs_a_waiting_child_again_ends_the_first() -> None:
    """Nobody could decide for two runs of one call: the one before is closed, and paid for."""

    async def thrice(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        done = await call_next(call)
        for _ in range(2):
            assert done.outcome is not None
            if done.outcome.status != "succeeded":
                done = await call_next(call)
        return done

    low = paying(name="low")
    middle = above(low, ask("low", "g"), "passed on", name="middle")
    agent = made("parent", ask("middle"), "done", tools=[middle.as_tool("Ask.").with_capabilities(thrice)])
    result = await agent.run("go")
    assert ["run/c#3/g"] == [one.run_id for one in result.pending]
    assert {"cancelled": 4, None: 3} == _count(ended(list(result.log)).values())
    done = await agent.resume(result.snapshot(), decided(result))
    assert ([1], ["passed on"]) == (PAID, contents(done.messages))
    records = [*result.log, *done.log]
    check_tree(Log.from_records(records))
    assert len([one for one in records if one.kind == "model_responded"]) == done.requests
    assert 3 == len(settled(records)["below"])


@pytest.mark.parametrize("verb", ["refuse", "answer", "stop", "raise"])
async def test_a_wrapper_that_does_not_let_a_waiting_child_go_on_ends_it(verb: str) -> None:
    """What it had done stands: it is closed, paid for, and the call is no refused one; nothing may be answered over."""

    async def bars(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        if not call_next.resumed:
            return await call_next(call)
        if verb == "raise":
            raise RuntimeError("gone")
        barred: CallState = getattr(call, verb)("no")
        return barred

    child = paying([call("look", {"n": 7}), *pays(1)], "found").as_tool("Ask.").with_capabilities(bars)
    agent = made("parent", ask(), "done", tools=[child])
    result = await agent.run("go")
    try:
        done = await agent.resume(result.snapshot(), decided(result))
    except HookError as error:
        assert verb in {"answer", "raise"}
        done = partial(error)
    else:
        assert ("completed" if verb == "refuse" else "stopped") == done.status
    assert [("child", "unknown")] == results(done.messages)
    assert ([], 1 + 1 + (verb == "refuse")) == (PAID, done.requests)
    records = [*result.log, *done.log]
    check_tree(Log.from_records(records))
    assert ["run/c"] == [one["run"] for one in settled(records)["below"]]
    assert replay(Log.from_records(records), agent).records.head == done.log.head


async def test_a_wrapper_is_told_that_its_call_goes_on() -> None:
    """`resumed` is True for the way back to a run that waited, however often it did, and for no further attempt."""
    told: list[tuple[int, bool]] = []

    async def keeps(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        told.append((call_next.attempt, call_next.resumed))
        return await call_next(call)

    async def twice(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        done = await call_next(call)
        assert done.outcome is not None
        return done if done.outcome.status == "pending" else await call_next(call)

    child = paying(pays(1), pays(2), "found").as_tool("Ask.").with_capabilities(twice, keeps)
    agent = made("parent", ask(), "done", tools=[child])
    result = await agent.run("go")
    assert [(1, False)] == told
    result = await agent.resume(result.snapshot(), decided(result))
    assert [(1, False), (1, True)] == told
    result = await agent.resume(result.snapshot(), decided(result))
    assert [(1, False), (1, True), (1, True), (2, False)] == told
    assert "suspended" == result.status


def _count(values: Any) -> dict[Any, int]:
    found = list(values)
    return {value: found.count(value) for value in found}
