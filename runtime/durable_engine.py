"""Engines: where a durable run is recorded, step by step, so that it goes on after its process has died.

An engine knows keys and texts. It performs what it is given, keeps the text that came of it, and gives the same text
again when the run is carried on elsewhere. It knows nothing of agents, effects or events.
"""

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, TypeAlias, get_args

import anyio

from ..capabilities.tools import Tool, is_idempotent
from .control import Control

# Takes the number of the attempt, from 1; returns the JSON text to record. Raises nothing but cancellation.
Perform: TypeAlias = Callable[[int], Awaitable[str]]
OnInterrupted: TypeAlias = Literal["unknown", "ask", "retry"]
ON_INTERRUPTED: tuple[OnInterrupted, ...] = get_args(OnInterrupted)
# One for all tools, or what chooses it for a tool; asked of tools only that are not declared idempotent or read-only.
Policy: TypeAlias = OnInterrupted | Callable[[Tool], OnInterrupted]
# In characters of JSON: what is longer is kept aside, and recorded by its name.
MAX_RECORDED = 1_000_000


class Engine(Protocol):
    """One durable run, as its engine has it.

    A run is carried on by calling the same operations in the same order; those whose results are recorded return
    them at once. Steps that are called at once are each alone in their branch, and begin in the same order each time.
    An engine that lost a run to another worker raises an exception of its own, which is let through.
    """

    @property
    def run_id(self) -> str:
        """The id of the run: of the engine's own, since a fork goes on under a new one."""

    @property
    def control(self) -> "Interrupts":
        """How the run is asked from outside to stop."""

    async def step(self, key: str, perform: Perform, *, counted: bool) -> str:
        """Return what is recorded under a key; where nothing is, perform it, record it, and return it.

        Performed at least once, recorded once. `counted`: keep, before it is performed, how often it was begun, and
        say so as the number of the attempt; else that may always be 1. Nobody else calls a step of the run's
        meanwhile, except those of the same batch.
        """

    async def wait(self, topic: str, asked: str) -> str:
        """Return the first message of a topic, for however long it takes until one is sent.

        `asked`: the JSON of what is waited for, to be shown to those who may send it while the run waits.
        """

    async def child(self, run_id: str, order: str) -> str:
        """Start the run of an id below this one, or find it started, and return what it came to.

        Called inside a step. `order`: what a worker carries it on by, with `durable_run.carry_below`.
        """

    async def cut(self, run_id: str) -> None:
        """Ask a run below this one to end now, as a cancelled one. Called inside a step."""

    def emit(self, event: str) -> None:
        """Show an event to whoever follows the run. Called inside a step; may be shown again when that is repeated."""

    async def keep(self, text: str) -> str:
        """Keep a long text aside, and return the name by which `kept` returns it to any worker."""

    async def kept(self, name: str) -> str:
        """Return a text that was kept aside. Raises LookupError for a name that is not known."""


class Scopes:
    """The cancel scopes of the effects under way, cancelled together."""

    def __init__(self) -> None:
        """Start without one."""
        self._scopes: set[anyio.CancelScope] = set()

    def add(self, scope: anyio.CancelScope) -> None:
        """Cancel it too, from now on."""
        self._scopes.add(scope)

    def discard(self, scope: anyio.CancelScope) -> None:
        """Cancel it no more."""
        self._scopes.discard(scope)

    def cancel(self) -> None:
        """Cancel all there are."""
        for scope in tuple(self._scopes):
            scope.cancel()

    @property
    def cancelled(self) -> bool:
        """Whether one of them is cancelled, its deadline included; not so when it is the worker that ends."""
        return any(scope.cancel_called for scope in self._scopes)


class Interrupts(Control):
    """The stop of a durable run, or its cancellation, that may come from another process; taken once.

    What has been recorded as taken is not taken again when the run is carried on and the wish is still there.
    """

    def __init__(self) -> None:
        """Start without a wish."""
        super().__init__()
        self.scopes = Scopes()
        self.scope = self.scopes
        self.cancelled = False
        self._over = False

    def ask(self, message: str, grace: float) -> None:
        """Ask for a stop; see `Control`."""
        if not self._over:
            super().ask(message, grace)

    def cancel(self) -> None:
        """Ask for the end of the run as a cancelled one."""
        if not self._over and not self.due:
            self.cancelled = self.due = True
            self.scopes.cancel()

    def is_cut(self) -> bool:
        """Tell whether the effects under way are being cut short, which the end of their worker does not count as."""
        return self.scopes.cancelled

    def settle(self) -> None:
        """Take note that a wish is on record; no other follows."""
        self._over = True
        self.due = False


def policy_of(given: object) -> Policy:
    """Return a policy, checked. Raises ValueError for a word that is none, TypeError for anything else."""
    if isinstance(given, str):
        if given not in ON_INTERRUPTED:
            raise ValueError(
                f"on_interrupted is one of {', '.join(map(repr, ON_INTERRUPTED))}; not {given!r}"
            )
        return given
    if not callable(given) or isinstance(given, type):
        raise TypeError(f"on_interrupted is a word or a function of the tool, not {given!r:.80}")
    return given


def policy_for(tool: Tool, policy: Policy) -> OnInterrupted:
    """Return what becomes of a call of a tool that was begun, and of which nothing is recorded.

    A tool that is declared idempotent or read-only is run again. Raises ValueError for a word that is none.
    """
    if is_idempotent(tool):
        return "retry"
    chosen = policy(tool) if callable(policy) else policy
    if chosen not in ON_INTERRUPTED:
        raise ValueError(
            f"on_interrupted chose {chosen!r:.40} for {tool.name}: it is one of {', '.join(ON_INTERRUPTED)}"
        )
    return chosen
