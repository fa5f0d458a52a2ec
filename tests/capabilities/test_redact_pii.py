"""RedactPII: what a request shows, what a response says, what is kept; and that it costs what changed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities import (
    AssistantMessage,
    CallState,
    FilePart,
    ImagePart,
    Message,
    NoPII,
    Outcome,
    RedactPII,
    RunState,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    call,
    detect,
    fold,
    pii_masking,
    tool,
)
from capfold.capabilities.frozen import Json, freeze
from capfold.capabilities.messages import content_text
from capfold.capabilities.redact_pii import NOT_SCANNED
from capfold.runtime import (
    Agent,
    Chunks,
    Delta,
    Ended,
    JsonLines,
    MemoryStore,
    ModelProfile,
    ScriptedModel,
    dump_capabilities,
    load_capabilities,
)
from capfold.runtime.laws import check_capability
from capfold.runtime.scripted_model import Reply

CARD = "4111 1111 1111 1111"
PHONE = "4155550132"
SECRETS = (CARD, "ada@example.com", "123-45-6789", "(415) 555-0132")
REDACT = RedactPII()
FEW = settings(max_examples=15, database=None, deadline=None, derandomize=True)


def masked(message: Message, capability: RedactPII = REDACT) -> Message:
    """Return what a request shows of a message."""
    task = UserMessage("go")
    (shown, _) = fold([capability], "before_model_request", RunState(messages=(message, task))).view
    return shown


# --- texts and JSON


@pytest.mark.parametrize("secret", SECRETS)
def test_every_part_of_a_view_is_masked(secret: str) -> None:
    """User text, text parts, results, what the model said, arguments, the provider's items, metadata."""
    items = [{"field": "reasoning_content", "value": f"it is {secret}"}]
    call = ToolCall("c1", "pay", json.dumps({"to": [secret, {"n": 1}]}), metadata={"as sent": secret})
    spoken = AssistantMessage(secret, tool_calls=(call,), provider_items=items, metadata={"shown": secret})
    for message in (
        UserMessage(f"it is {secret}."),
        UserMessage((TextPart(secret), TextPart("and"))),
        ToolMessage("c1", "pay", f"paid {secret}"),
        ToolMessage("c1", "pay", (TextPart(f"paid {secret}"),)),
        spoken,
    ):
        assert secret not in repr(masked(message))
        assert "[REDACTED]" in repr(masked(message))
    shown = masked(spoken)
    assert isinstance(shown, AssistantMessage)
    assert {"to": ["[REDACTED]", {"n": 1}]} == json.loads(shown.tool_calls[0].arguments)
    assert ("c1", "pay") == (shown.tool_calls[0].id, shown.tool_calls[0].name)


def test_what_is_not_personal_is_the_same_object() -> None:
    """System text is never masked, and a view without anything personal is the identical state."""
    messages = (SystemMessage(CARD), UserMessage("order 4155550132"), UserMessage((TextPart("x"),)))
    state = RunState(messages=messages, instructions=CARD)
    assert fold([REDACT], "before_model_request", state) is state
    for hook in ("before_run", "after_model_request"):
        assert fold([REDACT], hook, state) is state


def test_media_are_left_alone_and_noted_once() -> None:
    """An image is the identical object; that nobody looked into it is said once in a run."""
    image = ImagePart(data=b"4111111111111111", media_type="image/png")
    message = UserMessage((TextPart(CARD), image, FilePart(url="https://x/4111", media_type="text/plain")))
    state = fold([REDACT], "before_model_request", RunState(messages=(message,)))
    (shown,) = state.view
    assert shown.content[1] is image
    assert (NOT_SCANNED,) == state.notes
    assert fold([REDACT], "before_model_request", state) is state


def test_media_that_come_later_are_noted_too() -> None:
    """A result with an image, at a later step: only what came last is looked at, and that is it."""
    image = ImagePart(data=b"1", media_type="image/png")
    asked = AssistantMessage(tool_calls=(ToolCall("c1", "look"),), finish_reason="tool_calls")
    messages = (UserMessage("go"), asked, ToolMessage("c1", "look", (image,)))
    assert (NOT_SCANNED,) == fold(
        [REDACT], "before_model_request", RunState(messages=messages, run_step=2)
    ).notes
    assert () == fold([REDACT], "before_model_request", RunState(messages=messages[:2], run_step=2)).notes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"card": "4111 1111 1111 1111"}', {"card": "[REDACTED]"}),
        ('{"card": 4111111111111111, "n": 12}', {"card": "[REDACTED]", "n": 12}),
        ('{"phone": "4155550132", "order": "4155550132"}', {"phone": "[REDACTED]", "order": PHONE}),
        ('{"phones": [4155550132]}', {"phones": ["[REDACTED]"]}),
        ('{"ada@x.org": 1, "bob@x.org": 2}', {"[REDACTED]": 1, "[REDACTED] 2": 2}),
        (
            '{"phone": {"number": "4155550132"}, "order": {"number": "4155550132"}}',
            {"phone": {"number": "[REDACTED]"}, "order": {"number": "4155550132"}},
        ),
        (r'{"card": "4111\u00a01111\u00a01111\u00a01111"}', {"card": "[REDACTED]"}),
        (r'{"inner": "{\"card\": \"4111111111111111\"}"}', {"inner": '{"card": "[REDACTED]"}'}),
        ('{"a": "4111 1111 1111 1111", "a": 1}', {"a": 1}),
        ('"tel 4155550132"', "tel [REDACTED]"),
        ('["4111 1111 1111 1111", 1.5, null, true]', ["[REDACTED]", 1.5, None, True]),
        ('{"phone": 4155550132.0, "n": 415.5550132}', {"phone": "[REDACTED]", "n": 415.5550132}),
        ("[4.111111111111111e15, 1e300]", ["[REDACTED]", 1e300]),
    ],
)
def test_json_stays_json(text: str, expected: object) -> None:
    """In a text: strings, keys and whole numbers, each behind its key, whatever way it is escaped."""
    made = REDACT.redact_text(text)
    assert expected == json.loads(made)
    assert made == REDACT.redact_text(made)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5_000 + CARD,
        "[" * 900 + f'"{CARD}"' + "]" * 900,
        '{"a":' * 200 + f'"{CARD}"' + "}" * 200,
        f"[note] {CARD}",
    ],
    ids=["open", "deep list", "deep object", "no JSON"],
)
def test_what_is_no_json_or_too_deep_is_text(text: str) -> None:
    """It is masked all the same, and nothing raises."""
    assert CARD not in REDACT.redact_text(text)


def test_numbers_stay_as_they_are_written() -> None:
    """Beside what is masked: no digit is lost, and none becomes what JSON has no word for."""
    numbers = "0.12345678901234567890, 1.10, 1E5, 1e999, -0.0, 12345678901234567890123"
    assert f'["[REDACTED]", {numbers}]' == REDACT.redact_text(f'["{CARD}", {numbers}]')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'{"a": "\u0034111\u00a01111 1111 1111"}', '{"a": "[REDACTED]"}'),
        (r'{"a": "at\n(415) 555-0132\n"}', r'{"a": "at\n[REDACTED]\n"}'),
        (r'{"a": "\\u0061da\\u0040example.com"}', '{"a": "[REDACTED]"}'),
        (r"C:\new\4111 \u12 \\", r"C:\new\4111 \u12 \\"),
    ],
)
def test_escapes_hide_nothing_in_what_is_no_json(text: str, expected: str) -> None:
    """Lines of JSON, JSON among words, and JSON too deep to be walked through; what is not masked stays as it is."""
    for lead, end in (("", "\n{}"), ("As said: ", "."), ("[" * 99, "]" * 99)):
        made = REDACT.redact_text(lead + text + end)
        assert lead + expected + end == made
        assert made == REDACT.redact_text(made)
        assert (NoPII()(lead + text + end) is None) == (text == expected)


@pytest.mark.parametrize("secret", SECRETS)
async def test_a_secret_over_several_parts(secret: str) -> None:
    """However it is cut: what is read as one text is masked as one, and parts around it stay the same objects."""
    image = ImagePart(data=b"x", media_type="image/png")
    for pieces in splits(secret):
        first, *between, last = pieces
        parts = (
            image,
            TextPart(f"it is {first}"),
            *map(TextPart, between),
            TextPart(f"{last}."),
            TextPart("x"),
        )
        shown = masked(UserMessage(parts))
        assert "it is [REDACTED].x" == content_text(shown.content)
        assert image is shown.content[0]
        assert parts[-1] is shown.content[-1]
        assert shown == masked(shown)
    said = AssistantMessage((TextPart(f"it is {secret[:5]}"), TextPart(secret[5:])))
    agent = Agent("desk", ScriptedModel([said]), capabilities=[REDACT])
    assert "it is [REDACTED]" == (await agent.run("go")).output


def test_parts_in_json_are_read_as_one_text() -> None:
    """As logs, provider items and results have them; members around them, and lists without texts, stay as they are."""
    image = {"type": "image", "url": "https://x.example/y"}
    for place in range(1, len(CARD)):
        first, last = CARD[:place], CARD[place:]
        parts = [{"type": "text", "text": f"it is {first}"}, image, {"text": f"{last}.", "type": "text"}]
        expected = [{"type": "text", "text": "it is [REDACTED]"}, image, {"text": ".", "type": "text"}]
        made = REDACT.redact_json(freeze({"content": parts}))
        assert {"content": expected} == made
        assert made is REDACT.redact_json(made)
        assert expected == json.loads(REDACT.redact_text(json.dumps(parts)))
    order = freeze([{"text": "order"}, {"text": 415}, {"text": "5550132"}])
    assert order is REDACT.redact_json(order)


async def test_a_log_has_no_secret_that_comes_in_parts(tmp_path: Path) -> None:
    """Of a prompt or a reply: no piece of it stands in the log that got the redactor."""
    path = tmp_path / "log.jsonl"
    pieces = (TextPart("at ada.love"), TextPart("lace@example.com"))
    model = ScriptedModel([AssistantMessage(pieces)])
    await Agent("desk", model, sinks=[JsonLines(path, redact=REDACT)], audit="all").run(pieces)
    text = path.read_text()
    assert "[REDACTED]" in text
    assert not any(piece in text for piece in ("ada.love", "lace@"))


def test_parts_that_are_json_stay_so() -> None:
    """What one part says of its own values stands; a cue in one part counts for the next."""
    order = TextPart('["tel", "4155550132"]')  # two values: as a text it would be a number to call
    assert (order, order) == masked(UserMessage((order, order))).content
    shown = masked(UserMessage((TextPart("my phone is "), TextPart(PHONE), order)))
    assert (TextPart("my phone is "), TextPart("[REDACTED]"), order) == shown.content


def test_half_a_surrogate_pair_stays_escaped() -> None:
    """A text that could be sent can be sent after masking."""
    made = REDACT.redact_text('{"a": "\\ud800", "card": "4111 1111 1111 1111"}')
    assert {"a": "\ud800", "card": "[REDACTED]"} == json.loads(made)
    made.encode()


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(SECRETS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.sampled_from(SECRETS), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(json_values)
def test_no_secret_is_left_in_json(value: object) -> None:
    """Wherever it stands, and a second time changes nothing."""
    made = REDACT.redact_json(freeze(value))
    written = json.dumps(made, ensure_ascii=False)
    assert not any(secret in written for secret in SECRETS)
    assert REDACT.redact_json(made) is made
    text = json.dumps(value)
    assert REDACT.redact_text(REDACT.redact_text(text)) == REDACT.redact_text(text)


@given(
    st.lists(
        st.sampled_from([*SECRETS, "tel ", PHONE, " ", "1", "-", "[", "]", "@", "x", "."]), max_size=8
    ).map("".join)
)
def test_masking_twice_is_masking_once(text: str) -> None:
    """What stands around a placeholder makes nothing new, for the usual one and for one that is a cue itself."""
    for capability in (REDACT, RedactPII(placeholder="tel ")):
        made = capability.redact_text(text)
        assert made == capability.redact_text(made)


# --- configuration


def test_which_entities_are_meant() -> None:
    """None: the usual four, or none beside own patterns; () none; names those."""
    text = f"{CARD} | ada@example.com | EMP-7"
    assert "[REDACTED] | [REDACTED] | EMP-7" == RedactPII().redact_text(text)
    assert f"{CARD} | ada@example.com | [REDACTED]" == RedactPII(patterns=[r"EMP-\d"]).redact_text(text)
    assert "[REDACTED] | ada@example.com | [REDACTED]" == RedactPII(["credit_card"], [r"EMP-\d"]).redact_text(
        text
    )
    assert text == RedactPII(()).redact_text(text)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"entities": ["emial"]}, ValueError, "did you mean 'email'"),
        ({"entities": "email"}, TypeError, "must be a list of strings"),
        ({"entities": [1]}, TypeError, "must be a list of strings"),
        ({"entities": 5}, TypeError, "must be a list of strings, not 5"),
        ({"patterns": ["RED"]}, ValueError, r"found, as pattern: .* such as '\[\.\.\.\]'"),
        ({"patterns": "x"}, TypeError, "must be a list of strings"),
        ({"patterns": ["("]}, ValueError, "no regular expression"),
        ({"placeholder": "x@y.org"}, ValueError, "would itself be found, as email"),
        ({"placeholder": "EMP-7", "patterns": [r"EMP-\d"]}, ValueError, "would itself be found, as pattern"),
        ({"placeholder": ""}, ValueError, "nothing would show"),
        ({"placeholder": None}, TypeError, "must be a string"),
        ({"region": "USA"}, ValueError, "did you mean 'US'"),
        ({"history": 1}, TypeError, "must be a bool"),
    ],
)
def test_wrong_configurations(fields: dict[str, object], error: type[Exception], message: str) -> None:
    """Each is refused when the object is made, with what would have been right."""
    with pytest.raises(error, match=message):
        RedactPII(**fields)  # type: ignore[arg-type]  # what is refused is under test


def test_it_is_its_configuration() -> None:
    """Described whole, loaded from its own text, and equal to one made alike."""
    made = RedactPII(["iban"], [r"EMP-\d"], placeholder="[x]", history=True, key="Second")
    assert (made,) == load_capabilities(dump_capabilities([made]), allowed=[])
    assert made.describe().complete
    assert made == RedactPII(("iban",), (r"EMP-\d",), placeholder="[x]", history=True, key="Second")
    assert RedactPII().hold_stream
    assert ("credit_card", "email", "ssn") == RedactPII({"ssn", "email", "credit_card"}).entities  # type: ignore[arg-type]  # of a set too, in every process


@pytest.mark.parametrize("capability", [RedactPII(), RedactPII(history=True)], ids=["view", "history"])
def test_it_keeps_the_laws(capability: RedactPII) -> None:
    """All of them, over drawn runs."""
    check_capability(capability, settings=FEW)


# --- history, sinks and stores


def kept(history: tuple[Message, ...]) -> RunState:
    """Return a state of whose messages the first belongs to an earlier run."""
    return RunState(messages=history, history_start=1)


def test_history_masks_the_input_of_this_run_only() -> None:
    """Earlier messages are no business of this run, and system text is nobody's."""
    messages = (UserMessage(CARD), SystemMessage(CARD), UserMessage(CARD), UserMessage("hi"))
    after = fold([RedactPII(history=True)], "before_run", kept(messages))
    assert [CARD, CARD, "[REDACTED]", "hi"] == [message.content for message in after.messages]
    assert fold([REDACT], "before_run", kept(messages)) is not after
    assert CARD == fold([REDACT], "before_run", kept(messages)).messages[2].content


def test_history_masks_results_as_they_settle() -> None:
    """Content only; what becomes of a call stays."""
    settled = CallState(outcome=Outcome("succeeded", f"card {CARD}"))
    for capability, content in ((REDACT, f"card {CARD}"), (RedactPII(history=True), "card [REDACTED]")):
        outcome = fold([capability], "after_tool_execute", settled).outcome
        assert outcome is not None
        assert ("succeeded", content) == (outcome.status, outcome.content)


@tool
def look(who: str, n: int = 0) -> str:
    """Look somebody up."""
    return json.dumps({"who": who, "card": CARD, "phone": PHONE})


def scripted(secret: str) -> ScriptedModel:
    """Return a model that writes a secret into arguments and text."""
    return ScriptedModel(
        [call("look", {"who": secret, "n": 4111111111111111}, id="c1"), f"That was {secret}."]
    )


@pytest.mark.parametrize("secret", SECRETS)
async def test_a_secret_reaches_nothing_that_got_the_redactor(tmp_path: Path, secret: str) -> None:
    """In prompt, arguments, result and reply: not in a request, delta, output, log or store; the tool had it."""
    model, path, store = scripted(secret), tmp_path / "log.jsonl", MemoryStore()
    redact = RedactPII(history=True)
    agent = Agent(
        "desk",
        model,
        tools=[look],
        capabilities=[redact],
        sinks=[JsonLines(path, redact=redact)],
        store=store,
        audit="all",
    )
    async with agent.stream(f"Look up {secret}.", conversation="c") as events:
        seen = [event async for event in events]
    ended = seen[-1]
    assert isinstance(ended, Ended)
    assert ended.result is not None
    hidden = [secret, CARD, "4111111111111111", PHONE]
    places = {
        "requests": repr([request.messages for request in model.requests]),
        "deltas": "".join(event.text for event in seen if isinstance(event, Delta)),
        "output": ended.result.output,
        "store": repr(await store.load("c")),
        "log": path.read_text(),
    }
    assert {} == {place: text for place, text in places.items() if any(one in text for one in hidden)}
    assert "That was [REDACTED]." == ended.result.output == places["deltas"]
    (asked,) = [record for record in ended.result.log if record.kind == "call_admitted"]
    assert asked.facts["arguments"] == {"who": secret, "n": 4111111111111111}


async def test_a_log_has_no_secret_in_keys_and_numbers(tmp_path: Path) -> None:
    """A function is given strings only; the redactor is given each value whole."""

    @tool
    def invite(guests: dict[str, int]) -> str:
        """Invite people."""
        return "done"

    path = tmp_path / "log.jsonl"
    script: list[Reply] = [call("invite", {"guests": {"ada@example.com": 4111111111111111}}), "ok"]
    await Agent(
        "desk", ScriptedModel(script), tools=[invite], sinks=[JsonLines(path, redact=REDACT)], audit="all"
    ).run("go")
    text = path.read_text()
    assert "ada@example.com" not in text
    assert "4111111111111111" not in text
    assert '{"[REDACTED]":"[REDACTED]"}' in text


async def test_without_history_a_store_has_what_was_said() -> None:
    """The default keeps conversations as they were; only what the model says is masked."""
    store = MemoryStore()
    agent = Agent("desk", ScriptedModel([f"It is {CARD}."]), capabilities=[REDACT], store=store)
    await agent.run(f"card {CARD}", conversation="c")
    assert [f"card {CARD}", "It is [REDACTED]."] == [message.content for message in await store.load("c")]


def splits(text: str) -> Iterator[tuple[str, ...]]:
    """Yield every way to cut a text in two, and all its signs one by one."""
    for place in range(1, len(text)):
        yield text[:place], text[place:]
    yield tuple(text)


async def test_a_stream_shows_no_part_of_a_secret_at_any_split() -> None:
    """However a provider cuts the text: what is streamed is the masked text."""
    for pieces in splits(f"Yours: {CARD}, I see."):
        agent = Agent("desk", ScriptedModel([Chunks(*pieces)]), capabilities=[REDACT])
        async with agent.stream("go") as events:
            told = [event.text async for event in events if isinstance(event, Delta)]
        assert "Yours: [REDACTED], I see." == "".join(told)


async def test_a_tool_gets_the_placeholder_where_the_model_copies_it() -> None:
    """The model knows nothing else; what it copies from its view is what it saw."""
    seen: list[str] = []

    @tool
    def pay(card: str) -> str:
        """Pay by card."""
        seen.append(card)
        return "paid"

    model = ScriptedModel(
        [
            lambda request: call("pay", {"card": str(request.messages[0].content).removeprefix("pay by ")}),
            "done",
        ]
    )
    await Agent("desk", model, tools=[pay], capabilities=[REDACT]).run(f"pay by {CARD}")
    assert ["[REDACTED]"] == seen


async def test_media_go_out_as_they_came() -> None:
    """A run with an image: the note is on record once, over two requests."""
    image = ImagePart(data=b"\x89PNG", media_type="image/png")
    model = ScriptedModel([call("look", {"who": "x"}), "done"], profile=ModelProfile(images=True))
    result = await Agent("desk", model, tools=[look], capabilities=[REDACT]).run((TextPart(CARD), image))
    assert [image, image] == [request.messages[0].content[1] for request in model.requests]
    assert (NOT_SCANNED,) == result.state.notes


# --- cost


def test_what_did_not_change_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Detector calls per step depend on what is new, not on the length of the history."""
    looked: list[str] = []
    equal = RedactPII()

    def counted(text: str, *args: object, **keywords: object) -> object:
        looked.append(text)
        return detect(text, *args, **keywords)  # type: ignore[arg-type]  # passed on as they are

    monkeypatch.setattr(pii_masking, "detect", counted)
    for length in (2, 200):
        old: tuple[Message, ...] = tuple(UserMessage(f"message {i} of {length}") for i in range(length))
        state = RunState(messages=old)
        fold([REDACT], "before_model_request", state)
        looked.clear()
        for step in range(5):
            state = evolve(state, messages=(*state.messages, UserMessage(f"new {step} of {length}: {CARD}")))
            fold([equal], "before_model_request", state)
        new = [text for text in looked if text.startswith("new")]
        assert len(new) == len(looked) == 5  # once to mask it; what is left then has no digits to look at
        looked.clear()


def test_a_sink_takes_any_value(tmp_path: Path) -> None:
    """`redact_json` is total over frozen JSON, also where it is deep."""
    value: Json = freeze(CARD)
    for _ in range(150):
        value = freeze([value])
    assert CARD not in json.dumps(REDACT.redact_json(value))
