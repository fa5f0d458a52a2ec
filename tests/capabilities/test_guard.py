"""Guard: each point, each ending; a check that breaks blocks; what is blocked is not stored."""

import copy
import pickle
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import anyio
import pytest
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities import (
    AssistantMessage,
    CallNext,
    CallState,
    Capability,
    Guard,
    Message,
    NoPII,
    Outcome,
    RunState,
    SaveNext,
    Tool,
    Toolkit,
    ToolMessage,
    UserMessage,
    call,
    detect,
    fold,
    for_tools,
    tool,
)
from capfold.capabilities.capability import AnyCapability
from capfold.capabilities.guard_checks import Check
from capfold.capabilities.guard_points import WITHHELD
from capfold.capabilities.pii import DEFAULT_ENTITIES
from capfold.runtime import (
    Agent,
    Blocked,
    BlockedError,
    LimitError,
    Limits,
    MemoryStore,
    OutputError,
    RunError,
    RunResult,
    ScriptedModel,
    dump_capabilities,
    load_capabilities,
)
from capfold.runtime.laws import check_capability
from capfold.runtime.scripted_model import Reply

FEW = settings(max_examples=10, database=None, deadline=None, derandomize=True)
CARD = "4111 1111 1111 1111"


def not_bad(value: object) -> str | None:
    """Find the word in a text, or in anything as it is written."""
    return "it is bad" if "bad" in str(value) else None


async def not_bad_later(value: object) -> str | None:
    """Do so where it can be waited for."""
    return not_bad(value)


CHECKS = pytest.mark.parametrize("check", [not_bad, not_bad_later], ids=["sync", "async"])
AT = {
    "input": "before_run",
    "output": "after_run",
    "tool_call": "admit_tool_execute",
    "tool_result": "after_tool_execute",
}


class Story:
    """An agent with one tool, a store, and what became of them."""

    def __init__(self, *guards: Guard, replies: list[Reply], result: str = "fine", **options: Any) -> None:
        """Any: options of an agent."""
        self.ran: list[str] = []
        self.store = MemoryStore()
        self.model = ScriptedModel(replies)

        @tool
        def work(text: str) -> str:
            """Do a piece of work."""
            self.ran.append(text)
            return result

        self.agent = Agent(
            "desk", self.model, tools=[work], capabilities=guards, store=self.store, strict=True, **options
        )

    async def run(self, prompt: str) -> RunResult[Any]:
        """Run in a conversation."""
        return await self.agent.run(prompt, conversation="c")

    async def failed(self, prompt: str) -> RunError:
        """Return what the run failed by."""
        with pytest.raises(RunError) as caught:
            await self.run(prompt)
        return caught.value

    async def stored(self) -> str:
        """Return what the store holds, written out."""
        return repr(await self.store.load("c"))


def bad_at(at: str, guard: Guard) -> tuple[Story, str]:
    """Return a story in which something bad comes at a point, and its prompt."""
    asked = call("work", {"text": "bad" if at == "tool_call" else "well"}, id="c1")
    story = Story(
        guard,
        replies=[asked, "bad end" if at == "output" else "good end"],
        result="bad news" if at == "tool_result" else "fine",
    )
    return story, "bad wish" if at == "input" else "wish"


@CHECKS
@pytest.mark.parametrize("at", AT)
async def test_error(at: Any, check: Check) -> None:
    """The run fails by a BlockedError that names guard, hook and reason; nothing after the point happened."""
    story, prompt = bad_at(at, Guard(check, at=at, key="Careful"))
    error = await story.failed(prompt)
    assert isinstance(error, BlockedError)
    assert isinstance(error.reason, Blocked)
    assert ("it is bad", "Careful", AT[at]) == (error.reason.message, error.reason.key, error.reason.hook)
    assert ([] if at in {"input", "tool_call"} else ["well"]) == story.ran
    assert {"input": 0, "output": 2}.get(at, 1) == len(story.model.requests)


@frozen
class CatchAll(Capability):
    """Catches what it can, around everything."""

    async def wrap_run(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        try:
            return await call_next(state)
        except Exception:  # noqa: BLE001  # the case itself
            return state

    async def wrap_model_request(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        try:
            return await call_next(state)
        except Exception:  # noqa: BLE001  # the case itself
            return state.respond(AssistantMessage("caught"))

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        try:
            return await call_next(call)
        except Exception:  # noqa: BLE001  # the case itself
            return call.answer("caught")


@CHECKS
@pytest.mark.parametrize("at", AT)
async def test_nobody_around_it_can_swallow_it(at: Any, check: Check) -> None:
    """It is data and no exception: a wrapper that catches everything has nothing to catch."""
    story, prompt = bad_at(at, Guard(check, at=at))
    made = evolve_agent(story, CatchAll(), Guard(check, at=at))
    with pytest.raises(BlockedError):
        await made.run(prompt)


def evolve_agent(story: Story, *capabilities: AnyCapability) -> Agent[Any]:
    """Return the story's agent with another list."""
    return Agent("desk", story.model, tools=story.agent.tools, capabilities=capabilities)


@CHECKS
@pytest.mark.parametrize("at", AT)
async def test_stop(at: Any, check: Check) -> None:
    """The run ends as a result with the reason."""
    story, prompt = bad_at(at, Guard(check, at=at, on_fail="stop"))
    result = await story.run(prompt)
    assert ("stopped", "it is bad") == (result.status, result.output)
    assert result.stop is not None
    assert ("Guard", AT[at]) == (result.stop.key, result.stop.hook)
    assert ([] if at in {"input", "tool_call"} else ["well"]) == story.ran


@CHECKS
@pytest.mark.parametrize("at", AT)
async def test_note(at: Any, check: Check) -> None:
    """The run goes on, and the reason is on record once."""
    story, prompt = bad_at(at, Guard(check, at=at, on_fail="note"))
    result = await story.run(prompt)
    assert ("completed", ["bad" if at == "tool_call" else "well"]) == (result.status, story.ran)
    noted = [record for record in result.log if "it is bad" in repr(record.changes)]
    assert [AT[at]] == [record.hook for record in noted]


@CHECKS
@pytest.mark.parametrize("on_fail", ["error", "stop"])
@pytest.mark.parametrize("at", ["input", "output", "tool_result"])
async def test_what_is_blocked_is_not_in_the_store(at: Any, on_fail: Any, check: Check) -> None:
    """Input, output and result: neither this conversation nor the next request has them."""
    story, prompt = bad_at(at, Guard(check, at=at, on_fail=on_fail))
    with pytest.raises(BlockedError) if on_fail == "error" else nullcontext():
        await story.run(prompt)
    assert "bad" not in (await story.stored()).replace("it is bad", "")
    next_model = ScriptedModel(["fine"])
    await Agent("desk", next_model, store=story.store).run("and now?", conversation="c")
    assert "bad" not in repr(next_model.requests[0].messages)


@CHECKS
@pytest.mark.parametrize("at", AT)
async def test_what_passes_is_not_touched(at: Any, check: Check) -> None:
    """The same messages and output as without the guard."""
    guarded = Story(Guard(check, at=at), replies=[call("work", {"text": "x"}, id="c1"), "good"])
    bare = Story(replies=[call("work", {"text": "x"}, id="c1"), "good"])
    with_guard, without = await guarded.run("wish"), await bare.run("wish")
    assert (without.messages, without.output) == (with_guard.messages, with_guard.output)
    assert [] == [record for record in with_guard.log if record.kind == "transition"]


# --- a check that breaks


def raises(value: object) -> str | None:
    """Break."""
    raise LookupError("no list of words\nat all")


async def raises_later(value: object) -> str | None:
    """Break after a while."""
    return raises(value)


def says_no(value: object) -> Any:
    """Answer with a bool, as predicates do."""
    return False


def says_nothing(value: object) -> Any:
    """Answer with an empty reason."""
    return ""


def hides(value: object) -> Any:
    """Answer with what must be waited for."""
    return not_bad_later(value)


@pytest.mark.parametrize("on_fail", ["error", "stop", "ask_again", "note"])
@pytest.mark.parametrize(
    ("check", "message"),
    [
        (raises, r"the check raises raised LookupError: no list of words$"),
        (raises_later, r"the check raises_later raised LookupError: no list of words$"),
        (says_no, r"must return None or a reason, not False"),
        (says_nothing, r"must return None or a reason, not ''"),
        (hides, r"returned a coroutine: write it as an async function"),
    ],
    ids=["raises", "raises later", "bool", "empty", "coroutine"],
)
async def test_a_broken_check_blocks(check: Check, message: str, on_fail: Any) -> None:
    """Whatever should happen when it finds something: the run fails, its text is withheld, the check is named."""
    story = Story(Guard(check, on_fail=on_fail), replies=["what it said"])
    error = await story.failed("wish")
    assert isinstance(error, BlockedError)
    assert error.reason.message is not None
    assert re.search(message, error.reason.message)
    assert "what it said" not in await story.stored()


@pytest.mark.parametrize("at", AT)
def test_an_async_check_that_nobody_called_blocks(at: Any) -> None:
    """Outside a run there is no fact: no finding is no pass."""
    guard = Guard(not_bad_later, at=at)
    record = (
        CallState(outcome=Outcome("succeeded", "x"))
        if at.startswith("tool")
        else RunState(messages=(UserMessage("x"),), output="x")
    )
    after = fold([guard], AT[at], record)
    run = after.run if isinstance(after, CallState) else after
    assert run.failed is not None
    assert "no finding of a check: None" in run.failed.reason


# --- what a check gets


@frozen
class Total:
    """A structured output."""

    total: int


async def test_the_output_is_checked_once_by_its_type() -> None:
    """A text beside calls is not looked at; the output is the value, not its text."""
    seen: list[object] = []

    def keeps(value: object) -> str | None:
        seen.append(value)
        return None

    beside = AssistantMessage(
        "bad", tool_calls=(call("work", {"text": "x"}, id="c1"),), finish_reason="tool_calls"
    )
    story = Story(Guard(keeps), replies=[beside, '{"total": 3}'], output_type=Total)
    await story.run("wish")
    assert [Total(3)] == seen


async def test_each_point_gives_its_value() -> None:
    """The run's own input, arguments as a mapping, and the text that came of a call."""
    seen: dict[str, list[object]] = {at: [] for at in AT}

    def keeper(at: str) -> Check:
        def keeps(value: object) -> str | None:
            seen[at].append(value)
            return None

        return keeps

    guards = [Guard(keeper(at), at=at, key=at) for at in AT]  # type: ignore[arg-type]  # the points as plain words
    asked = [call("work", {"text": "x"}, id="c1"), call("work", {"txt": 1}, id="c2"), call("none", id="c3")]
    story = Story(*guards, replies=[asked, "end"])
    old: tuple[Message, ...] = (UserMessage("old"), AssistantMessage("older"))
    await story.agent.run("wish", messages=old)
    assert {
        "input": ["wish"],
        "output": ["end"],
        "tool_call": [{"text": "x"}],
        "tool_result": ["fine"],
    } == seen
    assert isinstance(seen["tool_call"][0], Mapping)


async def test_a_stop_message_is_no_output() -> None:
    """A run that another capability stopped has nothing to be checked."""
    story = Story(Guard(not_bad), Guard(not_bad, at="input", on_fail="stop", key="In"), replies=[])
    assert "it is bad" == (await story.run("bad")).output


# --- ask again


@CHECKS
async def test_ask_again_until_it_passes(check: Check) -> None:
    """The model reads the reason, each new answer is checked, and what was refused is not stored."""
    story = Story(Guard(check, on_fail="ask_again"), replies=["bad one", "bad two", "good"], output_retries=2)
    result = await story.run("wish")
    assert ("good", 3) == (result.output, result.requests)
    assert ["it is bad"] * 2 == [
        m.content for m in story.model.requests[2].messages if m.content == "it is bad"
    ]
    stored = await story.store.load("c")
    assert [WITHHELD, WITHHELD, "good"] == [m.content for m in stored if isinstance(m, AssistantMessage)]


@CHECKS
async def test_ask_again_is_bounded(check: Check) -> None:
    """After `output_retries` the run fails; the store has none of it."""
    story = Story(Guard(check, on_fail="ask_again"), replies=["bad one", "bad two"], output_retries=1)
    assert isinstance(await story.failed("wish"), OutputError)
    assert "bad" not in (await story.stored()).replace("it is bad", "")


@frozen
class Louder(Capability):
    """Rewrites what is said."""

    def after_model_request(self, state: RunState) -> RunState:
        """Add a mark."""
        response = state.response
        return state if response is None else state.respond(evolve(response, content=f"{response.text}!"))


@frozen
class SavesOther(Capability):
    """Saves other words, and fewer or more messages."""

    more: int

    async def wrap_save_messages(
        self, call_next: SaveNext, state: RunState, messages: Sequence[Message]
    ) -> None:
        """Mark all that was said, and leave out or add messages in front."""
        said = [
            evolve(m, content=f"{m.content}?") if isinstance(m, AssistantMessage) else m for m in messages
        ]
        if self.more < 0:
            said = [m for m in said if m.content != "it is bad"]
        await call_next(state, [*[UserMessage("n")] * self.more, *said])


@CHECKS
@pytest.mark.parametrize("others", [[Louder()], [SavesOther(0)], [SavesOther(-1)], [SavesOther(1)]])
@pytest.mark.parametrize("first", [True, False])
async def test_what_others_make_of_a_refused_answer_is_not_stored(
    others: list[AnyCapability], *, first: bool, check: Check
) -> None:
    """Rewritten before the guard saw it, after that, or on its way into the store: it is withheld all the same."""
    guard = Guard(check, on_fail="ask_again")
    listed = [guard, *others] if first else [*others, guard]
    store, model = MemoryStore(), ScriptedModel(["bad one", "good"])
    await Agent("desk", model, capabilities=listed, store=store).run("wish", conversation="c")
    said = [m.content for m in await store.load("c") if isinstance(m, AssistantMessage)]
    assert WITHHELD in said[0]
    assert "bad" not in said[0]
    assert 2 == len(said)


async def test_a_good_answer_is_stored_though_it_was_refused_before() -> None:
    """A check that was wrong at first: what counts is which answer it refused, not what it says."""
    answers = iter(["why not", None])

    async def unsure(text: str) -> str | None:
        return next(answers)

    story = Story(Guard(unsure, on_fail="ask_again"), replies=["well", "well"])
    await story.run("wish")
    stored = [m.content for m in await story.store.load("c") if isinstance(m, AssistantMessage)]
    assert [WITHHELD, "well"] == stored


async def test_ask_again_looks_at_final_answers_only() -> None:
    """A text beside calls is none."""
    beside = AssistantMessage(
        "bad", tool_calls=(call("work", {"text": "x"}, id="c1"),), finish_reason="tool_calls"
    )
    story = Story(Guard(not_bad, on_fail="ask_again"), replies=[beside, "good"])
    assert 2 == (await story.run("wish")).requests


# --- scope


async def test_a_guard_for_tools() -> None:
    """In `for_tools`, a toolkit or a tool: it has no other hooks, and covers those calls only."""
    guard = Guard(not_bad, at="tool_call", on_fail="stop")
    ran: list[str] = []

    @tool
    def pay(text: str) -> str:
        """Pay."""
        ran.append("pay")
        return "ok"

    @tool
    def say(text: str) -> str:
        """Say."""
        ran.append("say")
        return "ok"

    script = [call("say", {"text": "bad"}, id="c1"), call("pay", {"text": "bad"}, id="c2")]
    scopes: tuple[tuple[list[Tool | Toolkit], list[AnyCapability]], ...] = (
        ([pay, say], [for_tools({"pay"}, guard)]),
        ([Toolkit("till", [pay], capabilities=[guard]), say], []),
        ([pay.with_capabilities(guard), say], []),
    )
    for tools, capabilities in scopes:
        ran.clear()
        agent = Agent("desk", ScriptedModel([*script, "end"]), tools=tools, capabilities=capabilities)
        assert ("stopped", ["say"]) == ((await agent.run("go")).status, ran)
    with pytest.raises(TypeError, match="is called for no tool"):
        for_tools({"pay"}, Guard(not_bad))


async def test_three_guards_leave_three_notes() -> None:
    """They are independent, in list order."""
    guards = [Guard(not_bad, on_fail="note", key=key) for key in "ABC"]
    result = await Story(*guards, replies=["bad"]).run("wish")
    assert ("it is bad",) * 3 == result.state.notes


async def test_an_async_check_may_ask_nobody_forever() -> None:
    """It has the run's `tool_timeout`; not to answer is no pass."""

    async def sleeps(value: object) -> str | None:
        await anyio.sleep(60)
        return None

    story = Story(Guard(sleeps), replies=["said"], limits=Limits(tool_timeout=0.01))
    error = await story.failed("wish")
    assert not isinstance(error, LimitError)
    assert ("Guard", "gather_after_run") == (error.reason.key, error.reason.hook)
    assert "said" not in await story.stored()


# --- configuration


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"at": "outputs"}, ValueError, "did you mean 'output'"),
        ({"on_fail": "raise"}, ValueError, "must be 'error', 'stop', 'ask_again', 'note'"),
        ({"at": "input", "on_fail": "ask_again"}, ValueError, "nobody answered there"),
        ({"at": ["input"]}, ValueError, "must be 'input'"),
        ({"check": None}, TypeError, "must be a function"),
        ({"check": "bad"}, TypeError, "must be a function"),
        ({"check": NoPII}, TypeError, r"write NoPII\(\)"),
        ({"key": "person"}, ValueError, "somebody else"),
    ],
)
def test_wrong_configurations(fields: dict[str, object], error: type[Exception], message: str) -> None:
    """Each is refused when the object is made, with what would have been right."""
    with pytest.raises(error, match=message):
        Guard(**{"check": not_bad, **fields})  # type: ignore[arg-type]  # what is refused is under test


def test_nobody_derives_from_it() -> None:
    """A class of one's own would be made as one of the points' classes, without its hooks."""
    with pytest.raises(TypeError, match="configured by its check"):
        type("Mine", (Guard,), {})


@CHECKS
@pytest.mark.parametrize("on_fail", ["stop", "ask_again"])
def test_it_is_its_configuration(check: Check, on_fail: Any) -> None:
    """Equal to its copies, loaded from its own text, changed by `evolve` to any other point."""
    guard = Guard(check, on_fail=on_fail, hold_stream=True)
    assert guard == copy.copy(guard) == pickle.loads(pickle.dumps(guard)) == evolve(guard)  # noqa: S301  # our own
    assert (guard,) == load_capabilities(dump_capabilities([guard]), allowed=[not_bad, not_bad_later])
    moved = evolve(guard, at="tool_call", on_fail="note")
    assert Guard(check, at="tool_call", on_fail="note", hold_stream=True) == moved
    assert frozenset({"admit_tool_execute", "gather_admit_tool_execute"}) >= moved.overrides
    with_pii = Guard(NoPII(["iban"]), at="input")
    assert (with_pii,) == load_capabilities(dump_capabilities([with_pii]), allowed=[])


@CHECKS
@pytest.mark.parametrize(
    ("at", "on_fail"),
    [
        ("input", "error"),
        ("output", "stop"),
        ("output", "ask_again"),
        ("tool_call", "error"),
        ("tool_result", "stop"),
    ],
)
def test_it_keeps_the_laws(check: Check, at: Any, on_fail: Any) -> None:
    """At each point, whatever the facts."""
    check_capability(Guard(check, at=at, on_fail=on_fail), settings=FEW)


# --- NoPII


@given(
    st.lists(
        st.sampled_from(["x", " ", CARD, "ada@example.com", "tel 4155550132", "order 4155550132"]), max_size=4
    ).map(" ".join)
)
def test_no_pii_has_the_detector_of_the_redactor(text: str) -> None:
    """One text: the guard blocks where spans are found, and names their kinds."""
    kinds = {span.entity for span in detect(text, DEFAULT_ENTITIES)}
    reason = NoPII()(text)
    assert (reason is not None) == bool(kinds)
    assert reason is None or reason == f"it holds what is personal: {', '.join(sorted(kinds))}"
    assert reason == NoPII()({"text": text}) == NoPII()([text]) == NoPII()(Total(text))  # type: ignore[arg-type]  # any value


def test_no_pii_looks_into_values() -> None:
    """Mappings behind their keys, numbers, JSON in a text, models; what it cannot look into is an error."""

    @dataclass
    class Contact:
        phone: str

    class Named(NamedTuple):
        phone: str

    class Desk(Enum):
        front = "tel 4155550132"

    for value in (
        {"phone": 4155550132},
        {"phone": 4155550132.0},
        {"phone": Decimal(4155550132)},
        Contact("4155550132"),
        Named("4155550132"),
        Desk.front,
        [PurePosixPath("/home/ada@example.com/x")],
        b"\xffada@example.com",
        '{"phone": "4155550132"}',
        {"ada@example.com": 1},
        [r'{"card": "4111\u00a01111\u00a01111\u00a01111"}'],
        {1, 4111111111111111},
    ):
        assert NoPII()(value) is not None
    today = date(2031, 1, 2)
    for fine in (
        None,
        True,
        1.5,
        "",
        {},
        {"order": "4155550132"},
        [today, timedelta(1), UUID(int=7)],
        ("a", 1),
    ):
        assert NoPII()(fine) is None
    with pytest.raises(TypeError, match="cannot look into a object"):
        NoPII()(object())
    with pytest.raises(ValueError, match="did you mean 'email'"):
        NoPII(["emial"])


async def test_no_pii_guards_arguments() -> None:
    """A card on its way into a tool: the tool does not run, and the reason does not repeat the card."""
    asked = call("work", {"text": f"card {CARD}"}, id="c1")
    story = Story(Guard(NoPII(), at="tool_call", on_fail="stop"), replies=[asked])
    result = await story.run("wish")
    assert ([], "it holds what is personal: credit_card") == (story.ran, result.output)
    assert {"not_executed"} == {m.status for m in result.messages if isinstance(m, ToolMessage)}
