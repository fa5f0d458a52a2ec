"""The agent of all measurements: it answers by the step that it is at, so that any process can go on with it."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

from capfold.capabilities import Content, RequireApproval, ToolCall, call, is_destructive, tool
from capfold.runtime import Agent, FunctionModel, ModelRequest

NAME = "bench"


def stamped(folder: Path, event: str) -> None:
    """Write when something happened, by the clock that all processes of a machine share."""
    with (folder / "stamps").open("a") as file:
        file.write(f"{event} {time.monotonic()}\n")


def stamps(folder: Path) -> Mapping[str, list[float]]:
    """Return when things happened, by event."""
    file = folder / "stamps"
    found: dict[str, list[float]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        event, when = line.rsplit(" ", 1)
        found.setdefault(event, []).append(float(when))
    return found


def make(folder: Path, steps: int = 10) -> Agent[str]:
    """Return an agent of so many steps of one model request and one tool call each.

    Its prompt says which tool: `add` does nothing, `pause` takes a second and `pay` waits for a person; both say when
    they begin.
    """

    @tool(read_only=True)
    async def add(number: int) -> str:
        """Add one."""
        return str(number + 1)

    @tool(idempotent=True, destructive=False)
    async def pause(number: int) -> str:
        """Take a second."""
        stamped(folder, f"pause {number}")
        await asyncio.sleep(1.0)
        return "paused"

    @tool(destructive=True)
    async def pay(number: int, run: str) -> str:
        """Pay."""
        stamped(folder, f"pay {run}")
        return "paid"

    def reply(request: ModelRequest) -> str | list[ToolCall]:
        if request.step > steps:
            return "done"
        word, _, run = _text(request.messages[0].content).partition(" ")
        arguments: dict[str, object] = {"number": request.step, **({"run": run} if word == "pay" else {})}
        return [call(word, arguments, id=f"call-{request.step}")]

    return Agent(
        NAME, FunctionModel(reply), tools=[add, pause, pay], capabilities=[RequireApproval(is_destructive)]
    )


def _text(content: Content) -> str:
    assert isinstance(content, str)
    return content
