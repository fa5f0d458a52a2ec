"""Shadow: what is in it is called, is heard of in the log, and changes nothing."""

from collections.abc import Sequence
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from attrs import evolve, frozen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capfold.capabilities import (
    AssistantMessage,
    CallNext,
    CallState,
    Capability,
    Json,
    Outside,
    RefuseTools,
    RequireApproval,
    RunBudget,
    RunState,
    SelectTools,
    Shadow,
    Tool,
    ToolBudget,
    Toolkit,
    TrimMessages,
    UserMessage,
    call,
    fold,
    for_tools,
    group,
    hook,
    inherited,
    nested,
    tool,
    when,
)
from capfold.capabilities.capability import AnyCapability, state_type
from capfold.capabilities.combinators import leaves
from capfold.runtime import (
    Agent,
    Approve,
    LimitError,
    Limits,
    RunResult,
    ScriptedModel,
    dump_capabilities,
    load_capabilities,
    replay,
    what_if,
)
from capfold.runtime.laws import call_states, check_capability, run_states

FEW = settings(max_examples=12, deadline=None, database=None)


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(read_only=True)
def search(text: str) -> str:
    """Search."""
    return f"nothing about {text}"


@frozen
class Meddler(Capability[int]):
    """Does at every hook whatever may be done there."""

    def initial(self) -> int:
        return 0

    def before_run(self, state: RunState) -> RunState:
        return state.append(UserMessage("Meddled.")).note("before")

    def before_model_request(self, state: RunState) -> RunState:
        shaped = state.project(state.view[-1:]).with_settings(temperature=1).add_instructions("Meddle.")
        return shaped.select_tools(lambda _: False).put(self, state.slot(self) + 1)

    def after_model_request(self, state: RunState) -> RunState:
        return state.respond(AssistantMessage("Meddled.")).ask_again("Meddle.")

    def before_tool_execute(self, call: CallState) -> CallState:
        return call.with_arguments({})

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.refuse("Meddled.").answer("Meddled.").require_approval("Meddle?").stop("Meddled.")

    def after_tool_execute(self, call: CallState) -> CallState:
        return call.with_content("Meddled.").fail("Meddled.")

    def after_run(self, state: RunState) -> RunState:
        return evolve(state, output="Meddled.")


@frozen
class Forger(Capability):
    """Writes what nobody may write, or raises, or returns nothing."""

    how: str = "raise"

    def tried(self, record: Any) -> Any:  # either record
        match self.how:
            case "raise":
                raise ValueError("Forged.\nIn two lines.")
            case "none":
                return None
            case "other":
                return "a string"
            case "slots":
                run = record if isinstance(record, RunState) else record.run
                run = evolve(run, slots={**run.slots, "other": 1})
                return run if isinstance(record, RunState) else evolve(record, run=run)
            case "list":
                return record.put(self, [])
            case "kind":
                return record.put(self, "a text")
            case _:
                run = record if isinstance(record, RunState) else record.run
                run = evolve(run, run_id="forged", requests=99)
                return run if isinstance(record, RunState) else evolve(record, run=run)

    def before_run(self, state: RunState) -> RunState:
        return self.tried(state)  # type: ignore[no-any-return]  # what it is is under test

    before_model_request = after_model_request = after_run = before_run

    def admit_tool_execute(self, call: CallState) -> CallState:
        return self.tried(call)  # type: ignore[no-any-return]  # as above

    before_tool_execute = after_tool_execute = admit_tool_execute


SCRIPT = (
    [call("pay", {"amount": 1}, id="c1"), call("search", {"text": "x"}, id="c2")],
    call("pay", {"amount": 2}, id="c3"),
    "ok",
)


def run(
    *capabilities: AnyCapability, **options: Any
) -> tuple[RunResult[str], ScriptedModel]:  # those of Agent
    """Run the script under a list; return the result and the model."""
    model = ScriptedModel(SCRIPT)
    agent = Agent("desk", model, tools=[pay, search], capabilities=capabilities, **options)
    return agent.run_sync("Pay.", run_id="run"), model


def notes(result: RunResult[str], actor: str | None = None) -> list[tuple[str | None, str | None, str]]:
    """Return hook, call and text of what was noted, in order."""
    found: list[tuple[str | None, str | None, str]] = []
    for record in result.log:
        if "notes" in record.changes and actor in {None, record.actor}:
            added: Any = record.changes["notes"]  # {"added": texts}
            found += [(record.hook, record.call, text) for text in added["added"]]
    return found


def seen(result: RunResult[str], model: ScriptedModel) -> object:
    """Return all that a run did and said, but for its log and slots."""
    requests = [(r.messages, r.instructions, r.settings, [t.name for t in r.tools]) for r in model.requests]
    said = [(type(m), m.content) for m in result.messages]
    return requests, said, result.status, result.output, result.requests, result.tool_calls


REAL: list[AnyCapability] = [ToolBudget(5), TrimMessages(8), RefuseTools({"search"})]
TRIED: list[AnyCapability] = [
    Meddler(),
    RequireApproval(),
    RunBudget(max_steps=1),
    SelectTools({"pay"}),
    ToolBudget(1),
    RefuseTools(),
    TrimMessages(1),
    *(Forger(how, key=how) for how in ("raise", "none", "other", "slots", "list", "kind", "sealed")),
]


@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_run_is_the_same_with_a_shadow(place: int) -> None:
    """Whatever is in the shadow, and wherever: model, tools, messages, output and counts are as without it."""
    plain = seen(*run(*REAL))
    for tried in TRIED:
        listed = [*REAL[:place], Shadow(tried), *REAL[place:]]
        assert plain == seen(*run(*listed, strict=True)), tried.key
    assert plain == seen(*run(Shadow(*TRIED), *REAL, strict=True))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_only_notes_and_the_own_slot_change(data: st.DataObject) -> None:
    """On any record, a hook in the shadow returns it with notes and its slot at most."""
    tried = data.draw(st.sampled_from(TRIED))
    (leaf,) = leaves([Shadow(tried)])
    name = data.draw(st.sampled_from(sorted(tried.overrides)))
    record: Any = data.draw(call_states() if "tool" in name else run_states())
    after = getattr(leaf.capability, name)(record)
    assert record.notes == after.notes[: len(record.notes)]
    if isinstance(record, CallState):
        assert evolve(record.run, slots=after.run.slots) == after.run
        assert evolve(record, notes=after.notes, run=after.run) == after
        record, after = record.run, after.run
    assert evolve(record, notes=after.notes, slots=after.slots) == after
    assert {key: value for key, value in after.slots.items() if key != leaf.capability.key} == {
        key: value for key, value in record.slots.items() if key != leaf.capability.key
    }


def test_what_it_would_have_done_is_in_the_log() -> None:
    """By whom, at which hook, of which call, and why."""
    result, _ = run(Shadow(RefuseTools(reason="Not today."), RunBudget(max_requests=1)))
    refused = "would have refused call {0} (pay): Not today."
    assert [
        ("admit_tool_execute", "c1", refused.format("c1")),
        ("admit_tool_execute", "c3", refused.format("c3")),
    ] == notes(result, "Shadow(RefuseTools)")
    assert [
        (
            "before_model_request",
            None,
            f"would have stopped the run: The budget of this run is used up: {n} of 1 requests.",
        )
        for n in (1, 2)
    ] == notes(result, "Shadow(RunBudget)")


def test_a_slot_in_the_shadow_is_what_it_would_be_alone() -> None:
    """It follows what really happened; the real one of the same key is another one."""
    alone, _ = run(ToolBudget(9))
    both, _ = run(Shadow(ToolBudget(1)), ToolBudget(9))
    slot = alone.state.slot_of("ToolBudget")
    assert {"pay": 2, "search": 1} == slot
    assert (slot, slot) == (both.state.slot_of("ToolBudget"), both.state.slot_of("Shadow(ToolBudget)"))


def test_two_versions_beside_each_other() -> None:
    """The new one of the same key is judged by its own slot, not by that of the version that is in force."""
    result, _ = run(ToolBudget(9), Shadow(ToolBudget(2)))
    assert [("admit_tool_execute", "c3")] == [(at, call) for at, call, _ in notes(result)]


def test_a_member_does_not_see_another_one() -> None:
    """Each gets the record that the run reached: nobody judges what a shadow before it would have changed."""
    result, _ = run(Shadow(SelectTools({"pay"}), SelectTools({"pay"}, key="second")))
    assert ["would have hidden search"] * 6 == [text for _, _, text in notes(result)]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("raise", "would have ended the run: {0} raised ValueError: Forged. In two lines."),
        ("none", "would have ended the run: {0} returned NoneType, not {1}"),
        ("other", "would have ended the run: {0} returned str, not {1}"),
        ("slots", "would have been rejected: the slot 'other' is another one's"),
        ("list", "would have been rejected: a slot holds an immutable value, and list can change"),
    ],
)
def test_what_would_have_ended_the_run(how: str, told: str) -> None:
    """An error at any hook is a note, and the run goes on to its end."""
    result, _ = run(Shadow(Forger(how)))
    expected = {
        (name, told.format(name, "CallState" if "tool" in name else "RunState"))
        for name in Forger().overrides
    }
    assert (expected, "completed") == ({(at, text) for at, _, text in notes(result)}, result.status)


def test_a_write_that_is_sealed() -> None:
    """It is told by field and consequence, and not done."""
    result, _ = run(Shadow(Forger("sealed")))
    first = notes(result)[0][2]
    assert first.startswith(
        "would have been rejected: run_id is fixed when the run starts; would have been restored"
    )
    assert ("run", 3) == (result.state.run_id, result.requests)


@frozen
class Typed(Capability[int]):
    """Forgets what it declared."""

    value: object = "a text"

    def after_tool_execute(self, call: CallState) -> CallState:
        return call.put(self, cast(int, self.value))  # which it is not


def test_a_slot_of_another_type() -> None:
    """What is not of the declared type is not kept."""
    result, _ = run(Shadow(Typed(), Typed(True, key="other")))
    assert {} == result.state.slots
    assert 3 == sum("declared as <class 'int'>, and this is a str" in text for _, _, text in notes(result))
    assert 3 == sum("and this is a bool" in text for _, _, text in notes(result))


@hook.after_run
def write_into_the_output(state: RunState) -> RunState:
    """Write where it must not."""
    assert isinstance(state.output, list)
    state.output.append(9)
    return state.note("Written.")


def test_an_output_that_can_be_written_to_is_lent_only() -> None:
    """What a hook in the shadow does to a list stays there."""
    model = ScriptedModel(["[1, 2]"])
    agent = Agent("desk", model, output_type=list[int], capabilities=[Shadow(write_into_the_output)])
    assert [1, 2] == agent.run_sync("Go.").output


# --- gatherers


@frozen
class Judge(Capability):
    """Asks a model about each call, or fails."""

    how: str = "ask"

    async def gather_admit_tool_execute(self, call: CallState, outside: Outside) -> Json:
        if self.how == "raise":
            raise OSError("The judge is out.")
        if self.how == "object":
            return object()  # type: ignore[return-value]  # what is under test
        if self.how == "coroutine":
            return anyio.lowlevel.checkpoint()  # type: ignore[return-value]  # as above
        return (await outside.request([UserMessage(f"{call.name}?")])).content  # type: ignore[return-value]  # a text

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.refuse("The judge said no.") if call.fact(self) == "no" else call


def facts(result: RunResult[str]) -> list[object]:
    """Return what was gathered."""
    return [record.facts["fact"] for record in result.log if record.kind == "gathered"]


NO_LIMITS = Limits()


def judged(
    *replies: Any, limits: Limits = NO_LIMITS, how: str = "ask"
) -> RunResult[str]:  # replies of a script
    """Run two calls of `pay` under a judge in the shadow."""
    model = ScriptedModel([[call("pay", {"amount": n}, id=f"c{n}") for n in (1, 2)], *replies])
    agent = Agent("desk", model, tools=[pay], capabilities=[Shadow(Judge(how))], limits=limits)
    return agent.run_sync("Pay.")


def test_gatherers_are_called_and_their_facts_kept() -> None:
    """The judge's requests are charged, what it said is on record, and what would have come of it is noted."""
    result = judged("no", "no", "ok")
    assert (4, "completed") == (result.requests, result.status)
    assert [{"fact": "no"}] * 2 == facts(result)
    assert [
        "would have refused call c1 (pay): The judge said no.",
        "would have refused call c2 (pay): The judge said no.",
    ] == [text for _, _, text in notes(result)]


@pytest.mark.parametrize(
    ("how", "told"),
    [("raise", "raised OSError: The judge is out."), ("object", "no JSON"), ("coroutine", "no JSON")],
)
def test_a_gatherer_that_fails_ends_nothing(how: str, told: str) -> None:
    """What it failed by stands in the log, and its reducer is not called without a fact."""
    result = judged("ok", how=how)
    assert result.status == "completed"
    assert all(told in str(fact) for fact in facts(result))
    assert 2 == sum(
        "would have ended the run: its gatherer" in text and told in text for _, _, text in notes(result)
    )


def test_the_limits_of_the_run_hold_in_the_shadow_too() -> None:
    """A request is a request: what it costs is charged, and a limit that it reaches ends the run."""
    with pytest.raises(LimitError):
        judged("no", "no", "ok", limits=Limits(requests=2))


# --- what it is as a value


def test_conditions_hold_in_the_shadow() -> None:
    """`when` and `for_tools`, inside and outside, as they do without it."""
    no = RefuseTools(lambda _: True, reason="No.")
    for shadow in (
        Shadow(for_tools({"search"}, no)),
        for_tools({"search"}, Shadow(no)),
        Shadow(group(when(lambda state: state.run_step == 1, for_tools({"search"}, no)))),
    ):
        assert ["c2"] == [call for _, call, _ in notes(run(shadow)[0])]


def test_the_order_of_after_hooks_in_the_shadow() -> None:
    """`nested` inside it turns them round, as elsewhere."""
    keys = [
        leaf.capability.key
        for leaf in leaves([Shadow(nested(Meddler(key="a"), Meddler(key="b")))], after=True)
    ]
    assert ["Shadow(b)", "Shadow(a)"] == keys


def test_on_a_toolkit_and_on_a_tool() -> None:
    """It may stand in their scopes, when what is in it may."""
    kit = Toolkit(
        "kit",
        [search.with_capabilities(Shadow(RefuseTools({"search"})))],
        capabilities=[Shadow(ToolBudget(1))],
    )
    model = ScriptedModel([[call("search", {"text": "x"}, id=f"c{n}") for n in (1, 2)], "ok"])
    result = Agent("desk", model, tools=[kit]).run_sync("Go.")
    assert ["c1", "c2", "c2"] == sorted(str(call) for _, call, _ in notes(result))
    with pytest.raises((TypeError, ValueError), match="before_model_request"):
        search.with_capabilities(Shadow(TrimMessages()))


def test_only_the_hooks_of_its_members_are_called() -> None:
    """A shadowed capability overrides what the member does, with a slot of the same type."""
    for member in TRIED:
        (leaf,) = leaves([Shadow(member)])
        assert member.overrides == leaf.capability.overrides
        assert state_type(type(member)) == state_type(type(leaf.capability))
        assert member.initial() == leaf.capability.initial()


def test_sub_agents_inherit_it() -> None:
    """Both ways of saying it mark its members, and `evolve` makes an equal one."""
    for shadow in (inherited(Shadow(ToolBudget(1))), Shadow(inherited(ToolBudget(1)))):
        assert [True] == [leaf.inherited for leaf in leaves([shadow])]
    shadow = Shadow(ToolBudget(1), key="Trial")
    assert shadow == evolve(shadow)
    assert Shadow(ToolBudget(2), key="Trial") == evolve(shadow, members=(ToolBudget(2),))


def test_it_is_dumped_and_loaded() -> None:
    """Its members are described as members, and an equal one comes back."""
    shadow = Shadow(RefuseTools(), for_tools({"pay"}, ToolBudget({"pay": 1})), key="Trial")
    described = shadow.describe()
    assert (True, 2, "Trial") == (described.complete, len(described.members), described.key)
    assert (shadow,) == load_capabilities(dump_capabilities([shadow]), allowed=[])


async def test_a_run_that_waits_is_resumed_with_what_the_shadow_remembers() -> None:
    """The slot goes into the snapshot by the member's type, and comes back."""
    capabilities = [Shadow(ToolBudget(1)), RequireApproval({"search"})]
    script: Sequence[Any] = [call("pay", {"amount": 1}, id="c1"), call("search", {"text": "x"}, id="c2")]
    made = Agent("desk", ScriptedModel(script), tools=[pay, search], capabilities=capabilities)
    first = await made.run("Pay.")
    assert ("suspended", {"pay": 1}) == (first.status, first.state.slot_of("Shadow(ToolBudget)"))
    later = Agent("desk", ScriptedModel(["ok"]), tools=[pay, search], capabilities=capabilities)
    result = await later.resume(first.snapshot(), {one.digest: Approve() for one in first.pending})
    assert {"pay": 1, "search": 1} == result.state.slot_of("Shadow(ToolBudget)")


@pytest.mark.parametrize("shadow", [Shadow(*TRIED[:7]), Shadow(*TRIED[7:]), Shadow(Judge())])
def test_the_laws_hold_for_a_shadow(shadow: Shadow) -> None:
    """Of whatever is in it, also of what breaks them itself."""
    check_capability(shadow, settings=FEW)


def test_it_needs_and_mentions_what_its_members_do() -> None:
    """A name that no tool has fails when the agent is built, in the shadow too."""

    @frozen
    class Needs(Capability):
        def needs_deps(self) -> frozenset[str]:
            return frozenset({"db"})

    shadow = Shadow(RefuseTools({"pay"}), Needs())
    assert (frozenset({"pay"}), frozenset({"db"})) == (shadow.tool_names(), shadow.needs_deps())
    with pytest.raises(ValueError, match="mentions the tool 'pays'"):
        Agent("desk", "test", tools=[pay], capabilities=[Shadow(RefuseTools({"pays"}))])
    with pytest.raises(ValueError, match="needs 'db' in deps"):
        Agent("desk", "test", tools=[pay], capabilities=[shadow]).run_sync("Go.")


@frozen
class Wraps(Capability):
    async def wrap_tool_execute(
        self, call_next: CallNext[CallState, CallState], call: CallState
    ) -> CallState:
        return await call_next(call)


@frozen
class Brings(Capability):
    tools: tuple[Tool, ...] = ()
    text: str = ""

    def provide_tools(self) -> Sequence[Tool]:
        return self.tools

    def provide_instructions(self) -> str:
        return self.text


@pytest.mark.parametrize(
    ("member", "match"),
    [
        (Wraps(), "overrides wrap_tool_execute"),
        (group(when(lambda state: True, Wraps())), "overrides wrap_tool_execute"),
        (Brings((pay,)), "brings tools"),
        (Brings(text="Be brief."), "brings instructions"),
        (Wraps, r"write Wraps\(\)"),
    ],
)
def test_what_cannot_be_in_a_shadow(member: Any, match: str) -> None:  # capabilities and a class
    """What has an effect by itself is refused at once, at any depth."""
    with pytest.raises(TypeError, match=match):
        Shadow(member)


def test_a_shadow_holds_nothing_back() -> None:
    """Not a stream either."""
    with pytest.raises(TypeError, match="changes nothing"):
        Shadow(Meddler(), hold_stream=True)


def test_two_of_one_key_in_the_shadow() -> None:
    """They would share a slot, so it is an error when the agent is built; another key of the Shadow is enough."""
    with pytest.raises(ValueError, match=r"Shadow\(ToolBudget\)"):
        Agent("desk", "test", capabilities=[Shadow(ToolBudget(1)), Shadow(ToolBudget(2))])
    Agent("desk", "test", capabilities=[Shadow(ToolBudget(1)), Shadow(ToolBudget(2), key="Trial")])


def test_fold_tells_the_same() -> None:
    """Outside any run too: the record comes back with a note."""
    record = CallState(tool=pay)
    after = fold([Shadow(RefuseTools(reason="No."))], "admit_tool_execute", record)
    assert ("would have refused call call-0 (tool): No.",) == after.notes
    assert record == evolve(after, notes=())


def test_a_log_with_a_shadow_is_replayed_and_judged_by_another_list() -> None:
    """Replay calls it again on the recorded facts; `what_if` needs nothing but the log, and may hold one itself."""
    listed: list[AnyCapability] = [Shadow(group(for_tools({"pay"}, RefuseTools()))), ToolBudget(9)]
    result, _ = run(*listed)
    agent = Agent("desk", ScriptedModel([]), tools=[pay, search], capabilities=listed)
    assert "completed" == replay(result.log, agent).state.status
    assert ["c1", "c3"] == [one.call for one in what_if(result.log, [RefuseTools()]).refused]
    assert what_if(result.log, [Shadow(RefuseTools()), ToolBudget(9)]).empty


@frozen
class Mends(Capability):
    """Repairs arguments that are not valid."""

    declares = frozenset({"repairs"})

    def before_tool_execute(self, call: CallState) -> CallState:
        return call.with_arguments({"amount": 1})


def test_who_repairs_is_called_for_what_needs_it() -> None:
    """A call with invalid arguments gets to it in the shadow too, and stays invalid."""
    model = ScriptedModel([call("pay", {"amount": "1"}, id="c1"), "ok"])
    result = Agent("desk", model, tools=[pay], capabilities=[Shadow(Mends())]).run_sync("Pay.")
    assert [("before_tool_execute", "c1", 'would have run call c1 (pay) with {"amount": 1}')] == notes(result)
    assert "validation_error" in [getattr(m, "status", None) for m in result.messages]
