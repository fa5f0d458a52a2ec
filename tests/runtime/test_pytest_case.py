"""Cases: a failed run fails again from its log alone, and a pytest file says so in as few exchanges as it takes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import evolve, frozen

from capfold.capabilities import (
    CallNext,
    CallState,
    Capability,
    Outside,
    RequireApproval,
    RunState,
    ToolFailed,
    UserMessage,
    call,
    tool,
)
from capfold.capabilities.frozen import FrozenDict
from capfold.runtime import Agent, Approve, Limits, Log, MemoryStore, ModelError, RunError, ScriptedModel
from capfold.runtime.errors import ReplayError
from capfold.runtime.pytest_case import Case, case_of, read_case
from capfold.runtime.pytest_file import pytest_file

LEAVES = RuntimeError("something outside was reached")


@frozen
class Minds(Capability[int]):
    """Gathers, counts, retries, and breaks when it has seen `most` results of a kind."""

    most: int = 2

    async def gather_before_model_request(self, state: RunState, outside: Outside) -> Any:
        if outside.deps is None:
            raise LEAVES
        return state.run_step

    def initial(self) -> int:
        return 0

    def before_model_request(self, state: RunState) -> RunState:
        assert state.fact(self) is not None
        return state

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        done = await call_next(call)
        return await call_next(call) if done.outcome is not None and done.outcome.status == "failed" else done

    def after_tool_execute(self, call: CallState) -> CallState:
        assert call.outcome is not None
        bad = call.slot(self) + (call.outcome.status == "failed")
        if bad >= self.most:
            return evolve(call, facts=FrozenDict({"forged": 1}))
        return call.put(self, bad)


async def failed(script: list[Any], *capabilities: Any, **options: Any) -> Log:
    """Return the log of a run that fails; tools fail for odd numbers."""
    bodies: list[int] = []

    @tool
    async def work(n: int) -> str:
        """Work."""
        bodies.append(n)
        if n % 2:
            raise ToolFailed(f"odd {n}")
        return f"did {n}"

    with pytest.raises(RunError) as caught:
        await Agent(
            "desk", ScriptedModel(script), tools=[work], capabilities=capabilities, deps="here", **options
        ).run("go", messages=options.pop("messages", ()))
    assert caught.value.partial is not None
    return caught.value.partial.log


SCRIPT = [*(call("work", {"n": n}) for n in (0, 1, 2, 4, 3, 6)), "done"]


def fails(case: Case, capabilities: Any = ()) -> bool:
    """Tell whether a case fails its way, read from its own text."""
    return read_case(case.to_text()).fails(capabilities)


def test_it_fails_again_and_is_shrunk() -> None:
    """Only the two exchanges that it takes are left; gatherers and tools are not called."""
    case = case_of(anyio.run(lambda: failed(SCRIPT, Minds())))
    assert ("IllegalTransition", "Minds", "after_tool_execute", "facts") == case.way
    assert 6 == len(case.exchanges)
    assert fails(case, [Minds()])
    assert not fails(case, [])
    assert not fails(case, [Minds(most=9)])
    small = case.shrunk([Minds()])
    assert 3 == len(small.exchanges)  # the first holds what comes before a request
    assert fails(small, [Minds()])


@pytest.mark.parametrize(
    ("script", "capabilities", "options", "kind"),
    [
        ([call("work", {"n": 0}), ModelError("auth", "who?", retryable=False)], [], {}, "ModelFailed"),
        ([call("work", {"n": 0})] * 4, [], {"limits": Limits(tool_calls=2)}, "LimitExceeded"),
        ([call("work", {"n": 1})] * 5, [], {}, "ToolRetriesExhausted"),
        ([call("nowhere", {}), call("nowhere", {})], [], {}, "UnselectedRetriesExhausted"),
        (["x", "y"], [], {"output_type": int}, "OutputRetriesExhausted"),
        (
            [call("work", {"n": 2})] * 3,
            [RequireApproval({"work"})],
            {"approver": lambda requests: [Approve()], "limits": Limits(max_steps=2)},
            "LimitExceeded",
        ),
    ],
)
def test_each_kind_of_failure(
    script: Any, capabilities: Any, options: Any, kind: str, tmp_path: Path
) -> None:
    """The file that is written passes, in another process, with ready-made capabilities or none."""
    case = case_of(anyio.run(lambda: failed(script, *capabilities, **options)))
    assert kind == case.way[0]
    written = pytest_file(case.shrunk(capabilities), None)
    (tmp_path / "test_case.py").write_text(written)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "test_case.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout[-3000:]


def test_a_list_of_ones_own() -> None:
    """By its import path where that is given; else there is a place to fill in, with what the log says of it."""
    case = case_of(anyio.run(lambda: failed(SCRIPT, Minds())))
    named = pytest_file(case, "shop.desk:LIST.strict")
    assert "from shop.desk import LIST\n" in named
    assert "\nCAPABILITIES = LIST.strict\n" in named
    blank = pytest_file(case, None)
    assert (
        "# Fill in the list of the run, which the log describes so:\n#   tests.runtime.test_pytest_case:Minds"
        in blank
    )
    assert "\nCAPABILITIES = ()\n" in blank
    compile(blank, "case.py", "exec")


async def test_a_stored_conversation() -> None:
    """Its history stands in the case; the store does not."""
    store = MemoryStore()
    await store.append("c", (UserMessage("before"),), 0)

    @frozen
    class Fails(Capability):
        def after_run(self, state: RunState) -> RunState:
            return state.fail("no")

    with pytest.raises(RunError) as caught:
        await Agent("desk", ScriptedModel(["done"]), capabilities=[Fails()], store=store).run(
            "go", conversation="c"
        )
    assert caught.value.partial is not None
    case = case_of(caught.value.partial.log)
    assert "conversation" not in case.started.facts
    assert "before" in case.to_text()


def test_what_is_no_case() -> None:
    """A run that did not fail, and one whose failure came from outside."""
    done = Agent("desk", ScriptedModel(["done"])).run_sync("go")
    with pytest.raises(ReplayError, match="did not fail: it ended as completed"):
        case_of(done.log)
    case = case_of(anyio.run(lambda: failed(SCRIPT, Minds())))
    with pytest.raises(ReplayError, match="does not fail so from its log alone"):
        case.shrunk([])
