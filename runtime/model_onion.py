"""One model request through its wrappers."""

import functools
from collections.abc import Awaitable
from typing import TYPE_CHECKING, cast

from anyio import get_cancelled_exc_class

from ..capabilities.compose import Chain, Link
from ..capabilities.messages import AssistantMessage
from ..capabilities.records import replace
from ..capabilities.state import RunState
from ..capabilities.views import view_problem
from .chains import active, hook_failed, inactive_links, place_of
from .errors import (
    InvalidResponse,
    InvalidReturn,
    InvalidView,
    ModelFailed,
    RunError,
    message_of,
    run_error,
)
from .models import Model, ModelError, ModelRequest, StreamingModel
from .onion import Next, Ring, latched
from .phases import Broken, RequestModel, Responded, Sent
from .port import is_stray
from .session import Account, Session, Ticket
from .stepping import model_name, request_of
from .work import Failure

if TYPE_CHECKING:
    from .following import Follower

HOOK = "wrap_model_request"
PUBLISHED = (
    "the response was streamed to the caller in part and is not asked for again; a capability with "
    "hold_stream=True in the list holds streams back until they are whole"
)
# A call of the class costs 1,000 instructions more.
_responded = Responded.__new__
_INWARD = ("request_messages", "model", "settings", "instructions")


def request_model(session: Session, effect: RequestModel) -> Awaitable[Responded]:
    """Send the request through its wrappers; never raises but for cancellation.

    A plain function that hands on what there is to await: a coroutine more would be paid at each request.
    """
    chain = session.setup.plan.chains[HOOK]
    if session.so_far is not tuple:
        session.forget_batch()
    account = Account(session, effect.run, effect.requests_left)
    return _wrapped(session, effect, account, chain) if chain.links else _unwrapped(session, effect, account)


async def _wrapped(session: Session, effect: RequestModel, account: Account, chain: Chain) -> Responded:
    """Send the request through the wrappers of a chain."""
    ring = ModelRing(session, effect, account)
    session.sent = ring.sent
    response: AssistantMessage | None = None
    run = effect.run
    try:
        links = active(chain.links, inactive_links(chain, effect.run), "")
        run = await ring.layer(links, 0, effect.run)
        response = run.response if run.response is not effect.run.response else None
    except ModelError as error:
        ring.fail(model_failed(error, run), error)
    except Failure as failure:
        ring.fail(failure.reason, failure.cause)
    except RunError as error:
        ring.fail(error.reason, error.__cause__)
    finally:
        ring.over = True
    session.sent = None
    broken = account.broken or ring.broken
    run = ring.latches(run)
    return Responded(
        session.port.now(),
        run,
        response,
        account.charged,
        account.responses,
        tuple(ring.entries),
        broken,
        account.bills,
    )


async def _unwrapped(session: Session, effect: RequestModel, account: Account) -> Responded:
    """Send the request without the ring that nobody stands in."""
    response: AssistantMessage | None = None
    broken: Broken | None = None
    session.sent = account.sent
    run = effect.run
    try:
        # What `send` does, without its coroutine, which each run that waits for its model would keep and resume: with
        # those of the driver and of `Agent.run`, 13,600 instructions and three objects less in a run of four requests.
        ticket = open_ticket(run, account)
        try:
            response = await asked(session, effect.request, ticket, effect.timeout)
        except BaseException as error:
            found = unsent(session, run, account, ticket, error)
            if found is error:
                raise
            raise found from error
        kept(session, run, account, ticket, response)
    except ModelError as error:
        broken = Broken(model_failed(error, run), error)
    except RunError as error:
        broken = Broken(error.reason, error.__cause__)
    session.sent = None
    now, responses, bills = session.port.now(), account.responses, account.bills
    broken = account.broken or broken
    return _responded(Responded, now, run, response, account.charged, responses, (), broken, bills)


def model_failed(error: ModelError, run: RunState) -> ModelFailed:
    """Return the reason of a run whose model failed."""
    return ModelFailed(
        message=f"the model failed: {error.message}",
        kind=error.kind,
        retryable=error.retryable,
        status=error.status,
        step=run.run_step,
    )


class ModelRing(Ring):
    """The wrappers around one request, and the account it is charged to."""

    def __init__(self, session: Session, effect: RequestModel, account: Account) -> None:
        """Charge `account`."""
        super().__init__(session, effect.run)
        self.effect = effect
        self.account = account

    def sent(self) -> Sent:
        """Return what is known when the request is cut short."""
        return self.account.sent()._replace(run=self.latches(self.run), entries=tuple(self.entries))

    async def layer(self, links: tuple[Link, ...], i: int, run: RunState) -> RunState:
        """Run wrapper `i` and what is inside it."""
        if i == len(links):
            return await self.leaf(run)
        link = links[i]
        got: list[RunState] = []
        failed: list[ModelError] = []

        async def inward(passed: RunState) -> RunState:
            record = self.passed(link, run, passed)
            try:
                inner = await self.layer(links, i + 1, record)
            except ModelError as error:
                failed.append(error)
                raise
            got.append(inner)
            return inner

        try:
            after = await self.enter(link, Next(self.session, inward, self.key(link)), run)
        except ModelError as error:
            if error in failed:
                raise
            raise self.fail(hook_failed(link, run, error), error) from error
        except RunError as error:
            if self.broken is None and self.account.broken is None:  # of another run: this hook raised it
                raise self.fail(hook_failed(link, run, error), error) from error
            raise
        except Exception as error:
            raise self.fail(hook_failed(link, run, error), error) from error
        return self.returned(link, run, got, failed, after)

    def passed(self, link: Link, given: RunState, passed: object) -> RunState:
        """Check what a wrapper passes inward: the view is examined again."""
        if isinstance(passed, RunState) and passed.response is not given.response:
            raise self.fail(
                self.illegal(link, given, "response", "respond() stands for call_next: return it instead")
            )
        record = self.edge(link, given, passed)
        if record.request_messages is not given.request_messages:
            problem = view_problem(record.view)
            if problem is not None:
                raise self.fail(
                    InvalidView(
                        message=f"the view that {link.key}.{HOOK} passed on cannot be sent: {problem}",
                        field="request_messages",
                        **place_of(link, given),
                    )
                )
        return record

    def returned(
        self, link: Link, given: RunState, got: list[RunState], failed: list[ModelError], after: object
    ) -> RunState:
        """Check what a wrapper returns, against what it got from inside."""
        response = after.response if isinstance(after, RunState) else None
        base = next((inner for inner in got if inner.response is response), got[-1] if got else given)

        def rule(record: RunState) -> tuple[str, str] | None:
            for name in _INWARD:
                if getattr(record, name) is not getattr(base, name):
                    return name, "on the way in only: the request was sent with what was passed to call_next"
            if record.response is base.response or not got or failed:
                return None
            return (
                "response",
                "after call_next, return a response it got; transform it in after_model_request",
            )

        record = self.edge(link, base, after, rule)
        replaced = record.response is not base.response
        if not got and not replaced and not latched(given, record):
            raise self.fail(
                InvalidReturn(
                    message=f"{link.key}.{HOOK} returned no response: await call_next(state), or respond(message)",
                    **place_of(link, given),
                )
            )
        return record

    async def leaf(self, run: RunState) -> RunState:
        """Send the request and put the response into the record that goes back out."""
        self.check_open()
        effect = self.effect
        structured = self.session.setup.output.spec is not None
        request = effect.request if run is effect.run else request_of(run, structured=structured)
        try:
            response = await send(self.session, run, request, self.account, effect.timeout)
        except RunError as error:
            raise self.fail(error.reason, error.__cause__) from error
        return replace(run, response=response)


def _publish(follower: "Follower", ticket: Ticket, text: str) -> None:
    if follower.published_by_another(ticket):  # of two at once, it was the first to say something
        raise ModelError("bad_request", PUBLISHED, retryable=False)
    follower.delta(text, ticket)


async def send(
    session: Session, run: RunState, request: ModelRequest, account: Account, timeout: float | None
) -> AssistantMessage:
    """Send one request and keep what came back.

    Raises ModelError; RunError for what is no message, and for a reached limit, by which the run ends.
    """
    ticket = open_ticket(run, account)
    try:
        response = await asked(session, request, ticket, timeout)
    except BaseException as error:
        found = unsent(session, run, account, ticket, error)
        if found is error:
            raise
        raise found from error
    return kept(session, run, account, ticket, response)


# The parts of `send`, for who awaits the model without a coroutine between.


def open_ticket(run: RunState, account: Account) -> Ticket:
    """Book a request of a prepared run; a model that never charges sent one request. Raises LimitError."""
    assert run.model is not None, "a request is prepared with a model"
    return account.open(cast(Model, run.model))


def asked(
    session: Session, request: ModelRequest, ticket: Ticket, timeout: float | None
) -> Awaitable[AssistantMessage]:
    """Return what there is to await of a request. Raises ModelError where its stream cannot be begun."""
    follower, model = session.follower, ticket.model
    if follower is None:
        return session.port.request(model, request, ticket, timeout)
    if follower.published:
        raise ModelError("bad_request", PUBLISHED, retryable=False)
    if follower.live and isinstance(model, StreamingModel):
        publish = functools.partial(_publish, follower, ticket)
        return session.port.stream(model, request, ticket, timeout, publish)
    return session.port.request(model, request, ticket, timeout)


def unsent(
    session: Session, run: RunState, account: Account, ticket: Ticket, error: BaseException
) -> BaseException:
    """Return what to raise for what came of a request in place of a response; the booking of one unused is taken back.

    It is the error itself where it says all there is to say, or is none of ours.
    """
    follower = session.follower
    said = "" if follower is None else follower.said
    if isinstance(error, ModelError | RunError):
        account.release(ticket)
        if isinstance(error, ModelError) and follower is not None:
            error.partial = error.partial or said
        return error
    if isinstance(error, get_cancelled_exc_class()):
        if not is_stray(error):
            return error
        problem = "something it waited for was cancelled"
        return ModelError("connection", problem, retryable=False, partial=said)
    if not isinstance(error, Exception):
        return error
    account.release(ticket)
    problem = f"model {model_name(run)!r} raised {type(error).__name__}: {message_of(error)}"
    return ModelError("invalid_response", problem, retryable=False, partial=said)


def kept(
    session: Session, run: RunState, account: Account, ticket: Ticket, response: object
) -> AssistantMessage:
    """Book what came back. Raises RunError for what is no message, ModelError for a text that is not the whole one."""
    if type(response) is not AssistantMessage:
        reason = InvalidResponse(
            message=f"the model returned {type(response).__name__}, not an AssistantMessage",
            step=run.run_step,
        )
        account.broken = account.broken or Broken(reason)
        raise run_error(reason)
    account.book(ticket, response)
    follower = session.follower
    if follower is not None and follower.published_by_another(ticket):
        raise ModelError("bad_request", PUBLISHED, retryable=False, partial=follower.said)
    return response
