"""CacheTool: what is a hit, what is kept, and that a hit is an answer like any other."""

from collections.abc import Callable
from typing import Annotated

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities import (
    CacheTool,
    CallState,
    Capability,
    FromCall,
    ImagePart,
    Outcome,
    RefuseTools,
    RequireApproval,
    RunState,
    TextPart,
    Tool,
    ToolCall,
    ToolFailed,
    ToolMessage,
    call,
    fold,
    tool,
)
from capfold.capabilities.cache_tool import MAX_ENTRIES
from capfold.capabilities.capability import AnyCapability
from capfold.runtime import Agent, Approve, Limits, ScriptedModel, dump_capabilities, load_capabilities
from capfold.runtime.laws import check_capability
from tests.strategies import json_objects

FEW = settings(max_examples=25, deadline=None, database=None, derandomize=True)
LOOK = Tool(
    "look", "", {"type": "object"}, annotations=tool(lambda: "", name="x", read_only=True).annotations
)


class Counted:
    """A read-only tool that says how often it ran."""

    def __init__(self) -> None:
        """It never ran."""
        self.ran: list[object] = []

    def tool(self, **options: bool) -> Tool:
        """Return the tool."""

        def look(a: object = None) -> str:
            """Look."""
            self.ran.append(a)
            return f"seen {len(self.ran)}"

        return tool(look, **{"read_only": True, **options})  # type: ignore[call-overload,no-any-return]  # all bools


def desk(
    replies: list[ToolCall | list[ToolCall] | str], *capabilities: AnyCapability, **tools: Tool
) -> Agent[str]:
    """Return an agent with tools."""
    return Agent("desk", ScriptedModel(replies), tools=list(tools.values()), capabilities=capabilities)


def looks(*ids: str, a: object = None) -> list[ToolCall | list[ToolCall] | str]:
    """Return replies with one equal call each, and the end."""
    return [*(call("look", {"a": a}, id=one) for one in ids), "done"]


def seen(messages: tuple[object, ...]) -> list[tuple[str, object]]:
    """Return status and content of each result."""
    return [(one.status, one.content) for one in messages if isinstance(one, ToolMessage)]


async def test_the_second_call_is_answered() -> None:
    """The body runs once, each call has a result, and both are charged."""
    counted = Counted()
    result = await desk(looks("c1", "c2", "c3"), CacheTool(), look=counted.tool()).run("go")
    assert [("succeeded", "seen 1"), ("answered", "seen 1"), ("answered", "seen 1")] == seen(result.messages)
    assert (1, 3) == (len(counted.ran), result.tool_calls)


async def test_nested_arguments_in_any_order() -> None:
    """Lists and objects are part of the key; the order of keys and spaces in the text is not."""
    counted = Counted()
    replies: list[ToolCall | list[ToolCall] | str] = [
        ToolCall("c1", "look", '{"a": {"x": [1, {"b": 2}], "y": null}}'),
        ToolCall("c2", "look", '{"a":{"y":null,"x":[1,{"b":2}]}}'),
        ToolCall("c3", "look", '{"a": {"x": [true, {"b": 2}], "y": null}}'),
        "done",
    ]
    result = await desk(replies, CacheTool(), look=counted.tool()).run("go")
    assert ["succeeded", "answered", "succeeded"] == [status for status, _ in seen(result.messages)]


async def test_equal_calls_of_one_batch_both_run() -> None:
    """Neither has an outcome when they are judged; from the next batch on, the first one's result stands."""
    counted = Counted()
    batch = [call("look", {"a": 1}, id="c1"), call("look", {"a": 1}, id="c2")]
    result = await desk(
        [batch, call("look", {"a": 1}, id="c3"), "done"], CacheTool(), look=counted.tool()
    ).run("go")
    statuses = [status for status, _ in seen(result.messages)]
    assert ["succeeded", "succeeded", "answered"] == statuses
    assert seen(result.messages)[2][1] == seen(result.messages)[0][1]


async def test_failures_are_not_kept() -> None:
    """A tool that fails once runs again for the same call, and is answered from then on."""
    ran: list[int] = []

    @tool(read_only=True)
    def look(a: object) -> str:
        """Look."""
        ran.append(1)
        if len(ran) == 1:
            raise ToolFailed("the line is down")
        return "fine"

    result = await desk(looks("c1", "c2", "c3"), CacheTool(), look=look).run("go")
    assert ["failed", "succeeded", "answered"] == [status for status, _ in seen(result.messages)]


@pytest.mark.parametrize(
    "status", ["answered", "validation_error", "denied", "failed", "unknown", "not_executed"]
)
def test_only_success_is_kept(status: str) -> None:
    """Every other outcome leaves the record as it is."""
    outcome = evolve(Outcome("succeeded", "text"), status=status)  # type: ignore[arg-type]  # any of the legal ones
    done = CallState(tool=LOOK, outcome=outcome)
    assert fold([CacheTool()], "after_tool_execute", done) is done


async def test_a_hit_can_still_be_refused() -> None:
    """A capability before or after it in the list has its say about a hit."""
    for first in (0, 1):
        counted = Counted()
        both: list[AnyCapability] = [CacheTool(), _RefuseSecond()]
        result = await desk(looks("c1", "c2"), *both[first:], *both[:first], look=counted.tool()).run("go")
        assert ["succeeded", "denied"] == [status for status, _ in seen(result.messages)]


class _RefuseSecond(Capability):
    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.refuse("once") if call.id == "c2" else call


async def test_injected_values_tell_calls_apart() -> None:
    """What a hook injects is an argument too, though the model never sees it."""

    @tool(read_only=True)
    def look(tenant: Annotated[str, FromCall("tenant")]) -> str:
        """Look."""
        return tenant

    class Inject(Capability):
        def before_tool_execute(self, call: CallState) -> CallState:
            return call.inject(tenant="b" if call.id == "c2" else "a")

    replies: list[ToolCall | list[ToolCall] | str] = [*(call("look", id=f"c{i}") for i in (1, 2, 3)), "done"]
    result = await desk(replies, CacheTool(), Inject(), look=look).run("go")
    assert [("succeeded", "a"), ("succeeded", "b"), ("answered", "a")] == seen(result.messages)


async def test_which_tools() -> None:
    """Read-only ones by default; others by name."""
    for capability, expected in ((CacheTool(), "succeeded"), (CacheTool({"look"}), "answered")):
        counted = Counted()
        result = await desk(looks("c1", "c2"), capability, look=counted.tool(read_only=False)).run("go")
        assert expected == seen(result.messages)[1][0]
    with pytest.raises(ValueError, match="'lock'"):
        desk([], CacheTool({"lock"}), look=Counted().tool())


async def test_it_survives_suspension_and_ends_with_the_run() -> None:
    """A resumed run is answered from what it kept before; another run is not."""
    counted = Counted()
    pay = tool(lambda: "paid", name="pay", description="Pay.")
    replies: list[ToolCall | list[ToolCall] | str] = [
        call("look", {"a": 1}, id="c1"),
        call("pay", id="c2"),
        call("look", {"a": 1}, id="c3"),
        "done",
    ]
    made = desk(replies, CacheTool(), RequireApproval({"pay"}), look=counted.tool(), pay=pay)
    suspended = await made.run("go")
    result = await made.resume(suspended.snapshot(), {suspended.pending[0].digest: Approve()})
    assert ["succeeded", "succeeded", "answered"] == [status for status, _ in seen(result.messages)]
    again = await desk(looks("c1", a=1), CacheTool(), look=counted.tool()).run("go")
    assert [("succeeded", "seen 2")] == seen(again.messages)


async def test_parts_are_kept_too() -> None:
    """A result of parts comes back part by part."""
    content = (TextPart("a"), ImagePart(data=b"GIF89a", media_type="image/gif"))
    look = tool(lambda: content, name="look", description="Look.", read_only=True)
    replies: list[ToolCall | list[ToolCall] | str] = [call("look", id="c1"), call("look", id="c2"), "done"]
    result = await desk(replies, CacheTool(), look=look).run("go")
    assert [("succeeded", content), ("answered", content)] == seen(result.messages)


async def test_a_call_that_would_be_one_too_many_is_charged_though_answered() -> None:
    """Every call of a batch is charged, whatever becomes of it."""
    made = Agent(
        "desk",
        ScriptedModel(looks("c1", "c2")),
        tools=[Counted().tool()],
        capabilities=[CacheTool(), RefuseTools(lambda _: False)],
        limits=Limits(tool_calls=2),
    )
    assert 2 == (await made.run("go")).tool_calls


def test_the_oldest_go_first() -> None:
    """The slot never holds more than its bound, and the newest results stay."""
    cache, run = CacheTool(), RunState()
    for n in range(MAX_ENTRIES + 3):
        done = CallState(run=run, tool=LOOK, arguments={"n": n}, outcome=Outcome("succeeded", f"{n}"))
        run = fold([cache], "after_tool_execute", done).run
    assert MAX_ENTRIES == len(run.slot(cache))

    def hit(n: int) -> bool:
        asked = CallState(run=run, tool=LOOK, arguments={"n": n})
        return fold([cache], "admit_tool_execute", asked).verdict.answer is not None

    assert [False, False, False, True] == [hit(n) for n in range(4)]
    assert hit(MAX_ENTRIES + 2)


async def test_the_oldest_go_first_after_a_suspension_too() -> None:
    """What is oldest is not forgotten where the run is written and read: it goes on as it would have otherwise."""
    pay = tool(lambda: "paid", name="pay", description="Pay.")
    many = [call("look", {"a": n}, id=f"m{n}") for n in range(MAX_ENTRIES)]
    replies: list[ToolCall | list[ToolCall] | str] = [
        many,
        call("pay", id="c0"),
        call("look", {"a": "new"}, id="c1"),
        call("look", {"a": 0}, id="c2"),
        call("look", {"a": 2}, id="c3"),
        "done",
    ]
    made = desk(replies, CacheTool(), RequireApproval({"pay"}), look=Counted().tool(), pay=pay)
    suspended = await made.run("go")
    result = await made.resume(suspended.snapshot(), {suspended.pending[0].digest: Approve()})
    statuses = [status for status, _ in seen(result.messages)]
    # The new one takes the place of 0, which takes that of 1; so 2 is there still.
    assert ["succeeded", "succeeded", "answered"] == statuses[-3:]


@given(json_objects(), json_objects(), st.booleans())
def test_a_hit_is_an_equal_call(kept: dict[str, object], asked: dict[str, object], varied: bool) -> None:  # noqa: FBT001  # drawn
    """A call is answered if and only if its arguments, and what it varies by, are those of one that succeeded."""
    cache = CacheTool(vary=("tenant",))
    done = CallState(tool=LOOK, arguments=kept, outcome=Outcome("succeeded", "text"))
    done = evolve(done, run=RunState(context={"tenant": "a", "other": 1}))
    run = fold([cache], "after_tool_execute", done).run
    run = evolve(run, context={"tenant": "b" if varied else "a"})
    call = CallState(run=run, tool=LOOK, arguments=asked)
    answered = fold([cache], "admit_tool_execute", call)
    hit = call.digest == evolve(done, outcome=None).digest and not varied
    assert hit == (answered.verdict.answer is not None)
    assert hit or answered is call


def test_laws() -> None:
    """It keeps every law."""
    check_capability(CacheTool(), settings=FEW)


def test_it_is_described_whole() -> None:
    """Dumped and loaded, it is equal."""
    for made in (CacheTool(), CacheTool({"a", "b"}, vary=("tenant", "user"), key="cache")):
        assert made.describe().complete
        assert (made,) == load_capabilities(dump_capabilities([made]), allowed=())


@pytest.mark.parametrize(
    ("make", "error", "why"),
    [
        (lambda: CacheTool("look"), TypeError, "one string"),
        (lambda: CacheTool(vary="tenant"), TypeError, r"write a tuple of keys, \('tenant',\)"),
        (
            lambda: CacheTool(vary=(1,)),  # type: ignore[arg-type]  # wrong on purpose
            TypeError,
            "keys of the run's context, not 1",
        ),
        (lambda: CacheTool(vary=None), TypeError, "must be a tuple of keys"),  # type: ignore[arg-type]  # likewise
    ],
)
def test_what_cannot_work(make: Callable[[], object], error: type[Exception], why: str) -> None:
    """Bad values are refused when it is made, with what would do."""
    with pytest.raises(error, match=why):
        make()
