"""FastAIAgent's agent middleware and guardrails, claim by claim, as capabilities."""

import ast
import functools
import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import evolve, field, frozen
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities import (
    ENTITIES,
    AssistantMessage,
    CacheResponses,
    CacheTool,
    CallNext,
    CallState,
    Capability,
    Guard,
    ImagePart,
    Message,
    NoPII,
    RedactPII,
    RefuseTools,
    RequireApproval,
    RunState,
    SelectTools,
    SystemMessage,
    TextPart,
    ToolBudget,
    ToolCall,
    ToolFailed,
    ToolMessage,
    TrimMessages,
    Usage,
    UserMessage,
    call,
    detect,
    is_destructive,
    nested,
    tool,
)
from capfold.capabilities.capability import AnyCapability
from capfold.capabilities.guard import OnFail
from capfold.capabilities.verdict import NOT_RUN_NOTE
from capfold.capabilities.views import view_problem
from capfold.runtime import (
    Agent,
    Approve,
    Blocked,
    BlockedError,
    Chunks,
    Delta,
    Ended,
    InvalidReturn,
    JsonLines,
    LimitError,
    Limits,
    MemoryCacheStore,
    ModelProfile,
    OtelSpans,
    ScriptedModel,
    UsageUnknown,
    checked_fold,
    messages_to_openai,
    verify,
)
from capfold.runtime.memory_store import MemoryStore
from capfold.runtime.scripted_model import Reply
from tests.conformance.kit import Desk, Onion, Seen, Traced, agent, calls, requests_of, texts
from tests.corruption.builders import at, culprit, failure, partial_of, records, spy
from tests.corruption.scenes import cancelled, check_closed, contents, statuses
from tests.docs.pages import ROOT
from tests.shapes import shaped_histories


@frozen
class Total:
    """An output that no plain text is."""

    total: int


@frozen
class EveryPoint(Capability):
    """Changes what it may at each of the seven points."""

    def before_run(self, state: RunState) -> RunState:
        return state.append(UserMessage("and quickly"))

    def before_model_request(self, state: RunState) -> RunState:
        return state.add_instructions("Be brief.")

    def after_model_request(self, state: RunState) -> RunState:
        assert state.response is not None
        return state.respond(evolve(state.response, content=f"{state.response.content}!"))

    def before_tool_execute(self, call: CallState) -> CallState:
        return call.with_arguments({"n": 5})

    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.refuse("no") if call.id == "c2" else call

    def after_tool_execute(self, call: CallState) -> CallState:
        assert call.outcome is not None
        return call.with_content(f"<{call.outcome.content}>")

    def after_run(self, state: RunState) -> RunState:
        return evolve(state, output=f"({state.output})")


async def test_f01_reducers_shape_a_run_at_seven_points() -> None:
    """Each of the seven sees its record and changes what the table allows; each change is on record."""
    desk = Desk()
    made = agent([calls(1, 2), "done"], tools=[desk.tool()], capabilities=[EveryPoint()])
    result = await made.run("go")
    assert "(done!)" == result.output
    assert ["work5"] == desk.ran
    assert ["go", "and quickly", "!", "<did 5>", "<no>", "done!"] == texts(result.messages)
    assert ["Be brief.", "Be brief."] == [request.instructions for request in requests_of(made)]
    assert [
        "before_run",
        "before_model_request",
        "after_model_request",
        "before_tool_execute",
        "before_tool_execute",
        "admit_tool_execute",
        "after_tool_execute",
        "after_tool_execute",
        "before_model_request",
        "after_model_request",
        "after_run",
    ] == [record.hook for record in records(result.log, "transition")]


BUILT_INS: tuple[AnyCapability, ...] = (
    SelectTools({"work", "pay"}),
    ToolBudget(2, on_exceeded="refuse"),
    RequireApproval({"pay"}),
    TrimMessages(1),
    RefuseTools(is_destructive, unless="may"),
)


@pytest.mark.parametrize(
    "pair", list(itertools.permutations(BUILT_INS, 2)), ids=lambda pair: "-".join(c.key for c in pair)
)
async def test_f02_every_pair_of_built_ins_composes_in_both_orders(pair: tuple[AnyCapability, ...]) -> None:
    """One script under each pair: the history is closed, the log holds, requests are balanced, one outcome each.

    Random runs under each pair of all that is ready-made are lived in tests/runtime/test_random_runs.py.
    """
    desk = Desk()
    tools = [desk.tool(read_only=True), desk.tool("pay"), desk.tool("drop", destructive=True)]
    asked = [*calls(1), *calls(2, name="pay"), *calls(3, name="drop")]
    made = agent(
        [asked, calls(4, 5), "done"],
        tools=tools,
        capabilities=pair,
        strict=True,
        approver=lambda pending: [Approve() for _ in pending],
    )
    result = await made.run("go")
    assert "completed" == result.status
    check_closed(result.messages)
    assert ["c1", "c2", "c3", "c4", "c5"] == sorted(statuses(result.messages))
    assert verify(result.log).complete
    assert [None] * 3 == [view_problem(request.messages) for request in requests_of(made)]
    ran = sum(status == "succeeded" for status in statuses(result.messages).values())
    assert len(desk.ran) == ran
    keys = {member.key for member in pair}
    assert ran <= 2 or "ToolBudget" not in keys
    if "RefuseTools" in keys:
        assert ["work1", "work4", "work5"][:ran] == sorted(desk.ran)
    if "SelectTools" in keys:
        assert "validation_error" == statuses(result.messages)["c3"]


def nothing_odd(text: str) -> str | None:
    """Find fault with one word; the check of the guards below."""
    return "odd" if "odd" in text else None


async def test_f04_a_guard_fails_stops_or_notes() -> None:
    """The three ways: RunError(Blocked); a `stopped` result; completed with a note on record."""

    def guarded(on_fail: OnFail) -> Agent[str]:
        return agent(["done"], capabilities=[Guard(nothing_odd, at="input", on_fail=on_fail)])

    error = await failure(guarded("error").run("an odd wish"))
    assert isinstance(error, BlockedError)
    assert isinstance(error.reason, Blocked)
    assert ("odd", "Guard", "before_run") == (error.reason.message, error.reason.key, error.reason.hook)

    stopping = guarded("stop")
    stopped = await stopping.run("an odd wish")
    assert ("stopped", "odd", ()) == (stopped.status, stopped.output, requests_of(stopping))

    noted = await guarded("note").run("an odd wish")
    assert ("completed", ("odd",)) == (noted.status, noted.state.notes)
    (record,) = records(noted.log, "transition")
    assert {"notes": {"added": ["odd"]}} == record.changes


async def test_f05_guards_that_log_are_independent() -> None:
    """Three guards that find fault leave three notes, in list order."""

    def guard(name: str) -> Guard:
        return Guard(lambda text: f"{name} failed", at="input", on_fail="note", key=name)

    result = await agent(["done"], capabilities=[guard("A"), guard("B"), guard("C")]).run("go")
    assert ("A failed", "B failed", "C failed") == result.state.notes


def test_f06_the_docs_say_when_to_use_which() -> None:
    """Decided: the table stands on the page about redaction and guards; each row leads to code that runs."""
    page = (ROOT / "docs" / "redaction.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([^|]+?) \| [^|]+ \| \[[^]]+\]\(#([\w-]+)\) \|$", page, re.MULTILINE))
    assert {"a guard", "a capability that stops", "a redactor"} == set(rows)
    sections = {head.lower().replace(" ", "-"): text for head, text in _sections(page)}
    assert [] == [name for name, anchor in rows.items() if "```python" not in sections[anchor]]


def _sections(page: str) -> list[tuple[str, str]]:
    """Return heading and text of each section of a page."""
    heads = list(re.finditer(r"^## (.+)$", page, re.MULTILINE))
    ends = [head.start() for head in heads[1:]] + [len(page)]
    return [(head[1], page[head.end() : end]) for head, end in zip(heads, ends, strict=True)]


@frozen
class OutputGuard(Capability):
    """Blocks a final text that is bad; a stand-in for an output guardrail."""

    def after_run(self, state: RunState) -> RunState:
        return state.fail("bad output") if "bad" in str(state.output) else state


async def test_f08_an_output_guard_looks_at_the_final_output_only() -> None:
    """Bad text beside a tool call is not checked; bad final text is blocked and withheld from history."""
    beside = AssistantMessage("bad", tool_calls=tuple(calls(1)), finish_reason="tool_calls")
    fine = await agent([beside, "good"], tools=[Desk().tool()], capabilities=[OutputGuard()]).run("go")
    assert ("completed", "good") == (fine.status, fine.output)
    assert "bad" in texts(fine.messages)

    error = await failure(
        agent([*calls(1), "bad end"], tools=[Desk().tool()], capabilities=[OutputGuard()]).run("go")
    )
    assert ("Blocked", "OutputGuard", "after_run", None) == culprit(error)
    assert [] == [text for text in texts(partial_of(error).messages) if "bad end" in str(text)]
    raw = records(partial_of(error).log, "model_responded")[-1].facts["response"]
    assert "bad end" in json.dumps(raw)


async def test_f08_what_was_blocked_is_not_saved() -> None:
    """The store has the turn without the text that the guard blocked."""
    store = MemoryStore()
    made = agent(["bad end"], capabilities=[OutputGuard()], store=store)
    await failure(made.run("go", conversation="c"))
    kept = texts(await store.load("c"))
    assert ("go", 2, False) == (kept[0], len(kept), "bad end" in str(kept))


def test_f09_a_second_capability_of_one_class_needs_a_name() -> None:
    """Two TrimMessages in one list: the error says `key=`; with it both are there."""
    with pytest.raises(ValueError, match=r"key='TrimMessages_2'"):
        agent([], capabilities=[TrimMessages(4), TrimMessages(2)])
    made = agent([], capabilities=[TrimMessages(4), TrimMessages(2, key="shorter")])
    assert ["TrimMessages", "shorter"] == [member.key for member in made.capabilities]


HISTORY: tuple[Message, ...] = (
    UserMessage("one"),
    AssistantMessage("two"),
    UserMessage("three"),
    AssistantMessage("four"),
)


async def test_f10_a_projection_changes_the_request_and_not_the_messages() -> None:
    """`project` shows one message; `result.messages` has them all."""
    made = agent(
        ["done"], capabilities=[at("before_model_request", lambda run: run.project(run.view[-1:]), "A")]
    )
    result = await made.run("go", messages=HISTORY)
    assert ["go"] == texts(requests_of(made)[0].messages)
    assert ["one", "two", "three", "four", "go", "done"] == texts(result.messages)


async def test_f12_a_wrapper_runs_once_for_each_call() -> None:
    """Two calls: it ran twice, with each call's arguments."""
    seen: list[object] = []

    async def around(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        seen.append((call.tool.name, call.arguments))
        return await call_next(call)

    await agent([calls(1, 2), "done"], tools=[Desk().tool(capabilities=[around])]).run("go")
    assert [("work", {"n": 1}), ("work", {"n": 2})] == sorted(seen, key=str)


async def test_f13_a_wrapper_goes_on_or_answers() -> None:
    """`return call` without call_next is InvalidReturn, and the call is `not_executed`."""

    async def forgets(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        return call

    desk = Desk()
    error = await failure(agent([*calls(1), "done"], tools=[desk.tool(capabilities=[forgets])]).run("go"))
    assert isinstance(error.reason, InvalidReturn)
    assert {"c1": "not_executed"} == statuses(partial_of(error).messages)
    assert [] == desk.ran


def test_f14_only_what_is_overridden_is_in_a_chain() -> None:
    """A subclass with one hook: of all compiled chains one has one link."""
    plan = agent([], tools=[Desk().tool()], capabilities=[TrimMessages(4)]).setup.plan
    links = {name: len(chain.links) for name, chain in plan.chains.items() if chain.links}
    assert {"before_model_request": 1} == links
    work = plan.tool("work")
    assert [0] * 5 == [
        len(chain.links) for chain in (work.before, work.repairs, work.admit, work.after, work.wrappers)
    ]


async def test_f16_nested_after_hooks_run_in_reverse() -> None:
    """`nested(A, B, C)`: after hooks run C, B, A; model and tool hooks alike."""
    seen: list[str] = []

    def spies(point: str) -> AnyCapability:
        return nested(
            *(
                spy(point, lambda _, key=key: seen.append(key), f"{key}{point}")  # type: ignore[misc]  # a default binds
                for key in "ABC"
            )
        )

    points = [spies("after_model_request"), spies("after_tool_execute"), spies("before_run")]
    await agent([*calls(1), "done"], tools=[Desk().tool()], capabilities=points).run("go")
    assert [*"ABC", *"CBA", *"CBA", *"CBA"] == seen


async def test_f17_tool_wrappers_are_an_onion() -> None:
    """Wrappers A, B, C on one call: enter A B C, leave C B A."""
    seen = Seen()
    wrappers = [Onion(seen, key=key) for key in "ABC"]
    await agent([*calls(1), "done"], tools=[Desk().tool()], capabilities=wrappers).run("go")
    assert ["enter A", "enter B", "enter C", "leave C", "leave B", "leave A"] == seen.lines


WHOLE_RUN = [
    "enter run A",
    "before run A",
    "before request A",
    "enter request A",
    "leave request A",
    "after request A",
    "before A",
    "before A",
    "admit A",
    "admit A",
    "enter A",
    "leave A",
    "enter A",
    "leave A",
    "after A",
    "after A",
    "before request A",
    "enter request A",
    "leave request A",
    "after request A",
    "after run A",
    "leave run A",
]


async def test_f18_the_order_of_a_whole_run() -> None:
    """A tracer on all hooks, two calls, two requests: exactly this order."""
    seen = Seen()
    made = agent(
        [calls(1, 2), "done"],
        tools=[Desk().tool(sequential=True)],  # so that the two wrappers do not interleave
        capabilities=[Traced(seen, key="A")],
    )
    await made.run("go")
    assert WHOLE_RUN == seen.lines


def on_every_hook(look: Any) -> list[AnyCapability]:  # Any: a function of either record
    """Return spies on every point of the grid."""
    points = (
        "before_run",
        "after_run",
        "before_model_request",
        "after_model_request",
        "wrap_run:in",
        "wrap_model_request:in",
        "before_tool_execute",
        "admit_tool_execute",
        "after_tool_execute",
        "wrap_tool_execute:in",
    )
    return [spy(point, functools.partial(look, point), point) for point in points]


def run_of(record: RunState | CallState) -> RunState:
    """Return the run of a record."""
    return record.run if isinstance(record, CallState) else record


async def test_f20_every_hook_reads_the_callers_context() -> None:
    """`context={"tenant": 1}` is there in all ten hooks."""
    seen: dict[str, object] = {}

    def look(point: str, record: RunState | CallState) -> None:
        seen[point] = run_of(record).context["tenant"]

    made = agent([*calls(1), "done"], tools=[Desk().tool()], capabilities=on_every_hook(look))
    await made.run("go", context={"tenant": 1})
    assert (10, {1}) == (len(seen), set(seen.values()))


async def test_f20_a_sub_agents_hooks_read_the_same_context() -> None:
    """In all ten hooks of the child."""
    seen: dict[str, object] = {}

    def look(point: str, record: RunState | CallState) -> None:
        seen[point] = run_of(record).context["tenant"]

    child = agent([*calls(1), "found"], tools=[Desk().tool()], capabilities=on_every_hook(look))
    made = agent([call("agent", {"task": "go"}), "done"], tools=[child.as_tool("Ask.")])
    await made.run("go", context={"tenant": 1})
    assert (10, {1}) == (len(seen), set(seen.values()))


async def test_f24_a_sub_agents_hooks_read_its_own_name() -> None:
    """`state.agent` is that of the run that the hook is called in, also of a hook that both have."""
    seen: list[str] = []
    look = spy("before_model_request", lambda state: seen.append(state.agent), "look")
    child = Agent("child", ScriptedModel(["found"]), capabilities=[look])
    made = Agent(
        "parent",
        ScriptedModel([call("child", {"task": "go"}), "done"]),
        tools=[child.as_tool("Ask.")],
        capabilities=[look],
    )
    await made.run("go")
    assert ["parent", "child", "parent"] == seen


async def test_f21_the_step_counts_from_one() -> None:
    """Decided: three requests are steps 1, 2, 3 in the hooks, not 0, 1, 2."""
    seen: list[int] = []
    made = agent(
        [*calls(1), *calls(2), "done"],
        tools=[Desk().tool()],
        capabilities=[spy("before_model_request", lambda run: seen.append(run.run_step))],
    )
    await made.run("go")
    assert [1, 2, 3] == seen


async def test_f22_a_call_knows_its_place_in_the_batch() -> None:
    """A batch of three has index 0, 1, 2; the next step starts at 0."""
    seen: list[int] = []
    made = agent(
        [calls(1, 2, 3), calls(4, 5), "done"],
        tools=[Desk().tool()],
        capabilities=[spy("before_tool_execute", lambda call: seen.append(call.index))],
    )
    await made.run("go")
    assert [0, 1, 2, 0, 1] == seen


@frozen
class Mark(Capability[int]):
    """Counts its runs in its slot, which makes one."""

    seen: Seen

    def before_run(self, state: RunState) -> RunState:
        self.seen.add(f"{state.slot_of(self.key)}")
        return state.put(self, state.slot(self) + 1)


async def test_f25_a_slot_is_fresh_in_every_run() -> None:
    """What the first run wrote is absent in the second."""
    seen = Seen()
    made = agent(["done", "done"], capabilities=[Mark(seen)])
    assert [1, 1] == [(await made.run("go")).state.slot_of("Mark") for _ in range(2)]
    assert ["None", "None"] == seen.lines


async def test_f26_a_capability_ends_the_run_from_inside() -> None:
    """`state.stop("m")`: the run is `stopped`, and the result says who did it and where."""
    made = agent(["done"], capabilities=[at("before_model_request", lambda run: run.stop("m"), "A")])
    result = await made.run("go")
    assert ("stopped", "m") == (result.status, result.output)
    assert result.stop is not None
    assert ("m", "A", "before_model_request", None) == (
        result.stop.message,
        result.stop.key,
        result.stop.hook,
        result.stop.call_id,
    )


async def test_f28_a_stop_of_a_structured_run_has_no_output() -> None:
    """Decided: output None and the message in `stop`, since the message is no Total; no output retry is used."""
    made = agent(
        [*calls(1), '{"total": 1}'],
        tools=[Desk().tool()],
        output_type=Total,
        capabilities=[at("after_tool_execute", lambda call: call.stop("m"), "A")],
    )
    result = await made.run("go")
    nothing: object = None  # the type of `output` is Total's, which a stopped run has not
    assert nothing is result.output
    assert ("stopped", 0) == (result.status, result.state.output_retries_used)
    assert result.stop is not None
    assert "m" == result.stop.message


async def test_f29_a_stop_passes_through_wrappers_that_catch_everything() -> None:
    """It is data, no exception: under an outer wrapper with `except Exception` the run is still `stopped`."""

    async def catches(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        try:
            return await call_next(call)
        except Exception:  # noqa: BLE001  # the case itself
            return call.answer("caught")

    async def stops(call_next: CallNext[CallState, CallState], call: CallState) -> CallState:
        return call.stop("m")

    desk = Desk()
    result = await agent([*calls(1), "done"], tools=[desk.tool(capabilities=[catches, stops])]).run("go")
    assert ("stopped", "m", []) == (result.status, result.output, desk.ran)
    assert {"c1": "not_executed"} == statuses(result.messages)


async def test_f30_a_flag_of_the_caller_stops_a_run_before_any_request() -> None:
    """A stop in before_run for a context flag: no request, `stopped`."""

    def closed(state: RunState) -> RunState:
        return state.stop("We are closed.") if state.context.get("closed") is True else state

    made = agent(["done"], capabilities=[at("before_run", closed, "Hours")])
    result = await made.run("go", context={"closed": True})
    assert ("stopped", 0, ()) == (result.status, result.requests, requests_of(made))


async def test_f32_a_stop_around_the_model_leaves_nothing_half_done() -> None:
    """A stop in after_model_request on a response with two calls: both `not_executed`, history closed, no body."""
    desk = Desk()
    made = agent(
        [calls(1, 2), "done"],
        tools=[desk.tool()],
        capabilities=[at("after_model_request", lambda run: run.stop("m"), "A")],
    )
    result = await made.run("go")
    assert {"c1": "not_executed", "c2": "not_executed"} == statuses(result.messages)
    check_closed(result.messages)
    assert ("stopped", []) == (result.status, desk.ran)


def stop_at(point: str, call_id: str = "c2") -> Capability[Any]:
    """Return a capability that stops the run at one call."""
    return at(point, lambda call: call.stop("m") if call.id == call_id else call, "Stop")


@pytest.mark.parametrize("point", ["before_tool_execute", "admit_tool_execute"])
async def test_f33_a_stop_in_a_batch_lets_the_calls_before_it_run(point: str) -> None:
    """Stopped at call 2 of 3: 1 executed, 2 and 3 `not_executed`."""
    desk = Desk()
    made = agent([calls(1, 2, 3), "done"], tools=[desk.tool()], capabilities=[stop_at(point)])
    result = await made.run("go")
    assert {"c1": "succeeded", "c2": "not_executed", "c3": "not_executed"} == statuses(result.messages)
    assert ("stopped", ["work1"], 1) == (result.status, desk.ran, result.requests)


def raises(call: CallState) -> CallState:
    """Break on the second call."""
    if call.id == "c2":
        raise RuntimeError("broken")
    return call


ENDINGS: dict[str, dict[str, Any]] = {
    "completed": {},
    "stopped in admit": {"capabilities": [stop_at("admit_tool_execute")]},
    "stopped after": {"capabilities": [stop_at("after_tool_execute")]},
    "failed before": {"capabilities": [at("before_tool_execute", raises, "A")]},
    "failed in admit": {"capabilities": [at("admit_tool_execute", raises, "A")]},
    "failed around": {"capabilities": [at("wrap_tool_execute:in", raises, "A")]},
    "failed after": {"capabilities": [at("after_tool_execute", raises, "A")]},
    "failed response": {"capabilities": [at("after_model_request", lambda _: None, "A")]},
    "limit": {"limits": Limits(tool_calls=2)},
    "steps": {"limits": Limits(max_steps=1)},
    "suspended": {"capabilities": [RequireApproval()]},
    "blocked": {"capabilities": [at("after_tool_execute", lambda call: call.fail("no"), "A")]},
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_f34_every_ending_answers_every_call(ending: str) -> None:
    """Three calls, and each way to end: each has one result, directly after its response, in call order."""
    made = agent([calls(1, 2, 3), "done"], tools=[Desk().tool()], **ENDINGS[ending])
    if ending.split(maxsplit=1)[0] in {"completed", "stopped", "suspended"}:
        messages: Sequence[Message] = (await made.run("go")).messages
    else:
        messages = partial_of(await failure(made.run("go"))).messages
    check_closed(messages)
    assert ["c1", "c2", "c3"] == list(statuses(messages))


async def test_f34_a_cancelled_run_answers_every_call() -> None:
    """Cancelled while three bodies run: each call has its result all the same."""
    scope = anyio.CancelScope()

    @tool
    async def work(n: int) -> str:
        """Do a piece of work."""
        scope.cancel()
        await anyio.sleep(60)
        return "too late"

    run, _ = await cancelled(agent([calls(1, 2, 3), "done"], tools=[work]), scope)
    check_closed(run.messages)
    assert dict.fromkeys(("c1", "c2", "c3"), "unknown") == statuses(run.messages)


async def test_f36_a_skipped_call_gets_a_note() -> None:
    """After a stop its content is NOT_RUN_NOTE."""
    made = agent([calls(1, 2), "done"], tools=[Desk().tool()], capabilities=[stop_at("admit_tool_execute")])
    assert NOT_RUN_NOTE == contents((await made.run("go")).messages)["c2"]


async def test_f37_a_skipped_call_has_no_effect() -> None:
    """Three tools that count: stopped at the second, the counts are 1, 0, 0."""
    desk = Desk()
    names = ("one", "two", "three")
    asked = [call(name, {"n": 1}, id=f"c{i + 1}") for i, name in enumerate(names)]
    made = agent(
        [asked, "done"],
        tools=[desk.tool(name) for name in names],
        capabilities=[stop_at("admit_tool_execute")],
    )
    await made.run("go")
    assert [1, 0, 0] == [desk.ran.count(f"{name}1") for name in names]


async def test_f38_the_model_reads_that_a_call_was_not_run() -> None:
    """A run that goes on with the stopped history sends the note."""
    first = await agent(
        [calls(1, 2), "done"], tools=[Desk().tool()], capabilities=[stop_at("admit_tool_execute")]
    ).run("go")
    second = agent(["done"], tools=[Desk().tool()])
    await second.run("go on", messages=first.messages)
    assert {"c1": "did 1", "c2": NOT_RUN_NOTE} == contents(requests_of(second)[0].messages)


def long_history(n: int) -> tuple[Message, ...]:
    """Return a system message and n - 1 others, a user's and an assistant's in turn."""
    spoken = [UserMessage(f"u{i}") if i % 2 == 0 else AssistantMessage(f"a{i}") for i in range(n - 1)]
    return (SystemMessage("rules"), *spoken)


async def test_f40_trimming_keeps_rules_task_and_newest() -> None:
    """Forty messages, keep_last 20: the leading system message, the task, and at most 20 others."""
    made = agent(["done"], capabilities=[TrimMessages(20)])
    result = await made.run("the task", messages=long_history(41))
    shown = requests_of(made)[0].messages
    assert ["rules", "the task"] == [texts(shown)[0], texts(shown)[-1]]
    assert 20 >= len(shown) - 2
    assert texts(result.messages)[-20:-1] == texts(shown)[-19:]
    assert 43 == len(result.messages)


async def test_f41_trimming_makes_no_request() -> None:
    """It is cheap: one request in all, the run's own."""
    made = agent(["done"], capabilities=[TrimMessages(4)])
    result = await made.run("go", messages=long_history(41))
    assert (1, 1) == (result.requests, len(requests_of(made)))


async def test_f42_the_example_with_trimming() -> None:
    """The ported example: `Agent(..., capabilities=[TrimMessages(30)])` answers over a script, typed."""
    model = ScriptedModel(["Paris."])
    assistant: Agent[str] = Agent(
        "assistant", model, instructions="Answer briefly.", capabilities=[TrimMessages(30)]
    )
    result = await assistant.run("What is the capital of France?")
    answer: str = result.output
    assert "Paris." == answer
    model.assert_complete()


def exchange(name: str, results: int) -> tuple[Message, ...]:
    """Return a response with calls, and their results."""
    asked = tuple(ToolCall(f"{name}{i}", "work") for i in range(results))
    return (
        AssistantMessage(tool_calls=asked, finish_reason="tool_calls"),
        *(ToolMessage(one.id, "work", "ok") for one in asked),
    )


def trimmed(history: Sequence[Message], n: int, *, history_start: int = 0) -> RunState:
    """Return a state that TrimMessages(n) trimmed, checked as in a run."""
    state = RunState(messages=tuple(history), history_start=history_start)
    return checked_fold([TrimMessages(n)], "before_model_request", state)[0]


def test_f44_a_cut_inside_an_exchange_drops_it_whole() -> None:
    """The view has neither the call nor its results."""
    first, second = exchange("a", 2), exchange("b", 1)
    task = UserMessage("go")
    assert (task, *second) == trimmed((task, *first, *second), 4).view


@pytest.mark.parametrize("n", [1, 2, 3])
def test_f45_an_exchange_is_sent_whole_or_not_at_all(n: int) -> None:
    """Of an exchange with three results none of the four messages is sent, unless it is the newest."""
    task, big, small = UserMessage("go"), exchange("a", 3), exchange("b", 1)
    assert (task, *small) == trimmed((task, *big, *small), n + 1).view
    assert (task, *big) == trimmed((task, *small, *big), n).view


@given(shaped_histories(), st.integers(1, 9))
def test_f46_a_trimmed_view_holds_nothing_invented(history: tuple[Message, ...], n: int) -> None:
    """Decided: no note is made up for what was cut; the view is a subsequence of the history."""
    rest = iter(history)
    assert all(any(message is found for found in rest) for message in trimmed(history, n).view)


@given(shaped_histories(), st.integers(1, 9))
def test_f48_a_trimmed_view_never_has_an_unanswered_call(history: tuple[Message, ...], n: int) -> None:
    """Whatever the history and N: in the OpenAI form each call is answered directly after it."""
    waiting: list[object] = []
    for message in messages_to_openai(trimmed(history, n).view):
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting
            waiting.remove(message["tool_call_id"])
            continue
        assert [] == waiting
        asked: Any = message.get("tool_calls", ())  # Any: JSON
        waiting = [one["id"] for one in asked]
    assert [] == waiting


async def test_f49_a_tool_budget_stops_the_run() -> None:
    """max_calls 2 and calls in three steps: two bodies, `stopped`, the message."""
    desk = Desk()
    made = agent(
        [*calls(1), *calls(2), *calls(3), "done"],
        tools=[desk.tool()],
        capabilities=[ToolBudget(2, message="Enough.")],
    )
    result = await made.run("go")
    assert (["work1", "work2"], "stopped", "Enough.") == (desk.ran, result.status, result.output)


async def test_f50_the_example_with_a_budget_of_five() -> None:
    """The ported example: six calls, five ran."""
    desk = Desk()
    made = agent([calls(*range(1, 7)), "done"], tools=[desk.tool()], capabilities=[ToolBudget(5)])
    result = await made.run("go")
    assert (5, "stopped") == (len(desk.ran), result.status)
    assert "not_executed" == statuses(result.messages)["c6"]


async def test_f52_a_stop_is_never_asked_again() -> None:
    """output_type, two output retries and a stop: no further request is sent."""
    made = agent(
        [*calls(1), '{"total": 1}'],
        tools=[Desk().tool()],
        output_type=Total,
        output_retries=2,
        capabilities=[ToolBudget(0)],
    )
    result = await made.run("go")
    assert ("stopped", 1) == (result.status, len(requests_of(made)))


async def test_f53_a_stop_costs_no_more_steps() -> None:
    """Stopped at step 2 of 5: two requests."""
    script: list[Reply] = [*calls(1), *calls(2), *calls(3), *calls(4), '{"total": 1}']
    made = agent(script, tools=[Desk().tool()], output_type=Total, capabilities=[ToolBudget(1)])
    assert 2 == (await made.run("go")).requests == len(requests_of(made))


async def test_f54_a_stopped_history_can_be_sent_again() -> None:
    """The encoder takes it, each call answered; a next run goes on with it."""
    first = await agent([calls(1, 2), "x"], tools=[Desk().tool()], capabilities=[ToolBudget(1)]).run("go")
    encoded = messages_to_openai(first.messages)
    assert ["c1", "c2"] == [one["tool_call_id"] for one in encoded if one["role"] == "tool"]
    second = await agent(["done"], tools=[Desk().tool()]).run("go on", messages=first.messages)
    assert "completed" == second.status


CARD = "4111 1111 1111 1111"


# The placeholder says what it stands for, so that a test can tell it from the words around it.
REDACT = RedactPII(placeholder="[CARD]")
# What digits were taken for cards, or for phones, and are none.
KEPT = "order 4155550132, invoice 4111111111111112, at 1767225600, IMEI 490154203237518"


async def test_f56_what_is_sent_and_what_comes_back_is_masked(tmp_path: Path) -> None:
    """A card in prompt, result, arguments and reply: no request, saved reply, stream or sink has it."""
    store, path = MemoryStore(), tmp_path / "log.jsonl"

    @tool
    def find(card: str) -> str:
        """Find the owner of a card."""
        return json.dumps({"card": card, "owner": "Ada"})

    model = ScriptedModel([call("find", {"card": CARD}, id="c1"), Chunks("It is ", CARD[:6], CARD[6:])])
    made = Agent(
        "agent",
        model,
        tools=[find],
        capabilities=[REDACT],
        sinks=[JsonLines(path, redact=REDACT)],
        store=store,
    )
    async with made.stream(f"whose is {CARD}?", conversation="c") as events:
        told = "".join([event.text async for event in events if isinstance(event, Delta)])
    assert "It is [CARD]" == told == (await store.load("c"))[-1].content
    assert CARD not in repr([request.messages for request in model.requests])
    assert '{"card": "[CARD]"}' in repr(model.requests[1].messages)
    assert CARD not in path.read_text()


def find_card(n: int, card: str) -> str:
    """Find the owner of a card."""
    return f"card {card} is Ada's"


async def test_f56_a_store_may_get_all_of_it_masked() -> None:
    """`history=True`: prompt, result and arguments are masked in what is kept, too."""
    store = MemoryStore()
    made = agent(
        [call("find_card", {"n": 1, "card": CARD}, id="c1"), f"It is {CARD}"],
        tools=[tool(find_card)],
        capabilities=[RedactPII(history=True)],
        store=store,
    )
    await made.run(f"whose is {CARD}?", conversation="c")
    saved = await store.load("c")
    assert CARD not in repr(saved)
    assert 4 == repr(saved).count("[REDACTED]")


@pytest.mark.parametrize("text", [f"it is {CARD}", f"{CARD} and ada@example.com", KEPT, ""])
async def test_f57_guard_and_redactor_share_one_detector(text: str) -> None:
    """One text: the guard blocks exactly where the redactor masks, and both do at the spans of `detect`."""
    spans = detect(text)
    pieces, end = [], 0
    for span in spans:
        pieces += [text[end : span.start], "[CARD]"]
        end = span.end
    assert "".join([*pieces, text[end:]]) == REDACT.redact_text(text)
    made = agent(["done"], capabilities=[Guard(NoPII(), at="input", on_fail="stop")])
    assert ("stopped" if spans else "completed") == (await made.run(f"{text} ")).status


async def test_f58_four_kinds_are_masked_by_default() -> None:
    """One of each: four placeholders in the request."""
    made = agent(["done"], capabilities=[RedactPII()])
    await made.run(f"ada@example.com, (415) 555-0132, 123-45-6789, {CARD}.")
    assert "[REDACTED], [REDACTED], [REDACTED], [REDACTED]." == requests_of(made)[0].messages[0].content


SECRETS = (
    CARD,
    "4111111111111111",
    "ada@example.com",
    "123-45-6789",
    "415-555-0132",
    "DE89370400440532013000",
)
ORDINARY = ("hello", "12", "a b", "x-1.5", "[1]", "0", "https://example.com/a?b=c", "desk.agents:payments")


def test_f60_no_module_has_an_own_copy_of_a_pattern() -> None:
    """No regular expression outside the detector's modules takes a secret and leaves ordinary text."""
    copies = []
    for path in [*(ROOT / "capabilities").glob("*.py"), *(ROOT / "runtime").glob("*.py")]:
        # The demo shows a capability as a user writes one, with a pattern of the user's own.
        if path.name.startswith("pii") or path.name == "demo_lists.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="compile"), args=[ast.Constant(value=str(pattern)), *_]
                ):
                    takes = [one for one in SECRETS if re.fullmatch(pattern, one)]
                    if takes and not any(re.fullmatch(pattern, one) for one in ORDINARY):
                        copies.append((path.name, pattern, takes))
    assert [] == copies
    assert [1] * len(SECRETS) == [len(detect(secret, ENTITIES)) for secret in SECRETS]


async def test_f61_numbers_that_are_no_cards_stay() -> None:
    """Order, invoice, time and device numbers reach the model as they are."""
    made = agent(["done"], capabilities=[REDACT])
    await made.run(KEPT)
    assert KEPT == requests_of(made)[0].messages[0].content


async def test_f62_masking_a_request_does_not_touch_what_was_said() -> None:
    """The request is masked at every step, `result.messages` has the raw user text, a re-ask starts from it."""
    made = agent(["no", "yes"], capabilities=[REDACT, at("after_model_request", ask_again_at_no, "Judge")])
    result = await made.run(f"card {CARD}")
    assert ["card [CARD]", "card [CARD]"] == [request.messages[0].content for request in requests_of(made)]
    assert f"card {CARD}" == result.messages[0].content
    assert "yes" == result.output


def ask_again_at_no(state: RunState) -> RunState:
    """Send a "no" back."""
    assert state.response is not None
    return state.ask_again("Try again.") if state.response.content == "no" else state


async def test_f64_a_reply_is_masked_for_output_and_history() -> None:
    """A card in a reply only: output and next request have the placeholder, the log the raw response."""
    beside = AssistantMessage(f"I saw {CARD}", tool_calls=tuple(calls(1)), finish_reason="tool_calls")
    made = agent([beside, f"It is {CARD}"], tools=[Desk().tool()], capabilities=[REDACT])
    result = await made.run("go")
    assert "It is [CARD]" == result.output
    assert "I saw [CARD]" == requests_of(made)[1].messages[1].content
    raw = records(result.log, "model_responded")[0].facts["response"]
    assert CARD in json.dumps(raw)


async def test_f65_the_users_message_stays_as_said() -> None:
    """Under a redacting capability the user's own text is raw, in the result and in the store."""
    store = MemoryStore()
    made = agent(["done"], capabilities=[REDACT], store=store)
    result = await made.run(f"card {CARD}", conversation="c")
    assert [f"card {CARD}", "done"] == texts(result.new_messages) == texts(await store.load("c"))


async def test_f66_history_is_never_rewritten() -> None:
    """Two runs in one conversation: the messages of the first are the same objects after the second."""
    made = agent(["one", "two"], capabilities=[REDACT])
    first = await made.run(f"card {CARD}")
    second = await made.run("and?", messages=first.messages)
    assert all(new is old for new, old in zip(second.messages, first.messages, strict=False))
    assert [f"card {CARD}", "one", "and?", "two"] == texts(second.messages)


async def test_f66_a_stored_turn_is_never_rewritten() -> None:
    """Two runs in one stored conversation: what the first one saved stands there as it was, the second follows."""
    store = MemoryStore()
    made = agent(["one", "two"], capabilities=[REDACT], store=store)
    await made.run(f"card {CARD}", conversation="c")
    before = await store.load("c")
    await made.run("and?", conversation="c")
    after = await store.load("c")
    assert before == after[:2]
    assert [f"card {CARD}", "one", "and?", "two"] == texts(after)
    assert "card [CARD]" == requests_of(made)[1].messages[0].content


async def test_f68_a_stream_comes_to_what_a_run_comes_to() -> None:
    """Under one list of capabilities: one final state, one log head."""

    def made() -> Agent[str]:
        beside = AssistantMessage(f"I saw {CARD}", tool_calls=tuple(calls(1)), finish_reason="tool_calls")
        return agent([beside, f"It is {CARD}"], tools=[Desk().tool()], capabilities=[REDACT, ToolBudget(3)])

    result = await made().run("go")
    async with made().stream("go") as events:
        *_, end = [event async for event in events]
    assert isinstance(end, Ended)
    assert end.result is not None
    assert result.log.head == end.result.log.head
    assert _plain(result.state) == _plain(end.result.state)


def _plain(state: RunState) -> RunState:
    """Return a state without the objects that each agent has of its own."""
    return evolve(state, model=None, inventory=(), tools=())


async def test_f69_a_held_stream_shows_no_card() -> None:
    """`hold_stream=True`, and a card split over three chunks: no delta has a part of it, and the text still comes."""
    chunks = Chunks("Yours is 4111 1", "111 1111 ", "1111, I see.")
    async with agent([chunks], capabilities=[REDACT]).stream("go") as events:
        told = [event.text async for event in events if isinstance(event, Delta)]
    assert "Yours is [CARD], I see." == "".join(told)


async def test_f70_input_is_redacted_for_good_before_the_first_step() -> None:
    """`history=True` rewrites this run's input: what is kept of the user's text is masked, and so what is stored."""
    store = MemoryStore()
    made = agent(["done"], capabilities=[RedactPII(placeholder="[CARD]", history=True)], store=store)
    result = await made.run(f"card {CARD}", conversation="c")
    assert ["card [CARD]", "done"] == texts(result.messages) == texts(await store.load("c"))


async def test_f72_parts_that_are_no_text_pass_untouched() -> None:
    """Text and an image: the text is masked, the image is the identical object, nothing raises."""
    image = ImagePart(data=b"\x89PNG", media_type="image/png")
    model = ScriptedModel(["done"], profile=ModelProfile(images=True))
    await Agent("agent", model, capabilities=[REDACT]).run((TextPart(f"card {CARD}"), image))
    shown = model.requests[0].messages[0].content
    assert TextPart("card [CARD]") == shown[0]
    assert shown[1] is image


@frozen
class TokenCounter(Capability[int]):
    """Adds up the tokens of a run."""

    def after_model_request(self, state: RunState) -> RunState:
        usage = state.response.usage if state.response is not None else None
        total = usage.total if usage is not None else None
        return state.put(self, state.slot(self) + (total or 0))


async def test_f73_a_capability_counts_tokens() -> None:
    """Two responses of five tokens: its slot and `result.usage.total` are 10."""
    model = ScriptedModel([*calls(1), "done"], usage=Usage(input_tokens=3, output_tokens=2))
    result = await Agent("agent", model, tools=[Desk().tool()], capabilities=[TokenCounter()]).run("go")
    assert 10 == result.state.slot_of("TokenCounter") == result.usage.total


async def test_f74_unknown_usage_is_never_counted_as_none() -> None:
    """A model that reports no usage under a token limit: LimitError(UsageUnknown) before the next request."""
    model = ScriptedModel([*calls(1), "done"], usage=Usage(), profile=ModelProfile())
    made = Agent("agent", model, tools=[Desk().tool()], limits=Limits(total_tokens=100))
    error = await failure(made.run("go"))
    assert isinstance(error, LimitError)
    assert isinstance(error.reason, UsageUnknown)
    assert ("total_tokens", 1) == (error.reason.limit, len(model.requests))


async def test_f76_a_prompt_cache_returns_what_it_stored() -> None:
    """The same prompt twice with one store: the model was called once, and a hit is not charged."""
    made = agent(["first", "never"], capabilities=[CacheResponses(MemoryCacheStore())])
    first, second = [await made.run("go") for _ in range(2)]
    assert ("first", "first") == (first.output, second.output)
    assert (1, 1, 0) == (len(requests_of(made)), first.requests, second.requests)


async def test_f77_other_tools_are_another_request() -> None:
    """Equal messages under two tool sets, or two settings: no hit, since all that is sent is in the key."""
    cache = CacheResponses(MemoryCacheStore())
    model = ScriptedModel(["none", "one", "warm"])
    made = [Agent("agent", model, tools=tools, capabilities=[cache]) for tools in ([], [Desk().tool()])]
    outputs = [(await one.run("go")).output for one in (*made, *made)]
    assert ["none", "one", "none", "one"] == outputs
    assert "warm" == (await made[0].run("go", settings={"temperature": 1})).output


def test_f78_a_cache_cannot_live_on_the_capability() -> None:
    """Decided: a dict field is refused when the object is made, and the error says where such things go."""

    @frozen
    class Cache(Capability):
        known: dict[str, str] = field(factory=dict)

    with pytest.raises(TypeError, match=r"Cache\.known holds a dict.*shared things into deps"):
        Cache()


async def test_f80_nested_arguments_are_a_cache_key() -> None:
    """{"a": [1, {"b": 2}]} twice, keys in another order: a hit and no TypeError, since a call has a digest."""
    ran: list[object] = []

    @tool
    def work(a: list[object], c: int) -> str:
        """Do a piece of work."""
        ran.append(a)
        return "done"

    once = call("work", {"a": [1, {"b": 2}], "c": 1}, id="c1")
    again = call("work", {"c": 1, "a": [1, {"b": 2}]}, id="c2")
    made = agent([once, again, "done"], tools=[work], capabilities=[CacheTool({"work"})])
    result = await made.run("go")
    assert {"c1": "succeeded", "c2": "answered"} == statuses(result.messages)
    assert [[1, {"b": 2}]] == ran


async def test_f81_a_failure_is_not_cached() -> None:
    """A tool that fails once runs again for the same call, and is answered from then on."""
    ran: list[int] = []

    @tool
    def work(n: int) -> str:
        """Do a piece of work."""
        ran.append(n)
        if len(ran) == 1:
            raise ToolFailed("the line is down")
        return "done"

    asked = [call("work", {"n": 1}, id=f"c{i}") for i in (1, 2, 3)]
    result = await agent([*asked, "done"], tools=[work], capabilities=[CacheTool({"work"})]).run("go")
    assert {"c1": "failed", "c2": "succeeded", "c3": "answered"} == statuses(result.messages)
    assert [1, 1] == ran


async def test_f82_one_root_span_with_the_children_in_order() -> None:
    """One root span per run; requests and calls below it, in order, and every hook call within its time."""
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is missing: it is of the test group")
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415  # where it is missing, other tests still run
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: PLC0415  # as above
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: PLC0415  # as above

    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    @tool
    def work(n: int) -> str:
        """Do a piece of work."""
        return f"done {n}"

    model = ScriptedModel([call("work", {"n": 1}), call("work", {"n": 2}), "done"])
    spans = OtelSpans(tracer_provider=provider)
    result = await Agent("a", model, tools=[work], capabilities=[ToolBudget(2)], sinks=[spans]).run("go")
    *below, root = exporter.get_finished_spans()
    assert "invoke_agent a" == root.name
    assert root.parent is None
    assert ["chat scripted", "execute_tool work"] * 2 + ["chat scripted"] == [span.name for span in below]
    assert all(root.context == span.parent for span in below)
    hooks = [int(record.at * 1_000_000_000) for record in result.log if record.hook is not None]
    assert hooks
    assert [*hooks, root.end_time] == sorted([root.start_time or 0, *hooks, root.end_time or 0])[1:]
