"""UseSettings: settings of the model, for each request. Knows nothing of what a setting means to a provider."""

from collections.abc import Mapping
from typing import ClassVar

from attrs import field, frozen

from .capability import Capability, Declaration
from .frozen import FrozenDict, Json, freeze_mapping
from .state import RunState


def _settings(value: Mapping[str, object]) -> FrozenDict[Json]:
    settings = freeze_mapping(value, "UseSettings.settings")
    if not settings:
        raise ValueError("UseSettings.settings is empty: name a setting, or leave the capability out")
    return settings


@frozen
class UseSettings(Capability):
    """Merges `settings`, JSON by name, over those that the agent and earlier capabilities gave this request.

    They hold for one request; at the next step they are merged again, so `when(...)` around it makes them hold
    where they should. What a value of None means is the model's: `OpenAIModel` unsets the setting.

    Raises TypeError for what is no mapping, ValueError for an empty one and for values that are not JSON.

    >>> from capfold.capabilities import RunState, fold
    >>> state = RunState(settings={"temperature": 1, "seed": 7})
    >>> dict(fold([UseSettings({"temperature": 0})], "before_model_request", state).settings)
    {'temperature': 0, 'seed': 7}
    """

    settings: FrozenDict[Json] = field(converter=_settings)

    declares: ClassVar[frozenset[Declaration]] = frozenset({"idempotent"})

    def before_model_request(self, state: RunState) -> RunState:
        """Merge the settings."""
        return state.with_settings(**self.settings)
