"""SharedBudget: its configuration, and one call after the other; whole runs are in tests/runtime/test_budgets.py."""

from collections.abc import Callable

import pytest
from attrs import frozen

from capfold.capabilities import CallState, Outcome, SharedBudget, Tool, is_destructive, is_read_only

PAY = Tool("pay", "", {"type": "object"})
CALL = CallState(tool=PAY)


class Said:
    """A counter that is told what to say, and remembers what it was asked."""

    def __init__(self, *answers: object) -> None:
        """Say these, one after the other."""
        self.answers = list(answers)
        self.asked: list[tuple[str, int, int]] = []

    async def reserve(self, name: str, n: int, limit: int) -> object:
        """Return the next answer."""
        self.asked.append((name, n, limit))
        return self.answers.pop(0)


@frozen(eq=False)
class Next:
    """What stands below: it runs the body, and says so."""

    deps: object
    ran: list[str]
    attempt: int = 1
    idempotency_key: str = "key"
    resumed: bool = False

    async def __call__(self, record: CallState) -> CallState:
        """Run the body."""
        self.ran.append(record.id)
        return CallState(tool=record.tool, outcome=Outcome("succeeded", "ok", attempts=1))

    async def sleep(self, seconds: float) -> None:
        """Wait for nothing."""

    def random(self) -> float:
        """Return no chance."""
        return 0.5


@frozen
class Deps:
    """Dependencies as an object."""

    web: object


async def through(budget: SharedBudget, deps: object, call: CallState = CALL) -> tuple[CallState, int]:
    """Send a call through; return what came out, and how often the body ran."""
    below = Next(deps, [])
    done = await budget.wrap_tool_execute(below, call)
    return done, len(below.ran)


@pytest.mark.parametrize("of", [lambda counter: {"web": counter}, Deps])
async def test_one_unit_a_call(of: Callable[[object], object]) -> None:
    """A call takes one unit of the name, out of a mapping or an object, and runs once it has it."""
    counter = Said(True)
    done, ran = await through(SharedBudget("web", 3), of(counter))
    assert ([("web", 1, 3)], 1) == (counter.asked, ran)
    assert done.verdict.refused is None


async def test_without_a_unit_the_body_does_not_run() -> None:
    """The model reads the message and the run goes on; with "stop" it does not."""
    for choice in ("refuse", "stop"):
        budget = SharedBudget("web", 3, message="{limit} no more", on_exceeded=choice)
        done, ran = await through(budget, {"web": Said(False)})
        assert ran == 0
        assert done.verdict.refused is not None
        assert "{limit} no more" == done.verdict.refused.reason
        assert (choice == "stop") == (done.run.stopped is not None)


async def test_other_tools_take_nothing() -> None:
    """The counter is not even asked."""
    counter = Said()
    for tools in ({"search"}, is_read_only):
        _, ran = await through(SharedBudget("web", 0, tools=tools), {"web": counter})
        assert ran == 1
    _, ran = await through(SharedBudget("web", 0, tools=is_destructive), {"web": Said(False)})
    assert ran == 0


@pytest.mark.parametrize("answer", [None, 1, "yes"])
async def test_what_is_no_answer_lets_nothing_through(answer: object) -> None:
    """A counter that forgets to say so, or says something that counts as true, is an error and no permission."""
    with pytest.raises(TypeError, match="True or False"):
        await through(SharedBudget("web", 3), {"web": Said(answer)})


async def test_what_is_no_counter() -> None:
    """A number in the place of a counter is told apart."""
    with pytest.raises(TypeError, match=r"must be a counter, such as Counter\(\), not int"):
        await through(SharedBudget("web", 3), {"web": 3})


def test_what_it_needs_and_mentions() -> None:
    """The counter's key and the tools' names are known before a run."""
    budget = SharedBudget("web", 3, tools={"search"})
    assert (frozenset({"web"}), frozenset({"search"})) == (budget.needs_deps(), budget.tool_names())
    assert SharedBudget("web", 3).tool_names() == frozenset()


WRONG: list[tuple[type[Exception], str, Callable[[], object]]] = [
    (TypeError, "key of a counter", lambda: SharedBudget("", 1)),
    (TypeError, "key of a counter", lambda: SharedBudget(1, 1)),  # type: ignore[arg-type]  # the value under test
    (ValueError, "at least 0", lambda: SharedBudget("web", -1)),
    (TypeError, "integer", lambda: SharedBudget("web", True)),
    (ValueError, "'refuse' or 'stop'", lambda: SharedBudget("web", 1, on_exceeded="raise")),  # type: ignore[arg-type]  # as above
    (TypeError, "one string", lambda: SharedBudget("web", 1, tools="pay")),
    (TypeError, "message", lambda: SharedBudget("web", 1, message=None)),  # type: ignore[arg-type]  # as above
]


@pytest.mark.parametrize(("error", "match", "make"), WRONG)
def test_wrong_parameters(error: type[Exception], match: str, make: Callable[[], object]) -> None:
    """A bad value is refused at construction, with the nearest legal one."""
    with pytest.raises(error, match=match):
        make()
