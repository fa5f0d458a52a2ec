"""TypedDicts in JSON: by their resolved annotations, since `__required_keys__` is wrong where those are text.

Knows nothing of other mappings.
"""

from typing import Any, get_origin

from cattrs import Converter
from cattrs.errors import AttributeValidationNote, ClassValidationError, ForbiddenExtraKeysError

from ..capabilities.record_fields import record_fields
from .codec_types import Read, Write, named


def typed_dict_reader(t: Any, converter: Converter) -> Read:  # Any: a TypedDict, maybe with type arguments
    """Return what reads a TypedDict: each key it must have, no key it does not name, all problems at once."""
    kind = get_origin(t) or t
    fields = record_fields(t)
    names = {one.name for one in fields}

    def read(value: object, _: object) -> object:
        if not isinstance(value, dict):
            raise TypeError(f"must be an object, not {named(value)}")
        made: dict[str, object] = {}
        found: list[Exception] = []
        for one in fields:
            wanted: Any = one.annotation  # Any: cattrs takes types and annotations
            try:
                if one.name in value or one.is_required:
                    made[one.name] = converter.structure(value[one.name], wanted)
            except Exception as error:  # noqa: BLE001  # hooks run constructors of the user's classes
                error.add_note(AttributeValidationNote(f"{kind.__name__}.{one.name}", one.name, wanted))
                found.append(error)
        if extra := value.keys() - names:
            found.append(ForbiddenExtraKeysError("", kind, extra))
        if found:
            raise ClassValidationError(f"while reading {kind.__name__}", found, kind)
        return made

    return read


def typed_dict_writer(t: Any, converter: Converter) -> Write:  # Any: as above
    """Return what writes a TypedDict, the keys that it has; one that it does not name is written as it is."""
    kinds: dict[str, Any] = {one.name: one.annotation for one in record_fields(t)}  # Any: as above
    return lambda value: {name: converter.unstructure(one, kinds.get(name)) for name, one in value.items()}
