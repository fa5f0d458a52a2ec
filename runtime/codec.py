"""The codec: between records and JSON text. The one cattrs converter of the project is made here.

Strict both ways: what comes back is equal in type and value to what was written, or reading fails. A missing
field is an error, never a default, and every failure is a CodecError that names where and all that is wrong.
Knows nothing of what a snapshot, a log line or a dumped list holds.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar, overload

from cattrs import Converter
from cattrs.errors import AttributeValidationNote, ForbiddenExtraKeysError, IterableValidationNote
from cattrs.gen import override

from ..capabilities.call_state import CallState
from ..capabilities.frozen import FreezeError, FrozenDict, Json, canonical, freeze, thaw
from ..capabilities.json_schema import path_text
from ..capabilities.messages import MESSAGES, PARTS, Message, Part
from ..capabilities.run_parts import NamedModel
from ..capabilities.state import RunState
from ..capabilities.tools import Tool
from .codec_tools import tool_reader, write_tool
from .codec_types import register_types
from .codec_unions import Codec, is_record, record_reader, record_writer, register_union, register_unions
from .decisions import DECISIONS, Decision
from .errors import FAMILIES, CodecError, Reason
from .problems import MAX_PROBLEMS, Path, short
from .strict_json import is_deeper, read, too_deep

__all__ = [
    "MAX_DEPTH",
    "SCHEMA_VERSION",
    "CodecError",
    "converter",
    "envelope",
    "from_json",
    "from_text",
    "input_converter",
    "make_converter",
    "open_envelope",
    "register_union",
    "to_json",
    "to_text",
]

SCHEMA_VERSION: Final = 1
MAX_DEPTH: Final = 200  # nested arrays and objects; a fixed bound, so that it does not depend on the stack
R = TypeVar("R")


def make_converter(
    *,
    tools: Mapping[str, Tool] | None = None,
    slot_types: Mapping[str, object] | None = None,
    models: Mapping[str, NamedModel] | None = None,
    output_type: object = None,
    takes_defaults: bool = False,
) -> Codec:
    """Return a converter that resolves names by what is given; always build one, `converter.copy()` loses hooks.

    `tools`: a tool is written as its descriptor and digest and read back by name; a digest that differs is an
    error, but outside an inventory a tool may be tuned (`with_tools`). `models`: by name. `slot_types`: key ->
    type of a capability's slot, by which it is written and read. `output_type`: of a run's output; None reads
    it as frozen JSON. `takes_defaults`: for data of models and people, where a default stands for what is left
    out. Building hooks for a type raises TypeError when its values cannot be told apart in JSON.
    """
    codec = Codec(takes_defaults=takes_defaults)
    codec.register_structure_hook_factory(is_record, lambda t: record_reader(codec, t))
    codec.register_unstructure_hook_factory(is_record, lambda t: record_writer(codec, t))
    register_unions(codec)
    register_types(codec)
    register_union(codec, Part, PARTS)
    register_union(codec, Message, MESSAGES)
    register_union(codec, Decision, DECISIONS)
    register_union(codec, Reason, FAMILIES)
    _register_states(codec, tools or {}, slot_types or {}, models or {}, output_type)
    return codec


# --- RunState and CallState: what is read by name or by another's type


def _register_states(
    codec: Codec,
    tools: Mapping[str, Tool],
    slot_types: Mapping[str, object],
    models: Mapping[str, NamedModel],
    output_type: object,
) -> None:
    def read_model(value: object, _: object) -> NamedModel:
        if type(value) is not str:
            raise TypeError(f"must be the name of a model, not {type(value).__name__}")
        try:
            return models[value]
        except KeyError:
            raise ValueError(f"no model is named {value!r:.60}; known: {_listed(models)}") from None

    def write_slots(slots: FrozenDict[object]) -> dict[str, Json]:
        return {
            key: _written(codec, value, slot_types.get(key), f"$.slots.{key}") for key, value in slots.items()
        }

    def read_slots(value: object, _: object) -> FrozenDict[object]:
        if not isinstance(value, dict):
            raise TypeError(f"must be an object of slots by key, not {type(value).__name__}")
        return FrozenDict(_each(value, lambda key, slot: codec.structure(slot, _slot_type(key))))

    def _slot_type(key: str) -> Any:  # Any: cattrs takes types and annotations
        try:
            return slot_types[key]
        except KeyError:
            raise ValueError(f"no capability has the key {key!r:.60}; known: {_listed(slot_types)}") from None

    def write_output(output: object) -> object:
        return None if output is None else codec.unstructure(output, output_type)

    def read_output(value: object, _: object) -> object:
        if value is None or output_type is None:
            return freeze(value)
        return codec.structure(value, output_type)  # type: ignore[arg-type]  # an annotation may be no class

    listed, tuned = tool_reader(tools, tuned=False), tool_reader(tools, tuned=True)
    codec.register_unstructure_hook_func(lambda t: t is Tool, write_tool)
    codec.register_structure_hook_func(lambda t: t is Tool, tuned)
    codec.register_unstructure_hook_func(lambda t: t is NamedModel, lambda model: model.name)
    codec.register_structure_hook_func(lambda t: t is NamedModel, read_model)

    def read_inventory(value: object, _: object) -> tuple[Tool, ...]:
        if not isinstance(value, list):
            raise TypeError(f"must be an array of tools, not {type(value).__name__}")
        return tuple(tool for _, tool in _each(dict(enumerate(value)), lambda _, one: listed(one, Tool)))

    special = {
        "inventory": override(struct_hook=read_inventory),
        "slots": override(struct_hook=read_slots, unstruct_hook=write_slots),
        "output": override(struct_hook=read_output, unstruct_hook=write_output),
    }
    codec.register_unstructure_hook_factory(
        lambda t: t is RunState, lambda t: record_writer(codec, t, **special)
    )
    codec.register_structure_hook_factory(
        lambda t: t is RunState, lambda t: record_reader(codec, t, **special)
    )


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names)) or "none"


K = TypeVar("K", int, str)


def _each(items: Mapping[K, object], make: Callable[[K, object], R]) -> Iterator[tuple[K, R]]:
    """Make every member, and raise all failures together, each with its key, as cattrs does."""
    made: list[tuple[K, R]] = []
    failed: list[Exception] = []
    for key, value in items.items():
        try:
            made.append((key, make(key, value)))
        except Exception as error:  # noqa: BLE001  # hooks run constructors of the user's classes
            error.add_note(IterableValidationNote(f"at {key!r}", key, None))
            failed.append(error)
    if failed:
        raise ExceptionGroup("while reading", failed)
    return iter(made)


converter: Final = make_converter()
# For what models and people send: arguments, structured output, answers.
input_converter: Final = make_converter(takes_defaults=True)


# --- writing


def to_json(value: object, *, converter: Converter = converter, type: object = None) -> Json:
    """Return a record, or anything the codec knows, as frozen JSON. `type`: its declared type, for unions.

    Raises CodecError with the path of what cannot be carried.
    """
    return _written(converter, value, type, "$")


def _written(converter: Converter, value: object, kind: object, path: str) -> Json:
    try:
        return freeze(converter.unstructure(value, kind))
    except CodecError:
        raise
    except FreezeError as error:
        message = str(error).removeprefix(f"{error.path}: ")
        raise CodecError(message, path + error.path[1:]) from None
    except RecursionError:
        raise CodecError("nested too deeply, or contains itself", path) from None
    except Exception as error:  # whatever a hook raises, the value cannot be carried
        raise CodecError(short(_said(error)), path) from error


def to_text(value: object, *, converter: Converter = converter, type: object = None) -> str:
    """Return the canonical JSON text of a value: keys sorted, no spaces, ASCII only.

    Raises CodecError as `to_json`, and for a value that `from_text` would not read back: nested too deeply.
    """
    written = to_json(value, converter=converter, type=type)
    try:
        text = canonical(written)
    except (TypeError, ValueError, RecursionError):
        text = None
    if text is None:
        # Something was put into a frozen mapping that is no JSON: written out plainly, it is found.
        _written(converter, thaw(written), None, "$")
        raise CodecError("cannot be written as JSON")
    if text.count("[") + text.count("{") > MAX_DEPTH and is_deeper(written, MAX_DEPTH):
        raise CodecError(too_deep(MAX_DEPTH))
    return text


def envelope(kind: str, value: object, *, converter: Converter = converter) -> str:
    """Return the text of a document: schema version, kind and value. Raises CodecError as `to_text`."""
    written = _written(converter, value, None, "$.value")
    return to_text({"capfold": SCHEMA_VERSION, "kind": kind, "value": written}, converter=converter)


# --- reading


@overload
def from_json(data: object, type: type[R], *, converter: Converter = ...) -> R: ...
@overload
def from_json(data: object, type: object, *, converter: Converter = ...) -> object: ...
def from_json(data: object, type: object, *, converter: Converter = converter) -> object:
    """Return the record of `type`, a class or any annotation, that JSON data stands for.

    Raises CodecError with the path of the first problem; its message has all of them.
    """
    return _read(data, type, converter, ())


def _read(data: object, kind: Any, converter: Converter, path: Path) -> Any:  # Any: the caller's type
    if is_deeper(data, MAX_DEPTH):
        raise CodecError(too_deep(MAX_DEPTH), path_text(path))
    try:
        return converter.structure(data, kind)
    except RecursionError:
        raise CodecError("nested too deeply", path_text(path)) from None
    except Exception as error:
        raise _codec_error(list(_problems(error, path))) from error


@overload
def from_text(text: str, type: type[R], *, converter: Converter = ...) -> R: ...
@overload
def from_text(text: str, type: object, *, converter: Converter = ...) -> object: ...
def from_text(text: str, type: object, *, converter: Converter = converter) -> object:
    """Return the record of `type` that a JSON text stands for; strict as `strict_json`.

    Raises CodecError as `from_json`, TypeError when `text` is no string.
    """
    return _read(_parsed(text), type, converter, ())


def _parsed(text: str) -> Json:
    if not isinstance(text, str):
        raise TypeError(f"JSON text is a string, not {type(text).__name__}")
    value, found = read(text, MAX_DEPTH, utf8=False)
    if found:
        raise _codec_error([(path_text(path), message) for path, message in sorted(found, key=str)])
    return value


@overload
def open_envelope(text: str, kind: str, type: type[R], *, converter: Converter = ...) -> R: ...
@overload
def open_envelope(text: str, kind: str, type: object, *, converter: Converter = ...) -> object: ...
def open_envelope(text: str, kind: str, type: object, *, converter: Converter = converter) -> object:
    """Return the value of a document that `envelope` wrote.

    Raises CodecError for another schema version, another kind, and as `from_text`.
    """
    document = _parsed(text)
    if not isinstance(document, FrozenDict) or "capfold" not in document:
        raise CodecError(f"is no capfold document: a {kind!r} document was expected")
    version = document["capfold"]
    if type_of(version) is not int or version != SCHEMA_VERSION:
        raise CodecError(
            f"schema version {version!r:.40} was found; this capfold reads version {SCHEMA_VERSION}",
            "$.capfold",
        )
    if document.get("kind") != kind:
        raise CodecError(f"is a document of kind {document.get('kind')!r:.60}, not {kind!r}", "$.kind")
    extra = sorted(document.keys() - {"capfold", "kind", "value"})
    if extra:
        raise CodecError("is not expected in a document", path_text((extra[0],)))
    if "value" not in document:
        raise CodecError("is missing", "$.value")
    return _read(document["value"], type, converter, ("value",))


type_of = type  # `type` is a parameter in this module, as it is in the wire formats


# --- what went wrong


def _problems(error: BaseException, path: Path) -> Iterator[tuple[str, str]]:
    """Yield path and message of everything in an exception tree of cattrs."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _problems(one, (*path, *_steps(one)))
    elif isinstance(error, ForbiddenExtraKeysError):
        for name in sorted(error.extra_fields):
            yield path_text((*path, name)), f"is no field of {error.cl.__name__}"
    elif isinstance(error, FreezeError | CodecError):
        yield path_text(path) + error.path[1:], str(error).removeprefix(f"{error.path}: ")
    elif isinstance(error, KeyError) and path and error.args == (path[-1],):
        yield path_text(path), "is missing"
    else:
        yield path_text(path), _said(error)


def _steps(error: BaseException) -> Path:
    # The notes of inner steps were added first, but each group holds its members' notes: the last one counts.
    for note in reversed(getattr(error, "__notes__", ())):
        if isinstance(note, AttributeValidationNote):
            return (note.name,)
        if isinstance(note, IterableValidationNote):
            return (note.index,)
    return ()


def _said(error: BaseException) -> str:
    text = str(error) or "cannot be read"
    return text if isinstance(error, TypeError | ValueError) else f"{type_of(error).__name__}: {text}"


def _codec_error(found: list[tuple[str, str]]) -> CodecError:
    (path, message), *rest = found
    others = [f"{where}: {short(text)}" for where, text in rest[:MAX_PROBLEMS]]
    if len(rest) > MAX_PROBLEMS:
        others.append(f"and {len(rest) - MAX_PROBLEMS} more problems")
    return CodecError("; ".join([short(message), *others]), path)
