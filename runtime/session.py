"""The session: what the effects of one run share while it is driven: port, deps, and the batch under way.

Mutable and local to one `driver.drive`; nothing of it is ever in a record.
"""

from collections.abc import Callable

from ..capabilities.messages import AssistantMessage
from ..capabilities.state import RunState
from .errors import run_error
from .ledger import exceeded
from .phases import Broken, CallResult, Sent
from .port import Port
from .setup import Setup


class Session:
    """One run being driven."""

    def __init__(self, setup: Setup, port: Port, deps: object) -> None:
        """Start without a batch."""
        self.setup = setup
        self.port = port
        self.deps = deps
        # Of the batch under way; `so_far` says what is known of it when it is cut short.
        self.results: dict[str, CallResult] = {}
        self.started: set[str] = set()
        self.so_far: Callable[[], tuple[CallResult, ...]] = tuple
        # Of the requests under way, likewise; None while none are.
        self.sent: Callable[[], Sent] | None = None


class Account:
    """Requests under way: what may still be charged, what was, and what came back. A `Meter`.

    The share is fixed when the effect is handed out, so the result does not depend on who comes first.
    """

    def __init__(self, session: Session, run: RunState, left: int | None) -> None:
        """Open an account with `left` requests, None = no bound."""
        self._port = session.port
        self._run = run
        self._left = left
        self._limit = session.setup.limits.requests
        self.charged = 0
        self.responses: list[AssistantMessage] = []
        self.broken: Broken | None = None

    def charge(self) -> None:
        """Book one attempt. Raises LimitError when none is left: the run ends by it, whoever catches it."""
        if self._left is not None and self.charged >= self._left:
            used = self._run.requests + self.charged
            reason = exceeded("requests", used, self._limit or 0, self._run.run_step)
            self.broken = self.broken or Broken(reason)
            raise run_error(reason)
        self.charged += 1

    def open(self) -> "Ticket":
        """Book the first attempt of a request that is about to be sent. Raises LimitError when none is left."""
        self.charge()
        return Ticket(self)

    def release(self, ticket: "Ticket") -> None:
        """Take the booking of a request back that failed before its model charged anything."""
        if not ticket.used:
            ticket.used = True
            self.charged -= 1

    def sent(self) -> Sent:
        """Return what is known when the requests are cut short."""
        usages = tuple([response.usage for response in self.responses])
        return Sent(self.charged, usages, tuple(self.responses))

    async def sleep(self, seconds: float) -> None:
        """Wait by the port's clock."""
        await self._port.sleep(seconds)

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return self._port.random()


class Ticket:
    """One request's way to the account; requests at the same time each have their own. A `Meter`."""

    __slots__ = ("_account", "random", "sleep", "used")

    def __init__(self, account: Account) -> None:
        """Start with one attempt booked and not used."""
        self._account = account
        self.used = False
        self.sleep = account.sleep
        self.random = account.random

    def charge(self) -> None:
        """Book one attempt; the first is booked already. Raises LimitError when none is left."""
        if self.used:
            self._account.charge()
        self.used = True
