"""TrimMessages: a request shows the newest part of the history. Knows nothing of tokens."""

from typing import ClassVar

from attrs import Attribute, field, frozen

from .capability import Capability, Declaration
from .state import RunState


def _at_least_one(instance: object, attribute: "Attribute[int]", value: int) -> None:
    if type(value) is not int:
        raise TypeError(f"TrimMessages.keep_last must be an integer, not {type(value).__name__}")
    if value < 1:
        raise ValueError(
            f"TrimMessages.keep_last is {value}: the least is 1, which keeps the newest exchange"
        )


@frozen
class TrimMessages(Capability):
    """Shows leading system messages, this run's task, and the newest whole exchanges of `keep_last` messages.

    The first two are not counted. The newest exchange is always whole, even if it is longer. The history is
    left as it is: each request is trimmed anew, from what earlier capabilities left in the view.

    >>> from capfold.runtime import Agent, ScriptedModel
    >>> model = ScriptedModel(["ok"])
    >>> agent = Agent("desk", model, capabilities=[TrimMessages(keep_last=2)])
    >>> history = [UserMessage("a"), AssistantMessage("b"), UserMessage("c"), AssistantMessage("d")]
    >>> result = agent.run_sync("e", messages=history)
    >>> [message.content for message in model.requests[0].messages], len(result.messages)
    (['c', 'd', 'e'], 6)
    """

    keep_last: int = field(default=20, validator=_at_least_one)

    declares: ClassVar[frozenset[Declaration]] = frozenset({"idempotent"})

    def before_model_request(self, state: RunState) -> RunState:
        """Project the view."""
        return state.keep_last(self.keep_last)
