"""A response on its way into the history: hooks, retries of the output, what ends a run."""

import pytest
from attrs import evolve, frozen

from capfold.capabilities import (
    AssistantMessage,
    Capability,
    Json,
    Outside,
    RunState,
    UserMessage,
    call,
    hook,
)
from capfold.capabilities.records import replace
from capfold.runtime import (
    BlockedError,
    FunctionModel,
    HookError,
    IncompleteResponse,
    InvalidResponse,
    ModelError,
    ModelFailed,
    ModelRunError,
    OutputError,
    ScriptedModel,
)
from tests.runtime.desk import check_closed, kinds, make, partial, results, seen

MASKED = "[withheld: the run failed before this could be checked]"


async def test_effective_response_enters_the_history() -> None:
    """A transformed text is what the history holds; the raw response is in the log."""

    @hook.after_model_request
    def redacts(state: RunState) -> RunState:
        assert state.response is not None
        return state.respond(evolve(state.response, content="[redacted]"))

    result = await make(["secret"], capabilities=[redacts]).run("go")
    assert "[redacted]" == result.output
    assert "secret" not in str(result.messages)
    (raw,) = [record for record in result.log if record.kind == "model_responded"]
    assert "secret" in str(raw.facts)


async def test_dropped_and_added_calls() -> None:
    """Only what the effective response holds is run; an added call bears its author's key."""

    @hook.after_model_request
    def swaps(state: RunState) -> RunState:
        assert state.response is not None
        if not state.response.tool_calls:
            return state
        return state.respond(evolve(state.response, tool_calls=(call("look", {"n": 9}),)))

    result = await make([call("pay", {"amount": 5}), "done"], capabilities=[swaps]).run("go")
    assert [("look", "succeeded")] == results(result.messages)
    response = result.messages[1]
    assert isinstance(response, AssistantMessage)
    assert response.tool_calls[0].origin.endswith("swaps")
    assert response.tool_calls[0].id
    check_closed(result.messages)


async def test_added_calls_without_ids_get_different_ones() -> None:
    """Two calls added without an id, and a later hook that looks on, are two calls of one author."""

    @hook.after_model_request
    def adds(state: RunState) -> RunState:
        assert state.response is not None
        if state.run_step > 1:
            return state
        return state.respond(
            evolve(state.response, tool_calls=(call("look", {"n": 1}), call("look", {"n": 1})))
        )

    @hook.after_model_request
    def edits(state: RunState) -> RunState:
        assert state.response is not None
        return state.respond(evolve(state.response, content=f"{state.response.text}!"))

    result = await make(["thinking", "done"], capabilities=[adds, edits]).run("go")
    response = result.messages[1]
    assert isinstance(response, AssistantMessage)
    assert 2 == len({made.id for made in response.tool_calls})
    assert all(made.origin.endswith("adds") for made in response.tool_calls)
    check_closed(result.messages)


async def test_ask_again_sends_the_message() -> None:
    """The response stays in history, its calls unexecuted; the message follows; the runtime clears it."""

    @hook.after_model_request
    def demands(state: RunState) -> RunState:
        return state.ask_again("Say it in French.") if state.run_step == 1 else state

    agent = make(
        [AssistantMessage("hm", tool_calls=(call("pay", {"amount": 1}),)), "oui"], capabilities=[demands]
    )
    result = await agent.run("go")
    assert [("pay", "not_executed")] == results(result.messages)
    assert UserMessage("Say it in French.") == result.messages[3]
    assert (None, 1, "oui") == (result.state.again, result.state.output_retries_used, result.output)
    check_closed(result.messages)


async def test_ask_again_is_bounded() -> None:
    """Beyond the output retries the run ends, and the last message is in the error."""
    agent = make(["a", "b", "c"], capabilities=[hook.after_model_request(lambda s: s.ask_again("Again."))])
    with pytest.raises(OutputError, match="Again") as caught:
        await agent.run("go")
    assert 2 == partial(caught.value).requests


@pytest.mark.parametrize("finish", ["length", "content_filter", "incomplete"])
async def test_cut_off_response_ends_the_run(finish: str) -> None:
    """A truncated or filtered response is never taken for a whole one; its calls are not executed."""
    cut = AssistantMessage("half", tool_calls=(call("pay", {"amount": 1}),), finish_reason=finish)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ModelRunError) as caught:
        await make([cut]).run("go")
    assert isinstance(caught.value.reason, IncompleteResponse)
    assert [("pay", "not_executed")] == results(partial(caught.value).messages)


async def test_hook_that_fails_leaves_the_last_accepted_response() -> None:
    """The response enters the history with its text withheld and its calls unexecuted."""

    @hook.after_model_request
    def guards(state: RunState) -> RunState:
        raise RuntimeError("cannot check")

    with pytest.raises(HookError) as caught:
        await make(
            [AssistantMessage("secret", tool_calls=(call("pay", {"amount": 1}),))], capabilities=[guards]
        ).run("go")
    messages = partial(caught.value).messages
    assert "secret" not in str(messages)
    assert isinstance(messages[1], AssistantMessage)
    assert MASKED == messages[1].content
    assert [("pay", "not_executed")] == results(messages)


async def test_gatherer_that_fails_leaves_it_too() -> None:
    """Facts that did not come count like a hook that failed."""

    @frozen
    class Moderation(Capability):
        def after_model_request(self, state: RunState) -> RunState:
            return state

        async def gather_after_model_request(self, state: RunState, outside: Outside) -> Json:
            raise ConnectionError("down")

    with pytest.raises(HookError, match="down") as caught:
        await make(["secret"], capabilities=[Moderation()]).run("go")
    messages = partial(caught.value).messages
    assert 2 == len(messages)
    assert "secret" not in str(messages)


async def test_fail_withholds_the_text() -> None:
    """`fail` in after_model_request: the text is not in the history, the log keeps it."""
    agent = make(["secret"], capabilities=[hook.after_model_request(lambda state: state.fail("no"))])
    with pytest.raises(BlockedError) as caught:
        await agent.run("go")
    result = partial(caught.value)
    assert "secret" not in str(result.messages)
    assert "secret" in str([record.facts for record in result.log])


async def test_stop_is_a_result_and_never_asked_again() -> None:
    """A stop wins over ask_again; the response's calls do not run."""

    @hook.after_model_request
    def stops(state: RunState) -> RunState:
        return state.ask_again("x").stop("that is all")

    result = await make([call("pay", {"amount": 1})], capabilities=[stops]).run("go")
    assert ("stopped", "that is all", 1) == (result.status, result.output, result.requests)
    assert [("pay", "not_executed")] == results(result.messages)


async def test_model_failure_is_typed() -> None:
    """The model's error is the reason and the cause; the attempt is charged, nothing entered the history."""
    error = ModelError("rate_limit", "slow down", retryable=True, status=429)
    with pytest.raises(ModelRunError) as caught:
        await make([error]).run("go")
    reason = caught.value.reason
    assert isinstance(reason, ModelFailed)
    assert ("rate_limit", True, 429) == (reason.kind, reason.retryable, reason.status)
    assert caught.value.__cause__ is error
    result = partial(caught.value)
    assert (1, 1) == (result.requests, len(result.messages))


async def test_model_that_raises_anything_else() -> None:
    """A bug in an adapter is a model failure with the type in it, not a bare exception."""
    with pytest.raises(ModelRunError, match="ZeroDivisionError") as caught:
        await make([ZeroDivisionError("x")]).run("go")
    assert "model_failed" not in kinds(partial(caught.value))


async def test_model_that_returns_nothing_usable() -> None:
    """What is no AssistantMessage is refused as a response."""

    class Odd:
        name = "odd"
        profile = ScriptedModel([]).profile

        async def request(self, request: object, meter: object) -> object:
            return "text"

    with pytest.raises(ModelRunError) as caught:
        await make(model=Odd()).run("go")
    assert isinstance(caught.value.reason, InvalidResponse)
    assert 1 == partial(caught.value).requests  # one unit is booked for a model that never charges


async def test_usage_cannot_be_forged() -> None:
    """A hook that rewrites the response's usage is put back and named; the run goes on."""

    @hook.after_model_request
    def forges(state: RunState) -> RunState:
        assert state.response is not None
        return replace(state, response=replace(state.response, usage=None, content="new"))

    result = await make(["old"], capabilities=[forges]).run("go")
    assert "new" == result.output
    assert 1 == len(seen(result, "restored"))
    assert 0 == result.usage.total


async def test_model_may_use_another_run() -> None:
    """A model that is built on an agent of its own fails as a model when that agent fails."""
    inner = make([ModelError("server", "down", retryable=True)])

    async def ask(request: object) -> str:
        return str((await inner.run("inner")).output)

    with pytest.raises(ModelRunError) as caught:
        await make(model=FunctionModel(ask)).run("go")
    assert isinstance(caught.value.reason, ModelFailed)
