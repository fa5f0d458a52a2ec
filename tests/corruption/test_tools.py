"""Tools and admission: what was not selected does not run, and what was judged is what runs."""

import json
from collections.abc import Callable
from typing import Annotated, Any

import openai
import pytest
from attrs import evolve, frozen

from capfold.capabilities import (
    Annotations,
    AssistantMessage,
    CallNext,
    CallState,
    Capability,
    FromContext,
    FromDeps,
    Problem,
    RefuseTools,
    RequireApproval,
    RunState,
    SelectTools,
    Tool,
    ToolBudget,
    ToolCall,
    ToolContext,
    Toolkit,
    ToolMessage,
    Usage,
    call,
    for_tools,
    group,
    hook,
    nested,
    when,
)
from capfold.capabilities.frozen import FrozenDict
from capfold.capabilities.verdict import Failure, Outcome
from capfold.runtime import (
    Agent,
    Approve,
    LimitExceeded,
    Limits,
    ModelError,
    ModelFailed,
    ModelProfile,
    ModelRunError,
    OpenAIModel,
    Permissions,
    RunResult,
)
from capfold.runtime.scripted_model import Reply
from tests.corruption.builders import (
    Bodies,
    agent,
    at,
    culprit,
    failure,
    hook_of,
    partial_of,
    records,
    requests_of,
    shapes,
)

PAY = call("pay", {"amount": 1}, id="c1")


def results(result: RunResult[Any]) -> list[ToolMessage]:
    """Return the tool messages of a run."""
    return [message for message in result.messages if isinstance(message, ToolMessage)]


# --- C14, C15: selection


async def test_c14_a_deselected_tool_is_not_executed() -> None:
    """A tool hidden from the request and called anyway: not run, model told, charged, on record."""
    bodies = Bodies()
    looked: list[str] = []

    def look(state: CallState) -> CallState:
        looked.append(state.outcome.status if state.outcome is not None else "")
        return state

    made = agent(
        [PAY, "done"],
        tools=[bodies.pay(), bodies.pay("read")],
        capabilities=[SelectTools({"read"}), at("after_tool_execute", look, "look")],
    )
    result = await made.run("go")
    assert ([], ["validation_error"]) == (bodies.ran, looked)
    (told,) = results(result)
    assert ("c1", "pay", "validation_error") == (told.call_id, told.tool, told.status)
    assert "The tool 'pay' is not available here. Available: read." == told.content
    assert (1, 1, "completed") == (result.tool_calls, result.state.unselected_retries_used, result.status)
    (refused,) = records(result.log, "call_refused")
    assert ("c1", "runtime", "validation_error") == (refused.call, refused.actor, refused.facts["status"])
    assert [] == records(result.log, "call_admitted", "tool_started")


async def test_c14_no_hook_shapes_or_judges_a_call_outside_the_prepared_set() -> None:
    """Neither before, admit nor wrapper is called for it, so nothing can let it through."""
    called: list[str] = []

    def note(name: str) -> Any:
        def look(record: Any) -> Any:
            called.append(name)
            return record

        return look

    points = ("before_tool_execute", "admit_tool_execute", "wrap_tool_execute:in", "after_tool_execute")
    bodies = Bodies()
    made = agent(
        [PAY, "done"],
        tools=[bodies.pay()],
        capabilities=[SelectTools(set()), *(at(point, note(point), point) for point in points)],
    )
    await made.run("go")
    assert ["after_tool_execute"] == called


async def test_c14_unselected_calls_are_bounded() -> None:
    """A model that keeps calling what is not there ends the run by `unselected_retries`, 0 at once."""
    for forgiven in (0, 2):
        bodies = Bodies()
        made = agent(
            [PAY, PAY, PAY, PAY],
            tools=[bodies.pay()],
            capabilities=[SelectTools(set())],
            unselected_retries=forgiven,
        )
        error = await failure(made.run("go"))
        assert "UnselectedRetriesExhausted" == culprit(error)[0]
        assert (forgiven + 1, []) == (requests_of(made), bodies.ran)


def widen(record: Any) -> Any:
    """Select the whole inventory again."""
    run = record.run if isinstance(record, CallState) else record
    run = evolve(run, tools=run.inventory)
    return evolve(record, run=run) if isinstance(record, CallState) else run


@pytest.mark.parametrize(
    ("point", "field"),
    [
        ("before_model_request", "tools"),
        ("wrap_model_request:in", "tools"),
        ("wrap_model_request:out", "tools"),
        ("after_model_request", "tools"),
        ("before_tool_execute", "run.tools"),
        ("admit_tool_execute", "run.tools"),
        ("after_tool_execute", "run.tools"),
        ("wrap_tool_execute:in", "run.tools"),
        ("wrap_tool_execute:out", "run.tools"),
    ],
)
async def test_c15_a_selection_is_never_widened(point: str, field: str) -> None:
    """What an earlier capability deselected comes back at no point: rejected by name, and never run."""
    bodies = Bodies()
    made = agent(
        [[call("read", {"amount": 1}), PAY], "done"],
        tools=[bodies.pay(), bodies.pay("read")],
        capabilities=[SelectTools({"read"}), at(point, widen, "forger")],
    )
    error = await failure(made.run("go"))
    assert ("IllegalTransition", "forger", hook_of(point), field) == culprit(error)
    assert 0 == bodies.named("pay")
    assert int(point in {"after_tool_execute", "wrap_tool_execute:out"}) == bodies.named("read")
    (record,) = records(partial_of(error).log, "rejected")
    assert ("forger", hook_of(point), {field}) == (record.actor, record.hook, set(record.rejected))


async def test_c15_a_selection_in_before_run_says_where_to_select() -> None:
    """A selection outside before_model_request is rejected, and the error says where it belongs."""
    made = agent(
        ["done"], capabilities=[at("before_run", lambda run: evolve(run, instructions="x"), "early")]
    )
    error = await failure(made.run("go"))
    assert ("IllegalTransition", "early", "before_run", "instructions") == culprit(error)
    assert "before_model_request" in error.reason.message
    assert 0 == requests_of(made)


# --- C17: calls that a hook adds


def adding(name: str, *, id: str = "", key: str = "adder", origin: str = "model") -> Capability:
    """Return a capability that adds a call to the first response."""

    def add(state: RunState) -> RunState:
        response = state.response
        assert response is not None
        if state.run_step > 1:
            return state
        extra = evolve(call(name, {"amount": 7}, id=id), origin=origin)
        return state.respond(evolve(response, tool_calls=(*response.tool_calls, extra)))

    return at("after_model_request", add, key)


@pytest.mark.parametrize("origin", ["model", "somebody"])
async def test_c17_an_added_call_names_its_origin(origin: str) -> None:
    """A call that a hook adds bears the hook's key, whatever it claims, in history and log."""
    bodies = Bodies()
    made = agent(["thinking", "done"], tools=[bodies.pay()], capabilities=[adding("pay", origin=origin)])
    result = await made.run("go")
    assert [("pay", 7)] == bodies.ran
    response = result.messages[1]
    assert isinstance(response, AssistantMessage)
    (added,) = response.tool_calls
    assert ("adder", "call_1_0") == (added.origin, added.id)
    (record,) = [r for r in records(result.log, "transition") if r.actor == "adder"]
    changed: Any = record.changes["response"]
    assert ["adder"] == [made_call["origin"] for made_call in changed["to"]["tool_calls"]]


@pytest.mark.parametrize("after_error", [True, False])
async def test_c17_a_call_that_a_wrapper_makes_up_names_its_origin(after_error: bool) -> None:  # noqa: FBT001  # a parameter of the test
    """A wrapper that responds in place of the model: its calls bear its key, whatever they claim."""

    async def made_up(call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
        if state.run_step > 1:
            return await call_next(state)
        if after_error:
            with pytest.raises(ModelError):
                await call_next(state)
        return state.respond(AssistantMessage(tool_calls=(PAY,), finish_reason="tool_calls"))

    bodies = Bodies()
    script: list[Reply] = [ModelError("server", "down", retryable=True)] if after_error else []
    made = agent(
        [*script, "done"],
        tools=[bodies.pay()],
        capabilities=[evolve(hook.wrap_model_request(made_up), key="fallback")],
    )
    result = await made.run("go")
    response = result.messages[1]
    assert isinstance(response, AssistantMessage)
    assert ["fallback"] == [asked.origin for asked in response.tool_calls]
    (made_up_record,) = [r for r in records(result.log, "transition") if r.actor == "fallback"]
    written: Any = made_up_record.changes["response"]
    assert ["fallback"] == [asked["origin"] for asked in written["to"]["tool_calls"]]
    assert 1 == len(records(result.log, "model_responded")), "only what a model sent"
    assert ([("pay", 1)], 1 + after_error) == (bodies.ran, result.requests)


async def test_c17_an_added_call_passes_the_same_gates() -> None:
    """Admission, permissions, selection and limits apply to an added call as to any other."""
    gates: dict[str, dict[str, Any]] = {
        "denied": {"capabilities": [adding("pay"), RefuseTools({"pay"})]},
        "denied ": {"capabilities": [adding("pay")], "permissions": Permissions((("pay", "deny"),))},
        "validation_error": {"capabilities": [SelectTools({"read"}), adding("pay")]},
    }
    for status, gate in gates.items():
        bodies = Bodies()
        made = agent(["x", "done"], tools=[bodies.pay(), bodies.pay("read")], **gate)
        result = await made.run("go")
        assert ([status.strip()], []) == ([message.status for message in results(result)], bodies.ran)
    bodies = Bodies()
    limited = agent(
        [PAY, "done"], tools=[bodies.pay()], capabilities=[adding("pay")], limits=Limits(tool_calls=1)
    )
    error = await failure(limited.run("go"))
    assert ("LimitExceeded", []) == (culprit(error)[0], bodies.ran)


async def test_c17_two_capabilities_may_each_add_a_call_without_id() -> None:
    """Calls that are added without id do not get into each other's way; each has its own origin and id."""
    bodies = Bodies()
    made = agent(
        ["x", "done"], tools=[bodies.pay()], capabilities=[adding("pay", key="a"), adding("pay", key="b")]
    )
    result = await made.run("go")
    response = result.messages[1]
    assert isinstance(response, AssistantMessage)
    assert ["a", "b"] == [added.origin for added in response.tool_calls]
    assert 2 == len({added.id for added in response.tool_calls})
    assert [7, 7] == [amount for _, amount in bodies.ran]
    assert ["succeeded"] * 2 == [message.status for message in results(result)]


async def test_c17_a_later_capability_may_touch_the_response_after_two_calls_without_id() -> None:
    """Two calls without id in a response are kept, as themselves, by a later hook that changes the text."""

    def add_two(state: RunState) -> RunState:
        response = state.response
        assert response is not None
        if state.run_step > 1:
            return state
        extra = (call("pay", {"amount": 1}), call("pay", {"amount": 2}))
        return state.respond(evolve(response, tool_calls=extra))

    def retext(state: RunState) -> RunState:
        response = state.response
        assert response is not None
        return state.respond(evolve(response, content="other"))

    bodies = Bodies()
    made = agent(
        ["x", "done"],
        tools=[bodies.pay()],
        capabilities=[at("after_model_request", add_two, "add"), at("after_model_request", retext, "text")],
    )
    result = await made.run("go")
    response = result.messages[1]
    assert isinstance(response, AssistantMessage)
    assert ("other", ["add", "add"]) == (response.content, [added.origin for added in response.tool_calls])
    assert [1, 2] == sorted(amount for _, amount in bodies.ran)  # type: ignore[type-var]  # integers


# --- C18: tuned tools


def tuned_otherwise(bodies: Bodies) -> dict[str, Any]:
    """Return, by name, ways to rebuild a tool that drop its gate."""
    other = bodies.pay("pay")
    return {
        "capabilities": lambda given: evolve(given, capabilities=()),
        "more capabilities": lambda given: given.with_capabilities(RefuseTools({"pay"}, key="other")),
        "function": lambda given: evolve(given, function=other.function),
        "no function": lambda given: evolve(given, function=None),
        "parameters": lambda given: evolve(given, parameters={"type": "object"}),
        "annotations": lambda given: evolve(given, annotations=Annotations(read_only=True)),
        "name": lambda given: evolve(given, name="pay2"),
        "rebuilt": lambda given: Tool("pay", "", given.parameters, given.function),
    }


@pytest.mark.parametrize("way", tuned_otherwise(Bodies()))
@pytest.mark.parametrize("verb", ["with_tools", "evolve"])
async def test_c18_a_gate_cannot_be_removed_by_rebuilding_the_tool(way: str, verb: str) -> None:
    """A tuned tool whose sealed parts changed is rejected by name, before any request."""
    bodies = Bodies()
    rebuild = tuned_otherwise(bodies)[way]

    def write(state: RunState) -> RunState:
        made = rebuild(state.tools[0])
        return state.with_tools(made) if verb == "with_tools" else evolve(state, tools=(made,))

    gated = bodies.pay().with_capabilities(RefuseTools({"pay"}))
    made = agent([PAY, "done"], tools=[gated], capabilities=[at("before_model_request", write, "tuner")])
    error = await failure(made.run("go"))
    assert ("IllegalTransition", "tuner", "before_model_request", "tools") == culprit(error)
    assert (0, []) == (requests_of(made), bodies.ran)


async def test_c18_what_may_be_tuned_keeps_the_gate() -> None:
    """Description, timeout, retries and metadata may be tuned; the gate still refuses."""
    bodies = Bodies()

    def write(state: RunState) -> RunState:
        return state.with_tools(evolve(state.tools[0], description="Pay, carefully.", metadata={"a": 1}))

    gated = bodies.pay().with_capabilities(RefuseTools({"pay"}))
    made = agent([PAY, "done"], tools=[gated], capabilities=[at("before_model_request", write, "tuner")])
    result = await made.run("go")
    assert (["denied"], []) == ([message.status for message in results(result)], bodies.ran)
    (record,) = records(result.log, "transition")[:1]
    assert ("tuner", {"tools"}) == (record.actor, set(record.changes))


# --- C19, C21, C22: the inventory


class Bundle(Capability):
    def provide_tools(self) -> tuple[Tool, ...]:
        return (Bodies().pay(),)


def test_c19_duplicate_names_fail_at_construction() -> None:
    """Agent + agent, agent + toolkit, toolkit + toolkit, agent + bundle, bundle + bundle: never last-wins."""
    pay = Bodies().pay
    clashes: list[dict[str, Any]] = [
        {"tools": [pay(), pay()]},
        {"tools": [pay(), Toolkit("kit", [pay()])]},
        {"tools": [Toolkit("a", [pay()]), Toolkit("b", [Toolkit("c", [pay()])])]},
        {"tools": [pay()], "capabilities": [Bundle()]},
        {"tools": [Toolkit("kit", [pay()])], "capabilities": [group(Bundle())]},
        {"capabilities": [Bundle(), Bundle(key="second")]},
    ]
    for clash in clashes:
        with pytest.raises(ValueError, match="two tools are named 'pay'"):
            agent([], **clash)


async def test_c19_a_run_cannot_bring_a_tool_over_a_gated_one() -> None:
    """A tool given to `run` under the name of a gated one is an error before the request."""
    bodies = Bodies()
    made = agent([PAY], tools=[Toolkit("kit", [bodies.pay()], capabilities=[RefuseTools({"pay"})])])
    with pytest.raises(ValueError, match="two tools are named 'pay'"):
        await made.run("go", tools=[bodies.pay()])
    assert (0, []) == (requests_of(made), bodies.ran)


@frozen
class Total:
    """A structured output."""

    amount: int


async def test_c19_a_tool_under_the_name_of_the_output_tool_is_refused_before_the_request() -> None:
    """A model that answers by an output tool refuses a user's tool of that name; nothing is sent."""

    async def final_output(amount: int) -> str:
        """Do something else."""
        return "x"

    # Nobody listens there: had the request been sent, its failure would be a "connection" one.
    async with openai.AsyncOpenAI(api_key="none", base_url="http://127.0.0.1:1") as client:
        model = OpenAIModel("m", client=client, profile=ModelProfile(json_schema=False))
        made = Agent("agent", model, tools=[final_output], output_type=Total)
        with pytest.raises(ModelRunError) as caught:
            await made.run("go")
    reason = caught.value.reason
    assert isinstance(reason, ModelFailed)
    assert "bad_request" == reason.kind
    assert "'final_output'" in reason.message


async def test_c19_a_selection_holds_each_name_once() -> None:
    """One tool selected twice is rejected by name, before the request."""
    made = agent(
        ["x"],
        tools=[Bodies().pay()],
        capabilities=[at("before_model_request", lambda run: evolve(run, tools=run.tools * 2), "twice")],
    )
    error = await failure(made.run("go"))
    assert ("IllegalTransition", "twice", "before_model_request", "tools") == culprit(error)
    assert 0 == requests_of(made)


async def test_c21_a_toolkit_gate_covers_nested_and_schema_tools() -> None:
    """A refusal on the outer toolkit reaches every member: nested toolkits, schema tools, plain functions."""
    bodies = Bodies()

    async def by_schema(arguments: dict[str, object], context: ToolContext) -> str:
        bodies.ran.append(("schema", arguments))
        return "ran"

    def plain() -> str:
        """Do it."""
        bodies.ran.append(("plain", None))
        return "ran"

    schema = Tool.from_schema("schema", "", {"type": "object"}, by_schema)
    kit = Toolkit(
        "outer",
        [plain, Toolkit("inner", [schema, Toolkit("deep", [bodies.pay()])])],
        capabilities=[RefuseTools(lambda _: True, reason="closed")],
    )
    free = bodies.pay("free")
    batch = [call("plain"), call("schema"), PAY, call("free", {"amount": 3})]
    result = await agent([batch, "done"], tools=[kit, free]).run("go")
    assert ["denied", "denied", "denied", "succeeded"] == [message.status for message in results(result)]
    assert [("free", 3)] == bodies.ran
    denied = records(result.log, "call_refused")
    assert ["RefuseTools"] * 3 == [record.actor for record in denied]


async def test_c21_a_toolkit_gate_covers_tools_given_to_one_run() -> None:
    """A toolkit given to `run` brings its gate along."""
    bodies = Bodies()
    kit = Toolkit("kit", [bodies.pay()], capabilities=[RefuseTools({"pay"})])
    result = await agent([PAY, "done"]).run("go", tools=[kit])
    assert (["denied"], []) == ([message.status for message in results(result)], bodies.ran)


def mentions() -> dict[str, Capability[Any]]:
    """Return capabilities that mention a tool that nobody has, each in its own way."""
    return {
        "gate": RefuseTools({"pya"}),
        "approval": RequireApproval({"pya"}),
        "budget": ToolBudget({"pya": 1}),
        "budget tools": ToolBudget(1, tools={"pya"}),
        "selector": SelectTools({"pya"}),
        "for_tools": for_tools({"pya"}, RefuseTools(lambda _: True)),
        "group": group(RefuseTools({"pya"})),
        "nested for_tools": nested(for_tools({"pya"}, RefuseTools(lambda _: True))),
        "when": when(lambda _: True, RefuseTools({"pya"})),
    }


@pytest.mark.parametrize(
    ("kind", "scope"),
    # A selector has model hooks, so it cannot stand on tools.
    [
        (kind, scope)
        for kind in mentions()
        for scope in ("agent", "toolkit", "tool")
        if (kind, scope) != ("selector", scope) or scope == "agent"
    ],
)
def test_c22_a_misspelt_tool_name_fails_at_construction(kind: str, scope: str) -> None:
    """A name in a gate, budget, selector or condition that no tool has fails, whatever the scope."""
    capability = mentions()[kind]
    bodies = Bodies()
    scopes: dict[str, Callable[[], dict[str, Any]]] = {
        "agent": lambda: {"tools": [bodies.pay()], "capabilities": [capability]},
        "toolkit": lambda: {"tools": [Toolkit("kit", [bodies.pay()], capabilities=[capability])]},
        "tool": lambda: {"tools": [bodies.pay().with_capabilities(capability)]},
    }
    if scope == "agent":
        agent([], tools=[bodies.pay(), bodies.pay("pya")], capabilities=[capability])
    with pytest.raises(ValueError, match="'pya'"):
        agent([], **scopes[scope]())


async def test_c22_a_misspelt_name_in_a_hook_is_an_error_of_that_hook() -> None:
    """`state.select_tools({"pya"})` in a hook ends the run by name, before the request."""
    made = agent(
        ["x"],
        tools=[Bodies().pay()],
        capabilities=[at("before_model_request", lambda run: run.select_tools({"pya"}), "select")],
    )
    error = await failure(made.run("go"))
    assert ("HookFailed", "select", "before_model_request", None) == culprit(error)
    assert "'pya'" in error.reason.message
    assert 0 == requests_of(made)


# --- C23, C25, C26, C27: what a call is


async def test_c23_the_model_cannot_fill_an_injected_argument() -> None:
    """A hidden parameter in the model's arguments: a validation error, body not run, value unchanged."""
    seen: list[tuple[object, object, object]] = []

    async def pay(
        amount: int,
        tenant: Annotated[str, FromContext("tenant")],
        bank: Annotated[object, FromDeps("bank")],
        context: ToolContext,
    ) -> str:
        """Pay an amount."""
        seen.append((tenant, bank, context.run_id))
        return "paid"

    hidden = [call("pay", {"amount": 1, name: "mallory"}) for name in ("tenant", "bank", "context")]
    made = agent([hidden, PAY, "done"], tools=[pay])
    assert ["amount"] == list(made.tools[0].parameters["properties"])  # type: ignore[arg-type]  # a mapping
    result = await made.run("go", context={"tenant": "acme"}, deps={"bank": 7}, run_id="r")
    assert ["validation_error"] * 3 + ["succeeded"] == [message.status for message in results(result)]
    assert [("acme", 7, "r")] == seen
    for name, message in zip(("tenant", "bank", "context"), results(result), strict=False):
        assert f"$.{name}: is not expected" in str(message.content)


async def test_c25_rewritten_arguments_are_the_one_effective_value() -> None:
    """A rewrite in before_tool_execute: history keeps the model's text; all others get the new value."""
    bodies = Bodies()
    shown: list[object] = []
    judged: list[object] = []

    def approve(requests: Any) -> list[Approve]:
        shown.extend(request.arguments for request in requests)
        return [Approve() for _ in requests]

    def judge(state: CallState) -> CallState:
        judged.append(state.arguments)
        return state

    made = agent(
        [ToolCall("c1", "pay", '{"amount":   1}'), "done"],
        tools=[bodies.pay()],
        capabilities=[
            at("admit_tool_execute", judge, "judge"),
            RequireApproval(),
            at("before_tool_execute", lambda state: state.with_arguments({"amount": 50}), "rewriter"),
        ],
        approver=approve,
    )
    result = await made.run("go")
    response = result.messages[1]
    assert isinstance(response, AssistantMessage)
    assert '{"amount":   1}' == response.tool_calls[0].arguments
    assert ([("pay", 50)], [{"amount": 50}], [{"amount": 50}]) == (bodies.ran, judged, shown)
    (admitted,) = records(result.log, "call_admitted")
    assert {"amount": 50} == admitted.facts["arguments"]
    (rewrite,) = [record for record in records(result.log, "transition") if record.actor == "rewriter"]
    assert {"arguments": {"from": {"amount": 1}, "to": {"amount": 50}}} == rewrite.changes


@pytest.mark.parametrize("bad", [{"amount": "x"}, {}, {"amount": 1, "more": 2}])
async def test_c25_a_rewrite_to_invalid_arguments_is_rejected(bad: dict[str, object]) -> None:
    """A hook that makes valid arguments invalid ends the run by name; nothing of the batch runs."""
    bodies = Bodies()
    made = agent(
        [[PAY, call("pay", {"amount": 2})]],
        tools=[bodies.pay()],
        capabilities=[at("before_tool_execute", lambda state: state.with_arguments(bad), "rewriter")],
    )
    error = await failure(made.run("go"))
    assert ("IllegalTransition", "rewriter", "before_tool_execute", "arguments") == culprit(error)
    assert ("c1", []) == (error.reason.call, bodies.ran)
    assert ["ToolMessage:not_executed"] * 2 == shapes(partial_of(error))[-2:]
    rejected = records(partial_of(error).log, "rejected")
    assert [("rewriter", {"arguments"})] == [(record.actor, set(record.rejected)) for record in rejected]


@pytest.mark.parametrize(
    "point", ["before_tool_execute", "admit_tool_execute", "after_tool_execute", "wrap_tool_execute:in"]
)
async def test_c25_arguments_cannot_be_edited_in_place(point: str) -> None:
    """`call.arguments["x"] = 1` raises in every hook, which ends the run by that hook's name."""

    def edit(state: Any) -> Any:
        state.arguments["x"] = 1
        return state

    bodies = Bodies()
    made = agent([PAY, "done"], tools=[bodies.pay()], capabilities=[at(point, edit, "editor")])
    error = await failure(made.run("go"))
    assert ("HookFailed", "editor", hook_of(point), None) == culprit(error)
    assert isinstance(error.__cause__, TypeError)
    assert int(point == "after_tool_execute") == bodies.named("pay")


RENAMES: dict[str, dict[str, Any]] = {
    "name": {"name": "read"},
    "id": {"id": "c9"},
    "kind": {"kind": "other"},
    "metadata": {"metadata": {"a": 1}},
    "arguments": {"arguments": '{"amount": 9}'},
    "origin": {"origin": "forger"},
}


@pytest.mark.parametrize("part", RENAMES)
@pytest.mark.parametrize("point", ["before_tool_execute", "admit_tool_execute", "wrap_tool_execute:in"])
async def test_c26_a_call_keeps_its_identity(point: str, part: str) -> None:
    """A changed id, name, kind, metadata or text is rejected right after that hook; nothing runs."""
    later: list[str] = []

    def look(state: CallState) -> CallState:
        later.append(state.id)
        return state

    bodies = Bodies()
    made = agent(
        [[PAY, call("pay", {"amount": 2}, id="c2")]],
        tools=[bodies.pay(sequential=True), bodies.pay("read")],
        capabilities=[
            at(point, lambda state: evolve(state, asked=evolve(state.asked, **RENAMES[part])), "forger"),
            at(point, look, "later"),
        ],
    )
    error = await failure(made.run("go"))
    assert ("IllegalTransition", "forger", hook_of(point), "asked") == culprit(error)
    assert ("c1", [], []) == (error.reason.call, bodies.ran, later)
    assert ["ToolMessage:not_executed"] * 2 == shapes(partial_of(error))[-2:]
    record = records(partial_of(error).log, "rejected")[0]
    assert ("forger", hook_of(point), "c1", {"asked"}) == (
        record.actor,
        record.hook,
        record.call,
        set(record.rejected),
    )


@pytest.mark.parametrize("part", RENAMES)
@pytest.mark.parametrize("point", ["after_tool_execute", "wrap_tool_execute:out"])
async def test_c26_a_call_keeps_its_identity_afterwards(point: str, part: str) -> None:
    """After its body ran, a call is not renamed either: rejected by name, and the effect stays on record."""
    bodies = Bodies()
    made = agent(
        [PAY],
        tools=[bodies.pay(), bodies.pay("read")],
        capabilities=[at(point, lambda s: evolve(s, asked=evolve(s.asked, **RENAMES[part])), "forger")],
    )
    error = await failure(made.run("go"))
    assert ("IllegalTransition", "forger", hook_of(point), "asked") == culprit(error)
    (told,) = results(partial_of(error))
    assert ("c1", "pay", "succeeded") == (told.call_id, told.tool, told.status)
    assert [("pay", 1)] == bodies.ran


@pytest.mark.parametrize("part", RENAMES)
async def test_c26_a_kept_id_keeps_its_call(part: str) -> None:
    """In after_model_request a call under its old id must be unchanged; under another id it is a new call."""

    def write(state: RunState) -> RunState:
        response = state.response
        assert response is not None
        if not response.tool_calls:
            return state
        changed = evolve(response.tool_calls[0], **RENAMES[part])
        return state.respond(evolve(response, tool_calls=(changed,)))

    bodies = Bodies()
    made = agent(
        [PAY, "done"],
        tools=[bodies.pay(), bodies.pay("read")],
        capabilities=[at("after_model_request", write, "forger")],
    )
    if part == "id":
        result = await made.run("go")
        response = result.messages[1]
        assert isinstance(response, AssistantMessage)
        assert [("c9", "forger")] == [(kept.id, kept.origin) for kept in response.tool_calls]
        return
    error = await failure(made.run("go"))
    assert ("IllegalTransition", "forger", "after_model_request", "response") == culprit(error)
    assert ([], ["ToolMessage:not_executed"]) == (bodies.ran, shapes(partial_of(error))[-1:])


OUTCOMES: dict[str, Any] = {
    "status": lambda outcome: evolve(outcome, status="denied"),
    "error": lambda outcome: evolve(outcome, error=Failure("Oops", "no")),
    "attempts": lambda outcome: evolve(outcome, attempts=0),
    "by": lambda outcome: evolve(outcome, by="person"),
    "none": lambda outcome: None,
    "other": lambda outcome: Outcome("answered", "mine"),
}


@pytest.mark.parametrize("point", ["after_tool_execute", "wrap_tool_execute:out"])
@pytest.mark.parametrize("part", OUTCOMES)
async def test_c27_an_outcome_keeps_what_happened(part: str, point: str) -> None:
    """An after hook or wrapper that rewrites status, error, attempts or author of an outcome is rejected."""
    bodies = Bodies()
    made = agent(
        [PAY, "done"],
        tools=[bodies.pay()],
        capabilities=[at(point, lambda s: evolve(s, outcome=OUTCOMES[part](s.outcome)), "forger")],
    )
    error = await failure(made.run("go"))
    assert ("IllegalTransition", "forger", hook_of(point), "outcome") == culprit(error)
    assert ([("pay", 1)], 1) == (bodies.ran, requests_of(made))
    partial = partial_of(error)
    (told,) = results(partial)
    assert "succeeded" == told.status
    (settled,) = records(partial.log, "tool_settled")
    assert "succeeded" == settled.facts["outcome"]["status"]  # type: ignore[index,call-overload]  # a mapping


@pytest.mark.parametrize("point", ["after_tool_execute", "wrap_tool_execute:out"])
async def test_c27_content_changes_are_on_record(point: str) -> None:
    """An after hook or wrapper may change what the model reads; the log says who, the status stays."""
    bodies = Bodies()
    made = agent(
        [PAY, "done"],
        tools=[bodies.pay()],
        capabilities=[at(point, lambda state: state.with_content("short", metadata={"a": 1}), "editor")],
    )
    result = await made.run("go")
    (told,) = results(result)
    assert ("short", "succeeded") == (told.content, told.status)
    (record,) = records(result.log, "transition")
    assert ("editor", hook_of(point), {"outcome"}) == (record.actor, record.hook, set(record.changes))


async def test_c27_usage_is_restored_in_an_after_hook() -> None:
    """Usage written in after_tool_execute is put back and on record."""
    bodies = Bodies()
    lie = Usage(input_tokens=0)
    made = agent(
        [PAY, "done"],
        tools=[bodies.pay()],
        capabilities=[
            at("after_tool_execute", lambda s: evolve(s, run=evolve(s.run, usage=lie)), "forger"),
        ],
    )
    result = await made.run("go")
    (record,) = records(result.log, "restored")
    assert ("forger", {"run.usage"}) == (record.actor, set(record.restored))
    assert 0 == result.usage.total


# --- C29, C30: what a model may send


async def strict_tool(flag: bool, count: int, names: list[str], size: float = 0.0) -> str:  # noqa: FBT001  # the type is what is tested
    """Take strict types."""
    return json.dumps([flag, count, names, size])


GOOD = {"flag": True, "count": 1, "names": ["a"]}
COERCED: dict[str, tuple[str, list[str]]] = {
    "text for bool": (json.dumps(GOOD | {"flag": "false"}), ["$.flag"]),
    "int for bool": (json.dumps(GOOD | {"flag": 1}), ["$.flag"]),
    "fraction for int": (json.dumps(GOOD | {"count": 1.9}), ["$.count"]),
    "text for int": (json.dumps(GOOD | {"count": "12"}), ["$.count"]),
    "bool for int": (json.dumps(GOOD | {"count": True}), ["$.count"]),
    "text for list": (json.dumps(GOOD | {"names": "abc"}), ["$.names"]),
    "number for text": (json.dumps(GOOD | {"names": ["a", 2]}), ["$.names[1]"]),
    "null for int": (json.dumps(GOOD | {"count": None}), ["$.count"]),
    "text for float": (json.dumps(GOOD | {"size": "1.5"}), ["$.size"]),
    "extra keys": (json.dumps(GOOD | {"more": 1, "most": 2}), ["$.more", "$.most"]),
    "missing": (json.dumps({"flag": True}), ["$.count", "$.names"]),
    "duplicate": ('{"flag": true, "count": 1, "count": 2, "names": []}', ["$.count"]),
    "NaN": ('{"flag": true, "count": NaN, "names": []}', ["$.count"]),
    "infinity": ('{"flag": true, "count": 1, "names": [], "size": -Infinity}', ["$.size"]),
    "no object": ("[1]", ["$"]),
    "no JSON": ("{", ["$"]),
    "empty": ("", ["$"]),
    "all at once": (
        json.dumps({"flag": "false", "count": 1.9, "names": "abc", "more": 1}),
        ["$.count", "$.flag", "$.more", "$.names"],
    ),
}


@pytest.mark.parametrize("case", COERCED)
async def test_c29_nothing_is_coerced(case: str) -> None:
    """Arguments that do not fit: one validation_error listing all problems with paths; no guard, no body."""
    text, paths = COERCED[case]
    judged: list[str] = []

    def judge(state: CallState) -> CallState:
        judged.append(state.id)
        return state

    async def body(flag: bool, count: int, names: list[str], size: float = 0.0) -> str:  # noqa: FBT001  # as above
        """Take strict types."""
        judged.append("body")
        return "ran"

    problems: list[tuple[Problem, ...]] = []

    def look(state: CallState) -> CallState:
        problems.append(state.problems)
        return state

    made = agent(
        [ToolCall("c1", "body", text), "done"],
        tools=[body],
        capabilities=[
            at("before_tool_execute", judge, "shape"),
            at("admit_tool_execute", judge, "judge"),
            at("after_tool_execute", look, "look"),
        ],
    )
    result = await made.run("go")
    (told,) = results(result)
    assert ("validation_error", []) == (told.status, judged)
    assert paths == sorted(problem.path for problem in problems[0])
    assert all(f"{path}: " in str(told.content) for path in paths)
    response = result.messages[1]
    assert isinstance(response, AssistantMessage)
    assert text == response.tool_calls[0].arguments


async def test_c29_an_integer_may_be_written_as_a_fraction_of_none() -> None:
    """`1.0` is an integer in JSON Schema, and a valid call runs with exactly what was sent."""
    made = agent(
        [ToolCall("c1", "strict_tool", '{"flag": true, "count": 1.0, "names": []}'), "x"], tools=[strict_tool]
    )
    result = await made.run("go")
    (told,) = results(result)
    assert ("succeeded", [True, 1, [], 0.0]) == (told.status, json.loads(str(told.content)))


async def test_c30_equal_ids_in_one_response_are_rejected() -> None:
    """Two calls with one id: the run ends, nothing ran."""
    bodies = Bodies()
    made = agent([[PAY, evolve(PAY, arguments='{"amount": 2}')]], tools=[bodies.pay()])
    error = await failure(made.run("go"))
    assert ("InvalidResponse", []) == (culprit(error)[0], bodies.ran)
    assert "c1" in error.reason.message
    assert ["UserMessage"] == shapes(partial_of(error))
    assert 0 == partial_of(error).tool_calls


async def test_c30_an_earlier_id_is_renamed_on_record() -> None:
    """The id of an earlier response again gets a new one; each call has one outcome under its own id."""
    bodies = Bodies()
    made = agent([PAY, evolve(PAY, arguments='{"amount": 2}'), "done"], tools=[bodies.pay()])
    result = await made.run("go")
    assert ["c1", "call_3_0"] == [message.call_id for message in results(result)]
    assert [1, 2] == [amount for _, amount in bodies.ran]
    (note,) = records(result.log, "note")
    assert {"c1": "call_3_0"} == note.facts["renamed_calls"]


async def test_c30_an_id_of_the_given_history_is_renamed() -> None:
    """The ids of the history that the caller passes count as earlier ones."""
    bodies = Bodies()
    first = await agent([PAY, "done"], tools=[bodies.pay()]).run("go")
    second = await agent([PAY, "done"], tools=[bodies.pay()]).run("on", messages=first.messages)
    ids = [message.call_id for message in results(second)]
    assert (2, 2, "c1") == (len(ids), len(set(ids)), ids[0])


async def test_c30_empty_ids_are_made() -> None:
    """Calls without id get ids from their place in the history; one outcome each, in call order."""
    bodies = Bodies()
    batch = [call("pay", {"amount": i}) for i in range(3)]
    result = await agent([batch, "done"], tools=[bodies.pay()]).run("go")
    assert ["call_1_0", "call_1_1", "call_1_2"] == [message.call_id for message in results(result)]
    assert ["paid 0", "paid 1", "paid 2"] == [message.content for message in results(result)]


async def test_c30_a_made_id_does_not_meet_one_that_the_model_gave() -> None:
    """A made id evades the ids that the same response brings, in whatever order."""
    for order in (0, 1):
        bodies = Bodies()
        given = call("pay", {"amount": 1}, id=f"call_1_{1 - order}")
        empty = call("pay", {"amount": 2})
        batch = [given, empty] if order == 0 else [empty, given]
        result = await agent([batch, "done"], tools=[bodies.pay()]).run("go")
        ids = [message.call_id for message in results(result)]
        assert (2, 2) == (len(set(ids)), len(bodies.ran))
        assert given.id in ids


async def test_c30_added_calls_obey_the_same_rules() -> None:
    """A call added under an id that stands there already is rejected; an earlier one is renamed."""
    bodies = Bodies()
    made = agent([PAY, "done"], tools=[bodies.pay()], capabilities=[adding("pay", id="c1")])
    error = await failure(made.run("go"))
    assert ("IllegalTransition", "adder", "after_model_request", "response") == culprit(error)
    assert [] == bodies.ran

    first = await agent([PAY, "done"], tools=[bodies.pay()]).run("go")
    again = agent(["x", "done"], tools=[bodies.pay()], capabilities=[adding("pay", id="c1")])
    second = await again.run("on", messages=first.messages)
    ids = [message.call_id for message in results(second)]
    assert (2, 2) == (len(ids), len(set(ids)))


@hook.before_model_request
def hide_all(state: RunState) -> RunState:
    """Offer no tool."""
    return state.select_tools(set())


async def test_c14_nothing_selected_offers_nothing() -> None:
    """The request shows exactly the selection: with nothing selected, no tool is offered."""
    bodies = Bodies()
    made = agent(["done"], tools=[bodies.pay()], capabilities=[hide_all])
    result = await made.run("go")
    (requested,) = records(result.log, "model_requested")
    assert [] == requested.facts["tools"]
    assert FrozenDict() == result.state.tool_retries


async def test_c04_the_reason_counts_the_whole_batch() -> None:
    """The reason of a batch over the limit names what it would have come to."""
    bodies = Bodies()
    made = agent(
        [[call("pay", {"amount": i}) for i in range(3)]], tools=[bodies.pay()], limits=Limits(tool_calls=2)
    )
    error = await failure(made.run("go"))
    assert isinstance(error.reason, LimitExceeded)
    assert (3, 2) == (error.reason.used, error.reason.allowed)
    assert [] == bodies.ran
