"""Suspend in one process, resume in another; what does not fit is refused, and nothing is lost."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from capfold.capabilities import RequireApproval, ToolBudget, call
from capfold.capabilities.capability import AnyCapability
from capfold.runtime import (
    Agent,
    Approve,
    CodecError,
    DecisionError,
    LimitError,
    Limits,
    RunResult,
    ScriptedModel,
)
from capfold.runtime.replies import Reply
from tests.runtime.desk import check_closed, contents, make, results
from tests.runtime.resume_desk import Tally, build, pay

ROOT = Path(__file__).parents[2]


def desk(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run the desk as a process of its own."""
    # Not -m: the capability's class would then be of another module, and the list a changed one.
    start = "import sys, anyio; from tests.runtime.resume_desk import main; anyio.run(main, sys.argv[1:])"
    command = [sys.executable, "-c", start, *arguments]
    return subprocess.run(
        command, input=text, capture_output=True, text=True, cwd=ROOT, check=True, timeout=60
    )


async def waiting() -> RunResult[str]:
    """Return a suspended run."""
    return await build().run("go", context={"user": "u"})


async def test_snapshot_of_equal_runs_is_equal() -> None:
    """Two processes that suspend the same run write the same text."""
    assert desk("suspend").stdout == (await waiting()).snapshot()


@pytest.mark.parametrize(
    ("decision", "expected", "paid"),
    [
        (
            "approve",
            [["free", "succeeded", "paid 5"], ["first", "succeeded", "paid 10"]],
            {"paid 5", "paid 10"},
        ),
        ("deny", [["free", "denied", "no"], ["first", "denied", "no"]], set()),
        ("edit", [["free", "succeeded", "paid 3"], ["first", "succeeded", "paid 3"]], {"paid 3"}),
        ("answer", [["free", "answered", "by hand"], ["first", "answered", "by hand"]], set()),
    ],
)
async def test_resume_in_another_process(decision: str, expected: list[list[str]], paid: set[str]) -> None:
    """Slots, context, counters and the log's chain go on as if nobody had waited."""
    suspended = await waiting()
    pending = [request.digest for request in suspended.pending]
    process = desk("resume", decision, json.dumps(pending), text=suspended.snapshot())
    told = json.loads(process.stdout)
    assert ("completed", "done", expected) == (told["status"], told["output"], told["results"])
    assert paid == set(process.stderr.split("\n")) - {""}
    assert ({"user": "u"}, 2, 2) == (told["context"], told["requests"], told["tool_calls"])
    assert 2 == told["tally"]
    assert ["run_resumed", len(suspended.log)] == told["first"]
    decisions = {digest: Approve() for digest in pending}
    if decision == "approve":  # suspending is not in the chain: one process comes to the same head
        here = await build(resumed=True).resume(suspended, decisions)  # a result keeps its own script
        assert here.log.head == told["head"]


async def test_snapshot_is_json_with_a_version() -> None:
    """Another version, another kind, a missing field, a tampered tool: each is refused by name."""
    text = (await waiting()).snapshot()
    assert isinstance(json.loads(text), dict)
    agent = build(resumed=True)
    for spoilt in _spoilt(text):
        with pytest.raises(CodecError):
            await agent.resume(spoilt, {})
    for nonsense in ("", "{}", "[]", "not json", '{"kind": "suspended run"}'):
        with pytest.raises(CodecError):
            await agent.resume(nonsense, {})


def _spoilt(text: str) -> list[str]:
    whole = json.loads(text)
    (version,) = [key for key, value in whole.items() if type(value) is int]
    made: list[Any] = [{**whole, version: whole[version] + 1}, {**whole, "more": 1}]
    (inside,) = [key for key, value in whole.items() if isinstance(value, dict)]
    body: dict[str, Any] = whole[inside]
    made += [{**whole, inside: {k: v for k, v in body.items() if k != gone}} for gone in body]
    made.append({**whole, inside: {**body, "more": 1}})
    return [json.dumps(spoilt) for spoilt in made] + [text[:-5], text + "x"]


async def test_changed_list_is_refused_unless_allowed() -> None:
    """Each changed, new or missing capability is named; allowing exactly these keys lets the run go on."""
    suspended = await waiting()
    text = suspended.snapshot()
    decisions = {request.digest: Approve() for request in suspended.pending}
    changed = build(resumed=True, tally=Tally(2))
    with pytest.raises(ValueError, match="Tally is configured otherwise"):
        await changed.resume(text, decisions)
    assert "completed" == (await changed.resume(text, decisions, allow_changed={"Tally"})).status
    other = build(resumed=True, tally=ToolBudget(9))
    with pytest.raises(ValueError, match="Tally is gone; ToolBudget is new"):
        await other.resume(text, decisions)
    with pytest.raises(ValueError, match="ToolBudget is new"):
        await other.resume(text, decisions, allow_changed={"Tally"})
    with pytest.raises(ValueError, match="Tally is configured otherwise"):
        await changed.resume(suspended, decisions)


async def test_snapshot_of_another_agent_is_refused() -> None:
    """Name and model must be the agent's; a tool that is gone is an error."""
    text = (await waiting()).snapshot()
    script = ScriptedModel(["done"])
    capabilities: list[AnyCapability] = [RequireApproval(), Tally()]
    with pytest.raises(ValueError, match="agent 'desk'"):
        await Agent("other", script, tools=[pay], capabilities=capabilities).resume(text, {})
    with pytest.raises(ValueError, match="agent 'desk'"):  # rather than that its tools are not there
        await Agent("other", script, tools=[], capabilities=[Tally()]).resume(text, {})
    named = Agent("desk", ScriptedModel(["done"], name="another"), tools=[pay], capabilities=capabilities)
    with pytest.raises(ValueError, match="scripted"):
        await named.resume(text, {})
    with pytest.raises(CodecError):
        await Agent("desk", script, tools=[], capabilities=capabilities).resume(text, {})
    changed = evolve(pay, parameters={"type": "object", "properties": {"amount": {"type": "string"}}})
    with pytest.raises(CodecError):
        await Agent("desk", script, tools=[changed], capabilities=capabilities).resume(text, {})


async def test_forged_snapshot_does_not_run_what_was_not_asked() -> None:
    """Arguments changed inside the text no longer fit what the person was asked about: nothing runs."""
    suspended = await waiting()
    text = suspended.snapshot()
    decisions = {request.digest: Approve() for request in suspended.pending}
    forged = text.replace('"amount":10', '"amount":1000').replace('"amount": 10', '"amount": 1000')
    assert forged != text
    with pytest.raises((DecisionError, CodecError)):
        await build(resumed=True).resume(forged, decisions)


async def test_limits_and_settings_come_from_the_snapshot() -> None:
    """A resumed run is held to what it started with."""
    agent = make([call("pay", {"amount": 1}), "done"], capabilities=[RequireApproval()])
    suspended = await agent.run("go", limits=Limits(requests=1), settings={"seed": 3})
    text = suspended.snapshot()
    with pytest.raises(LimitError, match="requests"):
        await agent.resume(text, {suspended.pending[0].digest: Approve()})


async def test_deadline_does_not_count_the_wait() -> None:
    """Time between suspension and decision is not the run's."""
    from capfold.runtime import LocalPort  # noqa: PLC0415  # a clock that can be set

    now = [0.0]
    agent = make(
        [call("pay", {"amount": 1}), "done"],
        capabilities=[RequireApproval()],
        limits=Limits(deadline=10.0),
        port=LocalPort(clock=lambda: now[0]),
    )
    suspended = await agent.run("go")
    now[0] = 1000.0
    decisions = {suspended.pending[0].digest: Approve()}
    assert "completed" == (await agent.resume(suspended.snapshot(), decisions)).status


async def test_suspended_twice() -> None:
    """A run may wait more than once; each part continues the chain."""
    agent = make(
        [call("pay", {"amount": 1}), call("pay", {"amount": 2}), "done"], capabilities=[RequireApproval()]
    )
    one = await agent.run("go")
    two = await agent.resume(one.snapshot(), {one.pending[0].digest: Approve()})
    assert "suspended" == two.status
    done = await agent.resume(two.snapshot(), {two.pending[0].digest: Approve()})
    assert ["paid 1", "paid 2"] == contents(done.messages)
    assert [("pay", "succeeded")] * 2 == results(done.messages)
    check_closed(done.messages)
    heads = [two.log[0].prev == one.log.head, done.log[0].prev == two.log.head]
    assert [True, True] == heads
    straight = make(
        [call("pay", {"amount": 1}), call("pay", {"amount": 2}), "done"],
        capabilities=[RequireApproval()],
        approver=lambda requests: [Approve() for _ in requests],
    )
    assert (await straight.run("go")).log.head == done.log.head


def test_snapshot_needs_no_live_objects() -> None:
    """Nothing but JSON text crosses: no function, no deps, no model."""
    import anyio  # noqa: PLC0415  # a loop for one run

    text = anyio.run(waiting).snapshot()
    assert "0x" not in text
    assert "<function" not in text


def leaves_of(value: Any, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Return the path of every scalar in a JSON value."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [found for key, member in items for found in leaves_of(member, (*path, key))]
    return [path]


async def test_every_edited_leaf_is_refused() -> None:
    """Whatever is changed by hand in a snapshot, it is no snapshot any more; nothing runs by it."""
    result = await waiting()
    text = result.snapshot()
    decisions = {request.digest: Approve() for request in result.pending}
    for path in leaves_of(json.loads(text)):
        document = place = json.loads(text)
        for step in path[:-1]:
            place = place[step]
        old = place[path[-1]]
        place[path[-1]] = not old if isinstance(old, bool) else old + 1 if isinstance(old, int) else f"{old}x"
        with pytest.raises(ValueError, match=r".+"):
            await build().resume(json.dumps(document), decisions)
    assert "suspended" == (await build().resume(text, decisions)).status, (
        "the untouched one goes on to its next question"
    )


async def test_another_output_type_is_refused() -> None:
    """A run that was to put out a number is not resumed by an agent that puts out text."""

    def agent(kind: type[object], *replies: Reply) -> Agent[object]:
        gate = [RequireApproval({"pay"})]
        return Agent("desk", ScriptedModel(replies), tools=[pay], output_type=kind, capabilities=gate)

    suspended = await agent(int, call("pay", {"amount": 1})).run("go")
    approved = {request.digest: Approve() for request in suspended.pending}
    with pytest.raises(ValueError, match="is to put out int, and this agent text"):
        await agent(str).resume(suspended.snapshot(), approved)
    assert 3 == (await agent(int, "3").resume(suspended.snapshot(), approved)).output
