"""What is known of a durable run whose worker dies at a moment of it, on any engine; and processes that are to die.

`tests.runtime.durable_processes` and `tests.runtime.temporal_processes` are the programs, and say what a place is.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from capfold.runtime import Answer, Approve, Decision, Deny, RunResult
from tests.runtime.desk import contents, results
from tests.runtime.durable_desk import bodies

STEPS = [
    "1:1:model",
    "2:1:call/call_1_0",
    "2:1:call/call_1_1",
    "3:2:model",
    "4:2:call/call_4_0",
    "5:3:model",
    "6:3:end",
]
# Of each step: before it is performed, before it is recorded or anybody told, and right after.
MOMENTS = range(1, 3 * len(STEPS) + 1)
INSIDE_PAY = 14  # the second payment was made, and that is not recorded
AT_ONCE = 5  # more at once, and they are too slow for their leases
DECISIONS: tuple[tuple[Decision, int, str, str], ...] = (
    (Approve(), 2, "succeeded", "paid 3"),
    (Deny("It was paid, says the bank."), 1, "unknown", "It was paid, says the bank."),
    (Answer("paid 3, says the bank"), 1, "answered", "paid 3, says the bank"),
)

# Any: what a coroutine yields to its loop is the loop's affair
Start: TypeAlias = Callable[[str, Path, str, str], Coroutine[Any, Any, None]]


def places(some: tuple[int, ...]) -> tuple[int, ...]:
    """Return the moments at which workers die: some of them, or with CAPFOLD_FULL in the environment all."""
    return tuple(MOMENTS) if os.environ.get("CAPFOLD_FULL") else some


# --- processes


class Nursery:
    """Starts processes that are to die."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def start(self, run_id: str, place: str) -> int:
        """Start one; return its id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{run_id} {place}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@contextmanager
def nursery(program: str, where: str, folder: Path) -> Iterator[Nursery]:
    """Keep a process of a program, by its module's name, from which others are forked."""
    command = [sys.executable, "-m", program, where, str(folder)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    ) as process:
        try:
            yield Nursery(process)
        finally:
            process.kill()


def fork_each(start: Start, where: str, folder: str) -> None:
    """Be such a program: fork a process for each line `RUN PLACE` of input, and print its id."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        run_id, place = line.split()
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(start(where, Path(folder), run_id, place))
            finally:
                os._exit(0)
        print(child, flush=True)  # noqa: T201  # the test reads it


# --- what holds of the run


def effects(folder: Path, run_id: str) -> list[str]:
    """Return what the tools of a run did, without attempts and keys."""
    file = folder / run_id
    return [" ".join(line.split()[:2]) for line in file.read_text().splitlines()] if file.exists() else []


def check_once(result: RunResult[str], done: list[str], local: RunResult[str]) -> bool:
    """Assert that nothing was paid twice, and that what is not known to be paid is said to be unknown.

    Return whether no call was interrupted; the run is then as the local one.
    """
    assert "completed" == result.status
    said = [status for tool, status in results(result.messages) if tool == "pay"]
    notes = {record.call: record.facts for record in result.log if "interrupted" in record.facts}
    for n, status in zip((2, 3), said, strict=True):
        assert done.count(f"pay {n}") <= 1
        if status == "succeeded":
            assert 1 == done.count(f"paid {n}")
        else:
            assert "unknown" == status
    assert said.count("unknown") == len(notes)
    assert {"unknown"} >= {str(facts["handled"]) for facts in notes.values()}
    if not notes:
        assert bodies(result) == bodies(local)
    return not notes


def check_again(result: RunResult[str], folder: Path, run_id: str) -> None:
    """Assert that the second payment ran twice, with one key, as attempts one and two, and that the log says so."""
    lines = [line.split() for line in (folder / run_id).read_text().splitlines()]
    paid = [line for line in lines if line[:2] == ["pay", "3"]]
    key = f"{run_id}:2:call_4_0"
    assert [["pay", "3", "1", key], ["pay", "3", "2", key]] == paid
    notes = [record.facts for record in result.log if "interrupted" in record.facts]
    assert [{"interrupted": 1, "handled": "retry"}] == notes
    assert "completed" == result.status


def check_asked(result: RunResult[str], done: list[str], times: int, status: str, content: str) -> None:
    """Assert that the second payment ran `times` times and came to what a person said, and that the log says so."""
    assert times == done.count("pay 3")
    assert ("pay", status) == results(result.messages)[-1]
    assert content == contents(result.messages)[-1]
    (note,) = [record.facts for record in result.log if "interrupted" in record.facts]
    assert "ask" == note["handled"]


def check_frozen(result: RunResult[str], done: list[str], steps: list[str]) -> None:
    """Assert that a run went on without the process that was frozen in its first payment, and has one history."""
    assert [("look", "succeeded"), ("pay", "unknown"), ("pay", "succeeded")] == results(result.messages)
    assert 1 == done.count("pay 2")
    assert 1 == done.count("pay 3")
    assert STEPS == sorted(steps)
