"""SharedBudget: an allowance that many runs draw on. Knows no counter but its protocol; that one is in `deps`."""

from collections.abc import Mapping
from typing import Literal, TypeAlias, cast, get_args

from attrs import Attribute, field, frozen

from .call_state import CallState
from .capability import CallNext, Capability
from .messages import text_field
from .outside_stores import Reserving
from .shapes import count_field, one_of
from .tools import Where, covers, names_in, where_or_none

OnExceeded: TypeAlias = Literal["refuse", "stop"]


def _name(instance: object, attribute: "Attribute[str]", value: str) -> None:
    if type(value) is not str or not value:
        raise TypeError(f"SharedBudget.name must be the key of a counter in deps, not {value!r:.80}")


@frozen
class SharedBudget(Capability):
    """Refuses a tool call, or stops the run, when an allowance that many runs share is used up.

    `name`: the key of the counter in `deps`, and the name it counts under: `deps={"web": Counter()}`. `limit`:
    how many units there are in all; a call takes one. `tools`: which ones; None = all. `on_exceeded`: "refuse"
    lets the model go on with `message` as the result, "stop" ends the run with it too.

    A unit is taken right before the body, in one atomic step of the counter, so calls side by side, runs and
    sub-agents (list it as `inherited(...)`) never take more than there are. It stays taken whatever becomes of
    the call: nobody can know that a call had no effect. An attempt that a retrying wrapper adds takes a unit of
    its own where that wrapper stands before this one in the list; without one it does not run, and the outcome of
    the attempt before it stands. A cache that stands before it, and has the answer, takes none; nor does a call that
    goes on after its sub-agent waited for a decision, since it has its unit.
    "refuse" is exact; with "stop" the calls that are under way at that time still end.

    A missing counter fails when the run starts. A counter that raises ends the run: nothing is let through.
    Raises TypeError or ValueError for a wrong name, limit or choice.

    >>> from capfold.capabilities import call, tool
    >>> from capfold.runtime import Agent, Counter, ScriptedModel
    >>> search = tool(lambda: "nothing", name="search", description="Search.")
    >>> model = ScriptedModel([call("search", id="1"), call("search", id="2"), "ok"])
    >>> agent = Agent("desk", model, tools=[search], capabilities=[SharedBudget("web", 1)])
    >>> result = agent.run_sync("Go.", deps={"web": Counter()})
    >>> [message.content for message in result.messages if hasattr(message, "call_id")]
    ['nothing', 'budget exhausted']
    """

    name: str = field(validator=_name)
    limit: int = field(validator=count_field)
    tools: Where | None = field(default=None, kw_only=True, converter=where_or_none)
    message: str = field(default="budget exhausted", kw_only=True, validator=text_field)
    on_exceeded: OnExceeded = field(default="refuse", kw_only=True, validator=one_of(*get_args(OnExceeded)))

    def tool_names(self) -> frozenset[str]:
        """Return the names in `tools`."""
        return names_in(self.tools)

    def needs_deps(self) -> frozenset[str]:
        """Return the counter's key."""
        return frozenset({self.name})

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        """Take a unit and go on, or refuse."""
        if not covers(self.tools, call.tool):
            return await call_next(call)
        if call_next.resumed:  # its unit was taken before its sub-agent waited for a decision
            return await call_next(call)
        taken: object = await self._counter(call_next.deps).reserve(self.name, 1, self.limit)
        if type(taken) is not bool:
            raise TypeError(f"the counter {self.name!r} in deps must return True or False, not {taken!r:.80}")
        if taken:
            return await call_next(call)
        refused = call.refuse(self.message)
        return refused.stop(self.message) if self.on_exceeded == "stop" else refused

    def _counter(self, deps: object) -> Reserving:
        found = deps[self.name] if isinstance(deps, Mapping) else getattr(deps, self.name)
        if not callable(getattr(found, "reserve", None)):
            raise TypeError(
                f"deps[{self.name!r}] must be a counter, such as Counter(), not {type(found).__name__}"
            )
        return cast(Reserving, found)
