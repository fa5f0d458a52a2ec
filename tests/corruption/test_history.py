"""History and views: hooks shape what one request shows, never what happened (C39, C41, C42, C43)."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from attrs import evolve, fields, has
from attrs.exceptions import FrozenInstanceError

from capfold.capabilities import (
    AssistantMessage,
    CallState,
    Capability,
    Message,
    Projection,
    RunState,
    SystemMessage,
    TextPart,
    Tool,
    ToolCall,
    ToolContext,
    ToolMessage,
    TrimMessages,
    UserMessage,
    call,
    tool,
)
from capfold.capabilities.views import view_problem
from capfold.runtime import Agent, HookFailed, IllegalTransition, InvalidView, ScriptedModel
from tests.corruption.scenes import POINTS, Works, at, batch, check_closed, failed, hook_of, of_kind, shapes

HISTORY: tuple[Message, ...] = (
    SystemMessage("be kind"),
    UserMessage("old question"),
    AssistantMessage(tool_calls=(call("work", {"n": 8}, id="h8"), call("work", {"n": 9}, id="h9"))),
    ToolMessage("h8", "work", "did 8"),
    ToolMessage("h9", "work", "did 9"),
    AssistantMessage("old answer"),
)


# --- C39


@pytest.mark.parametrize("window", range(1, 12))
async def test_c39_trimmed_at_every_cut(window: int) -> None:
    """At every window each request is balanced and has the task; the canonical history keeps everything."""
    works = Works()
    script: list[Any] = [batch(0, 1, 2), batch(3), batch(4, 5), "done"]
    model = ScriptedModel(script)
    agent = Agent("desk", model, tools=[works.tool()], capabilities=[TrimMessages(keep_last=window)])
    result = await agent.run("the task", messages=HISTORY)
    assert [*HISTORY, UserMessage("the task")] == list(result.messages[: len(HISTORY) + 1])
    check_closed(result.messages)
    assert 7 + 4 + 2 + 3 + 1 == len(result.messages)
    whole = Works()
    untrimmed = await Agent("desk", ScriptedModel(script), tools=[whole.tool()]).run(
        "the task", messages=HISTORY
    )
    assert untrimmed.messages == result.messages
    for request in model.requests:
        assert view_problem(request.messages) is None
        check_closed(request.messages)
        assert UserMessage("the task") in request.messages
        assert SystemMessage("be kind") == request.messages[0]
        newest = len(request.messages) - 1
        while not isinstance(request.messages[newest], AssistantMessage | UserMessage):
            newest -= 1
        assert len(request.messages) <= 2 + max(window, len(request.messages) - newest)


# --- C41


MUST = (
    ".context.tenant.roles.append",
    ".settings.extra['seed']",
    ".inventory[0].metadata.tags.append",
    ".inventory[0].parameters.properties.n.update",
    ".messages[0].content[0].text",
    ".messages[1].metadata.a['b']",
    ".messages[1].provider_items[0].parts.append",
)


def edits(value: Any, path: str = "record") -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield an in-place edit of each part, however deep, that can be reached from a record."""
    if isinstance(value, dict):
        yield f"{path}.update", partial(value.update, edited=1)
        yield f"{path}.clear", value.clear
        for key, member in value.items():
            yield f"{path}[{key!r}]", partial(value.__setitem__, key, "edited")
            yield from edits(member, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        if isinstance(value, list):
            yield f"{path}.append", partial(value.append, "edited")
            yield f"{path}.sort", value.sort
        for i, member in enumerate(value):
            yield from edits(member, f"{path}[{i}]")
    elif has(type(value)):
        yield f"{path}.new_name", partial(setattr, value, "new_name", "edited")
        for field in fields(type(value)):
            yield f"{path}.{field.name}", partial(setattr, value, field.name, "edited")
            if field.name not in {"model", "function"}:  # the caller's own objects, by reference
                yield from edits(getattr(value, field.name), f"{path}.{field.name}")


@pytest.mark.parametrize("point", POINTS)
async def test_c41_an_edit_in_place_raises(point: str) -> None:
    """At every hook every nested part refuses to be edited; what the caller gave is as it was."""
    tried: list[str] = []

    def edit(record: Any) -> Any:
        before = hash(record.messages) if isinstance(record, RunState) else hash(record.run.messages)
        for name, act in edits(record):
            with pytest.raises((TypeError, AttributeError, FrozenInstanceError)):
                act()
            tried.append(name)
        assert before == hash((record if isinstance(record, RunState) else record.run).messages)
        return record

    context = {"tenant": {"roles": ["reader"]}}
    settings = {"stop": ["x"], "extra": {"seed": 1}}
    metadata = {"tags": ["a"], "deep": {"x": 1}}
    history: list[Message] = [
        UserMessage((TextPart("old"),)),
        AssistantMessage(
            "old", metadata={"a": {"b": 1}}, provider_items=[{"type": "reasoning", "parts": ["opaque"]}]
        ),
    ]
    given = json.dumps([context, settings, metadata])
    works = Works()
    agent = Agent(
        "desk",
        ScriptedModel([ToolCall("c0", "work", '{"n": 0}', metadata={"m": [1]}), "done"]),
        tools=[works.tool(metadata=metadata)],
        capabilities=[at(point, edit)],
        strict=True,
    )
    result = await agent.run("go", context=context, settings=settings, messages=history)
    assert "completed" == result.status
    assert len(tried) > 100
    assert {f"record{part}" for part in MUST} <= {name.replace(".run.", ".") for name in tried}
    assert given == json.dumps([context, settings, metadata])
    assert 2 == len(history)
    context["tenant"]["roles"].append("admin")
    assert {"tenant": {"roles": ["reader"]}} == result.state.context
    assert [] == [r for r in result.log if r.kind in {"transition", "restored", "rejected"}]


async def test_c41_a_hook_that_edits_in_place_is_named() -> None:
    """The TypeError of the edit is the hook's failure: nothing of it took effect."""

    def edit(call: Any) -> Any:
        call.arguments["n"] = 1000
        return call

    works = Works()
    agent = Agent(
        "desk",
        ScriptedModel([batch(1), "done"]),
        tools=[works.tool()],
        capabilities=[at("before_tool_execute", edit)],
    )
    error = await failed(agent)
    assert isinstance(error.reason, HookFailed)
    assert ("Actor", "before_tool_execute", "TypeError") == (
        error.reason.key,
        error.reason.hook,
        error.reason.error,
    )
    assert [] == works.began


async def test_c41_a_tool_may_do_as_it_likes_with_its_arguments() -> None:
    """A body gets values of its own: what it does to them is seen nowhere else."""
    seen: list[Any] = []

    async def sort(rows: list[int], options: dict[str, list[int]]) -> str:
        """Sort rows in place."""
        rows.sort()
        options["more"] = [1]
        return str(rows)

    async def schema(arguments: dict[str, Any], context: ToolContext) -> object:
        arguments["rows"].clear()
        return "cleared"

    def look(call: CallState) -> CallState:
        seen.append(call.arguments)
        return call

    rows = {"type": "object", "properties": {"rows": {"type": "array"}}}
    made = [tool(sort), Tool.from_schema("clear", "", rows, schema)]
    script: list[Any] = [
        [call("sort", {"rows": [2, 1], "options": {"x": [3]}}), call("clear", {"rows": [2, 1]})],
        "done",
    ]
    agent = Agent("desk", ScriptedModel(script), tools=made, capabilities=[at("after_tool_execute", look)])
    result = await agent.run("go")
    assert [{"rows": [2, 1], "options": {"x": [3]}}, {"rows": [2, 1]}] == seen
    assert ["[1, 2]", "cleared"] == [m.content for m in result.messages if isinstance(m, ToolMessage)]


# --- C42


def dropped(run: RunState) -> RunState:
    """Drop the oldest message."""
    return evolve(run, messages=run.messages[1:])


def edited(run: RunState) -> RunState:
    """Put other words into an old message."""
    return evolve(run, messages=(run.messages[0], UserMessage("forged question"), *run.messages[2:]))


def reordered(run: RunState) -> RunState:
    """Swap the first two."""
    return evolve(run, messages=(run.messages[1], run.messages[0], *run.messages[2:]))


def forged(run: RunState) -> RunState:
    """Append words that the model never said."""
    return run.append(AssistantMessage("I did it"), UserMessage("thanks"))


def forged_result(run: RunState) -> RunState:
    """Append a call and a result that never were."""
    asked = call("work", {"n": 1}, id="never")
    return run.append(AssistantMessage(tool_calls=(asked,)), ToolMessage("never", "work", "did 1"))


def emptied(run: RunState) -> RunState:
    """Leave nothing."""
    return evolve(run, messages=())


FORGERIES = [dropped, edited, reordered, forged, forged_result, emptied]


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
@pytest.mark.parametrize("point", POINTS)
async def test_c42_canonical_messages_cannot_be_rewritten(point: str, forge: Any) -> None:
    """Rejected after that very hook, naming it and `messages`; no request follows, the history is whole."""

    def act(record: Any) -> Any:
        if isinstance(record, CallState):
            return evolve(record, run=forge(record.run))
        return forge(record)

    works = Works()
    model = ScriptedModel([batch(0), "done"])
    later: list[str] = []

    def look(record: Any) -> Any:
        later.append("called")
        return record

    agent = (
        Agent(
            "desk",
            model,
            tools=[works.tool()],
            capabilities=[at(point, act), at(hook_of(point), look, "Later")],
        )
        if ":" not in point
        else Agent("desk", model, tools=[works.tool()], capabilities=[at(point, act)])
    )
    error = await failed(agent, messages=HISTORY)
    reason = error.reason
    assert isinstance(reason, IllegalTransition)
    field = "run.messages" if "tool" in point else "messages"
    assert ("Actor", hook_of(point), field) == (reason.key, reason.hook, reason.field)
    assert error.partial is not None
    (rejected,) = of_kind(error.partial.log, "rejected")
    assert ("Actor", hook_of(point), [field]) == (rejected.actor, rejected.hook, list(rejected.rejected))
    assert [] == later
    requests = {"before_run": 0, "before_model_request": 0, "wrap_run:in": 0, "wrap_model_request:in": 0}
    late = {"after_run": 2, "wrap_run:out": 2}
    assert {**requests, **late}.get(point, 1) == len(model.requests)
    assert (*HISTORY, UserMessage("go")) == error.partial.messages[: len(HISTORY) + 1]
    check_closed(error.partial.messages)


@pytest.mark.parametrize("forge", [forged, forged_result], ids=lambda forge: forge.__name__)
async def test_c42_own_input_holds_no_forged_words(forge: Any) -> None:
    """before_run rewrites the input, which is the user's: an assistant's or a tool's words are none."""
    model = ScriptedModel(["done"])
    error = await failed(Agent("desk", model, capabilities=[at("before_run", forge)]))
    assert isinstance(error.reason, IllegalTransition)
    assert ("Actor", "before_run", "messages") == (error.reason.key, error.reason.hook, error.reason.field)
    assert () == model.requests


async def test_c42_what_is_legal_is_on_record() -> None:
    """Input rewritten in before_run, and messages appended later, take effect, and the log says who."""
    model = ScriptedModel(["done"])
    rewrite = at("before_run", lambda run: evolve(run, messages=(*run.messages[:-1], UserMessage("better"))))
    append = at("before_model_request", lambda run: run.append(UserMessage("and now")), "Appender")
    result = await Agent("desk", model, capabilities=[rewrite, append]).run("go", messages=HISTORY)
    assert (*HISTORY, UserMessage("better"), UserMessage("and now")) == model.requests[0].messages
    first, second = of_kind(result.log, "transition")
    assert [("Actor", ["messages"]), ("Appender", ["messages"])] == [
        (record.actor, list(record.changes)) for record in (first, second)
    ]
    added: Any = second.changes["messages"]
    assert ["and now"] == [message["content"] for message in added["added"]]


# --- C43

ORPHAN = ToolMessage("h8", "work", "did 8")
BAD_VIEWS: dict[str, Callable[[tuple[Message, ...]], tuple[Message, ...]]] = {
    "orphan result": lambda view: (UserMessage("go"), ORPHAN),
    "result before its call": lambda view: (view[1], view[3], view[2], view[4], view[-1]),
    "unanswered call": lambda view: (*view[:4], view[-1]),
    "no answer at all": lambda view: (*view[:3], view[-1]),
    "message between": lambda view: (*view[:3], UserMessage("between"), *view[3:]),
    "message between results": lambda view: (*view[:4], SystemMessage("between"), *view[4:]),
    "two results": lambda view: (*view[:4], view[3], *view[4:]),
    "only system messages": lambda view: (view[0],),
    "empty": lambda view: (),
    "assistant first": lambda view: (view[0], view[5], view[-1]),
    "assistant last": lambda view: view[:-1],
}


@pytest.mark.parametrize("bad", BAD_VIEWS.values(), ids=BAD_VIEWS)
@pytest.mark.parametrize("point", ["before_model_request", "wrap_model_request:in"])
async def test_c43_a_view_that_cannot_be_sent(point: str, bad: Any) -> None:
    """Found before the request, with the name of the hook that made it; nothing is sent."""
    model = ScriptedModel(["done"])
    agent = Agent("desk", model, capabilities=[at(point, lambda run: run.project(bad(run.view)))])
    error = await failed(agent, messages=HISTORY)
    reason = error.reason
    assert isinstance(reason, InvalidView)
    assert ("Actor", hook_of(point), "request_messages") == (reason.key, reason.hook, reason.field)
    assert () == model.requests
    assert error.partial is not None
    assert (*HISTORY, UserMessage("go")) == error.partial.messages
    assert ("failed", 0) == (error.partial.status, error.partial.requests)


@pytest.mark.parametrize("bad", BAD_VIEWS.values(), ids=BAD_VIEWS)
async def test_c43_the_last_writer_of_a_view_is_named(bad: Any) -> None:
    """A later hook that leaves the view alone is not blamed."""
    broken = at("before_model_request", lambda run: run.project(bad(run.view)))
    other = at("before_model_request", lambda run: run.add_instructions("be brief"), "Other")
    error = await failed(Agent("desk", ScriptedModel([]), capabilities=[broken, other]), messages=HISTORY)
    assert isinstance(error.reason, InvalidView)
    assert "Actor" == error.reason.key


@pytest.mark.parametrize("bad", BAD_VIEWS.values(), ids=BAD_VIEWS)
async def test_c43_a_history_that_cannot_be_sent(bad: Any) -> None:
    """The caller's own messages are examined when the run starts: no run, no request."""
    model = ScriptedModel(["done"])
    with pytest.raises(ValueError, match="cannot be sent"):
        await Agent("desk", model).run(None, messages=bad((*HISTORY, UserMessage("go"))))
    assert () == model.requests


@pytest.mark.parametrize("covers", [0, 6, 8])
async def test_c43_a_projection_covers_the_whole_history(covers: int) -> None:
    """A projection that says it stands for less, or more, would duplicate or hide messages: rejected."""
    model = ScriptedModel(["done"])
    wrong = at(
        "before_model_request", lambda run: evolve(run, request_messages=Projection(run.messages, covers))
    )
    error = await failed(Agent("desk", model, capabilities=[wrong]), messages=HISTORY)
    assert isinstance(error.reason, IllegalTransition)
    assert ("Actor", "request_messages") == (error.reason.key, error.reason.field)
    assert () == model.requests


class HideHistory(Capability):
    """Shows this run's own messages only."""

    def before_model_request(self, state: RunState) -> RunState:
        return state.project(state.messages[state.history_start :])


async def test_c43_what_was_hidden_stays_hidden() -> None:
    """A later hook that projects from the canonical messages would bring it back: rejected."""
    model = ScriptedModel(["done"])
    back = at("before_model_request", lambda run: run.project(run.messages))
    error = await failed(Agent("desk", model, capabilities=[HideHistory(), back]), messages=HISTORY)
    assert isinstance(error.reason, IllegalTransition)
    assert ("Actor", "request_messages") == (error.reason.key, error.reason.field)
    assert () == model.requests
    assert error.partial is not None
    assert [*shapes(HISTORY), "user"] == shapes(error.partial.messages)
