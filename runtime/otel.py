"""OtelSpans: the records of a run as spans of OpenTelemetry, by its conventions for generative AI.

A run is `invoke_agent`; below it stand a `chat` for each request to a model and an `execute_tool` for each call
that ran, and below that the runs of sub-agents. Times are those of the records. Knows nothing of how a run goes on,
nor where spans are sent.
"""

from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Final

from attrs import define, field

from ..capabilities.frozen import FrozenDict, Json
from .audit import AuditRecord
from .log import AFTER_END
from .otel_attributes import (
    AGENT,
    CHAT,
    CONVERSATION,
    ERROR_TYPE,
    EXECUTE_TOOL,
    INVOKE_AGENT,
    OTHER,
    REQUEST_MODEL,
    RUN_ID,
    STATUS,
    STEP,
    Attributes,
    Writer,
    agent_attributes,
    agent_end,
    chat_attributes,
    chat_end,
    error_of_outcome,
    error_of_run,
    gatherer_chats,
    tool_attributes,
    tool_end,
)
from .sink_lines import Redact, check_flag, json_function
from .subagents import run_id_below

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext, TracerProvider

_SECOND: Final = 1_000_000_000  # nanoseconds, in which spans count
_SUSPENDED: Final = 1000  # runs of which it is remembered that they wait, to link their second half


@define(eq=False)
class _Run:
    """A run with an open span. `before`: the clock of its last record; `asked`: its last request, not answered yet."""

    agent: str
    model: str
    conversation: str | None
    span: "Span"
    context: "Context"
    before: float
    asked: AuditRecord | None = None
    arguments: dict[str, Json] = field(factory=dict)
    tools: dict[str, "Span"] = field(factory=dict)


def _whole(value: Json) -> Json:
    return value


class OtelSpans:
    """A sink that makes spans: `invoke_agent`, `chat`, `execute_tool`, nested as runs and calls are.

    The span of a run stands below the one that is current where the run is started. It needs the extra `otel`, which
    is OpenTelemetry's API; where spans go, and whether at all, says the application's tracer provider. One object may
    serve many runs and threads at once.

    A span is on its way when the record of its end is written: a run whose process dies leaves none for what was
    under way. What runs inside a tool does not see the tool's span as its current one. A `chat` is a request that was
    charged, so there are as many as `result.requests`; attempts that brought no response stand with the time of the
    whole request, for the log has no other.
    """

    def __init__(
        self,
        *,
        tracer_provider: "TracerProvider | None" = None,
        provider: str | None = None,
        content: bool = False,
        redact: Redact | None = None,
        best_effort: bool = True,
    ) -> None:
        """Take where spans go: by default to the global tracer provider, as it is when the first span is made.

        `provider`: what `gen_ai.provider.name` says, such as "openai"; the log does not know it. `content`: also
        tell the prompt, instructions, responses, arguments, results and the messages of errors, each passed through
        `redact`, as that of `JsonLines`. Unlike other sinks this one is best-effort: a run goes on without its spans.
        Raises ImportError without the extra `otel`, TypeError for an argument of another type.
        """
        try:
            from opentelemetry import trace  # noqa: PLC0415  # an extra
        except ImportError as error:
            raise ImportError(
                "OtelSpans needs the API of OpenTelemetry: pip install 'capfold[otel]'"
            ) from error
        if provider is not None and type(provider) is not str:
            raise TypeError(f"provider must be a string such as 'openai', not {type(provider).__name__}")
        self.best_effort = check_flag("best_effort", best_effort)
        write = json_function(redact) or _whole
        self._write: Writer | None = write if check_flag("content", content) else None
        self._provider = provider
        self._tracer = trace.get_tracer("capfold", tracer_provider=tracer_provider)
        self._runs: dict[str, _Run] = {}
        self._suspended: dict[str, tuple[_Run, SpanContext]] = {}
        self._lock = Lock()

    def __repr__(self) -> str:
        """What it tells."""
        return f"OtelSpans(content={self._write is not None})"

    async def write(self, records: Sequence[AuditRecord]) -> None:
        """Begin and end spans. Raises what a redactor or the tracer provider raises."""
        with self._lock:
            for record in records:
                self._take(record)

    async def close(self) -> None:
        """End the spans of runs of which no end was written."""
        with self._lock:
            for run in self._runs.values():
                self._end(run, run.before)
            self._runs.clear()

    def _take(self, record: AuditRecord) -> None:
        run = self._runs.get(record.run)
        if run is None:
            if record.kind in AFTER_END or record.kind == "run_ended":
                return  # what a sink that failed, or a wrapper on its way out, adds to a run that is over
            run = self._runs[record.run] = self._begun(record)
        match record.kind:
            case "model_requested":
                run.asked = record
            case "model_responded":
                self._responded(run, record)
            case "note":
                self._noted(run, record)
            case "call_admitted":
                if record.call is not None:
                    run.arguments[record.call] = record.facts.get("arguments")
            case "tool_started":
                self._started(run, record)
            case "tool_settled":
                self._settled(run, record)
            case "run_suspended":
                self._waits(run, record)
            case "run_ended":
                run.span.set_attributes(agent_end(record, self._write))
                self._failed(run.span, error_of_run(record))
                self._end(self._runs.pop(record.run), record.at)
        run.before = record.at

    # --- runs

    def _begun(self, record: AuditRecord) -> _Run:
        """Open the span of a run that starts, or goes on here after it was suspended or its process ended."""
        from opentelemetry.trace import Link, SpanKind, set_span_in_context  # noqa: PLC0415  # an extra

        found = agent_attributes(record, self._write)
        earlier, before = self._suspended.pop(record.run, (None, None))
        agent, model, conversation = (
            (earlier.agent, earlier.model, earlier.conversation)
            if earlier is not None
            else (_said(record, "agent"), _said(record, "model"), _said(record, "conversation") or None)
        )
        for name, value in ((AGENT, agent), (REQUEST_MODEL, model), (CONVERSATION, conversation)):
            if value:
                found[name] = value
        span = self._tracer.start_span(
            f"{INVOKE_AGENT} {agent}".rstrip(),
            context=self._above(record.run),
            kind=SpanKind.INTERNAL,
            attributes=found,
            links=[Link(before)] if before is not None else None,
            start_time=_nanoseconds(record.at),
        )
        return _Run(agent, model, conversation, span, set_span_in_context(span), record.at)

    def _above(self, run_id: str) -> "Context | None":
        """Return where a run below another one stands: below its call; None for whatever is current."""
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415  # an extra

        above = self._runs.get(run_id.rpartition("/")[0])
        if above is None:
            return None
        for call, span in above.tools.items():
            first = run_id_below(run_id.rpartition("/")[0], call, 1)
            if run_id == first or run_id.startswith(f"{first}#"):
                return set_span_in_context(span)
        return above.context

    def _waits(self, run: _Run, record: AuditRecord) -> None:
        outcomes = record.facts.get("outcomes")
        for call, outcome in outcomes.items() if isinstance(outcomes, FrozenDict) else ():
            if call in run.tools:
                self._outcome(run.tools.pop(call), FrozenDict({"outcome": outcome}), record)
        run.span.set_attributes(agent_end(record, self._write))
        self._end(self._runs.pop(record.run), record.at)
        self._suspended[record.run] = (run, run.span.get_span_context())
        while len(self._suspended) > _SUSPENDED:
            del self._suspended[next(iter(self._suspended))]

    def _end(self, run: _Run, at: float) -> None:
        """End the span of a run; calls of which nothing more is known end with it."""
        for span in run.tools.values():
            span.set_attribute(STATUS, "pending")
            span.end(_nanoseconds(at))
        run.tools.clear()
        run.span.end(_nanoseconds(at))

    def _failed(self, span: "Span", error: tuple[str, str] | None) -> None:
        if error is None:
            return
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415  # an extra

        kind, message = error
        told = self._write(message) if self._write is not None else None
        span.set_attribute(ERROR_TYPE, kind)
        span.set_status(Status(StatusCode.ERROR, told if isinstance(told, str) else None))

    # --- requests

    def _responded(self, run: _Run, record: AuditRecord) -> None:
        start = run.asked.at if run.asked is not None else run.before
        found = chat_end(record.facts.get("response"), self._write)
        self._chat(run, run.asked, _said(record, "model") or run.model, found, (start, record))

    def _noted(self, run: _Run, record: AuditRecord) -> None:
        missing = record.facts.get("requests_without_response")
        start = run.asked.at if run.asked is not None else run.before
        model = (_said(run.asked, "model") if run.asked is not None else "") or run.model
        for _ in range(missing if isinstance(missing, int) else 0):
            self._chat(run, run.asked, model, None, (start, record))
        for name, found in gatherer_chats(record):
            self._chat(run, None, name or run.model, None if name is None else found, (run.before, record))

    def _chat(
        self,
        run: _Run,
        asked: AuditRecord | None,
        model: str,
        found: Attributes | None,
        span_of: tuple[float, AuditRecord],
    ) -> None:
        """Make the span of one request, from a clock reading to a record. `found`: None where it brought nothing."""
        from opentelemetry.trace import SpanKind  # noqa: PLC0415  # an extra

        start, record = span_of
        own: Attributes = {RUN_ID: record.run, STEP: record.step}
        span = self._tracer.start_span(
            f"{CHAT} {model}",
            context=run.context,
            kind=SpanKind.CLIENT,
            attributes=chat_attributes(asked, model, self._provider, run.conversation) | own,
            start_time=_nanoseconds(start),
        )
        if found is None:
            self._failed(span, (OTHER, "the request brought no response"))
        else:
            span.set_attributes(found)
        span.end(_nanoseconds(max(start, record.at)))

    # --- calls

    def _started(self, run: _Run, record: AuditRecord) -> None:
        from opentelemetry.trace import SpanKind  # noqa: PLC0415  # an extra

        call, tool = record.call or "", _said(record, "tool")
        arguments = run.arguments.pop(call, None)
        own: Attributes = {RUN_ID: record.run, STEP: record.step}
        run.tools[call] = self._tracer.start_span(
            f"{EXECUTE_TOOL} {tool}",
            context=run.context,
            kind=SpanKind.INTERNAL,
            attributes=tool_attributes(call, tool, run.agent, arguments, self._write) | own,
            start_time=_nanoseconds(record.at),
        )

    def _settled(self, run: _Run, record: AuditRecord) -> None:
        span = run.tools.pop(record.call or "", None)
        if span is not None:  # else it ran before the run was suspended, and its span ended then
            self._outcome(span, record.facts, record)

    def _outcome(self, span: "Span", facts: FrozenDict[Json], record: AuditRecord) -> None:
        span.set_attributes(tool_end(facts, self._write))
        self._failed(span, error_of_outcome(facts))
        span.end(_nanoseconds(record.at))


def _said(record: AuditRecord, fact: str) -> str:
    value = record.facts.get(fact)
    return value if isinstance(value, str) else ""


def _nanoseconds(at: float) -> int:
    return int(at * _SECOND)
