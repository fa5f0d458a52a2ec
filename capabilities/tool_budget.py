"""ToolBudget: how many tool calls a run may execute. Knows nothing of limits, which raise instead."""

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from attrs import field, frozen

from .call_state import CallState
from .capability import Capability
from .frozen import FrozenDict
from .messages import text_field
from .shapes import one_of
from .tools import Tool, Where, as_where, covers, names_in, where_or_none

OnExceeded: TypeAlias = Literal["stop", "refuse"]


def _budgets(value: int | Mapping[str, int]) -> "int | FrozenDict[int]":
    if not isinstance(value, Mapping):
        return _budget(value, "ToolBudget.max_calls")
    if not value:
        raise ValueError("ToolBudget.max_calls is an empty mapping: name a tool, or leave the capability out")
    as_where(value)  # refuses names that are none
    return FrozenDict(
        (name, _budget(number, f"ToolBudget.max_calls[{name!r}]")) for name, number in value.items()
    )


def _budget(value: int, what: str) -> int:
    if type(value) is not int:
        raise TypeError(
            f"{what} must be an integer, or a mapping of tool names to integers, not {value!r:.80}"
        )
    if value < 0:
        raise ValueError(f"{what} is {value}: the least is 0, which allows no call")
    return value


@frozen
class ToolBudget(Capability["FrozenDict[int]"]):
    """Stops the run, or refuses the call, when a tool call would be one too many in this run.

    `max_calls`: one number for all tools together, or a mapping that gives each tool it names its own.
    `tools`: which ones the one number is for; None = all. `on_exceeded`: "stop" ends the run as a result with
    `message`, "refuse" lets the model go on without the call. `{max_calls}` in `message` is the number.

    What counts is what ran: each attempt of a body, also those that a retrying wrapper adds; and the calls of
    the batch that were admitted before, also those that wait for an approval. A call that is refused or
    answered leaves its place to the next one, wherever this capability stands in the list. An attempt that a
    wrapper adds to a call that was admitted is not held up; it leaves less to later calls.
    A sub-agent that inherits it has a budget of its own: for one over all of them there is `SharedBudget`.
    Limits raise, budgets stop: see `Limits` for what must never be exceeded.

    >>> from capfold.runtime import Agent, ScriptedModel
    >>> @tool
    ... def search(text: str) -> str:
    ...     return "nothing found"
    >>> model = ScriptedModel([[call("search", {"text": "a"}), call("search", {"text": "b"})]])
    >>> result = Agent("desk", model, tools=[search], capabilities=[ToolBudget(1)]).run_sync("Search.")
    >>> result.status, result.output, result.tool_calls
    ('stopped', 'Tool budget of 1 calls is used up.', 2)
    >>> ToolBudget({"pay": 1, "search": 20}, on_exceeded="refuse").tool_names() == {"pay", "search"}
    True
    """

    max_calls: "int | FrozenDict[int]" = field(default=10, converter=_budgets)
    tools: Where | None = field(default=None, kw_only=True, converter=where_or_none)
    message: str = field(
        default="Tool budget of {max_calls} calls is used up.", kw_only=True, validator=text_field
    )
    on_exceeded: OnExceeded = field(default="stop", kw_only=True, validator=one_of(*get_args(OnExceeded)))

    def __attrs_post_init__(self) -> None:
        """Refuse two ways of saying which tools are meant."""
        if isinstance(self.max_calls, FrozenDict) and self.tools is not None:
            raise ValueError("ToolBudget takes tools= with one number only: a mapping names its tools itself")

    def initial(self) -> "FrozenDict[int]":
        """Return the empty account: tool -> attempts of its body so far."""
        return FrozenDict()

    def tool_names(self) -> frozenset[str]:
        """Return the names that the budgets are for."""
        if isinstance(self.max_calls, FrozenDict):
            return frozenset(self.max_calls)
        return names_in(self.tools)

    def admit_tool_execute(self, call: CallState) -> CallState:
        """Stop or refuse when what ran and what is about to run leaves no place, whatever others said."""
        if not self._covers(call.tool):
            return call
        spent, name = call.slot(self), call.tool.name
        if isinstance(self.max_calls, FrozenDict):
            most, used = self.max_calls[name], spent.get(name, 0)
            used += sum(earlier.will_run and earlier.tool.name == name for earlier in call.earlier)
        else:
            most, used = self.max_calls, sum(spent.values())
            used += sum(earlier.will_run and self._covers(earlier.tool) for earlier in call.earlier)
        if used < most:
            return call
        message = self.message.replace("{max_calls}", str(most))
        return call.stop(message) if self.on_exceeded == "stop" else call.refuse(message)

    def after_tool_execute(self, call: CallState) -> CallState:
        """Count what ran."""
        if call.outcome is None or not call.outcome.attempts or not self._covers(call.tool):
            return call
        spent = call.slot(self)
        return call.put(
            self, spent.assoc(call.tool.name, spent.get(call.tool.name, 0) + call.outcome.attempts)
        )

    def _covers(self, tool: Tool) -> bool:
        if isinstance(self.max_calls, FrozenDict):
            return tool.name in self.max_calls
        return covers(self.tools, tool)
