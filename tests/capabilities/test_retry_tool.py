"""RetryTool: which failures lead to another attempt, what that costs, and what ends it."""

from collections.abc import Callable, Sequence

import anyio
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from capfold.capabilities import (
    Backoff,
    CallState,
    Capability,
    ModelRetry,
    Outcome,
    RetryTool,
    Tool,
    ToolContext,
    ToolFailed,
    Toolkit,
    ToolMessage,
    ToolUnknown,
    call,
    for_tools,
    is_idempotent,
    tool,
    when,
)
from capfold.runtime import (
    Agent,
    LimitError,
    LimitExceeded,
    Limits,
    RunResult,
    ScriptedModel,
    dump_capabilities,
    load_capabilities,
)
from capfold.runtime.invoke import failure_of
from capfold.runtime.laws import check_capability
from tests.runtime.desk import partial

AT_ONCE = Backoff(initial=0.0)
FEW = settings(max_examples=25, deadline=None, database=None, derandomize=True)
Reply = str | Exception


class Body:
    """A tool that fails as scripted, and says with which attempt and key it was called."""

    def __init__(self, *replies: Reply) -> None:
        """Reply with these, in order; the last one again and again."""
        self.replies = replies
        self.seen: list[tuple[int, str]] = []
        self.entered: anyio.Event | None = None

    def tool(
        self, name: str = "work", *, idempotent: bool | None = True, timeout: float | None = None
    ) -> Tool:
        """Return the tool."""

        async def body(context: ToolContext) -> str:
            self.seen.append((context.attempt, context.idempotency_key))
            if self.entered is not None:
                self.entered.set()
            reply = self.replies[min(len(self.seen), len(self.replies)) - 1]
            if isinstance(reply, Exception):
                raise reply
            if reply == "hang":
                await anyio.sleep_forever()
            return reply

        return tool(body, name=name, description="Work.", idempotent=idempotent, timeout=timeout)


def desk(
    tools: Sequence[Tool | Toolkit], *capabilities: Capability, limits: Limits | None = None
) -> Agent[str]:
    """Return an agent whose model calls `work` once and then is done."""
    model = ScriptedModel([call("work", id="c1"), "done"])
    return Agent("desk", model, tools=tools, capabilities=capabilities, limits=limits or Limits())


def outcome(result: RunResult[str] | RunResult[object]) -> tuple[str, object]:
    """Return what became of the only call."""
    (message,) = (one for one in result.messages if isinstance(one, ToolMessage))
    return message.status, message.content


# --- what is tried again


async def test_a_failure_that_passes() -> None:
    """Two attempts, one key, numbered 1 and 2; the result is the last one's, and two calls are charged."""
    body = Body(ToolFailed("the line is down"), "12 EUR")
    result = await desk([body.tool()], RetryTool(3, backoff=AT_ONCE)).run("go")
    assert ("succeeded", "12 EUR") == outcome(result)
    assert [1, 2] == [attempt for attempt, _ in body.seen]
    assert 1 == len({key for _, key in body.seen})
    assert 2 == result.tool_calls


async def test_an_exception_of_an_idempotent_tool() -> None:
    """What a declared tool raises is a known failure too, matched by its class or one that it derives from."""
    body = Body(ConnectionResetError("reset"), TimeoutError("slow"), "fine")
    result = await desk([body.tool()], RetryTool(on=["OSError"], backoff=AT_ONCE)).run("go")
    assert ("succeeded", "fine") == outcome(result)


@pytest.mark.parametrize(
    ("replies", "on", "attempts", "status"),
    [
        ([ValueError("no"), "fine"], ("OSError",), 1, "failed"),  # another class
        ([ToolFailed("no"), "fine"], ("ToolFailed", "OSError"), 2, "succeeded"),
        (
            [ModelRetry("other arguments"), "fine"],
            ("Exception",),
            1,
            "failed",
        ),  # the same again would fail again
        ([ModelRetry("other arguments"), "fine"], ("ModelRetry",), 2, "succeeded"),
        (["fine"], ("Exception",), 1, "succeeded"),
        ([ToolFailed("no")], ("Exception",), 3, "failed"),
    ],
)
async def test_which_failures(replies: list[Reply], on: tuple[str, ...], attempts: int, status: str) -> None:
    """`on` decides, by type and bases; after the last attempt the failure stands."""
    body = Body(*replies)
    result = await desk([body.tool()], RetryTool(on=on, backoff=AT_ONCE)).run("go")
    assert (attempts, status) == (len(body.seen), outcome(result)[0])


async def test_unknown_is_never_tried_again() -> None:
    """A timeout may have had its effect: one attempt, also of an idempotent tool."""
    body = Body("hang")
    result = await desk([body.tool(timeout=0.02)], RetryTool(backoff=AT_ONCE)).run("go")
    assert (1, "unknown") == (len(body.seen), outcome(result)[0])
    body = Body(
        ToolUnknown("the line went dead"), "fine"
    )  # unlike a timeout, it has an exception that `on` matches
    result = await desk([body.tool()], RetryTool(backoff=AT_ONCE)).run("go")
    assert (1, "unknown") == (len(body.seen), outcome(result)[0])


async def test_what_did_not_run_is_not_tried_again() -> None:
    """A refusal and invalid arguments never reach the wrapper; a body that could not be called is not called again."""
    body = Body("fine")

    class Refuses(Capability):
        def admit_tool_execute(self, call: CallState) -> CallState:
            return call.refuse("no")

    result = await desk([body.tool()], RetryTool(backoff=AT_ONCE), Refuses()).run("go")
    assert ("denied", "no") == outcome(result)
    nobody = Tool("work", "", {"type": "object"}, annotations=body.tool().annotations)
    result = await desk([nobody], RetryTool(backoff=AT_ONCE)).run("go")
    assert ("failed", 1) == (outcome(result)[0], result.tool_calls)
    assert [] == body.seen


async def test_undeclared_tools_run_once() -> None:
    """Without names or with a predicate, what is not declared to bear a second run gets none, though it failed."""
    body = Body(ToolFailed("no"), "fine")
    for retry in (RetryTool(backoff=AT_ONCE), RetryTool(tools=lambda _: True, backoff=AT_ONCE)):
        assert "failed" == outcome(await desk([body.tool(idempotent=None)], retry).run("go"))[0]
        assert 1 == len(body.seen)
        body.seen.clear()


async def test_undeclared_tools_where_asked_for() -> None:
    """`only_idempotent=False` is a promise of who lists it; it must say for which tools."""
    body = Body(ToolFailed("no"), "fine")
    retry = RetryTool(tools={"work"}, only_idempotent=False, backoff=AT_ONCE)
    assert "succeeded" == outcome(await desk([body.tool(idempotent=None)], retry).run("go"))[0]
    with pytest.raises(ValueError, match="must say which tools"):
        RetryTool(only_idempotent=False)


def test_an_undeclared_tool_is_an_error_when_the_agent_is_built() -> None:
    """Named, under a condition, or with the capability in its own list: it would never be tried again."""
    pay = Body("fine").tool("pay", idempotent=None)
    named = RetryTool(tools={"pay"})
    own = pay.with_capabilities(RetryTool())
    for tools, capabilities in (
        ([pay], [named]),
        ([pay], [when(lambda _: False, named)]),
        ([own], []),
        ([Toolkit("kit", [own])], []),
    ):
        with pytest.raises(ValueError, match=r"RetryTool is to run the tool 'pay' again, .* idempotent"):
            Agent("desk", "test", tools=tools, capabilities=capabilities)
    with pytest.raises(ValueError, match="'pey'"):
        Agent("desk", "test", tools=[pay], capabilities=[RetryTool(tools={"pey"})])
    Agent("desk", "test", tools=[Toolkit("kit", [pay], capabilities=[RetryTool()])])


async def test_the_scopes_it_may_stand_in() -> None:
    """In the list of a tool, and under for_tools, it does the same."""
    for place in (0, 1):
        body = Body(ToolFailed("no"), "fine")
        work = body.tool()
        retry = RetryTool(backoff=AT_ONCE)
        made = (
            desk([work.with_capabilities(retry)]) if place else desk([work], for_tools(is_idempotent, retry))
        )
        assert "succeeded" == outcome(await made.run("go"))[0]


# --- what ends it


async def test_a_limit_ends_the_run_with_the_last_outcome() -> None:
    """With two calls allowed there are two attempts, the second one's failure stands, and the limit is named."""
    body = Body(ToolFailed("one"), ToolFailed("two"), "never")
    with pytest.raises(LimitError) as caught:
        await desk([body.tool()], RetryTool(3, backoff=AT_ONCE), limits=Limits(tool_calls=2)).run("go")
    assert isinstance(caught.value.reason, LimitExceeded)
    assert "tool_calls" == caught.value.reason.limit
    assert ("failed", "two") == outcome(partial(caught.value))
    assert (2, 2) == (len(body.seen), partial(caught.value).tool_calls)


async def test_a_stop_ends_the_wait_at_once() -> None:
    """The caller stops the run while it would wait for an hour: the failure stands, and nothing is tried again."""
    body = Body(ToolFailed("one"), "never")
    body.entered = anyio.Event()
    made = desk([body.tool()], RetryTool(backoff=Backoff(initial=3600, maximum=3600)))
    with anyio.fail_after(30):
        async with made.start("go") as handle:
            await body.entered.wait()
            await handle.stop("enough")
            result = await handle.result()
    assert ("stopped", ("failed", "one"), 1) == (result.status, outcome(result), len(body.seen))


async def test_a_cancellation_ends_the_wait_at_once() -> None:
    """Cancelled while it would wait for an hour, the run is closed, its text withheld, and no attempt follows."""
    body = Body(ToolFailed("one"), "never")
    body.entered = anyio.Event()
    made = desk([body.tool()], RetryTool(backoff=Backoff(initial=3600, maximum=3600)))
    with anyio.fail_after(30):
        async with made.start("go") as handle:
            await body.entered.wait()
            handle.cancel()
            result = await handle.result()
    assert ("cancelled", "failed", 1) == (result.status, outcome(result)[0], len(body.seen))


async def test_a_stop_of_a_capability_inside_is_not_waited_for() -> None:
    """A wrapper inside that stopped the run has the last word."""

    class Stops(Capability):
        async def wrap_tool_execute(self, call_next, call):  # type: ignore[no-untyped-def]  # as a user may write it
            return (await call_next(call)).stop("enough")

    body = Body(ToolFailed("one"), "never")
    retry = RetryTool(backoff=Backoff(initial=3600, maximum=3600))
    with anyio.fail_after(30):
        result = await desk([body.tool()], retry, Stops()).run("go")
    assert ("stopped", 1) == (result.status, len(body.seen))


# --- against a script


class Script:
    """A call_next that returns scripted outcomes, and notes the waits."""

    deps = None
    attempt = 1
    idempotency_key = "key"
    resumed = False

    def __init__(self, failures: Sequence[Exception | None]) -> None:
        """Fail with these; None succeeds."""
        self.failures = list(failures)
        self.calls = 0
        self.waits: list[float] = []

    async def __call__(self, record: CallState, /) -> CallState:
        """Return the next outcome."""
        error = self.failures[self.calls]
        self.calls += 1
        made = Outcome("succeeded") if error is None else Outcome("failed", error=failure_of(error))
        return evolve(record, outcome=made)

    async def sleep(self, seconds: float) -> None:
        """Note the wait."""
        self.waits.append(seconds)

    def random(self) -> float:
        """Return the middle."""
        return 0.5


ERRORS: tuple[Exception | None, ...] = (
    None,
    OSError("a"),
    TimeoutError("b"),
    ValueError("c"),
    ToolFailed("d"),
    ModelRetry("e"),
)


@given(
    failures=st.lists(st.sampled_from(ERRORS), min_size=5, max_size=5),
    most=st.integers(1, 5),
    on=st.sets(
        st.sampled_from(["OSError", "ValueError", "ToolFailed", "Exception", "ModelRetry"]), min_size=1
    ),
)
def test_against_any_script(failures: list[Exception | None], most: int, on: set[str]) -> None:
    """There are as many attempts as matching failures in a row and one more, at most `max_attempts`; a wait between."""

    def passes(error: Exception | None) -> bool:
        if error is None or (isinstance(error, ModelRetry) and "ModelRetry" not in on):
            return False
        return bool(on & {kind.__name__ for kind in type(error).__mro__})

    expected = next((i for i, error in enumerate(failures, 1) if not passes(error)), most)
    script, backoff = Script(failures), Backoff()
    retry = RetryTool(most, on=sorted(on), backoff=backoff)
    start = CallState(tool=Body("").tool())

    async def run() -> CallState:
        return await retry.wrap_tool_execute(script, start)

    done = anyio.run(run)
    assert min(expected, most) == script.calls
    assert [backoff.delay(n, 0.5) for n in range(1, script.calls)] == script.waits
    assert done.outcome is not None
    assert ("succeeded" if failures[script.calls - 1] is None else "failed") == done.outcome.status


# --- configuration


def test_laws() -> None:
    """It keeps every law."""
    check_capability(RetryTool(), settings=FEW)


def test_it_is_described_whole() -> None:
    """Dumped and loaded, it is equal; its wait is part of what is described."""
    made = RetryTool(5, tools={"work"}, on=("OSError",), backoff=Backoff(initial=1.0), key="again")
    assert made.describe().complete
    assert (made,) == load_capabilities(dump_capabilities([made]), allowed=())
    assert (
        made.describe().digest != RetryTool(5, tools={"work"}, on=("OSError",), key="again").describe().digest
    )
    assert frozenset({"work"}) == made.tool_names()


@pytest.mark.parametrize(
    ("make", "error", "why"),
    [
        (lambda: RetryTool(0), ValueError, "the least is 1, not 0, and 2 tries again once"),
        (lambda: RetryTool(True), TypeError, "must be an integer"),
        (lambda: RetryTool(on="OSError"), TypeError, r"write a tuple of names, \('OSError',\)"),
        (
            lambda: RetryTool(on=(OSError,)),  # type: ignore[arg-type]  # wrong on purpose
            TypeError,
            "write 'OSError'",
        ),
        (
            lambda: RetryTool(on=None),  # type: ignore[arg-type]  # wrong on purpose
            TypeError,
            "must be a tuple of names of exceptions",
        ),
        (lambda: RetryTool(on=()), ValueError, r"\('Exception',\) means any"),
        (lambda: RetryTool(on=("no name",)), TypeError, "names of exceptions"),
        (lambda: RetryTool(tools="work"), TypeError, "one string"),
        (
            lambda: RetryTool(backoff=1.0),  # type: ignore[arg-type]  # likewise
            TypeError,
            "must be a Backoff",
        ),
        (
            lambda: RetryTool(only_idempotent=1),  # type: ignore[arg-type]  # likewise
            TypeError,
            "must be a bool",
        ),
    ],
)
def test_what_cannot_work(make: Callable[[], object], error: type[Exception], why: str) -> None:
    """Bad values are refused when it is made, with what would do."""
    with pytest.raises(error, match=why):
        make()
