"""What a hook returns, and what a capability may be: wrong ones are named, and nothing after them happens."""

import math
from collections.abc import Callable
from typing import Any

import anyio
import attrs
import pytest
from attrs import evolve, frozen

from capfold.capabilities import (
    CallNext,
    CallState,
    Capability,
    Json,
    Outside,
    RunState,
    call,
    hook,
    when,
)
from capfold.capabilities.grid import FORMER_NAMES, GATHERERS, HOOKS, REDUCERS, WRAPPERS
from capfold.runtime import Agent, HookError, Limits, RunError, checked_fold
from tests.corruption.builders import (
    Bodies,
    agent,
    at,
    culprit,
    failure,
    partial_of,
    records,
    requests_of,
    shapes,
)


class SubRun(RunState):
    """A subclass instance passes isinstance, and may override anything."""


class SubCall(CallState):
    """Likewise."""


def subclassed(record: RunState | CallState) -> RunState | CallState:
    """Return an instance of a subclass with the same fields."""
    kind = SubCall if isinstance(record, CallState) else SubRun
    return kind(**{field.name: getattr(record, field.name) for field in attrs.fields(type(record))})


def foreign(record: RunState | CallState) -> object:
    """Return a record of the other class."""
    return record.run if isinstance(record, CallState) else CallState(run=record)


async def later(record: object) -> object:
    """Return the record, when awaited."""
    return record


def raising(record: object) -> object:
    """Raise."""
    raise ZeroDivisionError("oops")


RETURNS: dict[str, tuple[Callable[[Any], object], str]] = {
    "None": (lambda _: None, "InvalidReturn"),
    "dict": (lambda _: {}, "InvalidReturn"),
    "foreign": (foreign, "InvalidReturn"),
    "coroutine": (later, "InvalidReturn"),
    "subclass": (subclassed, "InvalidReturn"),
    "class": (type, "InvalidReturn"),
    "raises": (raising, "HookFailed"),
}
# Where each hook stands: how often the body had run and the model was asked when it is first called.
WHEN = {
    "before_run": (0, 0),
    "before_model_request": (0, 0),
    "after_model_request": (0, 1),
    "before_tool_execute": (0, 1),
    "admit_tool_execute": (0, 1),
    "after_tool_execute": (1, 1),
    "after_run": (1, 2),
}


@pytest.mark.parametrize("what", RETURNS)
@pytest.mark.parametrize("name", REDUCERS)
async def test_c57_a_reducer_returns_its_record_or_is_named(name: str, what: str) -> None:
    """One typed error with the culprit; later hooks of the point and later effects do not happen."""
    make, kind = RETURNS[what]
    seen: list[str] = []

    def look(record: Any) -> Any:
        seen.append(name)
        return record

    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": 1}), "done"],
        tools=[bodies.pay()],
        capabilities=[at(name, make, "culprit"), at(name, look, "later")],
    )
    error = await failure(made.run("go"))
    assert isinstance(error, HookError)
    assert (kind, "culprit", name, None) == culprit(error)
    assert 0 == error.reason.index
    assert ([], *WHEN[name]) == (seen, len(bodies.ran), requests_of(made))
    assert "failed" == partial_of(error).status
    if kind == "HookFailed":
        assert isinstance(error.__cause__, ZeroDivisionError)
    calls = [shape for shape in shapes(partial_of(error)) if shape.startswith("ToolMessage")]
    expected = {"after_tool_execute": ["succeeded"], "after_run": ["succeeded"]}.get(name, ["not_executed"])
    if name in {"before_run", "before_model_request"}:
        expected = []
    assert [f"ToolMessage:{status}" for status in expected] == calls


def wrapper(name: str, make: Callable[[Any], object], *, early: bool, key: str = "culprit") -> Capability:
    """Return a wrapper that returns what `make` makes of what it was given, or of what came from inside."""

    async def wrap(call_next: CallNext[Any, Any], record: Any) -> Any:
        return make(record) if early else make(await call_next(record))

    made: Capability = getattr(hook, name)(wrap)
    return evolve(made, key=key)


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("what", [*RETURNS, "as given"])
@pytest.mark.parametrize("name", ["wrap_run", "wrap_model_request", "wrap_tool_execute"])
async def test_c57_a_wrapper_returns_its_record_or_is_named(name: str, what: str, early: bool) -> None:  # noqa: FBT001  # a parameter of the test
    """One typed error with the culprit, whether it went inward or not; what was done stays on record."""
    make, kind = RETURNS.get(what, (lambda record: record, "InvalidReturn"))
    bodies = Bodies()
    inner: list[str] = []

    def look(record: Any) -> Any:
        inner.append(name)
        return record

    made = agent(
        [call("pay", {"amount": 1}), "done"],
        tools=[bodies.pay()],
        capabilities=[wrapper(name, make, early=early), at(f"{name}:in", look, "inner")],
    )
    if what == "as given" and not early:
        result = await made.run("go")  # to return what came from inside is what a wrapper does
        assert ("completed", 1) == (result.status, len(bodies.ran))
        return
    error = await failure(made.run("go"))
    assert isinstance(error, HookError)
    assert (kind, "culprit", name, None) == culprit(error)
    partial = partial_of(error)
    assert "failed" == partial.status
    if name == "wrap_run":
        ran = (0, 0) if early else (1, 2)
    elif name == "wrap_model_request":
        ran = (0, 0) if early else (0, 1)
    else:
        ran = (0, 1) if early else (1, 1)
    assert ran == (len(bodies.ran), requests_of(made))
    assert (partial.tool_calls, partial.requests) == (
        int(ran[1] > 0 and name != "wrap_model_request"),
        ran[1],
    )
    assert (not early) == bool(inner)
    if name == "wrap_tool_execute":
        settled = records(partial.log, "tool_settled")
        expected = "not_executed" if early else "succeeded"
        assert [expected] == [record.facts["outcome"]["status"] for record in settled]  # type: ignore[index,call-overload]  # a mapping
        assert f"ToolMessage:{expected}" == shapes(partial)[-1]


@pytest.mark.parametrize("name", ["wrap_run", "wrap_model_request", "wrap_tool_execute"])
@pytest.mark.parametrize("early", [True, False])
async def test_c57_the_error_of_another_run_is_a_failure_of_the_hook(name: str, early: bool) -> None:  # noqa: FBT001  # a parameter of the test
    """A wrapper that lets the RunError of a run of its own through has failed: it is named."""
    other = agent(["x"], limits=Limits(requests=0))

    async def wrap(call_next: CallNext[Any, Any], record: Any) -> Any:
        if not early:
            await call_next(record)
        return await other.run("inside")

    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": 1}), "done"],
        tools=[bodies.pay()],
        capabilities=[evolve(getattr(hook, name)(wrap), key="culprit")],
    )
    error = await failure(made.run("go"))
    assert ("HookFailed", "culprit", name, None) == culprit(error)
    assert isinstance(error.__cause__, RunError)
    assert "failed" == partial_of(error).status
    assert (0 if early else int(name != "wrap_model_request")) == len(bodies.ran)


@pytest.mark.parametrize("name", GATHERERS)
async def test_c57_the_error_of_another_run_is_a_failure_of_the_gatherer(name: str) -> None:
    """So has a gatherer."""
    other = agent(["x"], limits=Limits(requests=0))
    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": 1}), "done"],
        tools=[bodies.pay()],
        capabilities=[gatherer(name, Rerun(other), "culprit")],
    )
    error = await failure(made.run("go"))
    assert ("HookFailed", "culprit", name, None) == culprit(error)
    assert isinstance(error.__cause__, RunError)


@frozen
class Gathers(Capability):
    """Overrides one gatherer, by a function given as config."""

    make: Callable[[], Any]


def gatherer(name: str, make: Callable[[], Any], key: str) -> Capability:
    """Return a capability whose gatherer of a name returns what `make` makes, awaited if it can be."""
    record = HOOKS[name].record

    async def gather(self: Gathers, record: object, outside: Outside) -> Json:
        found = self.make()
        return await found if isinstance(found, Awaited) else found  # type: ignore[no-any-return]  # the attack

    kind = type(f"Gathers_{record}", (Gathers,), {name: gather})
    made: Capability = kind(make, key=key)
    return made


class Awaited:
    """Hangs when it is awaited."""

    def __await__(self) -> Any:
        return anyio.sleep_forever().__await__()


@frozen(eq=False)
class Rerun(Awaited):
    """Runs another agent when it is awaited."""

    other: Agent[str]

    def __call__(self) -> "Rerun":
        return self

    def __await__(self) -> Any:
        return self.other.run("inside").__await__()


FACTS: dict[str, tuple[Callable[[], object], str]] = {
    "set": (lambda: {1}, "InvalidReturn"),
    "NaN": (lambda: math.nan, "InvalidReturn"),
    "nested NaN": (lambda: {"a": [math.inf]}, "InvalidReturn"),
    "key": (lambda: {1: 2}, "InvalidReturn"),
    "record": (RunState, "InvalidReturn"),
    "object": (object, "InvalidReturn"),
    "coroutine": (lambda: later(1), "InvalidReturn"),
    "raises": (lambda: raising(1), "HookFailed"),
    "hangs": (Awaited, "HookFailed"),
}


@pytest.mark.parametrize("what", FACTS)
@pytest.mark.parametrize("name", GATHERERS)
async def test_c57_a_gatherer_returns_json_or_is_named(name: str, what: str) -> None:
    """One typed error with the culprit, the first in list order; the reducers of the point are not called."""
    make, kind = FACTS[what]
    point = name.removeprefix("gather_")
    seen: list[str] = []

    def look(record: Any) -> Any:
        seen.append(point)
        return record

    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": 1}), "done"],
        tools=[bodies.pay()],
        capabilities=[
            gatherer(name, lambda: 1, "fine"),
            gatherer(name, make, "culprit"),
            gatherer(name, lambda: raising(1), "second"),
            at(point, look, "reducer"),
        ],
        limits=Limits(tool_timeout=0.05),
    )
    error = await failure(made.run("go"))
    assert isinstance(error, HookError)
    assert (kind, "culprit", name, None) == culprit(error)
    assert ([], *WHEN[point]) == (seen, len(bodies.ran), requests_of(made))
    calls = [shape for shape in shapes(partial_of(error)) if shape.startswith("ToolMessage")]
    after = {"after_tool_execute": ["succeeded"], "after_run": ["succeeded"]}
    before = [] if point in {"before_run", "before_model_request"} else ["not_executed"]
    assert [f"ToolMessage:{status}" for status in after.get(point, before)] == calls


@pytest.mark.parametrize("what", RETURNS)
@pytest.mark.parametrize("name", REDUCERS)
def test_c57_checked_fold_names_the_culprit_too(name: str, what: str) -> None:
    """Outside a run, `checked_fold` ends by the same reason."""
    make, kind = RETURNS[what]
    record: Any = RunState() if HOOKS[name].record == "RunState" else CallState()
    with pytest.raises(HookError) as caught:
        checked_fold([at(name, make, "culprit")], name, record)
    assert (kind, "culprit", name, None) == culprit(caught.value)


CONDITIONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "text": (lambda _: "yes", "InvalidReturn"),
    "None": (lambda _: None, "InvalidReturn"),
    "1": (lambda _: 1, "InvalidReturn"),
    "coroutine": (later, "InvalidReturn"),
    "raises": (raising, "HookFailed"),
}


@pytest.mark.parametrize("what", CONDITIONS)
@pytest.mark.parametrize("name", [*REDUCERS, "wrap_run:in", "wrap_model_request:in", "wrap_tool_execute:in"])
async def test_c57_a_condition_returns_a_bool_or_is_named(name: str, what: str) -> None:
    """The predicate of a `when` that returns no bool, or raises, is an error of the capability under it."""
    if what == "coroutine":
        # An async function is refused when it is given; a hidden one, when it is asked.
        with pytest.raises(TypeError, match="when"):
            when(later, Capability())  # type: ignore[arg-type]  # the attack
    make, kind = CONDITIONS[what]

    def ask(state: RunState) -> Any:
        return make(state)

    bodies = Bodies()
    made = agent(
        [call("pay", {"amount": 1}), "done"],
        tools=[bodies.pay()],
        capabilities=[when(ask, at(name, lambda record: record, "culprit"))],
    )
    error = await failure(made.run("go"))
    hook_name = name.partition(":")[0]
    assert (kind, "culprit", hook_name, None) == culprit(error)
    ran = {"after_tool_execute", "after_run"}
    assert int(name in ran) == len(bodies.ran)


# --- C58: what fails before any run


def identity(self: object, record: object) -> object:
    """Return the record."""
    return record


async def async_identity(self: object, *arguments: object) -> object:
    """Return the last argument."""
    return arguments[-1]


@pytest.mark.parametrize(
    "name", ["before_modle_request", "admit_tool", "on_start", "after_tools", "wrap_tools", *FORMER_NAMES]
)
def test_c58_a_misspelt_hook_fails_at_class_creation(name: str) -> None:
    """A method that looks like a hook and is none fails, naming class and method; also in a mixin."""
    with pytest.raises(TypeError, match=rf"Mine\.{name} is no hook"):
        type("Mine", (Capability,), {name: identity})
    mixin = type("Mixin", (), {name: identity})
    with pytest.raises(TypeError, match=rf"Mine\.{name} is no hook"):
        type("Mine", (mixin, Capability), {})


@pytest.mark.parametrize("name", REDUCERS)
def test_c58_an_async_reducer_fails_at_class_creation(name: str) -> None:
    """A reducer is a plain function."""
    with pytest.raises(TypeError, match=rf"Mine\.{name} is async"):
        type("Mine", (Capability,), {name: async_identity})
    with pytest.raises(TypeError, match=name):
        getattr(hook, name)(async_identity)


@pytest.mark.parametrize("name", [*WRAPPERS, *GATHERERS])
def test_c58_a_sync_wrapper_or_gatherer_fails_at_class_creation(name: str) -> None:
    """A wrapper or gatherer is an async function."""
    with pytest.raises(TypeError, match=rf"Mine\.{name} must be 'async def'"):
        type("Mine", (Capability,), {name: identity})


@pytest.mark.parametrize("name", HOOKS)
def test_c58_a_hook_that_takes_other_parameters_fails_at_class_creation(name: str) -> None:
    """A hook with a parameter too many could not be called."""
    if HOOKS[name].kind == "reducer":

        def wrong(self: object, a: object, b: object, c: object, d: object) -> object:
            return a

        made: object = wrong
    else:

        async def wrong_async(self: object, a: object, b: object, c: object, d: object) -> object:
            return a

        made = wrong_async
    with pytest.raises(TypeError, match=rf"Mine\.{name} must take"):
        type("Mine", (Capability,), {name: made})


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}, bytearray(b"x"), ([],)])
def test_c58_an_unhashable_field_value_fails_at_construction(value: object) -> None:
    """A config value that can change fails, naming class and field."""

    @frozen
    class Mine(Capability):
        rows: object = ()

    with pytest.raises(TypeError, match=r"Mine\.rows"):
        Mine(value)
    with pytest.raises(TypeError, match=r"Mine\.rows"):
        evolve(Mine(), rows=value)


def test_c58_undecorated_fields_fail_at_construction() -> None:
    """A subclass whose fields attrs never saw fails, naming the field; also below a decorated one."""

    class Mine(Capability):
        rows: int = 3

    with pytest.raises(TypeError, match=r"Mine has the field 'rows' but no @frozen"):
        Mine()

    @frozen
    class Good(Capability):
        rows: int = 3

    class Below(Good):
        more: int = 4

    with pytest.raises(TypeError, match=r"Below has the field 'more' but no @frozen"):
        Below()


@pytest.mark.parametrize(
    "name", ["describe", "initial", "before_run", "wrap_run", "declares", "overrides", "tool_names"]
)
def test_c58_a_field_may_not_shadow_the_base(name: str) -> None:
    """A field named like something of the base fails at class creation."""
    with pytest.raises(TypeError, match=name):
        attrs.make_class("Mine", {name: attrs.field(default=3)}, bases=(Capability,), frozen=True)


@frozen
class Limited(Capability):
    """Has a field."""

    limit: int = 1


@pytest.mark.parametrize("name", ["key", "hold_stream", "limit"])
@pytest.mark.parametrize("value", ["mine", True, property(lambda self: "mine"), identity])
def test_c58_a_plain_attribute_in_place_of_a_field_fails_at_class_creation(name: str, value: object) -> None:
    """`key = "mine"` without annotation would be ignored: refused, naming class and field; in a mixin too."""
    with pytest.raises(TypeError, match=rf"Mine\.{name}"):
        frozen(type("Mine", (Limited,), {name: value}))
    mixin = type("Mixin", (), {name: value})
    with pytest.raises(TypeError, match=rf"Mixin\.{name}"):
        type("Mine", (mixin, Limited), {})


@pytest.mark.parametrize("key", ["", 3, None, ("a",)])
def test_c58_a_key_is_a_text(key: object) -> None:
    """A key that is no non-empty text fails at construction."""
    with pytest.raises(TypeError, match="key"):
        Capability(key=key)  # type: ignore[arg-type]  # the attack


def test_c58_a_field_named_key_without_default_of_its_own_is_refused_or_is_the_key() -> None:
    """A subclass may give `key` another default; that is its key, not a field beside it."""

    @frozen
    class Mine(Capability):
        key: str = attrs.field(default="mine", kw_only=True)

    assert ("mine", "other") == (Mine().key, Mine(key="other").key)


@pytest.mark.parametrize("key", ["", 3])
def test_c58_a_key_of_a_subclass_is_checked_too(key: object) -> None:
    """Where a subclass redefines `key`, one that is no non-empty text fails all the same."""

    @frozen
    class Mine(Capability):
        key: str = attrs.field(default="mine", kw_only=True)

    with pytest.raises(TypeError, match="key"):
        Mine(key=key)  # type: ignore[arg-type]  # the attack


@pytest.mark.parametrize("initial", [list, dict, set])
def test_c58_a_mutable_slot_fails_at_construction(initial: type) -> None:
    """A slot whose initial value can change fails, naming the class."""
    kind = type("Mine", (Capability,), {"initial": lambda self: initial()})
    with pytest.raises(TypeError, match=r"Mine\.initial\(\)"):
        kind()


def test_c58_a_class_in_a_list_is_refused() -> None:
    """A class instead of an instance, or a plain function, fails when the agent is built."""
    for wrong in (Capability, identity, "x", None):
        with pytest.raises(TypeError, match=r"capabilities\[0\]"):
            agent([], capabilities=[wrong])
