"""Output types: what the final response must be, and how its text becomes a value.

Any type whose values JSON can hold; `str` alone is plain text. Knows nothing of how a model is asked for it.
"""

from collections.abc import Callable
from typing import Any, get_origin

from attrs import frozen

from ..capabilities.frozen import freeze_mapping
from ..capabilities.json_schema import container, schema_of, unwrap
from ..capabilities.state import OutputSpec
from ..capabilities.verdict import Problem
from . import strict_json
from .arguments import problems_by
from .binding import Misfit, bind, prepare
from .decoding import MAX_DEPTH
from .late_codec import input_converter
from .problems import MAX_PROBLEMS, problems_of, said, short

_FENCE = "```"


@frozen(eq=False)
class OutputType:
    """One output type. `read` turns a response's text into (value, None) or (None, what is wrong with it)."""

    spec: OutputSpec | None
    kind: object
    read: Callable[[str], tuple[object, str | None]]

    def problem(self, value: object) -> str | None:
        """Say why a Python value is not of this type, or None; strict, as `output_check.misfits` says."""
        if self.kind is str:
            return None if type(value) is str else f"str is wanted, not {type(value).__name__}"
        from .output_check import misfits  # noqa: PLC0415  # only a hook that changes an output needs it

        try:
            return said(problems_of(misfits(value, self.kind))) or None
        except RecursionError:
            return "it is nested too deeply, or contains itself"


def _text(text: str) -> tuple[object, str | None]:
    return text, None


TEXT = OutputType(None, str, _text)


def output_type(kind: object) -> OutputType:
    """Return the output type of `str`, which is text, or of any type whose values JSON can hold.

    Raises TypeError for anything else: no type, a type that says nothing of its values, one that has no JSON
    Schema or that the codec cannot make, a union whose members JSON does not tell apart.
    """
    if kind is str:
        return TEXT
    from .output_unions import check_unions, name_of  # noqa: PLC0415  # an agent that puts out text needs none

    _check_shape(kind)
    name = name_of(kind)
    try:
        schema = freeze_mapping(schema_of(kind), "output schema")
    except Exception as error:  # pydantic and the user's own classes make parts of it
        raise TypeError(f"output_type {name} has a part without JSON Schema: {_why(error)}") from error
    try:
        check_unions(kind)
        structured = prepare(bind(kind, input_converter), schema, schema)
    except Exception as error:  # cattrs has many ways to say that there is no way
        raise TypeError(f"output_type {name} cannot be read from JSON: {_why(error)}") from error

    def read(text: str) -> tuple[object, str | None]:
        decoded, found = strict_json.read(text, MAX_DEPTH, utf8=True)
        if found:
            hint = " (write the JSON alone, without a fence around it)" if _FENCE in text else ""
            return None, said(problems_of(found)) + hint
        problems = problems_by(schema, decoded)
        if problems:
            return None, said(problems)
        try:
            return structured(decoded), None
        except Misfit as error:  # what the classes' own validators say
            return None, said(_problems(error))

    return OutputType(OutputSpec(name, schema), kind, read)


def _check_shape(kind: object) -> None:
    """Raise TypeError for what is no type, or says nothing of what is in it."""
    bare: Any = unwrap(kind)  # Any: annotations share no type
    if kind is None or isinstance(kind, str | int | list | tuple | dict):
        raise TypeError(
            f"output_type must be a type, such as a class or a union of classes, not {kind!r:.80}"
        )
    if bare is Any or bare is object or (container(bare) and get_origin(bare) is None):
        name = getattr(bare, "__name__", bare)
        raise TypeError(f"output_type {name} says nothing of what is in it: write dict[str, int], or a class")


def _problems(misfit: Misfit) -> list[Problem]:
    return [Problem(f"${path}", short(text)) for path, text in misfit.found[:MAX_PROBLEMS]]


def _why(error: Exception) -> str:
    return " ".join(str(error).split())[:500]
