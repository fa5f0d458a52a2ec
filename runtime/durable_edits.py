"""Edited arguments of a durable run, checked where they are decided: the run itself could only ask again.

Needs the agent; whoever decides without it, or for a run below, finds the request pending again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from .admission import problems_of
from .agent import Agent
from .decisions import ApprovalRequest, Edit
from .errors import DecisionError
from .problems import said


def check_edits(
    agent: Agent[Any],  # Any: of every output type
    pending: Sequence[ApprovalRequest],
    decisions: Mapping[str, object],
) -> None:
    """Raise DecisionError for edited arguments that a tool of the agent does not take."""
    for request in pending:
        decision = decisions.get(request.digest)
        tool = agent.setup.by_name.get(request.tool)
        if isinstance(decision, Edit) and tool is not None and request.agent == agent.name:
            problems = problems_of(agent.setup, tool, decision.arguments)
            if problems:
                raise DecisionError(
                    f"the edited arguments of {request.tool} are not valid: {said(problems)}", request.digest
                )
