"""ToolSearch: of hundreds of tools a request offers a few, and a tool that finds others. Knows no ranking."""

import json
from collections.abc import Collection
from typing import Final

from attrs import Attribute, field, frozen

from .call_state import CallState
from .capability import Capability
from .injected import ToolFailed
from .messages import text_field
from .shapes import at_least
from .state import RunState
from .tools import Annotations, Tool, as_where
from .word_search import rank

_LINE: Final = 300  # of a description; what is found is offered whole from the next request on
_DESCRIPTION: Final = (
    "Find tools for a job. Not all tools that exist are offered to you: say in a few words what you need done, and "
    "the tools that fit best are offered from your next turn on."
)
_PARAMETERS: Final = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What the tool should do, in a few words."}},
    "required": ["query"],
    "additionalProperties": False,
}


@frozen
class Offered:
    """What the search found so far, the newest last, and which tools of the inventory others had hidden."""

    found: tuple[str, ...] = ()
    hidden: frozenset[str] = frozenset()


def _always(value: Collection[str]) -> frozenset[str]:
    names = as_where(value)
    if callable(names):
        raise TypeError("ToolSearch.always takes names of tools, not a predicate")
    return frozenset(names)


def _name(instance: object, attribute: "Attribute[str]", value: str) -> None:
    text_field(instance, attribute, value)
    if not value:
        raise ValueError("ToolSearch.name must not be empty")


async def _switched_off(query: str) -> str:
    raise ToolFailed("the search for tools is switched off here")


@frozen
class ToolSearch(Capability[Offered]):
    """Offers the tools of `always` and a search tool, and from the next request on what that search found.

    The model calls `find_tools(query)`; the answer lists at most `max_results` tools by name and description, best
    first, of those that earlier capabilities left in the selection: list this one after what narrows. The ranking
    is by shared words (`capabilities/word_search.py`): deterministic, without a model or an embedding. At most
    `max_found` found tools are offered at once; then the oldest give way, and can be found again. What was found
    is part of the run's state, so a suspended run goes on with it.

    The search is answered where calls are judged: its tool runs no body, and a refusal by another capability
    wins. `name` is the search tool's. A request costs one pass over the inventory.

    Raises ValueError for numbers below 1, TypeError for what are no names; a name in `always` that no tool has is
    an error when the agent is built.

    >>> from capfold.capabilities import call
    >>> from capfold.runtime import Agent, ScriptedModel
    >>> def refund_invoice(number: int) -> str: return f"refunded {number}"
    >>> def book_room(day: str) -> str: return f"booked {day}"
    >>> model = ScriptedModel([call("find_tools", {"query": "refund an invoice"}), "ok"])
    >>> made = Agent("desk", model, tools=[refund_invoice, book_room], capabilities=[ToolSearch()])
    >>> result = made.run_sync("Refund invoice 12.")
    >>> [[tool.name for tool in request.tools] for request in model.requests]
    [['find_tools'], ['refund_invoice', 'find_tools']]
    """

    always: frozenset[str] = field(default=frozenset(), converter=_always)
    max_results: int = field(default=5, kw_only=True, validator=at_least(1))
    max_found: int = field(default=20, kw_only=True, validator=at_least(1))
    name: str = field(default="find_tools", kw_only=True, validator=_name)

    def __attrs_post_init__(self) -> None:
        """Refuse more results than are kept: some would be told of and not offered."""
        if self.max_results > self.max_found:
            raise ValueError(
                f"ToolSearch.max_results is {self.max_results}: at most max_found, {self.max_found}, are offered"
            )

    def tool_names(self) -> frozenset[str]:
        """Return the names in `always`."""
        return self.always

    def provide_tools(self) -> list[Tool]:
        """Return the search tool."""
        hints = Annotations(read_only=True, idempotent=True, open_world=False)
        return [Tool(self.name, _DESCRIPTION, _PARAMETERS, _switched_off, annotations=hints)]

    def before_model_request(self, state: RunState) -> RunState:
        """Narrow the selection; note what others had hidden, which the search must not tell of."""
        offered = state.slot(self)
        left = {tool.name for tool in state.tools}
        hidden = frozenset(tool.name for tool in state.inventory if tool.name not in left)
        if hidden != offered.hidden:
            state = state.put(self, Offered(offered.found, hidden))
        shown = {self.name, *self.always, *offered.found}
        return state.select_tools(lambda tool: tool.name in shown)

    def admit_tool_execute(self, call: CallState) -> CallState:
        """Answer the search."""
        if call.name != self.name:
            return call
        found = [{"name": tool.name, "description": tool.description[:_LINE]} for tool in self._search(call)]
        told = "They are offered from your next turn on." if found else "Nothing fits: try other words."
        return call.answer(json.dumps({"found": found, "note": told}, ensure_ascii=False))

    def after_tool_execute(self, call: CallState) -> CallState:
        """Remember what was found, if the answer stood."""
        if call.name != self.name or call.outcome is None or call.outcome.status != "answered":
            return call
        if call.outcome.by != self.key:
            return call
        names = [tool.name for tool in self._search(call)]
        offered = call.slot(self)
        kept = [name for name in offered.found if name not in names]
        # Of one search the best is the newest, so that it is the last to give way.
        found = (*kept, *reversed(names))[-self.max_found :]
        return call if found == offered.found else call.put(self, Offered(found, offered.hidden))

    def _search(self, call: CallState) -> list[Tool]:
        query, offered = call.arguments.get("query"), call.slot(self)
        apart = {self.name, *self.always, *offered.hidden}
        there = [tool for tool in call.run.inventory if tool.name not in apart]
        return rank(query, there)[: self.max_results] if isinstance(query, str) else []
