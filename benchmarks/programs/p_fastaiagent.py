"""fastaiagent: an agent with a tool and a middleware."""

from typing import Any

from fastaiagent import Agent, AgentMiddleware, FunctionTool, LLMClient


class Noop(AgentMiddleware):
    """Does nothing before each request. Any: the framework's own types, handed through untouched."""

    async def before_model(self, ctx: Any, messages: Any) -> Any:
        return messages


def echo(x: int) -> str:
    """Return the same text always."""
    return "ok"


agent = Agent(
    "bench",
    llm=LLMClient(provider="test", model="stub", api_key="none"),
    tools=[FunctionTool(name="echo", fn=echo)],
    middleware=[Noop()],
)
