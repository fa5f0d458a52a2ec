"""The points of agent-hooks about a tool call: pre_tool_call and post_tool_call.

Arguments are judged as soon as the response is there, while they may still be changed, and again when others
changed them since. A denial is what the model reads, and the run goes on. Knows nothing of capabilities.
"""

from collections.abc import Iterator, Mapping
from typing import cast

from ..capabilities.call_state import CallState
from ..capabilities.frozen import FrozenDict, Json, freeze, same, thaw
from ..capabilities.messages import AssistantMessage, ToolCall
from ..capabilities.state import RunState
from .agent_hooks_host import Emits, Ruling
from .agent_hooks_wire import arguments_of, read_result, written_result
from .arguments import validate

_FAILED = frozenset({"failed", "unknown"})
_SEALED = "an interceptor would change arguments that are sealed by now"
_OVERTAKEN = "the result was changed between the judgement and its transform"


def runnable(state: RunState, response: AssistantMessage) -> Iterator[tuple[ToolCall, dict[str, object]]]:
    """Yield the calls that are on offer and valid; the others never run, or are judged once they are mended."""
    offered = {tool.name: tool for tool in state.tools}
    for call in response.tool_calls:
        arguments = arguments_of(call)
        if arguments is None or call.name not in offered:
            continue
        if not validate(offered[call.name], cast(FrozenDict[Json], freeze(arguments))):
            yield call, arguments


async def emit_arguments(
    host: Emits, state: RunState, call: ToolCall, arguments: Mapping[str, object]
) -> Ruling:
    """Emit pre_tool_call with arguments as they stand."""
    args = thaw(freeze(arguments))
    return await host.emit(state, "pre_tool_call", call_id=call.id, name=call.name, args=args)


def apply_arguments(call: CallState, entry: object) -> CallState:
    """Put transformed arguments in place, where those that were judged still stand."""
    ruling = Ruling.of(entry)
    if ruling is None or not ruling.changed or not same(call.arguments, _asked(entry)):
        return call
    if not isinstance(ruling.target, Mapping):
        raise ValueError(f"tool_call.args must be an object, not {type(ruling.target).__name__}")
    return call.with_arguments(ruling.target)


def _asked(entry: object) -> object:
    return entry.get("asked") if isinstance(entry, Mapping) else None


async def emit_call(host: Emits, call: CallState, entry: object) -> Json:
    """Emit pre_tool_call again for a call whose arguments are not those that were judged; else return None."""
    ruling = Ruling.of(entry)
    if ruling is not None:
        judged = ruling.target if ruling.changed else _asked(entry)
        if same(call.arguments, judged):
            return None
    return freeze((await emit_arguments(host, call.run, call.asked, call.arguments)).as_fact())


def apply_call(call: CallState, fact: Json, entry: object) -> CallState:
    """Refuse a call that was denied; the model reads why, and the run goes on."""
    late, early = Ruling.of(fact), Ruling.of(entry)
    ruling = late if late is not None else early
    if ruling is not None and not ruling.proceeds:
        return call.refuse(f"blocked: {ruling.reason}")
    if late is not None and late.changed:
        return call.refuse(f"blocked: {_SEALED}")
    return call


# --- post_tool_call


def _result(call: CallState) -> object:
    assert call.outcome is not None, "the call has its outcome"
    return written_result(call.outcome.content)


async def emit_result(host: Emits, call: CallState) -> Json:
    """Emit post_tool_call for a call whose body was started; for another return None."""
    if call.outcome is None or not call.ran:
        return None
    ruling = await host.emit(
        call.run,
        "post_tool_call",
        call_id=call.id,
        name=call.name,
        args=thaw(call.arguments),
        value=_result(call),
        is_error=call.outcome.status in _FAILED,
    )
    return freeze(ruling.as_fact())


def apply_result(call: CallState, fact: Json) -> CallState:
    """Put in place of a result why it was denied, or what it was changed to."""
    ruling = Ruling.of(fact)
    if ruling is None or call.outcome is None:
        return call
    if not ruling.proceeds:
        return call.with_content(f"blocked: {ruling.reason}")
    if ruling.changed:
        if not ruling.is_of(_result(call)):
            return call.with_content(f"blocked: {_OVERTAKEN}")
        return call.with_content(read_result(ruling.target, call.outcome.content))
    return call
