"""A tree of agents that two processes build alike, and what each of them does with its run.

`suspend`: run to the first decisions, print the snapshot. `resume`: read it, approve, print the end.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

from capfold.capabilities import RequireApproval, call, tool
from capfold.runtime import Agent, Approve
from capfold.runtime.decisions import ApprovalRequest, Decision
from tests.runtime.family import above, ask, made


@tool
def pay(amount: int) -> str:
    """Pay."""
    sys.stderr.write(f"paid {amount}\n")
    return f"paid {amount}"


@tool
def look(n: int) -> str:
    """Look."""
    sys.stderr.write(f"looked {n}\n")
    return f"saw {n}"


def approves(requests: Sequence[ApprovalRequest]) -> list[Decision]:
    """Approve all."""
    return [Approve() for _ in requests]


def build() -> Agent[Any]:
    """Return the agent: below it one that waits, and one whose own child waits."""
    gate = [RequireApproval({"pay"})]
    low = made("low", call("pay", {"amount": 1}, id="p"), "low", tools=[pay], capabilities=gate)
    middle = above(low, ask("low", "g"), "middle", name="middle")
    other = made("other", call("pay", {"amount": 2}, id="p"), "other", tools=[pay], capabilities=gate)
    calls = [ask("middle", "a"), call("look", {"n": 1}, id="l"), ask("other", "b")]
    return above(middle, calls, "done", tools=[other.as_tool("Ask."), look])


async def main(command: str) -> None:
    """Do what the command says."""
    agent = build()
    if command == "suspend":
        result = await agent.run("go")
        sys.stdout.write(json.dumps({"snapshot": result.snapshot()}))
        return
    done = await agent.resume(sys.stdin.read(), approver=approves)
    sys.stdout.write(json.dumps([done.output, done.requests, done.tool_calls, done.log.head]))
