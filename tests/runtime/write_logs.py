"""Logs of a few runs, written by one version of Python to be replayed by others: `python -m tests.runtime.write_logs`.

Each file of `logs/` is named after the version that wrote it. The runs use what could differ from one version to the
next: texts outside of ASCII, numbers, sets, mappings in an order, sub-agents, approvals, slots.
"""

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from attrs import frozen

from capfold.capabilities import (
    AssistantMessage,
    CallState,
    Capability,
    RefuseTools,
    RequireApproval,
    RunState,
    ToolBudget,
    TrimMessages,
    UserMessage,
    call,
    inherited,
    tool,
)
from capfold.runtime import Agent, Approve, Deny, LocalPort, RunResult, ScriptedModel
from capfold.runtime.decisions import ApprovalRequest, Decision

LOGS = Path(__file__).parent / "logs"


@frozen
class Seen:
    """What a slot holds."""

    names: frozenset[str] = frozenset()
    share: float = 0.1


@frozen
class Remembers(Capability[Seen]):
    """Keeps a set and a number in its slot, and writes both into the request."""

    def before_model_request(self, state: RunState) -> RunState:
        seen = state.slot(self)
        return state.with_settings(share=seen.share).add_instructions(", ".join(sorted(seen.names)) or "none")

    def after_tool_execute(self, call: CallState) -> CallState:
        seen = call.slot(self)
        return call.put(self, Seen(seen.names | {call.name}, seen.share * 3)).note(f"{call.name} è ✓ {1e22}")


@tool(read_only=True)
async def look(text: str, depth: float = 0.30000000000000004) -> str:
    """Look something up: ä, 🜁."""
    return f"«{text}» {depth!r}"


@tool(destructive=True)
async def pay(amount: int, to: str = "Zoë") -> str:
    """Pay."""
    return f"paid {amount} to {to}"


async def decide(requests: Sequence[ApprovalRequest]) -> list[Decision]:
    """Approve small amounts."""
    return [Approve() if int(str(r.arguments["amount"])) < 100 else Deny("Zu viel.") for r in requests]


def desk() -> Agent[Any]:
    """Return the agent whose runs are written down."""
    helper = Agent(
        "helper",
        ScriptedModel([call("look", {"text": "ø"}, id="h1"), "fertig"]),
        tools=[look],
        capabilities=[TrimMessages(2)],
    )
    script: list[Any] = [
        [call("look", {"text": "naïve", "depth": 1e-7}, id="a"), call("pay", {"amount": 7}, id="b")],
        [call("pay", {"amount": 300, "to": "Łukasz"}, id="c"), call("helper", {"task": "hilf"}, id="d")],
        [call("look", {"text": 3}, id="e"), call("nowhere", {}, id="f")],
        AssistantMessage("done ✓"),
    ]
    return Agent(
        "desk",
        ScriptedModel(script),
        tools=[look, pay, helper.as_tool("Helps.")],
        capabilities=[
            Remembers(),
            RequireApproval({"pay"}),
            ToolBudget(9),
            RefuseTools({"pay"}, unless="may_pay"),
            inherited(TrimMessages(4, key="inherited")),
        ],
        approver=decide,
        port=LocalPort(clock=lambda: 100.25, new_id=lambda: "run", random=lambda: 0.5),
    )


async def run() -> RunResult[Any]:
    """Run it."""
    history = (UserMessage("früher"), AssistantMessage("ja"))
    return await desk().run(
        "Zahle 7 €.", messages=history, context={"may_pay": True, "z": [1.5, None], "a": {}}
    )


def main() -> None:
    """Write the log of this version."""
    # By its own name: a capability of __main__ would be another one.
    from tests.runtime import write_logs  # noqa: PLC0415  # see above

    LOGS.mkdir(exist_ok=True)
    name = f"desk-{'.'.join(platform.python_version_tuple()[:2])}.jsonl"
    (LOGS / name).write_text(anyio.run(write_logs.run).log.to_jsonl(), encoding="utf-8")


if __name__ == "__main__":
    main()
