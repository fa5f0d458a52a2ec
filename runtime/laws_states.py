"""Strategies for lives, and for the run and call states that occur in them. Nothing here asserts."""

import json
from collections.abc import Mapping
from typing import TypeAlias, cast

from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ..capabilities.call_state import CallState
from ..capabilities.capability import Capability
from ..capabilities.compose import Link
from ..capabilities.frozen import EMPTY, FrozenDict, Json, freeze
from ..capabilities.grid import HOOKS, REDUCERS, TOOL_HOOKS
from ..capabilities.messages import ToolCall
from ..capabilities.records import replace
from ..capabilities.state import RunState
from ..capabilities.tools import Tool
from ..capabilities.verdict import Failure, Outcome
from .laws_arguments import arguments_of, json_objects, words
from .laws_lives import Life, Neighbour, Record, live
from .laws_values import (
    Tools,
    contents,
    flags,
    histories_of,
    inventories,
    metadata,
    responses_of,
    scripts_of,
)

Facts: TypeAlias = Mapping[str, SearchStrategy[object]]
NO_FACTS: Facts = FrozenDict()

_FAILED = Failure("ToolFailed", "no", ("Exception",))
_CRASHED = Failure("OSError", "gone", ("Exception",))
_ENDINGS = st.sampled_from(
    (
        Outcome("succeeded", attempts=1),
        Outcome("succeeded", attempts=1),
        Outcome("failed", "no", error=_FAILED, attempts=1),
        Outcome("unknown", "gone", error=_CRASHED, attempts=2),
        Outcome("answered", "known", by="Cache"),
        Outcome("not_executed", "not run", by="runtime"),
    )
)
_VERDICTS = st.lists(st.sampled_from(("", "", "refuse", "ask", "answer")), max_size=3)
_CONTEXTS = st.just(EMPTY) | json_objects(max_size=2)
_SETTINGS: SearchStrategy[FrozenDict[Json]] = st.sampled_from((EMPTY, FrozenDict({"temperature": 0})))
_KEPT = st.sampled_from((0, 0, 1, 3))
_APPROVALS = st.lists(flags.map(lambda denied: not denied), min_size=1, max_size=2)


@st.composite
def _results(draw: DrawFn) -> Outcome:
    ending = draw(_ENDINGS)
    return replace(ending, content=draw(contents), metadata=draw(metadata))


# What becomes of a call that runs.
endings: SearchStrategy[Outcome] = _results()
_RESULTS = st.lists(endings, min_size=1, max_size=3)


@st.composite
def lives_of(
    draw: DrawFn, inventory: tuple[Tool, ...], facts: Mapping[str, SearchStrategy[Json]], *, calls: bool
) -> Life:
    """Draw a life over given tools; `calls`: one in which a tool is asked for at once, where there is one."""
    script = draw(scripts_of(inventory, 4))
    if calls and inventory:
        tool = inventory[draw(st.integers(0, len(inventory) - 1))]
        sure = ToolCall("sure", tool.name, json.dumps(draw(arguments_of(tool)), ensure_ascii=False))
        more = draw(responses_of(inventory, 2))
        first = evolve(more, tool_calls=(sure, *more.tool_calls), finish_reason="tool_calls")
        script = (first, *script)
    hidden = draw(st.sets(st.integers(0, len(inventory) - 1), max_size=2)) if inventory else set()
    return Life(
        tools=inventory,
        history=draw(histories_of(inventory, 2)),
        prompt=draw(contents),
        context=draw(_CONTEXTS),
        instructions=draw(words),
        settings=draw(_SETTINGS),
        script=script,
        results=tuple(draw(_RESULTS)),
        approvals=tuple(draw(_APPROVALS)),
        neighbour=Neighbour(
            hidden=frozenset(inventory[i].name for i in hidden),
            keep_last=draw(_KEPT),
            instructions=draw(words),
            verdicts=tuple(draw(_VERDICTS)),
        ),
        facts=FrozenDict(
            {name: tuple(draw(st.lists(fact, min_size=1, max_size=2))) for name, fact in facts.items()}
        ),
    )


def frozen_json(facts: Facts) -> dict[str, SearchStrategy[Json]]:
    """Return strategies whose values are frozen JSON. Raises TypeError for what is no strategy."""
    for name, fact in facts.items():
        if not isinstance(fact, SearchStrategy):
            raise TypeError(f"facts[{name!r}] must be a Hypothesis strategy, not {type(fact).__name__}")
    return {name: fact.map(freeze) for name, fact in facts.items()}


@frozen
class _Witness(Capability):
    """Sees every record and changes nothing: whatever is a reducer is overridden."""

    def before_run(self, state: RunState) -> RunState:
        return state

    def after_run(self, state: RunState) -> RunState:
        return state

    def before_model_request(self, state: RunState) -> RunState:
        return state

    def after_model_request(self, state: RunState) -> RunState:
        return state

    def before_tool_execute(self, call: CallState) -> CallState:
        return call

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call

    def after_tool_execute(self, call: CallState) -> CallState:
        return call


_WITNESS = _Witness()


def seen_at(life: Life, hooks: frozenset[str]) -> list[Record]:
    """Return the records that reducers of these hooks get in a life, in order."""
    seen: list[Record] = []

    def note(link: Link, record: Record) -> Record:
        if link.hook in hooks:
            seen.append(record)
        return record

    live(life, (_WITNESS,), note)
    return seen


def _hooks(hook: str | None, *, tool: bool) -> frozenset[str]:
    legal = [name for name in REDUCERS if (name in TOOL_HOOKS) is tool]
    if hook is not None and hook not in legal:
        what = f"takes a {HOOKS[hook].record}" if hook in REDUCERS else "is no reducer"
        raise ValueError(f"{hook!r} {what}; one of these is meant: {', '.join(legal)}")
    return frozenset(legal if hook is None else [hook])


@st.composite
def _records(
    draw: DrawFn,
    inventory: SearchStrategy[tuple[Tool, ...]],
    hooks: frozenset[str],
    facts: Mapping[str, SearchStrategy[Json]],
    *,
    calls: bool,
) -> Record:
    life = draw(lives_of(draw(inventory), {}, calls=calls))
    seen = seen_at(life, hooks)
    if not seen:
        # Not every life gets there: a truncated response ends one. This one does, with the same tools.
        seen = seen_at(_plain(life), hooks)
    record = seen[draw(st.integers(0, len(seen) - 1))]
    if not facts:
        return record
    return replace(record, facts=FrozenDict({key: draw(fact) for key, fact in facts.items()}))


def _plain(life: Life) -> Life:
    """Return the life in which nothing gets in the way: its first response whole, and no neighbour."""
    first, *_, last = (evolve(life.script[0], tool_calls=life.script[0].tool_calls[:1]), life.script[-1])
    script = (first, last) if first.tool_calls else (last,)
    whole = [evolve(one, finish_reason="tool_calls" if one.tool_calls else "stop") for one in script]
    return evolve(life, script=tuple(whole), neighbour=Neighbour())


def run_states(
    *, hook: str | None = None, tools: Tools = None, facts: Facts = NO_FACTS
) -> SearchStrategy[RunState]:
    """Return a strategy for run states as a run hook gets them; without `hook`, as any of them does.

    They come from whole runs of the machine over a drawn script, so that they are what a run reaches: before a request
    no response of this step is there, after it there is one, after_run has an output; counters, history and view
    agree. An earlier capability may have hidden tools and messages. Slots are empty: `check_capability` fills those of
    the capability that it checks. `tools`: an inventory, or a strategy for inventories. `facts`: key of a capability ->
    strategy for what its gatherer brought. Shrinks to a run of one empty prompt without tools.

    Raises ValueError for a hook that takes no RunState.
    """
    hooks = _hooks(hook, tool=False)
    made = _records(inventories(tools), hooks, frozen_json(facts), calls=False)
    return cast(SearchStrategy[RunState], made)


def call_states(
    *, hook: str | None = None, tools: Tools = None, facts: Facts = NO_FACTS
) -> SearchStrategy[CallState]:
    """Return a strategy for call states as a tool hook gets them; without `hook`, as any of them does.

    From whole runs, as `run_states`: before and while a call is judged its arguments are valid and it has no outcome,
    and `earlier` holds the admitted calls of its batch; afterwards there is an outcome of any status but "pending". The
    tool is of the inventory or, for an after hook, perhaps the placeholder of an unknown one.

    Raises ValueError for a hook that takes no CallState, or tools that are none: no call could be made.
    """
    hooks = _hooks(hook, tool=True)
    inventory = inventories(tools)
    if tools is None:
        inventory = inventory.filter(bool)
    made = _records(inventory, hooks, frozen_json(facts), calls=True)
    return cast(SearchStrategy[CallState], made)
