"""The points of agent-hooks about a run: what each shows to interceptors, and what a ruling on it does.

Emitting is async and for gatherers and wrappers; applying is pure and for reducers. Where somebody else changed a
record between the two, no transform is laid over it, and the run is blocked. Knows nothing of capabilities; the
points about a call are `agent_hooks_calls`.
"""

from collections.abc import Iterator, Mapping
from typing import cast

from attrs import evolve

from ..capabilities.frozen import FrozenDict, FrozenList, Json, freeze, thaw
from ..capabilities.messages import Message, SystemMessage, UserMessage
from ..capabilities.state import RunState
from .agent_hooks_calls import emit_arguments, runnable
from .agent_hooks_host import Emits, Point, Ruling
from .agent_hooks_wire import (
    read_content,
    read_messages,
    read_response,
    written_content,
    written_message,
    written_response,
)
from .late_codec import json_writer

_PLAIN = (str, int, float, bool, type(None), list, dict)  # outputs that are their own JSON


def blocked(state: RunState, point: Point, ruling: Ruling) -> RunState:
    """End the run by a denial."""
    return state.fail(f"agent-hooks denied {point}: {ruling.reason}")


def _overtaken(state: RunState, point: Point) -> RunState:
    return state.fail(
        f"agent-hooks: {point} was changed by a capability between the judgement and its transform; "
        "list AgentHooks before it"
    )


# --- input


def _own_input(state: RunState) -> Iterator[tuple[int, UserMessage]]:
    for i in range(state.history_start, len(state.messages)):
        message = state.messages[i]
        if isinstance(message, UserMessage):
            yield i, message


def _input(message: UserMessage) -> dict[str, object]:
    return {"content": written_content(message.content), "role": "user"}


async def emit_input(host: Emits, state: RunState) -> Json:
    """Emit input for each user message that the run was started with, up to a denied one."""
    found: list[object] = []
    for i, message in _own_input(state):
        ruling = await host.emit(state, "input", **_input(message))
        found.append({"index": i, **ruling.as_fact()})
        if not ruling.proceeds:
            break
    return freeze(found)


def apply_input(state: RunState, fact: Json) -> RunState:
    """Block the run, or change its input."""
    messages = list(state.messages)
    for one in fact if isinstance(fact, FrozenList) else ():
        ruling = Ruling.of(one)
        if ruling is None:
            continue
        if not ruling.proceeds:
            return blocked(state, "input", ruling)
        if ruling.changed:
            i = cast(Mapping[str, int], one)["index"]
            message = messages[i] if i < len(messages) else None
            if not isinstance(message, UserMessage) or not ruling.is_of(_input(message)):
                return _overtaken(state, "input")
            target = cast(Mapping[str, object], ruling.target)
            if target.get("role") != "user":
                raise ValueError(f"input.role must stay 'user', not {target.get('role')!r:.40}")
            content = read_content(target.get("content"), message.content, "input.content")
            messages[i] = evolve(message, content=content)
    changed = any(new is not old for new, old in zip(messages, state.messages, strict=True))
    return evolve(state, messages=tuple(messages)) if changed else state


# --- pre_model_call


async def rule_on_request(host: Emits, state: RunState) -> tuple[RunState, bool]:
    """Emit pre_model_call with what is about to be sent; return what to send, and whether to send it."""
    assert state.model is not None, "a request is prepared with a model"
    shown: list[Message] = list(state.view)
    if state.instructions:
        shown.insert(0, SystemMessage(state.instructions))
    ruling = await host.emit(
        state,
        "pre_model_call",
        model_id=state.model.name,
        messages=[written_message(message) for message in shown],
        tools=[
            {"name": tool.name, "description": tool.description, "schema": thaw(tool.parameters)}
            for tool in state.tools
        ],
    )
    if not ruling.proceeds:
        return blocked(state, "pre_model_call", ruling), False
    if not ruling.changed:
        return state, True
    made = list(read_messages(ruling.target, shown))
    if state.instructions:
        first = made[0] if made else None
        state = state.with_instructions(first.content if isinstance(first, SystemMessage) else "")
        made = made[1:] if isinstance(first, SystemMessage) else made
    return state.project(made), True


# --- post_model_call, and with it pre_tool_call: later no arguments could be changed


async def emit_response(host: Emits, state: RunState) -> Json:
    """Emit post_model_call and, where it proceeds, pre_tool_call for each call that can run as it stands."""
    response = state.response
    assert response is not None, "a response is under way"
    assert state.model is not None, "a request was prepared with a model"
    counts: dict[str, int | None] = {}
    if response.usage is not None:
        counts = {
            "prompt_tokens": response.usage.input_tokens,
            "completion_tokens": response.usage.output_tokens,
        }
    ruling = await host.emit(
        state,
        "post_model_call",
        model_id=response.model or state.model.name,
        usage={name: count for name, count in counts.items() if count is not None} or None,
        **written_response(response),
    )
    calls: dict[str, object] = {}
    if ruling.proceeds:
        kept = read_response(ruling.target, response) if ruling.changed else response
        for call, arguments in runnable(state, kept):
            judged = await emit_arguments(host, state, call, arguments)
            calls[call.id] = {"asked": arguments, **judged.as_fact()}
    return freeze({"response": ruling.as_fact(), "calls": calls})


def apply_response(state: RunState, fact: Json) -> tuple[RunState, FrozenDict[Json]]:
    """Block the run, or change the response; return the rulings on its calls too."""
    told = fact if isinstance(fact, FrozenDict) else FrozenDict()
    ruling, calls = Ruling.of(told.get("response")), told.get("calls")
    kept = calls if isinstance(calls, FrozenDict) else FrozenDict()
    if ruling is None or state.response is None:
        return state, kept
    if not ruling.proceeds:
        return blocked(state, "post_model_call", ruling), kept
    if ruling.changed:
        if not ruling.is_of(written_response(state.response)):
            return _overtaken(state, "post_model_call"), kept
        return state.respond(read_response(ruling.target, state.response)), kept
    return state, kept


# --- output


async def emit_output(host: Emits, state: RunState) -> Json:
    """Emit output, as JSON."""
    ruling = await host.emit(state, "output", content=thaw(json_writer()(state.output)))
    return freeze(ruling.as_fact())


def apply_output(state: RunState, fact: Json) -> RunState:
    """Block the run, or change its output, which stays of its type."""
    ruling = Ruling.of(fact)
    if ruling is None:
        return state
    if not ruling.proceeds:
        return blocked(state, "output", ruling)
    if ruling.changed:
        if not ruling.is_of({"content": json_writer()(state.output)}):
            return _overtaken(state, "output")
        content = cast(Mapping[str, object], ruling.target).get("content")
        return evolve(state, output=_as_output(content, state.output))
    return state


def _as_output(content: object, before: object) -> object:
    if isinstance(before, _PLAIN):
        return thaw(content)
    # Loaded here alone: the codec costs 40 ms, and an output that is a record has loaded it already.
    from .codec import from_json  # noqa: PLC0415  # see above

    return from_json(content, type(before))
