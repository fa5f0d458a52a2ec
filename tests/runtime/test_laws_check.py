"""check_capability: every planted fault is found and reproduced by its line; what is right passes every law."""

import pickle
import sys
from typing import ClassVar

import pytest
from attrs import frozen
from hypothesis import settings
from hypothesis import strategies as st

from capfold.capabilities import (
    CallState,
    Capability,
    Json,
    Outside,
    RefuseTools,
    RequireApproval,
    RunState,
    SelectTools,
    ToolBudget,
    TrimMessages,
    UserMessage,
    for_tools,
    freeze,
    group,
    hook,
    inherited,
    is_read_only,
    nested,
    tool,
    when,
)
from capfold.capabilities.capability import AnyCapability, Declaration
from capfold.runtime.demo_lists import DESK, HideAccounts
from capfold.runtime.laws import LAWS, LawViolation, check_capability, check_law
from capfold.runtime.laws_check import violations
from tests.runtime.laws_faults import (
    FAULTS,
    AddsEachTime,
    CountsInside,
    EqualCopy,
    FactsTrusted,
    FirstLetter,
    TooMuch,
)

# Enough for every planted fault; derandomized, so that a test that passed passes again.
SEARCH = settings(max_examples=150, database=None, deadline=None, derandomize=True)
FEW = settings(max_examples=15, database=None, deadline=None, derandomize=True)


@tool
def pay(amount: int) -> str:
    """Pay."""
    return str(amount)


@pytest.mark.parametrize(
    ("law", "cap"), FAULTS, ids=[f"{law}-{getattr(cap, 'name', cap.key)}" for law, cap in FAULTS]
)
def test_a_fault_is_found_and_its_line_reproduces_it(law: str, cap: AnyCapability) -> None:
    """The law names capability and hook, shows a record of a few lines, and its code raises the same again."""
    with pytest.raises(LawViolation) as caught:
        check_capability(cap, laws=[law], settings=SEARCH)
    found = caught.value
    assert (law, cap.key) == (found.law, found.key)
    assert found.hook is None or found.hook in cap.overrides
    assert len(str(found).replace(found.code, "").splitlines()) <= 10
    assert "\n" not in found.code
    with pytest.raises(LawViolation) as again:
        exec(found.code, {"cap": cap, "record": found.record})  # noqa: S102  # the line that the report shows
    assert (found.law, found.key, found.hook, found.field) == (
        again.value.law,
        again.value.key,
        again.value.hook,
        again.value.field,
    )


def test_every_law_has_three_faults() -> None:
    """A law that finds nothing would pass unseen."""
    assert dict.fromkeys(LAWS, 3) == {name: min(3, sum(law == name for law, _ in FAULTS)) for name in LAWS}


# --- what is right


@frozen
class Observer(Capability[tuple[str, ...]]):
    """Uses every hook as it is meant."""

    def before_run(self, state: RunState) -> RunState:
        return state.append(UserMessage("In English."))

    def before_model_request(self, state: RunState) -> RunState:
        used = state.slot(self)
        return state.add_instructions(f"Tools so far: {', '.join(used) or 'none'}.")

    def after_model_request(self, state: RunState) -> RunState:
        return state.ask_again("Say something.") if not state.response else state

    def before_tool_execute(self, call: CallState) -> CallState:
        return call.inject(user="ann")

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.stop("enough") if len(call.slot(self)) > 1 else call

    def after_tool_execute(self, call: CallState) -> CallState:
        return call.put(self, (*call.slot(self), call.name)) if call.ran else call

    def after_run(self, state: RunState) -> RunState:
        return state.note("over")


@frozen
class Repairs(Capability):
    """Mends what the model sent."""

    declares: ClassVar[frozenset[Declaration]] = frozenset({"repairs"})

    def before_tool_execute(self, call: CallState) -> CallState:
        return call.with_arguments({"n": 1}) if call.problems else call


@frozen
class Remembers(Capability):
    """Brings something in, and believes only what it can see."""

    async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
        return freeze(["a"])

    def before_model_request(self, state: RunState) -> RunState:
        fact = state.fact(self)
        return state.add_instructions(fact) if isinstance(fact, str) else state


class Fails(Capability):
    """Fails the run on purpose, which is no raising."""

    def before_run(self, state: RunState) -> RunState:
        return state if "tenant" in state.context else state.fail("no tenant")

    def before_model_request(self, state: RunState) -> RunState:
        return state.with_settings(tenant=state.context["tenant"])


def quiet(state: RunState) -> bool:
    """Tell whether the run has just begun."""
    return state.run_step < 2


def unchanged(state: RunState) -> RunState:
    """Do nothing."""
    return state


GOOD: tuple[AnyCapability, ...] = (
    *(ToolBudget(2), ToolBudget({"pay": 1}, on_exceeded="refuse"), ToolBudget(0, tools={"pay"})),
    *(RefuseTools(), RefuseTools({"pay"}, unless="may_pay")),
    *(RequireApproval(), RequireApproval({"pay"}, prompt="{tool} {arguments}")),
    *(SelectTools(is_read_only), SelectTools({"pay", "search"})),
    *(TrimMessages(1), TrimMessages(4)),
    *DESK,
    HideAccounts(key="again"),
    *(Observer(), Repairs(), Remembers(), Fails()),
    group(ToolBudget(1), TrimMessages(2)),
    nested(RequireApproval({"pay"}), RefuseTools({"search"})),
    when(quiet, TrimMessages(1)),
    for_tools({"pay"}, RequireApproval()),
    inherited(group(), ToolBudget(1)),
    hook.before_model_request(unchanged),
)


@pytest.mark.parametrize("cap", GOOD, ids=[f"{i}-{cap.key:.40}" for i, cap in enumerate(GOOD)])
def test_what_is_right_passes(cap: AnyCapability) -> None:
    """Ready-made capabilities, combinators and the kit's own obey all laws."""
    check_capability(cap, settings=FEW)


# --- how it is called


def test_facts_are_of_the_given_shape() -> None:
    """With what the gatherer really returns there is nothing to find."""
    facts = {"gather_before_run": st.lists(st.just("fact"), min_size=1, max_size=2)}
    check_capability(FactsTrusted(), facts=facts, settings=FEW)
    with pytest.raises(ValueError, match=r"FactsTrusted has no such gatherer; there are: gather_before_run"):
        check_capability(FactsTrusted(), facts={"gather_after_run": st.none()}, settings=FEW)


def test_tools_are_those_given() -> None:
    """A fault that needs a tool is found with the tool, and names that are not there are refused."""
    with pytest.raises(LawViolation, match="does not fit the schema of 'pay'"):
        check_capability(TooMuch(), tools=[pay], settings=SEARCH)
    with pytest.raises(ValueError, match="no tool is named 'pai'; did you mean 'pay'"):
        check_capability(SelectTools({"pai"}), tools=[pay], settings=FEW)


def test_settings_reach_the_search() -> None:
    """So many examples, and no more."""
    seen: list[RunState] = []

    @hook.before_run
    def count(state: RunState) -> RunState:
        seen.append(state)
        return state

    check_capability(count, laws=["silent"], settings=settings(FEW, max_examples=7))
    assert 7 == len(seen)


def test_a_law_that_is_left_out_is_not_looked_at() -> None:
    """Only the laws that are named are; a name that is none is refused with those there are."""
    check_capability(EqualCopy(), laws=["total", "pure"], settings=FEW)
    with pytest.raises(ValueError, match="'purity' is no law; laws are total, pure"):
        check_capability(EqualCopy(), laws=["purity"])
    with pytest.raises(TypeError, match=r"write an instance, EqualCopy\(\)"):
        check_capability(EqualCopy)  # type: ignore[arg-type]  # the mistake


def test_all_broken_laws_of_a_capability_are_found() -> None:
    """One violation for each law that it breaks."""
    assert {"idempotent"} == {one.law for one in violations(AddsEachTime(), settings=FEW)}

    @frozen
    class Twice(Capability):
        def before_model_request(self, state: RunState) -> RunState:
            return state.project([UserMessage("x")])

        def after_run(self, state: RunState) -> RunState:
            return state.note(str(id(object())))[0]  # type: ignore[index,no-any-return]  # the fault

    assert {"total", "task"} <= {one.law for one in violations(Twice(), settings=SEARCH)}


def test_a_condition_that_raises_is_a_fault() -> None:
    """What `when` asks is part of the capability."""

    def asks(state: RunState) -> bool:
        return bool(state.context["on"])

    with pytest.raises(LawViolation, match="the condition of TrimMessages raised KeyError: 'on'") as caught:
        check_capability(when(asks, TrimMessages(1)), settings=FEW)
    assert "total" == caught.value.law


def test_a_violation_can_be_pickled() -> None:
    """Test runners send it to another process."""
    with pytest.raises(LawViolation) as caught:
        check_capability(FirstLetter(), settings=FEW)
    back = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # our own bytes
    assert (str(caught.value), caught.value.record) == (str(back), back.record)


def test_a_record_without_source_is_handed_over() -> None:
    """A slot of a local class has no source: the line speaks of `record`, and holds."""

    @frozen
    class Place:
        n: int = 0

    @frozen
    class Local(Capability[Place]):
        def before_model_request(self, state: RunState) -> RunState:
            place = state.slot(self)
            return state.put(self, Place(place.n + 1)) if place.n < 1 else state.note(place.m)  # type: ignore[attr-defined]  # the fault

    cap = Local()
    with pytest.raises(LawViolation) as caught:
        check_capability(cap, laws=["total"], settings=SEARCH)
    assert "'before_model_request', record, key='Local'" in caught.value.code
    with pytest.raises(LawViolation):
        exec(caught.value.code, {"cap": cap, "record": caught.value.record})  # noqa: S102  # as above


def test_one_law_on_one_record() -> None:
    """check_law is silent where the law holds, and asks for nothing that it cannot look at."""
    check_law(SelectTools(is_read_only), "silent", "before_model_request", RunState())
    check_law(SelectTools(is_read_only), "silent", "before_run", RunState())
    check_law(SelectTools(is_read_only), "portable")
    with pytest.raises(LawViolation, match="returned an equal copy"):
        check_law(group(EqualCopy()), "silent", "before_model_request", RunState())


def test_reads_are_not_seen_under_a_profiler() -> None:
    """There can be one profiler only; the one that is on stays, and what differs is found all the same."""

    def profiler(*event: object) -> None:
        """Measure nothing."""

    sys.setprofile(profiler)
    try:
        with pytest.raises(LawViolation, match="made two things of one record"):
            check_law(CountsInside(), "pure", "before_model_request", RunState())
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)


def test_a_clock_read_by_the_log_is_no_fault() -> None:
    """Writing a line of a log reads the clock, and changes no record."""
    import logging  # noqa: PLC0415  # beside what it is for

    @hook.before_model_request
    def talks(state: RunState) -> RunState:
        logging.getLogger("somebody").warning("step %s", state.run_step)
        return state

    check_capability(talks, laws=["pure"], settings=FEW)
