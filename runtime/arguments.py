"""The arguments of a call against the tool's schema: everything that is wrong with them, at once.

Pure. `decode` (text to JSON) comes before, `structure` (JSON to the function's types) after; all three stand
here for those who serve a call. Knows nothing of calls or hooks.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from ..capabilities.frozen import EMPTY, FrozenDict, Json, thaw
from ..capabilities.json_schema import MASK, compile_schema, path_text
from ..capabilities.verdict import Problem
from .decoding import decode, unreadable
from .problems import Found, Path, problems_of, shown
from .structuring import inject, rich_problems, structure

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["decode", "inject", "problems_by", "rich_problems", "structure", "validate"]

_MAX_VALIDATORS: Final = 1_000
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


class Described(Protocol):
    """What `validate` needs of a tool."""

    @property
    def parameters(self) -> FrozenDict[Json]:
        """The JSON Schema of the arguments."""
        ...


def validate(tool: Described, arguments: Mapping[str, Json]) -> tuple[Problem, ...]:
    """Return everything that is wrong with `arguments` by the tool's schema, in the order of the paths.

    `1.0` is an integer, `True` is not; nothing is coerced. Never raises, given a schema that `Tool` accepted.
    """
    schema = tool.parameters
    validator = _validator(schema)
    try:
        # The validator takes subclasses of dict, but none of list.
        plain = arguments if _SCALARS.issuperset(map(type, arguments.values())) else thaw(arguments)
        if validator.is_valid(plain):
            return ()
        found = [problem for error in validator.iter_errors(plain) for problem in _describe(error, schema)]
    except (ValueError, RecursionError) as error:
        # What a hook put in may hold text that has no UTF-8, which the validator cannot read.
        found = list(unreadable(arguments)) or [((), f"cannot be validated: {error}")]
    return problems_of(found)


def problems_by(schema: FrozenDict[Json], value: Json) -> tuple[Problem, ...]:
    """Return everything that is wrong with any JSON value that was decoded, as `validate` does for arguments."""
    errors = _validator(schema).iter_errors(thaw(value))
    return problems_of(found for error in errors for found in _describe(error, schema))


# By identity: equality would take {"const": 1} and {"const": True} for one. The entry keeps the schema alive,
# so its id stays its own.
_VALIDATORS: dict[int, tuple[FrozenDict[Json], "jsonschema_rs.Validator"]] = {}


def _validator(schema: FrozenDict[Json]) -> "jsonschema_rs.Validator":
    found = _VALIDATORS.get(id(schema))
    if found is None:
        if len(_VALIDATORS) >= _MAX_VALIDATORS:  # schemas that come and go must not pile up
            _VALIDATORS.clear()
        found = _VALIDATORS[id(schema)] = (schema, compile_schema(schema))
    return found[1]


def _describe(error: "jsonschema_rs.ValidationError", schema: Mapping[str, Json]) -> Iterator[Found]:
    path = tuple(error.instance_path)
    details = error.kind.as_dict()
    match error.kind.name:
        case "required":
            yield (*path, str(details["property"])), "is required"
        case "additionalProperties" | "unevaluatedProperties":
            known = schema.get("properties") if not path else None
            listed = f"; the keys are: {', '.join(known) or 'none'}" if isinstance(known, dict) else ""
            for key in details["unexpected"]:
                yield (*path, str(key)), f"is not expected{listed}"
        case "anyOf" | "oneOf" if branches := _relevant(details.get("context") or [], path):
            if len(branches) == 1:
                for inner in branches[0]:
                    yield from _describe(inner, schema)
                return
            reasons = dict.fromkeys(text for branch in branches for inner in branch for text in _lines(inner))
            yield path, f"fits none of the {len(branches)} forms it may take: {'; '.join(reasons)}"
        case _:
            yield path, error.message.replace(MASK, shown(error.instance))


def _relevant(
    branches: Iterable[list["jsonschema_rs.ValidationError"]], path: Path
) -> list[list["jsonschema_rs.ValidationError"]]:
    """Return the branches of a union that the value was meant for: those of its own JSON type, if any."""
    all_of_them = [list(branch) for branch in branches]
    near = [
        branch
        for branch in all_of_them
        if not any(inner.kind.name == "type" and tuple(inner.instance_path) == path for inner in branch)
    ]
    return near or all_of_them


def _lines(error: "jsonschema_rs.ValidationError") -> Iterator[str]:
    for path, message in _describe(error, EMPTY):
        deeper = path[len(error.instance_path) :]
        yield f"{path_text(deeper)[2:]} {message}" if deeper else message
