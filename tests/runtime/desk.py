"""What the tests of a run share: a scripted agent, its tools, and how an ending is judged."""

from collections.abc import Iterable, Sequence
from typing import Any

from attrs import field, frozen

from capfold.capabilities import AssistantMessage, CallState, Message, RunState, Tool, ToolMessage, tool
from capfold.capabilities.capability import AnyCapability, Capability
from capfold.capabilities.views import balance_problem
from capfold.runtime import Agent, LocalPort, RunError, RunResult, ScriptedModel
from capfold.runtime.building import ToolLike
from capfold.runtime.machine import Moved, start
from capfold.runtime.scripted_model import Reply


@tool(read_only=True)
def look(n: int) -> str:
    """Look n up."""
    return f"found {n}"


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def port() -> LocalPort:
    """Return a port whose time stands still and whose runs have one name."""
    return LocalPort(clock=lambda: 100.0, new_id=lambda: "run", random=lambda: 0.5)


def make(
    replies: Iterable[Reply] = ("done",),
    *,
    tools: Sequence[ToolLike] = (look, pay),
    capabilities: Sequence[AnyCapability] = (),
    **options: Any,  # whatever else Agent takes
) -> Agent[str]:
    """Return an agent that follows a script."""
    options.setdefault("port", port())
    options.setdefault("model", ScriptedModel(replies))
    return Agent("desk", tools=tools, capabilities=capabilities, **options)


def begin(agent: Agent[Any], prompt: str = "go") -> Moved:  # Any: of every output type
    """Start a run of an agent's by hand."""
    return start(agent.setup, prompt, run_id="run", now=100.0)


def results(messages: Iterable[Message]) -> list[tuple[str, str]]:
    """Return tool and status of each result, in order."""
    return [(message.tool, message.status) for message in messages if isinstance(message, ToolMessage)]


def contents(messages: Iterable[Message]) -> list[object]:
    """Return the contents of the results, in order."""
    return [message.content for message in messages if isinstance(message, ToolMessage)]


def check_closed(messages: Sequence[Message]) -> None:
    """Assert that each call of a history has exactly one result, directly after it."""
    assert balance_problem(messages) is None
    calls = [
        call.id
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
    ]
    answered = [message.call_id for message in messages if isinstance(message, ToolMessage)]
    assert sorted(calls) == sorted(answered)
    assert len(calls) == len(set(calls))


def partial(error: RunError) -> RunResult[object]:
    """Return what a failed run came to; its history is closed."""
    assert error.partial is not None
    check_closed(error.partial.messages)
    assert error.partial.status == "failed"
    return error.partial


def kinds(result: RunResult[Any]) -> list[str]:  # Any: of every output type
    """Return the kinds of a log's records, in order."""
    return [record.kind for record in result.log]


def seen(result: RunResult[Any], kind: str) -> list[tuple[str, str | None]]:  # Any: as above
    """Return actor and hook of the records of one kind."""
    return [(record.actor, record.hook) for record in result.log if record.kind == kind]


@frozen
class Trace:
    """A list that capabilities write to: hashable by identity, so it can stand in a config."""

    lines: list[str] = field(factory=list, eq=False, hash=False)

    def __hash__(self) -> int:
        """By identity."""
        return id(self)

    def add(self, line: str) -> None:
        """Write a line."""
        self.lines.append(line)


@frozen
class Observer(Capability):
    """Writes down each tool outcome that its after hook sees."""

    trace: Trace = field(factory=Trace)

    def after_tool_execute(self, call: CallState) -> CallState:
        assert call.outcome is not None
        self.trace.add(f"{call.name}:{call.outcome.status}")
        return call


@frozen
class Ends(Capability):
    """Writes down that after_run was called, and on which output."""

    trace: Trace = field(factory=Trace)

    def after_run(self, state: RunState) -> RunState:
        self.trace.add(f"after_run:{state.output}")
        return state


def slow(name: str, run: Any, **options: Any) -> Tool:  # Any: a function, and the options of `tool`
    """Return a tool of a name that calls `run`."""
    made: Tool = tool(run, name=name, description="A tool of a test.", **options)
    return made
