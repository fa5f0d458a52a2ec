"""Records that a Literal field tells apart: in a union of them no tag is written, that field is one already.

Knows nothing of how a record itself is read or written.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, get_origin

from attrs import frozen
from cattrs import Converter

from ..capabilities.json_schema import unwrap
from ..capabilities.record_fields import record_fields
from .codec_types import Read


@frozen
class Discriminator:
    """The field `name`, and which class each of its values stands for."""

    name: str
    kinds: Mapping[str, object]


def discriminator(records: Iterable[object]) -> Discriminator | None:
    """Return the first field that all records must have, each with strings of its own for it; None without one."""
    listed = list(records)
    if len(listed) < 2:  # noqa: PLR2004  # one has nothing to be told from
        return None
    told = [_told(kind) for kind in listed]
    for name in told[0]:
        pairs = [(text, kind) for kind, one in zip(listed, told, strict=True) for text in one.get(name, ())]
        kinds = dict(pairs)
        if len(kinds) == len(pairs) and all(one.get(name) for one in told):
            return Discriminator(name, kinds)
    return None


def literal_reader(codec: Converter, told: Discriminator) -> Read:
    """Return the hook that reads the class that the field says."""

    def read(value: object, _: object) -> object:
        said = value.get(told.name) if isinstance(value, dict) else None
        kind: Any = told.kinds.get(said) if type(said) is str else None  # Any: a record class
        if kind is None:
            legal = ", ".join(map(repr, told.kinds))
            raise ValueError(f"must be an object whose {told.name!r} is one of {legal}; not {said!r:.60}")
        return codec.get_structure_hook(kind)(value, kind)

    return read


def _told(kind: object) -> dict[str, tuple[str, ...]]:
    """Return the strings that each required field may be, () for one that is no Literal of strings."""
    try:
        return {one.name: _texts(one.annotation) for one in record_fields(kind) if one.is_required}
    except NameError:
        return {}  # an annotation that only the codec resolves, as `Json`, which names itself: a tag is written


def _texts(annotation: object) -> tuple[str, ...]:
    bare = unwrap(annotation)
    values = get_args(bare) if get_origin(bare) is Literal else ()
    return values if all(type(one) is str for one in values) else ()
