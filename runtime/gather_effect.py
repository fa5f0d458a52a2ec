"""Gatherers at work: all of a point at once, each bounded, each result frozen."""

import functools
from collections.abc import Sequence

from anyio import get_cancelled_exc_class

from ..capabilities.frozen import EMPTY, FreezeError, FrozenDict, Json, freeze, thaw
from ..capabilities.messages import AssistantMessage, Message, as_messages
from ..capabilities.state import NamedModel, RunState
from .billing import Bill
from .chains import call_of, discard, hook_failed, place_of, run_of
from .errors import InvalidReturn, Reason
from .models import ModelRequest, as_model
from .phases import Broken, Gather, Gathered, GatherJob, Sent
from .port import Late, is_stray
from .session import Account, Session


class GatherOutside:
    """What one gatherer reaches the outside with."""

    def __init__(self, session: Session, account: Account, job: GatherJob, bills: list[Bill | None]) -> None:
        """Serve one job; its requests are charged to the point's account, and `bills` filled in their order."""
        run = run_of(job.record)
        call_id = call_of(job.record) or ""
        self.attempt = 1 + session.again
        self.idempotency_key = f"{run.run_id}:{run.run_step}:{call_id}:{job.link.key}:{job.link.hook}"
        self.deps = session.deps
        self._session = session
        self._account = account
        self._run: RunState = run
        self._bills = bills
        self._open = True
        self._running = 0

    async def request(
        self,
        messages: Sequence[Message],
        *,
        model: NamedModel | None = None,
        settings: FrozenDict[Json] = EMPTY,
    ) -> AssistantMessage:
        """Send a request of the gatherer's own, charged to the run. Raises ModelError, and LimitError."""
        chosen = as_model(model) if model is not None else self._session.setup.model  # type: ignore[arg-type]  # checked here
        request = ModelRequest(
            messages=as_messages(messages),
            settings=settings,
            run_id=self._run.run_id,
            step=self._run.run_step,
        )
        if not self._open:
            raise RuntimeError("outside.request was called after the gatherer had returned")
        # What other gatherers use meanwhile is not counted here: who comes first would decide.
        self._account.check_spent([bill for bill in self._bills if bill is not None])
        ticket = self._account.open(chosen)  # whether its model charges or not, it counts as sent
        timeout = self._session.setup.limits.request_timeout
        self._running += 1
        place = len(self._bills)
        self._bills.append(None)  # in the order of the requests, whichever is answered first
        try:
            response = await self._session.port.request(chosen, request, ticket, timeout)
        finally:
            self._running -= 1
        self._bills[place] = self._account.bill(ticket, response)
        return response

    def close(self) -> bool:
        """Take the way outside back, since nobody would record it; tell whether a request is still on it."""
        self._open = False
        return self._running > 0

    async def sleep(self, seconds: float) -> None:
        """Wait by the port's clock."""
        await self._session.port.sleep(seconds)

    def random(self) -> float:
        """Return a number in [0, 1) from the port."""
        return self._session.port.random()


async def gather_facts(session: Session, effect: Gather) -> Gathered:
    """Call all gatherers of a point at once; the first in list order that failed is named."""
    account = Account(session, effect.run, effect.requests_left)
    bills: list[list[Bill | None]] = [[] for _ in effect.jobs]
    facts: list[Json] = [None] * len(effect.jobs)
    broken: list[tuple[Reason, BaseException | None] | None] = [None] * len(effect.jobs)

    async def one(i: int, job: GatherJob) -> None:
        outside = GatherOutside(session, account, job, bills[i])
        try:
            found = await session.port.bounded(
                functools.partial(job.link.call, job.record, outside), effect.timeout
            )
        except get_cancelled_exc_class() as error:
            if not is_stray(error):
                raise
            stray = RuntimeError("something it waited for was cancelled")
            broken[i] = (hook_failed(job.link, job.record, stray), error)
            return
        except Exception as error:  # noqa: BLE001  # the hook is the user's; the run ends by what it raised
            said = TimeoutError(str(error)) if isinstance(error, Late) else error
            broken[i] = (hook_failed(job.link, job.record, said), error)
            return
        finally:
            running = outside.close()
        if running:
            discard(found)
            left = RuntimeError("returned while outside.request was running: await it")
            broken[i] = (hook_failed(job.link, job.record, left), left)
            return
        try:
            facts[i] = freeze(thaw(found))  # a frozen mapping may hold a list that the gatherer keeps
        except FreezeError as error:
            discard(found)
            broken[i] = (_not_json(job, error), error)

    session.sent = lambda: Sent(account.charged, _in_order(bills))
    steps = [functools.partial(one, i, job) for i, job in enumerate(effect.jobs)]
    if len(steps) == 1:
        await steps[0]()
    else:
        await session.port.together(steps, None)
    session.sent = None
    first = next((item for item in broken if item is not None), None)
    found = account.broken or (Broken(*first) if first is not None else None)
    return Gathered(session.port.now(), tuple(facts), found, account.charged, _in_order(bills))


def _in_order(bills: Sequence[Sequence[Bill | None]]) -> tuple[Bill, ...]:
    """Return the bills of all jobs, in an order that does not depend on timing."""
    return tuple([bill for job in bills for bill in job if bill is not None])


def _not_json(job: GatherJob, error: FreezeError) -> InvalidReturn:
    return InvalidReturn(
        message=f"{job.link.key}.{job.link.hook} must return JSON: {error}",
        **place_of(job.link, job.record),
    )
