"""RunBudget: how far a run may go before it ends as a result. Knows nothing of limits, which raise instead."""

from attrs import Attribute, field, frozen

from .capability import Capability
from .messages import text_field
from .state import RunState

_FIELDS = ("max_steps", "max_requests", "max_tokens")


def _at_most(instance: object, attribute: "Attribute[int | None]", value: int | None) -> None:
    if value is None:
        return
    name = f"RunBudget.{attribute.name}"
    if type(value) is not int:
        raise TypeError(f"{name} must be an integer or None, not {value!r:.80}")
    if value < 0:
        raise ValueError(f"{name} is {value}: the least is 0, with which no request is sent")


@frozen
class RunBudget(Capability):
    """Stops the run, before another request is sent, once it went as far as it may.

    `max_steps`, `max_requests`, `max_tokens` (input and output together): what the run may take; None = no
    bound, but at least one is given. The run then ends as a result with `message`, in which `{used}` says what
    was used up. What sub-agents and gatherers request counts, as the runtime books it; no hook can reset it.
    Tokens that a provider did not report are not 0: with `max_tokens` nothing is sent after them.

    Limits raise, budgets stop: this is the cooperative twin of `Limits`. It looks once a step, so what happens
    within one, such as the attempts of a retrying wrapper, may go beyond it; what must never be exceeded is
    for `Limits`, a little above. A sub-agent that inherits it counts its own run.

    Raises ValueError for a number below 0 and where nothing is bounded, TypeError for what is no integer.

    >>> from capfold.capabilities import RunState, Usage, fold
    >>> budget = RunBudget(max_tokens=1000)
    >>> state = RunState(usage=Usage(input_tokens=900, output_tokens=150))
    >>> fold([budget], "before_model_request", state).stopped.message
    'The budget of this run is used up: 1050 of 1000 tokens.'
    """

    max_steps: int | None = field(default=None, kw_only=True, validator=_at_most)
    max_requests: int | None = field(default=None, kw_only=True, validator=_at_most)
    max_tokens: int | None = field(default=None, kw_only=True, validator=_at_most)
    message: str = field(
        default="The budget of this run is used up: {used}.", kw_only=True, validator=text_field
    )

    def __attrs_post_init__(self) -> None:
        """Refuse a budget that bounds nothing."""
        if all(getattr(self, name) is None for name in _FIELDS):
            raise ValueError(
                f"RunBudget bounds nothing: give one of {', '.join(_FIELDS)}, as in RunBudget(max_steps=20)"
            )

    def before_model_request(self, state: RunState) -> RunState:
        """Stop where nothing is left."""
        used = self._used_up(state)
        return state if used is None else state.stop(self.message.replace("{used}", used))

    def _used_up(self, state: RunState) -> str | None:
        if self.max_steps is not None and state.run_step > self.max_steps:
            # The present step is counted already, and is the one that does not take place.
            return f"{state.run_step - 1} of {self.max_steps} steps"
        if self.max_requests is not None and state.requests >= self.max_requests:
            return f"{state.requests} of {self.max_requests} requests"
        if self.max_tokens is not None:
            tokens = state.usage.total
            if tokens is None:
                return f"an unknown number of {self.max_tokens} tokens"
            if tokens >= self.max_tokens:
                return f"{tokens} of {self.max_tokens} tokens"
        return None
