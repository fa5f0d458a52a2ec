"""Output types: what the final response must be, and how its text becomes a value."""

from collections.abc import Callable

import attrs
from attrs import frozen

from ..capabilities.frozen import FrozenDict, Json, freeze_mapping
from ..capabilities.json_schema import schema_of
from ..capabilities.state import OutputSpec
from .arguments import decode, validate
from .binding import Misfit, bind, prepare
from .late_codec import input_converter
from .problems import said


@frozen(eq=False)
class OutputType:
    """One output type. `read` turns a response's text into (value, None) or (None, what is wrong with it)."""

    spec: OutputSpec | None
    kind: type
    read: Callable[[str], tuple[object, str | None]]

    def problem(self, value: object) -> str | None:
        """Say why a value is not of this type, or None."""
        if type(value) is self.kind:
            return None
        return f"{self.kind.__name__} is wanted, not {type(value).__name__}"


def _text(text: str) -> tuple[object, str | None]:
    return text, None


TEXT = OutputType(None, str, _text)


@frozen
class _Schema:
    parameters: FrozenDict[Json]


def output_type(kind: type) -> OutputType:
    """Return the output type of `str` or of an attrs class.

    Raises TypeError for anything else, and for a class with a field that JSON Schema cannot say.
    """
    if kind is str:
        return TEXT
    if not attrs.has(kind):
        raise TypeError(f"output_type must be str or an attrs class, not {kind!r}")
    try:
        schema = freeze_mapping(schema_of(kind), "output schema")
    except (TypeError, NameError) as error:
        why = " ".join(str(error).split())
        raise TypeError(
            f"output_type {kind.__name__} has a field whose type has no JSON Schema: {why}"
        ) from error
    described = _Schema(schema)
    structured = prepare(bind(kind, input_converter), schema, schema)

    def read(text: str) -> tuple[object, str | None]:
        decoded, problems = decode(text)
        problems = problems or validate(described, decoded)
        if problems:
            return None, said(problems)
        try:
            return structured(decoded), None
        except Misfit as error:  # what the class's own validators say
            return None, str(error)

    return OutputType(OutputSpec(kind.__name__, schema), kind, read)
