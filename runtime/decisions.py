"""Approval: what a person is asked, and what the person may decide. Plain data."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from attrs import field, frozen

from ..capabilities.frozen import FrozenDict, Json, freeze_mapping
from ..capabilities.messages import Content, as_content, text_field
from ..capabilities.shapes import of_type
from ..capabilities.verdict import Always


@frozen(kw_only=True)
class ApprovalRequest:
    """One tool call that waits for a person. `arguments` are sealed: exactly these will run.

    `digest` binds a decision to run, call, tool, arguments and injected values; `timeout` in seconds.
    """

    digest: str
    run_id: str
    agent: str
    call_id: str
    tool: str
    arguments: FrozenDict[Json]
    prompts: tuple[str, ...]
    asked_by: tuple[str, ...]
    always: Always
    timeout: float | None


@frozen
class Approve:
    """Run the call as shown. `always`: and later ones, as far as the request allows."""

    always: bool = field(default=False, kw_only=True, validator=of_type(bool))


@frozen
class Deny:
    """Do not run it; the model reads the message, or the request's own one."""

    message: str = field(default="", validator=text_field)


def _arguments(value: Mapping[str, object]) -> FrozenDict[Json]:
    return freeze_mapping(value, "Edit.arguments")


@frozen
class Edit:
    """Run it with the person's arguments: validated and judged again; the edit itself is the approval."""

    arguments: FrozenDict[Json] = field(converter=_arguments)


@frozen
class Answer:
    """Do not run it; this is its result."""

    content: Content = field(converter=as_content)


Decision: TypeAlias = Approve | Deny | Edit | Answer
DECISIONS: tuple[type[Decision], ...] = (Approve, Deny, Edit, Answer)
Approver: TypeAlias = Callable[
    [tuple[ApprovalRequest, ...]], "Sequence[Decision] | Awaitable[Sequence[Decision]]"
]
