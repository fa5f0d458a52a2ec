"""The two ways a case is driven: `agent.run`, and `agent.stream` read to its last event. Knows no case.

Tests write `agent.run(...)`. Each async test is run twice, and in its second run that goes by the stream.
"""

import sys
from collections.abc import Sequence
from typing import Any, TypeAlias, Unpack

import pytest

from capfold.capabilities import Content, Message, ToolMessage
from capfold.runtime import Agent, Ended, RunResult, Settled
from capfold.runtime.runs import RunOptions

WAYS = ("run", "stream")
Streamed: TypeAlias = list[Sequence[object]]  # for each run that was streamed, its events


_now = "run"


def way() -> str:
    """Return the way that the test under way is driven, for a scene that cannot go by `agent.run`."""
    return _now


def use(way: str, streamed: Streamed, patch: pytest.MonkeyPatch) -> None:
    """Let `agent.run` go by a way from here on; the events of a stream are added to `streamed`."""
    patch.setattr(sys.modules[__name__], "_now", way)
    if way == "run":
        return

    # Any: the output type of an agent is its own business.
    async def run(agent: Agent[Any], prompt: Content | None, **options: Unpack[RunOptions]) -> RunResult[Any]:
        events: list[object] = []
        streamed.append(events)
        async with agent.stream(prompt, **options) as told:
            async for event in told:
                events.append(event)  # noqa: PERF401  # one by one: those of a cancelled run are kept too
        ended = events[-1]
        assert isinstance(ended, Ended)
        assert 1 == sum(isinstance(event, Ended) for event in events)
        if ended.error is not None:
            check_told(events, ended.error.partial)
            raise ended.error
        assert ended.result is not None
        check_told(events, ended.result)
        return ended.result

    patch.setattr(Agent, "run", run)


def check_told(events: Sequence[object], result: RunResult[Any] | None) -> None:
    """What a consumer was told is settled stands in the history, in that order; no result of a call is missing."""
    if result is None:
        return
    told = [event.message for event in events if isinstance(event, Settled)]
    rest = iter(result.new_messages)
    assert all(any(message == kept for kept in rest) for message in told)
    assert results(result.new_messages) == results(told)


def results(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Return call id and status of the results in messages, in order; pending ones are none yet."""
    found = [(message.call_id, message.status) for message in messages if isinstance(message, ToolMessage)]
    return [(call_id, status) for call_id, status in found if status != "pending"]
