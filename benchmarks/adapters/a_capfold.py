"""capfold: capabilities on its four before and after hooks, log on in memory as it is by default.

Variants: "every call" logs each hook call, not only those that changed something; "stored" also writes the
log to a JSON-lines file; "head" and "lines" read the log's head, or the whole log as text, after each run;
"count" and "count, every call" return the number of records instead of the output. "built-ins": eight ready-made
capabilities that have nothing to do; "redact", "trim", "trim, redact": those that look at the whole history.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from attrs import field, frozen

from capfold.capabilities import (
    AssistantMessage,
    CallState,
    Capability,
    LimitToolOutput,
    Message,
    RedactPII,
    RefuseTools,
    RequireApproval,
    RunBudget,
    RunState,
    SelectTools,
    ToolBudget,
    ToolCall,
    TrimMessages,
    Usage,
    UserMessage,
    is_declared_destructive,
    tool,
)
from capfold.capabilities.capability import AnyCapability
from capfold.runtime import Agent, JsonLines, Limits, Log, Meter, ModelProfile, ModelRequest, OpenAIModel

from ..contract import ARGUMENTS, FINAL, TOOL_RESULT, USER, HookKind, Job, Run, history_pairs

HOOKS: tuple[str, ...] = (
    "before_model_request",
    "after_model_request",
    "before_tool_execute",
    "after_tool_execute",
)
EVERY_CALL = "every call"
LOG_FILE = Path("capfold.jsonl")
"""In the worker's working directory, which is a scratch folder."""


@frozen
class Stub:
    """Answers from a script; the step is found from the length of the history."""

    script: tuple[AssistantMessage, ...]
    stride: int
    latency: float
    name: str = "stub"
    profile: ModelProfile = field(factory=ModelProfile)

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        """Return the reply of this step; the meter books one attempt by itself."""
        if self.latency:
            await asyncio.sleep(self.latency)
        return self.script[(len(request.messages) - 1) // self.stride]


@frozen
class Stepped(Stub):
    """Answers by the number of the step, whatever part of the history it is shown."""

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        """Return the reply of this step."""
        return self.script[request.step - 1]


@frozen
class Noop(Capability):
    """Does nothing at each of the four points."""

    def before_model_request(self, state: RunState) -> RunState:
        return state

    def after_model_request(self, state: RunState) -> RunState:
        return state

    def before_tool_execute(self, call: CallState) -> CallState:
        return call

    def after_tool_execute(self, call: CallState) -> CallState:
        return call


@frozen
class Changing(Capability[int]):
    """Counts its own calls in its slot, so each of them changes the state and is logged."""

    def before_model_request(self, state: RunState) -> RunState:
        return state.put(self, state.slot(self) + 1)

    def after_model_request(self, state: RunState) -> RunState:
        return state.put(self, state.slot(self) + 1)

    def before_tool_execute(self, call: CallState) -> CallState:
        return call.put(self, call.slot(self) + 1)

    def after_tool_execute(self, call: CallState) -> CallState:
        return call.put(self, call.slot(self) + 1)


@frozen
class Absent(Capability):
    """Overrides none of the hooks, so it is never called."""


KINDS: Mapping[HookKind, type[Noop | Changing | Absent]] = {
    "noop": Noop,
    "changing": Changing,
    "absent": Absent,
}


# The tool of the job is declared nothing, so what is for destructive tools has nothing to do.
READY_MADE: Mapping[str, tuple[AnyCapability, ...]] = {
    "built-ins": (
        RedactPII(),
        TrimMessages(keep_last=1000),
        SelectTools({"echo"}),
        RunBudget(max_tokens=1_000_000_000),
        RefuseTools(is_declared_destructive),
        RequireApproval(is_declared_destructive),
        ToolBudget(1, tools=is_declared_destructive),
        LimitToolOutput(),
    ),
    "redact": (RedactPII(),),
    "trim": (TrimMessages(keep_last=20),),
    "trim, redact": (TrimMessages(keep_last=20), RedactPII()),
}


async def echo(x: int) -> str:
    """Return the same text always."""
    return TOOL_RESULT


def script_for(job: Job) -> tuple[AssistantMessage, ...]:
    """Return the model's replies."""
    usage = Usage(input_tokens=10, output_tokens=5)
    replies = [
        AssistantMessage(
            tool_calls=tuple(ToolCall(f"c{step}_{index}", "echo", ARGUMENTS) for index in range(job.fanout)),
            finish_reason="tool_calls",
            usage=usage,
        )
        for step in range(job.steps)
    ]
    return (*replies, AssistantMessage(FINAL, usage=usage))


def read(log: Log, variant: str) -> str:
    """Do with the log what the variant says; return the output of the run."""
    if variant.startswith("count"):
        return str(len(log))
    if variant == "head":
        return FINAL if log.head else ""
    if variant == "lines":
        return FINAL if log.to_jsonl() else ""
    return FINAL


def make(job: Job) -> Run:
    """Prepare an agent with a stub model, or with the openai client where the job has a `base_url`."""
    if job.base_url:
        return make_openai(job)
    kind = KINDS[job.kind]
    ready_made = READY_MADE.get(job.variant, ())
    stub = Stepped if ready_made else Stub
    agent = Agent(
        "bench",
        stub(script_for(job), 1 + job.fanout, job.latency),
        tools=(tool(echo),) if job.steps else (),
        capabilities=(*ready_made, *(kind(key=f"{job.kind}{index}") for index in range(job.hooks))),
        limits=Limits(max_steps=job.steps + 10),
        audit="all" if job.variant.endswith(EVERY_CALL) else "changes",
        sinks=(JsonLines(LOG_FILE),) if job.variant == "stored" else (),
    )

    async def run() -> str:
        return (await agent.run(USER)).output

    async def run_and_read() -> str:
        return read((await agent.run(USER)).log, job.variant)

    return run_and_read if job.variant in {"head", "lines"} or job.variant.startswith("count") else run


def make_openai(job: Job) -> Run:
    """Prepare one request after the history of the job."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=job.base_url, api_key="none", max_retries=0)
    agent = Agent("bench", OpenAIModel("gpt-4o", client=client))
    history: list[Message] = [
        UserMessage(text) if role == "user" else AssistantMessage(text)
        for role, text in history_pairs(job.history)
    ]

    async def run() -> str:
        return (await agent.run(USER, messages=history)).output

    return run
