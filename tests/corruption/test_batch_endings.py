"""C45: a batch of three that ends early, at every point and in every way, leaves one outcome per call.

The oracle of each case: a body that ended is `succeeded`, one that began and did not end `unknown`, one that
never began `not_executed`; in the history, and for those that began in the log too.
"""

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from capfold.capabilities import AssistantMessage, CallNext, CallState, Capability, Message, call, hook
from capfold.capabilities.verdict import NOT_RUN_NOTE
from capfold.runtime import (
    Agent,
    ApprovalRequest,
    Approve,
    AuditRecord,
    Blocked,
    HookFailed,
    LimitExceeded,
    Limits,
    Log,
    ModelRequest,
    RunResult,
    ScriptedModel,
)
from capfold.runtime.ending import WITHHELD
from capfold.runtime.errors import Reason
from capfold.runtime.tool_onion import UNKNOWN_NOTE
from tests.corruption.scenes import (
    TOOL_REDUCERS,
    Action,
    Works,
    at,
    batch,
    cancelled,
    check_closed,
    contents,
    failed,
    hook_of,
    kinds,
    of_kind,
    settled,
    statuses,
)

PLACES = (0, 1, 2)
UNBOUND = Limits()


def agent_of(works: Works, *capabilities: Capability, limits: Limits = UNBOUND, **options: Any) -> Agent[str]:
    """Return an agent whose model asks for three calls, then says done."""

    async def done(request: ModelRequest) -> str:
        await anyio.lowlevel.checkpoint()  # where a cancellation takes effect
        return "done"

    model = ScriptedModel([batch(0, 1, 2), done])
    return Agent("desk", model, tools=[works.tool(**options)], capabilities=capabilities, limits=limits)


def only(place: int, action: Action) -> Action:
    """Do the action for one call of the batch, leave the others."""

    def act(call: CallState) -> Any:
        return action(call) if call.index == place else call

    return act


def raising(record: Any) -> Any:
    """Raise as a hook with a bug does."""
    raise RuntimeError("bug")


def stopping(record: Any) -> Any:
    """Stop the run."""
    return record.stop("enough")


def failing(record: Any) -> Any:
    """Fail the run."""
    return record.fail("not so")


def check_outcomes(works: Works, messages: tuple[Message, ...], records: "Log | list[AuditRecord]") -> None:
    """Each call has one outcome, the one that the bodies tell; what ran is on record with it."""
    check_closed(messages)
    expected = {f"c{n}": oracle(works, n) for n in PLACES}
    assert expected == statuses(messages)
    assert {key: status for key, status in expected.items() if status != "not_executed"} == {
        key: status for key, status in settled(records).items() if status != "not_executed"
    }
    assert kinds(records).count("run_ended") == 1


def oracle(works: Works, n: int) -> str:
    """Return the status of the call whose body is number `n`."""
    return "succeeded" if n in works.ended else "unknown" if n in works.began else "not_executed"


def check_reason(reason: Reason, kind: type[Reason], hook: str, place: int) -> None:
    """The reason names capability, hook and call."""
    assert kind is type(reason)
    assert ("Actor", hook, f"c{place}") == (reason.key, reason.hook, reason.call)


# --- reducers


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("point", TOOL_REDUCERS)
async def test_c45_stop_in_a_tool_reducer(point: str, place: int) -> None:
    """Calls before a stopping one run, it and the rest do not; stopped after the effect, all have run."""
    works = Works()
    agent = agent_of(works, at(point, only(place, stopping)))
    result = await agent.run("go")
    assert "stopped" == result.status
    assert result.stop is not None
    assert ("enough", "Actor", point, f"c{place}") == (
        result.stop.message,
        result.stop.key,
        result.stop.hook,
        result.stop.call_id,
    )
    assert list(range(3 if point == "after_tool_execute" else place)) == sorted(works.ended)
    check_outcomes(works, result.messages, result.log)
    assert {f"did {n}" if n in works.ended else NOT_RUN_NOTE for n in PLACES} == set(
        contents(result.messages).values()
    )
    assert 1 == result.requests


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("action", "kind"), [(raising, HookFailed), (failing, Blocked)])
@pytest.mark.parametrize("point", TOOL_REDUCERS)
async def test_c45_failure_in_a_tool_reducer(
    point: str, action: Action, kind: type[Reason], place: int
) -> None:
    """Before the tools nothing of the batch runs; after them effects stay, unseen content is withheld."""
    works = Works()
    error = await failed(agent_of(works, at(point, only(place, action))))
    check_reason(error.reason, kind, point, place)
    assert error.partial is not None
    assert "failed" == error.partial.status
    check_outcomes(works, error.partial.messages, error.partial.log)
    if point == "after_tool_execute":
        assert [0, 1, 2] == sorted(works.ended)
        assert [f"did {n}" if n < place else WITHHELD for n in PLACES] == list(
            contents(error.partial.messages).values()
        )
    else:
        assert [] == works.began
    assert 1 == error.partial.requests


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("point", TOOL_REDUCERS)
async def test_c45_cancel_in_a_tool_reducer(point: str, place: int) -> None:
    """Cancellation takes effect at the next effect: nothing that a body did is lost."""
    works = Works(lambda n: anyio.lowlevel.checkpoint())
    scope = anyio.CancelScope()

    def cancel(record: Any) -> Any:
        scope.cancel()
        return record

    state, log = await cancelled(agent_of(works, at(point, only(place, cancel))), scope)
    assert "cancelled" == state.status == of_kind(log, "run_ended")[0].facts["status"]
    check_outcomes(works, state.messages, log)
    assert ([0, 1, 2] if point == "after_tool_execute" else []) == sorted(works.ended)


# --- wrappers


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("point", ["wrap_tool_execute:in", "wrap_tool_execute:out"])
async def test_c45_stop_in_a_tool_wrapper(point: str, place: int) -> None:
    """A wrapper that stops and goes on ends the run after the batch."""
    works = Works()
    result = await agent_of(works, at(point, only(place, stopping))).run("go")
    assert "stopped" == result.status
    assert result.stop is not None
    assert ("Actor", "wrap_tool_execute", f"c{place}") == (
        result.stop.key,
        result.stop.hook,
        result.stop.call_id,
    )
    assert [0, 1, 2] == sorted(works.ended)
    check_outcomes(works, result.messages, result.log)
    assert 1 == result.requests


@pytest.mark.parametrize("place", PLACES)
async def test_c45_stop_in_place_of_call_next(place: int) -> None:
    """A wrapper that stops without going on: its own body did not run, those of the others did."""
    works = Works()

    async def stop(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        return call.stop("enough") if call.index == place else await call_next(call)

    result = await agent_of(works, hook.wrap_tool_execute(stop)).run("go")
    assert "stopped" == result.status
    assert [n for n in PLACES if n != place] == sorted(works.ended)
    check_outcomes(works, result.messages, result.log)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("action", "kind"), [(raising, HookFailed), (failing, Blocked)])
@pytest.mark.parametrize("point", ["wrap_tool_execute:in", "wrap_tool_execute:out"])
async def test_c45_failure_in_a_tool_wrapper(
    point: str, action: Action, kind: type[Reason], place: int
) -> None:
    """The calls beside it are not torn down; a body that ran is on record, whatever its wrapper did then."""
    works = Works(lambda n: anyio.lowlevel.checkpoint())
    error = await failed(agent_of(works, at(point, only(place, action))))
    check_reason(error.reason, kind, "wrap_tool_execute", place)
    assert error.partial is not None
    raised_before = action is raising and point.endswith(":in")
    assert [n for n in PLACES if n != place or not raised_before] == sorted(works.ended)
    check_outcomes(works, error.partial.messages, error.partial.log)
    assert 1 == error.partial.requests


@pytest.mark.parametrize("limit", [1, None])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("side", ["before", "after"])
async def test_c45_cancel_in_a_tool_wrapper(side: str, place: int, limit: int | None) -> None:
    """Cancelled before its body: not executed. After it: succeeded, though the wrapper never returned."""
    works = Works()
    scope = anyio.CancelScope()

    async def cut(call: CallState) -> None:
        if call.index == place:
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
        if limit is None or call.index == place:
            await anyio.sleep_forever()

    async def wrapper(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        if side == "before":
            await cut(call)
        done = await call_next(call)
        if side == "after":
            await cut(call)
        return done

    limits = Limits(max_parallel_tools=limit)
    state, log = await cancelled(agent_of(works, hook.wrap_tool_execute(wrapper), limits=limits), scope)
    assert "cancelled" == state.status
    begun = list(range(place + (side == "after"))) if limit else list(PLACES) if side == "after" else []
    assert begun == sorted(works.ended)
    check_outcomes(works, state.messages, log)


async def test_c45_cancel_between_two_attempts_keeps_what_is_known() -> None:
    """A second body run that is cut short makes the outcome unknown; both runs are charged and on record."""
    scope = anyio.CancelScope()

    async def body(n: int) -> None:
        if works.began.count(1) == 2:
            scope.cancel()
        await anyio.lowlevel.checkpoint()

    works = Works(body)

    async def twice(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        first = await call_next(call)
        return await call_next(call) if call.index == 1 else first

    agent = agent_of(works, hook.wrap_tool_execute(twice), limits=Limits(max_parallel_tools=1))
    state, log = await cancelled(agent, scope)
    assert [0, 1, 1] == works.began
    assert {"c0": "succeeded", "c1": "unknown", "c2": "not_executed"} == statuses(state.messages)
    assert {"c0": "succeeded", "c1": "unknown", "c2": "not_executed"} == settled(log)
    assert 4 == state.tool_calls
    second: Any = of_kind(log, "tool_settled")[1].facts
    assert (2, 1) == (second["outcome"]["attempts"], second["extra"])


# --- bodies


@pytest.mark.parametrize("place", PLACES)
async def test_c45_a_body_that_raises_ends_no_run(place: int) -> None:
    """The effect may have happened: unknown, said to the model, and the run goes on."""

    async def body(n: int) -> None:
        if n == place:
            raise RuntimeError("bug")

    works = Works(body)
    result = await agent_of(works).run("go")
    assert "completed" == result.status
    check_outcomes(works, result.messages, result.log)
    assert "RuntimeError: bug" == contents(result.messages)[f"c{place}"]


@pytest.mark.parametrize("place", PLACES)
async def test_c45_a_body_that_takes_too_long_ends_no_run(place: int) -> None:
    """A timeout is the outcome of one call, unknown; the others are not touched."""
    works = Works(lambda n: anyio.sleep_forever() if n == place else anyio.lowlevel.checkpoint())
    result = await agent_of(works, timeout=0.05).run("go")
    assert "completed" == result.status
    check_outcomes(works, result.messages, result.log)
    assert [n for n in PLACES if n != place] == sorted(works.ended)


@pytest.mark.parametrize("limit", [1, None])
@pytest.mark.parametrize("place", PLACES)
async def test_c45_cancel_in_a_body(place: int, limit: int | None) -> None:
    """Cut in the middle: unknown; those that ended keep their outcome, those not begun had no effect."""
    scope = anyio.CancelScope()

    async def body(n: int) -> None:
        if n == place:
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            await anyio.sleep_forever()

    works = Works(body)
    agent = agent_of(works, limits=Limits(max_parallel_tools=limit))
    state, log = await cancelled(agent, scope)
    assert ([*range(place + 1)] if limit else [0, 1, 2]) == sorted(works.began)
    check_outcomes(works, state.messages, log)
    unknown = next(m for m in state.messages if getattr(m, "call_id", "") == f"c{place}")
    assert unknown.content in {UNKNOWN_NOTE, WITHHELD}
    assert [f"c{n}" for n in PLACES] == [record.call for record in of_kind(log, "tool_started")]


@pytest.mark.parametrize("place", PLACES)
async def test_c45_the_deadline_in_a_body(place: int) -> None:
    """The deadline cuts a body as cancellation does, and the run fails by the limit."""
    works = Works(lambda n: anyio.sleep_forever() if n == place else anyio.lowlevel.checkpoint())
    limits = Limits(deadline=0.3, max_parallel_tools=1, tool_timeout=None)
    error = await failed(agent_of(works, limits=limits))
    assert isinstance(error.reason, LimitExceeded)
    assert "deadline" == error.reason.limit
    assert error.partial is not None
    assert [*range(place + 1)] == works.began
    check_outcomes(works, error.partial.messages, error.partial.log)


# --- gatherers


class GatherAdmit(Capability):
    """Has `outside.deps` act in the gatherer of one call, before the batch runs."""

    async def gather_admit_tool_execute(self, call: CallState, outside: Any) -> Any:
        return await outside.deps(call.index)


class GatherAfter(Capability):
    """Has `outside.deps` act in the gatherer of one call, after the batch ran."""

    async def gather_after_tool_execute(self, call: CallState, outside: Any) -> Any:
        return await outside.deps(call.index)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", ["raise", "timeout"])
@pytest.mark.parametrize("gatherer", [GatherAdmit(), GatherAfter()], ids=lambda found: found.key)
async def test_c45_a_gatherer_that_fails(gatherer: Capability, how: str, place: int) -> None:
    """A fact that does not come fails the run by name: nothing ran, or what ran stays, content withheld."""

    async def act(index: int) -> None:
        if index == place:
            if how == "raise":
                raise RuntimeError("bug")
            await anyio.sleep_forever()

    works = Works()
    error = await failed(agent_of(works, gatherer, limits=Limits(tool_timeout=0.1)), deps=act)
    reason = error.reason
    assert isinstance(reason, HookFailed)
    (name,) = (n for n in vars(type(gatherer)) if n.startswith("gather_"))
    assert (gatherer.key, name, f"c{place}") == (reason.key, reason.hook, reason.call)
    assert {"raise": "RuntimeError", "timeout": "TimeoutError"}[how] == reason.error
    assert error.partial is not None
    assert ([0, 1, 2] if isinstance(gatherer, GatherAfter) else []) == sorted(works.ended)
    check_outcomes(works, error.partial.messages, error.partial.log)
    if works.ended:
        assert {WITHHELD} == set(contents(error.partial.messages).values())


# --- limits


async def test_c45_a_batch_over_the_limit() -> None:
    """Nothing of it runs, nothing of it is charged, no tool hook sees it."""
    works = Works()
    seen: list[str] = []

    def note(record: Any) -> Any:
        seen.append(record.id)
        return record

    error = await failed(
        agent_of(works, *(at(point, note, point) for point in TOOL_REDUCERS), limits=Limits(tool_calls=2))
    )
    assert isinstance(error.reason, LimitExceeded)
    assert ("tool_calls", 3, 2) == (error.reason.limit, error.reason.used, error.reason.allowed)
    assert error.partial is not None
    assert ([], [], 0) == (works.began, seen, error.partial.tool_calls)
    check_outcomes(works, error.partial.messages, error.partial.log)


@pytest.mark.parametrize("place", PLACES)
async def test_c45_a_share_that_is_spent(place: int) -> None:
    """A wrapper that runs its body beyond the share ends the run, even if it hides that; all effects stay."""
    works = Works()

    async def twice(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        done = await call_next(call)
        if call.index == place:
            try:
                await call_next(call)
            except Exception:  # noqa: BLE001  # a wrapper that swallows everything
                return done
        return done

    agent = agent_of(works, hook.wrap_tool_execute(twice), limits=Limits(tool_calls=3))
    error = await failed(agent)
    assert isinstance(error.reason, LimitExceeded)
    assert ("tool_calls", 3, 0, f"c{place}") == (
        error.reason.limit,
        error.reason.allowed,
        error.reason.share,
        error.reason.call,
    )
    assert error.partial is not None
    assert [0, 1, 2] == sorted(works.began)
    assert 3 == error.partial.tool_calls
    check_outcomes(works, error.partial.messages, error.partial.log)


@pytest.mark.parametrize("limits", [Limits(requests=1), Limits(max_steps=1)], ids=["requests", "max_steps"])
async def test_c45_a_limit_after_the_batch(limits: Limits) -> None:
    """The next request is refused; the batch before it is whole, content and all."""
    works = Works()
    error = await failed(agent_of(works, limits=limits))
    assert isinstance(error.reason, LimitExceeded)
    assert error.partial is not None
    assert ["did 0", "did 1", "did 2"] == list(contents(error.partial.messages).values())
    check_outcomes(works, error.partial.messages, error.partial.log)


# --- while a person is asked


@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_c45_cut_short_while_a_person_thinks(how: str) -> None:
    """Nothing of the batch has run, and the history says so."""
    works = Works()
    scope = anyio.CancelScope()

    async def approver(requests: tuple[ApprovalRequest, ...]) -> list[Approve]:
        if how == "cancel":
            scope.cancel()
        await anyio.sleep_forever()
        return []

    ask = at("admit_tool_execute", only(1, lambda call: call.require_approval("Sure?")))
    if how == "cancel":
        state, log = await cancelled(agent_of(works, ask), scope, approver)
        messages, records = state.messages, log
    else:
        error = await failed(agent_of(works, ask, limits=Limits(deadline=0.1)), approver=approver)
        assert isinstance(error.reason, LimitExceeded)
        assert error.partial is not None
        messages, records = error.partial.messages, error.partial.log
    assert [] == works.began
    check_outcomes(works, messages, records)


# --- run hooks around the batch


def first(action: Action) -> Action:
    """Do the action in the step whose response holds the batch."""
    return lambda run: action(run) if run.run_step == 1 else run


def second(action: Action) -> Action:
    """Do the action in the step after the batch."""
    return lambda run: action(run) if run.run_step == 2 else run


AROUND = [
    ("after_model_request", first),
    ("before_model_request", second),
    ("wrap_model_request:in", second),
    ("wrap_model_request:out", second),
    ("after_model_request", second),
    ("after_run", second),
    ("wrap_run:out", second),
]


@pytest.mark.parametrize("action", [stopping, failing, raising])
@pytest.mark.parametrize(("point", "when"), AROUND, ids=[f"{p}-{w.__name__}" for p, w in AROUND])
async def test_c45_run_hooks_before_and_after_the_batch(point: str, when: Any, action: Action) -> None:
    """Before the batch no body runs; after it nothing takes back what ran."""
    works = Works()
    agent = agent_of(works, at(point, when(action)))
    partial: RunResult[Any] | None
    if action is stopping:
        partial = await agent.run("go")
        assert "stopped" == partial.status
        assert partial.stop is not None
        assert ("Actor", hook_of(point)) == (partial.stop.key, partial.stop.hook)
    else:
        error = await failed(agent)
        assert (Blocked if action is failing else HookFailed) is type(error.reason)
        assert ("Actor", hook_of(point)) == (error.reason.key, error.reason.hook)
        partial = error.partial
    assert partial is not None
    assert ([] if when is first else [0, 1, 2]) == sorted(works.ended)
    check_outcomes(works, partial.messages, partial.log)
    assert ("enough" if action is stopping else None) == partial.output
    replies = [message.content for message in partial.messages if isinstance(message, AssistantMessage)]
    seen = point == "wrap_run:out" and action is raising
    if action is stopping and point in {
        "after_model_request",
        "wrap_model_request:in",
        "wrap_model_request:out",
    }:
        assert ["", "done"][: partial.steps] == replies
    elif point == "before_model_request" or (point.startswith("wrap_model") and action is raising):
        assert [""] == replies
    else:
        assert ([WITHHELD] if when is first else ["", "done" if seen else WITHHELD]) == replies


async def test_c45_the_next_run_reads_the_closed_history() -> None:
    """A history that was cut short can be continued: the model gets each call with its one outcome."""
    works = Works()
    error = await failed(agent_of(works, at("admit_tool_execute", only(1, raising))))
    assert error.partial is not None
    model = ScriptedModel([call("work", {"n": 7}, id="c1"), "done"])
    result = await Agent("desk", model, tools=[works.tool()]).run("again", messages=error.partial.messages)
    assert "completed" == result.status
    check_closed(result.messages)
    assert [7] == works.ended
    renamed: Any = of_kind(result.log, "note")[0].facts["renamed_calls"]
    assert ["c1"] == list(renamed)
