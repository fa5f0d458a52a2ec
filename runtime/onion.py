"""What all wrappers have in common: `call_next`, and the check of a record at both edges."""

from collections.abc import Awaitable, Callable
from typing import Generic, ParamSpec, TypeAlias, TypeVar

from anyio import get_cancelled_exc_class
from attrs import evolve

from ..capabilities.call_state import CallState
from ..capabilities.compose import Link
from ..capabilities.records import replace
from ..capabilities.state import RunState
from .chains import call_of, discard, invalid_return, place_of, run_of, stamped
from .entries import NOTHING
from .errors import InvalidReturn, Reason, run_error
from .guards import Edge
from .phases import Broken
from .port import is_stray
from .scribe import Scribe
from .session import Session
from .settling import merge_latches
from .transitions import Transition, check

R = TypeVar("R", bound=RunState | CallState)
P = ParamSpec("P")
V = TypeVar("V")
# What is out of place in a record that passed the check: field, and what would have been legal; or None.
Rule: TypeAlias = Callable[[R], "tuple[str, str] | None"]


class Next(Generic[P, V]):
    """What a wrapper calls to go on inward, for as long as it has not returned."""

    __slots__ = ("_inward", "_open", "_running", "_session", "attempt", "idempotency_key", "resumed")

    def __init__(
        self,
        session: Session,
        inward: Callable[P, Awaitable[V]],
        key: str,
        attempt: int = 1,
        *,
        resumed: bool = False,
    ) -> None:
        """Carry what a wrapper may need of the outside."""
        self._session = session
        self._inward = inward
        self._open = True
        self._running = 0
        self.idempotency_key = key
        self.attempt = attempt + session.again
        self.resumed = resumed

    @property
    def deps(self) -> object:
        """The caller's dependencies, by reference."""
        return self._session.deps

    async def __call__(self, *args: P.args, **keywords: P.kwargs) -> V:
        """Go on inward. Raises RuntimeError after the wrapper returned: nobody would check or record it."""
        if not self._open:
            raise RuntimeError("call_next was called after the wrapper that it was given to had returned")
        self._running += 1
        try:
            return await self._inward(*args, **keywords)
        finally:
            self._running -= 1

    def close(self) -> bool:
        """Take the way inward back; tell whether something is still on it."""
        self._open = False
        return self._running > 0

    async def sleep(self, seconds: float) -> None:
        """Wait by the port's clock."""
        await self._session.port.sleep(seconds)

    def random(self) -> float:
        """Return a number in [0, 1) from the port."""
        return self._session.port.random()


class Ring(Scribe):
    """The wrappers around one effect: the entries of their edges, and the first thing that broke.

    Once something broke, the run ends by it, whatever an outer wrapper makes of the exception.
    """

    def __init__(self, session: Session, run: RunState) -> None:
        """Start whole."""
        super().__init__(run, session.port.now(), strict=session.setup.strict)
        self.session = session
        self.broken: Broken | None = None
        self.latched = run
        # Set once the run goes on: what a wrapper left running may not begin anything then.
        self.over = False

    def latches(self, run: RunState) -> RunState:
        """Return the run with all that wrappers latched, also those of an attempt that a retry threw away."""
        kept = self.latched
        if run.stopped is kept.stopped and run.failed is kept.failed and run.notes == kept.notes:
            return run
        return replace(run, stopped=kept.stopped, failed=kept.failed, notes=kept.notes)

    def check_open(self) -> None:
        """Raise RuntimeError for an effect that would begin after the run went on: nobody would record it."""
        if self.over:
            raise RuntimeError("call_next was left running by a wrapper that returned, and the run went on")

    def fail(self, reason: Reason, cause: BaseException | None = None) -> Exception:
        """Keep what broke, and return the exception to raise through the outer wrappers."""
        if self.broken is None:
            self.broken = Broken(reason, cause)
        return run_error(reason, cause=cause)

    async def enter(self, link: Link, call_next: Next[P, V], record: R, *more: object) -> object:
        """Call a wrapper and return what it returned. Raises when what it began inward is not done by then."""
        try:
            after: object = await link.call(call_next, record, *more)
        except get_cancelled_exc_class() as error:
            if is_stray(error):
                raise RuntimeError("something it waited for was cancelled") from error
            raise
        finally:
            running = call_next.close()
        if running:
            discard(after)
            raise self.fail(
                InvalidReturn(
                    message=f"{link.key}.{link.hook} returned while call_next was running: await it",
                    **place_of(link, record),
                )
            )
        return after

    def edge(self, link: Link, before: R, after: object, rule: "Rule[R] | None" = None) -> R:
        """Check one edge; return the record that goes on. Raises when it is no record, or broke a rule.

        `rule` knows what the wrapper did before, and may find a legal write out of place: then it is rejected.
        """
        if type(after) is not type(before):
            raise self.fail(invalid_return(link, before, after))
        call_id = call_of(before)
        edge = Edge(link.key, link.index, link.hook, self.session.setup.output.problem)
        record, transition = check(before, after, edge)
        if transition is not None:
            self.now = self.session.port.now()
            misplaced = rule(record) if rule is not None and not transition.rejected else None
            if misplaced is not None:
                transition = out_of_place(transition, after, *misplaced)
            problem = self.write_transition(transition, call_id)
            if problem is not None:
                raise self.fail(problem)
            if record is not before:
                record = stamped(record, before, link, call_id)
                self.latched = merge_latches(self.latched, run_of(before), run_of(record))
        return record

    def illegal(self, link: Link, record: RunState | CallState, field: str, legal: str) -> Reason:
        """Return the reason of an illegal write of which nothing was passed on, written down."""
        tried = {field: (None, legal)}
        refused = Transition(link.key, link.index, link.hook, "rejected", NOTHING, NOTHING, tried)
        reason = self.write_transition(refused, call_of(record))
        assert reason is not None, "what is rejected ends the run"
        return reason

    def key(self, link: Link, call_id: str = "") -> str:
        """Return the idempotency key of a wrapper: the same when the step is run again."""
        run = self.run
        return f"{run.run_id}:{run.run_step}:{call_id}:{link.key}"


def out_of_place(transition: Transition, after: object, name: str, legal: str) -> Transition:
    """Return the transition with the write of a field rejected."""
    changes = {field: change for field, change in transition.changes.items() if field != name}
    return evolve(
        transition, kind="rejected", changes=changes, rejected={name: (getattr(after, name), legal)}
    )


def latched(before: RunState | CallState, after: RunState | CallState) -> bool:
    """Tell whether a wrapper stopped or failed the run."""
    old, new = run_of(before), run_of(after)
    return new.stopped is not old.stopped or new.failed is not old.failed
