"""The world of a tale: models, tools, a person and a sink that do as it says, and keep what they saw themselves.

What it saw is the truth that a run's log and state are held against. Nothing here asserts.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final, TypeVar
from zlib import crc32

import anyio
from attrs import define, evolve, field, frozen

from ..capabilities.annotations import SchemaFunction
from ..capabilities.frozen import FrozenDict, Json, freeze_mapping
from ..capabilities.injected import ModelRetry, ToolContext, ToolFailed, ToolUnknown
from ..capabilities.messages import AssistantMessage, Usage
from ..capabilities.tools import Tool
from .audit import AuditRecord
from .decisions import Answer, ApprovalRequest, Approve, Decision, Deny, Edit
from .events import Delta
from .laws_tale import Cast, Choice, Deed, Reaction, Tale
from .models import Meter, ModelError, ModelPart, ModelProfile, ModelRequest
from .port import LocalPort

T = TypeVar("T")
TOKENS: Final = Usage(input_tokens=3, output_tokens=2)
_PROFILE: Final = ModelProfile(images=True, audio=True, files=True, json_schema=True)
_OVER: Final = AssistantMessage("over")
# The id of the run that a tale tells of.
ROOT: Final = "run"
_START: Final = 1_700_000_000.0
# Longer than any limit that a tale may set; what was cut short has ended by then.
PATIENCE: Final = 200.0


class Crash(Exception):
    """What a leaf of the world raises that nobody expects."""


@frozen
class Sent:
    """A request that reached a model and was charged, with the tools it offered."""

    run: str
    step: int
    tools: tuple[str, ...]


@define
class Body:
    """One run of a tool's body. `ended`: "returned", "raised", "cut", or "" while it is under way."""

    run: str
    step: int
    call: str
    tool: str
    attempt: int
    arguments: FrozenDict[Json]
    deed: Deed
    ended: str = ""


@frozen
class Decided:
    """What a person said to a question."""

    request: ApprovalRequest
    decision: Decision


@define
class World:
    """What happens outside a run, and what is known of it.

    `answered`: how many responses were given. `act`: what is done where the tale cuts the run.
    """

    tale: Tale
    act: Callable[[], Awaitable[None]] | None = None
    points: int = 0
    answered: int = 0
    cut: bool = False
    sent: list[Sent] = field(factory=list)
    bodies: list[Body] = field(factory=list)
    decided: list[Decided] = field(factory=list)
    asked: list[ApprovalRequest] = field(factory=list)
    records: list[AuditRecord] = field(factory=list)
    best_effort: bool = False
    _rounds: int = 0

    # --- waiting

    async def point(self) -> None:
        """Wait here; it is where the run is cut, when the tale says so."""
        number, self.points = self.points, self.points + 1
        if self.act is not None and self.tale.cut is not None and self.tale.cut[0] == number:
            self.cut = True
            await self.act()
        else:
            await anyio.lowlevel.checkpoint()

    # --- a person

    async def approve(self, requests: tuple[ApprovalRequest, ...]) -> Sequence[Decision]:
        """Decide, or be no help. Raises `Crash` when nobody is there."""
        self.asked.extend(requests)
        await self.point()
        turn, self._rounds = self._rounds, self._rounds + 1
        behaves = self.tale.asked[turn] if turn < len(self.tale.asked) else "decides"
        if behaves == "absent":
            raise Crash("nobody is there")
        if behaves == "malformed":
            return [*(Approve() for _ in requests), Approve()]
        return [self.decide(request) for request in requests]

    def decide(self, request: ApprovalRequest) -> Decision:
        """Decide about one call; the same each time it is asked."""
        choice: Choice = _one_of(self.tale.choices, request.call_id)
        decision: Decision
        match choice:
            case "always" if request.always != "off":
                decision = Approve(always=True)
            case "denies":
                decision = Deny()
            case "answers":
                decision = Answer("known")
            case "edits":
                decision = Edit(request.arguments)
            case _:
                decision = Approve()
        self.decided.append(Decided(request, decision))
        return decision

    # --- a sink

    async def write(self, records: Sequence[AuditRecord]) -> None:
        """Keep records, then wait."""
        self.records.extend(records)
        await self.point()

    async def close(self) -> None:
        """Have nothing to close."""

    # --- tools

    def tool(self, tool: Tool) -> Tool:
        """Return a tool whose body does what the tale says; one that came with a function of its own too."""

        async def body(arguments: dict[str, object], context: ToolContext) -> object:
            return await self._body(tool.name, arguments, context)

        return evolve(tool, function=SchemaFunction(body))

    async def _body(self, name: str, arguments: dict[str, object], context: ToolContext) -> object:
        deed: Deed = _one_of(self.tale.deeds, f"{context.call_id}/{context.attempt}")
        given = freeze_mapping(arguments, "arguments")
        body = Body(context.run_id, context.step, context.call_id, name, context.attempt, given, deed)
        self.bodies.append(body)
        body.ended = "cut"
        try:
            result = await self._done(deed, context)
        except Exception:
            body.ended = "raised"
            raise
        body.ended = "returned"
        return result

    async def _done(self, deed: Deed, context: ToolContext) -> object:
        await self.point()
        match deed:
            case "waits":
                await anyio.sleep(0.1)
                await self.point()
            case "fails":
                raise ToolFailed("no")
            case "crashes":
                raise Crash("a tool broke")
            case "retries":
                raise ModelRetry("say it otherwise")
            case "unknown":
                raise ToolUnknown("who knows")
            case "rubbish":
                return object()
            case "hangs":
                await anyio.sleep_forever()
        return f"did {context.call_id}"

    # --- models

    def reacts(self, request: ModelRequest) -> Reaction:
        """Return what a model does with a request, which is on record already."""
        times = sum(sent.run == request.run_id and sent.step == request.step for sent in self.sent)
        return _one_of(self.tale.reactions, f"{request.run_id}/{request.step}/{times}")


def _one_of(choices: Sequence[T], name: str) -> T:
    return choices[crc32(name.encode("utf-8", "surrogatepass")) % len(choices)]


@frozen(eq=False)
class Speaker:
    """The model of one agent: in each step of a run, what its script says there."""

    world: World
    cast: Cast
    name: str
    profile: ModelProfile = _PROFILE

    async def request(self, request: ModelRequest, meter: Meter) -> AssistantMessage:
        """Answer in one piece, or fail. Raises ModelError, `Crash`, and LimitError when it may not be asked."""
        self._charged(request, meter)
        await self.world.point()
        return await self._said(request)

    @asynccontextmanager
    async def stream(self, request: ModelRequest, meter: Meter) -> AsyncIterator[AsyncIterator[ModelPart]]:
        """Answer in two pieces, or fail before or between them."""
        self._charged(request, meter)
        await self.world.point()
        yield self._parts(request)

    async def _parts(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        text = self._line(request).text
        if text:
            yield Delta(text)
        await self.world.point()
        yield await self._said(request)

    def _charged(self, request: ModelRequest, meter: Meter) -> None:
        meter.charge()
        self.world.sent.append(Sent(request.run_id, request.step, tuple(tool.name for tool in request.tools)))

    def _line(self, request: ModelRequest) -> AssistantMessage:
        place = request.step - 1
        line = self.cast.script[place] if 0 <= place < len(self.cast.script) else _OVER
        return evolve(line, usage=TOKENS)

    async def _said(self, request: ModelRequest) -> AssistantMessage:
        match self.world.reacts(request):
            case "fails":
                raise ModelError("server", "busy", retryable=True)
            case "fails for good":
                raise ModelError("bad_request", "no", retryable=False)
            case "crashes":
                raise Crash("a model broke")
            case "rubbish":
                return "rubbish"  # type: ignore[return-value]  # the mistake of an adapter
            case "hangs":
                await anyio.sleep(PATIENCE)
        self.world.answered += 1
        return self._line(request)


class TalePort(LocalPort):
    """A port whose clock is that of the event loop, so that time passes as the loop says, and whose ids are known."""

    def __init__(self, world: World) -> None:
        """Start at the same moment each time."""
        super().__init__(clock=_clock, new_id=lambda: ROOT, random=lambda: 0.5)
        self._world = world

    async def sleep(self, seconds: float) -> None:
        """Wait at a point of the world, then as long as is asked."""
        await self._world.point()
        await anyio.sleep(seconds)


def _clock() -> float:
    return _START + anyio.current_time()


@contextmanager
def acting(world: World, act: Callable[[], Awaitable[None]]) -> Iterator[None]:
    """Have something done where the tale cuts the run, while the block lasts."""
    world.act = act
    try:
        yield
    finally:
        world.act = None
