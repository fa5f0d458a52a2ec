"""Capability: a frozen config object whose hooks shape, judge and observe a run.

Only the base lives here: what is refused is `refusals`, the order of a list is `compose`; hooks are called by
the runtime.
"""

import functools
import sys
from collections.abc import Callable, Collection, Hashable, Sequence
from types import SimpleNamespace
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    TypeAlias,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from attrs import Attribute, Factory, field, frozen
from typing_extensions import TypeVar

from .frozen import FrozenDict, FrozenList, Json
from .grid import HOOKS
from .outside import CallNext, Outside, SaveNext
from .refusals import check_decorated, check_fields, check_hooks, check_values
from .shapes import of_type

if TYPE_CHECKING:
    from .call_state import CallState
    from .description import Description
    from .messages import Message
    from .state import RunState
    from .tools import Tool

__all__ = ["AnyCapability", "CallNext", "Capability", "Declaration", "Outside", "SaveNext"]

S = TypeVar("S", default=None)
Declaration: TypeAlias = Literal["idempotent", "order_insensitive", "repairs"]
DECLARATIONS: frozenset[str] = frozenset(get_args(Declaration))
# Who else acts in a run: a capability of such a name could pass for a person in log, verdicts and outcomes.
ACTORS = frozenset({"runtime", "model", "tool", "person", "permissions"})


def _key(instance: object, attribute: "Attribute[str]", value: str) -> None:
    if type(value) is not str or not value:
        raise TypeError(f"{type(instance).__name__}.key must be a non-empty string, not {value!r:.80}")
    if value in ACTORS:
        raise ValueError(
            f"{type(instance).__name__}.key must not be {value!r}: in a log that is somebody else"
        )


@frozen
class Capability(Generic[S]):
    """Base of all capabilities. Override only the hooks you need: what is not overridden is not called.

    A capability is its configuration: frozen, hashable, the same before and after any number of runs. What it
    must remember within a run goes into its slot: `Capability[S]`, `initial()`, `state.slot(self)`,
    `state.put(self, value)`.
    `key` names it in slots, log and resumed runs; `hold_stream` withholds streamed text until its after hooks
    ran. Misspelt hooks, async reducers, sync wrappers, mutable config and undecorated fields are TypeErrors.
    """

    key: str = field(
        kw_only=True, default=Factory(lambda self: type(self).__name__, takes_self=True), validator=_key
    )
    hold_stream: bool = field(kw_only=True, default=False, validator=of_type(bool))

    declares: ClassVar[frozenset[Declaration]] = frozenset()
    overrides: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **keywords: object) -> None:
        """Check the names and colors of hooks; attrs creates the class twice, so this is idempotent."""
        super().__init_subclass__(**keywords)
        check_hooks(cls, Capability)
        declared: object = cls.declares
        if not isinstance(declared, Collection) or not DECLARATIONS.issuperset(declared):
            legal = ", ".join(sorted(DECLARATIONS))
            raise TypeError(f"{cls.__name__}.declares is {declared!r:.80}; it must be a set of: {legal}")
        cls.declares = frozenset(declared)
        cls.overrides = frozenset(
            name for name in HOOKS if getattr(cls, name) is not getattr(Capability, name)
        )

    @classmethod
    def __attrs_init_subclass__(cls) -> None:
        """Check the fields once attrs knows them, and see to it that every instance is checked."""
        check_fields(cls, Capability)
        init = cls.__init__

        # Not __attrs_post_init__: a subclass may have one of its own, which would then be the only one.
        @functools.wraps(init)
        def checked(self: "Capability[S]", *args: object, **keywords: object) -> None:
            init(self, *args, **keywords)  # type: ignore[arg-type]  # the subclass's own parameters
            # A subclass that attrs made has its own __init__, and checks itself once all fields are set.
            if type(self) is cls or "__attrs_attrs__" not in vars(type(self)):
                check_values(self, self.initial)

        cls.__init__ = checked  # type: ignore[method-assign]  # the same signature, wrapped

    def __new__(cls, *args: object, **keywords: object) -> Self:
        """Refuse a class whose annotated fields attrs never saw: they would be ignored without a word."""
        check_decorated(cls, Capability)
        return super().__new__(cls)

    # --- what the capability is

    def initial(self) -> S:
        """Return the slot's value before the first `put`: the state type called without arguments."""
        kind = _empty(state_type(type(self)))
        return cast(S, None if kind is None else kind())

    def describe(self) -> "Description":
        """Describe the configuration as data; never raises, and says when it is not complete."""
        # A description knows capabilities, not the other way round: the import at the top would be a circle.
        from .description import describe  # noqa: PLC0415  # see above

        return describe(self)

    def provide_tools(self) -> "Sequence[Tool]":
        """Return tools that come with the capability; a name clash fails when the agent is built."""
        return ()

    def provide_instructions(self) -> str:
        """Return instructions that come with the capability."""
        return ""

    def tool_names(self) -> frozenset[str]:
        """Return tool names that the configuration mentions; the agent checks that each exists."""
        return frozenset()

    def check_tools(self, tools: "Sequence[Tool]") -> None:
        """Raise ValueError when a tool does not fit the configuration; `tools`: all that the agent has, when built."""

    def idle_hooks(self) -> frozenset[str]:
        """Return names of hooks that do nothing in this configuration, so that a run need not call them."""
        return frozenset()

    def needs_deps(self) -> frozenset[str]:
        """Return keys that must be in `deps`; a missing one fails when the run starts."""
        return frozenset()

    # --- reducers

    def before_run(self, state: "RunState") -> "RunState":
        """Once, before the first step; may rewrite this run's own input."""
        return state

    def after_run(self, state: "RunState") -> "RunState":
        """Once, when the run completed or stopped; may transform the output."""
        return state

    def before_model_request(self, state: "RunState") -> "RunState":
        """Select and shape one request: tools, model, settings, instructions, view."""
        return state

    def after_model_request(self, state: "RunState") -> "RunState":
        """Observe or transform the response before it enters the history."""
        return state

    def before_tool_execute(self, call: "CallState") -> "CallState":
        """Shape the arguments of one call; only valid ones get here, unless the class declares "repairs"."""
        return call

    def admit_tool_execute(self, call: "CallState") -> "CallState":
        """Judge one call: refuse, answer, require approval. Arguments are sealed."""
        return call

    def after_tool_execute(self, call: "CallState") -> "CallState":
        """Observe the outcome of one call, whatever it is, or change its content."""
        return call

    # --- gatherers

    async def gather_before_run(self, state: "RunState", outside: Outside) -> Json:
        """Bring a fact in for before_run."""
        return None

    async def gather_after_run(self, state: "RunState", outside: Outside) -> Json:
        """Bring a fact in for after_run."""
        return None

    async def gather_before_model_request(self, state: "RunState", outside: Outside) -> Json:
        """Bring a fact in for before_model_request."""
        return None

    async def gather_after_model_request(self, state: "RunState", outside: Outside) -> Json:
        """Bring a fact in for after_model_request."""
        return None

    async def gather_admit_tool_execute(self, call: "CallState", outside: Outside) -> Json:
        """Bring a fact in for admit_tool_execute."""
        return None

    async def gather_after_tool_execute(self, call: "CallState", outside: Outside) -> Json:
        """Bring a fact in for after_tool_execute."""
        return None

    # --- wrappers

    async def wrap_run(self, call_next: "CallNext[RunState, RunState]", state: "RunState") -> "RunState":
        """Enclose the whole run; call `call_next` exactly once."""
        return await call_next(state)

    async def wrap_model_request(
        self, call_next: "CallNext[RunState, RunState]", state: "RunState"
    ) -> "RunState":
        """Enclose one model request."""
        return await call_next(state)

    async def wrap_tool_execute(
        self, call_next: "CallNext[CallState, CallState]", call: "CallState"
    ) -> "CallState":
        """Enclose one admitted tool call."""
        return await call_next(call)

    async def wrap_load_messages(
        self, call_next: "CallNext[RunState, Sequence[Message]]", state: "RunState"
    ) -> "Sequence[Message]":
        """Enclose loading the conversation."""
        return await call_next(state)

    async def wrap_save_messages(
        self, call_next: "SaveNext", state: "RunState", messages: "Sequence[Message]"
    ) -> None:
        """Enclose saving this run's messages."""
        await call_next(state, messages)

    async def wrap_prompt(self, call_next: "CallNext[RunState, str]", state: "RunState") -> str:
        """Enclose resolving the instructions."""
        return await call_next(state)


Capability.__attrs_init_subclass__()  # attrs calls it for subclasses only, but plain ones use this __init__

# A list mixes capabilities whose slots have different types, and S must stay invariant for `put` to be typed.
AnyCapability: TypeAlias = Capability[Any]


def state_type(cls: type) -> object:
    """Return S of `class X(Capability[S])`, a class or any annotation; None for the default.

    Raises TypeError for a name in quotes that its module does not have.
    """
    return _state_type(cast(Hashable, cls))


@functools.cache
def _state_type(cls: Hashable) -> object:
    for base in cast(type, cls).__mro__:
        for origin in vars(base).get("__orig_bases__", ()):
            generic, args = get_origin(origin), get_args(origin)
            if not (isinstance(generic, type) and issubclass(generic, Capability)):
                continue
            if args and not isinstance(args[0], TypeVar):
                return _resolved(args[0], base)
    return None


# `Json` refers to these by name, wherever it is used.
_JSON_NAMES = {"FrozenDict": FrozenDict, "FrozenList": FrozenList, "Json": Json}


def _resolved(annotation: object, base: type) -> object:
    holder = SimpleNamespace(__annotations__={"slot": annotation})
    names = {**_JSON_NAMES, **getattr(sys.modules.get(base.__module__), "__dict__", {})}
    try:
        return get_type_hints(holder, names, include_extras=True)["slot"]
    except NameError as error:
        raise TypeError(
            f"{base.__name__}: the type of its slot, {annotation}, has an unknown name: {error}"
        ) from None


def _empty(kind: object) -> Callable[[], object] | None:
    if kind is None or kind is type(None):
        return None
    if not isinstance(getattr(kind, "__origin__", kind), type) or not callable(kind):
        raise TypeError(f"{kind} has no empty value")
    return cast(Callable[[], object], kind)
