"""AgentHooks: puts a run under the interceptors of agent-hooks, and does what they rule.

Which of our hooks serves which of the eight points stands here. What a point shows and what a ruling does is
`agent_hooks_points` and `agent_hooks_calls`; who is asked is `agent_hooks_host`. Composes no verdicts: that is the
emitter's part.
"""

from collections.abc import Mapping
from typing import cast

from anyio import get_cancelled_exc_class, move_on_after
from attrs import Attribute, field, frozen

from ..capabilities.call_state import CallState
from ..capabilities.capability import Capability
from ..capabilities.frozen import FrozenDict, Json, same
from ..capabilities.outside import CallNext, Outside, Reach
from ..capabilities.shapes import of_type
from ..capabilities.state import RunState
from .agent_hooks_calls import apply_arguments, apply_call, apply_result, emit_call, emit_result
from .agent_hooks_host import Emits
from .agent_hooks_points import (
    apply_input,
    apply_output,
    apply_response,
    blocked,
    emit_input,
    emit_output,
    emit_response,
    rule_on_request,
)

_LAST_WORD_SECONDS = 10.0  # for agent_shutdown of a cancelled run; an emitter's own timeouts are 5 s each


def _dep(instance: object, attribute: "Attribute[str]", value: str) -> None:
    if type(value) is not str or not value:
        raise TypeError(f"AgentHooks.dep must be the key of an AgentHooksHost in deps, not {value!r:.80}")


@frozen
class AgentHooks(Capability["FrozenDict[Json]"]):
    """Puts a run under the interceptors of agent-hooks, a framework-neutral contract for control of agents.

    `dep`: the key in `deps` under which the run finds its `AgentHooksHost`. `hold_stream` is True here: nobody
    reads a text that post_model_call may still deny. Needs the extra `agent-hooks`.

    A denial at a tool is what the model reads in place of a result, and the run goes on (posture `continue`); at
    any other point it ends the run with `BlockedError`. A transform takes effect wherever the contract allows one.
    Arguments that others change after pre_tool_call are emitted again; a transform comes too late then, and the
    call is refused. List it before capabilities that change the input, responses, results or the output: over
    their changes no transform is laid, and the run is blocked instead.

    A transform that no message, response or output can hold ends the run with `HookError`.
    Raises TypeError for what is no key.

    >>> from agent_hooks import InterceptionEmitter, Verdict
    >>> from capfold.runtime import Agent, AgentHooks, AgentHooksHost
    >>> class AllowAll:
    ...     def intercept(self, context):
    ...         return Verdict.allow()
    >>> emitter = InterceptionEmitter().register(AllowAll())
    >>> agent = Agent("desk", "test", capabilities=[AgentHooks()])
    >>> agent.run_sync("Hello.", deps={"agent_hooks": AgentHooksHost(emitter)}).output
    'Hello.'
    >>> [record.interception_point.value for record in emitter.results][:3]
    ['agent_startup', 'input', 'pre_model_call']
    """

    dep: str = field(default="agent_hooks", kw_only=True, validator=_dep)
    hold_stream: bool = field(default=True, kw_only=True, validator=of_type(bool))

    def initial(self) -> "FrozenDict[Json]":
        """Return no rulings: call id -> the arguments that were judged, and the ruling."""
        return FrozenDict()

    def needs_deps(self) -> frozenset[str]:
        """Return the key of the host."""
        return frozenset({self.dep})

    async def wrap_run(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        """agent_startup, but for a run that is resumed; agent_shutdown, but for one that is suspended."""
        host = self._host(call_next)
        entered = state
        if state.run_step == 0:
            tools = [tool.name for tool in state.inventory]
            ruling = await host.emit(state, "agent_startup", tools_registered=tools)
            entered = state if ruling.proceeds else blocked(state, "agent_startup", ruling)
        try:
            ended = await call_next(entered)
        except get_cancelled_exc_class():
            with move_on_after(_LAST_WORD_SECONDS, shield=True):
                await host.emit(state, "agent_shutdown", reason="cancelled")
            host.forget(state)
            raise
        if ended.status != "suspended":
            reason = {"failed": "error", "cancelled": "cancelled"}.get(ended.status, "completed")
            await host.emit(ended, "agent_shutdown", reason=reason, tool_calls=ended.tool_calls)
            host.forget(ended)
        return ended

    async def gather_before_run(self, state: RunState, outside: Outside) -> Json:
        """Emit input."""
        return await emit_input(self._host(outside), state)

    def before_run(self, state: RunState) -> RunState:
        """Apply input."""
        return apply_input(state, state.fact(self))

    async def wrap_model_request(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        """pre_model_call: in a wrapper, since it shows what all reducers have made of the request."""
        passed, proceeds = await rule_on_request(self._host(call_next), state)
        return await call_next(passed) if proceeds else passed

    async def gather_after_model_request(self, state: RunState, outside: Outside) -> Json:
        """Emit post_model_call, and pre_tool_call while arguments may still be changed."""
        return await emit_response(self._host(outside), state)

    def after_model_request(self, state: RunState) -> RunState:
        """Apply post_model_call, and keep the rulings on the calls."""
        after, calls = apply_response(state, state.fact(self))
        return after if same(calls, after.slot(self)) else after.put(self, calls)

    def before_tool_execute(self, call: CallState) -> CallState:
        """Apply what pre_tool_call made of the arguments."""
        return apply_arguments(call, call.slot(self).get(call.id))

    async def gather_admit_tool_execute(self, call: CallState, outside: Outside) -> Json:
        """Emit pre_tool_call for arguments that nobody has judged yet."""
        return await emit_call(self._host(outside), call, call.slot(self).get(call.id))

    def admit_tool_execute(self, call: CallState) -> CallState:
        """Apply pre_tool_call's denials."""
        return apply_call(call, call.fact(self), call.slot(self).get(call.id))

    async def gather_after_tool_execute(self, call: CallState, outside: Outside) -> Json:
        """Emit post_tool_call."""
        return await emit_result(self._host(outside), call)

    def after_tool_execute(self, call: CallState) -> CallState:
        """Apply post_tool_call."""
        return apply_result(call, call.fact(self))

    async def gather_after_run(self, state: RunState, outside: Outside) -> Json:
        """Emit output."""
        return await emit_output(self._host(outside), state)

    def after_run(self, state: RunState) -> RunState:
        """Apply output."""
        return apply_output(state, state.fact(self))

    def _host(self, reach: Reach) -> Emits:
        deps = reach.deps
        host: object = deps[self.dep] if isinstance(deps, Mapping) else getattr(deps, self.dep)
        if not callable(getattr(host, "emit", None)):
            raise TypeError(f"deps[{self.dep!r}] must be an AgentHooksHost, not {type(host).__name__}")
        return cast(Emits, host)
