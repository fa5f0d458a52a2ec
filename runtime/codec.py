"""The codec: between records and JSON text. The one cattrs converter of the project is made here.

Strict both ways: what comes back is equal in type and value to what was written, or reading fails. A missing
field is an error, never a default, and every failure is a CodecError that names where and all that is wrong.
Knows nothing of what a snapshot, a log line or a dumped list holds.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar, overload

from cattrs import Converter

from ..capabilities.frozen import FrozenDict, Json, canonical, thaw
from ..capabilities.json_schema import path_text
from ..capabilities.messages import MESSAGES, PARTS, Message, Part
from ..capabilities.run_parts import NamedModel
from ..capabilities.tools import Tool
from .binding import register_open_unions
from .codec_containers import register_containers
from .codec_errors import codec_error, problems, written
from .codec_records import Codec, is_record, record_reader, record_writer
from .codec_states import Known, register_states
from .codec_types import register_types
from .codec_unions import register_union, register_unions
from .decisions import DECISIONS, Decision
from .errors import FAMILIES, CodecError, Reason
from .problems import Path
from .strict_json import is_deeper, read, too_deep

__all__ = [
    "MAX_DEPTH",
    "SCHEMA_VERSION",
    "Codec",
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
    """Return a converter that resolves names by what is given. Make one anew: `copy()` of one loses hooks.

    `tools`: a tool is written as its descriptor and digest, and read back by name; another digest is an
    error, but outside an inventory a tool may be tuned (`with_tools`). `models`: by name. `slot_types`: by
    key, the type that a capability's slot is written and read by. `output_type`: of a run's output; None
    reads it as frozen JSON. `takes_defaults`: for data of models and people, in which a default stands for
    what is left out.
    """
    codec = Codec(takes_defaults=takes_defaults)
    codec.register_structure_hook_factory(is_record, lambda t: record_reader(codec, t))
    codec.register_unstructure_hook_factory(is_record, lambda t: record_writer(codec, t))
    register_unions(codec)
    if takes_defaults:
        register_open_unions(codec)
    register_types(codec)
    register_containers(codec)
    register_union(codec, Part, PARTS)
    register_union(codec, Message, MESSAGES)
    register_union(codec, Decision, DECISIONS)
    register_union(codec, Reason, FAMILIES)
    known = Known(
        tools=tools or {},
        slot_types={} if slot_types is None else slot_types,
        models=models or {},
        output_type=output_type,
    )
    register_states(codec, known)
    return codec


converter: Final = make_converter()
# For what models and people send: arguments, structured output, answers.
input_converter: Final = make_converter(takes_defaults=True)


# --- writing


def to_json(value: object, *, converter: Converter = converter, type: object = None) -> Json:
    """Return a record, or anything the codec knows, as frozen JSON. `type`: its declared type, for unions.

    Raises CodecError with the path of what cannot be carried.
    """
    return written(converter, value, type, "$")


def to_text(value: object, *, converter: Converter = converter, type: object = None) -> str:
    """Return the canonical JSON text of a value: keys sorted, no spaces, ASCII only.

    Raises CodecError as `to_json`, and for a value that `from_text` would not read back: nested too deeply.
    """
    made = to_json(value, converter=converter, type=type)
    try:
        text = canonical(made)
    except (TypeError, ValueError, RecursionError):
        text = None
    if text is None:
        # Something was put into a frozen mapping that is no JSON: written out plainly, it is found.
        written(converter, thaw(made), None, "$")
        raise CodecError("cannot be written as JSON")
    if text.count("[") + text.count("{") > MAX_DEPTH and is_deeper(made, MAX_DEPTH):
        raise CodecError(too_deep(MAX_DEPTH))
    return text


def envelope(kind: str, value: object, *, converter: Converter = converter) -> str:
    """Return the text of a document: schema version, kind and value. Raises CodecError as `to_text`."""
    made = written(converter, value, None, "$.value")
    return to_text({"capfold": SCHEMA_VERSION, "kind": kind, "value": made}, converter=converter)


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
        raise codec_error(problems(error, path)) from error


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
        raise codec_error((path_text(path), message) for path, message in sorted(found, key=str))
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
    if isinstance(version, bool) or not isinstance(version, int) or version != SCHEMA_VERSION:
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
