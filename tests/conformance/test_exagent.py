"""ExAgent's capabilities, claim by claim: reducers in list order, and what no callback may corrupt."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, fields, frozen

from capfold.capabilities import (
    AssistantMessage,
    CallState,
    Capability,
    Json,
    Message,
    Outside,
    RedactPII,
    RequireApproval,
    RunState,
    SelectTools,
    TrimMessages,
    Usage,
    UserMessage,
    call,
    tool,
)
from capfold.capabilities.frozen import FrozenDict
from capfold.capabilities.grid import HOOKS, REDUCERS
from capfold.capabilities.owners import RULES, Owner, owners
from capfold.runtime import (
    Agent,
    CodecError,
    HookFailed,
    IllegalTransition,
    InvalidReturn,
    LimitExceeded,
    Limits,
    OutputRetriesExhausted,
    Permissions,
    ScriptedModel,
    ToolRetriesExhausted,
    UnselectedRetriesExhausted,
    checked_fold,
)
from capfold.runtime.rules import rules_text
from tests.conformance.kit import Befores, Desk, Seen, Traced, actors, agent, calls, requests_of, texts
from tests.corruption.builders import at, culprit, failure, partial_of, records, spy
from tests.corruption.scenes import contents, statuses

ROOT = Path(__file__).parents[2]


@frozen
class Total:
    """An output that no plain text is."""

    total: int


@frozen
class Gathering(Traced):
    """Says when its gatherers are called, too."""

    async def gather_before_run(self, state: RunState, outside: Outside) -> Json:
        self.seen.add(f"gather before run {self.key}")
        return None

    async def gather_after_run(self, state: RunState, outside: Outside) -> Json:
        self.seen.add(f"gather after run {self.key}")
        return None

    async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
        self.seen.add(f"gather before request {self.key}")
        return None

    async def gather_after_model_request(self, state: RunState, outside: Outside) -> Json:
        self.seen.add(f"gather after request {self.key}")
        return None

    async def gather_admit_tool_execute(self, call: CallState, outside: Outside) -> Json:
        self.seen.add(f"gather admit {self.key}")
        return None

    async def gather_after_tool_execute(self, call: CallState, outside: Outside) -> Json:
        self.seen.add(f"gather after {self.key}")
        return None


# What only stored conversations and prompt sources call.
OF_STORES = {"wrap_load_messages", "wrap_save_messages", "wrap_prompt"}


async def test_e01_every_hook_of_the_grid_fires_at_its_place() -> None:
    """A tracer on every hook but the three around stored things, a run with one call: exactly this order."""
    seen = Seen()
    made = agent([*calls(1), "done"], tools=[Desk().tool()], capabilities=[Gathering(seen, key="A")])
    await made.run("go")
    step = ["gather before request A", "before request A", "enter request A", "leave request A"]
    step += ["gather after request A", "after request A"]
    tools = ["before A", "gather admit A", "admit A", "enter A", "leave A", "gather after A", "after A"]
    begin = ["enter run A", "gather before run A", "before run A"]
    assert [*begin, *step, *tools, *step, "gather after run A", "after run A", "leave run A"] == seen.lines
    assert set(HOOKS) - OF_STORES == Gathering.overrides


@frozen
class OneHook(Capability):
    def after_model_request(self, state: RunState) -> RunState:
        return state


def test_e02_a_hook_that_is_not_overridden_is_no_call() -> None:
    """A capability with one hook stands in one chain; the other points have no link."""
    plan = agent([], tools=[Desk().tool()], capabilities=[OneHook()]).setup.plan
    assert {"after_model_request"} == OneHook.overrides
    assert ["after_model_request"] == [name for name, chain in plan.chains.items() if chain.links]
    work = plan.tool("work")
    assert () == sum(
        (chain.links for chain in (work.before, work.repairs, work.admit, work.after, work.wrappers)), ()
    )


async def test_e04_each_instance_sees_its_own_configuration() -> None:
    """Two instances with other keys: each hook call reads the config of its own."""
    seen = Seen()

    @frozen
    class Says(Capability):
        word: str

        def before_run(self, state: RunState) -> RunState:
            seen.add(f"{self.key} {self.word}")
            return state

    await agent(["done"], capabilities=[Says("one", key="A"), Says("two", key="B")]).run("go")
    assert ["A one", "B two"] == seen.lines


async def test_e05_hooks_compose_in_list_order() -> None:
    """Decided: A, B before and A, B after; the onion is `nested`."""
    seen = Seen()
    tracers = [Befores(seen, key="A"), Befores(seen, key="B")]
    await agent([*calls(1), "done"], tools=[Desk().tool()], capabilities=tracers).run("go")
    assert ["before A", "before B", "admit A", "admit B", "after A", "after B"] == seen.lines


async def test_e06_the_base_itself_is_a_capability_that_does_nothing() -> None:
    """With `Capability()` in the list, state and log equal those of the run without it."""
    model, work = ScriptedModel([*calls(1), "done"] * 2), Desk().tool()
    bare = await Agent("agent", model, tools=[work]).run("go", run_id="run")
    with_base = await Agent("agent", model, tools=[work], capabilities=[Capability()]).run("go", run_id="run")
    assert bare.state == with_base.state
    assert [record.body for record in bare.log[1:]] == [record.body for record in with_base.log[1:]]


FIVE: tuple[Message, ...] = (
    UserMessage("1"),
    AssistantMessage("2"),
    UserMessage("3"),
    AssistantMessage("4"),
    UserMessage("5"),
)


async def test_e08_a_window_alters_the_request_and_not_the_history() -> None:
    """Five messages and a prompt under a window of two: the model got two, the history has six."""
    lengths: list[int] = []
    made = agent(
        ["done"],
        capabilities=[
            at("before_model_request", lambda run: run.project(run.view[-2:]), "Window"),
            spy("before_model_request", lambda run: lengths.append(len(run.messages))),
        ],
    )
    result = await made.run("6", messages=FIVE)
    assert ["5", "6"] == texts(requests_of(made)[0].messages)
    assert [6] == lengths
    assert [*"123456", "done"] == texts(result.messages)


async def test_e09_projections_compose() -> None:
    """Trimming, then masking, and the other way round: the request is both short and masked, the history neither."""
    card = "4111 1111 1111 1111"
    listed = [TrimMessages(2), RedactPII()]
    for capabilities in (listed, listed[::-1]):
        made = agent(["done"], capabilities=capabilities)
        history = (*FIVE[:3], AssistantMessage(f"noted {card}"))
        result = await made.run(f"pay by {card}", messages=history)
        shown = texts(requests_of(made)[0].messages)
        assert ["3", "noted [REDACTED]", "pay by [REDACTED]"] == shown
        assert ["1", "2", "3", f"noted {card}", f"pay by {card}", "done"] == texts(result.messages)


async def test_e10_a_model_is_selected_for_one_step() -> None:
    """`with_model` at step 1 only: step 2 uses the agent's own."""
    other = ScriptedModel([*calls(1)], name="other")
    made = agent(
        ["done"],
        tools=[Desk().tool()],
        capabilities=[
            at("before_model_request", lambda run: run.with_model(other) if run.run_step == 1 else run, "A")
        ],
    )
    await made.run("go")
    assert (1, 1) == (len(other.requests), len(requests_of(made)))
    assert [1, 2] == [other.requests[0].step, requests_of(made)[0].step]


def offered(made: Agent[Any]) -> list[list[str]]:
    """Return the names of the tools that each request offered."""
    return [[one.name for one in request.tools] for request in requests_of(made)]


async def test_e12_tools_are_selected_for_a_request() -> None:
    """`select_tools({"a"})`: the request offers a only, the inventory has both."""
    desk = Desk()
    made = agent(
        ["done"],
        tools=[desk.tool("a"), desk.tool("b")],
        capabilities=[at("before_model_request", lambda run: run.select_tools({"a"}), "A")],
    )
    result = await made.run("go")
    assert [["a"]] == offered(made)
    assert ["a", "b"] == [one.name for one in result.state.inventory]


async def test_e13_the_selection_is_what_is_offered_and_what_can_run() -> None:
    """Two of three are selected: these two are offered and run, the third is a `validation_error`."""
    desk = Desk()
    asked = [call(name, {"n": 1}, id=name) for name in "abc"]
    made = agent(
        [asked, "done"], tools=[desk.tool(name) for name in "abc"], capabilities=[SelectTools({"a", "b"})]
    )
    result = await made.run("go")
    assert [["a", "b"], ["a", "b"]] == offered(made)
    assert {"a": "succeeded", "b": "succeeded", "c": "validation_error"} == statuses(result.messages)
    assert ["a1", "b1"] == sorted(desk.ran)


@pytest.mark.parametrize("tools", [(), ("a", "b", "x")], ids=["dropped", "added"])
async def test_e13_a_model_wrapper_cannot_change_the_selection(tools: tuple[str, ...]) -> None:
    """Dropping or adding a tool there ends the run with IllegalTransition, before the request."""
    desk = Desk()
    write = at(
        "wrap_model_request:in", lambda run: evolve(run, tools=[desk.tool(name) for name in tools]), "A"
    )
    made = agent(["done"], tools=[desk.tool("a"), desk.tool("b")], capabilities=[write])
    error = await failure(made.run("go"))
    assert ("IllegalTransition", "A", "wrap_model_request", "tools") == culprit(error)
    assert () == requests_of(made)


async def test_e14_the_inventory_does_not_authorize_what_was_left_out() -> None:
    """Selection [] and calls of an inventory tool: `validation_error`, no body, ends after unselected_retries."""
    desk = Desk()
    made = agent(
        [*calls(1), *calls(2), "done"],
        tools=[desk.tool()],
        capabilities=[SelectTools(frozenset())],
        unselected_retries=1,
    )
    error = await failure(made.run("go"))
    assert isinstance(error.reason, UnselectedRetriesExhausted)
    assert {"c1": "validation_error", "c2": "validation_error"} == statuses(partial_of(error).messages)
    assert ([], 2) == (desk.ran, len(requests_of(made)))


async def test_e16_arguments_are_transformed_and_the_models_stay() -> None:
    """`with_arguments`: the body gets them; `call.asked.arguments` is what the model sent."""
    asked: list[tuple[str, object]] = []
    desk = Desk()
    made = agent(
        [*calls(1), "done"],
        tools=[desk.tool()],
        capabilities=[
            at("before_tool_execute", lambda call: call.with_arguments({"n": 7}), "A"),
            spy("after_tool_execute", lambda call: asked.append((call.asked.arguments, call.arguments))),
        ],
    )
    await made.run("go")
    assert ["work7"] == desk.ran
    assert [(calls(1)[0].arguments, {"n": 7})] == asked


ILL_TYPED: list[dict[str, object]] = [{"n": 1.9}, {"b": "false"}, {"n": True}]


@tool
async def strict(n: int = 0, *, b: bool = False) -> str:
    """Take an integer and a truth value."""
    return f"{n} {b}"


@pytest.mark.parametrize("arguments", ILL_TYPED, ids=str)
async def test_e17_ill_typed_arguments_are_never_coerced(arguments: dict[str, object]) -> None:
    """1.9 and True are no int, "false" is no bool: each is a `validation_error`."""
    result = await agent([call("strict", arguments, id="c1"), "done"], tools=[strict]).run("go")
    assert {"c1": "validation_error"} == statuses(result.messages)


@pytest.mark.parametrize("arguments", ILL_TYPED, ids=str)
async def test_e17_a_transform_is_validated_before_it_is_judged(arguments: dict[str, object]) -> None:
    """Decided: a hook that makes arguments invalid is rejected by name, and no judge sees the call."""
    judged: list[str] = []
    made = agent(
        [call("strict", {}, id="c1"), "done"],
        tools=[strict],
        capabilities=[
            at("before_tool_execute", lambda call: call.with_arguments(arguments), "A"),
            spy("admit_tool_execute", lambda call: judged.append(call.id)),
        ],
    )
    error = await failure(made.run("go"))
    assert ("IllegalTransition", "A", "before_tool_execute", "arguments") == culprit(error)
    assert [] == judged


async def test_e18_a_call_keeps_its_identity_from_hook_to_hook() -> None:
    """A changes the id and B changes it back: A is rejected, B is never called."""
    called: list[str] = []

    def back(call: CallState) -> CallState:
        called.append(call.id)
        return evolve(call, asked=evolve(call.asked, id="c1"))

    made = agent(
        [*calls(1), "done"],
        tools=[Desk().tool()],
        capabilities=[
            at("before_tool_execute", lambda call: evolve(call, asked=evolve(call.asked, id="x")), "A"),
            at("before_tool_execute", back, "B"),
        ],
    )
    assert ("IllegalTransition", "A", "before_tool_execute", "asked") == culprit(
        await failure(made.run("go"))
    )
    assert [] == called


@pytest.mark.parametrize("change", [{"name": "other"}, {"kind": "custom"}, {"metadata": {"x": 1}}], ids=str)
async def test_e18_a_kept_call_keeps_name_kind_and_metadata(change: dict[str, object]) -> None:
    """A model hook that changes one of them under the same id is rejected."""

    def write(state: RunState) -> RunState:
        assert state.response is not None
        # Any: evolve takes the fields by name.
        changes: dict[str, Any] = change
        made = tuple(evolve(one, **changes) for one in state.response.tool_calls)
        return state.respond(evolve(state.response, tool_calls=made))

    made = agent(
        [*calls(1), "done"], tools=[Desk().tool()], capabilities=[at("after_model_request", write, "A")]
    )
    error = await failure(made.run("go"))
    assert ("IllegalTransition", "A", "after_model_request", "response") == culprit(error)


async def test_e18_another_id_in_the_response_is_another_call() -> None:
    """Decided: in after_model_request a changed id is a call dropped and one added, on record and by origin.

    A changes the id and B changes it back: the call that runs is B's, no longer the model's.
    """

    def renamed(to: str) -> Callable[[RunState], RunState]:
        def write(state: RunState) -> RunState:
            assert state.response is not None
            made = tuple(evolve(one, id=to) for one in state.response.tool_calls)
            return state.respond(evolve(state.response, tool_calls=made)) if made else state

        return write

    made = agent(
        [*calls(1), "done"],
        tools=[Desk().tool()],
        capabilities=[
            at("after_model_request", renamed("x"), "A"),
            at("after_model_request", renamed("c1"), "B"),
        ],
    )
    result = await made.run("go")
    response = result.messages[1]
    assert isinstance(response, AssistantMessage)
    assert [("c1", "B")] == [(one.id, one.origin) for one in response.tool_calls]
    assert [("A", "after_model_request"), ("B", "after_model_request")] == actors(result.log)


async def test_e20_an_after_hook_sees_whether_a_call_ran() -> None:
    """For a denied call `call.ran` is False, for one that ran it is True."""
    ran: list[tuple[str, bool]] = []
    made = agent(
        [calls(1, 2), "done"],
        tools=[Desk().tool()],
        capabilities=[
            at("admit_tool_execute", lambda call: call.refuse("no") if call.id == "c1" else call, "A"),
            spy("after_tool_execute", lambda call: ran.append((call.id, call.ran))),
        ],
    )
    await made.run("go")
    assert [("c1", False), ("c2", True)] == ran


async def test_e21_a_model_hook_transforms_the_response_before_admission() -> None:
    """Calls replaced by text: the run ends with that text, no body ran, nothing was charged for tools."""
    desk = Desk()
    made = agent(
        [calls(1, 2), "never"],
        tools=[desk.tool()],
        capabilities=[at("after_model_request", lambda run: run.respond(AssistantMessage("instead")), "A")],
    )
    result = await made.run("go")
    assert ("completed", "instead", 0, []) == (result.status, result.output, result.tool_calls, desk.ran)


async def test_e22_a_call_that_a_hook_added_is_judged_like_any_other() -> None:
    """A hook adds a call that the permissions deny: `denied`, and its origin is the hook's key."""
    desk = Desk()

    def add(state: RunState) -> RunState:
        assert state.response is not None
        if not state.response.tool_calls:
            return state
        added = (*state.response.tool_calls, call("drop", {"n": 1}, id="added"))
        return state.respond(evolve(state.response, tool_calls=added))

    made = agent(
        [*calls(1), "done"],
        tools=[desk.tool(), desk.tool("drop")],
        capabilities=[at("after_model_request", add, "A")],
        permissions=Permissions((("drop", "deny"),)),
    )
    result = await made.run("go")
    assert {"c1": "succeeded", "added": "denied"} == statuses(result.messages)
    response = result.messages[1]
    assert isinstance(response, AssistantMessage)
    assert ["model", "A"] == [one.origin for one in response.tool_calls]
    assert ["work1"] == desk.ran


async def test_e22_a_call_added_in_a_sub_agent_is_judged_by_the_parent_too() -> None:
    """What the parent's permissions deny stays denied, whoever asks for it below."""
    desk = Desk()

    def add(state: RunState) -> RunState:
        assert state.response is not None
        if not state.response.tool_calls:
            return state
        added = (*state.response.tool_calls, call("drop", {"n": 1}, id="added"))
        return state.respond(evolve(state.response, tool_calls=added))

    child = agent(
        [*calls(1), "found"],
        tools=[desk.tool(), desk.tool("drop")],
        capabilities=[at("after_model_request", add, "A")],
    )
    made = agent(
        [call("agent", {"task": "go"}), "done"],
        tools=[child.as_tool("Ask.")],
        permissions=Permissions((("drop", "deny"),)),
    )
    result = await made.run("go")
    (refused,) = records(result.log, "call_refused")
    assert ("added", "denied", ["work1"]) == (refused.call, refused.facts["status"], desk.ran)


async def test_e24_a_failing_after_hook_keeps_the_effect_on_record() -> None:
    """Status `succeeded` and the effect stay; the content is withheld from history and is in the log only."""

    def broken(call: CallState) -> CallState:
        raise RuntimeError("broken")

    desk = Desk()
    made = agent(
        [*calls(1), "done"], tools=[desk.tool()], capabilities=[at("after_tool_execute", broken, "A")]
    )
    error = await failure(made.run("go"))
    assert isinstance(error.reason, HookFailed)
    assert (["work1"], {"c1": "succeeded"}) == (desk.ran, statuses(partial_of(error).messages))
    assert "did 1" not in str(contents(partial_of(error).messages)["c1"])
    (settled,) = records(partial_of(error).log, "tool_settled")
    outcome = settled.facts["outcome"]
    assert isinstance(outcome, dict)
    assert ("succeeded", "did 1") == (outcome["status"], outcome["content"])


def test_e25_hooks_are_trusted_code_and_both_pages_say_so() -> None:
    """The sentence stands in README and in `capfold rules`: hooks are trusted, there is no sandbox."""
    for page in ((ROOT / "README.md").read_text(encoding="utf-8"), rules_text()):
        assert "Hooks are trusted code of your own program." in " ".join(page.split())
        assert "no sandbox" in " ".join(page.split())


async def test_e26_the_runs_identity_cannot_be_replaced() -> None:
    """A hook that evolves run_id: IllegalTransition, field run_id."""
    made = agent(
        ["done"], capabilities=[at("before_model_request", lambda run: evolve(run, run_id="mine"), "A")]
    )
    error = await failure(made.run("go"))
    assert isinstance(error.reason, IllegalTransition)
    assert ("IllegalTransition", "A", "before_model_request", "run_id") == culprit(error)
    assert () == requests_of(made)


# Every step, before and after the model.
MODEL_HOOKS = ("before_model_request", "after_model_request")


def forgers(**values: object) -> list[Capability[Any]]:
    """Return capabilities that write fields of the run at both model hooks, and in every tool hook."""
    # Any: evolve takes the fields by name.
    changes: dict[str, Any] = values

    def run(record: RunState) -> RunState:
        return evolve(record, **changes)

    def tools(record: CallState) -> CallState:
        return evolve(record, run=evolve(record.run, **changes))

    on_run = [at(point, run, f"forger {point}") for point in (*MODEL_HOOKS, "before_run")]
    points = ("before_tool_execute", "admit_tool_execute", "after_tool_execute")
    return [*on_run, *(at(point, tools, f"forger {point}") for point in points)]


async def test_e28_output_retries_cannot_be_replenished() -> None:
    """`output_retries_used` zeroed everywhere, one retry: exactly two requests."""
    made = agent(
        ["bad"] * 5, output_type=Total, output_retries=1, capabilities=forgers(output_retries_used=0)
    )
    error = await failure(made.run("go"))
    assert isinstance(error.reason, OutputRetriesExhausted)
    assert 2 == len(requests_of(made))


async def test_e29_steps_cannot_be_replenished() -> None:
    """`run_step` zeroed everywhere, max_steps 1: LimitExceeded(max_steps), one request."""
    made = agent(
        [*calls(1), "done"],
        tools=[Desk().tool()],
        limits=Limits(max_steps=1),
        capabilities=forgers(run_step=0),
    )
    error = await failure(made.run("go"))
    assert isinstance(error.reason, LimitExceeded)
    assert ("max_steps", 1) == (error.reason.limit, len(requests_of(made)))


async def test_e30_tool_calls_cannot_be_replenished() -> None:
    """`tool_calls` zeroed everywhere, a limit of one: the second batch is refused."""
    desk = Desk()
    made = agent(
        [*calls(1), *calls(2), "done"],
        tools=[desk.tool()],
        limits=Limits(tool_calls=1),
        capabilities=forgers(tool_calls=0),
    )
    error = await failure(made.run("go"))
    assert isinstance(error.reason, LimitExceeded)
    assert ("tool_calls", ["work1"]) == (error.reason.limit, desk.ran)
    assert {"c1": "succeeded", "c2": "not_executed"} == statuses(partial_of(error).messages)


async def test_e32_the_bound_on_output_retries_cannot_be_raised() -> None:
    """99 written to `output_retries`: the confirmed value stays, and is what the next hook reads."""
    read: list[int] = []
    made = agent(
        ["bad"] * 5,
        output_type=Total,
        output_retries=1,
        capabilities=[
            *forgers(output_retries=99),
            spy("before_model_request", lambda run: read.append(run.output_retries)),
        ],
    )
    await failure(made.run("go"))
    assert ([1, 1], 2) == (read, len(requests_of(made)))


RUNTIME_FIELDS = [name for name, owner in owners(RunState).items() if owner is Owner.RUNTIME]
FORGED: dict[str, object] = {
    "status": "completed",
    "tool_retries": FrozenDict({"work": 1}),
    "usage": Usage(input_tokens=999, output_tokens=0),
    "usage_by_model": FrozenDict({"scripted": Usage(input_tokens=999, output_tokens=0)}),
}


@pytest.mark.parametrize("name", RUNTIME_FIELDS)
@pytest.mark.parametrize("point", ["before_run", *MODEL_HOOKS])
async def test_e33_a_write_to_an_account_is_restored_and_on_record(name: str, point: str) -> None:
    """Decided: twelve fields, not six. The run completes; the record names key, hook, field, and what was tried."""
    value = FORGED.get(name, 777)
    made = agent(["done"], capabilities=[at(point, lambda run: evolve(run, **{name: value}), "A")])
    result = await made.run("go")
    assert "completed" == result.status
    assert [("A", point)] == actors(result.log, "restored")
    (record,) = records(result.log, "restored")
    assert [name] == list(record.restored)
    undone = record.restored[name]
    assert isinstance(undone, dict)
    assert undone["tried"] != undone["kept"]
    if value == 777:
        assert 777 == undone["tried"]


async def test_e34_the_next_capability_sees_the_confirmed_values() -> None:
    """A forges, B observes: at every step, before and after, B reads what the runtime counted."""
    seen: dict[str, list[tuple[int, int, int]]] = {point: [] for point in MODEL_HOOKS}

    def observe(point: str) -> Capability[Any]:
        return spy(
            point, lambda run: seen[point].append((run.run_step, run.requests, run.tool_calls)), f"B {point}"
        )

    made = agent(
        [*calls(1), calls(2, 3), "done"],
        tools=[Desk().tool()],
        capabilities=[
            *forgers(run_step=70, requests=80, tool_calls=90),
            *(observe(point) for point in MODEL_HOOKS),
        ],
    )
    await made.run("go")
    assert [(1, 0, 0), (2, 1, 1), (3, 2, 3)] == seen["before_model_request"]
    assert [(1, 1, 0), (2, 2, 1), (3, 3, 3)] == seen["after_model_request"]


@pytest.mark.parametrize("value", [1, 99])
async def test_e36_a_limit_cannot_be_moved(value: int) -> None:
    """max_steps is the one limit that a hook can see: lowered or raised it has no effect and is on record."""
    made = agent(
        [*calls(1), *calls(2), "done"],
        tools=[Desk().tool()],
        limits=Limits(max_steps=2),
        capabilities=[at("before_model_request", lambda run: evolve(run, max_steps=value), "A")],
    )
    error = await failure(made.run("go"))
    assert isinstance(error.reason, LimitExceeded)
    assert ("max_steps", 2) == (error.reason.limit, error.reason.allowed)
    restored = [record.restored for record in records(partial_of(error).log, "restored")]
    assert [{"max_steps": {"tried": value, "kept": 2}}] * 2 == restored
    # The others of these names in a state are counts: no other bound is within reach of a hook.
    shared = {field.name for field in fields(Limits)} & {field.name for field in fields(RunState)}
    assert {"max_steps", "requests", "tool_calls", "cost"} == shared


async def test_e37_a_selection_after_the_request_is_rejected_with_what_is_legal() -> None:
    """`select_tools` in an after hook: IllegalTransition, and its sentence names before_model_request."""
    desk = Desk()
    made = agent(
        ["done"],
        tools=[desk.tool("a"), desk.tool("b")],
        capabilities=[at("after_model_request", lambda run: run.select_tools({"a"}), "A")],
    )
    error = await failure(made.run("go"))
    assert isinstance(error.reason, IllegalTransition)
    assert ("IllegalTransition", "A", "after_model_request", "tools") == culprit(error)
    assert "in before_model_request: narrow or tune tools, project the view" in error.reason.legal


SELECTIONS: dict[str, Callable[[RunState], RunState]] = {
    "model": lambda run: run.with_model(ScriptedModel([], name="other")),
    "settings": lambda run: run.with_settings(temperature=0),
    "instructions": lambda run: run.with_instructions("Be brief."),
    "tools": lambda run: run.select_tools({"a"}),
    "request_messages": lambda run: run.project(run.view[-1:]),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_e37_a_selection_before_the_request_is_legal(name: str) -> None:
    """Decided: model, settings, instructions, tools and view are selected in before_model_request, and only there."""
    desk = Desk()
    tools = (desk.tool("a"), desk.tool("b"))
    state = RunState(messages=FIVE, inventory=tools, tools=tools)
    capability = at("before_model_request", SELECTIONS[name], "A")
    after, (transition,) = checked_fold([capability], "before_model_request", state)
    assert ("transition", [name]) == (transition.kind, list(transition.changes))
    assert getattr(after, name) != getattr(state, name)


async def test_e38_a_tuned_tools_own_retries_hold() -> None:
    """Tuned to max_retries 1: two failed steps are granted, and the failure of the second ends the run."""

    @tool(idempotent=True)
    def work(n: int) -> str:
        """Do a piece of work."""
        raise RuntimeError("no")

    def tune(state: RunState) -> RunState:
        return state.with_tools(evolve(state.tools[0], max_retries=1))

    made = agent(
        [*calls(1), *calls(2), *calls(3), "done"],
        tools=[work],
        capabilities=[at("before_model_request", tune, "A")],
    )
    error = await failure(made.run("go"))
    assert isinstance(error.reason, ToolRetriesExhausted)
    assert {"c1": "failed", "c2": "failed"} == statuses(partial_of(error).messages)
    assert (3, 2) == (work.max_retries, len(requests_of(made)))


def test_e40_the_changelog_says_which_writes_are_restored_and_which_rejected() -> None:
    """Under 0.1.0 each owner stands with its fields, below what becomes of an illegal write."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("## [0.1.0]", 1)[1]
    restored, _, rejected = text.partition("- **rejected**:")
    for owner, rule in RULES.items():
        part = restored.partition("- **restored**:")[2] if rule.consequence == "restored" else rejected
        assert f"- {owner.name} (" in part
    for name in RUNTIME_FIELDS:
        assert f"`{name}`" in restored


async def awaited() -> None:
    """Do nothing: a coroutine is one of the wrong returns."""


class Sub(RunState):
    """A subclass, whose additions a codec would lose."""


INVALID: dict[str, Callable[[], object]] = {
    "None": lambda: None,
    "True": lambda: True,
    "dict": dict,
    "coroutine": awaited,
    "subclass": Sub,
    "tuple": lambda: (RunState(), CallState()),
}


@pytest.mark.parametrize("invalid", INVALID)
@pytest.mark.parametrize("name", REDUCERS)
async def test_e41_an_invalid_return_is_never_repaired(name: str, invalid: str) -> None:
    """Whatever a hook returns that is no record of its kind: InvalidReturn, and nothing is called after it."""
    later: list[str] = []
    desk = Desk()
    made = agent(
        [*calls(1), "done"],
        tools=[desk.tool()],
        capabilities=[
            at(name, lambda _: INVALID[invalid](), "A"),
            spy(name, lambda _: later.append(name), "B"),
        ],
    )
    error = await failure(made.run("go"))
    assert isinstance(error.reason, InvalidReturn)
    assert ("InvalidReturn", "A", name, None) == culprit(error)
    assert [] == later
    reached = {"before_run": 0, "before_model_request": 0, "after_run": 2}
    assert reached.get(name, 1) == len(requests_of(made))
    assert (name in {"after_run", "after_tool_execute"}) == bool(desk.ran)


@pytest.mark.parametrize("invalid", INVALID)
@pytest.mark.parametrize("name", ["wrap_run", "wrap_model_request", "wrap_tool_execute"])
async def test_e41_an_invalid_return_of_a_wrapper_is_never_repaired(name: str, invalid: str) -> None:
    """The same of wrappers: what came from inside is on record, and no request or tool follows."""
    desk = Desk()
    made = agent(
        [*calls(1), "done"],
        tools=[desk.tool()],
        capabilities=[at(f"{name}:out", lambda _: INVALID[invalid](), "A")],
    )
    error = await failure(made.run("go"))
    assert isinstance(error.reason, InvalidReturn)
    assert ("InvalidReturn", "A", name, None) == culprit(error)
    assert {"wrap_run": 2}.get(name, 1) == len(requests_of(made))
    assert {"wrap_model_request": []}.get(name, ["work1"]) == desk.ran
    assert {"wrap_model_request": {}}.get(name, {"c1": "succeeded"}) == statuses(partial_of(error).messages)


@pytest.mark.parametrize("name", sorted(hook for hook in HOOKS if HOOKS[hook].kind == "gatherer"))
async def test_e41_an_invalid_fact_is_never_repaired(name: str) -> None:
    """A gatherer returns something that is no JSON: the run ends and names it; its reducer is not called."""

    async def gatherer(self: Capability, record: object, outside: Outside) -> object:
        return object()

    called: list[str] = []

    def reducer(self: Capability, record: object) -> object:
        called.append(name)
        return record

    bad: type[Capability] = type(
        "Bad", (Capability,), {name: gatherer, name.removeprefix("gather_"): reducer}
    )
    error = await failure(agent([*calls(1), "done"], tools=[Desk().tool()], capabilities=[bad()]).run("go"))
    assert isinstance(error.reason, InvalidReturn)
    assert ("InvalidReturn", "Bad", name, None) == culprit(error)
    assert [] == called


async def test_e42_an_old_snapshot_is_not_completed_by_guesses() -> None:
    """`tool_calls` removed from a suspended run's JSON: CodecError names the field."""
    made = agent([*calls(1)], tools=[Desk().tool()], capabilities=[RequireApproval()])
    result = await made.run("go")
    assert "suspended" == result.status

    data = json.loads(result.snapshot())
    old = json.dumps(_without_run_field(data, "tool_calls"))
    assert old != json.dumps(data)
    with pytest.raises(CodecError, match="tool_calls"):
        await made.resume(old, {})


def _without_run_field(value: Any, name: str) -> Any:  # Any: JSON, of which only one place is known
    """Return JSON without a field of the run state, which is the mapping that also has `run_step`."""
    if isinstance(value, dict):
        drop = name if "run_step" in value else None
        return {key: _without_run_field(member, name) for key, member in value.items() if key != drop}
    return [_without_run_field(member, name) for member in value] if isinstance(value, list) else value


async def test_e44_the_shortest_agent() -> None:
    """`Agent("a", "test", capabilities=[C()])`: a run echoes the prompt, and C was called."""
    seen = Seen()
    result = await Agent("a", "test", capabilities=[Traced(seen, key="C")]).run("hello")
    assert "hello" == result.output
    assert "before run C" in seen.lines
