"""check_port: ports that keep the laws pass, and each that breaks one is named by it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import anyio
import pytest

from capfold.runtime import LocalPort, PortViolation, check_port
from capfold.runtime.durable_engine import Perform
from capfold.runtime.journal_engine import JournalEngine, Records
from capfold.runtime.port import Step

T = TypeVar("T")


async def test_the_local_port_keeps_them() -> None:
    """On both loops."""
    await check_port(LocalPort())


async def test_an_engine_in_memory_keeps_them() -> None:
    """What is recorded comes back, and nothing is performed again."""
    records = Records()
    await check_port(lambda run_id: JournalEngine(run_id, records))


class _Never(LocalPort):
    def bounded(self, step: Callable[[], Awaitable[T]], timeout: float | None) -> Awaitable[T]:
        return super().bounded(step, None if timeout is None else 1e9)


class _Greedy(LocalPort):
    async def together(self, steps: Sequence[Step], limit: int | None) -> None:
        await super().together(steps, None)


PORTS: tuple[tuple[str, LocalPort], ...] = (
    ("now", LocalPort(clock=lambda: 5)),
    ("new_id", LocalPort(new_id=lambda: "one")),
    ("random", LocalPort(random=lambda: 1.0)),
    ("together", _Greedy()),
)


@pytest.mark.parametrize(("law", "port"), PORTS)
async def test_a_port_that_breaks_a_law_is_named_by_it(law: str, port: LocalPort) -> None:
    """The law is in the exception, and in its text."""
    with pytest.raises(PortViolation, match=law) as found:
        await check_port(port)
    assert law == found.value.law


async def test_a_leaf_must_end_in_time() -> None:
    """A port that does not bound its leaves would hang: the test gives it some time, and no more."""
    with anyio.move_on_after(0.2) as scope:
        await check_port(_Never())
    assert scope.cancelled_caught


class _Forgets(JournalEngine):
    """Performs model requests outside of what it records."""

    async def step(self, key: str, perform: Perform, *, counted: bool) -> str:
        if key.endswith(":2:model"):
            return await perform(1)
        return await super().step(key, perform, counted=counted)


class _Uncounted(JournalEngine):
    async def step(self, key: str, perform: Perform, *, counted: bool) -> str:
        return await super().step(key, perform, counted=False)


class _Mangles(JournalEngine):
    async def step(self, key: str, perform: Perform, *, counted: bool) -> str:
        return (await super().step(key, perform, counted=counted)).strip().replace("\\u0000", "")


class _Loses(JournalEngine):
    async def kept(self, name: str) -> str:
        return (await super().kept(name))[:1000]


ENGINES: tuple[tuple[str, type[JournalEngine], str | None], ...] = (
    ("replay", _Forgets, "2:2:model"),
    ("lost", _Uncounted, "1:1:call/call_1_0"),
    ("step", _Mangles, "1:1:model"),
    ("keep", _Loses, None),
)


@pytest.mark.parametrize(("law", "kind", "step"), ENGINES)
async def test_an_engine_that_breaks_a_law_is_named_by_it(
    law: str, kind: type[JournalEngine], step: str | None
) -> None:
    """With the key of the step where it was seen."""
    records = Records()
    with pytest.raises(PortViolation) as found:
        await check_port(lambda run_id: kind(run_id, records))
    assert (law, step) == (found.value.law, found.value.step)


async def test_what_is_no_port_is_refused() -> None:
    """Before anything is tried."""
    nothing: Any = 5
    with pytest.raises(TypeError, match="takes a Port"):
        await check_port(nothing)
