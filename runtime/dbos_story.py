"""What a person asks of one durable run: its effects by step, and what it came to. Reads; needs no agent."""

from collections.abc import Mapping
from typing import cast

from attrs import frozen

from ..capabilities.frozen import FrozenDict
from .dbos_runs import DurableRuns, step_of
from .dbos_tables import in_thread
from .durable_info import DurableRunInfo
from .durable_journal import ASIDE
from .event_codec import loads
from .event_parts import JsonObject


@frozen(kw_only=True)
class DurableRunStory:
    """One run in full. `steps`: the names of the recorded effects of each step, in order; 0 is before the first.

    `content`: what the run's caller gets, as JSON; `failure`: why there is none.
    """

    info: DurableRunInfo
    steps: Mapping[int, tuple[str, ...]]
    content: object = None
    failure: str | None = None


async def story(runs: DurableRuns, run_id: str) -> DurableRunStory:
    """Return one run in full. Raises LookupError for an id that is not known."""
    info = await runs.show(run_id)
    client = await runs.client()
    steps: dict[int, tuple[str, ...]] = {}
    for one in await client.list_workflow_steps_async(run_id, load_output=False):
        number = step_of(one)
        if number is not None:
            steps[number] = (*steps.get(number, ()), one["function_name"].split(":", 2)[2])
    content, failure = await _came_to(runs, run_id)
    return DurableRunStory(info=info, steps=steps, content=content, failure=failure or info.error)


async def _came_to(runs: DurableRuns, run_id: str) -> tuple[object, str | None]:
    client = await runs.client()
    (found,) = await client.list_workflows_async(workflow_ids=[run_id], load_input=False)
    if found.status != "SUCCESS" or not isinstance(found.output, str):
        return None, None
    told: JsonObject = loads(found.output)
    if ASIDE in told:
        told = loads(await in_thread(runs.tables.kept, cast(str, told[ASIDE])))
    reason = told["reason"]
    if isinstance(reason, FrozenDict):
        return None, f"{reason.get('type', 'failure')}: {reason.get('message', reason)}"
    return told["content"], cast("str | None", told["problem"])
