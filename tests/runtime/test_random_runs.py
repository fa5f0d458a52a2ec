"""Random runs of the ready-made capabilities: a small number of what `python -m tests.random_runs` does in full."""

from collections.abc import Callable
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities import AssistantMessage, for_tools, group, inherited, nested, tool, when
from capfold.capabilities.capability import AnyCapability
from capfold.capabilities.grid import TOOL_HOOKS
from capfold.capabilities.messages import ToolCall
from capfold.capabilities.state import RunState
from capfold.runtime import Limits
from capfold.runtime.laws import check_capability
from capfold.runtime.laws_tale import HELPER, Cast, Tale
from capfold.runtime.laws_tales import tales
from tests.random_runs import check_run, fresh, lists
from tests.ready_made import READY_MADE

RUNS = settings(max_examples=40, deadline=None, database=None)
FEW = settings(max_examples=4, deadline=None, database=None, derandomize=True)


def drawn() -> st.SearchStrategy[Tale]:
    """Return a strategy for tales of some of the ready-made."""
    return lists().flatmap(lambda names: tales(fresh(names)))


@RUNS
@given(drawn())
def test_random_runs_keep_every_promise_on_asyncio(tale: Tale) -> None:
    """Truths, replay and fold, whatever happens."""
    check_run(tale, "asyncio")


@RUNS
@given(drawn())
def test_random_runs_keep_every_promise_on_trio(tale: Tale) -> None:
    """Truths, replay and fold, whatever happens."""
    check_run(tale, "trio")


# --- pairs


@tool(read_only=True)
async def search(text: str) -> str:
    """Search."""
    return text


@tool(destructive=True)
async def pay(amount: int) -> str:
    """Pay."""
    return str(amount)


def asks(*calls: tuple[str, str]) -> AssistantMessage:
    """Return a response that asks for calls."""
    asked = [ToolCall(f"{name}{i}", name, arguments) for i, (name, arguments) in enumerate(calls)]
    return AssistantMessage("Let me see.", tool_calls=tuple(asked), finish_reason="tool_calls")


SEARCH, PAY = ("search", '{"text": "my mail is ann@example.org"}'), ("pay", '{"amount": 1}')
HELP = (HELPER, '{"task": "help"}')


def busy(names: tuple[str, ...]) -> Tale:
    """Return a tale with repeated calls, a sub-agent, approvals and failures, of these capabilities."""
    tools = (search, pay)
    script = (
        asks(SEARCH, SEARCH),
        asks(PAY, HELP, PAY),
        asks(SEARCH, PAY),
        asks(SEARCH),
        AssistantMessage("Done."),
    )
    limits = Limits(max_steps=8, tool_timeout=1.0, requests=20)
    return Tale(
        root=Cast(script=script, tools=tools, capabilities=tuple(fresh(names)), limits=limits),
        helper=Cast(script=(asks(SEARCH),), tools=tools, limits=limits),
        prompt="Pay DE89 3704 0044 0532 0130 00.",
        deeds=("returns", "waits", "returns", "fails"),
        choices=("approves", "denies"),
        asked=("absent",),
    )


@pytest.mark.parametrize("first", READY_MADE)
def test_every_two_of_the_ready_made_keep_every_promise(first: str) -> None:
    """In both orders, in one busy run each; the command tells many random ones of each pair, on both loops."""
    for second in READY_MADE:
        if second != first:
            check_run(busy((first, second)), "asyncio")


NAMES = tuple(READY_MADE)
NEIGHBOURS = [pair for i, name in enumerate(NAMES) for pair in permutations((name, NAMES[i - 1]))]


@pytest.mark.parametrize("names", NEIGHBOURS, ids="-".join)
def test_two_of_the_ready_made_keep_every_law(names: tuple[str, str]) -> None:
    """Each beside another one, in both orders."""
    check_capability(group(*fresh(names)), settings=FEW)


# --- combinators


def early(state: RunState) -> bool:
    """Tell whether the run has just begun."""
    return state.run_step < 2


COMBINED: dict[str, Callable[[AnyCapability], AnyCapability]] = {
    "alone": lambda cap: cap,
    "group": group,
    "nested": nested,
    "when": lambda cap: when(early, cap),
    "inherited": inherited,
    "for_tools": lambda cap: for_tools({"pay"}, cap),
}
CASES = [
    (name, how)
    for name, cap in READY_MADE.items()
    for how in COMBINED
    if how != "for_tools" or (cap.overrides and cap.overrides <= TOOL_HOOKS)
]


@pytest.mark.parametrize(("name", "how"), CASES, ids=["-".join(case) for case in CASES])
def test_each_of_the_ready_made_keeps_every_law(name: str, how: str) -> None:
    """By itself, and inside every combinator that takes it."""
    check_capability(COMBINED[how](READY_MADE[name]), settings=FEW)
