"""Snapshots: a suspended run as JSON, and how it is attached again to the agent it belongs to."""

import json
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from ..capabilities.call_state import CallState
from ..capabilities.capability import state_type
from ..capabilities.frozen import FrozenDict, Json, digest
from ..capabilities.messages import Usage
from ..capabilities.records import replace
from ..capabilities.state import RunState
from .below import Allowance, Held, RunBelow, Spent
from .conversation import Conversation
from .decisions import ApprovalRequest
from .ending import open_calls
from .errors import CodecError
from .limits import Limits
from .log import Log, Tail
from .phases import Phase
from .setup import Setup
from .work import CallIndex, MachineState

if TYPE_CHECKING:
    from .codec import Codec

KIND = "suspended run"


@frozen
class HeldBelow:
    """A call that is not settled, as `Held` has it. `snapshot`: of the run that waits; None where the call has ended.

    `allowed`: what it may use, all in all. The rest is what its other attempts used; `cost` in US dollars.
    """

    call_id: str
    snapshot: str | None
    allowed: Limits
    extra: int
    runs: tuple[str, ...]
    requests: int
    tool_calls: int
    usage: Usage
    usage_by_model: FrozenDict[Usage]
    cost: float | None

    @classmethod
    def of(cls, call_id: str, held: Held) -> "HeldBelow":
        """Return it as data; the log's tails stand in the snapshot of the root run alone."""
        text = None if held.state is None else write_snapshot(held.state, Log())
        allowed = Limits(**held.allowance._asdict())
        return cls(call_id, text, allowed, held.extra, held.runs, *held.earlier)

    @property
    def allowance(self) -> Allowance:
        """What it may use."""
        return Allowance(*[getattr(self.allowed, name) for name in Allowance._fields])

    @property
    def earlier(self) -> Spent:
        """What earlier attempts have used."""
        return Spent(self.requests, self.tool_calls, self.usage, self.usage_by_model, self.cost)


@frozen
class Snapshot:
    """What a suspended run consists of. `prints`: digest of each capability's description, by key.

    `elapsed`: seconds of the run's deadline that were used; the wait for a decision is not counted.
    `digest`: of all the rest, so that a document that was edited is refused. It has no key: it finds accidents
    and edits by hand, not somebody who makes a digest anew.
    """

    agent: str
    model: str
    prints: FrozenDict[Json]
    limits: Limits
    settings: FrozenDict[Json]
    run: RunState
    batch: tuple[CallState, ...]
    elapsed: float
    grants: tuple[str, ...]
    approved: tuple[str, ...]
    pending: tuple[ApprovalRequest, ...]
    held: tuple[HeldBelow, ...]
    instructions: str
    conversation: Conversation | None
    tails: tuple[Tail, ...]
    digest: str


def write_snapshot(state: MachineState, log: Log) -> str:
    """Return the text of a suspended run.

    A model that a capability selected for the step under way is written as the agent's own: it has answered
    already, and the next step selects anew. Raises CodecError for a slot value that the codec cannot carry.
    """
    from .codec import envelope, to_json  # noqa: PLC0415  # late_codec says why

    setup = state.setup
    snapshot = Snapshot(
        agent=setup.name,
        model=setup.model.name,
        prints=FrozenDict(setup.prints),
        limits=setup.limits,
        settings=setup.settings,
        run=replace(state.run, model=setup.model),
        batch=state.batch,
        elapsed=state.suspended_at - state.started,
        grants=tuple(sorted(state.grants)),
        approved=tuple(sorted(state.approved)),
        pending=state.pending,
        held=tuple(HeldBelow.of(call_id, held) for call_id, held in state.held.items()),
        instructions=state.instructions,
        conversation=state.conversation,
        tails=log.tails,
        digest="",
    )
    converter = _converter(setup)
    written = to_json(snapshot, converter=converter)
    return envelope(KIND, evolve(snapshot, digest=_digest(written)), converter=converter)


def read_snapshot(text: str, setup: Setup, *, allow_changed: frozenset[str]) -> tuple[MachineState, Log]:
    """Return the machine state of a snapshot, attached to an agent, and an empty log that continues its chain.

    Raises CodecError for a text that is no snapshot, is of another schema version, or names tools that the
    agent does not have, or was edited; ValueError when it belongs to another agent, or the capability list changed.
    """
    from .codec import open_envelope  # noqa: PLC0415  # late_codec says why

    try:
        found = open_envelope(text, KIND, Snapshot, converter=_converter(setup))
    except CodecError:
        _refuse_named(text, setup)  # its name says more than the tools that this agent does not have
        raise
    _refuse_another(found.agent, found.model, setup)
    refuse_changed(found.prints, setup.prints, allow_changed)
    if found.run.output_spec != setup.output.spec:
        wanted, own = (
            spec.name if spec is not None else "text" for spec in (found.run.output_spec, setup.output.spec)
        )
        raise ValueError(
            f"the run is to put out {wanted}, and this agent {own}: give it the output_type it had"
        )
    check_batch(found)
    if _digest(json.loads(text)["value"]) != found.digest:
        raise CodecError("does not match: the snapshot was changed after it was written", "$.value.digest")
    setup = evolve(setup, limits=found.limits, settings=found.settings)
    held = {one.call_id: _held(one, found, setup, allow_changed) for one in found.held}
    waiting = tuple(
        request for one in held.values() if one.state is not None for request in one.state.pending
    )
    if held and waiting != found.pending:
        raise CodecError("is not what its sub-agents wait for", "$.value.pending")
    state = MachineState(
        setup=setup,
        phase=Phase.SUSPENDED,
        run=found.run,
        started=0.0,
        suspended_at=found.elapsed,
        prepared=found.run.tools,
        batch=found.batch,
        charged=True,
        announced=bool(held),
        grants=frozenset(found.grants),
        approved=frozenset(found.approved),
        pending=found.pending,
        held=FrozenDict(held),
        call_index=CallIndex(found.run.messages),
        instructions=found.instructions,
        conversation=found.conversation,
    )
    return state, Log.resume(*found.tails)


def _held(one: HeldBelow, found: Snapshot, setup: Setup, allow_changed: frozenset[str]) -> Held:
    """Return a call that is not settled; a sub-agent that waits is attached to its agent."""
    if one.snapshot is None:
        return Held(None, one.allowance, one.earlier, one.extra, one.runs)
    call = next((call for call in found.batch if call.id == one.call_id), None)
    function = call.tool.function if call is not None else None
    if not isinstance(function, RunBelow):
        raise CodecError(f"names the call {one.call_id!r}, which runs no sub-agent", "$.value.held")
    state, _ = read_snapshot(one.snapshot, function.setup_under(setup), allow_changed=allow_changed)
    above = (state.run.parent_run_id, state.run.root_run_id)
    if above != (found.run.run_id, found.run.root_run_id):
        raise CodecError(
            f"has run {state.run.run_id!r} for the call {one.call_id!r}, which is below {above[0]!r} in the tree of "
            f"{above[1]!r}, not below {found.run.run_id!r} in that of {found.run.root_run_id!r}",
            "$.value.held",
        )
    return Held(state, one.allowance, one.earlier, one.extra, one.runs)


def _refuse_another(agent: object, model: object, setup: Setup) -> None:
    """Raise ValueError for a snapshot of another agent."""
    if agent != setup.name or model != setup.model.name:
        raise ValueError(
            f"the snapshot is of agent {agent!r} with model {model!r}; "
            f"this is {setup.name!r} with {setup.model.name!r}"
        )


def _refuse_named(text: str, setup: Setup) -> None:
    """Raise ValueError for a text that cannot be read, and says of itself that it is of another agent."""
    try:
        value = json.loads(text)["value"]
        agent, model = value["agent"], value["model"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return  # it is no snapshot at all
    if isinstance(agent, str) and isinstance(model, str):
        _refuse_another(agent, model, setup)


def _digest(written: object) -> str:
    """Return the digest of a snapshot as JSON, its own field left out."""
    assert isinstance(written, dict)
    return digest({name: value for name, value in written.items() if name != "digest"})


def check_batch(found: Snapshot) -> None:
    """Raise CodecError unless batch and questions are those of the history's open calls, each of them once."""
    response, answered = open_calls(found.run)
    asked = response.tool_calls[answered:] if response is not None else ()
    if tuple(call.asked for call in found.batch) != asked or any(
        call.index != i for i, call in enumerate(found.batch)
    ):
        raise CodecError("is not the open calls of the history, in their order", "$.value.batch")
    if found.held:
        held = {one.call_id: one.snapshot is not None for one in found.held}
        calls = {call.id: call.outcome is None for call in found.batch}
        if len(held) != len(found.held) or any(calls.get(name) is not waits for name, waits in held.items()):
            raise CodecError("is not calls of the history, each once, open where they wait", "$.value.held")
        return
    open_ids = {call.id for call in found.batch if call.outcome is None and call.verdict.approval}
    ids = [request.call_id for request in found.pending]
    if not ids or len(set(ids)) != len(ids) or not open_ids.issuperset(ids):
        raise CodecError("is not one question for each call that waits for a decision", "$.value.pending")


def refuse_changed(before: "FrozenDict[Json] | dict[str, str]", now: object, allowed: frozenset[str]) -> None:
    """Raise ValueError naming each capability that was dropped, added or configured otherwise, unless allowed."""
    assert isinstance(now, dict)
    said: list[str] = []
    for key in sorted({*before, *now} - allowed):
        if key not in now:
            said.append(f"{key} is gone")
        elif key not in before:
            said.append(f"{key} is new")
        elif before[key] != now[key]:
            said.append(f"{key} is configured otherwise")
    if said:
        raise ValueError(
            f"the capability list changed since the run was suspended: {'; '.join(said)}. "
            "Restore it, or name the keys in allow_changed"
        )


class _SlotTypes(dict[str, object]):
    """Types by key. A slot of a capability that is gone is read as JSON; `refuse_changed` says whether it may be."""

    def __missing__(self, key: str) -> object:
        return Json


def _converter(setup: Setup) -> "Codec":
    from .codec import make_converter  # noqa: PLC0415  # late_codec says why

    return make_converter(
        tools=setup.by_name,
        slot_types=_SlotTypes(
            {key: state_type(type(member)) or Json for key, member in setup.plan.members.items()}
        ),
        models={setup.model.name: setup.model},
    )
