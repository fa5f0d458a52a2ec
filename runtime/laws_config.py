"""Whether a capability's configuration comes back from the codec as it was. Knows nothing of records or slots."""

from collections.abc import Iterator, Mapping
from enum import Enum

from attrs import fields, has

from ..capabilities.capability import AnyCapability, Capability
from ..capabilities.combinators import Group
from .allowed import Allowed
from .dump import dump_capabilities, load_capabilities
from .errors import CodecError


def config_problem(capability: AnyCapability) -> str | None:
    """Say why a capability cannot be dumped and loaded again as an equal one, or None.

    A configuration that its description does not hold whole (a lambda, a client, a local class) need not: the
    description says so itself.
    """
    try:
        described = capability.describe()
    except Exception as error:  # noqa: BLE001  # describe() never raises; what it raises here is the finding
        return f"describe() raised {type(error).__name__}: {error}"
    if not described.complete:
        return None
    try:
        text = dump_capabilities([capability])
        (loaded,) = load_capabilities(text, allowed=list(_named(capability)))
    except (CodecError, ValueError, TypeError) as error:
        return f"its configuration does not survive the codec: {error}"
    if loaded != capability or hash(loaded) != hash(capability):
        return f"its configuration comes back as another one: {loaded!r:.200}"
    if loaded.describe().digest != described.digest:
        return "its description is another one after the codec: a run could not be resumed with it"
    return None


def _named(value: object) -> Iterator[Allowed]:
    """Yield the classes and functions that a value's text names."""
    kind = type(value)
    if isinstance(value, Capability | Enum) or (has(kind) and not isinstance(value, type)):
        yield kind
    if isinstance(value, Mapping):
        for member in value.values():
            yield from _named(member)
    elif isinstance(value, tuple | list | frozenset):
        for member in value:
            yield from _named(member)
    elif isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        yield value
    elif has(kind):
        for field in fields(kind):
            if not (isinstance(value, Group) and field.name == "key"):
                yield from _named(getattr(value, field.name))
