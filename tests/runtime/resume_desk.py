"""An agent that two processes build alike, and what each of them does with its run.

`suspend`: run to the first decision, print the snapshot.
`resume DECISION`: read a snapshot, decide, print the end.
"""

import json
import sys

from attrs import frozen

from capfold.capabilities import CallState, Capability, RequireApproval, ToolMessage, call, tool
from capfold.capabilities.capability import AnyCapability
from capfold.runtime import Agent, Answer, Approve, Deny, Edit, LocalPort, ScriptedModel
from capfold.runtime.decisions import Decision
from capfold.runtime.scripted_model import Reply

DECISIONS: dict[str, Decision] = {
    "approve": Approve(),
    "deny": Deny("no"),
    "edit": Edit({"amount": 3}),
    "answer": Answer("by hand"),
}


@frozen
class Tally(Capability[int]):
    """Counts outcomes in its slot."""

    step: int = 1

    def after_tool_execute(self, call: CallState) -> CallState:
        return call.put(self, call.slot(self) + self.step)


@tool
def pay(amount: int) -> str:
    """Pay."""
    sys.stderr.write(f"paid {amount}\n")
    return f"paid {amount}"


def build(*, resumed: bool = False, tally: AnyCapability | None = None) -> Agent[str]:
    """Return the agent; a resumed one needs the rest of the script only."""
    first: list[Reply] = [[call("pay", {"amount": 5}, id="free"), call("pay", {"amount": 10}, id="first")]]
    return Agent(
        "desk",
        ScriptedModel(["done"] if resumed else [*first, "done"]),
        tools=[pay],
        capabilities=[RequireApproval(), tally if tally is not None else Tally()],
        port=LocalPort(clock=lambda: 100.0, new_id=lambda: "run"),
    )


async def main(arguments: list[str]) -> None:
    """Do what the command says."""
    if arguments[0] == "suspend":
        result = await build().run("go", context={"user": "u"})
        sys.stdout.write(result.snapshot())
        return
    agent = build(resumed=True)
    text = sys.stdin.read()
    pending = json.loads(arguments[2])
    decisions = dict.fromkeys(pending, DECISIONS[arguments[1]])
    result = await agent.resume(text, decisions)
    told = {
        "status": result.status,
        "output": result.output,
        "results": [[m.call_id, m.status, m.content] for m in result.messages if isinstance(m, ToolMessage)],
        "tally": result.state.slots.get("Tally"),
        "context": result.state.context,
        "requests": result.requests,
        "tool_calls": result.tool_calls,
        "head": result.log.head,
        "first": [result.log[0].kind, result.log[0].seq],
    }
    sys.stdout.write(json.dumps(told))
