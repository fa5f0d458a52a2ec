"""capfold: an agent with a tool and a capability."""

from capfold.capabilities import Capability, RunState
from capfold.runtime import Agent


class Noop(Capability):
    """Does nothing before each request."""

    def before_model_request(self, state: RunState) -> RunState:
        return state


def echo(x: int) -> str:
    """Return the same text always."""
    return "ok"


agent = Agent("bench", "test", tools=[echo], capabilities=[Noop()])
