"""Retry and Fallback: which failures lead to another attempt, what is charged, and what a stream may have said."""

import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import get_args

import anyio
import pytest
from attrs import define, evolve
from hypothesis import given
from hypothesis import strategies as st

from capfold.capabilities.backoff import Backoff
from capfold.capabilities.messages import AssistantMessage, UserMessage, call
from capfold.runtime.agent import Agent
from capfold.runtime.attempts import POLICIES
from capfold.runtime.errors import LimitError, LimitExceeded, ModelFailed, ModelRunError
from capfold.runtime.events import Delta
from capfold.runtime.fallback_model import Fallback
from capfold.runtime.limits import Limits
from capfold.runtime.models import (
    Meter,
    Model,
    ModelError,
    ModelErrorKind,
    ModelPart,
    ModelProfile,
    ModelRequest,
    StreamingModel,
)
from capfold.runtime.replies import Chunks, Reply
from capfold.runtime.retry_model import Retry
from capfold.runtime.scripted_model import ScriptedModel
from tests.runtime.desk import partial
from tests.runtime.meters import CountingMeter, NoneLeft

ASK = ModelRequest(messages=(UserMessage("hello"),), step=2)
SOON = Backoff(initial=0.0)
KINDS: tuple[ModelErrorKind, ...] = get_args(ModelErrorKind)


def failed(
    kind: ModelErrorKind = "server",
    message: str = "down",
    *,
    retryable: bool = True,
    after: float | None = None,
) -> ModelError:
    """Return an error to script."""
    return ModelError(kind, message, retryable=retryable, retry_after=after)


async def by_request(model: Model, meter: Meter) -> str:
    """Ask in one piece; return the text."""
    return (await model.request(ASK, meter)).text


async def by_stream(model: Model, meter: Meter) -> str:
    """Ask in pieces; return the text."""
    assert isinstance(model, StreamingModel)
    async with model.stream(ASK, meter) as parts:
        *deltas, message = [part async for part in parts]
    assert isinstance(message, AssistantMessage)
    assert message.text == "".join(part.text for part in deltas if isinstance(part, Delta))
    return message.text


both_ways = pytest.mark.parametrize("ask", [by_request, by_stream])


class Silent:
    """A model that never charges, as it should; it fails so often and then answers."""

    profile = ModelProfile()

    def __init__(self, *failures: ModelError, name: str = "silent") -> None:
        """Fail with these first."""
        self.name = name
        self.failures = list(failures)
        self.calls = 0

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        """Answer, or fail."""
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return AssistantMessage("fine")


# --- the table


def test_each_kind_has_a_policy() -> None:
    """The table is total."""
    assert set(KINDS) == set(POLICIES)


@both_ways
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("retryable", [True, False])
async def test_what_is_retried(ask: object, kind: ModelErrorKind, retryable: bool) -> None:  # noqa: FBT001  # a value under test
    """A failure is met by another attempt where both the table and the error say that it may pass."""
    assert callable(ask)
    meter = CountingMeter()
    model = ScriptedModel([failed(kind, retryable=retryable), "fine"])
    if POLICIES[kind].retry and retryable:
        assert "fine" == await ask(Retry(model), meter)
        assert 2 == meter.charged
        assert 1 == len(meter.slept)
    else:
        with pytest.raises(ModelError, match="down"):
            await ask(Retry(model), meter)
        assert (1, []) == (meter.charged, meter.slept)


@both_ways
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("retryable", [True, False])
async def test_what_another_model_is_asked_for(ask: object, kind: ModelErrorKind, retryable: bool) -> None:  # noqa: FBT001  # likewise
    """The next model is asked where the table says so, whether the same request could succeed later or not."""
    assert callable(ask)
    meter = CountingMeter()
    model = Fallback([ScriptedModel([failed(kind, retryable=retryable)]), ScriptedModel(["fine"])])
    if POLICIES[kind].fallback:
        assert "fine" == await ask(model, meter)
        assert 2 == meter.charged
    else:
        with pytest.raises(ModelError, match="down"):
            await ask(model, meter)
        assert 1 == meter.charged
    assert [] == meter.slept


# --- what passes through


@both_ways
@pytest.mark.parametrize(
    "around", [lambda model: Retry(model, backoff=SOON), lambda model: Fallback([model] * 3)]
)
@pytest.mark.parametrize("error", [OSError("a bug"), NoneLeft()])
async def test_other_exceptions_pass(ask: object, around: Callable[[Model], Model], error: Exception) -> None:
    """What is no ModelError is a bug or a limit: it is raised as it is, after one attempt."""
    assert callable(ask)
    meter, model = CountingMeter(), ScriptedModel([error, "fine", "fine"])
    with pytest.raises(type(error)) as caught:
        await ask(around(model), meter)
    assert caught.value is error
    assert (1, 1) == (meter.charged, len(model.requests))


@pytest.mark.parametrize(
    "around", [lambda model: Retry(model, backoff=SOON), lambda model: Fallback([model] * 3)]
)
@both_ways
async def test_cancellation_passes(ask: object, around: Callable[[Model], Model]) -> None:
    """A cancelled request is not asked again."""
    assert callable(ask)

    async def never(request: ModelRequest) -> Reply:
        await anyio.sleep_forever()
        return "never"

    meter, model = CountingMeter(), ScriptedModel([never, "again"])
    with anyio.move_on_after(0.05) as scope:
        await ask(around(model), meter)
    assert scope.cancelled_caught
    assert (1, 1) == (meter.charged, len(model.requests))


async def test_a_cancelled_wait_passes() -> None:
    """Cancelled between two attempts, there is no second one."""

    @define
    class Sleepy(CountingMeter):
        async def sleep(self, seconds: float) -> None:
            await anyio.sleep_forever()

    meter, model = Sleepy(), ScriptedModel([failed(), "again"])
    with anyio.move_on_after(0.05) as scope:
        await Retry(model).request(ASK, meter)
    assert scope.cancelled_caught
    assert (1, 1) == (meter.charged, len(model.requests))


# --- streams


@pytest.mark.parametrize(
    "around", [lambda model: Retry(model, backoff=SOON), lambda model: Fallback([model] * 2)]
)
async def test_a_published_stream_is_never_restarted(around: Callable[[Model], StreamingModel]) -> None:
    """Once a delta was given, a failure is the consumer's, with the text so far, and nothing is asked again."""
    meter, told = CountingMeter(), []
    model = ScriptedModel([Chunks("half", error=failed()), "whole"])

    async def consume() -> None:
        async with around(model).stream(ASK, meter) as parts:
            async for part in parts:
                told.append(part)  # noqa: PERF401  # those before a failure are wanted too

    with pytest.raises(ModelError, match="down") as caught:
        await consume()
    assert ([Delta("half", 2)], "half", 1) == (told, caught.value.partial, meter.charged)
    assert 1 == len(model.requests)


@pytest.mark.parametrize(
    "around", [lambda model: Retry(model, backoff=SOON), lambda model: Fallback([model] * 2)]
)
async def test_a_stream_that_said_nothing_is_restarted(around: Callable[[Model], StreamingModel]) -> None:
    """A stream that breaks off before its first delta said nothing to anybody: the next one may be whole."""
    meter, model = CountingMeter(), ScriptedModel([Chunks(error=failed()), Chunks("a", "b")])
    async with around(model).stream(ASK, meter) as parts:
        told = [part async for part in parts]
    message = told.pop()
    assert ([Delta("a", 2), Delta("b", 2)], 2) == (told, meter.charged)
    assert isinstance(message, AssistantMessage)


@pytest.mark.parametrize("around", [Retry, lambda model: Fallback([model])])
async def test_a_stream_that_is_left_is_closed(around: Callable[[Model], StreamingModel]) -> None:
    """The inner stream is closed when the outer one is left, and each failed one before the next is opened."""
    happened: list[str] = []

    class Noisy(Silent):
        @asynccontextmanager
        async def stream(
            self, request: ModelRequest, meter: Meter
        ) -> AsyncIterator[AsyncIterator[ModelPart]]:
            meter.charge()
            happened.append("opened")
            try:
                inner = ScriptedModel([Chunks("a", "b")])
                async with inner.stream(request, CountingMeter()) as parts:
                    yield parts
            finally:
                happened.append("closed")

    async with around(Noisy()).stream(ASK, CountingMeter()) as parts:
        assert Delta("a", 2) == await anext(parts)
        assert ["opened"] == happened
    assert ["opened", "closed"] == happened


# --- waiting


async def waits(errors: Sequence[ModelError], backoff: Backoff) -> list[float]:
    """Return the waits between attempts that fail like this; the random number is always a half."""
    meter = CountingMeter()
    model = ScriptedModel([*errors, "fine"])
    await Retry(model, attempts=len(errors) + 1, backoff=backoff).request(ASK, meter)
    return meter.slept


async def test_waits_grow() -> None:
    """Each wait is the factor times the one before, up to the longest, less a random part."""
    backoff = Backoff(initial=1.0, factor=3.0, maximum=20.0)
    assert [0.75, 2.25, 6.75, 15.0, 15.0] == await waits([failed()] * 5, backoff)
    assert [1.0, 3.0] == await waits([failed()] * 2, evolve(backoff, jitter=False))
    assert [0.0, 0.0] == await waits([failed()] * 2, SOON)


async def test_what_the_provider_asks_for() -> None:
    """A provider's Retry-After is waited for as it is, up to the longest wait."""
    backoff = Backoff(initial=1.0, maximum=20.0)
    errors = [failed("rate_limit", after=seconds) for seconds in (5.0, 0.5, 0.0, 60.0)]
    assert [5.0, 0.5, 0.0, 20.0] == await waits(errors, backoff)


@both_ways
async def test_the_last_error_is_raised(ask: object) -> None:
    """After the last attempt its error is raised, with the earlier ones as notes; there is no wait after it."""
    assert callable(ask)
    meter = CountingMeter()
    errors = [failed(message="one"), failed("timeout", "two"), failed("rate_limit", "three")]
    model = ScriptedModel([*errors, "never"])
    with pytest.raises(ModelError) as caught:
        await ask(Retry(model, attempts=3, backoff=SOON), meter)
    assert caught.value is errors[-1]
    assert ["attempt 1: server: one", "attempt 2: timeout: two"] == caught.value.__notes__
    assert (3, 2) == (meter.charged, len(meter.slept))


@both_ways
async def test_the_last_model_fails(ask: object) -> None:
    """The last model's error is raised, and what the earlier ones said is noted on it."""
    assert callable(ask)
    model = Fallback(
        [ScriptedModel([failed(message=name)], name=name) for name in ("a", "b")]
        + [ScriptedModel([failed("auth", "no key", retryable=False)], name="c")]
    )
    with pytest.raises(ModelError, match="no key") as caught:
        await ask(model, CountingMeter())
    assert ["a before: server: a", "b before: server: b"] == caught.value.__notes__


# --- what is charged


@given(st.lists(st.booleans(), max_size=5), st.integers(1, 5), st.integers(0, 5))
def test_no_attempt_is_free_or_paid_twice(fails: list[bool], attempts: int, allowed: int) -> None:
    """Whatever fails and however many attempts there are, as many are charged as reached the model, none beyond."""

    async def check() -> None:
        meter = CountingMeter(allowed=allowed)
        model = ScriptedModel([failed() if fail else "fine" for fail in fails])
        with suppress(ModelError, NoneLeft):
            await Retry(model, attempts=attempts, backoff=SOON).request(ASK, meter)
        assert meter.charged == len(model.requests) <= min(allowed, attempts)

    anyio.run(check)


async def run_of(model: Model, requests: int | None) -> tuple[str, int]:
    """Run an agent; return its output, or the kind of its failure, and the requests that the ledger has."""
    try:
        result = await Agent("desk", model, limits=Limits(requests=requests)).run("go")
    except (LimitError, ModelRunError) as error:
        return how(error.reason), partial(error).requests
    return str(result.output), result.requests


def how(reason: object) -> str:
    """Return the kind of the failure that ended a run."""
    if isinstance(reason, LimitExceeded):
        return "limit" if reason.limit == "requests" else reason.limit
    assert isinstance(reason, ModelFailed)
    return reason.kind


@pytest.mark.parametrize("silent", [False, True], ids=["charges", "never charges"])
@pytest.mark.parametrize(
    ("failures", "limit", "expected"),
    [
        (0, None, ("fine", 1)),
        (2, None, ("fine", 3)),
        (2, 3, ("fine", 3)),
        (2, 2, ("limit", 2)),
        (2, 1, ("limit", 1)),
        (3, None, ("server", 3)),
        (3, 3, ("server", 3)),
    ],
)
async def test_a_run_that_retries(
    silent: bool,  # noqa: FBT001  # a value under test
    failures: int,
    limit: int | None,
    expected: tuple[str, int],
) -> None:
    """The run's ledger has each attempt once, and its limit ends the run: it is met by no further attempt."""
    errors = [failed() for _ in range(failures)]
    quiet, scripted = Silent(*errors), ScriptedModel([*errors, "fine"])
    model: Model = quiet if silent else scripted
    assert expected == await run_of(Retry(model, backoff=SOON), limit)
    assert expected[1] == (quiet.calls if silent else len(scripted.requests))


@pytest.mark.parametrize("silent", [False, True], ids=["charges", "never charges"])
@pytest.mark.parametrize(
    ("failing", "limit", "expected"),
    [
        (0, 1, ("fine", 1)),
        (2, None, ("fine", 3)),
        (2, 3, ("fine", 3)),
        (2, 2, ("limit", 2)),
        (2, 1, ("limit", 1)),
    ],
)
async def test_a_run_that_falls_back(
    silent: bool,  # noqa: FBT001  # a value under test
    failing: int,
    limit: int | None,
    expected: tuple[str, int],
) -> None:
    """Likewise for models that are asked one after another."""
    bad: list[Model] = [Silent(failed()) if silent else ScriptedModel([failed()]) for _ in range(failing)]
    good: Model = Silent() if silent else ScriptedModel(["fine"])
    assert expected == await run_of(Fallback([*bad, good]), limit)


async def test_a_model_that_cannot_send_is_not_charged() -> None:
    """What fails before anything is sent, as without a key, is free; what was booked for it is the next one's."""

    def keyless() -> Silent:
        return Silent(failed("auth", "no key", retryable=False))

    assert ("fine", 1) == await run_of(Fallback([keyless(), ScriptedModel(["fine"])]), 1)
    three = Fallback([ScriptedModel([failed()]), keyless(), ScriptedModel(["fine"])])
    assert ("fine", 2) == await run_of(three, 2)
    assert ("auth", 0) == await run_of(Retry(keyless()), None)


@pytest.mark.parametrize("requests", range(1, 6))
@pytest.mark.parametrize("order", ["retry of fallback", "fallback of retries"])
async def test_any_nesting(order: str, requests: int) -> None:
    """Inside one another in either order, each attempt is charged once, up to the limit and not beyond."""
    a, b = (ScriptedModel([failed(), failed()], name="a"), ScriptedModel([failed(), "fine"], name="b"))
    if order == "retry of fallback":
        model: Model = Retry(Fallback([a, b]), attempts=2, backoff=SOON)  # a b a b
    else:
        model = Fallback([Retry(a, attempts=2, backoff=SOON), Retry(b, attempts=2, backoff=SOON)])  # a a b b
    expected = ("fine", 4) if requests >= 4 else ("limit", requests)
    assert expected == await run_of(model, requests)
    assert expected[1] == len(a.requests) + len(b.requests)


async def test_each_step_has_attempts_of_its_own() -> None:
    """A run of two steps may fail as often in each as one request may."""
    model = ScriptedModel([failed(), call("f"), failed(), failed(), "fine"])
    assert ("fine", 5) == await run_of(Retry(model, backoff=SOON), None)


# --- what they are


def test_a_retry_is_its_model_to_others() -> None:
    """It has the name and the profile of the model inside, which may be given by a string."""
    profile = ModelProfile(images=True, json_schema=True)
    model = Retry(ScriptedModel([], name="m", profile=profile))
    assert ("m", profile) == (model.name, model.profile)
    assert "test" == Retry("test").name


@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=3))
def test_a_fallback_can_do_what_all_can(rows: list[list[bool]]) -> None:
    """Its profile is the intersection of those inside."""
    names = ["tools", "json_schema", "images", "audio", "files", "reports_usage"]
    models = [ScriptedModel([], profile=ModelProfile(**dict(zip(names, row, strict=True)))) for row in rows]  # type: ignore[arg-type]  # booleans, by name
    profile = Fallback(models).profile
    assert [all(column) for column in zip(*rows, strict=True)] == [getattr(profile, name) for name in names]


async def test_who_answered() -> None:
    """A fallback has the names of all, and a response that names no model gets the name of the one it came from."""
    nameless = AssistantMessage("fine", model=None)
    own = AssistantMessage("fine", model="b-2026")
    for reply, expected in ((nameless, "b"), (own, "b-2026"), ("fine", "b")):
        model = Fallback([ScriptedModel([failed()] * 2, name="a"), ScriptedModel([reply] * 2, name="b")])
        assert "fallback(a, b)" == model.name
        assert expected == (await model.request(ASK, CountingMeter())).model
        async with model.stream(ASK, CountingMeter()) as parts:
            *_, message = [part async for part in parts]
        assert isinstance(message, AssistantMessage)
        assert expected == message.model


def test_they_are_values() -> None:
    """They can be keys, stream by the protocol, and say what they are made of."""
    model = ScriptedModel([], name="m")
    for one in (Retry(model), Fallback([model, "test"])):
        assert {one: 1}[one] == 1
        assert isinstance(one, StreamingModel)
        assert "<ScriptedModel m 0/0>" in repr(one)


@pytest.mark.parametrize(
    ("make", "error", "why"),
    [
        (
            lambda: Retry(3),  # type: ignore[arg-type]  # wrong on purpose
            TypeError,
            "a model has a name",
        ),
        (lambda: Retry("nobody"), ValueError, "unknown model"),
        (lambda: Retry("test", attempts=0), ValueError, "integer from 1"),
        (lambda: Retry("test", attempts=True), ValueError, "integer from 1"),
        (
            lambda: Retry("test", backoff=1.0),  # type: ignore[arg-type]  # likewise
            TypeError,
            "must be a Backoff",
        ),
        (lambda: Fallback([]), ValueError, "at least one"),
        (lambda: Fallback("test"), TypeError, "a list of models"),
        (
            lambda: Fallback(ScriptedModel([])),  # type: ignore[arg-type]  # likewise
            TypeError,
            "a list of models",
        ),
        (
            lambda: Fallback([3]),  # type: ignore[list-item]  # likewise
            TypeError,
            "a model has a name",
        ),
    ],
)
def test_bad_construction(make: Callable[[], object], error: type[Exception], why: str) -> None:
    """What cannot work is refused when it is made."""
    with pytest.raises(error, match=why):
        make()


def test_any_order_of_both() -> None:
    """They nest in each other without end."""
    for layers in itertools.product("rf", repeat=3):
        model: Model = ScriptedModel([], name="m")
        for layer in layers:
            model = Retry(model) if layer == "r" else Fallback([model])
        assert "m" in model.name
