"""Description: a capability's configuration as data, for logs, resumed runs and dumped lists."""

import sys
from collections.abc import Callable, Mapping
from enum import Enum
from types import ModuleType

from attrs import fields, frozen, has

from .capability import AnyCapability, Capability
from .combinators import Group
from .frozen import EMPTY, FreezeError, FrozenDict, FrozenList, Json, canonical, digest, freeze
from .secret import Secret


@frozen
class Description:
    """What a capability is. `kind`: module:qualname of its class; `config`: its fields as JSON, `key` apart.

    `complete`: the config holds all of it, so that `load_capabilities` can build an equal one.
    `members`: the descriptions of capabilities inside it.
    """

    kind: str
    key: str
    config: FrozenDict[Json] = EMPTY
    complete: bool = True
    members: "tuple[Description, ...]" = ()

    @property
    def digest(self) -> str:
        """SHA-256 of the description, by which a resumed run recognizes its capabilities."""
        return digest(
            [self.kind, self.key, self.config, self.complete, [member.digest for member in self.members]]
        )

    def to_json(self) -> FrozenDict[Json]:
        """Return the description as JSON, from which an equal capability is built when it is complete."""
        members = FrozenList(member.to_json() for member in self.members)
        return FrozenDict({"kind": self.kind, "key": self.key, "config": self.config, "members": members})


def kind_of(cls: type) -> str:
    """Return `module:qualname` of a class."""
    return f"{cls.__module__}:{cls.__qualname__}"


def describe(capability: AnyCapability) -> Description:
    """Describe a capability by its attrs fields; never raises."""
    config: list[tuple[str, Json]] = []
    complete = "<locals>" not in type(capability).__qualname__
    for field in fields(type(capability)):
        if not is_config(capability, field.name):
            continue
        held = getattr(capability, field.name)
        try:
            value, whole = as_json(held)
        except RecursionError:
            value, whole = _opaque(held)
        complete = complete and whole
        config.append((field.name, value))
    inside = capability.members if isinstance(capability, Group) else ()
    members = tuple(member.describe() for member in inside)
    complete = complete and all(member.complete for member in members)
    return Description(kind_of(type(capability)), capability.key, FrozenDict(config), complete, members)


def is_config(capability: AnyCapability, name: str) -> bool:
    """Tell whether a field is described in the config: all but the key, and the members of a combinator."""
    return name != "key" and not (name == "members" and isinstance(capability, Group))


def as_json(value: object, *, in_json: bool = False) -> tuple[Json, bool]:
    """Return a value as JSON, and whether nothing was lost. Tags such as `$set` tell what JSON cannot.

    An array stands for a tuple, and inside a mapping or a `$list` (`in_json`) for a frozen list.
    """
    kind = type(value)
    if isinstance(value, Mapping):
        return _mapping(value)
    if kind is tuple or isinstance(value, list):
        assert isinstance(value, tuple | list)
        tag = ("$tuple" if in_json else None) if kind is tuple else (None if in_json else "$list")
        items = [as_json(item, in_json=kind is not tuple) for item in value]
        made = FrozenList(item for item, _ in items)
        whole = (kind is tuple or kind is FrozenList) and all(kept for _, kept in items)
        return (FrozenDict({tag: made}) if tag else made), whole
    if not isinstance(value, tuple):
        try:
            return freeze(value), True
        except FreezeError:
            pass
    return _tagged(value)


def _mapping(value: Mapping[object, object]) -> tuple[Json, bool]:
    if not all(type(key) is str for key in value):
        return _opaque(value)
    parts = {str(key): as_json(member, in_json=True) for key, member in value.items()}
    made = FrozenDict((key, part) for key, (part, _) in parts.items())
    whole = type(value) is FrozenDict and all(kept for _, kept in parts.values())
    # A mapping that looks like a tag must not be read as one.
    return (FrozenDict({"$json": made}) if any(key.startswith("$") for key in made) else made), whole


def _tagged(value: object) -> tuple[Json, bool]:
    if isinstance(value, Secret):
        return FrozenDict({"$secret": value.name}), True
    if isinstance(value, frozenset | set):
        items = [as_json(item) for item in value]
        ordered = sorted((item for item, _ in items), key=canonical)
        whole = type(value) is frozenset and all(kept for _, kept in items)
        return FrozenDict({"$set": FrozenList(ordered)}), whole
    if isinstance(value, Capability):
        described = value.describe()
        return FrozenDict({"$capability": described.to_json()}), described.complete
    if isinstance(value, Enum):
        member, whole = as_json(value.value)
        whole = whole and "<locals>" not in type(value).__qualname__
        return FrozenDict({"$enum": kind_of(type(value)), "value": member}), whole
    if isinstance(value, type):
        return _function(value)
    if has(type(value)):
        # What attrs makes is an AttrsInstance, which `has` does not tell mypy about an `object`.
        items_of = fields(type(value))  # type: ignore[arg-type]  # see above
        parts = {field.name: as_json(getattr(value, field.name)) for field in items_of if field.init}
        record = FrozenDict((name, part) for name, (part, _) in parts.items())
        whole = "<locals>" not in type(value).__qualname__ and all(kept for _, kept in parts.values())
        return FrozenDict({"$record": kind_of(type(value)), "fields": record}), whole
    if callable(value):
        return _function(value)
    return _opaque(value)


def _opaque(value: object) -> tuple[Json, bool]:
    return FrozenDict({"$object": kind_of(type(value))}), False


def _function(value: Callable[..., object]) -> tuple[Json, bool]:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return _opaque(value)
    return FrozenDict({"$function": f"{module}:{name}"}), named(module, name) is value


def named(module: str, qualname: str) -> object:
    """Return what a module that is loaded has under a name; None when it has nothing there.

    Where a decorator of `hook` made a capability of a function, the function.
    """
    found: object = sys.modules.get(module)
    for part in qualname.split("."):
        # Looked up, never evaluated: a property or a module's `__getattr__` could run or import anything.
        found = vars(found).get(part) if isinstance(found, ModuleType | type) else None
    if isinstance(found, staticmethod):
        found = found.__func__
    from .function_hooks import FunctionHook  # noqa: PLC0415  # for the few that hold functions: 4 ms

    return found.function if isinstance(found, FunctionHook) else found
