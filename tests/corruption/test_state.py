"""Slots, keys and shared values: what belongs to one capability and one run stays there."""

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from attrs import evolve, frozen

from capfold.capabilities import (
    AssistantMessage,
    CallNext,
    CallState,
    Capability,
    RequireApproval,
    RunState,
    Tool,
    ToolBudget,
    ToolContext,
    Toolkit,
    ToolMessage,
    UserMessage,
    call,
    freeze,
    group,
    hook,
    tool,
)
from capfold.capabilities.frozen import FrozenDict
from capfold.capabilities.grid import REDUCERS
from capfold.runtime import Agent, Approve, FunctionModel, ModelRequest, ScriptedModel, checked_fold
from capfold.runtime.scripted_model import Reply
from tests.corruption.builders import (
    CALL_POINTS,
    POINTS,
    Bodies,
    agent,
    at,
    culprit,
    failure,
    fake_port,
    field_at,
    hook_of,
    on_run,
    partial_of,
    records,
    requests_of,
    run_of,
    shapes,
    spy,
)

VICTIM: Capability[Any] = at("before_run", lambda state: state.put(VICTIM, 1), "victim")
WRAPPER_POINTS = [point for point in POINTS if ":" in point]


def slot_of(record: Any, key: str) -> object:
    """Return the slot of a key, of a record of either class."""
    return run_of(record).slot_of(key)


# --- C53


@pytest.mark.parametrize("attack", ["replace", "remove", "clear", "invent"])
@pytest.mark.parametrize("point", POINTS)
async def test_c53_another_capabilitys_slot_is_out_of_reach(point: str, attack: str) -> None:
    """Writing, removing or inventing a slot of another key is rejected by name; the slot is unchanged."""

    def write(record: Any) -> Any:
        slots = dict(run_of(record).slots)
        if attack == "replace":
            slots["victim"] = 99
        elif attack == "remove":
            slots.pop("victim", None)
            slots["other"] = 1
        elif attack == "clear":
            slots = {}
            if not run_of(record).slots:  # wrap_run comes in before anybody has a slot
                slots["victim"] = 99
        else:
            slots["nobody"] = 1
        return on_run(record, lambda run: evolve(run, slots=slots))

    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": 1}), "done"],
        tools=[bodies.pay()],
        capabilities=[VICTIM, at(point, write, "forger")],
    )
    error = await failure(made.run("go"))
    assert ("IllegalTransition", "forger", hook_of(point), field_at(point, "slots")) == culprit(error)
    partial = partial_of(error)
    assert (None if point == "wrap_run:in" else 1) == partial.state.slot_of("victim")
    (record,) = records(partial.log, "rejected")
    assert ("forger", hook_of(point), {field_at(point, "slots")}) == (
        record.actor,
        record.hook,
        set(record.rejected),
    )


@pytest.mark.parametrize("point", WRAPPER_POINTS)
async def test_c53_a_wrapper_writes_no_slot(point: str) -> None:
    """Not even its own: rejected, and the error says how facts are handed on."""

    def write(record: Any) -> Any:
        return on_run(record, lambda run: evolve(run, slots=run.slots.assoc("forger", 1)))

    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": 1}), "done"], tools=[bodies.pay()], capabilities=[at(point, write, "forger")]
    )
    error = await failure(made.run("go"))
    assert ("IllegalTransition", "forger", hook_of(point), field_at(point, "slots")) == culprit(error)
    assert "reducer" in error.reason.message
    assert FrozenDict() == partial_of(error).state.slots


class Plain:
    """Hashable, and nothing the codec knows."""


UNFIT: dict[str, Callable[[], object]] = {
    "list": lambda: [1],
    "dict": lambda: {"a": 1},
    "set": lambda: {1},
    "tuple of lists": lambda: ([1],),
    "object": object,
    "own class": Plain,
    "function": lambda: len,
    "NaN": lambda: float("nan"),
    "class": lambda: Plain,
}


@pytest.mark.parametrize("value", UNFIT)
@pytest.mark.parametrize("name", REDUCERS)
async def test_c53_an_unfit_slot_value_is_rejected(name: str, value: str) -> None:
    """A slot value that can change, or that the codec cannot carry, ends the run at the hook that put it."""

    def write(record: Any) -> Any:
        return record.put(made_cap, UNFIT[value]())

    made_cap = at(name, write, "forger")
    bodies = Bodies()
    made = agent([call("pay", {"amount": 1}), "done"], tools=[bodies.pay()], capabilities=[made_cap])
    error = await failure(made.run("go"))
    assert ("IllegalTransition", "forger", name, field_at(name, "slots")) == culprit(error)
    assert FrozenDict() == partial_of(error).state.slots


@pytest.mark.parametrize("name", REDUCERS)
async def test_c53_a_fit_slot_value_is_kept_and_on_record(name: str) -> None:
    """The own slot, written in any reducer, takes effect and is on record."""
    value = freeze({"a": [1, 2.5, None], "b": True})

    def write(record: Any) -> Any:
        return record.put(made_cap, value)

    made_cap = at(name, write, "owner")
    bodies = Bodies()
    made = agent([call("pay", {"amount": 1}), "done"], tools=[bodies.pay()], capabilities=[made_cap])
    result = await made.run("go")
    assert value == result.state.slot_of("owner")
    changed = [record for record in records(result.log, "transition") if record.actor == "owner"]
    assert [{field_at(name, "slots")}] == [set(record.changes) for record in changed]


@frozen
class Typed(Capability["tuple[int, ...]"]):
    """Puts a value into a slot declared as a tuple of integers."""

    value: Any = ()  # the attack is a value of a wrong type

    def before_run(self, state: RunState) -> RunState:
        return state.put(self, self.value)


@pytest.mark.parametrize("value", ["x", 1, ("x",), (1.5,), (True,), freeze([1]), frozenset({1}), None])
async def test_c53_a_value_of_another_type_than_declared_is_rejected(value: object) -> None:
    """What would not come back from a snapshot as it was is rejected at the hook, not at the resume."""
    made = agent(["done"], capabilities=[Typed(value)])
    error = await failure(made.run("go"))
    assert ("IllegalTransition", "Typed", "before_run", "slots") == culprit(error)
    assert 0 == requests_of(made)


SLOTS: list[tuple[Capability[Any], object]] = [
    (Typed((1, 2)), (1, 2)),
    (at("before_run", lambda run: run.put(HOOK_MADE, 5), "own"), 5),
    (at("before_run", lambda run: run.put(HOOK_MADE, freeze({"a": [1]})), "own"), freeze({"a": [1]})),
    (at("before_run", lambda run: run.put(HOOK_MADE, 1.0), "own"), 1.0),
]
HOOK_MADE: Capability[Any] = at("before_run", lambda run: run, "own")


@pytest.mark.parametrize(("capability", "value"), SLOTS)
async def test_c53_an_accepted_slot_survives_a_snapshot(capability: Capability[Any], value: object) -> None:
    """Whatever a slot was allowed to hold is there again, in its type, after a snapshot."""
    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": 1}), call("pay", {"amount": 2}), "done"],
        tools=[bodies.pay()],
        capabilities=[capability, ToolBudget(9), RequireApproval()],
    )
    result = await made.run("go")
    for _ in range(2):
        result = await made.resume(result.snapshot(), {result.pending[0].digest: Approve()})
    assert ("completed", [1, 2]) == (result.status, [amount for _, amount in bodies.ran])
    assert repr(value) == repr(result.state.slot_of(capability.key))
    assert {"pay": 2} == result.state.slot_of("ToolBudget")


def test_c53_a_slot_type_that_nobody_knows_fails_at_construction() -> None:
    """A quoted type that cannot be found fails when the agent is built."""

    class Mine(Capability["Nowhere"]):  # type: ignore[name-defined]  # the attack
        def initial(self) -> None:
            return None

    with pytest.raises(TypeError, match="Nowhere"):
        agent([], capabilities=[Mine()])


# --- C54


@frozen
class Counted(Capability[int]):
    """Counts model requests in its slot."""

    weight: int = 1

    def before_model_request(self, state: RunState) -> RunState:
        return state.put(self, state.slot(self) + self.weight)


def test_c54_equal_keys_fail_at_construction() -> None:
    """Two capabilities with one key, or one listed twice, in one list or across scopes, fail with a hint."""
    pay = Bodies().pay
    budget = ToolBudget(1)
    clashes: list[dict[str, Any]] = [
        {"capabilities": [Counted(), Counted(2)]},
        {"capabilities": [Counted(), Counted()]},
        {"capabilities": [Counted(), group(Counted(2))]},
        {"capabilities": [group(Counted()), group(Counted())]},
        {"capabilities": [budget], "tools": [pay().with_capabilities(ToolBudget(2))]},
        {"tools": [Toolkit("kit", [pay()], capabilities=[budget, ToolBudget(2)])]},
        {"tools": [pay().with_capabilities(budget), pay("b").with_capabilities(ToolBudget(2))]},
    ]
    for clash in clashes:
        with pytest.raises(ValueError, match="key="):
            agent([], **clash)


async def test_c54_a_run_cannot_bring_an_equal_key() -> None:
    """A tool given to `run` whose capability has a key of the agent's is an error before the request."""
    bodies = Bodies()
    made = agent(["x"], capabilities=[ToolBudget(1)])
    with pytest.raises(ValueError, match="key="):
        await made.run("go", tools=[bodies.pay().with_capabilities(ToolBudget(9))])
    assert 0 == requests_of(made)


def suspending(capabilities: list[Capability[Any]], bodies: Bodies) -> Agent[str]:
    """Return an agent that suspends in its first step."""
    return agent([call("pay", {"amount": 1}), "done"], tools=[bodies.pay()], capabilities=capabilities)


@pytest.mark.parametrize("transport", ["result", "snapshot"])
async def test_c54_a_reordered_list_keeps_each_capabilitys_own_state(transport: str) -> None:
    """Resumed under a reordered list, state goes by key and not by position."""
    bodies = Bodies()
    one, ten = Counted(1, key="one"), Counted(10, key="ten")
    first = await suspending([one, ten, RequireApproval()], bodies).run("go")
    carried = first if transport == "result" else first.snapshot()
    other = agent(["done"], tools=[bodies.pay()], capabilities=[RequireApproval(), ten, one])
    result = await other.resume(carried, {first.pending[0].digest: Approve()})
    assert ("completed", [("pay", 1)]) == (result.status, bodies.ran)
    assert (2, 20) == (result.state.slot_of("one"), result.state.slot_of("ten"))


@pytest.mark.parametrize("transport", ["result", "snapshot"])
@pytest.mark.parametrize(
    ("capabilities", "said"),
    [
        ([RequireApproval()], "Counted is gone"),
        ([Counted(2), RequireApproval()], "Counted is configured otherwise"),
        ([Counted(), RequireApproval(), ToolBudget(5)], "ToolBudget is new"),
        ([Counted(key="renamed"), RequireApproval()], "Counted is gone"),
        ([Counted(), RequireApproval(prompt="?")], "RequireApproval is configured otherwise"),
    ],
)
async def test_c54_a_changed_list_is_refused_by_name(
    capabilities: list[Capability[Any]], said: str, transport: str
) -> None:
    """Dropped, added, renamed or changed capabilities are refused on resume; the first list can go on."""
    bodies = Bodies()
    origin = suspending([Counted(), RequireApproval()], bodies)
    first = await origin.run("go")
    carried = first if transport == "result" else first.snapshot()
    decisions = {first.pending[0].digest: Approve()}
    other = agent(["done"], tools=[bodies.pay()], capabilities=capabilities)
    with pytest.raises(ValueError, match=said):
        await other.resume(carried, decisions)
    assert ([], 0) == (bodies.ran, requests_of(other))
    result = await origin.resume(carried, decisions)
    assert ("completed", [("pay", 1)]) == (result.status, bodies.ran)


@pytest.mark.parametrize("transport", ["result", "snapshot"])
async def test_c54_a_change_can_be_allowed_by_name(transport: str) -> None:
    """`allow_changed` lets exactly the named key differ; the new configuration is in force."""
    bodies = Bodies()
    first = await suspending([Counted(), RequireApproval()], bodies).run("go")
    carried = first if transport == "result" else first.snapshot()
    other = agent(["done"], tools=[bodies.pay()], capabilities=[Counted(10), RequireApproval()])
    result = await other.resume(carried, {first.pending[0].digest: Approve()}, allow_changed={"Counted"})
    assert ("completed", 11) == (result.status, result.state.slot_of("Counted"))


@pytest.mark.parametrize("transport", ["result", "snapshot"])
async def test_c54_a_dropped_capability_can_be_allowed_by_name(transport: str) -> None:
    """`allow_changed` lets a capability that had state go; the others keep theirs."""
    bodies = Bodies()
    caps: list[Capability[Any]] = [Counted(1, key="one"), Counted(10, key="ten"), RequireApproval()]
    first = await suspending(caps, bodies).run("go")
    carried = first if transport == "result" else first.snapshot()
    other = agent(["done"], tools=[bodies.pay()], capabilities=caps[1:])
    result = await other.resume(carried, {first.pending[0].digest: Approve()}, allow_changed={"one"})
    assert ("completed", 1, 20) == (result.status, result.state.slot_of("one"), result.state.slot_of("ten"))


# --- C55


THREE: list[tuple[object, object]] = [(a, b) for a in (1, True, 1.0) for b in (1, True, 1.0) if a is not b]
THREE += [(0, False), (0.0, -0.0), (False, 0.0)]


@pytest.mark.parametrize(("old", "new"), THREE)
async def test_c55_settings_tell_one_true_and_one_point_zero_apart(old: object, new: object) -> None:
    """A setting swapped for its equal of another type is a change: in force, and on record."""
    seen: list[object] = []
    made = agent(
        ["done"],
        capabilities=[
            at("before_model_request", lambda run: run.with_settings(x=new), "swap"),
            spy("before_model_request", lambda run: seen.append(run.settings["x"])),
        ],
        settings={"x": old},
    )
    result = await made.run("go")
    assert [repr(new)] == [repr(value) for value in seen]
    (record,) = records(result.log, "transition")
    assert ("swap", "before_model_request") == (record.actor, record.hook)
    written: Any = record.changes["settings"]
    assert (repr(new), {"settings"}) == (repr(written["set"]["x"]), set(record.changes))
    model = made.setup.model
    assert isinstance(model, ScriptedModel)
    assert repr(new) == repr(model.requests[0].settings["x"])


@pytest.mark.parametrize(("old", "new"), THREE)
def test_c55_slots_tell_them_apart(old: object, new: object) -> None:
    """So is a slot value, nested too."""
    values = freeze([old]), freeze([new])
    owner: Capability[Any] = at("before_run", lambda run: run.put(owner, values[0]), "owner")
    second = at(
        "before_model_request", lambda run: evolve(run, slots=run.slots.assoc("owner", values[1])), "owner"
    )
    state, _ = checked_fold([owner], "before_run", RunState())
    after, (transition,) = checked_fold([second], "before_model_request", state)
    assert repr(values[1]) == repr(after.slot_of("owner"))
    assert ("transition", {"slots"}) == (transition.kind, set(transition.changes))
    assert repr(values[1]) == repr(state.put(owner, values[1]).slot_of("owner"))


@pytest.mark.parametrize(("old", "new"), THREE)
def test_c55_arguments_tell_them_apart(old: object, new: object) -> None:
    """So are arguments: the rewritten value is in force, and a digest covers its type."""
    state = CallState(arguments={"x": old})
    swap = at("before_tool_execute", lambda record: record.with_arguments({"x": new}), "swap")
    after, (transition,) = checked_fold([swap], "before_tool_execute", state)
    assert repr(new) == repr(after.arguments["x"])
    assert ("transition", {"arguments"}) == (transition.kind, set(transition.changes))
    assert state.digest != after.digest


@pytest.mark.parametrize(("old", "new"), THREE)
def test_c55_a_sealed_context_tells_them_apart(old: object, new: object) -> None:
    """And the context: swapping the type of a value is a write of a sealed field."""
    swap = at("before_run", lambda run: evolve(run, context={"x": new}), "swap")
    with pytest.raises(Exception, match="context"):
        checked_fold([swap], "before_run", RunState(context={"x": old}))


# --- C59


@frozen
class Memory(Capability["tuple[int, ...]"]):
    """Remembers the amounts that were paid."""

    def after_tool_execute(self, call: CallState) -> CallState:
        amount = call.arguments["amount"]
        assert isinstance(amount, int)
        return call.put(self, (*call.slot(self), amount))


def talk(request: ModelRequest) -> Any:
    """Call `pay` twice, then answer; what it does depends on the request alone."""
    steps = sum(isinstance(message, AssistantMessage) for message in request.messages)
    first = request.messages[0]
    assert isinstance(first, UserMessage)
    number = int(str(first.content))
    return call("pay", {"amount": number + steps}) if steps < 2 else f"done {number}"  # two calls


async def test_c59_runs_of_one_agent_do_not_touch_each_other() -> None:
    """Twenty runs at once: state, messages and log of each equal those of the run alone."""

    async def pay(amount: int) -> str:
        """Pay an amount."""
        await anyio.sleep(0.001 * (amount % 3))
        return f"paid {amount}"

    memory = Memory(key="memory")
    made: Agent[str] = Agent(
        "agent",
        FunctionModel(talk),
        tools=[tool(pay)],
        capabilities=[memory, ToolBudget(9), Counted()],
        port=fake_port(),
    )
    together: dict[int, Any] = {}

    async def one(i: int) -> None:
        together[i] = await made.run(str(i), run_id=f"r{i}", context={"i": i})

    async with anyio.create_task_group() as group_of_runs:
        for i in range(20):
            group_of_runs.start_soon(one, i)
    for i in range(20):
        alone = await made.run(str(i), run_id=f"r{i}", context={"i": i})
        assert (f"done {i}", (i, i + 1)) == (alone.output, alone.state.slot_of("memory"))
        assert alone.state == together[i].state
        assert alone.messages == together[i].messages
        assert [record.to_dict() for record in alone.log] == [record.to_dict() for record in together[i].log]


# --- C61


async def test_c61_nothing_the_caller_holds_reaches_into_a_run() -> None:
    """A list inside context, settings or tool metadata is the run's own: later edits of it change nothing."""
    context: dict[str, Any] = {"rights": ["read"]}
    settings: dict[str, Any] = {"stop": ["a"]}
    metadata: dict[str, Any] = {"tags": ["x"]}
    seen: list[str] = []

    def look(state: RunState) -> RunState:
        context["rights"].append("write")
        settings["stop"].append("b")
        metadata["tags"].append("y")
        seen.append(json.dumps([state.context, state.settings, state.tools[0].metadata]))
        return state

    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": 1}), "done", "done"],
        tools=[bodies.pay(metadata=metadata)],
        capabilities=[at("before_model_request", look, "look")],
        settings=settings,
    )
    await made.run("go", context=context)
    expected = json.dumps([{"rights": ["read"]}, {"stop": ["a"]}, {"tags": ["x"]}])
    assert [expected, expected] == seen
    await made.run("go", context={"rights": ["read"]})
    assert [expected] * 3 == seen


CONTEXT_EDITS: dict[str, Callable[[Any], object]] = {
    "context": lambda run: run.context["rights"].append("write"),
    "settings": lambda run: run.settings["stop"].append("b"),
    "metadata": lambda run: run.inventory[0].metadata["tags"].append("y"),
    "parameters": lambda run: run.inventory[0].parameters["properties"].clear(),
}


@pytest.mark.parametrize("what", CONTEXT_EDITS)
@pytest.mark.parametrize("point", POINTS)
async def test_c61_a_hook_cannot_leave_anything_in_shared_values(point: str, what: str) -> None:
    """An in-place edit of a shared value raises at every point, and the next run sees the values as given."""

    def write(record: Any) -> Any:
        CONTEXT_EDITS[what](run_of(record))
        return record

    bodies = Bodies()
    tools = [bodies.pay(metadata={"tags": ["x"]})]
    script: list[Reply] = [call("pay", {"amount": 1}), "done"]
    settings, context = {"stop": ["a"]}, {"rights": ["read"]}
    attacked = agent(script, tools=tools, capabilities=[at(point, write, "editor")], settings=settings)
    error = await failure(attacked.run("go", context=context))
    assert ("HookFailed", "editor", hook_of(point), None) == culprit(error)
    assert isinstance(error.__cause__, TypeError)
    fresh = agent(script, tools=tools, settings=settings)
    result = await fresh.run("go", context=context)
    assert (["x"], ["read"]) == (result.state.inventory[0].metadata["tags"], result.state.context["rights"])
    assert (["a"], ["read"], ["amount"]) == (
        settings["stop"],
        context["rights"],
        list(result.state.inventory[0].parameters["properties"]),  # type: ignore[arg-type]  # a mapping
    )


async def test_c61_a_tool_body_gets_copies() -> None:
    """What a body does to its arguments or context stays in that body: log and history are untouched."""

    async def edit(rows: list[int], more: dict[str, list[int]]) -> str:
        """Edit what it got."""
        rows.append(99)
        more["a"].append(99)
        return json.dumps([rows, more])

    async def by_schema(arguments: dict[str, Any], context: ToolContext) -> str:
        arguments["rows"].append(99)
        with pytest.raises(TypeError):
            context.context["rights"].append("write")  # type: ignore[union-attr]  # the attack
        return "edited"

    schema = Tool.from_schema("schema", "", {"type": "object"}, by_schema)
    batch = [call("edit", {"rows": [1], "more": {"a": [1]}}), call("schema", {"rows": [1]})]
    made = agent([batch, batch, "done"], tools=[edit, schema])
    result = await made.run("go", context={"rights": ["read"]})
    told = [message.content for message in result.messages if isinstance(message, ToolMessage)]
    assert ['[[1, 99], {"a": [1, 99]}]', "edited"] * 2 == told
    admitted = [record.facts["arguments"] for record in records(result.log, "call_admitted")]
    assert [{"rows": [1], "more": {"a": [1]}}, {"rows": [1]}] * 2 == admitted
    assert {"rights": ["read"]} == result.state.context


# --- C62


@frozen
class Deny(Capability):
    """Denies every call."""

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.refuse("denied")


@frozen
class Cache(Capability):
    """Answers every call from a cache, when it is judged."""

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.answer("cached")


@frozen
class WrapCache(Capability):
    """Answers every call from a cache, in a wrapper."""

    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        return call.answer("cached")


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("cache", [Cache, WrapCache])
@pytest.mark.parametrize("order", [1, -1])
async def test_c62_a_refusal_and_an_answer_commute(order: int, cache: type[Capability], strict: bool) -> None:  # noqa: FBT001  # a parameter of the test
    """A call that one capability refuses and another answers is denied, in both orders, without an error."""
    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": 1}), "done"],
        tools=[bodies.pay()],
        capabilities=[Deny(), cache()][::order],
        strict=strict,
    )
    result = await made.run("go")
    assert ("completed", "done", []) == (result.status, result.output, bodies.ran)
    (told,) = [message for message in result.messages if isinstance(message, ToolMessage)]
    assert ("denied", "denied") == (told.status, told.content)
    (refused,) = records(result.log, "call_refused")
    assert ("Deny", "denied") == (refused.actor, refused.facts["status"])
    assert [] == records(result.log, "restored", "rejected", "tool_started")
    assert ["UserMessage", "AssistantMessage", "ToolMessage:denied", "AssistantMessage"] == shapes(result)


@pytest.mark.parametrize("point", CALL_POINTS)
async def test_c62_no_later_hook_takes_a_refusal_back(point: str) -> None:
    """A verdict that is cleared is rejected by name where it is tried, and the call does not run."""
    bodies = Bodies()
    fresh = CallState().verdict
    forger = at(point, lambda state: evolve(state, verdict=fresh), "forger")
    made = agent([call("pay", {"amount": 1}), "done"], tools=[bodies.pay()], capabilities=[Deny(), forger])
    if point in {"before_tool_execute", "wrap_tool_execute:in", "wrap_tool_execute:out"}:
        result = await made.run(
            "go"
        )  # before: there is no verdict yet; wrappers: a denied call is not executed
        assert ("completed", []) == (result.status, bodies.ran)
        assert "ToolMessage:denied" == shapes(result)[2]
        return
    error = await failure(made.run("go"))
    assert ("IllegalTransition", "forger", point, "verdict") == culprit(error)
    assert [] == bodies.ran


@hook.before_model_request
def nothing(state: RunState) -> RunState:
    """Do nothing."""
    return state


async def test_c55_an_equal_value_of_the_same_type_is_no_change() -> None:
    """The other side of the rule: writing what stands there already is silent."""
    made = agent(
        ["done"],
        capabilities=[
            nothing,
            at("before_model_request", lambda run: evolve(run, settings={"x": 1}), "same"),
        ],
        settings={"x": 1},
    )
    result = await made.run("go")
    assert [] == records(result.log, "transition", "restored", "rejected")
