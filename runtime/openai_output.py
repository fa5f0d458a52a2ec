"""Structured output on the wires of both APIs: a response format, or an output tool.

The output tool exists between this adapter and the provider only: a call of it comes back as a message whose
content is the JSON text. Pure, imports no openai, and does not decide whether a text satisfies the schema.
"""

import json
import re
from collections.abc import Collection

from attrs import evolve, frozen

from ..capabilities.frozen import FrozenDict, Json, freeze_mapping
from ..capabilities.messages import AssistantMessage
from ..capabilities.state import OutputSpec
from . import strict_json
from .decoding import MAX_DEPTH
from .models import ModelProfile
from .openai_parts import Unsendable
from .openai_strict import is_strict, with_types

OUTPUT_TOOL = "final_output"
_VALUE = "value"
# In the metadata: what was said beside an output, and is none of it.
BESIDE_OUTPUT = "beside_output"


@frozen
class OutputForm:
    """How one request asks for its output. `boxed`: the schema stands in an object, under "value"."""

    name: str
    schema: FrozenDict[Json]
    boxed: bool
    as_tool: bool

    @property
    def response_format(self) -> dict[str, object]:
        """The field of a chat request for a model that has JSON Schema output."""
        return {"type": "json_schema", "json_schema": self._named}

    @property
    def text_format(self) -> dict[str, object]:
        """The same as the responses API has it, below `text`."""
        return {"type": "json_schema", **self._named}

    @property
    def _named(self) -> dict[str, object]:
        typed = with_types(self.schema)
        if is_strict(typed):
            return {"name": self.name, "schema": typed, "strict": True}
        return {"name": self.name, "schema": self.schema}

    @property
    def function(self) -> dict[str, object]:
        """The function of the output tool, for a model that has not."""
        description = f"Give the final answer, as {self.name}. Call it once, when nothing else is to be done."
        return {"name": OUTPUT_TOOL, "description": description, "parameters": self.schema}


def _object_schema(schema: FrozenDict[Json]) -> tuple[FrozenDict[Json], bool]:
    """Return the schema with an object at its root, as both forms want it, and whether it had to be boxed."""
    definitions = schema.get("$defs")
    target = schema.get("$ref")
    if isinstance(target, str) and isinstance(definitions, dict) and target.startswith("#/$defs/"):
        named = definitions.get(target.removeprefix("#/$defs/"))
        if isinstance(named, dict):
            schema = freeze_mapping({**named, "$defs": definitions}, "output schema")
    if schema.get("type") == "object":
        return schema, False
    shared = {} if definitions is None else {"$defs": definitions}
    inner = {name: member for name, member in schema.items() if name != "$defs"}
    boxed = {
        "type": "object",
        "properties": {_VALUE: inner},
        "required": [_VALUE],
        "additionalProperties": False,
        **shared,
    }
    return freeze_mapping(boxed, "output schema"), True


def output_form(spec: OutputSpec | None, profile: ModelProfile, tools: Collection[str]) -> OutputForm | None:
    """Choose how a request asks for its output; None for text.

    Raises `Unsendable` when a selected tool has the output tool's name, or the model can do neither.
    """
    if spec is None:
        return None
    schema, boxed = _object_schema(spec.schema)
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", spec.name)[:64] or "output"
    if profile.json_schema:
        return OutputForm(name, schema, boxed, as_tool=False)
    if not profile.tools:
        raise Unsendable(f"the output is to be {spec.name}, but this model has neither json_schema nor tools")
    if OUTPUT_TOOL in tools:
        raise Unsendable(f"a tool is named {OUTPUT_TOOL!r}, as the output tool of this model is: rename it")
    return OutputForm(name, schema, boxed, as_tool=True)


def _unboxed(text: str) -> str:
    """Return the text of the value in the box; the text as it is when it is no such box, or no strict JSON."""
    box, found = strict_json.read(text, MAX_DEPTH, utf8=True)
    if not found and isinstance(box, dict) and box.keys() == {_VALUE}:
        return json.dumps(box[_VALUE], ensure_ascii=False)
    return text  # cut or wrong: the output check says so, and the model is asked again


def read_output(message: AssistantMessage, form: OutputForm | None) -> AssistantMessage:
    """Return a response in which the output is the content, whatever form it was asked for in.

    A call of the output tool beside calls of real tools came too early: those run, the output is left out and
    the metadata say so (`early_output`). Of several output calls the first counts (`output_calls`: how many), and
    what was said beside it is no part of the output (`beside_output`). A refusal is left as it is.
    """
    if form is None:
        return message
    if not form.as_tool:
        said = isinstance(message.content, str) and not message.tool_calls
        boxed = form.boxed and said and message.finish_reason != "refusal"
        return evolve(message, content=_unboxed(message.text)) if boxed else message
    outputs = [call for call in message.tool_calls if call.name == OUTPUT_TOOL]
    if not outputs:
        return message
    others = tuple(call for call in message.tool_calls if call.name != OUTPUT_TOOL)
    if others:
        early: dict[str, Json] = {**message.metadata, "early_output": outputs[0].arguments}
        return evolve(message, tool_calls=others, metadata=early)
    text = _unboxed(outputs[0].arguments) if form.boxed else outputs[0].arguments
    finished = "stop" if message.finish_reason == "tool_calls" else message.finish_reason
    metadata: dict[str, Json] = {**message.metadata}
    if len(outputs) > 1:
        metadata["output_calls"] = len(outputs)
    if message.text:
        metadata[BESIDE_OUTPUT] = message.text
    return evolve(message, content=text, tool_calls=(), finish_reason=finished, metadata=metadata)
