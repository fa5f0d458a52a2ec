"""pydantic-ai: an agent with a tool and a capability."""

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability


class Noop(AbstractCapability):
    """Does nothing before each request. Any: the framework's own types, handed through untouched."""

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        return request_context


def echo(x: int) -> str:
    """Return the same text always."""
    return "ok"


agent = Agent("test", tools=[echo], capabilities=[Noop()])
