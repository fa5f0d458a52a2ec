"""Starting a run: the record of what it starts with, once its history and its instructions are known."""

from ..capabilities.records import replace
from ..capabilities.views import view_problem
from .errors import InvalidView
from .phases import Broken, Opened
from .work import CallIndex, Failure, Work

# The version of what a log says of a run: a replay reads this one, and refuses any other.
LOG_SCHEMA = 1
# The names of what the record says. It is a row as others are: each run keeps 380 bytes and one object less than with
# an entry and its dict; with that of `run_ended` it is 6,500 instructions a run.
STARTED: tuple[str, ...] = (
    "agent",
    "model",
    "prompt",
    "history",
    "context",
    "instructions",
    "settings",
    "tools",
    "output",
    "capabilities",
    "schema",
    "limits",
    "rules",
    "descriptors",
    "list",
)


def write_started(work: Work) -> None:
    """Write down what the run starts with."""
    setup, run = work.setup, work.run
    names = STARTED
    facts: tuple[object, ...] = (
        setup.name,
        setup.model.name,
        run.messages[run.history_start :],
        run.messages[: run.history_start],
        run.context,
        work.instructions,
        setup.settings,
        setup.tool_digests,
        setup.output.spec,
        setup.prints,
        LOG_SCHEMA,
        setup.limits_set,
        setup.rules,
        setup.tool_descriptors,
        setup.described,
    )
    if run.parent_run_id is not None:
        names, facts = (*names, "parent", "root"), (*facts, run.parent_run_id, run.root_run_id)
    if work.conversation is not None:
        names = (*names, "conversation", "stored")
        facts = (*facts, work.conversation.name, work.conversation.expected)
    work.event("run_started", names, facts)


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
