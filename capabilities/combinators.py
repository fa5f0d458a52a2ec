"""Combinators: capabilities made of capabilities. In a composed list they are gone: only leaves are called.

`group` is a list as one value; `nested` reverses its members' after hooks; `when` and `for_tools` are
conditions; `inherited` marks what sub-agents get too. A group without a field of its own is a plain subclass: for
`@frozen` each class is one more to build at import.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from .capability import AnyCapability, Capability
from .grid import TOOL_HOOKS
from .shapes import check_plain, checked_bool
from .tools import Tool, Where, accepts, as_where

if TYPE_CHECKING:
    from .state import RunState

Predicate = Callable[["RunState"], bool]


@frozen
class Leaf:
    """One capability of a composed list, with the conditions it stands under.

    `index`: its place in the flattened list. `tools`: what every `for_tools` around it accepts. `inherited`:
    for sub-agents too.
    """

    capability: AnyCapability
    index: int
    conditions: "tuple[Predicate, ...]" = ()
    tools: tuple[Where, ...] = ()
    inherited: bool = False

    def covers(self, tool: Tool) -> bool:
        """Tell whether the leaf applies to a tool."""
        return all(accepts(where, tool) for where in self.tools)

    def holds(self, run: "RunState") -> bool:
        """Tell whether every `when` around the leaf is True; TypeError when a predicate returns no bool."""
        return all(checked_bool(condition(run), "the predicate of when()") for condition in self.conditions)


def _members(value: Iterable[AnyCapability]) -> tuple[AnyCapability, ...]:
    members: list[AnyCapability] = []
    given: Iterable[object] = value
    for i, member in enumerate(given):
        if not isinstance(member, Capability):
            hint = f": write {member.__name__}()" if isinstance(member, type) else ""
            raise TypeError(f"member {i} must be a Capability, not {member!r:.80}{hint}")
        members.append(member)
    return tuple(members)


@frozen
class Group(Capability):
    """Capabilities as one value, in order. Has no hooks of its own: they would never be called."""

    members: tuple[AnyCapability, ...] = field(converter=_members)

    def __init_subclass__(cls, **keywords: object) -> None:
        """Refuse hooks, which a list that expands to its members would skip in silence."""
        super().__init_subclass__(**keywords)
        if cls.overrides:
            raise TypeError(
                f"{cls.__name__} overrides {', '.join(sorted(cls.overrides))}, but a group expands to its "
                "members: put the hooks into one of them"
            )

    def beneath(self, leaf: Leaf) -> Leaf:
        """Return a leaf of the members as it stands in the composed list; here as it is."""
        return leaf

    def tool_names(self) -> frozenset[str]:
        """Return the names that the members mention."""
        return frozenset(name for member in self.members for name in member.tool_names())

    def needs_deps(self) -> frozenset[str]:
        """Return the keys that the members need."""
        return frozenset(key for member in self.members for key in member.needs_deps())


class Nested(Group):
    """Capabilities as an onion: their after hooks run in reverse order."""

    __slots__ = ()


@frozen
class When(Group):
    """A capability that is called only where `predicate(state)` is True, `call.run` in a tool hook."""

    predicate: Predicate = field(kw_only=True)


@frozen
class ForTools(Group):
    """A capability that is called only for the tools that `where` accepts."""

    where: Where = field(kw_only=True, converter=as_where)

    def __attrs_post_init__(self) -> None:
        """Refuse run and model hooks: a tool condition cannot hold there, and silence would hide it."""
        for leaf in leaves(self.members):
            beyond = sorted(leaf.capability.overrides - TOOL_HOOKS)
            if beyond:
                raise TypeError(
                    f"for_tools around {leaf.capability.key}: {', '.join(beyond)} is called for no tool"
                )

    def tool_names(self) -> frozenset[str]:
        """Return the names in `where`, and those that the members mention."""
        own = frozenset() if callable(self.where) else frozenset(self.where)
        return own.union(*(member.tool_names() for member in self.members))


class Inherited(Group):
    """Capabilities that the sub-agents of the run get too."""

    __slots__ = ()


def _key(kind: str, members: tuple[AnyCapability, ...]) -> str:
    return f"{kind}({', '.join(member.key for member in members)})"


def group(*capabilities: AnyCapability) -> Group:
    """Make one value of several capabilities; the same as listing them."""
    return Group(capabilities, key=_key("group", _members(capabilities)))


def nested(*capabilities: AnyCapability) -> Nested:
    """List capabilities as an onion: before hooks in order, after hooks in reverse order."""
    return Nested(capabilities, key=_key("nested", _members(capabilities)))


def when(predicate: Predicate, capability: AnyCapability) -> When:
    """Call a capability only where `predicate(state)` is True; asked once per point, before its gatherers.

    The predicate must be a pure function that returns a bool. Raises TypeError when it is none, or async.
    """
    check_plain(predicate, "when() first")
    return When((capability,), predicate=predicate, key=_key("when", _members((capability,))))


def for_tools(where: Where, capability: AnyCapability) -> ForTools:
    """Call a capability only for the tools that `where`, names or a predicate, accepts."""
    return ForTools((capability,), where=where, key=_key("for_tools", _members((capability,))))


def inherited(*capabilities: AnyCapability) -> Inherited:
    """List capabilities that sub-agents get too."""
    return Inherited(capabilities, key=_key("inherited", _members(capabilities)))


def inherited_part(capabilities: Iterable[AnyCapability]) -> tuple[AnyCapability, ...]:
    """Return what sub-agents get of a list: all that `inherited` holds, under the conditions it stands under."""
    found: list[AnyCapability] = []
    for member in capabilities:
        if isinstance(member, Inherited):
            found.append(member)
        elif isinstance(member, Group):
            inner = inherited_part(member.members)
            if inner:
                found.append(evolve(member, members=inner))
    return tuple(found)


def leaves(capabilities: Iterable[AnyCapability], *, after: bool = False) -> tuple[Leaf, ...]:
    """Expand a list to its leaves in calling order; `after`: in the order of the after hooks.

    `index` counts in the order of the before hooks, in both.
    """
    return tuple(_expand(tuple(capabilities), 0, after=after))


def _expand(
    members: tuple[AnyCapability, ...], first: int, *, after: bool, reverse: bool = False
) -> list[Leaf]:
    blocks: list[list[Leaf]] = []
    for member in members:
        if isinstance(member, Group):
            inside = _expand(member.members, first, after=after, reverse=after and isinstance(member, Nested))
            block = [_under(member, leaf) for leaf in inside]
        else:
            block = [Leaf(member, first)]
        blocks.append(block)
        first += len(block)
    return [leaf for block in (reversed(blocks) if reverse else blocks) for leaf in block]


def _under(parent: Group, leaf: Leaf) -> Leaf:
    match parent:
        case When():
            return evolve(leaf, conditions=(parent.predicate, *leaf.conditions))
        case ForTools():
            return evolve(leaf, tools=(parent.where, *leaf.tools))
        case Inherited():
            return evolve(leaf, inherited=True)
        case _:
            return parent.beneath(leaf)
