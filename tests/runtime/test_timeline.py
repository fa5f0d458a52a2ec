"""The timeline: what a person reads of a log, by run, step and call."""

import re

from capfold.capabilities.messages import Usage, UserMessage
from capfold.capabilities.views import Projection
from capfold.runtime import Agent, ModelProfile, ScriptedModel
from capfold.runtime.entries import Entry, FromTo, Projected
from capfold.runtime.log import Log
from capfold.runtime.prices import Price
from capfold.runtime.timeline import timeline
from tests.runtime.entries_story import story

STORY = """\
run run-1
  runtime       run started           prompt: "Pay the invoice"
step 1
  runtime       step started
  Selector      before_model_request  settings: temperature=0.5, without seed; tools: 1 of 2, without read
  Forger        before_model_request  RESTORED tool_calls: tried 0, kept 7
  model         model responded       response: "Paying." pay({"amount": 10})
  call c1  pay
    runtime     call admitted         arguments: {amount=10}
    Multiplier  admit_tool_execute    REJECTED arguments: tried {amount=1000}; sealed once judged
    tool        tool settled          outcome: "paid"
  runtime       transition            messages: added "paid"; stopped: null -> x
  runtime       run ended             status: "completed"
"""


def test_story() -> None:
    """Per step and call, who changed what, what was restored and what refused, in aligned columns."""
    assert STORY == timeline(Log(story()))


def test_runs_stand_one_after_another() -> None:
    """Interleaved runs are told apart: each is told whole."""
    one, other = story("run-1"), story("run-2")
    mixed = Log(entry for pair in zip(one, other, strict=True) for entry in pair)
    assert STORY + STORY.replace("run run-1", "run run-2") == timeline(mixed)


def test_calls_of_a_batch_are_told_apart() -> None:
    """Records of two calls that alternate in the log stand with their call."""
    entries = [
        Entry(kind, "r", 1, 0.0, call=call, facts={"tool": call})
        for kind in ("call_admitted", "tool_started", "tool_settled")
        for call in ("a", "b")
    ]
    lines = timeline(Log(entries)).splitlines()
    assert ["  call a  a", "  call b  b"] == [line for line in lines if line.startswith("  call")]
    assert 4 == lines.index("  call b  b") - lines.index("  call a  a")


def test_what_a_model_writes_cannot_steer_a_terminal() -> None:
    """Control characters, colors and changes of direction are escaped wherever they come from."""
    evil = "\x1b[2J\x9b31m\u202etxt\r\n\ud800"
    entry = Entry(
        "rejected", "r" + evil, 1, 0.0, actor=evil, call=evil, hook=evil,
        rejected={evil: (evil, evil)}, facts={evil: {evil: [evil]}, "tool": evil},
    )  # fmt: skip
    text = timeline(Log([entry]))
    assert [] == re.findall(r"[^\x20-\x7e\n]", text)
    assert 5 == timeline(Log([entry]), width=1000).count("\n")


def test_width() -> None:
    """Long lines are cut to the width, but what was restored or refused is told to its end."""
    legal = "a long sentence about what would have been legal, " * 4
    log = Log(
        [
            Entry("note", "r", 1, 0.0, facts={f"n{i}": "x" * 100 for i in range(4)}),
            Entry("rejected", "r", 1, 0.0, rejected={"messages": ((), legal)}),
        ]
    )
    lines = timeline(log, width=80).splitlines()
    assert 80 == max(map(len, lines))
    assert legal.rstrip() in " ".join(" ".join(lines).split())


def test_brief_leaves_out_routine() -> None:
    """What happens in every step is left out; what was changed, restored, refused or decided stays."""
    lines = timeline(Log(story()), brief=True).splitlines()
    assert [line for line in STORY.splitlines() if "step started" not in line] == lines


def test_a_rejected_call_has_its_name() -> None:
    """A call that no later record names is named by the response that asked for it."""
    entries = [entry for entry in story() if entry.kind not in ("call_admitted", "tool_settled")]
    assert "  call c1  pay" in timeline(Log(entries)).splitlines()


def test_why_a_run_ended_is_told_to_its_end() -> None:
    """The reason of a failure is wrapped, not cut."""
    entry = Entry("run_ended", "r", 1, 0.0, facts={"reason": {"message": "word " * 60 + "end"}})
    text = timeline(Log([entry]), width=80)
    assert text.endswith("end\n")
    assert 80 >= max(map(len, text.splitlines()))


def test_projection_is_counted() -> None:
    """A view is told by how many messages it shows for how many."""
    messages = tuple(UserMessage(f"m{i}") for i in range(9))
    shown = Projection((messages[0], UserMessage("masked"), *messages[5:]), 9)
    entry = Entry("transition", "r", 1, 0.0, changes={"request_messages": Projected(shown, messages)})
    assert "request_messages: shows 6 messages for 9, 1 rewritten" in timeline(Log([entry]))
    reset = Entry("transition", "r", 1, 0.0, changes={"request_messages": FromTo(None, None)})
    assert "request_messages: null -> null" in timeline(Log([reset]))


def test_empty_log() -> None:
    """Nothing in, nothing out."""
    assert "" == timeline(Log())


async def test_a_response_with_a_price_tells_its_cost() -> None:
    """And whose it was; without a known cost the line of its request says that."""
    usage = Usage(input_tokens=1000, output_tokens=100)
    priced = ModelProfile(price=Price(input=1, output=10))
    for profile, told in (
        (priced, 'response: "done"; model: "cheap"; cost: 0.002'),
        (ModelProfile(), 'response: "done"'),
    ):
        model = ScriptedModel(["done"], name="cheap", usage=usage, profile=profile)
        result = await Agent("desk", model).run("go")
        (line,) = [line for line in timeline(result.log).splitlines() if "model responded" in line]
        assert line.endswith(told)
