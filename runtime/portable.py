"""What may leave the process: slot values and tool results that the codec carries.

Kept apart so that the guards need not know the codec.
"""

from ..capabilities.frozen import FrozenDict, FrozenList

# Immutable and JSON: no need to ask the codec.
_PLAIN = frozenset({int, str, bool, float, type(None), FrozenDict, FrozenList})


def slot_problem(value: object) -> str | None:
    """Say why a value cannot be a slot's, or None: it must be hashable, and the codec must carry it."""
    if type(value) in _PLAIN:
        return None
    try:
        hash(value)
    except TypeError:
        return f"a slot holds an immutable value, and {type(value).__name__} can change: use a tuple or freeze(...)"
    from .codec import to_json  # the codec is needed for rich slot values only
    from .errors import CodecError

    try:
        to_json(value)
    except CodecError as error:
        return f"a slot holds what the codec carries: {error}"
    return None
