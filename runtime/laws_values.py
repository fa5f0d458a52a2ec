"""Strategies for what runs are made of: tools, responses, balanced histories, scripts. Nothing here asserts.

Sizes stay small: a law that holds for three messages and two tools holds for thirty. Knows nothing of run states.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from attrs import evolve
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ..capabilities.frozen import EMPTY, FrozenDict, Json, freeze_mapping
from ..capabilities.messages import (
    FINISH_REASONS,
    AssistantMessage,
    Content,
    FilePart,
    FinishReason,
    ImagePart,
    Message,
    Part,
    Status,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from ..capabilities.tools import Annotations, Tool, place
from .building import ToolLike
from .laws_arguments import arguments_of, words

# Which tools to draw from: given ones, a strategy for inventories, or None for any.
Tools: TypeAlias = Sequence[ToolLike] | SearchStrategy[tuple[Tool, ...]] | None

NAMES = ("search", "pay", "read_file", "erase", "mail")
UNKNOWN = "no_such_tool"
_SCHEMAS: tuple[FrozenDict[Json], ...] = tuple(
    freeze_mapping(schema, "schema")
    for schema in (
        {"type": "object"},
        {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        {"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": False},
    )
)
# Each usual value stands for what most runs are made of, so that the rare ones stay rare.
_USUAL = 6
metadata: SearchStrategy[FrozenDict[Json]] = st.sampled_from((EMPTY, EMPTY, FrozenDict({"tag": 1})))
# What a call that was answered, one way or another, may have come to; `pending` is of suspended runs only.
SETTLED: tuple[Status, ...] = (
    "succeeded", "answered", "failed", "denied", "validation_error", "unknown", "not_executed"
)  # fmt: skip


# Made once: building a strategy costs Hypothesis more than drawing from it.
_PARTS: SearchStrategy[Part] = (
    st.builds(TextPart, words)
    | st.builds(ImagePart, url=words, media_type=st.just("image/png"))
    | st.builds(FilePart, data=st.binary(max_size=4), media_type=st.just("application/pdf"))
)
# Mostly text, sometimes parts; shrinks to the empty text.
contents: SearchStrategy[Content] = words | words | words | st.lists(_PARTS, max_size=2).map(tuple)
usages: SearchStrategy[Usage | None] = st.sampled_from(
    (None, Usage(input_tokens=0, output_tokens=0), Usage(input_tokens=7, output_tokens=3))
)
flags = st.booleans()
statuses: SearchStrategy[Status] = st.sampled_from(SETTLED)
_HINTS = st.sampled_from(
    (
        Annotations(),
        Annotations(read_only=True),
        Annotations(destructive=True),
        Annotations(destructive=False, idempotent=True),
        Annotations(read_only=False, destructive=False, idempotent=False, open_world=True),
    )
)
_SHAPES = st.sampled_from(_SCHEMAS)
_ASKED = st.integers(0, _USUAL * 2)
_BAD_ARGUMENTS = st.sampled_from(('{"', "[]", '{"n": "1"}'))
_FINISH: Mapping[FinishReason, SearchStrategy[FinishReason]] = {
    usual: st.sampled_from((*[usual] * _USUAL * 2, *FINISH_REASONS)) for usual in FINISH_REASONS
}


@st.composite
def _made_tools(draw: DrawFn, names: Sequence[str], max_size: int) -> tuple[Tool, ...]:
    chosen = draw(st.lists(st.sampled_from(names), max_size=max_size, unique=True))
    return tuple(
        Tool(name, "", draw(_SHAPES), annotations=draw(_HINTS), metadata=draw(metadata)) for name in chosen
    )


def tools(*, max_size: int = 5) -> SearchStrategy[tuple[Tool, ...]]:
    """Return a strategy for inventories: tuples of at most `max_size` tools of different names.

    The tools are data only: a schema of an object with no property or one, any annotations, no function. Shrinks to
    none at all, and a tool to one that declares nothing.
    """
    return _made_tools((*NAMES, *(f"tool_{i}" for i in range(len(NAMES), max_size))), max_size)


def inventories(given: Tools, mentioned: frozenset[str] = frozenset()) -> SearchStrategy[tuple[Tool, ...]]:
    """Return a strategy for the inventories that `given` stands for; without it, `mentioned` tools are always there.

    Raises ValueError for two tools of one name.
    """
    if given is None:
        named = [Tool(name, "", schema) for name in sorted(mentioned) for schema in _SCHEMAS[1:2]]
        others = tools(max_size=3).map(
            lambda made: tuple(tool for tool in made if tool.name not in mentioned)
        )
        return others.map(lambda made: (*named, *made))
    if isinstance(given, SearchStrategy):
        return given
    return st.just(tuple(item.tool for item in place(given)))


@st.composite
def calls(draw: DrawFn, inventory: Sequence[Tool]) -> ToolCall:
    """Draw a call without id: mostly of a tool that is there, with arguments that its schema accepts."""
    usual = draw(_ASKED)
    if not inventory or usual == _USUAL * 2:
        return ToolCall("", UNKNOWN, "{}")
    tool = inventory[draw(st.integers(0, len(inventory) - 1))]
    if usual == _USUAL * 2 - 1:
        return ToolCall("", tool.name, draw(_BAD_ARGUMENTS))
    return ToolCall("", tool.name, json.dumps(draw(arguments_of(tool)), ensure_ascii=False))


@st.composite
def responses_of(
    draw: DrawFn, inventory: Sequence[Tool], max_calls: int, *, min_calls: int = 0
) -> AssistantMessage:
    """Draw a response whose calls have the ids `call-0`, `call-1` and so on."""
    asked = draw(st.lists(calls(inventory), min_size=min_calls, max_size=max_calls))
    usual: FinishReason = "tool_calls" if asked else "stop"
    return AssistantMessage(
        draw(contents),
        tool_calls=tuple(evolve(call, id=f"call-{i}") for i, call in enumerate(asked)),
        finish_reason=draw(_FINISH[usual]),
        usage=draw(usages),
        metadata=draw(metadata),
    )


def responses(*, tools: Tools = None, max_calls: int = 4) -> SearchStrategy[AssistantMessage]:
    """Return a strategy for responses of a model, with at most `max_calls` calls.

    Calls are of `tools` with arguments that their schemas accept; seldom of a tool that is not there, or with
    arguments that are no JSON. Their ids differ. Every finish reason occurs, most often the usual one. Shrinks to an
    empty text without calls.
    """
    return inventories(tools).flatmap(lambda inventory: responses_of(inventory, max_calls))


@st.composite
def histories_of(draw: DrawFn, inventory: Sequence[Tool], max_exchanges: int) -> tuple[Message, ...]:
    """Draw a balanced history over given tools."""
    made: list[Message] = [SystemMessage(draw(words))] if draw(st.sampled_from((False, False, True))) else []
    taken = 0
    for _ in range(draw(st.integers(0, max_exchanges))):
        made.append(UserMessage(draw(contents)))
        if draw(flags):
            response = draw(responses_of(inventory, 2))
            asked = tuple(evolve(call, id=f"past-{taken + i}") for i, call in enumerate(response.tool_calls))
            taken += len(asked)
            made.append(evolve(response, tool_calls=asked))
            made.extend(
                ToolMessage(call.id, call.name, draw(contents), status=draw(statuses)) for call in asked
            )
        made.append(AssistantMessage(draw(contents)))
    return tuple(made)


def histories(*, max_exchanges: int = 6, tools: Tools = None) -> SearchStrategy[tuple[Message, ...]]:
    """Return a strategy for histories of earlier runs, of at most `max_exchanges` exchanges.

    An exchange is a user message, perhaps a response with calls of `tools` and directly after it one result for each,
    then a closing response. Balanced by construction, ids unique, the first message that is no system message is a
    user's. Shrinks to the empty history.
    """
    return inventories(tools).flatmap(lambda inventory: histories_of(inventory, max_exchanges))


@st.composite
def scripts_of(draw: DrawFn, inventory: Sequence[Tool], max_steps: int) -> tuple[AssistantMessage, ...]:
    """Draw a script over given tools: replies with calls, the last one without."""
    steps = draw(st.lists(responses_of(inventory, 3, min_calls=1), max_size=max_steps - 1))
    return (*steps, AssistantMessage(draw(words)))


def scripts(*, tools: Tools = None, max_steps: int = 4) -> SearchStrategy[tuple[AssistantMessage, ...]]:
    """Return a strategy for scripts of `ScriptedModel`: at most `max_steps` responses, of which the last has no calls.

    Responses as `responses` draws them, with three calls at most; ids repeat from step to step, and the run renames
    them. Shrinks to a single empty text. Raises ValueError for `max_steps` below 1.
    """
    if max_steps < 1:
        raise ValueError(f"max_steps is {max_steps}: a script has at least one response")
    return inventories(tools).flatmap(lambda inventory: scripts_of(inventory, max_steps))
