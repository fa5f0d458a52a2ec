"""The agent: what is wrong with it fails when it is built; what is given for one run stays with that run."""

from contextlib import nullcontext
from typing import Annotated, Any

import pytest
from attrs import field, frozen

from capfold.capabilities import (
    AssistantMessage,
    Capability,
    FromContext,
    FromDeps,
    RefuseTools,
    RequireApproval,
    RunState,
    SelectTools,
    Tool,
    ToolBudget,
    Toolkit,
    UserMessage,
    call,
    group,
    hook,
    tool,
    when,
)
from capfold.runtime import (
    Agent,
    FunctionModel,
    LimitError,
    Limits,
    OutputError,
    RunResult,
    ScriptedModel,
    forbid_model_requests,
)
from tests.runtime.desk import contents, look, make, pay, results


@frozen
class Answer:
    """A structured output."""

    total: int
    items: list[str]

    def __attrs_post_init__(self) -> None:
        """Refuse a negative total."""
        if self.total < 0:
            raise ValueError("total must not be negative")


def no_annotation(n) -> str:  # type: ignore[no-untyped-def]  # that is the point
    """Have a parameter without a type."""
    return ""


def marker_default(n: int, db: Any = FromDeps("db")) -> str:  # noqa: B008  # that is the point
    """Say by a default what belongs into the annotation."""
    return ""


def opaque_default(n: int, x: Any = object()) -> str:  # noqa: B008  # that is the point
    """Have a default that no schema can hold."""
    return ""


@tool
def needs(n: int, db: Annotated[object, FromDeps("db")], who: Annotated[str, FromContext("user")]) -> str:
    """Need two things from outside."""
    return f"{who} {db} {n}"


@frozen
class Needy(Capability):
    """Needs a key in deps."""

    def needs_deps(self) -> frozenset[str]:
        return frozenset({"clock"})


@frozen
class Bundle(Capability):
    """Comes with a tool and with instructions."""

    text: str = "Use the bundle."

    def provide_tools(self) -> tuple[Tool, ...]:
        return (look,)

    def provide_instructions(self) -> str:
        return self.text


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"model": "gpt-9"}, ValueError, "unknown model 'gpt-9'"),
        ({"model": "openai:"}, ValueError, "unknown model"),
        ({"model": "test:x"}, ValueError, "unknown model"),
        ({"model": 3}, TypeError, "a model has a name"),
        ({"model": ScriptedModel}, TypeError, "a model"),
        ({"capabilities": [ToolBudget]}, TypeError, r"ToolBudget\(\)"),
        ({"capabilities": [None]}, TypeError, r"capabilities\[0\]"),
        ({"capabilities": ToolBudget(1)}, TypeError, "list of capabilities"),
        ({"capabilities": [lambda state: state]}, TypeError, "hook.before_model_request"),
        ({"capabilities": [ToolBudget(1), ToolBudget(1)]}, ValueError, "listed twice"),
        ({"capabilities": [ToolBudget(1), ToolBudget(2)]}, ValueError, "key='ToolBudget_2'"),
        ({"capabilities": [group(ToolBudget(1)), when(lambda s: True, ToolBudget(1))]}, ValueError, "twice"),
        ({"capabilities": [RefuseTools({"pya"})]}, ValueError, "'pya'"),
        ({"capabilities": [SelectTools({"nothing"})]}, ValueError, "'nothing'"),
        ({"capabilities": [ToolBudget({"lok": 1})]}, ValueError, "'lok'"),
        ({"capabilities": [Bundle()]}, ValueError, "two tools are named 'look'"),
        ({"tools": [look, look]}, ValueError, "two tools are named 'look'"),
        ({"tools": [look, Toolkit("kit", [look])]}, ValueError, "kit/look"),
        ({"tools": [no_annotation]}, TypeError, "n"),
        ({"tools": [opaque_default]}, ValueError, "'x' has a default that JSON cannot carry"),
        ({"tools": [marker_default]}, TypeError, r"write Annotated\[T, FromDeps"),
        ({"tools": ["look"]}, TypeError, "a tool list holds"),
        ({"tools": [nullcontext(look)]}, TypeError, "not nullcontext: write `async with"),
        ({"tools": [Agent("below", "test")]}, TypeError, r"not Agent: list its as_tool\(\.\.\.\)"),
        (
            {"tools": [pay.with_capabilities(ToolBudget(1))], "capabilities": [ToolBudget(2)]},
            ValueError,
            "ToolBudget",
        ),
        ({"instructions": None}, TypeError, "instructions"),
        ({"limits": {"max_steps": 1}}, TypeError, r"limits is a Limits\(\.\.\.\), not dict"),
        ({"permissions": [("look", "deny")]}, TypeError, "permissions is a Permissions"),
        ({"approver": "yes"}, TypeError, "an approver is a function"),
        ({"sinks": [object()]}, TypeError, r"sinks\[0\] is no sink"),
        ({"audit": "some"}, ValueError, "audit"),
        ({"output_retries": -1}, ValueError, "output_retries"),
        ({"unselected_retries": True}, ValueError, "unselected_retries"),
        ({"output_type": dict}, TypeError, "output_type"),
        ({"output_type": "str"}, TypeError, "output_type"),
        ({"settings": {"x": float("nan")}}, ValueError, r"\$\.x: nan is not JSON"),
    ],
    ids=lambda value: repr(value)[:50] if isinstance(value, dict) else "",
)
def test_what_could_not_work_fails_when_built(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    """Each mistake has its error at construction, with what was meant."""
    with pytest.raises(error, match=text):
        make(**options)


@pytest.mark.parametrize("name", ["", None, 3])
def test_agent_has_a_name(name: object) -> None:
    """The name stands in the log and in results."""
    with pytest.raises(TypeError, match="name"):
        Agent(name, "test")  # type: ignore[arg-type]  # that is the point


def test_tool_scope_takes_tool_hooks_only() -> None:
    """A run hook on a tool would never be called."""
    with pytest.raises(TypeError, match="only tool hooks"):
        look.with_capabilities(hook.before_run(lambda state: state))


def test_agent_is_read_only() -> None:
    """A finished agent does not change; its repr is bounded."""
    agent = make()
    with pytest.raises(AttributeError, match="does not change"):
        agent.limits = Limits()  # that is the point
    assert "<Agent desk scripted tools=2 capabilities=0>" == repr(agent)
    assert ("desk", ("look", "pay"), ()) == (
        agent.name,
        tuple(t.name for t in agent.tools),
        agent.capabilities,
    )


def test_misspelt_tool_name_gets_a_hint() -> None:
    """The nearest name, or those there are, stand in the message."""
    with pytest.raises(ValueError, match="look"):
        make(capabilities=[SelectTools({"lok"})])


async def test_bundles() -> None:
    """A capability's tools and instructions come after the agent's own."""
    model = ScriptedModel([call("look", {"n": 1}), "done"])
    agent = make(model=model, tools=[pay], capabilities=[Bundle()], instructions="Be brief.")
    assert "completed" == (await agent.run("go")).status
    assert "Be brief.\n\nUse the bundle." == model.requests[0].instructions
    assert ["pay", "look"] == [made.name for made in model.requests[0].tools]


async def test_what_is_needed_is_checked_when_the_run_starts() -> None:
    """Missing deps and context are named before anything is asked; given ones arrive."""
    model = ScriptedModel([call("needs", {"n": 1}), "done"])
    agent = make(model=model, tools=[needs])
    for options, text in (
        ({}, "'db' in deps"), ({"deps": {"db": 1}}, "'user' in context"), ({"context": {"user": "u"}}, "'db'")
    ):  # fmt: skip
        with pytest.raises(ValueError, match=text):
            await agent.run("go", **options)
    assert () == model.requests
    result = await agent.run("go", deps={"db": "D"}, context={"user": "U"})
    assert ["U D 1"] == contents(result.messages)
    with pytest.raises(ValueError, match="Needy needs 'clock'"):
        await make(capabilities=[Needy()]).run("go", deps={})


async def test_deps_of_the_agent_and_of_the_run() -> None:
    """The run's deps stand for the agent's; an object with attributes does as well as a mapping."""

    class Deps:
        db = "attribute"

    agent = make(
        [call("needs", {"n": 1}), "a", call("needs", {"n": 2}), "b"], tools=[needs], deps={"db": "own"}
    )
    one = await agent.run("go", context={"user": "U"})
    two = await agent.run("go", context={"user": "U"}, deps=Deps())
    assert ["U own 1", "U attribute 2"] == [*contents(one.messages), *contents(two.messages)]


async def test_model_never_fills_an_injected_parameter() -> None:
    """A call that sends such a key is invalid."""
    agent = make([call("needs", {"n": 1, "who": "boss"}), "done"], tools=[needs])
    result = await agent.run("go", deps={"db": 1}, context={"user": "U"})
    assert [("needs", "validation_error")] == results(result.messages)


async def test_overrides_of_one_run() -> None:
    """Model, settings, limits, tools, approver, run id: for this run; the next one has the agent's own."""
    own, other = (
        ScriptedModel(["own", "own"]),
        ScriptedModel([call("extra", {"n": 1}), "other"], name="other"),
    )

    @tool
    def extra(n: int) -> str:
        """Do something extra."""
        return "x"

    agent = make(model=own, settings={"a": 1})
    result = await agent.run("go", model=other, settings={"b": 2}, tools=[extra], run_id="mine")
    assert ("other", "mine") == (result.output, result.state.run_id)
    assert {"a": 1, "b": 2} == other.requests[0].settings
    assert ["look", "pay", "extra"] == [made.name for made in other.requests[0].tools]
    with pytest.raises(LimitError):
        await agent.run("go", limits=Limits(requests=0))
    assert "own" == (await agent.run("go")).output
    assert ({"a": 1}, 2) == (own.requests[0].settings, len(own.requests[0].tools))
    with pytest.raises(ValueError, match="two tools"):
        await agent.run("go", tools=[look])
    with pytest.raises(ValueError, match="unknown model"):
        await agent.run("go", model="nothing")
    with pytest.raises(TypeError, match="limits is"):
        await agent.run("go", limits={"requests": 1})  # type: ignore[arg-type]  # that is the point
    with pytest.raises(TypeError, match="an approver is"):
        await agent.run("go", approver="yes")  # type: ignore[arg-type]  # that is the point


async def test_conversation_goes_on() -> None:
    """The messages of one run are the history of the next; new_messages leaves them out."""
    agent = make([call("look", {"n": 1}, id="x"), "one", call("look", {"n": 2}, id="x"), "two"])
    first = await agent.run("go")
    second = await agent.run("and?", messages=first.messages)
    assert first.messages == second.messages[: len(first.messages)]
    assert 4 == len(second.new_messages)
    assert 2 == len({message.call_id for message in second.messages if hasattr(message, "call_id")})
    assert UserMessage("and?") == second.new_messages[0]


async def test_context_is_frozen_json() -> None:
    """What the caller gives as context is copied and refused when it is no JSON."""
    given = {"user": {"id": 1}}

    @hook.before_run
    def reads(state: RunState) -> RunState:
        return state.note(str(state.context["user"]))

    result = await make(capabilities=[reads]).run("go", context=given)
    given["user"]["id"] = 2
    assert {"user": {"id": 1}} == result.state.context
    with pytest.raises(ValueError, match=r"\$\.now"):
        await make().run("go", context={"now": object()})


def test_run_sync() -> None:
    """The same run, from plain code."""
    result = make([call("look", {"n": 1}), "done"]).run_sync("go", run_id="r")
    assert ("completed", "done", "r") == (result.status, result.output, result.state.run_id)


async def test_run_sync_inside_a_loop() -> None:
    """There it is refused, and nothing is left un-awaited."""
    with pytest.raises(RuntimeError):
        make().run_sync("go")


async def test_the_test_model_echoes() -> None:
    """The model string "test" needs no key and no network."""
    with forbid_model_requests():
        assert "hello" == (await Agent("echo", "test").run("hello")).output


OUTPUT = '{"total": 3, "items": ["a"]}'


async def test_structured_output() -> None:
    """The text of the response becomes a value of the class; the request carries its schema."""
    model = ScriptedModel([OUTPUT])
    agent: Agent[Answer] = Agent("a", model, output_type=Answer)
    result = await agent.run("go")
    assert Answer(3, ["a"]) == result.output
    spec = model.requests[0].output_spec
    assert spec is not None
    assert "Answer" == spec.name
    assert all(name in str(spec.schema) for name in ("total", "items", "integer"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no json", "$"),
        ('{"total": "3", "items": []}', "$.total"),
        ('{"total": 3}', "items"),
        ('{"total": 3, "items": [], "more": 1}', "more"),
        ('{"total": -3, "items": []}', "must not be negative"),
    ],
)
async def test_output_is_asked_for_again(text: str, problem: str) -> None:
    """An invalid output goes back with what is wrong; beyond the retries the run fails with the same text."""
    model = ScriptedModel([text, OUTPUT])
    result = await Agent("a", model, output_type=Answer).run("go")
    assert Answer(3, ["a"]) == result.output
    asked = model.requests[1].messages[-1]
    assert isinstance(asked, UserMessage)
    assert problem in str(asked.content)
    assert 1 == result.state.output_retries_used
    with pytest.raises(OutputError, match="not accepted"):
        await Agent("a", ScriptedModel([text]), output_type=Answer, output_retries=0).run("go")


async def test_stop_of_a_structured_run() -> None:
    """A stopped run has no value of the type: the message stands in `stop`."""
    stops = hook.before_model_request(lambda state: state.stop("closed"))
    result: RunResult[Any] = await Agent("a", "test", output_type=Answer, capabilities=[stops]).run("go")
    assert result.output is None
    assert result.stop is not None
    assert "closed" == result.stop.message


async def test_deps_are_never_in_the_state() -> None:
    """Neither state nor log know them."""
    result = await make([call("look", {"n": 1}), "done"]).run("go", deps={"secret": "s3cret"})
    assert "s3cret" not in str(result.state) + str([record.to_dict() for record in result.log])


async def test_result_counts_not_contents() -> None:
    """The repr of a result is bounded."""
    result = await make([AssistantMessage("x" * 10_000)]).run("y" * 10_000)
    assert len(repr(result)) < 200
    assert len(repr(result.state)) < 400


async def test_one_script_for_many_agents() -> None:
    """A model object may serve many agents; FunctionModel answers by request."""
    model = FunctionModel(lambda request: f"{request.step}:{len(request.messages)}")
    for prompt in ("a", "b"):
        assert "1:1" == (await make(model=model).run(prompt)).output


@frozen
class Configured(Capability):
    """Has one field."""

    value: int = field(default=0)


async def test_same_capability_in_two_agents() -> None:
    """A capability is its config: it may stand in many lists at once."""
    shared = Configured(3)
    one, two = make(capabilities=[shared]), make(capabilities=[shared, RequireApproval()])
    assert one.capabilities[0] is two.capabilities[0]
    assert one.setup.prints["Configured"] == two.setup.prints["Configured"]
    assert one.setup.prints["Configured"] != make(capabilities=[Configured(4)]).setup.prints["Configured"]
