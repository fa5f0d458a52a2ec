"""A durable run from its order to its end: driven, waiting for people, driven on, on whichever worker has it.

This is what an engine calls, again each time that a run is carried on. Knows no engine.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from attrs import evolve, frozen

from ..capabilities.frozen import FrozenDict, FrozenList, Json, digest
from ..capabilities.messages import Content
from ..capabilities.run_parts import Stop
from . import machine
from .agent import Agent
from .approving import check_decisions, decision_list, match
from .below import Spent
from .codec import from_json, to_json
from .decisions import ApprovalRequest, Approve, Decision, Deny, Edit
from .durable_batch import INTERRUPTED, Batches
from .durable_children import Children
from .durable_driver import DurableDriver
from .durable_engine import Engine, Policy, policy_of
from .durable_journal import Journal, put_aside, taken_back
from .durable_order import begun, place_of
from .errors import DecisionError, run_error
from .event_codec import dumps, put_decisions
from .event_parts import JsonObject, get, json_object, put_broken, put_spent
from .following import Follower
from .invoke import NotPortable, as_result
from .log import Log
from .outbox import Outbox
from .phases import AskApproval, Broken, Decided, Event, Finish, Interrupted, Suspend, Undecided
from .recorder import Recorder
from .result import RunResult, result_of
from .session import Session
from .work import Work

GRACE = 2.0


@frozen(eq=False)
class Worker:
    """What carries durable runs on in a process: the agent, and what becomes of calls that were interrupted."""

    agent: Agent[Any]  # Any: of every output type
    on_interrupted: Policy = "unknown"


class Carried(NamedTuple):
    """What a run came to: as its caller sees it, and why it failed where it did."""

    result: RunResult[object]
    end: Finish


async def carry(engine: Engine, worker: Worker, text: str) -> Carried:
    """Carry a run on to its end: from its order, or from wherever its records end.

    Raises what the engine does; cancelled, nothing is recorded, and another worker goes on.
    """
    order = await taken_back(engine, text)
    return await DurableRun(engine, worker, order).carried()


async def carry_below(engine: Engine, worker: Worker, text: str) -> str:
    """Carry a run on as `carry` does; return what it came to as the run above takes it: see `Engine.child`."""
    return await put_aside(engine, dumps(told(await carry(engine, worker, text))))


class DurableRun:
    """One run on one worker."""

    def __init__(self, engine: Engine, worker: Worker, order: JsonObject) -> None:
        """Take where it is recorded, what it is driven with, and what it began with."""
        self.engine = engine
        self.place = place = place_of(worker.agent, order)
        self.order = order
        root = worker.agent.given
        self.log = Log()
        self.journal = Journal(engine, Recorder(self.log, root.sinks))
        self.port = root.port
        self.store = place.given.store if place.is_root else None
        self.follower: Follower | None = None
        if order["live"] is True:  # else nobody is shown anything, and nothing is paid for it
            prompt = order["prompt"]
            content = None if prompt is None else from_json(prompt, cast("type[Content]", Content))
            self.follower = Follower(Outbox(self.journal), place.setup.plan, content)
        self.batches = Batches(policy_of(worker.on_interrupted), self._decide, sinked=bool(root.sinks))

    async def carried(self) -> Carried:
        """Drive it to its end."""
        moved = begun(self.place, self.order, self.engine.run_id)
        while True:
            waits = None if self.place.is_root else self._waited
            driver = DurableDriver(moved, self.journal, self._session, self.batches, waits)
            state, end = await driver.drive()
            if isinstance(end, Suspend):
                moved = await self._resumed(driver, end)
                continue
            problem = await driver.flush("end")
            if problem is not None:
                end = driver.unwritten(problem)
            return Carried(result_of(state, end, self.log), end)

    def _session(self, again: int) -> Session:
        place, interrupts = self.place, self.engine.control
        return Session(
            place.setup,
            self.port,
            place.deps,
            self.journal.recorder,
            approver=place.approver,
            patience=interrupts.patience,
            follower=self.follower,
            store=self.store,
            children=Children(self.engine, self.order, interrupts.is_cut),
            again=again,
        )

    async def _resumed(self, driver: DurableDriver, end: Suspend) -> machine.Moved:
        """Wait until somebody decides, or stops the run; return its next move."""
        state = driver.state
        while True:
            message = await self._message(driver, end.requests, end.why)
            now = cast(float, message["at"])
            if "stop" in message:
                return machine.feed(state, self._stopped(message, now))
            try:
                return machine.resume(state, match(end.requests, decisions_in(message, end.requests)), now)
            except DecisionError:
                continue  # who sent it was told; it fits nothing that is asked here

    async def _waited(self, driver: DurableDriver, effect: AskApproval, event: Undecided) -> Event:
        """Wait until somebody decides for a run below, or stops it; the step of the run above waits for it."""
        while True:
            message = await self._message(driver, effect.requests, event.why)
            now = cast(float, message["at"])
            if "stop" in message:
                return self._stopped(message, now)
            try:
                decisions = match(effect.requests, decisions_in(message, effect.requests))
                check_decisions(Work(driver.state, now), decisions)
            except DecisionError:
                continue
            return Decided(now, decisions)

    async def _decide(
        self, driver: DurableDriver, requests: tuple[ApprovalRequest, ...]
    ) -> tuple[Decision, ...]:
        """Let the approver, or whoever sends decisions, decide what becomes of interrupted calls."""
        if self.place.approver is not None:
            approver = self.place.approver

            async def act(attempt: int) -> JsonObject:
                try:
                    answer = decision_list(await self.port.ask(approver, requests, None))
                    given = dict(zip([request.digest for request in requests], answer, strict=True))
                    decided = checked(requests, given)
                except Exception as error:  # noqa: BLE001  # an approver is the user's; then a person is waited for
                    return FrozenDict({"decisions": None, "why": f"{type(error).__name__}: {error}"})
                return FrozenDict({"decisions": put_decisions(decided)})

            found = await self.journal.once(driver.key("ask"), act)
            if found["decisions"] is not None:
                return tuple(
                    [
                        get(one, cast("type[Decision]", Decision))
                        for one in cast(FrozenList, found["decisions"])
                    ]
                )
        while True:
            message = await self._message(driver, requests, "a call was interrupted")
            if "stop" in message:  # the calls stay unknown; the run ends at its next effect
                stop = None if message["stop"] is None else get(message["stop"], Stop)
                if stop is None:
                    self.engine.control.cancel()
                else:
                    self.engine.control.ask(stop.message, GRACE)
                return (Deny(),) * len(requests)
            try:
                return checked(requests, decisions_in(message, requests))
            except DecisionError:
                continue

    def _stopped(self, message: JsonObject, now: float) -> Interrupted:
        """Return the stop that a message is; it is on record now, and not to be taken again."""
        self.engine.control.settle()
        stop = None if message["stop"] is None else get(message["stop"], Stop)
        return Interrupted(now, stop=stop)

    async def _message(
        self, driver: DurableDriver, requests: Sequence[ApprovalRequest], why: str
    ) -> JsonObject:
        topic = driver.key("wait")
        asked = json_object(topic=topic, why=why, requests=FrozenList([to_json(one) for one in requests]))
        return await taken_back(self.engine, await self.engine.wait(topic, dumps(asked)))


def checked(requests: tuple[ApprovalRequest, ...], decisions: Mapping[str, Decision]) -> tuple[Decision, ...]:
    """Return the decisions on interrupted calls. Raises DecisionError for one that does not fit."""
    found = match(requests, decisions)
    for request, decision in zip(requests, found, strict=True):
        if isinstance(decision, Edit) or (isinstance(decision, Approve) and decision.always):
            raise DecisionError(
                "an interrupted call is run again as it was (Approve()), left unknown (Deny()), or answered "
                f"(Answer(...)); not {type(decision).__name__}",
                request.digest,
            )
    return found


def matched(requests: tuple[ApprovalRequest, ...], decisions: Mapping[str, Decision]) -> tuple[Decision, ...]:
    """Return the decisions on what a run waits for, as far as they can be checked without its agent.

    Raises DecisionError for one that does not fit.
    """
    interrupted = all(request.asked_by == INTERRUPTED for request in requests)
    return checked(requests, decisions) if interrupted else match(requests, decisions)


def decisions_in(message: JsonObject, requests: Sequence[ApprovalRequest]) -> dict[str, Decision]:
    """Return the decisions of a message, by digest.

    A run that was forked finds what was decided in the run before it on the same questions, whose digests were others.
    """
    given = cast(JsonObject, message["decisions"])
    own = {_question(request): request.digest for request in requests}
    asked = cast(JsonObject, message.get("asked", FrozenDict()))
    return {
        own.get(cast(str, asked.get(key)), key): from_json(one, cast("type[Decision]", Decision))
        for key, one in given.items()
    }


def decisions_message(
    decisions: Mapping[str, Decision], now: float, requests: Sequence[ApprovalRequest] = ()
) -> str:
    """Return the message that carries decisions to a run that waits; `requests`: what they are decisions on."""
    given = json_object(**{key: to_json(one, type=Decision) for key, one in decisions.items()})
    asked = json_object(**{request.digest: _question(request) for request in requests})
    return dumps(json_object(decisions=given, asked=asked, at=now))


def _question(request: ApprovalRequest) -> str:
    """Return what a request asks, whichever run it is of."""
    return digest(to_json(evolve(request, run_id="", digest="")))


def stop_message(stop: Stop | None, now: float) -> str:
    """Return the message that ends a run that waits: by a stop, or as a cancelled one."""
    return dumps(FrozenDict({"stop": None if stop is None else to_json(stop), "at": now}))


def told(carried: Carried) -> JsonObject:
    """Return what a run came to as JSON: `durable_children.Told` reads it."""
    result, end = carried
    run = end.run
    content: Json = None
    problem: str | None = None
    if end.reason is None:
        try:
            output = run.stopped.message if run.stopped is not None else run.output
            content = to_json(as_result(output), type=Content)
        except NotPortable as error:
            problem = f"{error}"
    return FrozenDict(
        {
            "status": run.status,
            "content": content,
            "problem": problem,
            "reason": put_broken(None if end.reason is None else Broken(end.reason)),
            "spent": put_spent(Spent.by(run)),
            "records": FrozenList([FrozenDict(record.to_dict()) for record in result.log]),
        }
    )


def outcome_of(carried: Carried) -> RunResult[object]:
    """Return the result of a run. Raises RunError when it failed."""
    if carried.end.reason is not None:
        raise run_error(carried.end.reason, carried.result, carried.end.cause)
    return carried.result
