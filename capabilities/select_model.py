"""SelectModel: which model answers, request by request. Knows nothing of what a model is but its name."""

from collections.abc import Callable

from attrs import Attribute, field, frozen

from .capability import Capability
from .shapes import is_async
from .state import NamedModel, RunState


def _choose(
    instance: object,
    attribute: "Attribute[Callable[[RunState], NamedModel | None]]",
    value: object,
) -> None:
    if not callable(value) or isinstance(value, type) or is_async(value):
        raise TypeError(
            f"SelectModel.choose takes a plain function of the state that returns a model or None, not {value!r:.80}"
        )


@frozen
class SelectModel(Capability):
    """Sends a request to the model that `choose(state)` returns; None leaves the model as it is.

    `choose` is asked at every step, and must be a function of the state alone: two calls with one state give
    one model, which is an object such as `OpenAIModel(...)`, made once. The next step begins with the agent's
    own model again. A model that cannot do what the request asks of it, as use the selected tools, ends the
    run before anything is sent or charged.

    Raises TypeError for what is no plain function, and in the run for an answer that is no model.

    >>> from capfold.capabilities import RunState, fold
    >>> from capfold.runtime import ScriptedModel
    >>> small, large = ScriptedModel([], name="small"), ScriptedModel([], name="large")
    >>> chosen = SelectModel(lambda state: large if state.run_step > 3 else None)
    >>> fold([chosen], "before_model_request", RunState(model=small, run_step=4)).model.name
    'large'
    >>> fold([chosen], "before_model_request", RunState(model=small, run_step=1)).model.name
    'small'
    """

    choose: Callable[[RunState], NamedModel | None] = field(validator=_choose)

    def before_model_request(self, state: RunState) -> RunState:
        """Ask for a model."""
        model = self.choose(state)
        return state if model is None else state.with_model(model)
