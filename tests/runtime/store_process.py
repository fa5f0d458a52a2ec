"""What another process does with a store, for the tests of stores: run as a program, with a command.

Each command prints one JSON value a line, at once, so that its parent knows what was acknowledged. Nothing here
asserts.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from subprocess import Popen

import anyio

from capfold.capabilities.messages import UserMessage
from capfold.runtime.postgres_store import PostgresStore
from capfold.runtime.sqlite_store import SQLiteStore
from capfold.runtime.stores import MessageStore, SnapshotClaimed, StoreConflict, StoreError


def start(command: str, location: str, *arguments: str) -> Popen[str]:
    """Start this module as a process, which opens a store, and waits for `let_go`."""
    line = [sys.executable, str(Path(__file__)), command, location, *arguments]
    return Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def let_go(*processes: Popen[str]) -> None:
    """Wait until processes are ready, and let them go on, all at once."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == '"ready"\n'
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def go(*processes: Popen[str]) -> list[list[object]]:
    """Let processes go on; return what each printed, when they have ended."""
    let_go(*processes)
    printed = []
    for process in processes:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
        printed.append([json.loads(line) for line in output.splitlines()])
    return printed


def store_at(location: str) -> MessageStore:
    """Return the store at a path or URL."""
    return PostgresStore(location) if location.startswith("postgresql:") else SQLiteStore(location)


def say(value: object) -> None:
    """Print a JSON value."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def race(store: MessageStore, name: str, places: str) -> None:
    """Write to each place of the conversation `race` unless another one was faster; print how each attempt went."""
    place = 0
    while place < int(places):
        try:
            await store.append("race", [UserMessage(f"{name} {place}")], place)
        except StoreConflict as error:
            say(["lost", place, error.expected, error.found])
            place = error.found
        else:
            say(["won", place])
            place += 1


async def pairs(store: MessageStore) -> None:
    """Append two messages after two, without end; print how many are acknowledged."""
    place = 0
    while True:
        await store.append("pairs", [UserMessage(f"{place}"), UserMessage(f"{place + 1}")], place)
        place += 2
        say(place)


async def claim(store: MessageStore, run_id: str) -> None:
    """Claim a run; print whether it was this process's."""
    try:
        await store.claim(run_id)
    except SnapshotClaimed:
        say("refused")
    else:
        say("claimed")


async def hold(store: MessageStore, run_id: str, snapshot: str) -> None:
    """Hold a snapshot; print whether it is kept."""
    try:
        await store.hold(run_id, snapshot)
    except StoreError:
        say("refused")
    else:
        say("held")


async def fill(store: MessageStore, path: str) -> None:
    """Append, append more than files may hold, read, and append again when they may be larger."""
    await store.append("kept", [UserMessage("before")], 0)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = max(Path(path + end).stat().st_size for end in ("", "-wal"))  # noqa: ASYNC240  # nobody waits
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 20_000, unlimited[1]))
    for _ in range(2):
        try:
            await store.append("kept", [UserMessage("x" * 10), UserMessage("x" * 100_000)], 1)
        except StoreError as error:
            say(["refused", str(error)])
    say(["while full", [message.content for message in await store.load("kept")]])
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    await store.append("kept", [UserMessage("after")], 1)
    await store.close()
    say(["at last", [message.content for message in await store.load("kept")]])


async def fork(store: MessageStore) -> None:
    """Use a store, fork, and use it in both processes; print what stands in it."""
    await store.append("forked", [UserMessage("before")], 0)


def fork_in(location: str) -> None:
    """Do `fork` with an open store; each process has an event loop of its own."""
    store = store_at(location)
    anyio.run(fork, store)
    child = os.fork()
    if not child:
        anyio.run(store.append, "forked", [UserMessage("child")], 1)
        # The usual end of a process: what it inherited is closed with it.
        sys.exit()
    _, status = os.waitpid(child, 0)
    anyio.run(store.append, "forked", [UserMessage("parent")], 2)
    say([status, [message.content for message in anyio.run(store.load, "forked")]])
    anyio.run(store.close)


COMMANDS: dict[str, Callable[..., Awaitable[None]]] = {
    "race": race,
    "pairs": pairs,
    "claim": claim,
    "hold": hold,
    "fill": fill,
}


async def command(name: str, location: str, arguments: list[str]) -> None:
    """Open a store, wait for the parent's word, and do as the command says."""
    async with store_at(location) as store:
        await store.pending()
        say("ready")
        sys.stdin.readline()
        await COMMANDS[name](store, *arguments)


if __name__ == "__main__":
    if sys.argv[1] == "fork":
        say("ready")
        sys.stdin.readline()
        fork_in(sys.argv[2])
    else:
        anyio.run(command, sys.argv[1], sys.argv[2], sys.argv[3:])
