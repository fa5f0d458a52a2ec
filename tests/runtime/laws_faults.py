"""Capabilities with one fault each, of the kind that people write, by the law that they break. Nothing here asserts."""

import datetime
import json
import random
import time
import uuid
from typing import ClassVar

from attrs import evolve, field, frozen

from capfold.capabilities import (
    CallState,
    Capability,
    Json,
    Outside,
    RunState,
    Tool,
    ToolMessage,
    UserMessage,
)
from capfold.capabilities.capability import AnyCapability, Declaration
from capfold.capabilities.frozen import EMPTY, FrozenDict, FrozenList
from capfold.capabilities.owners import Owner, owners
from capfold.capabilities.records import replace
from capfold.capabilities.verdict import Verdict

EXTRA = Tool("extra", "", {"type": "object"})


# --- total


@frozen
class FirstLetter(Capability):
    """Takes it for granted that the model says something."""

    def after_model_request(self, state: RunState) -> RunState:
        said = state.response.content  # type: ignore[union-attr]  # there is one here
        return state.note("shouts") if said[0] == "!" else state


@frozen
class NoneNowAndThen(Capability):
    """Forgets to return the record in one branch."""

    def after_tool_execute(self, call: CallState) -> CallState:
        if call.outcome is not None and call.outcome.status == "failed":
            return None  # type: ignore[return-value]  # the fault
        return call


@frozen
class TenantMissing(Capability):
    """Reads the context without asking whether the key is there."""

    def before_run(self, state: RunState) -> RunState:
        return state.add_instructions(f"You work for {state.context['tenant']}.")


@frozen
class PendingForgotten(Capability[FrozenDict[int]]):
    """Counts calls when they are judged, and looks the count up afterwards: not every call is judged."""

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.put(self, call.slot(self).assoc(call.id, 1))

    def after_tool_execute(self, call: CallState) -> CallState:
        return call.note("done") if call.slot(self)[call.id] == 2 else call


@frozen
class FactsTrusted(Capability):
    """Thinks that what comes from outside has a shape."""

    async def gather_before_run(self, state: RunState, outside: Outside) -> Json:
        return FrozenList(["fact"])

    def before_run(self, state: RunState) -> RunState:
        facts = state.fact(self)
        return state.append(UserMessage(facts[0]))  # type: ignore[index]  # the fault


# --- pure


@frozen
class Coin(Capability):
    """Tosses a coin."""

    def before_model_request(self, state: RunState) -> RunState:
        heads = random.random() < 0.5  # noqa: S311  # no secret
        return state.with_settings(temperature=1) if heads else state


@frozen
class Dated(Capability):
    """Reads the clock."""

    def before_run(self, state: RunState) -> RunState:
        return state.append(UserMessage(f"Today is {datetime.datetime.now(datetime.UTC).date()}."))


@frozen
class Slow(Capability):
    """Reads a clock that never changes what it returns."""

    def after_tool_execute(self, call: CallState) -> CallState:
        return call.stop("too late") if time.monotonic() < 0 else call


@frozen
class Traced(Capability):
    """Makes an id."""

    def before_tool_execute(self, call: CallState) -> CallState:
        return call.inject(trace=str(uuid.uuid4()))


class _Counter:
    """A list that is equal to itself only, so that its holder stays hashable."""

    def __init__(self) -> None:
        self.seen: list[int] = []


@frozen
class CountsInside(Capability):
    """Counts over runs in a list that its frozen field holds."""

    counter: _Counter = field(factory=_Counter)

    def before_model_request(self, state: RunState) -> RunState:
        self.counter.seen.append(1)
        return state.add_instructions(f"Step {len(self.counter.seen)}.")


@frozen
class BackDoor(Capability):
    """Writes into the record that it was given."""

    def before_run(self, state: RunState) -> RunState:
        dict.__setitem__(state.context, "checked", True)
        return state


@frozen
class BackDoorToField(Capability):
    """Sets a field of the record that it was given."""

    def admit_tool_execute(self, call: CallState) -> CallState:
        object.__setattr__(call, "retry", 7)
        return call


# --- sealed


@frozen
class CentsWhenJudged(Capability):
    """Changes the amount after others have judged it."""

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.with_arguments({**call.arguments, "checked": True})


@frozen
class InjectsLate(Capability):
    """Injects where it is too late."""

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.inject(user="ann")


@frozen
class HidesArguments(Capability):
    """Clears the arguments once the call is over, and with them what was judged."""

    def after_tool_execute(self, call: CallState) -> CallState:
        return evolve(call, arguments=EMPTY)


# --- json


@frozen
class ListInArguments(Capability):
    """Puts a plain list where only frozen JSON is."""

    def before_tool_execute(self, call: CallState) -> CallState:
        made = FrozenDict({**call.arguments, "tags": ["a"]})
        return evolve(call, arguments=made)


@frozen
class DateInMetadata(Capability):
    """Puts an object into the metadata of an outcome."""

    def after_tool_execute(self, call: CallState) -> CallState:
        when = FrozenDict({"when": datetime.date(2031, 1, 2)})
        return evolve(call, outcome=evolve(call.outcome, metadata=when))  # type: ignore[misc]  # there is one


@frozen
class SetInSettings(Capability):
    """Puts a set into the settings."""

    def before_model_request(self, state: RunState) -> RunState:
        return evolve(state, settings=FrozenDict({"stop": {"END"}}))


@frozen
class TooMuch(Capability):
    """Makes a number into a text, which the tool's schema refuses."""

    def before_tool_execute(self, call: CallState) -> CallState:
        return call.with_arguments({key: str(value) for key, value in call.arguments.items()})


# --- hidden


@frozen
class Widens(Capability):
    """Offers all tools, whatever an earlier capability left out."""

    def before_model_request(self, state: RunState) -> RunState:
        return evolve(state, tools=state.inventory)


@frozen
class BringsItsTool(Capability):
    """Adds a tool that is in no inventory."""

    def before_model_request(self, state: RunState) -> RunState:
        return state.with_tools(EXTRA)


@frozen
class WholeHistory(Capability):
    """Shows all messages, also those that an earlier capability hid."""

    def before_model_request(self, state: RunState) -> RunState:
        return state.project(state.messages)


# --- balanced


@frozen
class LastThree(Capability):
    """Cuts by number, through the middle of calls and results."""

    def before_model_request(self, state: RunState) -> RunState:
        return state.project((*state.view[:1], *state.view[1:][-1:]))


@frozen
class NoResults(Capability):
    """Leaves the results of tools out, which leaves their calls unanswered."""

    def before_model_request(self, state: RunState) -> RunState:
        return state.project([m for m in state.view if not isinstance(m, ToolMessage)])


@frozen
class OrphanResult(Capability):
    """Makes up a result of a call that nobody made."""

    def before_model_request(self, state: RunState) -> RunState:
        return state.project((*state.view, ToolMessage("made-up", "search", "42")))


@frozen
class NoInput(Capability):
    """Takes the input of the run away."""

    def before_run(self, state: RunState) -> RunState:
        return evolve(state, messages=state.messages[: state.history_start])


# --- task


@frozen
class LastOnly(Capability):
    """Shows the last group, and a summary in place of the task."""

    def before_model_request(self, state: RunState) -> RunState:
        return (
            state.project((UserMessage("Go on."), *state.exchanges[-1]))
            if len(state.exchanges) > 1
            else state
        )


@frozen
class Summary(Capability):
    """Replaces everything by a summary."""

    def before_model_request(self, state: RunState) -> RunState:
        return state.project([UserMessage(f"So far: {len(state.view)} messages.")])


@frozen
class ResultsOnly(Capability):
    """Shows what tools said, and not what for."""

    def before_model_request(self, state: RunState) -> RunState:
        results = [message for group in state.exchanges if len(group) > 1 for message in group]
        return state.project((UserMessage("Go by this."), *results)) if results else state


# --- portable


@frozen
class ListInSlot(Capability[tuple[object, ...]]):
    """Keeps a list in a tuple in its slot."""

    def before_model_request(self, state: RunState) -> RunState:
        return state.put(self, ([state.run_step],))


@frozen
class FunctionInSlot(Capability):
    """Keeps a function in its slot."""

    def after_model_request(self, state: RunState) -> RunState:
        return state.put(self, print)  # type: ignore[misc]  # the fault


@frozen
class AnotherType(Capability[int]):
    """Keeps a text in a slot that is declared as a number."""

    def after_tool_execute(self, call: CallState) -> CallState:
        return call.put(self, call.name)  # type: ignore[misc]  # the fault


@frozen
class MutableInitial(Capability[tuple[object, ...]]):
    """Starts with an object of no type that the codec knows."""

    def initial(self) -> tuple[object, ...]:
        return (object(),)

    def before_run(self, state: RunState) -> RunState:
        return state


@frozen
class ConfigLost(Capability):
    """Rounds what it was configured with, so that what is loaded is not what was dumped."""

    rate: float = 0.5

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "rate", self.rate / 2)

    def before_run(self, state: RunState) -> RunState:
        return state


# --- owner


@frozen
class Forges(Capability):
    """Writes one field that belongs to the runtime."""

    name: str

    def before_model_request(self, state: RunState) -> RunState:
        forged: object = {"usage_by_model": FrozenDict(), "tool_retries": FrozenDict({"x": 1})}.get(self.name)
        if forged is None:
            held = getattr(state, self.name)
            forged = "completed" if self.name == "status" else 77 if isinstance(held, int) else None
        if self.name == "usage":
            forged = state.usage + state.usage if state.requests else evolve(state.usage, input_tokens=9)
        if self.name == "cost":
            forged = 77.0
        return replace(state, **{self.name: forged})


@frozen
class AnothersSlot(Capability):
    """Writes the slot of another capability."""

    def before_model_request(self, state: RunState) -> RunState:
        return evolve(state, slots=state.slots.assoc("ToolBudget", FrozenDict()))


@frozen
class RenamesRun(Capability):
    """Changes the run's identity."""

    def after_run(self, state: RunState) -> RunState:
        return evolve(state, run_id="mine")


@frozen
class RewritesHistory(Capability):
    """Masks the history itself, where it should project."""

    def before_model_request(self, state: RunState) -> RunState:
        return evolve(state, messages=tuple(UserMessage("***") for _ in state.messages))


@frozen
class TakesBack(Capability):
    """Takes back what others said of a call."""

    def admit_tool_execute(self, call: CallState) -> CallState:
        return evolve(call, verdict=Verdict())


@frozen
class Whitewashes(Capability):
    """Makes a failure into a success."""

    def after_tool_execute(self, call: CallState) -> CallState:
        return evolve(call, outcome=evolve(call.outcome, status="succeeded"))  # type: ignore[misc]  # there is one


@frozen
class AsksAgainEarly(Capability):
    """Asks the model again before it has said anything."""

    def before_model_request(self, state: RunState) -> RunState:
        return evolve(state, again="please")


# --- silent


@frozen
class EqualCopy(Capability):
    """Copies what it does not change."""

    def before_model_request(self, state: RunState) -> RunState:
        return evolve(state)


@frozen
class EqualMessages(Capability):
    """Maps every message to a new one, also where nothing is masked."""

    def before_model_request(self, state: RunState) -> RunState:
        return state.project([evolve(m) for m in state.view])


@frozen
class EqualArguments(Capability):
    """Reads the arguments and writes them again."""

    def before_tool_execute(self, call: CallState) -> CallState:
        return evolve(call, arguments=json.loads(json.dumps(call.arguments)))


# --- idempotent


@frozen
class AddsEachTime(Capability):
    """Says that a second call changes nothing, and adds a paragraph each time."""

    declares: ClassVar[frozenset[Declaration]] = frozenset({"idempotent"})

    def before_model_request(self, state: RunState) -> RunState:
        return state.add_instructions("Be brief.")


@frozen
class HalfEachTime(Capability):
    """Says so, and offers half of what is left."""

    declares: ClassVar[frozenset[Declaration]] = frozenset({"idempotent"})

    def before_model_request(self, state: RunState) -> RunState:
        return state.select_tools({tool.name for tool in state.tools[: len(state.tools) // 2]})


@frozen
class CountsEachTime(Capability[int]):
    """Says so, and counts."""

    declares: ClassVar[frozenset[Declaration]] = frozenset({"idempotent"})

    def after_tool_execute(self, call: CallState) -> CallState:
        return call.put(self, call.slot(self) + 1)


# --- order


@frozen
class FirstTool(Capability):
    """Says that its place does not matter, and offers the first tool of those that are left."""

    declares: ClassVar[frozenset[Declaration]] = frozenset({"order_insensitive"})

    def before_model_request(self, state: RunState) -> RunState:
        return state.select_tools({tool.name for tool in state.tools[:1]})


@frozen
class CountsTools(Capability):
    """Says so, and tells the model how many tools there are."""

    declares: ClassVar[frozenset[Declaration]] = frozenset({"order_insensitive"})

    def before_model_request(self, state: RunState) -> RunState:
        return state.add_instructions(f"You have {len(state.tools)} tools.")


@frozen
class StopsOnRefusal(Capability):
    """Says so, and stops the run where an earlier capability refused a call."""

    declares: ClassVar[frozenset[Declaration]] = frozenset({"order_insensitive"})

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.stop("refused") if call.verdict.refused is not None else call


_RUNTIME_FIELDS = [name for name, owner in owners(RunState).items() if owner is Owner.RUNTIME]

# (law, capability): a fault that the law must find.
FAULTS: tuple[tuple[str, AnyCapability], ...] = (
    *(
        ("total", made())
        for made in (FirstLetter, NoneNowAndThen, TenantMissing, PendingForgotten, FactsTrusted)
    ),
    *(("pure", made()) for made in (Coin, Dated, Slow, Traced, CountsInside, BackDoor, BackDoorToField)),
    *(("sealed", made()) for made in (CentsWhenJudged, InjectsLate, HidesArguments)),
    *(("json", made()) for made in (ListInArguments, DateInMetadata, SetInSettings, TooMuch)),
    *(("hidden", made()) for made in (Widens, BringsItsTool, WholeHistory)),
    *(("balanced", made()) for made in (LastThree, NoResults, OrphanResult, NoInput)),
    *(("task", made()) for made in (LastOnly, Summary, ResultsOnly)),
    *(("portable", made()) for made in (ListInSlot, FunctionInSlot, AnotherType, MutableInitial, ConfigLost)),
    *(("owner", Forges(name)) for name in _RUNTIME_FIELDS),
    *(
        ("owner", made())
        for made in (AnothersSlot, RenamesRun, RewritesHistory, TakesBack, Whitewashes, AsksAgainEarly)
    ),
    *(("silent", made()) for made in (EqualCopy, EqualMessages, EqualArguments)),
    *(("idempotent", made()) for made in (AddsEachTime, HalfEachTime, CountsEachTime)),
    *(("order", made()) for made in (FirstTool, CountsTools, StopsOnRefusal)),
)
