"""Structured output on the chat completions wire: a response format, or an output tool.

The output tool exists between this adapter and the provider only: a call of it comes back as a message whose
content is the JSON text. Pure, imports no openai, and does not decide whether a text satisfies the schema.
"""

import json
import re
from collections.abc import Collection

from attrs import evolve, frozen

from ..capabilities.frozen import EMPTY, FrozenDict, Json, freeze_mapping
from ..capabilities.messages import AssistantMessage
from ..capabilities.state import OutputSpec
from .models import ModelProfile
from .openai_parts import Unsendable

OUTPUT_TOOL = "final_output"
_VALUE = "value"


@frozen
class OutputForm:
    """How one request asks for its output. `boxed`: the schema stands in an object, under "value"."""

    name: str
    schema: FrozenDict[Json]
    boxed: bool
    as_tool: bool

    @property
    def response_format(self) -> dict[str, object]:
        """The request field for a model that has JSON Schema output."""
        return {"type": "json_schema", "json_schema": {"name": self.name, "schema": self.schema}}

    @property
    def tool(self) -> dict[str, object]:
        """The output tool, for a model that has not."""
        description = f"Give the final answer, as {self.name}. Call it once, when nothing else is to be done."
        function = {"name": OUTPUT_TOOL, "description": description, "parameters": self.schema}
        return {"type": "function", "function": function}


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
    """Return the text of the value in the box; the text as it is when it is no such box."""
    try:
        box = json.loads(text)
        if isinstance(box, dict) and box.keys() == {_VALUE}:
            return json.dumps(box[_VALUE], ensure_ascii=False)
    except (ValueError, RecursionError):
        pass  # cut or wrong: the output check says so, and the model is asked again
    return text


def read_output(message: AssistantMessage, form: OutputForm | None) -> AssistantMessage:
    """Return a response in which the output is the content, whatever form it was asked for in.

    A call of the output tool beside calls of real tools came too early: those run, the output is left out and
    the metadata say so. Of several output calls the first counts.
    """
    if form is None:
        return message
    if not form.as_tool:
        boxed = form.boxed and isinstance(message.content, str) and not message.tool_calls
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
    dropped = {**message.metadata, "output_calls": len(outputs)} if len(outputs) > 1 else EMPTY
    return evolve(
        message, content=text, tool_calls=(), finish_reason=finished, metadata=dropped or message.metadata
    )
