"""The laws: one table of name, sentence, hooks and function. Checks, command, docs and tests read it.

A law looks at one step, and says what is wrong with it or nothing. Earlier laws of the table are the more specific
ones, so that a fault is named by what it is. How steps are found is not said here.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from attrs import frozen

from ..capabilities.capability import AnyCapability
from ..capabilities.frozen import FrozenDict
from ..capabilities.grid import REDUCERS
from .laws_breach import Breach
from .laws_declared import idempotent_breach, order_breach
from .laws_of_hooks import (
    config_breach,
    json_breach,
    owner_breach,
    pure_breach,
    sealed_breach,
    silent_breach,
    slot_breach,
    total_breach,
)
from .laws_of_requests import balanced_breach, hidden_breach, task_breach
from .laws_steps import Step

Holds: TypeAlias = Callable[[Step], Breach | None]


@frozen
class Law:
    """A property that every capability must have. `once`: what is looked at without any record."""

    name: str
    sentence: str
    hooks: tuple[str, ...]
    holds: Holds
    once: Callable[[AnyCapability], Breach | None] | None = None


_REQUEST = ("before_model_request",)
_VIEW = ("before_run", "before_model_request")
_JUDGED = ("admit_tool_execute", "after_tool_execute")

LAWS: Mapping[str, Law] = FrozenDict(
    {
        law.name: law
        for law in (
            Law(
                "total",
                "A hook never raises on a record that a run reaches, and returns a record of its class.",
                REDUCERS,
                total_breach,
            ),
            Law(
                "pure",
                "The same record gives the same result, and stays as it is; no clock, chance or file is read.",
                REDUCERS,
                pure_breach,
            ),
            Law("sealed", "Judging and observing a call leave its arguments alone.", _JUDGED, sealed_breach),
            Law(
                "json",
                "Arguments, settings and metadata stay JSON, and shaped arguments fit the tool's schema.",
                REDUCERS,
                json_breach,
            ),
            Law(
                "hidden",
                "A tool or message that is not in the request does not come back into it.",
                _REQUEST,
                hidden_breach,
            ),
            Law("balanced", "A view that can be sent stays one that can be sent.", _VIEW, balanced_breach),
            Law("task", "The message that holds the run's task stays in the view.", _VIEW, task_breach),
            Law(
                "portable", "Slot and configuration survive the codec.", REDUCERS, slot_breach, config_breach
            ),
            Law("owner", "Nothing is written that must be restored or rejected.", REDUCERS, owner_breach),
            Law(
                "silent", "A hook that changes nothing returns the identical record.", REDUCERS, silent_breach
            ),
            Law(
                "idempotent",
                "Where declared: a second call on its own result changes nothing more.",
                REDUCERS,
                idempotent_breach,
            ),
            Law(
                "order",
                "Where declared: before or after a capability that narrows or judges, the result is the same.",
                ("before_model_request", "admit_tool_execute"),
                order_breach,
            ),
        )
    }
)


def breach_of(law: Law, step: Step) -> Breach | None:
    """Return how a step breaks a law, or None: also where the law does not speak of the step's hook.

    A step without a whole record breaks `total`, and says nothing to any other law.
    """
    if step.hook not in law.hooks or (law.name != "total" and not step.whole):
        return None
    return law.holds(step)
