"""A response on its way into the history: ids, usage, after_model_request, and what it asks for (steps 5 to 7)."""

from attrs import evolve

from ..capabilities.messages import AssistantMessage, ToolCall, UserMessage
from ..capabilities.records import copier, replace
from ..capabilities.state import RunState
from . import admission
from .chains import NO_FACTS, call_chain
from .ending import blocked, check_failed, close, finish, withheld, withhold_reply
from .errors import IncompleteResponse, InvalidResponse, OutputRetriesExhausted
from .gathering import NONE, Facts, booked, charge, gather_run
from .phases import Effect, Onward, Phase, Responded, Sent
from .work import Failure, Work

CUT_OFF = {
    "length": "the response was cut off at the token limit",
    "content_filter": "the response was stopped by the provider's content filter",
    "incomplete": "the response ended without being finished",
}


def responded(work: Work, event: Responded) -> Effect | Onward:
    """Take in what came out of the model's wrappers."""
    if event.response is not None and event.broken is None and event.run.failed is None:
        chain = work.setup.plan.chains["after_model_request"]
        if not chain.links and not chain.gatherers and event.charged == len(event.responses):
            return _unobserved(work, event, event.response)
    usages = [response.usage for response in event.responses]
    work.run = charge(event.run, event.charged, usages, response=event.response)
    _write_responses(work, event)
    if event.broken is not None:
        raise Failure(event.broken.reason, event.broken.cause)
    if event.response is None:
        check_failed(work)
        return finish(work, "stopped")
    response = _identified(work, event.response)
    if response is not event.response:
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


def _write_responses(work: Work, event: Responded) -> None:
    """Write down each response that a model sent, requests that were charged and brought none, and what wrappers did.

    The last response is the one that goes on, unless a wrapper chose an earlier one or made up its own.
    """
    for sent in event.responses:
        work.write("model_responded", actor="model", facts={"response": sent})
    if event.charged != len(event.responses):
        work.write("note", facts={"requests_without_response": event.charged - len(event.responses)})
    for i, sent in enumerate(event.responses[:-1]):
        if sent is event.response:
            work.write("note", facts={"response_used": i})
    work.entries.extend(event.entries)


def take_sent(work: Work, sent: Sent) -> None:
    """Book the requests that were cut short, and write down what had come back of them."""
    if sent.run is not None:
        work.run = sent.run
    work.run = charge(work.run, sent.charged, sent.usages)
    for response in sent.responses:
        work.write("model_responded", actor="model", facts={"response": response})
    if sent.charged != len(sent.responses):
        work.write("note", facts={"requests_without_response": sent.charged - len(sent.responses)})
    work.entries.extend(sent.entries)


_ENTERED = copier(RunState, "requests", "usage", "response", "messages")
_ANSWERED = copier(RunState, "response", "messages")
_AT = copier(AssistantMessage, "at")


def _unobserved(work: Work, event: Responded, response: AssistantMessage) -> Effect | Onward:
    """Take in a response that no hook looks at: what `responded` and `effective` do, in one copy of the run."""
    work.run = run = event.run
    _write_responses(work, event)
    usages = [sent.usage for sent in event.responses]
    try:
        response = _identified(work, response)
    except Failure:
        work.run = charge(run, event.charged, usages, response=response)  # it was sent, used or not
        raise
    if response.at is None:
        response = _AT(response, work.now)
    assert work.call_index is not None
    work.call_index.add(response, len(run.messages))
    usage = booked(run.usage, usages)
    messages = run.messages + (response,)  # noqa: RUF005  # one copy of a long history, where unpacking makes two
    work.run = _ENTERED(run, run.requests + event.charged, usage, response, messages)
    return _classify(work)


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
    value, problem = work.setup.output.read(response.text)
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
    asked = UserMessage(message, at=work.now)
    work.run = replace(
        work.run,
        messages=(*work.run.messages, asked),
        again=None,
        output_retries_used=run.output_retries_used + 1,
    )
    return Onward.STEP
