"""Starting a run: the record of what it starts with, once its history and its instructions are known."""

from ..capabilities.records import replace
from ..capabilities.views import view_problem
from .errors import InvalidView
from .phases import Broken, Opened
from .work import CallIndex, Failure, Work

# The version of what a log says of a run: a replay reads this one, and refuses any other.
LOG_SCHEMA = 1


def write_started(work: Work) -> None:
    """Write down what the run starts with."""
    setup, run = work.setup, work.run
    facts: dict[str, object] = {
        "agent": setup.name,
        "model": setup.model.name,
        "prompt": run.messages[run.history_start :],
        "history": run.messages[: run.history_start],
        "context": run.context,
        "instructions": work.instructions,
        "settings": setup.settings,
        "tools": setup.tool_digests,
        "output": setup.output.spec,
        "capabilities": setup.prints,
        "schema": LOG_SCHEMA,
        "limits": setup.limits_set,
        "rules": setup.rules,
        "descriptors": setup.tool_descriptors,
        "list": setup.described,
    }
    if run.parent_run_id is not None:
        facts |= {"parent": run.parent_run_id, "root": run.root_run_id}
    if work.conversation is not None:
        facts |= {"conversation": work.conversation.name, "stored": work.conversation.expected}
    work.write("run_started", facts=facts)


def opened(work: Work, event: Opened) -> None:
    """Take over what was loaded and resolved; the record of it comes first, then how it came about.

    Raises `Failure` by what broke on the way, and for a history that cannot be sent with the prompt.
    """
    work.conversation = event.conversation
    broken = event.broken
    if broken is None:
        broken = _take(work, event)
    else:
        work.run = event.run  # without a history: nobody knows which
    write_started(work)
    work.entries.extend(event.entries)
    if event.broken is not None:
        raise work.broke(event.broken)
    if broken is not None:
        raise Failure(broken.reason, broken.cause)


def _take(work: Work, event: Opened) -> Broken | None:
    work.instructions = event.instructions
    work.run = replace(event.run, instructions=event.instructions)
    conversation = event.conversation
    if conversation is None:
        return None
    messages = (*event.history, *work.run.messages)
    work.run = replace(work.run, messages=messages, history_start=len(event.history))
    work.call_index = CallIndex(messages)
    problem = view_problem(messages)
    if problem is None:
        return None
    message = f"conversation {conversation.name!r} and the prompt of this run cannot be sent: {problem}"
    return Broken(InvalidView(message=message, field="messages"))
