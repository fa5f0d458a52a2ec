"""Strategies for tales: of a given list of capabilities, with ours and strangers beside them in any order."""

import json
from collections.abc import Sequence
from typing import Final

from attrs import evolve
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ..capabilities.capability import AnyCapability
from ..capabilities.messages import AssistantMessage, FinishReason, ToolCall
from ..capabilities.refuse_tools import RefuseTools
from ..capabilities.require_approval import RequireApproval
from ..capabilities.tool_budget import ToolBudget
from ..capabilities.tools import Tool
from ..capabilities.trim_messages import TrimMessages
from .laws_arguments import arguments_of, words
from .laws_drawn import lives_for
from .laws_states import NO_FACTS
from .laws_strangers import Counts, Forges, Gathers, Wraps
from .laws_tale import HELPER, Asked, Blow, Cast, Choice, Deed, Reaction, Tale, Way
from .laws_values import Tools, calls
from .laws_world import PATIENCE
from .limits import Limits

OURS: Final[tuple[AnyCapability, ...]] = (
    ToolBudget(2, key="ours: budget"),
    RefuseTools(key="ours: refuse"),
    RequireApproval(key="ours: ask"),
    TrimMessages(2, key="ours: trim"),
)
# What ends a run early stands last in each list, and seldom, so that most runs get far.
_DEEDS: SearchStrategy[list[Deed]] = st.lists(
    st.sampled_from(
        (*["returns"] * 6, *["waits"] * 5, "fails", "crashes", "retries", "rubbish", "hangs", "unknown")
    ),
    min_size=1,
    max_size=5,
)
_REACTIONS: SearchStrategy[list[Reaction]] = st.lists(
    st.sampled_from((*["answers"] * 30, "fails", "fails for good", "crashes", "rubbish", "hangs")),
    min_size=1,
    max_size=4,
)
_CHOICES: SearchStrategy[list[Choice]] = st.lists(
    st.sampled_from(("approves", "approves", "always", "denies", "edits", "answers")), min_size=1, max_size=3
)
_ASKED: SearchStrategy[list[Asked]] = st.lists(
    st.sampled_from(("decides", "decides", "absent", "malformed")), max_size=2
)
_BLOWS: SearchStrategy[Blow] = st.sampled_from(("cancel", "scope", "stop", "late", "crash"))
_CUTS = st.none() | st.none() | st.tuples(st.integers(0, 15), _BLOWS)
_WAYS: SearchStrategy[Way] = st.sampled_from(("run", "run", "start", "stream"))
_LIMITS = st.sampled_from(
    (
        Limits(max_steps=8, tool_timeout=1.0),
        Limits(max_steps=8, tool_timeout=1.0),
        Limits(max_steps=8, tool_timeout=1.0, max_parallel_tools=2, request_timeout=5.0),
        Limits(max_steps=8, tool_timeout=1.0, deadline=90.0),
        Limits(max_steps=2, tool_timeout=1.0),
        Limits(max_steps=8, requests=3, tool_timeout=1.0),
        Limits(max_steps=8, tool_calls=3, tool_timeout=1.0),
        Limits(max_steps=8, tool_calls=6, tool_timeout=1.0),
        Limits(max_steps=8, total_tokens=20, tool_timeout=1.0),
    )
)
_STRANGERS: SearchStrategy[AnyCapability] = st.one_of(
    st.builds(
        Wraps,
        st.lists(
            st.sampled_from(
                (
                    *("passes", "twice", "at once", "changes", "persists", "notes"),
                    *("instead", "refuses", "stops", "raises"),
                )
            ),
            min_size=1,
            max_size=4,
        ).map(tuple),
        st.booleans(),
    ),
    st.just(Gathers()),
    st.just(Counts()),
    st.builds(
        Forges,
        st.sampled_from(
            (
                *("counters", "nested counters", "latches"),
                *("slot", "arguments", "arguments in", "verdict", "outcome", "tools"),
            )
        ),
    ),
)
_LOOK: Final = Tool("look", "", {"type": "object", "properties": {}, "additionalProperties": False})
_HELP: Final = ToolCall("", HELPER, '{"task": "help"}')
# Mostly each call has an id of its own; some models use one id again and again.
_SAME_IDS = st.sampled_from((*[""] * 6, "call"))
_FINISH: SearchStrategy[FinishReason] = st.sampled_from((*["tool_calls"] * 20, "length", "stop", "refusal"))
# Approvals are what most can go wrong with.
_FEW_OURS = st.lists(st.sampled_from((*OURS, OURS[2])), unique=True, max_size=2)
_FEW_STRANGERS = st.lists(_STRANGERS, max_size=3, unique_by=lambda one: one.key)


@st.composite
def tales(
    draw: DrawFn,
    capabilities: Sequence[AnyCapability] = (),
    *,
    tools: Tools = None,
    beside: bool = True,
    shuffled: bool = True,
) -> Tale:
    """Draw a tale of an agent with these capabilities; `beside`: with others, too; `shuffled`: in any order.

    Shrinks to a run in which a model asks for one call and nothing befalls.
    """
    life = draw(lives_for(capabilities, tools=tools, facts=NO_FACTS))
    inventory = life.tools or (_LOOK,)
    others = [*draw(_FEW_OURS), *draw(_FEW_STRANGERS)] if beside else []
    listed = draw(st.permutations([*capabilities, *others])) if shuffled else [*capabilities, *others]
    limits = draw(_LIMITS)
    helper: Cast | None = None
    if draw(st.booleans()):
        helper = Cast(
            script=draw(_scripts(inventory, 2, ())),
            tools=inventory,
            capabilities=(*draw(_FEW_OURS)[:1], *draw(_FEW_STRANGERS)[:1]),
            limits=draw(_LIMITS),
        )
    cut = draw(_CUTS)
    if cut is not None and cut[1] == "late":
        limits = evolve(limits, deadline=PATIENCE / 2)
    return Tale(
        root=Cast(
            script=draw(_scripts(inventory, 4, (_HELP,) if helper is not None else ())),
            tools=inventory,
            capabilities=(life.neighbour, *listed),
            limits=limits,
            instructions=life.instructions,
            settings=life.settings,
        ),
        helper=helper,
        history=life.history,
        prompt=life.prompt,
        context=life.context,
        deeds=tuple(draw(_DEEDS)),
        reactions=tuple(draw(_REACTIONS)),
        choices=tuple(draw(_CHOICES)),
        asked=tuple(draw(_ASKED)),
        cut=cut,
        way=draw(_WAYS),
        kept=draw(st.sampled_from((False, False, True))),
        through_text=draw(st.booleans()),
    )


@st.composite
def _scripts(
    draw: DrawFn, inventory: Sequence[Tool], most: int, more: tuple[ToolCall, ...]
) -> tuple[AssistantMessage, ...]:
    """Draw what a model says in up to `most` steps, each with a batch of calls: of the inventory, or of `more`.

    They are taken from a few, so that the same call comes again, beside others and later.
    """
    sure = inventory[draw(st.integers(0, len(inventory) - 1))]
    drawn = draw(st.lists(arguments_of(sure), min_size=1, max_size=2))
    few = [ToolCall("", sure.name, json.dumps(given, ensure_ascii=False)) for given in drawn]
    few += (*more, *more)
    few += draw(st.lists(calls(inventory), max_size=2))
    lines: list[AssistantMessage] = []
    for step in range(draw(st.integers(1, most))):
        same = draw(_SAME_IDS)
        places = draw(st.lists(st.integers(0, len(few) - 1), min_size=1, max_size=1 if same else 5))
        asked = tuple(evolve(few[n], id=same or f"s{step}.{i}") for i, n in enumerate(places))
        lines.append(AssistantMessage(draw(words), tool_calls=asked, finish_reason=draw(_FINISH)))
    return tuple(lines)
