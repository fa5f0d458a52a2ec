"""Endings: status, output, what is withheld, and a closed history, whatever happened."""

import anyio
import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities import (
    AssistantMessage,
    CallState,
    Capability,
    RequireApproval,
    RunState,
    ToolFailed,
    ToolHook,
    call,
    hook,
)
from capfold.capabilities.outside import CallNext
from capfold.capabilities.records import replace
from capfold.runtime import BlockedError, HookError, IllegalTransition, Limits, ModelError, RunError
from capfold.runtime.ending import open_calls
from tests.runtime.desk import Ends, Trace, check_closed, kinds, make, partial, slow

MASKED = "[withheld: the run failed before this could be checked]"


async def test_after_run_on_completed_and_stopped_only() -> None:
    """It sees the output; a failed run does not get there."""
    trace = Trace()
    await make(["done"], capabilities=[Ends(trace)]).run("go")
    await make(["done"], capabilities=[hook.before_run(lambda s: s.stop("st")), Ends(trace)]).run("go")
    with pytest.raises(RunError):
        await make([ModelError("server", "x", retryable=True)], capabilities=[Ends(trace)]).run("go")
    assert ["after_run:done", "after_run:st"] == trace.lines


async def test_after_run_transforms_the_output() -> None:
    """Within the output type; the history keeps what the model said."""

    @hook.after_run
    def upper(state: RunState) -> RunState:
        return replace(state, output=str(state.output).upper())

    result = await make(["done"], capabilities=[upper]).run("go")
    assert "DONE" == result.output
    assert "done" == result.messages[-1].content
    wrong = hook.after_run(lambda state: replace(state, output=3))
    with pytest.raises(HookError) as caught:
        await make(["done"], capabilities=[wrong]).run("go")
    assert isinstance(caught.value.reason, IllegalTransition)
    assert "str is wanted" in caught.value.reason.legal


async def test_late_stop_withholds_the_output() -> None:
    """after_run may still stop: output and text of that response are gone, the message stands instead."""
    result = await make(["secret"], capabilities=[hook.after_run(lambda state: state.stop("held"))]).run("go")
    assert ("stopped", "held") == (result.status, result.output)
    assert MASKED == result.messages[-1].content


async def test_late_fail_withholds_the_output() -> None:
    """Likewise `fail`, which is an error."""
    with pytest.raises(BlockedError) as caught:
        await make(["secret"], capabilities=[hook.after_run(lambda state: state.fail("held"))]).run("go")
    result = partial(caught.value)
    assert result.output is None
    assert "secret" not in str(result.messages)


async def test_stop_beats_nothing_but_fail_beats_stop() -> None:
    """Failed > stopped > again."""
    with pytest.raises(BlockedError, match="f"):
        await make(capabilities=[hook.before_run(lambda state: state.stop("s").fail("f"))]).run("go")


async def test_partial_says_how_far_it_came() -> None:
    """The partial result has counters, messages and log; its output is None."""
    agent = make([call("look", {"n": 1}), ModelError("server", "down", retryable=True)])
    with pytest.raises(RunError) as caught:
        await agent.run("go")
    result = partial(caught.value)
    assert (None, 2, 1, 2) == (result.output, result.requests, result.tool_calls, result.steps)
    assert "run_ended" == kinds(result)[-1]
    assert "failed" == result.log[-1].facts["status"]
    assert result.log.complete


async def test_final_record_is_tidy() -> None:
    """Nothing of a request under way stands in a final state."""
    result = await make([call("look", {"n": 1}), "done"]).run("go")
    state = result.state
    assert (None, None, {}, None) == (state.response, state.request_messages, state.facts, state.again)


def test_open_calls() -> None:
    """The last response is open as long as results are missing, and only the last one can be."""
    asked = AssistantMessage(tool_calls=(call("a", id="1"), call("b", id="2")))
    from capfold.capabilities import ToolMessage, UserMessage  # noqa: PLC0415  # used here alone

    one, two = ToolMessage("1", "a", "x"), ToolMessage("2", "b", "x")
    for messages, expected in (
        ((), (None, 0)),
        ((UserMessage("u"),), (None, 0)),
        ((UserMessage("u"), asked), (asked, 0)),
        ((UserMessage("u"), asked, one), (asked, 1)),
        ((UserMessage("u"), asked, one, two), (None, 0)),
        ((UserMessage("u"), asked, one, two, UserMessage("v")), (None, 0)),
    ):
        assert expected == open_calls(RunState(messages=messages))


@frozen
class Trouble(Capability):
    """Does one thing wrong, or drastic, at one hook."""

    where: str
    what: str

    def _run(self, name: str, state: RunState) -> RunState:
        if name != self.where or state.run_step == 1:
            return state
        match self.what:
            case "raise":
                raise RuntimeError("trouble")
            case "stop":
                return state.stop("trouble")
            case "fail":
                return state.fail("trouble")
            case "forge":
                return replace(state, requests=99)
        return replace(state, run_id="other")

    def _call(self, name: str, call: CallState) -> CallState:
        return replace(call, run=self._run(name, call.run)) if call.index == 1 else call

    def before_model_request(self, state: RunState) -> RunState:
        return self._run("before_model_request", state)

    def after_model_request(self, state: RunState) -> RunState:
        return self._run("after_model_request", state)

    def after_run(self, state: RunState) -> RunState:
        return self._run("after_run", state)

    def before_tool_execute(self, call: CallState) -> CallState:
        return self._call("before_tool_execute", call)

    def admit_tool_execute(self, call: CallState) -> CallState:
        return self._call("admit_tool_execute", call)

    def after_tool_execute(self, call: CallState) -> CallState:
        return self._call("after_tool_execute", call)

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        return self._call("wrap_tool_execute", await call_next(call))

    async def wrap_run(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        return self._run("wrap_run", await call_next(state))


@given(
    where=st.sampled_from(
        (
            "before_model_request",
            "after_model_request",
            "after_run",
            "before_tool_execute",
            "admit_tool_execute",
            "after_tool_execute",
            "wrap_tool_execute",
            "wrap_run",
        )
    ),
    what=st.sampled_from(("raise", "stop", "fail", "forge", "seal")),
    limits=st.sampled_from((Limits(), Limits(max_steps=2), Limits(requests=2), Limits(tool_calls=3))),
    failing=st.sampled_from(("failing", "fine")),
    asks=st.sampled_from(("asks", "free")),
)
@settings(max_examples=80)
def test_history_is_balanced_at_every_ending(
    where: str,
    what: str,
    limits: Limits,
    failing: str,
    asks: str,
) -> None:
    """Whatever ends a run, each call of it has exactly one outcome, and the log ends properly."""

    def work(n: int) -> str:
        if failing == "failing":
            raise ToolFailed("no")
        return "ok"

    batch = [call("work", {"n": i}) for i in range(2)]
    agent = make(
        [batch, [*batch, call("nothing")], "done"],
        tools=[slow("work", work)],
        capabilities=[Trouble(where, what), *([RequireApproval(key="a")] if asks == "asks" else [])],
        limits=limits,
    )
    try:
        result = anyio.run(agent.run, "go")
    except RunError as error:
        found = partial(error)
        assert "failed" == found.status
        assert "run_ended" == kinds(found)[-1]
        return
    check_closed(result.messages)
    assert result.status in {"completed", "stopped", "suspended"}
    assert result.log.complete
    if what == "forge" and result.status == "completed":
        assert 3 == result.requests


async def test_wrapper_s_latch_counts_when_it_leaves() -> None:
    """A tool wrapper that fails the run: the effect is on record, after hooks do not run."""

    async def fails(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        return (await call_next(call)).fail("no")

    with pytest.raises(BlockedError) as caught:
        await make([call("look", {"n": 1})], capabilities=[ToolHook(fails)]).run("go")
    assert caught.value.reason.key is not None
    assert "fails" in caught.value.reason.key
    check_closed(partial(caught.value).messages)
