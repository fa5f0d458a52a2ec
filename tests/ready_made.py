"""One table of the ready-made capabilities, each as somebody might list it: laws, pairs and round trips run over it."""

from capfold.capabilities import (
    RefuseTools,
    RequireApproval,
    SelectTools,
    ToolBudget,
    TrimMessages,
    is_destructive,
    is_read_only,
)
from capfold.capabilities.capability import AnyCapability

# Name of a case -> a capability. Keys differ, so any of them can stand in one list. Those with `deps` or stores too.
READY_MADE: dict[str, AnyCapability] = {
    "RefuseTools": RefuseTools(is_destructive),
    "RequireApproval": RequireApproval({"pay"}),
    "SelectTools": SelectTools(is_read_only),
    "ToolBudget": ToolBudget(3),
    "TrimMessages": TrimMessages(keep_last=4),
}
