"""What a store could bring back: a decision that was used, input that was blocked (C34, C49)."""

from collections.abc import Callable
from typing import Any

import pytest

from capfold.capabilities import Capability, RequireApproval, RunState, call
from capfold.runtime import Approve, RunResult
from capfold.runtime.memory_store import MemoryStore
from capfold.runtime.stores import SnapshotClaimed
from tests.conformance.kit import requests_of, texts
from tests.corruption.builders import Bodies, agent, failure

# A suspended run, as it may be given to `resume`.
FORMS: dict[str, Callable[[RunResult[Any]], Any]] = {
    "id": lambda result: result.state.run_id,
    "text": lambda result: result.snapshot(),
    "result": lambda result: result,
}


@pytest.mark.parametrize("form", FORMS)
async def test_c34_one_decision_used_three_times(form: str) -> None:
    """A second and a third resume of one snapshot against one store are refused; the effect happens once."""
    bodies, store = Bodies(), MemoryStore()
    made = agent(
        [call("pay", {"amount": 10}, id="x"), "paid", "paid again", "and again"],
        tools=[bodies.pay(destructive=True)],
        capabilities=[RequireApproval()],
        store=store,
    )
    waiting = await made.run("go")
    given, decisions = FORMS[form](waiting), {waiting.pending[0].digest: Approve()}
    assert "paid" == (await made.resume(given, decisions)).output
    for again in (given, *(other(waiting) for other in FORMS.values())):
        with pytest.raises(SnapshotClaimed):
            await made.resume(again, decisions)
    assert [("pay", 10)] == bodies.ran
    assert 2 == len(requests_of(made))


async def test_c34_each_suspension_is_decided_once() -> None:
    """A run that waits a second time has a new snapshot; the first decision, and the first snapshot, are spent."""
    bodies, store = Bodies(), MemoryStore()
    made = agent(
        [call("pay", {"amount": 1}, id="x"), call("pay", {"amount": 2}, id="y"), "paid"],
        tools=[bodies.pay(destructive=True)],
        capabilities=[RequireApproval()],
        store=store,
    )
    first = await made.run("go", run_id="r")
    second = await made.resume("r", {first.pending[0].digest: Approve()})
    for given in (first, first.snapshot()):
        with pytest.raises(SnapshotClaimed):
            await made.resume(given, {first.pending[0].digest: Approve()})
    await made.resume("r", {second.pending[0].digest: Approve()})
    assert [("pay", 1), ("pay", 2)] == bodies.ran


class Guard(Capability):
    """Blocks input that says so, in one of the ways there are."""

    def before_run(self, state: RunState) -> RunState:
        if "raise" in str(state.messages[-1].content):
            raise ValueError("blocked")
        if "stop" in str(state.messages[-1].content):
            return state.stop("I cannot help with that.")
        return state.fail("blocked") if "fail" in str(state.messages[-1].content) else state


@pytest.mark.parametrize("way", ["fail", "stop", "raise"])
async def test_c49_blocked_input_is_nowhere(way: str) -> None:
    """Not in the store, and not in the next run's request; nor is the stop's message, as if the model had said it."""
    store = MemoryStore()
    made = agent(["hello", "fine"], capabilities=[Guard()], store=store)
    await made.run("hi", conversation="c")
    if way == "stop":
        assert "stopped" == (await made.run("stop: a secret", conversation="c")).status
    else:
        await failure(made.run(f"{way}: a secret", conversation="c"))
    assert ["hi", "hello"] == texts(await store.load("c"))
    await made.run("how are you?", conversation="c")
    assert ["hi", "hello", "how are you?"] == texts(requests_of(made)[1].messages)
