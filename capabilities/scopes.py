"""Where a capability may stand: agent lists take all hooks, tool and toolkit scope take tool hooks only."""

from collections.abc import Iterable

from .capability import AnyCapability, Capability
from .combinators import leaves
from .grid import TOOL_HOOKS


def capability_list(value: Iterable[object], where: str) -> tuple[AnyCapability, ...]:
    """Return a tuple of capabilities; a TypeError says which item is none, and what to write instead."""
    if isinstance(value, Capability) or not isinstance(value, Iterable):
        raise TypeError(f"{where} must be a list of capabilities, not {type(value).__name__}")
    found: list[AnyCapability] = []
    for i, item in enumerate(value):
        if isinstance(item, type):
            raise TypeError(
                f"{where}[{i}] is the class {item.__name__}: write an instance, {item.__name__}()"
            )
        if not isinstance(item, Capability):
            hint = ": write hook.before_model_request(function), or another hook" if callable(item) else ""
            raise TypeError(f"{where}[{i}] must be a Capability, not {type(item).__name__}{hint}")
        found.append(item)
    return tuple(found)


def tool_scope(value: Iterable[object], where: str = "capabilities") -> tuple[AnyCapability, ...]:
    """Return the capabilities of a tool or toolkit; a plain async function becomes a `ToolHook`.

    Raises TypeError for a sync function, and for a capability with run or model hooks: none would be called.
    """
    single = isinstance(value, Capability) or not isinstance(value, Iterable)
    found = capability_list(value if single else [_hooked(item) for item in value], where)
    for leaf in leaves(found):
        beyond = sorted(leaf.capability.overrides - TOOL_HOOKS)
        if beyond:
            raise TypeError(
                f"{leaf.capability.key} overrides {', '.join(beyond)}: only tool hooks work on a tool or "
                "toolkit; list it with the agent's capabilities"
            )
    return found


def _hooked(item: object) -> object:
    if not callable(item) or isinstance(item, Capability | type):
        return item
    from .function_hooks import ToolHook  # noqa: PLC0415  # for the few that list functions: 4 ms

    return ToolHook(item)
