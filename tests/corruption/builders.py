"""Agents, tools and forgers that the corruption cases share. Nothing here asserts.

A forger is a capability that tries one write at one point of the grid; a spy is one that only looks.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import pytest
from attrs import evolve

from capfold.capabilities import CallNext, CallState, Capability, RunState, Tool, hook, tool
from capfold.runtime import Agent, AuditRecord, LocalPort, Log, RunError, RunResult, ScriptedModel
from capfold.runtime.scripted_model import Reply

# A record of either class goes in, and a forger may return anything at all.
Write: TypeAlias = Callable[[Any], Any]
Look: TypeAlias = Callable[[Any], None]

RUN_POINTS = (
    "before_run",
    "after_run",
    "before_model_request",
    "after_model_request",
    "wrap_run:in",
    "wrap_run:out",
    "wrap_model_request:in",
    "wrap_model_request:out",
)
CALL_POINTS = (
    "before_tool_execute",
    "admit_tool_execute",
    "after_tool_execute",
    "wrap_tool_execute:in",
    "wrap_tool_execute:out",
)
POINTS = (*RUN_POINTS, *CALL_POINTS)
NOW = 1_000.0


def fake_port() -> LocalPort:
    """Return a port whose time stands still, whose ids count and whose chance is none."""
    made: list[str] = []

    def new_id() -> str:
        made.append(f"run-{len(made)}")
        return made[-1]

    return LocalPort(clock=lambda: NOW, new_id=new_id, random=lambda: 0.5)


# The keywords are those of Agent: repeating their types here would check nothing.
def agent(replies: Sequence[Reply], **keywords: Any) -> Agent[str]:
    """Return an agent over a script, on a port without surprises."""
    keywords.setdefault("port", fake_port())
    return Agent("agent", ScriptedModel(replies), **keywords)


def requests_of(made: Agent[str]) -> int:
    """Return how many requests reached the model of an agent of ours."""
    model = made.setup.model
    assert isinstance(model, ScriptedModel)
    return len(model.requests)


class Bodies:
    """What tools really did: the arguments of every body that was run, in order of starting."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, object]] = []

    # The keywords are those of `tool`.
    def pay(self, name: str = "pay", **options: Any) -> Tool:
        """Return a tool that pays, and says so."""

        async def body(amount: int) -> str:
            """Pay an amount."""
            self.ran.append((name, amount))
            return f"paid {amount}"

        return tool(body, name=name, **options)

    def failing(self, name: str = "pay", **options: Any) -> Tool:
        """Return a tool whose body always raises; declared idempotent, so it is known to have failed."""

        async def body(amount: int) -> str:
            """Pay an amount."""
            self.ran.append((name, amount))
            raise RuntimeError("no funds")

        return tool(body, name=name, idempotent=True, **options)

    def named(self, name: str) -> int:
        """Return how often the body of a tool was run."""
        return sum(ran == name for ran, _ in self.ran)


# Any: what its slot holds is up to the write.
def at(point: str, write: Write, key: str) -> Capability[Any]:
    """Return a capability that applies `write` at a point of the grid; of a wrapper, on its way in or out."""
    name, _, side = point.partition(":")
    function: Callable[..., object]
    if not side:

        def reducer(record: Any) -> Any:
            return write(record)

        function = reducer
    elif side == "in":

        async def inward(call_next: CallNext[Any, Any], record: Any) -> Any:
            return await call_next(write(record))

        function = inward
    else:

        async def outward(call_next: CallNext[Any, Any], record: Any) -> Any:
            return write(await call_next(record))

        function = outward
    made: Capability[Any] = getattr(hook, name)(function)
    return evolve(made, key=key)


def spy(point: str, look: Look, key: str = "spy") -> Capability[Any]:
    """Return a capability that looks at the record of a point and passes it on."""

    def write(record: Any) -> Any:
        look(record)
        return record

    return at(point, write, key)


def forger_then_spy(point: str, write: Write, look: Look) -> list[Capability[Any]]:
    """Return a list in which the spy is the next to see what the forger did; on the way out, the outer."""
    pair = [at(point, write, "forger"), spy(point, look)]
    return pair[::-1] if point.endswith(":out") else pair


def hook_of(point: str) -> str:
    """Return the hook of a point."""
    return point.partition(":")[0]


def run_of(record: RunState | CallState) -> RunState:
    """Return the run state of a record of either class."""
    return record.run if isinstance(record, CallState) else record


def on_run(record: RunState | CallState, write: Callable[[RunState], RunState]) -> RunState | CallState:
    """Apply a write to the run state of a record of either class."""
    if isinstance(record, CallState):
        return evolve(record, run=write(record.run))
    return write(record)


def field_at(point: str, name: str) -> str:
    """Return what the log calls a field of the run state at a point."""
    return f"run.{name}" if point in CALL_POINTS else name


async def failure(run: Awaitable[RunResult[str]]) -> RunError:
    """Return the RunError that a run must end with."""
    with pytest.raises(RunError) as caught:
        await run
    return caught.value


def partial_of(error: RunError) -> RunResult[object]:
    """Return what a failed run had come to."""
    assert error.partial is not None
    return error.partial


def culprit(error: RunError) -> tuple[str, str | None, str | None, str | None]:
    """Return the kind of the reason, and the capability, hook and field that it names."""
    reason = error.reason
    return type(reason).__name__, reason.key, reason.hook, reason.field


def records(log: Log, *kinds: str) -> list[AuditRecord]:
    """Return the records of some kinds, in order."""
    return [record for record in log if record.kind in kinds]


def shapes(result: RunResult[Any]) -> list[str]:
    """Return the messages of a run in short: class, and for a tool message its status."""
    return [
        f"{type(message).__name__}" + (f":{message.status}" if hasattr(message, "status") else "")
        for message in result.messages
    ]
