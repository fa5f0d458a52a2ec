"""pydantic-ai: capabilities on its four before and after hooks, no instrumentation, no request limit."""

import asyncio
from typing import Any

from openai import AsyncOpenAI
from pydantic_ai import Agent, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage, UsageLimits

from ..contract import ARGUMENTS, FINAL, TOOL_RESULT, USER, Job, Run, history_pairs

HOOKS: tuple[str, ...] = (
    "before_model_request",
    "after_model_request",
    "before_tool_execute",
    "after_tool_execute",
)


class Stub(Model):
    """Answers from a script."""

    def __init__(self, script: list[ModelResponse], latency: float) -> None:
        super().__init__()
        self.script = script
        self.latency = latency

    @property
    def model_name(self) -> str:
        """Some name."""
        return "stub"

    @property
    def system(self) -> str:
        """Some provider."""
        return "stub"

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Return the reply of this step; all results of a step stand in one request message here."""
        self.prepare_request(model_settings, model_request_parameters)
        if self.latency:
            await asyncio.sleep(self.latency)
        reply = self.script[(len(messages) - 1) // 2]
        # The framework writes ids of the run into the response, so each run gets a shallow copy.
        return ModelResponse(
            parts=reply.parts, usage=reply.usage, model_name="stub", timestamp=reply.timestamp
        )


class Noop(AbstractCapability):
    """Does nothing at each of the four points. Any: the framework's own types, handed through untouched."""

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        return request_context

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
        return response

    async def before_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        return args

    async def after_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, result: Any) -> Any:
        return result


async def echo(x: int) -> str:
    """Return the same text always."""
    return TOOL_RESULT


def make(job: Job) -> Run:
    """Prepare an agent with a stub model, or with the openai client where the job has a `base_url`."""
    if job.base_url:
        return make_openai(job)
    usage = RequestUsage(input_tokens=10, output_tokens=5)
    script = [
        ModelResponse(
            parts=[
                ToolCallPart("echo", ARGUMENTS, tool_call_id=f"c{step}_{index}")
                for index in range(job.fanout)
            ],
            usage=usage,
        )
        for step in range(job.steps)
    ]
    script.append(ModelResponse(parts=[TextPart(FINAL)], usage=usage))
    agent = Agent(
        Stub(script, job.latency),
        tools=[Tool(echo, takes_ctx=False)] if job.steps else [],
        capabilities=[Noop() for _ in range(job.hooks)],
    )
    limits = UsageLimits(request_limit=None)

    async def run() -> str:
        output: str = (await agent.run(USER, usage_limits=limits)).output
        return output

    return run


def make_openai(job: Job) -> Run:
    """Prepare one request after the history of the job."""
    client = AsyncOpenAI(base_url=job.base_url, api_key="none", max_retries=0)
    agent = Agent(OpenAIChatModel("gpt-4o", provider=OpenAIProvider(openai_client=client)))
    history = [
        ModelRequest(parts=[UserPromptPart(text)])
        if role == "user"
        else ModelResponse(parts=[TextPart(text)])
        for role, text in history_pairs(job.history)
    ]

    async def run() -> str:
        output: str = (await agent.run(USER, message_history=history)).output
        return output

    return run
