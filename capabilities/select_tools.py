"""SelectTools: offer the model fewer tools. Knows nothing of why a tool is left out."""

from typing import ClassVar

from attrs import field, frozen

from .capability import Capability, Declaration
from .state import RunState
from .tools import Where, as_where


@frozen
class SelectTools(Capability):
    """Offers only the tools that `where`, names or a predicate, accepts, from what earlier capabilities left.

    It never adds one, and may leave none. A name that is in no inventory is a ValueError when the agent is
    built; TypeError when `where` is a single string, or its predicate returns something else than a bool.

    >>> from capfold.runtime import Agent, ScriptedModel
    >>> @tool(read_only=True)
    ... def search(text: str) -> str:
    ...     return "nothing found"
    >>> @tool
    ... def pay(amount: int) -> str:
    ...     return f"paid {amount} EUR"
    >>> model = ScriptedModel(["ok"])
    >>> Agent("reader", model, tools=[search, pay], capabilities=[SelectTools(is_read_only)]).run_sync("Hi.").output
    'ok'
    >>> [offered.name for offered in model.requests[0].tools]
    ['search']
    """

    where: Where = field(converter=as_where)

    declares: ClassVar[frozenset[Declaration]] = frozenset({"idempotent", "order_insensitive"})

    def tool_names(self) -> frozenset[str]:
        """Return the names in `where`."""
        return frozenset() if callable(self.where) else frozenset(self.where)

    def before_model_request(self, state: RunState) -> RunState:
        """Narrow the selection."""
        return state.select_tools(self.where)
