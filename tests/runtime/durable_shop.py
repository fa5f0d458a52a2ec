"""A shop whose durable runs are started here and carried on by worker processes, for tests of the command line."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from click.testing import CliRunner, Result

from capfold.runtime.commands import capfold

SHOP = '''
import asyncio
import time
from capfold.capabilities import RequireApproval, ToolMessage, call, is_destructive, tool
from capfold.runtime import Agent, FunctionModel
from capfold.runtime.dbos_port import DurableAgent


def note(line):
    with open("effects.txt", "a") as file:
        file.write(line + "\\n")


@tool(destructive=True)
async def pay(amount: int) -> str:
    """Pay."""
    note(f"begun {amount}")
    await asyncio.sleep(amount / 10)
    note(f"paid {amount}")
    return f"paid {amount}"


@tool(destructive=True)
def hold(seconds: int) -> str:
    """Hold a thread."""
    note("begun")
    time.sleep(seconds)
    return "held"


def reply(request):
    results = [m.content for m in request.messages if isinstance(m, ToolMessage)]
    if results:
        return f"Done: {', '.join(results)}."
    task = request.messages[0].content
    if task.isdigit():
        return [call("pay", {"amount": int(task)}, id="a")]
    if task == "hold":
        return [call("hold", {"seconds": 60}, id="a")]
    if task == "break":
        raise OSError("no line to the model")
    return "Hello."


agent = Agent("shop", FunctionModel(reply), tools=[pay, hold], capabilities=[RequireApproval(is_destructive)])
'''
SECONDS = 60
LEASE = "1.5"


def make(folder: Path, url: str) -> None:
    """Write the shop's module into a folder: `shop:agent`, and `shop:durable` on a database."""
    (folder / "shop.py").write_text(
        f"{SHOP}\ndurable = DurableAgent(agent, {url!r}, lease={LEASE})\nnothing = 5\n"
    )


def start(**prompts: str) -> None:
    """Start runs, by id, in a process that leaves them when each has ended, or waits."""
    import shop  # type: ignore[import-not-found]  # noqa: PLC0415  # made by `make`

    async def started() -> None:
        async with shop.durable as durable:
            for run_id, prompt in prompts.items():
                await durable.start(prompt, run_id=run_id)
            while any(  # noqa: ASYNC110  # a database tells nobody
                one.status in {"queued", "running"} for one in await durable.list()
            ):
                await asyncio.sleep(0.05)

    asyncio.run(started())


def result(run_id: str) -> object:
    """Be a worker until a run has ended; return status and output."""
    import shop  # noqa: PLC0415  # made by `make`

    async def ended() -> object:
        async with shop.durable as durable:
            found = await durable.result(run_id)
            return found.status, found.output

    return asyncio.run(ended())


def run(*arguments: str) -> Result:
    """Run a command in this process, without a terminal."""
    return CliRunner().invoke(capfold, arguments)


def effects(folder: Path) -> list[str]:
    """Return what the tools did."""
    file = folder / "effects.txt"
    return file.read_text().splitlines() if file.exists() else []


def until(done: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < end, "it never was so"
        time.sleep(0.05)


class WorkerProcess:
    """A worker that is under way; `said` holds its output once it has ended."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.said = ""

    def tell(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal."""
        os.kill(self.process.pid, number)

    def ended(self) -> int:
        """Wait for its end; return its exit code."""
        out, err = self.process.communicate(timeout=SECONDS)
        self.said += out + err
        return self.process.returncode


@contextlib.contextmanager
def worker(folder: Path, *options: str, agent: str = "shop:agent") -> Iterator[WorkerProcess]:
    """Start a worker in a folder, and wait until it carries runs on."""
    command = [sys.executable, "-m", "capfold.runtime", "worker", agent, *options]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise AssertionError(process.communicate()[1])
        found = WorkerProcess(process)
        found.said = line
        yield found
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
