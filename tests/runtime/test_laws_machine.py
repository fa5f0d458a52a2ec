"""RunMachine: whole runs keep what is promised, whatever happens; and a fault of the runtime itself is found."""

from typing import Any

import anyio
import pytest
from attrs import evolve, frozen
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from capfold.capabilities import (
    AssistantMessage,
    CallNext,
    CallState,
    Capability,
    Json,
    Outside,
    RefuseTools,
    RequireApproval,
    RunState,
    SelectTools,
    Tool,
    ToolBudget,
    ToolCall,
)
from capfold.runtime import Limits
from capfold.runtime.laws import RunMachine
from capfold.runtime.laws_loops import LoopName
from capfold.runtime.laws_play import tell
from capfold.runtime.laws_strangers import Counts, Forges
from capfold.runtime.laws_tale import Cast, Tale
from capfold.runtime.laws_truths import check_told
from tests.runtime.runtime_faults import FAULTS

SHORT = Limits(tool_timeout=1.0)
FEW = settings(max_examples=25, stateful_step_count=20, database=None, deadline=None, derandomize=True)
# To find a fault is enough; the smallest run with it is for people. What is drawn depends on the modules that are
# loaded, so there are many tries: the first that finds it ends them.
SEEK = settings(FEW, max_examples=4000, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


@frozen
class Everything(Capability[int]):
    """Gathers, asks, counts and stops, as a large capability would."""

    async def gather_admit_tool_execute(self, call: CallState, outside: Outside) -> Json:
        return None

    def before_model_request(self, state: RunState) -> RunState:
        return state.add_instructions(f"{state.slot(self)} so far.")

    def admit_tool_execute(self, call: CallState) -> CallState:
        if call.fact(self):
            return call.require_approval("May it?", always="tool")
        return call.stop("enough") if call.slot(self) > 2 else call

    def after_tool_execute(self, call: CallState) -> CallState:
        return call.put(self, call.slot(self) + 1)


LOOK = Tool("look", "", {"type": "object", "properties": {}, "additionalProperties": False})


def asks(*names: str) -> AssistantMessage:
    """Return a response that asks for tools by name."""
    task = {"helper": '{"task": "help"}'}
    calls = [ToolCall(f"c{i}", name, task.get(name, "{}")) for i, name in enumerate(names)]
    return AssistantMessage(tool_calls=tuple(calls), finish_reason="tool_calls")


class OfNobody(RunMachine):
    """Ready-made capabilities alone."""


class OfEverything(RunMachine):
    """A large one between them."""

    capabilities = (Everything(), SelectTools({"pay", "search"}), ToolBudget(3))


@pytest.mark.parametrize("kind", [OfNobody, OfEverything])
def test_runs_keep_what_is_promised(kind: type[RunMachine]) -> None:
    """Whatever the model, the tools, people and the caller do."""
    run_state_machine_as_test(kind, settings=FEW)


# --- faults of the runtime itself

# Found within a second or two; `python -m tests.random_runs --faults 4000` seeks all of them.
QUICK = (
    "a counter is not restored",
    "a digest skips a field",
    "a fact is lost",
    "a sub-agent is not charged to its parent",
)


@pytest.mark.parametrize("fault", QUICK)
def test_a_fault_of_the_runtime_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What must hold of a run does not hold any more, and some run shows it."""
    FAULTS[fault](monkeypatch)
    with pytest.raises(
        Exception, match=r"."
    ):  # an assertion mostly; some faults make the runtime itself stumble
        run_state_machine_as_test(OfNobody, settings=SEEK)


# --- tales, each told by hand


def tale(*batches: tuple[str, ...], limits: Limits = SHORT, **told: Any) -> Tale:
    """Return a tale of batches of calls under capabilities."""
    capabilities = told.pop("capabilities", ())
    script = tuple(asks(*names) for names in batches)
    cast = Cast(script=script, tools=(LOOK,), capabilities=capabilities, limits=limits)
    return Tale(root=cast, prompt="go", **told)


# Fault -> the tale in which it shows.
SHOWN: dict[str, Tale] = {
    "a refusal is overlooked": tale(("look",), capabilities=(RefuseTools({"look"}),)),
    "a prepared set is widened": tale(("look",), capabilities=(SelectTools(()),)),
    "a batch is not held against its limit": tale(("look", "look"), limits=Limits(tool_calls=1)),
    "a step is not held against limits": tale(("look",), limits=Limits(max_steps=1)),
    "an approval is used twice": tale(("look",), ("look",), capabilities=(RequireApproval(),)),
    "another's slot is written": tale(("look",), capabilities=(Counts(), Forges("slot"))),
    "arguments are changed after judging": tale(("look",), capabilities=(Forges("arguments"),)),
    # Its points: the sink has the start, then a request and its response, then calls that were handed out.
    "an outcome is lost on cancel": tale(("look",), deeds=("waits",), cut=(4, "cancel")),
}


@pytest.mark.parametrize("fault", SHOWN)
def test_a_truth_shows_a_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tale is right as long as the runtime is, and wrong with the fault."""
    check_told(tell(SHOWN[fault]))
    FAULTS[fault](monkeypatch)
    with pytest.raises(AssertionError):
        check_told(tell(SHOWN[fault]))


def test_a_tale_is_the_same_each_time() -> None:
    """Also one with timeouts, parallel calls and a sub-agent, on either loop: its log has one head."""
    told = Tale(
        root=Cast(script=(asks("look", "helper", "look"),), tools=(LOOK,), limits=Limits(tool_timeout=1.0)),
        helper=Cast(script=(asks("look"),), tools=(LOOK,), limits=Limits(tool_timeout=1.0)),
        prompt="go",
        deeds=("hangs", "waits", "returns"),
    )
    loops: tuple[LoopName, ...] = ("asyncio", "trio", "asyncio")
    heads = {tell(told, loop).log.head for loop in loops}
    assert 1 == len(heads)


def test_what_the_world_saw_is_held_against_the_log() -> None:
    """A body that nobody wrote down is named; a tale as it was told passes."""
    told = tell(Tale(root=Cast(script=(asks("look"),), tools=(LOOK,)), prompt="go"))
    check_told(told)
    told.world.bodies.append(evolve(told.world.bodies[0], call="another"))
    with pytest.raises(AssertionError, match=r"look \(another\) of run run ran, and was not admitted"):
        check_told(told)


def test_a_run_that_never_ends_is_named() -> None:
    """Time passes at once, so a run that waits for nothing shows."""

    @frozen
    class Waits(Capability):
        async def wrap_run(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
            await anyio.sleep_forever()
            return state

    with pytest.raises(AssertionError, match="the run never ended"):
        tell(Tale(root=Cast(capabilities=(Waits(),)), prompt="go"))
