"""Deep-frozen JSON: the only kind of data that records hold by value.

Knows nothing of messages, tools or runs. A frozen value equals the plain one, is ordered, hashable,
picklable and serialisable by every JSON library as it is; an edit anywhere inside it raises.
"""

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NoReturn, Self, TypeAlias, TypeVar, Union

from attrs import fields_dict, has

if TYPE_CHECKING:
    import hashlib

Json: TypeAlias = Union[bool, int, float, str, "FrozenList", "FrozenDict[Json]", None]
V = TypeVar("V")

# json refuses integers of more than 4,300 digits (sys.int_info.default_max_str_digits): 4,214 are left.
_MAX_BITS = 14_000
# The narrowest of the libraries that read our JSON, in Rust and in C, refuse more than 250 levels.
MAX_DEPTH = 200
_SCALARS = frozenset({str, int, bool, type(None)})


class FreezeError(ValueError):
    """A value that JSON cannot carry; `path` says where it stands, as in `$.rows[2].price`."""

    def __init__(self, message: str, path: str = "$") -> None:
        """Raise for the value at `path`."""
        super().__init__(f"{path}: {message}")
        self.message = message
        self.path = path

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        """Pickle by what it was built from."""
        return (type(self), (self.message, self.path))

    def below(self, step: str | int) -> "FreezeError":
        """Return the error as seen from the container that holds the value under `step`."""
        return type(self)(self.message, f"${_place(step)}{self.path[1:]}")


def _place(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if step.isidentifier() else f'["{step:.100}"]'


def _refuse(self: object, *args: object, **keywords: object) -> NoReturn:
    kind = "mapping" if isinstance(self, dict) else "list"
    raise TypeError(f"this {kind} is frozen: build a new value instead, as in freeze({{**old, 'x': 1}})")


# Found on the class at each call, these two would cost 600 instructions more; a step makes three of them.
_new_dict, _fill = dict.__new__, dict.update


class FrozenDict(dict[str, V]):
    """A read-only mapping. Built by `freeze`; the constructor takes values that are frozen already.

    A dict subclass, since json, orjson, msgspec and jsonschema take it as it is and comparing costs
    45 ns; a `Mapping` of our own is refused by the first and costs 99 ns.
    """

    __slots__ = ("_hash",)
    _hash: int

    def __new__(cls, items: Mapping[str, V] | Iterable[tuple[str, V]] = ()) -> Self:
        """Make a frozen mapping of `items`, in their order."""
        self = _new_dict(cls)
        _fill(self, items)
        return self

    if not TYPE_CHECKING:
        # Does nothing, in C: a second call on a finished mapping must not change it.
        __init__ = object.__init__

    def __hash__(self) -> int:  # type: ignore[override]  # a plain dict has none
        """Hash the items, whatever their order; kept after the first call."""
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", hash(frozenset(self.items())))
            return self._hash

    def __reduce__(self) -> tuple[type, tuple[dict[str, V]]]:
        """Pickle as the class and a plain dict."""
        return (type(self), (dict(self),))

    def __copy__(self) -> Self:
        """Return the same object: it cannot change."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        """Return the same object: it cannot change."""
        return self

    def assoc(self, key: str, value: V) -> "FrozenDict[V]":
        """Return a new mapping in which `key` maps to `value`, which is frozen already."""
        new = frozen_dict(self)
        dict.__setitem__(new, key, value)
        return new

    # Every method of dict that writes.
    __setitem__ = __delitem__ = __ior__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse


def frozen_dict(items: dict[str, V]) -> FrozenDict[V]:
    """Do what `FrozenDict(items)` does, at 1,500 instructions less: no class is called. For what each step makes."""
    made: FrozenDict[V] = _new_dict(FrozenDict)
    _fill(made, items)
    return made


class FrozenList(list["Json"]):
    """A read-only JSON array: a list subclass, since a tuple neither equals a list nor counts as an array."""

    __slots__ = ("_hash",)
    _hash: int

    def __new__(cls, items: Iterable["Json"] = ()) -> Self:
        """Make a frozen array of `items`, which are frozen already."""
        self = list.__new__(cls)
        list.extend(self, items)
        return self

    if not TYPE_CHECKING:
        # Does nothing, in C: a second call on a finished array must not change it.
        __init__ = object.__init__

    def __hash__(self) -> int:  # type: ignore[override]  # a plain list has none
        """Hash the items in order; kept after the first call."""
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", hash(tuple(self)))
            return self._hash

    def __reduce__(self) -> tuple[type, tuple[list["Json"]]]:
        """Pickle as the class and a plain list."""
        return (type(self), (list(self),))

    def __copy__(self) -> Self:
        """Return the same object: it cannot change."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        """Return the same object: it cannot change."""
        return self

    # Every method of list that writes.
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = remove = pop = clear = sort = reverse = _refuse


EMPTY: FrozenDict[Json] = FrozenDict()


def freeze(value: object) -> Json:
    """Return `value` deep-frozen; a frozen value comes back as the identical object.

    Mappings become `FrozenDict`, lists and tuples `FrozenList`; scalars pass.
    Raises `FreezeError` (a ValueError) with the path of the first thing that JSON cannot carry: NaN,
    infinity, a key that is no string, any other type, more than 200 levels (a value inside itself).
    """
    return _freeze(value, 0)


def freeze_mapping(value: object, what: str) -> FrozenDict[Json]:
    """Freeze a mapping; anything else is a TypeError that names `what`."""
    if type(value) is FrozenDict:
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} must be a mapping of JSON values, not {type(value).__name__}")
    try:
        frozen = freeze(value)
    except FreezeError as error:
        error.add_note(f"in {what}")
        raise
    assert isinstance(frozen, FrozenDict)
    return frozen


def _freeze(value: object, depth: int) -> Json:
    # Each branch has checked the exact type, which mypy does not narrow by `kind`.
    kind = type(value)
    if kind in _SCALARS:
        if kind is int and value.bit_length() > _MAX_BITS:  # type: ignore[attr-defined]  # see above
            raise FreezeError("an integer of more than 4,200 digits cannot be written as JSON")
        return value  # type: ignore[return-value]  # see above
    if kind is FrozenDict or kind is FrozenList:
        return value  # type: ignore[return-value]  # see above
    if kind is float:
        if not math.isfinite(value):  # type: ignore[arg-type]  # see above
            raise FreezeError(f"{value} is not JSON: use None or a string")
        return value  # type: ignore[return-value]  # see above
    if depth >= MAX_DEPTH:
        raise FreezeError(f"nested more than {MAX_DEPTH} levels deep, or contains itself")
    if isinstance(value, Mapping):
        return _freeze_items(value, depth + 1)
    if isinstance(value, list | tuple):
        return _freeze_array(value, depth + 1)
    name = f"{kind.__module__}.{kind.__qualname__}"
    raise FreezeError(f"{name} is not JSON: use None, bool, int, float, str, a list or a mapping")


def _freeze_items(value: Mapping[object, object], depth: int) -> FrozenDict[Json]:
    items: list[tuple[str, Json]] = []
    key = ""
    try:
        for key, member in value.items():  # type: ignore[assignment]  # the next line makes it a str
            if type(key) is not str:
                raise FreezeError(f"a key must be a string, not {key!r:.80}")
            items.append((key, _freeze(member, depth)))
    except FreezeError as error:
        raise (error.below(key) if type(key) is str else error) from None
    return FrozenDict(items)


def _freeze_array(value: Iterable[object], depth: int) -> FrozenList:
    items: list[Json] = []
    try:
        for member in value:
            items.append(_freeze(member, depth))  # noqa: PERF401  # how many there are names the place
    except FreezeError as error:
        raise error.below(len(items)) from None
    return FrozenList(items)


def json_problem(value: object) -> str | None:
    """Say what in a value that looks frozen is not, or None: the constructors take members on trust.

    A list inside could be changed after every check, and an object could not be written down.
    """
    for member in _members(value):
        if isinstance(member, dict | list) and type(member) not in {FrozenDict, FrozenList}:
            return f"it holds a {type(member).__name__}, which can change: use freeze(...)"
        problem = json_problem(member)
        if problem is not None:
            return problem
    try:
        freeze(value)
    except FreezeError as error:
        return error.message
    return None


def _members(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def thaw(value: object) -> object:
    """Return `value` with plain dicts and lists in place of frozen ones, all of them new."""
    if isinstance(value, dict):
        return {key: thaw(member) for key, member in value.items()}
    if isinstance(value, list):
        return [thaw(member) for member in value]
    return value


def same(a: object, b: object) -> bool:
    """Tell whether two values are equal in type and value, all the way down: `1`, `True`, `1.0` are three.

    Plain `==` calls those three equal, so a hook that swaps one for another would pass for silent.
    The order of keys is no part of a mapping's value.
    """
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind in _SCALARS:
        return a == b
    if isinstance(a, float) and isinstance(b, float):  # 0.0 and -0.0 are equal, but two texts
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, set | frozenset) and isinstance(b, set | frozenset):
        equal = {member: member for member in b}
        return len(a) == len(b) and all(member in equal and same(member, equal[member]) for member in a)
    names = _compared(kind)
    if names is None:
        return bool(a == b)
    return all(same(getattr(a, name), getattr(b, name)) for name in names)


def _compared(kind: type) -> list[str] | None:
    if has(kind):
        return [name for name, field in fields_dict(kind).items() if field.eq]
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind) if field.compare]
    return None


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical(value: object) -> str:
    """Return the one JSON text of a JSON value: keys sorted, no spaces, ASCII only.

    Non-ASCII is escaped so that a lone surrogate, which a model can send, has a text too.
    """
    return _CANONICAL.encode(value)


def digest(value: object) -> str:
    """Return the SHA-256 of the canonical text of a JSON value, as 64 hexadecimal digits."""
    return sha256(canonical(value).encode())


def is_finite(value: float) -> bool:
    """Tell whether a number is one as a double: no NaN, no infinity, and no integer beyond their range."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def sha256(data: bytes) -> str:
    """Return the SHA-256 of bytes, as 64 hexadecimal digits."""
    return _hasher()(data).hexdigest()


@functools.cache
def _hasher() -> "Callable[[bytes], hashlib._Hash]":
    import hashlib  # noqa: PLC0415  # with OpenSSL below it 6 ms of the import, and a digest comes much later

    return hashlib.sha256
