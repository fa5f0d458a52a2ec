"""StopOnRepeat: what is a circle and what is not, and what is done about it."""

from collections.abc import Callable, Sequence

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import (
    CallState,
    ImagePart,
    LimitToolOutput,
    Outcome,
    RunState,
    StopOnRepeat,
    TextPart,
    Tool,
    ToolCall,
    ToolMessage,
    call,
    fold,
    tool,
)
from capfold.capabilities.capability import AnyCapability
from capfold.capabilities.messages import Content
from capfold.capabilities.verdict import Problem
from capfold.runtime import Agent, Answer, Approve, Decision, Deny, MemoryBlobStore, RunResult, ScriptedModel

TOOL = Tool("look", "", {"type": "object"})
# A call in short: what it was made with, and what came of it.
Short = tuple[str, str]


def lived(
    cap: StopOnRepeat, steps: Sequence[Sequence[Short]], run: RunState | None = None
) -> tuple[RunState, int | None]:
    """Live steps of calls; return the run, and the number of the step before whose request it was stopped."""
    run = RunState() if run is None else run
    for number, step in enumerate(steps, start=1):
        run = fold([cap], "before_model_request", evolve(run, run_step=number))
        if run.stopped is not None:
            return run, number
        for index, (made, came) in enumerate(step):
            one = CallState(
                run=run,
                asked=ToolCall(f"{number}-{index}", "look"),
                tool=TOOL,
                index=index,
                arguments={"at": made},
                outcome=Outcome("succeeded", came, attempts=1),
            )
            run = fold([cap], "after_tool_execute", one).run
    run = fold([cap], "before_model_request", evolve(run, run_step=len(steps) + 1))
    return run, None if run.stopped is None else len(steps) + 1


def stops(text: str, cap: StopOnRepeat | None = None) -> int | None:
    """Return where steps stop that are given in short: "A B,A" is a step with A and one with B and A, like outcomes."""
    steps = [[(made, "same") for made in step.split(",")] for step in text.split()]
    return lived(StopOnRepeat() if cap is None else cap, steps)[1]


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("A A A A", 4),
        ("A A B A A B", None),
        ("B A A A", 5),
        ("A B A B A B", 7),
        ("A B A B A A B", None),
        ("A B C A B C A B C", None),
        ("A,B A,B A,B", 4),
        ("A,B B,A A,B", 4),
        ("A,B A A,B A A,B A", 7),
        ("A,A,A B", 2),
        ("A A,A B", 3),
        ("A,A,B A,A,B", None),
        ("A,B,C A,B,C C,B,A", 4),
        ("A A,B A", None),
    ],
)
def test_what_is_a_circle(text: str, at: int | None) -> None:
    """Three times the same step, or pairs of steps, in a row; the calls of one step in any order."""
    assert at == stops(text)


def test_longer_circles_are_found_where_asked_for() -> None:
    """`longest` is the number of steps that a circle may have, `times` how often it goes round."""
    assert stops("A B C A B C A B C", StopOnRepeat(longest=3)) == 10
    assert stops("A B C A B C", StopOnRepeat(2, longest=3)) == 7
    assert stops("A B A B A B", StopOnRepeat(longest=1)) is None
    assert stops("A A", StopOnRepeat(2)) == 3


def test_what_changes_is_no_circle() -> None:
    """The same call that brings something new each time is polling, and goes on."""
    assert lived(StopOnRepeat(), [[("A", str(n))] for n in range(9)])[1] is None
    assert lived(StopOnRepeat(), [[(str(n), "same")] for n in range(9)])[1] is None


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("AB"), st.sampled_from("xy")), min_size=1, max_size=3), max_size=9
    )
)
def test_it_stops_where_the_plain_words_say(steps: list[list[Short]]) -> None:
    """A run is stopped at the first step after which the units end with three equal ones, or three equal pairs."""
    units: list[tuple[Short, ...]] = []
    expected = None
    for number, step in enumerate(steps, start=2):
        same = len(set(step)) == 1
        units += [(step[0],)] * len(step) if same else [tuple(sorted(step))]
        if len({*units[-3:]}) == 1 and len(units) >= 3:
            expected = number
        if len(units) >= 6 and units[-6:-4] == units[-4:-2] == units[-2:]:
            expected = number
        if expected is not None:
            break
    assert expected == lived(StopOnRepeat(), steps)[1]


@given(st.lists(st.permutations([("A", "x"), ("B", "y"), ("C", "x")]), min_size=1, max_size=6))
def test_the_order_within_a_step_is_no_matter(steps: list[list[Short]]) -> None:
    """A batch that runs side by side is the same batch in any order."""
    plain = [sorted(step) for step in steps]
    assert lived(StopOnRepeat(), plain)[1] == lived(StopOnRepeat(), steps)[1]


def test_what_is_remembered_is_bounded() -> None:
    """Of a thousand steps those are kept that a circle can consist of."""
    cap = StopOnRepeat(3, longest=2)
    run, _ = lived(cap, [[("A", str(n)), ("B", "same")] for n in range(1000)])
    assert {step for step, _, _ in run.slot(cap)} == set(range(995, 1001))
    assert len(run.slot(cap)) == 12


def made(content: Content = "ok", **fields: object) -> CallState:
    """Return a call with its outcome."""
    call = CallState(tool=TOOL, outcome=Outcome("succeeded", content, attempts=1))
    return evolve(call, **fields)  # type: ignore[arg-type]  # fields of the record, by name


PICTURE = ImagePart(data=b"a", media_type="image/png")


@pytest.mark.parametrize(
    "other",
    [
        made("no"),
        made((PICTURE,)),
        made((evolve(PICTURE, data=b"b"),)),
        made((ImagePart(url="https://x", media_type="image/png"),)),
        made((TextPart("ok"),)),
        made(arguments={"a": 1}),
        made(arguments={"a": True}),
        made(asked=ToolCall("call-0", "gone")),
        made(tool=Tool("look", "", {"type": "object", "properties": {}})),
        made(outcome=Outcome("failed", "ok", attempts=1)),
        made(outcome=Outcome("denied", "ok", by="RefuseTools")),
        made(problems=(Problem("$", "no JSON"),), asked=ToolCall("call-0", "tool", "{")),
    ],
)
def test_what_tells_two_calls_apart(other: CallState) -> None:
    """Tool, arguments, status and every part of the content; the call's id does not."""
    cap = StopOnRepeat()
    one, two = (fold([cap], "after_tool_execute", each).slot(cap)[0][1:] for each in (made(), other))
    assert one != two
    again = evolve(other, asked=evolve(other.asked, id="another"))
    assert two == fold([cap], "after_tool_execute", again).slot(cap)[0][1:]


def test_injected_values_are_no_difference() -> None:
    """A request id that a hook makes anew for each call does not hide a circle."""
    cap = StopOnRepeat()
    slots = {fold([cap], "after_tool_execute", made(injected={"id": n})).slot(cap) for n in range(3)}
    assert len(slots) == 1


def test_other_tools_are_passed_over() -> None:
    """With `tools`, the rest neither counts nor comes in between."""
    cap = StopOnRepeat(tools={"look"})
    other = made(tool=Tool("wait", "", {"type": "object"}))
    assert fold([cap], "after_tool_execute", other) is other
    assert frozenset({"look"}) == cap.tool_names()
    assert StopOnRepeat().tool_names() == frozenset()


# --- in runs


def run_of(
    cap: StopOnRepeat, asked: Sequence[object], approver: object = None
) -> tuple[RunResult[str], list[str]]:
    """Run a script of calls `look(at)`, each given by its argument; return the result and what ran."""
    ran: list[str] = []

    @tool
    def look(at: str) -> str:
        """Look."""
        ran.append(at)
        return "nothing new"

    replies = [
        [call("look", {"at": at}, id=f"{i}{at}{j}") for j, at in enumerate(step)]
        if isinstance(step, list)
        else "ok"
        for i, step in enumerate(asked)
    ]
    agent = Agent("agent", ScriptedModel(replies), tools=[look], capabilities=[cap])
    return agent.run_sync("Look.", approver=approver), ran  # type: ignore[arg-type]  # an approver or None


def results(result: RunResult[str]) -> list[tuple[str, object]]:
    """Return status and content of each call."""
    return [(m.status, m.content) for m in result.messages if isinstance(m, ToolMessage)]


def test_a_run_is_stopped_before_the_next_request() -> None:
    """Three requests were sent, three bodies ran, and the run ends as a result."""
    result, ran = run_of(StopOnRepeat(message="{times} times {x}"), [["a"]] * 3)
    assert ("stopped", "3 times {x}", 3) == (result.status, result.output, result.requests)
    assert ["a"] * 3 == ran


def test_a_call_that_goes_on_is_refused_as_long_as_nothing_else_happens() -> None:
    """The refused call does not break the circle; another one does, and then it may be made again."""
    cap = StopOnRepeat(2, on_repeat="refuse", message="Enough.")
    result, ran = run_of(cap, [["a"], ["a"], ["a"], ["a", "b"], ["a"], "ok"])
    fine, no = ("succeeded", "nothing new"), ("denied", "Enough.")
    assert [fine, fine, no, no, fine, fine] == results(result)
    assert (["a", "a", "b", "a"], "ok") == (ran, result.output)


def test_of_a_pair_the_next_one_is_refused() -> None:
    """After A B A B it is A that would go on with the circle."""
    cap = StopOnRepeat(2, on_repeat="refuse")
    assert ["a", "b", "a", "b", "b"] == run_of(cap, [["a"], ["b"], ["a"], ["b"], ["a", "b"], "ok"])[1]


@pytest.mark.parametrize(
    ("decision", "ran", "asked"), [(Approve(), 5, 3), (Deny("No."), 2, 3), (Answer("Something new."), 4, 1)]
)
def test_a_person_is_asked(decision: Decision, ran: int, asked: int) -> None:
    """Each time anew: a denial leaves the circle as it is, an approval goes on with it, an answer ends it."""
    prompts: list[str] = []

    def person(requests: Sequence[object]) -> list[Decision]:
        prompts.extend(str(getattr(request, "prompts", ())) for request in requests)
        return [decision for _ in requests]

    cap = StopOnRepeat(2, on_repeat="ask")
    _, bodies = run_of(cap, [["a"]] * 5 + ["ok"], person)
    assert (ran, asked) == (len(bodies), len(prompts))
    assert "Allow look once more?" in prompts[0]


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("store", [None, MemoryBlobStore()])
@pytest.mark.parametrize(("changes", "requests"), [(False, 3), (True, 6)])
def test_of_a_result_shown_in_small_the_whole_counts(
    changes: bool,  # noqa: FBT001  # a value under test
    requests: int,
    store: MemoryBlobStore | None,
    first: bool,  # noqa: FBT001  # a value under test
) -> None:
    """Neither does a reference, which differs by call, hide a circle, nor does an equal beginning make one."""
    ends = iter("abcdef" if changes else "aaaaaa")
    dump = tool(lambda: "x" * 5_000 + next(ends), name="dump", description="Dump.")
    both: list[AnyCapability] = [LimitToolOutput(2_000, preview_bytes=10, store=store), StopOnRepeat()]
    listed = both if first else both[::-1]
    script: list[ToolCall | str] = [*(call("dump", id=f"c{i}") for i in range(5)), "ok"]
    result = Agent("agent", ScriptedModel(script), tools=[dump], capabilities=listed).run_sync("Dump.")
    assert requests == result.requests


WRONG: list[tuple[type[Exception], str, Callable[[], object]]] = [
    (ValueError, "the least is 2", lambda: StopOnRepeat(1)),
    (ValueError, "the least is 1", lambda: StopOnRepeat(longest=0)),
    (TypeError, "integer", lambda: StopOnRepeat(True)),
    (TypeError, "integer", lambda: StopOnRepeat(longest=2.0)),  # type: ignore[arg-type]  # the value under test
    (ValueError, "'stop', 'refuse' or 'ask'", lambda: StopOnRepeat(on_repeat="fail")),  # type: ignore[arg-type]  # as above
    (TypeError, "one string", lambda: StopOnRepeat(tools="pay")),
    (TypeError, "message", lambda: StopOnRepeat(message=None)),  # type: ignore[arg-type]  # as above
]


@pytest.mark.parametrize(("error", "match", "make"), WRONG)
def test_wrong_parameters(error: type[Exception], match: str, make: Callable[[], object]) -> None:
    """A bad value is refused at construction, with the nearest legal one."""
    with pytest.raises(error, match=match):
        make()
