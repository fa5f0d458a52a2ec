"""AgentHooks: what the conformance kit does not see. Batches, usage, transforms at every point, endings, replay."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from attrs import evolve, frozen
from hypothesis import settings
from hypothesis import strategies as st

from capfold.capabilities import (
    AssistantMessage,
    CallState,
    Capability,
    ImagePart,
    RequireApproval,
    RunState,
    SystemMessage,
    TextPart,
    ToolFailed,
    ToolMessage,
    Usage,
    UserMessage,
    call,
    inherited,
    tool,
)
from capfold.runtime import (
    Agent,
    AgentHooks,
    AgentHooksHost,
    Approve,
    BlockedError,
    Ended,
    HookError,
    RunResult,
    ScriptedModel,
    replay,
)
from capfold.runtime.agent_hooks_wire import read_messages, written_message
from capfold.runtime.laws import check_capability
from tests.conformance.kit import requests_of

pytest.importorskip("agent_hooks", reason="agent-hooks-sdk is not installed: the extra agent-hooks")

from agent_hooks import (
    Decision,
    EnforcementMode,
    InterceptionEmitter,
    Transform,
    Verdict,
)

# Any: a context is a JSON object, and what stands in it is looked at by each test.
Context = dict[str, Any]
Rule = Callable[[Context], Verdict | None]


class Rules:
    """An interceptor of one function per point, which keeps all that it was shown."""

    def __init__(self, **at: Rule) -> None:
        """Allow wherever no function is given, or it returns None."""
        self.at = at
        self.seen: list[Context] = []

    def intercept(self, context: Context) -> Verdict:
        """Rule on a point."""
        self.seen.append(deepcopy(context))
        rule = self.at.get(context["interception_point"])
        return (rule(context) if rule is not None else None) or Verdict.allow()

    def points(self) -> list[str]:
        """Return the names of the points, in order."""
        return [context["interception_point"] for context in self.seen]

    def shown(self, point: str) -> list[Context]:
        """Return the contexts of one point."""
        return [context for context in self.seen if context["interception_point"] == point]


def put(path: str, value: object) -> Rule:
    """Return a rule that puts a value in place of a part of the target."""
    return lambda context: Verdict(decision=Decision.TRANSFORM, transform=Transform(path, value))


def deny(reason: str) -> Rule:
    """Return a rule that denies."""
    return lambda context: Verdict.deny(reason=reason)


ran: list[str] = []


@tool
def pay(amount: int, to: str = "ada") -> str:
    """Pay an amount."""
    ran.append(f"{amount} to {to}")
    return f"paid {amount} to {to}"


@tool(read_only=True)
def look(n: int) -> dict[str, object]:
    """Look something up."""
    ran.append(f"look {n}")
    return {"n": n, "secret": "s3"}


@tool
def broken() -> str:
    """Fail."""
    raise ToolFailed("out of order")


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def desk(replies: list[Any], *others: Capability[Any], **options: Any) -> Agent[Any]:
    """Return an agent under AgentHooks and others after it."""
    options.setdefault("tools", [pay, look, broken])
    return Agent("desk", ScriptedModel(replies), capabilities=[AgentHooks(), *others], **options)


async def run(agent: Agent[Any], rules: Rules, prompt: Any = "go", **options: Any) -> RunResult[Any]:
    """Run an agent under the rules."""
    host = AgentHooksHost(InterceptionEmitter().register(rules))
    result: RunResult[Any] = await agent.run(prompt, deps={"agent_hooks": host}, **options)
    return result


def outcomes(result: RunResult[Any]) -> list[tuple[str, object]]:
    """Return status and content of each tool call."""
    return [(m.status, m.content) for m in result.messages if isinstance(m, ToolMessage)]


TWO = [call("pay", {"amount": 1}, id="a"), call("look", {"n": 2}, id="b")]


async def test_a_batch_of_two_is_shown_call_by_call() -> None:
    """Both calls are shown before either runs, with their arguments, and both results after both ran."""

    def judge(context: Context) -> None:
        ran.append("judged")

    rules = Rules(pre_tool_call=judge)
    result = await run(desk([TWO, "ok"]), rules)
    assert [
        "agent_startup",
        "input",
        "pre_model_call",
        "post_model_call",
        *["pre_tool_call"] * 2,
        *["post_tool_call"] * 2,
        "pre_model_call",
        "post_model_call",
        "output",
        "agent_shutdown",
    ] == rules.points()
    assert list(range(12)) == [context["sequence"] for context in rules.seen]
    assert ["judged", "judged"] == ran[:2]
    assert [("a", {"amount": 1}), ("b", {"n": 2})] == [
        (context["tool_call"]["id"], context["tool_call"]["args"]) for context in rules.shown("pre_tool_call")
    ]
    results = {c["tool_call"]["id"]: c["tool_result"]["value"] for c in rules.shown("post_tool_call")}
    assert {
        "a": "paid 1 to ada",
        "b": {"n": 2, "secret": "s3"},
    } == results  # in any order: they are emitted at once
    assert "ok" == result.output
    assert [{"reason": "completed", "tool_calls": 2}] == [c["summary"] for c in rules.shown("agent_shutdown")]


async def test_a_session_is_a_run() -> None:
    """The contexts name the agent and the run, whose id the session has; a request shows the tools on offer."""
    rules = Rules()
    result = await run(desk(["ok"], instructions="Be brief."), rules)
    assert {(result.state.run_id, "desk", "capfold")} == {
        (c["session"]["id"], c["agent"]["id"], c["agent"]["framework"]) for c in rules.seen
    }
    (request,) = rules.shown("pre_model_call")
    assert ["pay", "look", "broken"] == [one["name"] for one in request["tools"]]
    assert [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "go"}] == request[
        "messages"
    ]


@pytest.mark.parametrize(
    ("usage", "shown"),
    [
        (Usage(input_tokens=7, output_tokens=2), {"prompt_tokens": 7, "completion_tokens": 2}),
        (Usage(input_tokens=7), {"prompt_tokens": 7}),
        (None, None),
    ],
)
async def test_usage_is_shown_where_it_is_known(usage: Usage | None, shown: object) -> None:
    """What the provider did not say is left out; nothing is shown as 0."""
    rules = Rules()
    await run(desk([AssistantMessage("ok", usage=usage)]), rules)
    (response,) = rules.shown("post_model_call")
    if usage is None:  # the scripted model counts for itself then
        assert isinstance(response.get("usage", {}), dict)
    else:
        assert shown == response["usage"]


async def test_one_of_two_is_denied() -> None:
    """The denied call does not run and has no result to show; the other one does; the model reads why."""

    def no_payments(context: Context) -> Verdict | None:
        return Verdict.deny(reason="no payments") if context["tool_call"]["name"] == "pay" else None

    rules = Rules(pre_tool_call=no_payments)
    result = await run(desk([TWO, "ok"]), rules)
    assert ["look 2"] == ran
    assert ("denied", "blocked: no payments") == outcomes(result)[0]
    assert ["b"] == [context["tool_call"]["id"] for context in rules.shown("post_tool_call")]


async def test_arguments_of_each_are_transformed() -> None:
    """Each call runs with its own transformed arguments, and the history keeps what the model asked for."""

    def cap(context: Context) -> Verdict | None:
        if context["tool_call"]["name"] == "pay":
            return Verdict(decision=Decision.TRANSFORM, transform=Transform("$target.amount", 5))
        return Verdict(decision=Decision.TRANSFORM, transform=Transform("$target.n", 9))

    result = await run(desk([TWO, "ok"]), rules := Rules(pre_tool_call=cap))
    assert {"5 to ada", "look 9"} == set(ran)
    shown = {c["tool_call"]["id"]: c["tool_call"]["args"] for c in rules.shown("post_tool_call")}
    assert {"a": {"amount": 5}, "b": {"n": 9}} == shown
    asked = next(m for m in result.messages if isinstance(m, AssistantMessage))
    assert ['{"amount": 1}', '{"n": 2}'] == [one.arguments for one in asked.tool_calls]


async def test_arguments_that_become_invalid_end_the_run() -> None:
    """The record names AgentHooks; nothing ran."""
    with pytest.raises(HookError) as caught:
        await run(desk([TWO, "ok"]), Rules(pre_tool_call=put("$target.amount", "much")))
    assert "AgentHooks" == caught.value.reason.key
    assert [] == ran


async def test_invalid_calls_and_unknown_tools_are_not_shown() -> None:
    """A call that cannot run is no tool call; its response was shown all the same, as the model sent it."""
    broken_call = evolve(call("pay", id="x"), arguments='{"amount": ')
    rules = Rules()
    result = await run(desk([[broken_call, call("pay", {"amount": "1"}, id="y")], "ok"]), rules)
    assert [] == rules.shown("pre_tool_call") + rules.shown("post_tool_call")
    assert {"invalid_json": '{"amount": '} == rules.shown("post_model_call")[0]["response"]["tool_calls"][0][
        "args"
    ]
    assert ["validation_error"] * 2 == [status for status, _ in outcomes(result)]


async def test_input_is_transformed_or_denied() -> None:
    """The run's own input changes, in its history too; a denial ends the run before any request."""
    result = await run(desk(["ok"]), Rules(input=put("$target.content", "[hidden]")), "my number is 12")
    assert "[hidden]" == result.messages[0].content
    with pytest.raises(BlockedError, match="agent-hooks denied input: not this"):
        await run(desk(["ok"]), rules := Rules(input=deny("not this")))
    assert ["agent_startup", "input", "agent_shutdown"] == rules.points()
    assert "error" == rules.seen[-1]["summary"]["reason"]


async def test_history_before_the_run_is_no_input() -> None:
    """Of a conversation that goes on, only what this run was started with is input."""
    rules = Rules()
    await run(desk(["ok"]), rules, "new", messages=[UserMessage("old"), AssistantMessage("yes")])
    assert ["new"] == [context["input"]["content"] for context in rules.shown("input")]
    assert ["old", "yes", "new"] == [m["content"] for m in rules.shown("pre_model_call")[0]["messages"]]


async def test_what_is_sent_is_transformed_and_the_history_is_not() -> None:
    """Content changed, a message dropped, one added, instructions changed: in this request alone."""

    def shorten(context: Context) -> Verdict:
        first, *rest = context["messages"]
        made = [{**first, "content": "Be kind."}, {"role": "user", "content": "Hello."}, *rest[2:]]
        return Verdict(decision=Decision.TRANSFORM, transform=Transform("$target", made))

    history = [UserMessage("old"), AssistantMessage("yes")]
    agent = desk(["ok"], instructions="Be brief.")
    result = await run(agent, Rules(pre_model_call=shorten), "new", messages=history)
    (request,) = requests_of(agent)
    assert "Be kind." == request.instructions
    assert ["Hello.", "new"] == [m.content for m in request.messages]
    assert ["new", "ok"] == [m.content for m in result.messages][-2:]
    assert "Hello." not in [m.content for m in result.messages]


async def test_a_view_that_cannot_be_sent_ends_the_run() -> None:
    """Interceptors cannot tear a call from its result: the runtime's own check holds for them too."""

    def tear(context: Context) -> Verdict | None:
        kept = [m for m in context["messages"] if m["role"] != "tool"]
        return Verdict(decision=Decision.TRANSFORM, transform=Transform("$target", kept))

    with pytest.raises(HookError, match="AgentHooks"):
        await run(desk([TWO, "ok"]), Rules(pre_model_call=tear))


async def test_a_response_is_transformed() -> None:
    """Text changes; a call may be edited, dropped or added; an edited one is a call of its own, and judged."""

    def edit(context: Context) -> Verdict | None:
        if not context["response"]["tool_calls"]:
            return None
        edited = {"id": "a", "name": "pay", "args": {"amount": 3}}
        made = {"content": "I pay 3.", "tool_calls": [edited], "finish_reason": "tool_calls"}
        return Verdict(decision=Decision.TRANSFORM, transform=Transform("$target", made))

    rules = Rules(post_model_call=edit)
    result = await run(desk([TWO, "ok"]), rules)
    said = next(m for m in result.messages if isinstance(m, AssistantMessage))
    assert ("I pay 3.", ["a.1"]) == (said.content, [one.id for one in said.tool_calls])
    assert [("a.1", {"amount": 3})] == [
        (c["tool_call"]["id"], c["tool_call"]["args"]) for c in rules.shown("pre_tool_call")
    ]
    assert ["3 to ada"] == ran


async def test_a_denied_response_stays_out_of_the_history() -> None:
    """Nothing of it runs, and its text is not the run's."""
    with pytest.raises(BlockedError, match="post_model_call: no") as caught:
        await run(desk([AssistantMessage("secret", tool_calls=TWO)]), Rules(post_model_call=deny("no")))
    assert [] == ran
    assert "secret" not in repr(caught.value.partial and caught.value.partial.messages)


async def test_nothing_is_streamed_before_it_was_judged() -> None:
    """A response that is denied is not told in parts either."""
    host = AgentHooksHost(InterceptionEmitter().register(Rules(post_model_call=deny("no"))))
    async with desk(["secret"]).stream("go", deps={"agent_hooks": host}) as stream:
        events = [event async for event in stream]
    assert "secret" not in repr(events)
    assert isinstance(events[-1], Ended)
    assert isinstance(events[-1].error, BlockedError)


async def test_a_result_is_transformed_or_denied() -> None:
    """What the model reads changes, the status does not; a failed result is shown as an error."""
    result = await run(desk([TWO, "ok"]), Rules(post_tool_call=put("$target", {"n": 0})))
    assert [("succeeded", '{"n": 0}')] * 2 == outcomes(result)
    result = await run(desk([TWO, "ok"]), Rules(post_tool_call=deny("tainted")))
    assert [("succeeded", "blocked: tainted")] * 2 == outcomes(result)
    result = await run(desk([call("broken"), "ok"]), rules := Rules())
    assert [True] == [c["tool_result"]["is_error"] for c in rules.shown("post_tool_call")]


@frozen
class Invoice:
    """An output type."""

    number: str
    amount: int


async def test_an_output_is_transformed_in_its_type() -> None:
    """Text stays text, a record stays a record; what is none ends the run."""
    result = await run(desk(["Your number is 12."]), Rules(output=put("$target.content", "[hidden]")))
    assert "[hidden]" == result.output
    said = '{"number": "I-1", "amount": 10}'
    agent = desk([said], output_type=Invoice)
    result = await run(agent, rules := Rules(output=put("$target.content.number", "[hidden]")))
    assert Invoice("[hidden]", 10) == result.output
    assert {"number": "I-1", "amount": 10} == rules.shown("output")[0]["output"]["content"]
    with pytest.raises(HookError, match="AgentHooks"):
        await run(desk([said], output_type=Invoice), Rules(output=put("$target.content.amount", "ten")))
    with pytest.raises(BlockedError, match="output: no"):
        await run(desk(["ok"]), Rules(output=deny("no")))


async def test_evaluate_only_changes_nothing() -> None:
    """Denials and transforms are on the emitter's record, and the run is the one without them."""
    rules = Rules(pre_tool_call=deny("no"), output=put("$target.content", "x"), input=deny("no"))
    emitter = InterceptionEmitter(mode=EnforcementMode.EVALUATE_ONLY).register(rules)
    result = await desk([TWO, "ok"]).run("go", deps={"agent_hooks": AgentHooksHost(emitter)})
    assert ("ok", {"1 to ada", "look 2"}) == (result.output, set(ran))
    denied = [
        one.interception_point.value for one in emitter.results if one.verdict.decision is Decision.DENY
    ]
    assert ["input", "pre_tool_call", "pre_tool_call"] == denied


@frozen
class Ten(Capability):
    """Pays ten, whatever was asked."""

    def before_tool_execute(self, call: CallState) -> CallState:
        return call.with_arguments({**call.arguments, "amount": 10}) if call.name == "pay" else call


async def test_arguments_that_others_change_are_judged_again() -> None:
    """What runs was judged as it runs; a transform comes too late by then, and the call is refused."""
    rules = Rules()
    await run(desk([[TWO[0]], "ok"], Ten()), rules)
    assert [{"amount": 1}, {"amount": 10}] == [c["tool_call"]["args"] for c in rules.shown("pre_tool_call")]
    assert ["10 to ada"] == ran

    def much(context: Context) -> Verdict | None:
        return Verdict.deny(reason="too much") if context["tool_call"]["args"]["amount"] > 5 else None

    result = await run(desk([[TWO[0]], "ok"], Ten()), Rules(pre_tool_call=much))
    assert [("denied", "blocked: too much")] == outcomes(result)
    result = await run(desk([[TWO[0]], "ok"], Ten()), Rules(pre_tool_call=put("$target.amount", 6)))
    (told,) = outcomes(result)
    assert "denied" == told[0]
    assert "sealed" in str(told[1])
    assert ["10 to ada"] == ran


@frozen
class Louder(Capability):
    """Changes the input, each response, each result and the output."""

    def before_run(self, state: RunState) -> RunState:
        return evolve(state, messages=(UserMessage("GO"),))

    def after_run(self, state: RunState) -> RunState:
        return evolve(state, output=f"{state.output}!")

    def after_model_request(self, state: RunState) -> RunState:
        assert state.response is not None
        return state.respond(evolve(state.response, content=f"{state.response.text}!"))

    def after_tool_execute(self, call: CallState) -> CallState:
        assert call.outcome is not None
        return call.with_content(f"{call.outcome.content}!")


@pytest.mark.parametrize(
    "rules",
    [
        Rules(input=put("$target.content", "x")),
        Rules(post_model_call=put("$target.content", "x")),
        Rules(output=put("$target.content", "x")),
    ],
)
async def test_a_transform_is_not_laid_over_what_others_changed(rules: Rules) -> None:
    """Who stands before AgentHooks and changes what was judged blocks the run, and the error says what to do."""
    agent = Agent("desk", ScriptedModel(["ok"]), capabilities=[Louder(), AgentHooks()])
    with pytest.raises(BlockedError, match="list AgentHooks before it"):
        await run(agent, rules)


async def test_a_result_that_others_changed_is_withheld() -> None:
    """As for the other points, but that a tool's denial does not end the run."""
    agent = Agent(
        "desk", ScriptedModel([TWO, "ok"]), tools=[pay, look], capabilities=[Louder(), AgentHooks()]
    )
    result = await run(agent, Rules(post_tool_call=put("$target", "x")))
    assert {"blocked: the result was changed between the judgement and its transform"} == {
        content for _, content in outcomes(result)
    }


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (Rules(input=put("$target.role", "external")), "input.role must stay 'user'"),
        (Rules(pre_model_call=put("$target", "x")), "messages must be a list"),
        (Rules(post_model_call=put("$target.finish_reason", "bored")), "finish_reason must be one of"),
        (
            Rules(post_model_call=put("$target.content", 3)),
            "response.content must be text or a list of parts",
        ),
    ],
)
async def test_what_no_record_can_hold_ends_the_run(rules: Rules, message: str) -> None:
    """Fail closed: a transform that cannot take effect is no allowance; the error says where."""
    with pytest.raises(HookError, match=message):
        await run(desk(["ok"]), rules)


async def test_media_are_named_and_kept() -> None:
    """A picture is shown by its type and size, stays what it is when a text beside it changes, and may be dropped."""
    picture = ImagePart(data=b"12345", media_type="image/png")
    prompt = (TextPart("my number is 12"), picture)

    def hide(context: Context) -> Verdict:
        made = [{"type": "text", "text": "[hidden]"}, *context["target"]["content"][1:]]
        return Verdict(decision=Decision.TRANSFORM, transform=Transform("$target.content", made))

    result = await run(desk(["ok"]), rules := Rules(input=hide), prompt)
    assert (TextPart("[hidden]"), picture) == result.messages[0].content
    assert {"type": "image", "media_type": "image/png", "bytes": 5} == rules.seen[1]["input"]["content"][1]
    forged = put("$target.content[1]", {"type": "image", "media_type": "image/png", "bytes": 6})
    with pytest.raises(HookError, match="a part that was there before"):
        await run(desk(["ok"]), Rules(input=forged), prompt)


async def test_a_cancelled_run_says_so() -> None:
    """agent_shutdown is emitted with its reason, and the cancellation goes on."""
    started = anyio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await anyio.sleep_forever()
        return ""

    rules = Rules()
    async with anyio.create_task_group() as group:
        group.start_soon(run, desk([call("wait")], tools=[wait]), rules)
        await started.wait()
        group.cancel_scope.cancel()
    assert [("agent_shutdown", "cancelled")] == [
        (c["interception_point"], c["summary"]["reason"]) for c in rules.seen if "summary" in c
    ]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancelled_interceptor_leaves_no_gap() -> None:
    """The emitter's trail holds the point that was cut short, as a denial, and agent_shutdown after it."""
    started = anyio.Event()

    class Slow:
        async def intercept(self, context: Context) -> Verdict:
            if context["interception_point"] == "pre_tool_call":
                started.set()
                await anyio.sleep_forever()
            return Verdict.allow()

    emitter = InterceptionEmitter().register(Slow())  # type: ignore[arg-type]  # async too, says its docstring
    agent = desk([TWO, "ok"])
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: agent.run("go", deps={"agent_hooks": AgentHooksHost(emitter)}))
        await started.wait()
        group.cancel_scope.cancel()
    *_, cut, last = emitter.results
    assert ("pre_tool_call", "deny") == (cut.interception_point.value, cut.verdict.decision.value)
    assert ("agent_shutdown", "allow") == (last.interception_point.value, last.verdict.decision.value)
    assert [] == ran


async def test_a_suspended_run_is_one_session() -> None:
    """Waiting for a person is no end: one startup, one shutdown; what was judged is not judged again."""
    rules = Rules()
    agent = desk([[TWO[0]], "ok"], RequireApproval({"pay"}))
    host = AgentHooksHost(InterceptionEmitter().register(rules))
    waiting = await agent.run("go", deps={"agent_hooks": host})
    assert ("suspended", 0) == (waiting.status, len(rules.shown("agent_shutdown")))
    (asked,) = waiting.pending
    result = await agent.resume(waiting.snapshot(), {asked.digest: Approve()}, deps={"agent_hooks": host})
    assert "ok" == result.output
    assert (1, 1, 1) == tuple(
        len(rules.shown(point)) for point in ("agent_startup", "pre_tool_call", "agent_shutdown")
    )
    assert sorted(range(len(rules.seen))) == [context["sequence"] for context in rules.seen]


async def test_a_sub_agent_is_a_session_of_its_own() -> None:
    """Inherited, the capability judges the child too, whose contexts are numbered by themselves."""
    child = Agent("child", ScriptedModel(["found"]))
    parent = Agent(
        "parent",
        ScriptedModel([call("child", {"task": "find"}), "ok"]),
        tools=[child.as_tool("Find.")],
        capabilities=[inherited(AgentHooks())],
    )
    await run(parent, rules := Rules())
    by_agent: dict[str, list[int]] = {}
    for context in rules.seen:
        by_agent.setdefault(context["agent"]["id"], []).append(context["sequence"])
    assert {"parent": list(range(10)), "child": list(range(6))} == by_agent


async def test_a_run_is_replayed_without_the_sdk() -> None:
    """The rulings are facts on record: a replay needs no emitter, and gives the same digests."""
    rules = Rules(pre_tool_call=put("$target.amount", 5), output=put("$target.content", "x"))
    agent = desk([[TWO[0]], "ok"])
    result = await run(agent, rules)
    again = replay(result.log, agent)
    assert (result.log.head, "x", ["5 to ada"]) == (again.records.head, again.state.output, ran)


async def test_a_missing_host_is_said_at_once() -> None:
    """Without the key no run starts; with something else under it, the error says what is wanted."""
    with pytest.raises(ValueError, match="agent_hooks"):
        await desk(["ok"]).run("go", deps={})
    with pytest.raises(HookError, match="must be an AgentHooksHost, not str"):
        await desk(["ok"]).run("go", deps={"agent_hooks": "host"})
    with pytest.raises(TypeError, match="takes an InterceptionEmitter, not Rules"):
        AgentHooksHost(Rules())  # type: ignore[arg-type]  # the value under test
    with pytest.raises(TypeError, match="takes an InterceptionEmitter, not type"):
        AgentHooksHost(InterceptionEmitter)  # type: ignore[arg-type]  # as above
    for key in ("", 1):
        with pytest.raises(TypeError, match="the key of an AgentHooksHost"):
            AgentHooks(dep=key)  # type: ignore[arg-type]  # as above


async def test_dependencies_may_be_an_object() -> None:
    """As everywhere: a key of a mapping, or an attribute."""
    host = AgentHooksHost(InterceptionEmitter().register(Rules()))
    result = await desk(["ok"]).run("go", deps=SimpleNamespace(agent_hooks=host))
    assert "ok" == result.output


def rulings() -> st.SearchStrategy[Mapping[str, object]]:
    """Return a strategy for rulings as facts: allowed, denied, or changed to text after somebody changed it first."""
    plain = st.fixed_dictionaries({"proceeds": st.booleans(), "reason": st.just("why"), "seen": st.text()})
    return plain | plain.map(lambda fact: {**fact, "target": {"content": "x", "role": "user"}})


def test_the_laws_hold() -> None:
    """Its reducers are pure, total over all rulings, and write nothing that is not theirs."""
    check_capability(
        AgentHooks(),
        facts={
            "gather_before_run": st.lists(rulings().map(lambda fact: {"index": 0, **fact}), max_size=2),
            "gather_after_model_request": rulings().map(lambda fact: {"response": fact, "calls": {}}),
            "gather_admit_tool_execute": st.none() | rulings(),
            "gather_after_tool_execute": st.none() | rulings(),
            "gather_after_run": rulings(),
        },
        settings=settings(max_examples=40),
    )


def test_a_system_message_of_the_view_is_no_instruction() -> None:
    """Records to the wire and back: what was not touched is the identical record."""
    before = (SystemMessage("s"), UserMessage("u"), AssistantMessage("", tool_calls=tuple(TWO)))
    after = read_messages([written_message(m) for m in before], before)
    assert all(new is old for new, old in zip(after, before, strict=True))
