"""Each fast path of a step does what its plain twin does."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import (
    AssistantMessage,
    CallState,
    Capability,
    RunState,
    ToolFailed,
    Usage,
    UserMessage,
    call,
    freeze,
    tool,
)
from capfold.capabilities.frozen import FrozenDict, frozen_dict
from capfold.capabilities.records import replace_plainly, template
from capfold.runtime import (
    Agent,
    Limits,
    LocalPort,
    Log,
    Meter,
    ModelError,
    ModelProfile,
    ModelRequest,
    RunError,
    RunResult,
    ScriptedModel,
    machine,
)
from capfold.runtime.arguments import validate
from capfold.runtime.decoding import decode
from capfold.runtime.entries import entry_of
from capfold.runtime.phases import Phase
from capfold.runtime.replies import Reply
from capfold.runtime.work import MachineState, Work
from tests.runtime.desk import partial

COUNTS = (None, 0, 3)


@tool
async def half(n: int) -> str:
    """Halve an even number."""
    if n % 2:
        raise ToolFailed(f"{n} is odd")
    return str(n // 2)


SCRIPTS: dict[str, list[Reply]] = {
    "steps": [call("half", {"n": 8}), call("half", {"n": 4}), "done"],
    "a failure": [call("half", {"n": 3}), [call("half", {"n": 2}), call("half", {"n": 6})], "done"],
    "arguments": [call("half", {"n": "8"}), call("halve", {"n": 8}), "done"],
    "no reply": [call("half", {"n": 8}), ValueError("no reply")],
}


@pytest.mark.parametrize("script", SCRIPTS)
async def test_a_run_that_nobody_watches_is_that_of_a_watched_one(script: str) -> None:
    """With a deadline each effect goes through all layers and the state is made anew at each; the log is the same."""
    heads = []
    for limits in (Limits(), Limits(deadline=1e6)):
        agent = Agent("halver", ScriptedModel(SCRIPTS[script]), tools=(half,), limits=limits)
        try:
            log = (await agent.run("Halve.", run_id="r")).log
        except RunError as error:
            log = partial(error).log
        # The deadline itself is on record, in the first one.
        facts = {name: fact for name, fact in log[0].facts.items() if name != "limits"}
        heads.append([facts, *(record.body for record in log[1:])])
    plain, watched = heads
    assert plain == watched


def test_an_event_is_written_as_any_entry_is() -> None:
    """`event` keeps one plain tuple, which is read as the entry that `write` makes."""
    setup = Agent("halver", ScriptedModel([]), tools=(half,)).setup
    state = MachineState(setup, Phase.EXECUTING, RunState(run_id="r", run_step=2))
    plain, fast = (Work(state, 1.5) for _ in range(2))
    plain.write("tool_started", actor="tool", call="c", facts={"tool": "half", "n": 1})
    plain.write("step_started")
    fast.event("tool_started", ("tool", "n"), ("half", 1), "c", "tool")
    fast.event("step_started")
    assert plain.entries == [entry_of(kept) for kept in fast.entries]
    assert plain.entries == [entry_of(kept) for kept in plain.entries]
    assert [record.body for record in Log(plain.entries)] == [record.body for record in Log(fast.entries)]


def test_a_template_is_the_record_it_was_made_of() -> None:
    """Only where the fields stand is another matter."""
    record = CallState(index=3, notes=("a",))
    assert template(record) == record
    assert replace_plainly(template(record), index=4) == replace_plainly(record, index=4)


@pytest.mark.parametrize("ours", COUNTS)
@pytest.mark.parametrize("theirs", COUNTS)
def test_usages_add_up_field_by_field(ours: int | None, theirs: int | None) -> None:
    """A sum with an unknown is unknown, in each field by itself."""
    names = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
    wanted = None if ours is None or theirs is None else ours + theirs
    for name in names:
        total = Usage(**{one: ours if one == name else 1 for one in names}) + Usage(
            **{one: theirs if one == name else 1 for one in names}
        )
        assert Usage(**{one: wanted if one == name else 2 for one in names}) == total


@pytest.mark.parametrize("arguments", [{"n": "x"}, {"n": True}, {"n": 1, "more": []}, {"n": [1]}, {}])
def test_what_is_wrong_with_arguments_is_found_with_and_without_containers(arguments: dict[str, Any]) -> None:
    """Scalars alone go to the validator as they are, containers thawed."""
    given = freeze(arguments)
    assert isinstance(given, FrozenDict)
    assert validate(half, given)
    assert () == validate(half, FrozenDict({"n": 1}))


class Looks(Capability):
    """Looks at what a batch, a response and an end are, and changes nothing."""

    def after_model_request(self, state: RunState) -> RunState:
        return state

    def before_tool_execute(self, call: CallState) -> CallState:
        return call

    def after_run(self, state: RunState) -> RunState:
        return state


@pytest.mark.parametrize("script", ["steps", "a failure", "arguments"])
async def test_a_run_that_no_hook_looks_at_is_that_of_one_with_hooks(script: str) -> None:
    """A batch is charged with its response, and an end made in one copy, only where nobody could tell."""
    ends = []
    for capabilities in ((), (Looks(),)):
        port = LocalPort(clock=lambda: 100.0)
        agent = Agent(
            "halver", ScriptedModel(SCRIPTS[script]), tools=(half,), capabilities=capabilities, port=port
        )
        ends.append(await agent.run("Halve.", run_id="r"))
    bare, seen = ends
    assert bare.state == replace_plainly(seen.state, model=bare.state.model)
    assert bare.state.tool_calls > 0
    assert (bare.output, bare.messages, bare.pending, bare.machine) == (
        seen.output,
        seen.messages,
        (),
        None,
    )


def test_a_run_starts_as_the_record_with_all_its_validators_does() -> None:
    """What a run shares with all others of its agent is copied from one that was made with the agent."""
    agent = Agent("halver", ScriptedModel([]), tools=(half,), instructions="Be quick.", settings={"t": 0})
    setup = agent.setup
    state, _, _ = machine.start(setup, "Halve.", run_id="r", now=1.5, context={"a": [1]})
    plain = RunState(
        run_id="r",
        root_run_id="r",
        agent="halver",
        inventory=agent.tools,
        context={"a": [1]},
        run_step=1,
        messages=[UserMessage("Halve.", at=1.5)],
        model=setup.model,
        settings={"t": 0},
        instructions="Be quick.",
        tools=agent.tools,
    )
    assert state.run == plain
    assert [message.at for message in state.run.messages] == [1.5]


KEYS = st.sampled_from(["a", "b", "a:b", "{", "ä", ""])
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just(1 << 70)
PAIRS = st.lists(st.tuples(KEYS, VALUES), max_size=4)
TIGHT, LOOSE = (",", ":"), (" , ", " : ")


@given(PAIRS, PAIRS, st.sampled_from([TIGHT, LOOSE]))
def test_arguments_are_read_as_they_are_with_all_checks(
    pairs: list[tuple[str, Any]], inner: list[tuple[str, Any]], marks: tuple[str, str]
) -> None:
    """Keys that occur twice, what JSON does not have, and objects in objects are found with and without the pairs."""

    def text(items: list[tuple[str, Any]], more: str = "") -> str:
        comma, colon = marks
        made = [
            json.dumps(key, ensure_ascii=False) + colon + json.dumps(value, ensure_ascii=False)
            for key, value in items
        ]
        return "{" + comma.join([*made, *([more] if more else [])]) + "}"

    for written in (
        text(pairs),
        text(pairs, '"in":' + text(inner)),
        text(pairs, '"in":[' + text(inner) + "]"),
    ):
        assert decode(" " + written) == decode(written)  # white space before it is for the slow way


@given(st.dictionaries(st.text(), st.integers()))
def test_a_frozen_dict_is_made_with_and_without_its_class(items: dict[str, int]) -> None:
    """Same type, same items, same hash."""
    fast, plain = frozen_dict(items), FrozenDict(items)
    assert (plain, type(plain), hash(plain)) == (fast, type(fast), hash(fast))


class PassesOn(Capability):
    """Stands around each request and changes nothing."""

    async def wrap_model_request(
        self, call_next: Callable[[RunState], Awaitable[RunState]], state: RunState
    ) -> RunState:
        return await call_next(state)


class Replies:
    """A model that gives, or raises, what it was made with."""

    name = "replies"
    profile = ModelProfile()

    def __init__(self, reply: object) -> None:
        self.reply = reply

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        if isinstance(self.reply, BaseException):
            raise self.reply
        return cast(AssistantMessage, self.reply)


@pytest.mark.parametrize(
    "reply",
    [
        AssistantMessage("done"),
        "no message",
        ValueError("no reply"),
        ModelError("rate_limit", "later", retryable=True),
    ],
    ids=["a message", "no message", "an exception", "a model error"],
)
async def test_a_request_that_nobody_wraps_is_that_of_a_wrapped_one(reply: object) -> None:
    """It is sent without the coroutine of `send`; what comes of it, and what is charged, is the same."""
    ends = []
    for capabilities in ((), (PassesOn(),)):
        agent = Agent("replier", Replies(reply), capabilities=capabilities)
        try:
            result: RunResult[object] = await agent.run("Reply.", run_id="r")
        except RunError as error:
            result = partial(error)
        bodies = [record.facts for record in result.log[1:]]
        ends.append((result.status, result.output, result.requests, result.usage, bodies))
    bare, wrapped = ends
    assert bare == wrapped
