"""Capability lists as text: dumped from their descriptions, and loaded again with only what was allowed.

A text is data, not code: loading looks names up among the classes and functions that the caller allowed and
those of `capfold.capabilities`. Nothing else is constructed, called or imported, whatever the text says.
Knows nothing of agents or runs.
"""

import importlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from types import FunctionType
from typing import Any, Final

from attrs import fields, frozen, has

from ..capabilities.capability import AnyCapability, Capability
from ..capabilities.combinators import Group
from ..capabilities.description import as_json, is_config, kind_of, named
from ..capabilities.frozen import FrozenDict, FrozenList, Json, same
from ..capabilities.function_hooks import FunctionHook
from ..capabilities.json_schema import path_text
from ..capabilities.secret import Secret
from .codec import envelope, open_envelope
from .errors import CodecError
from .problems import Path, short

KIND: Final = "capabilities"
_PACKAGE: Final = Capability.__module__.rpartition(".")[0]
_OWN: Final = re.compile(re.escape(_PACKAGE) + r"\.[a-z][a-z0-9_]*")
_PARTS: Final = {"kind", "key", "config", "members"}


def dump_capabilities(capabilities: Iterable[AnyCapability]) -> str:
    """Return a capability list as text, from which `load_capabilities` builds an equal one.

    Raises ValueError naming capability and field for a configuration that its description does not hold
    whole: lambdas, local classes, objects of classes without attrs. Secrets are written by name.
    """
    written = []
    for capability in capabilities:
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


Allowed = type | Callable[..., object] | FunctionHook


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
    loader = _loader(allowed)
    return tuple(_capability(loader, one, (i,)) for i, one in enumerate(listed))


@frozen
class _Loader:
    classes: Mapping[str, type]
    functions: Mapping[str, Callable[..., object]]
    modules: frozenset[str]


def _loader(allowed: Collection[Allowed]) -> _Loader:
    classes: dict[str, type] = {}
    functions: dict[str, Callable[..., object]] = {}
    for one in allowed:
        if isinstance(one, type):
            classes[kind_of(one)] = one
            continue
        function = one.function if isinstance(one, FunctionHook) else one
        if not hasattr(function, "__qualname__"):
            raise TypeError(f"allowed holds classes and named functions, not {one!r:.80}")
        functions[f"{function.__module__}:{function.__qualname__}"] = function
    return _Loader(classes, functions, frozenset(cls.__module__ for cls in classes.values()))


def _fail(path: Path, message: str) -> CodecError:
    return CodecError(short(message), path_text(path))


# --- names


def _own(module: str, name: str) -> object:
    """Return what a module of `capfold.capabilities` defines under a name, None for anything else."""
    if not _OWN.fullmatch(module):
        return None
    try:
        importlib.import_module(module)
    except ImportError:
        return None
    found = named(module, name)
    defined = getattr(found, "__module__", None) == module and getattr(found, "__qualname__", None) == name
    return found if defined else None


def _class(loader: _Loader, kind: Json, path: Path) -> type:
    found = loader.classes.get(kind) if isinstance(kind, str) else None
    if found is None and isinstance(kind, str):
        own = _own(*_split(kind))
        found = own if isinstance(own, type) and (has(own) or issubclass(own, Enum)) else None
    if found is None:
        listed = ", ".join(sorted(loader.classes)) or "none"
        raise _fail(path, f"{kind!r:.100} is not allowed; allowed besides {_PACKAGE}: {listed}")
    return found


def _function(loader: _Loader, name: Json, path: Path) -> object:
    if isinstance(name, str):
        if name in loader.functions:
            return loader.functions[name]
        if name in loader.classes:
            return loader.classes[name]
        module, qualname = _split(name)
        found = named(module, qualname) if module in loader.modules else _own(module, qualname)
        # The very function, defined there: not one that the module imported from elsewhere.
        if isinstance(found, FunctionType) and (found.__module__, found.__qualname__) == (module, qualname):
            return found
    raise _fail(
        path, f"the function {name!r:.100} is not allowed: list it in allowed, or a class of its module"
    )


def _split(name: str) -> tuple[str, str]:
    module, _, qualname = name.partition(":")
    return module, qualname


# --- values


def _capability(loader: _Loader, data: Json, path: Path) -> AnyCapability:
    if not isinstance(data, FrozenDict) or data.keys() != _PARTS:
        raise _fail(path, f"must be an object with {', '.join(sorted(_PARTS))}")
    kind, key, config, members = data["kind"], data["key"], data["config"], data["members"]
    cls = _class(loader, kind, (*path, "kind"))
    if not issubclass(cls, Capability):
        raise _fail((*path, "kind"), f"{kind} is no capability")
    if not isinstance(config, FrozenDict) or not isinstance(members, FrozenList):
        raise _fail(path, "config must be an object, and members an array")
    given: dict[str, object] = {"key": key}
    if issubclass(cls, Group):
        given["members"] = tuple(
            _capability(loader, member, (*path, "members", i)) for i, member in enumerate(members)
        )
    elif members:
        raise _fail((*path, "members"), f"{cls.__name__} is no combinator")
    what = f"{key!r:.60} ({cls.__name__})"
    arguments = given | _arguments(loader, cls, config, what, (*path, "config"))
    made = _built(cls, arguments, what, (*path, "config"))
    assert isinstance(made, Capability)
    if not same(made.describe().to_json(), data):
        raise _fail(path, f"{what} was not built as the text describes it")
    return made


def _arguments(
    loader: _Loader, cls: Any, data: FrozenDict[Json], what: str, path: Path
) -> dict[str, object]:  # Any: an attrs class, whose parameters are its fields
    """Return the keyword arguments for the fields of a class: all of them must be there, and nothing else."""
    capability = issubclass(cls, Capability)
    given = {"key", *(["members"] if issubclass(cls, Group) else [])} if capability else set()
    taken = [field for field in fields(cls) if field.name not in given]
    aliases = {field.name: field.alias for field in taken if field.init}
    names = {field.name for field in taken if field.init or capability}
    for name in sorted(names - data.keys()):
        raise _fail((*path, name), f"{what} needs the field {name!r}, which is missing")
    for name in sorted(data.keys() - names):
        raise _fail(
            (*path, name), f"{what} has no field {name!r}; it has {', '.join(sorted(names)) or 'none'}"
        )
    return {alias: _value(loader, data[name], (*path, name)) for name, alias in aliases.items()}


def _built(cls: Callable[..., object], arguments: dict[str, object], what: str, path: Path) -> object:
    try:
        return cls(**arguments)
    except Exception as error:  # constructors and validators of the user's own classes
        raise _fail(path, f"{what} cannot be built: {type(error).__name__}: {error}") from error


def _value(loader: _Loader, data: Json, path: Path, *, in_json: bool = False) -> object:
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
        raise _fail(path, f"{tag!r:.40} is no tag; there are {', '.join(sorted(_TAGS))}") from None
    if data.keys() != {tag, *companions}:
        raise _fail(
            path, f"{tag} stands with {', '.join(companions) or 'nothing'}, not with {', '.join(data)}"[:300]
        )
    return read(loader, data, path)


def _array(loader: _Loader, data: Json, path: Path, *, in_json: bool) -> object:
    if not isinstance(data, FrozenList):
        raise _fail(path, "must be an array")
    items = [_value(loader, item, (*path, i), in_json=in_json) for i, item in enumerate(data)]
    # What a frozen list holds was encoded as JSON, tags apart, and is frozen again by being built.
    return FrozenList(items) if in_json else tuple(items)  # type: ignore[arg-type]  # see above


def _mapping(loader: _Loader, data: Json, path: Path) -> FrozenDict[object]:
    if not isinstance(data, FrozenDict):
        raise _fail(path, "must be an object")
    return FrozenDict(
        {key: _value(loader, member, (*path, key), in_json=True) for key, member in data.items()}
    )


def _set(loader: _Loader, data: FrozenDict[Json], path: Path) -> object:
    items = _array(loader, data["$set"], (*path, "$set"), in_json=False)
    assert isinstance(items, tuple)
    return frozenset(items)


def _secret(_: _Loader, data: FrozenDict[Json], path: Path) -> object:
    name = data["$secret"]
    if type(name) is not str:
        raise _fail(path, "a secret is the name of an environment variable")
    return Secret(name)


def _enum(loader: _Loader, data: FrozenDict[Json], path: Path) -> object:
    cls = _class(loader, data["$enum"], path)
    value = _value(loader, data["value"], (*path, "value"))
    if issubclass(cls, Enum):
        for member in cls:
            if same(member.value, value):
                return member
    raise _fail(path, f"{cls.__name__} has no member with the value {value!r:.60}")


def _record(loader: _Loader, data: FrozenDict[Json], path: Path) -> object:
    cls = _class(loader, data["$record"], path)
    values = data["fields"]
    if not has(cls) or issubclass(cls, Capability) or not isinstance(values, FrozenDict):
        raise _fail(path, f"{cls.__name__} is no record, or its fields are no object")
    arguments = _arguments(loader, cls, values, cls.__name__, (*path, "fields"))
    return _built(cls, arguments, cls.__name__, path)


_Reader = Callable[[_Loader, FrozenDict[Json], Path], object]
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
    "$function": (lambda loader, data, path: _function(loader, data["$function"], path), ()),
    "$capability": (lambda loader, data, path: _capability(loader, data["$capability"], path), ()),
}
