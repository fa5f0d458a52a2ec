"""The floor: a bare async loop over plain dicts and lists. No framework, no checks, no log.

With a `base_url` it is the bare typed `create` of the openai client. Its hooks are async no-ops always.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from ..contract import ARGUMENTS, FINAL, TOOL_RESULT, USER, Job, Run, history_pairs

HOOKS: tuple[str, ...] = ("hook",)

Message = dict[str, Any]  # Any: plain JSON, as a hand-written loop would hold it


async def hook(value: Any) -> Any:  # Any: the four points hand it lists, messages, arguments and results
    """Do nothing."""
    return value


async def echo(x: int) -> str:
    """Return the same text always."""
    return TOOL_RESULT


TOOLS = {"echo": echo}


def script_for(job: Job) -> list[Message]:
    """Return the model's replies."""
    replies: list[Message] = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": f"c{step}_{index}",
                    "type": "function",
                    "function": {"name": "echo", "arguments": ARGUMENTS},
                }
                for index in range(job.fanout)
            ],
        }
        for step in range(job.steps)
    ]
    return [*replies, {"role": "assistant", "content": FINAL}]


def model_for(job: Job) -> Callable[[list[Message]], Awaitable[Message]]:
    """Return the stub model."""
    script, stride, latency = script_for(job), 1 + job.fanout, job.latency

    async def model(messages: list[Message]) -> Message:
        if latency:
            await asyncio.sleep(latency)
        return script[(len(messages) - 1) // stride]

    return model


def make(job: Job) -> Run:
    """Prepare the loop."""
    if job.base_url:
        return make_openai(job)
    model = model_for(job)
    hooks = (hook,) * job.hooks

    async def perform(call: Message) -> Message:
        arguments = json.loads(call["function"]["arguments"])
        for each in hooks:
            arguments = await each(arguments)
        result = await TOOLS[call["function"]["name"]](**arguments)
        for each in hooks:
            result = await each(result)
        return {"role": "tool", "tool_call_id": call["id"], "content": result}

    async def run() -> str:
        messages: list[Message] = [{"role": "user", "content": USER}]
        while True:
            view = messages
            for each in hooks:
                view = await each(view)
            reply = await model(view)
            for each in hooks:
                reply = await each(reply)
            messages.append(reply)
            calls = reply.get("tool_calls")
            if not calls:
                output: str = reply["content"]
                return output
            if len(calls) == 1:
                messages.append(await perform(calls[0]))
            else:
                messages.extend(await asyncio.gather(*[perform(call) for call in calls]))

    return run


def make_openai(job: Job) -> Run:
    """Prepare one typed `create` after the history of the job."""
    from openai import AsyncOpenAI
    from openai.types.chat import (
        ChatCompletionAssistantMessageParam,
        ChatCompletionMessageParam,
        ChatCompletionUserMessageParam,
    )

    client = AsyncOpenAI(base_url=job.base_url, api_key="none", max_retries=0)
    messages: list[ChatCompletionMessageParam] = [
        ChatCompletionUserMessageParam(role="user", content=text)
        if role == "user"
        else ChatCompletionAssistantMessageParam(role="assistant", content=text)
        for role, text in history_pairs(job.history)
    ]
    messages.append(ChatCompletionUserMessageParam(role="user", content=USER))

    async def run() -> str:
        completion = await client.chat.completions.create(model="gpt-4o", messages=messages)
        return completion.choices[0].message.content or ""

    return run
