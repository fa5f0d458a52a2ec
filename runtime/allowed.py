"""What a text may name: classes and functions that the caller allowed, and those of `capfold.capabilities`.

Looks names up and nothing else: no code runs, and no module but those of `capfold.capabilities` is imported.
"""

import importlib
import re
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from types import FunctionType
from typing import Final

from attrs import frozen, has

from ..capabilities.capability import Capability
from ..capabilities.description import kind_of, named
from ..capabilities.frozen import Json
from ..capabilities.function_hooks import FunctionHook
from ..capabilities.json_schema import path_text
from .errors import CodecError
from .problems import Path, short

Allowed = type | Callable[..., object] | FunctionHook
_PACKAGE: Final = Capability.__module__.rpartition(".")[0]
_OWN: Final = re.compile(re.escape(_PACKAGE) + r"\.[a-z][a-z0-9_]*")


@frozen
class Loader:
    """Allowed classes and functions by `module:qualname`, and the modules whose functions are allowed."""

    classes: Mapping[str, type]
    functions: Mapping[str, Callable[..., object]]
    modules: frozenset[str]


def loader_of(allowed: Collection[Allowed]) -> Loader:
    """Return the table of what is allowed. Raises TypeError for what has no name."""
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
    return Loader(classes, functions, frozenset(cls.__module__ for cls in classes.values()))


def fail(path: Path, message: str) -> CodecError:
    """Return the error for a place in the text."""
    return CodecError(short(message), path_text(path))


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


def class_of(loader: Loader, kind: Json, path: Path) -> type:
    """Return an allowed class, or a record of capfold.capabilities. Raises CodecError for any other."""
    found = loader.classes.get(kind) if isinstance(kind, str) else None
    if found is None and isinstance(kind, str):
        own = _own(*_split(kind))
        found = own if isinstance(own, type) and (has(own) or issubclass(own, Enum)) else None
    if found is None:
        listed = ", ".join(sorted(loader.classes)) or "none"
        raise fail(path, f"{kind!r:.100} is not allowed; allowed besides {_PACKAGE}: {listed}")
    return found


def function_of(loader: Loader, name: Json, path: Path) -> object:
    """Return an allowed function or class. Raises CodecError for any other."""
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
    raise fail(
        path, f"the function {name!r:.100} is not allowed: list it in allowed, or a class of its module"
    )


def _split(name: str) -> tuple[str, str]:
    module, _, qualname = name.partition(":")
    return module, qualname
