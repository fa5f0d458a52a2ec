"""Laws of ports: what every place must keep in which runs are performed, or recorded. For those who write one.

`check_port` takes a port, which performs leaf effects, or the engines of a durable one, which record steps. Checks by
doing; knows nothing of how a port is built.
"""

from collections.abc import Awaitable, Callable, Sequence

import anyio

from ..capabilities.messages import AssistantMessage, call
from .agent import Agent
from .decisions import ApprovalRequest, Approve, Decision
from .durable_engine import Engine, Perform
from .durable_order import write_order
from .durable_run import Worker, carry
from .event_codec import dumps
from .models import Meter, ModelError, ModelProfile, ModelRequest
from .port import Late, LocalPort, Port
from .scripted_model import FunctionModel

# A worker that begins: the engine of a run, by its id, over whatever earlier workers have recorded of it.
Engines = Callable[[str], Engine]
_AT_ONCE = 5
AWKWARD = 'a "quoted" line\n\u00e4\u4e2d \\u0000 ' + "long " * 1000


class PortViolation(AssertionError):
    """A port that breaks a law. `law` names it; `step` is the key of the step where that was seen, if one."""

    def __init__(self, law: str, message: str, step: str | None = None) -> None:
        """Say what was seen."""
        super().__init__(f"{law}: {message}" + ("" if step is None else f" (step {step!r})"))
        self.law = law
        self.step = step


async def check_port(port: Port | Engines) -> None:
    """Try a port against its laws; a few of them take some hundredths of a second, since they wait for timeouts.

    `port`: a `Port`, or a function that returns the engine of a run for a worker that begins: called again with the
    same id, the worker before has been lost. Raises PortViolation for the first law that is broken.
    """
    if callable(getattr(port, "bounded", None)):
        for law in _LEAVES:
            await law(port)  # type: ignore[arg-type]  # it has what a port has
    elif callable(port):
        for check in _STEPS:
            await check(port)
    else:
        raise TypeError(f"check_port takes a Port, or a function that returns engines; not {port!r:.80}")


def _demand(law: str, fact: object, message: str, step: str | None = None) -> None:
    if not fact:
        raise PortViolation(law, message, step)


# --- leaves


async def _sources(port: Port) -> None:
    now = port.now()
    _demand("now", type(now) is float, f"now() is UTC seconds as a float, not {now!r:.40}")
    one, other = port.new_id(), port.new_id()
    _demand("new_id", type(one) is str and one, f"new_id() is a non-empty string, not {one!r:.40}")
    _demand("new_id", one != other, f"two runs got one id, {one!r:.40}")
    number = port.random()
    _demand("random", 0 <= number < 1, f"random() is in [0, 1), not {number!r:.40}")
    await port.sleep(0)


async def _bounds(port: Port) -> None:
    async def gives() -> str:
        await anyio.lowlevel.checkpoint()
        return "done"

    async def fails() -> str:
        raise TimeoutError("its own")

    for timeout in (None, 60.0):
        found = await port.bounded(gives, timeout)
        _demand("bounded", found == "done", f"a leaf returned 'done', and {found!r:.40} came out")
        try:
            await port.bounded(fails, timeout)
        except Late:
            raise PortViolation(
                "bounded", "a TimeoutError that a leaf raised was taken for the port's"
            ) from None
        except TimeoutError:
            continue
        raise PortViolation("bounded", "what a leaf raises must come out")
    try:
        await port.bounded(anyio.sleep_forever, 0.01)
    except Late:
        return
    raise PortViolation("bounded", "a leaf that never ends must raise Late after its timeout")


class _Silent:
    """A model that answers at once, or never."""

    name = "silent"
    profile = ModelProfile()

    def __init__(self, *, ever: bool) -> None:
        self._ever = ever

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        meter.charge()
        if not self._ever:
            await anyio.sleep_forever()
        return AssistantMessage("yes")


class _Free:
    """A meter that counts nothing."""

    def charge(self) -> None:
        pass

    async def sleep(self, seconds: float) -> None:
        await anyio.lowlevel.checkpoint()

    def random(self) -> float:
        return 0.5


async def _requests(port: Port) -> None:
    request = ModelRequest(messages=())
    for timeout in (None, 60.0):
        said = await port.request(_Silent(ever=True), request, _Free(), timeout)
        _demand(
            "request", said == AssistantMessage("yes"), f"the model said 'yes', and {said!r:.80} came out"
        )
    try:
        await port.request(_Silent(ever=False), request, _Free(), 0.01)
    except ModelError as error:
        right = error.kind == "timeout" and error.retryable
        _demand("request", right, f"a timeout is a retryable ModelError of kind 'timeout', not {error!r:.80}")
        return
    raise PortViolation("request", "a model that never answers must raise ModelError after the timeout")


async def _at_once(port: Port) -> None:
    for limit in (None, 1, 2, 10):
        running = most = done = 0

        async def step() -> None:
            nonlocal running, most, done
            running += 1
            most = max(most, running)
            await anyio.lowlevel.checkpoint()
            running -= 1
            done += 1

        await port.together([step] * _AT_ONCE, limit)
        _demand(
            "together",
            done == _AT_ONCE,
            f"{_AT_ONCE} steps were given, and {done} had ended when it returned",
        )
        _demand("together", limit is None or most <= limit, f"{most} steps ran at once; the limit is {limit}")


async def _approvals(port: Port) -> None:
    def at_once(requests: tuple[ApprovalRequest, ...]) -> Sequence[Decision]:
        return [Approve()]

    async def soon(requests: tuple[ApprovalRequest, ...]) -> Sequence[Decision]:
        return [Approve()]

    async def never(requests: tuple[ApprovalRequest, ...]) -> Sequence[Decision]:
        await anyio.sleep_forever()
        return []

    for approver in (at_once, soon):
        found = await port.ask(approver, (), None)
        _demand("ask", list(found) == [Approve()], f"the approver approved, and {found!r:.80} came out")
    try:
        await port.ask(never, (), 0.01)
    except Late:
        return
    raise PortViolation("ask", "an approver who never answers must raise Late after the timeout")


_LEAVES: tuple[Callable[[Port], Awaitable[None]], ...] = (_sources, _bounds, _requests, _at_once, _approvals)

# --- steps


class _Lost(BaseException):
    """The worker is lost inside a step."""


async def _recorded_once(engines: Engines) -> None:
    performed = 0

    async def perform(attempt: int) -> str:
        nonlocal performed
        performed += 1
        return AWKWARD

    for _ in range(2):
        text = await engines("law-once").step("1:1:model", perform, counted=False)
        _demand("step", text == AWKWARD, f"its text came back as {text!r:.80}", "1:1:model")
    _demand("step", performed == 1, f"it was recorded, and performed {performed} times", "1:1:model")


async def _lost_and_counted(engines: Engines) -> None:
    key = "1:1:call/call_1_0"

    async def lost(attempt: int) -> str:
        raise _Lost

    async def perform(attempt: int) -> str:
        return f"{attempt}"

    for _ in range(2):
        try:
            await engines("law-lost").step(key, lost, counted=True)
        except _Lost:
            continue
        raise PortViolation("lost", "what ends a worker inside a step must come out", key)
    number = await engines("law-lost").step(key, perform, counted=True)
    _demand("lost", number == "3", f"it was begun twice and lost; the third attempt got number {number}", key)


async def _batch(engines: Engines) -> None:
    keys = [f"1:1:call/call_1_{i}" for i in range(4)]
    engine = engines("law-batch")
    found: dict[str, str] = {}

    async def one(key: str) -> None:
        async def perform(attempt: int) -> str:
            for _ in range(5 - keys.index(key)):
                await anyio.lowlevel.checkpoint()
            return f"of {key}"

        found[key] = await engine.step(key, perform, counted=True)

    async with anyio.create_task_group() as group:
        for key in keys:
            group.start_soon(one, key)
    for key in keys:
        _demand("batch", found[key] == f"of {key}", f"it came to {found[key]!r:.60}", key)


async def _aside(engines: Engines) -> None:
    text = AWKWARD * 1000
    name = await engines("law-aside").keep(text)
    found = await engines("law-aside").kept(name)
    _demand("keep", found == text, "a long text that was kept aside did not come back as it was")


class _Watched:
    """An engine that notes which steps are performed."""

    def __init__(self, engine: Engine, performed: list[str]) -> None:
        self.run_id = engine.run_id
        self.control = engine.control
        self.wait = engine.wait
        self.child = engine.child
        self.cut = engine.cut
        self.emit = engine.emit
        self.keep = engine.keep
        self.kept = engine.kept
        self._engine = engine
        self._performed = performed

    async def step(self, key: str, perform: Perform, *, counted: bool) -> str:
        async def noted(attempt: int) -> str:
            self._performed.append(key)
            return await perform(attempt)

        return await self._engine.step(key, noted, counted=counted)


async def _replayed(engines: Engines) -> None:
    """A run comes to the same for a worker with another clock and model: what they say stands in recorded steps."""

    def worker(now: float, said: str) -> Worker:
        model = FunctionModel(lambda request: said if request.step > 1 else call("nothing"))
        return Worker(Agent("law", model, port=LocalPort(clock=lambda: now)))

    first = worker(100.0, "first")
    order = dumps(write_order(first.agent, "go", {}, 100.0))
    was = (await carry(engines("law-run"), first, order)).result
    performed: list[str] = []
    now = (await carry(_Watched(engines("law-run"), performed), worker(200.0, "second"), order)).result
    if performed:
        message = "it was recorded, and performed again, where it reads another clock and asks another model"
        raise PortViolation("replay", message, performed[0])
    for one, other in zip(was.log, now.log, strict=True):
        same = one == other
        _demand("replay", same, f"record {one.seq} ({one.kind}) is another when the run is carried on")
    _demand(
        "replay", was.output == now.output == "first", f"the run came to {was.output!r}, then {now.output!r}"
    )


_STEPS: tuple[Callable[[Engines], Awaitable[None]], ...] = (
    _recorded_once,
    _lost_and_counted,
    _batch,
    _aside,
    _replayed,
)
