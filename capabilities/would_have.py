"""What a hook would have done, in words: the difference of two records. Knows no check, and nothing of who called it.

Whether a field may be written at a hook at all is read off the table of owners; what is legal there in detail is the
runtime's business.
"""

import json
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from typing import Final, TypeVar, cast

from .call_state import CallState
from .frozen import same
from .messages import content_text
from .owners import ANY, RULES, Owner, owners
from .state import RunState

T = TypeVar("T", bound=RunState | CallState)
_MOST: Final = 200  # characters of anything that is quoted


@cache
def _owners(kind: Hashable) -> Mapping[str, Owner]:
    return owners(cast(type, kind))


def would_have(
    before: RunState | CallState, after: RunState | CallState, hook: str, key: str
) -> tuple[str, ...]:
    """Return what a hook of the capability `key` did to a record, one sentence each; its own slot is no matter.

    Both records are of one class. What the owner of a field never allows at the hook is told as such.
    """
    said: list[str] = []
    if isinstance(before, CallState) and isinstance(after, CallState):
        said += _differences(before, after, hook, _CALL, skip="run")
        before, after = before.run, after.run
    assert isinstance(before, RunState)
    assert isinstance(after, RunState)
    said += _differences(before, after, hook, _RUN, skip="slots")
    others = [name for name in _changed_slots(before, after) if name != key]
    return (*said, *(f"would have been rejected: the slot {name!r} is another one's" for name in others))


def quoted(text: str) -> str:
    """Return a text in one line, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _MOST else f"{line[: _MOST - 1]}…"


def _differences(
    before: T, after: T, hook: str, words: "Mapping[str, Callable[[T, T], list[str]]]", skip: str
) -> list[str]:
    said: list[str] = []
    for name, owner in _owners(cast(Hashable, type(before))).items():
        old, new = getattr(before, name), getattr(after, name)
        if name == skip or new is old or same(old, new):
            continue
        allowed = RULES[owner].allowed
        legal = (hook in allowed or ANY in allowed) and (name != "again" or hook == "after_model_request")
        if not legal:
            said.append(f"would have been {RULES[owner].consequence}: {name} is {RULES[owner].meaning}")
        elif name in words:
            said += words[name](before, after)
        else:
            said.append(f"would have changed {name}")
    return said


def _changed_slots(before: RunState, after: RunState) -> list[str]:
    names = sorted({*before.slots, *after.slots})
    return [name for name in names if not same(before.slots.get(name), after.slots.get(name))]


# --- one call


def _call(call: CallState) -> str:
    return f"call {call.id} ({call.name})"


def _verdict(before: CallState, after: CallState) -> list[str]:
    old, new = before.verdict, after.verdict
    said: list[str] = []
    if new.refused is not None and new.refused != old.refused:
        said.append(f"would have refused {_call(after)}: {quoted(new.refused.reason)}")
    said += [
        f"would have required an approval of {_call(after)}: {quoted(ask.prompt)}"
        for ask in new.approval
        if ask not in old.approval
    ]
    if new.answer is not None and new.answer != old.answer:
        said.append(f"would have answered {_call(after)}: {quoted(content_text(new.answer.content))}")
    return said or [f"would have been rejected: a verdict on {_call(after)} is never taken back"]


def _arguments(before: CallState, after: CallState) -> list[str]:
    return [f"would have run {_call(after)} with {_json(after.arguments)}"]


def _injected(before: CallState, after: CallState) -> list[str]:
    return [f"would have injected into {_call(after)}: {_json(after.injected)}"]


def _outcome(before: CallState, after: CallState) -> list[str]:
    if after.outcome is None:
        return [f"would have been rejected: the outcome of {_call(after)} stays"]
    return [
        f"would have changed the result of {_call(after)} to: {quoted(content_text(after.outcome.content))}"
    ]


def _notes(before: CallState | RunState, after: CallState | RunState) -> list[str]:
    return [f"would have noted: {quoted(text)}" for text in after.notes[len(before.notes) :]]


# --- the run


def _stopped(before: RunState, after: RunState) -> list[str]:
    return [] if after.stopped is None else [f"would have stopped the run: {quoted(after.stopped.message)}"]


def _failed(before: RunState, after: RunState) -> list[str]:
    return [] if after.failed is None else [f"would have failed the run: {quoted(after.failed.reason)}"]


def _again(before: RunState, after: RunState) -> list[str]:
    return [] if after.again is None else [f"would have asked again: {quoted(after.again)}"]


def _messages(before: RunState, after: RunState) -> list[str]:
    there = {id(message) for message in before.messages}
    new = sum(id(message) not in there for message in after.messages)
    return [f"would have written {new} messages into the history of {len(before.messages)}"]


def _view(before: RunState, after: RunState) -> list[str]:
    there = {id(message) for message in before.view}
    kept = sum(id(message) in there for message in after.view)
    shown = f"{len(after.view)} messages in place of {len(before.view)}"
    return [f"would have shown {shown}, {kept} of them as they were"]


def _model(before: RunState, after: RunState) -> list[str]:
    return [f"would have asked the model {after.model.name if after.model is not None else None}"]


def _settings(before: RunState, after: RunState) -> list[str]:
    return [f"would have set {_json(after.settings)}"]


def _instructions(before: RunState, after: RunState) -> list[str]:
    added = after.instructions.removeprefix(before.instructions)
    verb = "added to" if before.instructions and added != after.instructions else "set"
    return [f"would have {verb} the instructions: {quoted(added)}"]


def _tools(before: RunState, after: RunState) -> list[str]:
    offered = [tool.name for tool in after.tools]
    hidden = [tool.name for tool in before.tools if tool.name not in offered]
    said = [f"would have hidden {quoted(', '.join(hidden))}"] if hidden else []
    old = {tool.name: tool for tool in before.tools}
    tuned = [tool.name for tool in after.tools if tool is not old.get(tool.name)]
    return said + ([f"would have tuned {quoted(', '.join(tuned))}"] if tuned else [])


def _response(before: RunState, after: RunState) -> list[str]:
    if after.response is None:
        return ["would have been rejected: a response cannot be taken away"]
    calls = ", ".join(call.name for call in after.response.tool_calls) or "no calls"
    return [
        f"would have replaced the response by: {quoted(content_text(after.response.content))} ({quoted(calls)})"
    ]


def _output(before: RunState, after: RunState) -> list[str]:
    return [f"would have changed the output to: {quoted(str(after.output))}"]


def _json(value: object) -> str:
    return quoted(json.dumps(value, ensure_ascii=False))


# Field -> what is said of a change of it.
_CALL: Final[Mapping[str, Callable[[CallState, CallState], list[str]]]] = {
    "verdict": _verdict,
    "arguments": _arguments,
    "injected": _injected,
    "outcome": _outcome,
    "notes": _notes,
}
_RUN: Final[Mapping[str, Callable[[RunState, RunState], list[str]]]] = {
    "stopped": _stopped,
    "failed": _failed,
    "again": _again,
    "notes": _notes,
    "messages": _messages,
    "request_messages": _view,
    "model": _model,
    "settings": _settings,
    "instructions": _instructions,
    "tools": _tools,
    "response": _response,
    "output": _output,
}
