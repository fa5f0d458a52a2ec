"""The session: what the effects of one run share while it is driven: port, deps, and the batch under way.

Mutable and local to one `driver.drive`; nothing of it is ever in a record.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from ..capabilities.frozen import FrozenDict
from ..capabilities.messages import AssistantMessage
from ..capabilities.records import copier
from ..capabilities.state import RunState
from ..capabilities.verdict import Outcome
from .below import Below
from .billing import Bill, bill_of, booked, unaccountable
from .decisions import Approver
from .errors import Reason, run_error
from .ledger import before_request, exceeded
from .models import Model
from .phases import Broken, CallResult, Sent
from .port import Port
from .setup import Setup
from .stores import MessageStore

if TYPE_CHECKING:
    from .control import Control, Patience
    from .durable_children import Children
    from .following import Follower
    from .recorder import Recorder

# In place of the dicts of a batch while there is none: it refuses to be written. Any: of whatever they hold.
NONE: FrozenDict[Any] = FrozenDict()


class Session:
    """One run being driven."""

    __slots__ = (
        "again",
        "approver",
        "below",
        "children",
        "control",
        "cut",
        "deps",
        "follower",
        "patience",
        "port",
        "recorder",
        "results",
        "sent",
        "setup",
        "so_far",
        "started",
        "store",
    )

    def __init__(
        self,
        setup: Setup,
        port: Port,
        deps: object,
        recorder: "Recorder",
        *,
        approver: Approver | None = None,
        control: "Control | None" = None,
        patience: "Patience | None" = None,
        follower: "Follower | None" = None,
        store: MessageStore | None = None,
        children: "Children | None" = None,
        again: int = 0,
    ) -> None:
        """Start without a batch. `patience`: of the run above, which may be stopped from outside.

        `children`: what runs the runs below elsewhere. `again`: how often the effect under way was begun before, by
        workers that were lost.
        """
        self.setup = setup
        self.port = port
        self.deps = deps
        self.recorder = recorder
        self.approver = approver
        self.control = control
        self.patience = control.patience if control is not None else patience
        self.follower = follower
        self.store = store
        self.children = children
        self.again = again
        # Of the sub-agents that the batch under way has called, by call id.
        self.below: dict[str, Below] = NONE
        # Of the batch under way; `so_far` says what is known of it when it is cut short.
        self.results: dict[str, CallResult] = NONE
        self.started: dict[str, bool] = NONE
        # Outcomes of bodies that ended, or were left behind, after a stop had cut them short.
        self.cut: dict[str, Outcome] = NONE
        self.so_far: Callable[[], tuple[CallResult, ...]] = tuple
        # Of the requests under way, likewise; None while none are.
        self.sent: Callable[[], Sent] | None = None

    def begin_batch(self, so_far: Callable[[], tuple[CallResult, ...]]) -> None:
        """Make room for what becomes of a batch."""
        self.results, self.started, self.cut, self.below = {}, {}, {}, {}
        self.so_far = so_far

    def forget_batch(self) -> None:
        """Let go of a batch that is settled: while the model is asked, it is three kilobytes of each run."""
        self.results = self.started = self.cut = self.below = NONE
        self.so_far = tuple


class Account:
    """Requests under way: what may still be charged, what was, and what came back. A `Meter`.

    The share is fixed when the effect is handed out, so the result does not depend on who comes first.
    """

    __slots__ = (
        "_left",
        "_limits",
        "_listed",
        "_port",
        "_run",
        "_spent_limits",
        "bills",
        "broken",
        "charged",
        "responses",
    )

    def __init__(self, session: Session, run: RunState, left: int | None) -> None:
        """Open an account with `left` requests, None = no bound."""
        self._port = session.port
        self._run = run
        self._left = left
        self._limits = session.setup.limits
        self._spent_limits = session.setup.spent_limits
        self._listed = self._limits.cost is not None
        self.charged = 0
        self.bills: tuple[Bill, ...] = ()
        self.responses: tuple[AssistantMessage, ...] = ()
        self.broken: Broken | None = None

    def charge(self) -> None:
        """Book one attempt. Raises LimitError when none is left: the run ends by it, whoever catches it."""
        if self._left is not None and self.charged >= self._left:
            used = self._run.requests + self.charged
            self._refuse(exceeded("requests", used, self._limits.requests or 0, self._run.run_step))
        self.check_spent(self.bills)
        self.charged += 1

    def check_spent(self, bills: Sequence[Bill]) -> None:
        """Raise LimitError when the run, and what `bills` add, have reached a limit on tokens or cost."""
        if self._spent_limits:
            run = _SPENT(self._run, *booked(self._run, bills)) if bills else self._run
            self._refuse(before_request(run, self._limits, self._spent_limits))

    def check_model(self, model: Model) -> None:
        """Raise LimitError when what a model uses could not be held to the limits on tokens and cost."""
        if self._spent_limits:
            self._refuse(unaccountable(model, self._limits, self._spent_limits, self._run.run_step))

    def _refuse(self, reason: Reason | None) -> None:
        if reason is not None:
            self.broken = self.broken or Broken(reason)
            raise run_error(reason)

    def open(self, model: Model) -> "Ticket":
        """Book the first attempt of a request that is about to be sent. Raises LimitError when none is left."""
        if self._spent_limits or self._left is not None:
            self.check_model(model)
            self.charge()
        else:  # nothing to be refused by
            self.charged += 1
        return Ticket(self, model)

    def bill(self, ticket: "Ticket", response: AssistantMessage) -> Bill:
        """Return the bill of a response: under the name of the model that it was asked of, at that one's price."""
        return bill_of(ticket.model, response.usage, listed=self._listed)

    def book(self, ticket: "Ticket", response: AssistantMessage) -> None:
        """Keep a response and its bill."""
        self.responses += (response,)
        self.bills += (bill_of(ticket.model, response.usage, listed=self._listed),)

    def release(self, ticket: "Ticket") -> None:
        """Take the booking of a request back that failed before its model charged anything."""
        if not ticket.used:
            ticket.used = True
            self.charged -= 1

    def sent(self) -> Sent:
        """Return what is known when the requests are cut short."""
        return Sent(self.charged, self.bills, self.responses)

    async def sleep(self, seconds: float) -> None:
        """Wait by the port's clock."""
        await self._port.sleep(seconds)

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return self._port.random()


_SPENT = copier(RunState, "usage", "usage_by_model", "cost")


class Ticket:
    """One request's way to the account; requests at the same time each have their own. A `Meter`.

    `model`: whose response it will be.
    """

    __slots__ = ("_account", "model", "used")

    def __init__(self, account: Account, model: Model) -> None:
        """Start with one attempt booked and not used."""
        self._account = account
        self.model = model
        self.used = False

    def sleep(self, seconds: float) -> Coroutine[object, None, None]:
        """Wait by the port's clock."""
        return self._account.sleep(seconds)

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return self._account.random()

    def charge(self) -> None:
        """Book one attempt; the first is booked already. Raises LimitError when none is left."""
        if self.used:
            self._account.charge()
        self.used = True

    def sent_to(self, model: Model) -> None:
        """Take over which model gets the next attempt; see `billing.sent_to`. Raises LimitError."""
        self._account.check_model(model)
        self.model = model
