"""The laws of any hook, one function each: what is wrong with a step, or None. Which hooks obey it, the table says."""

from collections.abc import Iterator

from ..capabilities.call_state import CallState
from ..capabilities.capability import AnyCapability, state_type
from ..capabilities.frozen import FrozenDict, json_problem, same
from ..capabilities.messages import AssistantMessage
from ..capabilities.state import RunState
from .arguments import validate
from .chains import run_of
from .laws_breach import Breach, differing, part_of
from .laws_config import config_problem
from .laws_lives import Record
from .laws_purity import Reads, rebuilt
from .laws_steps import Step
from .portable import slot_problem
from .problems import said


def total_breach(step: Step) -> Breach | None:
    """Say how a hook raised, or returned what is no record of its class."""
    if step.error is not None:
        return Breach(f"raised {type(step.error).__name__}: {step.error}")
    if not step.whole:
        what = "None: did you forget to return the record?" if step.after is None else repr(step.after)[:80]
        return Breach(f"must return a {type(step.given).__name__}, and returned {what}")
    return None


def pure_breach(step: Step) -> Breach | None:
    """Say how a hook wrote into its record, read the outside, or made two things of one record."""
    for name, was, now in differing(step.pristine, step.given):
        return Breach("wrote into the record it was given", name, was, now)
    reads = Reads()
    try:
        second = step.again(rebuilt(step.pristine), reads)
    except Exception as error:  # noqa: BLE001  # a hook that raises the second time only is not pure
        return Breach(
            f"returned a record at first, and raised {type(error).__name__} the second time: {error}"
        )
    if reads.found:
        return Breach(f"read {reads.found[0]}")
    if type(second) is not type(step.after):
        return Breach(f"returned a record at first, and {type(second).__name__} the second time")
    assert isinstance(second, RunState | CallState)
    for name, first, other in differing(step.result, second):
        return Breach("made two things of one record", name, first, other)
    return None


def sealed_breach(step: Step) -> Breach | None:
    """Say which part of a call a judge or observer changed, that was sealed before."""
    before, after = step.given, step.result
    assert isinstance(before, CallState)
    for name in ("asked", "arguments", "injected"):
        if not same(getattr(before, name), getattr(after, name)):
            return Breach(
                "changed what was judged: arguments change in before_tool_execute only",
                name,
                getattr(before, name),
                getattr(after, name),
            )
    return None


def json_breach(step: Step) -> Breach | None:
    """Say what is no JSON any more, or no arguments of the tool."""
    for name, value in _json_parts(step.result):
        problem = json_problem(value)
        if problem is not None:
            return Breach(f"is no longer JSON: {problem}", name, part_of(step.given, name), value)
    call = step.result
    if isinstance(call, CallState) and step.hook == "before_tool_execute":
        assert isinstance(step.given, CallState)
        problems = validate(call.tool, call.arguments)
        if problems and "repairs" not in step.capability.declares:
            what = f"does not fit the schema of {call.tool.name!r}: {said(problems)}"
            return Breach(what, "arguments", step.given.arguments, call.arguments)
    return None


def _json_parts(record: Record) -> Iterator[tuple[str, object]]:
    if isinstance(record, RunState):
        yield "settings", record.settings
        if isinstance(record.response, AssistantMessage):
            yield "response.metadata", record.response.metadata
        return
    yield "arguments", record.arguments
    yield "injected", record.injected
    if record.outcome is not None:
        yield "outcome.metadata", record.outcome.metadata


def slot_breach(step: Step) -> Breach | None:
    """Say why a value that a hook put into its slot would not come back from the codec."""
    capability = step.capability
    before, after = run_of(step.given).slots, run_of(step.result).slots
    if type(after) is not FrozenDict or capability.key not in after:
        return None
    value = after[capability.key]
    if value is before.get(capability.key):
        return None
    problem = slot_problem(value, state_type(type(capability)))
    return None if problem is None else Breach(problem, "slots", before.get(capability.key), value)


def config_breach(capability: AnyCapability) -> Breach | None:
    """Say why what a capability is made of would not come back from the codec."""
    problem = slot_problem(capability.initial(), state_type(type(capability)))
    if problem is not None:
        return Breach(
            f"initial() makes what the codec does not carry: {problem}", "slots", None, capability.initial()
        )
    problem = config_problem(capability)
    return None if problem is None else Breach(problem)


def owner_breach(step: Step) -> Breach | None:
    """Say which write of a hook would be rejected, or restored."""
    if step.transition is None:
        return None
    for name, (tried, legal) in step.transition.rejected.items():
        return Breach(
            f"wrote what it may not, which ends the run: {legal}", name, part_of(step.given, name), tried
        )
    for name, (tried, kept) in step.transition.restored.items():
        return Breach("wrote what belongs to the runtime, which puts it back", name, kept, tried)
    return None


def silent_breach(step: Step) -> Breach | None:
    """Say how a hook copied what it did not change."""
    before, after = step.given, step.result
    if after is before:
        return None
    if step.transition is None:
        return Breach("returned an equal copy: return the record itself when nothing changes")
    if isinstance(before, RunState) and isinstance(after, RunState):
        view = before.view, after.view
        if after.request_messages is not before.request_messages and same(*view):
            copied = "projected an equal view: a message that does not change is returned as it is"
            return Breach(copied, "request_messages", *view)
    return None
