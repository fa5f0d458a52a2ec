"""AG2's tool middleware, claim by claim: hooks that live beside one tool are capabilities in tool scope."""

import os
import subprocess
import sys
from collections import Counter as Counts
from threading import Lock
from typing import Annotated, Any, ClassVar

import pytest
from attrs import evolve, field, frozen
from attrs.exceptions import FrozenInstanceError

from capfold.capabilities import (
    Backoff,
    CallNext,
    CallState,
    Capability,
    FromCall,
    FromContext,
    FromDeps,
    RequireApproval,
    RetryTool,
    RunState,
    SharedBudget,
    Tool,
    ToolBudget,
    ToolContext,
    ToolFailed,
    ToolHook,
    Toolkit,
    call,
    for_tools,
    hook,
    inherited,
    tool,
)
from capfold.capabilities.capability import Declaration
from capfold.runtime import (
    Agent,
    Approve,
    Counter,
    ScriptedModel,
    dump_capabilities,
    load_capabilities,
)
from capfold.runtime.scripted_model import Reply
from tests.conformance import kit
from tests.conformance.kit import LIBRARY_TOOL, Befores, Desk, Onion, Seen, agent, calls, gate
from tests.corruption.builders import at, records, spy
from tests.corruption.scenes import contents, statuses


def saying(seen: list[str], name: str = "h") -> Any:  # Any: a plain function, as users write hooks
    """Return a plain async hook that says for which call it was called."""

    async def plain(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        seen.append(f"{name} {call.name} {call.id}")
        return await call_next(call)

    return plain


def two_tools(*, hooks: tuple[Any, ...] = ()) -> tuple[Desk, list[Tool]]:
    """Return the tools `first`, which has hooks, and `second`, which has none."""
    desk = Desk()
    return desk, [desk.tool("first", capabilities=hooks), desk.tool("second")]


BOTH = [*calls(1, name="first"), *calls(2, name="second")]


async def test_a01_a_tool_scoped_hook_runs_around_its_tool_and_no_other() -> None:
    """`@tool(capabilities=[h])`: h is called for that tool's call only."""
    seen: list[str] = []
    _, tools = two_tools(hooks=(saying(seen),))
    await agent([BOTH, "done"], tools=tools).run("go")
    assert ["h first c1"] == seen


def test_a02_a_plain_hook_is_async_or_refused_at_definition() -> None:
    """A plain `async def h(call_next, call)` is accepted, a sync one is a TypeError."""

    def plain(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        return call

    assert isinstance(Desk().tool(capabilities=[saying([])]).capabilities[0], ToolHook)
    with pytest.raises(TypeError, match="takes an async function"):
        Desk().tool(capabilities=[plain])


async def test_a04_the_agents_list_covers_every_tool() -> None:
    """An agent-level wrapper over three tools saw all three."""
    seen: list[str] = []
    desk, names = Desk(), ("one", "two", "three")
    asked = [call(name, {"n": 1}, id=name) for name in names]
    made = agent(
        [asked, "done"], tools=[desk.tool(name) for name in names], capabilities=[ToolHook(saying(seen))]
    )
    await made.run("go")
    assert [f"h {name} {name}" for name in names] == sorted(
        seen, key=lambda line: names.index(line.split()[1])
    )


async def test_a05_a_tool_without_capabilities_has_no_layer() -> None:
    """Its plan holds no link at all; the other tool's holds its one wrapper."""
    _, tools = two_tools(hooks=(saying([]),))
    plan = agent([], tools=tools).setup.plan
    bare = plan.tool("second")
    chains = (bare.before, bare.repairs, bare.admit, bare.after, bare.wrappers)
    assert [] == [link for chain in chains for link in chain.links]
    assert 1 == len(plan.tool("first").wrappers.links)


async def test_a06_a_gate_travels_with_its_tool() -> None:
    """An agent that uses a tool from a library runs the library's gate."""
    result = await agent([calls(1, 2), "done"], tools=[LIBRARY_TOOL]).run("go")
    assert {"c1": "succeeded", "c2": "denied"} == statuses(result.messages)


async def test_a08_a_policy_for_some_tools_needs_no_branch_on_names() -> None:
    """`for_tools({"first"}, cap)`: cap's hooks run for `first` only."""
    seen: list[str] = []
    _, tools = two_tools()
    policy = for_tools({"first"}, spy("admit_tool_execute", lambda call: seen.append(call.name)))
    await agent([BOTH, "done"], tools=tools, capabilities=[policy]).run("go")
    assert ["first"] == seen


async def test_a09_an_agent_takes_plain_functions_as_tools() -> None:
    """`Agent(tools=[f])` makes a tool of f; decided: there is no `Agent.tool` and no `Toolkit.tool`."""

    def work(n: int) -> str:
        """Do a piece of work."""
        return f"did {n}"

    made = agent([*calls(1), "done"], tools=[work])
    assert ["work"] == [made_tool.name for made_tool in made.tools]
    assert {"c1": "did 1"} == contents((await made.run("go")).messages)
    assert not hasattr(Agent, "tool")
    assert not hasattr(Toolkit, "tool")


@frozen
class Mend(Capability):
    """Trims texts and makes numbers of those that are some."""

    declares: ClassVar[frozenset[Declaration]] = frozenset({"repairs"})

    def before_tool_execute(self, call: CallState) -> CallState:
        mended = {
            key: value.strip() if isinstance(value, str) else value for key, value in call.arguments.items()
        }
        n = mended.get("n")
        if isinstance(n, str) and n.isdigit():
            mended["n"] = int(n)
        return call.with_arguments(mended)


async def test_a10_a_hook_that_repairs_mends_arguments_before_they_are_judged() -> None:
    """Decided: it declares "repairs". Validation, admission, body and log see 7, history the model's text."""
    judged: list[object] = []
    desk = Desk()
    made = agent(
        [call("work", {"n": " 7 "}, id="c1"), "done"],
        tools=[desk.tool()],
        capabilities=[Mend(), spy("admit_tool_execute", lambda call: judged.append(call.arguments["n"]))],
    )
    result = await made.run("go")
    assert ["work7"] == desk.ran
    assert [7] == judged
    (admitted,) = records(result.log, "call_admitted")
    assert {"n": 7} == admitted.facts["arguments"]
    assert [call("work", {"n": " 7 "}, id="c1")] == [
        asked for message in result.messages for asked in getattr(message, "tool_calls", ())
    ]


async def test_a10_a_problem_that_is_left_is_told_to_the_model() -> None:
    """What the repair could not mend is a `validation_error` that lists it."""
    desk = Desk()
    made = agent(
        [call("work", {"n": "seven", "m": 1}, id="c1"), "done"], tools=[desk.tool()], capabilities=[Mend()]
    )
    result = await made.run("go")
    assert {"c1": "validation_error"} == statuses(result.messages)
    told = contents(result.messages)["c1"]
    assert isinstance(told, str)
    assert '$.n: "seven" is not of type "integer"' in told
    assert "m" in told
    assert [] == desk.ran


async def test_a12_a_result_is_reshaped_before_the_model_reads_it() -> None:
    """An after hook strips an id: history lacks it, and only the audit log has the raw content."""

    def strip(call: CallState) -> CallState:
        assert call.outcome is not None
        return call.with_content(str(call.outcome.content).replace("did", "[id]"))

    made = agent(
        [*calls(1), "done"], tools=[Desk().tool(capabilities=[at("after_tool_execute", strip, "Strip")])]
    )
    result = await made.run("go")
    assert {"c1": "[id] 1"} == contents(result.messages)
    (settled,) = records(result.log, "tool_settled")
    outcome = settled.facts["outcome"]
    assert isinstance(outcome, dict)
    assert "did 1" == outcome["content"]


async def test_a13_an_audit_hook_sees_refused_calls_too() -> None:
    """Its `after_tool_execute` sees the status `denied` of a call that another capability refused."""
    seen: list[str] = []

    def look(call: CallState) -> None:
        assert call.outcome is not None
        seen.append(call.outcome.status)

    made = agent(
        [*calls(1), "done"],
        tools=[Desk().tool(capabilities=[spy("after_tool_execute", look)])],
        capabilities=[at("admit_tool_execute", lambda call: call.refuse("no"), "Refuse")],
    )
    await made.run("go")
    assert ["denied"] == seen


async def test_a14_a_retry_is_tied_to_one_tool() -> None:
    """A tool that fails once: two attempts on record, one key, `succeeded`, two charges, reducers once."""
    attempts: list[tuple[int, str]] = []

    @tool(idempotent=True, capabilities=[RetryTool(3, backoff=Backoff(initial=0.0))])
    async def work(n: int, context: ToolContext) -> str:
        """Do a piece of work."""
        attempts.append((context.attempt, context.idempotency_key))
        if context.attempt == 1:
            raise ToolFailed("the line is down")
        return "done"

    seen = Seen()
    result = await agent([*calls(1), "done"], tools=[work], capabilities=[Befores(seen, key="A")]).run("go")
    assert {"c1": "succeeded"} == statuses(result.messages)
    assert [1, 2] == [number for number, _ in attempts]
    assert 1 == len({key for _, key in attempts})
    assert 2 == result.tool_calls
    assert ["before A", "admit A", "after A"] == seen.lines
    (settled,) = records(result.log, "tool_settled")
    outcome = settled.facts["outcome"]
    assert isinstance(outcome, dict)
    assert (2, 1) == (outcome["attempts"], settled.facts["extra"])


def test_a16_the_hook_type_is_checked_by_mypy_and_at_definition() -> None:
    """`mypy --strict` accepts `gate` and rejects the sync one below: its ignore would else be unused."""

    def plain(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        return call

    assert isinstance(hook.wrap_tool_execute(gate), ToolHook)
    with pytest.raises(TypeError, match="async function"):
        hook.wrap_tool_execute(plain)  # type: ignore[arg-type]  # the case itself


async def test_a17_method_and_plain_form_get_the_same_record() -> None:
    """A hook is the method without self, next step first: both forms see one and the same call state."""
    got: list[CallState] = []

    @frozen
    class Method(Capability):
        async def wrap_tool_execute(
            self, call_next: CallNext[CallState, CallState], call: CallState
        ) -> CallState:
            got.append(call)
            return await call_next(call)

    async def plain(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        got.append(call)
        return await call_next(call)

    await agent([*calls(1), "done"], tools=[Desk().tool(capabilities=[Method(), plain])]).run("go")
    assert 2 == len(got)
    assert got[0] == got[1]


async def test_a18_decorator_and_call_take_the_same_list() -> None:
    """`tool(f, capabilities=[h])` and `@tool(capabilities=[h])` make equal tools."""

    def work(n: int) -> str:
        """Do a piece of work."""
        return f"did {n}"

    assert tool(work, capabilities=[gate]) == tool(capabilities=[gate])(work)
    kept = Toolkit("kit", [tool(work, capabilities=[gate])]).tools[0]
    assert tool(work, capabilities=[gate]) == kept


async def test_a20_agent_wrappers_enclose_toolkit_and_tool_and_after_hooks_go_outward() -> None:
    """Agent A, toolkit K, tool T: enter A K T, leave T K A; after reducers run T, K, A."""
    around, after = Seen(), Seen()

    def scope(name: str) -> list[Capability]:
        return [Onion(around, key=name), Befores(after, key=f"reducers {name}")]

    kept = Toolkit("kit", [Desk().tool(capabilities=scope("T"))], capabilities=scope("K"))
    await agent([*calls(1), "done"], tools=[kept], capabilities=scope("A")).run("go")
    assert ["enter A", "enter K", "enter T", "leave T", "leave K", "leave A"] == around.lines
    order = [line for line in after.lines if line.startswith("after")]
    assert ["after reducers T", "after reducers K", "after reducers A"] == order
    assert ["before reducers A", "before reducers K", "before reducers T"] == after.lines[:3]


@frozen
class RequestId(Capability):
    """Injects the caller's request id or, where the caller gave none, its own."""

    value: str = "r1"

    def before_tool_execute(self, call: CallState) -> CallState:
        return call.inject(request_id=call.run.context.get("request_id", self.value))


@pytest.mark.parametrize(("context", "got"), [({}, "r1"), ({"request_id": "theirs"}, "theirs")])
async def test_a21_a_hook_puts_a_value_in_for_the_tool(context: dict[str, object], got: str) -> None:
    """The tool that declares `request_id` gets r1; the caller's own value wins over a default."""

    @tool(capabilities=[RequestId()])
    def work(n: int, request_id: Annotated[str, FromCall("request_id", default="none")]) -> str:
        """Do a piece of work."""
        return request_id

    result = await agent([*calls(1), "done"], tools=[work]).run("go", context=context)
    assert {"c1": got} == contents(result.messages)
    assert ["n"] == list(work.parameters["properties"])  # type: ignore[arg-type]  # a JSON object


async def test_a22_a_hidden_parameter_without_value_gets_a_fresh_default() -> None:
    """What one call does to the default does not reach the next one, in this run or another."""

    @tool
    def work(n: int, basket: Annotated[list[int], FromCall("basket", default=[])]) -> str:
        """Do a piece of work."""
        basket.append(n)
        return f"{basket}"

    made = agent([*calls(1), *calls(2), "done", *calls(3), "done"], tools=[work])
    assert {"c1": "[1]", "c2": "[2]"} == contents((await made.run("go")).messages)
    assert {"c3": "[3]"} == contents((await made.run("go")).messages)


async def test_a22_a_hidden_parameter_without_value_and_default_fails_before_the_body() -> None:
    """The outcome is `failed` and names the key; what must come from the caller fails before the run."""
    ran: list[int] = []

    @tool
    def work(n: int, basket: Annotated[list[int], FromCall("basket")]) -> str:
        """Do a piece of work."""
        ran.append(n)
        return "done"

    @tool
    def other(n: int, user: Annotated[str, FromContext("user")]) -> str:
        """Do a piece of work."""
        ran.append(n)
        return user

    result = await agent([*calls(1), "done"], tools=[work]).run("go")
    assert {"c1": "failed"} == statuses(result.messages)
    assert "'basket'" in str(contents(result.messages)["c1"])
    with pytest.raises(ValueError, match="'user'"):
        await agent(calls(1, name="other"), tools=[other]).run("go")
    assert [] == ran


def test_a24_a_model_string_loads_no_client() -> None:
    """`Agent("assistant", "openai:NAME")` has an OpenAIModel, and openai is not imported yet.

    The environment must say where requests go, or hold a key: else building it is a ValueError.
    """
    code = (
        "import sys; from capfold.runtime import Agent; model = Agent('assistant', 'openai:small').setup.model; "
        "print(type(model).__name__, model.name, 'openai' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OPENAI_BASE_URL": "http://localhost:1/v1"},
    )
    assert ["OpenAIModel", "False"] == [done.stdout.split()[0], done.stdout.split()[-1]]


def test_a25_a_plain_function_needs_no_factory() -> None:
    """In a tool's list it is wrapped as a ToolHook that holds it."""
    (made,) = Desk().tool(capabilities=[gate]).capabilities
    assert isinstance(made, ToolHook)
    assert made.function is gate


def test_a26_a_plain_function_says_that_its_description_is_not_complete() -> None:
    """Decided: a lambda's config holds its name, never a guess at what it does, and `complete` is False."""
    (made,) = Desk().tool(capabilities=[lambda call_next, call: call_next(call)]).capabilities
    described = made.describe()
    assert not described.complete
    assert {"function", "hold_stream"} == set(described.config)
    assert {"$function"} == set(described.config["function"])  # type: ignore[arg-type]  # a JSON object


@frozen
class Audit(Capability):
    """A hook with settings, as a class."""

    level: int
    names: tuple[str, ...] = ()

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        return await call_next(call)


def test_a28_the_describable_form_is_a_frozen_class() -> None:
    """Decided: it is a capability, complete with all its fields; a callable object joins, not complete."""

    @frozen
    class Around:
        level: int

        async def __call__(self, call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
            return await call_next(call)

    described = Audit(3, ("a",)).describe()
    assert described.complete
    assert {"level": 3, "names": ["a"], "hold_stream": False} == described.config
    (joined,) = Desk().tool(capabilities=[Around(3)]).capabilities
    assert not joined.describe().complete


def test_a29_functions_and_capabilities_share_one_keyword() -> None:
    """One list holds both, in the order given."""
    made = Desk().tool(capabilities=[gate, Audit(1)]).capabilities
    assert [ToolHook(gate), Audit(1)] == list(made)


@frozen
class Twin(Capability):
    """The other class of this name."""


def test_a30_a_kind_is_the_qualified_name() -> None:
    """Two classes of one name in two modules have two kinds."""
    kinds = [Twin().describe().kind, kit.Twin().describe().kind]
    assert [f"{Twin.__module__}:Twin", f"{kit.__name__}:Twin"] == kinds
    assert kinds[0] != kinds[1]


def test_a32_a_capability_has_no_place_for_run_time_state() -> None:
    """A counter without @frozen, one that can change, and assigning to one are all refused."""

    class Loose(Capability):
        count: int = 0

    @frozen
    class Listed(Capability):
        counts: list[int] = field(factory=list)

    @frozen
    class Counter(Capability):
        count: int = 0

    with pytest.raises(TypeError, match="no @frozen"):
        Loose()
    with pytest.raises(TypeError, match=r"Listed\.counts"):
        Listed()
    with pytest.raises(FrozenInstanceError):
        Counter().count = 1  # type: ignore[misc]  # the case itself


async def test_a33_each_run_starts_anew() -> None:
    """Two runs of one agent: the second starts with empty slots and a context of its own."""
    seen: list[tuple[object, object]] = []

    def write(state: RunState) -> RunState:
        seen.append((dict(state.slots), state.context))
        return evolve(state, slots=state.slots.assoc("Mark", 1))

    context: dict[str, object] = {"roles": ["reader"]}
    made = agent(["done", "done"], capabilities=[at("before_run", write, "Mark")])
    first = await made.run("go", context=context)
    context["roles"] = ["writer"]
    await made.run("go", context=context)
    assert [({}, {"roles": ["reader"]}), ({}, {"roles": ["writer"]})] == seen
    assert {"roles": ["reader"]} == first.state.context
    assert 1 == first.state.slot_of("Mark")


async def test_a34_the_context_of_a_sub_agent_is_a_copy_of_nothing() -> None:
    """It gets the caller's; what its hooks or tools try to write into it, nested lists too, reaches nobody."""
    refused: list[type] = []

    def write(state: RunState) -> RunState:
        roles: Any = state.context["roles"]
        try:
            roles.append("admin")
        except (AttributeError, TypeError) as error:
            refused.append(type(error))
        changed = evolve(state, context={**state.context, "roles": ["admin"]})
        assert ["admin"] == changed.context["roles"]
        return state

    child = agent(["found"], capabilities=[at("before_model_request", write, "Write")])
    made = agent([call("agent", {"task": "go"}, id="c"), "done"], tools=[child.as_tool("Ask.")])
    roles = ["reader", ["nested"]]
    result = await made.run("go", context={"roles": roles})
    assert (1, {"c": "found"}) == (len(refused), contents(result.messages))
    assert (["reader", ["nested"]], {"roles": roles}) == (roles, result.state.context)


async def test_a36_dependencies_go_by_reference_into_a_sub_agent() -> None:
    """The tool, the wrapper and the gatherer of the child get the very object."""
    got: list[object] = []

    @tool
    def work(context: ToolContext) -> str:
        """Do a piece of work."""
        got.append(context.deps)
        return "done"

    async def around(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        got.append(call_next.deps)
        return await call_next(call)

    child = agent([call("work"), "found"], tools=[work.with_capabilities(around)])
    made = agent([call("agent", {"task": "go"}), "done"], tools=[child.as_tool("Ask.")])
    deps = object()
    await made.run("go", deps=deps)
    assert [True, True] == [one is deps for one in got]


async def test_a36_dependencies_go_by_reference_and_are_never_written() -> None:
    """`deps is o` in tool and wrapper; the snapshot of the run has no trace of it."""
    got: list[object] = []

    class Client:
        def __repr__(self) -> str:
            return "a-very-private-client"

    @tool
    def work(n: int, context: ToolContext, client: Annotated[object, FromDeps("client")]) -> str:
        """Do a piece of work."""
        got.extend([context.deps, client])
        return "done"

    async def around(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        got.append(call_next.deps)
        return await call_next(call)

    client = Client()
    deps = {"client": client}
    made = agent(
        [*calls(1), *calls(2), "done"],
        tools=[work.with_capabilities(around)],
        capabilities=[at("admit_tool_execute", _ask_second, "Ask")],
        deps=deps,
    )
    result = await made.run("go")
    assert "suspended" == result.status
    assert [True, True, True] == [got[0] is deps, got[1] is deps, got[2] is client]
    assert "a-very-private-client" not in result.snapshot()
    assert "Client" not in result.snapshot()


def _ask_second(call: CallState) -> CallState:
    return call.require_approval("Go on?") if call.id == "c2" else call


def test_a37_with_capabilities_leaves_the_original_alone() -> None:
    """It returns another tool; the first one equals what it was."""
    work = Desk().tool()
    before = evolve(work)
    guarded = work.with_capabilities(gate)
    assert guarded is not work
    assert before == work
    assert () == work.capabilities
    assert (ToolHook(gate),) == guarded.capabilities


def test_a38_new_hooks_become_the_outermost() -> None:
    """A tool with [a] given b and c has the order b, c, a."""
    a, b, c = Audit(1, key="a"), Audit(1, key="b"), Audit(1, key="c")
    made = Desk().tool(capabilities=[a]).with_capabilities(b, c)
    assert ["b", "c", "a"] == [member.key for member in made.capabilities]


async def test_a40_an_audited_copy_stands_beside_its_original_under_another_name_only() -> None:
    """The copy runs audit and body; both in one agent under one name are a ValueError that names it."""
    seen: list[str] = []
    desk = Desk()
    delete = desk.tool("delete_record")
    audited = delete.with_capabilities(saying(seen))
    await agent([*calls(1, name="delete_record"), "done"], tools=[audited]).run("go")
    assert (["h delete_record c1"], ["delete_record1"]) == (seen, desk.ran)
    assert () == delete.capabilities
    with pytest.raises(ValueError, match="delete_record"):
        agent([], tools=[delete, audited])


async def test_a41_one_budget_on_several_tools_is_one_allowance() -> None:
    """Decided: `ToolBudget(3)` on two tools allows three calls in all, since one key is one slot."""
    desk, budget = Desk(), ToolBudget(3, on_exceeded="refuse")
    tools = [desk.tool(name, capabilities=[budget]) for name in ("search", "fetch")]
    asked = [[*calls(n, name="search"), *calls(n + 10, name="fetch")] for n in (1, 2, 3)]
    result = await agent([*asked, "done"], tools=tools).run("go")
    assert 3 == len(desk.ran)
    assert ["succeeded"] * 3 + ["denied"] * 3 == list(statuses(result.messages).values())


def test_a41_two_budgets_of_one_key_are_refused() -> None:
    """`ToolBudget(3)` and `ToolBudget(5)` without keys: a ValueError with a hint when the agent is built."""
    desk = Desk()
    tools = [
        desk.tool("search", capabilities=[ToolBudget(3)]),
        desk.tool("fetch", capabilities=[ToolBudget(5)]),
    ]
    with pytest.raises(ValueError, match=r"key='ToolBudget_2'"):
        agent([], tools=tools)


@frozen
class Holds(Capability):
    lock: Any

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        return await call_next(call)


def test_a42_nothing_is_copied_when_an_agent_is_built() -> None:
    """A hook that holds a lock can be used, and is the same object everywhere."""
    lock = Lock()
    holds = Holds(lock)
    made = agent([], tools=[Desk().tool(capabilities=[holds])], capabilities=[holds])
    assert made.capabilities[0] is holds
    assert made.tools[0].capabilities[0] is holds
    assert made.setup.plan.members["Holds"] is holds
    assert holds.lock is lock


async def test_a44_a_hook_is_the_same_value_after_a_hundred_runs() -> None:
    """Equal, and of equal hash."""
    budget = ToolBudget(3)
    before = (ToolBudget(3), hash(budget))
    made = agent([*calls(1), "done"] * 100, tools=[Desk().tool()], capabilities=[budget])
    for _ in range(100):
        await made.run("go")
    assert before == (budget, hash(budget))


@frozen
class CallBudget(Capability[int]):
    """A budget of one's own, in a module, so that it can be dumped."""

    limit: int
    names: frozenset[str] = frozenset()
    message: str = field(default="No more.", kw_only=True)


def test_a45_a_frozen_budget_is_described_and_loaded_again() -> None:
    """`describe()` lists all its fields; dumping and loading gives an equal capability."""
    budget = CallBudget(3, frozenset({"search"}), key="calls")
    described = budget.describe()
    assert ("calls", True) == (described.key, described.complete)
    assert {"limit", "names", "message", "hold_stream"} == set(described.config)
    assert (budget,) == load_capabilities(dump_capabilities([budget]), allowed=[CallBudget])
    assert (ToolBudget(3),) == load_capabilities(dump_capabilities([ToolBudget(3)]), allowed=[])


async def test_a46_a_missing_dependency_fails_before_the_run() -> None:
    """The error names capability and key, before any request."""
    model = ScriptedModel(["done"])
    made = Agent("agent", model, tools=[Desk().tool()], capabilities=[SharedBudget("web", 3)])
    with pytest.raises(ValueError, match=r"SharedBudget needs 'web' in deps"):
        await made.run("go", deps={})
    assert () == model.requests


@pytest.mark.parametrize("budget", [ToolBudget(3, on_exceeded="refuse"), SharedBudget("web", 3)])
async def test_a48_parallel_calls_cannot_overrun_a_budget(budget: Capability) -> None:
    """Eight parallel calls and a limit of three: exactly three bodies ran, of one run or with a counter outside."""
    desk = Desk()
    made = agent([calls(*range(1, 9)), "done"], tools=[desk.tool()], capabilities=[budget])
    result = await made.run("go", deps={"web": Counter()})
    assert 3 == len(desk.ran)
    assert {"succeeded": 3, "denied": 5} == Counts(statuses(result.messages).values())


async def test_a49_one_value_on_two_tools_is_one_object_with_one_slot() -> None:
    """One capability on two `tool(f, ...)`: `is` holds in both, and one slot counts both."""
    budget, desk = ToolBudget(3), Desk()
    tools = [desk.tool(name, capabilities=[budget]) for name in ("first", "second")]
    assert all(made.capabilities[0] is budget for made in tools)
    result = await agent([BOTH, "done"], tools=tools).run("go")
    assert {"ToolBudget": {"first": 1, "second": 1}} == result.state.slots


async def test_a50_the_runs_dependencies_win_over_the_agents() -> None:
    """Both are given: tools see the run's; without them the agent's."""

    @tool
    def work(n: int, name: Annotated[str, FromDeps("name")]) -> str:
        """Do a piece of work."""
        return name

    made = agent([*calls(1), "done", *calls(1), "done"], tools=[work], deps={"name": "agent's"})
    assert {"c1": "run's"} == contents((await made.run("go", deps={"name": "run's"})).messages)
    assert {"c1": "agent's"} == contents((await made.run("go")).messages)


async def test_a52_an_allowance_over_many_runs_counts_the_calls_of_sub_agents() -> None:
    """A limit of three: the first run uses two, the second one through its sub-agent, and a third one gets none."""
    desk, web = Desk(), Counter()
    budget = inherited(SharedBudget("web", 3, tools={"work"}))
    child = agent([*calls(3), "found"], tools=[desk.tool()])
    asked = call("agent", {"task": "go"}, id="c")
    replies: list[Reply] = [calls(1, 2), "done", asked, "done", *calls(4), "done"]
    tools = [child.as_tool("Ask."), desk.tool()]
    made = agent(replies, tools=tools, capabilities=[budget], deps={"web": web})
    results = [await made.run("go") for _ in range(3)]
    assert (["work1", "work2", "work3"], 3) == (sorted(desk.ran), web.used("web"))
    assert {"c4": "denied"} == statuses(results[2].messages)


async def test_a52_an_allowance_survives_every_ask() -> None:
    """Through approvals and resumed runs: two calls of the run's own, one of its sub-agent's; then nothing is left."""
    desk, web = Desk(), Counter()
    gate = [RequireApproval({"work"}), SharedBudget("web", 3, tools={"work"})]
    child = agent([*calls(2), "found"], tools=[desk.tool()], capabilities=gate)
    asked = call("agent", {"task": "go"}, id="c")
    made = agent(
        [*calls(1), asked, *calls(3), *calls(4), "done"],
        tools=[child.as_tool("Ask."), desk.tool()],
        capabilities=gate,
        deps={"web": web},
    )
    waits: list[str] = []
    result = await made.run("go")
    while result.status == "suspended":
        waits.append(result.pending[0].call_id)
        result = await made.resume(result.snapshot(), {one.digest: Approve() for one in result.pending})
    assert (["c1", "c2", "c3", "c4"], ["work1", "work2", "work3"]) == (waits, desk.ran)
    assert "denied" == statuses(result.messages)["c4"]


async def test_a53_a_used_budget_describes_itself_as_before() -> None:
    """Its counter lives outside of it, so `describe()` is unchanged; the counter is not."""
    shared, web = SharedBudget("web", 2), Counter()
    before = shared.describe()
    made = agent([calls(1, 2, 3), "done"], tools=[Desk().tool()], capabilities=[shared], deps={"web": web})
    result = await made.run("go")
    assert before == shared.describe()
    assert 2 == web.used("web")
    assert 1 == list(statuses(result.messages).values()).count("denied")


async def test_a54_a_toolkits_gate_covers_every_member() -> None:
    """A nested toolkit's tool, a schema tool, a plain function and a sub-agent all pass its gate."""
    seen: list[str] = []
    desk = Desk()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    async def run_schema(arguments: dict[str, object], context: ToolContext) -> object:
        return "did it"

    def plain(n: int) -> str:
        """Do a piece of work."""
        return f"did {n}"

    kept = Toolkit(
        "outer",
        [
            Toolkit("inner", [desk.tool("nested")]),
            Tool.from_schema("schema", "", schema, run_schema),
            plain,
            agent(["found"]).as_tool("Ask.", name="below"),
        ],
        capabilities=[spy("admit_tool_execute", lambda call: seen.append(call.name))],
    )
    asked = [call(name, {"n": 1}, id=name) for name in ("nested", "schema", "plain", "outside")]
    asked.append(call("below", {"task": "go"}, id="below"))
    result = await agent([asked, "done"], tools=[kept, desk.tool("outside")]).run("go")
    assert ["nested", "schema", "plain", "below"] == seen
    assert {one.id: "succeeded" for one in asked} == statuses(result.messages)
