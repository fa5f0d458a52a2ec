"""Errors as data: they reach another process as they are, and a broken one of the user's hides nothing."""

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from capfold.capabilities import RequireApproval, RunState, ToolCall, hook, tool
from capfold.runtime import Agent, AuditRecord, ModelError, ModelProfile, RunError, ScriptedModel, verify
from capfold.runtime.errors import CodecError, DecisionError, LogError, ReplayError
from capfold.runtime.machine import IllegalMove
from capfold.runtime.memory_store import MemoryStore
from capfold.runtime.phases import Phase
from capfold.runtime.stores import SnapshotClaimed, StoreConflict, StoreError
from tests.runtime.desk import check_closed, look, partial

ERRORS = [
    CodecError("is odd", "$.a"),
    DecisionError("fits nothing", "d"),
    LogError("is torn", 3),
    ReplayError("differs", 3),
    StoreError("is gone", "talk", 1),
    StoreConflict(1, 2, "talk"),
    SnapshotClaimed("run"),
    IllegalMove(Phase.ENDED, "event"),
    ModelError("server", "down", retryable=True, status=503, retry_after=1.0, partial="Half"),
]


def _sent(error: Exception) -> Exception:
    made: Exception = pickle.loads(pickle.dumps(error))  # noqa: S301  # its own bytes
    return made


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("way", [copy.copy, _sent])
def test_an_error_is_copied_whole(error: Exception, way: Callable[[Exception], Exception]) -> None:
    """From a pool of processes, say: type, message, fields and notes are those of the original."""
    error.add_note("seen before")
    made = way(error)
    assert (type(error), str(error), vars(error)) == (type(made), str(made), vars(made))


class Mute(Exception):
    """An exception that cannot say what it means."""

    def __str__(self) -> str:
        raise LookupError


@tool
def hush() -> str:
    """Raise."""
    raise Mute


@hook.before_run
def hushed(state: RunState) -> RunState:
    """Raise."""
    raise Mute


async def silent(*given: object) -> Any:  # Any: of whatever it stands for
    """Raise."""
    raise Mute


class MuteModel:
    """A model that raises."""

    name = "mute"
    profile = ModelProfile()
    request = staticmethod(silent)


class MuteSink:
    """A sink that raises."""

    best_effort = False

    async def write(self, records: Sequence[AuditRecord]) -> None:
        """Keep nothing."""
        raise Mute

    async def close(self) -> None:
        """Hold nothing open."""


class MuteStore(MemoryStore):
    """A store that raises when it loads."""

    load = staticmethod(silent)  # type: ignore[assignment]  # takes and raises the same


ASK = [ToolCall("a", "look", '{"n": 1}'), ToolCall("b", "hush")]
MUTE: dict[str, dict[str, Any]] = {
    "tool": {},
    "hook": {"capabilities": [hushed]},
    "wrapper": {"capabilities": [hook.wrap_run(silent)]},
    "request wrapper": {"capabilities": [hook.wrap_model_request(silent)]},
    "approver": {"capabilities": [RequireApproval({"look"})], "approver": silent},
    "prompt source": {"instructions": silent},
    "model": {"model": MuteModel()},
    "sink": {"sinks": [MuteSink()]},
    "store": {"store": MuteStore()},
}


@pytest.mark.parametrize("where", MUTE)
async def test_an_exception_that_cannot_speak(where: str) -> None:
    """It counts as any other, wherever it is raised: named by its type, history closed, log whole."""
    options = {"model": ScriptedModel([ASK, "done"]), **MUTE[where]}
    agent = Agent("desk", tools=[look, hush], **options)
    conversation = "talk" if where == "store" else None
    try:
        result: Any = await agent.run("go", conversation=conversation)
        assert ("suspended" if where == "approver" else "completed") == result.status
    except RunError as error:
        result = partial(error)
    assert any("Mute" in str(record.facts) for record in result.log)
    verify(result.log)
    if result.status != "suspended":
        check_closed(result.messages)
