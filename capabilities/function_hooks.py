"""Plain functions as capabilities: `@hook.before_model_request` and its siblings, and `ToolHook`."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from attrs import Attribute, Factory, evolve, field, frozen

from .capability import CallNext, Capability, SaveNext
from .grid import HOOKS
from .shapes import is_async

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .call_state import CallState
    from .description import Description
    from .messages import Message
    from .state import RunState

    RunReducer: TypeAlias = Callable[[RunState], RunState]
    CallReducer: TypeAlias = Callable[[CallState], CallState]
    RunWrapper: TypeAlias = Callable[[CallNext[RunState, RunState], RunState], Awaitable[RunState]]
    ToolWrapper: TypeAlias = Callable[[CallNext[CallState, CallState], CallState], Awaitable[CallState]]
    LoadNext: TypeAlias = CallNext[RunState, Sequence[Message]]
    LoadWrapper: TypeAlias = Callable[[LoadNext, RunState], Awaitable[Sequence[Message]]]
    SaveWrapper: TypeAlias = Callable[[SaveNext, RunState, Sequence[Message]], Awaitable[None]]
    PromptWrapper: TypeAlias = Callable[[CallNext[RunState, str], RunState], Awaitable[str]]


def _name(self: "FunctionHook") -> str:
    function = self.function
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', '?')}:{name}"


def _colored(instance: "FunctionHook", attribute: "Attribute[Function]", value: object) -> None:
    (name,) = type(instance).overrides
    if not callable(value) or isinstance(value, type):
        raise TypeError(f"hook.{name} takes a function, not {value!r:.80}")
    # A lambda cannot be async; one that hands on what call_next returns may be awaited all the same.
    awaitable = is_async(value) or getattr(value, "__name__", "") == "<lambda>"
    if HOOKS[name].kind == "wrapper" and not awaitable:
        raise TypeError(f"{name} takes an async function, it wraps an effect: {_shown(value)} is a plain one")
    if HOOKS[name].kind == "reducer" and is_async(value):
        raise TypeError(f"{name} takes a plain function, it is a reducer: {_shown(value)} is async")


def _shown(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


Function: TypeAlias = Callable[..., object]


@frozen
class FunctionHook(Capability):
    """Base of the capabilities that are made of one plain function.

    The key is the function's `module:qualname`; two functions of one name, such as lambdas, need
    `evolve(capability, key=...)` each.
    """

    function: Function = field(validator=_colored)
    key: str = field(kw_only=True, default=Factory(_name, takes_self=True))

    def describe(self) -> "Description":
        """Describe the hook by its function's name, which is never complete: the code is not in it."""
        return evolve(super().describe(), complete=False)


@frozen
class ToolHook(FunctionHook):
    """A plain async function `(call_next, call)` around tool calls; a tool or toolkit takes the bare function too.

    Its key is the function's module and name, or `key`: two lambdas need one each.

    >>> from capfold.runtime import Agent, ScriptedModel
    >>> async def shout(call_next, call):
    ...     done = await call_next(call)
    ...     return done.with_content(done.outcome.content.upper())
    >>> @tool(capabilities=[ToolHook(shout)])
    ... def greet(name: str) -> str:
    ...     return f"hello {name}"
    >>> model = ScriptedModel([call("greet", {"name": "ada"}), "ok"])
    >>> Agent("desk", model, tools=[greet]).run_sync("Greet ada.").messages[2].content
    'HELLO ADA'
    """

    async def wrap_tool_execute(
        self, call_next: "CallNext[CallState, CallState]", call: "CallState"
    ) -> "CallState":
        """Call the function."""
        return await self.function(call_next, call)  # type: ignore[misc,no-any-return]  # the edge checks it


# None of these adds a field, so they are plain subclasses: `@frozen` would compile the same methods again at each
# import, 0.7 ms a class.


class _BeforeRun(FunctionHook):
    def before_run(self, state: "RunState") -> "RunState":
        return self.function(state)  # type: ignore[return-value]  # the check refuses anything else


class _AfterRun(FunctionHook):
    def after_run(self, state: "RunState") -> "RunState":
        return self.function(state)  # type: ignore[return-value]  # the check refuses anything else


class _BeforeModelRequest(FunctionHook):
    def before_model_request(self, state: "RunState") -> "RunState":
        return self.function(state)  # type: ignore[return-value]  # the check refuses anything else


class _AfterModelRequest(FunctionHook):
    def after_model_request(self, state: "RunState") -> "RunState":
        return self.function(state)  # type: ignore[return-value]  # the check refuses anything else


class _BeforeToolExecute(FunctionHook):
    def before_tool_execute(self, call: "CallState") -> "CallState":
        return self.function(call)  # type: ignore[return-value]  # the check refuses anything else


class _AdmitToolExecute(FunctionHook):
    def admit_tool_execute(self, call: "CallState") -> "CallState":
        return self.function(call)  # type: ignore[return-value]  # the check refuses anything else


class _AfterToolExecute(FunctionHook):
    def after_tool_execute(self, call: "CallState") -> "CallState":
        return self.function(call)  # type: ignore[return-value]  # the check refuses anything else


class _WrapRun(FunctionHook):
    async def wrap_run(self, call_next: "CallNext[RunState, RunState]", state: "RunState") -> "RunState":
        return await self.function(call_next, state)  # type: ignore[misc,no-any-return]  # the check refuses anything else


class _WrapModelRequest(FunctionHook):
    async def wrap_model_request(
        self, call_next: "CallNext[RunState, RunState]", state: "RunState"
    ) -> "RunState":
        return await self.function(call_next, state)  # type: ignore[misc,no-any-return]  # see above


class _WrapLoadMessages(FunctionHook):
    async def wrap_load_messages(self, call_next: "LoadNext", state: "RunState") -> "Sequence[Message]":
        return await self.function(call_next, state)  # type: ignore[misc,no-any-return]  # see above


class _WrapSaveMessages(FunctionHook):
    async def wrap_save_messages(
        self, call_next: SaveNext, state: "RunState", messages: "Sequence[Message]"
    ) -> None:
        await self.function(call_next, state, messages)  # type: ignore[misc]  # see above


class _WrapPrompt(FunctionHook):
    async def wrap_prompt(self, call_next: "CallNext[RunState, str]", state: "RunState") -> str:
        return await self.function(call_next, state)  # type: ignore[misc,no-any-return]  # see above


class _Hooks:
    """Decorators that make a capability of one plain function, by the name of its hook."""

    def before_run(self, function: "RunReducer") -> Capability:
        """Make a capability of a reducer."""
        return _BeforeRun(function)

    def after_run(self, function: "RunReducer") -> Capability:
        """Make a capability of a reducer."""
        return _AfterRun(function)

    def before_model_request(self, function: "RunReducer") -> Capability:
        """Make a capability of a reducer."""
        return _BeforeModelRequest(function)

    def after_model_request(self, function: "RunReducer") -> Capability:
        """Make a capability of a reducer."""
        return _AfterModelRequest(function)

    def before_tool_execute(self, function: "CallReducer") -> Capability:
        """Make a capability of a reducer."""
        return _BeforeToolExecute(function)

    def admit_tool_execute(self, function: "CallReducer") -> Capability:
        """Make a capability of a reducer."""
        return _AdmitToolExecute(function)

    def after_tool_execute(self, function: "CallReducer") -> Capability:
        """Make a capability of a reducer."""
        return _AfterToolExecute(function)

    def wrap_run(self, function: "RunWrapper") -> Capability:
        """Make a capability of a wrapper."""
        return _WrapRun(function)

    def wrap_model_request(self, function: "RunWrapper") -> Capability:
        """Make a capability of a wrapper."""
        return _WrapModelRequest(function)

    def wrap_tool_execute(self, function: "ToolWrapper") -> Capability:
        """Make a capability of a wrapper."""
        return ToolHook(function)

    def wrap_load_messages(self, function: "LoadWrapper") -> Capability:
        """Make a capability of a wrapper."""
        return _WrapLoadMessages(function)

    def wrap_save_messages(self, function: "SaveWrapper") -> Capability:
        """Make a capability of a wrapper."""
        return _WrapSaveMessages(function)

    def wrap_prompt(self, function: "PromptWrapper") -> Capability:
        """Make a capability of a wrapper."""
        return _WrapPrompt(function)


hook = _Hooks()
