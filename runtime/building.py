"""From what a user gave to the setup of a run: tools placed, the list composed, whatever cannot work refused.

Knows neither how a run goes on nor what came of it.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

from attrs import evolve

from ..capabilities.capability import AnyCapability, state_type
from ..capabilities.compose import Plan, compose
from ..capabilities.frozen import FrozenDict, Json
from ..capabilities.signatures import signature_of
from ..capabilities.tools import Placed, SchemaFunction, Tool, Toolkit, place
from ..capabilities.verdict import Problem
from .arguments import rich_problems
from .late_codec import input_converter
from .limits import Limits
from .permissions import Permissions
from .setup import Setup
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
    if type(instructions) is not str:
        raise TypeError(f"instructions is a string, not {type(instructions).__name__}")
    if audit not in {"changes", "all"}:
        raise ValueError(f"audit is 'changes' or 'all', not {audit!r}")
    for what, count in (("output_retries", output_retries), ("unselected_retries", unselected_retries)):
        if type(count) is not int or count < 0:
            raise ValueError(f"{what} must be an integer of at least 0, not {count!r}")
    if type(permissions) is not Permissions:
        raise TypeError(f"permissions is a Permissions(...), not {type(permissions).__name__}")
    if type(strict) is not bool:
        raise TypeError(f"strict is True or False, not {strict!r:.80}")


def with_tools(setup: Setup, capabilities: tuple[AnyCapability, ...], tools: Sequence[ToolLike]) -> Setup:
    """Return the setup with its inventory placed and its plan composed. Raises ValueError for what clashes."""
    bundled: list[ToolLike] = [*tools]
    texts = [setup.instructions] if setup.instructions else []
    bare = compose(capabilities)
    for leaf in bare.agent:
        bundled += leaf.capability.provide_tools()
        text = leaf.capability.provide_instructions()
        if text:
            texts.append(text)
    placed = place(bundled)
    plan = compose(capabilities, placed)
    for member in plan.members.values():
        state_type(type(member))  # a slot whose type cannot be found fails here, not in a run
    names = {item.tool.name for item in placed}
    scoped = {id(member): member for item in placed for member in item.members}  # combinators too
    for member in (*capabilities, *plan.members.values(), *scoped.values()):
        for name in sorted(member.tool_names() - names):
            known = ", ".join(sorted(names)) or "none"
            raise ValueError(
                f"{member.key} mentions the tool {name!r}, which does not exist; there are: {known}"
            )
    return evolve(
        setup,
        plan=plan,
        placed=placed,
        inventory=tuple(item.tool for item in placed),
        by_name=FrozenDict({item.tool.name: item.tool for item in placed}),
        tool_names=tuple(item.tool.name for item in placed),
        needs=needs_of(plan, placed),
        tool_digests=FrozenDict({item.tool.name: item.tool.digest for item in placed}),
        instructions="\n\n".join(texts),
        prints=FrozenDict({key: member.describe().digest for key, member in plan.members.items()}),
        rich=FrozenDict(rich_checks(placed)),
    )


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
