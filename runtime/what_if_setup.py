"""The setup of a run on record under another capability list: from the log alone, or with the agent's own tools.

Knows nothing of how that run is judged.
"""

from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from attrs import evolve, frozen

from ..capabilities.annotations import Annotations
from ..capabilities.capability import AnyCapability
from ..capabilities.compose import compose
from ..capabilities.description import kind_of
from ..capabilities.frozen import FrozenDict, FrozenList, Json
from ..capabilities.injected import ToolContext
from ..capabilities.messages import AssistantMessage
from ..capabilities.records import replace
from ..capabilities.shadow import Shadow, shadow_key
from ..capabilities.state import OutputSpec, RunState
from ..capabilities.tools import Tool
from . import strict_json
from .arguments import problems_by
from .audit import AuditRecord
from .below import UNBOUNDED, Allowance, RunBelow
from .building import with_tools
from .codec import from_json
from .decoding import MAX_DEPTH
from .errors import ReplayError
from .log_replay import as_recorded
from .models import Meter, ModelProfile, ModelRequest
from .output import TEXT, OutputType
from .permissions import Permissions
from .prices import Price
from .problems import problems_of, said
from .setup import Setup

if TYPE_CHECKING:
    from .agent import Agent

# Whatever the run asked of its model was possible, and what it cost is on record.
_ABLE = ModelProfile(json_schema=True, images=True, audio=True, files=True, price=Price(input=0, output=0))


@frozen
class RecordedModel:
    """Stands for the model of a run on record, which is never asked."""

    name: str
    profile: ModelProfile = _ABLE

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        """Refuse: what it answered is on record."""
        raise RuntimeError("the model of a run on record is not asked again")


async def _never(arguments: dict[str, object], context: ToolContext) -> object:
    raise RuntimeError("the agents below a run on record are not run again")


@frozen(eq=False)
class RecordedAgent(RunBelow):
    """Stands for an agent below a run on record, which is never run."""

    def setup_under(self, above: Setup, allowance: Allowance = UNBOUNDED) -> Setup:
        """Return the setup above: whatever the agent needed, it had."""
        return above

    def provides(self, need: tuple[str, str, str]) -> bool:
        """Tell that it had all it needed."""
        return True


def caller_of(started: AuditRecord) -> RunState | None:
    """Return as much as the log says of the run that called one; None where nobody did."""
    parent = started.facts.get("parent")
    if parent is None:
        return None
    return replace(RunState(), run_id=str(parent), root_run_id=str(started.facts["root"]))


def setup_from(
    started: AuditRecord,
    capabilities: tuple[AnyCapability, ...],
    agent: "Agent[Any] | None",  # Any: its output may be of any type
    *,
    below: Container[str] = (),
) -> Setup:
    """Return the setup of a run with another list: with the agent's tools, or with those that the log describes.

    `below`: of those, the names of the ones that ran agents, which take from the limits as no other tool does.
    Raises ReplayError where the log alone does not hold enough: tools or toolkits that have capabilities of their own,
    or a run with some of the run above it.
    """
    facts = started.facts
    if agent is not None:
        return as_recorded(with_tools(agent.setup, capabilities, agent.given.tools), started)
    _refuse_scoped(started)
    rules = cast("FrozenDict[Json]", facts["rules"])
    own = compose(capabilities).agent
    bundled = {tool for member in own for tool in _names(member.provide_tools())}
    tools = [
        _tool(cast("FrozenDict[Json]", one), RecordedAgent(_never) if name in below else None)
        for name, one in cast("FrozenDict[Json]", facts["descriptors"]).items()
        if name not in bundled
    ]
    base = Setup(
        name=str(facts["agent"]),
        model=RecordedModel(str(facts["model"])),
        plan=compose(capabilities),
        prompt=_without(str(facts["instructions"]), [member.provide_instructions() for member in own]),
        output=_output(facts["output"]),
        permissions=from_json(rules["permissions"], Permissions),
        output_retries=cast(int, rules["output_retries"]),
        unselected_retries=cast(int, rules["unselected_retries"]),
        strict=cast(bool, rules["strict"]),
        audit_all=cast(bool, rules["audit_all"]),
    )
    return as_recorded(with_tools(base, capabilities, tools), started)


def _refuse_scoped(started: AuditRecord) -> None:
    listed = set(_keys(cast(FrozenList, started.facts["list"])))
    scoped = sorted(cast("FrozenDict[Json]", started.facts["capabilities"]).keys() - listed)
    if scoped:
        above = ", or it had some of the run above it" if "parent" in started.facts else ""
        raise ReplayError(
            f"tools of this run had capabilities of their own{above}, {', '.join(scoped)}, of which the log has the "
            "names: give agent="
        )


def _keys(described: Iterable[Json]) -> Iterable[str]:
    for one in described:
        entry = cast("FrozenDict[Json]", one)
        yield str(entry["key"])
        inside = _keys(cast(FrozenList, entry["members"]))
        in_shadow = entry["kind"] == kind_of(Shadow)
        yield from (shadow_key(str(entry["key"]), key) for key in inside) if in_shadow else inside


def _names(tools: Iterable[object]) -> Iterable[str]:
    for one in tools:
        yield str(getattr(one, "name", getattr(one, "__name__", "")))


def _without(instructions: str, bundled: Sequence[str | None]) -> str:
    """Return instructions without what bundles add again."""
    for text in reversed([text for text in bundled if text]):
        instructions = instructions.removesuffix(text).removesuffix("\n\n")
    return instructions


def _tool(written: FrozenDict[Json], function: RunBelow | None) -> Tool:
    """Return a tool of its descriptor, with a function only where it ran an agent, and that is not called."""
    hints: dict[str, Any] = dict(
        cast("FrozenDict[Json]", written["annotations"])
    )  # Any: Annotations checks them
    names = ("name", "description", "parameters", "max_retries", "timeout", "sequential", "metadata")
    made: dict[str, Any] = {name: written[name] for name in names}  # Any: Tool checks them
    return Tool(**made, annotations=Annotations(**hints), function=function)


def _output(spec: Json) -> OutputType:
    if spec is None:
        return TEXT
    found = from_json(spec, OutputSpec)

    def read(text: str) -> tuple[object, str | None]:
        decoded, wrong = strict_json.read(text, MAX_DEPTH, utf8=True)
        problems = problems_of(wrong) or problems_by(found.schema, decoded)
        return (None, said(problems)) if problems else (decoded, None)

    return evolve(TEXT, spec=found, kind=object, read=read)
