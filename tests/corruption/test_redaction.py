"""What one capability took out no other brings back; what one gathered no other reads (C51, C73)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen

from capfold.capabilities import (
    AssistantMessage,
    CallState,
    Capability,
    Message,
    RedactPII,
    RunState,
    ToolMessage,
    TrimMessages,
    UserMessage,
    call,
    fold,
)
from capfold.runtime import (
    Agent,
    Delta,
    Ended,
    HookFailed,
    IllegalTransition,
    JsonLines,
    RunResult,
    ScriptedModel,
    Settled,
)
from capfold.runtime.ending import WITHHELD
from tests.corruption.driving import Streamed
from tests.corruption.scenes import Works, at, batch, check_closed, failed, hook_of, of_kind

SECRET = "4111-1111"


def redact(*, hold_stream: bool = False, key: str = "RedactPII") -> RedactPII:
    """Return the ready-made redactor, for the secret alone, also of what is kept."""
    return RedactPII(patterns=[SECRET], placeholder="[card]", history=True, hold_stream=hold_stream, key=key)


class TrimFromMessages(Capability):
    """Trims as a careless author would: from the canonical messages, past what others did to the view."""

    def before_model_request(self, state: RunState) -> RunState:
        return state.project(state.messages[-3:])


@frozen
class StopAt(Capability):
    """Stops at one hook."""

    point: str = "after_model_request"

    def before_model_request(self, state: RunState) -> RunState:
        return state.stop("enough") if self.point == "before_model_request" else state

    def after_model_request(self, state: RunState) -> RunState:
        return state.stop("enough") if self.point == "after_model_request" else state

    def after_tool_execute(self, call: CallState) -> CallState:
        return call.stop("enough") if self.point == "after_tool_execute" else call

    def after_run(self, state: RunState) -> RunState:
        return state.stop("enough") if self.point == "after_run" else state


OLD: tuple[Message, ...] = (UserMessage(f"my card is {SECRET}"), AssistantMessage("noted"))
PROMPT = f"charge {SECRET}"
ANSWER = f"charged {SECRET}"


async def lookup(n: int) -> str:
    """Look a card up."""
    return f"card {SECRET}"


def agent_of(model: ScriptedModel, path: Path, *capabilities: Capability) -> Agent[str]:
    """Return an agent whose log file is redacted too."""
    return Agent(
        "desk",
        model,
        tools=[lookup],
        capabilities=capabilities,
        sinks=[JsonLines(path, redact=redact())],
    )


def script() -> ScriptedModel:
    """Look up, then say the secret."""
    return ScriptedModel([call("lookup", {"n": 1}, id="c1"), ANSWER])


def deltas(events: Sequence[object]) -> str:
    """Return what was streamed of responses, pieces put together: a piece alone may hold half a secret."""
    return "".join(event.text for event in events if isinstance(event, Delta))


def check_kept(result: RunResult[Any], model: ScriptedModel, path: Path, streamed: Streamed) -> None:
    """The secret is in no request, event or message of this run, nor in the sink that has the redactor."""
    for events in streamed:
        assert SECRET not in deltas(events)
        assert SECRET not in repr([event for event in events if not isinstance(event, Ended)])
    for request in model.requests:
        assert SECRET not in repr(request.messages)
    assert SECRET not in repr(result.new_messages)
    assert SECRET not in repr(result.output)
    assert OLD == result.messages[:2]
    text = path.read_text()
    assert SECRET not in text
    assert "[card]" in text


@pytest.mark.parametrize("window", [1, 2, 3, 20])
@pytest.mark.parametrize("order", ["Redact, Trim", "Trim, Redact"])
async def test_c51_redact_and_trim(tmp_path: Path, streamed: Streamed, order: str, window: int) -> None:
    """The ready-made trimmer works on the view: in both orders, at every window, the secret stays out."""
    model, path = script(), tmp_path / "log.jsonl"
    listed = [redact(hold_stream=True), TrimMessages(keep_last=window)]
    ordered = listed if order == "Redact, Trim" else listed[::-1]
    result = await agent_of(model, path, *ordered).run(PROMPT, messages=OLD)
    assert ("completed", 2) == (result.status, len(model.requests))
    check_kept(result, model, path, streamed)
    assert {"card [card]"} == {m.content for m in result.messages if isinstance(m, ToolMessage)}


async def test_c51_redact_then_trim_from_messages(tmp_path: Path, streamed: Streamed) -> None:
    """A trimmer that goes back to the canonical messages would bring it back: rejected, nothing is sent."""
    model, path = script(), tmp_path / "log.jsonl"
    error = await failed(
        agent_of(model, path, redact(hold_stream=True), TrimFromMessages()), PROMPT, messages=OLD
    )
    reason = error.reason
    assert isinstance(reason, IllegalTransition)
    assert ("TrimFromMessages", "before_model_request", "request_messages") == (
        reason.key,
        reason.hook,
        reason.field,
    )
    assert () == model.requests
    assert error.partial is not None
    check_kept(error.partial, model, path, streamed)
    (record,) = of_kind(error.partial.log, "rejected")
    assert "TrimFromMessages" == record.actor


async def test_c51_trim_from_messages_then_redact(tmp_path: Path, streamed: Streamed) -> None:
    """The other way round nothing was hidden yet: it is trimmed, then redacted."""
    model, path = script(), tmp_path / "log.jsonl"
    result = await agent_of(model, path, TrimFromMessages(), redact(hold_stream=True)).run(
        PROMPT, messages=OLD
    )
    assert ("completed", 2) == (result.status, len(model.requests))
    assert 3 == len(model.requests[0].messages)
    check_kept(result, model, path, streamed)


@pytest.mark.parametrize(
    "point", ["before_model_request", "after_model_request", "after_tool_execute", "after_run"]
)
@pytest.mark.parametrize("order", ["Redact, Stop", "Stop, Redact"])
async def test_c51_redact_and_stop(tmp_path: Path, streamed: Streamed, order: str, point: str) -> None:
    """A stop skips no redaction: neither what was said before it, nor what came with it, keeps the secret."""
    path = tmp_path / "log.jsonl"
    model = ScriptedModel([ANSWER]) if point == "after_model_request" else script()
    listed = [redact(hold_stream=True), StopAt(point)]
    ordered = listed if order == "Redact, Stop" else listed[::-1]
    result = await agent_of(model, path, *ordered).run(PROMPT, messages=OLD)
    assert ("stopped", "enough") == (result.status, result.output)
    check_kept(result, model, path, streamed)
    check_closed(result.messages)
    last = {
        "before_model_request": "charge [card]",
        "after_model_request": "charged [card]",
        "after_tool_execute": "card [card]",
        "after_run": WITHHELD,
    }[point]
    assert last == result.messages[-1].content


async def test_c51_what_is_settled_is_redacted_without_holding_the_stream(streamed: Streamed) -> None:
    """A redactor that does not hold the stream lets provisional text through; what is final it has redacted."""
    agent = Agent("desk", script(), tools=[lookup], capabilities=[redact()])
    result = await agent.run(PROMPT)
    assert SECRET not in repr(result.messages)
    for events in streamed:
        assert SECRET not in repr([event for event in events if isinstance(event, Settled)])
        assert SECRET in deltas(events)


def test_c51_the_orders_commute_where_both_narrow() -> None:
    """Outside a run as well: redacting and trimming give one view in both orders."""
    state = RunState(messages=(*OLD, UserMessage(PROMPT)), history_start=2)
    listed = [redact(hold_stream=True), TrimMessages(keep_last=1)]
    one = fold(listed, "before_model_request", state).view
    other = fold(listed[::-1], "before_model_request", state).view
    assert one == other
    assert SECRET not in repr(one)


# --- C73


class Retrieve(Capability):
    """Appends what it found outside."""

    async def gather_before_model_request(self, state: RunState, outside: Any) -> Any:
        return f"found {SECRET}"

    def before_model_request(self, state: RunState) -> RunState:
        return state.append(UserMessage(str(state.fact(self))))


@pytest.mark.parametrize("between", [(), (TrimMessages(keep_last=1),)], ids=["next", "after a trim"])
async def test_c73_gathered_text_passes_a_later_redactor(between: tuple[Capability, ...]) -> None:
    """Appended text is part of the view that later capabilities shape; the log says where it came from."""
    model = ScriptedModel(["done"])
    listed = [Retrieve(), *between, redact(), redact(key="Second")]
    result = await Agent("desk", model, capabilities=listed).run("go")
    assert "found [card]" == model.requests[0].messages[-1].content
    assert SECRET not in repr(model.requests[0].messages)
    (fact,) = of_kind(result.log, "gathered")
    assert ("Retrieve", "gather_before_model_request") == (fact.actor, fact.hook)
    assert f"found {SECRET}" == fact.facts["fact"]


GATHERED = [
    "before_run",
    "after_run",
    "before_model_request",
    "after_model_request",
    "admit_tool_execute",
    "after_tool_execute",
]


def gatherer(
    point: str, key: str, seen: list[tuple[str, dict[str, object]]], action: Any = None
) -> Capability:
    """Return a capability that gathers a fact for one hook, and notes all facts that it finds there."""

    async def gather(self: Capability, record: Any, outside: Any) -> Any:
        return f"for {self.key}"

    def reduce(self: Capability, record: Any) -> Any:
        seen.append((self.key, dict(record.facts)))
        assert f"for {self.key}" == record.fact(self)
        return record if action is None else action(record)

    made: Any = type("Gatherer", (Capability,), {f"gather_{point}": gather, point: reduce})
    return made(key=key)  # type: ignore[no-any-return]  # of a class made by name


def noting(point: str, key: str, seen: list[tuple[str, dict[str, object]]]) -> Capability:
    """Return a capability without a gatherer that notes all facts it finds at a point."""

    def look(record: Any) -> Any:
        seen.append((key, dict(record.facts)))
        if isinstance(record, CallState):
            seen.append((key, dict(record.run.facts)))
        return record

    return at(point, look, key)


@pytest.mark.parametrize("changes", ["", "changing"])
@pytest.mark.parametrize("point", GATHERED)
async def test_c73_a_fact_is_its_owners_alone(point: str, changes: str) -> None:
    """At its hook each reads its own fact; nobody else, nowhere else, and no wrapper reads any."""
    seen: list[tuple[str, dict[str, object]]] = []
    nothing: list[tuple[str, dict[str, object]]] = []
    note = (lambda record: record.note("seen")) if changes else None
    works = Works()
    others = [f"{p}" for p in GATHERED if p != point]
    others += ["before_tool_execute", "wrap_model_request:in", "wrap_tool_execute:in", "wrap_run:out"]
    listed = [
        gatherer(point, "A", seen, note),
        gatherer(point, "B", seen, note),
        noting(point, "none", nothing),
        *(noting(other, f"at {other}", nothing) for other in others),
    ]
    agent = Agent("desk", ScriptedModel([batch(0, 1), "done"]), tools=[works.tool()], capabilities=listed)
    result = await agent.run("go")
    assert "completed" == result.status
    assert [("A", {"A": "for A"}), ("B", {"B": "for B"})] == seen[:2]
    assert {("A", "for A"), ("B", "for B")} == {(key, facts[key]) for key, facts in seen if len(facts) == 1}
    assert len(nothing) > len(others)
    assert {()} == {tuple(facts) for _, facts in nothing}
    assert {} == result.state.facts


@pytest.mark.parametrize("point", GATHERED)
async def test_c73_a_chain_that_breaks_leaves_no_fact_behind(point: str) -> None:
    """A hook after the first raises: the wrapper around the run and the partial result read no fact."""
    seen: list[tuple[str, dict[str, object]]] = []
    outside: list[tuple[str, dict[str, object]]] = []

    def bug(record: Any) -> Any:
        raise RuntimeError("bug")

    listed = [
        gatherer(point, "A", seen, lambda record: record.note("seen")),
        at(point, bug),
        noting("wrap_run:out", "Around", outside),
    ]
    works = Works()
    agent = Agent("desk", ScriptedModel([batch(0), "done"]), tools=[works.tool()], capabilities=listed)
    error = await failed(agent)
    assert isinstance(error.reason, HookFailed)
    assert ("Actor", hook_of(point)) == (error.reason.key, error.reason.hook)
    assert [("Around", {})] == outside
    assert error.partial is not None
    assert {} == error.partial.state.facts


@pytest.mark.parametrize("point", GATHERED)
async def test_c73_a_fact_cannot_be_written(point: str) -> None:
    """Facts are sealed: a hook that plants one is rejected by name."""

    def plant(record: Any) -> Any:
        return evolve(record, facts={"B": "planted"})

    works = Works()
    agent = Agent(
        "desk", ScriptedModel([batch(0), "done"]), tools=[works.tool()], capabilities=[at(point, plant)]
    )
    error = await failed(agent)
    assert isinstance(error.reason, IllegalTransition)
    assert ("Actor", point, "facts") == (error.reason.key, error.reason.hook, error.reason.field)
