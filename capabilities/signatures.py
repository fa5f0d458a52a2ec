"""What a typed function takes: which parameters the model fills, by which schema, and which it never sees.

Everything that cannot work fails here, when the tool is made. Knows nothing of tools, calls or converters.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from types import MethodType, SimpleNamespace
from typing import Annotated, Final, Literal, NoReturn, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

from attrs import field, frozen

from .docstrings import argument_docs
from .frozen import FreezeError, FrozenDict, Json, freeze, freeze_mapping, thaw
from .injected import FromCall, FromContext, FromDeps, ToolContext
from .json_schema import check_schema, compile_schema, members, schemas_of, unwrap

__all__ = ["Parameter", "Signature", "Source", "check_schema", "signature_of"]

Source = Literal["arguments", "context", "call", "deps", "tool_context"]
_MARKERS: Final[Mapping[type, Source]] = {FromContext: "context", FromCall: "call", FromDeps: "deps"}
_VARIADIC: Final = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


@frozen
class Parameter:
    """One parameter of a tool function.

    `annotation` is the type without injection marker. `key` is the name to look up in `source`: the
    argument's own name, or the marker's key. `default` is `...` where a value is required.
    """

    name: str
    annotation: object
    source: Source
    key: str
    default: object = ...

    @property
    def required(self) -> bool:
        """Whether a value must be there."""
        return self.default is ...


@frozen(eq=False)  # one per function, cached: compared by identity, and a key of caches
class Signature:
    """The parameters of a function in declaration order, and the JSON Schema of those the model fills."""

    parameters: tuple[Parameter, ...]
    schema: FrozenDict[Json]
    is_async: bool
    # Whether there are parameters that the model does not fill; asked at each call.
    injects: bool = field(init=False)

    @injects.default
    def _injects(self) -> bool:
        return any(parameter.source != "arguments" for parameter in self.parameters)


_CACHE: "WeakKeyDictionary[object, Signature]" = WeakKeyDictionary()
_BOUND: "WeakKeyDictionary[object, Signature]" = WeakKeyDictionary()


def signature_of(function: Callable[..., object]) -> Signature:
    """Return the signature of a typed function, method or callable object; made once for each.

    Raises TypeError naming function and parameter for one that is not annotated, variadic or positional-only,
    for an annotation that cannot be resolved or has no JSON Schema, for a misplaced injection marker, and for
    a default that does not fit; ValueError for a default that JSON cannot carry.
    """
    # A bound method is a new object at each access: its function stands for it.
    cache, key = (_BOUND, function.__func__) if isinstance(function, MethodType) else (_CACHE, function)
    try:
        found = cache.get(key)
    except TypeError:  # a callable object that is not hashable or takes no weak reference
        return _build(function)
    if found is None:
        found = cache[key] = _build(function)
    return found


def _build(function: Callable[..., object]) -> Signature:
    code, taken = _underneath(function)
    name = str(getattr(code, "__qualname__", None) or type(function).__qualname__)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise TypeError(f"{name}() is a generator; a tool returns its one result: build it and return it")
    try:
        declared = inspect.signature(function)
    except ValueError as error:
        raise TypeError(
            f"{name}() has no readable signature ({error}); wrap it in a typed function"
        ) from None
    parameters = [
        _parameter(name, parameter, _resolve(name, code, parameter))
        for parameter in declared.parameters.values()
        if parameter.name not in taken
    ]
    docs = argument_docs(code.__doc__ or function.__doc__)
    return Signature(tuple(parameters), _schema(name, parameters, docs), inspect.iscoroutinefunction(code))


def _underneath(function: object) -> tuple[Callable[..., object], frozenset[str]]:
    """Return the function whose annotations count, and the names that a `partial` has given already."""
    taken: frozenset[str] = frozenset()
    while isinstance(function, functools.partial):
        taken |= function.keywords.keys()
        function = function.func
    if isinstance(function, type) or not callable(function):
        raise TypeError(f"a tool is made of a function, not of {function!r:.80}")
    if not inspect.isroutine(function):
        function = type(function).__call__
    return function, taken


def _resolve(name: str, code: Callable[..., object], parameter: inspect.Parameter) -> object:
    # One at a time, so that the message names the parameter and an unresolvable return type does not matter.
    if parameter.kind in _VARIADIC:
        _refuse(
            name,
            f"{_VARIADIC[parameter.kind]}{parameter.name}",
            "is variadic; the model needs names: declare each parameter",
        )
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        _refuse(name, parameter.name, "is positional-only; arguments come by name: remove the '/'")
    if parameter.annotation is inspect.Parameter.empty:
        _refuse(name, parameter.name, "has no annotation; write one, as in `city: str`")
    scope = getattr(inspect.unwrap(code), "__globals__", {})
    holder = SimpleNamespace(__annotations__={"it": parameter.annotation})
    try:
        return get_type_hints(holder, globalns=scope, localns={}, include_extras=True)["it"]
    except Exception as error:  # noqa: BLE001  # evaluating an annotation runs whatever stands in it
        _refuse(
            name,
            parameter.name,
            f"has the annotation {parameter.annotation!r}, which cannot be resolved ({error}); "
            "its names must be importable at module level, not only while type checking",
        )


def _parameter(name: str, declared: inspect.Parameter, annotation: object) -> Parameter:
    default = ... if declared.default is inspect.Parameter.empty else declared.default
    notes = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    markers = [note for note in notes if type(note) in _MARKERS]
    bare = unwrap(annotation)
    for note in notes:
        if isinstance(note, type) and note in _MARKERS:
            _refuse(
                name, declared.name, f"is marked with the class {note.__name__}: write {note.__name__}('key')"
            )
    if type(default) in _MARKERS:
        kind = type(default).__name__
        _refuse(
            name,
            declared.name,
            f"has a marker as its default, which the model would fill: write Annotated[T, {kind}('key')]",
        )
    if len(markers) > 1 or (markers and bare is ToolContext):
        _refuse(name, declared.name, "is injected in two ways: keep one")
    if _hides_injection(bare):
        _refuse(
            name,
            declared.name,
            "has an injection inside its type, where it would be the model's to fill; "
            "write `context: ToolContext` or `x: Annotated[T, FromContext('x')]`",
        )
    if bare is ToolContext:
        return Parameter(declared.name, ToolContext, "tool_context", "", ...)
    if not markers:
        return Parameter(declared.name, annotation, "arguments", declared.name, default)
    marker = markers[0]
    return Parameter(
        declared.name, bare, _MARKERS[type(marker)], marker.key, _injected_default(name, declared, marker)
    )


def _hides_injection(annotation: object) -> bool:
    inside = (*members(annotation), *(() if members(annotation) else get_args(annotation)))
    return any(
        unwrap(part) is ToolContext
        or any(type(note) in _MARKERS for note in getattr(part, "__metadata__", ()))
        or _hides_injection(unwrap(part))
        for part in inside
    )


def _injected_default(
    name: str, declared: inspect.Parameter, marker: FromContext | FromCall | FromDeps
) -> object:
    plain = declared.default is not inspect.Parameter.empty
    if isinstance(marker, FromDeps):
        if plain:
            _refuse(name, declared.name, "comes from deps, which has no default: remove the one it has")
        return ...
    if plain and marker.has_default:
        _refuse(name, declared.name, "has two defaults: keep the one in the marker")
    if not plain:
        return marker.default
    try:
        return freeze(declared.default)
    except FreezeError as error:
        raise ValueError(
            _say(name, declared.name, f"is injected, and its default is not JSON: {error}")
        ) from None


def _schema(name: str, parameters: list[Parameter], docs: Mapping[str, str]) -> FrozenDict[Json]:
    ours = [parameter for parameter in parameters if parameter.source == "arguments"]
    for parameter in parameters:  # one at a time, to name the one that has none
        if parameter.source in {"arguments", "context", "call"}:
            _check_type(name, parameter)
    schemas, definitions = schemas_of([parameter.annotation for parameter in ours])
    properties: dict[str, object] = {}
    for parameter, schema in zip(ours, schemas, strict=True):
        described = schema
        if "description" not in schema and docs.get(parameter.name):
            described = {**schema, "description": docs[parameter.name]}
        if not parameter.required:
            described = {**described, "default": _json_default(name, parameter, schema, definitions)}
        properties[parameter.name] = described
    required = [parameter.name for parameter in ours if parameter.required]
    root = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return freeze_mapping({**root, "$defs": definitions} if definitions else root, "schema")


def _check_type(name: str, parameter: Parameter) -> None:
    try:
        schemas_of([parameter.annotation])
    except Exception as error:  # noqa: BLE001  # msgspec and pydantic raise what they like; all mean "no schema"
        hint = (
            ""
            if parameter.source == "arguments"
            else f"; its value comes from the {parameter.source} as JSON"
        )
        reason = " ".join(str(error).split())[:300]
        _refuse(
            name,
            parameter.name,
            f"has a type without JSON Schema, {parameter.annotation!r:.200}{hint} ({reason})",
        )


def _json_default(
    name: str, parameter: Parameter, schema: Mapping[str, object], definitions: Mapping[str, object]
) -> Json:
    import msgspec  # noqa: PLC0415  # 20 ms that only a process with typed tools needs

    def dump(value: object) -> object:
        if hasattr(value, "model_dump"):
            return value.model_dump(mode="json")
        raise TypeError(
            f"{type(value).__qualname__} is none of JSON, datetime, enum, attrs, dataclass, pydantic"
        )

    try:
        built = msgspec.to_builtins(parameter.default, enc_hook=dump, str_keys=True, order="deterministic")
        default = freeze(built)
    except (TypeError, ValueError) as error:
        raise ValueError(
            _say(
                name,
                parameter.name,
                f"has a default that JSON cannot carry, {parameter.default!r:.80} ({error})",
            )
        ) from None
    if not compile_schema({**schema, "$defs": definitions}).is_valid(thaw(default)):
        _refuse(
            name,
            parameter.name,
            f"has the default {parameter.default!r:.80}, which is no {parameter.annotation!r:.80}; "
            "annotate what it is, as in `int | None = None`",
        )
    return default


def _say(name: str, parameter: str, problem: str) -> str:
    return f"{name}(): parameter {parameter!r} {problem}"


def _refuse(name: str, parameter: str, problem: str) -> NoReturn:
    raise TypeError(_say(name, parameter, problem))
