"""Capability lists as text: dumped from their descriptions, and loaded again with only what was allowed.

A text is data, not code: loading looks names up among the classes and functions that the caller allowed and
those of `capfold.capabilities`. Nothing else is constructed, called or imported, whatever the text says.
Knows nothing of agents or runs.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import Any, Final

from attrs import fields, has

from ..capabilities.capability import AnyCapability, Capability
from ..capabilities.combinators import Group
from ..capabilities.description import as_json, is_config
from ..capabilities.frozen import FrozenDict, FrozenList, Json, same
from ..capabilities.scopes import capability_list
from ..capabilities.secret import Secret
from .allowed import Allowed, Loader, class_of, fail, function_of, loader_of
from .codec import envelope, open_envelope
from .errors import message_of
from .problems import Path

KIND: Final = "capabilities"
_PARTS: Final = {"kind", "key", "config", "members"}


def dump_capabilities(capabilities: Iterable[AnyCapability]) -> str:
    """Return a capability list as text, from which `load_capabilities` builds an equal one.

    Raises ValueError naming capability and field for a configuration that its description does not hold
    whole: lambdas, local classes, objects of classes without attrs. Secrets are written by name.
    """
    written = []
    for capability in capability_list(capabilities, "capabilities"):
        described = capability.describe()
        if not described.complete:
            raise ValueError(f"{_incomplete(capability)}, so the list cannot be dumped")
        written.append(described.to_json())
    return envelope(KIND, FrozenList(written))


def _incomplete(capability: AnyCapability) -> str:
    if isinstance(capability, Group):
        for member in capability.members:
            if not member.describe().complete:
                return _incomplete(member)
    kind = type(capability)
    for field in fields(kind):
        value = getattr(capability, field.name)
        if is_config(capability, field.name) and not as_json(value)[1]:
            # Never the value itself: it may be a secret, or have no repr.
            return f"{capability.key}.{field.name} ({kind.__name__}) holds {_inside(value)} that has no name"
    if "<locals>" in kind.__qualname__:
        return f"{capability.key}: its class {kind.__qualname__} is local to a function"
    return f"{capability.key} ({kind.__name__}) says that its description is not complete"


def _inside(value: object) -> str:
    name = type(value).__name__
    return f"a {name}" if not isinstance(value, tuple | frozenset | Mapping) else f"something in a {name}"


def load_capabilities(text: str, *, allowed: Collection[Allowed]) -> tuple[AnyCapability, ...]:
    """Return the capability list of a text that `dump_capabilities` wrote.

    `allowed`: the classes (capabilities, records and enums in their configuration) that may be built, and
    functions that may be referred to; those of `capfold.capabilities` always may. Allowing a class allows
    the plain functions of its module, which is loaded already: put a class that must not vouch for its
    neighbors into a module of its own. No module but those of `capfold.capabilities` is ever imported.
    Raises CodecError (a ValueError) naming the place: for what is not allowed, for a missing or unknown
    field, for what a constructor refuses, and when what was built would not be described by the same text.
    """
    listed = open_envelope(text, KIND, tuple[Json, ...])
    assert isinstance(listed, tuple)
    loader = loader_of(allowed)
    return tuple(_capability(loader, one, (i,)) for i, one in enumerate(listed))


# --- values


def _capability(loader: Loader, data: Json, path: Path) -> AnyCapability:
    if not isinstance(data, FrozenDict) or data.keys() != _PARTS:
        raise fail(path, f"must be an object with {', '.join(sorted(_PARTS))}")
    kind, key, config, members = data["kind"], data["key"], data["config"], data["members"]
    cls = class_of(loader, kind, (*path, "kind"))
    if not issubclass(cls, Capability):
        raise fail((*path, "kind"), f"{kind} is no capability")
    if not isinstance(config, FrozenDict) or not isinstance(members, FrozenList):
        raise fail(path, "config must be an object, and members an array")
    given: dict[str, object] = {"key": key}
    if issubclass(cls, Group):
        given["members"] = tuple(
            _capability(loader, member, (*path, "members", i)) for i, member in enumerate(members)
        )
    elif members:
        raise fail((*path, "members"), f"{cls.__name__} is no combinator")
    what = f"{key!r:.60} ({cls.__name__})"
    arguments = given | _arguments(loader, cls, config, what, (*path, "config"))
    made = _built(cls, arguments, what, (*path, "config"))
    assert isinstance(made, Capability)
    if not same(made.describe().to_json(), data):
        raise fail(path, f"{what} was not built as the text describes it")
    return made


def _arguments(
    loader: Loader, cls: Any, data: FrozenDict[Json], what: str, path: Path
) -> dict[str, object]:  # Any: an attrs class, whose parameters are its fields
    """Return the keyword arguments for the fields of a class: all of them must be there, and nothing else."""
    capability = issubclass(cls, Capability)
    given = {"key", *(["members"] if issubclass(cls, Group) else [])} if capability else set()
    taken = [field for field in fields(cls) if field.name not in given]
    aliases = {field.name: field.alias for field in taken if field.init}
    names = {field.name for field in taken if field.init or capability}
    for name in sorted(names - data.keys()):
        raise fail((*path, name), f"{what} needs the field {name!r}, which is missing")
    for name in sorted(data.keys() - names):
        raise fail(
            (*path, name), f"{what} has no field {name!r}; it has {', '.join(sorted(names)) or 'none'}"
        )
    return {alias: _value(loader, data[name], (*path, name)) for name, alias in aliases.items()}


def _built(cls: Callable[..., object], arguments: dict[str, object], what: str, path: Path) -> object:
    try:
        return cls(**arguments)
    except Exception as error:  # constructors and validators of the user's own classes
        raise fail(path, f"{what} cannot be built: {type(error).__name__}: {message_of(error)}") from error


def _value(loader: Loader, data: Json, path: Path, *, in_json: bool = False) -> object:
    """Return the value that `as_json` wrote."""
    if isinstance(data, FrozenList):
        return _array(loader, data, path, in_json=in_json)
    if not isinstance(data, FrozenDict):
        return data
    tag = next((key for key in data if key.startswith("$")), None)
    if tag is None:
        return _mapping(loader, data, path)
    try:
        read, companions = _TAGS[tag]
    except KeyError:
        raise fail(path, f"{tag!r:.40} is no tag; there are {', '.join(sorted(_TAGS))}") from None
    if data.keys() != {tag, *companions}:
        raise fail(
            path, f"{tag} stands with {', '.join(companions) or 'nothing'}, not with {', '.join(data)}"[:300]
        )
    return read(loader, data, path)


def _array(loader: Loader, data: Json, path: Path, *, in_json: bool) -> object:
    if not isinstance(data, FrozenList):
        raise fail(path, "must be an array")
    items = [_value(loader, item, (*path, i), in_json=in_json) for i, item in enumerate(data)]
    # What a frozen list holds was encoded as JSON, tags apart, and is frozen again by being built.
    return FrozenList(items) if in_json else tuple(items)  # type: ignore[arg-type]  # see above


def _mapping(loader: Loader, data: Json, path: Path) -> FrozenDict[object]:
    if not isinstance(data, FrozenDict):
        raise fail(path, "must be an object")
    return FrozenDict(
        {key: _value(loader, member, (*path, key), in_json=True) for key, member in data.items()}
    )


def _set(loader: Loader, data: FrozenDict[Json], path: Path) -> object:
    items = _array(loader, data["$set"], (*path, "$set"), in_json=False)
    assert isinstance(items, tuple)
    return frozenset(items)


def _secret(_: Loader, data: FrozenDict[Json], path: Path) -> object:
    name = data["$secret"]
    if type(name) is not str:
        raise fail(path, "a secret is the name of an environment variable")
    return Secret(name)


def _enum(loader: Loader, data: FrozenDict[Json], path: Path) -> object:
    cls = class_of(loader, data["$enum"], path)
    value = _value(loader, data["value"], (*path, "value"))
    if issubclass(cls, Enum):
        for member in cls:
            if same(member.value, value):
                return member
    raise fail(path, f"{cls.__name__} has no member with the value {value!r:.60}")


def _record(loader: Loader, data: FrozenDict[Json], path: Path) -> object:
    cls = class_of(loader, data["$record"], path)
    values = data["fields"]
    if not has(cls) or issubclass(cls, Capability) or not isinstance(values, FrozenDict):
        raise fail(path, f"{cls.__name__} is no record, or its fields are no object")
    arguments = _arguments(loader, cls, values, cls.__name__, (*path, "fields"))
    return _built(cls, arguments, cls.__name__, path)


_Reader = Callable[[Loader, FrozenDict[Json], Path], object]
# Tag -> how its value is read, and what stands beside it: what `description` writes.
_TAGS: Final[Mapping[str, tuple[_Reader, tuple[str, ...]]]] = {
    "$json": (lambda loader, data, path: _mapping(loader, data["$json"], (*path, "$json")), ()),
    "$list": (lambda loader, data, path: _array(loader, data["$list"], (*path, "$list"), in_json=True), ()),
    "$tuple": (
        lambda loader, data, path: _array(loader, data["$tuple"], (*path, "$tuple"), in_json=False),
        (),
    ),
    "$set": (_set, ()),
    "$secret": (_secret, ()),
    "$enum": (_enum, ("value",)),
    "$record": (_record, ("fields",)),
    "$function": (lambda loader, data, path: function_of(loader, data["$function"], path), ()),
    "$capability": (lambda loader, data, path: _capability(loader, data["$capability"], path), ()),
}
