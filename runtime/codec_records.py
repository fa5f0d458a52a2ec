"""Records in JSON: every field there is, no other, and the class that was declared.

Knows nothing of which records there are.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, get_origin

from attrs import fields_dict, has, resolve_types
from cattrs import Converter
from cattrs.errors import AttributeValidationNote, ClassValidationError
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn

from ..capabilities.frozen import FrozenDict, FrozenList, Json
from .codec_types import Read, Write

NOTHING: Final[Mapping[str, Any]] = {}  # Any: as cattrs types its own keyword arguments


class Codec(Converter):
    """A cattrs converter that knows which records write a tag, and whether defaults may stand for fields."""

    __slots__ = ("tags", "takes_defaults")

    def __init__(self, *, takes_defaults: bool) -> None:
        super().__init__(forbid_extra_keys=True, detailed_validation=True)
        self.tags: dict[type, str] = {}
        self.takes_defaults = takes_defaults


def is_record(kind: Any) -> bool:  # Any: any annotation may be asked about
    """Tell whether a type is an attrs class or a dataclass, maybe with type arguments."""
    kind = get_origin(kind) or kind
    return has(kind) or (isinstance(kind, type) and dataclasses.is_dataclass(kind))


def field_names(kind: Any) -> list[str]:  # Any: an attrs class or a dataclass
    """Return the names of the fields that a record is built from."""
    found = fields_dict(kind).values() if has(kind) else dataclasses.fields(kind)
    return [field.name for field in found if field.init]


def _resolve(kind: Any) -> None:  # Any: a record class
    """Resolve annotations given as text, as cattrs does, but also where `Json` stands, which names itself."""
    if not has(kind):
        return
    try:
        resolve_types(kind)
    except NameError:
        resolve_types(kind, localns={"FrozenDict": FrozenDict, "FrozenList": FrozenList, "Json": Json})


def record_writer(codec: Codec, kind: Any, special: Mapping[str, Any] = NOTHING) -> Write:  # Any: see below
    """Return what writes a record: a class or an alias of one; `special`: cattrs' `override`s by field.

    A record of a subclass is refused: its own fields would be lost.
    """
    origin = get_origin(kind) or kind
    _resolve(origin)
    inner = make_dict_unstructure_fn(kind, codec, **special)

    def write(value: object) -> object:
        if value.__class__ is not origin:
            raise TypeError(
                f"{type(value).__name__} stands where {origin.__name__} is declared: declare it, or a union"
            )
        return inner(value)

    return write


def record_reader(codec: Codec, kind: Any, special: Mapping[str, Any] = NOTHING) -> Read:  # Any: see above
    """Return what reads a record, and refuses what cattrs lets pass: missing fields, other data than objects.

    cattrs fills a missing field with its default. What the codec wrote has every field: there a missing one
    means that the data is cut or of another version; only where the data comes from people or models
    (`takes_defaults`) a default is one.
    """
    origin = get_origin(kind) or kind
    _resolve(origin)
    inner: Read = make_dict_structure_fn(kind, codec, **special)
    names = [] if codec.takes_defaults else field_names(origin)

    def read(value: object, t: object) -> object:
        if not isinstance(value, dict):
            raise TypeError(
                f"must be an object with the fields of {origin.__name__}, not {type(value).__name__}"
            )
        missing = [name for name in names if name not in value]
        if not missing:
            return inner(value, t)
        found: list[Exception] = []
        for name in missing:
            absent = KeyError(name)
            absent.add_note(AttributeValidationNote(f"{origin.__name__}.{name}", name, None))
            found.append(absent)
        try:
            inner(value, t)
        except ClassValidationError as error:
            found.extend(one for one in error.exceptions if not isinstance(one, KeyError))
        raise ClassValidationError(f"while reading {origin.__name__}", found, origin)

    return read
