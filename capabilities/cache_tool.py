"""CacheTool: a call that succeeded before in this run is answered with what came of it. Keeps nothing outside a run."""

from collections.abc import Iterable
from typing import TypeAlias

from attrs import field, frozen

from .call_state import CallState
from .capability import Capability
from .frozen import FrozenDict, digest
from .messages import Content
from .tools import Where, accepts, as_where, is_read_only

# The oldest go first: a slot is copied whenever it is written.
MAX_ENTRIES = 256
# One result, and its number in the order of their arrival: a mapping that was written and read again has no order.
Kept: TypeAlias = tuple[int, Content]


def _vary(value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError(f"CacheTool.vary={value!r} is one string: write a tuple of keys, ({value!r},)")
    given: object = value
    if not isinstance(given, Iterable):
        raise TypeError(f"CacheTool.vary must be a tuple of keys of the run's context, not {given!r:.80}")
    keys = tuple(value)
    for key in keys:
        if type(key) is not str:
            raise TypeError(f"CacheTool.vary holds keys of the run's context, not {key!r:.80}")
    return tuple(dict.fromkeys(keys))


@frozen
class CacheTool(Capability["FrozenDict[Kept]"]):
    """Answers a tool call with the result of an equal one that succeeded earlier in the same run.

    `tools`: names or a predicate; those that are declared read-only by default. Name another one only where its
    second call could do nothing. `vary`: keys of the run's context on which results depend.

    Equal calls are of the same tool, with the same effective arguments and injected values, in any order of keys.
    `succeeded` only is kept: no failure, no refusal, no answer of somebody else. A hit is an answer, which others may
    still refuse; it stands in the history as `answered`, the body does not run, but the call is charged.
    Two equal calls of one batch both run, since neither has an outcome when they are judged. The latest 256 results
    are kept, in the run's state: they survive its suspension, and end with it.
    A result is kept as it is when this capability's after hook comes to it; after hooks before it see a hit as well.

    Raises TypeError for what names no tools or no keys.

    >>> from capfold.capabilities import call, tool
    >>> from capfold.runtime import Agent, ScriptedModel
    >>> ran = []
    >>> look = tool(lambda: str(ran.append(1)), name="look", description="Look.", read_only=True)
    >>> model = ScriptedModel([call("look", id="1"), call("look", id="2"), "ok"])
    >>> result = Agent("desk", model, tools=[look], capabilities=[CacheTool()]).run_sync("Look twice.")
    >>> [message.status for message in result.messages if hasattr(message, "call_id")], ran
    (['succeeded', 'answered'], [1])
    """

    tools: Where = field(default=is_read_only, converter=as_where)
    vary: tuple[str, ...] = field(default=(), kw_only=True, converter=_vary)

    def initial(self) -> "FrozenDict[Kept]":
        """Return the empty cache: digest of a call -> number and content."""
        return FrozenDict()

    def tool_names(self) -> frozenset[str]:
        """Return the names in `tools`."""
        return frozenset() if callable(self.tools) else frozenset(self.tools)

    def admit_tool_execute(self, call: CallState) -> CallState:
        """Answer with what is kept."""
        kept = call.slot(self)
        if not kept or not accepts(self.tools, call.tool):
            return call
        key = self._key(call)
        return call.answer(kept[key][1]) if key in kept else call

    def after_tool_execute(self, call: CallState) -> CallState:
        """Keep what succeeded."""
        outcome = call.outcome
        if outcome is None or outcome.status != "succeeded" or not accepts(self.tools, call.tool):
            return call
        kept = call.slot(self)
        key = self._key(call)
        if key in kept:  # of the same batch: the first one stands
            return call
        number = 1 + max((arrived for arrived, _ in kept.values()), default=0)
        if len(kept) >= MAX_ENTRIES:
            kept = FrozenDict((k, one) for k, one in kept.items() if one[0] > number - MAX_ENTRIES)
        return call.put(self, kept.assoc(key, (number, outcome.content)))

    def _key(self, call: CallState) -> str:
        context = call.run.context
        return digest([call.digest, {key: context[key] for key in self.vary if key in context}])
