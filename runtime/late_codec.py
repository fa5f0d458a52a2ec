"""The codec, for those who need it only once a run is on: loading it costs 40 ms, which an import need not pay.

Knows nothing of what the codec writes or reads.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

from ..capabilities.frozen import Json


class Structurer(Protocol):
    """What binding needs of a converter."""

    # Any: cattrs takes types and annotations alike, and a hook what JSON its type is made of
    def get_structure_hook(self, kind: Any, /) -> Callable[[Any, Any], Any]:
        """Return what makes a value of `kind`; whatever it raises says that there is no way."""


class _InputConverter:
    # Any: as above
    def get_structure_hook(self, kind: Any, /) -> Callable[[Any, Any], Any]:
        from .codec import input_converter  # noqa: PLC0415  # the reason is the module's

        return input_converter.get_structure_hook(kind)


# The codec's converter for what models and people send, made when the first type needs one.
input_converter: Structurer = _InputConverter()


@cache
def json_writer() -> Callable[[object], Json]:
    """Return the codec's `to_json`."""
    from .codec import to_json  # noqa: PLC0415  # the reason is the module's

    return to_json
