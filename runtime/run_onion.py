"""The whole run inside its wrap_run wrappers: entered and left on every kind of exit."""

import inspect
from collections.abc import Awaitable, Callable

from ..capabilities.compose import Link
from ..capabilities.state import RunState
from .chains import active, hook_failed, inactive_links, invalid_return, lend, place_of
from .entries import Entry
from .errors import InvalidReturn, RunError
from .onion import Next, Ring
from .phases import Broken, Enter
from .session import Session
from .work import Failure

HOOK = "wrap_run"
# Runs the steps from a record that wrappers passed on; returns the final state, whatever the end was.
Steps = Callable[[RunState, tuple[Entry, ...]], Awaitable[RunState]]
# Ends a run that a wrapper broke before its steps began.
Abort = Callable[[Broken, tuple[Entry, ...]], Awaitable[RunState]]


async def enclose(
    session: Session, effect: Enter, steps: Steps, abort: Abort
) -> tuple[RunState, tuple[Entry, ...], Broken | None]:
    """Run the steps inside the wrappers; return what came out, the entries of the way out, and what broke there."""
    chain = session.setup.plan.chains[HOOK]
    ring = RunRing(session, effect.run, steps, abort)
    try:
        links = active(chain.links, inactive_links(chain, effect.run), "")
    except Failure as failure:
        ring.broken = Broken(failure.reason, failure.cause)
        links = ()
    run = await ring.layer(links, 0, effect.run)
    return run, tuple(ring.entries), ring.broken


class RunRing(Ring):
    """The wrap_run wrappers; a broken one is on record, and the outer ones still see the final state."""

    def __init__(self, session: Session, run: RunState, steps: Steps, abort: Abort) -> None:
        """Start before the steps."""
        super().__init__(session, run)
        self.steps = steps
        self.abort = abort
        self.final: RunState | None = None

    async def layer(self, links: tuple[Link, ...], i: int, run: RunState) -> RunState:
        """Run wrapper `i` and what is inside it; raises nothing but cancellation."""
        if i == len(links):
            return await self.inside(run)
        link = links[i]
        got: list[RunState] = []

        async def inward(passed: RunState) -> RunState:
            if got:
                raise self.fail(self.misuse(link, "called call_next twice; the run happens once"))
            inner = await self.layer(links, i + 1, self.edge(link, run, passed))
            got.append(inner)
            return lend(inner)

        try:
            after = await self.enter(link, Next(self.session, inward, self.key(link)), run)
            if not got:
                if inspect.iscoroutine(after):
                    raise self.fail(invalid_return(link, run, after))
                raise self.fail(
                    self.misuse(link, "returned without call_next; to prevent a run, stop it: run.stop(...)")
                )
            return self.edge(link, got[-1], after)
        except RunError as error:
            if self.broken is None:  # of another run: this hook raised it; ours are kept, and end the run
                self.fail(hook_failed(link, run, error), error)
        except Exception as error:  # noqa: BLE001  # the hook is the user's; the run ends by what it raised
            self.fail(hook_failed(link, run, error), error)
        return got[-1] if got else await self.inside(run)

    async def inside(self, run: RunState) -> RunState:
        """Run the steps, unless a wrapper broke before; once."""
        if self.final is None:
            taken, self.entries = tuple(self.entries), []
            if self.broken is not None:
                broken, self.broken = self.broken, None
                self.final = await self.abort(broken, taken)
            else:
                self.final = await self.steps(run, taken)
        return self.final

    def misuse(self, link: Link, what: str) -> InvalidReturn:
        """Return the reason of a wrapper that did not call inward exactly once."""
        return InvalidReturn(
            message=f"{link.key}.{HOOK} {what}",
            **place_of(link, self.run),
        )
