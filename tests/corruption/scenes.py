"""Scenes shared by the corruption cases: a recorded tool, a batch, one hook at one point, how a run ended.

Nothing here asserts but `check_closed`, which states what holds of every history whatever happened.
"""

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from attrs import evolve

from capfold.capabilities import (
    AssistantMessage,
    CallNext,
    CallState,
    Capability,
    Message,
    RunState,
    Tool,
    ToolCall,
    ToolMessage,
    call,
    hook,
    tool,
)
from capfold.capabilities.capability import AnyCapability
from capfold.capabilities.grid import REDUCERS
from capfold.runtime import Agent, Approver, AuditRecord, Ended, LocalPort, Log, RunError, machine
from capfold.runtime.driver import Driver
from capfold.runtime.recorder import Recorder
from capfold.runtime.session import Session
from tests.corruption import driving

# One action serves every hook, whose records differ: what it may do with the record is the test's business.
Action = Callable[[Any], Any]

RUN_POINTS = ("before_run", "before_model_request", "after_model_request", "after_run")
TOOL_REDUCERS = ("before_tool_execute", "admit_tool_execute", "after_tool_execute")
WRAPPER_POINTS = tuple(
    f"{name}:{side}"
    for name in ("wrap_run", "wrap_model_request", "wrap_tool_execute")
    for side in ("in", "out")
)
POINTS = (*RUN_POINTS, *TOOL_REDUCERS, *WRAPPER_POINTS)
assert set(REDUCERS) == {*RUN_POINTS, *TOOL_REDUCERS}


def at(point: str, action: Action, key: str = "Actor") -> Capability:
    """Return a capability that does `action` at one point: a reducer, or `wrapper:in` and `wrapper:out`."""
    name, _, side = point.partition(":")

    def reducer(record: Any) -> Any:
        return action(record)

    async def inward(call_next: CallNext[Any, Any], record: Any) -> Any:
        return await call_next(action(record))

    async def outward(call_next: CallNext[Any, Any], record: Any) -> Any:
        return action(await call_next(record))

    function = {"": reducer, "in": inward, "out": outward}[side]
    return evolve(getattr(hook, name)(function), key=key)


def hook_of(point: str) -> str:
    """Return the hook of a point."""
    return point.partition(":")[0]


def run_of(record: RunState | CallState) -> RunState:
    """Return the run of a record."""
    return record if isinstance(record, RunState) else record.run


class Works:
    """The tool `work(n)`, and which of its bodies began and ended."""

    def __init__(self, body: Callable[[int], Any] | None = None) -> None:
        """Take an async function to await inside the body."""
        self.began: list[int] = []
        self.ended: list[int] = []
        self.body = body

    def tool(self, **options: Any) -> Tool:
        """Return the tool."""

        async def work(n: int) -> str:
            """Do a piece of work."""
            self.began.append(n)
            if self.body is not None:
                await self.body(n)
            self.ended.append(n)
            return f"did {n}"

        return tool(work, **options)


def batch(*numbers: int) -> list[ToolCall]:
    """Return calls of `work`, with ids c0, c1 and so on by their number."""
    return [call("work", {"n": n}, id=f"c{n}") for n in numbers]


async def failed(agent: Agent[Any], prompt: str = "go", **options: Any) -> RunError:
    """Run to the failure that the test is about."""
    with pytest.raises(RunError) as caught:
        await agent.run(prompt, **options)
    return caught.value


def kinds(records: Sequence[AuditRecord]) -> list[str]:
    """Return the kinds of records, in order."""
    return [record.kind for record in records]


def of_kind(records: Sequence[AuditRecord], kind: str) -> list[AuditRecord]:
    """Return the records of one kind."""
    return [record for record in records if record.kind == kind]


def statuses(messages: Sequence[Message]) -> dict[str, str]:
    """Return call id -> status of its result."""
    return {message.call_id: message.status for message in messages if isinstance(message, ToolMessage)}


def contents(messages: Sequence[Message]) -> dict[str, object]:
    """Return call id -> content of its result."""
    return {message.call_id: message.content for message in messages if isinstance(message, ToolMessage)}


def settled(records: Sequence[AuditRecord]) -> dict[str, object]:
    """Return call id -> status, of the bodies whose outcome is on record."""
    found: dict[str, object] = {}
    for record in of_kind(records, "tool_settled"):
        outcome: Any = record.facts["outcome"]
        assert record.call not in found, "one call, one settled record"
        found[str(record.call)] = outcome["status"]
    return found


def check_closed(messages: Sequence[Message]) -> None:
    """Each call has one result, directly after its message, in call order; no result stands elsewhere."""
    expected: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert expected, f"a result of {message.call_id} that no call waits for"
            assert expected.pop(0) == message.call_id
            continue
        assert [] == expected, "calls without a result"
        if isinstance(message, AssistantMessage):
            expected = [asked.id for asked in message.tool_calls]
    assert [] == expected, "calls without a result"


def shapes(messages: Sequence[Message]) -> list[str]:
    """Return the kinds of messages, in order: user, assistant, tool, system."""
    return [type(message).__name__.removesuffix("Message").lower() for message in messages]


class MemorySink:
    """Keeps records, also those of a run that was cancelled."""

    def __init__(self) -> None:
        """Start empty."""
        self.records: list[AuditRecord] = []
        self.best_effort = False

    async def write(self, records: Sequence[AuditRecord]) -> None:
        self.records += records

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""


async def cancelled(
    agent: Agent[Any], scope: anyio.CancelScope, approver: Approver | None = None
) -> tuple[RunState, Log]:
    """Run until something cancels `scope`; return the closed state and the log, which a caller never gets."""
    if driving.way() == "stream":
        return await _cancelled_stream(agent, scope, approver)
    log = Log()
    moved = machine.start(agent.setup, "go", run_id="run", now=0.0)
    driver = Driver(Session(agent.setup, LocalPort(), None, Recorder(log), approver=approver), moved)
    with scope:
        await driver.drive()
    assert scope.cancelled_caught, "cancellation stays cancellation"
    assert driver.state is not None
    return driver.state.run, log


async def _cancelled_stream(
    agent: Agent[Any], scope: anyio.CancelScope, approver: Approver | None
) -> tuple[RunState, Log]:
    """Cancel who reads the events: the last one, which nobody waits for any more, tells how the run was closed."""
    told: list[object] = []
    with scope:
        async with agent.stream("go", run_id="run", approver=approver) as events:
            async for event in events:
                told.append(event)  # noqa: PERF401  # one by one: it is cut short
    assert scope.cancelled_caught, "cancellation stays cancellation"
    told += [event async for event in events]
    ended = told[-1]
    assert isinstance(ended, Ended)
    assert ended.result is not None
    driving.check_told(told, ended.result)
    return ended.result.state, ended.result.log


def names(capabilities: Sequence[AnyCapability]) -> list[str]:
    """Return the keys, in order: ids of parametrized lists."""
    return [capability.key for capability in capabilities]
