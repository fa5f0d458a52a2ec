"""Strategies for the lives of a given list: with the tools it mentions, and with facts for its gatherers."""

from collections.abc import Mapping, Sequence
from typing import get_type_hints

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ..capabilities.capability import AnyCapability
from ..capabilities.frozen import FrozenDict, FrozenList, Json
from ..capabilities.grid import GATHERERS, TOOL_HOOKS
from ..capabilities.tools import Tool, check_names, place
from .laws_arguments import json_values
from .laws_lives import Life
from .laws_states import Facts, frozen_json, lives_of
from .laws_steps import members_of
from .laws_values import Tools, inventories


def lives_for(caps: Sequence[AnyCapability], *, tools: Tools, facts: Facts) -> SearchStrategy[Life]:
    """Return a strategy for lives under a list: with the tools that it mentions, and facts for its gatherers.

    Raises ValueError for facts of a gatherer that nobody in the list has, and for a tool that it mentions and that is
    not in `tools`.
    """
    members = members_of(caps)
    gatherers = [
        (member, name) for member in members.values() for name in GATHERERS if name in member.overrides
    ]
    there = {name for _, name in gatherers}
    for name in facts:
        if name not in there:
            who, names = ", ".join(members), ", ".join(sorted(there)) or "none"
            raise ValueError(f"facts[{name!r}]: {who} has no such gatherer; there are: {names}")
    given = frozen_json(facts)
    brought = {
        f"{member.key}.{name}": given[name] if name in given else _declared(member, name)
        for member, name in gatherers
    }
    provided = [tool.name for member in members.values() for tool in member.provide_tools()]
    mentioned = frozenset().union(*(member.tool_names() for member in (*caps, *members.values())))
    inventory = inventories(tools, mentioned - {*provided})
    if tools is not None and not isinstance(tools, SearchStrategy):
        check_names(mentioned, [*provided, *(item.tool.name for item in place(tools))])
    if provided:
        inventory = inventory.map(lambda made: tuple(tool for tool in made if tool.name not in provided))
    calls = any(member.overrides & TOOL_HOOKS for member in members.values())
    return _drawn(inventory, brought, calls=calls)


@st.composite
def _drawn(
    draw: DrawFn,
    inventory: SearchStrategy[tuple[Tool, ...]],
    facts: Mapping[str, SearchStrategy[Json]],
    *,
    calls: bool,
) -> Life:
    return draw(lives_of(draw(inventory), facts, calls=calls))


def _declared(member: AnyCapability, gatherer: str) -> SearchStrategy[Json]:
    """Return what a gatherer says that it returns."""
    try:
        hints = get_type_hints(getattr(type(member), gatherer), {"Json": Json}, {"FrozenDict": FrozenDict})
    except (NameError, TypeError):
        return json_values()
    plain = _PLAIN.get(hints.get("return"))
    return json_values() if plain is None else plain


_PLAIN: Mapping[object, SearchStrategy[Json]] = {
    str: st.text(max_size=8),
    bool: st.booleans(),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    type(None): st.none(),
    list[str]: st.lists(st.text(max_size=8), max_size=3).map(FrozenList),
    dict[str, str]: st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3).map(FrozenDict),
}
