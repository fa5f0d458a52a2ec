"""fastaiagent: middleware on its three hooks, tools one after another as is its default.

That its tracing is off is said by the environment that `benchmarks.participants` gives it.
"""

import asyncio
import json
from typing import Any

from fastaiagent import Agent, AgentConfig, AgentMiddleware, FunctionTool, LLMClient
from fastaiagent.llm.client import LLMResponse
from fastaiagent.llm.message import AssistantMessage, ToolCall, UserMessage

from ..contract import ARGUMENTS, FINAL, TOOL_RESULT, USER, Job, Run, history_pairs

HOOKS: tuple[str, ...] = ("before_model", "after_model", "wrap_tool")


class Stub(LLMClient):
    """Answers from a script."""

    def __init__(self, script: list[LLMResponse], stride: int, latency: float) -> None:
        super().__init__(provider="test", model="stub", api_key="none")
        self.script = script
        self.stride = stride
        self.latency = latency

    async def acomplete(self, messages: list[Any], tools: Any = None, **keywords: Any) -> LLMResponse:
        """Return the reply of this step. Any: the framework's own types, not looked into."""
        if self.latency:
            await asyncio.sleep(self.latency)
        reply = self.script[(len(messages) - 1) // self.stride]
        # A shallow copy: what is handed out belongs to the run.
        return LLMResponse(
            content=reply.content,
            tool_calls=list(reply.tool_calls),
            usage=reply.usage,
            model="stub",
            finish_reason=reply.finish_reason,
        )


class Noop(AgentMiddleware):
    """Does nothing at each of the three points. Any: the framework's own types, handed through untouched."""

    async def before_model(self, ctx: Any, messages: Any) -> Any:
        return messages

    async def after_model(self, ctx: Any, response: Any) -> Any:
        return response

    async def wrap_tool(self, ctx: Any, tool: Any, args: Any, call_next: Any) -> Any:
        return await call_next(tool, args)


async def echo(x: int) -> str:
    """Return the same text always."""
    return TOOL_RESULT


def reply(calls: list[ToolCall], content: str | None, reason: str) -> LLMResponse:
    """Return one reply of the model."""
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return LLMResponse(content=content, tool_calls=calls, usage=usage, model="stub", finish_reason=reason)


def make(job: Job) -> Run:
    """Prepare an agent with a stub model, or with the openai client where the job has a `base_url`."""
    if job.base_url:
        return make_openai(job)
    arguments = json.loads(ARGUMENTS)
    script = [
        reply(
            [
                ToolCall(id=f"c{step}_{index}", name="echo", arguments=arguments)
                for index in range(job.fanout)
            ],
            None,
            "tool_calls",
        )
        for step in range(job.steps)
    ]
    script.append(reply([], FINAL, "stop"))
    config = AgentConfig(max_iterations=100)
    # Its constructor allows 100 at most; long runs need more, and an assignment is not validated.
    config.max_iterations = max(100, job.steps + 10)
    agent = Agent(
        "bench",
        llm=Stub(script, 1 + job.fanout, job.latency),
        tools=[FunctionTool(name="echo", fn=echo)] if job.steps else [],
        config=config,
        middleware=[Noop() for _ in range(job.hooks)],
    )

    async def run() -> str:
        output: str = (await agent.arun(USER, trace=False)).output
        return output

    return run


def make_openai(job: Job) -> Run:
    """Prepare one request after the history of the job."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=job.base_url, api_key="none", max_retries=0)
    llm = LLMClient(
        provider="openai", model="gpt-4o", api_key="none", base_url=job.base_url, openai_client=client
    )
    agent = Agent("bench", llm=llm)
    history = [
        UserMessage(text) if role == "user" else AssistantMessage(text)
        for role, text in history_pairs(job.history)
    ]

    async def run() -> str:
        output: str = (await agent.arun(USER, messages=list(history), trace=False)).output
        return output

    return run
