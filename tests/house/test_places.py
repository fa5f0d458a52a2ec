"""What else must know when something is added: a field, a hook, a status, a reason. docs/contributing.md has the map.

The tables themselves refuse half of it at import; here is the rest.
"""

import ast
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest
from attrs import fields

from capfold import runtime
from capfold.capabilities import CallState, Capability, RunState, call, tool
from capfold.capabilities.grid import HOOKS
from capfold.capabilities.messages import STATUSES
from capfold.capabilities.run_parts import RunStatus
from capfold.runtime import Agent, Reason, RunError, ScriptedModel, errors
from capfold.runtime.driver import ENDS, PERFORM
from capfold.runtime.errors import FAMILIES
from capfold.runtime.memory_store import MemoryStore
from capfold.runtime.phases import AskApproval, Effect, Enter, Leave, Save
from capfold.runtime.result import ResultStatus
from capfold.runtime.retries import FAILED, GOOD
from capfold.runtime.snapshot import Snapshot
from capfold.runtime.work import MachineState, Work
from tests.house.conftest import ROOT

# What is neither a failure of a tool nor a success: it counts in no retries.
NEITHER = {"denied", "not_executed", "pending"}
# What a suspended run is given again when it is attached to its agent, and what only a run under way has.
MADE_ANEW = {
    *("setup", "phase", "started", "suspended_at", "prepared", "charged", "announced", "call_index"),
    *("judge_from", "resumed", "inactive", "effect", "writers", "reason", "cause"),
}


def drawn(record: str) -> set[str]:
    """Return the fields that the strategies give a record they make."""
    tree = ast.parse((ROOT / "tests" / "strategies.py").read_text(encoding="utf-8"))
    return {
        str(keyword.arg)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == record
        for keyword in node.keywords
    }


@pytest.mark.parametrize("record", [RunState, CallState])
def test_every_field_is_drawn(record: type) -> None:
    """A field that no strategy sets would go through codec, check and verbs with its default only."""
    assert {field.name for field in fields(record)} == drawn(record.__name__)


def test_an_event_takes_up_and_gives_back_the_whole_state() -> None:
    """A field of the machine's state that `Work` forgot, or put in another's place, would be lost at the next event."""
    values = [cast(Any, SimpleNamespace(strict=False)) for _ in MachineState._fields]
    assert list(map(id, values)) == list(map(id, Work(MachineState(*values), 0.0).freeze()))


def test_a_snapshot_has_what_cannot_be_made_anew() -> None:
    """A new field of the machine's state is carried to another process, or said to need no carrying."""
    kept = {field.name for field in fields(Snapshot)}
    assert set(MachineState._fields) == {*(kept & {*MachineState._fields}), *MADE_ANEW}


def noting(name: str, called: list[str]) -> Callable[..., Any]:  # Any: a hook of any signature
    """Return an overriding hook that writes down that it was called, and does nothing else."""

    def reducer(self: object, record: object) -> object:
        called.append(name)
        return record

    async def gatherer(self: object, record: object, outside: object) -> object:
        called.append(name)
        return None

    async def wrapper(self: object, call_next: Callable[..., Any], *given: object) -> object:  # Any: as above
        called.append(name)
        return await call_next(*given)

    kinds: dict[str, Callable[..., Any]] = {"reducer": reducer, "gatherer": gatherer, "wrapper": wrapper}
    return kinds[HOOKS[name].kind]


def test_a_run_calls_every_hook() -> None:
    """A hook that stands in the grid and that nobody calls would be a promise that is not kept."""
    called: list[str] = []
    every = type("Every", (Capability,), {name: noting(name, called) for name in HOOKS})

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    script = ScriptedModel([call("look"), "done"])
    agent = Agent("desk", script, tools=[look], capabilities=[every()], store=MemoryStore())
    agent.run_sync("go", conversation="c")
    assert set(HOOKS) == set(called)


def test_every_effect_is_performed() -> None:
    """An effect that the machine may want has somebody who performs it, or takes it as the end."""
    assert set(get_args(Effect)) == {*PERFORM, *ENDS, Enter, Leave, Save, AskApproval}


def test_every_outcome_is_a_failure_a_success_or_neither() -> None:
    """A new status of a tool call says what it means for the retries of its tool."""
    assert sorted(STATUSES) == sorted([*FAILED, *GOOD, *NEITHER])


def test_a_result_has_every_status_but_running() -> None:
    """A new status of a run reaches its result."""
    assert {"running", *get_args(ResultStatus)} == set(get_args(RunStatus))


def test_every_reason_has_its_family() -> None:
    """A reason without a family could not be raised; reasons and families are public."""
    # Not by __subclasses__: attrs makes each class twice, and the first one is there until it is collected.
    classes = {thing for thing in vars(errors).values() if isinstance(thing, type)}
    assert {kind for kind in classes if issubclass(kind, Reason)} == {Reason, *FAMILIES}
    assert {kind for kind in classes if issubclass(kind, RunError)} == {RunError, *FAMILIES.values()}
    names = {thing.__name__ for thing in (*FAMILIES, *FAMILIES.values())}
    assert names <= set(vars(runtime)["__all__"])
