"""Who may write a field of a record: the one table that the check, the docs and `capfold rules` read.

The owner sits on the field itself, as `field(metadata=SEALED)`; a field without one fails at import.
What each owner allows at each hook is `RULES`; how a rule is applied is the runtime's business.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Literal, TypeAlias

from attrs import fields, frozen

from .grid import REDUCERS


class Owner(Enum):
    """Who may write a field."""

    # Members are singletons: hashing by identity spares a Python call at each look-up.
    __hash__ = object.__hash__

    SEALED = "sealed"
    RUNTIME = "runtime"
    LATCH = "latch"
    HISTORY = "history"
    REQUEST = "request"
    RESPONSE = "response"
    PRIVATE = "private"
    OUTPUT = "output"
    # The fields of a CallState that hooks write; a RunState has none of these.
    ARGUMENTS = "arguments"
    VERDICT = "verdict"
    OUTCOME = "outcome"


Metadata: TypeAlias = Mapping[str, Owner]
SEALED: Metadata = {"owner": Owner.SEALED}
RUNTIME: Metadata = {"owner": Owner.RUNTIME}
LATCH: Metadata = {"owner": Owner.LATCH}
HISTORY: Metadata = {"owner": Owner.HISTORY}
REQUEST: Metadata = {"owner": Owner.REQUEST}
RESPONSE: Metadata = {"owner": Owner.RESPONSE}
PRIVATE: Metadata = {"owner": Owner.PRIVATE}
OUTPUT: Metadata = {"owner": Owner.OUTPUT}
ARGUMENTS: Metadata = {"owner": Owner.ARGUMENTS}
VERDICT: Metadata = {"owner": Owner.VERDICT}
OUTCOME: Metadata = {"owner": Owner.OUTCOME}

Consequence: TypeAlias = Literal["rejected", "restored"]


@frozen
class Rule:
    """What happens to a write of an owner's fields.

    `meaning` in words; `consequence` of a write that is not allowed; `allowed`: hook, or `*` for any reducer
    or wrapper, -> what is legal there.
    """

    meaning: str
    consequence: Consequence
    allowed: Mapping[str, str]


ANY = "*"

# Owner -> what its fields obey. `run` of a CallState is sealed as a whole; its fields obey their own owners.
RULES: Mapping[Owner, Rule] = {
    Owner.SEALED: Rule("fixed when the run starts", "rejected", {}),
    Owner.RUNTIME: Rule("counted by the runtime alone", "restored", {}),
    Owner.LATCH: Rule(
        "set once or added to, never cleared",
        "restored",
        {ANY: "set what is unset, or add; ask_again in after_model_request only"},
    ),
    Owner.HISTORY: Rule(
        "the canonical messages",
        "rejected",
        {
            "before_run": "rewrite this run's own input",
            "before_model_request": "append user and system messages",
        },
    ),
    Owner.REQUEST: Rule(
        "one request's selection and view, reset at every step",
        "rejected",
        {
            "before_model_request": "narrow or tune tools, project the view, choose model, settings, "
            "instructions",
            "wrap_model_request": "on the way in: change model, settings, instructions or project the view",
        },
    ),
    Owner.RESPONSE: Rule(
        "the response under way",
        "rejected",
        {
            "after_model_request": "transform the response; a kept call id keeps its call",
            "wrap_model_request": "respond without call_next or after ModelError, else return one it got",
        },
    ),
    Owner.PRIVATE: Rule(
        "the capability's own slot",
        "rejected",
        dict.fromkeys(REDUCERS, "write the own slot with a hashable value that the codec carries"),
    ),
    Owner.OUTPUT: Rule("the run's output", "rejected", {"after_run": "transform it within the output type"}),
    Owner.ARGUMENTS: Rule(
        "the arguments and injected values of one call",
        "rejected",
        {"before_tool_execute": "replace arguments by valid ones, or inject"},
    ),
    Owner.VERDICT: Rule(
        "the verdict on one call, a join",
        "rejected",
        {
            "admit_tool_execute": "add to the verdict, never take back",
            "wrap_tool_execute": "refuse or answer without call_next, or answer over a failed outcome",
        },
    ),
    Owner.OUTCOME: Rule(
        "what became of one call",
        "rejected",
        {
            "after_tool_execute": "change content and metadata; status, error and attempts stay",
            "wrap_tool_execute": "change content and metadata of an outcome it got",
        },
    ),
}


def owners(record: type) -> dict[str, Owner]:
    """Return field -> owner of a record class, in field order.

    Raises TypeError for a field without an owner, so a new field cannot be forgotten.
    """
    found: dict[str, Owner] = {}
    for field in fields(record):
        owner = field.metadata.get("owner")
        if not isinstance(owner, Owner):
            raise TypeError(
                f"{record.__name__}.{field.name} has no owner: write field(metadata=SEALED) or one of "
                f"{', '.join(member.name for member in Owner)}"
            )
        found[field.name] = owner
    return found
