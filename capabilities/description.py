"""Description: a capability's configuration as data, for logs, resumed runs and dumped lists."""

from collections.abc import Callable, Mapping
from enum import Enum

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


def kind_of(cls: type) -> str:
    """Return `module:qualname` of a class."""
    return f"{cls.__module__}:{cls.__qualname__}"


def describe(capability: AnyCapability) -> Description:
    """Describe a capability by its attrs fields; never raises."""
    config: list[tuple[str, Json]] = []
    complete = "<locals>" not in type(capability).__qualname__
    for field in fields(type(capability)):
        if field.name == "key" or (field.name == "members" and isinstance(capability, Group)):
            continue
        value, whole = _as_json(getattr(capability, field.name))
        complete = complete and whole
        config.append((field.name, value))
    inside = capability.members if isinstance(capability, Group) else ()
    members = tuple(member.describe() for member in inside)
    complete = complete and all(member.complete for member in members)
    return Description(kind_of(type(capability)), capability.key, FrozenDict(config), complete, members)


def _as_json(value: object) -> tuple[Json, bool]:
    """Return a value as JSON, and whether nothing was lost. Tags such as `$set` tell what JSON cannot."""
    if type(value) is not FrozenDict and not isinstance(value, Mapping | list | tuple):
        try:
            return freeze(value), True
        except FreezeError:
            return _tagged(value)
    if isinstance(value, Mapping):
        if not all(type(key) is str for key in value):
            return _opaque(value)
        parts = {key: _as_json(member) for key, member in value.items()}
        made = FrozenDict((key, part) for key, (part, _) in parts.items())
        whole = all(kept for _, kept in parts.values())
        # A mapping that looks like a tag must not be read as one.
        return (FrozenDict({"$json": made}) if any(key.startswith("$") for key in made) else made), whole
    items = [_as_json(item) for item in value]
    return FrozenList(item for item, _ in items), all(whole for _, whole in items)


def _tagged(value: object) -> tuple[Json, bool]:
    if isinstance(value, Secret):
        return FrozenDict({"$secret": value.name}), True
    if isinstance(value, frozenset | set):
        items = [_as_json(item) for item in value]
        ordered = sorted((item for item, _ in items), key=canonical)
        return FrozenDict({"$set": FrozenList(ordered)}), all(whole for _, whole in items)
    if isinstance(value, Capability):
        described = value.describe()
        return freeze({"$capability": _plain(described)}), described.complete
    if isinstance(value, Enum):
        member, whole = _as_json(value.value)
        return freeze({"$enum": kind_of(type(value)), "value": member}), whole
    if isinstance(value, type):
        return _function(value)
    if has(type(value)):
        # What attrs makes is an AttrsInstance, which `has` does not tell mypy about an `object`.
        names = [field.name for field in fields(type(value))]  # type: ignore[arg-type]  # see above
        parts = {name: _as_json(getattr(value, name)) for name in names}
        record = {name: part for name, (part, _) in parts.items()}
        whole = "<locals>" not in type(value).__qualname__ and all(kept for _, kept in parts.values())
        return freeze({"$record": kind_of(type(value)), "fields": record}), whole
    if callable(value):
        return _function(value)
    return _opaque(value)


def _opaque(value: object) -> tuple[Json, bool]:
    return FrozenDict({"$object": kind_of(type(value))}), False


def _function(value: Callable[..., object]) -> tuple[Json, bool]:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return _opaque(value)
    importable = "<" not in name and getattr(value, "__self__", None) is None
    return FrozenDict({"$function": f"{module}:{name}"}), importable


def _plain(described: Description) -> dict[str, object]:
    return {
        "kind": described.kind,
        "key": described.key,
        "config": described.config,
        "members": [_plain(member) for member in described.members],
    }
