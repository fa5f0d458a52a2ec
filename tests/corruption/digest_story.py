"""A run with everything in it that could differ between processes; prints the digests of its log.

Started by `test_same_digests` in other processes, with other hash seeds, on both event loops.
"""

import sys
from typing import Any

import anyio
import anyio.lowlevel
from attrs import evolve, frozen

from capfold.capabilities import (
    AssistantMessage,
    CallNext,
    CallState,
    Capability,
    ModelRetry,
    RequireApproval,
    RunState,
    ToolBudget,
    TrimMessages,
    UserMessage,
    call,
    tool,
)
from capfold.runtime import Agent, ApprovalRequest, Approve, Edit, Limits, Log, RunError, ScriptedModel

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")


class Remember(Capability[frozenset[str]]):
    """Keeps a set in its slot, and gathers a fact."""

    async def gather_after_model_request(self, state: RunState, outside: Any) -> Any:
        return {word: [state.run_step, len(word) / 3] for word in WORDS}

    def after_model_request(self, state: RunState) -> RunState:
        return state.put(self, state.slot(self) | set(WORDS[: 2 * state.run_step]))


class Meddle(Capability):
    """Writes what belongs to the runtime, as values without a stable text."""

    def before_model_request(self, state: RunState) -> RunState:
        return evolve(state, usage=_odd(), tool_retries={word: object() for word in WORDS}).with_settings(
            seed=7, stop=sorted(WORDS)
        )


class Twice(Capability):
    """Runs a failed call again."""

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        done = await call_next(call)
        failed = done.outcome is not None and done.outcome.status == "failed"
        return await call_next(call) if failed else done


class Mask(Capability):
    """Shows the view in capitals, and each result too."""

    def before_model_request(self, state: RunState) -> RunState:
        return state.map_view(shout)

    def after_tool_execute(self, call: CallState) -> CallState:
        assert call.outcome is not None
        return call.with_content(str(call.outcome.content).upper(), metadata={"by": sorted(WORDS)})


def _odd() -> Any:
    return object()


def shout(message: Any) -> Any:
    """Write a user message in capitals."""
    return (
        evolve(message, content=str(message.content).upper()) if isinstance(message, UserMessage) else message
    )


@frozen
class Forge(Capability):
    """Ends the run by writing a set where a tuple of messages belongs."""

    at: int = 0

    def after_model_request(self, state: RunState) -> RunState:
        return evolve(state, output=frozenset(WORDS)) if state.run_step == self.at else state


def agent_of(last: int) -> Agent[str]:
    """Return an agent whose tools finish in an order of their own, and whose person edits one call."""
    tries: list[int] = []

    async def slow(n: int) -> str:
        """Finish late."""
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        return f"slow {n}"

    async def fast(n: int, words: dict[str, int]) -> dict[str, int]:
        """Finish early."""
        return dict.fromkeys(words, n)

    async def flaky(n: int) -> str:
        """Fail once."""
        tries.append(n)
        if len(tries) == 1:
            raise ModelRetry(f"again {sorted(WORDS)}")
        return "at last"

    def approver(requests: tuple[ApprovalRequest, ...]) -> list[Any]:
        return [Approve(always=True) if r.tool == "slow" else Edit({"n": 9, "words": {}}) for r in requests]

    script: list[Any] = [
        [
            call("slow", {"n": 1}),
            call("fast", {"n": 2, "words": dict.fromkeys(WORDS, 1)}),
            call("flaky", {"n": 3}),
        ],
        [call("slow", {"n": 1}, id="call_1_0"), call("nobody", {"x": 1}), call("fast", {"n": "x"})],
        AssistantMessage("done", provider_items=[{word: {} for word in WORDS}]),
    ]
    return Agent(
        "desk",
        ScriptedModel(script),
        tools=[tool(slow), tool(fast), tool(flaky, read_only=True)],
        capabilities=[
            Meddle(),
            Remember(),
            TrimMessages(keep_last=4),
            Mask(),
            RequireApproval({"slow", "fast"}),
            ToolBudget(20),
            Twice(),
            Forge(last),
        ],
        approver=approver,
        limits=Limits(tool_calls=20),
        audit="all",
    )


async def logs() -> list[Log]:
    """Run to the end, and to a rejection."""
    result = await agent_of(0).run("go", context={word: [word] for word in WORDS}, messages=())
    found = [result.log]
    failed = await _failed(agent_of(3))
    return [*found, failed]


async def _failed(agent: Agent[str]) -> Log:
    try:
        result = await agent.run("go")
    except RunError as error:
        return error.partial.log if error.partial is not None else Log()
    return result.log


def main() -> None:
    """Print one digest per record."""
    for log in anyio.run(logs, backend=sys.argv[1]):
        for record in log:
            print(record.kind, record.digest)  # noqa: T201  # what the parent process reads
