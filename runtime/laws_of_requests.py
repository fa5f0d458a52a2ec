"""The laws of what a request shows and offers, one function each: what is wrong with a step, or None."""

from ..capabilities.state import RunState
from ..capabilities.views import view_problem
from .laws_breach import Breach
from .laws_steps import Step


def hidden_breach(step: Step) -> Breach | None:
    """Say which tool or message came back that was not in the request."""
    before, after = step.given, step.result
    assert isinstance(before, RunState)
    assert isinstance(after, RunState)
    offered = {tool.name for tool in before.tools}
    for tool in after.tools:
        if tool.name not in offered:
            names = sorted(offered), sorted(one.name for one in after.tools)
            return Breach(f"offers {tool.name!r} again, which was not selected", "tools", *names)
    if before.request_messages is None or after.request_messages is None:
        return None
    shown = {id(message) for message in before.view}
    hidden = [message for message in before.messages if id(message) not in shown]
    back = next((one for one in after.view if any(one is gone for gone in hidden)), None)
    if back is not None:
        return Breach("shows again what an earlier capability hid", "request_messages", None, back)
    return None


def balanced_breach(step: Step) -> Breach | None:
    """Say why a view that could be sent cannot be sent any more."""
    before, after = step.given, step.result
    assert isinstance(before, RunState)
    assert isinstance(after, RunState)
    if view_problem(before.view) is not None or after.stopped is not None or after.failed is not None:
        return None
    problem = view_problem(after.view)
    if problem is None:
        return None
    projected = after.request_messages is not before.request_messages
    name = "request_messages" if projected else "messages"
    return Breach(f"left a view that cannot be sent: {problem}", name, before.view, after.view)


def task_breach(step: Step) -> Breach | None:
    """Say how the message with the task went."""
    before, after = step.given, step.result
    assert isinstance(before, RunState)
    assert isinstance(after, RunState)
    if before.task is None or after.task is not None or after.stopped is not None or after.failed is not None:
        return None
    name = "request_messages" if after.request_messages is not before.request_messages else "messages"
    return Breach("dropped the message that holds the task", name, before.task, after.view)
