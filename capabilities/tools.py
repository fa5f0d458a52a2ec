"""Tools as users write them: `@tool`, toolkits, and the ways to say which tools are meant.

Knows nothing of runs, or of how arguments are validated.
"""

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias, Unpack, overload

from attrs import field, frozen

from .annotations import Annotations, Function, SchemaCall, SchemaFunction
from .shapes import check_plain, checked_bool
from .signatures import signature_of
from .tool_record import Tool, ToolOptions, name_field, scope_of

if TYPE_CHECKING:
    from .capability import AnyCapability

__all__ = [
    "Annotations",
    "Function",
    "Placed",
    "SchemaCall",
    "SchemaFunction",
    "Tool",
    "ToolOptions",
    "Toolkit",
    "Where",
    "accepts",
    "as_tool",
    "as_where",
    "check_names",
    "is_declared_destructive",
    "is_destructive",
    "is_idempotent",
    "is_read_only",
    "place",
    "tool",
]

Where: TypeAlias = Collection[str] | Callable[[Tool], bool]


def is_destructive(tool: Tool) -> bool:
    """Tell whether a tool may destroy: declared so, or not declared at all and not read-only."""
    return tool.annotations.is_destructive


def is_declared_destructive(tool: Tool) -> bool:
    """Tell whether a tool is declared destructive, in so many words."""
    return tool.annotations.destructive is True


def is_read_only(tool: Tool) -> bool:
    """Tell whether a tool is declared read-only."""
    return tool.annotations.read_only is True


def is_idempotent(tool: Tool) -> bool:
    """Tell whether a tool is declared idempotent, or read-only, which implies it."""
    return tool.annotations.idempotent is True or tool.annotations.read_only is True


def accepts(where: Where, tool: Tool) -> bool:
    """Tell whether `where`, names or a predicate, accepts a tool.

    Raises TypeError when a predicate returns something else than a bool: a truthy string is a bug.
    """
    if callable(where):
        return checked_bool(where(tool), "a tool predicate")
    return tool.name in where


def covers(where: Where | None, tool: Tool) -> bool:
    """Tell whether a capability's `tools` is for a tool: None is for all. Raises TypeError as `accepts` does."""
    return where is None or accepts(where, tool)


def where_or_none(value: Where | None) -> Where | None:
    """Normalize a capability's `tools`, where None means all. Raises TypeError as `as_where` does."""
    return None if value is None else as_where(value)


def names_in(where: Where | None) -> frozenset[str]:
    """Return the tools that `where` mentions by name."""
    return frozenset() if where is None or callable(where) else frozenset(where)


def as_where(value: Where) -> Where:
    """Normalize names to a frozenset, so that a config field stays hashable; predicates pass.

    Raises TypeError for a single string, which would be read as its letters, for a name that is no string,
    and for an async predicate.
    """
    if (
        type(value) is frozenset
    ):  # what this function made before; to ask whether it is an Iterable costs more than that
        names = value
    else:
        if isinstance(value, str):
            raise TypeError(f"tools={value!r} is one string; write a set of names, {{{value!r}}}")
        if callable(value):
            check_plain(value, "a tool condition")
            return value
        if not isinstance(value, Iterable):
            raise TypeError(f"tools must be a set of names or a predicate on Tool, not {value!r:.80}")
        names = frozenset(value)
    for name in names:
        if type(name) is not str:
            raise TypeError(
                f"tools must hold names, not {name!r:.80}; tools themselves are named by tool.name"
            )
    return names


def check_names(names: Iterable[str], known: Iterable[str]) -> None:
    """Raise ValueError for the first name that no tool has, with the nearest one that exists."""
    there = sorted(known)
    for name in sorted(set(names).difference(there)):
        from difflib import get_close_matches  # noqa: PLC0415  # for an error only

        near = get_close_matches(name, there, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(there) or 'none'}"
        raise ValueError(f"no tool is named {name!r}; {hint}")


@overload
def tool(
    function: Function,
    /,
    *,
    name: str | None = ...,
    description: str | None = ...,
    read_only: bool | None = ...,
    destructive: bool | None = ...,
    idempotent: bool | None = ...,
    open_world: bool | None = ...,
    **options: Unpack[ToolOptions],
) -> Tool: ...
@overload
def tool(
    function: None = ...,
    /,
    *,
    name: str | None = ...,
    description: str | None = ...,
    read_only: bool | None = ...,
    destructive: bool | None = ...,
    idempotent: bool | None = ...,
    open_world: bool | None = ...,
    **options: Unpack[ToolOptions],
) -> Callable[[Function], Tool]: ...
def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    **options: Unpack[ToolOptions],
) -> Tool | Callable[[Function], Tool]:
    """Make a tool of a typed function, sync or async: `@tool`, `@tool(...)` or `tool(f, ...)`.

    Name and description default to the function's name and the first part of its docstring; the JSON Schema
    comes from its annotations. Raises TypeError for a parameter without annotation or without a schema.
    """
    hints = Annotations(
        read_only=read_only, destructive=destructive, idempotent=idempotent, open_world=open_world
    )

    def make(function: Function) -> Tool:
        if isinstance(function, Tool):
            raise TypeError(f"{function.name!r} is a Tool already: use attrs.evolve or with_capabilities")
        signature = signature_of(function)
        if name is None and isinstance(function, functools.partial):
            raise ValueError("a partial has no name that a model could call: write tool(partial, name=...)")
        called = name if name is not None else str(getattr(function, "__name__", type(function).__name__))
        if called == "<lambda>":
            raise ValueError("a lambda has no name that a model could call: write tool(function, name=...)")
        doc = inspect.cleandoc(getattr(function, "__doc__", None) or "").split("\n\n", maxsplit=1)[0]
        about = doc if description is None else description
        return Tool(called, about, signature.schema, function, annotations=hints, **options)

    return make if function is None else make(function)


def as_tool(value: object) -> Tool:
    """Return a `Tool`, made of a plain function where one is given."""
    if isinstance(value, Tool):
        return value
    hint = ""
    if hasattr(value, "__aenter__"):
        hint = ": write `async with ... as kit`, and list what it gives"
    elif hasattr(value, "as_tool"):
        hint = ": list its as_tool(...)"
    elif callable(value) and not isinstance(value, type):
        return tool(value)
    raise TypeError(f"a tool list holds Tool, Toolkit or plain functions, not {type(value).__name__}{hint}")


def check_list(value: object, what: str) -> None:
    """Raise TypeError for a tool list that is none, such as a single tool."""
    if type(value) is tuple:  # each run asks; what else is asked below costs 5,000 instructions
        return
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise TypeError(
            f"{what} must be a list of Tool, Toolkit or plain functions, not {type(value).__name__}"
        )


def _members(value: "Iterable[Tool | Toolkit | Function]") -> "tuple[Tool | Toolkit, ...]":
    check_list(value, "Toolkit.tools")
    return tuple(item if isinstance(item, Toolkit) else as_tool(item) for item in value)


@frozen
class Toolkit:
    """Tools under one name; its capabilities cover every member, nested toolkits included."""

    name: str = field(validator=name_field)
    tools: "tuple[Tool | Toolkit, ...]" = field(converter=_members)
    capabilities: "tuple[AnyCapability, ...]" = field(default=(), kw_only=True, converter=scope_of)


@frozen
class Placed:
    """A tool of the inventory, and the capabilities of the toolkits it stands in, from outer to inner."""

    tool: Tool
    toolkits: tuple[str, ...]
    scopes: "tuple[tuple[AnyCapability, ...], ...]"

    @property
    def members(self) -> "tuple[AnyCapability, ...]":
        """The capabilities of its toolkits and its own, combinators not expanded."""
        return tuple(member for scope in (*self.scopes, self.tool.capabilities) for member in scope)

    @property
    def path(self) -> str:
        """Where the tool stands, as in `payments/refunds/pay`."""
        return "/".join((*self.toolkits, self.tool.name))


def place(tools: "Iterable[Tool | Toolkit | Function]") -> tuple[Placed, ...]:
    """Flatten tools and toolkits to an inventory, in order.

    Raises ValueError naming both places when two tools have one name: neither may hide the other.
    """
    placed: dict[str, Placed] = {}
    for here in _flatten(_members(tools), (), ()):
        there = placed.setdefault(here.tool.name, here)
        if there is not here:
            raise ValueError(
                f"two tools are named {here.tool.name!r} ({there.path} and {here.path}): rename one of them"
            )
    return tuple(placed.values())


def _flatten(
    members: "Iterable[Tool | Toolkit]",
    toolkits: tuple[str, ...],
    scopes: "tuple[tuple[AnyCapability, ...], ...]",
) -> "Iterator[Placed]":
    for item in members:
        if isinstance(item, Toolkit):
            yield from _flatten(item.tools, (*toolkits, item.name), (*scopes, item.capabilities))
        else:
            yield Placed(item, toolkits, scopes)
