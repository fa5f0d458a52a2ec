"""Spans: what the log says, in the words and shapes of OpenTelemetry's conventions for generative AI."""

import importlib.util
import json
import threading
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import cast

import anyio
import pytest

from capfold.capabilities import Capability, RequireApproval, RunState, call, tool
from capfold.capabilities.frozen import Json
from capfold.capabilities.messages import AssistantMessage, Usage, UserMessage
from capfold.capabilities.outside import Outside
from capfold.runtime import (
    Agent,
    Approve,
    Backoff,
    Deny,
    ModelError,
    OtelSpans,
    Retry,
    RunError,
    ScriptedModel,
)

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is missing: it is of the test group")

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

# name, kind, status, keys of attributes, name of the span above
Shape = tuple[str, str, str, tuple[str, ...], str]


class Traced:
    """A tracer provider, and what was made with it."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """All spans that ended, in order of their ends."""
        return tuple(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        """Return the spans of this name, or whose name begins with it and a blank."""
        return [span for span in self.spans if span.name == name or span.name.startswith(f"{name} ")]

    def shapes(self) -> set[Shape]:
        """Return what can be compared with what others make: not capfold's own attributes."""
        return shapes(self.spans)


def shapes(spans: Iterable[ReadableSpan]) -> set[Shape]:
    """Return the shapes of spans."""
    names = {span.context.span_id: span.name for span in spans if span.context is not None}
    return {
        (
            span.name,
            span.kind.name,
            span.status.status_code.name,
            tuple(sorted(key for key in attributes(span) if not key.startswith("capfold."))),
            names.get(span.parent.span_id, "?") if span.parent is not None else "",
        )
        for span in spans
    }


def attributes(span: ReadableSpan) -> Mapping[str, object]:
    """Return the attributes of a span."""
    return span.attributes or {}


@pytest.fixture
def traced() -> Traced:
    """Return a tracer provider of this test alone."""
    return Traced()


@tool
def pay(amount: int) -> str:
    """Pay an amount in EUR."""
    if amount > 50:
        raise OverflowError("too much")
    return f"paid {amount} EUR"


def desk(spans: OtelSpans, *capabilities: Capability[object]) -> Agent[str]:
    """Return an agent that pays, asks another agent, and fails to pay."""
    clerk = Agent("clerk", ScriptedModel(["Filed."], name="small"))
    calls = [
        call("pay", {"amount": 10}),
        call("file", {"task": "File it."}),
        call("pay", {"amount": 99}),
    ]
    model = ScriptedModel([calls, "Paid."], name="large", usage=Usage(input_tokens=7, output_tokens=3))
    tools = [pay, clerk.as_tool("Files.", name="file")]
    return Agent(
        "desk",
        model,
        instructions="Be brief.",
        tools=tools,
        capabilities=capabilities,
        sinks=[spans],
        settings={"temperature": 0.5, "max_tokens": 99},
    )


@pytest.mark.parametrize("captured", ["NO_CONTENT", "SPAN_ONLY"])
async def test_the_shapes_of_the_reference(
    traced: Traced, captured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names, kinds, status, attributes and parents are those that OpenTelemetry's own library makes by hand."""
    if importlib.util.find_spec("opentelemetry.util.genai") is None:
        pytest.skip("opentelemetry-util-genai is missing: it is of the test group")
    from opentelemetry.util.genai import types as parts  # noqa: PLC0415  # where it is missing, other tests still run
    from opentelemetry.util.genai.handler import TelemetryHandler  # noqa: PLC0415  # as above

    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", captured)
    spans = OtelSpans(tracer_provider=traced.provider, provider="test", content=captured == "SPAN_ONLY")
    await desk(spans).run("Pay.")

    by_hand = Traced()
    handler = TelemetryHandler(tracer_provider=by_hand.provider)
    said = [parts.OutputMessage("assistant", [parts.Text("x")])]
    asked = [parts.InputMessage("user", [parts.Text("x")])]

    def chat(model: str) -> None:
        with handler.inference("test", request_model=model) as request:
            request.response_model_name, request.finish_reasons = model, ["stop"]
            request.input_tokens, request.output_tokens = 7, 3
            request.output_messages = said
            if model == "large":
                request.temperature, request.max_tokens = 0.5, 99

    with handler.invoke_local_agent(request_model="large", agent_name="desk") as agent:
        agent.input_messages, agent.output_messages = asked, said
        agent.system_instruction = [parts.Text("Be brief.")]
        chat("large")
        execute = partial(handler.tool, tool_type="function", agent_name="desk", tool_call_id="1")
        with execute("pay") as paid:
            paid.arguments, paid.tool_result = {"amount": 10}, "paid"
        with execute("file") as filed:
            filed.arguments, filed.tool_result = {"task": "File it."}, "Filed."
            with handler.invoke_local_agent(request_model="small", agent_name="clerk") as below:
                below.input_messages, below.output_messages = asked, said
                chat("small")
        broken = execute("pay")
        broken.arguments, broken.tool_result = {"amount": 99}, "OverflowError"
        broken.fail(OverflowError("too much"))
        chat("large")
    assert by_hand.shapes() == traced.shapes()
    assert len(by_hand.spans) == len(traced.spans)


async def test_times_are_those_of_the_records(traced: Traced) -> None:
    """A span begins and ends with the records of its beginning and end, and lies within the one above it."""
    result = await desk(OtelSpans(tracer_provider=traced.provider)).run("Pay.", run_id="one")
    at = {(one.run, one.call or "", one.kind): int(one.at * 1_000_000_000) for one in result.log}
    (agent,) = traced.named("invoke_agent desk")
    assert (at["one", "", "run_started"], at["one", "", "run_ended"]) == (agent.start_time, agent.end_time)
    for span in traced.named("execute_tool"):
        name = str(attributes(span)["gen_ai.tool.call.id"])
        started, settled = at["one", name, "tool_started"], at["one", name, "tool_settled"]
        assert (started, settled) == (span.start_time, span.end_time)
    above = {span.context.span_id: span for span in traced.spans if span.context is not None}
    for span in traced.spans:
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time
        if span.parent is not None:
            outer = above[span.parent.span_id]
            assert outer.start_time is not None
            assert outer.end_time is not None
            assert outer.start_time <= span.start_time <= span.end_time <= outer.end_time


async def test_below_what_is_current(traced: Traced) -> None:
    """A run stands below the span that is current where it is started, side by side with others."""
    tracer = trace.get_tracer("test", tracer_provider=traced.provider)

    async def one(name: str) -> None:
        agent = Agent("a", ScriptedModel(["ok"]), sinks=[spans])
        with tracer.start_as_current_span(name):
            await agent.run("x", run_id=name)

    spans = OtelSpans(tracer_provider=traced.provider)
    async with anyio.create_task_group() as group:
        for n in range(5):
            group.start_soon(one, f"request {n}")
    names = {span.context.span_id: span.name for span in traced.spans if span.context is not None}
    for span in traced.named("invoke_agent"):
        assert span.parent is not None
        assert attributes(span)["capfold.run.id"] == names[span.parent.span_id]


class Asks(Capability):
    """Asks a model of its own before each request."""

    async def gather_before_model_request(self, state: RunState, outside: Outside) -> Json:
        """Ask."""
        model = ScriptedModel(["aside"], name="aside")
        return str((await outside.request([UserMessage("?")], model=model)).content)


class Twice(Capability):
    """Has each request answered twice."""

    async def wrap_model_request(self, call_next: object, state: RunState) -> RunState:
        """Call the rest of the onion twice."""
        assert callable(call_next)
        await call_next(state)
        return cast(RunState, await call_next(state))


class Answers(Capability):
    """Answers without any request."""

    async def wrap_model_request(self, call_next: object, state: RunState) -> RunState:
        """Answer."""
        return state.respond(AssistantMessage("from memory"))


ERROR = ModelError("server", "overloaded", retryable=True)
WORDS = ["one"] * 4


@pytest.mark.parametrize(
    ("replies", "capabilities", "requests"),
    [
        (["ok"], (), 1),
        ([ERROR, ERROR, "ok"], (), 3),
        ([ERROR] * 3, (), 3),
        (["ok"], (Asks(),), 2),
        (WORDS, (Twice(),), 2),
        (["ok"], (Answers(),), 0),
        ([ModelError("auth", "no", retryable=False)], (Asks(),), 2),
    ],
)
async def test_as_many_chats_as_requests(
    traced: Traced, replies: list[object], capabilities: tuple[Capability[object], ...], requests: int
) -> None:
    """Every request that was charged is one `chat`: attempts that failed, wrappers' and gatherers' too."""
    model = Retry(ScriptedModel(replies), attempts=3, backoff=Backoff(initial=0.0001))  # type: ignore[arg-type]  # lists of several kinds
    agent = Agent("a", model, capabilities=capabilities, sinks=[OtelSpans(tracer_provider=traced.provider)])
    try:
        charged = (await agent.run("x")).requests
    except RunError as error:
        charged = 0 if error.partial is None else error.partial.requests
        reason = type(error.reason).__name__
        (span,) = traced.named("invoke_agent")
        ended = (span.status.status_code.name, attributes(span)["error.type"])
    else:
        reason, ended = "", ("ERROR", "")
    assert ("ERROR", reason) == ended
    assert requests == charged == len(traced.named("chat"))
    failed = [span for span in traced.named("chat") if span.status.status_code.name == "ERROR"]
    assert {"_OTHER"} >= {attributes(span)["error.type"] for span in failed}
    assert sum(reply is ERROR or isinstance(reply, ModelError) for reply in replies) == len(failed)


async def test_below_and_above_have_the_requests_of_the_ledger(traced: Traced) -> None:
    """The requests of sub-agents are the root run's too, and each is one span."""
    result = await desk(OtelSpans(tracer_provider=traced.provider)).run("Pay.")
    assert result.requests == len(traced.named("chat"))


async def test_no_content_unless_asked(traced: Traced) -> None:
    """Nothing that people, models or tools said is told, nor the message of an error; with content, redacted."""
    await desk(OtelSpans(tracer_provider=traced.provider)).run("Pay 4 invoices.")
    told = " ".join(span.to_json() for span in traced.spans)
    for secret in ("invoices", "Be brief", "paid 10", "Paid.", "amount", "too much", "Filed", "File it"):
        assert secret not in told
    spans = OtelSpans(
        tracer_provider=traced.provider, content=True, redact=lambda text: text.replace("invoices", "***")
    )
    await desk(spans).run("Pay 4 invoices.")
    (agent,) = traced.named("invoke_agent desk")[1:]
    told = " ".join(span.to_json() for span in traced.spans)
    assert "invoices" not in told
    for said in ("Be brief", "paid 10", "Paid.", "amount", "too much", "Filed", "File it"):
        assert said in told
    asked = json.loads(str(attributes(agent)["gen_ai.input.messages"]))
    assert [{"role": "user", "parts": [{"type": "text", "content": "Pay 4 ***."}]}] == asked


async def test_a_run_that_waits(traced: Traced) -> None:
    """A suspended run's span ends when it waits; the span of its second half names the first one by a link."""
    spans = OtelSpans(tracer_provider=traced.provider)
    agent = Agent(
        "desk",
        ScriptedModel([call("pay", {"amount": 1}), "Paid."]),
        tools=[pay],
        capabilities=[RequireApproval()],
        sinks=[spans],
    )
    waiting = await agent.run("Pay.")
    (first,) = traced.named("invoke_agent desk")
    assert "suspended" == attributes(first)["capfold.status"]
    (asked,) = waiting.pending
    await agent.resume(waiting, {asked.digest: Approve()})
    _, second = traced.named("invoke_agent desk")
    assert [first.context] == [link.context for link in second.links]
    assert "completed" == attributes(second)["capfold.status"]
    assert 1 == len(traced.named("execute_tool pay"))


async def test_a_run_that_goes_on_elsewhere(traced: Traced) -> None:
    """A sink that has never seen the first half of a run makes spans of the second one."""
    desk_of = [
        Agent(
            "desk",
            ScriptedModel(replies),
            tools=[pay],
            capabilities=[RequireApproval()],
            sinks=[OtelSpans(tracer_provider=traced.provider)],
        )
        for replies in ([call("pay", {"amount": 1})], ["Refused."])
    ]
    waiting = await desk_of[0].run("Pay.")
    (asked,) = waiting.pending
    await desk_of[1].resume(waiting.snapshot(), {asked.digest: Deny()})
    assert ["invoke_agent desk", "invoke_agent"] == [span.name for span in traced.named("invoke_agent")]
    assert [] == traced.named("execute_tool")


async def test_a_sub_agent_that_waits(traced: Traced) -> None:
    """A call whose sub-agent waits ends as pending with the run; what the second half makes is below it."""
    spans = OtelSpans(tracer_provider=traced.provider)
    below = Agent(
        "clerk",
        ScriptedModel([call("pay", {"amount": 1}), "Filed."]),
        tools=[pay],
        capabilities=[RequireApproval()],
    )
    above = Agent(
        "desk",
        ScriptedModel([[call("file", {"task": "x"}), call("pay", {"amount": 2})], "Paid."]),
        tools=[below.as_tool("Files.", name="file"), pay],
        sinks=[spans],
    )
    waiting = await above.run("Pay.")
    (asked,) = waiting.pending
    tools = {span.name: attributes(span)["capfold.status"] for span in traced.named("execute_tool")}
    assert {"execute_tool file": "pending", "execute_tool pay": "succeeded"} == tools
    done = await above.resume(waiting, {asked.digest: Approve()})
    assert done.requests == len(traced.named("chat"))
    _, clerk = traced.named("invoke_agent clerk")
    (_, again) = traced.named("invoke_agent desk")
    assert clerk.parent == again.context


async def test_close_ends_what_is_open(traced: Traced) -> None:
    """Spans of runs of which no end came are ended, and not lost, by `close`; a late note makes no span."""
    first, second = OtelSpans(tracer_provider=traced.provider), OtelSpans(tracer_provider=traced.provider)
    result = await desk(first).run("Pay.")
    made = len(traced.spans)
    await second.write(result.log[:-1])
    assert made * 2 - 1 == len(traced.spans)
    await second.close()
    assert made * 2 == len(traced.spans)
    await second.close()
    await second.write([one for one in result.log if one.kind == "run_ended"])
    assert made * 2 == len(traced.spans)


def test_threads_share_a_sink(traced: Traced) -> None:
    """Runs in several threads have spans of their own."""
    spans = OtelSpans(tracer_provider=traced.provider)

    def run(name: str) -> None:
        Agent(name, ScriptedModel(["ok"]), sinks=[spans]).run_sync("x")

    threads = [threading.Thread(target=run, args=(f"a{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {(f"invoke_agent a{n}", "") for n in range(4)} | {
        ("chat scripted", f"invoke_agent a{n}") for n in range(4)
    }
    assert expected == {(name, above) for name, _, _, _, above in traced.shapes()}


async def test_what_fails_in_telemetry_ends_no_run(traced: Traced, tmp_path: Path) -> None:
    """A redactor that raises is on record, and the run goes on, unless the sink was made to end it."""

    def broken(text: str) -> str:
        raise RuntimeError("no")

    agent = desk(OtelSpans(tracer_provider=traced.provider, content=True, redact=broken))
    result = await agent.run("Pay.")
    assert any("RuntimeError: no" in str(record.facts.get("sink_failed")) for record in result.log)
    strict = OtelSpans(tracer_provider=traced.provider, content=True, redact=broken, best_effort=False)
    with pytest.raises(RunError, match="RuntimeError: no"):
        await desk(strict).run("Pay.")


def test_wrong_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no provider, flag or redactor is refused; without the extra, its name is told."""
    with pytest.raises(TypeError, match="provider must be a string"):
        OtelSpans(provider=3)  # type: ignore[arg-type]  # what is refused is under test
    with pytest.raises(TypeError, match="content must be True or False"):
        OtelSpans(content="yes")  # type: ignore[arg-type]  # as above
    with pytest.raises(TypeError, match="redact must be"):
        OtelSpans(redact=3, content=True)  # type: ignore[arg-type]  # as above
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry", None)
    with pytest.raises(ImportError, match=r"pip install 'capfold\[otel\]'"):
        OtelSpans()
