"""Guards: for each owner and hook of `RULES`, what makes a write legal.

A guard gets field, old and new value, the record before and the edge; it returns (problem or None, the value
that takes effect, parts that were put back inside it). The table must have exactly the keys of `RULES`, or
this module does not import: a rule in the docs without a guard cannot exist, nor the other way round.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from attrs import evolve

from ..capabilities.call_state import CallState
from ..capabilities.capability import AnyCapability, state_type
from ..capabilities.frozen import EMPTY, FrozenDict, Json, json_problem, same
from ..capabilities.messages import AssistantMessage, Message, SystemMessage, ToolCall, UserMessage
from ..capabilities.owners import RULES, Owner, owners
from ..capabilities.state import Fail, RunState, Stop
from ..capabilities.tools import Tool
from ..capabilities.verdict import Answered, Ask, Outcome, Refusal, Verdict
from ..capabilities.views import Projection
from .models import is_model
from .portable import slot_problem

Undone: TypeAlias = Mapping[str, tuple[object, object]]
Judged: TypeAlias = tuple[str | None, object, Undone]
Guard: TypeAlias = "Callable[[str, object, object, RunState | CallState, Edge], Judged]"


class Edge(NamedTuple):
    """Where a record is checked: which hook of which capability, and what the run allows there.

    `output_problem` says why a value does not satisfy the output type, or None; `arguments_problem` likewise
    of arguments and the tool's schema. `members`: the capabilities by key, whose slots have types. `history`: how
    many messages the hook left, which a projection of its covers; the check fills it in.
    """

    key: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls
    hook: str
    output_problem: Callable[[object], str | None] | None = None
    arguments_problem: Callable[[FrozenDict[Json]], str | None] | None = None
    members: Mapping[str, AnyCapability] = EMPTY  # type: ignore[assignment]  # an empty mapping of any type
    history: int = 0


_NOTHING_UNDONE: Undone = FrozenDict()


def _legal(value: object, undone: Undone = _NOTHING_UNDONE) -> Judged:
    return None, value, undone


def _illegal(problem: str, value: object) -> Judged:
    return problem, value, _NOTHING_UNDONE


# What a latch is set to.
LATCHES: Mapping[str, type] = {"stopped": Stop, "failed": Fail, "again": str, "notes": tuple}


def _latch(name: str, old: object, new: object, before: RunState | CallState, edge: Edge) -> Judged:
    if name == "notes":
        assert isinstance(old, tuple)
        grown = isinstance(new, tuple) and len(new) > len(old) and new[: len(old)] == old
        if grown and isinstance(new, tuple) and all(type(note) is str for note in new):
            return _legal(new)
        return _illegal("notes are only added to, by note(text)", new)
    if name == "again" and edge.hook != "after_model_request":
        return _illegal("ask_again belongs in after_model_request", new)
    if old is None and type(new) is LATCHES[name]:
        return _legal(new)
    return _illegal(f"{name} is set once and never cleared or replaced", new)


def _own_input(name: str, old: object, new: object, before: RunState | CallState, edge: Edge) -> Judged:
    assert isinstance(before, RunState)
    assert isinstance(new, tuple)
    start = before.history_start
    if not _prefix(before.messages[:start], new):
        return _illegal("before_run rewrites this run's own input only, not the messages before it", new)
    for message in new[start:]:
        if not isinstance(message, SystemMessage | UserMessage):
            return _illegal(f"this run's own input holds user and system messages, not {_kind(message)}", new)
    return _legal((*before.messages[:start], *new[start:]))


def _append(name: str, old: object, new: object, before: RunState | CallState, edge: Edge) -> Judged:
    assert isinstance(before, RunState)
    assert isinstance(new, tuple)
    if not _prefix(before.messages, new):
        return _illegal(
            "canonical messages are appended to, never dropped, edited or reordered; to show others, project a view",
            new,
        )
    for message in new[len(before.messages) :]:
        if not isinstance(message, SystemMessage | UserMessage):
            return _illegal(f"only user and system messages may be appended, not {_kind(message)}", new)
    # Equal copies in place of what stood there (another `at`) would be a change that no record shows.
    return _legal((*before.messages, *new[len(before.messages) :]))


def _prefix(old: tuple[Message, ...], new: tuple[object, ...]) -> bool:
    return len(new) >= len(old) and all(a is b or same(a, b) for a, b in zip(old, new, strict=False))


def _kind(message: object) -> str:
    return type(message).__name__


def _request(name: str, old: object, new: object, before: RunState | CallState, edge: Edge) -> Judged:
    assert isinstance(before, RunState)
    return REQUEST_FIELDS[name](new, before, edge)


def _settings(new: object, before: RunState, edge: Edge) -> Judged:
    if type(new) is not FrozenDict:
        return _illegal("settings is a frozen mapping", new)
    problem = json_problem(new)
    return _legal(new) if problem is None else _illegal(f"settings is JSON: {problem}", new)


def _instructions(new: object, before: RunState, edge: Edge) -> Judged:
    return _legal(new) if type(new) is str else _illegal("instructions is a string", new)


def _model(new: object, before: RunState, edge: Edge) -> Judged:
    if is_model(new):
        return _legal(new)
    return _illegal("model is a model object: with a name, a profile and an async request()", new)


def _tools(new: object, before: RunState, edge: Edge) -> Judged:
    if edge.hook == "wrap_model_request":
        return _illegal("a wrapper cannot change tools: select them in before_model_request", new)
    return _selection(before.tools, new)


def _selection(old: tuple[Tool, ...], new: object) -> Judged:
    if not isinstance(new, tuple) or not all(isinstance(tool, Tool) for tool in new):
        return _illegal("tools is a tuple of Tool records", new)
    selected = {tool.name: tool for tool in old}
    seen: set[str] = set()
    for tool in new:
        if tool.name in seen:
            return _illegal(f"tool {tool.name!r} is selected twice", new)
        seen.add(tool.name)
        given = selected.get(tool.name)
        if given is None:
            return _illegal(f"a selection is only narrowed or tuned: {tool.name!r} was not in it", new)
        if tool is given:
            continue
        for part in ("parameters", "function", "annotations", "capabilities"):
            kept, made = getattr(given, part), getattr(tool, part)
            if kept is not made and not same(kept, made):
                return _illegal(f"a tuned tool keeps its {part}: {tool.name!r} has others", new)
    return _legal(new)


def _projection(new: object, before: RunState, edge: Edge) -> Judged:
    if not isinstance(new, Projection):
        return _illegal("request_messages is a Projection: use project(messages)", new)
    if new.task is not None and not any(message is new.task for message in new.messages):
        return _illegal("the task of a projection is one of its messages: use project(messages)", new)
    if not len(before.messages) <= new.covers <= edge.history:  # it may append before it projects, and after
        return _illegal(
            f"a projection covers the whole history, {edge.history} messages, not {new.covers}", new
        )
    if before.request_messages is None:  # nothing was hidden yet, however long the history is
        return _legal(new)
    shown = {id(message) for message in before.view}
    novel = [message for message in new.messages if id(message) not in shown]
    if novel:
        hidden = set(before.messages)
        hidden.difference_update(before.view)
        for message in novel:
            if message in hidden:
                return _illegal("what an earlier capability hid stays hidden: project from state.view", new)
    return _legal(new)


def _response(name: str, old: object, new: object, before: RunState | CallState, edge: Edge) -> Judged:
    assert isinstance(before, RunState)
    if not isinstance(new, AssistantMessage):
        return _illegal(f"response is an AssistantMessage, not {_kind(new)}", new)
    parts: tuple[AssistantMessage | ToolCall, ...] = (new, *new.tool_calls)
    problem = next(filter(None, (json_problem(part.metadata) for part in parts)), None)
    if problem is not None:
        return _illegal(f"metadata is JSON: {problem}", new)
    if not isinstance(old, AssistantMessage) or edge.hook == "wrap_model_request":
        # A wrapper that returns what it got changes nothing; what it makes up is its own.
        made_up = tuple(
            call if call.origin == edge.key else evolve(call, origin=edge.key) for call in new.tool_calls
        )
        return _legal(evolve(new, tool_calls=made_up) if made_up != new.tool_calls else new)
    kept = {call.id: call for call in old.tool_calls if call.id}
    unnamed = [
        call for call in old.tool_calls if not call.id
    ]  # added by earlier hooks; ids are made at the end
    calls: list[ToolCall] = []
    seen: set[str] = set()
    for call in new.tool_calls:
        given = kept.get(call.id) or next((one for one in unnamed if same(one, call)), None)
        if given is not None and not call.id:
            unnamed.remove(given)
        if given is None:
            calls.append(call if call.origin == edge.key else evolve(call, origin=edge.key))
        elif not same(call, given):
            return _illegal(f"call {call.id!r} keeps its name, arguments, kind, metadata and origin", new)
        else:
            calls.append(given)
        if call.id and call.id in seen:
            return _illegal(f"call {call.id!r} stands twice in the response", new)
        seen.add(call.id)
    undone: dict[str, tuple[object, object]] = {}
    changes: dict[str, object] = {}
    if not same(new.usage, old.usage):
        undone["response.usage"] = (new.usage, old.usage)
        changes["usage"] = old.usage
    if new.finish_reason != old.finish_reason and old.finish_reason in {"length", "content_filter"}:
        undone["response.finish_reason"] = (new.finish_reason, old.finish_reason)
        changes["finish_reason"] = old.finish_reason
    if any(made is not given for made, given in zip(calls, new.tool_calls, strict=True)):
        changes["tool_calls"] = tuple(calls)
    value = evolve(new, **changes) if changes else new  # type: ignore[arg-type]  # fields of AssistantMessage
    return _legal(old if same(value, old) else value, undone)


_MISSING = object()


def slots_guard(name: str, old: object, new: object, before: RunState | CallState, edge: Edge) -> Judged:
    """Judge a write of slots: the own one, set to a value that is immutable and that the codec carries."""
    if type(new) is not FrozenDict or type(old) is not FrozenDict:
        return _illegal("slots is a frozen mapping: use put(self, value)", new)
    if not old.keys() <= new.keys():
        return _illegal("a slot is set, not removed", new)
    changed = False
    for key, value in new.items():
        was = old.get(key, _MISSING)
        if was is value or (was is not _MISSING and same(was, value)):
            continue
        if key != edge.key:
            return _illegal(f"slot {key!r} belongs to another capability", new)
        changed = True
        owner = edge.members.get(key)
        problem = slot_problem(value, None if owner is None else state_type(type(owner)))
        if problem is not None:
            return _illegal(problem, new)
    return _legal(new if changed else old)


def _output(name: str, old: object, new: object, before: RunState | CallState, edge: Edge) -> Judged:
    problem = edge.output_problem(new) if edge.output_problem is not None else None
    return (
        _legal(new) if problem is None else _illegal(f"output must satisfy the output type: {problem}", new)
    )


def _arguments(name: str, old: object, new: object, before: RunState | CallState, edge: Edge) -> Judged:
    if type(new) is not FrozenDict:
        return _illegal(f"{name} is a frozen mapping: use with_arguments", new)
    problem = json_problem(new)
    if problem is not None:
        return _illegal(f"{name} is JSON: {problem}", new)
    if name == "arguments" and edge.arguments_problem is not None:
        problem = edge.arguments_problem(new)
        if problem is not None:
            return _illegal(f"arguments must satisfy the tool's schema: {problem}", new)
    return _legal(new)


def _verdict(name: str, old: object, new: object, before: RunState | CallState, edge: Edge) -> Judged:
    assert isinstance(old, Verdict)
    problem = _verdict_problem(new) if type(new) is Verdict else f"verdict is a Verdict, not {_kind(new)}"
    if problem is not None:
        return _illegal(problem, new)
    if type(new) is not Verdict or not new.includes(old):
        return _illegal("a verdict is only added to: nothing is taken back", new)
    if edge.hook == "wrap_tool_execute" and new.approval != old.approval:
        return _illegal("approval is required in admit_tool_execute, before anything runs", new)
    return _legal(_stamped(old, new, edge.key))


def _verdict_problem(verdict: Verdict) -> str | None:
    """Say which part of a verdict is no record of its kind, or None: a hook may build one by hand."""
    if type(verdict.refused) not in {Refusal, type(None)}:
        return f"refused is a Refusal or None, not {_kind(verdict.refused)}: use refuse(reason)"
    if type(verdict.answer) not in {Answered, type(None)}:
        return f"answer is an Answered or None, not {_kind(verdict.answer)}: use answer(content)"
    if type(verdict.approval) is not tuple or any(type(ask) is not Ask for ask in verdict.approval):
        return "approval is a tuple of Ask: use require_approval(prompt)"
    return None


def _stamped(old: Verdict, new: Verdict, key: str) -> Verdict:
    refused, answer = new.refused, new.answer
    if refused is not None and old.refused is None:
        refused = Refusal(refused.reason, key)
    if answer is not None and old.answer is None:
        answer = Answered(answer.content, key)
    fresh: tuple[Ask, ...] = tuple(evolve(ask, by=key) for ask in new.approval[len(old.approval) :])
    return Verdict(refused, old.approval + fresh, answer)


def _outcome(name: str, old: object, new: object, before: RunState | CallState, edge: Edge) -> Judged:
    if type(new) is not Outcome:
        return _illegal(f"outcome is an Outcome, not {_kind(new)}", new)
    if not isinstance(old, Outcome):
        return _illegal("only the runtime makes an outcome: refuse or answer instead", new)
    for part in ("status", "error", "attempts", "by"):
        if not same(getattr(old, part), getattr(new, part)):
            return _illegal(f"the {part} of an outcome stays; content and metadata may change", new)
    problem = json_problem(new.metadata)
    return _legal(new) if problem is None else _illegal(f"the metadata of an outcome is JSON: {problem}", new)


# What makes the write of each part of a request legal.
REQUEST_FIELDS: Mapping[str, Callable[[object, RunState, Edge], Judged]] = {
    "request_messages": _projection,
    "model": _model,
    "settings": _settings,
    "instructions": _instructions,
    "tools": _tools,
}
GUARDS: Mapping[tuple[Owner, str], Guard] = {
    (Owner.LATCH, "*"): _latch,
    (Owner.HISTORY, "before_run"): _own_input,
    (Owner.HISTORY, "before_model_request"): _append,
    (Owner.REQUEST, "before_model_request"): _request,
    (Owner.REQUEST, "wrap_model_request"): _request,
    (Owner.RESPONSE, "after_model_request"): _response,
    (Owner.RESPONSE, "wrap_model_request"): _response,
    **{(Owner.PRIVATE, hook): slots_guard for hook in RULES[Owner.PRIVATE].allowed},
    (Owner.OUTPUT, "after_run"): _output,
    (Owner.ARGUMENTS, "before_tool_execute"): _arguments,
    (Owner.VERDICT, "admit_tool_execute"): _verdict,
    (Owner.VERDICT, "wrap_tool_execute"): _verdict,
    (Owner.OUTCOME, "after_tool_execute"): _outcome,
    (Owner.OUTCOME, "wrap_tool_execute"): _outcome,
}

_ruled = {(owner, hook) for owner, rule in RULES.items() for hook in rule.allowed}
if set(GUARDS) != _ruled:
    raise ImportError(f"guards and RULES disagree on {sorted(map(str, set(GUARDS) ^ _ruled))}")
for _owner, _known in ((Owner.LATCH, LATCHES), (Owner.REQUEST, REQUEST_FIELDS)):
    _owned = {name for kind in (RunState, CallState) for name, one in owners(kind).items() if one is _owner}
    if _owned != _known.keys():
        raise ImportError(
            f"no guard knows, or no record has, {_owner.name}: {sorted(_owned ^ _known.keys())}"
        )
