"""Tools in JSON: a descriptor with its digest, never the function; read back by name.

Knows nothing of runs; which tools there are is given.
"""

from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve

from ..capabilities.frozen import FrozenDict, Json, freeze_mapping, same
from ..capabilities.tools import Annotations, Tool
from .codec_types import Read

# What `RunState.with_tools` may tune; the rest of a descriptor is sealed.
_TUNABLE: Final = ("description", "max_retries", "timeout", "sequential", "metadata")


def write_tool(tool: Tool) -> FrozenDict[Json]:
    """Return the descriptor, the digest, and whether there is a function."""
    return FrozenDict({**tool.descriptor, "digest": tool.digest, "function": tool.function is not None})


def tool_reader(tools: Mapping[str, Tool], *, tuned: bool) -> Read:
    """Return the hook that finds a written tool among `tools`.

    `tuned`: one that differs only in what may be tuned is rebuilt on the known one, and a placeholder of a
    tool that nobody knows, which never had a function, from its descriptor alone.
    """

    def read(value: object, _: object) -> Tool:
        written = freeze_mapping(value, "a tool")
        name = written.get("name")
        if type(name) is not str or type(written.get("digest")) is not str:
            raise TypeError("must be a tool: a descriptor with name and digest")
        known = tools.get(name)
        if known is not None and same(write_tool(known), written):
            return known
        if tuned:
            made = _placeholder(written) if known is None else _tuned(known, written)
            if made is not None and same(write_tool(made), written):
                return made
        if known is None:
            listed = ", ".join(sorted(tools)) or "none"
            raise ValueError(f"no tool is named {name!r:.60}; known: {listed}")
        changed = [key for key, one in write_tool(known).items() if not same(one, written.get(key, ...))]
        raise ValueError(
            f"the tool {name!r} is not the one that was written: {', '.join(changed) or 'its fields'} differ "
            f"(digest {str(written['digest'])[:12]!r}, known {known.digest[:12]!r})"
        )

    return read


def _tuned(known: Tool, written: FrozenDict[Json]) -> Tool | None:
    if any(key not in written for key in _TUNABLE):
        return None
    # Any: the JSON may hold anything; Tool's own validators judge it.
    tuning: dict[str, Any] = {key: written[key] for key in _TUNABLE}
    return evolve(known, **tuning)


def _placeholder(written: FrozenDict[Json]) -> Tool | None:
    hints = written.get("annotations")
    if (
        written.get("function") is not False
        or written.get("capabilities")
        or not isinstance(hints, FrozenDict)
    ):
        return None
    if any(key not in written for key in (*_TUNABLE, "parameters")):
        return None
    made: dict[str, Any] = {key: written[key] for key in ("name", "parameters", *_TUNABLE)}  # Any: as above
    annotations: dict[str, Any] = dict(hints)  # Any: as above
    return Tool(**made, annotations=Annotations(**annotations))
