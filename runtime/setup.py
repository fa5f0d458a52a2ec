"""Setup: everything of an agent that a run reads and never changes. Compiled once, shared by runs."""

from collections.abc import Callable, Mapping

from attrs import field, frozen

from ..capabilities.compose import Plan
from ..capabilities.frozen import EMPTY, FrozenDict, Json
from ..capabilities.messages import ToolCall
from ..capabilities.tools import Placed, Tool
from ..capabilities.verdict import Problem
from .limits import TOKEN_LIMITS, Limits
from .models import Model
from .output import TEXT, OutputType
from .permissions import Permissions


@frozen(kw_only=True, eq=False)
class Setup:
    """An agent as the machine sees it: composed capabilities, inventory, model, limits.

    `prints`: key -> digest of each capability's description, by which a resumed run recognizes its list.
    """

    name: str
    model: Model
    plan: Plan
    placed: tuple[Placed, ...] = ()
    inventory: tuple[Tool, ...] = ()
    by_name: Mapping[str, Tool] = field(factory=dict)
    settings: FrozenDict[Json] = EMPTY
    instructions: str = ""
    output: OutputType = TEXT
    limits: Limits = Limits()
    permissions: Permissions = Permissions()
    output_retries: int = 1
    unselected_retries: int = 1
    strict: bool = False
    audit_all: bool = False
    prints: Mapping[str, str] = field(factory=dict)
    # What the gate and the request would else work out at every step.
    tool_names: tuple[str, ...] = ()
    tool_digests: Mapping[str, str] = field(factory=dict)
    token_limits: tuple[str, ...] = field(init=False)
    unjudged: bool = field(init=False)
    # (who needs it, "deps" or "context", key): what a run must be started with.
    needs: tuple[tuple[str, str, str], ...] = ()
    # Finds what is wrong with arguments beyond their schema (a date that is none), per tool with rich parameters.
    rich: Mapping[str, Callable[[FrozenDict[Json]], tuple[Problem, ...]]] = field(factory=dict)

    @unjudged.default
    def _unjudged(self) -> bool:
        return not self.plan.judges and self.permissions.allow_all

    @token_limits.default
    def _token_limits(self) -> tuple[str, ...]:
        return tuple(name for name in TOKEN_LIMITS if getattr(self.limits, name) is not None)


UNKNOWN_SCHEMA: FrozenDict[Json] = FrozenDict({"type": "object"})


def placeholder(call: ToolCall) -> Tool:
    """Return the descriptor of a tool that the inventory does not have."""
    return Tool(call.name or "?", "", UNKNOWN_SCHEMA)
