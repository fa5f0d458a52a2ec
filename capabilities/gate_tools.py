"""GateTools: some tools come later, after another one succeeded. Knows nothing of why."""

from collections.abc import Collection, Mapping
from typing import TypeAlias

from attrs import Attribute, field, frozen

from .call_state import CallState
from .capability import Capability
from .frozen import FrozenDict
from .shapes import of_type
from .state import RunState
from .tools import Tool, Where, accepts, as_where

Gates: TypeAlias = "Where | FrozenDict[tuple[str, ...]]"


def _names(value: str | Collection[str], what: str) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else as_where(value)
    if callable(names) or not names or not all(names):
        raise ValueError(f"{what} must name the tools that come first, not {value!r:.80}")
    return tuple(sorted(names))


def _gates(value: "Where | Mapping[str, str | Collection[str]]") -> Gates:
    if not isinstance(value, Mapping):
        where = as_where(value)
        if not callable(where) and not where:
            raise ValueError("GateTools.tools names no tool: name one, or leave the capability out")
        return where
    if not value:
        raise ValueError("GateTools.tools is an empty mapping: name a tool, or leave the capability out")
    as_where(value)  # refuses names that are none
    return FrozenDict((name, _names(first, f"GateTools.tools[{name!r}]")) for name, first in value.items())


def _after(value: str | Collection[str]) -> tuple[str, ...]:
    return () if isinstance(value, tuple) and not value else _names(value, "GateTools.after")


def _closed_for_ever(gates: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the tools that wait for one another, sorted; none of them would ever be offered."""
    waiting = dict(gates)
    while opened := [name for name, first in waiting.items() if not any(other in waiting for other in first)]:
        for name in opened:
            del waiting[name]
    return sorted(waiting)


@frozen
class GateTools(Capability[tuple[str, ...]]):
    """Offers some tools only after others succeeded in this run.

    `tools`: a mapping of a tool's name to the name, or names, that must all have succeeded before; or names or
    a predicate, all of which wait for `after`. From the next request on they are offered, where nothing else
    hides them; a call beside the first success, in the same response, is still one of a tool that was not on
    offer. A predicate never holds back the tools of `after` themselves.

    What succeeded is a call with the status `succeeded`; with `answered=True` one that a capability or a
    person answered counts too, as a hit of a cache. It is remembered in the run's state, over suspension too.

    Raises ValueError for a tool that would wait for ever, for itself or in a circle; a name that no tool has is
    one when the agent is built. TypeError for what are no names.

    >>> from capfold.capabilities import RunState, Tool, fold
    >>> tools = [Tool(name, "", {"type": "object"}) for name in ("search", "pay")]
    >>> state = RunState(inventory=tools, tools=tools)
    >>> [tool.name for tool in fold([GateTools({"pay": "search"})], "before_model_request", state).tools]
    ['search']
    """

    tools: Gates = field(converter=_gates)
    after: tuple[str, ...] = field(default=(), kw_only=True, converter=_after)
    answered: bool = field(default=False, kw_only=True, validator=of_type(bool))

    @after.validator
    def _one_way(self, attribute: "Attribute[tuple[str, ...]]", value: tuple[str, ...]) -> None:
        if isinstance(self.tools, FrozenDict):
            if value:
                raise ValueError(
                    "GateTools takes after= with names or a predicate only: a mapping says it itself"
                )
            closed = _closed_for_ever(self.tools)
        elif not value:
            raise ValueError("GateTools(names) needs after=, the tools that come first")
        else:
            closed = [] if callable(self.tools) else sorted(set(self.tools) & set(value))
        if closed:
            raise ValueError(
                f"GateTools would never offer {', '.join(closed)}: each waits for itself in the end"
            )

    def initial(self) -> tuple[str, ...]:
        """Return what succeeded so far: nothing."""
        return ()

    def tool_names(self) -> frozenset[str]:
        """Return the gated names, and those they wait for."""
        if isinstance(self.tools, FrozenDict):
            return frozenset(self.tools).union(*self.tools.values())
        return frozenset(self.after) | (frozenset() if callable(self.tools) else frozenset(self.tools))

    def before_model_request(self, state: RunState) -> RunState:
        """Leave out what still waits."""
        done = state.slot(self)
        return state.select_tools(lambda tool: all(name in done for name in self._first(tool)))

    def after_tool_execute(self, call: CallState) -> CallState:
        """Remember what succeeded, of the tools that others wait for."""
        good = {"succeeded", "answered"} if self.answered else {"succeeded"}
        done = call.slot(self)
        if call.outcome is None or call.outcome.status not in good or call.name in done:
            return call
        awaited = self.after if not isinstance(self.tools, FrozenDict) else self._awaited(self.tools)
        return call.put(self, tuple(sorted((*done, call.name)))) if call.name in awaited else call

    def _first(self, tool: Tool) -> tuple[str, ...]:
        if isinstance(self.tools, FrozenDict):
            gates: FrozenDict[tuple[str, ...]] = self.tools
            return gates.get(tool.name, ())
        return self.after if tool.name not in self.after and accepts(self.tools, tool) else ()

    @staticmethod
    def _awaited(gates: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
        return frozenset().union(*gates.values())
