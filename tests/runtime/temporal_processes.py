"""Processes that carry runs on with Temporal, and die where they are told to: run as a program, for tests.

`python -m tests.runtime.temporal_processes SERVER FOLDER` reads lines `RUN PLACE` from its input; for each it forks a
process that starts the run, on a task queue of that run's, and ends itself, by SIGKILL, at the place: the n-th moment
of its steps, where each step has three (begun, performed, told); or `slow`: at none, in a tool that takes its time. It
prints the process's id.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from capfold.capabilities import ToolContext, call, tool
from capfold.runtime import Agent
from capfold.runtime.durable_engine import Perform
from capfold.runtime.temporal_engine import TemporalEngine
from capfold.runtime.temporal_port import TemporalAgent
from tests.runtime.durable_desk import BySteps

LEASE = 1.5
NAME = "teller"


def make(folder: Path, *, seconds: float = 0.0) -> Agent[str]:
    """Return an agent of three steps; its tools write what they do to a file per run: `seconds` go by in `pay`."""

    def write(context: ToolContext, line: str) -> None:
        with (folder / context.run_id).open("a") as effects:
            effects.write(f"{line} {context.attempt} {context.idempotency_key}\n")

    @tool(read_only=True)
    async def look(n: int, context: ToolContext) -> str:
        """Look n up."""
        write(context, f"look {n}")
        return f"found {n}"

    @tool
    async def pay(n: int, context: ToolContext) -> str:
        """Pay n."""
        write(context, f"pay {n}")
        await asyncio.sleep(seconds)
        write(context, f"paid {n}")
        return f"paid {n}"

    replies = ([call("look", {"n": 1}), call("pay", {"n": 2})], call("pay", {"n": 3}), "done")
    return Agent(NAME, BySteps(replies), tools=[look, pay])


class Killing:
    """Ends the process at the n-th moment of its steps."""

    def __init__(self, at: int) -> None:
        """Count from 1."""
        self._left = at

    def moment(self) -> None:
        """Pass a moment, or end here."""
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def set_up(self) -> None:
        """Stand in the way of every step that is not recorded yet."""
        step = TemporalEngine.step

        async def watched(engine: TemporalEngine, key: str, perform: Perform, *, counted: bool) -> str:
            was_performed = False

            async def performed(attempt: int) -> str:
                nonlocal was_performed
                was_performed = True
                self.moment()
                text = await perform(attempt)
                self.moment()
                return text

            text = await step(engine, key, performed, counted=counted)
            if was_performed:
                self.moment()
            return text

        TemporalEngine.step = watched  # type: ignore[method-assign, assignment]  # in a process of its own


async def start(server: str, folder: Path, run_id: str, place: str) -> None:
    """Start a run in this process, and carry it on."""
    seconds = 5.0 if place == "slow" else 0.0
    if place != "slow":
        Killing(int(place)).set_up()
    agent = make(folder, seconds=seconds)
    async with TemporalAgent(agent, server, task_queue=run_id, lease=LEASE) as durable:
        await durable.start("go", run_id=run_id)
        await asyncio.sleep(60)


def main(server: str, folder: str) -> None:
    """Fork a process for each line of input."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        run_id, place = line.split()
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(start(server, Path(folder), run_id, place))
            finally:
                os._exit(0)
        print(child, flush=True)  # noqa: T201  # it is what the test reads


if __name__ == "__main__":
    main(*sys.argv[1:])
