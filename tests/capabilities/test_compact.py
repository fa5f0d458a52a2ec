"""Compact: a summary in place of old exchanges, made by a model, kept in the slot, and never at the task's cost."""

from collections.abc import Sequence
from typing import Any

import pytest
from attrs import evolve, frozen

from capfold.capabilities import (
    AssistantMessage,
    Capability,
    Compact,
    ImagePart,
    Message,
    RedactPII,
    RequireApproval,
    RunState,
    SystemMessage,
    TextPart,
    ToolMessage,
    TrimMessages,
    UserMessage,
    call,
    tool,
)
from capfold.capabilities.capability import AnyCapability
from capfold.capabilities.transcript import transcript
from capfold.runtime import (
    Agent,
    Approve,
    FunctionModel,
    LimitError,
    Limits,
    ModelError,
    ModelRequest,
    RunResult,
    ScriptedModel,
)
from tests.capabilities.shaping_kit import check_laws, desk, reloaded

TALK: tuple[Message, ...] = tuple(
    message
    for i in range(4)
    for message in (UserMessage(f"My number {i} is 555-{i}."), AssistantMessage(f"Noted {i}."))
)


@tool
def look(n: int) -> str:
    """Look something up."""
    return f"saw {n}"


def shown(model: ScriptedModel, i: int = -1) -> list[object]:
    """Return the contents that a request showed."""
    return [message.content for message in model.requests[i].messages]


def compact(
    *said: Any, **options: Any
) -> tuple[Compact, ScriptedModel]:  # Any: replies, and fields of Compact
    """Return the capability with a model that says these summaries."""
    writer = ScriptedModel(said, name="writer")
    return Compact(
        **{"model": writer, "after": 4, "keep_last": 2, "frame": "Sum: {summary}", **options}
    ), writer


async def test_old_exchanges_are_shown_as_a_summary() -> None:
    """The newest stay whole, the task stays, the history is what it was; the request is charged to the run."""
    cap, writer = compact("Four numbers.")
    made, model = desk(["ok"], cap)
    result = await made.run("Which?", messages=TALK)
    assert ["Sum: Four numbers.", "My number 3 is 555-3.", "Noted 3.", "Which?"] == shown(model)
    assert [*TALK, UserMessage("Which?")] == list(result.messages[:-1])
    assert (2, {"scripted", "writer"}) == (result.requests, set(result.state.usage_by_model))
    asked = writer.requests[0].messages
    assert isinstance(asked[0], SystemMessage)
    assert "[user] My number 0 is 555-0.\n\n[assistant] Noted 0." in str(asked[1].content)
    assert "555-3" not in str(asked[1].content)
    assert "Which?" not in str(asked[1].content)


async def test_each_exchange_is_summarised_once() -> None:
    """A long run: the second summary is made of the first one and of what came after it, and of nothing else."""
    cap, writer = compact("one", "two", "three")
    steps = [call("look", {"n": i}) for i in range(5)]
    made, model = desk([*steps, "ok"], cap, tools=[look])
    await made.run("Look at five.")
    assert 3 >= len(writer.requests) >= 2
    told = [str(request.messages[1].content) for request in writer.requests]
    assert all(1 == sum(f"saw {i}" in text for text in told) for i in range(3))
    assert "The summary so far:\n\none\n\nWhat came after it:" in told[1]
    assert all("Look at five." not in text for text in told)
    for i, request in enumerate(model.requests):
        assert "Look at five." == request.messages[0].content
        assert 1 + 1 + 4 >= len(request.messages), i


async def test_little_is_left_alone() -> None:
    """Up to `after` messages, nobody is asked and nothing changes."""
    cap, writer = compact(after=8)
    made, model = desk(["ok"], cap)
    result = await made.run("Which?", messages=TALK)
    assert ([*TALK, UserMessage("Which?")], ()) == (list(model.requests[0].messages), writer.requests)
    assert cap.initial() == result.state.slot(cap)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", "the summary is blank"),
        (" \n", "the summary is blank"),
        (call("look", {"n": 1}), "calls a tool"),
        (AssistantMessage("Four n", finish_reason="length"), "ended by 'length'"),
        (AssistantMessage("No.", finish_reason="refusal"), "ended by 'refusal'"),
        (ModelError("server", "overloaded", retryable=True), "the model failed: overloaded"),
    ],
)
async def test_without_a_good_summary_the_whole_view_is_shown(said: object, why: str) -> None:
    """Blank, calling, cut off, refused or failed: the request shows everything, a note says why, the run goes on."""
    cap, _ = compact(said)
    made, model = desk(["ok"], cap)
    result = await made.run("Which?", messages=TALK)
    assert [*TALK, UserMessage("Which?")] == list(model.requests[0].messages)
    assert "ok" == result.output
    (note,) = result.state.notes
    assert note.startswith("Compact shows old exchanges as they are: ")
    assert why in note


async def test_after_a_failure_it_is_tried_again_later() -> None:
    """Not at each step: after `keep_last` further messages, and then the whole old part is summarised."""
    down = ModelError("server", "down", retryable=True)
    cap, writer = compact(down, "all of it", after=6, keep_last=4)
    made, model = desk([*(call("look", {"n": i}) for i in range(3)), "ok"], cap, tools=[look])
    await made.run("Look.", messages=TALK)
    assert 2 == len(writer.requests)
    assert [9, 11] == [len(request.messages) for request in model.requests[:2]]
    assert "Sum: all of it" in shown(model, 2)
    assert "555-0" in str(writer.requests[1].messages[1].content)


async def test_a_failure_keeps_the_summary_there_was() -> None:
    """What was summarised stays so; only the newer exchanges are shown as they are."""
    cap, _ = compact("one", ModelError("server", "down", retryable=True), keep_last=2)
    made, model = desk([*(call("look", {"n": i}) for i in range(4)), "ok"], cap, tools=[look])
    await made.run("Look.", messages=TALK[:4])
    assert "Sum: one" in shown(model)
    assert "saw 0" in shown(model)


async def test_a_limit_ends_the_run() -> None:
    """A summary costs a request like any other: the limit is the run's, and no fallback hides it."""
    cap, writer = compact("never", "never")
    made, model = desk(["never"], cap)
    with pytest.raises(LimitError):
        await made.run("Which?", messages=TALK, limits=Limits(total_tokens=0))
    assert 0 == len(model.requests)
    made, model = desk(["never"], cap)
    with pytest.raises(LimitError):
        await made.run("Which?", messages=TALK, limits=Limits(requests=1))
    assert (0, 1) == (len(model.requests), len(writer.requests))


@frozen
class Mask(Capability):
    """Masks numbers in the view."""

    def before_model_request(self, state: RunState) -> RunState:
        return state.map_view(masked)


def masked(message: Message) -> Message:
    """Return a message without its number."""
    if isinstance(message, UserMessage | AssistantMessage) and "555" in str(message.content):
        return evolve(message, content=str(message.content).replace("555", "***"))
    return message


async def test_the_writer_reads_what_a_redactor_leaves() -> None:
    """With `through`, no number reaches the summarising model; without it, the gatherer reads the view as it was."""
    for through in ((Mask(),), ()):
        cap, writer = compact("Four numbers.", through=through)
        made, model = desk(["ok"], Mask(), cap)
        await made.run("Which?", messages=TALK)
        assert ["Sum: Four numbers.", "My number 3 is ***-3.", "Noted 3.", "Which?"] == shown(model)
        assert ("555" in str(writer.requests[0].messages[1].content)) is not bool(through)


async def test_the_ready_made_redactor_goes_through_it() -> None:
    """A card number reaches neither the summarising model nor the agent's own."""
    card = "4111 1111 1111 1111"
    redact = RedactPII()
    cap, writer = compact(f"Card {card}.", through=[redact])
    made, model = desk(["ok"], cap, redact)
    await made.run("Which?", messages=[UserMessage(f"It is {card}."), *TALK])
    assert not any(card in str(text) for text in (*shown(writer), *shown(model)))
    assert "[REDACTED]" in str(shown(model)[0])


@frozen
class Hide(Capability):
    """Hides every message."""

    def before_model_request(self, state: RunState) -> RunState:
        return state.project(())


async def test_what_nobody_may_read_is_not_sent() -> None:
    """Where `through` leaves nothing of the old exchanges, no model is asked, and they are covered all the same."""
    cap, writer = compact(through=[Hide()])
    made, model = desk(["ok"], cap)
    await made.run("Which?", messages=TALK)
    assert ((), "Sum: Nothing of it may be told.") == (writer.requests, shown(model)[0])


async def test_system_messages_stay() -> None:
    """One inside the covered part stays where it stood among what is kept, in every later request too."""
    cap, _ = compact("Two numbers.")
    made, model = desk([call("look", {"n": 1}), "ok"], cap, tools=[look])
    await made.run("Which?", messages=[*TALK[:2], SystemMessage("Be kind."), *TALK[2:]])
    for i in range(2):
        assert ["Be kind.", "Sum: Two numbers."] == shown(model, i)[:2]


async def test_a_summary_is_masked_like_any_message() -> None:
    """A redactor later in the list sees the summary as a message of the view."""
    cap, _ = compact("It ends in 555.")
    made, model = desk(["ok"], cap, Mask())
    await made.run("Which?", messages=TALK)
    assert "Sum: It ends in ***." == shown(model)[0]


async def test_with_a_trim_on_either_side() -> None:
    """What is hidden stays hidden, whatever comes first; the task is in every request."""
    for before in (True, False):
        cap, _ = compact("Four numbers.")
        listed: Sequence[AnyCapability] = (TrimMessages(1), cap) if before else (cap, TrimMessages(1))
        made, model = desk(["ok"], *listed)
        await made.run("Which?", messages=TALK)
        assert "Which?" == shown(model)[-1]
        assert not any("555-0" in str(text) for text in shown(model))


async def test_it_survives_a_suspension() -> None:
    """The summary is part of the run's state: after a resume from text nobody is asked for it again."""
    cap, writer = compact("Four numbers.")
    made, model = desk([call("look", {"n": 1}), "ok"], cap, RequireApproval({"look"}), tools=[look])
    waiting = await made.run("Which?", messages=TALK)
    text = waiting.snapshot()
    await made.resume(text, {request.digest: Approve() for request in waiting.pending})
    assert 1 == len(writer.requests)
    assert "Sum: Four numbers." == shown(model)[0]


async def test_the_agents_own_model_writes_by_default() -> None:
    """Without `model` the run's own is asked, with the settings and without tools."""

    def reply(request: ModelRequest) -> str:
        return "Four numbers." if isinstance(request.messages[0], SystemMessage) else "ok"

    seen: list[ModelRequest] = []

    def noted(request: ModelRequest) -> str:
        seen.append(request)
        return reply(request)

    cap = Compact(after=4, keep_last=2, settings={"max_tokens": 200})
    made = Agent("desk", FunctionModel(noted), capabilities=[cap], tools=[look])
    result: RunResult[str] = await made.run("Which?", messages=TALK)
    assert ("ok", 2) == (result.output, result.requests)
    assert ({"max_tokens": 200}, ()) == (seen[0].settings, seen[0].tools)


async def test_equal_runs_have_equal_digests() -> None:
    """The summary comes in as a fact, so two runs with one script are one run; so is a streamed one."""
    heads = []
    for _ in range(2):
        cap, _ = compact("one", "two", "three")
        made, _ = desk([*(call("look", {"n": i}) for i in range(4)), "ok"], cap, tools=[look])
        heads.append((await made.run("Look.")).log.head)
        cap, _ = compact("one", "two", "three")
        made, _ = desk([*(call("look", {"n": i}) for i in range(4)), "ok"], cap, tools=[look])
        async with made.stream("Look.") as events:
            ended = [event async for event in events][-1]
        heads.append(ended.result.log.head)  # type: ignore[union-attr]  # the last event is Ended
    assert 1 == len(set(heads))


def test_a_transcript_tells_everything_in_words() -> None:
    """Who spoke, which calls were made and what came of them; what is no text is named by its type."""
    messages: list[Message] = [
        SystemMessage("Be kind."),
        UserMessage((TextPart("Look:"), ImagePart(data=b"1", media_type="image/png"))),
        AssistantMessage(
            "I look.", tool_calls=[call("look", {"n": 1}, id="a"), call("look", {"n": 2}, id="b")]
        ),
        ToolMessage("a", "look", "saw 1"),
        ToolMessage("b", "look", "not you", status="denied"),
        AssistantMessage("", tool_calls=[call("look", id="c")]),
    ]
    expected = (
        '[system] Be kind.|[user] Look: <image/png>|[assistant] I look.|[assistant calls look] {"n": 1}|'
        '[assistant calls look] {"n": 2}|[look succeeded] saw 1|[look denied] not you|[assistant calls look] {}'
    )
    assert expected == transcript(messages).replace("\n\n", "|")


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"after": 0}, ValueError, "the least is 1"),
        ({"keep_last": True}, TypeError, "must be an integer"),
        ({"after": 3, "keep_last": 4}, ValueError, "at most after, 3"),
        ({"prompt": " "}, ValueError, "blank"),
        ({"frame": "So far:"}, ValueError, "must hold {summary}"),
        ({"model": "gpt"}, TypeError, "an object with a name"),
        ({"settings": [1]}, TypeError, "must be a mapping"),
        ({"through": [Mask]}, TypeError, r"the class Mask: write an instance"),
    ],
)
def test_wrong_parameters(
    options: dict[str, Any], error: type[Exception], said: str
) -> None:  # Any: under test
    """Each says what would be right."""
    with pytest.raises(error, match=said):
        Compact(**options)


def test_laws_and_round_trip() -> None:
    """It keeps the laws whatever its gatherer brought, and comes back from its description."""
    check_laws(Compact(after=2, keep_last=1, through=[Mask()]))
    cap = Compact(after=9, keep_last=3, settings={"max_tokens": 9}, through=[TrimMessages(5)])
    assert cap == reloaded(cap)
