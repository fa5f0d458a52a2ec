"""Differences between logs: the first one, field by field; equal runs have none, whatever they are called."""

from typing import Any

from attrs import frozen

from capfold.capabilities import Capability, RunState, call
from capfold.runtime import Agent, Log, ScriptedModel
from capfold.runtime.log_diff import ABSENT, diff
from tests.corruption.scenes import Works, batch
from tests.runtime.desk import port
from tests.runtime.family import above, ask, made


@frozen
class Marks(Capability):
    """Notes a word before a step."""

    word: str
    step: int = 2

    def before_model_request(self, state: RunState) -> RunState:
        return state.note(self.word) if state.run_step == self.step else state


async def log_of(*capabilities: Capability, last: str = "done", run_id: str = "r") -> Log:
    """Return the log of a run of two steps."""
    agent = Agent(
        "desk",
        ScriptedModel([batch(0), last]),
        tools=[Works().tool()],
        capabilities=capabilities,
        port=port(),
    )
    return (await agent.run("go", run_id=run_id)).log


async def test_equal_runs_do_not_differ() -> None:
    """Other ids, other times, with runs below: no difference, and a Diff that is false."""

    def tree() -> Agent[Any]:
        child = made("child", call("work", {"n": 1}), "found", tools=[Works().tool()])
        return above(child, ask(), "done")

    one = await tree().run("go", run_id="one")
    other = await tree().run("go", run_id="other")
    found = diff(one.log, other.log)
    assert not found
    assert len(one.log) == found.same
    assert f"{len(one.log)} records are equal; there is no difference" == str(found)


async def test_the_first_difference_is_named() -> None:
    """By run, record and field, with both values; what follows from it is not."""
    found = diff(await log_of(Marks("a"), last="x"), await log_of(Marks("a"), last="y", run_id="other"))
    difference = found.difference
    assert difference is not None
    (parting,) = difference.fields
    assert ("facts.response.content", "x", "y") == (parting.field, parting.a, parting.b)
    assert (
        f"{found.same} records are equal, then:\nrun r, record {found.same}: model model_responded in step 2"
        in str(found)
    )
    assert '\n  facts.response.content: "x" | "y"' in str(found)


async def test_lists_and_missing_members() -> None:
    """Each place of a list; a member that one side does not have is nothing there."""
    found = diff(await log_of(Marks("a", 2)), await log_of(Marks("b", 2), run_id="other"))
    assert found.difference is not None
    fields = {one.field: (one.a, one.b) for one in found.difference.fields}
    assert ("a", "b") == fields["facts.list[0].config.word"]
    later = diff((await log_of(Marks("a")))[1:], (await log_of(Marks("b", 3)))[1:])
    assert later.difference is not None
    assert ("changes.notes", "nothing") == next(
        (one.field, repr(one.b)) for one in later.difference.fields if one.b is ABSENT
    )


async def test_one_log_ends_before_the_other() -> None:
    """The first record that is missing, on either side; a run that only one of them has."""
    log = await log_of()
    assert "runtime run_ended in step 2: missing in the second" in str(diff(log, log[: len(log) - 1]))
    assert "runtime run_ended in step 2: missing in the first" in str(diff(log[: len(log) - 1], log))
    two = [*log, *(await log_of(run_id="s"))]
    assert "run s: runtime run_started in step 0: missing in the first" in str(diff(log, two))
    assert diff([], []).same == 0
