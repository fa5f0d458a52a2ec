"""Combinators: how a list expands, and what cannot be combined."""

import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from capfold.capabilities.call_state import CallState
from capfold.capabilities.capability import AnyCapability, Capability
from capfold.capabilities.combinators import (
    Group,
    Nested,
    for_tools,
    group,
    inherited,
    leaves,
    nested,
    when,
)
from capfold.capabilities.state import RunState
from capfold.capabilities.tools import Tool, is_read_only

PAY, SEARCH = Tool("pay", "", {"type": "object"}), Tool("search", "", {"type": "object"})


@frozen
class Gate(Capability):
    def admit_tool_execute(self, call: CallState) -> CallState:
        return call

    def tool_names(self) -> frozenset[str]:
        return frozenset({"gated"})

    def needs_deps(self) -> frozenset[str]:
        return frozenset({"db"})


@frozen
class Shaper(Capability):
    def before_model_request(self, state: RunState) -> RunState:
        return state


def gate(key: str) -> Gate:
    """Return a capability that is told by its key."""
    return Gate(key=key)


def keys(capabilities: list[AnyCapability], *, after: bool = False) -> list[str]:
    """Return the keys of a list in calling order."""
    return [leaf.capability.key for leaf in leaves(capabilities, after=after)]


def yes(state: RunState) -> bool:
    """Hold always."""
    return True


def trees() -> SearchStrategy[list[AnyCapability]]:
    """Return a strategy for lists of capabilities under any combinators."""
    leaf: SearchStrategy[AnyCapability] = st.uuids().map(lambda made: gate(str(made)))
    inner: SearchStrategy[AnyCapability] = st.recursive(
        leaf,
        lambda some: (
            st.lists(some, max_size=3).map(lambda made: group(*made))
            | st.lists(some, max_size=3).map(lambda made: nested(*made))
            | st.lists(some, max_size=2).map(lambda made: inherited(*made))
            | some.map(lambda made: when(yes, made))
            | some.map(lambda made: for_tools({"pay"}, made))
        ),
        max_leaves=8,
    )
    return st.lists(inner, max_size=4)


@given(trees())
def test_after_order_is_a_permutation(capabilities: list[AnyCapability]) -> None:
    """Both orders hold the same leaves under the same conditions; `index` counts in before order in both."""
    before, after = leaves(capabilities), leaves(capabilities, after=True)
    assert list(range(len(before))) == [leaf.index for leaf in before]
    assert list(before) == sorted(after, key=lambda leaf: leaf.index)


@given(trees())
def test_nesting_twice_is_the_list_again(capabilities: list[AnyCapability]) -> None:
    """`nested` reverses its members after, and reversed twice by hand they are in the order of before."""
    flat = [nested(*reversed(capabilities))]
    plain = group(*capabilities)
    outer = [leaf.capability.key for leaf in leaves(flat, after=True)]
    assert outer == [leaf.capability.key for leaf in leaves([plain], after=True)]


def test_orders() -> None:
    """Lists and groups keep their order in both directions, `nested` reverses as blocks, at each level."""
    tree = [
        gate("a"),
        nested(gate("b"), group(gate("c"), gate("d")), nested(gate("e"), gate("f"))),
        gate("g"),
    ]
    assert list("abcdefg") == keys(tree)
    assert list("afecdbg") == keys(tree, after=True)


def test_a_capability_listed_twice_keeps_its_places() -> None:
    """Refusing a double key is the agent's; expanding does not mix up the places of two equal members."""
    assert [0, 1] == [leaf.index for leaf in leaves([gate("a"), gate("a")])]


def test_conditions_add_up_from_outside_in() -> None:
    """Every condition around a leaf must hold."""

    def no(state: RunState) -> bool:
        return False

    (leaf,) = leaves([when(yes, for_tools({"pay"}, when(no, inherited(for_tools(is_read_only, gate("a"))))))])
    assert (yes, no) == leaf.conditions
    assert (frozenset({"pay"}), is_read_only) == leaf.tools
    assert leaf.inherited
    assert not leaf.covers(PAY)
    assert not leaf.holds(RunState())
    assert evolve(leaf, tools=leaf.tools[:1]).covers(PAY)
    assert not evolve(leaf, tools=leaf.tools[:1]).covers(SEARCH)
    assert evolve(leaf, conditions=(yes,)).holds(RunState())


def test_a_predicate_returns_a_bool() -> None:
    """A truthy text is a bug, so it is an error."""
    (leaf,) = leaves([when(lambda state: state.agent, gate("a"))])  # type: ignore[arg-type,return-value]  # as above
    with pytest.raises(TypeError, match="True or False"):
        leaf.holds(RunState())


def test_conditions_that_cannot_be_asked() -> None:
    """An async predicate, a value, a class and a single tool name are refused."""

    async def later(state: RunState) -> bool:
        return True

    for wrong in (later, True, None, RunState):
        with pytest.raises(TypeError, match=r"when\(\)"):
            when(wrong, gate("a"))  # type: ignore[arg-type]  # the values under test
    with pytest.raises(TypeError, match="one string"):
        for_tools("pay", gate("a"))


def test_for_tools_around_a_model_hook() -> None:
    """It would never be called, so it is a construction error, at any depth."""
    with pytest.raises(TypeError, match="before_model_request"):
        for_tools({"pay"}, Shaper())
    with pytest.raises(TypeError, match="before_model_request"):
        for_tools({"pay"}, group(gate("a"), Shaper()))


@pytest.mark.parametrize("wrong", [Gate, None, "Gate", lambda state: state])
def test_members_are_capabilities(wrong: object) -> None:
    """A class, None, a name or a function in a group is refused."""
    for combine in (group, nested, inherited):
        with pytest.raises(TypeError, match="member 1 must be a Capability"):
            combine(gate("a"), wrong)  # type: ignore[arg-type]  # the value under test
    with pytest.raises(TypeError, match="member 0 must be a Capability"):
        when(yes, wrong)  # type: ignore[arg-type]  # the value under test


def test_a_group_has_no_hooks_of_its_own() -> None:
    """A group vanishes, so a hook on a subclass would never be called: the class is refused."""
    with pytest.raises(TypeError, match="expands to its members"):

        @frozen
        class Bundle(Group):
            def before_run(self, state: RunState) -> RunState:
                return state


def test_groups_tell_what_their_members_mention() -> None:
    """Names and needs inside are not lost."""
    made = group(gate("a"), for_tools({"pay"}, gate("b")))
    assert frozenset({"gated", "pay"}) == made.tool_names()
    assert frozenset({"db"}) == made.needs_deps()


def test_keys_tell_the_members() -> None:
    """A combinator's key shows what it is made of."""
    made = nested(gate("a"), group(gate("b")))
    assert isinstance(made, Nested)
    assert made.key == "nested(a, group(b))"
