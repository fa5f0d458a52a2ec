"""Gatherers at work: all of a point at once, each bounded, each result frozen."""

import functools
from collections.abc import Sequence

from anyio import get_cancelled_exc_class

from ..capabilities.call_state import CallState
from ..capabilities.frozen import EMPTY, FreezeError, FrozenDict, Json, freeze
from ..capabilities.messages import AssistantMessage, Message, Usage, as_messages
from ..capabilities.state import NamedModel, RunState
from .chains import discard, hook_failed, run_of
from .errors import InvalidReturn, Reason
from .models import ModelRequest
from .phases import Broken, Gather, Gathered, GatherJob
from .port import Late, is_stray
from .session import Account, Session


class GatherOutside:
    """What one gatherer reaches the outside with."""

    def __init__(
        self, session: Session, account: Account, job: GatherJob, usages: list[Usage | None]
    ) -> None:
        """Serve one job; its requests are charged to the point's account."""
        run = run_of(job.record)
        call_id = job.record.id if isinstance(job.record, CallState) else ""
        self.attempt = 1
        self.idempotency_key = f"{run.run_id}:{run.run_step}:{call_id}:{job.link.key}:{job.link.hook}"
        self.deps = session.deps
        self._session = session
        self._account = account
        self._run: RunState = run
        self._usages = usages

    async def request(
        self,
        messages: Sequence[Message],
        *,
        model: NamedModel | None = None,
        settings: FrozenDict[Json] = EMPTY,
    ) -> AssistantMessage:
        """Send a request of the gatherer's own, charged to the run. Raises ModelError, and LimitError."""
        chosen = model if model is not None else self._session.setup.model
        request = ModelRequest(
            messages=as_messages(messages),
            settings=settings,
            run_id=self._run.run_id,
            step=self._run.run_step,
        )
        if self._account.full():
            self._account.charge()
        charged = self._account.charged
        timeout = self._session.setup.limits.request_timeout
        try:
            response = await self._session.port.request(chosen, request, self._account, timeout)  # type: ignore[arg-type]  # a model object, as the check of the request saw to
        finally:
            if self._account.charged == charged and not self._account.full():
                self._account.charge()
        self._usages.append(response.usage)
        return response

    async def sleep(self, seconds: float) -> None:
        """Wait by the port's clock."""
        await self._session.port.sleep(seconds)

    def random(self) -> float:
        """Return a number in [0, 1) from the port."""
        return self._session.port.random()


async def gather_facts(session: Session, effect: Gather) -> Gathered:
    """Call all gatherers of a point at once; the first in list order that failed is named."""
    account = Account(session, effect.run, effect.requests_left)
    usages: list[Usage | None] = []
    facts: list[Json] = [None] * len(effect.jobs)
    broken: list[tuple[Reason, BaseException | None] | None] = [None] * len(effect.jobs)

    async def one(i: int, job: GatherJob) -> None:
        outside = GatherOutside(session, account, job, usages)
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
        try:
            facts[i] = freeze(found)
        except FreezeError as error:
            discard(found)
            broken[i] = (_not_json(job, error), error)

    steps = [functools.partial(one, i, job) for i, job in enumerate(effect.jobs)]
    if len(steps) == 1:
        await steps[0]()
    else:
        await session.port.together(steps, None)
    first = next((item for item in broken if item is not None), None)
    found = account.broken or (Broken(*first) if first is not None else None)
    return Gathered(session.port.now(), tuple(facts), found, account.charged, tuple(usages))


def _not_json(job: GatherJob, error: FreezeError) -> InvalidReturn:
    return InvalidReturn(
        message=f"{job.link.key}.{job.link.hook} must return JSON: {error}",
        key=job.link.key,
        index=job.link.index,
        hook=job.link.hook,
        step=run_of(job.record).run_step,
        call=job.record.id if isinstance(job.record, CallState) else None,
    )
