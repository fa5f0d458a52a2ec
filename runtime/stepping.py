"""One step up to its request: gate, before_model_request, prepare (steps 1 to 3 of the contract)."""

from collections.abc import Mapping
from typing import cast

from ..capabilities.frozen import FrozenDict
from ..capabilities.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from ..capabilities.records import copier, replace
from ..capabilities.state import RunState
from ..capabilities.views import view_problem
from . import ledger
from .billing import unaccountable
from .chains import NO_FACTS, call_chain
from .ending import check_failed, finish
from .errors import InvalidSelection, InvalidView, Reason
from .gathering import NONE, Facts, gather_run
from .models import Model, ModelRequest
from .phases import Effect, Phase, RequestModel
from .work import Failure, Work

# Reading a member of an enumeration costs 400 instructions, and calling the class of a named tuple 700 more.
_PREPARING, _REQUESTING = Phase.PREPARING, Phase.REQUESTING
_request_model = RequestModel.__new__
NOBODY: Mapping[str, tuple[str, int, str]] = FrozenDict()


def begin(work: Work) -> Effect:
    """Run the before_run point, once per run."""
    if work.run.stopped is not None:
        return finish(work, "stopped")
    check_failed(work)
    return gather_run(work, "before_run", Phase.STARTING) or started(work)


def started(work: Work, facts: Facts = NONE) -> Effect:
    """Run the before_run chain and take the first step."""
    before = work.run.messages
    call_chain(work, work.setup.plan.chains["before_run"], work.run, facts.get("", NO_FACTS))
    check_failed(work)
    if work.run.stopped is not None:
        return finish(work, "stopped")
    if work.run.messages is not before:
        problem = view_problem(work.run.messages)
        if problem is not None:
            raise Failure(_invalid_view(work, problem, "messages"))
    return step(work)


_RESET = copier(
    RunState, "run_step", "messages", "request_messages", "model", "settings", "instructions", "tools"
)


def step(work: Work) -> Effect:
    """Pass the gate and gather for the request."""
    setup = work.setup
    reason = ledger.before_step(work.run, setup.limits, setup.spent_limits, work.started, work.now)
    run = work.run
    messages = run.messages + work.results if work.results else run.messages
    work.results = ()
    if reason is not None:
        work.run = replace(run, messages=messages)
        raise Failure(reason)
    work.run = _RESET(
        run,
        run.run_step + 1,
        messages,
        None,
        setup.model,
        setup.settings,
        work.instructions,
        setup.inventory,
    )
    work.writers = NOBODY
    work.event("step_started")
    return gather_run(work, "before_model_request", _PREPARING) or gathered(work)


_REQUESTED = ("model", "tools", "messages", "settings", "instructions")


def gathered(work: Work, gathered: Facts = NONE) -> Effect:
    """Run the before_model_request chain, prepare the request and send it."""
    chain = work.setup.plan.chains["before_model_request"]
    if chain.links:
        call_chain(work, chain, work.run, gathered.get("", NO_FACTS))
        check_failed(work)
        if work.run.stopped is not None:
            return finish(work, "stopped")
    reason = unprepared(work)
    if reason is not None:
        raise Failure(reason)
    run, setup = work.run, work.setup
    tools, limits = run.tools, setup.limits
    work.prepared = tools
    request = request_of(run, structured=setup.output.spec is not None)
    names = setup.tool_names if tools is setup.inventory else tuple([tool.name for tool in tools])
    facts = (model_name(run), names, len(request.messages), run.settings, run.instructions)
    work.event("model_requested", _REQUESTED, facts)
    work.phase = _REQUESTING
    if setup.plan.chains["wrap_model_request"].links and run.response is not None:
        run = replace(run, response=None)  # so that a wrapper's own response can be told from an old one
    left = ledger.left(limits.requests, run.requests)
    return _request_model(RequestModel, run, request, left, limits.request_timeout)


def model_name(run: RunState) -> str:
    """Return the name of the request's model."""
    return run.model.name if run.model is not None else ""


BLANK = ModelRequest(messages=())
_REQUEST = copier(
    ModelRequest, "messages", "tools", "instructions", "settings", "output_spec", "run_id", "step"
)


def request_of(run: RunState, *, structured: bool) -> ModelRequest:
    """Return the request that a prepared run state asks for."""
    spec = run.output_spec if structured else None
    return _REQUEST(
        BLANK, run.view, run.tools, run.instructions, run.settings, spec, run.run_id, run.run_step
    )


def unprepared(work: Work) -> Reason | None:
    """Say why the request cannot be sent, or None; only what was projected or appended is examined.

    The error names the last hook that wrote the field, or the caller.
    """
    run = work.run
    if run.request_messages is not None:
        problem = view_problem(run.view)
        if problem is not None:
            return _invalid_view(work, problem, "request_messages")
    else:
        problem = _tail_problem(run)
        if problem is not None:
            return _invalid_view(work, problem, "messages")
    profile = getattr(run.model, "profile", None)
    if profile is None:
        return _selection(work, "no model is selected", "model")
    if run.tools and not profile.tools:
        name = model_name(run)
        return _selection(work, f"model {name!r} takes no tools, and {len(run.tools)} are selected", "tools")
    setup = work.setup
    if setup.spent_limits:
        model = cast(Model, run.model)  # it has a profile
        return unaccountable(model, setup.limits, setup.spent_limits, run.run_step)
    return None


# A tuple: `UserMessage | ToolMessage` would be made anew at each step, for 1,000 instructions.
_MAY_END = (UserMessage, ToolMessage)


def _tail_problem(run: RunState) -> str | None:
    """Say why an unprojected history cannot be sent; it was balanced when it came in, so its tail is enough."""
    for message in reversed(run.messages):
        if isinstance(message, _MAY_END):
            return None
        if isinstance(message, AssistantMessage):
            return "its last message must be the user's or a tool's, not AssistantMessage"
        assert isinstance(message, SystemMessage)
    return "it shows no message but system messages"


def _invalid_view(work: Work, problem: str, field: str) -> InvalidView:
    key, index, hook = work.writers.get(field, (None, None, None))
    who = f"the view that {key}.{hook} left" if key else "the messages that the caller gave"
    return InvalidView(
        message=f"{who} cannot be sent: {problem}",
        key=key,
        index=index,
        hook=hook,
        step=work.run.run_step,
        field=field,
    )


def _selection(work: Work, problem: str, field: str) -> InvalidSelection:
    key, index, hook = work.writers.get(field, work.writers.get("model", (None, None, None)))
    return InvalidSelection(
        message=problem, key=key, index=index, hook=hook, step=work.run.run_step, field=field
    )
