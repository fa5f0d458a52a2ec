"""The table of hooks agrees with the base class, and with itself."""

import inspect

import pytest

from capfold.capabilities.capability import Capability
from capfold.capabilities.grid import (
    FORMER_NAMES,
    GATHERERS,
    HOOK_PREFIXES,
    HOOKS,
    REDUCERS,
    TOOL_HOOKS,
    WRAPPERS,
)


@pytest.mark.parametrize("name", HOOKS)
def test_each_hook_is_a_method_of_its_color(name: str) -> None:
    """Reducers are plain, wrappers and gatherers are async, and each has a docstring."""
    method = getattr(Capability, name)
    assert (HOOKS[name].kind != "reducer") == inspect.iscoroutinefunction(method)
    assert method.__doc__


def test_no_hook_is_missing_from_the_table() -> None:
    """Each method of the base that is named like a hook is in the table."""
    named = {name for name in vars(Capability) if name.startswith(HOOK_PREFIXES)}
    assert named == set(HOOKS)


def test_gatherers_belong_to_reducers() -> None:
    """Each reducer but before_tool_execute has the gatherer of its name, on the same record."""
    expected = {f"gather_{name}" for name in REDUCERS if name != "before_tool_execute"}
    assert expected == set(GATHERERS)
    for name in REDUCERS:
        gatherer = HOOKS[name].gatherer
        assert (name == "before_tool_execute") == (gatherer is None)
        if gatherer is not None:
            assert HOOKS[name].record == HOOKS[gatherer].record


def test_only_after_hooks_are_reversed() -> None:
    """`nested` reverses the after reducers and nothing else."""
    expected = {name for name in REDUCERS if name.startswith("after_")}
    assert expected == {name for name, hook in HOOKS.items() if hook.reverse_in_nested}


def test_kinds_partition_the_grid() -> None:
    """Each hook is of exactly one kind; tool hooks are those on a CallState."""
    assert len(HOOKS) == len({*REDUCERS, *WRAPPERS, *GATHERERS})
    assert {name for name in HOOKS if "tool" in name} == TOOL_HOOKS


def test_former_names_lead_to_hooks() -> None:
    """What a name of another framework is answered with exists, and no hook is among those names."""
    assert set(FORMER_NAMES.values()) <= set(HOOKS)
    assert set(FORMER_NAMES).isdisjoint(HOOKS)
