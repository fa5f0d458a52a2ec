"""DurableAgent on a SQLite file: all that it can do beside surviving; `test_durable_dbos` kills its processes."""

import asyncio
import functools
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from capfold.capabilities import FrozenDict, RequireApproval, call, tool
from capfold.runtime import (
    Agent,
    ApprovalRequest,
    Approve,
    CallSettled,
    DecisionError,
    Delta,
    Deny,
    Edit,
    LimitError,
    Limits,
    LocalPort,
    Settled,
)
from capfold.runtime.durable_batch import INTERRUPTED
from capfold.runtime.durable_engine import MAX_RECORDED
from capfold.runtime.durable_run import matched
from tests.runtime.desk import contents, look, pay, results
from tests.runtime.durable_desk import BySteps

pytest.importorskip("dbos", reason="dbos is missing: it is the extra `dbos`")

from capfold.runtime.dbos_home import Home, app_name
from capfold.runtime.dbos_port import DurableAgent
from capfold.runtime.dbos_runs import DurableRuns


@pytest.fixture
def anyio_backend() -> str:
    """Run on asyncio: DBOS knows no other loop."""
    return "asyncio"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a file that is not there yet."""
    return f"sqlite:///{tmp_path}/some/runs.sqlite"


def desk(replies: Sequence[Any], **options: Any) -> Agent[str]:  # Any: replies, and options of an agent
    """Return a desk."""
    options.setdefault("tools", (look, pay))
    return Agent("desk", BySteps(tuple(replies)), **options)


def asking() -> Agent[str]:
    """Return a desk that asks before it pays, and whose kid does."""
    ask = [RequireApproval(["pay"])]
    kid = Agent("kid", BySteps((call("pay", {"amount": 5}), "paid")), tools=(pay,), capabilities=ask)
    replies = (call("kid", {"task": "pay"}), call("pay", {"amount": 9}), "done")
    return desk(replies, tools=(pay, kid.as_tool("A kid.")), capabilities=ask)


async def until(true: Callable[[], Awaitable[object]]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(30):
        while not await true():  # noqa: ASYNC110  # the database tells nobody
            await asyncio.sleep(0.02)


async def test_it_needs_a_file_and_nothing_else(url: str) -> None:
    """It is opened when first used; a run comes to what it comes to in one process, in code and in the log."""
    durable = DurableAgent(desk((call("look", {"n": 1}), "done")), url)
    try:
        result = await durable.run("go", context={"tenant": "a"})
        wanted = await desk((call("look", {"n": 1}), "done")).run("go", context={"tenant": "a"})
        assert ("completed", "done") == (result.status, result.output)
        assert wanted.log.head == result.log.head
        (info,) = await durable.list()
        assert (result.state.run_id, "completed") == (info.run_id, info.status)
    finally:
        await durable.close()


def test_what_nobody_closed_ends_with_its_event_loop(url: str) -> None:
    """One line is enough for a script: nothing is left that would keep the process, and the agent can be used again."""
    durable = DurableAgent(desk(("done",)), url)
    for n in range(2):
        assert "done" == asyncio.run(durable.run("go", run_id=f"run-{n}")).output
        assert Home.current is None
    asyncio.run(durable.close())


async def test_decisions_may_come_days_later_from_any_process(url: str) -> None:
    """No worker lives when they are sent; the next one goes on, a run below included, and each is decided once."""
    async with DurableAgent(asking(), url) as durable:
        run_id = await durable.start("go")
        await until(lambda: durable.pending(run_id))
    runs = DurableRuns(url)
    try:
        (request,) = await runs.pending(run_id)
        assert ("kid", {"amount": 5}) == (request.agent, request.arguments)
        assert "waiting" == (await runs.show(run_id)).status
        with pytest.raises(DecisionError, match="no pending request has the digest 'x'"):
            await runs.decide(run_id, {"x": Approve()}, now=0.0)
        await runs.decide(run_id, {request.digest: Approve()}, now=0.0)
        await runs.decide(run_id, {request.digest: Approve()}, now=0.0)  # as before: nothing to refuse
        with pytest.raises(DecisionError, match="otherwise"):
            await runs.decide(run_id, {request.digest: Deny()}, now=0.0)
    finally:
        await runs.close()
    async with DurableAgent(asking(), url) as durable:

        async def asks_itself() -> bool:
            return any(one.agent == "desk" for one in await durable.pending(run_id))

        await until(asks_itself)
        (request,) = await durable.pending(run_id)
        result = await durable.resume(run_id, {request.digest: Deny("Not nine.")})
        assert [("kid", "succeeded"), ("pay", "denied")] == results(result.messages)
        with pytest.raises(DecisionError, match="waits for no decision: it is completed"):
            await durable.decide(run_id, {request.digest: Approve()})


async def test_a_run_that_waits_or_works_can_be_stopped(url: str) -> None:
    """It ends as a result; its runs below end with it; one that has ended stays as it is."""

    @tool
    async def hang() -> str:
        """Never end."""
        await asyncio.sleep(1000)
        return ""

    async with DurableAgent(asking(), url) as durable:
        run_id = await durable.start("go")
        await until(lambda: durable.pending(run_id))
        await durable.stop(run_id, "enough")
        result = await durable.result(run_id)
        assert ("stopped", "enough") == (result.status, result.output)
        await durable.stop(run_id, "again")
        assert ["stopped"] == [one.status for one in await durable.list() if one.run_id == run_id]

        durable.replace(desk((call("hang"), "done"), tools=(hang,)))
        run_id = await durable.start("go")
        await durable.stop(run_id, "enough")
        result = await durable.result(run_id)
        assert "stopped" == result.status
        with pytest.raises(LookupError, match="no durable run 'nobody'"):
            await durable.stop("nobody", "enough")


async def test_a_stop_counts_before_a_decision(url: str) -> None:
    """Though no process lives that hears of either: nothing is decided after it, and what was is not begun."""
    paid: list[int] = []

    @tool
    def spend(amount: int) -> str:
        """Spend."""
        paid.append(amount)
        return "spent"

    agent = desk(
        (call("spend", {"amount": 1}), "done"), tools=(spend,), capabilities=[RequireApproval(["spend"])]
    )
    async with DurableAgent(agent, url) as durable:
        for run_id in ("decided", "stopped"):
            await durable.start("go", run_id=run_id)
            await until(functools.partial(durable.pending, run_id))
    runs = DurableRuns(url)
    try:
        (request,) = await runs.pending("decided")
        await runs.decide("decided", {request.digest: Approve()}, now=0.0)
        for run_id in ("decided", "stopped"):
            await runs.stop(run_id, "enough")
        (request,) = await runs.pending("stopped")
        with pytest.raises(DecisionError, match="was stopped already"):
            await runs.decide("stopped", {request.digest: Approve()}, now=0.0)
    finally:
        await runs.close()
    async with DurableAgent(agent, url) as durable:
        for run_id in ("decided", "stopped"):
            result = await durable.result(run_id)
            assert ("stopped", "enough") == (result.status, result.output)
    assert [] == paid


async def test_a_tool_that_swallows_its_cancellation_delays_the_end_only(url: str) -> None:
    """Its run is left all the same, once the tool returns."""
    begun = asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Go on."""
        begun.set()
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
        return "I went on"

    durable = DurableAgent(desk((call("stubborn"), "done"), tools=(stubborn,)), url)
    await durable.start("go")
    async with asyncio.timeout(30):
        await begun.wait()
        assert 1 == await durable.close()


async def test_a_run_can_be_forked_at_a_step(url: str) -> None:
    """What came before is shared, the rest is done anew, with the agent as it is now, under an id of its own."""
    done: list[int] = []

    @tool
    def work(n: int) -> str:
        """Work."""
        done.append(n)
        return f"did {n}"

    def make(*replies: Any) -> Agent[str]:
        return desk(replies, tools=(work,))

    async with DurableAgent(make(call("work", {"n": 1}), call("work", {"n": 2}), "done"), url) as durable:
        first = await durable.run("go", run_id="first")
        durable.replace(make(call("work", {"n": 7}), call("work", {"n": 3}), "other"))
        forked = await durable.result(await durable.fork("first", 2))
        assert "other" == forked.output
        assert [1, 2, 3] == done
        assert ["did 1", "did 3"] == contents(forked.messages)
        assert first.messages[:3] == forked.messages[:3]
        assert "first" == (await durable.runs.show(forked.state.run_id)).forked_from
        with pytest.raises(ValueError, match="from a step that it reached, not from 9"):
            await durable.fork("first", 9)


async def test_a_fork_shares_decisions(url: str) -> None:
    """What was decided before the step is not asked again, though under another id; nor by a fork of a fork."""
    agent = desk(
        (call("pay", {"amount": 1}), call("pay", {"amount": 2}), "done"),
        capabilities=[RequireApproval(["pay"])],
    )

    async def decide(durable: DurableAgent[str], run_id: str, amount: int) -> None:
        async def asks() -> bool:
            return any(amount == one.arguments["amount"] for one in await durable.pending(run_id))

        await until(asks)
        (request,) = await durable.pending(run_id)
        await durable.decide(run_id, {request.digest: Deny(f"Not {amount}.")})

    async with DurableAgent(agent, url) as durable:
        first = await durable.start("go")
        await decide(durable, first, 1)
        await decide(durable, first, 2)
        wanted = await durable.result(first)
        second = await durable.fork(first, 2)
        await decide(durable, second, 2)  # of the step that is done anew
        assert contents(wanted.messages) == contents((await durable.result(second)).messages)
        third = await durable.fork(second, 3)
        assert contents(wanted.messages) == contents((await durable.result(third)).messages)
    async with DurableAgent(agent, url) as durable:  # from records alone
        assert contents(wanted.messages) == contents((await durable.result(third)).messages)


async def test_an_edit_that_does_not_fit_is_refused(url: str) -> None:
    """Where it is decided, and the run still waits; with arguments that fit it goes on."""
    agent = desk((call("pay", {"amount": 1}), "done"), capabilities=[RequireApproval(["pay"])])
    async with DurableAgent(agent, url) as durable:
        run_id = await durable.start("go")
        await until(lambda: durable.pending(run_id))
        (request,) = await durable.pending(run_id)
        for wrong in ({"amount": "much"}, {}):
            with pytest.raises(DecisionError, match="edited arguments of pay are not valid"):
                await durable.decide(run_id, {request.digest: Edit(wrong)})
        assert (request,) == await durable.pending(run_id)
        result = await durable.resume(run_id, {request.digest: Edit({"amount": 2})})
        assert [("pay", "succeeded")] == results(result.messages)


def test_an_interrupted_call_is_not_edited() -> None:
    """Whoever decides is told so, with or without the agent: its arguments may have taken effect already."""
    request = ApprovalRequest(
        digest="d",
        run_id="r",
        agent="desk",
        call_id="c",
        tool="pay",
        arguments=FrozenDict({"amount": 1}),
        prompts=("Again?",),
        asked_by=INTERRUPTED,
        always="off",
        timeout=None,
    )
    assert (Approve(),) == matched((request,), {"d": Approve()})
    with pytest.raises(DecisionError, match="run again as it was"):
        matched((request,), {"d": Edit({"amount": 2})})
    edited = evolve(request, asked_by=("RequireApproval",))
    assert (Edit({"amount": 2}),) == matched((edited,), {"d": Edit({"amount": 2})})


async def test_a_changed_agent_breaks_a_run_with_a_sentence(url: str) -> None:
    """Where it does not come to what is recorded: it waits for nothing then, and can be forked from before that."""
    replies = (call("pay", {"amount": 1}), "done")
    async with DurableAgent(desk(replies, capabilities=[RequireApproval(["pay"])]), url) as durable:
        run_id = await durable.start("go")
        await until(lambda: durable.pending(run_id))
    async with DurableAgent(desk(replies), url) as durable:
        with pytest.raises(
            RuntimeError, match=r"comes to '2:1:call/call_1_0' where its records have another step"
        ):
            await durable.result(run_id)
        info = await durable.runs.show(run_id)
        assert ("broken", ()) == (info.status, info.pending)
        assert () == await durable.pending(run_id)
        assert "done" == (await durable.result(await durable.fork(run_id, 1))).output


async def test_agents_whose_names_look_alike_keep_apart(url: str) -> None:
    """The runs of one are none of the other's, though DBOS takes few letters in a name."""
    names = ("Kasse 1", "kasse-1", "顧客", "銀行")
    assert len(names) == len({app_name(name) for name in names})
    first = Agent("顧客", BySteps((call("pay", {"amount": 1}), "one")), tools=(pay,))
    async with DurableAgent(first, url) as durable:
        run_id = await durable.start("go")
    async with DurableAgent(Agent("銀行", BySteps(("other",))), url) as durable:
        assert "other" == (await durable.run("go")).output
        assert run_id not in [one.run_id for one in await durable.list()]
    async with DurableAgent(first, url) as durable:
        assert "one" == (await durable.result(run_id)).output


async def test_a_live_run_is_followed(url: str) -> None:
    """Deltas and settled messages come through the database, and end with the run."""
    async with DurableAgent(desk((call("look", {"n": 1}), "all done")), url) as durable:
        run_id = await durable.start("go", live=True)
        events = [event async for event in durable.events(run_id)]
        assert "all done" == "".join(event.text for event in events if isinstance(event, Delta))
        result = await durable.result(run_id)
        assert list(result.messages[1:]) == [event.message for event in events if isinstance(event, Settled)]
        assert 1 == sum(isinstance(event, CallSettled) for event in events)


async def test_long_values_and_failures_cross_processes(url: str) -> None:
    """A result read from records alone is the one that was returned; a failure is raised with its reason."""
    long = "x" * (MAX_RECORDED + 10)

    @tool(read_only=True)
    def read() -> str:
        """Read a lot."""
        return long

    def make() -> Agent[str]:
        return desk((call("read"), call("read"), "done"), tools=(read,), limits=Limits(requests=2))

    async with DurableAgent(make(), url) as durable:
        with pytest.raises(LimitError) as here:
            await durable.run(long, run_id="long")
    async with DurableAgent(make(), url) as durable:
        with pytest.raises(LimitError) as there:
            await durable.result("long")
        assert here.value.reason == there.value.reason
        assert here.value.partial is not None
        assert there.value.partial is not None
        assert here.value.partial.log.head == there.value.partial.log.head
        assert [long, long] == contents(there.value.partial.messages)
        assert "failed" == (await durable.runs.show("long")).status
        with pytest.raises(LookupError):
            await durable.result("nobody")
        with pytest.raises(LookupError):
            await anext(durable.events("nobody"))


async def test_a_database_without_runs_says_so(tmp_path: Path) -> None:
    """At once, and no file is made; what is no database is named."""
    nothing = tmp_path / "nothing.sqlite"
    runs = DurableRuns(f"sqlite:///{nothing}")
    for ask in (lambda: runs.pending("x"), lambda: runs.decide("x", {}, now=0.0), lambda: runs.show("x")):
        with pytest.raises(LookupError, match=r"no durable runs in sqlite:///.*nothing\.sqlite"):
            await ask()
    assert not nothing.exists()
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"no database" * 1000)
    for file in (damaged, tmp_path):
        with pytest.raises(ConnectionError, match=re.escape(f"{file} cannot hold durable runs")):
            await DurableAgent(desk(("done",)), f"sqlite:///{file}").open()
    assert Home.current is None


async def test_what_a_run_cannot_be_started_with_is_refused(url: str) -> None:
    """Before anything is recorded."""
    async with DurableAgent(desk(("done",)), url) as durable:
        for wrong in ({"run_id": ""}, {"run_id": 7}, {"live": "yes"}):
            options: Any = wrong
            with pytest.raises(TypeError, match=next(iter(wrong))):
                await durable.start("go", **options)
        assert () == await durable.list()


@pytest.mark.parametrize(
    ("module", "extra"), [("dbos_port", "dbos"), ("dbos_runs", "dbos"), ("temporal_port", "temporal")]
)
def test_a_missing_extra_is_named(module: str, extra: str) -> None:
    """By the first import that needs it."""
    missing = {"dbos": "dbos", "temporal": "temporalio.client"}[extra]
    code = f"import sys; sys.modules[{missing!r}] = None; import capfold.runtime.{module}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"pip install 'capfold[{extra}]'" in ran.stderr


async def test_one_agent_is_open_in_a_process(url: str) -> None:
    """DBOS is launched once; the second is told whose it is."""
    async with DurableAgent(desk(("done",)), url):
        other = DurableAgent(desk(("done",)), url + "2")
        with pytest.raises(RuntimeError, match="carries on runs of 'desk'"):
            await other.open()
        await other.close()


@pytest.mark.parametrize("wrong", ["", "mysql://x/y", "sqlite://"])
def test_a_database_of_another_kind_is_refused(wrong: str) -> None:
    """When it is built, with the two that are right."""
    with pytest.raises(Exception, match=re.escape("sqlite:///") + "|URL"):
        DurableAgent(desk(("done",)), wrong)


def test_what_is_no_durable_agent_is_refused() -> None:
    """When it is built."""
    nothing: Any = LocalPort()
    with pytest.raises(TypeError, match="takes an Agent, not LocalPort"):
        DurableAgent(nothing)
    with pytest.raises(ValueError, match="lease is a number"):
        DurableAgent(desk(("done",)), lease=0.1)
    with pytest.raises(TypeError, match="version"):
        DurableAgent(desk(("done",)), version="")


def test_on_trio_it_says_so(url: str) -> None:
    """Before anything is opened."""
    import trio  # noqa: PLC0415  # of this test alone

    with pytest.raises(RuntimeError, match="on asyncio"):
        trio.run(DurableAgent(desk(("done",)), url).open)
