"""Composition: capability lists of all scopes become one order per hook, once, before any run.

Only overridden hooks appear, so what a capability does not do costs nothing. Knows no runtime: who calls
the links, and what is checked between them, is not said here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from .capability import AnyCapability
from .combinators import Predicate, leaves
from .frozen import FrozenDict
from .grid import HOOKS, REDUCERS, TOOL_HOOKS, WRAPPERS
from .tools import Placed, Tool


@frozen(eq=False)
class Link:
    """One hook of one capability at its place. `conditions`: all must hold where the point begins."""

    key: str
    index: int
    hook: str
    # A reducer, wrapper or gatherer: their signatures differ, and the hook's kind says which one it is.
    call: Callable[..., Any]
    conditions: tuple[Predicate, ...] = ()


@frozen(eq=False)
class Chain:
    """The links of one hook in calling order, and those of its gatherer.

    `conditional`: some link stands under a `when`, or a capability stands in several scopes, so that the
    active links must be chosen first; `choice` lists the links from the outermost scope inward for that.
    """

    hook: str
    links: tuple[Link, ...] = ()
    gatherers: tuple[Link, ...] = ()
    choice: tuple[Link, ...] = ()
    conditional: bool = False

    def __bool__(self) -> bool:
        """Whether there is anything to call."""
        return bool(self.links or self.gatherers)


@frozen(eq=False)
class ToolPlan:
    """The chains of one tool: agent list, toolkits from outer to inner, tool."""

    before: Chain
    repairs: Chain
    admit: Chain
    after: Chain
    wrappers: Chain


@frozen(eq=False)
class Plan:
    """One composed list: a chain for each hook of the run, and one `ToolPlan` per tool of the inventory.

    `unknown` serves calls of tools that the inventory does not have.
    """

    members: "FrozenDict[AnyCapability]"
    chains: Mapping[str, Chain]
    tools: Mapping[str, ToolPlan]
    unknown: ToolPlan
    # Those of the run as a whole, each once; `members` has those of tools and toolkits too.
    agent: tuple[AnyCapability, ...] = field(default=())
    # Whether any tool has hooks that shape, judge, observe, wrap: a batch without them is not walked for them.
    shapes: bool = field(init=False)
    judges: bool = field(init=False)
    observes: bool = field(init=False)
    wraps: bool = field(init=False)

    @shapes.default
    def _shapes(self) -> bool:
        return any(plan.before or plan.repairs for plan in (*self.tools.values(), self.unknown))

    @judges.default
    def _judges(self) -> bool:
        return any(plan.admit for plan in (*self.tools.values(), self.unknown))

    @wraps.default
    def _wraps(self) -> bool:
        return any(plan.wrappers.links for plan in (*self.tools.values(), self.unknown))

    @observes.default
    def _observes(self) -> bool:
        return any(plan.after for plan in (*self.tools.values(), self.unknown))

    def tool(self, name: str) -> ToolPlan:
        """Return the plan of a tool by name."""
        return self.tools.get(name, self.unknown)


Scope = Sequence[AnyCapability]


def compose(capabilities: Scope, placed: Iterable[Placed] = (), *, inherits: Scope = ()) -> Plan:
    """Compose the agent's list with the scopes of its tools; `inherits` is a scope around that list.

    Raises ValueError when one list holds a capability twice, or two different ones share a key.
    """
    inventory = tuple(placed)
    members: dict[str, AnyCapability] = {}
    scopes = [inherits, capabilities] if inherits else [capabilities]
    _collect(inherits, members, "what it inherits")
    _collect(capabilities, members, "the agent's list")
    for item in inventory:
        for name, scope in zip(item.toolkits, item.scopes, strict=True):
            _collect(scope, members, f"toolkit {name!r}")
        _collect(item.tool.capabilities, members, f"tool {item.tool.name!r}")
    chains = {name: _chain(name, scopes, None) for name in (*REDUCERS, *WRAPPERS) if name not in TOOL_HOOKS}
    plans: dict[tuple[object, ...], ToolPlan] = {}
    tools: dict[str, ToolPlan] = {}
    for item in inventory:
        tools[item.tool.name] = _tool_plan([*scopes, *item.scopes, item.tool.capabilities], item.tool, plans)
    unknown = _tool_plan(scopes, None, plans)
    agent = {leaf.capability.key: leaf.capability for scope in scopes for leaf in leaves(scope)}
    return Plan(FrozenDict(members), chains, tools, unknown, tuple(agent.values()))


def _collect(scope: Scope, members: dict[str, AnyCapability], where: str) -> None:
    here: set[str] = set()
    for leaf in leaves(scope):
        capability = leaf.capability
        key = capability.key
        if key in here:
            same = members[key] == capability
            what = f"{key!r} is listed twice" if same else f"two capabilities have the key {key!r}"
            raise ValueError(f"{what} in {where}: {_another_key(capability)}")
        here.add(key)
        other = members.setdefault(key, capability)
        if other is not capability and other != capability:
            raise ValueError(
                f"different capabilities have the key {key!r} (one of them in {where}): {_another_key(capability)}"
            )


def _another_key(capability: AnyCapability) -> str:
    """Say how one of two capabilities gets another key."""
    from .function_hooks import FunctionHook, ToolHook  # noqa: PLC0415  # for an error only: 4 ms

    advice = "give one of them another one, as in "
    if not isinstance(capability, FunctionHook):
        return f"{advice}key={capability.key + '_2'!r}"
    made = (
        "ToolHook(function, key='other')" if isinstance(capability, ToolHook) else "evolve(it, key='other')"
    )
    return f"{advice}{made}; functions of one name, such as lambdas, need a key each"


def _tool_plan(scopes: list[Scope], tool: Tool | None, plans: dict[tuple[object, ...], ToolPlan]) -> ToolPlan:
    def chain(hook: str, keep: Callable[[AnyCapability], bool] = lambda _: True) -> Chain:
        return _chain(hook, scopes, tool, keep)

    made = ToolPlan(
        before=chain("before_tool_execute", lambda capability: "repairs" not in capability.declares),
        repairs=chain("before_tool_execute", lambda capability: "repairs" in capability.declares),
        admit=chain("admit_tool_execute"),
        after=chain("after_tool_execute"),
        wrappers=chain("wrap_tool_execute"),
    )
    # Equal plans are one object, so a toolkit of five hundred tools holds one plan, not five hundred.
    identity = tuple(
        tuple((link.key, link.index, link.conditions) for link in (*part.links, *part.gatherers))
        for part in (made.before, made.repairs, made.admit, made.after, made.wrappers)
    )
    return plans.setdefault(identity, made)


def _chain(
    hook: str, scopes: list[Scope], tool: Tool | None, keep: Callable[[AnyCapability], bool] = lambda _: True
) -> Chain:
    spec = HOOKS[hook]
    after = spec.reverse_in_nested
    per_scope: list[list[Link]] = []
    gather_scope: list[Link] = []
    for scope in scopes:
        links: list[Link] = []
        for leaf in leaves(scope, after=after):
            capability = leaf.capability
            if not keep(capability) or (leaf.tools and (tool is None or not leaf.covers(tool))):
                continue
            if hook in capability.overrides and hook not in capability.idle_hooks():
                links.append(
                    Link(capability.key, leaf.index, hook, getattr(capability, hook), leaf.conditions)
                )
            gatherer = spec.gatherer
            if gatherer is not None and gatherer in capability.overrides:
                call = getattr(capability, gatherer)
                gather_scope.append(Link(capability.key, leaf.index, gatherer, call, leaf.conditions))
        per_scope.append(links)
    outward_in = [link for links in per_scope for link in links]
    ordered = [link for links in reversed(per_scope) for link in links] if after else outward_in
    keys = [link.key for link in outward_in]
    gather_keys = [link.key for link in gather_scope]
    conditional = (
        any(link.conditions for link in (*outward_in, *gather_scope))
        or len(set(keys)) < len(keys)
        or len(set(gather_keys)) < len(gather_keys)
    )
    return Chain(hook, tuple(ordered), tuple(gather_scope), tuple(outward_in), conditional)
