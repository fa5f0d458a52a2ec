"""The base class: what is refused when a class or an instance is made, keys, slots, and defaults."""

import functools
import pickle
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

import pytest
from attrs import define, evolve, field, frozen
from attrs.exceptions import FrozenInstanceError

from capfold.capabilities.call_state import CallState
from capfold.capabilities.capability import AnyCapability, CallNext, Capability
from capfold.capabilities.frozen import FrozenDict, Json, freeze
from capfold.capabilities.grid import FORMER_NAMES, GATHERERS, HOOKS, REDUCERS, WRAPPERS
from capfold.capabilities.state import RunState


def subclass(**namespace: Any) -> type[AnyCapability]:  # Any: whatever a user may write into a class body
    """Make a subclass as a class statement does."""
    return type("Mine", (Capability,), namespace)


def reducer(self: object, record: object) -> object:
    """Be a reducer of any hook."""
    return record


async def wrapper(self: object, first: object, second: object) -> object:
    """Be a wrapper or gatherer of nearly any hook."""
    return second


MISSPELT = [
    "before_model_requst",
    "before_model",
    "befor_model_request",
    "after_tool",
    "admit_tool_exectue",
    "wrap_tool",
    "gather_admit",
    "gather_before_tool_execute",
    "on_turn",
    "after_everything",
]


@pytest.mark.parametrize("name", sorted({*MISSPELT, *FORMER_NAMES}))
def test_misspelt_hook(name: str) -> None:
    """C58: a method that is nearly a hook would never be called, so the class is refused."""
    with pytest.raises(TypeError, match=rf"Mine\.{name} is no hook"):
        subclass(**{name: reducer})


@pytest.mark.parametrize(("wrong", "right"), sorted(FORMER_NAMES.items()))
def test_the_names_of_elsewhere_lead_here(wrong: str, right: str) -> None:
    """The error says what the hook of another framework is called here."""
    with pytest.raises(TypeError, match=f"did you mean '{right}'"):
        subclass(**{wrong: reducer})


def test_misspelt_hook_in_a_mixin() -> None:
    """C58: a mixin is looked at too."""

    class Mixin:
        def before_modl_request(self, state: RunState) -> RunState:
            return state

    with pytest.raises(TypeError, match="before_modl_request"):

        class Mine(Mixin, Capability):
            pass


def test_helpers_and_fields_may_have_names_of_their_own() -> None:
    """What is not like a hook passes, and so does an underscore, and a field whose default is a function."""

    @frozen
    class Mine(Capability):
        on_result: Callable[[str], str] = str.upper

        def prepare(self) -> str:
            return self._before_all()

        def _before_all(self) -> str:
            return self.on_result("a")

    assert Mine().prepare() == "A"


@pytest.mark.parametrize("name", REDUCERS)
def test_async_reducer(name: str) -> None:
    """C58: a reducer is a plain function; a decorated async one is noticed as well."""

    async def wrong(self: object, record: object) -> object:
        return record

    @functools.wraps(wrong)
    def disguised(self: object, record: object) -> object:
        return wrong(self, record)

    for method in (wrong, disguised):
        with pytest.raises(TypeError, match="a reducer is a plain function"):
            subclass(**{name: method})


@pytest.mark.parametrize("name", [*WRAPPERS, *GATHERERS])
def test_sync_wrapper_or_gatherer(name: str) -> None:
    """C58: wrappers and gatherers are async."""
    with pytest.raises(TypeError, match="must be 'async def'"):
        subclass(**{name: lambda self, first, second: second})


@pytest.mark.parametrize("name", HOOKS)
def test_wrong_parameters(name: str) -> None:
    """A hook with too few parameters would fail in the middle of a run; the error shows the right ones."""

    def plain(self: object) -> None:
        pass

    async def waiting(self: object) -> None:
        pass

    with pytest.raises(TypeError, match=rf"{name} must take \(self, "):
        subclass(**{name: plain if HOOKS[name].kind == "reducer" else waiting})


def test_a_hook_is_a_method() -> None:
    """Neither a value, a static or class method, nor a generator can be a hook."""

    def generator(self: object, state: object) -> object:
        yield state

    values: list[object] = [5, None, staticmethod(reducer), classmethod(reducer)]
    for value in values:
        with pytest.raises(TypeError, match="must be a method"):
            subclass(before_run=value)
    with pytest.raises(TypeError, match="generator"):
        subclass(before_run=generator)


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}, bytearray(b"x"), [{"a": ()}]])
def test_mutable_config(value: object) -> None:
    """C58: a value that can change is refused at construction, and the error names class and field."""

    @frozen
    class Mine(Capability):
        names: object = ()

    with pytest.raises(TypeError, match=r"Mine\.names holds a .* which can change"):
        Mine(value)
    assert Mine(("a",)) == evolve(Mine(), names=("a",))
    with pytest.raises(TypeError, match=r"Mine\.names"):
        evolve(Mine(), names=value)


def test_mutable_config_behind_a_tuple() -> None:
    """The whole value must be hashable, not only its outside."""

    @frozen
    class Mine(Capability):
        names: object

        def __attrs_post_init__(self) -> None:
            """Take the hook that a check could have used."""

    with pytest.raises(TypeError, match=r"Mine\.names"):
        Mine(([1],))
    assert Mine(freeze({"a": [1]})).names == {"a": [1]}


def test_undecorated_fields() -> None:
    """C58: annotations that attrs never saw are refused at construction, in a base class too."""

    class Bare(Capability):
        limit: int = 3
        constant: ClassVar[int] = 1

    @frozen
    class Below(Bare):
        other: int = 1

    for kind in (Bare, Below):
        with pytest.raises(TypeError, match=r"Bare has the field 'limit' but no @frozen"):
            kind()


def test_a_class_without_fields_needs_no_decorator() -> None:
    """Hooks alone are enough: the class is frozen and has its key."""

    class Plain(Capability):
        def before_run(self, state: RunState) -> RunState:
            return state

    assert Plain().key == "Plain"
    assert frozenset({"before_run"}) == Plain.overrides
    with pytest.raises(FrozenInstanceError):
        Plain().key = "other"  # type: ignore[misc]  # the write under test


@pytest.mark.parametrize("name", ["initial", "describe", "tool_names", "overrides", "declares", "before_run"])
def test_a_field_that_shadows_the_base(name: str) -> None:
    """C58: a field named like something the base has would hide it."""
    with pytest.raises(TypeError, match=name):
        frozen(subclass(**{name: field(default=None), "__annotations__": {name: object}}))


def test_a_field_cannot_take_the_key() -> None:
    """C58: `key` may get another default, and its value is checked as before."""

    @frozen
    class Mine(Capability):
        key: str = field(default="", kw_only=True)

    assert Mine(key="x").key == "x"
    for wrong in ("", None, 5):
        with pytest.raises(TypeError, match="key"):
            Capability(key=wrong)  # type: ignore[arg-type]  # the values under test


def test_keys() -> None:
    """The key defaults to the class name, is part of equality, and survives a copy."""

    @frozen
    class Mine(Capability):
        limit: int
        label: str = ""

    assert Mine(3).key == "Mine"
    assert evolve(Mine(3, key="m"), limit=4).key == "m"
    assert Mine(3) != Mine(3, key="other")
    assert hash(Mine(3)) == hash(Mine(3))


def test_hold_stream_is_a_bool() -> None:
    """A truthy text is a bug."""
    with pytest.raises(TypeError, match="hold_stream"):
        Capability(hold_stream="yes")  # type: ignore[arg-type]  # the value under test


def test_declarations() -> None:
    """What a class declares is from a closed list; any collection of them will do."""
    with pytest.raises(TypeError, match="idempotend"):
        subclass(declares={"idempotend"})
    with pytest.raises(TypeError, match="declares"):
        subclass(declares="repairs")
    assert frozenset({"repairs"}) == subclass(declares=["repairs"]).declares


def test_overrides_are_inherited() -> None:
    """What a base class or a mixin overrides counts; a hook that is the base's own does not."""

    @frozen
    class Base(Capability):
        def before_run(self, state: RunState) -> RunState:
            return state

    class Mixin:
        def after_run(self, state: RunState) -> RunState:
            return state

    @frozen
    class Mine(Mixin, Base):
        limit: int = 0

        async def wrap_run(self, call_next: CallNext[RunState, RunState], state: RunState) -> RunState:
            return await call_next(state)

    assert frozenset({"before_run", "after_run", "wrap_run"}) == Mine.overrides
    assert frozenset() == Capability.overrides


T = TypeVar("T")


@frozen
class Counter(Capability[int]):
    limit: int = 3


@frozen
class Deeper(Counter):
    pass


@frozen
class Carrier(Capability[T], Generic[T]):
    pass


@frozen
class Names(Carrier[tuple[str, ...]]):
    pass


@frozen
class Table(Capability[FrozenDict[Json]]):
    pass


class Elsewhere(Generic[T]):
    """A generic class that has nothing to do with slots."""


class Mixed(Elsewhere[str], Capability[int]):
    pass


@pytest.mark.parametrize(
    ("expected", "capability"),
    [(None, Capability()), (0, Counter()), (0, Deeper()), ((), Names()), ({}, Table()), (0, Mixed())],
)
def test_slots_start_empty(expected: object, capability: AnyCapability) -> None:
    """The slot starts as its type called without arguments, wherever in the bases the type is given."""
    assert expected == capability.initial()
    assert RunState().slot(capability) == expected


def test_a_slot_that_cannot_start() -> None:
    """A type without an empty value, or with a mutable one, is refused at construction, not in a run."""

    class Open(Capability[int | None]):
        pass

    class Closed(Capability[Literal["a"]]):
        pass

    class Listed(Capability[list[int]]):
        pass

    class Raising(Capability[int]):
        def initial(self) -> int:
            raise RuntimeError("not yet")

    class Given(Capability[int | None]):
        def initial(self) -> int | None:
            return None

    for kind, match in ((Open, "override it"), (Closed, "override it"), (Listed, "can change")):
        with pytest.raises(TypeError, match=match):
            kind()
    with pytest.raises(TypeError, match="not yet"):
        Raising()
    assert Given().initial() is None


def test_define_over_a_capability_stays_frozen() -> None:
    """Another attrs decorator does not thaw it."""

    @define
    class Mine(Capability):
        limit: int = 1

    with pytest.raises(FrozenInstanceError):
        Mine().limit = 2  # type: ignore[misc]  # the write under test


def test_capabilities_pickle() -> None:
    """An instance comes back equal."""
    assert Counter(5) == pickle.loads(pickle.dumps(Counter(5)))  # noqa: S301  # our own bytes


@pytest.mark.parametrize("name", REDUCERS)
def test_reducers_are_the_identity_by_default(name: str) -> None:
    """What is not overridden changes nothing."""
    record = RunState() if HOOKS[name].record == "RunState" else CallState()
    assert getattr(Capability(), name)(record) is record


class Next:
    """A `call_next` that gives back what it gets."""

    deps = None
    attempt = 1
    idempotency_key = ""
    resumed = False

    async def __call__(self, *given: object) -> object:
        return given

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    def random(self) -> float:
        return 0.0


@pytest.mark.parametrize("name", WRAPPERS)
async def test_wrappers_go_straight_inward_by_default(name: str) -> None:
    """A wrapper that is not overridden hands on what it got."""
    given: tuple[object, ...] = (RunState(), ()) if name == "wrap_save_messages" else (RunState(),)
    expected = None if name == "wrap_save_messages" else given
    assert expected == await getattr(Capability(), name)(Next(), *given)


@pytest.mark.parametrize("name", GATHERERS)
async def test_gatherers_bring_nothing_by_default(name: str) -> None:
    """A gatherer that is not overridden returns None."""
    assert await getattr(Capability(), name)(RunState(), cast(Any, None)) is None


def test_a_bundle_brings_nothing_by_default() -> None:
    """No tools, no instructions, no names, no needs."""
    plain = Capability()
    assert ((), "", frozenset(), frozenset()) == (
        plain.provide_tools(),
        plain.provide_instructions(),
        plain.tool_names(),
        plain.needs_deps(),
    )
