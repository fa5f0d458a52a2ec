"""What another process does with a log in a database, for the tests of sinks: run as a program, with a command.

Each command prints one JSON value a line, at once, so that its parent knows what was acknowledged. Nothing here
asserts.
"""

import resource
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from subprocess import Popen

import anyio

from capfold.runtime.entries import Entry
from capfold.runtime.log import Log
from capfold.runtime.sql_log import PostgresLog, SQLiteLog
from capfold.runtime.stores import StoreError
from tests.runtime.entries_story import story
from tests.runtime.store_process import say


def start(command: str, location: str, *arguments: str) -> Popen[str]:
    """Start this module as a process, which opens a sink, and waits for `let_go` of `store_process`."""
    line = [sys.executable, "-m", "tests.runtime.log_process", command, location, *arguments]
    return Popen(
        line,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent.parent,
    )


def sink_at(location: str) -> SQLiteLog | PostgresLog:
    """Return the sink at a path or URL."""
    return PostgresLog(location) if location.startswith("postgresql:") else SQLiteLog(location)


async def race(sink: SQLiteLog | PostgresLog, name: str, runs: str) -> None:
    """Write runs record by record, as fast as it goes."""
    for n in range(int(runs)):
        log = Log(story(f"{name}-{n}"))
        for i in range(len(log)):
            await sink.write(log[i : i + 1])
    say("done")


async def pairs(sink: SQLiteLog | PostgresLog) -> None:
    """Append two records after two to one run, without end; print how many are acknowledged."""
    log = Log([Entry("run_started", "pairs", 0, 0.0), Entry("note", "pairs", 0, 0.0)])
    while True:
        await sink.write(log[-2:])
        say(len(log))
        log.append([Entry("note", "pairs", 0, 0.0, facts={"x": len(log)})] * 2)


async def fill(sink: SQLiteLog | PostgresLog, path: str) -> None:
    """Write, write more than files may hold, and write again when they may be larger."""
    log = Log([Entry("run_started", "r", 0, 0.0), Entry("note", "r", 0, 0.0, facts={"x": "y" * 100_000})])
    await sink.write(log[:1])
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = max(Path(path + end).stat().st_size for end in ("", "-wal"))  # noqa: ASYNC240  # nobody waits
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 20_000, unlimited[1]))
    for _ in range(2):
        try:
            await sink.write(log[1:])
        except StoreError as error:
            say(str(error))
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    await sink.write(log[1:])


COMMANDS: dict[str, Callable[..., Awaitable[None]]] = {"race": race, "pairs": pairs, "fill": fill}


async def command(name: str, location: str, arguments: list[str]) -> None:
    """Open a sink, wait for the parent's word, and do as the command says."""
    sink = sink_at(location)
    say("ready")
    sys.stdin.readline()
    await COMMANDS[name](sink, *arguments)
    await sink.close()


if __name__ == "__main__":
    anyio.run(command, sys.argv[1], sys.argv[2], sys.argv[3:])
