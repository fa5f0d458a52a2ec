"""C67 a log is replayed elsewhere with equal digests; C69 what is impure is named by the first thing that differs."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import evolve, frozen

from capfold.capabilities import (
    AssistantMessage,
    CallState,
    Capability,
    RunState,
    UserMessage,
    call,
    tool,
    when,
)
from capfold.runtime import Agent, Log, ScriptedModel
from capfold.runtime.errors import ReplayError
from capfold.runtime.log_replay import replay
from tests.corruption.digest_story import logs

TELL = "from tests.corruption.replay_story import main; main()"
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("backend", "seed"), [("asyncio", "0"), ("asyncio", "7"), ("trio", "0"), ("trio", "7")]
)
def test_c67_replayed_elsewhere(tmp_path: Path, backend: str, seed: str) -> None:
    """From a file, in another process, under another hash seed, on either event loop: the digests of the run."""
    for log, last in zip(anyio.run(logs), ("0", "3"), strict=True):
        path = tmp_path / f"{last}.jsonl"
        path.write_text(log.to_jsonl())
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", TELL, backend, str(path), last],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert 0 == done.returncode, done.stderr[-2000:]
        assert [f"{record.kind} {record.digest}" for record in log] == done.stdout.splitlines()


# --- C69

COUNTER = [0]


def count() -> int:
    """Return a number that no run had before."""
    COUNTER[0] += 1
    return COUNTER[0]


SOURCES: dict[str, Callable[[], object]] = {
    "clock": time.monotonic_ns,
    "random": random.random,
    "counter": count,
    "object": lambda: id(object()) + count(),
}


@frozen
class Impure(Capability[str]):
    """Reads something that is no part of its record, at one hook, in the second step."""

    source: str
    at: str

    def initial(self) -> str:
        return ""

    def _read(self, hook: str, step: int) -> str | None:
        return f"{SOURCES[self.source]()}" if hook == self.at and step == 2 else None

    def before_model_request(self, state: RunState) -> RunState:
        read = self._read("before_model_request", state.run_step)
        return state if read is None else state.append(UserMessage(read))

    def after_model_request(self, state: RunState) -> RunState:
        read = self._read("after_model_request", state.run_step)
        assert state.response is not None
        return state if read is None else state.respond(evolve(state.response, metadata={"read": read}))

    def before_tool_execute(self, call: CallState) -> CallState:
        read = self._read("before_tool_execute", call.run.run_step)
        return call if read is None else call.with_arguments({"text": read})

    def admit_tool_execute(self, call: CallState) -> CallState:
        read = self._read("admit_tool_execute", call.run.run_step)
        return call if read is None else call.put(self, read)

    def after_tool_execute(self, call: CallState) -> CallState:
        read = self._read("after_tool_execute", call.run.run_step)
        return call if read is None else call.with_content(read)

    def after_run(self, state: RunState) -> RunState:
        read = self._read("after_run", 2)
        return state if read is None else state.note(read)


FIELDS = {
    "before_model_request": "changes.messages.added[0].content",
    "after_model_request": "changes.response.to.metadata.read",
    "before_tool_execute": "changes.arguments.to.text",
    "admit_tool_execute": "changes.run.slots.set.Impure",
    "after_tool_execute": "changes.outcome.to.content",
    "after_run": "changes.notes.added[0]",
}


@tool
async def say(text: str) -> str:
    """Say it."""
    return text


def agent(*capabilities: Any) -> Agent[str]:
    """Return an agent of three steps."""
    calls = [call("say", {"text": "a"}), call("say", {"text": "b"})]
    return Agent("desk", ScriptedModel([*calls, "done"]), tools=[say], capabilities=capabilities)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("at", FIELDS)
async def test_c69_replay_names_what_is_impure(at: str, source: str) -> None:
    """Capability, hook, field, what it was and what it came to: of the first transition that differs."""
    made = agent(Impure(source, at))
    log = (await made.run("go")).log
    with pytest.raises(ReplayError) as caught:
        replay(log, made)
    found = caught.value.difference
    assert found is not None
    assert found.a is not None
    assert found.b is not None
    assert ("Impure", at, "transition") == (found.a.actor, found.a.hook, found.a.kind)
    (parting, *_) = [one for one in found.fields if one.field == FIELDS[at]]
    assert parting.a != parting.b
    assert log[caught.value.record or 0] == found.a
    assert f"Impure {at} in step" in str(caught.value)
    assert FIELDS[at] in str(caught.value)


async def test_c69_a_hook_that_acts_now_and_then() -> None:
    """What is missing, or there in its place, is named as well; and a condition that changes its mind."""
    asked: list[int] = []

    def first(_: RunState) -> bool:
        asked.append(1)
        return len(asked) <= 3

    class Notes(Capability):
        def before_model_request(self, state: RunState) -> RunState:
            return state.note("here")

    made = agent(when(first, Notes()))
    log = (await made.run("go")).log
    with pytest.raises(ReplayError, match="Notes before_model_request in step 1 came out differently"):
        replay(log, made)


async def test_c69_what_is_pure_is_not_named() -> None:
    """The same hooks, reading nothing: the replay is equal."""
    made = agent(Impure("clock", "nowhere"))
    log = (await made.run("go")).log
    assert log.head == replay(log, made).records.head


async def test_c69_a_response_of_its_own_is_taken_from_the_log() -> None:
    """What a wrapper or gatherer reads outside is no fault: it is on record, and not read again."""

    class Outside(Capability):
        async def wrap_model_request(self, call_next: Any, state: RunState) -> RunState:
            return state.respond(AssistantMessage(f"{count()}"))

        async def gather_after_run(self, state: RunState, outside: Any) -> Any:
            return outside.random()

        def after_run(self, state: RunState) -> RunState:
            return state.note(f"{state.fact(self)}")

    made = agent(Outside())
    result = await made.run("go")
    again = replay(Log.from_records(result.log), made)
    assert result.state.output == again.state.output
    assert result.state.notes == again.state.notes
