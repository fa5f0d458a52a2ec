"""Records as Python source: the line that reproduces a finding, and the record as a person reads it.

Knows nothing of laws.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Final

from attrs import NOTHING, Attribute, Factory, fields, has

from .. import capabilities as public
from ..capabilities.capability import Capability
from ..capabilities.frozen import same
from .scripted_model import ScriptedModel

_MAX: Final = 110


class NoSourceError(ValueError):
    """A value that cannot be written as source: a local class, an open client."""


def source_of(value: object, imports: dict[str, str]) -> str:
    """Return a Python expression that makes an equal value; `imports` collects name -> module of what it uses.

    Left out: fields at their defaults, those that are not compared, a tool's function, all of a model but its name.
    Raises NoSourceError for what has no source.
    """
    if value is None or isinstance(value, bool | int | str | bytes):
        return repr(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        items = ", ".join(f"{source_of(k, imports)}: {source_of(v, imports)}" for k, v in value.items())
        return f"{{{items}}}"
    if isinstance(value, list | tuple | frozenset):
        return _sequence(value, imports)
    if has(type(value)):
        return _record(value, imports)
    raise NoSourceError(f"a {type(value).__name__} has no source")


def _sequence(value: "list[object] | tuple[object, ...] | frozenset[object]", imports: dict[str, str]) -> str:
    items = [source_of(item, imports) for item in value]
    if isinstance(value, list):
        return f"[{', '.join(items)}]"
    if isinstance(value, frozenset):
        return f"frozenset({{{', '.join(sorted(items))}}})" if items else "frozenset()"
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _record(value: object, imports: dict[str, str]) -> str:
    kind = type(value)
    if "<locals>" in kind.__qualname__ or "." in kind.__qualname__:
        raise NoSourceError(f"{kind.__qualname__} cannot be imported by name")
    imports[kind.__name__] = _home(kind)
    given: list[str] = []
    named = False
    for field in fields(kind):  # type: ignore[arg-type]  # an attrs class
        held = getattr(value, field.name)
        if not field.init or not field.eq or field.name == "function" or _is_default(value, field, held):
            named = True  # what comes after one that is left out is given by name
            continue
        text = source_of(held, imports) if field.name != "model" else _model(held, imports)
        given.append(f"{field.alias}={text}" if named or field.kw_only else text)
    return f"{kind.__name__}({', '.join(given)})"


def _is_default(value: object, field: "Attribute[object]", held: object) -> bool:
    default: object = field.default
    if default is NOTHING:
        return False
    if isinstance(default, Factory):  # type: ignore[arg-type]  # a class, though attrs types it as a function
        make: Callable[..., object] = default.factory  # type: ignore[attr-defined]  # as above
        default = make(value) if default.takes_self else make()  # type: ignore[attr-defined]  # as above
    return same(held, default)


def _model(value: object, imports: dict[str, str]) -> str:
    name = value if isinstance(value, str) or value is None else getattr(value, "name", "")
    if not isinstance(value, str) and value is not None:
        imports["ScriptedModel"] = ScriptedModel.__module__.rpartition(".")[0]
        return f"ScriptedModel([], name={name!r})"
    return repr(name)


def _home(kind: type) -> str:
    """Return where a class is imported from: the package, where it is public."""
    package: ModuleType = public
    if getattr(package, kind.__name__, None) is kind:
        return package.__name__
    return kind.__module__


def import_lines(imports: Mapping[str, str]) -> str:
    """Return the imports of names as one line of statements."""
    by_module: dict[str, list[str]] = {}
    for name, module in imports.items():
        by_module.setdefault(module, []).append(name)
    return "; ".join(
        f"from {module} import {', '.join(sorted(by_module[module]))}" for module in sorted(by_module)
    )


def shown(value: object, size: int = _MAX) -> str:
    """Return a value as one line for a reader: its source where it has one, cut to about `size` characters."""
    try:
        text = source_of(value, {})
    except NoSourceError:
        text = f"<{type(value).__name__}>" if isinstance(value, Capability) else repr(value)
    text = text.replace("\n", " ")
    return text if len(text) <= size else f"{text[: size - 3]}..."
