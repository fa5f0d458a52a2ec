"""One model request through its wrappers."""

from ..capabilities.compose import Link
from ..capabilities.messages import AssistantMessage, Usage
from ..capabilities.records import replace
from ..capabilities.state import RunState
from ..capabilities.views import view_problem
from .chains import active, hook_failed, inactive_links
from .errors import IllegalTransition, InvalidResponse, InvalidReturn, InvalidView, ModelFailed, RunError
from .models import ModelError
from .onion import Next, Ring, latched
from .phases import RequestModel, Responded
from .session import Account, Session
from .stepping import request_of
from .work import Failure

HOOK = "wrap_model_request"


async def request_model(session: Session, effect: RequestModel) -> Responded:
    """Send the request through its wrappers; never raises but for cancellation."""
    chain = session.setup.plan.chains[HOOK]
    ring = ModelRing(session, effect)
    response: AssistantMessage | None = None
    run = effect.run
    try:
        if chain.links:
            links = active(chain.links, inactive_links(chain, effect.run), "")
            run = await ring.layer(links, 0, effect.run)
            response = run.response if run.response is not effect.run.response else None
        else:
            response = await ring.send(effect.run)
    except ModelError as error:
        ring.fail(model_failed(error, run), error)
    except Failure as failure:
        ring.fail(failure.reason, failure.cause)
    except RunError:
        run = effect.run  # what broke is kept in the ring or the account
    broken = ring.account.broken or ring.broken
    return Responded(
        session.port.now(), run, response, ring.account.charged, tuple(ring.usages), tuple(ring.entries), broken
    )


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
    """The wrappers around one request, the account it is charged to, and the usage of what came back."""

    def __init__(self, session: Session, effect: RequestModel) -> None:
        """Open the account."""
        super().__init__(session, effect.run)
        self.effect = effect
        self.account = Account(session, effect.run, effect.requests_left)
        self.usages: list[Usage | None] = []

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
            after = await link.call(Next(self.session, inward, self.key(link)), run)
        except ModelError as error:
            if error in failed:
                raise
            raise self.fail(hook_failed(link, run, error), error) from error
        except RunError:
            raise  # what broke is kept in the ring or the account
        except Exception as error:
            raise self.fail(hook_failed(link, run, error), error) from error
        return self.returned(link, run, got, bool(failed), after)

    def passed(self, link: Link, given: RunState, passed: RunState) -> RunState:
        """Check what a wrapper passes inward: the view is examined again."""
        if isinstance(passed, RunState) and passed.response is not given.response:
            raise self.fail(self.illegal(link, "response", "respond() stands for call_next: return it instead"))
        record = self.edge(link, given, passed)
        if record.request_messages is not given.request_messages:
            problem = view_problem(record.view)
            if problem is not None:
                raise self.fail(
                    InvalidView(
                        message=f"the view that {link.key}.{HOOK} passed on cannot be sent: {problem}",
                        key=link.key,
                        index=link.index,
                        hook=HOOK,
                        step=given.run_step,
                        field="request_messages",
                    )
                )
        return record

    def returned(
        self, link: Link, given: RunState, got: list[RunState], model_failed: bool, after: object
    ) -> RunState:
        """Check what a wrapper returns, against what it got from inside."""
        response = after.response if isinstance(after, RunState) else None
        base = next((inner for inner in got if inner.response is response), got[-1] if got else given)
        record = self.edge(link, base, after)
        replaced = record.response is not base.response
        if replaced and got and not model_failed:
            raise self.fail(
                self.illegal(link, "response", "after call_next, return a response it got; transform it in after_model_request")
            )
        if not got and not replaced and not latched(given, record):
            raise self.fail(
                InvalidReturn(
                    message=f"{link.key}.{HOOK} returned without a response: await call_next(state), or respond(message)",
                    key=link.key,
                    index=link.index,
                    hook=HOOK,
                    step=given.run_step,
                )
            )
        return record

    def illegal(self, link: Link, field: str, legal: str) -> IllegalTransition:
        """Return the reason of an illegal write at an edge, written down."""
        self.write("rejected", actor=link.key, index=link.index, hook=HOOK, rejected={field: (None, legal)})
        return IllegalTransition(
            message=f"{link.key}.{HOOK} may not write {field} so: {legal}",
            key=link.key,
            index=link.index,
            hook=HOOK,
            step=self.run.run_step,
            field=field,
            legal=legal,
        )

    async def leaf(self, run: RunState) -> RunState:
        """Send the request and put the response into the record that goes back out."""
        return replace(run, response=await self.send(run))

    async def send(self, run: RunState) -> AssistantMessage:
        """Send the request. Raises ModelError; a reached limit raises LimitError and ends the run."""
        account = self.account
        if account.full():
            account.charge()
        effect = self.effect
        request = effect.request if run is effect.run else request_of(run, self.session.setup.output.spec is not None)
        model = run.model
        charged = account.charged
        try:
            response = await self.session.port.request(model, request, account, effect.timeout)  # type: ignore[arg-type]
        except (ModelError, RunError):
            raise
        except Exception as error:
            name = model.name if model is not None else ""
            raise ModelError(
                "invalid_response", f"model {name!r} raised {type(error).__name__}: {error}", retryable=False
            ) from error
        finally:
            if account.charged == charged and not account.full():
                account.charge()
        if type(response) is not AssistantMessage:
            raise self.fail(
                InvalidResponse(
                    message=f"the model returned {type(response).__name__}, not an AssistantMessage",
                    step=run.run_step,
                )
            )
        self.usages.append(response.usage)
        return response

