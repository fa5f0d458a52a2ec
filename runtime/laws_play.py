"""Telling a tale: it is lived by an agent on a real event loop, wrappers, sub-agents and resumed runs included.

Returns what came of it beside what the world saw; whether that is right is for `laws_truths` to say.
"""

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import anyio
from attrs import define

from ..capabilities.messages import Message
from .agent import Agent
from .audit import AuditRecord
from .errors import DecisionError, RunError
from .events import Ended
from .handle import RunHandle
from .laws_lives import quiet
from .laws_loops import LoopName, run_leaping
from .laws_tale import HELPER, Cast, Tale
from .laws_world import PATIENCE, Crash, Speaker, TalePort, World, acting
from .log import Log
from .memory_store import MemoryStore
from .port import on_asyncio
from .result import RunResult
from .runs import RunOptions
from .stores import SnapshotClaimed

CONVERSATION = "talk"
# In the loop's own seconds, which pass at once; a run that is not over by then never will be.
_FOREVER = 100_000.0
_ROUNDS = 4  # so often a suspended run is resumed; then it is left waiting
_GRACE = 1.0
# So long waits what was cut short: less than a sink is waited for when its run is cancelled.
_MOMENT = 0.5


@define
class Told:
    """A tale that was told. `result`: None of a run whose caller was cancelled; `log`: of all its parts.

    `error`: what it failed by. `earlier`: the log up to where it was resumed last. `left`: names of tasks that were
    there afterwards. `stored`: the conversation.
    """

    tale: Tale
    world: World
    agent: Agent[object]
    result: RunResult[object] | None = None
    error: RunError | None = None
    store: MemoryStore | None = None
    stored: tuple[Message, ...] = ()
    earlier: tuple[AuditRecord, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def log(self) -> Log:
        """The log of the run, and of what went on when it was resumed; of one without a result, what its sink got."""
        if self.result is None:
            return Log.from_records(self.world.records)
        return Log.from_records((*self.earlier, *self.result.log))


def tell(tale: Tale, loop: LoopName = "asyncio", *, deps: object = None) -> Told:
    """Tell a tale on a fresh event loop.

    Raises AssertionError for what no run may do: raise anything but a RunError, or never end. Warnings are errors.
    """
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("error")
        return run_leaping(lambda: _told(tale, deps), loop)


def agent_of(tale: Tale, world: World, deps: object = None) -> tuple[Agent[object], MemoryStore | None]:
    """Return the agent of a tale, and its store where it has one."""
    store = MemoryStore() if tale.kept else None
    tools = [*map(world.tool, tale.root.tools)]
    port = TalePort(world)
    if tale.helper is not None:
        helper = _agent(HELPER, tale.helper, world, port)
        tools.append(helper.as_tool("Helps."))
    agent: Agent[object] = Agent(
        "agent",
        Speaker(world, tale.root, "scripted"),
        tools=tools,
        capabilities=tale.root.capabilities,
        limits=tale.root.limits,
        instructions=tale.root.instructions,
        settings=tale.root.settings,
        approver=world.approve,
        sinks=[world],
        store=store,
        deps=deps,
        port=port,
    )
    return agent, store


def _agent(name: str, cast: Cast, world: World, port: TalePort) -> Agent[object]:
    return Agent(
        name,
        Speaker(world, cast, name),
        tools=[*map(world.tool, cast.tools)],
        capabilities=cast.capabilities,
        limits=cast.limits,
        instructions=cast.instructions,
        settings=cast.settings,
        port=port,
    )


async def _told(tale: Tale, deps: object) -> Told:
    world = World(tale)
    agent, store = agent_of(tale, world, deps)
    told = Told(tale, world, agent, store=store)
    try:
        with anyio.fail_after(_FOREVER):
            await _begin(told)
            for turn in range(_ROUNDS):
                if told.result is None or told.result.status != "suspended":
                    break
                await _go_on(told, turn)
    except TimeoutError as error:
        raise AssertionError("the run never ended") from error
    await anyio.sleep(PATIENCE * 2)  # what was left running ends, or shows
    told.left = _tasks()
    if store is not None:
        told.stored = await store.load(CONVERSATION)
    return told


def _tasks() -> tuple[str, ...]:
    """Name the tasks beside this one; trio lets none go on."""
    if not on_asyncio():
        return ()
    mine = asyncio.current_task()
    return tuple(str(task.get_coro()) for task in asyncio.all_tasks() if task is not mine)


async def _begin(told: Told) -> None:
    """Run it in one of three ways."""
    tale = told.tale
    options: RunOptions = {"context": tale.context}
    if tale.kept:
        options["conversation"] = CONVERSATION
    else:
        options["messages"] = tale.history
    prompt = tale.prompt
    handled = tale.way == "start" or (tale.cut is not None and tale.cut[1] in {"stop", "cancel"})
    if handled:
        async with told.agent.start(prompt, **options) as handle:
            await _cut_by(told, handle)
    elif tale.way == "stream":
        await _scoped(told, lambda: _streamed(told, options))
    else:
        await _scoped(told, lambda: told.agent.run(prompt, **options))


async def _streamed(told: Told, options: RunOptions) -> RunResult[object]:
    """Read all events of a stream, and return what it ends with."""
    end: Ended[object] | None = None
    async with told.agent.stream(told.tale.prompt, **options) as events:
        async for event in events:
            await told.world.point()
            end = event if isinstance(event, Ended) else end
    assert end is not None, "a stream ended without its last event"
    if end.error is not None:
        raise end.error
    assert end.result is not None
    return end.result


async def _cut_by(told: Told, handle: RunHandle[object]) -> None:
    """Await a run by its handle, which stops or cancels it where the tale says so."""
    async with AsyncExitStack() as stack:
        group = await stack.enter_async_context(anyio.create_task_group())

        async def act() -> None:
            match told.tale.cut:
                case _, "stop":
                    group.start_soon(lambda: handle.stop("enough", _GRACE))
                case _, "cancel" | "scope":
                    handle.cancel()
                case _, "crash":
                    raise Crash("at this point")
                case _, "late":
                    await anyio.sleep(PATIENCE)
            await anyio.sleep(_MOMENT)

        with acting(told.world, act):
            await _ended(told, handle.result)


async def _scoped(told: Told, work: Callable[[], Awaitable[RunResult[object]]]) -> None:
    """Await a run whose caller is cancelled where the tale says so."""
    with anyio.CancelScope() as scope:

        async def act() -> None:
            match told.tale.cut:
                case _, "crash":
                    raise Crash("at this point")
                case _, "late":
                    await anyio.sleep(PATIENCE)
                case _:
                    scope.cancel()
            await anyio.sleep(_MOMENT)

        with acting(told.world, act):
            await _ended(told, work)


async def _ended(told: Told, work: Callable[[], Awaitable[RunResult[object]]]) -> None:
    """Keep what a run comes to."""
    told.result = None
    try:
        told.result = await work()
    except RunError as error:
        told.result, told.error = error.partial, error
    except Crash:
        # Out of a stream it comes as it is when its reader raised it, and from nowhere else.
        assert told.tale.way == "stream", "a run raised what a part of it had raised"
        assert told.world.cut, "nobody raised it"


async def _go_on(told: Told, turn: int) -> None:
    """Resume a suspended run: first with decisions that fit nothing, then with those of the tale, then once more."""
    result, world, agent = told.result, told.world, told.agent
    assert result is not None
    given = result.snapshot() if told.tale.through_text else result
    before = len(world.records)
    try:
        await agent.resume(given, {"nothing": world.decide(result.pending[0])})
    except DecisionError:
        world.decided.pop()
    else:
        raise AssertionError("a decision about nothing was taken")
    assert len(world.records) == before, "a malformed decision left its mark"
    decisions = {request.digest: world.decide(request) for request in result.pending}
    world.asked.extend(result.pending)
    told.earlier = (*told.earlier, *result.log)
    await _scoped(told, lambda: agent.resume(given, decisions))
    if told.store is not None and (told.result is None or told.result.status != "suspended"):
        try:
            await agent.resume(given, decisions)
        except SnapshotClaimed:
            return
        raise AssertionError("a suspended run was resumed twice")
