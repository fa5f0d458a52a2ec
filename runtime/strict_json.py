"""The one reader of JSON text: to frozen JSON, or to everything that makes it no good JSON, with paths.

Pure, and never raises, whatever the text. Knows nothing of what the JSON means.
"""

import json
import math
from collections.abc import Iterator
from typing import Final, NoReturn

from attrs import frozen

from ..capabilities.frozen import FreezeError, FrozenDict, Json, freeze, frozen_dict
from .problems import Found, Path, kind_of


def read(text: str, max_depth: int, *, utf8: bool, an_object: bool = False) -> tuple[Json, tuple[Found, ...]]:
    """Return the JSON value of a text and no problems, or None and all problems, in no fixed order.

    Strict: one value and nothing after it, no duplicate keys at any level, no NaN or infinity, no number that
    other programs could not read back, at most `max_depth` nested arrays and objects: a fixed bound, so that
    it does not depend on the stack. `utf8`: no half surrogate pair either. `an_object`: nothing else at the
    top. Never raises.
    """
    # The fast way decides nothing: whatever it does not like, or cannot be sure of, `_explain` judges.
    shallow = len(text) <= max_depth or text.count("[") + text.count("{") <= max_depth
    if shallow and (not utf8 or ("\\u" not in text and (text.isascii() or has_utf8(text)))):
        try:
            # What `decode` calls, without its two searches for white space.
            found, end = _scan(text)
            value = found if type(found) is FrozenDict else freeze(found)
        except (ValueError, RecursionError, StopIteration):
            return _explain(text, max_depth, utf8, an_object)
        if end == len(text) and (not an_object or type(value) is FrozenDict):
            return value, ()
    return _explain(text, max_depth, utf8, an_object)


def unreadable(document: object, max_depth: int, *, utf8: bool) -> Iterator[Found]:
    """Yield what no later step could work with; with a stack of its own, so that depth is no danger."""
    stack: list[tuple[Path, object]] = [((), document)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, _Bad):
            yield path, value.message
        elif isinstance(value, str):
            if utf8 and not has_utf8(value):
                yield path, "holds half of a surrogate pair, which has no UTF-8"
        elif isinstance(value, _Object | dict | list | tuple):
            if len(path) >= max_depth:
                yield (), too_deep(max_depth)
                return
            if isinstance(value, list | tuple):
                stack.extend(((*path, i), item) for i, item in enumerate(value))
                continue
            pairs = value.pairs if isinstance(value, _Object) else list(value.items())
            seen: set[str] = set()
            for key, item in pairs:
                if key in seen:
                    yield (*path, key), "is given more than once"
                elif utf8 and not has_utf8(key):
                    yield (*path, key), "is a key with half of a surrogate pair, which has no UTF-8"
                seen.add(key)
                stack.append(((*path, key), item))


def too_deep(max_depth: int) -> str:
    """Say that a value is nested too deeply."""
    return f"is nested more than {max_depth} levels deep"


def is_deeper(value: object, max_depth: int) -> bool:
    """Tell whether arrays and objects are nested more than `max_depth` levels deep; a cycle is."""
    level: list[object] = [value]
    for _ in range(max_depth):
        # By identity: one that stands in many places is looked into once per level, or a few nested lists
        # that hold another twice would be millions.
        inside = {
            id(member): member
            for holder in level
            if isinstance(holder, dict | list | tuple)
            for member in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(member, dict | list | tuple)
        }
        if not inside:
            return False
        level = list(inside.values())
    return True


def has_utf8(text: str) -> bool:
    """Tell whether a text can be encoded: half a surrogate pair cannot."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


@frozen
class _Bad:
    """Stands in a decoded document where a value would that JSON does not have."""

    message: str


@frozen
class _Object:
    """An object in which keys may occur twice."""

    pairs: list[tuple[str, object]]


def _scan(text: str) -> tuple[object, int]:
    """Do what `_SCAN` does; of one flat object without a list of its pairs, which saves 6,000 instructions a call.

    Each key is followed by a colon: a mapping with as many keys as the text has colons has each of them once, and
    holds no other mapping that has keys.
    """
    found, end = _SCAN_PLAIN(text, 0)
    if type(found) is not dict or len(found) != text.count(":"):
        found, end = _SCAN(text, 0)
        return found, end
    return _frozen_if_simple(frozen_dict(found)), end


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made: FrozenDict[object] = FrozenDict(pairs)
    if len(made) != len(pairs):
        raise ValueError("duplicate key")
    return _frozen_if_simple(made)


def _frozen_if_simple(made: FrozenDict[object]) -> dict[str, object]:
    for value in made.values():
        kind = type(value)
        if kind in _FROZEN or (kind is int and _LEAST < value < _MOST):  # type: ignore[operator]  # an int
            continue
        return dict(made)  # floats, lists and long integers are for `freeze` to judge
    return made  # frozen as it is, which saves 2 us of the usual call


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _integer(digits: str) -> object:
    try:
        value = int(digits)
        freeze(value)
    except ValueError:
        return _Bad(f"is an integer of {len(digits)} digits: too long")
    return value


def _float(text: str) -> object:
    value = float(text)
    return value if math.isfinite(value) else _Bad("is a number beyond the range of a double")


def _constant(name: str) -> object:
    return _Bad(f"{name} is not JSON")


_FROZEN: Final = frozenset({str, bool, type(None), FrozenDict})
_LEAST: Final = -(1 << 64)
_MOST: Final = 1 << 64
_FAST: Final = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_constant)
_SCAN: Final = _FAST.scan_once  # type: ignore[attr-defined]  # there since Python 2.6, but not in typeshed
_SCAN_PLAIN: Final = json.JSONDecoder(parse_constant=_no_constant).scan_once  # type: ignore[attr-defined]  # likewise
_SLOW: Final = json.JSONDecoder(
    object_pairs_hook=_Object, parse_constant=_constant, parse_int=_integer, parse_float=_float
)


def _explain(
    text: str,
    max_depth: int,
    utf8: bool,  # noqa: FBT001  # handed on by `read`, where both are named
    an_object: bool,  # noqa: FBT001  # as above
) -> tuple[Json, tuple[Found, ...]]:
    try:
        document = _SLOW.decode(text)
    except RecursionError:
        return None, (((), too_deep(max_depth)),)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        return None, (((), f"is not valid JSON: {error.msg} ({where})" if text else "is empty"),)
    if an_object and not isinstance(document, _Object):
        wrong = f"must be a JSON object, not {kind_of(document)}"
        return None, (*(((), one.message) for one in (document,) if isinstance(one, _Bad)), ((), wrong))
    found = tuple(unreadable(document, max_depth, utf8=utf8))
    if found:
        return None, found
    try:
        return freeze(_plain(document)), ()
    except FreezeError as error:  # nothing known gets here; a new rule of `freeze` would
        return None, (((), str(error)),)


def _plain(value: object) -> object:
    if isinstance(value, _Object):
        return {key: _plain(item) for key, item in value.pairs}
    return [_plain(item) for item in value] if isinstance(value, list) else value
