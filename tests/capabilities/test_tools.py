"""Tools: descriptors, the decorator, toolkits, and ways to say which tools are meant."""

from collections.abc import Callable

import pytest
from attrs import evolve, frozen

from capfold.capabilities.call_state import CallState
from capfold.capabilities.capability import Capability
from capfold.capabilities.frozen import same
from capfold.capabilities.injected import ToolContext
from capfold.capabilities.tools import (
    Annotations,
    SchemaFunction,
    Tool,
    Toolkit,
    accepts,
    as_where,
    is_declared_destructive,
    is_destructive,
    is_idempotent,
    is_read_only,
    place,
    tool,
)

SCHEMA: dict[str, object] = {"type": "object"}


@frozen
class Gate(Capability):
    def admit_tool_execute(self, call: CallState) -> CallState:
        return call.refuse("no")


def search(query: str, limit: int = 5) -> str:
    """Search the ledger.

    Slowly.
    """
    return query * limit


def test_a_tool_is_made_of_a_typed_function() -> None:
    """Name, description and schema come from the function; the function itself is kept."""
    made = tool(search)
    assert ("search", "Search the ledger.") == (made.name, made.description)
    assert set(made.parameters["properties"]) == {"query", "limit"}  # type: ignore[arg-type]  # it is a mapping
    assert made.parameters["required"] == ["query"]
    assert made.function is search


def test_the_decorator_takes_keywords() -> None:
    """`@tool(...)` and `tool(f, ...)` are the same, and hand on the keywords of Tool."""
    direct = tool(search, name="find", read_only=True, max_retries=1, timeout=2.5, capabilities=[Gate()])
    decorated = tool(name="find", read_only=True, max_retries=1, timeout=2.5, capabilities=[Gate()])(search)
    assert direct == decorated
    assert Annotations(read_only=True) == direct.annotations
    assert (1, 2.5, (Gate(),)) == (direct.max_retries, direct.timeout, direct.capabilities)


def test_what_cannot_be_a_tool_is_refused() -> None:
    """A tool of a tool, a lambda without a name, a class, an unannotated parameter."""

    def bare(x):  # type: ignore[no-untyped-def]  # the function under test
        return x

    with pytest.raises(TypeError, match="is a Tool already"):
        tool(tool(search))  # type: ignore[call-overload]  # the value under test
    with pytest.raises(ValueError, match="lambda"):
        tool(lambda: "x")
    with pytest.raises(TypeError, match="'x'"):
        tool(bare)
    with pytest.raises(TypeError, match="tool list holds"):
        place([Gate])


WRONG: list[tuple[type[Exception], Callable[[], object]]] = [
    (ValueError, lambda: Tool("", "", SCHEMA)),
    (TypeError, lambda: Tool(5, "", SCHEMA)),  # type: ignore[arg-type]  # the value under test
    (ValueError, lambda: Tool("a", "", {"type": "nonsense"})),
    (ValueError, lambda: Tool("a", "", {"type": "array"})),
    (TypeError, lambda: Tool("a", "", SCHEMA, "pay")),  # type: ignore[arg-type]  # the value under test
    (ValueError, lambda: Tool("a", "", SCHEMA, timeout=0)),
    (ValueError, lambda: Tool("a", "", SCHEMA, timeout=float("nan"))),
    (TypeError, lambda: Tool("a", "", SCHEMA, timeout=True)),
    (ValueError, lambda: Tool("a", "", SCHEMA, max_retries=-1)),
    (TypeError, lambda: Tool("a", "", SCHEMA, max_retries=1.0)),  # type: ignore[arg-type]  # as above
    (TypeError, lambda: Tool("a", "", SCHEMA, sequential=1)),  # type: ignore[arg-type]  # as above
    (TypeError, lambda: Annotations(read_only="yes")),  # type: ignore[arg-type]  # as above
    (ValueError, lambda: Tool("a", "", SCHEMA, metadata={"x": {1}})),
    (ValueError, lambda: Toolkit("", [])),
    (TypeError, lambda: Toolkit("kit", ["pay"])),  # type: ignore[list-item]  # as above
]


@pytest.mark.parametrize(("error", "make"), WRONG)
def test_wrong_shapes_are_refused_at_construction(error: type[Exception], make: Callable[[], object]) -> None:
    """A wrong type is a TypeError, a wrong value or schema a ValueError, before any run."""
    with pytest.raises(error):
        make()


def test_from_schema() -> None:
    """A given schema is kept; the call must be async."""

    async def run(arguments: dict[str, object], context: ToolContext) -> object:
        return arguments

    made = Tool.from_schema("remote", "Elsewhere.", SCHEMA, run, metadata={"x": 1}, sequential=True)
    assert SchemaFunction(run) == made.function
    assert (SCHEMA, {"x": 1}, True) == (made.parameters, made.metadata, made.sequential)
    with pytest.raises(TypeError, match="async"):
        Tool.from_schema("remote", "", SCHEMA, lambda arguments, context: arguments)  # type: ignore[arg-type,return-value]  # as above


@pytest.mark.parametrize(
    ("hints", "destructive"),
    [
        (Annotations(), True),
        (Annotations(read_only=True), False),
        (Annotations(read_only=False), True),
        (Annotations(destructive=False), False),
        (Annotations(destructive=True), True),
        (Annotations(destructive=True, read_only=True), True),
    ],
)
def test_undeclared_counts_as_destructive(hints: Annotations, destructive: bool) -> None:  # noqa: FBT001  # a value under test
    """Only a declaration takes the suspicion away."""
    made = Tool("a", "", SCHEMA, annotations=hints)
    assert destructive == is_destructive(made)
    assert destructive == made.annotations.is_destructive
    assert (hints.destructive is True) == is_declared_destructive(made)
    assert (hints.read_only is True) == is_read_only(made)


def test_read_only_implies_idempotent() -> None:
    """A tool that changes nothing can be run again."""
    assert is_idempotent(Tool("a", "", SCHEMA, annotations=Annotations(read_only=True)))
    assert is_idempotent(Tool("a", "", SCHEMA, annotations=Annotations(idempotent=True)))
    assert not is_idempotent(Tool("a", "", SCHEMA))


def test_the_digest_is_of_the_descriptor_and_not_of_the_function() -> None:
    """Equal descriptors have equal digests whatever the function; each described field counts."""
    made = tool(search)
    assert made.digest == evolve(made, function=None).digest
    for change in (
        evolve(made, name="other"),
        evolve(made, description="other"),
        evolve(made, timeout=1),
        evolve(made, max_retries=0),
        evolve(made, sequential=True),
        evolve(made, metadata={"a": 1}),
        evolve(made, annotations=Annotations(read_only=True)),
        made.with_capabilities(Gate()),
    ):
        assert made.digest != change.digest
    assert same(made.descriptor, evolve(made, function=None).descriptor)


def test_with_capabilities_returns_a_new_tool() -> None:
    """The capabilities stand outside those there are; the tool it was called on is unchanged."""
    first = tool(search, capabilities=[Gate(key="inner")])
    second = first.with_capabilities(Gate(key="outer"))
    assert (Gate(key="inner"),) == first.capabilities
    assert (Gate(key="outer"), Gate(key="inner")) == second.capabilities
    assert second.function is first.function


def test_where() -> None:
    """Names or a predicate; a single string, a name that is none and a truthy answer are refused."""
    made = tool(search)
    assert accepts(as_where(["search"]), made)
    assert not accepts(as_where({"pay"}), made)
    assert as_where(["a", "a"]) == frozenset({"a"})
    assert as_where(is_read_only) is is_read_only
    with pytest.raises(TypeError, match="one string"):
        as_where("search")
    with pytest.raises(TypeError, match="names"):
        as_where([made])  # type: ignore[list-item]  # the value under test
    with pytest.raises(TypeError, match="True or False"):
        accepts(lambda item: item.name, made)  # type: ignore[arg-type,return-value]  # as above

    async def later(item: Tool) -> bool:
        return True

    with pytest.raises(TypeError, match="plain function"):
        as_where(later)  # type: ignore[arg-type]  # as above


def test_place_flattens_toolkits_in_order() -> None:
    """Each tool knows the scopes it stands in, from outer to inner; plain functions become tools."""
    inner = Toolkit("inner", [search], capabilities=[Gate(key="i")])
    outer = Toolkit("outer", [Tool("pay", "", SCHEMA), inner], capabilities=[Gate(key="o")])
    placed = place([Tool("first", "", SCHEMA), outer])
    assert ["first", "outer/pay", "outer/inner/search"] == [item.path for item in placed]
    assert ((Gate(key="o"),), (Gate(key="i"),)) == placed[2].scopes
    assert placed[0].scopes == ()


def test_two_tools_of_one_name_are_refused_with_both_places() -> None:
    """Neither may hide the other, wherever they stand."""
    kit = Toolkit("kit", [search])
    with pytest.raises(ValueError, match=r"'search' \(search and kit/search\)"):
        place([search, kit])
