"""From what a user gave to the setup of a run: tools placed, the list composed, whatever cannot work refused.

Knows neither how a run goes on nor what came of it.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

from attrs import evolve, frozen

from ..capabilities.capability import AnyCapability, state_type
from ..capabilities.combinators import Group, inherited_part, leaves
from ..capabilities.compose import Plan, compose
from ..capabilities.frozen import FrozenDict, FrozenList, Json
from ..capabilities.signatures import signature_of
from ..capabilities.tools import Placed, SchemaFunction, Tool, Toolkit, place
from ..capabilities.verdict import Problem
from .arguments import rich_problems
from .below import RunBelow
from .decisions import Approver
from .late_codec import input_converter
from .limits import Limits
from .permissions import Permissions
from .port import Port
from .setup import Setup
from .sinks import Sink
from .stores import MessageStore
from .structuring import has_rich

ToolLike = Tool | Toolkit | Callable[..., object]


def check_shapes(
    *,
    name: object,
    instructions: object,
    audit: object,
    output_retries: object,
    unselected_retries: object,
    permissions: object,
    strict: object,
) -> None:
    """Raise TypeError or ValueError for plain arguments of an agent that are none."""
    if type(name) is not str or not name:
        raise TypeError(f"an agent's name is a non-empty string, not {name!r}")
    if type(instructions) is not str and (isinstance(instructions, type) or not callable(instructions)):
        raise TypeError(
            f"instructions is a string, or a function of the run's state, not {instructions!r:.80}"
        )
    if audit not in {"changes", "all"}:
        raise ValueError(f"audit is 'changes' or 'all', not {audit!r}")
    for what, count in (("output_retries", output_retries), ("unselected_retries", unselected_retries)):
        if type(count) is not int or count < 0:
            raise ValueError(f"{what} must be an integer of at least 0, not {count!r}")
    if type(permissions) is not Permissions:
        raise TypeError(f"permissions is a Permissions(...), not {type(permissions).__name__}")
    if type(strict) is not bool:
        raise TypeError(f"strict is True or False, not {strict!r:.80}")


@frozen(eq=False)
class Given:
    """What an agent was given that its setup does not show as it was: what its runs are started with."""

    capabilities: tuple[AnyCapability, ...]
    tools: tuple[ToolLike, ...]
    approver: Approver | None
    deps: object
    sinks: tuple[Sink, ...]
    port: Port
    store: MessageStore | None = None


def with_tools(
    setup: Setup,
    own: tuple[AnyCapability, ...],
    tools: Sequence[ToolLike],
    *,
    inherits: tuple[AnyCapability, ...] = (),
) -> Setup:
    """Return the setup with its inventory placed and its plan composed. Raises ValueError for what clashes.

    `inherits`: what the run above lends; a scope around the agent's own list, it may speak of tools that are not
    here.
    """
    bundled: list[ToolLike] = [*tools]
    texts: list[str] = []
    for member in compose(own, inherits=inherits).agent:
        bundled += member.provide_tools()
        text = member.provide_instructions()
        if text:
            texts.append(text)
    placed = place(bundled)
    plan = compose(own, placed, inherits=inherits)
    inventory = tuple(item.tool for item in placed)
    for member in plan.members.values():
        state_type(type(member))  # a slot whose type cannot be found fails here, not in a run
        member.check_tools(inventory)
    functions = {item.tool.name: item.tool.function for item in placed}
    below = {name: function for name, function in functions.items() if isinstance(function, RunBelow)}
    setup = evolve(
        setup,
        plan=plan,
        below=frozenset(below),
        inherits=(*inherits, *inherited_part(own)),
        placed=placed,
        inventory=inventory,
        by_name=FrozenDict({item.tool.name: item.tool for item in placed}),
        tool_names=tuple(item.tool.name for item in placed),
        needs=needs_of(plan, placed),
        tool_digests=FrozenDict({item.tool.name: item.tool.digest for item in placed}),
        tool_descriptors=FrozenDict({item.tool.name: item.tool.descriptor for item in placed}),
        described=FrozenList(member.describe().to_json() for member in own),
        bundled=tuple(texts),
        instructions=joined(setup.prompt, texts),
        prints=FrozenDict({key: member.describe().digest for key, member in plan.members.items()}),
        rich=FrozenDict(rich_checks(placed)),
    )
    # What cannot stand below this agent fails now; and what a run below needs, this one is started with.
    runs = [(function, function.setup_under(setup)) for function in below.values()]
    reach = frozenset(setup.tool_names).union(*(run.reach for _, run in runs))
    if not inherits:  # else that was done when the agent was built
        here = frozenset(setup.tool_names)
        check_mentions(own, here, reach)
        for item in placed:
            check_mentions(item.members, here, here)
    needs = [need for function, run in runs for need in run.needs if not function.provides(need)]
    return evolve(setup, reach=reach, needs=(*setup.needs, *needs))


def check_mentions(members: Iterable[AnyCapability], here: frozenset[str], reach: frozenset[str]) -> None:
    """Raise ValueError for a capability that mentions a tool which does not exist.

    What sub-agents get too may mention their tools, which `reach` has beside those that are `here`.
    """
    for member in members:
        shared = {leaf.inherited for leaf in leaves([member])}
        if isinstance(member, Group) and len(shared) > 1:
            check_mentions(member.members, here, reach)
            continue
        names = reach if True in shared else here
        for name in sorted(member.tool_names() - names):
            known = ", ".join(sorted(names)) or "none"
            raise ValueError(
                f"{member.key} mentions the tool {name!r}, which does not exist; there are: {known}"
            )


def joined(prompt: object, bundled: Sequence[str]) -> str:
    """Return the instructions of a run: the agent's own, then those of its bundles; a source is resolved later."""
    own = [prompt] if isinstance(prompt, str) and prompt else []
    return "\n\n".join([*own, *bundled])


def rich_checks(placed: Sequence[Placed]) -> dict[str, Callable[[FrozenDict[Json]], tuple[Problem, ...]]]:
    """Return, per tool whose types say more than its schema, what finds the rest; binds every tool to the codec."""
    found: dict[str, Callable[[FrozenDict[Json]], tuple[Problem, ...]]] = {}
    for item in placed:
        function = item.tool.function
        if function is None or isinstance(function, SchemaFunction):
            continue
        signature = signature_of(function)
        if has_rich(signature, input_converter):
            found[item.tool.name] = functools.partial(rich_problems, signature, converter=input_converter)
    return found


def check_options(limits: object, approver: object) -> None:
    """Raise TypeError for limits or an approver that are none."""
    if type(limits) is not Limits:
        raise TypeError(f"limits is a Limits(...), not {type(limits).__name__}")
    if approver is not None and not callable(approver):
        raise TypeError(f"an approver is a function of the requests, not {type(approver).__name__}")


def check_port(port: object) -> None:
    """Raise TypeError for a port that is none, such as its class."""
    if port is not None and (isinstance(port, type) or not callable(getattr(port, "ask", None))):
        raise TypeError(f"port is a Port, such as LocalPort(), not {port!r:.80}")


STORE_OPERATIONS = ("load", "append", "hold", "held", "claim", "pending")


def check_store(store: object) -> None:
    """Raise TypeError for a store that is none, such as its class."""
    whole = all(callable(getattr(store, name, None)) for name in STORE_OPERATIONS)
    if store is not None and (isinstance(store, type) or not whole):
        raise TypeError(f"store is a MessageStore, such as SQLiteStore(path), not {store!r:.80}")


def needs_of(plan: Plan, placed: Sequence[Placed]) -> tuple[tuple[str, str, str], ...]:
    """Return what capabilities and tools need to be there when a run starts: (who, where, key)."""
    found = [
        (member.key, "deps", key) for member in plan.members.values() for key in sorted(member.needs_deps())
    ]
    for item in placed:
        function = item.tool.function
        if function is None or isinstance(function, SchemaFunction):
            continue
        found += [
            (f"tool {item.tool.name!r}", parameter.source, parameter.key)
            for parameter in signature_of(function).parameters
            if parameter.required and parameter.source in {"deps", "context"}
        ]
    return tuple(found)


def check_needs(setup: Setup, deps: object, context: Mapping[str, object]) -> None:
    """Raise ValueError when something that capabilities or tools need is not there."""
    for who, where, key in setup.needs:
        if where == "deps" and not has_dep(deps, key):
            raise ValueError(f"{who} needs {key!r} in deps; give run(..., deps={{{key!r}: ...}})")
        if where == "context" and key not in context:
            raise ValueError(f"{who} needs {key!r} in context, and has no default for it")


def has_dep(deps: object, key: str) -> bool:
    """Tell whether deps, a mapping or an object, has a key."""
    return key in deps if isinstance(deps, Mapping) else hasattr(deps, key)
