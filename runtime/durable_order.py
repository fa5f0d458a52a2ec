"""Orders: what a worker needs to carry a run on, as JSON: the prompt, the options, and the way to its agent.

An order names no function and no object of a process: agents, tools, deps, approvers and stores are the worker's own.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, cast

from ..capabilities.frozen import FrozenDict, FrozenList, Json, freeze_mapping
from ..capabilities.messages import Content, Message, as_content, as_messages
from ..capabilities.state import RunState
from . import machine
from .agent import Agent
from .below import Allowance
from .building import Given, check_needs, check_options
from .codec import from_json, to_json
from .decisions import Approver
from .event_parts import JsonObject, messages_of, put_messages
from .limits import Limits
from .runs import Options, check_kept, setup_of
from .setup import Setup
from .subagents import SubAgent


class DurableOptions(TypedDict, total=False):
    """What a durable run takes beside the prompt; as `RunOptions` has it, for all that can be written down.

    Deps, tools and the approver are those of the worker's own agent; `run_id` names the run in its database.
    `live`: events are shown to whoever follows the run, and the text of responses as it comes.
    """

    context: Mapping[str, object]
    conversation: str | None
    messages: Sequence[Message]
    settings: Mapping[str, object]
    limits: Limits | None
    model: str | None
    run_id: str | None
    live: bool


class Place(NamedTuple):
    """What a run is driven with on a worker."""

    setup: Setup
    given: Given
    deps: object
    approver: Approver | None
    is_root: bool


def write_order(
    agent: Agent[Any],  # Any: of every output type
    prompt: Content | None,
    options: DurableOptions,
    now: float,
) -> JsonObject:
    """Return the order of a run. Raises TypeError or ValueError for what it cannot be started with."""
    live = options.get("live", False)
    run_id: object = options.get("run_id")
    if run_id is not None and (not isinstance(run_id, str) or not run_id):
        raise TypeError(f"run_id is a non-empty string, not {run_id!r:.80}")
    if not isinstance(live, bool):
        raise TypeError(f"live is True or False, not {live!r:.80}")
    known = {name: value for name, value in options.items() if name not in {"run_id", "live"}}
    asked = Options(**known)  # type: ignore[arg-type]  # by name; it refuses what does not exist
    if asked.model is not None and not isinstance(asked.model, str):
        raise TypeError(f"model is the name of a model, which any worker can read; not {asked.model!r:.80}")
    check_kept(agent.given, asked)
    limits = asked.limits
    if limits is not None:
        check_options(limits, None)
    order = FrozenDict(
        {
            "agent": agent.name,
            "path": FrozenList(),
            "prompt": None if prompt is None else to_json(as_content(prompt), type=Content),
            "context": freeze_mapping(asked.context, "context"),
            "messages": put_messages(as_messages(asked.messages)),
            "conversation": asked.conversation,
            "settings": freeze_mapping(asked.settings, "settings"),
            "limits": None if limits is None else to_json(limits),
            "model": asked.model,
            "live": live,
            "above": None,
            "now": now,
        }
    )
    place = place_of(agent, order)
    check_needs(place.setup, place.deps, cast(JsonObject, order["context"]))
    begun(place, order, "run")  # a prompt that cannot be sent is refused here, not on a worker
    return order


def place_of(agent: Agent[Any], order: JsonObject) -> Place:  # Any: as above
    """Return what a run of an order is driven with. Raises ValueError for an order that is not this agent's."""
    if order["agent"] != agent.name:
        raise ValueError(f"the run is of agent {order['agent']!r}; this worker has {agent.name!r}")
    limits = None if order["limits"] is None else from_json(order["limits"], Limits)
    model = cast("str | None", order["model"])
    settings = cast(JsonObject, order["settings"])
    given = agent.given
    setup = setup_of(agent.setup, given, Options(limits=limits, model=model, settings=settings))
    deps, approver = given.deps, given.approver
    for one in cast("Sequence[JsonObject]", order["path"]):
        tool = setup.by_name.get(cast(str, one["tool"]))
        function = None if tool is None else tool.function
        if not isinstance(function, SubAgent):
            raise ValueError(f"agent {setup.name!r} has no sub-agent {one['tool']!r}, which the run is of")
        allowance = Allowance(**cast("Mapping[str, Json]", one["allowance"]))  # type: ignore[arg-type]  # by name
        setup = function.setup_under(setup, allowance)
        given = function.agent.given
        deps = deps if deps is not None else given.deps
        approver = given.approver if given.approver is not None else approver
    return Place(setup, given, deps, approver, not order["path"])


def begun(place: Place, order: JsonObject, run_id: str) -> machine.Moved:
    """Return the first move of a run. Raises ValueError when its prompt and history cannot be sent."""
    prompt = order["prompt"]
    above = cast("JsonObject | None", order["above"])
    return machine.start(
        place.setup,
        None if prompt is None else from_json(prompt, cast("type[Content]", Content)),
        run_id=run_id,
        now=cast(float, order["now"]),
        context=cast(JsonObject, order["context"]),
        messages=messages_of(order["messages"]),
        conversation=cast("str | None", order["conversation"]),
        above=None
        if above is None
        else RunState(run_id=cast(str, above["run_id"]), root_run_id=cast(str, above["root_run_id"])),
    )
