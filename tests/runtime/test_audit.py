"""Audit records: what a body holds, that equal runs have equal ones, that anything can be on record."""

import math
import subprocess
import sys

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities.frozen import FrozenDict, canonical
from capfold.capabilities.messages import AssistantMessage, Message, UserMessage
from capfold.capabilities.tools import Tool
from capfold.capabilities.views import Projection
from capfold.runtime.audit import encode, next_digest, places, record_of
from capfold.runtime.entries import (
    ENTRY_KINDS,
    OUTSIDE_DIGEST,
    Added,
    Entry,
    EntryKind,
    FromTo,
    Items,
    Projected,
)
from capfold.runtime.errors import CodecError
from capfold.runtime.scripted_model import ScriptedModel
from tests.runtime.entries_story import PAY, READ, story

MESSAGES: tuple[Message, ...] = tuple(UserMessage(f"m{i}", at=float(i)) for i in range(8))


def entry(kind: EntryKind = "transition", **fields: object) -> Entry:
    """Return an entry of run r, step 1."""
    return Entry(kind, "r", 1, 5.0, **fields)  # type: ignore[arg-type]  # fields of many types


def test_change_forms() -> None:
    """Each change has the form that the public names promise."""
    body = encode(
        entry(
            changes={
                "response": FromTo(None, 1),
                "notes": Added(("a", "b")),
                "slots": Items({"Budget": 3}, ("Old",)),
            }
        )
    )
    expected = {
        "response": {"from": None, "to": 1},
        "notes": {"added": ["a", "b"]},
        "slots": {"set": {"Budget": 3}, "removed": ["Old"]},
    }
    assert expected == body["changes"]


def test_restored_and_rejected_forms() -> None:
    """What was tried stands beside what was kept, or what would have been legal."""
    body = encode(entry(restored={"tool_calls": (99, 1)}, rejected={"messages": ((), "only append")}))
    assert {"tool_calls": {"tried": 99, "kept": 1}} == body["restored"]
    assert {"messages": {"tried": [], "legal": "only append"}} == body["rejected"]


def test_body_has_no_clock_and_no_place() -> None:
    """Two runs that differ in time, id and message times have equal bodies, so equal digests."""
    one, other = story("run-1", at=100.0), story("run-2", at=999.0)
    assert list(map(encode, one)) == list(map(encode, other))
    assert '"at"' not in canonical(list(map(encode, one)))


def test_tools_are_written_by_name_and_digest() -> None:
    """A tool in a change is its name and the digest of its descriptor, never its function or schema."""
    body = encode(entry(changes={"tools": FromTo((READ, PAY), (PAY,))}))
    written = {tool.name: {"tool": tool.name, "digest": tool.digest} for tool in (READ, PAY)}
    assert {"tools": {"from": [written["read"], written["pay"]], "to": [written["pay"]]}} == body["changes"]


def test_models_are_written_by_name() -> None:
    """A model in a change or a fact is its name."""
    model = ScriptedModel(["hi"], name="script-1")
    body = encode(entry(changes={"model": FromTo(None, model)}, facts={"model": model}))
    assert {"model": {"from": None, "to": "script-1"}} == body["changes"]
    assert {"model": "script-1"} == body["facts"]


def test_one_true_and_one_point_zero_differ() -> None:
    """`1`, `True` and `1.0` are three values on record too."""
    bodies = [encode(entry(facts={"x": value})) for value in (1, True, 1.0)]
    assert len({next_digest("", body) for body in bodies}) == 3


def test_projection_names_canonical_messages_by_index() -> None:
    """Canonical messages are indices, runs of them [start, stop]; only a new message is written out."""
    mapped = UserMessage("masked", at=3.0)
    shown = (MESSAGES[0], MESSAGES[1], mapped, MESSAGES[4], MESSAGES[6], MESSAGES[7])
    change = Projected(Projection(shown, 8, task=mapped), MESSAGES)
    written = encode(entry(changes={"request_messages": change}))["changes"]
    assert isinstance(written, FrozenDict)
    to = written["request_messages"]
    assert isinstance(to, FrozenDict)
    full = encode(entry(facts={"m": mapped}))["facts"]
    assert isinstance(full, FrozenDict)
    assert {"from": None, "to": {"covers": 8, "messages": [[0, 2], full["m"], 4, [6, 8]], "task": 2}} == to


def test_projection_reset_is_none() -> None:
    """A projection that was taken back is written as null."""
    body = encode(entry(changes={"request_messages": Projected(None, MESSAGES)}))
    assert {"request_messages": {"from": None, "to": None}} == body["changes"]


def test_equal_message_that_is_not_the_canonical_one_is_written_out() -> None:
    """Identity, not equality, makes a message a canonical one: its `at` may differ."""
    copy = evolve(MESSAGES[2], at=77.0)
    assert [0, None, 3] == places((MESSAGES[0], copy, MESSAGES[3]), MESSAGES[:4])


@given(st.lists(st.integers(0, 9), max_size=12))
@settings(max_examples=80)
def test_places_equal_a_plain_lookup(order: list[int]) -> None:
    """Matching from both ends finds what looking up each message finds."""
    pool = (*MESSAGES, UserMessage("new 8"), UserMessage("new 9"))
    shown = tuple(pool[i] for i in order)
    assert [i if i < len(MESSAGES) else None for i in order] == places(shown, MESSAGES)


class Foreign:
    """A class of the user, whose repr holds an address."""


class Hostile:
    """A class of which not even the repr works."""

    def __repr__(self) -> str:
        raise ValueError("no")


LOOP: list[object] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("tried", "text"),
    [
        (math.nan, "nan"),
        (Foreign(), "<tests.runtime.test_audit.Foreign object>"),
        (Hostile(), "<Hostile>"),
        ({1: "one"}, "{1: 'one'}"),
        ({"b", "a"}, None),
        (LOOP, None),
        (Foreign, None),
        ("x" * 10, None),
    ],
)
def test_anything_tried_can_be_put_on_record(tried: object, text: str | None) -> None:
    """A refused write may be anything: what the codec does not carry stands there by its repr."""
    body = encode(entry(rejected={"slots": (tried, "legal")}, restored={"usage": (tried, 0)}))
    written = canonical(body)
    assert " at 0x" not in written
    if text is not None:
        assert {"slots": {"tried": {"$repr": text}, "legal": "legal"}} == body["rejected"]


def test_repr_is_bounded() -> None:
    """However large the refused value is, the record stays small."""
    body = encode(entry(rejected={"output": (Foreign, "x")}, restored={"usage": ({1: "y" * 10_000_000}, 0)}))
    assert len(canonical(body)) < 1500


def test_change_that_cannot_be_carried_is_an_error() -> None:
    """What took effect must be on record as it is: otherwise a CodecError names the field."""
    with pytest.raises(CodecError) as raised:
        encode(entry(changes={"slots": Items({"Mine": math.nan})}))
    assert "$.slots" == raised.value.path
    with pytest.raises(CodecError) as raised:
        encode(entry(facts={"fact": LOOP}))
    assert "$.fact" == raised.value.path


@pytest.mark.parametrize("kind", ENTRY_KINDS)
def test_only_suspending_and_resuming_keep_the_digest(kind: EntryKind) -> None:
    """How a run was carried is outside the chain; every other kind goes on in it."""
    record = record_of(entry(kind), 3, "a" * 64)
    assert (kind in OUTSIDE_DIGEST) == (record.digest == "a" * 64)


def test_record_as_dict() -> None:
    """The dict has every public attribute, the seal last, and no word of content that is whole."""
    written = record_of(entry("note", facts={"x": 1}), 3, "").to_dict()
    expected = {
        "kind", "step", "call", "actor", "index", "hook", "changes", "restored", "rejected", "facts",
        "seq", "run", "prev", "digest", "at", "seal",
    }  # fmt: skip
    assert expected == written.keys()
    assert "seal" == list(written)[-1]


PROGRAM = """
from attrs import frozen
from capfold.runtime.entries import Entry, Items
from capfold.runtime.log import Log
from tests.runtime.entries_story import digests, story
odd = Entry("rejected", "r", 1, 0.0, rejected={"slots": ({"b", "a", ("c",)}, "x"), "output": (object(), "y")})
slot = Entry("transition", "r", 1, 0.0, changes={"slots": Items({"Seen": frozenset({"x", "y", "z"})})})
print(digests([*story(), odd, slot])[-1])
"""


def test_digests_do_not_depend_on_the_process() -> None:
    """C67 Another hash seed gives equal digests, sets and odd values included."""
    seen = set()
    for seed in ("0", "1", "2"):
        command = [sys.executable, "-c", PROGRAM]
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, ["", *sys.path]))}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        seen.add(done.stdout)
    assert 1 == len(seen)


def test_assistant_message_keeps_its_raw_call() -> None:
    """Arguments stand in the log as the model sent them."""
    message = AssistantMessage(tool_calls=(), content="hello")
    body = encode(entry("model_responded", facts={"response": message}))
    assert '"content":"hello"' in canonical(body)


def test_tool_digest_follows_the_descriptor() -> None:
    """A tuned tool has another digest, so tuning is a change on record."""
    tuned = evolve(PAY, description="Pay carefully.")
    written = encode(entry(changes={"tools": FromTo((PAY,), (tuned,))}))["changes"]
    assert isinstance(tuned, Tool)
    assert isinstance(written, FrozenDict)
    both = written["tools"]
    assert isinstance(both, FrozenDict)
    assert both["from"] != both["to"]
