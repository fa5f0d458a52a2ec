"""The machine, driven by hand: start and feed, without an event loop, a port or a driver."""

import json
import pickle
from collections.abc import Sequence

import pytest
from attrs import evolve

from capfold.capabilities import (
    AssistantMessage,
    Outcome,
    RequireApproval,
    ToolBudget,
    Usage,
    UserMessage,
    call,
    hook,
)
from capfold.capabilities.call_state import CallState
from capfold.capabilities.records import replace
from capfold.capabilities.state import RunState
from capfold.runtime import Approve, DecisionError, Deny, Edit, Limits
from capfold.runtime.audit import encode
from capfold.runtime.entries import Entry
from capfold.runtime.machine import Moved, feed, start
from capfold.runtime.phases import (
    AskApproval,
    CallResult,
    Decided,
    Effect,
    Event,
    Executed,
    Finish,
    Interrupted,
    Phase,
    RequestModel,
    Responded,
    RunTools,
    Suspend,
    Undecided,
)
from capfold.runtime.tool_onion import unknown
from capfold.runtime.work import MachineState
from tests.runtime.desk import Observer, begin, check_closed, make, results

FREE = Usage(input_tokens=0, output_tokens=0)


def answer(effect: Effect, *calls: object, text: str = "") -> Responded:
    """Return the event of a model that answered a request."""
    assert isinstance(effect, RequestModel)
    message = AssistantMessage(text, tool_calls=calls, usage=FREE)  # type: ignore[arg-type]  # calls, as given
    return Responded(101.0, effect.run, message, 1, (evolve(message, usage=FREE),))


def ran(effect: Effect) -> Executed:
    """Return the event of tools that all succeeded."""
    assert isinstance(effect, RunTools)
    done = [
        replace(call, outcome=Outcome("succeeded", f"did {call.name}", attempts=1)) for call in effect.calls
    ]
    return Executed(102.0, tuple(CallResult(call, effect.run) for call in done))


def bodies(entries: Sequence[Entry]) -> list[object]:
    """Return entries as the log would hold them."""
    return [encode(entry) for entry in entries]


def state_of(state: MachineState) -> dict[str, object]:
    """Return what of a state can be compared."""
    names = ("phase", "run", "batch", "grants", "approved", "pending", "started", "prepared", "judge_from")
    return {name: getattr(state, name) for name in names}


def twice(state: MachineState, event: Event) -> Moved:
    """Feed the same event twice; both results are equal, and the state that was fed is as before."""
    before = state_of(state)
    one, other = feed(state, event), feed(state, event)
    assert before == state_of(state)
    assert state_of(one[0]) == state_of(other[0])
    assert type(one[1]) is type(other[1])
    assert bodies(one[2]) == bodies(other[2])
    return other


def test_whole_run_by_hand() -> None:
    """A run needs nothing but start and feed; each move is repeatable and leaves its input alone."""
    agent = make(capabilities=[Observer(), ToolBudget(5)])
    state, effect, entries = begin(agent)
    assert ["run_started", "step_started", "model_requested"] == [entry.kind for entry in entries]
    state, effect, _ = twice(state, answer(effect, call("look", {"n": 1}), call("pay", {"amount": 2})))
    assert Phase.EXECUTING is state.phase
    assert isinstance(effect, RunTools)
    assert ["call_1_0", "call_1_1"] == [made.id for made in effect.calls]
    state, effect, _ = twice(state, ran(effect))
    assert Phase.REQUESTING is state.phase
    state, effect, entries = twice(state, answer(effect, text="bye"))
    assert isinstance(effect, Finish)
    assert ("completed", "bye", 2, 2) == (
        effect.run.status, effect.run.output, effect.run.requests, effect.run.tool_calls
    )  # fmt: skip
    check_closed(effect.run.messages)
    assert "run_ended" == entries[-1].kind


def test_state_between_events_is_data() -> None:
    """Two runs may be interleaved on one setup: nothing is shared that matters."""
    agent = make()
    one, one_effect, _ = begin(agent, "one")
    other, other_effect, _ = begin(agent, "other")
    one, one_effect, _ = feed(one, answer(one_effect, call("look", {"n": 1}, id="x")))
    other, other_effect, _ = feed(other, answer(other_effect, call("look", {"n": 2}, id="x")))
    one, one_effect, _ = feed(one, ran(one_effect))
    other, other_effect, _ = feed(other, ran(other_effect))
    assert ["x", "x"] == [state.run.messages[2].call_id for state in (one, other)]  # type: ignore[union-attr]  # the scripted run makes it this kind


def test_a_state_can_be_gone_on_from_twice() -> None:
    """From one state two different futures: the second does not see the first."""
    state, effect, _ = begin(make())
    left, _, _ = feed(state, answer(effect, call("look", {"n": 1}, id="x")))
    right, right_effect, _ = feed(state, answer(effect, call("pay", {"amount": 1}, id="x")))
    assert "look" == left.batch[0].name
    assert isinstance(right_effect, RunTools)
    assert ("x", "pay") == (right.batch[0].id, right.batch[0].name)


def test_start_refuses_what_cannot_be_sent() -> None:
    """Prompt and history are judged together, before anything runs."""
    setup = make().setup
    for prompt, messages, text in (
        (None, (), "no message"),
        (None, (UserMessage("a"), AssistantMessage("b")), "last message"),
        ("go", (AssistantMessage("b"),), "must be the user's"),
        ("go", (UserMessage("a"), AssistantMessage(tool_calls=[call("x", id="1")])), "has no result"),
    ):
        with pytest.raises(ValueError, match=text):
            start(setup, prompt, run_id="r", now=0.0, messages=messages)
    with pytest.raises(TypeError, match="must be a message"):
        start(setup, "go", run_id="r", now=0.0, messages=["text"])  # type: ignore[list-item]  # wrong on purpose


def test_history_alone_can_be_continued() -> None:
    """Without a prompt a history that ends with the user's message is the task."""
    _, effect, _ = start(make().setup, None, run_id="r", now=0.0, messages=(UserMessage("a"),))
    assert isinstance(effect, RequestModel)
    assert (UserMessage("a"),) == effect.request.messages


def test_ids_are_made_and_renamed() -> None:
    """Missing ids come from the place in history; an id of an earlier response is renamed, on record."""
    state, effect, _ = begin(make())
    state, effect, _ = feed(state, answer(effect, call("look", {"n": 1}, id="x"), call("look", {"n": 2})))
    assert ["x", "call_1_1"] == [made.id for made in state.batch]
    state, effect, _ = feed(state, ran(effect))
    state, effect, entries = feed(state, answer(effect, call("look", {"n": 3}, id="x")))
    assert ["call_4_0"] == [made.id for made in state.batch]
    assert [{"renamed_calls": {"x": "call_4_0"}}] == [
        entry.facts for entry in entries if entry.kind == "note"
    ]


def test_made_id_avoids_the_ones_given() -> None:
    """A model that uses our form of ids itself does not clash with one that we make."""
    state, effect, _ = begin(make())
    state, effect, _ = feed(
        state, answer(effect, call("look", {"n": 1}), call("look", {"n": 2}, id="call_1_0"))
    )
    assert isinstance(effect, RunTools)
    assert 2 == len({made.id for made in state.batch})
    assert "call_1_0" == state.batch[1].id


def test_equal_ids_in_one_response_end_the_run() -> None:
    """Two calls of one id could not be told apart."""
    state, effect, _ = begin(make())
    _, effect, _ = feed(state, answer(effect, call("look", {"n": 1}, id="x"), call("look", {"n": 2}, id="x")))
    assert isinstance(effect, Finish)
    assert "two calls with the id 'x'" in str(effect.reason)
    check_closed(effect.run.messages)


def approving() -> Moved:
    """Return a run that waits for a person: one call to pay, one to look."""
    state, effect, _ = begin(make(capabilities=[RequireApproval({"pay"})]))
    return feed(state, answer(effect, call("look", {"n": 1}), call("pay", {"amount": 10})))


def test_nothing_of_a_batch_runs_before_the_decision() -> None:
    """The read-only call waits too; after the decision both run, in call order."""
    state, effect, _ = approving()
    assert isinstance(effect, AskApproval)
    (request,) = effect.requests
    assert ("pay", {"amount": 10}, ("RequireApproval",)) == (
        request.tool,
        request.arguments,
        request.asked_by,
    )
    _, effect, entries = twice(state, Decided(102.0, (Approve(),)))
    assert isinstance(effect, RunTools)
    assert ["look", "pay"] == [made.name for made in effect.calls]
    expected = ["call_decided", "call_admitted", "call_admitted", "tool_started", "tool_started"]
    assert expected == [entry.kind for entry in entries]


def test_bad_decisions_change_nothing() -> None:
    """Too few, malformed, or an edit that fits no schema: DecisionError, and the state can be fed again."""
    state, _, _ = approving()
    bad = [
        (),
        (Approve(), Approve()),
        ("yes",),
        (Edit({"amount": "ten"}),),
        (Edit({}),),
        (Edit({"other": 1}),),
    ]
    for decisions in bad:
        with pytest.raises(DecisionError):
            feed(state, Decided(102.0, decisions))  # type: ignore[arg-type]  # some are malformed
    _, effect, _ = feed(state, Decided(102.0, (Deny(),)))
    assert isinstance(effect, RunTools)
    assert ["look"] == [made.name for made in effect.calls]


def test_undecided_suspends() -> None:
    """Nobody there: the run waits, its calls open."""
    state, _, _ = approving()
    state, effect, entries = twice(state, Undecided(102.0, "no approver"))
    assert isinstance(effect, Suspend)
    assert ("suspended", Phase.SUSPENDED) == (state.run.status, state.phase)
    assert ["run_suspended"] == [entry.kind for entry in entries]


def test_interrupted_batch_is_closed() -> None:
    """What is known of a call stands, be it only that it began; the rest did not run."""
    state, effect, _ = begin(make())
    calls = [call("look", {"n": i}, id=f"c{i}") for i in range(3)]
    state, effect, _ = feed(state, answer(effect, *calls))
    done, began, _ = ran(effect).results
    began = began._replace(call=replace(began.call, outcome=unknown(1)))
    state, effect, _ = twice(state, Interrupted(103.0, None, (done, began)))
    assert isinstance(effect, Finish)
    assert "cancelled" == effect.run.status
    assert [("look", "succeeded"), ("look", "unknown"), ("look", "not_executed")] == results(
        effect.run.messages
    )
    check_closed(effect.run.messages)


def test_limits_are_read_from_the_event() -> None:
    """The machine has no clock: a deadline passes by the time that an event carries."""
    state, effect, _ = begin(make(limits=Limits(deadline=5.0)))
    state, effect, _ = feed(state, answer(effect, call("look", {"n": 1})))
    _, effect, _ = feed(state, Executed(200.0, ran(effect).results))
    assert isinstance(effect, Finish)
    assert "deadline" in str(effect.reason)


def test_a_hook_sees_immutable_records_of_the_state() -> None:
    """What a hook keeps of a record does not change later: each step is a record of its own."""
    kept: list[RunState] = []

    @hook.before_model_request
    def keep(state: RunState) -> RunState:
        kept.append(state)
        return state.note(f"step {state.run_step}")

    @hook.after_tool_execute
    def spoil(call: CallState) -> CallState:
        with pytest.raises(AttributeError):
            call.run.notes = ()  # type: ignore[misc]  # that is the point
        return call

    state, effect, _ = begin(make(capabilities=[keep, spoil]))
    state, effect, _ = feed(state, answer(effect, call("look", {"n": 1})))
    feed(state, ran(effect))
    assert [(1, ()), (2, ("step 1",))] == [(state.run_step, state.notes) for state in kept]


def test_run_state_of_a_finished_run_is_portable() -> None:
    """The final record pickles, and its arguments are plain JSON."""
    state, effect, _ = begin(make(tools=[]))
    _, effect, _ = feed(state, answer(effect, text="bye"))
    assert isinstance(effect, Finish)
    again = pickle.loads(pickle.dumps(replace(effect.run, model=None)))  # noqa: S301  # our own, just made
    assert again == replace(effect.run, model=None)
    assert "{}" == json.dumps(effect.run.context)
