"""Outputs of several kinds from a server that others wrote: asked for in a box, found again, judged strictly."""

import json
from typing import Any

import pytest

from capfold.runtime import Agent, ModelProfile, OpenAIModel
from capfold.runtime.openai_output import OUTPUT_TOOL
from tests.runtime.desk import check_closed
from tests.runtime.output_kinds import Cat, Dog, Leaf, Level
from tests.runtime.server_runs import asks, judged, play, says, weather
from tests.servers import Aimock, Body


@pytest.mark.parametrize("as_tool", [False, True], ids=["json_schema", "output tool"])
@pytest.mark.parametrize(
    ("kind", "bad", "good", "output"),
    [
        (int, '{"value": "3"}', '{"value": 3}', 3),
        (Level | None, '{"value": "loud"}', '{"value": "low"}', Level.LOW),
        (
            Cat | Dog,
            '{"value": {"type": "dog", "type": "cat", "lives": 1}}',
            '{"value": {"type": "dog", "lives": 1}}',
            Dog("dog", 1),
        ),
        (list[Leaf], '{"value": [{"num": 13}]}', '{"value": [{"num": 3}]}', [Leaf(num=3)]),
    ],
    ids=["int", "enum", "union", "pydantic"],
)
async def test_a_boxed_output(
    aimock: Aimock,
    *,
    as_tool: bool,
    kind: Any,  # Any: a type
    bad: str,
    good: str,
    output: object,
) -> None:
    """What is no object travels in one; an early output beside a call is left out, an invalid one sent back."""
    early: Body = asks(("a", "weather", {"city": "Rom"}), *([("e", OUTPUT_TOOL, good)] if as_tool else []))
    answers = [
        asks((f"o{i}", OUTPUT_TOOL, text)) if as_tool else says(text) for i, text in enumerate((bad, good))
    ]
    play(aimock, early, *answers)
    model = OpenAIModel("gpt-test", profile=ModelProfile(tools=True, json_schema=not as_tool))
    agent: Agent[object] = Agent("a", model, tools=[weather], output_type=kind)
    result = await agent.run("go")
    assert (output, 3, 1) == (result.output, result.requests, result.state.output_retries_used)
    check_closed(result.messages)
    first, *_, last = judged(aimock, result.requests)
    asked = (
        first["tools"][-1]["function"]["parameters"] if as_tool else first["response_format"]["json_schema"]
    )
    assert ["value"] == list((asked if as_tool else asked["schema"])["properties"])
    assert "The output is not valid: $" in last["messages"][-1]["content"]
    assert json.loads(good)["value"] == json.loads(str(result.messages[-1].content))
