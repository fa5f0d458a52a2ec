"""RunState in JSON: the fields that are read by a name or by another's type.

Knows nothing of snapshots; which tools, models and slots there are is given.
"""

from collections.abc import Mapping
from typing import Any

from attrs import frozen
from cattrs.gen import override

from ..capabilities.frozen import FrozenDict, Json, freeze
from ..capabilities.run_parts import NamedModel
from ..capabilities.state import RunState
from ..capabilities.tools import Tool
from .codec_errors import each, written
from .codec_records import Codec, record_reader, record_writer
from .codec_tools import tool_reader, write_tool


@frozen(kw_only=True)
class Known:
    """What names in JSON stand for; `output_type` None: the output is frozen JSON."""

    tools: Mapping[str, Tool]
    models: Mapping[str, NamedModel]
    slot_types: Mapping[str, object]
    output_type: object

    def model(self, value: object, _: object) -> NamedModel:
        """Read a model by its name."""
        if type(value) is not str:
            raise TypeError(f"must be the name of a model, not {type(value).__name__}")
        try:
            return self.models[value]
        except KeyError:
            raise ValueError(f"no model is named {value!r:.60}; known: {_listed(self.models)}") from None

    def slot_type(self, key: str) -> Any:  # Any: cattrs takes types and annotations
        """Return the type of a key's slot."""
        try:
            return self.slot_types[key]
        except KeyError:
            raise ValueError(
                f"no capability has the key {key!r:.60}; known: {_listed(self.slot_types)}"
            ) from None

    def inventory(self, value: object, _: object) -> tuple[Tool, ...]:
        """Read an inventory: exactly the tools that are known, never tuned ones."""
        if not isinstance(value, list):
            raise TypeError(f"must be an array of tools, not {type(value).__name__}")
        read = tool_reader(self.tools, tuned=False)
        return tuple(tool for _, tool in each(dict(enumerate(value)), lambda _, one: read(one, Tool)))


def register_states(codec: Codec, known: Known) -> None:
    """Register the hooks of RunState and of what it names."""

    def write_slots(slots: FrozenDict[object]) -> dict[str, Json]:
        return {
            key: written(codec, value, known.slot_types.get(key), f"$.slots.{key}")
            for key, value in slots.items()
        }

    def read_slots(value: object, _: object) -> FrozenDict[object]:
        if not isinstance(value, dict):
            raise TypeError(f"must be an object of slots by key, not {type(value).__name__}")
        return FrozenDict(each(value, lambda key, slot: codec.structure(slot, known.slot_type(key))))

    def write_output(output: object) -> object:
        return None if output is None else codec.unstructure(output, known.output_type)

    def read_output(value: object, _: object) -> object:
        kind: Any = known.output_type  # Any: cattrs takes types and annotations
        return freeze(value) if value is None or kind is None else codec.structure(value, kind)

    codec.register_unstructure_hook_func(lambda t: t is Tool, write_tool)
    codec.register_structure_hook_func(lambda t: t is Tool, tool_reader(known.tools, tuned=True))
    codec.register_unstructure_hook_func(lambda t: t is NamedModel, lambda model: model.name)
    codec.register_structure_hook_func(lambda t: t is NamedModel, known.model)
    special = {
        "inventory": override(struct_hook=known.inventory),
        "slots": override(struct_hook=read_slots, unstruct_hook=write_slots),
        "output": override(struct_hook=read_output, unstruct_hook=write_output),
    }
    codec.register_unstructure_hook_factory(
        lambda t: t is RunState, lambda t: record_writer(codec, t, special)
    )
    codec.register_structure_hook_factory(lambda t: t is RunState, lambda t: record_reader(codec, t, special))


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names)) or "none"
