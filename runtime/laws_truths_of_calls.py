"""What must hold of the calls of a tale that was told: what ran was offered, allowed, and is on record as it was.

What the world saw of tools and people is held against the log. Knows nothing of how tales are drawn or told.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from ..capabilities.frozen import canonical, same
from .arguments import validate
from .audit import AuditRecord
from .decisions import Approve, Edit
from .laws_play import Told
from .laws_tale import HELPER, Tale
from .laws_world import Body

# A run and a call in it.
Place = tuple[str, str]
# What shows that a body never ran.
_NO_EFFECT: Final = frozenset({"not_executed", "denied", "validation_error"})


def bodies_were_offered(told: Told) -> None:
    """What ran was offered by the request that asked for it, valid, and as it was admitted."""
    offered: dict[tuple[str, int], set[str]] = {}
    for sent in told.world.sent:
        offered.setdefault((sent.run, sent.step), set()).update(sent.tools)
    admitted = {_place(r): r.facts for r in told.log if r.kind == "call_admitted"}
    inventory = _inventory(told.tale)
    for body in told.world.bodies:
        where = f"{body.tool} ({body.call}) of run {body.run}"
        # A wrapper may have made the response up, without a request: then there is nothing to hold it against.
        known = offered.get((body.run, body.step))
        assert known is None or body.tool in known, f"{where} ran, and was not offered"
        problems = validate(inventory[body.tool], body.arguments)
        assert problems == (), f"{where} ran with invalid arguments"
        facts = admitted.get((body.run, body.call))
        assert facts is not None, f"{where} ran, and was not admitted"
        assert same(facts["arguments"], body.arguments), f"{where} ran with other arguments than were judged"


def _inventory(tale: Tale) -> Mapping[str, Any]:  # Any: tools
    casts = [tale.root, *([tale.helper] if tale.helper is not None else [])]
    return {tool.name: tool for cast_ in casts for tool in cast_.tools}


def bodies_were_allowed(told: Told) -> None:
    """What ran was not refused, and approved by a person where somebody asked for it: this call, or for good."""
    verdicts = _verdicts(told.log)
    refused = {_place(record) for record in told.log if record.kind == "call_refused"}
    edited = {
        (d.request.run_id, d.request.call_id) for d in told.world.decided if isinstance(d.decision, Edit)
    }
    approved = edited | {
        (d.request.run_id, d.request.call_id) for d in told.world.decided if isinstance(d.decision, Approve)
    }
    standing = {
        (
            d.request.run_id,
            d.request.tool,
            None if d.request.always == "tool" else canonical(d.request.arguments),
        )
        for d in told.world.decided
        if isinstance(d.decision, Approve) and d.decision.always
    }
    judged_again = {run for run, _ in edited}
    for body in told.world.bodies:
        place = (body.run, body.call)
        where = f"{body.tool} ({body.call}) of run {body.run}"
        assert place not in refused, f"{where} ran, and is refused on record"
        verdict = verdicts.get(place)
        if verdict is None or body.run in judged_again:
            continue
        assert verdict["refused"] is None, f"{where} ran, which was refused"
        if verdict["approval"]:
            covers = {(body.run, body.tool, None), (body.run, body.tool, canonical(body.arguments))}
            assert place in approved or standing & covers, f"{where} ran, which nobody approved"


def _verdicts(log: Iterable[AuditRecord]) -> dict[Place, Any]:  # Any: a verdict as JSON
    """Return the last verdict on each call, as far as capabilities gave one."""
    found: dict[Place, Any] = {}
    for record in log:
        if record.hook == "admit_tool_execute" and "verdict" in record.changes:
            found[_place(record)] = cast(Any, record.changes["verdict"])["to"]
    return found


def _place(record: AuditRecord) -> Place:
    return record.run, str(record.call)


def outcomes_tell_what_ran(told: Told) -> None:
    """A call whose body ran is on record as one that may have had an effect, as often as it ran; as what it came to."""
    settled = {_place(r): cast(Any, r.facts["outcome"]) for r in told.log if r.kind == "tool_settled"}
    ended = {record.run for record in told.log if record.kind == "run_ended"}
    wrapped = _wrapped(told)
    by_call: dict[Place, list[Body]] = {}
    for body in told.world.bodies:
        assert body.ended, f"{body.tool} ({body.call}) of run {body.run} is still running"
        by_call.setdefault((body.run, body.call), []).append(body)
    for (run, call), bodies in by_call.items():
        outcome = settled.get((run, call))
        if outcome is None:
            assert run not in ended, f"{call} of run {run} ran, and has no outcome"
            continue
        where = f"{call} of run {run}, which ran {len(bodies)} times,"
        assert outcome["status"] not in _NO_EFFECT, f"{where} is on record as {outcome['status']}"
        assert outcome["attempts"] == len(bodies), f"{where} is on record with {outcome['attempts']}"
        returned = len(bodies) == 1 and bodies[0].ended == "returned" and bodies[0].deed != "rubbish"
        if returned and not wrapped:
            assert outcome["status"] == "succeeded", f"{where} returned, and is {outcome['status']}"
    for place, outcome in settled.items():
        if outcome["status"] == "succeeded" and outcome["by"] == "tool" and place not in by_call:
            tool = next(r.facts["tool"] for r in told.log if r.kind == "call_admitted" and _place(r) == place)
            world = tool != HELPER and tool in _inventory(told.tale)
            assert not world, f"{place} is on record as succeeded, and never ran"


def _wrapped(told: Told) -> bool:
    """Tell whether some capability stands around calls, and may make another outcome of one."""
    below = told.tale.helper.capabilities if told.tale.helper is not None else ()
    return told.agent.setup.plan.wraps or any("wrap_tool_execute" in cap.overrides for cap in below)
