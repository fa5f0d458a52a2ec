"""AgentHooksHost: an interception emitter with the context builder of each run. Knows nothing of hooks.

The emitter and its interceptors belong to the caller: they keep records and may wait for a person, so they are no
configuration of a capability. A host is handed to a run by `deps`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from attrs import frozen

from ..capabilities.frozen import digest, freeze, same
from ..capabilities.state import RunState

if TYPE_CHECKING:
    from agent_hooks import AgentContextBuilder, InterceptionEmitter, InterceptionRecord

Point: TypeAlias = Literal[
    "agent_startup",
    "input",
    "pre_model_call",
    "post_model_call",
    "pre_tool_call",
    "post_tool_call",
    "output",
    "agent_shutdown",
]
_NO_TARGET = object()


@frozen
class Ruling:
    """What the interceptors made of one point: whether it goes on, why not, and what stands in the target's place.

    `target` is there only where a transform changed it, and with it `seen`, the digest of what they were shown.
    """

    proceeds: bool
    reason: str = ""
    target: object = _NO_TARGET
    seen: str = ""

    @property
    def changed(self) -> bool:
        """Whether a transform takes effect."""
        return self.proceeds and self.target is not _NO_TARGET

    def is_of(self, shown: object) -> bool:
        """Tell whether the interceptors saw this very target."""
        return self.seen == digest(freeze(shown))

    def as_fact(self) -> dict[str, object]:
        """Return the ruling as JSON, for a gatherer."""
        if self.changed:
            return {"proceeds": True, "target": self.target, "seen": self.seen}
        return {"proceeds": True} if self.proceeds else {"proceeds": False, "reason": self.reason}

    @classmethod
    def of(cls, fact: object) -> "Ruling | None":
        """Return the ruling that a fact holds; None where the point was not emitted."""
        if not isinstance(fact, Mapping) or "proceeds" not in fact:
            return None
        return cls(
            fact["proceeds"] is True,
            str(fact.get("reason", "")),
            fact.get("target", _NO_TARGET),
            str(fact.get("seen", "")),
        )


class Emits(Protocol):
    """What the capability needs of a host."""

    async def emit(self, run: RunState, point: Point, **content: object) -> Ruling:
        """Emit one point of a run; never raises for a denial."""

    def forget(self, run: RunState) -> None:
        """Let go of a run that has ended."""


class AgentHooksHost:
    """Hands the points of runs to one `InterceptionEmitter` of agent-hooks-sdk.

    `emitter`: with its interceptors, resolver, mode and composition; `emitter.results` are its records.
    One host may serve many runs at a time. A run is a session of its own: its id is the session's id, its contexts
    are numbered from 0, the agent's name is the agent's id. A run that is resumed by another host starts at 0 again.
    `emitter.set_max_records(n)` bounds what a long-lived emitter keeps.
    An async interceptor or resolver needs asyncio: the emitter awaits it by asyncio's own timeout.
    """

    def __init__(self, emitter: "InterceptionEmitter") -> None:
        """Serve no run yet. Raises TypeError for anything but an emitter."""
        given: object = emitter
        if isinstance(given, type) or not callable(getattr(given, "emit_unchecked", None)):
            raise TypeError(f"AgentHooksHost takes an InterceptionEmitter, not {type(emitter).__name__}")
        self.emitter = emitter
        self._builders: dict[str, AgentContextBuilder] = {}

    async def emit(self, run: RunState, point: Point, **content: object) -> Ruling:
        """Emit one point of a run; a denial is a ruling, not an exception."""
        context = getattr(self._builder(run), point)(**content)
        shown: object = context["target"]
        record: InterceptionRecord = await self.emitter.emit_unchecked(context)
        if not record.proceeds:
            return Ruling(proceeds=False, reason=record.verdict.reason or record.verdict.message or "denied")
        became: object = context["target"]
        # A transform puts another object in place; without one nothing need be compared, which may be a history.
        if became is shown or same(freeze(became), freeze(shown)):
            return Ruling(proceeds=True)
        return Ruling(proceeds=True, target=freeze(became), seen=digest(freeze(shown)))

    def forget(self, run: RunState) -> None:
        """Let go of a run that has ended."""
        self._builders.pop(run.run_id, None)

    def _builder(self, run: RunState) -> "AgentContextBuilder":
        builder = self._builders.get(run.run_id)
        if builder is None:
            # Not at import: who has no emitter needs no SDK; who has one has imported it.
            from agent_hooks import AgentContextBuilder  # noqa: PLC0415  # see above

            builder = AgentContextBuilder(agent_id=run.agent, framework="capfold", session_id=run.run_id)
            self._builders[run.run_id] = builder
        return builder
