"""A step up to its request: the gate, the reset of the selection, what is prepared, and who is named."""

import pytest
from attrs import evolve

from capfold.capabilities import (
    AssistantMessage,
    RunState,
    SelectTools,
    SystemMessage,
    ToolMessage,
    TrimMessages,
    Usage,
    UserMessage,
    call,
    hook,
)
from capfold.capabilities.records import replace
from capfold.capabilities.views import Projection
from capfold.runtime import (
    BlockedError,
    FunctionModel,
    HookError,
    InvalidSelection,
    InvalidView,
    LimitError,
    LimitExceeded,
    Limits,
    ModelProfile,
    ModelRequest,
    ScriptedModel,
    UsageUnknown,
)
from tests.runtime.desk import kinds, make, partial


def scripted(agent_model: object) -> tuple[ModelRequest, ...]:
    """Return the requests of a scripted model."""
    assert isinstance(agent_model, ScriptedModel)
    return agent_model.requests


async def test_selection_is_reset_at_every_step() -> None:
    """What one step selected is gone in the next: a selection is a function of the state."""

    @hook.before_model_request
    def first_step_only(state: RunState) -> RunState:
        if state.run_step > 1:
            return state
        return state.select_tools({"look"}).with_settings(temperature=0.5).with_instructions("First.")

    model = ScriptedModel([call("look", {"n": 1}), "done"])
    agent = make(model=model, capabilities=[first_step_only], instructions="Own.", settings={"seed": 1})
    await agent.run("go")
    one, two = model.requests
    assert [["look"], ["look", "pay"]] == [[tool.name for tool in request.tools] for request in (one, two)]
    assert ["First.", "Own."] == [one.instructions, two.instructions]
    assert [{"seed": 1, "temperature": 0.5}, {"seed": 1}] == [one.settings, two.settings]
    assert [1, 2] == [one.step, two.step]


async def test_projection_is_reset_and_history_kept() -> None:
    """A view hides messages from one request; the history keeps them."""
    model = ScriptedModel(["done"])
    history = (UserMessage("old"), AssistantMessage("older answer"))
    result = await make(model=model, capabilities=[TrimMessages(1)]).run("go", messages=history)
    assert [UserMessage("go")] == list(model.requests[0].messages)
    assert (*history, UserMessage("go"), AssistantMessage("done")) == tuple(
        evolve(message, usage=None, model=None) if isinstance(message, AssistantMessage) else message
        for message in result.messages
    )
    assert 2 == len(result.new_messages)
    assert result.state.request_messages is None


async def test_max_steps_is_the_gate() -> None:
    """The run ends before the step that would be one too many, its history closed."""
    agent = make([call("look", {"n": 1})] * 3, limits=Limits(max_steps=2))
    with pytest.raises(LimitError) as caught:
        await agent.run("go")
    reason = caught.value.reason
    assert isinstance(reason, LimitExceeded)
    assert ("max_steps", 2, 2) == (reason.limit, reason.used, reason.allowed)
    assert 2 == partial(caught.value).requests


async def test_request_limit_counts_charged_requests() -> None:
    """A limit of one request lets one request out."""
    model = ScriptedModel([call("look", {"n": 1}), "done"])
    with pytest.raises(LimitError, match="requests"):
        await make(model=model, limits=Limits(requests=1)).run("go")
    assert 1 == len(model.requests)
    with pytest.raises(LimitError):
        await make(limits=Limits(requests=0)).run("go")


async def test_token_limit() -> None:
    """Tokens are counted over requests; the step after the limit does not begin."""
    model = ScriptedModel([call("look", {"n": 1})] * 3, usage=Usage(input_tokens=5, output_tokens=1))
    with pytest.raises(LimitError, match="total_tokens") as caught:
        await make(model=model, limits=Limits(total_tokens=10)).run("go")
    assert 12 == partial(caught.value).usage.total


async def test_token_limit_needs_reported_usage() -> None:
    """A limit that nobody could hold the run to is an error, before the request or the next one."""
    silent = ScriptedModel(["done"], profile=ModelProfile(reports_usage=False))
    with pytest.raises(LimitError) as caught:
        await make(model=silent, limits=Limits(input_tokens=10)).run("go")
    assert isinstance(caught.value.reason, UsageUnknown)
    assert () == silent.requests
    liar = ScriptedModel([AssistantMessage(tool_calls=(call("look", {"n": 1}),)), "done"])
    with pytest.raises(LimitError) as caught:
        await make(model=liar, limits=Limits(input_tokens=10)).run("go")
    assert isinstance(caught.value.reason, UsageUnknown)


async def test_invalid_view_names_who_projected() -> None:
    """An unbalanced view never goes out; the last hook that wrote it is named."""

    @hook.before_model_request
    def cuts(state: RunState) -> RunState:
        return state.project(state.view[:-1]) if state.run_step == 2 else state

    model = ScriptedModel([call("look", {"n": 1}), "done"])
    with pytest.raises(HookError) as caught:
        await make(model=model, capabilities=[SelectTools({"look"}), cuts]).run("go")
    reason = caught.value.reason
    assert isinstance(reason, InvalidView)
    assert (1, "before_model_request", 2) == (reason.index, reason.hook, reason.step)
    assert reason.key is not None
    assert "cuts" in reason.key
    assert 1 == len(model.requests)
    partial(caught.value)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ((), "no message"),
        ((SystemMessage("s"),), "no message but system"),
        ((AssistantMessage("a"), UserMessage("u")), "must be the user's"),
        ((UserMessage("u"), AssistantMessage("a")), "must be the user's or a tool's"),
        ((UserMessage("u"), ToolMessage("x", "look", "r")), "not directly before it"),
    ],
)
async def test_views_that_cannot_be_sent(shown: tuple[UserMessage, ...], text: str) -> None:
    """Each rule of a view has its sentence, and no request is charged."""

    @hook.before_model_request
    def shows(state: RunState) -> RunState:
        return replace(state, request_messages=Projection(shown, len(state.messages)))

    with pytest.raises(HookError, match=text) as caught:
        await make(capabilities=[shows]).run("go")
    assert 0 == partial(caught.value).requests


async def test_before_run_that_spoils_the_input_is_named() -> None:
    """Rewriting this run's input to nothing is found before the first step, and its author named."""

    @hook.before_run
    def empties(state: RunState) -> RunState:
        return replace(state, messages=())

    with pytest.raises(HookError) as caught:
        await make(capabilities=[empties]).run("go")
    reason = caught.value.reason
    assert isinstance(reason, InvalidView)
    assert "before_run" == reason.hook
    assert reason.key is not None
    assert "empties" in reason.key


async def test_appended_messages_are_shown() -> None:
    """What before_model_request appends enters the history and, after a projection, the view."""

    @hook.before_model_request
    def reminds(state: RunState) -> RunState:
        return state.project(state.view[-1:]).append(UserMessage("remember"))

    model = ScriptedModel(["done"])
    history = (UserMessage("old"), AssistantMessage("a"))
    result = await make(model=model, capabilities=[reminds]).run("go", messages=history)
    assert (UserMessage("go"), UserMessage("remember")) == model.requests[0].messages
    assert UserMessage("remember") == result.messages[3]


async def test_model_must_support_what_is_asked() -> None:
    """Tools for a model that takes none are an error before the request."""
    model = ScriptedModel(["done"], profile=ModelProfile(tools=False))
    with pytest.raises(HookError) as caught:
        await make(model=model).run("go")
    assert isinstance(caught.value.reason, InvalidSelection)
    assert () == model.requests
    assert "completed" == (await make(model=model, tools=[]).run("go")).status


async def test_chosen_model_answers() -> None:
    """with_model sends this request, and only this one, elsewhere."""
    other = ScriptedModel([call("look", {"n": 1})], name="other")

    @hook.before_model_request
    def choose(state: RunState) -> RunState:
        return state.with_model(other) if state.run_step == 1 else state

    result = await make(["done"], capabilities=[choose]).run("go")
    other.assert_complete()
    assert "done" == result.output
    names = [record.facts["model"] for record in result.log if record.kind == "model_requested"]
    assert ["other", "scripted"] == names


async def test_stop_before_the_request() -> None:
    """A stop ends the run as a result with its message; nothing was asked, and the user's words remain."""

    @hook.before_model_request
    def stops(state: RunState) -> RunState:
        return state.stop("enough")

    result = await make(capabilities=[stops]).run("go")
    assert ("stopped", "enough", 0) == (result.status, result.output, result.requests)
    assert result.stop is not None
    assert "before_model_request" == result.stop.hook
    assert (UserMessage("go"),) == result.messages


async def test_fail_before_the_request() -> None:
    """`fail` ends the run as BlockedError with the capability named."""

    @hook.before_run
    def blocks(state: RunState) -> RunState:
        return state.fail("not today")

    with pytest.raises(BlockedError, match="not today") as caught:
        await make(capabilities=[blocks]).run("go")
    assert caught.value.reason.key is not None
    assert "blocks" in caught.value.reason.key
    assert ["run_started", "transition", "run_ended"] == kinds(partial(caught.value))


async def test_first_stop_counts() -> None:
    """Both stop: the first in list order is the run's; the second is a note."""
    first = hook.before_model_request(lambda state: state.stop("first"))
    second = evolve(hook.before_model_request(lambda state: state.stop("second")), key="second")
    result = await make(capabilities=[first, second]).run("go")
    assert "first" == result.output
    assert ("stop: second",) == result.state.notes


async def test_same_response_object_twice() -> None:
    """A model that returns one object again and again is taken at its word each time."""
    again = AssistantMessage(tool_calls=(call("look", {"n": 1}),), at=1.0)
    last = AssistantMessage("done", at=1.0)
    model = FunctionModel(lambda request: again if request.step < 3 else last)
    result = await make(model=model).run("go")
    assert ("completed", 3, "done") == (result.status, result.steps, result.output)
