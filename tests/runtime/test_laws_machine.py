"""RunMachine: whole runs keep what is promised, whatever happens; and a fault of the runtime itself is found."""

import pytest
from attrs import frozen
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from capfold.capabilities import CallState, Capability, Json, Outside, RunState, SelectTools, ToolBudget
from capfold.runtime.laws import RunMachine

FEW = settings(max_examples=60, stateful_step_count=20, database=None, deadline=None, derandomize=True)
# To find a fault is enough; the smallest run with it is for people. What is drawn depends on the modules that are
# loaded, so there are many tries: the first that finds it ends them.
SEEK = settings(FEW, max_examples=3000, phases=[Phase.generate])


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


def nothing(*given: object, **named: object) -> None:
    """Check nothing."""


# A function of the runtime in whose place nothing is done.
BROKEN = {
    "a step is not held against limits": "ledger.before_step",
    "history is not closed when a run is cut short": "ending.close",
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_fault_of_the_runtime_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What must hold of a run does not hold any more, and some run shows it."""
    monkeypatch.setattr(f"capfold.runtime.{BROKEN[fault]}", nothing)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(OfNobody, settings=SEEK)
