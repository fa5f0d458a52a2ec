"""A response on its way into the history: ids, usage, after_model_request, and what it asks for (steps 5 to 7)."""

from collections.abc import Sequence
from typing import cast

from attrs import evolve

from ..capabilities.messages import AssistantMessage, ToolCall, UserMessage
from ..capabilities.records import copier, replace
from ..capabilities.state import RunState
from . import admission
from .billing import Bill, bill_of, booked
from .chains import NO_FACTS, call_chain
from .ending import blocked, check_failed, close, finish, withheld, withhold_reply
from .entries import FromTo, Projected
from .errors import IncompleteResponse, InvalidResponse, OutputRetriesExhausted
from .gathering import NONE, Facts, charge, gather_run, write_bills
from .models import Model
from .phases import Effect, Onward, Phase, Responded, Sent
from .work import Failure, Work

CUT_OFF = {
    "length": "the response was cut off at the token limit",
    "content_filter": "the response was stopped by the provider's content filter",
    "incomplete": "the response ended without being finished",
}


def responded(work: Work, event: Responded) -> Effect | Onward:
    """Take in what came out of the model's wrappers."""
    # At once: each field of a named tuple that is read by its name costs 250 instructions.
    _, run, chosen, charged, responses, entries, broken, bills = event
    given, work.run = work.run, run
    if len(bills) != len(responses):
        bills = _bills(run, responses)
    _write_responses(work, chosen, charged, responses, bills)
    if entries:
        work.entries.extend(entries)
        _write_wrapped(work, given, event)
    if chosen is not None and broken is None and run.failed is None:
        chain = work.setup.plan.chains["after_model_request"]
        if not chain.links and not chain.gatherers:
            return _unobserved(work, chosen, charged, bills)
    work.run = replace(charge(run, charged, bills), response=chosen)
    if broken is not None:
        raise work.broke(broken)
    if chosen is None:
        check_failed(work)
        return finish(work, "stopped")
    response = _identified(work, chosen)
    if response is not chosen:
        work.run = replace(work.run, response=response)
    if work.run.failed is not None:
        enter_unseen(work)
        raise Failure(blocked(work))
    try:
        gathering = gather_run(work, "after_model_request", Phase.RESPONDING)
    except Failure:
        enter_unseen(work)
        raise
    return gathering or effective(work)


def _bills(run: RunState, responses: Sequence[AssistantMessage]) -> tuple[Bill, ...]:
    """Return one bill per response, each as one of the run's model."""
    model = cast(Model, run.model)  # the request was prepared with one
    return tuple([bill_of(model, response.usage, listed=False) for response in responses])


def _write_responses(
    work: Work,
    chosen: AssistantMessage | None,
    charged: int,
    responses: Sequence[AssistantMessage],
    bills: Sequence[Bill],
) -> None:
    """Write down each response that a model sent, and requests that were charged and brought none.

    The last response is the one that goes on, unless a wrapper chose an earlier one or made up its own.
    """
    if charged == 1 and len(responses) == 1:  # the usual case: nothing to zip, nothing more to say
        _write_response(work, responses[0], bills[0])
        return
    for sent, bill in zip(responses, bills, strict=True):
        _write_response(work, sent, bill)
    if charged != len(responses):
        work.write("note", facts={"requests_without_response": charged - len(responses)})
    if len(responses) > 1:
        for i, sent in enumerate(responses[:-1]):
            if sent is chosen:
                work.write("note", facts={"response_used": i})


def _write_wrapped(work: Work, given: RunState, event: Responded) -> None:
    """Write down what wrappers left of the request, and whose response went on where their edges do not tell it."""
    run, chosen, responses = event.run, event.response, event.responses
    request: dict[str, object] = {
        name: getattr(run, name)
        for name in ("settings", "instructions")
        if getattr(run, name) is not getattr(given, name)
    }
    if run.model is not given.model and run.model is not None:
        request["model"] = run.model.name
    if run.request_messages is not given.request_messages:
        request["request_messages"] = Projected(run.request_messages, run.messages)
    if request:
        work.write("note", facts={"request": request})
    if event.broken is not None or any(chosen is sent for sent in responses):
        return
    if chosen is None:
        if responses:
            work.write("note", facts={"no_response_used": True})
        return
    made = [entry.changes["response"] for entry in event.entries if "response" in entry.changes]
    if responses or len(made) > 1:
        places = [i for i, change in enumerate(made) if isinstance(change, FromTo) and change.after is chosen]
        work.write("note", facts={"response_made": places[-1] if places else None})


_RESPONDED = ("response", "model", "cost")


def _write_response(work: Work, sent: AssistantMessage, bill: Bill) -> None:
    model, _, cost = bill
    work.event("model_responded", _RESPONDED, (sent, model, cost), None, "model")


def take_sent(work: Work, sent: Sent) -> None:
    """Book the requests that were cut short, and write down what had come back of them."""
    if sent.run is not None:
        work.run = sent.run
    work.run = charge(work.run, sent.charged, sent.bills)
    if sent.bills and not sent.responses:
        write_bills(work, sent.charged, sent.bills)
        return
    for response, bill in zip(sent.responses, sent.bills, strict=True):
        _write_response(work, response, bill)
    if sent.charged != len(sent.responses):
        work.write("note", facts={"requests_without_response": sent.charged - len(sent.responses)})
    work.entries.extend(sent.entries)


_ENTERED = copier(
    RunState, "requests", "tool_calls", "usage", "usage_by_model", "cost", "response", "messages"
)
_ANSWERED = copier(RunState, "response", "messages")
_AT = copier(AssistantMessage, "at")


def _unobserved(
    work: Work, response: AssistantMessage, charged: int, bills: Sequence[Bill]
) -> Effect | Onward:
    """Take in a response that no hook looks at: what `responded` and `effective` do, in one copy of the run."""
    run = work.run
    try:
        response = _identified(work, response)
    except Failure:
        work.run = replace(charge(run, charged, bills), response=response)  # it was sent, used or not
        raise
    if response.at is None:
        response = _AT(response, work.now)
    assert work.call_index is not None
    work.call_index.add(response, len(run.messages))
    usage, by_model, cost = booked(run, bills)
    messages = run.messages + (response,)  # noqa: RUF005  # one copy of a long history, where unpacking makes two
    calls = run.tool_calls
    if response.tool_calls and work.setup.unhindered and _goes_on(run, response):
        calls += len(response.tool_calls)  # else `judged` charges the batch, in a copy of its own
        work.charged = True
    work.run = _ENTERED(run, run.requests + charged, calls, usage, by_model, cost, response, messages)
    return _classify(work)


def _goes_on(run: RunState, response: AssistantMessage) -> bool:
    """Tell whether `_classify` goes on with what a response asks for."""
    return run.stopped is None and run.again is None and response.finish_reason not in CUT_OFF


def effective(work: Work, facts: Facts = NONE) -> Effect | Onward:
    """Run the after_model_request chain; the effective response enters the history."""
    chain = work.setup.plan.chains["after_model_request"]
    if not chain.links:
        _enter(work)
        return _classify(work)
    try:
        call_chain(work, chain, work.run, facts.get("", NO_FACTS))
        _enter(work)
    except Failure:
        enter_unseen(work)
        raise
    if work.run.failed is not None:
        work.run = withhold_reply(work.run)
        raise Failure(blocked(work))
    return _classify(work)


def _identified(work: Work, response: AssistantMessage) -> AssistantMessage:
    """Make missing call ids, rename ids of earlier responses on record, refuse equal ids within the response."""
    if not response.tool_calls:
        return response
    run, index = work.run, work.call_index
    assert index is not None
    if len(response.tool_calls) == 1:  # the usual case, without the lists
        only = response.tool_calls[0].id
        if only and not index.taken(only, run.messages):
            return response
    calls: list[ToolCall] = []
    given = {call.id for call in response.tool_calls}  # a made id is none of these either
    seen: set[str] = set()
    renamed: dict[str, object] = {}
    for i, call in enumerate(response.tool_calls):
        if call.id and call.id in seen:
            raise Failure(
                InvalidResponse(
                    message=f"the response has two calls with the id {call.id!r}", step=run.run_step
                )
            )
        seen.add(call.id)
        if call.id and not index.taken(call.id, run.messages):
            calls.append(call)
            continue
        made = f"call_{len(run.messages)}_{i}"
        while made in seen or made in given or index.taken(made, run.messages):
            made += "_"
        seen.add(made)
        if call.id:
            renamed[call.id] = made
        calls.append(evolve(call, id=made))
    if renamed:
        work.write("note", facts={"renamed_calls": renamed})
    if all(new is old for new, old in zip(calls, response.tool_calls, strict=True)):
        return response
    return evolve(response, tool_calls=tuple(calls))


def _enter(work: Work) -> None:
    """Append the effective response to the history."""
    response = work.run.response
    assert response is not None
    if response.tool_calls and any(not call.id or call.origin != "model" for call in response.tool_calls):
        response = _identified(work, response)  # calls that capabilities added may have no id yet
    if response.at is None:
        response = _AT(response, work.now)
    assert work.call_index is not None
    work.call_index.add(response, len(work.run.messages))
    messages = work.run.messages + (response,)  # noqa: RUF005  # one copy of a long history, as above
    work.run = _ANSWERED(work.run, response, messages)


def enter_unseen(work: Work) -> None:
    """Append the last accepted response with its text withheld: what should have seen it failed."""
    response = work.run.response
    if response is None or (work.run.messages and work.run.messages[-1] is response):
        return
    work.run = replace(work.run, response=withheld(response))
    _enter(work)


def _classify(work: Work) -> Effect | Onward:
    """Decide what the effective response asks for."""
    run = work.run
    response = run.response
    assert response is not None
    if response.finish_reason in CUT_OFF:
        raise Failure(
            IncompleteResponse(
                message=CUT_OFF[response.finish_reason],
                finish_reason=response.finish_reason,
                step=run.run_step,
            )
        )
    if run.stopped is not None:
        close(work)
        return finish(work, "stopped")
    if run.again is not None:
        return ask_again(work, run.again)
    if response.tool_calls:
        return admission.shape(work, response.tool_calls)
    output = work.setup.output
    refused = response.finish_reason == "refusal" and output.spec is not None
    said = f"it is a refusal, {response.text!r:.200}"
    value, problem = (None, said) if refused else output.read(response.text)
    if problem is not None:
        return ask_again(work, f"The output is not valid: {problem}. Answer again, with a valid output only.")
    return finish(work, "completed", value)


def ask_again(work: Work, message: str) -> Effect | Onward:
    """Send the response back with a message, as often as the output retries allow. Raises `Failure` beyond."""
    run = work.run
    if run.output_retries_used >= run.output_retries:
        raise Failure(
            OutputRetriesExhausted(
                message=f"the output was not accepted after {run.output_retries} retries; the last message: {message}",
                step=run.run_step,
            )
        )
    close(work)
    work.write("note", facts={"asked_again": message})
    asked = UserMessage(message, at=work.now)
    work.run = replace(
        work.run,
        messages=(*work.run.messages, asked),
        again=None,
        output_retries_used=run.output_retries_used + 1,
    )
    return Onward.STEP
