"""Setup: everything of an agent that a run reads and never changes. Compiled once, shared by runs."""

from collections.abc import Callable, Mapping

from attrs import field, frozen

from ..capabilities.capability import AnyCapability
from ..capabilities.compose import Plan
from ..capabilities.frozen import EMPTY, FrozenDict, FrozenList, Json
from ..capabilities.messages import ToolCall
from ..capabilities.records import replace, template
from ..capabilities.state import RunState
from ..capabilities.tools import Placed, Tool
from ..capabilities.verdict import Problem
from .limits import RULES, SPENT_LIMITS, Limits
from .models import Model
from .output import TEXT, OutputType
from .permissions import Permissions
from .prompts import PromptSource

# Its dict, and with it that of each copy, holds its 34 fields in half of what one takes that grew field by field.
BLANK = template(RunState())


@frozen(kw_only=True, eq=False)
class Setup:
    """An agent as the machine sees it: composed capabilities, inventory, model, limits.

    `prints`: key -> digest of each capability's description, by which a resumed run recognizes its list.
    `above`: the permissions of the runs above this one, the outermost first.
    """

    name: str
    model: Model
    plan: Plan
    placed: tuple[Placed, ...] = ()
    inventory: tuple[Tool, ...] = ()
    by_name: Mapping[str, Tool] = field(factory=dict)
    settings: FrozenDict[Json] = EMPTY
    # `prompt` as the agent was given it, `bundled` what its bundles add to it; `instructions` are both.
    prompt: "str | PromptSource" = ""
    bundled: tuple[str, ...] = ()
    instructions: str = ""
    output: OutputType = TEXT
    limits: Limits = Limits()
    permissions: Permissions = Permissions()
    above: tuple[Permissions, ...] = ()
    output_retries: int = 1
    unselected_retries: int = 1
    strict: bool = False
    # The names of the tools that run another agent; those of all tools here and below; what the agents below get
    # of this one's list; and, of a run below another, which of its limits are bounded by its share of that one's.
    below: frozenset[str] = frozenset()
    reach: frozenset[str] = frozenset()
    inherits: tuple[AnyCapability, ...] = ()
    bounded: frozenset[str] = frozenset()
    audit_all: bool = False
    prints: Mapping[str, str] = field(factory=dict)
    # What the gate and the request would else work out at every step.
    tool_names: tuple[str, ...] = ()
    tool_digests: Mapping[str, str] = field(factory=dict)
    # What the log says of them, of the rules and the limits that are set, and of the list as it was given. Made once:
    # it is in the first record of each run, where it would be four hundred bytes.
    rules: FrozenDict[object] = field(init=False)
    limits_set: FrozenDict[object] = field(init=False)
    tool_descriptors: FrozenDict[Json] = EMPTY
    described: FrozenList = field(factory=FrozenList)
    spent_limits: tuple[str, ...] = field(init=False)
    # What each of its runs starts as, but for what is that run's own.
    blank: RunState = field(init=False)
    # Whether instructions are known only once a run has started.
    unresolved: bool = field(init=False)
    unjudged: bool = field(init=False)
    # Whether a batch is sure to be charged and executed as it was asked for: no hook shapes it, no limit refuses it.
    unhindered: bool = field(init=False)
    # (who needs it, "deps" or "context", key): what a run must be started with.
    needs: tuple[tuple[str, str, str], ...] = ()
    # Finds what is wrong with arguments beyond their schema (a date that is none), per tool with rich parameters.
    rich: Mapping[str, Callable[[FrozenDict[Json]], tuple[Problem, ...]]] = field(factory=dict)

    @rules.default
    def _rules(self) -> FrozenDict[object]:
        return FrozenDict(
            {
                "permissions": self.permissions,
                "output_retries": self.output_retries,
                "unselected_retries": self.unselected_retries,
                "strict": self.strict,
                "audit_all": self.audit_all,
            }
        )

    @limits_set.default
    def _limits_set(self) -> FrozenDict[object]:
        values = {name: getattr(self.limits, name) for name in RULES}
        return FrozenDict({name: value for name, value in values.items() if value is not None})

    @unjudged.default
    def _unjudged(self) -> bool:
        allowed = self.permissions.allow_all and all(one.allow_all for one in self.above)
        return not self.plan.judges and allowed

    @unhindered.default
    def _unhindered(self) -> bool:
        return self.unjudged and not self.plan.shapes and self.limits.tool_calls is None

    @unresolved.default
    def _unresolved(self) -> bool:
        return not isinstance(self.prompt, str) or bool(self.plan.chains["wrap_prompt"].links)

    @blank.default
    def _blank(self) -> RunState:
        made = replace(  # all of this is valid already, and validators cost several times as much
            BLANK,
            agent=self.name,
            inventory=self.inventory,
            output_spec=self.output.spec,
            max_steps=self.limits.max_steps,
            output_retries=self.output_retries,
            model=self.model,
            settings=self.settings,
            instructions=self.instructions,
            tools=self.inventory,
        )
        return template(made)

    @spent_limits.default
    def _spent_limits(self) -> tuple[str, ...]:
        return tuple(name for name in SPENT_LIMITS if getattr(self.limits, name) is not None)


UNKNOWN_SCHEMA: FrozenDict[Json] = FrozenDict({"type": "object"})


def placeholder(call: ToolCall) -> Tool:
    """Return the descriptor of a tool that the inventory does not have."""
    return Tool(call.name or "?", "", UNKNOWN_SCHEMA)
