"""Hypothesis strategies for records, shared by the property tests. Nothing here asserts.

Sizes stay small: a property that holds for three messages and two tools holds for thirty.
"""

import json
from collections.abc import Sequence

from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from capfold.capabilities.call_state import CallState
from capfold.capabilities.frozen import EMPTY, FrozenDict, Json, freeze, freeze_mapping
from capfold.capabilities.messages import (
    FINISH_REASONS,
    STATUSES,
    AssistantMessage,
    AudioPart,
    Content,
    FilePart,
    ImagePart,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from capfold.capabilities.run_parts import Fail, NamedModel, OutputSpec, Stop
from capfold.capabilities.state import RunState
from capfold.capabilities.tools import Annotations, Tool
from capfold.capabilities.verdict import (
    ALWAYS,
    Answered,
    Ask,
    Failure,
    Outcome,
    Problem,
    Refusal,
    Verdict,
)
from capfold.capabilities.views import Projection


@frozen
class StubModel:
    """A model of which only the name matters."""

    name: str


@frozen
class Window:
    """A slot value of a class of its own."""

    start: int
    labels: tuple[str, ...] = ()
    seen: frozenset[int] = frozenset()


MODELS: dict[str, NamedModel] = {name: StubModel(name) for name in ("scripted", "other")}
SLOT_TYPES: dict[str, object] = {
    "Budget": int,
    "Memory": frozenset[str],
    "Trim": Window,
    "Cache": FrozenDict[Json],
    "Plan": tuple[str, ...] | None,
}
TOOL_NAMES = ("search", "pay", "read_file")

words = st.text(max_size=8)
names = st.sampled_from(TOOL_NAMES)
ids = st.text("abcdef0123456789", min_size=1, max_size=6)
counts = st.integers(0, 1000)
times = st.none() | st.floats(0, 2e9)


def json_values(*, max_leaves: int = 8) -> SearchStrategy[Json]:
    """Return a strategy for frozen JSON values of at most `max_leaves` scalars."""
    scalars = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=10)
    )
    nested = st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
        max_leaves=max_leaves,
    )
    return nested.map(freeze)


def json_objects(*, max_leaves: int = 4) -> SearchStrategy[FrozenDict[Json]]:
    """Return a strategy for frozen JSON objects."""
    values = json_values(max_leaves=max_leaves)
    return st.dictionaries(words, values, max_size=3).map(lambda made: freeze_mapping(made, "drawn"))


# Mostly empty: what is rarely filled in life is rarely filled here, which keeps examples readable.
metadata: SearchStrategy[FrozenDict[Json]] = st.just(EMPTY) | json_objects()


@st.composite
def _blobs(draw: DrawFn) -> Part:
    kinds: tuple[type[ImagePart | AudioPart | FilePart], ...] = (ImagePart, AudioPart, FilePart)
    kind = draw(st.sampled_from(kinds))
    media_type = draw(st.sampled_from(("image/png", "audio/wav", "application/pdf")))
    if draw(st.booleans()):
        return kind(url=draw(words), media_type=media_type)
    return kind(data=draw(st.binary(max_size=12)), media_type=media_type)


def parts() -> SearchStrategy[Part]:
    """Return a strategy for the parts of a content."""
    return st.builds(TextPart, words) | _blobs()


def contents() -> SearchStrategy[Content]:
    """Return a strategy for contents: mostly text, sometimes parts."""
    return words | words | st.lists(parts(), max_size=3).map(tuple)


def usages() -> SearchStrategy[Usage]:
    """Return a strategy for token usages, known and unknown."""
    some = st.none() | counts
    return st.builds(Usage, input_tokens=some, output_tokens=some, cached_tokens=some, reasoning_tokens=some)


def tool_calls(*, tool_names: Sequence[str] = TOOL_NAMES) -> SearchStrategy[ToolCall]:
    """Return a strategy for calls: arguments are mostly JSON, sometimes any text at all."""
    arguments = json_objects().map(json.dumps) | st.text(max_size=10)
    return st.builds(
        ToolCall,
        ids,
        st.sampled_from(tool_names),
        arguments,
        metadata=metadata,
        origin=st.sampled_from(("model", "Budget")),
    )


def responses(
    *, tool_names: Sequence[str] = TOOL_NAMES, max_calls: int = 3
) -> SearchStrategy[AssistantMessage]:
    """Return a strategy for responses whose calls have different ids."""
    calls = st.lists(tool_calls(tool_names=tool_names), max_size=max_calls, unique_by=lambda call: call.id)
    return st.builds(
        AssistantMessage,
        contents(),
        tool_calls=calls.map(tuple),
        finish_reason=st.sampled_from(FINISH_REASONS),
        usage=st.none() | usages(),
        model=st.none() | st.sampled_from(sorted(MODELS)),
        provider_items=st.just(()) | st.lists(json_objects(), max_size=2),
        metadata=metadata,
        at=times,
    )


def messages() -> SearchStrategy[Message]:
    """Return a strategy for single messages of every kind; alone they need not be balanced."""
    return (
        st.builds(SystemMessage, words, at=times)
        | st.builds(UserMessage, contents(), at=times)
        | st.builds(ToolMessage, ids, names, contents(), status=st.sampled_from(STATUSES), at=times)
        | responses()
    )


@st.composite
def histories(draw: DrawFn, *, max_exchanges: int = 4) -> tuple[Message, ...]:
    """Draw a balanced history: user first, each call answered once directly after its message, ids unique."""
    made: list[Message] = [SystemMessage(draw(words))] if draw(st.booleans()) else []
    taken = 0
    for _ in range(draw(st.integers(0, max_exchanges))):
        made.append(UserMessage(draw(contents()), at=draw(times)))
        response = draw(responses(max_calls=2))
        calls = tuple(evolve(call, id=f"call-{taken + i}") for i, call in enumerate(response.tool_calls))
        taken += len(calls)
        made.append(evolve(response, tool_calls=calls))
        made.extend(
            ToolMessage(call.id, call.name, draw(contents()), status=draw(st.sampled_from(STATUSES)))
            for call in calls
        )
    return tuple(made)


def _unused() -> str:
    """Stand for the function of a drawn tool."""
    return "done"


@st.composite
def tools(draw: DrawFn, *, max_size: int = 3) -> tuple[Tool, ...]:
    """Draw an inventory: tools with different names, functions that return text, any annotations."""
    hint = st.sampled_from((None, True, False))
    chosen = draw(st.lists(names, max_size=max_size, unique=True))
    return tuple(
        Tool(
            name,
            draw(words),
            {"type": "object", "properties": {"n": {"type": "integer"}}},
            draw(st.sampled_from((_unused, None))),
            annotations=Annotations(
                read_only=draw(hint), destructive=draw(hint), idempotent=draw(hint), open_world=draw(hint)
            ),
            max_retries=draw(st.integers(0, 3)),
            timeout=draw(st.none() | st.integers(1, 60) | st.floats(0.5, 60)),
            sequential=draw(st.booleans()),
            metadata=draw(metadata),
        )
        for name in chosen
    )


def verdicts() -> SearchStrategy[Verdict]:
    """Return a strategy for verdicts, undecided ones included."""
    who = st.none() | words
    asks = st.builds(
        Ask,
        words,
        denied=words,
        timeout=st.none() | st.integers(1, 60) | st.floats(0.5, 60),
        always=st.sampled_from(ALWAYS),
        by=who,
    )
    return st.builds(
        Verdict,
        st.none() | st.builds(Refusal, words, who),
        st.lists(asks, max_size=2).map(tuple),
        st.none() | st.builds(Answered, contents(), who),
    )


def outcomes() -> SearchStrategy[Outcome]:
    """Return a strategy for outcomes of every status."""
    failures = st.builds(Failure, words, words, st.lists(words, max_size=2).map(tuple))
    return st.builds(
        Outcome,
        st.sampled_from(STATUSES),
        contents(),
        metadata=metadata,
        error=st.none() | failures,
        attempts=st.integers(0, 3),
        by=st.sampled_from(("tool", "runtime", "person", "Budget")),
    )


def _frozen_mapping(made: dict[str, object]) -> FrozenDict[object]:
    return FrozenDict(made)


def slots() -> SearchStrategy[FrozenDict[object]]:
    """Return a strategy for slots whose values are of `SLOT_TYPES`."""
    values: dict[str, SearchStrategy[object]] = {
        "Budget": st.integers(),
        "Memory": st.frozensets(words, max_size=3),
        "Trim": st.builds(
            Window, counts, st.lists(words, max_size=2).map(tuple), st.frozensets(counts, max_size=3)
        ),
        "Cache": json_objects(),
        "Plan": st.none() | st.lists(words, max_size=2).map(tuple),
    }
    return st.fixed_dictionaries({}, optional=values).map(_frozen_mapping)


def facts() -> SearchStrategy[FrozenDict[object]]:
    """Return a strategy for what gatherers brought in, by key."""
    return st.dictionaries(words, json_values(max_leaves=4), max_size=2).map(
        lambda made: FrozenDict(made.items())
    )


@st.composite
def run_states(draw: DrawFn) -> RunState:
    """Draw a run state: balanced history, a selection out of the inventory, slots of `SLOT_TYPES`."""
    inventory = draw(tools())
    history = draw(histories())
    projection = None
    selected = [draw(st.booleans()) for _ in inventory]
    if bool(history) and draw(st.booleans()):
        covers = draw(st.integers(0, len(history)))
        task = draw(st.none() | st.sampled_from(history))
        projection = Projection(history[:covers], covers, task=task)
    return RunState(
        run_id=draw(ids),
        root_run_id=draw(ids),
        parent_run_id=draw(st.none() | ids),
        agent=draw(words),
        inventory=inventory,
        context=draw(json_objects()),
        history_start=draw(st.integers(0, len(history))),
        output_spec=draw(st.none() | st.builds(OutputSpec, words, json_objects())),
        facts=draw(facts()),
        status=draw(st.sampled_from(("running", "completed", "stopped", "suspended", "failed", "cancelled"))),
        run_step=draw(counts),
        max_steps=draw(counts),
        requests=draw(counts),
        tool_calls=draw(counts),
        tool_retries=draw(st.dictionaries(names, counts, max_size=2)),
        unselected_retries_used=draw(counts),
        output_retries_used=draw(counts),
        output_retries=draw(counts),
        usage=draw(usages()),
        usage_by_model=draw(st.dictionaries(st.sampled_from(sorted(MODELS)), usages(), max_size=2)),
        cost=draw(st.none() | st.floats(0, 1000)),
        stopped=draw(st.none() | st.builds(Stop, words, st.none() | words)),
        failed=draw(st.none() | st.builds(Fail, words)),
        again=draw(st.none() | words),
        notes=tuple(draw(st.lists(words, max_size=2))),
        messages=history,
        request_messages=projection,
        model=draw(st.none() | st.sampled_from(sorted(MODELS)).map(MODELS.__getitem__)),
        settings=draw(json_objects()),
        instructions=draw(words),
        tools=tuple(tool for tool, kept in zip(inventory, selected, strict=True) if kept),
        response=draw(st.none() | responses()),
        slots=draw(slots()),
        output=draw(json_values()),
    )


@st.composite
def call_states(draw: DrawFn) -> CallState:
    """Draw one call on its way: its tool is of the run's inventory, or the placeholder of an unknown one."""
    run = draw(run_states())
    made: list[CallState] = []
    for index in range(draw(st.integers(1, 2))):
        tool = draw(st.sampled_from((*run.inventory, Tool("unknown", "", {"type": "object"}))))
        made.append(
            CallState(
                run=run,
                asked=draw(tool_calls(tool_names=[tool.name])),
                tool=tool,
                index=index,
                retry=draw(st.integers(0, 3)),
                max_retries=draw(st.integers(0, 3)),
                problems=tuple(draw(st.lists(st.builds(Problem, words, words), max_size=2))),
                earlier=tuple(made),
                facts=draw(facts()),
                arguments=draw(json_objects()),
                injected=draw(json_objects()),
                verdict=draw(verdicts()),
                outcome=draw(st.none() | outcomes()),
                notes=tuple(draw(st.lists(words, max_size=2))),
            )
        )
    return made[-1]
