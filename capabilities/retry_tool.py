"""RetryTool: another attempt at a tool that failed in a known way. Knows nothing of models, or of how a body runs."""

from collections.abc import Iterable, Sequence

from attrs import Attribute, field, frozen

from .backoff import Backoff
from .call_state import CallState
from .capability import CallNext, Capability
from .combinators import leaves
from .shapes import of_type
from .tools import Tool, Where, covers, is_idempotent, names_in, where_or_none
from .verdict import Failure, Outcome

# Asks the model for other arguments: the same ones again would fail again. InjectionError: the body never ran.
_NOT_HELPED = frozenset({"ModelRetry", "InjectionError"})


def _attempts(instance: object, attribute: "Attribute[int]", value: int) -> None:
    if type(value) is not int:
        raise TypeError(f"RetryTool.max_attempts must be an integer, not {value!r:.80}")
    if value < 1:
        raise ValueError(
            f"RetryTool.max_attempts counts the first attempt too: the least is 1, not {value}, and 2 tries again once"
        )


def _names(value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError(f"RetryTool.on={value!r} is one string: write a tuple of names, ({value!r},)")
    given: object = value
    if not isinstance(given, Iterable):
        raise TypeError(f"RetryTool.on must be a tuple of names of exceptions, not {given!r:.80}")
    names: tuple[object, ...] = tuple(value)
    for name in names:
        if isinstance(name, type):
            raise TypeError(f"RetryTool.on holds names of exceptions: write {name.__name__!r}")
        if type(name) is not str or not name.isidentifier():
            raise TypeError(
                f"RetryTool.on holds names of exceptions, such as 'TimeoutError', not {name!r:.80}"
            )
    if not names:
        raise ValueError("RetryTool.on is empty, so nothing would be tried again: ('Exception',) means any")
    return tuple(dict.fromkeys(map(str, names)))


@frozen
class RetryTool(Capability):
    """Runs a tool again that failed in a known way, up to `max_attempts` times with the first one.

    `tools`: names, a predicate, or None for all. `on`: names of exceptions; one that matches the type of the failure
    or a class that it derives from leads to another attempt. `backoff`: how long to wait before it, by the port's
    clock. `only_idempotent`: only tools that are declared idempotent or read-only; with False, the others in `tools`
    too, where another attempt may do twice what the first had done in part.

    Only the outcome `failed` is tried again. `unknown` is not (a timeout, say: it may have happened), nor `denied` or
    `validation_error`, nor a failure without an exception, such as a sub-agent's. `ModelRetry` asks the model for
    other arguments, so the same ones are tried again only where `on` names it.
    Each attempt is charged to the limits of the run; where one allows no more, the run ends by it, and the last
    outcome stands. `ToolContext.attempt` counts, `idempotency_key` stays. A stop or cancellation ends a wait at once.

    Raises TypeError or ValueError for what cannot work, and, when the agent is built, ValueError for a tool that
    `tools` names, or that lists this capability itself, and that is declared neither idempotent nor read-only.

    >>> from capfold.capabilities import Backoff, ToolFailed, call, tool
    >>> from capfold.runtime import Agent, ScriptedModel
    >>> replies = iter([ToolFailed("the line is down"), "12 EUR"])
    >>> def price(item: str) -> str:
    ...     reply = next(replies)
    ...     if isinstance(reply, ToolFailed):
    ...         raise reply
    ...     return reply
    >>> model = ScriptedModel([call("price", {"item": "tea"}), "ok"])
    >>> retry = RetryTool(2, backoff=Backoff(initial=0.0))
    >>> agent = Agent("desk", model, tools=[tool(price, read_only=True)], capabilities=[retry])
    >>> result = agent.run_sync("What is tea?")
    >>> result.messages[2].content, result.tool_calls
    ('12 EUR', 2)
    """

    max_attempts: int = field(default=3, validator=_attempts)
    tools: Where | None = field(default=None, kw_only=True, converter=where_or_none)
    on: tuple[str, ...] = field(default=("Exception",), kw_only=True, converter=_names)
    backoff: Backoff = field(factory=Backoff, kw_only=True, validator=of_type(Backoff))
    only_idempotent: bool = field(default=True, kw_only=True, validator=of_type(bool))

    def __attrs_post_init__(self) -> None:
        """Refuse to run all tools of an agent twice, whatever they do."""
        if not self.only_idempotent and self.tools is None:
            raise ValueError("RetryTool(only_idempotent=False) must say which tools: give tools={'name'}")

    def tool_names(self) -> frozenset[str]:
        """Return the names in `tools`."""
        return names_in(self.tools)

    def check_tools(self, tools: Sequence[Tool]) -> None:
        """Raise ValueError for a tool that is named here, or lists this, and is not declared to bear a second run."""
        if not self.only_idempotent:
            return
        named = self.tool_names()
        for tool in tools:
            own = any(leaf.capability == self for leaf in leaves(tool.capabilities))
            if (own or tool.name in named) and not is_idempotent(tool):
                raise ValueError(
                    f"{self.key} is to run the tool {tool.name!r} again, which is declared neither idempotent nor "
                    f"read_only: declare it so, or say only_idempotent=False, tools={{{tool.name!r}}} where running it "
                    "twice does no harm"
                )

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        """Go on inward until it does not fail, or no attempt is left."""
        if not self._covers(call.tool):
            return await call_next(call)
        attempt = 1
        while True:
            done = await call_next(call)
            run = done.run
            ends = run.stopped is not None or run.failed is not None
            if attempt == self.max_attempts or ends or not self._may_pass(done.outcome):
                return done
            await call_next.sleep(self.backoff.delay(attempt, call_next.random()))
            attempt += 1

    def _covers(self, tool: Tool) -> bool:
        if self.only_idempotent and not is_idempotent(tool):
            return False
        return covers(self.tools, tool)

    def _may_pass(self, outcome: Outcome | None) -> bool:
        if outcome is None or outcome.status != "failed" or outcome.error is None:
            return False
        names = _lineage(outcome.error)
        named = names.intersection(self.on)
        helped = not names & _NOT_HELPED or bool(names & _NOT_HELPED & named)
        return bool(named) and helped


def _lineage(error: Failure) -> frozenset[str]:
    """Return the names of an exception's type and of all that it derives from."""
    return frozenset((error.type, *error.bases))
