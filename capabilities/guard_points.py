"""The points that a guard may stand at: a class for each, and a second one for async checks.

Each has the hooks of its point only, so that `for_tools` and toolkits take a guard for tools, and a run pays for no
other. They are chosen by `Guard(check, at=...)`; nobody else needs to know them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import evolve

from .call_state import CallState
from .frozen import Json
from .guard import Guard
from .guard_checks import PASSED, ask_and_wait, broken_by, own_input, reason_of, response_text, told
from .messages import AssistantMessage, Message
from .shapes import is_async
from .state import RunState

if TYPE_CHECKING:
    from .outside import Outside, SaveNext

WITHHELD = "[withheld: a guard blocked this]"


class InputGuard(Guard):
    """Checks the run's own input."""

    __slots__ = ()

    def before_run(self, state: RunState) -> RunState:
        """Judge the input; what does not pass here is never stored."""
        text = own_input(state)
        return state if text is None else self.judged(state, self.finding(state, text))


class AsyncInputGuard(InputGuard):
    """Does so by an async check."""

    __slots__ = ()
    waits = True

    async def gather_before_run(self, state: RunState, outside: "Outside") -> Json:
        """Ask the check."""
        text = own_input(state)
        return PASSED if text is None else await ask_and_wait(self.check, text)


class OutputGuard(Guard):
    """Checks the output of a completed run."""

    __slots__ = ()

    def after_run(self, state: RunState) -> RunState:
        """Judge the output; the runtime withholds it where the run fails or stops here."""
        if state.stopped is not None:
            return state
        return self.judged(state, self.finding(state, state.output))


class AsyncOutputGuard(OutputGuard):
    """Does so by an async check."""

    __slots__ = ()
    waits = True

    async def gather_after_run(self, state: RunState, outside: "Outside") -> Json:
        """Ask the check."""
        return PASSED if state.stopped is not None else await ask_and_wait(self.check, state.output)


class ResponseGuard(Guard):
    """Checks each final response, and has the model answer again."""

    __slots__ = ()

    def after_model_request(self, state: RunState) -> RunState:
        """Ask again where the text does not pass, and remember its place, so that it stays out of the store."""
        text = response_text(state)
        if text is None:
            return state
        finding = self.finding(state, text)
        reason = reason_of(finding)
        if reason is None or broken_by(finding) is not None:
            return self.judged(state, finding)
        # By the place that it gets in the history: what others make of its text does not hide it.
        return state.put(self, (*state.slot(self), len(state.messages))).ask_again(reason)

    async def wrap_save_messages(
        self, call_next: "SaveNext", state: RunState, messages: Sequence[Message]
    ) -> None:
        """Withhold what was asked for again."""
        own, start = state.messages[state.history_start :], state.history_start
        blocked = {place - start for place in state.slot(self)}
        if not blocked:
            await call_next(state, messages)
        elif len(messages) == len(own):  # each in its place, also where it was rewritten on its way
            await call_next(state, [_withheld(m) if i in blocked else m for i, m in enumerate(messages)])
        else:  # others left some out, or added some: what passed is known by itself
            passed = [message for i, message in enumerate(own) if i not in blocked]
            await call_next(state, [m if m in passed or _calls(m) else _withheld(m) for m in messages])


class AsyncResponseGuard(ResponseGuard):
    """Does so by an async check."""

    __slots__ = ()
    waits = True

    async def gather_after_model_request(self, state: RunState, outside: "Outside") -> Json:
        """Ask the check."""
        text = response_text(state)
        return PASSED if text is None else await ask_and_wait(self.check, text)


class CallGuard(Guard):
    """Checks the arguments of each call."""

    __slots__ = ()

    def admit_tool_execute(self, call: CallState) -> CallState:
        """Judge the arguments, which are sealed."""
        return self.judged(call, self.finding(call, call.arguments))


class AsyncCallGuard(CallGuard):
    """Does so by an async check."""

    __slots__ = ()
    waits = True

    async def gather_admit_tool_execute(self, call: CallState, outside: "Outside") -> Json:
        """Ask the check."""
        return await ask_and_wait(self.check, call.arguments)


class ResultGuard(Guard):
    """Checks what came of each call."""

    __slots__ = ()

    def after_tool_execute(self, call: CallState) -> CallState:
        """Judge the result; where the run stops here it is withheld, as the runtime does where it fails."""
        text = told(call)
        if text is None:
            return call
        finding = self.finding(call, text)
        stopping = self.on_fail == "stop" and reason_of(finding) is not None
        return self.judged(call.with_content(WITHHELD) if stopping else call, finding)


class AsyncResultGuard(ResultGuard):
    """Does so by an async check."""

    __slots__ = ()
    waits = True

    async def gather_after_tool_execute(self, call: CallState, outside: "Outside") -> Json:
        """Ask the check."""
        text = told(call)
        return PASSED if text is None else await ask_and_wait(self.check, text)


def _calls(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and bool(message.tool_calls)


def _withheld(message: Message) -> Message:
    """Return a response without what it says; any other message as it is."""
    if not isinstance(message, AssistantMessage):
        return message
    return evolve(message, content=WITHHELD, provider_items=(), metadata={})


_POINTS: dict[str, tuple[type[Guard], type[Guard]]] = {
    "input": (InputGuard, AsyncInputGuard),
    "output": (OutputGuard, AsyncOutputGuard),
    "response": (ResponseGuard, AsyncResponseGuard),
    "tool_call": (CallGuard, AsyncCallGuard),
    "tool_result": (ResultGuard, AsyncResultGuard),
}


def class_for(check: object, at: object, on_fail: object) -> type[Guard]:
    """Return the class of a point and colour of check; for words that are none the base, which refuses them."""
    point = "response" if (at, on_fail) == ("output", "ask_again") else at
    return _POINTS.get(str(point), (Guard, Guard))[is_async(check)]
