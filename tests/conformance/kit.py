"""What the conformance cases share: a desk of tools that say what ran, a tracer on every hook. Nothing here asserts."""

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from capfold.capabilities import (
    CallNext,
    CallState,
    Capability,
    Message,
    RunState,
    Tool,
    ToolCall,
    call,
    tool,
)
from capfold.runtime import Agent, AuditRecord, ModelRequest, ScriptedModel
from tests.corruption.builders import agent


class Desk:
    """Tools of any name, `name(n)`, and which of their bodies ran, in order of starting."""

    def __init__(self) -> None:
        """Nothing ran."""
        self.ran: list[str] = []

    # Any: the keywords are those of `tool`.
    def tool(self, name: str = "work", **options: Any) -> Tool:
        """Return a tool that answers `did n`."""

        async def body(n: int) -> str:
            """Do a piece of work."""
            self.ran.append(f"{name}{n}")
            return f"did {n}"

        return tool(body, name=name, **options)


def calls(*numbers: int, name: str = "work") -> list[ToolCall]:
    """Return calls of one tool, with ids c1, c2 and so on by their number."""
    return [call(name, {"n": n}, id=f"c{n}") for n in numbers]


def requests_of(made: Agent[Any]) -> tuple[ModelRequest, ...]:
    """Return what reached the model of an agent of ours."""
    model = made.setup.model
    assert isinstance(model, ScriptedModel)
    return model.requests


def actors(log: Sequence[AuditRecord], kind: str = "transition") -> list[tuple[str, str | None]]:
    """Return who did what, of one kind of record: key and hook, in order."""
    return [(record.actor, record.hook) for record in log if record.kind == kind]


def texts(messages: Sequence[Message]) -> list[object]:
    """Return the contents of messages."""
    return [message.content for message in messages]


class Seen:
    """A list that capabilities may hold: it is equal to itself only, so that its holder stays hashable."""

    def __init__(self) -> None:
        """Nothing seen."""
        self.lines: list[str] = []

    def add(self, line: str) -> None:
        """Write a line."""
        self.lines.append(line)


@frozen
class Onion(Capability):
    """Says when it is entered and left around a tool call."""

    seen: Seen

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        self.seen.add(f"enter {self.key}")
        done = await call_next(call)
        self.seen.add(f"leave {self.key}")
        return done


@frozen
class Befores(Capability):
    """Says when its reducers of a tool call are called."""

    seen: Seen

    def before_tool_execute(self, call: CallState) -> CallState:
        self.seen.add(f"before {self.key}")
        return call

    def admit_tool_execute(self, call: CallState) -> CallState:
        self.seen.add(f"admit {self.key}")
        return call

    def after_tool_execute(self, call: CallState) -> CallState:
        self.seen.add(f"after {self.key}")
        return call


@frozen
class Traced(Befores):
    """Says when any hook that a run of today calls is called."""

    async def wrap_run(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        self.seen.add(f"enter run {self.key}")
        done = await call_next(state)
        self.seen.add(f"leave run {self.key}")
        return done

    def before_run(self, state: RunState) -> RunState:
        self.seen.add(f"before run {self.key}")
        return state

    def after_run(self, state: RunState) -> RunState:
        self.seen.add(f"after run {self.key}")
        return state

    def before_model_request(self, state: RunState) -> RunState:
        self.seen.add(f"before request {self.key}")
        return state

    def after_model_request(self, state: RunState) -> RunState:
        self.seen.add(f"after request {self.key}")
        return state

    async def wrap_model_request(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        self.seen.add(f"enter request {self.key}")
        done = await call_next(state)
        self.seen.add(f"leave request {self.key}")
        return done

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        self.seen.add(f"enter {self.key}")
        done = await call_next(call)
        self.seen.add(f"leave {self.key}")
        return done


@frozen
class Twin(Capability):
    """One of two classes of this name; the other one stands where it is tested."""


async def gate(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
    """Refuse work above one: the gate of a tool that others import."""
    return call.refuse("One at most.") if call.arguments["n"] != 1 else await call_next(call)


def _library_work(n: int) -> str:
    """Do a piece of work."""
    return f"did {n}"


# A tool as a library would publish it: its gate comes along.
LIBRARY_TOOL = tool(_library_work, name="work", capabilities=[gate])

__all__ = [
    "LIBRARY_TOOL",
    "Befores",
    "Desk",
    "Onion",
    "Seen",
    "Traced",
    "Twin",
    "actors",
    "agent",
    "calls",
    "gate",
    "requests_of",
    "texts",
]
